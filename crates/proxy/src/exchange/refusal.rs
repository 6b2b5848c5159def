//! Answers of the edge's own: a request that is not served, and the reason.

use std::borrow::Cow;

use edgeward_semantics::CacheStatus;
use http::StatusCode;

/// An answer of the edge's own: the request cannot be served, and why.
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) cache_status: Option<CacheStatus>,
    pub(crate) text: Cow<'static, str>,
    /// The connection cannot go on: what follows the head is not understood or not wanted.
    pub(crate) close: bool,
}

impl Refusal {
    pub(crate) fn bad_request(text: String) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            cache_status: None,
            text: text.into(),
            close: true,
        }
    }

    pub(crate) fn fragment() -> Self {
        Self::bad_request(edgeward_semantics::InvalidRequestTarget::Fragment.to_string())
    }

    pub(crate) fn target_too_long() -> Self {
        Self {
            status: StatusCode::URI_TOO_LONG,
            cache_status: None,
            text: "the target is longer than limits.target_bytes_max".into(),
            close: true,
        }
    }

    pub(crate) fn no_trace() -> Self {
        Self {
            status: StatusCode::METHOD_NOT_ALLOWED,
            cache_status: None,
            text: "TRACE is not forwarded; forwarding.trace = true allows it".into(),
            close: false,
        }
    }

    pub(crate) fn too_many_fields() -> Self {
        Self {
            status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            cache_status: None,
            text: "the request has more header fields than allowed".into(),
            close: false,
        }
    }

    pub(crate) fn overloaded(text: &'static str) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            cache_status: None,
            text: text.into(),
            close: false,
        }
    }

    pub(crate) fn not_implemented(text: &'static str) -> Self {
        Self {
            status: StatusCode::NOT_IMPLEMENTED,
            cache_status: None,
            text: text.into(),
            close: true,
        }
    }

    pub(crate) fn too_large() -> Self {
        Self {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            cache_status: None,
            text: "the request's body is larger than allowed".into(),
            // Else the body that is coming would have to be read to find the next request.
            close: true,
        }
    }

    pub(crate) fn looped() -> Self {
        Self {
            status: StatusCode::LOOP_DETECTED,
            cache_status: None,
            text:
                "this request has passed through this very edge before: the origin leads back here"
                    .into(),
            close: false,
        }
    }
}
