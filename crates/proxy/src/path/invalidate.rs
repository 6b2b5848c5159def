//! Requests with unsafe methods, and the stored responses that they invalidate (RFC 9111 §4.4).
//!
//! An unsafe request that was sent may have changed the origin's state even if its response is lost. Therefore the
//! exchange continues if the client disconnects, and a request without a response invalidates its target too.
//!
//! `Cache-Group-Invalidation` of the response invalidates cache groups of the origin (RFC 9875 §3), as a purge does.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use edgeward_purge::{Purge, Scope, Stamp};
use edgeward_semantics::invalidation;
use edgeward_store::purges::PurgeError;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use tokio::sync::oneshot;

use crate::cache::disk::Durable;
use crate::exchange::{ConnState, Request};
use crate::origin::{Attempt, Conditions, OriginError, OriginResponse, Outbound, Upload};
use crate::path::detachable::Detachable;
use crate::path::worker::Worker;

/// Sends an unsafe request, and invalidates the stored responses that it makes outdated.
pub(super) async fn send(
    worker: Rc<Worker>,
    request: Rc<Request>,
    conn: Rc<ConnState>,
    mut attempt: Attempt,
    upload: Upload,
) -> Result<OriginResponse, OriginError> {
    let was_sent = Rc::new(Cell::new(false));
    attempt.was_sent = Some(Rc::clone(&was_sent));
    let exchange = exchange(Rc::clone(&worker), request, attempt, upload);
    let tasks = worker.fetch_tasks.clone();
    let mut exchange = Detachable::new(exchange, move |exchange| {
        // The client has left. The exchange continues only if the origin may have received a part of the request.
        if was_sent.get() {
            let orphan = conn.begin_orphan();
            tasks.spawn(|member| async move {
                drop(exchange.await);
                drop((member, orphan));
            });
        }
    });
    let (sent, pending) = poll_fn(|cx| exchange.poll(cx)).await;
    if !pending.removals.is_empty() || pending.scopes.is_some() {
        wait_until_durable(&worker, pending).await;
    }
    sent
}

/// The invalidations of one response that the client's response waits for.
#[derive(Default)]
struct Pending {
    removals: Vec<Durable>,
    /// Resolves when the purge of cache groups and of classes of URLs applies and is durable.
    scopes: Option<oneshot::Receiver<Result<Stamp, PurgeError>>>,
}

async fn exchange(
    worker: Rc<Worker>,
    request: Rc<Request>,
    attempt: Attempt,
    upload: Upload,
) -> (Result<OriginResponse, OriginError>, Pending) {
    let outbound = Outbound {
        edge: worker.edge_info(&request),
        request: &request,
        method: &request.method,
        conditions: Conditions::Keep,
    };
    let sent = worker
        .origin(&request)
        .send(&attempt, &outbound, upload)
        .await;
    let pending = match &sent {
        Ok((parts, _)) => invalidate(&worker, &request, parts.status, &parts.headers),
        // The origin may have executed the request, although no response arrived. After an upload error it has not,
        // because the request was incomplete (RFC 9112 §8). An incomplete request must not remove stored responses.
        Err(error) if attempt.was_sent() && !error.is_upload_error() => {
            invalidate(&worker, &request, StatusCode::OK, &HeaderMap::new())
        }
        Err(_) => Pending::default(),
    };
    (sent, pending)
}

/// Returns true if a request with this method may change the origin's state.
pub(super) fn is_unsafe(method: &Method) -> bool {
    invalidation::applies(method, StatusCode::OK)
}

/// Removes the stored responses that a response to an unsafe method invalidates. Returns the removals that have to
/// become durable before the client gets its response.
fn invalidate(
    worker: &Worker,
    request: &Request,
    status: StatusCode,
    headers: &HeaderMap,
) -> Pending {
    let mut pending = Pending::default();
    let mut scopes = Vec::new();
    let Some(target) = request.target() else {
        return pending;
    };
    for key in invalidation::targets(&request.method, status, &target, headers) {
        let key = worker.cache.without_ignored_parameters(key);
        let (removed, durable) = worker.cache.purge_target(&key);
        if removed {
            worker.counters.invalidations.increment();
        }
        pending.removals.extend(durable);
        if worker.cache.live.config().site_urls.has_classes
            && let Ok(url) = String::from_utf8(key)
        {
            scopes.push(Scope::Url(url.into())); // the responses of all classes
        }
    }
    if invalidation::applies(&request.method, status)
        && headers.contains_key(&CACHE_GROUP_INVALIDATION)
    {
        let lines = headers.get_all(&CACHE_GROUP_INVALIDATION);
        let lines = lines.iter().map(HeaderValue::as_bytes);
        for scope in Scope::invalidated_groups(&target.key(), lines) {
            tracing::debug!(%scope, "a response invalidates a cache group");
            worker.cache.accepted_purges.increment(&scope);
            scopes.push(scope);
        }
    }
    pending.scopes = purge(worker, scopes);
    pending
}

/// Adds hard purges to the table of purges. Returns a receiver that resolves when they apply and are durable.
fn purge(
    worker: &Worker,
    scopes: Vec<Scope>,
) -> Option<oneshot::Receiver<Result<Stamp, PurgeError>>> {
    if scopes.is_empty() {
        return None;
    }
    let hard = |scope| Purge { scope, soft: false };
    let purges = scopes.into_iter().map(hard).collect();
    let (sender, accepted) = oneshot::channel();
    worker.cache.purges.purge(purges, move |result| {
        // The client's task may have ended.
        _ = sender.send(result);
    });
    Some(accepted)
}

/// The field that names the groups (RFC 9875 §3).
static CACHE_GROUP_INVALIDATION: HeaderName = HeaderName::from_static("cache-group-invalidation");

/// Waits until invalidations are durable, so that clients do not get the old content after a restart of the edge. The
/// wait is limited, so that a faulty disk does not delay responses for long.
async fn wait_until_durable(worker: &Worker, pending: Pending) {
    let disk = worker.cache.disk.as_ref();
    let all = async {
        let mut certain = true;
        if let Some(scopes) = pending.scopes {
            certain &= matches!(scopes.await, Ok(Ok(_)));
        }
        for durable in pending.removals {
            certain &= matches!(durable.await, Ok(Ok(())));
        }
        certain
    };
    // Without a disk, a purge waits for no device.
    let wait_max = disk.map_or(WAIT_MAX, |disk| disk.invalidation_wait_max);
    if tokio::time::timeout(wait_max, all).await != Ok(true) {
        worker.counters.invalidations_not_durable.increment();
        tracing::debug!("an invalidation is not durable on disk");
    }
}

/// The longest wait for the purge of groups in an edge without a disk.
const WAIT_MAX: Duration = Duration::from_secs(1);
