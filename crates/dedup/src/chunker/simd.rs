//! The sieve, 64 places at a time with AVX2. It gives what [`scalar`] gives; the tests hold it to that.
//!
//! # Why `unsafe`
//!
//! Two things the compiler cannot know. That the processor has AVX2: a value of [`Avx2`] is made by asking it and
//! in no other way, so holding one is the proof. And that a load stays within its slice: each load is of a reference to an
//! array of exactly the bytes it takes, so the bounds were checked when that reference was made.
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
    /// Asks the processor.
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    /// As [`scalar::first`].
    pub(super) fn first(
        self,
        bytes: &[u8],
        places: Range<usize>,
        sieve: u16,
        verdict: &mut impl FnMut(usize) -> bool,
    ) -> Option<usize> {
        // SAFETY: the processor has AVX2, or there were no `self`.
        unsafe { first(bytes, places, sieve, verdict) }
    }
}

/// Places asked at once: twice 16 sums of 16 bits for the even ones and 16 for the odd ones.
const STEP: usize = 64;

/// What they look at: sixteen bytes before the first, and the last one's own ends a byte before the step does.
const NEAR: usize = 16 + STEP - 1;

#[target_feature(enable = "avx2")]
fn first(
    bytes: &[u8],
    places: Range<usize>,
    sieve: u16,
    verdict: &mut impl FnMut(usize) -> bool,
) -> Option<usize> {
    let largest = _mm256_set1_epi16((sieve - 1).cast_signed());
    let mut place = places.start;
    while place + STEP <= places.end {
        let near: &[u8; NEAR] = bytes[place - 16..]
            .first_chunk()
            .expect("places lie in bytes");
        let sums = [0, 1, 32, 33].map(|shift| sums(near, shift));
        let [even, odd, later_even, later_odd] = sums;
        // Mostly there is none among all four, and their least tells it.
        let least = _mm256_min_epu16(
            _mm256_min_epu16(even, odd),
            _mm256_min_epu16(later_even, later_odd),
        );
        if any(at_most(least, largest)) {
            let found = places_of(even, odd, largest);
            let later = places_of(later_even, later_odd, largest);
            let mut found = u64::from(found) | u64::from(later) << 32;
            while found != 0 {
                let candidate = place + found.trailing_zeros() as usize;
                if verdict(candidate) {
                    return Some(candidate);
                }
                found &= found - 1;
            }
        }
        place += STEP;
    }
    scalar::first(bytes, place..places.end, sieve, verdict)
}

/// Of 32 places from the `shift`th on every other one's sum.
#[target_feature(enable = "avx2")]
#[inline]
fn sums(near: &[u8; NEAR], shift: usize) -> __m256i {
    let mut sums = _mm256_set1_epi16(OFFSET.cast_signed());
    for (back, weight) in PAIRS {
        let at = 16 - back + shift;
        let pairs: &[u8; 32] = near[at..]
            .first_chunk()
            .expect("the nearest pair ends with them");
        // SAFETY: reads the 32 bytes of the array, at any alignment.
        let pairs = unsafe { _mm256_loadu_si256(pairs.as_ptr().cast()) };
        let weighed = _mm256_mullo_epi16(pairs, _mm256_set1_epi16(weight.cast_signed()));
        sums = _mm256_add_epi16(sums, weighed);
    }
    sums
}

/// All ones in the lanes that are no larger.
#[target_feature(enable = "avx2")]
#[inline]
fn at_most(sums: __m256i, largest: __m256i) -> __m256i {
    // There is no unsigned comparison: `sum <= largest` is `min(sum, largest) == sum`.
    _mm256_cmpeq_epi16(_mm256_min_epu16(sums, largest), sums)
}

#[target_feature(enable = "avx2")]
#[inline]
fn any(lanes: __m256i) -> bool {
    _mm256_movemask_epi8(lanes) != 0
}

/// Which of 32 places are candidates, by the sums of the even and of the odd ones.
#[target_feature(enable = "avx2")]
#[inline]
fn places_of(even: __m256i, odd: __m256i, largest: __m256i) -> u32 {
    let odd_bytes = _mm256_set1_epi16(0xff00_u16.cast_signed());
    // Bytes 2k from the even lanes, bytes 2k + 1 from the odd ones: the places in their order.
    let both = _mm256_blendv_epi8(at_most(even, largest), at_most(odd, largest), odd_bytes);
    _mm256_movemask_epi8(both).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    proptest! {
        /// The vector sieve finds the candidates of the scalar one, all of them and in their order.
        ///
        /// Method: random bytes, random places among them, sieves from everything to nearly nothing; a verdict
        /// that notes the candidate and says no.
        #[test]
        fn both_sieves_find_the_same_candidates(
            bytes in vec(any::<u8>(), 16..700),
            (start, length) in (0_usize..300, 0_usize..400),
            sieve_log2 in 0_u32..16,
        ) {
            let Some(avx2) = Avx2::detect() else {
                eprintln!("skipped: no AVX2 here");
                return Ok(());
            };
            let start = 16 + start % (bytes.len() - 15);
            let places = start..(start + length).min(bytes.len() + 1);
            let sieve = 0xffff >> sieve_log2;
            let (mut slow, mut fast) = (Vec::new(), Vec::new());
            let note = |into: &mut Vec<usize>, place| { into.push(place); false };
            let defined: Vec<_> = places.clone().filter(|&place| scalar::sum(&bytes, place) < sieve).collect();
            scalar::first(&bytes, places.clone(), sieve, &mut |place| note(&mut slow, place));
            avx2.first(&bytes, places, sieve, &mut |place| note(&mut fast, place));
            prop_assert_eq!(&slow, &defined);
            prop_assert_eq!(fast, defined);
        }
    }
}
