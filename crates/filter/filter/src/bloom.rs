//! Blocked Bloom filters: the construction that accepts ids at any time.
//!
//! A block has 256 bits: eight lanes of 32. An id selects one block and sets one bit in each of its lanes. An
//! operation reads one cache line and processes all eight lanes at once in a SIMD register (Putze, Sanders,
//! Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", JEA 2009). The lanes, their eight odd
//! multipliers, the block index and the hash are those of the split-block filter of the Parquet format. The
//! number of blocks need not be a power of two.
//!
//! Blocks receive different numbers of ids. The expected false-positive rate is therefore a mean over the Poisson
//! distribution of the ids in a block. The code computes the mean with sums and products only, because every machine
//! rounds them alike.

#[cfg(target_arch = "x86_64")]
mod vector;

#[cfg(target_arch = "x86_64")]
use crate::avx2::Avx2;
use crate::id::IdHash;
use crate::rate::Rate;

/// The bytes of eight lanes as in the file. The alignment keeps a block within one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub(crate) struct Block(pub(crate) [u8; BLOCK_BYTES]);

/// The size of a block in bytes.
pub(crate) const BLOCK_BYTES: usize = 4 * LANES;

/// The smallest false-positive rate that this construction supports. At lower rates a few full blocks cause most
/// false positives, and more bits per id hardly lower the rate. A static filter (built once from all ids) is then
/// smaller.
pub(crate) const RATE_MIN: f64 = 1e-6;

/// Returns the index of an id's block among `blocks`.
#[inline]
pub(crate) fn block_of(hash: u64, blocks: u32) -> usize {
    (((hash >> 32) * u64::from(blocks)) >> 32) as usize
}

/// The implementation of the lane operations that suits this processor: AVX2 or portable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes {
    #[cfg(target_arch = "x86_64")]
    avx2: Option<Avx2>,
}

impl Lanes {
    /// Chooses the fastest implementation that this processor supports.
    pub(crate) fn detect() -> Self {
        Self {
            #[cfg(target_arch = "x86_64")]
            avx2: Avx2::detect(),
        }
    }

    /// Returns true if all bits that `hash` selects are set in `block`.
    #[inline]
    pub(crate) fn are_set(self, hash: u64, block: &[u8; BLOCK_BYTES]) -> bool {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = self.avx2 {
            return vector::are_set(avx2, hash, block);
        }
        are_set(hash, block)
    }

    /// Returns true if all bits of `hash` are set in its block of `area`, which has `blocks` blocks. Also returns true
    /// if `area` is too short to have the block.
    #[inline]
    pub(crate) fn match_one(self, hash: u64, blocks: u32, area: &[u8]) -> bool {
        block_at(area, block_of(hash, blocks)).is_none_or(|block| self.are_set(hash, block))
    }

    /// Writes the result of [`Self::match_one`] for each of `ids` to `answers`.
    pub(crate) fn match_many(self, ids: &[IdHash], blocks: u32, area: &[u8], answers: &mut [bool]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = self.avx2 {
            return vector::match_many(avx2, ids, blocks, area, answers);
        }
        for (id, answer) in ids.iter().zip(answers) {
            *answer = self.match_one(id.0, blocks, area);
        }
    }

    /// Sets all bits of `hash`. Returns true if one of them was clear before.
    #[inline]
    pub(crate) fn set(self, hash: u64, blocks: &mut [Block]) -> bool {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = self.avx2 {
            return vector::set(avx2, hash, blocks);
        }
        set(hash, blocks)
    }

    /// Calls [`Self::set`] for each of `ids`. Returns the number of ids that changed a bit.
    pub(crate) fn set_many(self, ids: &[IdHash], blocks: &mut [Block]) -> u64 {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = self.avx2 {
            return vector::set_many(avx2, ids, blocks);
        }
        let changed = ids.iter().map(|id| u64::from(set(id.0, blocks)));
        changed.sum()
    }
}

/// Returns the bits that `hash` selects: for each lane, a number with one set bit.
fn bits_of(hash: u64) -> [u32; LANES] {
    // The upper half of the hash selects the block, the lower half the bits.
    let low = hash as u32;
    SALTS.map(|salt| 1 << (low.wrapping_mul(salt) >> 27))
}

/// Returns the block with index `at` of a file's payload.
///
/// Returns `None` if `area` is too short, which cannot happen for an opened filter. The callers answer "maybe" for
/// `None`, so that the request goes to the origin.
#[inline]
fn block_at(area: &[u8], at: usize) -> Option<&[u8; BLOCK_BYTES]> {
    area.get(at * BLOCK_BYTES..)?.first_chunk()
}

