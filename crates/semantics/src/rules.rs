//! The caching rules that an operator can configure.

use std::time::Duration;

use http::HeaderMap;

use crate::cache_control::RequestDirectives;

/// The choices that the RFCs leave to a cache, with defaults for content delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The lifetime of responses that state none. Disabled by default: RFC 9111 §4.2.2 permits a heuristic, but
    /// operators do not expect stale pages by default.
    pub heuristic: Option<Heuristic>,
    /// How to store a response with `Set-Cookie`.
    pub set_cookie: SetCookie,
    /// How to treat `Cache-Control` in a request.
    pub client_directives: ClientDirectives,
    /// If true, errors that a request caused (400, 413, 414, 501) are stored if the origin states a lifetime
    /// for them. False by default: request fields that are not in the cache key cause these errors. A stored
    /// error would let one client replace a page for all others.
    pub store_request_errors: bool,
}

impl Rules {
    /// Returns the request's cache directives, as far as these rules obey them.
    ///
    /// With [`ClientDirectives::Ignore`] no header is parsed.
    pub fn request_directives(&self, request: &HeaderMap) -> RequestDirectives {
        match self.client_directives {
            ClientDirectives::Ignore => RequestDirectives::default(),
            ClientDirectives::Honour => RequestDirectives::from_headers(request),
        }
    }
}

/// The lifetime of a response without explicit freshness (RFC 9111 §4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heuristic {
    /// The lifetime as a percentage of the time from `Last-Modified` to `Date`. The RFC calls 10 % typical.
    pub percent: u8,
    /// The maximum heuristic lifetime. The default is one day: beyond it RFC 7234 required `Warning: 113`.
    pub lifetime_max: Duration,
    /// The lifetime without `Last-Modified`. The default is zero, because the response then gives no hint about
    /// its lifetime.
    pub without_last_modified: Duration,
}

impl Default for Heuristic {
    fn default() -> Self {
        Self {
            percent: 10,
            lifetime_max: Duration::from_secs(24 * 60 * 60),
            without_last_modified: Duration::ZERO,
        }
    }
}

/// How to handle a response that sets a cookie.
///
/// RFC 9111 §7.3 leaves this to `Cache-Control` alone. Other caches are stricter by default: some origins forget
/// `private`, and one user's session cookie would then be sent to another user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetCookie {
    /// The response is not stored.
    #[default]
    Refuse,
    /// The response is stored without the cookie. Only the client whose request filled the cache gets the
    /// cookie.
    Strip,
    /// The response is stored and the cookie is sent to all clients, as the RFC says.
    Share,
}

/// How to treat `Cache-Control` and `Pragma` in requests.
///
/// RFC 9111 §5.2.1 calls these directives advisory. They are ignored by default, as content delivery networks
/// do. If they were obeyed, any client could send every request to the origin with `no-cache`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientDirectives {
    /// Requests are answered as if they had no cache directives.
    #[default]
    Ignore,
    /// `no-cache`, `no-store`, `max-age`, `min-fresh`, `max-stale`, `only-if-cached` and
    /// `Pragma: no-cache` are obeyed.
    Honour,
}
