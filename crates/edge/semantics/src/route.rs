//! Decides if a request may be answered from the cache (lookup) or must be forwarded without storing the
//! response (pass).

use http::Method;
use http::header::{CONTENT_LENGTH, HeaderMap, IF_MATCH, IF_UNMODIFIED_SINCE, TRANSFER_ENCODING};

use crate::cache_status::{CacheStatus, Forward};

/// How a request is handled. This is decided before a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A stored response may answer the request.
    Lookup,
    /// The request goes to the origin and its response is not stored.
    Pass(PassReason),
}

/// Why a request is passed to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassReason {
    /// The method is neither GET nor HEAD.
    Method,
    /// The request is a GET or HEAD with content. The key does not include the content, so a stored response
    /// could be the answer to a different request.
    Content,
    /// The request has `If-Match` or `If-Unmodified-Since`. A cache does not evaluate these fields (RFC 9111
    /// §4.3.2), because only the origin knows the current representation.
    Precondition,
    /// A rule of the operator passes the request.
    Rule,
    /// The request asks for another protocol on its connection (RFC 9110 §7.8), or is an extended CONNECT (RFC 8441).
    Upgrade,
}

impl PassReason {
    /// Returns the corresponding reason of RFC 9211 §2.2.
    pub const fn forward(self) -> Forward {
        match self {
            Self::Method => Forward::Method,
            Self::Content | Self::Precondition | Self::Rule | Self::Upgrade => Forward::Bypass,
        }
    }

    /// Returns the `detail` of `Cache-Status`.
    pub const fn detail(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Content => "content",
            Self::Precondition => "precondition",
            Self::Rule => "rule",
            Self::Upgrade => "upgrade",
        }
    }

    /// Returns the `Cache-Status` of the request, before the origin has answered it.
    pub fn cache_status(self) -> CacheStatus {
        CacheStatus::forward(self.forward()).with_detail(self.detail())
    }
}

/// Decides if the cache may answer this request.
pub fn route(method: &Method, request: &HeaderMap) -> Route {
    if method != Method::GET && method != Method::HEAD {
        return Route::Pass(PassReason::Method);
    }
    if request.contains_key(TRANSFER_ENCODING) || has_content_length(request) {
        return Route::Pass(PassReason::Content);
    }
    if request.contains_key(IF_MATCH) || request.contains_key(IF_UNMODIFIED_SINCE) {
        return Route::Pass(PassReason::Precondition);
    }
    Route::Lookup
}

/// Returns true if the request has a `Content-Length` other than zero. A request with an invalid length may
/// have a body, so it counts as well.
fn has_content_length(request: &HeaderMap) -> bool {
    request
        .get_all(CONTENT_LENGTH)
        .into_iter()
        .any(|length| length.is_empty() || length.as_bytes().iter().any(|&byte| byte != b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    #[test]
    fn only_get_and_head_without_content_are_looked_up() {
        let pass = Route::Pass;
        let table = [
            ("GET", "", Route::Lookup),
            ("HEAD", "", Route::Lookup),
            ("GET", "content-length: 0", Route::Lookup),
            ("GET", "range: bytes=0-1\nif-none-match: *", Route::Lookup),
            ("GET", "authorization: x\ncookie: a=b", Route::Lookup),
            ("POST", "", pass(PassReason::Method)),
            ("PUT", "", pass(PassReason::Method)),
            ("DELETE", "", pass(PassReason::Method)),
            ("OPTIONS", "", pass(PassReason::Method)),
            ("TRACE", "", pass(PassReason::Method)),
            ("QUERY", "", pass(PassReason::Method)),
            ("get", "", pass(PassReason::Method)),
            ("GET", "content-length: 5", pass(PassReason::Content)),
            ("GET", "content-length: x", pass(PassReason::Content)),
            (
                "GET",
                "transfer-encoding: chunked",
                pass(PassReason::Content),
            ),
            ("GET", "if-match: \"a\"", pass(PassReason::Precondition)),
            (
                "GET",
                "if-unmodified-since: x",
                pass(PassReason::Precondition),
            ),
        ];
        for (method, lines, expected) in table {
            let method = Method::from_bytes(method.as_bytes()).expect("the method is a token");
            assert_eq!(
                route(&method, &headers(lines)),
                expected,
                "{method} {lines}"
            );
        }
    }

    #[test]
    fn each_pass_reason_has_a_cache_status_reason() {
        assert_eq!(PassReason::Method.forward(), Forward::Method);
        assert_eq!(PassReason::Content.forward(), Forward::Bypass);
        assert_eq!(PassReason::Precondition.forward(), Forward::Bypass);
        assert_eq!(PassReason::Upgrade.forward(), Forward::Bypass);
    }
}
