//! Adds blocks to XXH3 with AVX2, four lanes at a time. Tests compare the lanes with those of the portable code.
//!
//! # Why `unsafe`
//!
//! The compiler cannot check two conditions. First, the processor must have AVX2: a value of [`Avx2`] exists
//! only if AVX2 was detected. Second, a load or store must stay within its array: it takes a reference to an
//! array of exactly its length, so the bounds are checked when this reference is made.
#![expect(
    unsafe_code,
    reason = "vector instructions; the module's doc says what makes them sound"
)]

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{
    __m256i, _mm256_add_epi64, _mm256_loadu_si256, _mm256_mul_epu32, _mm256_set1_epi64x,
    _mm256_shuffle_epi32, _mm256_slli_epi64, _mm256_srli_epi64, _mm256_storeu_si256,
    _mm256_xor_si256,
};

use super::{Block, Lanes, PRIME32_1, SCRAMBLE_SECRET, SECRET, Stripe};

/// Proof that this processor has AVX2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

impl Avx2 {
    /// Detects AVX2.
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    /// Like [`super::add_blocks`].
    pub(super) fn add_blocks(self, lanes: &mut Lanes, blocks: &[Block]) {
        // SAFETY: the processor has AVX2, because `self` exists.
        unsafe { add_blocks(lanes, blocks) }
    }
}

#[target_feature(enable = "avx2")]
fn add_blocks(lanes: &mut Lanes, blocks: &[Block]) {
    let mut halves = Halves::new(lanes);
    for block in blocks {
        for (nth, stripe) in block.as_chunks().0.iter().enumerate() {
            halves.add(nth, stripe);
        }
        halves.scramble();
    }
    halves.store(lanes);
}

/// The eight lanes in two registers. The computation of fingerprints also uses this type, to add each stripe in the
/// same pass over the bytes.
#[derive(Clone, Copy)]
pub(crate) struct Halves {
    low: __m256i,
    high: __m256i,
}

impl Halves {
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn new(lanes: &Lanes) -> Self {
        let (halves, _) = lanes.as_chunks::<4>();
        let [low, high] = [0, 1].map(|half| {
            let four: &[u64; 4] = &halves[half];
            // SAFETY: reads the 32 bytes of the array, at any alignment.
            unsafe { _mm256_loadu_si256(four.as_ptr().cast()) }
        });
        Self { low, high }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn store(self, lanes: &mut Lanes) {
        let (halves, _) = lanes.as_chunks_mut::<4>();
        for (half, sums) in halves.iter_mut().zip([self.low, self.high]) {
            // SAFETY: writes the 32 bytes of the array, at any alignment.
            unsafe { _mm256_storeu_si256(half.as_mut_ptr().cast(), sums) };
        }
    }

    /// Adds stripe number `nth` of a block, counted from 0.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn add(&mut self, nth: usize, stripe: &Stripe) {
        self.low = add_half(self.low, &stripe[..], &SECRET[8 * nth..]);
        self.high = add_half(self.high, &stripe[32..], &SECRET[8 * nth + 32..]);
    }

    /// Scrambles the lanes at the end of a block.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn scramble(&mut self) {
        self.low = scramble(self.low, &SECRET[SCRAMBLE_SECRET..]);
        self.high = scramble(self.high, &SECRET[SCRAMBLE_SECRET + 32..]);
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn add_half(lanes: __m256i, stripe: &[u8], secret: &[u8]) -> __m256i {
    let words = load(stripe);
    let keyed = _mm256_xor_si256(words, load(secret));
    let product = _mm256_mul_epu32(keyed, _mm256_srli_epi64::<32>(keyed));
    // XXH3 adds each word of the stripe to the neighbour of its lane.
    let swapped = _mm256_shuffle_epi32::<0b01_00_11_10>(words);
    _mm256_add_epi64(lanes, _mm256_add_epi64(product, swapped))
}

#[target_feature(enable = "avx2")]
#[inline]
fn scramble(lanes: __m256i, secret: &[u8]) -> __m256i {
    let scrambled = _mm256_xor_si256(lanes, _mm256_srli_epi64::<47>(lanes));
    let scrambled = _mm256_xor_si256(scrambled, load(secret));
    let prime = _mm256_set1_epi64x(i64::from(PRIME32_1));
    let low = _mm256_mul_epu32(scrambled, prime);
    let high = _mm256_mul_epu32(_mm256_srli_epi64::<32>(scrambled), prime);
    _mm256_add_epi64(low, _mm256_slli_epi64::<32>(high))
}

/// Loads the first 32 bytes.
#[target_feature(enable = "avx2")]
#[inline]
fn load(bytes: &[u8]) -> __m256i {
    let bytes: &[u8; 32] = bytes.first_chunk().expect("callers pass at least 32 bytes");
    // SAFETY: reads the 32 bytes of the array, at any alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}
