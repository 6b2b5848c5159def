//! Sends a request to the origin, and applies the rules of the request's site to the origin's response.
//!
//! All fetches with a complete exchange ask here: complete responses, slices, HEAD requests, requests that are passed,
//! and unsafe requests. Each response is therefore changed (`origin_response`, `replace`) before the edge decides how
//! to use it, whatever the kind of the fetch. Handshakes have no complete exchange (`path/upgrade.rs`).

use std::time::{Duration, Instant};

use edgeward_semantics::Exchange;

use super::rules::change_origin_response;
use super::worker::Worker;
use crate::exchange::Request;
use crate::origin::{Attempt, OriginError, OriginResponse, Outbound, Upload};

/// The result of an exchange with the origin.
pub(super) struct Answered {
    /// The response, as the rules of the site have changed it.
    pub(super) sent: Result<OriginResponse, OriginError>,
    pub(super) exchange: Exchange,
    /// The time from the request to the head of the response. The worker's clock is too coarse to compare the times of
    /// fetches.
    pub(super) fetch_time: Duration,
}

/// Sends a request to its origin.
pub(super) async fn ask(
    worker: &Worker,
    request: &Request,
    outbound: &Outbound<'_>,
    attempt: &Attempt,
    upload: Upload,
) -> Answered {
    let (request_time, sent_at) = (worker.now(), Instant::now());
    let origin = worker.origin(request);
    let mut sent = origin.send(attempt, outbound, upload).await;
    let (exchange, fetch_time) = (worker.exchange(request_time), sent_at.elapsed());
    if let Ok((parts, body)) = &mut sent {
        change_origin_response(request, (parts, body), worker);
    }
    Answered {
        sent,
        exchange,
        fetch_time,
    }
}
