//! A tolerant parser of `Cache-Control` (RFC 9111 §5.2) and the legacy `Pragma`.
//!
//! The parser never fails. If input is ambiguous, the parser chooses the reading that stores or reuses less. It
//! ignores unknown directives (§5.2.3). If a directive occurs twice, the more restrictive value counts. In
//! a response, an invalid number of seconds is read as 0 (§4.2.1: the response counts as stale).
//!
//! A targeted field (RFC 9213) replaces `Cache-Control` of a response. It is a structured field with a strict parser:
//! `targeted.rs`. So do `Surrogate-Control` and `X-Accel-Expires`: `surrogate.rs`.

mod directives;
mod surrogate;
mod targeted;
#[cfg(test)]
mod tests;

use http::header::{CACHE_CONTROL, HeaderMap};

pub(crate) use directives::delta_seconds;
pub use directives::{
    DELTA_SECONDS_MAX, FieldScope, MaxStale, RequestDirectives, ResponseDirectives,
};
pub use targeted::{TARGETED_FIELDS, targeted_field};

impl ResponseDirectives {
    /// Parses the first usable one of [`TARGETED_FIELDS`], `Surrogate-Control` and `X-Accel-Expires`, or else every
    /// `Cache-Control` line of a response.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let targeted = targeted::directives(headers)
            .or_else(|| surrogate::surrogate_control(headers))
            .or_else(|| surrogate::x_accel_expires(headers));
        if let Some(directives) = targeted {
            return directives;
        }
        let mut directives = Self::default();
        for line in headers.get_all(CACHE_CONTROL) {
            directives.add_line(line.as_bytes());
        }
        directives
    }
}
