//! The order of a tier with lists, and the hits that it reads. Hits are recorded without a lock, and processed at the
//! next offer.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

use edgeward_types::Seed;

use super::links::Index;
use crate::object::Object;
use crate::slots::{AccessStates, Slot};
use crate::tier::{RecordHit, increment_alone};

/// The order in which a tier evicts its objects. An object is identified by its index in the tier until it is evicted
/// or removed.
pub trait ListOrder: Debug + Send + Sized + 'static {
    /// The kind of hits that the order needs.
    const HITS: Hits;

    /// Makes an empty order. Later changes of the capacity call [`resize`](Self::resize).
    fn new(capacity_bytes: u64, seed: Seed) -> Self;

    /// Notes that an object is offered. The tier may still reject the object.
    fn offered(&mut self, _object: &Object) {}

    /// Prepares for an object that the admission rule has admitted. An order with ghosts removes the object's ghost
    /// here, before the victims become ghosts.
    fn prepare(&mut self, _object: &Object) {}

    /// Adds the object that was passed to [`prepare`](Self::prepare).
    fn enter(&mut self, index: Index, object: &Object);

    /// Processes one hit of a resident object, for [`Hits::InOrder`].
    fn hit(&mut self, _index: Index) {}

    /// Returns the object to evict next, and leaves it in its list. `incoming` is the object that needs the space, or
    /// `None` if the tier shrinks.
    ///
    /// Returns `None` to reject `incoming`. If the tier shrinks, the function must return an object.
    fn victim(&mut self, incoming: Option<&Object>, hits: &HitLog<Self>) -> Option<Index>;

    /// Removes an evicted object. An order with ghosts keeps its key.
    fn evict(&mut self, index: Index, _object: &Object) {
        self.remove(index);
    }

    /// Removes an object after a purge or a replacement.
    fn remove(&mut self, index: Index);

    /// Changes the byte budget, before victims are chosen.
    fn resize(&mut self, _capacity_bytes: u64) {}

    /// Returns the bytes of the lists and of the ghosts.
    fn bookkeeping_bytes(&self) -> usize;
}

/// The kind of hits that an eviction order needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hits {
    /// No hits.
    Ignored,
    /// Each hit, in the order of the hits. After 65,536 hits without an offer, a further hit only sets a flag of its
    /// object. When the object would be evicted, the flag is processed as one hit.
    InOrder,
    /// The number of hits of each object, up to this maximum (at most 63).
    Counted(u8),
}

/// The hits of resident objects. Recording a hit takes one relaxed store, or none if the object's state stays the same;
/// [`Hits::InOrder`] takes one more store and increments a shared counter.
#[derive(Debug)]
pub struct HitLog<O> {
    states: AccessStates<AtomicU8>,
    /// The objects that were hit since the last offer, for [`Hits::InOrder`].
    pending: AccessStates<AtomicU32>,
    /// The number of hits in `pending`. Concurrent hits may raise it above [`PENDING_HITS_MAX`].
    pending_count: AtomicU32,
    order: PhantomData<fn(O)>,
}

impl<O: ListOrder> HitLog<O> {
    pub(super) fn new() -> Self {
        Self {
            states: AccessStates::new(),
            pending: AccessStates::new(),
            pending_count: AtomicU32::new(0),
            order: PhantomData,
        }
    }

    /// Clears the state of an object at its admission.
    pub(super) fn enter(&self, index: Index) {
        self.states.grow_to(index).store(0, Relaxed);
    }

    /// Calls `each` for the listed hits, in their order, and clears the list.
    pub(super) fn drain(&self, mut each: impl FnMut(Index)) {
        if self.pending_count.load(Relaxed) == 0 {
            return;
        }
        let hits = self.pending_count.swap(0, Relaxed);
        for position in 0..hits.min(PENDING_HITS_MAX) {
            // A hit that is being listed may not have its place yet.
            if let Some(pending) = self.pending.get(position) {
                each(pending.load(Relaxed));
            }
        }
    }

    /// Returns true if the object was hit while the list was full, and clears this fact.
    pub(super) fn take_unlisted(&self, index: Index) -> bool {
        let state = self.states.at(index);
        let bits = state.load(Relaxed);
        if bits & UNLISTED != 0 {
            state.store(bits & !UNLISTED, Relaxed);
        }
        bits & UNLISTED != 0
    }

    /// Returns true if the object was hit since its admission.
    pub(super) fn was_hit(&self, index: Index) -> bool {
        self.states.at(index).load(Relaxed) & WAS_HIT != 0
    }

    /// Returns the number of hits of an object, for [`Hits::Counted`].
    pub fn count(&self, index: Index) -> u8 {
        self.states.at(index).load(Relaxed) & COUNT
    }

    /// Replaces the number of hits of an object, for [`Hits::Counted`].
    pub fn set_count(&self, index: Index, count: u8) {
        let state = self.states.at(index);
        let bits = state.load(Relaxed);
        state.store((bits & !COUNT) | count, Relaxed);
    }

    /// Returns the most bytes of the list of hits. The states take one more byte per object, which is not included.
    pub(super) fn bookkeeping_bytes(&self) -> usize {
        match O::HITS {
            Hits::InOrder => PENDING_HITS_MAX as usize * size_of::<AtomicU32>(),
            Hits::Ignored | Hits::Counted(_) => 0,
        }
    }

    /// Records a hit. `increment` increments the number of listed hits.
    #[inline]
    fn record(&self, slot: Slot, increment: impl Fn(&AtomicU32) -> u32) {
        let state = self.states.at(slot.index);
        let old = state.load(Relaxed);
        let new = match O::HITS {
            Hits::Ignored => old | WAS_HIT,
            Hits::Counted(max) if old & COUNT < max => (old | WAS_HIT) + 1,
            Hits::Counted(_) => old,
            Hits::InOrder if self.list(slot.index, increment) => old | WAS_HIT,
            Hits::InOrder => old | WAS_HIT | UNLISTED,
        };
        if new != old {
            state.store(new, Relaxed);
        }
    }

    /// Adds a hit to the list. Returns false if the list is full.
    fn list(&self, index: Index, increment: impl Fn(&AtomicU32) -> u32) -> bool {
        if self.pending_count.load(Relaxed) >= PENDING_HITS_MAX {
            return false;
        }
        let position = increment(&self.pending_count);
        if position >= PENDING_HITS_MAX {
            return false;
        }
        self.pending.grow_to(position).store(index, Relaxed);
        true
    }
}

impl<O: ListOrder> RecordHit for HitLog<O> {
    #[inline]
    fn hit(&self, slot: Slot) {
        self.record(slot, |count| count.fetch_add(1, Relaxed));
    }

    #[inline]
    fn hit_alone(&self, slot: Slot) {
        self.record(slot, increment_alone);
    }
}

/// The bit of the state that says if the object was hit since its admission.
const WAS_HIT: u8 = 0x80;
/// The bit of the state that says if the object was hit while the list was full.
const UNLISTED: u8 = 0x40;
/// The bits of the state that count hits.
const COUNT: u8 = 0x3f;

/// The maximum number of hits in the list, which then takes 256 KiB. Processing them takes about half a millisecond.
///
/// Traffic of downloads has up to 12,748 hits between two misses (trace tc0, 2 GiB). With a maximum of 1024, the
/// object hit ratio of LRU was 0.8307 there instead of 0.8326.
const PENDING_HITS_MAX: u32 = 1 << 16;
