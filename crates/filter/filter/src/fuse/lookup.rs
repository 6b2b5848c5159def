//! Lookups in a shard. Values that do not depend on the id are computed once, when the filter is opened.
//!
//! The first slots of a shard are narrow (`bits` bits), and the others are wide (one bit more). The bit at which a
//! slot begins is computed without a branch: bit `i · bits` for slot `i`, plus one bit for each wide slot before it.
//! A branch on the width would be mispredicted often, which costs more than the arithmetic.
//! Bit positions count from the first byte of the file, so that no slice of the shard is needed.
//!
//! A single lookup is a chain of dependent operations, and it waits while its slots are loaded from memory.
//! [`Batch`] computes the steps for many ids side by side, in loops without branches that compilers vectorise,
//! and then reads the slots. Per id, a batch takes three quarters of the time of a single lookup if the filter is in
//! the processor's cache, and about half otherwise. The module `vector` has single and batched lookups compiled
//! for AVX2.

use super::shape::{ARITY, SLOTS_MAX, Shape, fold, mix};
use super::shard_of;
use crate::id::IdHash;

/// A shard prepared for lookups.
///
/// An id has one slot in each of four consecutive segments; a *probe* reads one of them. The shard's segments are
/// numbered from 0. Probe `n` (0 to 3) counts slots from the first slot of segment `n`, and the *position* of a slot is
/// its number in this count: position 0 of probe 2 is the first slot of segment 2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shard {
    /// For each of the four probes the bit at which position 0 begins, counted from the first bit of the file.
    pub(super) origins: [u64; ARITY],
    /// For each of the four probes the first position whose slot is wide.
    pub(super) first_wide_slot: [u64; ARITY],
    /// For each of the four probes the mask of the hash: 0 for the first, the slots of a segment minus one for
    /// the others.
    pub(super) masks: [u64; ARITY],
    /// The seed with which the hash of each id is mixed.
    pub(super) seed: u64,
    /// The number of slots that can be the first slot of an id.
    pub(super) starts: u64,
    /// The width of a narrow slot in bits.
    pub(super) bits: u64,
    /// The comparison for ids whose first slot is wide, then the comparison for other ids.
    comparison: [Comparison; 2],
}

/// How the XOR of an id's slots is compared with its fingerprint.
#[derive(Clone, Copy, Debug)]
struct Comparison {
    /// The number of bits in a word that do not belong to a slot. Shifting the XOR left by this number moves the
    /// bits of the slot to the highest bits, where the fingerprint is.
    unused_bits: u64,
    /// The shifted XOR is compared with a word whose highest bits are the fingerprint. The id matches if
    /// `shifted ^ word` is below this limit: then all bits of the slot's width are equal.
    limit: u64,
}

impl Shard {
    /// Prepares a shard whose slots begin at byte `from` of the file.
    pub(crate) fn new(shape: Shape, seed: u64, from: usize) -> Self {
        let segment = 1 << shape.segment_log2;
        let bits = u64::from(shape.bits);
        let first_wide_slot = u64::from(shape.first_wide_slot);
        // A shard without ids has no slots. Its lookups read the start of the file, which always exists, and ignore
        // the bytes.
        let origin = if shape.is_empty() { 0 } else { from as u64 * 8 };
        let steps = [0, 1, 2, 3].map(|n| n * segment);
        Self {
            origins: steps.map(|step| origin + step * bits + step.saturating_sub(first_wide_slot)),
            first_wide_slot: steps.map(|step| first_wide_slot.saturating_sub(step)),
            masks: [0, segment - 1, segment - 1, segment - 1],
            seed,
            starts: u64::from(shape.first_slots()),
            bits,
            comparison: [bits + 1, bits].map(|width| Comparison {
                unused_bits: 64 - width,
                // A limit of 0 makes every comparison fail, because a shard without ids contains no id.
                limit: if shape.is_empty() {
                    0
                } else {
                    1 << (64 - width)
                },
            }),
        }
    }

    /// Returns the shape of the shard.
    pub(crate) fn shape(&self) -> Shape {
        if self.is_empty() {
            return Shape::EMPTY;
        }
        let segment_log2 = self.masks[1].count_ones();
        Shape {
            bits: self.bits as u8,
            segment_log2: segment_log2 as u8,
            start_segments: (self.starts >> segment_log2) as u32,
            first_wide_slot: self.first_wide_slot[0] as u32,
        }
    }

