//! One request: reads its head, lets the request path serve it, and sends the response.

use std::rc::Rc;

use bytes::BytesMut;
use edgeward_h3::{Error, ErrorCode, PRIORITY, Priority, RequestStream, StreamId};
use http::{StatusCode, Version};
use http_body::Body as _;
use quinn::{RecvStream, SendStream};

use super::request_reader::{ReadFault, RequestReader};
use super::responder::Responder;
use super::state::Http3;
use super::tunnel::TunnelStream;
use crate::client::admission::{RefusalCounters, admit};
use crate::exchange::RequestBody;
use crate::exchange::canonical::RawHead;
use crate::path;

/// Serves the request of a stream.
pub(super) async fn run(
    http3: Rc<Http3>,
    id: StreamId,
    parser: RequestStream,
    sending: SendStream,
    receiving: RecvStream,
) {
    let _held = http3.conn().holding(REQUEST_BYTES);
    let mut responder = Responder::new(&http3, id, sending);
    let mut reader = RequestReader::new(&http3, receiving, parser);
    let timeout = http3.worker().config().limits.request_head_timeout;
    let head = match reader.head(timeout).await {
        Ok(head) => head,
        Err(fault) => return refuse(&http3, responder, reader, &fault).await,
    };
    if head.headers.contains_key(&PRIORITY) {
        let priority = Priority::default().with_field(&head.headers);
        let mut state = http3.state.borrow_mut();
        state.priorities().set_from_request(id, priority);
    }
    let fault = reader.fault();
    let is_tunnel = head.protocol.is_some();
    let mut tunnel_reader = None;
    let serving = {
        let worker = http3.worker();
        let mut raw = RawHead::new(head.method, head.uri, Version::HTTP_3, head.headers);
        raw.has_unsized_content =
            !is_tunnel && !reader.is_end_stream() && head.content_length.is_none();
        raw.connect_protocol = head.protocol;
        let counters = RefusalCounters::of_h3(&worker.counters);
        match admit(&worker, &http3.client, &raw, &counters) {
            Ok(charge) => {
                raw.charge = Some(charge);
                let body = match is_tunnel {
                    true => {
                        tunnel_reader = Some(reader);
                        None
                    }
                    false => Some(RequestBody::new(reader)),
                };
                path::serve(&worker, &http3.client, raw, body, None)
            }
            Err(refusal) => path::refuse(&worker, &http3.client, raw, &refusal),
        }
    };
    let mut response = tokio::select! {
        biased;
        response = serving.response() => response,
        () = responder.cancelled() => return responder.set_cancelled(),
    };
    match fault.get() {
        Some(ErrorCode::H3_REQUEST_CANCELLED) => return responder.set_cancelled(),
        Some(code) => return responder.set_violated(code),
        None => {}
    }
    if let Some(reader) = tunnel_reader
        && let Some(tunnel) = response.body_mut().take_tunnel()
    {
        let begin_request = || http3.conn().begin_request();
        let (in_flight, until_end) = (begin_request(), begin_request());
        let (parts, _body) = response.into_parts();
        let sent = responder.send_tunnel_head(parts.status, parts.headers);
        if let Err(fault) = sent.await {
            return responder.end(Err(fault)).await;
        }
        let mut stream = TunnelStream::new(reader, responder);
        tunnel.run(&mut stream, BytesMut::new(), in_flight).await;
        return stream.end(until_end).await;
    }
    let sent = responder.send(response).await;
    match fault.get() {
        Some(code) if sent.is_err() => responder.set_violated(code),
        _ => responder.end(sent).await,
    }
}

/// Ends a request whose head could not be read.
async fn refuse(
    http3: &Http3,
    mut responder: Responder,
    mut reader: RequestReader,
    fault: &ReadFault,
) {
    let peer = http3.client.peer;
    let status = match fault {
        ReadFault::Cancelled => return responder.set_cancelled(),
        ReadFault::Refused(Error::Connection(error)) => return http3.fail(*error),
        ReadFault::Refused(Error::Stream(error)) => {
            tracing::debug!(%peer, %error, "an HTTP/3 request was refused");
            // A response would hide from the client that the request is malformed.
            if error.status != Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE) {
                responder.set_violated(error.code);
                return reader.stop(error.code);
            }
            responder.set_code(error.code);
            http3.worker().counters.h3_refused_fields.increment();
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
        }
        ReadFault::Late => StatusCode::REQUEST_TIMEOUT,
    };
    http3
        .worker()
        .record_unread(&http3.client, status, Version::HTTP_3);
    reader.stop(ErrorCode::H3_NO_ERROR);
    let sent = responder.send_status(status).await;
    responder.end(sent).await;
}

/// The memory of a request: its task with the heads of request and response, and its stream in the transport.
const REQUEST_BYTES: u64 = 4 << 10;
