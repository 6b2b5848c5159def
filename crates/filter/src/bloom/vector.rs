//! A block's eight lanes at once, for processors with AVX2.
//!
//! Eight products, shifts and comparisons are one instruction each. Of the code for any processor the compiler makes eight
//! of everything, and as it has not as many registers, it moves half of them about: an insert takes 140 instructions there
//! and 22 here.
//!
//! Many inserts are begun before the first is done, for none needs what another found. While blocks come from a cache the
//! processor sees to that itself. From memory it does not see far enough ahead, so blocks are sent for some ids before.
//!
//! # Why `unsafe`
//!
//! Holding an [`Avx2`] is the proof that the processor has the instructions; the compiler cannot know. And a block is read
//! and written through a pointer, for which there are no safe instructions; it comes from a reference to as many bytes.
#![expect(
    unsafe_code,
    reason = "instructions not every processor has; the module's doc says what makes it sound"
)]

use std::arch::x86_64::{
    __m256i, _MM_HINT_T0, _mm_prefetch, _mm256_loadu_si256, _mm256_mullo_epi32, _mm256_or_si256,
    _mm256_set1_epi32, _mm256_sllv_epi32, _mm256_srli_epi32, _mm256_storeu_si256,
    _mm256_testc_si256,
};

use super::{BLOCK_BYTES, Block, SALTS, block_at, block_of};
use crate::avx2::Avx2;
use crate::id::IdHash;

/// As [`super::are_set`].
#[inline]
pub(super) fn are_set(_: Avx2, hash: u64, block: &[u8; BLOCK_BYTES]) -> bool {
    // SAFETY: the processor has it, or there were no `Avx2`.
    unsafe { has(hash, block) }
}

/// As [`super::Lanes::match_many`].
pub(super) fn match_many(_: Avx2, ids: &[IdHash], blocks: u32, area: &[u8], answers: &mut [bool]) {
    // SAFETY: as in `are_set`.
    unsafe { have(ids, blocks, area, answers) }
}

/// As [`super::set`].
#[inline]
pub(super) fn set(_: Avx2, hash: u64, blocks: &mut [Block]) -> bool {
    // SAFETY: as in `are_set`.
    unsafe { put(hash, blocks) }
}

/// [`set`] for each of `ids`: how many were not there.
pub(super) fn set_many(_: Avx2, ids: &[IdHash], blocks: &mut [Block]) -> u64 {
    // SAFETY: as in `are_set`.
    unsafe { put_many(ids, blocks) }
}

#[target_feature(enable = "avx2")]
fn has(hash: u64, block: &[u8; BLOCK_BYTES]) -> bool {
    _mm256_testc_si256(lanes(block), bits_of(hash)) != 0
}

#[target_feature(enable = "avx2")]
fn have(ids: &[IdHash], blocks: u32, area: &[u8], answers: &mut [bool]) {
    for (n, (id, answer)) in ids.iter().zip(answers).enumerate() {
        if let Some(later) = ids.get(n + AHEAD) {
            send_for(area, BLOCK_BYTES * block_of(later.0, blocks));
        }
        let block = block_at(area, block_of(id.0, blocks));
        *answer = block.is_none_or(|block| has(id.0, block));
    }
}

#[target_feature(enable = "avx2")]
fn put(hash: u64, blocks: &mut [Block]) -> bool {
    let at = block_of(hash, blocks.len() as u32);
    let Block(block) = &mut blocks[at];
    let (before, bits) = (lanes(block), bits_of(hash));
    let after = _mm256_or_si256(before, bits);
    // SAFETY: as many bytes as are written are there, and this is the only reference to them.
    unsafe { _mm256_storeu_si256(block.as_mut_ptr().cast(), after) };
    _mm256_testc_si256(before, bits) == 0
}

#[target_feature(enable = "avx2")]
fn put_many(ids: &[IdHash], blocks: &mut [Block]) -> u64 {
    let count = blocks.len() as u32;
    let mut fresh = 0;
    for (n, id) in ids.iter().enumerate() {
        if let Some(later) = ids.get(n + AHEAD) {
            send_for(blocks, block_of(later.0, count));
        }
        fresh += u64::from(put(id.0, blocks));
    }
    fresh
}

/// One bit in each lane.
#[target_feature(enable = "avx2")]
fn bits_of(hash: u64) -> __m256i {
    // SAFETY: there are as many salts as are read.
    let salts = unsafe { _mm256_loadu_si256(SALTS.as_ptr().cast()) };
    let places = _mm256_mullo_epi32(_mm256_set1_epi32(hash as i32), salts);
    _mm256_sllv_epi32(_mm256_set1_epi32(1), _mm256_srli_epi32::<27>(places))
}

#[target_feature(enable = "avx2")]
fn lanes(block: &[u8; BLOCK_BYTES]) -> __m256i {
    // SAFETY: as many bytes as are read are there.
    unsafe { _mm256_loadu_si256(block.as_ptr().cast()) }
}

/// Has the cache line of `all[at]` brought, if there is one.
#[target_feature(enable = "avx2")]
fn send_for<T>(all: &[T], at: usize) {
    _mm_prefetch::<_MM_HINT_T0>(all.as_ptr().wrapping_add(at).cast());
}

/// How many ids ahead blocks are sent for: some 80 ns, as long as memory takes to answer.
const AHEAD: usize = 16;
