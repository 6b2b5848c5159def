//! The decision to store a response: the rules of HTTP, and the check of the path's extension.

use edgeward_semantics::{
    Exchange, LifetimeSource, NotStoredReason, Verdict, contradicted_extension, on_response,
};
use http::{HeaderMap, Method, StatusCode};

use crate::exchange::Request;
use crate::path::worker::Worker;

/// Decides if the response to a GET is stored.
pub(super) fn decide(
    worker: &Worker,
    request: &Request,
    status: StatusCode,
    response: &HeaderMap,
    exchange: Exchange,
) -> Verdict {
    let rules = &request.settings().caching;
    let verdict = on_response(
        rules,
        &Method::GET,
        &request.headers,
        status,
        response,
        exchange,
    );
    check_extension(worker, request, status, response, verdict)
}

/// Refuses a storable response whose media type contradicts the extension of the path (web cache deception).
pub(super) fn check_extension(
    worker: &Worker,
    request: &Request,
    status: StatusCode,
    response: &HeaderMap,
    verdict: Verdict,
) -> Verdict {
    let Verdict::Store(storable) = &verdict else {
        return verdict;
    };
    let is_checked = match request.settings().stated.check_extension {
        Some(is_checked) => is_checked,
        None => !is_stated_by_origin(storable.source),
    };
    if !is_checked
        || !status.is_success()
        || contradicted_extension(request.path(), response).is_none()
    {
        return verdict;
    }
    worker.counters.extension_mismatches.increment();
    Verdict::Refuse(NotStoredReason::Extension)
}

/// Returns true if the origin states how long the response may be stored. An origin that does so has most likely made
/// the response for all clients.
fn is_stated_by_origin(source: LifetimeSource) -> bool {
    match source {
        LifetimeSource::SMaxage | LifetimeSource::MaxAge | LifetimeSource::Expires => true,
        LifetimeSource::Replaced
        | LifetimeSource::Unstated
        | LifetimeSource::Heuristic
        | LifetimeSource::Nothing => false,
    }
}
