//! HEAD requests that no fresh stored response answers.
//!
//! If the stored response is stale, the origin gets a HEAD too, and its response updates the stored response (RFC 9111
//! §4.3.5). A GET would transfer a body that no client asked for.
//!
//! Without a stored response, the first HEAD of a URL is sent as HEAD, and the HEAD requests that arrive meanwhile
//! share its response. If the response may be stored and its body is not known to exceed
//! `caching.head_fetch_bytes_max`, the next HEAD is fetched with GET ([`fetches_body`]): later requests of both methods
//! are hits. A client that sends one HEAD for each of many URLs therefore costs the origin no body.

use std::rc::Rc;
use std::sync::Arc;

use edgeward_semantics::{CacheStatus, Forward, Verdict, answers_the_request};
use edgeward_types::KeyHash;
use http::header::{CONTENT_LENGTH, HeaderMap};
use http::{Method, Response, StatusCode};

use super::follow::{FOLLOWS_MAX, wait_for_head};
use super::lead::fetch_state::Fetch;
use super::lead::path_rule::keeps_rule;
use super::ranges::is_for;
use super::sliced::{Answered, respond_stale};
use crate::cache::CacheKey;
use crate::cache::collapse::{FetchLeader, Role};
use crate::cache::fill::{BodyBuffer, Failure, FillReader, FollowResult};
use crate::cache::stored::Stored;
use crate::exchange::{Request, RequestError};
use crate::observe::outcome::RequestOutcome;
use crate::origin::Conditions;
use crate::path::ask::ask;
use crate::path::body::{EdgeBody, Source};
use crate::path::deliver::Reply;
use crate::path::question::{Question, Storing};
use crate::path::revalidate::{self, Validating, Validation};
use crate::path::stale::StaleCause;
use crate::path::worker::Worker;
use crate::path::{encoded, pass, storability};

/// Answers a HEAD without conditions. `stale` is the stale response that is stored under `key`.
pub(super) async fn validate(
    reply: Reply,
    request: Rc<Request>,
    key: CacheKey,
    reason: Forward,
    stale: Arc<Stored>,
) -> Answered {
    let worker = Rc::clone(&reply.worker);
    let stamp = worker.cache.purges.latest();
    let version = worker.cache.hot.version(key.hash);
    let question = Question {
        refreshes: Some(key.hash),
        ..Question::safe(&Method::HEAD, Conditions::Remove)
    };
    let answered = ask(&worker, &request, question).await;
    if let Some(cause) = StaleCause::of_answer(&worker, &request, &answered.sent, &stale) {
        return respond_stale(reply, request, key, stale, cause, reason).await;
    }
    let mut status = CacheStatus::forward(reason);
    let (parts, body) = match answered.sent {
        Ok(response) => response,
        Err(error) => return Ok(pass::refuse(reply, &error, status)),
    };
    if parts.status == StatusCode::OK {
        let validation = Validating {
            worker: &worker,
            request: &request,
            stored: &stale,
            response: &parts,
            exchange: answered.exchange,
            stamp,
        };
        match validation.by_head() {
            Validation::Keep(updated)
                if matches!(answered.storing, Storing::Fetched | Storing::Received(_))
                    && keeps_rule(key.rule(), &updated) =>
            {
                revalidate::replace(&worker, &key, &stale, &updated, version);
                status.fwd_status = Some(parts.status.as_u16());
                status.ttl = Some(updated.response().policy.ttl_secs(worker.now()));
                return Ok(encoded::respond(reply, &request, &updated, Some(status)).await);
            }
            // The stored response is outdated, or may no longer be stored.
            Validation::Mismatch | Validation::UseOnce(_) | Validation::Keep(_) => {
                if worker.cache.remove(version, &key.bytes).is_none() {
                    worker.counters.dropped_removal.increment();
                }
            }
        }
    }
    Ok(pass::respond(reply, &request, *parts, body, status))
}

/// Returns true if the next HEAD of the key is fetched with GET.
pub(super) fn fetches_body(worker: &Worker, key: &CacheKey) -> bool {
    let (cache, now) = (&worker.cache, worker.now());
    cache.head_fetches.contains(key.primary_hash(), now)
        && !cache.hit_for_miss.contains(head_mark(key), now)
}

/// Forwards each HEAD of the key as HEAD for `caching.hit_for_miss`, because the response to a GET was not stored.
pub(super) fn keep_head(worker: &Worker, key: &CacheKey) {
    let marks = &worker.cache.hit_for_miss;
    marks.mark(head_mark(key), worker.now());
}

/// Returns the hash by which a target is marked whose HEAD requests are not fetched with GET.
fn head_mark(key: &CacheKey) -> KeyHash {
    KeyHash(key.primary_hash().0.rotate_left(32))
}

