//! The result of an offer: space that is reserved for a value.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use edgeward_policy::RejectReason;
use edgeward_types::KeyHash;

use super::ledger::ChargeGuard;
use super::shared::Shared;
use super::tiers::SlotOfFill;
use crate::versions::Version;

/// The result of [`HotCache::offer`](super::HotCache::offer).
#[derive(Debug)]
pub enum Offer<V: Send + Sync + 'static> {
    /// Space is reserved; the caller commits the value later.
    Admit(Reservation<V>),
    /// The policy refused the object.
    Refuse(RejectReason),
    /// The object is refused because readers pin too many bytes of values that left the cache.
    Pinned,
}

/// Space that is reserved for a value. If this value is dropped without a commit, the space is released.
#[derive(Debug)]
pub struct Reservation<V: Send + Sync + 'static> {
    pub(super) shared: Arc<Shared<V>>,
    pub(super) key: KeyHash,
    pub(super) fill: SlotOfFill,
    pub(super) charge_bytes: u64,
    pub(super) charge: Option<ChargeGuard>,
    pub(super) committed: bool,
}

impl<V: Send + Sync + 'static> Reservation<V> {
    /// The hash of the key for which the space is reserved.
    pub fn key(&self) -> KeyHash {
        self.key
    }

    /// The charge of the reserved slot in bytes.
    pub fn charge_bytes(&self) -> u64 {
        self.charge_bytes
    }

    /// Takes the guard of the value's charge. The caller stores the guard with the value's memory, so that the
    /// memory counts against the budget even after the value has left the cache. A second call returns `None`.
    pub fn take_charge(&mut self) -> Option<ChargeGuard> {
        self.charge.take()
    }

    /// Stores `value` under the key, and makes a new version.
    pub fn commit(self, value: Arc<V>, version: Version) -> Commit {
        self.publish(value, |shared, _| shared.versions.advance(version))
    }

    /// Like [`commit`](Self::commit), but for a value that was read from disk when the key had this version.
    /// Makes no new version and replaces no value.
    pub fn promote(self, value: Arc<V>, version: Version) -> Commit {
        self.publish(value, |shared, is_present| {
            (!is_present && shared.versions.is_current(version)).then_some(version)
        })
    }

    fn publish(
        mut self,
        value: Arc<V>,
        new_version: impl FnOnce(&Shared<V>, bool) -> Option<Version>,
    ) -> Commit {
        self.committed = true;
        let shared = Arc::clone(&self.shared);
        let mut tier = shared.tier.lock();
        let Some(slot) = tier.end_fill(self.fill) else {
            return Commit::Lost;
        };
        let Some(version) = new_version(&shared, shared.index.contains(self.key)) else {
            tier.remove(slot);
            return Commit::Outdated;
        };
        let before = shared.index.insert(self.key, slot, value);
        if let Some((slot, _)) = &before {
            tier.remove(*slot);
        }
        drop(tier);
        drop(before);
        Commit::Done(version)
    }
}

/// The result of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// The value is stored and has this version.
    Done(Version),
    /// The slot was evicted while the value was being filled.
    Lost,
    /// The key has changed since the version that the caller passed, or `promote` found a value under the key.
    Outdated,
}

impl<V: Send + Sync + 'static> Drop for Reservation<V> {
    fn drop(&mut self) {
        if !self.committed {
            self.shared.counters.abandoned.fetch_add(1, Relaxed);
            let mut tier = self.shared.tier.lock();
            if let Some(slot) = tier.end_fill(self.fill) {
                tier.remove(slot);
            }
        }
    }
}
