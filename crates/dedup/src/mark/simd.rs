//! NH, four pairs at a time with AVX2. It gives what the plain code gives; the tests hold it to that.
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
    __m256i, _mm256_add_epi32, _mm256_add_epi64, _mm256_loadu_si256, _mm256_mul_epu32,
    _mm256_setzero_si256, _mm256_srli_epi64, _mm256_storeu_si256,
};

use super::{PASSES, UNIT_BYTES, UnitKey};

/// Proof that this processor has AVX2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

impl Avx2 {
    /// Asks the processor.
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    /// As [`super::nh`], of whole [`STEP_BYTES`], at most a unit's.
    pub(super) fn nh(self, key: &UnitKey, bytes: &[u8]) -> [u64; PASSES] {
        // SAFETY: the processor has AVX2, or there were no `self`.
        unsafe { nh(key, bytes) }
    }
}

/// Four pairs.
pub(super) const STEP_BYTES: usize = 32;
const STEP_WORDS: usize = STEP_BYTES / 4;

/// Words of the key that a step takes: the last pass' begin three pairs further on than the first one's.
const NEAR_WORDS: usize = STEP_WORDS + 2 * (PASSES - 1);

#[target_feature(enable = "avx2")]
fn nh(key: &UnitKey, bytes: &[u8]) -> [u64; PASSES] {
    assert!(bytes.len() <= UNIT_BYTES, "a unit at most");
    let mut sums = [_mm256_setzero_si256(); PASSES];
    let (steps, _) = bytes.as_chunks::<STEP_BYTES>();
    for (nth, step) in steps.iter().enumerate() {
        let near: &[u32; NEAR_WORDS] = key[nth * STEP_WORDS..]
            .first_chunk()
            .expect("the key goes on for as long as a unit");
        // SAFETY: reads the 32 bytes of the array, at any alignment.
        let words = unsafe { _mm256_loadu_si256(step.as_ptr().cast()) };
        for (pass, sum) in sums.iter_mut().enumerate() {
            let key: &[u32; STEP_WORDS] = near[2 * pass..].first_chunk().expect("eight are left");
            // SAFETY: as above.
            let key = unsafe { _mm256_loadu_si256(key.as_ptr().cast()) };
            let keyed = _mm256_add_epi32(words, key);
            let product = _mm256_mul_epu32(keyed, _mm256_srli_epi64::<32>(keyed));
            *sum = _mm256_add_epi64(*sum, product);
        }
    }
    sums.map(|sum| across(sum))
}

/// The four lanes added up.
#[target_feature(enable = "avx2")]
fn across(sum: __m256i) -> u64 {
    let mut lanes = [0_u64; 4];
    // SAFETY: writes the 32 bytes of the array, at any alignment.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sum) };
    lanes.into_iter().fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use crate::mark::{KEY_WORDS, nh};

    proptest! {
        /// Vectors add up to what plain code does, for every number of steps up to a unit's.
        #[test]
        fn both_sums_are_the_same(
            seed in vec(any::<u32>(), 5..50),
            pattern in vec(any::<u8>(), 1..300),
            steps in 0..=UNIT_BYTES / STEP_BYTES,
        ) {
            let Some(avx2) = Avx2::detect() else {
                eprintln!("skipped: no AVX2 here");
                return Ok(());
            };
            let mut key = [0; KEY_WORDS];
            for (nth, word) in key.iter_mut().enumerate() {
                *word = seed[nth % seed.len()].wrapping_mul(2 * nth as u32 + 1);
            }
            let bytes: Vec<u8> = (0..steps * STEP_BYTES).map(|nth| pattern[nth % pattern.len()]).collect();
            prop_assert_eq!(avx2.nh(&key, &bytes), nh(&key, &bytes));
        }
    }
}
