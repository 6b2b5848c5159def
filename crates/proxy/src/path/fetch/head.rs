//! A HEAD request whose stored response is stale. The origin gets a HEAD too, and its response updates the stored
//! response (RFC 9111 §4.3.5). A GET would transfer a body that no client asked for.

use std::rc::Rc;
use std::sync::Arc;

use edgeward_semantics::{CacheStatus, Forward, hop_by_hop};
use http::{Method, Response, StatusCode};

use crate::base::site_counters::OutcomeClass;
use crate::cache::CacheKey;
use crate::cache::stored::Stored;
use crate::exchange::Request;
use crate::origin::{Attempt, Conditions, Outbound, Upload};
use crate::path::ask::ask;
use crate::path::body::EdgeBody;
use crate::path::deliver::Reply;
use crate::path::encoded;
use crate::path::fetch::lead::path_rule::keeps_rule;
use crate::path::pass;
use crate::path::revalidate::{self, Validation};

/// Answers a HEAD without conditions. `stale` is the stale response that is stored under `key`.
pub(super) async fn validate(
    mut reply: Reply,
    request: Rc<Request>,
    key: CacheKey,
    reason: Forward,
    stale: Arc<Stored>,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    let stamp = worker.cache.purges.latest();
    let version = worker.cache.hot.version(key.hash);
    let outbound = Outbound {
        edge: worker.edge_info(&request),
        request: &request,
        method: &Method::HEAD,
        conditions: Conditions::Remove,
    };
    let attempt = Attempt::without_body(true);
    let answered = ask(&worker, &request, &outbound, &attempt, Upload::Empty).await;
    let mut status = CacheStatus::forward(reason);
    let policy = &stale.response().policy;
    let (mut parts, body) = match answered.sent {
        Ok(response) => response,
        Err(error) if super::lead::may_serve_after(&worker, &request, &error, policy) => {
            worker.record_failed_refresh(key.hash, error.is_disconnect());
            worker.counters.stale_on_error.increment();
            reply.observation.set_class(OutcomeClass::HitStale);
            status.ttl = Some(policy.ttl_secs(worker.now()));
            let status = status.with_detail(error.detail());
            return encoded::respond(reply, &request, &stale, Some(status)).await;
        }
        Err(error) => {
            worker.record_failed_refresh(key.hash, error.is_disconnect());
            return pass::refuse(reply, &error, status);
        }
    };
    if parts.status.is_server_error() {
        worker.record_failed_refresh(key.hash, false);
    }
    hop_by_hop::strip_response(&mut parts.headers);
    if parts.status == StatusCode::OK {
        match revalidate::by_head(&worker, &request, &stale, &parts, answered.exchange, stamp) {
            Validation::Keep(updated) if keeps_rule(key.rule(), &updated) => {
                revalidate::replace(&worker, &key, &stale, &updated, version);
                status.fwd_status = Some(parts.status.as_u16());
                status.ttl = Some(updated.response().policy.ttl_secs(worker.now()));
                return encoded::respond(reply, &request, &updated, Some(status)).await;
            }
            // The stored response is outdated, or may no longer be stored.
            Validation::Mismatch | Validation::UseOnce(_) | Validation::Keep(_) => {
                if worker.cache.remove(version, &key.bytes).is_none() {
                    worker.counters.dropped_removal.increment();
                }
            }
        }
    } else if parts.status.is_server_error()
        && super::lead::may_serve_error(&worker, &request, policy)
    {
        worker.counters.stale_on_error.increment();
        reply.observation.set_class(OutcomeClass::HitStale);
        status.fwd_status = Some(parts.status.as_u16());
        status.ttl = Some(policy.ttl_secs(worker.now()));
        return encoded::respond(reply, &request, &stale, Some(status)).await;
    }
    pass::respond(reply, &request, *parts, body, status)
}
