//! Errors of requests to the origin, with text and status for the client. Errors caused by a client are not counted.

use std::error::Error;
use std::io;

use http::StatusCode;

use tokio_rustls::rustls;

use super::connect::HandshakeError;
use super::h1::H1Error;
use crate::observe::counters::Counters;

/// An error of a request to the origin.
///
/// The client gets the message, so the message contains neither the origin's address nor the system's error. The
/// system's error is the [`source`](Error::source).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum OriginError {
    /// The name of the origin has no known address.
    #[error("the name of the origin cannot be resolved")]
    Resolve { source: io::Error },
    /// The resolution of the name took too long.
    #[error("the name of the origin cannot be resolved in time")]
    ResolveTimeout,
    /// The connection failed: refused, unreachable or invalid certificate, or the link to the gateway is down.
    #[error("{}", connect_text(source))]
    Connect { source: io::Error },
    /// The connection took too long.
    #[error("the origin cannot be connected to in time")]
    ConnectTimeout,
    /// All connections of this worker were busy for too long, or too many requests waited for one.
    #[error("all connections to the origin are busy")]
    Busy,
    /// No server of the origin is usable, and the setting forbids to try one.
    #[error("no server of the origin is usable")]
    NoServer,
    /// The head of the response did not arrive in time.
    #[error("the origin did not answer in time")]
    FirstByteTimeout,
    /// No byte of the body arrived within the read timeout.
    #[error("the origin sent no byte of the body in time")]
    ReadTimeout,
    /// The response is not valid HTTP.
    #[error("the origin's response cannot be read")]
    HeadInvalid {
        source: Box<dyn Error + Send + Sync>,
    },
    /// The head of the response exceeds `head_bytes_max` or `headers_max`.
    #[error("the origin's response head is too large")]
    HeadTooLarge,
    /// The connection ended before the end of the response.
    #[error("the origin's response ended early")]
    Incomplete {
        source: Box<dyn Error + Send + Sync>,
    },
    /// TLS failed after the handshake of the edge. With TLS 1.3, a server that demands a certificate refuses the
    /// connection only then.
    #[error("the origin's TLS connection failed")]
    Tls {
        source: Box<dyn Error + Send + Sync>,
    },
    /// The origin answered 101, but does not use the protocol that the request asked for.
    #[error("the origin's answer about the protocol is not valid: {reason}")]
    UpgradeFailed { reason: &'static str },
    /// The tunnels of this worker, or of this client, have reached their limit.
    #[error("too many connections of other protocols are open")]
    TooManyTunnels,
    /// The client's upload failed, so the request was not sent completely.
    #[error("the request's body ended early")]
    Upload {
        source: Box<dyn Error + Send + Sync>,
    },
    /// The client's upload is larger than the limit.
    #[error("the request's body is larger than allowed")]
    UploadTooLarge,
    /// The client's upload was too slow.
    #[error("the request's body arrived too slowly")]
    UploadTooSlow,
}

/// The limit that the client's body exceeded.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum UploadLimit {
    /// The body is longer than the limit of its request.
    #[error("the request's body is larger than allowed")]
    Size,
    /// The body arrived more slowly than `upload_rate_min`.
    #[error("the request's body arrived too slowly")]
    Rate,
}

impl OriginError {
    /// Converts an error of hyper's client.
    pub(crate) fn from_hyper(error: hyper::Error) -> Self {
        if error.is_user() {
            return Self::from_upload(Box::new(error));
        }
        if error.is_parse_too_large() {
            return Self::HeadTooLarge;
        }
        if error.is_parse() {
            return Self::HeadInvalid {
                source: error.into(),
            };
        }
        Self::from_ended(error.into())
    }

    /// Converts the error of a connection that ended before the end of the response.
    fn from_ended(source: Box<dyn Error + Send + Sync>) -> Self {
        match tls_error_in(&*source).is_some() {
            true => Self::Tls { source },
            false => Self::Incomplete { source },
        }
    }

