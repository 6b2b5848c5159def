//! Asking: a shard made ready when its filter is opened, so that a question does only what depends on
//! the id.
//!
//! Slots wider than the others make no case of their own: slot `i` begins at bit `i · bits` and as many bits later as it
//! lies beyond the first wide one, or none. A branch for the ids whose slots have both widths would be foreseen wrongly
//! for each of them, which costs all questions more than the arithmetic does. Positions count from the file's first byte:
//! that spares cutting the shard out of it.
//!
//! A question by itself waits: each step of the arithmetic needs the one before, and while the slots
//! come from memory there is nothing else to do. [`Batch`] takes the steps for many ids side by side, in
//! loops without branches that compilers turn into vector instructions, and then reads. That takes three
//! quarters of the time in a cache and about half of it in memory. Both are there compiled for AVX2, too (`vector`).

use super::shape::{ARITY, SLOTS_MAX, Shape, fold, mix};
use super::shard_of;
use crate::id::IdHash;

/// A shard that can be asked.
///
/// An id has a *place* in each of its four segments: where its slot there would be if its first segment were segment 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shard {
    /// For each of the four the bit at which place 0 begins, counted from the file's first, if no slot before it is wide.
    pub(super) origins: [u64; ARITY],
    /// For each of the four the first place whose slot comes after a wide one.
    pub(super) wide_from: [u64; ARITY],
    /// For each of the four what is taken of the hash: nothing, and a number below a segment's slots, a power of two.
    pub(super) masks: [u64; ARITY],
    pub(super) seed: u64,
    pub(super) starts: u64,
    /// Bits of a narrow slot.
    pub(super) bits: u64,
    /// How a wide and a narrow sum is compared.
    agreement: [Agreement; 2],
}

/// What says that the sum of an id's slots is its fingerprint.
#[derive(Clone, Copy, Debug)]
struct Agreement {
    /// Bits of a word beyond the slots': shifting by so many brings the sum to the top, where the fingerprint is.
    rest: u64,
    /// What both XOR to is below.
    limit: u64,
}

impl Shard {
    /// One whose area begins at byte `from` of the file.
    pub(crate) fn new(shape: Shape, seed: u64, from: usize) -> Self {
        let segment = 1 << shape.segment_log2;
        let bits = u64::from(shape.bits);
        let wide_from = u64::from(shape.wide_from);
        // Without ids there is no area; what is read instead is there in every file, and not looked at.
        let origin = if shape.is_empty() { 0 } else { from as u64 * 8 };
        let steps = [0, 1, 2, 3].map(|n| n * segment);
        Self {
            origins: steps.map(|step| origin + step * bits + step.saturating_sub(wide_from)),
            wide_from: steps.map(|step| wide_from.saturating_sub(step)),
            masks: [0, segment - 1, segment - 1, segment - 1],
            seed,
            starts: u64::from(shape.starts()),
            bits,
            agreement: [bits + 1, bits].map(|width| Agreement {
                rest: 64 - width,
                // Without ids nothing agrees.
                limit: if shape.is_empty() {
                    0
                } else {
                    1 << (64 - width)
                },
            }),
        }
    }

    /// What it was made from, without the seed.
    pub(crate) fn shape(&self) -> Shape {
        if self.is_empty() {
            return Shape::EMPTY;
        }
        let segment_log2 = self.masks[1].count_ones();
        Shape {
            bits: self.bits as u8,
            segment_log2: segment_log2 as u8,
            start_segments: (self.starts >> segment_log2) as u32,
            wide_from: self.wide_from[0] as u32,
        }
    }

    /// Whether it is without ids.
    pub(crate) fn is_empty(&self) -> bool {
        self.starts == 0
    }

    /// Whether the four slots of `hash` XOR to its fingerprint. `bytes` are the whole file; what is not
    /// there counts as if it did, so that the origin is asked.
    pub(crate) fn has(&self, hash: u64, bytes: &[u8]) -> bool {
        let Some(last) = bytes.len().checked_sub(WORD) else {
            return true;
        };
        let mixed = mix(hash, self.seed);
        let second = fold(mixed);
        let start = self.start(mixed);
        // As in `Shape::probe`, but that segments are left to the origins. All numbers have 64 bits, so that none has to
        // be widened before it is an address.
        let mask = self.masks[1];
        let places = [
            start,
            start ^ (mixed & mask),
            start ^ ((mixed >> 16) & mask),
            start ^ (second & mask),
        ];
        let mut sum = 0;
        for (probe, place) in places.into_iter().enumerate() {
            let wide = place.saturating_sub(self.wide_from[probe]);
            let bit = place * self.bits + wide + self.origins[probe];
            let at = (bit / 8) as usize;
            // In this form the compiler sees that the slice is always there.
            if at > last {
                return true;
            }
            sum ^= word(bytes, at) >> (bit % 8);
        }
        self.agrees(start, sum, second)
    }