/// Answers a HEAD without a stored response, by the HEAD that is under way or by a new one.
pub(super) async fn miss(
    mut reply: Reply,
    request: Rc<Request>,
    key: CacheKey,
    reason: Forward,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    let collapse = &worker.cache.collapse;
    let shared_key = [b"HEAD ", &*key.bytes].concat();
    let hash = worker.cache.hash(&shared_key);
    let is_alone = worker
        .cache
        .hit_for_miss
        .contains(key.primary_hash(), worker.now());
    let mut follows_left = if is_alone { 0 } else { FOLLOWS_MAX };
    let mut failed: Option<FillReader> = None;
    reply.count(RequestOutcome::forwarded(reason));
    loop {
        let role = match &failed {
            _ if follows_left == 0 => Role::Uncollapsed,
            Some(failed) => collapse.join_after(failed, hash, &shared_key),
            None => collapse.join(hash, &shared_key),
        };
        let reader = match role {
            Role::Follower(reader) => reader,
            Role::Leader(leader, _) | Role::FurtherLeader(leader, _) => {
                return lead(reply, request, key, reason, leader).await;
            }
            Role::Uncollapsed | Role::Overdue => {
                let (leader, _) = collapse.lead_uncollapsed();
                return lead(reply, request, key, reason, leader).await;
            }
        };
        follows_left -= 1;
        match wait_for_head(&reader).await {
            Some(FollowResult::Head(head)) if is_for(&worker, &request, &key, &head) => {
                worker.counters.collapsed.increment();
                let mut status = CacheStatus::forward(reason);
                status.collapsed = true;
                let mut headers = head.headers.clone();
                status.append_to(&mut headers, &worker.config().name);
                return reply.respond(&request, head.status, headers, Source::Empty, &status);
            }
            Some(FollowResult::Failed(failure)) if follows_left == 0 => {
                let mut status = CacheStatus::forward(reason).with_detail(failure.detail);
                status.collapsed = true;
                let text = "the shared request to the origin failed";
                return reply.refuse(&RequestError::after_lookup(failure.status, status, text));
            }
            Some(FollowResult::Failed(_)) => failed = Some(reader),
            _ => follows_left = 0,
        }
    }
}

/// Sends a HEAD, and gives the head of its response to the followers if it may answer them.
async fn lead(
    reply: Reply,
    request: Rc<Request>,
    key: CacheKey,
    reason: Forward,
    mut leader: FetchLeader,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    let status = CacheStatus::forward(reason).with_detail("head");
    let stamp = worker.cache.purges.latest();
    let question = Question::safe(&Method::HEAD, Conditions::Remove);
    let answered = ask(&worker, &request, question).await;
    let (parts, body) = match answered.sent {
        Ok(response) => response,
        Err(error) => {
            leader.fill.fail(Failure {
                status: error.status(),
                detail: error.detail(),
                mismatch: None,
            });
            return pass::refuse(reply, &error, status);
        }
    };
    let (code, exchange) = (parts.status, answered.exchange);
    match storability::decide(&worker, &request, code, &parts.headers, exchange) {
        Verdict::Store(storable) => {
            let length = content_length(&parts.headers);
            let bytes_max = worker.config().caching.head_fetch_bytes_max.bytes();
            // The fetch of a body whose length is unknown ends at the limit.
            if bytes_max > 0 && length.is_none_or(|length| length <= bytes_max) {
                let marks = &worker.cache.head_fetches;
                marks.mark(key.primary_hash(), exchange.response_time);
            }
            if storable.policy.may_answer_followers()
                && let Some(memory) = worker.cache.fill_budget.reserve(0)
            {
                let fetch = Fetch {
                    worker: Rc::clone(&worker),
                    request: Rc::clone(&request),
                    key,
                    leader,
                    part: None,
                    result: None,
                };
                let mut head = fetch.build_head(&storable, code, None, exchange.response_time);
                head.stamp = stamp;
                let fill = &fetch.leader.fill;
                fill.publish(Arc::new(head), BodyBuffer::contiguous(0), memory);
                if let Some((body, memory)) = fill.finish() {
                    fill.publish_body(body.charged_to(memory), fetch.key.hash);
                }
            } else {
                leader.close();
                leader.fill.release();
            }
        }
        Verdict::Refuse(_) => {
            if !(code.is_server_error() || answers_the_request(code)) {
                let marks = &worker.cache.hit_for_miss;
                marks.mark(key.primary_hash(), exchange.response_time);
            }
            leader.close();
            leader.fill.release();
        }
    }
    pass::respond(reply, &request, *parts, body, status)
}

/// Returns the length of the body that a GET would get. `None` if it is unknown.
fn content_length(response: &HeaderMap) -> Option<u64> {
    let value = response.get(CONTENT_LENGTH)?.to_str().ok()?;
    value.parse().ok()
}
