//! Records hits without the tier's lock.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::slots::{AccessStates, Slot};
use crate::tier::{RecordHit, increment_alone};

/// The state that hits change without the tier's lock.
#[derive(Debug)]
pub(super) struct Shared {
    /// The time of the last offer; even.
    pub(super) now: AtomicU32,
    /// The time of each resident object's last hit (odd) or of its admission (even).
    pub(super) states: AccessStates<AtomicU32>,
    /// The indexes of the objects that were hit since the last offer.
    pub(super) pending: Box<[AtomicU32]>,
    /// The number of objects that were hit since the last offer. It may exceed the length of `pending`.
    pub(super) pending_count: AtomicU32,
}

impl RecordHit for Shared {
    #[inline]
    fn hit(&self, slot: Slot) {
        self.record(slot, |count| count.fetch_add(1, Relaxed));
    }

    #[inline]
    fn hit_alone(&self, slot: Slot) {
        self.record(slot, increment_alone);
    }
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            now: AtomicU32::new(0),
            states: AccessStates::new(),
            pending: (0..PENDING_HITS_MAX).map(|_| AtomicU32::new(0)).collect(),
            pending_count: AtomicU32::new(0),
        }
    }

    /// Stores the time of the hit. Further hits on the object before the next offer write nothing, so the cache line of
    /// a popular object stays in the caches of all cores. If more than 1024 objects are hit between two offers, the
    /// hits of the further objects are not listed. Such a hit is processed when its object would be evicted.
    ///
    /// `increment` increments the number of listed hits.
    #[inline]
    fn record(&self, slot: Slot, increment: impl Fn(&AtomicU32) -> u32) {
        let hit_time = self.now.load(Relaxed).wrapping_add(1);
        let last_hit = self.states.at(slot.index);
        if last_hit.load(Relaxed) == hit_time {
            return;
        }
        last_hit.store(hit_time, Relaxed);
        let position = increment(&self.pending_count);
        if let Some(pending) = self.pending.get(position as usize) {
            pending.store(slot.index, Relaxed);
        }
    }
}

/// The maximum number of objects whose hits are listed between two offers.
pub(super) const PENDING_HITS_MAX: usize = 1024;
