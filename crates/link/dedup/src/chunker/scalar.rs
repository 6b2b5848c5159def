//! The chunker's prefilter in portable code. It finds the candidates for cuts. A position is a candidate if a weighted
//! sum of four byte pairs before it is below a limit. Code for other instruction sets must find the same candidates.

use std::ops::Range;

/// For each of the four pairs of bytes: the distance from the position back to the start of the pair, and the weight.
///
/// Some distances are odd and some even, so that candidates do not depend on the alignment of records in a file. The
/// weights are odd, so that each bit of a pair affects the sum.
pub(super) const PAIRS: [(usize, u16); 4] = [(2, 0x9e37), (5, 0x7f4b), (10, 0xc2b3), (16, 0x85eb)];

/// The start value of each sum. With this value, a run of one repeated byte has no candidates, also if zeroes
/// alternate with this byte (as in Latin text in UTF-16). With another value, each position of the run could be
/// a candidate.
pub(super) const OFFSET: u16 = 0xc7bf;

/// Returns the weighted sum of the pairs before `position`.
pub(super) fn sum(bytes: &[u8], position: usize) -> u16 {
    let window: &[u8; 16] = bytes[position - 16..position]
        .first_chunk()
        .expect("the range has 16 bytes");
    PAIRS.iter().fold(OFFSET, |sum, &(back, weight)| {
        let pair = u16::from_le_bytes([window[16 - back], window[17 - back]]);
        sum.wrapping_add(pair.wrapping_mul(weight))
    })
}

/// Returns the first candidate (its sum is below `candidate_limit`) for which `is_cut` returns true.
pub(super) fn first(
    bytes: &[u8],
    mut positions: Range<usize>,
    candidate_limit: u16,
    is_cut: &mut impl FnMut(usize) -> bool,
) -> Option<usize> {
    while positions.len() >= STEP {
        let near: &[u8; NEAR] = bytes[positions.start - 16..]
            .first_chunk()
            .expect("positions are within the bytes");
        let sums = sums(near);
        // Usually no position is a candidate. One comparison of the minimum replaces a branch for each sum.
        if sums.iter().copied().fold(u16::MAX, u16::min) < candidate_limit {
            let candidates = positions
                .clone()
                .zip(sums)
                .filter(|(_, sum)| *sum < candidate_limit);
            let cut = candidates
                .map(|(position, _)| position)
                .find(|&position| is_cut(position));
            if cut.is_some() {
                return cut;
            }
        }
        positions.start += STEP;
    }
    positions.find(|&position| sum(bytes, position) < candidate_limit && is_cut(position))
}

/// The number of positions whose sums are computed at once, so that the compiler can use the vectors of the target.
const STEP: usize = 32;

/// The number of bytes on which the sums of [`STEP`] positions depend.
const NEAR: usize = 16 + STEP - 1;

/// Like [`sum`], for [`STEP`] positions. `near` begins sixteen bytes before the first position.
///
/// Not inlined, because the compiler vectorises it as a separate function.
#[inline(never)]
fn sums(near: &[u8; NEAR]) -> [u16; STEP] {
    let mut pairs = [0; NEAR - 1];
    for (pair, two) in pairs.iter_mut().zip(near.windows(2)) {
        *pair = u16::from(two[0]) | u16::from(two[1]) << 8;
    }
    let mut sums = [OFFSET; STEP];
    for (back, weight) in PAIRS {
        let pairs: &[u16; STEP] = pairs[16 - back..]
            .first_chunk()
            .expect("the nearest pair ends with the bytes");
        for (sum, pair) in sums.iter_mut().zip(pairs) {
            *sum = sum.wrapping_add(pair.wrapping_mul(weight));
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of one repeated byte, such as padding, have no candidates. Runs in which zeroes alternate with a
    /// byte have no candidates either. The chunker therefore needs no more time for these bytes than for
    /// others.
    ///
    /// Method: compute the sums of all these runs. They must be at least 128. This is the largest candidate limit: the
    /// limit for chunks of 4 KiB on average.
    #[test]
    fn no_run_of_one_byte_has_candidates() {
        for byte in 0..=u8::MAX {
            for window in [[byte, byte], [byte, 0], [0, byte]] {
                let sum = sum(&window.repeat(8), 16);
                assert!(sum >= 128, "{window:02x?} give {sum}");
            }
        }
    }

    /// The sums of 32 positions computed together equal those computed one by one.
    #[test]
    fn sums_computed_together_equal_single_sums() {
        let bytes: Vec<u8> = (0..NEAR).map(|n| (n * n * 31 + n) as u8).collect();
        let near = bytes.first_chunk().expect("the array has NEAR bytes");
        let one_by_one: Vec<u16> = (0..STEP).map(|lane| sum(&bytes, 16 + lane)).collect();
        assert_eq!(sums(near)[..], one_by_one);
    }
}
