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

#[cfg(target_arch = "x86_64")]
use crate::avx2::Avx2;
use crate::id::IdHash;

pub(crate) use ask::{BATCH, Shard};
pub(crate) use build::{BuildError, Room, Solved, build};
pub(crate) use shape::{Shape, Width, mix};

/// All shards of a filter, and how this processor asks them.
#[derive(Clone, Debug)]
pub(crate) struct Shards {
    all: Box<[Shard]>,
    /// Whether each has ids.
    are_full: bool,
    #[cfg(target_arch = "x86_64")]
    avx2: Option<Avx2>,
}

impl Shards {
    /// Those of a filter, of which there is at least one.
    pub(crate) fn new(all: Vec<Shard>) -> Self {
        Self {
            are_full: all.iter().all(|shard| !shard.is_empty()),
            all: all.into(),
            #[cfg(target_arch = "x86_64")]
            avx2: Avx2::detect(),
        }
    }

    /// Whether the shard that would have `hash` does, or looks as if.
    #[inline(always)]
    pub(crate) fn has(&self, hash: u64, bytes: &[u8]) -> bool {
        let shard = ask::shard_for(&self.all, hash);
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = self.avx2 {
            return vector::ask_one(avx2, shard, hash, bytes);
        }
        shard.has(hash, bytes)
    }

    /// [`Self::has`] for each of `ids`, which takes less than one after the other.
    pub(crate) fn have(&self, ids: &[IdHash], bytes: &[u8], answers: &mut [bool]) {
        if !self.are_full {
            for (id, answer) in ids.iter().zip(answers) {
                *answer = self.has(id.0, bytes);
            }
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = self.avx2 {
            return vector::ask_many(avx2, ids, &self.all, bytes, answers);
        }
        ask::many(ids, &self.all, bytes, answers);
    }

    /// The shapes, one after the other.
    pub(crate) fn shapes(&self) -> impl ExactSizeIterator<Item = Shape> {
        self.all.iter().map(Shard::shape)
    }
}

/// Ids of a shard, at most on average: below, the four segments of a window no longer pay for
/// themselves; above, the tables of a build (22 bytes an id) outgrow a CPU's cache.
pub(crate) const SHARD_IDS: u64 = 1 << 20;

/// Which of `shards` an id belongs to: its hash scaled to their number.
#[inline]
pub(crate) fn shard_of(hash: u64, shards: u32) -> usize {
    // The product is below 2^96 and the quotient below `shards`.
    ((u128::from(hash) * u128::from(shards)) >> 64) as usize
}
