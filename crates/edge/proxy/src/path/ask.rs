//! Sends requests to the origin, or to another node of the fleet in its place ([`peer`]). Requests of all kinds are
//! sent here, so that no kind lacks a rule that holds for all of them:
//!
//! - the times that the age and the storing of the response depend on;
//! - the rules of the site on the origin's response (`origin_response`, `replace`), which change it before the edge
//!   decides how to use it;
//! - the removal of hop-by-hop fields;
//! - the back-off after a stale response could not be refreshed.
//!
//! Health checks (`origin/watch.rs`) belong to no request of a client, so they have neither rules nor responses to use.

use std::rc::Rc;
use std::time::Instant;

use edgeward_semantics::hop_by_hop;
use edgeward_types::KeyHash;
use http::header::HeaderValue;
use http::response::Parts;

use super::peer::{self, direction_of};
use super::question::{Answered, Question, Storing};
use super::rules::{change_origin_head, change_origin_response};
use super::worker::Worker;
use crate::exchange::{Request, UpgradeRequest};
use crate::origin::{
    Conditions, OriginError, OriginResponse, Outbound, SwitchResponse, SwitchedConnection,
};

/// Sends a request to its origin, or to the node of the fleet that has the object.
pub(super) async fn ask(
    worker: &Rc<Worker>,
    request: &Request,
    question: Question<'_>,
) -> Answered {
    let refreshes = question.refreshes;
    let mut answered = match question.may_ask_peer && worker.shared.fleet.is_some() {
        true => Box::pin(ask_fleet(worker, request, question)).await,
        false => ask_origin(worker, request, question).await,
    };
    if let Some(hash) = refreshes {
        record_refresh(worker, hash, &mut answered.sent);
    }
    answered
}

/// Asks the node of the fleet that has the object, and otherwise the origin.
async fn ask_fleet(worker: &Rc<Worker>, request: &Request, question: Question<'_>) -> Answered {
    let direction = direction_of(worker, request);
    if let Some(peer) = direction.peer
        && let Some(answered) = peer::ask(worker, request, &question, peer, direction.stores).await
    {
        return answered;
    }
    let mut answered = ask_origin(worker, request, question).await;
    if !direction.stores {
        answered.storing = Storing::Never;
    }
    answered
}

/// Sends a request to its origin.
async fn ask_origin(worker: &Rc<Worker>, request: &Request, question: Question<'_>) -> Answered {
    let outbound = Outbound {
        edge: worker.edge_info(request),
        request,
        method: question.method,
        conditions: question.conditions,
        peer: None,
    };
    let (request_time, sent_at) = (worker.now(), Instant::now());
    let origin = worker.origin(request);
    let mut sent = origin
        .send(&question.attempt, &outbound, question.upload)
        .await;
    let (exchange, fetch_time) = (worker.exchange(request_time), sent_at.elapsed());
    if let Ok((parts, body)) = &mut sent {
        change_origin_response(request, (parts, body), worker);
        hop_by_hop::strip_response(&mut parts.headers);
    }
    Answered {
        sent,
        exchange,
        fetch_time,
        storing: Storing::Fetched,
    }
}

/// Records that the refresh of a stale response has failed: without a response, with a status of 5xx, or, later,
/// because the body ended early.
fn record_refresh(
    worker: &Rc<Worker>,
    hash: KeyHash,
    sent: &mut Result<OriginResponse, OriginError>,
) {
    match sent {
        Ok((parts, body)) => {
            if parts.status.is_server_error() {
                worker.record_failed_refresh(hash, false);
            }
            let worker = Rc::clone(worker);
            body.on_failure(move |error| {
                worker.record_failed_refresh(hash, error.is_disconnect());
            });
        }
        Err(error) => worker.record_failed_refresh(hash, error.is_disconnect()),
    }
}

/// The origin's answer to a request for another protocol.
pub(super) enum SwitchAnswer {
    /// The connection has switched to this protocol.
    Switched(Box<Parts>, SwitchedConnection, HeaderValue),
    /// The origin answered with an ordinary response.
    Other(OriginResponse),
}

/// Sends a request for another protocol, and checks that the origin switches as the request asks.
pub(super) async fn ask_to_switch(
    worker: &Worker,
    request: &Request,
    upgrade: &UpgradeRequest,
) -> Result<SwitchAnswer, OriginError> {
    let outbound = Outbound {
        edge: worker.edge_info(request),
        request,
        method: &request.method,
        conditions: Conditions::Keep,
        peer: None,
    };
    match worker.origin(request).switch(&outbound).await? {
        SwitchResponse::Switched(mut parts, connection) => {
            // The check reads the hop-by-hop fields.
            let checked = upgrade.check(&request.headers, &parts.headers);
            let protocol = checked.map_err(|reason| failed(worker, reason))?;
            worker.counters.upgrades_switched.increment();
            change_origin_head(request, &mut parts.headers);
            hop_by_hop::strip_response(&mut parts.headers);
            Ok(SwitchAnswer::Switched(parts, connection, protocol))
        }
        // A successful response to a CONNECT would tell the client that the tunnel is open.
        SwitchResponse::Other((parts, _)) if upgrade.is_connect() && parts.status.is_success() => {
            Err(failed(worker, "it answered the handshake with a response"))
        }
        SwitchResponse::Other((mut parts, mut body)) => {
            worker.counters.upgrades_answered.increment();
            change_origin_response(request, (&mut parts, &mut body), worker);
            hop_by_hop::strip_response(&mut parts.headers);
            Ok(SwitchAnswer::Other((parts, body)))
        }
    }
}

/// Counts and returns the error that the origin has not switched protocols as the request asks.
fn failed(worker: &Worker, reason: &'static str) -> OriginError {
    let error = OriginError::UpgradeFailed { reason };
    worker.counters.upgrades_failed.increment();
    error.count(&worker.counters);
    error
}