    /// Returns true for a shard without ids.
    pub(crate) fn is_empty(&self) -> bool {
        self.starts == 0
    }

    /// Returns true if the four slots of `hash` XOR to its fingerprint. `bytes` is the whole file. Also returns
    /// true if a slot lies beyond the end, so that the request goes to the origin.
    pub(crate) fn contains(&self, hash: u64, bytes: &[u8]) -> bool {
        let Some(last) = bytes.len().checked_sub(WORD) else {
            return true;
        };
        let mixed = mix(hash, self.seed);
        let second = fold(mixed);
        let start = self.start(mixed);
        // Like `Shape::probe`, but the origins contain the segment offsets. All numbers have 64 bits, so that
        // no widening is needed before they are used as addresses.
        let mask = self.masks[1];
        let positions = [
            start,
            start ^ (mixed & mask),
            start ^ ((mixed >> 16) & mask),
            start ^ (second & mask),
        ];
        let mut sum = 0;
        for (probe, position) in positions.into_iter().enumerate() {
            let wide = position.saturating_sub(self.first_wide_slot[probe]);
            let bit = position * self.bits + wide + self.origins[probe];
            let at = (bit / 8) as usize;
            // With this check the compiler omits the bounds check of the slice.
            if at > last {
                return true;
            }
            sum ^= word(bytes, at) >> (bit % 8);
        }
        self.is_match(start, sum, second)
    }

    /// Returns an id's first slot: the upper half of its mixed hash, scaled to the number of first slots.
    #[inline(always)]
    pub(super) fn start(&self, mixed: u64) -> u64 {
        ((mixed >> 32) * self.starts) >> 32
    }

    /// Returns true if the lowest bits of `sum` equal the fingerprint. The fingerprint is the highest bits of `second`,
    /// the number that [`fold`] derives from the mixed hash. As many bits are compared as the id's first slot has.
    #[inline(always)]
    fn is_match(&self, start: u64, sum: u64, second: u64) -> bool {
        self.is_match_of_width(start < self.first_wide_slot[0], sum, second)
    }

    /// Like [`Self::is_match`], for callers that already know whether the first slot is narrow.
    #[inline(always)]
    pub(super) fn is_match_of_width(&self, is_narrow: bool, sum: u64, second: u64) -> bool {
        let comparison = &self.comparison[usize::from(is_narrow)];
        (sum << (comparison.unused_bits % 64)) ^ second < comparison.limit
    }
}

/// Returns the shard of an id.
#[inline(always)]
pub(crate) fn shard_for(shards: &[Shard], hash: u64) -> &Shard {
    match shards {
        // Most filters have one shard. This case saves the multiplication and the bounds check.
        [only] => only,
        // The index is below the number of shards, which is at least one.
        many => &many[shard_of(hash, many.len() as u32)],
    }
}

/// Writes the result of [`Shard::contains`] for each of `ids` to `answers`. Every shard must have ids.
#[inline(always)]
pub(super) fn contains_many(ids: &[IdHash], shards: &[Shard], bytes: &[u8], answers: &mut [bool]) {
    match shards {
        [only] => contains_in_batches(ids, |_| only, bytes, answers),
        many => contains_in_batches(ids, |hash| shard_for(many, hash), bytes, answers),
    }
}

#[inline(always)]
fn contains_in_batches<'a>(
    ids: &[IdHash],
    shard: impl Fn(u64) -> &'a Shard,
    bytes: &[u8],
    answers: &mut [bool],
) {
    let mut batch = Batch::new();
    for (ids, answers) in ids.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
        let mut hashes = [0; BATCH];
        for (hash, id) in hashes.iter_mut().zip(ids) {
            *hash = id.0;
        }
        batch.contains(&hashes, &shard, bytes, answers);
    }
}

/// Intermediate results of lookups that run side by side.
struct Batch {
    /// For each slot of each id the byte to read from, and the number of bits to shift by.
    at: [[u64; BATCH]; ARITY],
    shift: [[u64; BATCH]; ARITY],
    /// For each id the number that [`fold`] derives from the mixed hash, with the fingerprint in its highest bits.
    /// `unused_bits` is the number of its low bits that are not compared.
    second: [u64; BATCH],
    unused_bits: [u64; BATCH],
}

