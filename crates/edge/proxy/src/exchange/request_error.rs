//! The error responses that the edge generates: to requests that it refuses, and if the origin fails.

use std::borrow::Cow;
use std::time::Duration;

use edgeward_semantics::CacheStatus;
use http::StatusCode;

use crate::observe::outcome::RequestOutcome;

pub(crate) struct RequestError {
    pub(crate) status: StatusCode,
    /// How the cache handled the request, for the field `Cache-Status`.
    pub(crate) handling: Handling,
    /// The outcome of the request, unless another one was counted before.
    pub(crate) outcome: RequestOutcome,
    /// The reason for the error. The body of the response is the status and this text.
    pub(crate) text: Cow<'static, str>,
    /// True if the connection is closed, because the bytes after the head cannot be parsed or are not read.
    pub(crate) close: bool,
    /// The value of `Retry-After`, if it is not that of a busy origin.
    pub(crate) retry_after: Option<Duration>,
}

/// How the cache handled a request that the edge answers with an error.
pub(crate) enum Handling {
    /// It was looked up or forwarded.
    Cache(CacheStatus),
    /// It was refused before that. The text is the `detail` of `Cache-Status`.
    Refused(&'static str),
}

impl RequestError {
    pub(crate) fn new(
        status: StatusCode,
        detail: &'static str,
        text: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            status,
            handling: Handling::Refused(detail),
            outcome: RequestOutcome::Refused,
            text: text.into(),
            close: false,
            retry_after: None,
        }
    }

    /// Returns the error for a request that was looked up or forwarded.
    pub(crate) fn after_lookup(
        status: StatusCode,
        cache_status: CacheStatus,
        text: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            handling: Handling::Cache(cache_status),
            ..Self::new(status, "", text)
        }
    }

    fn closing(
        status: StatusCode,
        detail: &'static str,
        text: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            close: true,
            ..Self::new(status, detail, text)
        }
    }

    pub(crate) fn bad_request(text: impl Into<Cow<'static, str>>) -> Self {
        Self::closing(StatusCode::BAD_REQUEST, "invalid-request", text)
    }

    pub(crate) fn fragment() -> Self {
        Self::bad_request(edgeward_semantics::InvalidRequestTarget::Fragment.to_string())
    }

    pub(crate) fn target_too_long() -> Self {
        let text = "the target is longer than limits.target_bytes_max";
        Self::closing(StatusCode::URI_TOO_LONG, "target-too-long", text)
    }

    pub(crate) fn no_trace() -> Self {
        let text = "TRACE is not forwarded; forwarding.trace = true allows it";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "trace", text)
    }

    /// RFC 9110 §15.5.20: the edge is not configured for the host. Strangers could otherwise fill the cache.
    pub(crate) fn misdirected() -> Self {
        let text = "no site of this edge has this host";
        Self::new(StatusCode::MISDIRECTED_REQUEST, "misdirected", text)
    }

    pub(crate) fn bad_rewrite() -> Self {
        let text = "the target that a rule makes of this request is no path";
        Self::new(StatusCode::BAD_GATEWAY, "rewrite", text)
    }

    pub(crate) fn too_many_fields() -> Self {
        let text = "the request has more header fields than allowed";
        Self::new(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "too-many-fields",
            text,
        )
    }

    pub(crate) fn overloaded(text: &'static str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", text)
    }

    /// The request is shed. `close` ends its connection, so that the client's further requests reach another edge.
    pub(crate) fn shed(retry_after: Duration, close: bool) -> Self {
        let text = "the edge is overloaded and sheds this kind of request";
        Self {
            close,
            retry_after: Some(retry_after),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "overload", text)
        }
    }

    pub(crate) fn not_implemented(text: &'static str) -> Self {
        Self::closing(StatusCode::NOT_IMPLEMENTED, "not-implemented", text)
    }

    pub(crate) fn too_large() -> Self {
        // Closing, because the edge would have to read the body to find the next request.
        let text = "the request's body is larger than allowed";
        Self::closing(StatusCode::PAYLOAD_TOO_LARGE, "content-too-large", text)
    }

    /// The request to the listener for nodes is not one of a node of this fleet.
    pub(crate) fn not_of_fleet(text: &'static str) -> Self {
        Self::closing(StatusCode::FORBIDDEN, "fleet", text)
    }

    pub(crate) fn forwarding_loop() -> Self {
        let text = "the request has passed through this edge before: the origin forwards to it";
        Self::new(StatusCode::LOOP_DETECTED, "loop", text)
    }
}
