//! The origin that a gateway's configuration names. For the origin, the gateway parses HTTP/1.1 requests and
//! responses; for other targets it only copies bytes.
//!
//! Each link stream carries one request and its response. The gateway requests bodies without compression, for two
//! reasons. A small change of a body changes most of its compressed bytes, so compressed bodies cannot be deduplicated.
//! The link also compresses better than the origin, because it uses earlier bodies as dictionaries. Bodies that the
//! origin compresses anyway, and images, sound and video, bypass deduplication. Connections to the origin are reused.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self as client, SendRequest};
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::gateway::connect_to_target;
use crate::label::{HostPort, refusal_reason};
use crate::stream::{LinkStream, StreamControl};

/// The origin, and the connections to it.
#[derive(Debug)]
pub(crate) struct Origin {
    address: HostPort,
    /// True if the gateway requests bodies without compression (`Accept-Encoding: identity`).
    requests_identity: bool,
    /// The timeout of an attempt to connect.
    connect_timeout: Duration,
    /// The idle connections, with the time since which they are idle.
    idle: Mutex<Vec<(SendRequest<Incoming>, Instant)>>,
    /// The tasks of all connections.
    connections: Mutex<JoinSet<()>>,
}

type OriginResponse = Response<BoxBody<Bytes, hyper::Error>>;

impl Origin {
    pub(crate) fn new(
        address: HostPort,
        requests_identity: bool,
        connect_timeout: Duration,
    ) -> Self {
        Self {
            address,
            requests_identity,
            connect_timeout,
            idle: Mutex::default(),
            connections: Mutex::default(),
        }
    }