impl Batch {
    fn new() -> Self {
        Self {
            at: [[0; BATCH]; ARITY],
            shift: [[0; BATCH]; ARITY],
            second: [0; BATCH],
            unused_bits: [0; BATCH],
        }
    }

    /// Writes the result of [`Shard::contains`] for each hash, in the shard that `shard` returns. Every shard must
    /// have ids.
    #[inline(always)]
    fn contains<'a>(
        &mut self,
        hashes: &[u64; BATCH],
        shard: impl Fn(u64) -> &'a Shard,
        bytes: &[u8],
        answers: &mut [bool],
    ) {
        self.locate(hashes, shard);
        self.read(bytes, answers);
    }

    /// Computes the positions without branches, and only with operations on vectors of 64-bit lanes that SSE2
    /// has. SSE2 has neither comparisons nor full products of such lanes. Negative numbers are therefore
    /// recognised by their upper half. The masks of the factors change no value; they tell the compiler that
    /// the factors have 32 bits.
    #[inline(always)]
    fn locate<'a>(&mut self, hashes: &[u64; BATCH], shard: impl Fn(u64) -> &'a Shard) {
        for (n, &hash) in hashes.iter().enumerate() {
            let shard = shard(hash);
            let mixed = mix(hash, shard.seed);
            let second = fold(mixed);
            let mask = shard.masks[1] & LOW_HALF;
            let start = ((mixed >> 32) * (shard.starts & FIRST_SLOTS_MASK)) >> 32;
            let positions = [
                start,
                start ^ (mixed & mask),
                start ^ ((mixed >> 16) & mask),
                start ^ (second & mask),
            ];
            for (probe, position) in positions.into_iter().enumerate() {
                let beyond = position.wrapping_sub(shard.first_wide_slot[probe]);
                // `beyond`, or 0 if it is negative.
                let wide = beyond & !(beyond >> 32) & LOW_HALF;
                let bit = (position & LOW_HALF) * (shard.bits & 63) + wide + shard.origins[probe];
                self.at[probe][n] = bit / 8;
                self.shift[probe][n] = bit % 8;
            }
            self.second[n] = second;
            // One more if the first slot is narrow.
            self.unused_bits[n] = shard.comparison[0].unused_bits
                + (start.wrapping_sub(shard.first_wide_slot[0]) >> 63);
        }
    }

    #[inline(always)]
    fn read(&self, bytes: &[u8], answers: &mut [bool]) {
        let Some(last) = bytes.len().checked_sub(WORD) else {
            answers.fill(true);
            return;
        };
        for (n, answer) in answers.iter_mut().enumerate().take(BATCH) {
            let unused_bits = self.unused_bits[n] % 64;
            let mut sum = self.second[n] >> unused_bits;
            let mut is_truncated = false;
            for probe in 0..ARITY {
                let at = self.at[probe][n] as usize;
                if at > last {
                    is_truncated = true;
                    break;
                }
                sum ^= word(bytes, at) >> (self.shift[probe][n] % 64);
            }
            *answer = is_truncated || sum << unused_bits == 0;
        }
    }
}

/// Returns the eight bytes at `at`, which must exist.
#[inline(always)]
pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; WORD];
    word.copy_from_slice(&bytes[at..at + WORD]);
    u64::from_le_bytes(word)
}

/// The number of ids in a batch: large enough for memory loads to overlap, small enough for its 3 KB to stay in
/// the L1 cache.
pub(crate) const BATCH: usize = 32;

pub(super) const WORD: usize = 8;

const LOW_HALF: u64 = u32::MAX as u64;

