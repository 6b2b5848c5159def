//! The place of the disk tier in a cache. After an upgrade, the store belongs to the earlier process for a moment. The
//! cache then works without the tier until the earlier process has closed the store.
//!
//! Removals of keys in this time are remembered, and carried out before lookups use the tier. If the store cannot be
//! opened, the removals become purges, whose log the next process reads before it opens the store.

use std::sync::{Arc, Mutex, OnceLock};

use edgeward_purge::{Purge, Scope};
use edgeward_types::KeyHash;

use super::disk::DiskTier;
use super::key_parts::{primary_of, url_of};
use crate::rt::panics::lock;

/// The disk tier of a cache: present, absent, expected from an earlier process, or lost.
pub(crate) struct DiskSlot {
    tier: OnceLock<Arc<DiskTier>>,
    /// `None` unless the tier is expected.
    removals: Mutex<Option<Removals>>,
    /// Adds purges to the table, in place of removals from a lost tier.
    purge: OnceLock<Box<dyn Fn(Vec<Purge>) + Send + Sync>>,
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
            purge: OnceLock::new(),
        }
    }

    /// Returns a slot whose tier comes by [`attach`](Self::attach).
    pub(crate) fn expected() -> Self {
        Self {
            tier: OnceLock::new(),
            removals: Mutex::new(Some(Removals::default())),
            purge: OnceLock::new(),
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&Arc<DiskTier>> {
        self.tier.get()
    }

    /// Returns the tier from which the caller must remove a key. An expected tier removes the key when it is attached.
    /// The URL of a key in a lost tier is purged.
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
        if let Some(purge) = self.purge.get() {
            purge(vec![purge_of(key)]);
        }
        self.tier.get()
    }

    /// Returns true if the expected tier cannot be opened.
    pub(crate) fn is_lost(&self) -> bool {
        self.purge.get().is_some()
    }

    /// Gives the expected tier up. `purge` adds purges to the table: those for the remembered keys now, and those for
    /// each key that is removed later.
    pub(crate) fn lose(&self, purge: impl Fn(Vec<Purge>) + Send + Sync + 'static) {
        let mut slot = lock(&self.removals);
        if let Some(removals) = slot.take() {
            let purges: Vec<Purge> = match removals.is_incomplete {
                true => purges_of_all(),
                false => removals.keys.iter().map(|(_, key)| purge_of(key)).collect(),
            };
            if !purges.is_empty() {
                purge(purges);
            }
            _ = self.purge.set(Box::new(purge));
        }
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
                purge_all(purges_of_all());
            }
        }
        // A second tier is an error of the caller, and is dropped.
        _ = self.tier.set(tier);
    }
}

fn purges_of_all() -> Vec<Purge> {
    let all = ["http://", "https://"].map(|prefix| Purge {
        scope: Scope::Prefix(prefix.into()),
        soft: false,
    });
    all.into()
}

/// Returns the purge that covers the object of a key, and perhaps others of its URL. The marker of a path, which ends
/// with `#`, stands for all objects under the rule of the path.
fn purge_of(key: &[u8]) -> Purge {
    let url: Box<str> = String::from_utf8_lossy(url_of(primary_of(key))).into();
    Purge {
        scope: match key.last() {
            Some(b'#') => Scope::Prefix(url),
            _ => Scope::Url(url),
        },
        soft: false,
    }
}

/// The most keys that are remembered: more than are removed in the seconds of an upgrade.
const REMOVALS_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_removals_from_a_lost_tier_become_purges() {
        let slot = DiskSlot::expected();
        let hash = KeyHash(1);
        for key in ["http://a/b", "http://a/v\n12345678\nx", "http://a/p#"] {
            assert!(slot.for_removal(hash, key.as_bytes()).is_none());
        }
        let purged = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&purged);
        slot.lose(move |purges| {
            let texts = purges.iter().map(|purge| purge.scope.to_string());
            lock(&sink).extend(texts);
        });
        assert!(slot.is_lost());
        assert!(slot.for_removal(hash, b"http://a/later").is_none());
        let url = |url: &str| Scope::Url(url.into()).to_string();
        let expected = [
            url("http://a/b"),
            url("http://a/v"),
            Scope::Prefix("http://a/p".into()).to_string(),
            url("http://a/later"),
        ];
        assert_eq!(*lock(&purged), expected);
    }
}
