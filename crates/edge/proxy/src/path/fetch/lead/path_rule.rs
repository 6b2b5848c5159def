//! The rule of a response for the query of its path (`No-Vary-Search`), which decides under which key it is stored.

use std::rc::Rc;

use edgeward_semantics::{NoVarySearch, Storable};

use super::fetch_state::Fetch;
use super::versions::KeyVersions;
use crate::cache::path_rules::PathMarker;
use crate::cache::stored::Stored;
use crate::cache::{PathRule, path_key};

/// The response's URL was invalidated while the response was fetched.
pub(super) struct Outdated;

impl Fetch {
    /// Changes the fetch's key to the one under which the response is stored. Returns the marker through which lookups
    /// find it, if the response has a rule.
    pub(super) fn apply_path_rule(
        &mut self,
        storable: &Storable,
        versions: &mut KeyVersions,
    ) -> Result<Option<PathMarker>, Outdated> {
        let worker = Rc::clone(&self.worker);
        let (cache, counters) = (&worker.cache, &worker.counters);
        let rule = storable.no_vary_search.as_ref();
        if rule == self.key.rule() {
            let PathRule::Applied { marker, target } = &self.key.path_rule else {
                return Ok(None);
            };
            let marker = PathMarker {
                key: path_key(target),
                marker: marker.clone(),
                version: cache.hot.renewed(versions.path).unwrap_or(versions.path),
            };
            if cache.keep_path_marker(&marker, counters) {
                return Ok(Some(marker));
            }
        }
        let marker = rule.and_then(|rule| cache.set_path_rule(self.key.target(), rule, counters));
        // The old key has no response or an outdated one. A lookup must not find the latter before the new response.
        let old = (versions.key, self.key.bytes.clone());
        match (
            &marker,
            marker.as_ref().and_then(|found| found.marker.rule()),
        ) {
            (Some(found), Some((rule, generation))) => {
                self.key
                    .apply_path_rule(&found.marker, rule, generation, cache.hash_seed);
                versions.primary = cache.hot.version(self.key.hash);
                // A purge removes the target's own key first. An earlier purge is noticed here, and a later one finds
                // the marker, and makes the version above outdated.
                if !cache.hot.is_current(versions.target) {
                    return Err(Outdated);
                }
            }
            _ if matches!(self.key.path_rule, PathRule::Applied { .. }) => {
                self.key.leave_path_rule(cache.hash_seed);
                versions.primary = versions.target;
            }
            _ => return Ok(None),
        }
        if old.1 != self.key.bytes {
            versions.key = versions.primary;
            _ = cache.remove(old.0, &old.1);
        }
        Ok(marker)
    }

    /// Returns true if the stored response, which was validated, still has the rule under which it is stored.
    pub(super) fn keeps_rule(&self, stored: &Stored) -> bool {
        keeps_rule(self.key.rule(), stored)
    }
}

/// Returns true if a response that was validated still has the rule under which it is stored, if any.
pub(in crate::path::fetch) fn keeps_rule(rule: Option<&NoVarySearch>, stored: &Stored) -> bool {
    rule.is_none() || NoVarySearch::from_headers(&stored.response().headers()).as_ref() == rule
}
