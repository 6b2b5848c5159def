//! The versions of the keys that a fetch may change, read before its request is sent.

use std::sync::Arc;

use edgeward_purge::Stamp;
use edgeward_store::versions::Version;

use crate::cache::stored::{Hot, Stored, StoredKind};
use crate::cache::{Cache, CacheKey, PathRule, path_key};
use crate::path::worker::Worker;

/// The versions of two keys, read before a fetch sends its request. Each change of an entry makes a new version. A
/// response is stored only if both are still current.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyVersions {
    /// The version of the response's own key.
    pub(super) key: Version,
    /// The version of the target's primary key. If responses vary, the response's own key is a variant's key.
    pub(super) primary: Version,
    /// The version of the target's own key, which is the primary key unless the path has a rule.
    pub(super) target: Version,
    /// The version of the key of the path's marker, if the primary key was made by a rule.
    pub(super) path: Version,
    /// The newest purge at that time. A later purge may cover the response.
    pub(super) stamp: Stamp,
}

impl KeyVersions {
    /// Reads the current versions. Removes a marker from the key if the marker is no longer current.
    pub(super) fn read(worker: &Worker, key: &mut CacheKey) -> Self {
        let cache = &worker.cache;
        let stamp = cache.purges.latest();
        let hot = &cache.hot;
        let is_current = |marker: &Arc<Stored>, hash| {
            let present = hot.peek(hash);
            present.is_some_and(|present| Arc::ptr_eq(&present, marker))
                || matches!(&marker.kind, StoredKind::Varies(variants)
                    if variants.version.is_some_and(|version| hot.is_current(version)))
        };
        let mut under_rule = None;
        if let PathRule::Applied { marker, target } = &key.path_rule {
            let path = hot.version(cache.hash(&path_key(target)));
            if is_current(marker, path.key()) {
                under_rule = Some((hot.version(cache.hash(target)), path));
            } else {
                key.leave_path_rule(cache.hash_seed);
            }
        }
        let primary = hot.version(key.primary_hash());
        let own = hot.version(key.hash);
        let marker = key.marker.take();
        key.marker = marker.filter(|marker| is_current(marker, primary.key()));
        let (target, path) = under_rule.unwrap_or((primary, primary));
        Self {
            key: own,
            primary,
            target,
            path,
            stamp,
        }
    }

    /// Sets the stamp of an object that another node has sent, with the stamp that the answer states.
    pub(super) fn receive(&mut self, cache: &Cache, stated: Stamp) {
        self.stamp = cache.received_stamp(stated, self.stamp);
    }

    /// Renews the versions of unchanged keys. A version also becomes outdated after many changes of other keys.
    pub(super) fn renew(&mut self, hot: &Hot) {
        self.key = hot.renewed(self.key).unwrap_or(self.key);
        self.primary = hot.renewed(self.primary).unwrap_or(self.primary);
    }
}
