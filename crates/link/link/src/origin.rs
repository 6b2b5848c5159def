//! The origin that a gateway's configuration names. For the origin, the gateway parses HTTP/1.1 requests and
//! responses; for other targets it only copies bytes.
//!
//! Each link stream carries one request and its response. The gateway requests bodies without compression, for two
//! reasons. A small change of a body changes most of its compressed bytes, so compressed bodies cannot be deduplicated.
//! The link also compresses better than the origin, because it uses earlier bodies as dictionaries. Bodies that the
//! origin compresses anyway, and images, sound and video, bypass deduplication. Connections to the origin are reused.
//!
//! A request for an upgrade, such as a WebSocket, is forwarded with its `Upgrade` field. If the origin answers 101, the
//! bytes of both directions are copied until one of them ends.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, UPGRADE,
};
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self as client, SendRequest};
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::gateway::connect_to_target;
use crate::label::{HostPort, refusal_reason};
use crate::origin_tls::OriginTls;
use crate::stream::{LinkStream, StreamControl};

/// The origin, and the connections to it.
#[derive(Debug)]
pub(crate) struct Origin {
    address: HostPort,
    /// The TLS client of an `https` origin.
    tls: Option<OriginTls>,
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
        tls: Option<OriginTls>,
        requests_identity: bool,
        connect_timeout: Duration,
    ) -> Self {
        Self {
            address,
            tls,
            requests_identity,
            connect_timeout,
            idle: Mutex::default(),
            connections: Mutex::default(),
        }
    }

    /// Serves one exchange on a link stream.
    pub(crate) async fn serve(self: &Arc<Self>, stream: LinkStream) -> Result<(), hyper::Error> {
        let control = stream.control();
        let tunnel = Tunnel::default();
        let service = service_fn(|request: Request<Incoming>| {
            let (control, tunnel) = (control.clone(), &tunnel);
            async move { Ok::<_, Infallible>(self.exchange(request, &control, tunnel).await) }
        });
        server::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_HEAD_TIMEOUT)
            .max_headers(HEADERS_MAX)
            // Each stream carries one exchange, because `StreamControl::bypass` applies to all later bytes of
            // the stream.
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
            .await?;
        tunnel.run().await
    }

    /// Forwards a request to the origin and returns the response. If the origin does not answer, returns an error
    /// response.
    async fn exchange(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        control: &StreamControl,
        tunnel: &Tunnel,
    ) -> OriginResponse {
        let upgrade = requested_upgrade(request.headers());
        let client = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        remove_hop_by_hop(request.headers_mut());
        if let Some(protocol) = upgrade {
            set_upgrade(request.headers_mut(), protocol);
        }
        *request.version_mut() = Version::HTTP_11;
        if self.requests_identity {
            let identity = HeaderValue::from_static("identity");
            request.headers_mut().insert(ACCEPT_ENCODING, identity);
        }
        let mut response = match self.send(request).await {
            Ok(response) => response,
            Err(error) => {
                tracing::warn!(origin = %self.address, %error, "the origin did not answer");
                if let Some(client) = client {
                    tunnel.set(client, None);
                }
                return error_response(&error);
            }
        };
        let is_switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let protocol = requested_upgrade(response.headers());
        let origin = is_switched.then(|| hyper::upgrade::on(&mut response));
        let (mut head, body) = response.into_parts();
        remove_hop_by_hop(&mut head.headers);
        match (client, origin, protocol) {
            (Some(client), Some(origin), Some(protocol)) => {
                set_upgrade(&mut head.headers, protocol);
                tunnel.set(client, Some(origin));
            }
            (_, Some(_), _) => {
                // RFC 9110, section 7.8: a server must not switch to a protocol that was not requested.
                tracing::warn!(origin = %self.address, "the origin switched protocols without a request");
                return error_response(&io::ErrorKind::InvalidData.into());
            }
            (Some(client), None, _) => tunnel.set(client, None),
            (None, None, _) => {}
        }
        if let Some(content_type) = content_type(&head.headers) {
            control.set_content_type(&content_type);
        }
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
                    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                        self.keep_for_reuse(sender);
                    }
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
        match &self.tls {
            None => self.speak(tcp).await,
            Some(tls) => {
                let connector = TlsConnector::from(tls.config());
                let connect = connector.connect(OriginTls::name(&self.address)?, tcp);
                let connected = tokio::time::timeout(self.connect_timeout, connect).await;
                self.speak(connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?)
                    .await
            }
        }
    }

    /// Begins to speak HTTP/1.1 on a new connection.
    async fn speak(
        &self,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> io::Result<SendRequest<Incoming>> {
        let handshake = client::Builder::new()
            .max_headers(HEADERS_MAX)
            .handshake(TokioIo::new(io))
            .await;
        let (sender, connection) = handshake.map_err(io::Error::other)?;
        self.connections().spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
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

/// The upgraded connections of an exchange: that of the client, if it requested an upgrade, and that of the origin, if
/// it has switched protocols.
#[derive(Debug, Default)]
struct Tunnel(Mutex<Option<(OnUpgrade, Option<OnUpgrade>)>>);

impl Tunnel {
    fn set(&self, client: OnUpgrade, origin: Option<OnUpgrade>) {
        let mut upgrades = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *upgrades = Some((client, origin));
    }

    /// Copies bytes in both directions until both have ended or one has failed. Returns at once if the exchange was not
    /// upgraded.
    async fn run(self) -> Result<(), hyper::Error> {
        let upgrades = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some((client, origin)) = upgrades else {
            return Ok(());
        };
        let Some(origin) = origin else {
            // hyper returns the connection of a request for an upgrade without ending it, whatever the response is.
            // Dropping it would reset the stream.
            if let Ok(client) = client.await {
                _ = TokioIo::new(client).shutdown().await;
            }
            return Ok(());
        };
        let (client, origin) = (client.await?, origin.await?);
        let (mut client, mut origin) = (TokioIo::new(client), TokioIo::new(origin));
        let copied = tokio::io::copy_bidirectional(&mut client, &mut origin).await;
        if let Err(error) = copied {
            tracing::debug!(%error, "upgraded connection aborted");
        }
        Ok(())
    }
}

/// Returns the protocol to which a request or response upgrades its connection (RFC 9110, section 7.8).
fn requested_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let protocol = headers.get(UPGRADE)?;
    let mut options = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    let is_upgrade = options.any(|option| option.trim().eq_ignore_ascii_case("upgrade"));
    is_upgrade.then(|| protocol.clone())
}

fn set_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
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

/// Returns the media type for the counters, without parameters, and with the content coding if there is one.
fn content_type(headers: &HeaderMap) -> Option<String> {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let media_type = text(CONTENT_TYPE)?.split(';').next()?.trim();
    let mut name = media_type.to_ascii_lowercase();
    if let Some(coding) = text(CONTENT_ENCODING).filter(|coding| !coding.is_empty()) {
        name = format!("{name} ({})", coding.to_ascii_lowercase());
    }
    name.truncate(TYPE_BYTES_MAX);
    Some(name).filter(|name| !name.is_empty())
}

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

/// The longest name of a content type in the counters. `to_str` returns only ASCII, so it can be cut anywhere.
const TYPE_BYTES_MAX: usize = 80;

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
    fn content_types_are_counted_without_parameters() {
        for (fields, name) in [
            (
                &[("content-type", "Text/HTML; charset=utf-8")][..],
                Some("text/html"),
            ),
            (
                &[("content-type", "text/css"), ("content-encoding", "GZIP")],
                Some("text/css (gzip)"),
            ),
            (&[("content-type", "")], None),
            (&[("content-type", "; x=y")], None),
            (&[], None),
        ] {
            assert_eq!(
                content_type(&headers(fields)).as_deref(),
                name,
                "{fields:?}"
            );
        }
        let long: &'static str = "x".repeat(200).leak();
        let name = content_type(&headers(&[("content-type", long)]));
        assert_eq!(name.map(|name| name.len()), Some(TYPE_BYTES_MAX));
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