    /// Converts an error of the client's upload.
    pub(crate) fn from_upload(error: Box<dyn Error + Send + Sync>) -> Self {
        let first: &(dyn Error + 'static) = &*error;
        let mut causes = std::iter::successors(Some(first), |&e| e.source());
        match causes.find_map(|e| e.downcast_ref()) {
            Some(UploadLimit::Size) => Self::UploadTooLarge,
            Some(UploadLimit::Rate) => Self::UploadTooSlow,
            None => Self::Upload { source: error },
        }
    }

    /// Converts an error of [`h1`](super::h1).
    pub(super) fn from_h1(error: H1Error) -> Self {
        match error {
            H1Error::HeadTooLarge => Self::HeadTooLarge,
            H1Error::Timeout => Self::FirstByteTimeout,
            H1Error::Head(_) | H1Error::Framing(_) => Self::HeadInvalid {
                source: error.into(),
            },
            H1Error::Io(_) | H1Error::Closed => Self::from_ended(error.into()),
        }
    }

    /// Returns true if the client's upload failed.
    pub(crate) const fn is_upload_error(&self) -> bool {
        matches!(
            self,
            Self::Upload { .. } | Self::UploadTooLarge | Self::UploadTooSlow
        )
    }

    /// Returns true if the error shows that the server does not work: it does not count as healthy after several of
    /// them. An invalid response to one request does not, because clients could choose requests that cause it.
    pub(super) const fn is_failure_of_server(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::ConnectTimeout
            | Self::FirstByteTimeout
            | Self::Incomplete { .. }
            | Self::Tls { .. } => true,
            Self::Resolve { .. }
            | Self::ResolveTimeout
            | Self::Busy
            | Self::NoServer
            | Self::ReadTimeout
            | Self::HeadInvalid { .. }
            | Self::HeadTooLarge
            | Self::UpgradeFailed { .. }
            | Self::TooManyTunnels
            | Self::Upload { .. }
            | Self::UploadTooLarge
            | Self::UploadTooSlow => false,
        }
    }

    /// Returns true if the origin cannot be reached: RFC 9111 §4.2.4 calls the cache *disconnected*. An invalid
    /// response shows that the origin can be reached.
    pub(crate) const fn is_disconnect(&self) -> bool {
        match self {
            Self::Resolve { .. }
            | Self::ResolveTimeout
            | Self::Connect { .. }
            | Self::ConnectTimeout
            | Self::Busy
            | Self::NoServer
            | Self::FirstByteTimeout
            | Self::ReadTimeout
            | Self::Incomplete { .. }
            | Self::Tls { .. } => true,
            Self::HeadInvalid { .. }
            | Self::HeadTooLarge
            | Self::UpgradeFailed { .. }
            | Self::TooManyTunnels => false,
            Self::Upload { .. } | Self::UploadTooLarge | Self::UploadTooSlow => false,
        }
    }

    /// Returns the status for the client, if no head was sent to the client.
    pub(crate) fn status(&self) -> StatusCode {
        self.status_and_detail().0
    }

