//! Computes NH, the universal hash of the units of a chunk (see [`super`]), with AVX2: four pairs of words at a time.
//! NH computes two sums, called passes. The second pass uses the same key, shifted by one step. Tests compare the sums
//! with those of the portable code.
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
    __m256i, _mm256_add_epi32, _mm256_add_epi64, _mm256_loadu_si256, _mm256_mul_epu32,
    _mm256_setzero_si256, _mm256_srli_epi64, _mm256_storeu_si256,
};

use super::{PASS_WORDS, PASSES, UnitKey};

/// Proof that this processor has AVX2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

impl Avx2 {
    /// Detects AVX2.
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    /// Like [`super::nh`]. The length of `bytes` must be a multiple of [`STEP_BYTES`], and at most one unit.
    pub(super) fn nh(self, key: &UnitKey, bytes: &[u8]) -> [u64; PASSES] {
        // SAFETY: the processor has AVX2, because `self` exists.
        unsafe { nh(key, bytes) }
    }
}

/// The number of bytes of a vector: four pairs of words of 32 bits. One vector is one step. Each pass uses
/// [`PASS_WORDS`] key words per step, one for each of these eight words.
pub(super) const STEP_BYTES: usize = 32;

/// The sums of a unit so far.
struct NhSums {
    passes: [__m256i; PASSES],
    /// The key words that the first pass uses in the next call of `step`. They are the words that the second pass used
    /// in the previous call. Before the first call they are the first key words of the unit.
    near: __m256i,
}

impl NhSums {
    #[target_feature(enable = "avx2")]
    #[inline]
    fn new(first: &[u32; PASS_WORDS]) -> Self {
        Self {
            passes: [_mm256_setzero_si256(); PASSES],
            near: load(first),
        }
    }

    /// Adds a step. `far` is the key of its second pass, and of the first pass of the next step.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn step(&mut self, step: &[u8; STEP_BYTES], far: &[u32; PASS_WORDS]) {
        // SAFETY: reads the 32 bytes of the array, at any alignment.
        let words = unsafe { _mm256_loadu_si256(step.as_ptr().cast()) };
        let far = load(far);
        for (sum, key) in self.passes.iter_mut().zip([self.near, far]) {
            let keyed = _mm256_add_epi32(words, key);
            let product = _mm256_mul_epu32(keyed, _mm256_srli_epi64::<32>(keyed));
            *sum = _mm256_add_epi64(*sum, product);
        }
        self.near = far;
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn totals(self) -> [u64; PASSES] {
        self.passes.map(|sum| add_lanes(sum))
    }
}

#[target_feature(enable = "avx2")]
fn nh(key: &UnitKey, bytes: &[u8]) -> [u64; PASSES] {
    let (steps, _) = bytes.as_chunks::<STEP_BYTES>();
    let (keys, _) = key.0.as_chunks::<PASS_WORDS>();
    let ([first, keys @ ..], true) = (keys, steps.len() < keys.len()) else {
        panic!("the bytes are longer than a unit");
    };
    let mut sums = NhSums::new(first);
    for (step, far) in steps.iter().zip(keys) {
        sums.step(step, far);
    }
    sums.totals()
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(key: &[u32; PASS_WORDS]) -> __m256i {
    // SAFETY: reads the 32 bytes of the array, at any alignment.
    unsafe { _mm256_loadu_si256(key.as_ptr().cast()) }
}

/// Returns the sum of the four 64-bit numbers of a vector.
#[target_feature(enable = "avx2")]
fn add_lanes(sum: __m256i) -> u64 {
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

    use crate::fingerprint::{KEY_WORDS, UNIT_BYTES, nh};

    proptest! {
        /// AVX2 and portable code compute the same sums, for every number of vectors up to a unit.
        #[test]
        fn avx2_and_portable_code_give_the_same_sums(
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
            prop_assert_eq!(avx2.nh(&UnitKey(key), &bytes), nh(&key, &bytes));
        }
    }
}
