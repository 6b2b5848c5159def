//! Numbered places for resident objects, with marks that hits may write under shared access.
//!
//! A tier's bookkeeping belongs to whoever holds the tier exclusively. A hit must not wait for
//! that, so what a hit writes, the object's *mark*, lives apart: in chunks that are allocated once,
//! never move and are read through an `Arc` without any lock.

use std::sync::OnceLock;

/// The place of one resident object in its tier.
///
/// The generation tells a reused place from the one that was handed out before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// One mark per place, reachable under shared access while the number of places grows.
#[derive(Debug)]
pub(crate) struct Marks<M> {
    chunks: Box<[OnceLock<Box<[M]>>]>,
}

impl<M: Default> Marks<M> {
    pub(crate) fn new() -> Self {
        Self {
            chunks: (0..CHUNKS_MAX).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Makes sure that the place `index` has a mark. Called under exclusive access, at admission.
    pub(crate) fn grow_to(&self, index: u32) {
        let chunk = index as usize / CHUNK_SLOTS;
        self.chunks[chunk].get_or_init(|| (0..CHUNK_SLOTS).map(|_| M::default()).collect());
    }

    /// The mark of a place that was handed out at some time.
    ///
    /// The object may have left since and the place may be another's. Touching it then gives a
    /// stranger one undeserved hit in the eyes of eviction, which harms nothing.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> &M {
        let chunk = self.chunks[index as usize / CHUNK_SLOTS]
            .get()
            .expect("a slot is handed out only after its chunk was made");
        &chunk[index as usize % CHUNK_SLOTS]
    }
}

/// Places a chunk: 32 KiB of marks of 8 bytes, so that a small cache stays small.
const CHUNK_SLOTS: usize = 4096;

/// 16 384 chunks of 4096: 67 million resident objects a tier. The empty table costs 384 KiB.
const CHUNKS_MAX: usize = 16_384;

/// The most objects a tier holds; an offer beyond is refused.
pub const RESIDENTS_MAX: usize = CHUNK_SLOTS * CHUNKS_MAX;
