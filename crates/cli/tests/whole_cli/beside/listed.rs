//! Why the edge answers differently from the other server. Each reason is a predicate on the request and both answers,
//! and a row of docs/how-to/from-nginx.md or from-varnish.md.

use std::fs;
use std::path::Path;

use super::requests::Request;
use super::{Compared, History, without_empty_query};

/// A reason of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Listed {
    /// A request with an unsafe method has removed the stored response.
    Unsafe,
    /// HTML for a path that ends like that of a stylesheet is not stored.
    Extension,
    /// Origins and rules may read the path differently, so it bypasses the cache or is denied.
    Disputed,
    /// HEAD is forwarded, and the other server sends a GET whose response it stores.
    Head,
    /// A response to a request with `Authorization` is not stored.
    Authorization,
    /// Each host has stored responses of its own.
    Host,
    /// A URL with an empty query is stored apart by one side, or loses its question mark.
    EmptyQuery,
    /// A location with files answers 404.
    Files,
    /// nginx closes the connection, and the edge answers 403.
    Closed,
    /// A location with authentication denies all requests.
    Authentication,
    /// A response with `Set-Cookie` is not stored.
    SetCookie,
    /// A response with `private` is not stored, unless `ttl` says so.
    Private,
    /// Varnish answers other methods as a GET behind `return (hash)`, and the edge forwards them.
    Method,
    /// The edge does not forward TRACE.
    Trace,
    /// Parameters that are no part of the key do not reach the origin, also if the method is not GET.
    Parameters,
    /// The statuses of answers to purges differ, and so do the methods that purge.
    Purge,
    /// A request is passed because no rule states the conditions around an exception from caching exactly.
    Inexact,
    /// The key has the whole field from which VCL makes a value.
    Variant,
}

impl Listed {
    /// The reasons for nginx.
    pub(super) const NGINX: [Self; 10] = [
        Self::Unsafe,
        Self::Extension,
        Self::Disputed,
        Self::Head,
        Self::Authorization,
        Self::Host,
        Self::EmptyQuery,
        Self::Files,
        Self::Closed,
        Self::Authentication,
    ];

    /// The reasons for all programs of Varnish.
    pub(super) const VARNISH: [Self; 12] = [
        Self::Unsafe,
        Self::Extension,
        Self::Disputed,
        Self::Head,
        Self::SetCookie,
        Self::Private,
        Self::Authorization,
        Self::Host,
        Self::EmptyQuery,
        Self::Method,
        Self::Trace,
        Self::Parameters,
    ];

    /// Reasons for Varnish that each program states, because they could hide that a translation passes too much.
    pub(super) const OF_PROGRAMS: [Self; 3] = [Self::Purge, Self::Inexact, Self::Variant];

