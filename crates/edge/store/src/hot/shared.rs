//! The state of the RAM tier that all its handles share, and the parts of changes that hold its lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use edgeward_policy::{Evicted, RejectReason, Slot};
use edgeward_types::KeyHash;

use super::benefit::Benefits;
use super::freed::FreedPages;
use super::index::Index;
use super::ledger::{Ledger, pinned_free_bytes};
use super::tiers::Tiers;
use crate::sync::Mutex;
use crate::versions::{Version, Versions};

/// The state of a cache that its handles and its tuner share.
#[derive(Debug)]
pub(crate) struct Shared<V> {
    pub(super) index: Index<V>,
    pub(super) versions: Versions,
    pub(super) tier: Mutex<Tiers>,
    pub(super) benefits: Benefits,
    pub(super) counters: Counters,
    /// The sum of the charges of all values in memory, from which the pinned bytes are computed.
    pub(super) ledger: Arc<Ledger>,
    /// The byte budget. The tier's own capacity is smaller while readers pin bytes or memory is fragmented.
    pub(super) capacity_bytes: AtomicU64,
    pub(super) pinned_bytes_max: u64,
    pub(super) freed: Option<Arc<FreedPages>>,
}

impl<V> Shared<V> {
    /// Reduces the tier's capacity by the pinned bytes above `pinned_free_bytes`, by fragmentation, and by the
    /// bookkeeping that no object is charged for.
    ///
    /// Only the pinned bytes up to `pinned_bytes_max` count. Without this limit, clients that read all residents
    /// slowly could empty the cache.
    pub(super) fn adjust_capacity(
        &self,
        tier: &mut Tiers,
        evicted: &mut Vec<Evicted>,
    ) -> PinnedRoom {
        let budget_bytes = self.capacity_bytes.load(Relaxed);
        let pinned = self.ledger.pinned_bytes(tier.used_bytes());
        let taken = pinned
            .min(self.pinned_bytes_max)
            .saturating_sub(pinned_free_bytes(budget_bytes));
        let fragmentation_bytes = self.freed.as_ref().map_or(0, |it| it.reduction_bytes());
        let capacity_bytes = budget_bytes
            .saturating_sub(taken)
            .saturating_sub(fragmentation_bytes)
            .saturating_sub(tier.uncharged_bytes());
        tier.resize(capacity_bytes, evicted);
        if pinned > self.pinned_bytes_max {
            PinnedRoom::Exceeded
        } else if evicted.is_empty() {
            PinnedRoom::Fits
        } else {
            PinnedRoom::Shrunk
        }
    }

    /// Removes the value of `key` and returns it, to be freed outside the lock.
    pub(super) fn remove_value(&self, tier: &mut Tiers, key: KeyHash) -> Option<Arc<V>> {
        let (slot, value) = self.index.remove(key, None)?;
        tier.remove(slot);
        Some(value)
    }

    /// Removes evicted objects from the index. Adds their values to `removed`, so that the caller frees them
    /// outside the lock.
    pub(super) fn unlink(&self, evicted: &[Evicted], removed: &mut Vec<(Slot, Version, Arc<V>)>) {
        let mut bytes = 0;
        for object in evicted {
            bytes += object.object.size_bytes;
            // If the fill is still in progress, the index has no value of this slot. If the key was filled twice,
            // the index may have the value of the other slot, which stays.
            let value = self.index.remove(object.object.key, Some(object.slot));
            removed.extend(value.map(|(slot, value)| {
                let version = self.versions.current(object.object.key);
                (slot, version, value)
            }));
        }
        if !evicted.is_empty() {
            let counters = &self.counters;
            counters.evicted.fetch_add(evicted.len() as u64, Relaxed);
            counters.evicted_bytes.fetch_add(bytes, Relaxed);
        }
    }
}

/// The result of `adjust_capacity`: states if an object may be offered to the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PinnedRoom {
    /// The residents and the pinned bytes fit into the budget.
    Fits,
    /// Residents were evicted to make room.
    Shrunk,
    /// The pinned bytes exceed their limit.
    Exceeded,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) admitted: AtomicU64,
    pub(super) refused_by_admission: AtomicU64,
    pub(super) refused_too_large: AtomicU64,
    pub(super) refused_object_limit: AtomicU64,
    pub(super) refused_pinned: AtomicU64,
    pub(super) policy_changes: AtomicU64,
    pub(super) policy_kept: AtomicU64,
    pub(super) policy_lost: AtomicU64,
    pub(super) evicted: AtomicU64,
    pub(super) evicted_bytes: AtomicU64,
    pub(super) abandoned: AtomicU64,
}

impl Counters {
    /// Returns the counter of this reason.
    pub(super) fn refused(&self, refusal: RejectReason) -> &AtomicU64 {
        match refusal {
            RejectReason::Admission | RejectReason::LowRank => &self.refused_by_admission,
            RejectReason::LargerThanTier => &self.refused_too_large,
            RejectReason::ObjectLimit => &self.refused_object_limit,
        }
    }
}

/// Calls `on_evicted` for each removed value and drops the values. `removed` is in the order of `evicted` but may lack
/// objects, because an object whose fill is still in progress has no value. The caller must hold no lock.
pub(super) fn report_evicted<V>(
    evicted: &mut Vec<Evicted>,
    removed: &mut Vec<(Slot, Version, Arc<V>)>,
    on_evicted: &mut impl FnMut(&Evicted, Version, Arc<V>),
) {
    let mut evicted = evicted.drain(..);
    for (slot, version, value) in removed.drain(..) {
        if let Some(object) = evicted.find(|object| object.slot == slot) {
            on_evicted(&object, version, value);
        }
    }
}