/// Like [`Lanes::are_set`], on any processor.
fn are_set(hash: u64, block: &[u8; BLOCK_BYTES]) -> bool {
    let mut missing = 0;
    for (lane, bit) in block.as_chunks().0.iter().zip(bits_of(hash)) {
        missing |= bit & !u32::from_le_bytes(*lane);
    }
    missing == 0
}

/// Like [`Lanes::set`], on any processor.
fn set(hash: u64, blocks: &mut [Block]) -> bool {
    let block = &mut blocks[block_of(hash, blocks.len() as u32)];
    let mut missing = 0;
    for (bytes, bit) in block.0.as_chunks_mut().0.iter_mut().zip(bits_of(hash)) {
        let lane = u32::from_le_bytes(*bytes);
        missing |= bit & !lane;
        *bytes = (lane | bit).to_le_bytes();
    }
    missing != 0
}

/// Returns the smallest number of blocks for which `ids` ids cause at most this false-positive rate. Returns
/// `None` if this number exceeds the file format's 32 bits.
pub(crate) fn blocks_for(ids: u64, rate: Rate) -> Option<u32> {
    let is_within_rate = |blocks: u64| expected_rate(ids as f64 / blocks as f64) <= rate.share();
    // Bounds of the search: 256 ids per block or more exceed every rate. A quarter of an id per block is within
    // every rate down to RATE_MIN. For fewer than 256 ids, `low` is one block, which may already suffice.
    let mut low = (ids / 256).max(1);
    let mut high = ids.saturating_mul(4).max(1);
    if is_within_rate(low) {
        high = low;
    }
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if is_within_rate(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    u32::try_from(high).ok()
}

/// Returns the probability that an absent id gets "maybe" if blocks hold `load` ids on average.
pub(crate) fn expected_rate(load: f64) -> f64 {
    // The weights of the Poisson distribution. Their common factor e^-load is omitted, because it cancels.
    let (mut weight, mut weights, mut hits) = (1.0f64, 0.0, 0.0);
    // The share of a lane's bits that are clear after `ids` ids.
    let mut clear = 1.0f64;
    let mut ids = 0.0;
    loop {
        let set = 1.0 - clear;
        debug_assert_eq!(
            LANES, 8,
            "the code below computes the eighth power of `set`"
        );
        let square = set * set;
        let fourth = square * square;
        weights += weight;
        hits += weight * fourth * fourth;
        ids += 1.0;
        weight *= load / ids;
        clear *= 31.0 / 32.0;
        if ids > load && weight < weights * 1e-18 {
            return hits / weights;
        }
    }
}

/// Returns the false-positive rate that follows from the bits that are set. A block has a false positive with
/// the probability that a random bit of each of its lanes is set; the rate is the mean over all blocks.
pub(crate) fn rate_of(area: &[u8]) -> f64 {
    let blocks = area.chunks_exact(BLOCK_BYTES);
    let count = blocks.len().max(1) as f64;
    let passing = blocks.map(|block| {
        block
            .chunks_exact(4)
            .map(|lane| {
                let set: u32 = lane.iter().map(|byte| byte.count_ones()).sum();
                f64::from(set) / 32.0
            })
            .product::<f64>()
    });
    passing.sum::<f64>() / count
}

pub(crate) const LANES: usize = 8;

/// Odd multipliers that spread 32 bits over the lanes (Parquet format, "Bloom Filter").
const SALTS: [u32; LANES] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bits of an id in an area of `blocks` blocks, computed as `docs/reference/filter-format.md` says.
    fn bits_by_the_format(hash: u64, blocks: u64) -> impl Iterator<Item = usize> {
        let block = ((hash >> 32) * blocks) >> 32;
        SALTS.into_iter().zip(0..).map(move |(salt, lane)| {
            let bit = ((hash & 0xffff_ffff) * u64::from(salt) % (1 << 32)) >> 27;
            (block * 256 + lane * 32 + bit) as usize
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// The portable and the AVX2 implementation, for one id and for many, set the bits that
        /// `docs/reference/filter-format.md` defines and give the same answers.
        #[test]
        fn all_implementations_set_and_find_the_same_bits(
            hashes in prop::collection::vec(any::<u64>(), 0..300),
            again in prop::collection::vec(any::<prop::sample::Index>(), 0..50),
            others in prop::collection::vec(any::<u64>(), 0..100),
            count in 1usize..40,
        ) {
            let repeated = again.iter().filter(|_| !hashes.is_empty()).map(|at| *at.get(&hashes));
            let ids: Vec<IdHash> = hashes.iter().copied().chain(repeated).map(IdHash).collect();
            let mut expected = vec![0u8; count * BLOCK_BYTES];
            let mut portable = vec![Block::default(); count];
            let (mut single, mut batch) = (portable.clone(), portable.clone());
            let lanes = Lanes::detect();
            let mut changed = 0;
            for id in &ids {
                let mut changes_a_bit = false;
                for bit in bits_by_the_format(id.0, count as u64) {
                    changes_a_bit |= expected[bit / 8] >> (bit % 8) & 1 == 0;
                    expected[bit / 8] |= 1 << (bit % 8);
                }
                prop_assert_eq!(set(id.0, &mut portable), changes_a_bit);
                prop_assert_eq!(lanes.set(id.0, &mut single), changes_a_bit);
                changed += u64::from(changes_a_bit);
            }
            prop_assert_eq!(lanes.set_many(&ids, &mut batch), changed);
            for blocks in [portable, single, batch] {
                let bytes: Vec<u8> = blocks.iter().flat_map(|block| block.0).collect();
                prop_assert_eq!(&bytes, &expected);
            }

            let queries: Vec<IdHash> = ids.iter().copied().chain(others.into_iter().map(IdHash)).collect();
            let mut answers = vec![false; queries.len()];
            lanes.match_many(&queries, count as u32, &expected, &mut answers);
            for (n, (id, answer)) in queries.iter().zip(answers).enumerate() {
                let is_present = bits_by_the_format(id.0, count as u64)
                    .all(|bit| expected[bit / 8] >> (bit % 8) & 1 == 1);
                prop_assert!(is_present || n >= ids.len());
                let block = block_at(&expected, block_of(id.0, count as u32)).expect("the block index is in range");
                prop_assert_eq!(are_set(id.0, block), is_present);
                prop_assert_eq!(lanes.are_set(id.0, block), is_present);
                prop_assert_eq!(lanes.match_one(id.0, count as u32, &expected), is_present);
                prop_assert_eq!(answer, is_present);
            }
        }

        /// A truncated area never makes an id absent.
        #[test]
        fn a_truncated_area_makes_no_id_absent(hash: u64, blocks in 1u32..100, left in 0usize..3_200) {
            let area = vec![255; left.min(blocks as usize * BLOCK_BYTES)];
            let mut answers = [false];
            Lanes::detect().match_many(&[IdHash(hash)], blocks, &area, &mut answers);
            prop_assert!(answers[0]);
            prop_assert!(Lanes::detect().match_one(hash, blocks, &area));
        }
    }

    #[test]
    fn a_rate_of_one_percent_takes_ten_and_a_half_bits_per_id() {
        let rate = Rate::new(0.01).expect("a rate");
        let blocks = blocks_for(1_000_000, rate).expect("the number of blocks fits into 32 bits");
        let bits = f64::from(blocks) * 256.0 / 1e6;
        assert!((10.4..10.7).contains(&bits), "{bits}");
    }

    /// One block less would exceed the rate.
    #[test]
    fn blocks_are_the_fewest_that_keep_the_rate() {
        for ids in [1u64, 2, 100, 12_345, 620_000] {
            for share in [0.5, 0.1, 0.01, 1e-4, RATE_MIN] {
                let blocks = blocks_for(ids, Rate::new(share).expect("a rate"))
                    .expect("the number of blocks fits into 32 bits");
                assert!(expected_rate(ids as f64 / f64::from(blocks)) <= share);
                if blocks > 1 {
                    let fewer = ids as f64 / f64::from(blocks - 1);
                    assert!(expected_rate(fewer) > share, "{ids} {share} {blocks}");
                }
            }
        }
    }

    #[test]
    fn more_blocks_than_a_file_can_hold_are_refused() {
        assert_eq!(blocks_for(u64::MAX, Rate::MAX), None);
    }

    #[test]
    fn the_rate_is_0_without_set_bits_and_1_with_all_bits_set() {
        assert_eq!(rate_of(&[0; 64]), 0.0);
        assert_eq!(rate_of(&[255; 64]), 1.0);
        assert_eq!(rate_of(&[]), 0.0);
        let mut half = [255; 64];
        half[..32].fill(0);
        assert_eq!(rate_of(&half), 0.5);
    }
}
