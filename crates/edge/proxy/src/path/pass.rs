//! Requests that bypass the cache. Their bodies and their responses are streamed.

use std::rc::Rc;
use std::sync::Arc;

use edgeward_semantics::CacheStatus;
use http::header::{CACHE_STATUS, CONNECTION, CONTENT_TYPE, EXPECT, HeaderValue};
use http::response::Parts;
use http::{Response, Version};
use http_body::Body as _;

use super::ask::ask;
use super::body::{EdgeBody, Source};
use super::deliver::Reply;
use super::question::Question;
use crate::config::watch::RequestedObject;
use crate::exchange::{Request, RequestBody, RequestError};
use crate::observe::log::ErrorChain;
use crate::observe::spans::SampledRequest;
use crate::origin::{
    Attempt, Conditions, FilterTrailers, OriginBody, OriginError, OriginResponse, Upload,
    UploadProgress,
};

/// Forwards a request with a safe method to the origin, and responds with the origin's response. `status` says why.
pub(super) async fn pass(
    mut reply: Reply,
    request: Rc<Request>,
    incoming: Option<RequestBody>,
    status: CacheStatus,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    let (upload, attempt) = match upload(&reply, &request, incoming).await {
        Ok(upload) => upload,
        Err(error) => return refuse(reply, &error, status),
    };
    let progress = attempt.upload.clone();
    let question = Question {
        method: &request.method,
        conditions: Conditions::Keep,
        attempt,
        upload,
        refreshes: None,
        may_ask_peer: progress.is_none(),
    };
    reply.observation.trace(SampledRequest::begin_fetch);
    let answered = ask(&worker, &request, question).await;
    reply.observation.trace(SampledRequest::end_fetch);
    let progress = progress.as_deref();
    finish(reply, &request, answered.sent, progress, status)
}

/// Responds with the origin's response to a request that was passed, or with the error of the exchange.
pub(super) fn finish(
    reply: Reply,
    request: &Request,
    sent: Result<OriginResponse, OriginError>,
    progress: Option<&UploadProgress>,
    status: CacheStatus,
) -> Response<EdgeBody> {
    let (mut parts, body) = match sent {
        Ok(response) => response,
        Err(error) => return refuse(reply, &error, status),
    };
    if progress.is_some_and(UploadProgress::is_refused) {
        reply.worker.counters.expectations_refused.increment();
        // RFC 9110 §10.1.1: the client may still send the body, so the start of the next request is unknown.
        let close = HeaderValue::from_static("close");
        parts.headers.insert(CONNECTION, close);
        reply.in_flight.conn().set_lingers();
    }
    respond(reply, request, *parts, body, status)
}

/// Responds with the origin's response.
pub(super) fn respond(
    mut reply: Reply,
    request: &Request,
    parts: Parts,
    body: Box<OriginBody>,
    mut cache_status: CacheStatus,
) -> Response<EdgeBody> {
    let Parts {
        status,
        mut headers,
        mut extensions,
        ..
    } = parts;
    reply.set_object(|| extensions.remove::<RequestedObject>());
    cache_status.fwd_status = Some(status.as_u16());
    headers.append(CACHE_STATUS, reply.worker.cache_status(&cache_status));
    let source = Source::Origin(body);
    reply.respond(request, status, headers, source, &cache_status)
}

/// Responds with the status and the text of an error of the exchange with the origin.
pub(super) fn refuse(
    reply: Reply,
    error: &OriginError,
    cache_status: CacheStatus,
) -> Response<EdgeBody> {
    tracing::debug!(error = %ErrorChain(error), "the exchange with the origin failed");
    let cache_status = cache_status.with_detail(error.detail());
    reply.refuse(&RequestError {
        close: error.is_upload_error(),
        ..RequestError::after_lookup(error.status(), cache_status, error.to_string())
    })
}

/// Returns the body to send to the origin. Its start is buffered, with two exceptions:
///
/// - The client waits for `100 Continue`, the origin uses HTTP/1.1, and the number of unfinished uploads is below its
///   limits.
/// - The body has the messages of a gRPC call, and the origin uses HTTP/2. Either peer may wait for a message of the
///   other one, and the call occupies no connection of its own.
pub(super) async fn upload(
    reply: &Reply,
    request: &Request,
    incoming: Option<RequestBody>,
) -> Result<(Upload, Attempt), OriginError> {
    let Some(incoming) = incoming.filter(|incoming| !incoming.is_end_stream()) else {
        let attempt = Attempt::without_body(request.method.is_idempotent());
        return Ok((Upload::Empty, attempt));
    };
    let conn = Rc::clone(reply.in_flight.conn());
    let origin = reply.worker.origin(request);
    let (mut stream, progress) = Upload::stream(
        incoming,
        origin.uploads(),
        conn,
        request.peer,
        request.settings().request_body_bytes_max,
        filter_trailers(reply, request),
    );
    // hyper's client reports interim responses only over HTTP/1.1.
    let expects = expects_continue(request) && !origin.is_h2();
    if is_grpc(request) && origin.is_h2() {
        stream.set_paced_by_calls();
    } else {
        match expects.then(|| origin.uploads().unfinished().begin(request.peer.ip())) {
            Some(Some(unfinished)) => stream.expect_continue(unfinished),
            expectation => {
                if expectation.is_some() {
                    origin.uploads().unfinished().record_kept_upload(); // the limits are reached
                }
                stream.buffer().await?;
            }
        }
    }
    let attempt = Attempt {
        repeatable: false,
        upload: Some(progress),
        was_sent: None,
    };
    Ok((Upload::Stream(stream), attempt))
}

/// Returns the function that removes trailers which the origin must not get.
fn filter_trailers(reply: &Reply, request: &Request) -> FilterTrailers {
    let shared = Arc::clone(&reply.worker.shared);
    let settings = request.settings.clone();
    Box::new(move |trailers| {
        let stated = settings.as_ref().map(|settings| &settings.stated);
        let only = stated
            .and_then(|stated| stated.request_only.value())
            .map(|only| &**only);
        let filter = &shared.canonicaliser.field_filter;
        filter.apply_to_trailers(only, trailers);
    })
}

/// Returns true for a gRPC call: its media type begins with `application/grpc`, for example `application/grpc+proto`.
fn is_grpc(request: &Request) -> bool {
    const PREFIX: &[u8] = b"application/grpc";
    let media_type = request.headers.get(CONTENT_TYPE);
    media_type
        .and_then(|value| value.as_bytes().get(..PREFIX.len()))
        .is_some_and(|prefix| prefix.eq_ignore_ascii_case(PREFIX))
}

/// Returns true if the client waits for `100 Continue` (RFC 9110 §10.1.1). HTTP/1.0 has no expectations.
fn expects_continue(request: &Request) -> bool {
    let expectation = request.headers.get(EXPECT);
    request.version >= Version::HTTP_11
        && expectation.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}
