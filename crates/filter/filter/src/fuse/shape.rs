//! The layout of a shard: the number of slots for a number of ids, and the four slots of a hash.

use crate::rate::Rate;

/// The width of slots, which may be fractional on average.
///
/// A share of `narrow` / 2³² of the ids compares `bits` bits, the others one bit more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Width {
    /// The width of a narrow slot in bits, 1 to 32.
    pub(crate) bits: u8,
    /// The share of narrow ids in units of 2⁻³².
    pub(crate) narrow: u64,
}

impl Width {
    /// Returns the smallest width whose rate is at most `rate`.
    ///
    /// Doubling is exact, so every machine computes the same width.
    pub(crate) fn for_rate(rate: Rate) -> Self {
        let mut bits = 0;
        let mut scaled = rate.share();
        // 2^-bits >= rate > 2^-(bits + 1).
        while scaled <= 0.5 {
            scaled *= 2.0;
            bits += 1;
        }
        // With a share p of narrow ids: rate = 2^-(bits + 1) · (1 + p), so p = 2 · scaled - 1, which is at most 1.
        let share = 2.0 * scaled - 1.0;
        Self {
            bits,
            narrow: (share * WHOLE as f64) as u64,
        }
    }

    /// The probability that an absent id gets "maybe".
    #[cfg(test)]
    fn rate(self) -> f64 {
        let narrow = self.narrow as f64 / WHOLE as f64;
        (1.0 + narrow) / 2f64.powi(i32::from(self.bits) + 1)
    }
}

const WHOLE: u64 = 1 << 32;

/// The positions and widths of a shard's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The width of a narrow slot in bits.
    pub(crate) bits: u8,
    /// The binary logarithm of the number of slots in a segment.
    pub(crate) segment_log2: u8,
    /// The number of segments in which an id's first slot may lie; three more follow. 0 for a shard without
    /// ids.
    pub(crate) start_segments: u32,
    /// The index of the first wide slot.
    pub(crate) first_wide_slot: u32,
}

impl Shape {
    /// A shard without ids and slots.
    pub(crate) const EMPTY: Self = Self {
        bits: 1,
        segment_log2: 0,
        start_segments: 0,
        first_wide_slot: 0,
    };

    /// Returns a shape for `ids` ids. `generosity` is 0 for the first attempt to build the shard and grows with failed
    /// attempts; each unit adds one slot per 100 ids.
    pub(crate) fn for_ids(ids: usize, width: Width, generosity: u32) -> Self {
        if ids == 0 {
            return Self::EMPTY;
        }
        let class = SIZE_CLASSES
            .iter()
            .find(|class| ids >= class.ids_min)
            .expect("the last class begins at 0 ids");
        let segment = 1u64 << class.segment_log2;
        let permille = class.permille + u64::from(generosity) * 10;
        let segments = (ids as u64 * permille).div_ceil(1000).div_ceil(segment);
        let start_segments = segments.saturating_sub(ARITY as u64 - 1).max(1);
        let starts = start_segments << class.segment_log2;
        let mut shape = Self {
            bits: width.bits,
            segment_log2: class.segment_log2,
            start_segments: u32::try_from(start_segments).expect("a shard is a few million ids"),
            // Rounded down, so that the rate never exceeds the requested rate.
            first_wide_slot: ((starts * width.narrow) >> 32) as u32,
        };
        if shape.first_wide_slot == shape.first_slots() {
            // No id is wide, so the last three segments are narrow too.
            shape.first_wide_slot = shape.slots();
        }
        shape
    }

    /// Returns true for a shard without ids.
    pub(crate) fn is_empty(self) -> bool {
        self.start_segments == 0
    }

    /// The number of slots that can be the first slot of an id.
    pub(crate) fn first_slots(self) -> u32 {
        self.start_segments << self.segment_log2
    }

    /// The number of all slots.
    pub(crate) fn slots(self) -> u32 {
        if self.is_empty() {
            return 0;
        }
        (self.start_segments + ARITY as u32 - 1) << self.segment_log2
    }

