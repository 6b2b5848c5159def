//! Asking: a shard made ready when its filter is opened, so that a question does only what depends on
//! the id.
//!
//! An id whose four slots are all narrow, or all wide, finds slot `i` at bit `i · width + origin`, with
//! one of two widths and origins; so few ids have slots of both widths that they take a slower way.
//! Positions count from the file's first byte: that spares cutting the shard out of it.
//!
//! A question by itself waits: each step of the arithmetic needs the one before, and while the slots
//! come from memory there is nothing else to do. [`Batch`] takes the steps for many ids side by side, in
//! loops without branches that compilers turn into vector instructions, and then reads. That takes three
//! quarters of the time in a cache and about half of it in memory; compiled for AVX2 (`vector`), a good half of it.

use super::shape::{ARITY, SLOTS_MAX, Shape, fold, mix};
use super::shard_of;
use crate::id::IdHash;

/// A shard that can be asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shard {
    seed: u64,
    /// The bit at which slot 0 would begin, counted from the file's first, were all slots as wide as
    /// narrow ones, and as wide ones. The second wraps around below zero.
    origins: [u64; 2],
    starts: u64,
    /// Bits of a narrow slot.
    bits: u64,
    /// Slots from the first segment to the three others.
    segments: [u32; ARITY - 1],
    mask: u32,
    wide_from: u32,
}

impl Shard {
    /// One whose area begins at byte `from` of the file.
    pub(crate) fn new(shape: Shape, seed: u64, from: usize) -> Self {
        let segment = 1 << shape.segment_log2;
        let origin = from as u64 * 8;
        Self {
            seed,
            origins: [origin, origin.wrapping_sub(u64::from(shape.wide_from))],
            starts: u64::from(shape.starts()),
            bits: u64::from(shape.bits),
            segments: [segment, 2 * segment, 3 * segment],
            mask: segment - 1,
            // Without ids all questions go the slower way, which knows.
            wide_from: if shape.is_empty() { 1 } else { shape.wide_from },
        }
    }

    /// What it was made from, without the seed.
    pub(crate) fn shape(&self) -> Shape {
        if self.starts == 0 {
            return Shape::EMPTY;
        }
        let segment_log2 = self.mask.count_ones();
        Shape {
            bits: self.bits as u8,
            segment_log2: segment_log2 as u8,
            start_segments: (self.starts >> segment_log2) as u32,
            wide_from: self.wide_from,
        }
    }

    /// Whether the four slots of `hash` XOR to its fingerprint. `bytes` are the whole file; what is not
    /// there counts as if it did, so that the origin is asked.
    #[inline]
    pub(crate) fn has(&self, hash: u64, bytes: &[u8]) -> bool {
        let Some(last) = bytes.len().checked_sub(WORD) else {
            return true;
        };
        let mixed = mix(hash, self.seed);
        let second = fold(mixed);
        // As in `Shape::probe`.
        let start = (((mixed >> 32) * self.starts) >> 32) as u32;
        let fourth = (start + self.segments[2]) ^ (second as u32 & self.mask);
        let wide = start >= self.wide_from;
        if wide != (fourth >= self.wide_from) {
            return self.has_at_the_border(mixed, bytes);
        }
        let width = self.bits + u64::from(wide);
        let origin = self.origins[usize::from(wide)];
        let slots = [
            fourth,
            start,
            (start + self.segments[0]) ^ (mixed as u32 & self.mask),
            (start + self.segments[1]) ^ ((mixed >> 16) as u32 & self.mask),
        ];
        // The lowest `width` bits are compared: brought to the top and back. It is 1 to 33.
        let rest = width.wrapping_neg() % 64;
        let mut sum = second >> rest;
        for slot in slots {
            let bit = (u64::from(slot) * width).wrapping_add(origin);
            let at = (bit / 8) as usize;
            // In this form the compiler sees that the slice is always there.
            if at > last {
                return true;
            }
            sum ^= word(bytes, at) >> (bit % 8);
        }
        sum << rest == 0
    }

    /// The same for an id with slots of both widths, and for a shard without ids.
    #[cold]
    #[inline(never)]
    fn has_at_the_border(&self, mixed: u64, bytes: &[u8]) -> bool {
        let from = (self.origins[0] / 8) as usize;
        self.starts != 0
            && bytes
                .get(from..)
                .is_none_or(|area| self.shape().matches(mixed, area))
    }
}