    /// An id's first slot: its upper half scaled to the number of starts.
    #[inline(always)]
    pub(super) fn start(&self, mixed: u64) -> u64 {
        ((mixed >> 32) * self.starts) >> 32
    }

    /// Whether the lowest bits of `sum`, as many as the slots of an id with this start have, are the fingerprint: the
    /// highest of `second`.
    #[inline(always)]
    fn agrees(&self, start: u64, sum: u64, second: u64) -> bool {
        self.agree(start < self.wide_from[0], sum, second)
    }

    /// [`Self::agrees`] where it is known how wide the start is.
    #[inline(always)]
    pub(super) fn agree(&self, is_narrow: bool, sum: u64, second: u64) -> bool {
        let agreement = &self.agreement[usize::from(is_narrow)];
        (sum << (agreement.rest % 64)) ^ second < agreement.limit
    }
}

/// The shard that would have an id.
#[inline(always)]
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
            let mask = shard.masks[1] & LOW;
            let start = ((mixed >> 32) * (shard.starts & STARTS)) >> 32;
            let places = [
                start,
                start ^ (mixed & mask),
                start ^ ((mixed >> 16) & mask),
                start ^ (second & mask),
            ];
            for (probe, place) in places.into_iter().enumerate() {
                let beyond = place.wrapping_sub(shard.wide_from[probe]);
                // `beyond`, or 0 where that is negative.
                let wide = beyond & !(beyond >> 32) & LOW;
                let bit = (place & LOW) * (shard.bits & 63) + wide + shard.origins[probe];
                self.at[probe][n] = bit / 8;
                self.shift[probe][n] = bit % 8;
            }
            self.second[n] = second;
            // One more where the start is narrow.
            self.rest[n] = shard.agreement[0].rest + (start.wrapping_sub(shard.wide_from[0]) >> 63);
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
pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; WORD];
    word.copy_from_slice(&bytes[at..at + WORD]);
    u64::from_le_bytes(word)
}

/// Ids of a batch: enough for the loads of one to overlap, few enough for its 3 KB to stay in the first cache.
pub(crate) const BATCH: usize = 32;

pub(super) const WORD: usize = 8;

const LOW: u64 = u32::MAX as u64;

/// More than a shard's starts.
const STARTS: u64 = SLOTS_MAX as u64 - 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuse::{Shards, Width};
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
                let shards = Shards::new(vec![shard]);
                let mut by_this_processor = [false; BATCH];
                shards.have(&ids, &bytes, &mut by_this_processor);
                prop_assert_eq!(answers, by_this_processor);
                for (hash, answer) in hashes.into_iter().zip(answers) {
                    let oracle = shape.matches(mix(hash, seed), &bytes[from..]);
                    prop_assert_eq!(shard.has(hash, &bytes), oracle);
                    prop_assert_eq!(shards.has(hash, &bytes), oracle);
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
            let shards = Shards::new(vec![shard]);
            for (hash, answer) in hashes.into_iter().zip(answers) {
                if shape.matches(mix(hash, seed), &bytes) {
                    prop_assert!(answer && shard.has(hash, short) && shards.has(hash, short));
                }
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
        let shard = Shard::new(Shape::EMPTY, 3, 64);
        assert_eq!(shard.shape(), Shape::EMPTY);
        let hashes: Vec<IdHash> = (0..1_000).map(|n| IdHash(mix(n, 0))).collect();
        let mut answers = vec![true; hashes.len()];
        let shards = Shards::new(vec![shard]);
        shards.have(&hashes, &[0; 64], &mut answers);
        for (hash, answer) in hashes.into_iter().zip(answers) {
            let alone = shard.has(hash.0, &[0; 64]) || shards.has(hash.0, &[0; 64]);
            assert!(!alone && !answer);
        }
    }
}
