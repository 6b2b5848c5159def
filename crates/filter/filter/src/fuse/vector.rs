//! Lookups, compiled for processors with AVX2.
//!
//! A lookup compares the XOR of four slots of a shard with bits of the id's hash. The first slots of a shard are
//! narrow, and the others are wide: they have one more bit.
//!
//! A batch runs the same code as [`lookup::contains_many`]; with AVX2 the compiler processes four ids at once.
//! A single lookup is [`Shard::contains`] with its four slots side by side. Moving values to vector registers
//! and back delays the result. This rarely costs time: the processor predicts the branch that uses the result,
//! and continues without waiting. The lookup needs a third of the instructions of the portable code. A
//! processor's out-of-order window holds a fixed number of instructions, here those of about three lookups.
//! Three lookups therefore overlap, and each takes a third of the latency of its memory accesses.
//!
//! # Why `unsafe`
//!
//! An [`Avx2`] value proves that the processor has these instructions; the compiler cannot know this.
#![expect(
    unsafe_code,
    reason = "AVX2 is not available on every processor; the module's doc explains why the code is sound"
)]

use std::arch::x86_64::{
    _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_insert_epi64, _mm_srlv_epi64,
    _mm_unpackhi_epi64, _mm_xor_si128, _mm256_add_epi64, _mm256_and_si256, _mm256_blend_epi32,
    _mm256_castsi256_ps, _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_max_epi32,
    _mm256_movemask_ps, _mm256_mul_epu32, _mm256_set_epi64x, _mm256_set1_epi64x,
    _mm256_setzero_si256, _mm256_srli_epi64, _mm256_srlv_epi64, _mm256_sub_epi32, _mm256_xor_si256,
};

use super::lookup::{self, Shard, WORD, word};
use super::shape::{fold, mix};
use crate::avx2::Avx2;
use crate::id::IdHash;

/// Like [`Shard::contains`].
#[inline]
pub(super) fn contains(_: Avx2, shard: &Shard, hash: u64, bytes: &[u8]) -> bool {
    // SAFETY: an `Avx2` exists only if the processor has AVX2 and BMI2.
    unsafe { contains_avx2(shard, hash, bytes) }
}

/// Like [`lookup::contains_many`].
pub(super) fn contains_many(
    _: Avx2,
    ids: &[IdHash],
    shards: &[Shard],
    bytes: &[u8],
    answers: &mut [bool],
) {
    // SAFETY: an `Avx2` exists only if the processor has AVX2 and BMI2.
    unsafe { contains_many_avx2(ids, shards, bytes, answers) }
}

#[target_feature(enable = "avx2,bmi2")]
fn contains_many_avx2(ids: &[IdHash], shards: &[Shard], bytes: &[u8], answers: &mut [bool]) {
    lookup::contains_many(ids, shards, bytes, answers);
}

#[target_feature(enable = "avx2,bmi2")]
fn contains_avx2(shard: &Shard, hash: u64, bytes: &[u8]) -> bool {
    let Some(last) = bytes.len().checked_sub(WORD) else {
        return true;
    };
    let mixed = mix(hash, shard.seed);
    let second = fold(mixed);
    let all = |number: u64| _mm256_set1_epi64x(number as i64);
    let lanes_of =
        |[a, b, c, d]: [u64; 4]| _mm256_set_epi64x(d as i64, c as i64, b as i64, a as i64);
    let everywhere = all(mixed);
    // The same as `Shard::start`.
    let start = _mm256_srli_epi64::<32>(_mm256_mul_epu32(
        _mm256_srli_epi64::<32>(everywhere),
        all(shard.starts),
    ));
    // The last lane takes its bits from `second`.
    let random = _mm256_blend_epi32::<0b1100_0000>(
        _mm256_srlv_epi64(everywhere, lanes_of([0, 0, 16, 0])),
        all(second),
    );
    let positions = _mm256_xor_si256(_mm256_and_si256(random, lanes_of(shard.masks)), start);
    // Positions are below 2^28, and a slot has at most 33 bits. Subtraction and comparison in 32 bits therefore
    // suffice, and the products fit 64 bits. `beyond` is the distance of each position from the first wide slot, and
    // negative for a narrow slot. `wide` is the number of wide slots before the position; each adds one bit. `bit` is
    // the bit of the file at which the slot begins.
    let beyond = _mm256_sub_epi32(positions, lanes_of(shard.first_wide_slot));
    let wide = _mm256_max_epi32(beyond, _mm256_setzero_si256());
    let bit = _mm256_add_epi64(
        _mm256_mul_epu32(positions, all(shard.bits)),
        _mm256_add_epi64(wide, lanes_of(shard.origins)),
    );
    // The lowest lane belongs to the first slot. Its sign bit is set if this slot is narrow.
    let is_narrow = _mm256_movemask_ps(_mm256_castsi256_ps(beyond)) & 1;
    let at = _mm256_srli_epi64::<3>(bit);
    let (low, high) = (
        _mm256_castsi256_si128(at),
        _mm256_extracti128_si256::<1>(at),
    );
    let [a, b, c, d] = [
        _mm_cvtsi128_si64(low),
        _mm_extract_epi64::<1>(low),
        _mm_cvtsi128_si64(high),
        _mm_extract_epi64::<1>(high),
    ]
    .map(|at| at as usize);
    // With this check the compiler omits the bounds checks of the slices.
    if a > last || b > last || c > last || d > last {
        return true;
    }
    let pair = |one, other, shifts| {
        let one = _mm_cvtsi64_si128(word(bytes, one) as i64);
        _mm_srlv_epi64(
            _mm_insert_epi64::<1>(one, word(bytes, other) as i64),
            shifts,
        )
    };
    let shifts = _mm256_and_si256(bit, all(7));
    let pairs = _mm_xor_si128(
        pair(a, b, _mm256_castsi256_si128(shifts)),
        pair(c, d, _mm256_extracti128_si256::<1>(shifts)),
    );
    let sum = _mm_cvtsi128_si64(_mm_xor_si128(pairs, _mm_unpackhi_epi64(pairs, pairs)));
    shard.is_match_of_width(is_narrow != 0, sum as u64, second)
}
