//! Binary fuse filters with four probes and a fractional number of bits per slot: the static construction.
//!
//! Every id has an equation: the XOR of the four slots that its hash selects equals its fingerprint. The slots
//! lie in four neighbouring segments. This makes the equations solvable by peeling with only 7.5 % more slots
//! than ids (Graf and Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters", JEA 2022). An absent id
//! gets "maybe" if its four slots happen to XOR to its fingerprint. With `b` bits the probability is 2⁻ᵇ.
//!
//! If all slots had the same whole number of bits, only the rates 1/32, 1/64 and so on would be possible, and a
//! rate between two of them would waste up to a fifth of the space. Therefore the slots from
//! [`Shape::first_wide_slot`] on are one bit wider than the slots before. If the first slot of an id is wide, all its
//! slots are wide, because the others lie in later segments. A lookup of such a wide id compares the additional
//! bit; a lookup of a narrow id does not. With a share `p` of narrow ids the rate is
//! `p·2⁻ᵇ + (1-p)·2⁻⁽ᵇ⁺¹⁾`. Any rate `ε` is possible. A slot then has on average at most 0.086 bits more than
//! `log₂(1/ε)`, the width that all slots would have if they could have a fraction of a bit.
//!
//! Ids are divided into shards of about a million ids. The tables for building one shard then fit into a CPU's
//! cache, and their size does not depend on the total number of ids.

mod build;
mod lookup;
mod shape;
#[cfg(target_arch = "x86_64")]
mod vector;

#[cfg(target_arch = "x86_64")]
use crate::avx2::Avx2;
use crate::id::IdHash;

pub(crate) use build::{BuildError, Solved, Workspace, build};
pub(crate) use lookup::{BATCH, Shard};
pub(crate) use shape::{Shape, Width, mix};

/// All shards of a filter, and the implementation of lookups that suits this processor.
#[derive(Clone, Debug)]
pub(crate) struct Shards {
    all: Box<[Shard]>,
    no_shard_is_empty: bool,
    #[cfg(target_arch = "x86_64")]
    avx2: Option<Avx2>,
}

impl Shards {
    /// Takes the shards of a filter, at least one.
    pub(crate) fn new(all: Vec<Shard>) -> Self {
        Self {
            no_shard_is_empty: all.iter().all(|shard| !shard.is_empty()),
            all: all.into(),
            #[cfg(target_arch = "x86_64")]
            avx2: Avx2::detect(),
        }
    }

    /// Returns true if the shard of `hash` contains `hash`, or gives a false positive. `bytes` is the whole file.
    #[inline(always)]
    pub(crate) fn contains(&self, hash: u64, bytes: &[u8]) -> bool {
        let shard = lookup::shard_for(&self.all, hash);
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = self.avx2 {
            return vector::contains(avx2, shard, hash, bytes);
        }
        shard.contains(hash, bytes)
    }

    /// Writes the result of [`Self::contains`] for each of `ids` to `answers`, faster than one by one.
    pub(crate) fn contains_many(&self, ids: &[IdHash], bytes: &[u8], answers: &mut [bool]) {
        if !self.no_shard_is_empty {
            for (id, answer) in ids.iter().zip(answers) {
                *answer = self.contains(id.0, bytes);
            }
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = self.avx2 {
            return vector::contains_many(avx2, ids, &self.all, bytes, answers);
        }
        lookup::contains_many(ids, &self.all, bytes, answers);
    }

    /// The shapes of all shards, in order.
    pub(crate) fn shapes(&self) -> impl ExactSizeIterator<Item = Shape> {
        self.all.iter().map(Shard::shape)
    }
}

/// The largest mean number of ids in a shard. In smaller shards the additional slots of the segments cost more
/// space. In larger shards the tables of a build (22 bytes per id) exceed a CPU's cache.
pub(crate) const SHARD_IDS: u64 = 1 << 20;

/// Returns the shard of an id: its hash scaled to the number of shards.
#[inline]
pub(crate) fn shard_of(hash: u64, shards: u32) -> usize {
    // The product is below 2^96 and the quotient below `shards`.
    ((u128::from(hash) * u128::from(shards)) >> 64) as usize
}