    /// Returns a part of the row of the documentation.
    const fn row(self) -> &'static str {
        match self {
            Self::Unsafe => "after a POST, PUT or DELETE to the same URL",
            Self::Extension => "HTML or JSON for a path that ends as in `/account/x.css`",
            Self::Disputed => "if rules differ about its forms, is not stored, or is denied",
            Self::Head => "HEAD does not store a response",
            Self::Authorization => "a response to a request with `Authorization`",
            Self::Host => "do not share responses",
            Self::EmptyQuery => "a URL with an empty query",
            Self::Files => "a location without an origin answers 404",
            Self::Closed => "`return 444` answers 403",
            Self::Authentication => "answers 403 in place of 401",
            Self::SetCookie => "a response with `Set-Cookie`",
            Self::Private => "a response with `private`",
            Self::Method => "behind `return (hash)` is forwarded",
            Self::Trace => "TRACE answers 405",
            Self::Parameters => "parameters that VCL drops from URLs",
            Self::Purge => "a purge answers 200, or 403",
            Self::Inexact => "is passed though Varnish stores the response",
            Self::Variant => "has more variants",
        }
    }

    /// Returns true if the reason explains the difference.
    pub(super) fn explains(
        self,
        request: &Request,
        other: &Compared,
        edge: &Compared,
        history: &History,
    ) -> bool {
        let url = History::url(request);
        let path = request.path();
        let is_same_status = other.status == edge.status;
        // The edge asks the origin where the other server does not.
        let is_asked = other.is_same_answer(edge) && other.is_hit && !edge.is_hit;
        // Neither asks.
        let is_answered = other.is_hit && edge.is_hit;
        let is_passed = edge.cache_status.contains("fwd=bypass");
        match self {
            Self::Unsafe => is_asked && !is_passed && history.unsafe_urls.contains(&url),
            Self::Extension => {
                let name = path.rsplit('/').next().unwrap_or_default();
                is_asked && name.contains('.') && edge.kind.starts_with("text/html")
            }
            Self::Disputed => {
                let is_disputed = ["%", "//", "/../", "/./"]
                    .iter()
                    .any(|part| path.contains(part));
                is_disputed && (is_asked || matches!(edge.status, 403 | 404) && edge.is_hit)
            }
            Self::Head => {
                is_asked && (request.method == "HEAD" || history.head_urls.contains(&url))
            }
            Self::Authorization => is_asked && history.authorized_urls.contains(&url),
            Self::Host => {
                let others = history
                    .hosts
                    .get(&(request.listener, without_empty_query(&request.target)));
                let is_known =
                    others.is_some_and(|hosts| hosts.iter().any(|host| *host != request.host));
                is_known
                    && !is_passed
                    && other.is_hit
                    && is_same_status
                    && other.location == edge.location
                    && without_host(&without_empty_query(&other.body))
                        == without_host(&without_empty_query(&edge.body))
            }
            Self::EmptyQuery => {
                let is_equal = |a: &str, b: &str| without_empty_query(a) == without_empty_query(b);
                request.target.ends_with('?')
                    && is_same_status
                    && is_equal(&other.body, &edge.body)
                    && is_equal(&other.location, &edge.location)
            }
            Self::Files => is_answered && edge.status == 404 && !other.is_of_origin(),
            Self::Closed => other.status == 0 && edge.status == 403 && edge.is_hit,
            Self::Authentication => other.status == 401 && edge.status == 403 && edge.is_hit,
            Self::SetCookie => is_asked && edge.has_cookie,
            Self::Private => is_asked && path.contains("private"),
            Self::Method => {
                let as_get = edge
                    .body
                    .replacen(&format!(" {} ", request.method), " GET ", 1);
                !request.is_read() && is_same_status && !edge.is_hit && other.body == as_get
            }
            Self::Trace => request.method == "TRACE" && edge.status == 405,
            Self::Parameters => {
                let without_query = |body: &str| body.split('?').next().map(str::to_owned);
                !request.is_read()
                    && is_same_status
                    && !edge.is_hit
                    && !other.is_hit
                    && without_query(&other.body) == without_query(&edge.body)
            }
            Self::Purge => {
                let is_purge = ["PURGE", "BAN", "URIBAN"].contains(&request.method.as_str());
                is_purge && is_answered || is_same_status && history.purged_urls.contains(&url)
            }
            Self::Inexact => is_asked && is_passed,
            Self::Variant => {
                is_asked
                    && history
                        .fields
                        .get(&url)
                        .is_some_and(|fields| fields.len() > 1)
            }
        }
    }
}

/// Returns the text of an origin without the host.
fn without_host(body: &str) -> Vec<&str> {
    let mut words: Vec<&str> = body.split(' ').collect();
    if words.len() > 3 {
        words.remove(2);
    }
    words
}

#[test]
fn each_reason_is_a_row_of_the_documentation() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to");
    for (page, reasons) in [
        ("from-nginx.md", &Listed::NGINX[..]),
        ("from-varnish.md", &Listed::VARNISH),
        ("from-varnish.md", &Listed::OF_PROGRAMS),
    ] {
        let text = fs::read_to_string(folder.join(page)).expect("read");
        for reason in reasons {
            let is_row = |line: &str| line.starts_with('|') && line.contains(reason.row());
            assert!(text.lines().any(is_row), "{page} has no row for {reason:?}");
        }
    }
}