    /// Returns the `detail` of `Cache-Status` (RFC 9211 §2.8): an error type of `Proxy-Status` (RFC 9209 §2.3).
    pub(crate) fn detail(&self) -> &'static str {
        self.status_and_detail().1
    }

    fn status_and_detail(&self) -> (StatusCode, &'static str) {
        use StatusCode as S;
        match self {
            Self::Resolve { source } if source.kind() != io::ErrorKind::TimedOut => {
                (S::BAD_GATEWAY, "dns_error")
            }
            Self::Resolve { .. } | Self::ResolveTimeout => (S::GATEWAY_TIMEOUT, "dns_timeout"),
            Self::Connect { source } => connect_status_and_detail(source),
            Self::Tls { source } => {
                let error = tls_error_in(&**source);
                (
                    S::BAD_GATEWAY,
                    error.map_or("tls_protocol_error", tls_detail),
                )
            }
            Self::ConnectTimeout => (S::GATEWAY_TIMEOUT, "connection_timeout"),
            Self::Busy => (S::SERVICE_UNAVAILABLE, "connection_limit_reached"),
            Self::NoServer => (S::SERVICE_UNAVAILABLE, "destination_unavailable"),
            Self::FirstByteTimeout => (S::GATEWAY_TIMEOUT, "http_response_timeout"),
            Self::ReadTimeout => (S::GATEWAY_TIMEOUT, "connection_read_timeout"),
            Self::HeadInvalid { .. } => (S::BAD_GATEWAY, "http_protocol_error"),
            Self::HeadTooLarge => (S::BAD_GATEWAY, "http_response_header_section_size"),
            Self::Incomplete { .. } => (S::BAD_GATEWAY, "http_response_incomplete"),
            Self::UpgradeFailed { .. } => (S::BAD_GATEWAY, "http_upgrade_failed"),
            Self::TooManyTunnels => (S::SERVICE_UNAVAILABLE, "connection_limit_reached"),
            Self::Upload { .. } => (S::BAD_REQUEST, "http_request_error"),
            Self::UploadTooLarge => (S::PAYLOAD_TOO_LARGE, "http_request_too_large"), // not in RFC 9209
            Self::UploadTooSlow => (S::REQUEST_TIMEOUT, "http_request_error"),
        }
    }

    /// Counts the error, unless the client caused it.
    pub(crate) fn count(&self, counters: &Counters) {
        match self {
            Self::Resolve { .. } | Self::Connect { .. } => {
                counters.origin_connect_failed.increment();
            }
            Self::ResolveTimeout | Self::ConnectTimeout => {
                counters.origin_connect_timeout.increment();
            }
            Self::Busy => counters.origin_busy.increment(),
            Self::NoServer => counters.origin_no_server.increment(),
            Self::FirstByteTimeout => counters.origin_first_byte_timeout.increment(),
            Self::ReadTimeout => counters.origin_read_timeout.increment(),
            Self::HeadInvalid { .. } => counters.origin_head_invalid.increment(),
            Self::HeadTooLarge => counters.origin_head_too_large.increment(),
            Self::Incomplete { .. } | Self::Tls { .. } => counters.origin_incomplete.increment(),
            Self::UpgradeFailed { .. } => counters.origin_upgrade_failed.increment(),
            Self::TooManyTunnels
            | Self::Upload { .. }
            | Self::UploadTooLarge
            | Self::UploadTooSlow => {}
        }
    }
}

/// Returns the text of a connection that could not be opened. Only a [`Dial`](crate::Dial) returns `NotConnected`.
fn connect_text(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotConnected => "the link to the gateway of the origin is down",
        _ => "the origin cannot be connected to",
    }
}

