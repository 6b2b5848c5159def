//! Binary fuse filters with four probes and any width, whole or in between: the static form.
//!
//! Every id owns an equation: the four slots its hash points to, XORed, equal its fingerprint. The
//! slots lie in four neighbouring segments, which makes the equations solvable by peeling with only
//! 7.5 % more slots than ids (Graf and Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor
//! Filters", JEA 2022). An absent id passes when four slots happen to XOR to its fingerprint:
//! with `b` bits, one time in 2ᵇ.
//!
//! Whole bits alone would waste up to a fifth of the room, for between 1/32 and 1/64 nothing could
//! be had. Here the slots from [`Shape::wide_from`] on are one bit wider than those before. An id
//! whose first slot is a wide one has only wide slots, since its others lie in later segments; it
//! checks the additional bit, the others do not. With a share `p` of narrow ids the rate is
//! `p·2⁻ᵇ + (1-p)·2⁻⁽ᵇ⁺¹⁾`: any rate at all, at most 0.086 bits an id above the one that mixes best.
//!
//! Sets are cut into shards of at most a million ids, so that building one touches only what a
//! CPU's cache holds and needs the same memory for a hundred million ids as for one.

mod ask;
mod build;
mod shape;
#[cfg(target_arch = "x86_64")]
mod vector;

use crate::id::IdHash;

pub(crate) use ask::{BATCH, Shard, shard_for};
pub(crate) use build::{BuildError, Room, Solved, build};
pub(crate) use shape::{Shape, Width, mix};

/// [`Shard::has`] for each of `ids`, which takes less than one after the other. None of the shards may be without ids.
pub(crate) fn ask_many(ids: &[IdHash], shards: &[Shard], bytes: &[u8], answers: &mut [bool]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = vector::Avx2::detect() {
        return avx2.many(ids, shards, bytes, answers);
    }
    ask::many(ids, shards, bytes, answers);
}

/// Ids of a shard, at most on average: below, the four segments of a window no longer pay for
/// themselves; above, the tables of a build (21 bytes an id) outgrow a CPU's cache.
pub(crate) const SHARD_IDS: u64 = 1 << 20;

/// Which of `shards` an id belongs to: its hash scaled to their number.
#[inline]
pub(crate) fn shard_of(hash: u64, shards: u32) -> usize {
    // The product is below 2^96 and the quotient below `shards`.
    ((u128::from(hash) * u128::from(shards)) >> 64) as usize
}
