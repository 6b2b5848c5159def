//! Requests the cache has no part in: streamed to the origin, the answer streamed back.

use std::rc::Rc;

use edgeward_semantics::{CacheStatus, Forward, hop_by_hop};
use http::header::{CACHE_STATUS, CONNECTION, EXPECT, HeaderValue};
use http::response::Parts;
use http::{Method, Response, Version};
use hyper::body::{Body as _, Incoming};

use super::deliver::Reply;
use super::invalidate;
use crate::base::error_chain::ErrorChain;
use crate::exchange::{Refusal, Request};
use crate::origin::{Attempt, Conditions, OriginBody, OriginError, Outbound, Upload};
use crate::path::body::{EdgeBody, Source};

/// Sends the request on as it is.
pub(super) async fn pass(
    reply: Reply,
    request: Rc<Request>,
    incoming: Option<Incoming>,
    why: Forward,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    match why {
        Forward::Method => worker.counters.method.increment(),
        _ => worker.counters.bypass.increment(),
    }
    pass_counted(reply, request, incoming, why).await
}

/// The same, for a request whose outcome is counted already.
pub(super) async fn pass_counted(
    reply: Reply,
    request: Rc<Request>,
    incoming: Option<Incoming>,
    why: Forward,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    let (upload, attempt) = match upload(&reply, &request, incoming).await {
        Ok(upload) => upload,
        Err(error) => return failed(reply, &error, CacheStatus::forward(why)),
    };
    let progress = attempt.upload.clone();
    let sent = if invalidate::is_unsafe(&request.method) {
        let conn = Rc::clone(reply.in_flight.conn());
        let (worker, request) = (Rc::clone(&worker), Rc::clone(&request));
        Box::pin(invalidate::send(worker, request, conn, attempt, upload)).await
    } else {
        let outbound = Outbound {
            hop: worker.hop(),
            request: &request,
            method: &request.method,
            conditions: Conditions::Keep,
        };
        worker.origin.send(&attempt, &outbound, upload).await
    };
    match sent {
        Ok((mut parts, body)) => {
            hop_by_hop::strip_response(&mut parts.headers);
            if progress.is_some_and(|upload| upload.is_refused()) {
                worker.counters.expectations_refused.increment();
                // RFC 9110 §10.1.1: the end of the body is unknown, and so is the start of a next request.
                let close = HeaderValue::from_static("close");
                parts.headers.insert(CONNECTION, close);
                reply.in_flight.conn().linger();
            }
            stripped(reply, &request, *parts, body, CacheStatus::forward(why))
        }
        Err(error) => failed(reply, &error, CacheStatus::forward(why)),
    }
}

/// The origin's response, without the fields of the connection it came by.
pub(super) fn stripped(
    reply: Reply,
    request: &Request,
    parts: Parts,
    body: Box<OriginBody>,
    mut cache_status: CacheStatus,
) -> Response<EdgeBody> {
    let Parts {
        status,
        mut headers,
        ..
    } = parts;
    cache_status.fwd_status = Some(status.as_u16());
    headers.append(CACHE_STATUS, reply.worker.cache_status(&cache_status));
    let source = Source::Origin(body);
    reply.respond(request, status, headers, source, &cache_status)
}

/// The error a client gets instead of a response.
pub(super) fn failed(
    reply: Reply,
    error: &OriginError,
    cache_status: CacheStatus,
) -> Response<EdgeBody> {
    tracing::debug!(error = %ErrorChain(error), "the origin did not answer");
    reply.refuse(&Refusal {
        status: error.status(),
        cache_status: Some(cache_status.with_detail(error.detail())),
        text: error.to_string().into(),
        close: error.is_upload_error(),
    })
}

async fn upload(
    reply: &Reply,
    request: &Request,
    incoming: Option<Incoming>,
) -> Result<(Upload, Attempt), OriginError> {
    let Some(incoming) = incoming.filter(|incoming| !incoming.is_end_stream()) else {
        let attempt = Attempt {
            repeatable: is_idempotent(&request.method),
            upload: None,
            was_sent: None,
        };
        return Ok((Upload::Empty, attempt));
    };
    let conn = Rc::clone(reply.in_flight.conn());
    let origin = &reply.worker.origin;
    let (mut stream, progress) = Upload::stream(incoming, origin.uploads(), conn, request.peer);
    let expects = expects_continue(request) && origin.reports_interims();
    match expects.then(|| origin.uploads().unfinished().begin(request.peer.ip())) {
        Some(Some(unfinished)) => stream.expect_continue(unfinished),
        asked => {
            if asked.is_some() {
                origin.uploads().unfinished().record_kept_upload();
            }
            stream.buffer().await?;
        }
    }
    let attempt = Attempt {
        repeatable: false,
        upload: Some(progress),
        was_sent: None,
    };
    Ok((Upload::Stream(stream), attempt))
}

/// Returns true if the client waits for `100 Continue` (RFC 9110 §10.1.1). HTTP/1.0 has no expectations.
fn expects_continue(request: &Request) -> bool {
    let expectation = request.headers.get(EXPECT);
    request.version >= Version::HTTP_11
        && expectation.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// RFC 9110 §9.2.2.
fn is_idempotent(method: &Method) -> bool {
    method.is_idempotent()
}
