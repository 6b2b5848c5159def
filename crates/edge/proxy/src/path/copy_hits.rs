//! Hits on hot copies. A node that has become the owner of a copied object takes the object over.

use std::sync::Arc;

use super::worker::Worker;
use crate::cache::CacheKey;
use crate::cache::stored::{DiskPlan, Stored, StoredKind, StoredResponse};

impl Worker {
    /// Counts a hit in memory: one on a copy as such, and others in the rates of this node's objects.
    pub(super) fn record_hit_rate(&self, key: &CacheKey, stored: &Arc<Stored>) {
        if stored.is_copy() && !self.takes_over(key, stored) {
            self.counters.fleet_copy_hits.increment();
        } else {
            self.record_request_rate(key);
        }
    }

    /// Makes a copy an object of this node if the node has become the owner of its key, so that the disk may get it.
    /// Returns true if the node is the owner.
    fn takes_over(&self, key: &CacheKey, copy: &Arc<Stored>) -> bool {
        let fleet = self.shared.fleet.as_ref();
        let is_owner = fleet.is_none_or(|fleet| fleet.owns(key.target()));
        if is_owner && let StoredKind::Response(response) = &copy.kind {
            let response = StoredResponse {
                disk_plan: match response.disk_plan {
                    DiskPlan::Copy { is_kept_off: true } => DiskPlan::Never,
                    _ => DiskPlan::Decide,
                },
                ..response.clone()
            };
            let owned = copy.renewed(StoredKind::Response(response));
            self.cache.hot.swap(key.hash, copy, owned);
        }
        is_owner
    }
}
