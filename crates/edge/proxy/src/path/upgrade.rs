//! Requests that ask for another protocol: `Upgrade` over HTTP/1.1, and extended CONNECT over HTTP/2 (RFC 8441).

use std::rc::Rc;

use edgeward_semantics::{CacheStatus, PassReason, hop_by_hop};
use http::header::{
    CACHE_STATUS, CONNECTION, CONTENT_LENGTH, HeaderValue, SEC_WEBSOCKET_ACCEPT, UPGRADE,
};
use http::{Response, StatusCode};

use super::body::{EdgeBody, Source};
use super::deliver::Reply;
use super::pass;
use super::rules::{change_origin_head, change_origin_response};
use super::tunnel::Tunnel;
use crate::exchange::{Request, UpgradeRequest};
use crate::observe::spans::SampledRequest;
use crate::origin::{Conditions, OriginError, Outbound, SwitchResponse};

/// Forwards the request. If the origin switches protocols, the body of the response is the [`Tunnel`], which the codec
/// takes. Otherwise the client gets the origin's response.
pub(super) async fn forward(
    mut reply: Reply,
    request: Rc<Request>,
    upgrade: UpgradeRequest,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    let origin = worker.origin(&request);
    let outbound = Outbound {
        edge: worker.edge_info(&request),
        request: &request,
        method: &request.method,
        conditions: Conditions::Keep,
    };
    let mut cache_status = PassReason::Upgrade.cache_status();
    reply.observation.trace(SampledRequest::begin_fetch);
    let sent = origin.switch(&outbound).await;
    reply.observation.trace(SampledRequest::end_fetch);
    let (mut parts, connection) = match sent {
        Ok(SwitchResponse::Switched(parts, connection)) => (parts, connection),
        // A successful response to a CONNECT would tell the client that the tunnel is open.
        Ok(SwitchResponse::Other((parts, _)))
            if upgrade.is_connect() && parts.status.is_success() =>
        {
            return fail(
                reply,
                "it answered the handshake with a response",
                cache_status,
            );
        }
        Ok(SwitchResponse::Other((mut parts, mut body))) => {
            worker.counters.upgrades_answered.increment();
            hop_by_hop::strip_response(&mut parts.headers);
            change_origin_response(&request, (&mut parts, &mut body), &worker);
            return pass::respond(reply, &request, *parts, body, cache_status);
        }
        Err(error) => return pass::refuse(reply, &error, cache_status),
    };
    let protocol = match upgrade.check(&request.headers, &parts.headers) {
        Ok(protocol) => protocol,
        Err(reason) => return fail(reply, reason, cache_status),
    };
    worker.counters.upgrades_switched.increment();
    hop_by_hop::strip_response(&mut parts.headers);
    change_origin_head(&request, &mut parts.headers);
    let mut headers = parts.headers;
    headers.remove(CONTENT_LENGTH); // RFC 9110 §8.6
    cache_status.fwd_status = Some(parts.status.as_u16());
    headers.append(CACHE_STATUS, worker.cache_status(&cache_status));
    let status = if upgrade.is_connect() {
        headers.remove(SEC_WEBSOCKET_ACCEPT);
        StatusCode::OK
    } else {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
        parts.status
    };
    let tunnel = Box::new(Tunnel::new(&worker, connection));
    reply.respond(
        &request,
        status,
        headers,
        Source::Tunnel(tunnel),
        &cache_status,
    )
}

/// Responds with 502, because the origin has not switched protocols as the request asks.
fn fail(reply: Reply, reason: &'static str, cache_status: CacheStatus) -> Response<EdgeBody> {
    let error = OriginError::UpgradeFailed { reason };
    let counters = &reply.worker.counters;
    counters.upgrades_failed.increment();
    error.count(counters);
    pass::refuse(reply, &error, cache_status)
}
