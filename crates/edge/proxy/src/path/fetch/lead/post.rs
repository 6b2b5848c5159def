//! The response to a POST that declares itself as the representation of its target (RFC 9110 §9.3.3). It replaces the
//! stored response, which the POST invalidates, and answers later GETs.

use std::time::{Duration, Instant};

use edgeward_purge::Stamp;
use edgeward_semantics::{Exchange, Rules, Storable, Verdict, on_post_response};
use edgeward_store::versions::Version;
use edgeward_types::Timestamp;
use http::response::Parts;

use super::fetch_state::{ArrivedResponse, Fetch, OpenFill};
use super::versions::KeyVersions;
use crate::exchange::Request;
use crate::origin::OriginResponse;
use crate::path::lookup::key_of;
use crate::path::peer;
use crate::path::question::Storing;
use crate::path::storability;
use crate::path::worker::Worker;

/// The state of the cache before a POST was sent.
pub(in crate::path) struct PostBegin {
    version: Version,
    stamp: Stamp,
    request_time: Timestamp,
    sent_at: Instant,
}

/// A response that will be stored for its target.
pub(in crate::path) struct PostUpdate {
    storable: Box<Storable>,
    /// The version of the target's own key. The response is stored only if the key has not changed since.
    pub(in crate::path) version: Version,
    stamp: Stamp,
    exchange: Exchange,
    fetch_time: Duration,
}

impl PostBegin {
    pub(in crate::path) fn now(worker: &Worker, request: &Request) -> Self {
        Self {
            version: worker.cache.hot.version(key_of(worker, request).hash),
            stamp: worker.cache.purges.latest(),
            request_time: worker.now(),
            sent_at: Instant::now(),
        }
    }

    /// Returns the update by a response, or `None` if the response does not answer later GETs.
    pub(in crate::path) fn update(
        self,
        worker: &Worker,
        request: &Request,
        parts: &Parts,
    ) -> Option<PostUpdate> {
        let exchange = worker.exchange(self.request_time);
        // RFC 9110 §9.3.3: a POST is cacheable only with explicit freshness of the response. Lifetimes of a site are
        // not the origin's, so they would let any client replace the pages of the site.
        let rules = Rules {
            lifetimes: None,
            ..request.settings().caching.clone()
        };
        let verdict = on_post_response(
            &rules,
            &request.headers,
            &request.target()?,
            parts.status,
            &parts.headers,
            exchange,
        );
        let verdict =
            storability::check_extension(worker, request, parts.status, &parts.headers, verdict);
        let Verdict::Store(storable) = verdict else {
            return None;
        };
        Some(PostUpdate {
            storable,
            version: self.version,
            stamp: self.stamp,
            exchange,
            fetch_time: self.sent_at.elapsed(),
        })
    }
}

impl PostUpdate {
    /// Records that the purge of `count` scopes by the response itself has the stamp `stamp`. It applies to older
    /// responses only. If there were other purges since the POST was sent, they apply to this response too.
    pub(in crate::path) fn set_purged(&mut self, stamp: Stamp, count: u64) {
        if self.stamp.0.checked_add(count) == Some(stamp.0) {
            self.stamp = stamp;
        }
    }
}

impl Fetch {
    /// Stores the response to a POST. Reports a result to the leader.
    pub(in crate::path::fetch) async fn run_post(
        self,
        (parts, body): OriginResponse,
        update: PostUpdate,
    ) {
        let _open = OpenFill::new(&self.worker.counters);
        let versions = KeyVersions {
            key: update.version,
            primary: update.version,
            target: update.version,
            path: update.version,
            stamp: update.stamp,
        };
        let arrived = ArrivedResponse {
            parts,
            body,
            exchange: update.exchange,
            fetch_time: update.fetch_time,
            versions,
            has_stale: false,
            storing: match peer::stores(&self.worker, &self.request) {
                true => Storing::Fetched,
                false => Storing::Never,
            },
        };
        if let Some(rest) = self.store(arrived, update.storable) {
            rest.await;
        }
    }
}
