//! Rules of paths: the markers that [`key`](super::key) describes, and purges of URLs whose response may be stored
//! under a rule.
//!
//! The marker of a path has the rule of the newest response with `No-Vary-Search`. A marker with another rule has a new
//! generation, and so has a marker that was learned again. Lookups therefore find only responses that were stored under
//! the current rule, and a purge of a URL has to remove at most two keys.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use edgeward_purge::Stamp;
use edgeward_semantics::NoVarySearch;
use edgeward_store::hot::{Commit, Offer};
use edgeward_store::versions::Version;
use edgeward_types::KeyHash;

use super::disk::Durable;
use super::key_parts::{key_under_rule, path_key, without_rule};
use super::stored::{Selector, Stored, StoredKind, Variants};
use super::successor::ForwardedChange;
use super::tiers::Cache;
use crate::observe::counters::Counters;

/// The marker of a path, and the version of its key at which it was current.
#[derive(Debug)]
pub(crate) struct PathMarker {
    pub(crate) key: Vec<u8>,
    pub(crate) marker: Arc<Stored>,
    pub(crate) version: Version,
}

impl Cache {
    /// Returns true if a path may have a rule. False until the first rule, unless the edge has a disk.
    #[inline]
    pub(crate) fn may_have_path_rules(&self) -> bool {
        self.may_have_path_rules.load(Ordering::Relaxed)
    }

    /// Returns the key of the marker that has the rule of a target's path, and the marker if it is in memory. `target`
    /// is the target's own key.
    fn path_marker(&self, target: &[u8]) -> (KeyHash, Vec<u8>, Option<Arc<Stored>>) {
        let path = path_key(target);
        let hash = self.hash(&path);
        let marker = self.hot.peek(hash).filter(|stored| stored.has_key(&path));
        (hash, path, marker)
    }

    /// Returns the key under which a response for a target is stored by the rule of the path, if memory has the rule.
    pub(crate) fn key_under_rule(&self, target: &[u8]) -> Option<Vec<u8>> {
        if !self.may_have_path_rules() {
            return None;
        }
        let (_, _, marker) = self.path_marker(target);
        let marker = marker?;
        let (rule, generation) = marker.rule()?;
        Some(key_under_rule(target, rule, generation))
    }

    /// Sets the rule of a target's path. Returns `None` if memory refuses the marker.
    pub(crate) fn set_path_rule(
        &self,
        target: &[u8],
        rule: &NoVarySearch,
        counters: &Counters,
    ) -> Option<PathMarker> {
        self.may_have_path_rules.store(true, Ordering::Relaxed);
        // A concurrent fetch may set the rule at the same time. The second attempt finds its marker.
        for _ in 0..2 {
            let version = self.hot.version(self.hash(&path_key(target)));
            let (hash, key, present) = self.path_marker(target);
            if let Some(marker) = present
                && marker.rule().is_some_and(|(own, _)| own == rule)
            {
                return Some(PathMarker {
                    key,
                    marker,
                    version,
                });
            }
            let selector = Selector::Query(rule.clone());
            let variants = Variants::new(selector, self.next_marker_generation());
            let marker = Stored::new(&key, StoredKind::Varies(Box::new(variants)), Stamp::NONE);
            let _changing = self.changing(hash);
            let offer = self.offer_to_ram(hash, marker.charge_bytes(), None, counters);
            let Offer::Admit(mut reservation) = offer else {
                counters.path_rules_refused.increment();
                return None;
            };
            marker.attach_charge(reservation.take_charge());
            if let Commit::Done(version) = reservation.commit(Arc::clone(&marker), version) {
                counters.path_rules_set.increment();
                let marker = PathMarker {
                    key,
                    marker,
                    version,
                };
                // An older marker on disk has another generation.
                if self.disk().is_some_and(|disk| disk.contains(hash)) {
                    self.write_path_marker(&marker);
                }
                return Some(marker);
            }
        }
        None
    }