    /// Serves one exchange on a link stream.
    pub(crate) async fn serve(self: &Arc<Self>, stream: LinkStream) -> Result<(), hyper::Error> {
        let control = stream.control();
        let service = service_fn(|request: Request<Incoming>| {
            let control = control.clone();
            async move { Ok::<_, Infallible>(self.exchange(request, &control).await) }
        });
        server::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_HEAD_TIMEOUT)
            .max_headers(HEADERS_MAX)
            // Each stream carries one exchange, because `StreamControl::bypass` applies to all later bytes of
            // the stream.
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service)
            .await
    }

    /// Forwards a request to the origin and returns the response. If the origin does not answer, returns an error
    /// response.
    async fn exchange(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        control: &StreamControl,
    ) -> OriginResponse {
        remove_hop_by_hop(request.headers_mut());
        *request.version_mut() = Version::HTTP_11;
        if self.requests_identity {
            let identity = HeaderValue::from_static("identity");
            request.headers_mut().insert(ACCEPT_ENCODING, identity);
        }
        let response = match self.send(request).await {
            Ok(response) => response,
            Err(error) => {
                tracing::warn!(origin = %self.address, %error, "the origin did not answer");
                return error_response(&error);
            }
        };
        let (mut head, body) = response.into_parts();
        remove_hop_by_hop(&mut head.headers);
        if is_opaque(&head.headers) {
            control.bypass();
        }
        Response::from_parts(head, body.boxed())
    }

    /// Sends a request over an idle connection or a new one.
    async fn send(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
    ) -> io::Result<Response<Incoming>> {
        loop {
            let idle = self.take_idle();
            let was_idle = idle.is_some();
            let mut sender = match idle {
                Some(sender) => sender,
                None => self.connect().await?,
            };
            match sender.try_send_request(request).await {
                Ok(response) => {
                    self.keep_for_reuse(sender);
                    return Ok(response);
                }
                // The origin closed the idle connection before it read the request.
                Err(mut error) => match error.take_message().filter(|_| was_idle) {
                    Some(unsent) => request = unsent,
                    None => return Err(io::Error::other(error.into_error())),
                },
            }
        }
    }

    fn take_idle(&self) -> Option<SendRequest<Incoming>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((sender, since)) = idle.pop() {
            if sender.is_ready() && since.elapsed() < IDLE_TIMEOUT {
                return Some(sender);
            }
        }
        None
    }

    /// Adds a connection to the idle connections when its response has been read. hyper reports the connection
    /// as ready at that time.
    fn keep_for_reuse(self: &Arc<Self>, mut sender: SendRequest<Incoming>) {
        // The origin owns this task. A strong reference from the task to the origin would be a cycle.
        let origin = Arc::downgrade(self);
        let mut connections = self.connections();
        while connections.try_join_next().is_some() {}
        connections.spawn(async move {
            let ready = tokio::time::timeout(BODY_TIMEOUT, sender.ready()).await;
            if matches!(ready, Ok(Ok(())))
                && let Some(origin) = origin.upgrade()
            {
                let mut idle = origin.idle.lock().unwrap_or_else(PoisonError::into_inner);
                if idle.len() < IDLE_CONNECTIONS_MAX {
                    idle.push((sender, Instant::now()));
                }
            }
        });
    }

    async fn connect(&self) -> io::Result<SendRequest<Incoming>> {
        let connected = connect_to_target(&self.address, |_| true, self.connect_timeout).await;
        let tcp = connected.map_err(|reason| {
            let kind = match reason {
                refusal_reason::TIMEOUT => io::ErrorKind::TimedOut,
                _ => io::ErrorKind::ConnectionRefused,
            };
            io::Error::new(kind, refusal_reason::describe(reason))
        })?;
        let handshake = client::Builder::new()
            .max_headers(HEADERS_MAX)
            .handshake(TokioIo::new(tcp))
            .await;
        let (sender, connection) = handshake.map_err(io::Error::other)?;
        self.connections().spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to the origin closed");
            }
        });
        Ok(sender)
    }

    fn connections(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        let connections = self.connections.lock();
        connections.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the fields that belong to one connection (RFC 9110, section 7.6.1).
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let listed_names: Vec<String> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_owned())
        .collect();
    for name in listed_names {
        headers.remove(name.as_str());
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Returns true if the content coding or the media type shows that the body is compressed.
fn is_opaque(headers: &HeaderMap) -> bool {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let has_coding =
        text(CONTENT_ENCODING).is_some_and(|coding| !coding.eq_ignore_ascii_case("identity"));
    let kind = text(CONTENT_TYPE).unwrap_or("").to_ascii_lowercase();
    let media = ["image/", "video/", "audio/", "font/woff"];
    // SVG is text; BMP and WAV are not compressed.
    let uncompressed = ["image/svg", "image/bmp", "audio/wav"];
    has_coding
        || (media.iter().any(|media| kind.starts_with(media))
            && !uncompressed
                .iter()
                .any(|kind_prefix| kind.starts_with(kind_prefix)))
}

fn error_response(error: &io::Error) -> OriginResponse {
    let status = match error.kind() {
        io::ErrorKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    };
    let text = Full::new(Bytes::from_static(
        b"the gateway got no answer from the origin\n",
    ));
    let mut response = Response::new(text.map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    response
}

/// The highest number of header fields of a request or response.
const HEADERS_MAX: usize = 256;

/// The timeout until the head of the request has been received.
const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The highest number of idle connections to the origin.
const IDLE_CONNECTIONS_MAX: usize = 64;

/// The time after which an idle connection is not used again. Most servers have a longer idle timeout.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// If a response body takes longer than this time, its connection is not reused.
const BODY_TIMEOUT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let name = http::HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        pairs.collect()
    }

    #[test]
    fn compressed_bodies_bypass_deduplication() {
        for (name, value, opaque) in [
            ("content-type", "text/html", false),
            ("content-type", "application/octet-stream", false),
            ("content-type", "Image/PNG", true),
            ("content-type", "image/svg+xml", false),
            ("content-type", "video/mp4", true),
            ("content-encoding", "gzip", true),
            ("content-encoding", "identity", false),
        ] {
            assert_eq!(is_opaque(&headers(&[(name, value)])), opaque, "{value}");
        }
    }

    #[test]
    fn connection_fields_are_not_forwarded() {
        let mut given = headers(&[
            ("connection", "close, x-mine"),
            ("x-mine", "1"),
            ("transfer-encoding", "chunked"),
            ("x-yours", "2"),
        ]);
        remove_hop_by_hop(&mut given);
        assert_eq!(given, headers(&[("x-yours", "2")]));
    }
}
