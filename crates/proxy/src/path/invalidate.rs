//! Requests with unsafe methods, and the stored responses that they invalidate (RFC 9111 §4.4).
//!
//! An unsafe request that was sent may have changed the origin's state even if its response is lost. Therefore the
//! exchange continues if the client disconnects, and a request without a response invalidates its target too.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;

use edgeward_semantics::invalidation;
use http::header::HeaderMap;
use http::{Method, StatusCode};

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
    if !pending.is_empty() {
        wait_until_durable(&worker, pending).await;
    }
    sent
}

async fn exchange(
    worker: Rc<Worker>,
    request: Rc<Request>,
    attempt: Attempt,
    upload: Upload,
) -> (Result<OriginResponse, OriginError>, Vec<Durable>) {
    let outbound = Outbound {
        edge: worker.edge_info(),
        request: &request,
        method: &request.method,
        conditions: Conditions::Keep,
    };
    let sent = worker.origin.send(&attempt, &outbound, upload).await;
    let pending = match &sent {
        Ok((parts, _)) => invalidate(&worker, &request, parts.status, &parts.headers),
        // The origin may have executed the request, although no response arrived. After an upload error it has not,
        // because the request was incomplete (RFC 9112 §8). An incomplete request must not remove stored responses.
        Err(error) if attempt.was_sent() && !error.is_upload_error() => {
            invalidate(&worker, &request, StatusCode::OK, &HeaderMap::new())
        }
        Err(_) => Vec::new(),
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
) -> Vec<Durable> {
    let mut pending = Vec::new();
    let Some(target) = request.target() else {
        return pending;
    };
    for key in invalidation::targets(&request.method, status, &target, headers) {
        let key = worker.cache.without_ignored_parameters(key);
        let (removed, durable) = worker.cache.purge_target(&key);
        if removed {
            worker.counters.invalidations.increment();
        }
        pending.extend(durable);
    }
    pending
}

/// Waits until invalidations are durable, so that clients do not get the old content after a restart of the edge. The
/// wait is limited, so that a faulty disk does not delay responses for long.
async fn wait_until_durable(worker: &Worker, pending: Vec<Durable>) {
    let Some(disk) = &worker.cache.disk else {
        return;
    };
    let all = async {
        let mut certain = true;
        for durable in pending {
            certain &= matches!(durable.await, Ok(Ok(())));
        }
        certain
    };
    if tokio::time::timeout(disk.invalidation_wait_max, all).await != Ok(true) {
        worker.counters.invalidations_not_durable.increment();
        tracing::debug!("an invalidation is not durable on disk");
    }
}
