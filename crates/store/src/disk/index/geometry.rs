//! Where a key belongs: pure arithmetic from a hash to two buckets and a tag.
//!
//! The table is a stack of *layers*, each of as many buckets as there are *bases*. A key's hash gives a base and
//! a tag; base and tag together give a second base, and either base with the tag gives the layer. So whoever holds
//! a bucket's number and a slot's tag can tell the slot's other bucket, and the bucket it belongs to after the table
//! has grown: neither moving an entry nor growing needs the full hash, which the index therefore does not keep.
//!
//! Growing is linear hashing over the layers of one base at a time: base 0 gets its new layer, then base 1, and so
//! on; each step takes one old bucket apart into itself and one new one. (W. Litwin, "Linear hashing: a new tool for
//! file and table addressing", VLDB 1980.) That leaves layers unevenly filled in between, and two choices even it out.
//!
//! All of this is frozen by the checkpoint's format: a change here needs a new format version.

use edgeward_types::KeyHash;

use super::bucket::HITS_SHIFT;

/// The numbers that fix every address of one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Buckets a layer.
    pub(super) bases: u64,
    /// Low bits of a slot that hold the location; the tag has the rest below the hits.
    pub(super) location_bits: u32,
}

/// A key as the index knows it. Two keys with the same tag and the same two bases are one to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) base: u64,
    pub(super) tag: u64,
}

impl Geometry {
    pub(super) const fn tag_bits(self) -> u32 {
        HITS_SHIFT - self.location_bits
    }

    pub(super) const fn location_mask(self) -> u64 {
        (1 << self.location_bits) - 1
    }

    pub(super) const fn tag_mask(self) -> u64 {
        (1 << self.tag_bits()) - 1
    }

    #[inline]
    pub(super) fn identify(self, key: KeyHash) -> Identity {
        let hash = spread(key);
        // The base takes the top bits, the tag the low ones.
        Identity {
            base: below(hash, self.bases),
            tag: hash & self.tag_mask(),
        }
    }

    /// The other base of a tag found at `base`: the two add up to a number that the tag gives, modulo the bases.
    ///
    /// A sum works for any number of bases, where the usual exclusive or wants a power of two.
    #[inline]
    pub(super) fn partner(self, base: u64, tag: u64) -> u64 {
        let sum = below(mix(tag), self.bases);
        if sum >= base {
            sum - base
        } else {
            sum + self.bases - base
        }
    }

    /// The bucket at `base` where `tag` belongs while the table has this shape.
    #[inline]
    pub(super) fn bucket(self, shape: Shape, base: u64, tag: u64) -> u64 {
        layer(choice(base, tag), shape.layers_at(base)) * self.bases + base
    }

    /// Whether `tag` at `base` moves to the layer that is new when `base` comes to have `layers`.
    pub(super) fn moves_up(base: u64, tag: u64, layers: u64) -> bool {
        layer(choice(base, tag), layers) == layers - 1
    }
}

/// How far the table has grown: all bases have `layers`, and those below `split` one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) layers: u64,
    pub(super) split: u64,
}

impl Shape {
    pub(super) const fn of(buckets: u64, bases: u64) -> Self {
        Self {
            layers: buckets / bases,
            split: buckets % bases,
        }
    }

    pub(super) const fn buckets(self, bases: u64) -> u64 {
        self.layers * bases + self.split
    }

    #[inline]
    pub(super) const fn layers_at(self, base: u64) -> u64 {
        self.layers + (base < self.split) as u64
    }

    /// Both in one word, so that a reader sees them together.
    pub(super) const fn pack(self) -> u64 {
        self.layers << SPLIT_BITS | self.split
    }

    #[inline]
    pub(super) const fn unpack(word: u64) -> Self {
        Self {
            layers: word >> SPLIT_BITS,
            split: word & ((1 << SPLIT_BITS) - 1),
        }
    }
}

/// The layer that linear hashing gives to `choice` among `layers`.
#[inline]
fn layer(choice: u64, layers: u64) -> u64 {
    // The smallest power of two that is not below `layers`; whatever falls beyond the last layer still lives in the
    // one it will split from.
    let wide = layers.next_power_of_two();
    let at = choice & (wide - 1);
    if at < layers { at } else { at & (wide / 2 - 1) }
}

/// The layer of a layer's last split: where entries of the new layer `layers - 1` have been until now.
pub(super) fn parent(layers: u64) -> u64 {
    let newest = layers - 1;
    newest - (1 << newest.ilog2())
}

#[inline]
fn choice(base: u64, tag: u64) -> u64 {
    mix(tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ base)
}

/// A number below `limit`, from the top bits of `hash`: a multiplication where a remainder would cost a division.
#[inline]
fn below(hash: u64, limit: u64) -> u64 {
    ((u128::from(hash) * u128::from(limit)) >> 64) as u64
}

/// A key hash may be a dense id (in tests and simulations); one wide multiplication spreads it over all bits.
#[inline]
fn spread(key: KeyHash) -> u64 {
    let wide = u128::from(key.0 ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93_u128;
    mix((wide as u64) ^ ((wide >> 64) as u64))
}

/// Every bit of the input reaches every bit of the output.
#[inline]
fn mix(mut x: u64) -> u64 {
    x ^= x >> 32;
    x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^= x >> 32;
    x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

/// Room for 2^40 bases (64 TiB of buckets) and 2^24 layers.
const SPLIT_BITS: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;

    /// From either of its two buckets an entry finds the other.
    ///
    /// Method: small numbers of bases, odd and even, in full; a large one by sample.
    #[test]
    fn the_partner_of_the_partner_is_where_one_started() {
        for bases in [1, 2, 3, 64, 121, 1_000_003] {
            let geometry = Geometry {
                bases,
                location_bits: 30,
            };
            for tag in 0..1000 {
                let base = tag * 7919 % bases;
                let other = geometry.partner(base, tag);
                assert!(other < bases);
                assert_eq!(geometry.partner(other, tag), base, "{bases} bases");
            }
        }
    }

    /// Growing by one layer moves entries from the parent layer to the new one and touches no others.
    #[test]
    fn a_split_takes_from_one_layer_only() {
        for layers in 2..200 {
            for choice in 0..4096 {
                let (before, after) = (layer(choice, layers - 1), layer(choice, layers));
                assert!(before < layers - 1 && after < layers);
                if before != after {
                    assert_eq!((before, after), (parent(layers), layers - 1));
                }
            }
        }
    }

    #[test]
    fn a_shape_survives_packing_and_tells_its_buckets() {
        for buckets in [121, 122, 241, 242, 243, 121 * 9 + 120] {
            let shape = Shape::of(buckets, 121);
            assert_eq!(Shape::unpack(shape.pack()), shape);
            assert_eq!(shape.buckets(121), buckets);
        }
    }
}
