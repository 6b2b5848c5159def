//! The error responses that the edge generates: to requests that it refuses, and if the origin fails.

use std::borrow::Cow;

use edgeward_semantics::CacheStatus;
use http::StatusCode;

pub(crate) struct RequestError {
    pub(crate) status: StatusCode,
    /// The field `Cache-Status`. Without it, the request counts as refused.
    pub(crate) cache_status: Option<CacheStatus>,
    /// The reason for the error. The body of the response is the status and this text.
    pub(crate) text: Cow<'static, str>,
    /// True if the connection is closed, because the bytes after the head cannot be parsed or are not read.
    pub(crate) close: bool,
}

impl RequestError {
    fn new(status: StatusCode, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            cache_status: None,
            text: text.into(),
            close: false,
        }
    }

    fn closing(status: StatusCode, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            close: true,
            ..Self::new(status, text)
        }
    }

    pub(crate) fn bad_request(text: impl Into<Cow<'static, str>>) -> Self {
        Self::closing(StatusCode::BAD_REQUEST, text)
    }

    pub(crate) fn fragment() -> Self {
        Self::bad_request(edgeward_semantics::InvalidRequestTarget::Fragment.to_string())
    }

    pub(crate) fn target_too_long() -> Self {
        let text = "the target is longer than limits.target_bytes_max";
        Self::closing(StatusCode::URI_TOO_LONG, text)
    }

    pub(crate) fn no_trace() -> Self {
        let text = "TRACE is not forwarded; forwarding.trace = true allows it";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, text)
    }

    /// RFC 9110 §15.5.20: the edge is not configured for the host. Strangers could otherwise fill the cache.
    pub(crate) fn misdirected() -> Self {
        let text = "no site of this edge has this host";
        Self::new(StatusCode::MISDIRECTED_REQUEST, text)
    }

    pub(crate) fn bad_rewrite() -> Self {
        let text = "the target that a rule makes of this request is no path";
        Self::new(StatusCode::BAD_GATEWAY, text)
    }

    pub(crate) fn too_many_fields() -> Self {
        let text = "the request has more header fields than allowed";
        Self::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, text)
    }

    pub(crate) fn overloaded(text: &'static str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, text)
    }

    pub(crate) fn not_implemented(text: &'static str) -> Self {
        Self::closing(StatusCode::NOT_IMPLEMENTED, text)
    }

    pub(crate) fn too_large() -> Self {
        // Closing, because the edge would have to read the body to find the next request.
        let text = "the request's body is larger than allowed";
        Self::closing(StatusCode::PAYLOAD_TOO_LARGE, text)
    }

    pub(crate) fn forwarding_loop() -> Self {
        let text = "the request has passed through this edge before: the origin forwards to it";
        Self::new(StatusCode::LOOP_DETECTED, text)
    }
}
