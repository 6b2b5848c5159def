//! Answers misses by a fetch. Requests for one key share one fetch, and get the body while it arrives from the origin.
//!
//! The leader's task polls the fetch, which needs no other task and no channel until the leader's response begins.
//! After that, or if the leader's client disconnects earlier, a new task continues the fetch and reads the body.

mod head;
mod lead;
mod leader;
mod ranges;
mod respond;
mod sliced;

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use edgeward_purge::Verdict;
use edgeward_semantics::slices::FirstPart;
use edgeward_semantics::{CacheStatus, Forward, conditional};
use edgeward_types::KeyHash;
use http::header::HeaderMap;
use http::{Method, Response, StatusCode};

use super::deliver::Reply;
use super::lookup::{Query, lookup_again};
use super::pass;
use crate::base::outcome::RequestOutcome;
use crate::base::site_counters::OutcomeClass;
use crate::base::spans::SampledRequest;
use crate::cache::CacheKey;
use crate::cache::collapse::{FetchLeader, Role};
use crate::cache::fill::{FillHead, FillReader, FillVariant, FollowResult};
use crate::cache::stored::{Stored, StoredKind};
use crate::exchange::{Request, RequestBody, RequestError};
use crate::origin::as_origin_sees;
use crate::origin::{OriginError, OriginResponse};
use crate::path::body::EdgeBody;
use crate::path::sliced_body::SliceFetch;
use crate::path::worker::{Shared, Worker};
use lead::Fetch;
pub(super) use lead::may_serve_error;
pub(super) use lead::post::{PostBegin, PostUpdate};
use leader::leader_result;
pub(super) use leader::store_post;
use ranges::{has_range, part_to_fetch, range_mark};
use respond::respond_fill;
pub(super) use sliced::{LOOKED_UP_MAX, answer_sliced, respond as respond_stored};

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
    /// A stored response answers the request, after a revalidation or although it is stale. `failure` is the detail
    /// of `Cache-Status` if the origin could not be reached.
    Found {
        stored: Arc<Stored>,
        fwd_status: Option<u16>,
        failure: Option<&'static str>,
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
    mut reply: Reply,
    request: Rc<Request>,
    incoming: Option<RequestBody>,
    mut key: CacheKey,
    reason: Forward,
    mut stale: Option<Arc<Stored>>,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    // Without a stored response, a HEAD is sent as HEAD at first, and a range is fetched in slices if possible. If
    // there is a stale response, the fetch validates that response instead. Plain requests have no range.
    let wants_range = has_range(&request);
    // The origin decides about each client, so no request is answered by the fetch of another one.
    let is_checked = request.settings().caching.check_authorization;
    let is_conditional = !request.plain && conditional::is_conditional(&request.headers);
    let is_head = request.method == Method::HEAD;
    let is_shared_head = is_head && stale.is_none() && !(wants_range || is_checked);
    let part = part_to_fetch(&worker, &request, &key, stale.as_ref());
    if is_shared_head && head::fetches_body(&worker, &key) {
        worker.counters.head_fetches.increment();
    } else if is_shared_head && !is_conditional && incoming.is_none() {
        return Box::pin(head::miss(reply, request, key, reason)).await;
    } else if stale.is_none() && part.is_none() && (is_head || wants_range) {
        reply.count(RequestOutcome::forwarded(reason));
        let follows = match request.method == Method::GET && !is_checked {
            true => Box::pin(ranges::follow(reply, &request, &key, reason)).await,
            false => Err(reply),
        };
        let reply = match follows {
            Ok(response) => return response,
            Err(reply) => reply,
        };
        let detail = if wants_range { "range" } else { "head" };
        let status = CacheStatus::forward(reason).with_detail(detail);
        return Box::pin(pass::pass(reply, request, incoming, status)).await;
    }
    drop(incoming);
    let stale_if_error = request.directives().stale_if_error;
    if let Some(stale) = stale.as_ref().filter(|_| request.method == Method::HEAD)
        && !(wants_range
            || is_conditional
            || backs_off(&worker.shared, &request, key.hash, stale, stale_if_error))
    {
        reply.count(RequestOutcome::forwarded(reason));
        let stale = Arc::clone(stale);
        return Box::pin(head::validate(reply, request, key, reason, stale)).await;
    }
    if let Some(stale) = stale.as_ref().filter(|_| reason == Forward::Stale)
        && backs_off(&worker.shared, &request, key.hash, stale, stale_if_error)
    {
        worker.counters.stale_on_error.increment();
        reply.count(RequestOutcome::HitStale);
        reply.observation.set_class(OutcomeClass::HitStale);
        let ttl = stale.response().policy.ttl_secs(worker.now());
        let status = CacheStatus::hit(ttl).with_detail("backoff");
        let stale = Arc::clone(stale);
        return sliced::respond(reply, request, key, stale, Some(status), None).await;
    }
    let mut follows_left = FOLLOWS_MAX;
    let mut failed: Option<FillReader> = None;
    loop {
        let primary = key.primary_hash();
        let is_uncollapsed = is_checked
            || follows_left == 0
            || worker.cache.hit_for_miss.contains(primary, worker.now());
        let collapse = &worker.cache.collapse;
        let role = match &failed {
            _ if is_uncollapsed => Role::Uncollapsed,
            Some(failed) => collapse.join_after(failed, key.hash, &key.bytes),
            None => collapse.join(key.hash, &key.bytes),
        };
        failed = None;
        if follows_left == FOLLOWS_MAX {
            // The request is counted after it has joined, so that tests can wait for requests that have joined.
            reply.count(RequestOutcome::forwarded(reason));
        }
        if matches!(role, Role::FurtherLeader(..)) {
            worker.counters.collapse_full.increment();
        }
        let reader = match role {
            Role::Follower(reader) => reader,
            Role::Leader(mut leader, reader) | Role::FurtherLeader(mut leader, reader) => {
                // Another fetch may have stored a fresh response between the lookup and `join`.
                if let Some(stored) = find_new_fresh(&worker, &key, stale.as_ref()) {
                    leader.close();
                    leader.fill.finish_with_stored(Arc::clone(&stored));
                    return sliced::respond(reply, request, key, stored, None, None).await;
                }
                return lead_fetch(reply, request, key, reason, stale, part, leader, reader).await;
            }
            role @ (Role::Uncollapsed | Role::Overdue) => {
                if matches!(role, Role::Overdue) {
                    worker.counters.collapse_timeouts.increment();
                }
                let (leader, reader) = worker.cache.collapse.lead_uncollapsed();
                return lead_fetch(reply, request, key, reason, stale, part, leader, reader).await;
            }
        };
        follows_left -= 1;
        let Some(followed) = wait_for_head(&reader).await else {
            worker.counters.collapse_timeouts.increment();
            follows_left = 0;
            continue;
        };
        match followed {
            // A purge that came after the fetch began covers the response, and perhaps the stale response too.
            FollowResult::Head(head)
                if worker
                    .cache
                    .is_purged(key.primary(), &head.headers, head.stamp) =>
            {
                collapse.stop_joining_fill(key.hash, reader.fill());
                stale = stale.filter(|stale| !is_purged(&worker, &key, stale));
            }
            FollowResult::Stored(stored) if is_purged(&worker, &key, &stored) => {
                stale = stale.filter(|stale| !is_purged(&worker, &key, stale));
            }
            FollowResult::Head(head) => {
                let is_answered = |variant: &FillVariant| {
                    let fields = &variant.fields;
                    variant.answers(&as_origin_sees(
                        worker.edge_info(&request),
                        &request,
                        fields,
                    ))
                };
                if !head.covers(key.target()) || !head.variant.as_ref().is_none_or(is_answered) {
                    // The fetch is for another variant of the target, or for a URL that is not equivalent under the
                    // rule of the response. The marker is now stored, so a new lookup can compute the key of this
                    // request's response.
                    let (next, fresh) = lookup_again(&worker, &request).await;
                    if let Some(stored) = fresh {
                        return sliced::respond(reply, request, next, stored, None, None).await;
                    }
                    key = next;
                    continue;
                }
                if part.is_some() && ranges::is_far(&request, &head, reader.fill().arrived_bytes())
                {
                    let answer = ranges::answer_far(
                        reply,
                        &request,
                        &key,
                        reason,
                        "far-range",
                        &head,
                        reader,
                    );
                    return Box::pin(answer).await;
                }
                worker.counters.collapsed.increment();
                if let Some(disk) = worker.cache.disk() {
                    let secondary = head.variant.as_ref().map(|variant| &variant.secondary[..]);
                    disk.record_follower(key.primary(), secondary);
                }
                let mut status = CacheStatus::forward(reason);
                status.collapsed = true;
                let headers = head.headers.clone();
                return respond_fill(reply, &request, &head, headers, reader, status).await;
            }
            // The fetch has stored another variant, or a response for another URL, as above.
            FollowResult::Stored(stored) if !stored.has_key(&key.bytes) => {
                let (next, fresh) = lookup_again(&worker, &request).await;
                if let Some(stored) = fresh {
                    return sliced::respond(reply, request, next, stored, None, None).await;
                }
                key = next;
            }
            // The leader accepts a stale response after an error, and this request does not.
            FollowResult::Stored(stored)
                if !stored.response().policy.is_fresh(worker.now())
                    && stored
                        .response()
                        .policy
                        .is_too_stale_for(stale_if_error, worker.now()) =>
            {
                follows_left = 0;
            }
            FollowResult::Stored(stored) => {
                worker.counters.collapsed.increment();
                let mut status = CacheStatus::forward(reason);
                status.collapsed = true;
                let policy = &stored.response().policy;
                status.ttl = Some(policy.ttl_secs(worker.now()));
                reply
                    .observation
                    .set_class(match policy.is_fresh(worker.now()) {
                        true => OutcomeClass::Revalidated,
                        false => OutcomeClass::HitStale,
                    });
                return sliced::respond(reply, request, key, stored, Some(status), None).await;
            }
            FollowResult::Released => {
                // The response is for its leader alone, unless it was dropped because a newer one was stored.
                if let Some(stored) = find_new_fresh(&worker, &key, stale.as_ref()) {
                    return sliced::respond(reply, request, key, stored, None, None).await;
                }
                follows_left = 0;
            }
            FollowResult::Failed(failure) if follows_left == 0 => {
                let mut status = CacheStatus::forward(reason).with_detail(failure.detail);
                status.collapsed = true;
                let text = "the shared request to the origin failed";
                return reply.refuse(&RequestError::after_lookup(failure.status, status, text));
            }
            // One of the requests that waited leads the next fetch, and the other requests follow it.
            FollowResult::Failed(_) => failed = Some(reader),
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

/// Returns true if the origin failed to validate `stale` a moment ago, and `stale` may be served instead of the error.
/// `stale_if_error` is the directive of the request.
pub(super) fn backs_off(
    shared: &Shared,
    request: &Request,
    hash: KeyHash,
    stale: &Stored,
    stale_if_error: Option<u32>,
) -> bool {
    let (cache, now) = (&shared.cache, shared.clock.now());
    let staleness_max = request.settings().stale_if_disconnected;
    let policy = &stale.response().policy;
    if policy.is_too_stale_for(stale_if_error, now) {
        return false;
    }
    (cache.failed_validations.contains(hash, now) && policy.may_serve_on_error(now))
        || (cache.unreached_validations.contains(hash, now)
            && policy.may_serve_disconnected(now, staleness_max))
}

/// Returns true if a purge forbids to use a stored response.
fn is_purged(worker: &Worker, key: &CacheKey, stored: &Stored) -> bool {
    worker.cache.verdict(key.primary(), stored) == Verdict::Hard
}

/// Leads a fetch, and answers the leader's request with the result.
#[expect(clippy::too_many_arguments, reason = "the state of one request")]
async fn lead_fetch(
    mut reply: Reply,
    request: Rc<Request>,
    key: CacheKey,
    reason: Forward,
    stale: Option<Arc<Stored>>,
    part: Option<FirstPart>,
    leader: FetchLeader,
    reader: FillReader,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    let result = Rc::new(Cell::new(None));
    let fill = Arc::clone(&leader.fill);
    let fetch = Fetch {
        worker: Rc::clone(&worker),
        request: Rc::clone(&request),
        key: key.clone(),
        leader,
        part,
        result: Some(Rc::clone(&result)),
    };
    reply.observation.trace(SampledRequest::begin_fetch);
    let outcome = leader_result(&reply, &request, fill, &result, fetch.run(stale)).await;
    reply.observation.trace(SampledRequest::end_fetch);
    let mut status = CacheStatus::forward(reason);
    match outcome {
        FetchResult::Shared { head, headers } => {
            if request.method == Method::HEAD && !head.stored {
                head::keep_head(&worker, &key);
            }
            status.fwd_status = Some(head.status.as_u16());
            respond_fill(reply, &request, &head, headers, reader, status).await
        }
        FetchResult::Direct(response, detail) => {
            drop(reader);
            if request.method == Method::HEAD {
                head::keep_head(&worker, &key);
            }
            status.detail = detail.map(Into::into);
            let (parts, body) = response;
            pass::respond(reply, &request, *parts, body, status)
        }
        FetchResult::Found {
            stored,
            fwd_status,
            failure,
        } => {
            if fwd_status == Some(StatusCode::NOT_MODIFIED.as_u16()) {
                worker.counters.revalidated.increment();
                reply.observation.set_class(OutcomeClass::Revalidated);
            } else {
                worker.counters.stale_on_error.increment();
                reply.observation.set_class(OutcomeClass::HitStale);
            }
            status.fwd_status = fwd_status;
            status.detail = failure.map(Into::into);
            status.ttl = Some(stored.response().policy.ttl_secs(worker.now()));
            sliced::respond(reply, request, key, stored, Some(status), None).await
        }
        FetchResult::Sliced { stored, first } => {
            status.fwd_status = Some(StatusCode::PARTIAL_CONTENT.as_u16());
            status.stored = true;
            sliced::respond(reply, request, key, stored, Some(status), first).await
        }
        FetchResult::Unsliced(_) if request.method == Method::HEAD || !has_range(&request) => {
            // A stale response in slices is no longer available in slices, so the complete response is fetched.
            sliced::restart(reply, request, key, reason).await
        }
        FetchResult::Unsliced(detail) => {
            tracing::debug!(detail, "a range is passed to the origin");
            Box::pin(pass::pass(reply, request, None, status.with_detail(detail))).await
        }
        FetchResult::Failed(error) => pass::refuse(reply, &error, status),
    }
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