    /// The size in bytes of all slots and of the padding that lets every slot be read as part of eight bytes.
    pub(crate) fn bytes(self) -> u64 {
        if self.is_empty() {
            return 0;
        }
        self.bit_of(self.slots()).div_ceil(8) + PADDING_BYTES
    }

    /// The probability that an absent id of this shard gets "maybe".
    pub(crate) fn rate(self) -> f64 {
        if self.is_empty() {
            return 0.0;
        }
        let narrow =
            f64::from(self.first_wide_slot.min(self.first_slots())) / f64::from(self.first_slots());
        (1.0 + narrow) / 2f64.powi(i32::from(self.bits) + 1)
    }

    /// Returns true if no computation with this shape overflows. A shape without ids must be [`Self::EMPTY`].
    pub(crate) fn is_valid(self) -> bool {
        if self.is_empty() {
            return self == Self::EMPTY;
        }
        let segments = u64::from(self.start_segments) + ARITY as u64 - 1;
        (1..=32).contains(&self.bits)
            && self.segment_log2 <= SEGMENT_LOG2_MAX
            && segments << self.segment_log2 <= u64::from(SLOTS_MAX)
            && self.first_wide_slot <= self.slots()
    }

    /// Returns the bit at which slot `slot` begins.
    pub(crate) fn bit_of(self, slot: u32) -> u64 {
        u64::from(slot) * u64::from(self.bits)
            + u64::from(slot.saturating_sub(self.first_wide_slot))
    }

    /// Returns the slots and the fingerprint of a mixed hash.
    pub(crate) fn probe(self, mixed: u64) -> Probe {
        let segment = 1u32 << self.segment_log2;
        let mask = segment - 1;
        let second = fold(mixed);
        // The upper half of the hash, scaled to the number of first slots.
        let start = ((mixed >> 32) * u64::from(self.first_slots())) >> 32;
        let start = start as u32;
        let slots = [
            start,
            (start + segment) ^ (mixed as u32 & mask),
            (start + 2 * segment) ^ ((mixed >> 16) as u32 & mask),
            (start + 3 * segment) ^ (second as u32 & mask),
        ];
        let bits = self.bits + u8::from(start >= self.first_wide_slot);
        Probe {
            slots,
            mask: u64::MAX >> (64 - bits),
            fingerprint: second >> (64 - bits),
        }
    }

    /// Returns true if the four slots in `area` XOR to the fingerprint of `mixed`. This follows the format's
    /// page literally; the tests compare the fast implementations in `lookup` with it.
    #[cfg(test)]
    pub(crate) fn matches(self, mixed: u64, area: &[u8]) -> bool {
        let probe = self.probe(mixed);
        let mut sum = probe.fingerprint;
        for slot in probe.slots {
            let bit = self.bit_of(slot);
            let at = (bit / 8) as usize;
            let Some(word) = area.get(at..).and_then(|rest| rest.first_chunk()) else {
                // The area is too short, which cannot happen for an opened filter. The answer is "maybe".
                return true;
            };
            sum ^= u64::from_le_bytes(*word) >> (bit % 8);
        }
        sum & probe.mask == 0
    }
}

/// The four slots of an id and the fingerprint that their XOR must equal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    pub(crate) slots: [u32; ARITY],
    /// The bits that are compared: as many low bits as the slots are wide.
    pub(crate) mask: u64,
    pub(crate) fingerprint: u64,
}