/// Returns the status and the error type of RFC 9209 §2.3 for a connection that could not be opened.
fn connect_status_and_detail(error: &io::Error) -> (StatusCode, &'static str) {
    use StatusCode as S;
    use io::ErrorKind as K;
    if let Some(error) = tls_error_in(error) {
        return (S::BAD_GATEWAY, tls_detail(error));
    }
    let of_handshake = |inner: &(dyn Error + Send + Sync + 'static)| inner.is::<HandshakeError>();
    if error.get_ref().is_some_and(of_handshake) {
        return (S::BAD_GATEWAY, "tls_protocol_error");
    }
    match error.kind() {
        K::TimedOut => (S::GATEWAY_TIMEOUT, "connection_timeout"),
        K::NetworkUnreachable | K::HostUnreachable | K::AddrNotAvailable => {
            (S::BAD_GATEWAY, "destination_ip_unroutable")
        }
        K::UnexpectedEof | K::ConnectionReset | K::ConnectionAborted | K::BrokenPipe => {
            (S::BAD_GATEWAY, "connection_terminated")
        }
        _ => (S::BAD_GATEWAY, "connection_refused"),
    }
}

/// Returns the error of TLS among an error and its causes. An [`io::Error`] hides it from [`Error::source`].
fn tls_error_in<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut causes = std::iter::successors(Some(error), |&cause| {
        let inner = cause
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        match inner {
            Some(inner) => Some(inner as &(dyn Error + 'static)),
            None => cause.source(),
        }
    });
    causes.find_map(|cause| cause.downcast_ref())
}

/// Returns the error type of RFC 9209 §2.3 for an error of TLS.
fn tls_detail(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::AlertReceived(_) => "tls_alert_received",
        rustls::Error::InvalidCertificate(_)
        | rustls::Error::NoCertificatesPresented
        | rustls::Error::UnsupportedNameType
        | rustls::Error::InvalidCertRevocationList(_) => "tls_certificate_error",
        _ => "tls_protocol_error",
    }
}

#[cfg(test)]
mod tests {
    use rustls::{AlertDescription, CertificateError, InvalidMessage, PeerIncompatible};

    use super::*;

    fn wrapped(error: impl Error + Send + Sync + 'static) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }

    /// The client of an edge can distinguish a link that is down from an origin that is down.
    #[test]
    fn a_link_that_is_down_has_its_own_message() {
        for (kind, text) in [
            (
                io::ErrorKind::NotConnected,
                "the link to the gateway of the origin is down",
            ),
            (
                io::ErrorKind::ConnectionRefused,
                "the origin cannot be connected to",
            ),
        ] {
            let source = io::Error::from(kind);
            assert_eq!(OriginError::Connect { source }.to_string(), text);
        }
    }

    /// RFC 9209 §2.3. Method: each kind of error once, as the connector returns it.
    #[test]
    fn each_way_to_fail_has_its_own_error_type() {
        use rustls::Error as Tls;
        let connect = |source| OriginError::Connect { source };
        let resolve = |source| OriginError::Resolve { source };
        let kind = |kind| io::Error::from(kind);
        let unknown_ca = Tls::InvalidCertificate(CertificateError::UnknownIssuer);
        let other_name = Tls::InvalidCertificate(CertificateError::NotValidForName);
        let expired = Tls::InvalidCertificate(CertificateError::Expired);
        let old = Tls::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13);
        let plain = Tls::InvalidMessage(InvalidMessage::InvalidContentType);
        let alert = || Tls::AlertReceived(AlertDescription::CertificateRequired);
        let ended = |error| OriginError::from_h1(H1Error::Io(error));
        for (error, status, detail) in [
            (resolve(kind(io::ErrorKind::NotFound)), 502, "dns_error"),
            (resolve(io::Error::other("SERVFAIL")), 502, "dns_error"),
            (resolve(kind(io::ErrorKind::TimedOut)), 504, "dns_timeout"),
            (OriginError::ResolveTimeout, 504, "dns_timeout"),
            (
                connect(kind(io::ErrorKind::ConnectionRefused)),
                502,
                "connection_refused",
            ),
            (
                connect(kind(io::ErrorKind::NotFound)),
                502,
                "connection_refused",
            ),
            (
                connect(kind(io::ErrorKind::TimedOut)),
                504,
                "connection_timeout",
            ),
            (OriginError::ConnectTimeout, 504, "connection_timeout"),
            (
                connect(kind(io::ErrorKind::HostUnreachable)),
                502,
                "destination_ip_unroutable",
            ),
            (
                connect(kind(io::ErrorKind::ConnectionReset)),
                502,
                "connection_terminated",
            ),
            (connect(wrapped(unknown_ca)), 502, "tls_certificate_error"),
            (connect(wrapped(other_name)), 502, "tls_certificate_error"),
            (connect(wrapped(expired)), 502, "tls_certificate_error"),
            (connect(wrapped(old)), 502, "tls_protocol_error"),
            (connect(wrapped(plain)), 502, "tls_protocol_error"),
            (
                connect(wrapped(HandshakeError::NoHttp2)),
                502,
                "tls_protocol_error",
            ),
            (
                connect(wrapped(HandshakeError::Ended(kind(
                    io::ErrorKind::UnexpectedEof,
                )))),
                502,
                "tls_protocol_error",
            ),
            (connect(wrapped(alert())), 502, "tls_alert_received"),
            (ended(wrapped(alert())), 502, "tls_alert_received"),
            (
                ended(kind(io::ErrorKind::ConnectionReset)),
                502,
                "http_response_incomplete",
            ),
        ] {
            let got = (error.status().as_u16(), error.detail());
            assert_eq!(got, (status, detail), "{error:?}");
        }
    }
}
