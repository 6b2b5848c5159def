//! Numbered slots for resident objects, with state that hits may update under shared access.
//!
//! The bookkeeping of a tier requires exclusive access, and a hit must not wait for it. The state that a hit
//! updates is therefore stored separately, in chunks that are allocated once, never move, and are read through an
//! `Arc` without a lock.

use std::sync::OnceLock;

/// The slot of one resident object in its tier.
///
/// The generation distinguishes a reused slot from its earlier use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Slot {
    /// The number of the slot, below [`RESIDENTS_MAX`]. A free slot with a low number is used first or reused, so a
    /// caller may index a vector with it.
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// Returns this slot with a mark, or without it. A cache with two tiers uses the mark to distinguish their slots.
    /// Slots of a tier have no mark, and a tier accepts only slots without it.
    #[inline]
    pub const fn with_mark(self, is_marked: bool) -> Self {
        let index = self.index & !MARK;
        Self {
            index: if is_marked { index | MARK } else { index },
            generation: self.generation,
        }
    }

    /// Returns true if the slot has the mark.
    #[inline]
    pub const fn is_marked(self) -> bool {
        self.index & MARK != 0
    }
}

/// The bit of a slot's index that is the mark.
const MARK: u32 = 1 << 31;
const _: () = assert!(RESIDENTS_MAX <= MARK as usize);

/// One state per slot, readable under shared access while the number of slots grows.
#[derive(Debug)]
pub(crate) struct AccessStates<S> {
    groups: [OnceLock<Group<S>>; GROUPS_MAX],
}

type Group<S> = Box<[OnceLock<Box<[S]>>; GROUP_CHUNKS]>;

impl<S: Default> AccessStates<S> {
    pub(crate) fn new() -> Self {
        Self {
            groups: [const { OnceLock::new() }; GROUPS_MAX],
        }
    }

    /// Returns the state of slot `index`. Allocates it if it is absent.
    #[inline]
    pub(crate) fn grow_to(&self, index: u32) -> &S {
        let (group, chunk, slot) = place(index);
        let group =
            self.groups[group].get_or_init(|| Box::new([const { OnceLock::new() }; GROUP_CHUNKS]));
        let chunk = group[chunk].get_or_init(|| (0..CHUNK_SLOTS).map(|_| S::default()).collect());
        &chunk[slot]
    }

    /// Returns the state of a slot that is or was allocated.
    ///
    /// The object may have been evicted and the slot reused. A hit is then counted for another object, which is
    /// harmless.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> &S {
        self.get(index).expect("the chunk of every slot exists")
    }

    /// Returns the state of a slot, if it has one.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&S> {
        let (group, chunk, slot) = place(index);
        self.groups[group].get()?[chunk].get()?.get(slot)
    }
}

/// Returns the group of a slot, its chunk in the group, and its place in the chunk.
#[inline]
const fn place(index: u32) -> (usize, usize, usize) {
    let chunk = index as usize / CHUNK_SLOTS;
    (
        chunk / GROUP_CHUNKS,
        chunk % GROUP_CHUNKS,
        index as usize % CHUNK_SLOTS,
    )
}

/// Slots per chunk: 32 KiB for states of 8 bytes, so that a small cache stays small.
const CHUNK_SLOTS: usize = 4096;

/// Chunks per group. The table of a group takes 3 KiB, and the table of the groups 2 KiB.
const GROUP_CHUNKS: usize = 128;

/// 128 groups of 128 chunks of 4096 slots: 67 million resident objects per tier.
const GROUPS_MAX: usize = 128;

/// The maximum number of objects in a tier. A tier with this many objects admits no further object.
pub const RESIDENTS_MAX: usize = CHUNK_SLOTS * GROUP_CHUNKS * GROUPS_MAX;