/// Mixes a hash with the seed of an attempt, using the finaliser of MurmurHash3 (public domain, Austin
/// Appleby).
#[inline]
pub(crate) fn mix(hash: u64, seed: u64) -> u64 {
    let mut x = hash ^ seed;
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

/// Derives a second number from a mixed hash. Each of its bits depends on many bits of the first.
#[inline]
pub(crate) fn fold(mixed: u64) -> u64 {
    let product = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}

/// The number of slots of an id.
pub(crate) const ARITY: usize = 4;

/// Padding after the last slot, so that eight bytes can be read from the first byte of any slot.
pub(crate) const PADDING_BYTES: u64 = 7;

/// A segment has at most 2¹⁶ slots, because [`Shape::probe`] takes 16 bits of the hash for a slot's position in it.
const SEGMENT_LOG2_MAX: u8 = 16;

/// The largest number of slots of a shard. It keeps slot indices and byte positions within 32 bits. A shard has about a
/// million ids, rarely twice as many.
pub(crate) const SLOTS_MAX: u32 = 1 << 28;

// The byte position of the last slot stays within 32 bits.
const _: () = assert!((SLOTS_MAX as u64) * 33 < u32::MAX as u64 * 8);

/// The segment length and the slots per 1000 ids for shards of at least `ids_min` ids.
struct SizeClass {
    ids_min: usize,
    segment_log2: u8,
    permille: u64,
}

const fn size_class(ids_min: usize, segment_log2: u8, permille: u64) -> SizeClass {
    SizeClass {
        ids_min,
        segment_log2,
        permille,
    }
}

/// The values of the formulas of Graf and Lemire ("Binary Fuse Filters") for ranges of sizes, in integers only, so that
/// every machine builds the same bytes. The number of slots is about the smallest with which nine of ten first attempts
/// succeed. A test in `build` measures this share.
const SIZE_CLASSES: [SizeClass; 16] = [
    size_class(3 << 18, 12, 1070),
    size_class(1 << 19, 11, 1075),
    size_class(1 << 18, 11, 1090),
    size_class(1 << 17, 11, 1100),
    size_class(1 << 16, 10, 1120),
    size_class(1 << 15, 9, 1160),
    size_class(1 << 14, 8, 1175),
    size_class(1 << 13, 8, 1215),
    size_class(1 << 12, 7, 1250),
    size_class(1 << 11, 7, 1310),
    size_class(1 << 10, 6, 1400),
    size_class(1 << 8, 5, 1430),
    size_class(1 << 7, 5, 1500),
    size_class(1 << 6, 4, 1650),
    size_class(1 << 3, 3, 1800),
    size_class(0, 2, 2500),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_smallest_width_that_keeps_the_rate_is_chosen() {
        let width = |share| Width::for_rate(Rate::new(share).expect("a rate"));
        let whole_bits = |bits| Width {
            bits,
            narrow: WHOLE,
        };
        assert_eq!(width(0.5), whole_bits(1));
        assert_eq!(width(0.25), whole_bits(2));
        assert_eq!(width(Rate::MIN.share()), whole_bits(32));
        assert_eq!(width(0.01).bits, 6);
        assert_eq!(width(0.03).bits, 5);
        for share in [0.5, 0.3, 0.25, 0.1, 0.03, 0.01, 1e-3, 1e-6, 2.4e-10] {
            let rate = width(share).rate();
            assert!(rate <= share && rate > share * 0.999_999, "{share}: {rate}");
        }
    }

    proptest! {
        /// If the first slot of an id is wide, all its slots are wide. Every slot lies within the shard.
        #[test]
        fn an_id_with_a_wide_first_slot_has_wide_slots_only(
            ids in 1usize..2_000_000, hash: u64, share in 3e-10f64..0.49,
        ) {
            let width = Width::for_rate(Rate::new(share).expect("a rate"));
            let shape = Shape::for_ids(ids, width, 0);
            let probe = shape.probe(mix(hash, 1));
            prop_assert!(shape.is_valid());
            prop_assert!(probe.slots.is_sorted() && probe.slots[3] < shape.slots());
            if probe.slots[0] >= shape.first_wide_slot {
                prop_assert!(probe.slots.iter().all(|&slot| slot >= shape.first_wide_slot));
            }
            prop_assert!(shape.bit_of(probe.slots[3]) / 8 + 8 <= shape.bytes());
        }

        /// Slots do not overlap: each begins where the previous one ends.
        #[test]
        fn slots_are_adjacent(ids in 1usize..5_000, share in 3e-10f64..0.49) {
            let width = Width::for_rate(Rate::new(share).expect("a rate"));
            let shape = Shape::for_ids(ids, width, 0);
            for slot in 0..shape.slots() {
                let wide = u64::from(slot >= shape.first_wide_slot);
                prop_assert_eq!(
                    shape.bit_of(slot + 1) - shape.bit_of(slot),
                    u64::from(shape.bits) + wide
                );
            }
        }
    }
}