    /// Inserts a marker into memory again if neither tier has it. `version` is a version at which it was current.
    /// Returns true if lookups find the marker.
    pub(crate) fn keep_path_marker(&self, marker: &PathMarker, counters: &Counters) -> bool {
        let hash = marker.version.key();
        let in_memory = self.hot.peek(hash);
        if in_memory.is_some_and(|stored| stored.has_key(&marker.key))
            || self.disk().is_some_and(|disk| disk.contains(hash))
        {
            return true;
        }
        let offer = self.offer_to_ram(hash, marker.marker.charge_bytes(), None, counters);
        let Offer::Admit(mut reservation) = offer else {
            return false;
        };
        marker.marker.attach_charge(reservation.take_charge());
        let commit = reservation.promote(Arc::clone(&marker.marker), marker.version);
        matches!(commit, Commit::Done(_))
    }

    /// Writes a marker to disk. If this fails, removes an older marker of the path from disk.
    pub(crate) fn write_path_marker(&self, marker: &PathMarker) {
        let (Some(disk), StoredKind::Varies(variants)) = (self.disk(), &marker.marker.kind) else {
            return;
        };
        let hash = marker.version.key();
        if !disk.put_marker(hash, &marker.key, variants, marker.version) {
            disk.remove(hash, &marker.key);
        }
    }

    /// Writes the marker of a path to disk, through which lookups find the object with this key. A target's own key has
    /// no marker.
    pub(crate) fn write_marker_of(&self, key: &[u8]) {
        if without_rule(key).len() == key.len() {
            return;
        }
        let version = self.hot.version(self.hash(&path_key(key)));
        if let (_, key, Some(marker)) = self.path_marker(key) {
            self.write_path_marker(&PathMarker {
                key,
                marker,
                version,
            });
        }
    }

    /// Removes the responses of a target from both tiers: the one under the target's own key, and the one under the
    /// rule of its path. Returns true if there was one, and receivers that resolve when the removals are durable.
    pub(crate) fn purge_target(&self, target: &[u8]) -> (bool, Vec<Durable>) {
        self.copy_pauses.begin(target);
        let at_successor = self
            .successor
            .send(|| ForwardedChange::Target(target.into()));
        let (found, durable) = self.purge_key(target);
        let (found, mut durable) = self.purge_under_rule(target, found, durable);
        durable.extend(at_successor);
        (found, durable)
    }

    /// Like [`purge_target`](Self::purge_target), if the target's own key has not changed since `version`. Also returns
    /// the key's new version. Otherwise returns `None` and removes no response.
    pub(crate) fn purge_target_since(
        &self,
        version: Version,
        target: &[u8],
    ) -> Option<(bool, Vec<Durable>, Version)> {
        self.copy_pauses.begin(target);
        let at_successor = self
            .successor
            .send(|| ForwardedChange::Target(target.into()));
        self.collapse.stop_joining(version.key(), target);
        let (found, durable, version) = self.purge_since(version, target)?;
        let (found, mut durable) = self.purge_under_rule(target, found, durable);
        durable.extend(at_successor);
        Some((found, durable, version))
    }

    /// Removes the response of a target under the rule of its path, after that under its own key was removed.
    fn purge_under_rule(
        &self,
        target: &[u8],
        mut found: bool,
        durable: Option<Durable>,
    ) -> (bool, Vec<Durable>) {
        let mut durable: Vec<_> = durable.into_iter().collect();
        if self.may_have_path_rules() {
            let under_rule = self.key_under_rule(target);
            let key = under_rule.unwrap_or_else(|| path_key(target));
            let (was_there, more) = self.purge_key(&key);
            found |= was_there;
            durable.extend(more);
        }
        (found, durable)
    }

    /// Removes the marker of a target's path if it is not in memory, and returns a receiver that resolves when this is
    /// durable. The responses under the rule are then unreachable.
    pub(crate) fn purge_unread_rule(&self, target: &[u8]) -> Option<Durable> {
        let (hash, path, marker) = self.path_marker(target);
        if marker.is_some() || !self.may_have_path_rules() {
            return None;
        }
        self.purge(hash, &path).1
    }

    fn purge_key(&self, key: &[u8]) -> (bool, Option<Durable>) {
        let hash = self.hash(key);
        self.collapse.stop_joining(hash, key);
        self.purge(hash, key)
    }
}
