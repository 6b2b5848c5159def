//! Blocks added up four lanes at a time with AVX2. It gives what the plain code gives; the tests hold it to that.
//!
//! # Why `unsafe`
//!
//! Two things the compiler cannot know. That the processor has AVX2: a value of [`Avx2`] is made by asking it and
//! in no other way, so holding one is the proof. And that a load or store stays within its array: each is of a reference to an
//! array of exactly the bytes it takes, so the bounds were checked when that reference was made.
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

use super::{Block, Lanes, PRIME32_1, SECRET, STIRRING, Stripe};

/// Proof that this processor has AVX2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

impl Avx2 {
    /// Asks the processor.
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    /// As [`super::add_blocks`].
    pub(super) fn add_blocks(self, lanes: &mut Lanes, blocks: &[Block]) {
        // SAFETY: the processor has AVX2, or there were no `self`.
        unsafe { add_blocks(lanes, blocks) }
    }
}

#[target_feature(enable = "avx2")]
fn add_blocks(lanes: &mut Lanes, blocks: &[Block]) {
    let mut halves = Halves::of(lanes);
    for block in blocks {
        for (nth, stripe) in block.as_chunks().0.iter().enumerate() {
            halves.add(nth, stripe);
        }
        halves.stir();
    }
    halves.store(lanes);
}

/// The lanes in two registers, for whoever adds stripes up along with something else.
#[derive(Clone, Copy)]
pub(crate) struct Halves {
    low: __m256i,
    high: __m256i,
}

impl Halves {
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn of(lanes: &Lanes) -> Self {
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

    /// The stripe of this number in its block.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn add(&mut self, nth: usize, stripe: &Stripe) {
        self.low = add_half(self.low, &stripe[..], &SECRET[8 * nth..]);
        self.high = add_half(self.high, &stripe[32..], &SECRET[8 * nth + 32..]);
    }

    /// A block ends.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn stir(&mut self) {
        self.low = stir(self.low, &SECRET[STIRRING..]);
        self.high = stir(self.high, &SECRET[STIRRING + 32..]);
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn add_half(lanes: __m256i, stripe: &[u8], secret: &[u8]) -> __m256i {
    let words = load(stripe);
    let keyed = _mm256_xor_si256(words, load(secret));
    let product = _mm256_mul_epu32(keyed, _mm256_srli_epi64::<32>(keyed));
    // Each lane takes its neighbour's word.
    let swapped = _mm256_shuffle_epi32::<0b01_00_11_10>(words);
    _mm256_add_epi64(lanes, _mm256_add_epi64(product, swapped))
}

#[target_feature(enable = "avx2")]
#[inline]
fn stir(lanes: __m256i, secret: &[u8]) -> __m256i {
    let stirred = _mm256_xor_si256(lanes, _mm256_srli_epi64::<47>(lanes));
    let stirred = _mm256_xor_si256(stirred, load(secret));
    let prime = _mm256_set1_epi64x(i64::from(PRIME32_1));
    let low = _mm256_mul_epu32(stirred, prime);
    let high = _mm256_mul_epu32(_mm256_srli_epi64::<32>(stirred), prime);
    _mm256_add_epi64(low, _mm256_slli_epi64::<32>(high))
}

/// The first 32 bytes.
#[target_feature(enable = "avx2")]
#[inline]
fn load(bytes: &[u8]) -> __m256i {
    let bytes: &[u8; 32] = bytes.first_chunk().expect("whoever calls has as many");
    // SAFETY: reads the 32 bytes of the array, at any alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}
