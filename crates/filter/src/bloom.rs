//! Blocked Bloom filters: the form that ids can be added to.
//!
//! A block is 256 bits, eight lanes of 32, and an id sets one bit in each lane of one block: one
//! cache line an operation, and all eight lanes at once in a SIMD register (Putze, Sanders, Singler,
//! "Cache-, Hash- and Space-Efficient Bloom Filters", JEA 2009; the lanes with their eight odd
//! multipliers are those of the Parquet format's split-block filter, whose block index and hash are
//! ours too). The number of blocks is any number, not a power of two.
//!
//! Blocks fill unevenly, so the rate is a mean over the Poisson distribution of ids in a block,
//! computed with sums and products alone, which every machine rounds alike.

use crate::rate::Rate;

/// Bits of eight lanes.
pub(crate) type Block = [u32; LANES];

/// Bytes of a block.
pub(crate) const BLOCK_BYTES: usize = 4 * LANES;

/// The smallest rate this form is built for: beyond, a tenth of an id's bits buys next to nothing
/// because single full blocks decide, and a static filter is the better choice.
pub(crate) const RATE_MIN: f64 = 1e-6;

/// What an id looks like: its block among `blocks`, and its bits.
pub(crate) fn block_of(hash: u64, blocks: u32) -> usize {
    (((hash >> 32) * u64::from(blocks)) >> 32) as usize
}

/// One bit in each lane.
pub(crate) fn bits_of(hash: u64) -> Block {
    // The block took the upper half; the lower decides the bits.
    let low = hash as u32;
    SALTS.map(|salt| 1 << (low.wrapping_mul(salt) >> 27))
}

/// Whether all bits of `hash` are set in the block at its place in `area`.
pub(crate) fn matches(hash: u64, blocks: u32, area: &[u8]) -> bool {
    let at = block_of(hash, blocks) * BLOCK_BYTES;
    let Some(block) = area
        .get(at..)
        .and_then(|rest| rest.first_chunk::<BLOCK_BYTES>())
    else {
        // An area shorter than was said: not one that was opened. Ask the origin.
        return true;
    };
    let mut missing = 0;
    for (lane, bit) in block.chunks_exact(4).zip(bits_of(hash)) {
        let lane = u32::from_le_bytes([lane[0], lane[1], lane[2], lane[3]]);
        missing |= bit & !lane;
    }
    missing == 0
}

/// The fewest blocks that keep `rate` with `ids` ids; `None` when the file could not hold them.
pub(crate) fn blocks_for(ids: u64, rate: Rate) -> Option<u32> {
    let keeps = |blocks: u64| expected_rate(ids as f64 / blocks as f64) <= rate.share();
    // A block of 256 bits and eight bits an id: more than 200 ids a block keep no rate, less than
    // one keeps any down to RATE_MIN.
    let mut low = (ids / 256).max(1);
    let mut high = ids.saturating_mul(4).max(1);
    if keeps(low) {
        high = low;
    }
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if keeps(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    u32::try_from(high).ok()
}

/// The chance that an absent id passes where blocks hold `load` ids on average.
pub(crate) fn expected_rate(load: f64) -> f64 {
    // Weights of the Poisson distribution without their common factor e^-load, which cancels.
    let (mut weight, mut weights, mut hits) = (1.0f64, 0.0, 0.0);
    // The share of a lane's bits that are still clear with n ids.
    let mut clear = 1.0f64;
    let mut ids = 0.0;
    loop {
        let set = 1.0 - clear;
        let (square, passes) = (set * set, 8);
        debug_assert_eq!(passes, LANES);
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

/// The chance that an absent id passes, from the bits that are set: the mean over all blocks of the
/// chance to hit a set bit in each lane.
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
const SALTS: Block = [
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
    use super::*;

    #[test]
    fn one_in_a_hundred_costs_ten_and_a_half_bits_an_id() {
        let rate = Rate::new(0.01).expect("a rate");
        let blocks = blocks_for(1_000_000, rate).expect("it fits");
        let bits = f64::from(blocks) * 256.0 / 1e6;
        assert!((10.4..10.7).contains(&bits), "{bits}");
    }

    /// Blocks are the fewest: one less would break the rate.
    #[test]
    fn blocks_are_the_fewest_that_keep_the_rate() {
        for ids in [1u64, 2, 100, 12_345, 620_000] {
            for share in [0.5, 0.1, 0.01, 1e-4, RATE_MIN] {
                let blocks = blocks_for(ids, Rate::new(share).expect("a rate")).expect("it fits");
                assert!(expected_rate(ids as f64 / f64::from(blocks)) <= share);
                if blocks > 1 {
                    let fewer = ids as f64 / f64::from(blocks - 1);
                    assert!(expected_rate(fewer) > share, "{ids} {share} {blocks}");
                }
            }
        }
    }

    #[test]
    fn more_than_a_file_can_hold_is_noticed() {
        assert_eq!(blocks_for(u64::MAX, Rate::MAX), None);
    }

    #[test]
    fn the_rate_of_empty_and_full_bits_is_nothing_and_all() {
        assert_eq!(rate_of(&[0; 64]), 0.0);
        assert_eq!(rate_of(&[255; 64]), 1.0);
        assert_eq!(rate_of(&[]), 0.0);
        let mut half = [255; 64];
        half[..32].fill(0);
        assert_eq!(rate_of(&half), 0.5);
    }
}
