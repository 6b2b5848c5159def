//! Operations on all eight lanes (32-bit words) of a block at once, for processors with AVX2.
//!
//! One instruction computes the products, shifts or comparisons of all eight lanes. In the portable code the compiler
//! processes each lane separately and runs out of registers: an insert takes 140 instructions instead of 22.
//!
//! In a batch, the processor overlaps several inserts, because no insert depends on the result of another. If the
//! blocks are in main memory, the processor's out-of-order window is too short for this, so the code prefetches
//! the blocks of later ids.
//!
//! # Why `unsafe`
//!
//! An [`Avx2`] value proves that the processor has the instructions; the compiler cannot know this. Blocks are
//! loaded and stored through pointers, because these instructions have no safe form. Each pointer comes from a
//! reference to a whole block.
#![expect(
    unsafe_code,
    reason = "AVX2 is not available on every processor; the module's doc explains why the code is sound"
)]

use std::arch::x86_64::{
    __m256i, _MM_HINT_T0, _mm_prefetch, _mm256_loadu_si256, _mm256_mullo_epi32, _mm256_or_si256,
    _mm256_set1_epi32, _mm256_sllv_epi32, _mm256_srli_epi32, _mm256_storeu_si256,
    _mm256_testc_si256,
};

use super::{BLOCK_BYTES, Block, SALTS, block_at, block_of};
use crate::avx2::Avx2;
use crate::id::IdHash;

/// Like [`super::are_set`].
#[inline]
pub(super) fn are_set(_: Avx2, hash: u64, block: &[u8; BLOCK_BYTES]) -> bool {
    // SAFETY: an `Avx2` exists only if the processor has AVX2.
    unsafe { contains(hash, block) }
}

/// Like [`super::Lanes::match_many`].
pub(super) fn match_many(
    _: Avx2,
    ids: &[IdHash],
    block_count: u32,
    area: &[u8],
    answers: &mut [bool],
) {
    // SAFETY: as in `are_set`.
    unsafe { contains_many(ids, block_count, area, answers) }
}

/// Like [`super::set`].
#[inline]
pub(super) fn set(_: Avx2, hash: u64, blocks: &mut [Block]) -> bool {
    // SAFETY: as in `are_set`.
    unsafe { insert(hash, blocks) }
}

/// Calls [`set`] for each of `ids`. Returns the number of ids that changed a bit.
pub(super) fn set_many(_: Avx2, ids: &[IdHash], blocks: &mut [Block]) -> u64 {
    // SAFETY: as in `are_set`.
    unsafe { insert_many(ids, blocks) }
}

#[target_feature(enable = "avx2")]
fn contains(hash: u64, block: &[u8; BLOCK_BYTES]) -> bool {
    _mm256_testc_si256(lanes(block), bits_of(hash)) != 0
}

#[target_feature(enable = "avx2")]
fn contains_many(ids: &[IdHash], block_count: u32, area: &[u8], answers: &mut [bool]) {
    for (n, (id, answer)) in ids.iter().zip(answers).enumerate() {
        if let Some(later) = ids.get(n + PREFETCH_IDS) {
            prefetch(area, BLOCK_BYTES * block_of(later.0, block_count));
        }
        let block = block_at(area, block_of(id.0, block_count));
        *answer = block.is_none_or(|block| contains(id.0, block));
    }
}

#[target_feature(enable = "avx2")]
fn insert(hash: u64, blocks: &mut [Block]) -> bool {
    let at = block_of(hash, blocks.len() as u32);
    let Block(block) = &mut blocks[at];
    let (before, bits) = (lanes(block), bits_of(hash));
    let after = _mm256_or_si256(before, bits);
    // SAFETY: the block has 32 bytes, as many as are written, and this is the only reference to it.
    unsafe { _mm256_storeu_si256(block.as_mut_ptr().cast(), after) };
    _mm256_testc_si256(before, bits) == 0
}

#[target_feature(enable = "avx2")]
fn insert_many(ids: &[IdHash], blocks: &mut [Block]) -> u64 {
    let block_count = blocks.len() as u32;
    let mut changed = 0;
    for (n, id) in ids.iter().enumerate() {
        if let Some(later) = ids.get(n + PREFETCH_IDS) {
            prefetch(blocks, block_of(later.0, block_count));
        }
        changed += u64::from(insert(id.0, blocks));
    }
    changed
}

/// Returns the bits of an id with this hash: one set bit in each lane.
#[target_feature(enable = "avx2")]
fn bits_of(hash: u64) -> __m256i {
    // SAFETY: `SALTS` has 32 bytes, as many as are read.
    let salts = unsafe { _mm256_loadu_si256(SALTS.as_ptr().cast()) };
    let products = _mm256_mullo_epi32(_mm256_set1_epi32(hash as i32), salts);
    // The upper five bits of a product are the position of the bit in its lane.
    _mm256_sllv_epi32(_mm256_set1_epi32(1), _mm256_srli_epi32::<27>(products))
}

#[target_feature(enable = "avx2")]
fn lanes(block: &[u8; BLOCK_BYTES]) -> __m256i {
    // SAFETY: the block has 32 bytes, as many as are read.
    unsafe { _mm256_loadu_si256(block.as_ptr().cast()) }
}

/// Prefetches the cache line of `all[at]`. An index beyond the end has no effect.
#[target_feature(enable = "avx2")]
fn prefetch<T>(all: &[T], at: usize) {
    _mm_prefetch::<_MM_HINT_T0>(all.as_ptr().wrapping_add(at).cast());
}

/// The number of ids by which the prefetch runs ahead. Processing them takes about 80 ns, the latency of main
/// memory.
const PREFETCH_IDS: usize = 16;
