//! Requests the cache has no part in: streamed to the origin, the answer streamed back.

use std::rc::Rc;

use edgeward_semantics::{CacheStatus, Forward, hop_by_hop};
use http::header::{CACHE_STATUS, CONNECTION, EXPECT, HeaderMap, HeaderValue};
use http::response::Parts;
use http::{Method, Response, Version};
use hyper::body::{Body as _, Incoming};

use super::deliver::Refusal;
use super::outbound::{Conditions, Outbound};
use super::{Ask, Reply, Upload, invalidate};
use crate::body::{EdgeBody, Source};
use crate::origin::{Attempt, Fields, Lines, OriginBody, OriginError};

/// Sends the request on as it is.
pub(super) async fn pass(
    reply: Reply,
    ask: Rc<Ask>,
    incoming: Option<Incoming>,
    why: Forward,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    match why {
        Forward::Method => worker.counters.method.one(),
        _ => worker.counters.bypass.one(),
    }
    pass_counted(reply, ask, incoming, why).await
}

/// The same, for a request whose outcome is counted already.
pub(super) async fn pass_counted(
    reply: Reply,
    ask: Rc<Ask>,
    incoming: Option<Incoming>,
    why: Forward,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    let (upload, attempt) = match upload(&reply, &ask, incoming).await {
        Ok(upload) => upload,
        Err(error) => return failed(reply, &error, CacheStatus::forward(why)),
    };
    let progress = attempt.upload.clone();
    let sent = if invalidate::is_unsafe(&ask.method) {
        let conn = Rc::clone(reply.in_flight.conn());
        let (worker, ask) = (Rc::clone(&worker), Rc::clone(&ask));
        Box::pin(invalidate::send(worker, ask, conn, attempt, upload)).await
    } else {
        let outbound = Outbound {
            hop: worker.hop(),
            ask: &ask,
            method: &ask.method,
            conditions: Conditions::Keep,
        };
        worker.origin.send(&attempt, &outbound, upload).await
    };
    match sent {
        Ok((Fields::Map(mut parts), body)) => {
            hop_by_hop::strip_response(&mut parts.headers);
            if progress.is_some_and(|upload| upload.is_refused()) {
                worker.counters.expectations_refused.one();
                // RFC 9110 §10.1.1: the end of the body is unknown, and so is the start of a next request.
                let close = HeaderValue::from_static("close");
                parts.headers.insert(CONNECTION, close);
                reply.in_flight.conn().linger();
            }
            stripped(reply, &ask, *parts, body, CacheStatus::forward(why))
        }
        Ok((Fields::Lines(head), body)) => {
            lines(reply, &ask, head, body, CacheStatus::forward(why))
        }
        Err(error) => failed(reply, &error, CacheStatus::forward(why)),
    }
}

/// The origin's response, without the fields of the connection it came by.
pub(super) fn stripped(
    reply: Reply,
    ask: &Ask,
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
    reply.respond(ask, status, headers, source, &cache_status)
}

/// The same of a response whose fields nobody had to understand.
pub(super) fn lines(
    reply: Reply,
    ask: &Ask,
    mut head: Lines,
    mut body: Box<OriginBody>,
    mut cache_status: CacheStatus,
) -> Response<EdgeBody> {
    let status = head.status;
    cache_status.fwd_status = Some(status.as_u16());
    let value = reply.worker.cache_status(&cache_status);
    head.push(b"cache-status", value.as_bytes());
    body.bring(head);
    let source = Source::Origin(body);
    reply.respond(ask, status, HeaderMap::new(), source, &cache_status)
}

/// The error a client gets instead of a response.
pub(super) fn failed(
    reply: Reply,
    error: &OriginError,
    cache_status: CacheStatus,
) -> Response<EdgeBody> {
    tracing::debug!(error = %Chain(error), "the origin did not answer");
    reply.refuse(&Refusal {
        status: error.status(),
        cache_status: Some(cache_status.with_detail(error.detail())),
        text: error.to_string().into(),
        close: error.is_of_upload(),
    })
}

async fn upload(
    reply: &Reply,
    ask: &Ask,
    incoming: Option<Incoming>,
) -> Result<(Upload, Attempt), OriginError> {
    let Some(incoming) = incoming.filter(|incoming| !incoming.is_end_stream()) else {
        let attempt = Attempt {
            repeatable: is_idempotent(&ask.method),
            upload: None,
            was_sent: None,
        };
        return Ok((Upload::Empty, attempt));
    };
    let conn = Rc::clone(reply.in_flight.conn());
    let (mut stream, progress) = Upload::stream(incoming, &reply.worker, conn, ask.peer);
    let origin = &reply.worker.origin;
    let expects = expects_continue(ask) && origin.reports_interims();
    match expects.then(|| origin.begin_unfinished(ask.peer.ip())) {
        Some(Some(unfinished)) => stream.expect_continue(unfinished),
        asked => {
            if asked.is_some() {
                origin.note_kept_upload();
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
fn expects_continue(ask: &Ask) -> bool {
    let expectation = ask.headers.get(EXPECT);
    ask.version >= Version::HTTP_11
        && expectation.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// RFC 9110 §9.2.2.
fn is_idempotent(method: &Method) -> bool {
    method.is_idempotent()
}

/// An error and all that is behind it, in one line.
pub(crate) struct Chain<'a>(pub(crate) &'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}
