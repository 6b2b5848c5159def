//! Computes the two buckets and the tag of a key from the key's hash.
//!
//! The table is a stack of *layers* of buckets. The number of a bucket within its layer is its *base*. A base and a
//! tag are computed from the key's hash. The second base of the key is computed from the first base and the tag. A base
//! and the tag determine a layer, and base and layer determine a bucket. An entry is in a slot of one of its two
//! buckets, and the slot contains the tag. The base follows from the number of the bucket. Base and tag are enough to
//! compute the other bucket of the entry, and both its buckets after the table has grown. The index does not
//! store the full hash, because neither moving an entry nor growing needs it.
//!
//! The table grows by linear hashing over the layers of one base at a time: base 0 gets a new layer, then base
//! 1, and so on. Each step adds one new bucket and moves to it a part of the entries of one old bucket. (W.
//! Litwin, "Linear hashing: a new tool for file and table addressing", VLDB 1980.) Until all bases have the new
//! layer, buckets are unevenly filled. This has little effect, because an insertion can choose between two
//! buckets.
//!
//! The checkpoint's format depends on all of these formulas: a change here needs a new format version.

use edgeward_types::KeyHash;

use super::bucket::HITS_SHIFT;

/// The constant numbers of one index. Together with its [`Shape`], they determine the tag and the buckets of
/// each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// The number of bases, which is the number of buckets of a layer.
    pub(super) bases: u64,
    /// The number of low bits of a slot that contain the location of the object on the device. The tag takes the bits
    /// between the location and the hit count.
    pub(super) location_bits: u32,
}

/// The first base and the tag of a key. The index cannot distinguish two keys with the same tag and the same two
/// bases, even if the first base of one key is the second base of the other.
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
        let hash = rehash(key);
        // The base uses the top bits, the tag the low ones.
        Identity {
            base: scale(hash, self.bases),
            tag: hash & self.tag_mask(),
        }
    }

    /// Returns the other base of a key, given one of its two bases and its tag. The sum of both bases, modulo the
    /// number of bases, is a hash of the tag.
    ///
    /// A sum works for any number of bases, whereas the usual exclusive or requires a power of two.
    #[inline]
    pub(super) fn partner(self, base: u64, tag: u64) -> u64 {
        let sum = scale(mix(tag), self.bases);
        if sum >= base {
            sum - base
        } else {
            sum + self.bases - base
        }
    }

    /// Returns the bucket of `tag` at `base` for this shape of the table.
    #[inline]
    pub(super) fn bucket(self, shape: Shape, base: u64, tag: u64) -> u64 {
        layer(layer_hash(base, tag), shape.layers_at(base)) * self.bases + base
    }

    /// Returns true if an entry with `tag` at `base` moves to the new layer when the number of layers at `base` grows
    /// to `layers`. The new layer is `layers - 1`.
    pub(super) fn moves_up(base: u64, tag: u64, layers: u64) -> bool {
        layer(layer_hash(base, tag), layers) == layers - 1
    }
}

/// The size of the table: each base has a bucket in `layers` layers, and the bases below `split` have one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) layers: u64,
    pub(super) split: u64,
}

impl Shape {
    pub(super) const fn from_buckets(buckets: u64, bases: u64) -> Self {
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

    /// Packs both fields into one word, so that a reader loads both with one atomic load.
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

/// Returns the layer that linear hashing assigns to `layer_hash` among `layers`.
#[inline]
fn layer(layer_hash: u64, layers: u64) -> u64 {
    // `wide` is the smallest power of two not below `layers`. The low bits of `layer_hash` select one of `wide`
    // layers. If this layer does not exist yet, its entries are in the layer from which it will be split.
    let wide = layers.next_power_of_two();
    let at = layer_hash & (wide - 1);
    if at < layers { at } else { at & (wide / 2 - 1) }
}

/// Returns the parent of the newest layer, `layers - 1`. The parent is the layer from which entries move to the
/// newest layer.
pub(super) fn parent(layers: u64) -> u64 {
    let newest = layers - 1;
    newest - (1 << newest.ilog2())
}

#[inline]
fn layer_hash(base: u64, tag: u64) -> u64 {
    mix(tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ base)
}

/// Maps the top bits of `hash` to a number below `limit`. The multiplication is cheaper than a remainder, which
/// needs a division.
#[inline]
fn scale(hash: u64, limit: u64) -> u64 {
    ((u128::from(hash) * u128::from(limit)) >> 64) as u64
}

/// Returns a hash of a key hash, by one wide multiplication. Key hashes in tests and simulations may be consecutive
/// numbers, which would fill the buckets unevenly.
#[inline]
fn rehash(key: KeyHash) -> u64 {
    let wide = u128::from(key.0 ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93_u128;
    mix((wide as u64) ^ ((wide >> 64) as u64))
}

/// Mixes a number: every bit of the input affects every bit of the output.
#[inline]
fn mix(mut x: u64) -> u64 {
    x ^= x >> 32;
    x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^= x >> 32;
    x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

/// The number of low bits of a packed shape that contain `split`. They allow 2^40 bases (64 TiB of buckets),
/// and the other bits allow 2^24 layers.
const SPLIT_BITS: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;

    /// From each of an entry's two bases and the tag, the other base can be computed.
    ///
    /// Method: compute the partner of the partner of a thousand pairs of base and tag, for odd and even, small and
    /// large numbers of bases.
    #[test]
    fn the_partner_of_the_partner_is_the_first_base() {
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

    /// Growth by one layer moves entries only from the parent layer to the new layer.
    #[test]
    fn a_split_takes_from_one_layer_only() {
        for layers in 2..200 {
            for layer_hash in 0..4096 {
                let (before, after) = (layer(layer_hash, layers - 1), layer(layer_hash, layers));
                assert!(before < layers - 1 && after < layers);
                if before != after {
                    assert_eq!((before, after), (parent(layers), layers - 1));
                }
            }
        }
    }

    #[test]
    fn a_shape_survives_packing() {
        for buckets in [121, 122, 241, 242, 243, 121 * 9 + 120] {
            let shape = Shape::from_buckets(buckets, 121);
            assert_eq!(Shape::unpack(shape.pack()), shape);
            assert_eq!(shape.buckets(121), buckets);
        }
    }
}