/// Covers the largest number of first slots.
const FIRST_SLOTS_MASK: u64 = SLOTS_MAX as u64 - 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuse::{Shards, Width};
    use crate::rate::Rate;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// Single and batched lookups agree with [`Shape::matches`], which follows the format's page literally. The
        /// test uses any bytes, shapes that no builder makes, and slots of both widths.
        #[test]
        fn all_implementations_agree_with_the_shape(
            ids in 1usize..3_000,
            share in 3e-10f64..0.5,
            border in 0u32..u32::MAX,
            from in 0usize..50,
            seed: u64,
        ) {
            let width = Width::for_rate(Rate::new(share).expect("a rate"));
            let mut shape = Shape::for_ids(ids, width, 0);
            if border % 2 == 0 {
                shape.first_wide_slot = border % (shape.slots() + 1);
            }
            prop_assert!(shape.is_valid());
            let end = from + shape.bytes() as usize;
            let bytes: Vec<u8> = (0..end as u64).map(|n| mix(n, !seed) as u8).collect();
            let shard = Shard::new(shape, seed, from);
            prop_assert_eq!(shard.shape(), shape);
            let mut batch = Batch::new();
            for run in 0..8 {
                let hashes: [u64; BATCH] = std::array::from_fn(|n| mix(run << 32 | n as u64, 7));
                let mut answers = [false; BATCH];
                batch.contains(&hashes, |_| &shard, &bytes, &mut answers);
                let ids = hashes.map(IdHash);
                let shards = Shards::new(vec![shard]);
                // The answers of the implementation that is chosen for the instructions of this processor.
                let mut by_this_processor = [false; BATCH];
                shards.contains_many(&ids, &bytes, &mut by_this_processor);
                prop_assert_eq!(answers, by_this_processor);
                for (hash, answer) in hashes.into_iter().zip(answers) {
                    let oracle = shape.matches(mix(hash, seed), &bytes[from..]);
                    prop_assert_eq!(shard.contains(hash, &bytes), oracle);
                    prop_assert_eq!(shards.contains(hash, &bytes), oracle);
                    prop_assert_eq!(answer, oracle);
                }
            }
        }

        /// A truncated file never makes a present id absent.
        #[test]
        fn a_truncated_file_makes_no_id_absent(ids in 1usize..2_000, cut in 0usize..4_000, seed: u64) {
            let width = Width::for_rate(Rate::new(0.01).expect("a rate"));
            let shape = Shape::for_ids(ids, width, 0);
            let bytes: Vec<u8> = (0..shape.bytes()).map(|n| mix(n, seed) as u8).collect();
            let shard = Shard::new(shape, seed, 0);
            let short = &bytes[..bytes.len().saturating_sub(cut)];
            let hashes: [u64; BATCH] = std::array::from_fn(|n| mix(n as u64, 11));
            let mut answers = [false; BATCH];
            Batch::new().contains(&hashes, |_| &shard, short, &mut answers);
            let shards = Shards::new(vec![shard]);
            for (hash, answer) in hashes.into_iter().zip(answers) {
                if shape.matches(mix(hash, seed), &bytes) {
                    prop_assert!(answer && shard.contains(hash, short) && shards.contains(hash, short));
                }
            }
        }
    }

    #[test]
    fn a_batch_may_use_several_shards() {
        let width = Width::for_rate(Rate::new(0.2).expect("a rate"));
        let shapes = [Shape::for_ids(700, width, 0), Shape::for_ids(20, width, 0)];
        let bytes: Vec<u8> = (0..4_000).map(|n| mix(n, 5) as u8).collect();
        let shards = [
            Shard::new(shapes[0], 1, 0),
            Shard::new(shapes[1], 2, shapes[0].bytes() as usize),
        ];
        let shard_of_hash = |hash: u64| &shards[(hash % 2) as usize];
        let hashes: [u64; BATCH] = std::array::from_fn(|n| mix(n as u64, 1));
        let mut answers = [false; BATCH];
        Batch::new().contains(&hashes, shard_of_hash, &bytes, &mut answers);
        let expected = hashes.map(|hash| shard_of_hash(hash).contains(hash, &bytes));
        assert_eq!(answers, expected);
        assert!(expected.contains(&true) && expected.contains(&false));
    }

    #[test]
    fn a_shard_without_ids_answers_absent() {
        let shard = Shard::new(Shape::EMPTY, 3, 64);
        assert_eq!(shard.shape(), Shape::EMPTY);
        let hashes: Vec<IdHash> = (0..1_000).map(|n| IdHash(mix(n, 0))).collect();
        let mut answers = vec![true; hashes.len()];
        let shards = Shards::new(vec![shard]);
        shards.contains_many(&hashes, &[0; 64], &mut answers);
        for (hash, answer) in hashes.into_iter().zip(answers) {
            let alone = shard.contains(hash.0, &[0; 64]) || shards.contains(hash.0, &[0; 64]);
            assert!(!alone && !answer);
        }
    }
}
