//! Requests with unsafe methods, and the stored responses that they invalidate (RFC 9111 §4.4).
//!
//! An unsafe request that was sent may have changed the origin's state even if its response is lost. Therefore the exchange
//! continues without its client, and a request whose response is unknown invalidates its target.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;

use edgeward_semantics::invalidation;
use http::header::HeaderMap;
use http::{Method, StatusCode};

use crate::cache::disk::Durable;
use crate::exchange::{ConnState, Request};
use crate::origin::{Attempt, Conditions, OriginError, Outbound, Received, Upload};
use crate::path::worker::Worker;

/// An exchange with the origin. If it is dropped after the request was sent, it continues as a task.
pub(super) struct UnsafeExchange<F: Future + 'static> {
    worker: Rc<Worker>,
    conn: Rc<ConnState>,
    /// The origin may have received a part of the request.
    was_sent: Rc<Cell<bool>>,
    exchange: Option<Pin<Box<F>>>,
}

/// Sends an unsafe request, and invalidates the stored responses that it makes outdated.
pub(super) async fn send(
    worker: Rc<Worker>,
    request: Rc<Request>,
    conn: Rc<ConnState>,
    mut attempt: Attempt,
    upload: Upload,
) -> Result<Received, OriginError> {
    let was_sent = Rc::new(Cell::new(false));
    attempt.was_sent = Some(Rc::clone(&was_sent));
    let mut exchange = UnsafeExchange {
        worker: Rc::clone(&worker),
        conn,
        was_sent,
        exchange: Some(Box::pin(exchange(
            Rc::clone(&worker),
            request,
            attempt,
            upload,
        ))),
    };
    let (sent, pending) = exchange.finish().await;
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
) -> (Result<Received, OriginError>, Vec<Durable>) {
    let outbound = Outbound {
        hop: worker.hop(),
        request: &request,
        method: &request.method,
        conditions: Conditions::Keep,
    };
    let sent = worker.origin.send(&attempt, &outbound, upload).await;
    let pending = match &sent {
        Ok((parts, _)) => invalidate(&worker, &request, parts.status, &parts.headers),
        // The origin may have executed the request. It does not act on an incomplete request (RFC 9112 §8), and a client
        // that aborts its upload must not be able to remove stored responses.
        Err(error) if attempt.was_sent() && !error.is_upload_error() => {
            invalidate(&worker, &request, StatusCode::OK, &HeaderMap::new())
        }
        Err(_) => Vec::new(),
    };
    (sent, pending)
}

impl<F: Future + 'static> UnsafeExchange<F> {
    async fn finish(&mut self) -> F::Output {
        let exchange = &mut self.exchange;
        let output = poll_fn(|cx| {
            let exchange = exchange
                .as_mut()
                .expect("an exchange is polled to its end once");
            exchange.as_mut().poll(cx)
        });
        let output = output.await;
        self.exchange = None;
        output
    }
}

impl<F: Future + 'static> Drop for UnsafeExchange<F> {
    fn drop(&mut self) {
        if let Some(exchange) = self.exchange.take()
            && self.was_sent.get()
        {
            let orphan = self.conn.orphan();
            self.worker.fetch_tasks.spawn(|member| async move {
                drop(exchange.await);
                drop((member, orphan));
            });
        }
    }
}

/// Returns true if a request with this method may change the origin's state.
pub(super) fn is_unsafe(method: &Method) -> bool {
    invalidation::applies(method, StatusCode::OK)
}

/// Removes the stored responses that a response to an unsafe method invalidates. Returns the removals that have to become durable
/// before the client gets its response.
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
        let hash = worker.cache.hash(&key);
        worker.cache.collapse.stop_joining(hash, &key);
        let (removed, durable) = worker.cache.purge(hash, &key);
        if removed {
            worker.counters.invalidations.increment();
        }
        pending.extend(durable);
    }
    pending
}

/// Waits until invalidations are durable: a client that got a response must not get the old content after a restart. The wait is
/// bounded, so that a faulty disk does not hold back responses.
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
