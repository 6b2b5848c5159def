//! The caching rules that an operator can configure.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::cache_control::{FieldScope, RequestDirectives, ResponseDirectives};

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
    /// If true, responses to requests with `Authorization` are stored for all clients even if no directive allows it.
    /// RFC 9111 §3.5 forbids this, so it is only for responses that are the same for all users that may have them.
    pub share_authorized: bool,
    /// If true, the origin decides about each client: responses to requests with `Authorization` are stored, and each
    /// use of a stored response needs a validation with the fields of the client. No stored response answers in place
    /// of an error, because an error may be a refusal.
    ///
    /// A response that is stored under this rule has `no-cache`, so it is never used without a validation, even for
    /// requests to which the rule does not apply.
    pub check_authorization: bool,
    /// Lifetimes that the operator states for these requests. Default: none.
    pub lifetimes: Option<Arc<Lifetimes>>,
}

/// Lifetimes that the operator states in place of the origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifetimes {
    /// Lifetimes that replace `Cache-Control`, `Expires` and the targeted fields of the response, as if the origin had
    /// sent a targeted field with `max-age` (RFC 9213 §2.2). A response with `private` or `no-store` is then stored,
    /// and a response whose status is excluded is not.
    /// These lifetimes and those of `unstated` begin when the response arrives.
    pub replacing: StatusLifetimes,
    /// Lifetimes of responses that state none. All directives of the response count, also `private` and `no-store`.
    pub unstated: StatusLifetimes,
    /// `stale-while-revalidate` of responses that state none, from the origin or with a lifetime of the operator. It
    /// does not apply if the origin forbids stale use, or if the origin's lifetime was over on arrival.
    pub stale_while_revalidate_secs: Option<u32>,
    /// `stale-if-error`, as `stale_while_revalidate_secs`.
    pub stale_if_error_secs: Option<u32>,
}

/// Lifetimes in seconds for ranges of statuses. The first range that contains a status counts. `None` excludes its
/// statuses from being stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusLifetimes(pub Vec<(Range<u16>, Option<u32>)>);

impl StatusLifetimes {
    /// Returns the lifetime in seconds of a response with this status.
    pub fn get(&self, status: StatusCode) -> Option<u32> {
        self.stated(status).flatten()
    }

    /// Returns true if a response with this status is not stored.
    pub fn excludes(&self, status: StatusCode) -> bool {
        self.stated(status) == Some(None)
    }

    fn stated(&self, status: StatusCode) -> Option<Option<u32>> {
        let mut ranges = self.0.iter();
        ranges.find_map(|(range, secs)| range.contains(&status.as_u16()).then_some(*secs))
    }
}

impl Rules {
    /// Returns the lifetime in seconds that replaces the one of a response with this status.
    pub(crate) fn replacing_lifetime(&self, status: StatusCode) -> Option<u32> {
        self.lifetimes.as_ref()?.replacing.get(status)
    }

    /// Returns the lifetime in seconds of a response with this status that states none.
    pub(crate) fn unstated_lifetime(&self, status: StatusCode) -> Option<u32> {
        self.lifetimes.as_ref()?.unstated.get(status)
    }

    /// Returns true if responses with this status are not stored, whatever they state.
    pub(crate) fn excludes(&self, status: StatusCode) -> bool {
        let lifetimes = self.lifetimes.as_ref();
        lifetimes.is_some_and(|lifetimes| lifetimes.replacing.excludes(status))
    }

    /// Returns true if responses with this status that state no lifetime are not stored.
    pub(crate) fn excludes_unstated(&self, status: StatusCode) -> bool {
        let lifetimes = self.lifetimes.as_ref();
        lifetimes.is_some_and(|lifetimes| lifetimes.unstated.excludes(status))
    }

    /// Returns the directives that count for a response: its own, or those of the operator in their place.
    pub fn response_directives(
        &self,
        status: StatusCode,
        response: &HeaderMap,
    ) -> ResponseDirectives {
        let mut directives = match self.replacing_lifetime(status) {
            Some(secs) => ResponseDirectives {
                max_age: Some(secs),
                is_targeted: true,
                ..ResponseDirectives::default()
            },
            None => ResponseDirectives::from_headers(response),
        };
        if self.check_authorization {
            directives.no_cache = FieldScope::Whole;
        }
        directives
    }

    /// Returns the request's cache directives, as far as these rules obey them.
    ///
    /// With [`ClientDirectives::Ignore`] no header is parsed. With [`check_authorization`](Self::check_authorization)
    /// each request has `no-cache` and `stale-if-error=0`.
    pub fn request_directives(&self, request: &HeaderMap) -> RequestDirectives {
        let directives = match self.client_directives {
            ClientDirectives::Ignore => RequestDirectives::default(),
            ClientDirectives::Honour => RequestDirectives::from_headers(request),
        };
        if !self.check_authorization {
            return directives;
        }
        RequestDirectives {
            no_cache: true,
            stale_if_error: Some(0),
            ..directives
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
