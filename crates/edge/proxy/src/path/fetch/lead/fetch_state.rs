//! One fetch: its state, its result, and the ends that all kinds of fetches have.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use edgeward_semantics::slices::FirstPart;
use edgeward_semantics::{Exchange, StoredPolicy};
use edgeward_store::versions::Version;
use edgeward_types::KeyHash;
use http::HeaderMap;
use http::response::Parts;

use super::versions::KeyVersions;
use crate::cache::CacheKey;
use crate::cache::collapse::FetchLeader;
use crate::cache::fill::FillHead;
use crate::cache::stored::Stored;
use crate::exchange::Request;
use crate::observe::counters::Counters;
use crate::origin::{OriginBody, OriginError, OriginResponse};
use crate::path::question::Storing;
use crate::path::sliced_body::SliceFetch;
use crate::path::stale::StaleCause;
use crate::path::worker::Worker;

/// One fetch, from the request to the origin to the end of the body.
pub(in crate::path::fetch) struct Fetch {
    pub(in crate::path::fetch) worker: Rc<Worker>,
    pub(in crate::path::fetch) request: Rc<Request>,
    pub(in crate::path::fetch) key: CacheKey,
    pub(in crate::path::fetch) leader: FetchLeader,
    /// The part of the response that is requested. `None` for the complete response.
    pub(in crate::path::fetch) part: Option<FirstPart>,
    /// The cell for the leader's result. `None` after the result was reported.
    pub(in crate::path::fetch) result: Option<Rc<Cell<Option<FetchResult>>>>,
}

/// The result of a fetch for its leader.
pub(in crate::path::fetch) enum FetchResult {
    /// The leader and the followers read the body from the fill.
    Shared {
        head: Arc<FillHead>,
        /// The fields for the leader. Followers get the fields of `head`.
        headers: HeaderMap,
    },
    /// The leader alone gets the response with its body. The text is the detail of `Cache-Status`.
    Direct(OriginResponse, Option<&'static str>),
    /// A stored response answers the request: after a revalidation, or for this cause although it is stale.
    Found {
        stored: Arc<Stored>,
        stale: Option<StaleCause>,
    },
    /// The stored response in slices answers the request. The fetch of one of its slices is under way.
    Sliced {
        stored: Arc<Stored>,
        first: Option<(u64, SliceFetch)>,
    },
    /// The range cannot be answered from slices, so the client's request is passed to the origin.
    Unsliced(&'static str),
    Failed(OriginError),
}

/// A response whose head has arrived.
pub(super) struct ArrivedResponse {
    pub(super) parts: Box<Parts>,
    pub(super) body: Box<OriginBody>,
    pub(super) exchange: Exchange,
    /// The time from the request to the head of the response.
    pub(super) fetch_time: Duration,
    /// The versions of the keys before the request was sent.
    pub(super) versions: KeyVersions,
    /// True if the request was to validate a stored response.
    pub(super) has_stale: bool,
    /// How this node may store the response.
    pub(super) storing: Storing,
}

impl Fetch {
    /// Ends the fetch with a stored response, which the origin has validated or which is served stale. If `shares` is
    /// false, the followers have to send requests of their own.
    pub(super) fn finish_with_stored(
        mut self,
        stored: Arc<Stored>,
        stale: Option<StaleCause>,
        shares: bool,
    ) {
        self.leader.close();
        if shares {
            self.leader.fill.finish_with_stored(Arc::clone(&stored));
        } else {
            self.leader.fill.release();
        }
        self.report(FetchResult::Found { stored, stale });
    }

    pub(super) fn report(&mut self, outcome: FetchResult) {
        if let Some(result) = self.result.take() {
            result.set(Some(outcome));
        }
    }

    /// Records that the response to a request for the target cannot answer other requests. For a time, requests for the
    /// target do not wait for each other (Varnish: hit-for-miss).
    pub(super) fn do_not_collapse(&self) {
        let marks = &self.worker.cache.hit_for_miss;
        marks.mark(self.key.primary_hash(), self.worker.now());
    }

    /// Records that a response is stored, for the causes of later misses. A request that does not find the marker of
    /// variants looks the primary key up.
    pub(super) fn record_stored(&self, hash: KeyHash, policy: &StoredPolicy) {
        let (worker, history) = (&self.worker, &self.worker.cache.miss_history);
        for key in [hash, self.key.primary_hash()] {
            history.store(key, policy.fresh_until, worker.now());
        }
    }

    /// Removes the stored response that the origin did not confirm.
    pub(super) fn remove(&self, version: Version) {
        if self.worker.cache.remove(version, &self.key.bytes).is_none() {
            self.worker.counters.dropped_removal.increment();
        }
    }

    /// Gives the response and its body to the leader alone. The followers have to send requests of their own.
    pub(super) fn release_to_leader(
        mut self,
        parts: Box<Parts>,
        body: Box<OriginBody>,
        detail: Option<&'static str>,
    ) -> Option<BodyTransfer> {
        self.leader.close();
        self.leader.fill.release();
        self.worker.counters.fills_released.increment();
        self.report(FetchResult::Direct((parts, body), detail));
        None
    }
}

/// The rest of a fetch after the head of the response: the future that moves the body.
pub(super) type BodyTransfer = Pin<Box<dyn Future<Output = ()>>>;

/// Counts a fetch as under way until dropped.
pub(super) struct OpenFill(Arc<Counters>);

impl OpenFill {
    pub(super) fn new(counters: &Arc<Counters>) -> Self {
        counters.fills.increment();
        Self(Arc::clone(counters))
    }
}

impl Drop for OpenFill {
    fn drop(&mut self) {
        self.0.fills.decrement();
    }
}