/// The shard that would have an id.
#[inline]
pub(crate) fn shard_for(shards: &[Shard], hash: u64) -> &Shard {
    match shards {
        // Nearly all filters have one. It spares the product and the look at the slice's length.
        [only] => only,
        // Below the number of shards, which is at least one.
        many => &many[shard_of(hash, many.len() as u32)],
    }
}

/// [`Shard::has`] for each of `ids`. None of the shards may be without ids.
#[inline(always)]
pub(super) fn many(ids: &[IdHash], shards: &[Shard], bytes: &[u8], answers: &mut [bool]) {
    match shards {
        [only] => in_batches(ids, |_| only, bytes, answers),
        many => in_batches(ids, |hash| shard_for(many, hash), bytes, answers),
    }
}

#[inline(always)]
fn in_batches<'a>(
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
        batch.has(&hashes, &shard, bytes, answers);
    }
}

/// Room for the questions that are asked side by side.
struct Batch {
    /// Of each slot of each id the byte at which to read, and by how many bits to shift.
    at: [[u64; BATCH]; ARITY],
    shift: [[u64; BATCH]; ARITY],
    /// What the fingerprint is the top of, and how many bits are not compared.
    second: [u64; BATCH],
    rest: [u64; BATCH],
}

impl Batch {
    fn new() -> Self {
        Self {
            at: [[0; BATCH]; ARITY],
            shift: [[0; BATCH]; ARITY],
            second: [0; BATCH],
            rest: [0; BATCH],
        }
    }

    /// [`Shard::has`] for many hashes, each of the shard that `shard` says. None of these may be without ids.
    #[inline(always)]
    fn has<'a>(
        &mut self,
        hashes: &[u64; BATCH],
        shard: impl Fn(u64) -> &'a Shard,
        bytes: &[u8],
        answers: &mut [bool],
    ) {
        self.place(hashes, shard);
        self.read(bytes, answers);
    }

    /// No branches here, and nothing a vector of 64-bit lanes cannot do: SSE2 has neither comparisons nor
    /// full products of those, so what is negative is seen in its upper half, and the masks of the
    /// factors, which change nothing, say that these have 32 bits.
    #[inline(always)]
    fn place<'a>(&mut self, hashes: &[u64; BATCH], shard: impl Fn(u64) -> &'a Shard) {
        for (n, &hash) in hashes.iter().enumerate() {
            let shard = shard(hash);
            let mixed = mix(hash, shard.seed);
            let second = fold(mixed);
            let mask = u64::from(shard.mask);
            let [to_second, to_third, to_fourth] = shard.segments.map(u64::from);
            let start = ((mixed >> 32) * (shard.starts & STARTS)) >> 32;
            let slots = [
                start,
                (start + to_second) ^ (mixed & mask),
                (start + to_third) ^ ((mixed >> 16) & mask),
                (start + to_fourth) ^ (second & mask),
            ];
            let beyond = |slot: u64| slot.wrapping_sub(u64::from(shard.wide_from));
            for (probe, slot) in slots.into_iter().enumerate() {
                let beyond = beyond(slot);
                // `beyond`, or 0 where that is negative: `Shape::bit_of`.
                let wide = beyond & !(beyond >> 32) & LOW;
                let bit = (slot & LOW) * (shard.bits & 63) + wide + shard.origins[0];
                self.at[probe][n] = bit / 8;
                self.shift[probe][n] = bit % 8;
            }
            self.second[n] = second;
            // 64 less the width, which is one more for a wide start.
            self.rest[n] = 63 - shard.bits + (beyond(start) >> 63);
        }
    }

    #[inline(always)]
    fn read(&self, bytes: &[u8], answers: &mut [bool]) {
        let Some(last) = bytes.len().checked_sub(WORD) else {
            answers.fill(true);
            return;
        };
        for (n, answer) in answers.iter_mut().enumerate().take(BATCH) {
            let rest = self.rest[n] % 64;
            let mut sum = self.second[n] >> rest;
            let mut is_cut_off = false;
            for probe in 0..ARITY {
                let at = self.at[probe][n] as usize;
                if at > last {
                    is_cut_off = true;
                    break;
                }
                sum ^= word(bytes, at) >> (self.shift[probe][n] % 64);
            }
            *answer = is_cut_off || sum << rest == 0;
        }
    }
}

/// The eight bytes from `at` on, which are there.
#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; WORD];
    word.copy_from_slice(&bytes[at..at + WORD]);
    u64::from_le_bytes(word)
}

