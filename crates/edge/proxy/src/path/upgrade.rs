//! Requests that ask for another protocol: `Upgrade` over HTTP/1.1, and extended CONNECT over HTTP/2 (RFC 8441).

use std::rc::Rc;

use edgeward_semantics::PassReason;
use http::header::{
    CACHE_STATUS, CONNECTION, CONTENT_LENGTH, HeaderValue, SEC_WEBSOCKET_ACCEPT, UPGRADE,
};
use http::{Response, StatusCode};

use super::ask::{SwitchAnswer, ask_to_switch};
use super::body::{EdgeBody, Source};
use super::deliver::Reply;
use super::pass;
use super::tunnel::Tunnel;
use crate::exchange::{Request, UpgradeRequest};
use crate::observe::spans::SampledRequest;

/// Forwards the request. If the origin switches protocols, the body of the response is the [`Tunnel`], which the codec
/// takes. Otherwise the client gets the origin's response.
pub(super) async fn forward(
    mut reply: Reply,
    request: Rc<Request>,
    upgrade: UpgradeRequest,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    let mut cache_status = PassReason::Upgrade.cache_status();
    reply.observation.trace(SampledRequest::begin_fetch);
    let answer = ask_to_switch(&worker, &request, &upgrade).await;
    reply.observation.trace(SampledRequest::end_fetch);
    let (parts, connection, protocol) = match answer {
        Ok(SwitchAnswer::Switched(parts, connection, protocol)) => (parts, connection, protocol),
        Ok(SwitchAnswer::Other((parts, body))) => {
            return pass::respond(reply, &request, *parts, body, cache_status);
        }
        Err(error) => return pass::refuse(reply, &error, cache_status),
    };
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
