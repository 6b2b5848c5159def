//! What an operator may choose; everything else is the RFC's choice.

use std::time::Duration;

use http::HeaderMap;

use crate::cache_control::RequestDirectives;

/// The choices the RFCs leave to a cache, with the defaults a content delivery node wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Lifetimes for responses that state none. Off by default: RFC 9111 §4.2.2 permits
    /// guessing, but an operator who did not ask for it is surprised by stale pages.
    pub heuristic: Option<Heuristic>,
    /// What `Set-Cookie` on a response means for storing it.
    pub set_cookie: SetCookie,
    /// Whether `Cache-Control` on a request is obeyed.
    pub client_directives: ClientDirectives,
    /// Whether errors that a request caused (400, 413, 414, 501) may be stored if the origin states a lifetime for them.
    /// Off by default: request fields that are not in the cache key cause these errors, so a stored one would let
    /// one client replace a page for all others.
    pub store_request_errors: bool,
}

impl Rules {
    /// The request's cache directives as far as these rules obey them.
    ///
    /// With [`ClientDirectives::Ignore`] no header is looked at.
    pub fn request_directives(&self, request: &HeaderMap) -> RequestDirectives {
        match self.client_directives {
            ClientDirectives::Ignore => RequestDirectives::default(),
            ClientDirectives::Honour => RequestDirectives::of(request),
        }
    }
}

/// How long a response without explicit freshness may be used (RFC 9111 §4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heuristic {
    /// Share of the time since `Last-Modified`, in percent. The RFC names 10 as typical.
    pub percent: u8,
    /// No guess is longer than this. One day, since past it the RFC 7234 `Warning: 113`
    /// used to be due: a day is where a guess stops being harmless.
    pub lifetime_max: Duration,
    /// The guess where `Last-Modified` is missing too. Zero: then nothing is known.
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

/// What to do with a response that sets a cookie.
///
/// RFC 9111 §7.3 leaves this to `Cache-Control` alone. Every peer is stricter by default,
/// because origins forget, and the price is one user's session in another's browser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetCookie {
    /// Such a response is not stored.
    #[default]
    Refuse,
    /// It is stored without the cookie: only the client whose request filled the cache gets it.
    Strip,
    /// It is stored and the cookie goes to everyone, as the RFC reads.
    Share,
}

/// Whether `Cache-Control` and `Pragma` on requests are obeyed.
///
/// RFC 9111 §5.2.1 calls them advisory. The default is to ignore them, as content
/// delivery networks do: otherwise any client can send every request through to the
/// origin by writing `no-cache`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientDirectives {
    /// Requests are answered as if they carried no cache directives.
    #[default]
    Ignore,
    /// `no-cache`, `no-store`, `max-age`, `min-fresh`, `max-stale`, `only-if-cached` and
    /// `Pragma: no-cache` are obeyed.
    Honour,
}
