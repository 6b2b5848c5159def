//! Answers misses by a fetch. Requests for one key share one fetch, and get the body while it arrives from the origin.
//!
//! The leader's task polls the fetch, which needs no other task and no channel until the leader's response begins.
//! After that, or if the leader's client disconnects earlier, a new task continues the fetch and reads the body.

mod head;
mod lead;
mod leader;
mod miss;
mod ranges;
mod respond;
mod sliced;
mod steps;

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use edgeward_purge::Verdict;
use edgeward_semantics::Forward;
use http::Response;
use http::header::HeaderMap;

use super::deliver::Reply;
use crate::cache::CacheKey;
use crate::cache::fill::{FillHead, FillReader, FollowResult};
use crate::cache::stored::{Stored, StoredKind};
use crate::exchange::{Request, RequestBody};
use crate::origin::{OriginError, OriginResponse};
use crate::path::body::EdgeBody;
use crate::path::sliced_body::SliceFetch;
use crate::path::stale::StaleCause;
use crate::path::worker::Worker;
use lead::Fetch;
pub(super) use lead::post::{PostBegin, PostUpdate};
pub(super) use leader::store_post;
use miss::Miss;
use ranges::{part_to_fetch, range_mark};
pub(super) use sliced::{LOOKED_UP_MAX, answer_sliced, respond_stale};
use steps::{FirstStep, first_step};

/// The result of a fetch for its leader.
enum FetchResult {
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

/// Answers a request that needs the origin for `reason`. `stale` is the stored response to validate, if any.
pub(super) async fn fetch(
    reply: Reply,
    request: Rc<Request>,
    incoming: Option<RequestBody>,
    key: CacheKey,
    reason: Forward,
    stale: Option<Arc<Stored>>,
) -> Response<EdgeBody> {
    let part = part_to_fetch(&reply.worker, &request, &key, stale.as_ref());
    let miss = Miss {
        reply,
        request,
        key,
        reason,
        stale,
        part,
    };
    let step = first_step(miss.facts(incoming.is_some()));
    // Other steps do not read the content of the request.
    let incoming = incoming.filter(|_| matches!(step, FirstStep::Pass { .. }));
    match step {
        FirstStep::Head => {
            Box::pin(head::miss(miss.reply, miss.request, miss.key, miss.reason)).await
        }
        FirstStep::Pass { may_follow } => miss.pass(incoming, may_follow).await,
        FirstStep::ValidateHead => miss.validate_head().await,
        FirstStep::ServeStale => miss.serve_stale().await,
        FirstStep::Share { for_head } => {
            if for_head {
                miss.reply.worker.counters.head_fetches.increment();
            }
            miss.share().await
        }
    }
}

/// Waits for the head of a shared fetch, or for its end without one. Returns `None` at the deadline of the fetch.
async fn wait_for_head(reader: &FillReader) -> Option<FollowResult> {
    let deadline = reader.fill().head_deadline().into();
    let head = poll_fn(|cx| reader.poll_head(cx));
    tokio::time::timeout_at(deadline, head).await.ok()
}

/// Validates a stale response while `request` is answered with it (RFC 5861 §3), unless a fetch for the key is under
/// way or the origin has just failed. No client waits, so a request that needs the connection cancels the validation.
pub(super) fn revalidate_in_background(
    worker: &Rc<Worker>,
    request: &Rc<Request>,
    key: CacheKey,
    stale: &Arc<Stored>,
) {
    let cache = &worker.cache;
    if cache.failed_validations.contains(key.hash, worker.now()) {
        return;
    }
    let Some(mut leader) = cache.collapse.lead(key.hash, &key.bytes) else {
        return;
    };
    if let Some(stored) = find_new_fresh(worker, &key, Some(stale)) {
        leader.close();
        return leader.fill.finish_with_stored(stored);
    }
    worker.counters.background_revalidations.increment();
    let fetch = Fetch {
        part: part_to_fetch(worker, request, &key, Some(stale)),
        worker: Rc::clone(worker),
        request: Rc::clone(request),
        key,
        leader,
        result: None,
    };
    let fetch = fetch.run(Some(Arc::clone(stale)));
    let orphans = worker.origin(request).orphans();
    orphans.spawn(&worker.fetch_tasks, fetch, || false);
}

/// Returns true if a purge forbids to use a stored response.
fn is_purged(worker: &Worker, key: &CacheKey, stored: &Stored) -> bool {
    worker.cache.verdict(key.primary(), stored) == Verdict::Hard
}

/// Returns the response that memory has for the key, if this response is fresh and is not `stale`.
fn find_new_fresh(
    worker: &Worker,
    key: &CacheKey,
    stale: Option<&Arc<Stored>>,
) -> Option<Arc<Stored>> {
    let stored = worker.cache.hot.peek(key.hash)?;
    let is_new = stale.is_none_or(|stale| !Arc::ptr_eq(stale, &stored));
    let usable = is_new
        && stored.has_key(&key.bytes)
        && matches!(&stored.kind, StoredKind::Response(r) if r.policy.is_fresh(worker.now()))
        && worker.cache.verdict(key.primary(), &stored) == Verdict::Current;
    usable.then_some(stored)
}

/// The detail of `Cache-Status` if no tier stores the response: by the policy, its size, or because memory is used.
const NOT_ADMITTED: &str = "not-admitted";

/// The most fetches that a request follows. Then it gets its own fetch, or the error of the last fetch.
const FOLLOWS_MAX: u32 = 3;
