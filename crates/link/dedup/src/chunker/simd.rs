//! The prefilter of the chunker with AVX2: tests whether 64 positions are candidates for a cut. A position is a
//! candidate if a weighted sum of four byte pairs ([`PAIRS`]) before it is small. Tests compare the results with those
//! of [`scalar`].
//!
//! # Why `unsafe`
//!
//! The compiler cannot check two conditions. First, the processor must have AVX2: a value of [`Avx2`] exists
//! only if AVX2 was detected. Second, a load must stay within its slice: the load takes a reference to an array
//! of exactly its length, so the bounds are checked when this reference is made.
#![expect(
    unsafe_code,
    reason = "vector instructions; the module's doc says what makes them sound"
)]

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{
    __m256i, _mm256_add_epi16, _mm256_blendv_epi8, _mm256_cmpeq_epi16, _mm256_loadu_si256,
    _mm256_min_epu16, _mm256_movemask_epi8, _mm256_mullo_epi16, _mm256_set1_epi16,
};
use std::ops::Range;

use super::scalar::{self, OFFSET, PAIRS};

/// Proof that this processor has AVX2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

impl Avx2 {
    /// Detects AVX2.
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    /// Returns the first candidate of `positions` for which `is_cut` returns true, like [`scalar::first`]. A position
    /// is a candidate if its sum is below `candidate_limit`.
    pub(super) fn first(
        self,
        bytes: &[u8],
        positions: Range<usize>,
        candidate_limit: u16,
        is_cut: &mut impl FnMut(usize) -> bool,
    ) -> Option<usize> {
        // SAFETY: the processor has AVX2, because `self` exists.
        unsafe { first(bytes, positions, candidate_limit, is_cut) }
    }
}

/// The number of positions tested at once. A vector has the sums of 16 positions, 16 bits each. Two vectors are for the
/// even positions, and two for the odd positions.
const STEP: usize = 64;

/// The number of bytes on which the sums of [`STEP`] positions depend: from sixteen bytes before the first position to
/// the byte before the last position.
const NEAR: usize = 16 + STEP - 1;

#[target_feature(enable = "avx2")]
fn first(
    bytes: &[u8],
    positions: Range<usize>,
    candidate_limit: u16,
    is_cut: &mut impl FnMut(usize) -> bool,
) -> Option<usize> {
    let largest = _mm256_set1_epi16((candidate_limit - 1).cast_signed());
    let mut position = positions.start;
    while position + STEP <= positions.end {
        let near: &[u8; NEAR] = bytes[position - 16..]
            .first_chunk()
            .expect("positions are within the bytes");
        // The positions 0, 2, .., 30, then 1, 3, .., 31, and the same for the 32 positions after them.
        let sums = [0, 1, 32, 33].map(|shift| sums(near, shift));
        let [even, odd, later_even, later_odd] = sums;
        // Usually no sum is small enough. One comparison of the minimum of all four vectors shows this.
        let least = _mm256_min_epu16(
            _mm256_min_epu16(even, odd),
            _mm256_min_epu16(later_even, later_odd),
        );
        if any(at_most(least, largest)) {
            let found = candidates_of(even, odd, largest);
            let later = candidates_of(later_even, later_odd, largest);
            let mut found = u64::from(found) | u64::from(later) << 32;
            while found != 0 {
                let candidate = position + found.trailing_zeros() as usize;
                if is_cut(candidate) {
                    return Some(candidate);
                }
                found &= found - 1;
            }
        }
        position += STEP;
    }
    scalar::first(bytes, position..positions.end, candidate_limit, is_cut)
}

/// Returns the sums of 16 positions: `shift`, `shift + 2`, and so on. `near` begins 16 bytes before position 0.
/// [`PAIRS`] has the distance from a position back to the start of each pair, and the weight of the pair.
#[target_feature(enable = "avx2")]
#[inline]
fn sums(near: &[u8; NEAR], shift: usize) -> __m256i {
    let mut sums = _mm256_set1_epi16(OFFSET.cast_signed());
    for (back, weight) in PAIRS {
        let at = 16 - back + shift;
        let pairs: &[u8; 32] = near[at..]
            .first_chunk()
            .expect("the bytes of all 16 pairs are within `near`");
        // SAFETY: reads the 32 bytes of the array, at any alignment.
        let pairs = unsafe { _mm256_loadu_si256(pairs.as_ptr().cast()) };
        let weighed = _mm256_mullo_epi16(pairs, _mm256_set1_epi16(weight.cast_signed()));
        sums = _mm256_add_epi16(sums, weighed);
    }
    sums
}

/// Compares each sum with `largest`. Returns all ones in the lanes whose sum is at most `largest`, and zeroes
/// in the others.
#[target_feature(enable = "avx2")]
#[inline]
fn at_most(sums: __m256i, largest: __m256i) -> __m256i {
    // AVX2 has no unsigned comparison: `sum <= largest` is `min(sum, largest) == sum`.
    _mm256_cmpeq_epi16(_mm256_min_epu16(sums, largest), sums)
}

#[target_feature(enable = "avx2")]
#[inline]
fn any(lanes: __m256i) -> bool {
    _mm256_movemask_epi8(lanes) != 0
}

/// Returns a bit for each of 32 positions that is a candidate, from the sums of the even and of the odd positions.
#[target_feature(enable = "avx2")]
#[inline]
fn candidates_of(even: __m256i, odd: __m256i, largest: __m256i) -> u32 {
    let odd_bytes = _mm256_set1_epi16(0xff00_u16.cast_signed());
    // Takes the even bytes from the comparison of the even positions, and the odd bytes from the other
    // comparison. The bytes are then in the order of the positions.
    let both = _mm256_blendv_epi8(at_most(even, largest), at_most(odd, largest), odd_bytes);
    _mm256_movemask_epi8(both).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    proptest! {
        /// The AVX2 prefilter finds the same candidates as the scalar one, in the same order.
        ///
        /// Method: use random bytes and positions, and limits that make all, some or nearly no positions
        /// candidates. The cut test records each candidate and returns false, so that the search continues.
        #[test]
        fn both_prefilters_find_the_same_candidates(
            bytes in vec(any::<u8>(), 16..700),
            (start, length) in (0_usize..300, 0_usize..400),
            prefilter_log2 in 0_u32..16,
        ) {
            let Some(avx2) = Avx2::detect() else {
                eprintln!("skipped: no AVX2 here");
                return Ok(());
            };
            let start = 16 + start % (bytes.len() - 15);
            let positions = start..(start + length).min(bytes.len() + 1);
            let candidate_limit = 0xffff >> prefilter_log2;
            let (mut slow, mut fast) = (Vec::new(), Vec::new());
            let note = |into: &mut Vec<usize>, position| { into.push(position); false };
            let is_candidate = |position: &usize| scalar::sum(&bytes, *position) < candidate_limit;
            let defined: Vec<_> = positions.clone().filter(is_candidate).collect();
            scalar::first(&bytes, positions.clone(), candidate_limit, &mut |position| note(&mut slow, position));
            avx2.first(&bytes, positions, candidate_limit, &mut |position| note(&mut fast, position));
            prop_assert_eq!(&slow, &defined);
            prop_assert_eq!(fast, defined);
        }
    }
}
