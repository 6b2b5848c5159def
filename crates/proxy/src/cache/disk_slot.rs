//! The place of the disk tier in a cache. After an upgrade, the store belongs to the earlier process for a moment. The
//! cache then works without the tier until the earlier process has closed the store.
//!
//! Removals of keys in this time are remembered, and carried out before lookups use the tier.

use std::sync::{Arc, Mutex, OnceLock};

use edgeward_purge::{Purge, Scope};
use edgeward_types::KeyHash;

use super::disk::DiskTier;
use crate::base::lock::lock;

/// The disk tier of a cache: present, absent, or expected from an earlier process.
pub(crate) struct DiskSlot {
    tier: OnceLock<Arc<DiskTier>>,
    /// `None` unless the tier is expected.
    removals: Mutex<Option<Removals>>,
}

/// The keys that were removed while the tier was expected.
#[derive(Default)]
struct Removals {
    keys: Vec<(KeyHash, Box<[u8]>)>,
    /// True if more keys were removed than are remembered. Then all objects on disk count as purged.
    is_incomplete: bool,
}

impl DiskSlot {
    pub(crate) fn new(tier: Option<Arc<DiskTier>>) -> Self {
        Self {
            tier: tier.map_or_else(OnceLock::new, OnceLock::from),
            removals: Mutex::new(None),
        }
    }

    /// Returns a slot whose tier comes by [`attach`](Self::attach).
    pub(crate) fn expected() -> Self {
        Self {
            tier: OnceLock::new(),
            removals: Mutex::new(Some(Removals::default())),
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&Arc<DiskTier>> {
        self.tier.get()
    }

    /// Returns the tier from which the caller must remove a key. An expected tier removes the key when it is attached.
    pub(crate) fn for_removal(&self, hash: KeyHash, key: &[u8]) -> Option<&Arc<DiskTier>> {
        if let Some(tier) = self.tier.get() {
            return Some(tier);
        }
        if let Some(removals) = &mut *lock(&self.removals) {
            if removals.keys.len() < REMOVALS_MAX {
                removals.keys.push((hash, key.into()));
            } else {
                removals.is_incomplete = true;
            }
            return None;
        }
        self.tier.get()
    }

    /// Makes the tier available to lookups, after the remembered keys were removed from it. Returns purges that the
    /// caller must add to the table of purges before: see [`is_incomplete`](Removals::is_incomplete).
    pub(crate) fn attach(&self, tier: Arc<DiskTier>, purge_all: impl FnOnce(Vec<Purge>)) {
        let mut slot = lock(&self.removals);
        if let Some(removals) = slot.take() {
            for (hash, key) in &removals.keys {
                tier.remove(*hash, key);
            }
            if removals.is_incomplete {
                tracing::warn!(
                    "all objects on disk were purged: more than {REMOVALS_MAX} URLs were invalidated during the upgrade"
                );
                let all = ["http://", "https://"].map(|prefix| Purge {
                    scope: Scope::Prefix(prefix.into()),
                    soft: false,
                });
                purge_all(all.into());
            }
        }
        // A second tier is an error of the caller, and is dropped.
        _ = self.tier.set(tier);
    }
}

/// The most keys that are remembered: more than are removed in the seconds of an upgrade.
const REMOVALS_MAX: usize = 65_536;
