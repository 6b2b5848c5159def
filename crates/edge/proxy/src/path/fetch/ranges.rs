//! Requests for ranges without a stored response, and answers from a fetch that is under way.
//!
//! A range that the fetch will have soon is cut from its body. A range far ahead is requested from the origin, unless
//! the origin has shown that it ignores ranges: it would send the whole response again. Then the range is cut from the
//! body under way, too. One request finds out for all others ([`answer_far`]).

use std::rc::Rc;

use edgeward_semantics::range::RangeAnswer;
use edgeward_semantics::{CacheStatus, Forward};
use edgeward_types::KeyHash;
use http::header::IF_RANGE;
use http::{Response, StatusCode};

use super::follow::{is_purged, wait_for_head};
use super::respond::respond_shared;
use super::sliced::{self, Answered};
use crate::cache::CacheKey;
use crate::cache::collapse::Role;
use crate::cache::fill::{FillHead, FillReader, FollowResult};
use crate::exchange::Request;
use crate::origin::{Conditions, as_origin_sees};
use crate::path::ask::ask;
use crate::path::body::EdgeBody;
use crate::path::deliver::Reply;
use crate::path::pass;
use crate::path::question::Question;
use crate::path::range_reply;
use crate::path::worker::Worker;

/// Answers a request for ranges by the fetch that is under way for its key, if the fetch is close to the ranges. If no
/// fetch answers the request, returns `reply`, and the caller passes the request to the origin.
pub(super) async fn follow(
    reply: Reply,
    request: &Rc<Request>,
    key: &CacheKey,
    reason: Forward,
) -> Result<Answered, Reply> {
    let worker = Rc::clone(&reply.worker);
    let Some(reader) = worker.cache.collapse.follow(key.hash, &key.bytes) else {
        return Err(reply);
    };
    let mut status = CacheStatus::forward(reason);
    status.collapsed = true;
    match wait_for_head(&reader).await {
        Some(FollowResult::Head(head)) if is_for(&worker, request, key, &head) => {
            let arrived = reader.fill().arrived_bytes();
            if is_far(request, &head, arrived) {
                let passed = CacheStatus::forward(reason).with_detail("range");
                let answer = answer_far(reply, request, key, passed, &head, reader).await;
                return Ok(Ok(answer));
            }
            // Without a length, the client gets the whole response.
            let is_whole = head.status == StatusCode::OK && ignores_ranges(&worker, key, &head);
            if !is_near(request, &head, arrived) && !is_whole {
                return Err(reply);
            }
            worker.counters.collapsed.increment();
            let headers = head.headers.clone();
            let response = respond_shared(reply, request, &head, headers, reader, status);
            Ok(Ok(response))
        }
        Some(FollowResult::Stored(stored)) if !is_purged(&worker, key, &stored) => {
            worker.counters.collapsed.increment();
            status.ttl = Some(stored.response().policy.ttl_secs(worker.now()));
            let (request, key) = (Rc::clone(request), key.clone());
            Ok(sliced::respond(reply, request, key, stored, Some(status), None).await)
        }
        _ => Err(reply),
    }
}

/// Answers a request for a range that is far ahead of the fetch of `reader`. The origin gets the range, unless it
/// ignores ranges. If this is unknown, one request asks the origin and the others wait for its result. A response to it
/// with the status 200 is given up. `passed` is the `Cache-Status` if the range is passed.
pub(super) async fn answer_far(
    reply: Reply,
    request: &Rc<Request>,
    key: &CacheKey,
    passed: CacheStatus,
    head: &FillHead,
    reader: FillReader,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    let mut first = None;
    if !ignores_ranges(&worker, key, head) {
        let question = [b"RANGE ", &*key.bytes].concat();
        let hash = worker.cache.hash(&question);
        match worker.cache.collapse.join(hash, &question) {
            Role::Follower(first) => _ = wait_for_head(&first).await,
            Role::Leader(leader, _) => first = Some(leader),
            Role::FurtherLeader(..) | Role::Uncollapsed | Role::Overdue => {}
        }
    }
    if !ignores_ranges(&worker, key, head) {
        worker.counters.ranges_passed_fill.increment();
        let question = Question::safe(&request.method, Conditions::Keep);
        let answered = ask(&worker, request, question).await;
        let has_ignored = matches!(&answered.sent, Ok((head, _)) if head.status == StatusCode::OK)
            && !request.headers.contains_key(IF_RANGE);
        if !has_ignored {
            drop(reader);
            return pass::finish(reply, request, answered.sent, None, passed);
        }
        let marks = &worker.cache.hit_for_miss;
        marks.mark(ignores_mark(key), worker.now());
    }
    drop(first);
    worker.counters.collapsed.increment();
    let status = CacheStatus {
        collapsed: true,
        detail: None,
        ..passed
    };
    respond_shared(reply, request, head, head.headers.clone(), reader, status)
}

/// Returns true if the origin has shown that it ignores ranges of the response that is arriving.
fn ignores_ranges(worker: &Worker, key: &CacheKey, head: &FillHead) -> bool {
    let marks = &worker.cache.hit_for_miss;
    head.ignores_ranges || marks.contains(ignores_mark(key), worker.now())
}

/// Returns the hash by which a target is marked whose origin ignores ranges. Its next range still begins a fetch.
fn ignores_mark(key: &CacheKey) -> KeyHash {
    KeyHash(key.primary_hash().0.rotate_left(16))
}

/// Returns true if each byte that the client requests has arrived, or is among the next [`AHEAD_BYTES_MAX`], which the
/// origin has begun to send.
fn is_near(request: &Request, head: &FillHead, arrived: u64) -> bool {
    let Some(length) = head.length else {
        return false;
    };
    let reaches = |first: u64| first <= arrived.saturating_add(AHEAD_BYTES_MAX);
    match range_reply::decide(request, head.status, &head.headers, length, true) {
        RangeAnswer::Full | RangeAnswer::Unsatisfiable => head.status == StatusCode::OK,
        RangeAnswer::Partial(part) => reaches(part.first),
        RangeAnswer::Several(parts) => parts.iter().all(|part| reaches(part.first)),
    }
}

/// Returns true if a fetch of the complete response under way will not have the requested bytes soon.
pub(super) fn is_far(request: &Request, head: &FillHead, arrived: u64) -> bool {
    head.status == StatusCode::OK && head.length.is_some() && !is_near(request, head, arrived)
}

/// Returns true if the response answers requests for the target, is the variant that the request selects, and if no
/// purge covers it.
pub(super) fn is_for(worker: &Worker, request: &Request, key: &CacheKey, head: &FillHead) -> bool {
    let is_purged = worker
        .cache
        .is_purged(key.primary(), &head.headers, head.stamp);
    let is_variant = head.variant.as_ref().is_none_or(|variant| {
        variant.answers(&as_origin_sees(
            worker.edge_info(request),
            request,
            &variant.fields,
        ))
    });
    is_variant && !is_purged && head.covers(key.target())
}

/// A range that begins up to this number of bytes after those that have arrived is read from the fill. At 100 Mbit/s
/// these bytes take 80 ms, about as long as a request to a distant origin. Later ranges are requested from the origin.
const AHEAD_BYTES_MAX: u64 = 1 << 20;