/// Ids of a batch: enough for the loads of one to overlap, few enough for its 3 KB to stay in the first cache.
pub(crate) const BATCH: usize = 32;

const WORD: usize = 8;

const LOW: u64 = u32::MAX as u64;

/// More than a shard's starts.
const STARTS: u64 = SLOTS_MAX as u64 - 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuse::{Width, ask_many};
    use crate::rate::Rate;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// A shard made ready, one question at a time or many, says what the format's page says, whatever
        /// the bytes are, also of shapes that no builder makes and with slots of both widths.
        #[test]
        fn all_ways_answer_as_the_shape_does(
            ids in 1usize..3_000,
            share in 3e-10f64..0.5,
            border in 0u32..u32::MAX,
            from in 0usize..50,
            seed: u64,
        ) {
            let width = Width::for_rate(Rate::new(share).expect("a rate"));
            let mut shape = Shape::for_ids(ids, width, 0);
            if border % 2 == 0 {
                shape.wide_from = border % (shape.slots() + 1);
            }
            prop_assert!(shape.is_sound());
            let end = from + shape.bytes() as usize;
            let bytes: Vec<u8> = (0..end as u64).map(|n| mix(n, !seed) as u8).collect();
            let shard = Shard::new(shape, seed, from);
            prop_assert_eq!(shard.shape(), shape);
            let mut batch = Batch::new();
            for run in 0..8 {
                let hashes: [u64; BATCH] = std::array::from_fn(|n| mix(run << 32 | n as u64, 7));
                let mut answers = [false; BATCH];
                batch.has(&hashes, |_| &shard, &bytes, &mut answers);
                let ids = hashes.map(IdHash);
                let mut by_this_processor = [false; BATCH];
                ask_many(&ids, &[shard], &bytes, &mut by_this_processor);
                prop_assert_eq!(answers, by_this_processor);
                for (hash, answer) in hashes.into_iter().zip(answers) {
                    let oracle = shape.matches(mix(hash, seed), &bytes[from..]);
                    prop_assert_eq!(shard.has(hash, &bytes), oracle);
                    prop_assert_eq!(answer, oracle);
                }
            }
        }

        /// Bytes that went away never make an id absent that was present.
        #[test]
        fn what_is_cut_off_hides_nothing(ids in 1usize..2_000, cut in 0usize..4_000, seed: u64) {
            let width = Width::for_rate(Rate::new(0.01).expect("a rate"));
            let shape = Shape::for_ids(ids, width, 0);
            let bytes: Vec<u8> = (0..shape.bytes()).map(|n| mix(n, seed) as u8).collect();
            let shard = Shard::new(shape, seed, 0);
            let short = &bytes[..bytes.len().saturating_sub(cut)];
            let hashes: [u64; BATCH] = std::array::from_fn(|n| mix(n as u64, 11));
            let mut answers = [false; BATCH];
            Batch::new().has(&hashes, |_| &shard, short, &mut answers);
            for (hash, answer) in hashes.into_iter().zip(answers) {
                let whole = shard.has(hash, &bytes);
                prop_assert!(!whole || (answer && shard.has(hash, short)));
            }
        }
    }

    #[test]
    fn a_batch_may_ask_several_shards() {
        let width = Width::for_rate(Rate::new(0.2).expect("a rate"));
        let shapes = [Shape::for_ids(700, width, 0), Shape::for_ids(20, width, 0)];
        let bytes: Vec<u8> = (0..4_000).map(|n| mix(n, 5) as u8).collect();
        let shards = [
            Shard::new(shapes[0], 1, 0),
            Shard::new(shapes[1], 2, shapes[0].bytes() as usize),
        ];
        let of = |hash: u64| &shards[(hash % 2) as usize];
        let hashes: [u64; BATCH] = std::array::from_fn(|n| mix(n as u64, 1));
        let mut answers = [false; BATCH];
        Batch::new().has(&hashes, of, &bytes, &mut answers);
        let expected = hashes.map(|hash| of(hash).has(hash, &bytes));
        assert_eq!(answers, expected);
        assert!(expected.contains(&true) && expected.contains(&false));
    }

    #[test]
    fn a_shard_without_ids_has_none() {
        let shard = Shard::new(Shape::EMPTY, 3, 0);
        assert_eq!(shard.shape(), Shape::EMPTY);
        assert!((0..1_000).all(|n| !shard.has(mix(n, 0), &[0; 64])));
    }
}
