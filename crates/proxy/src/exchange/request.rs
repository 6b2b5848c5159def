//! The canonical request, from which the cache key, the forwarded request and the log line are made.

use std::net::SocketAddr;

use edgeward_semantics::hop_by_hop::ConnectionOptions;
use edgeward_semantics::{Route, Target};
use edgeward_types::Timestamp;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue, REFERER, USER_AGENT};
use http::{Method, Uri, Version};

use super::conn::InterimSink;
use super::heads::HeadCharge;
use super::upgrade::UpgradeRequest;
use crate::base::access_log::{LogLine, PendingLine};

/// A request's head in canonical form, and its client.
pub(crate) struct Request {
    pub(crate) method: Method,
    /// As received. [`path_and_query`](Self::path_and_query) and [`authority`](Self::authority) are canonical.
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    /// The header fields, without fields of the connection and fields that the origin must not get.
    pub(crate) headers: HeaderMap,
    /// True if the [fast path](crate::client::h1) has parsed the request: a GET or HEAD with exactly one
    /// `Host`, without a body, conditions, a range, credentials or cache directives.
    pub(crate) plain: bool,
    pub(crate) scheme: &'static str,
    pub(crate) peer: SocketAddr,
    /// The address of `peer` as a value of `X-Forwarded-For`.
    pub(crate) peer_text: HeaderValue,
    /// For HTTP/2: the charge of the decoded head to the memory budget of heads.
    pub(crate) _charge: Option<HeadCharge>,
    /// True if the address of `peer` is one of `forwarding.trusted_proxies`.
    pub(crate) peer_is_trusted: bool,
    /// `None` if the received text is canonical, as in most requests, so that a hit need not copy the text.
    pub(crate) canonical_authority: Option<Box<str>>,
    pub(crate) canonical_target: Option<Box<str>>,
    /// From the removed hop-by-hop fields: the `Upgrade` field, and whether the client accepts trailers.
    pub(crate) options: ConnectionOptions,
    /// The upgrade that the origin gets, if the request asks for an allowed one.
    pub(crate) upgrade: Option<Box<UpgradeRequest>>,
    /// `Lookup` if a stored response may answer the request.
    pub(crate) route: Route,
    /// Receives the interim (1xx) responses for an HTTP/1.1 client, which hyper's server cannot send.
    pub(crate) interims: Option<InterimSink>,
}

impl Request {
    /// Returns path and query, or `*`, in canonical form. In a request that will be refused: the received text.
    pub(crate) fn path_and_query(&self) -> &str {
        match &self.canonical_target {
            Some(target) => target,
            None => self
                .uri
                .path_and_query()
                .map_or("/", |target| target.as_str()),
        }
    }

    pub(crate) fn path(&self) -> &str {
        let target = self.path_and_query();
        target.split_once('?').map_or(target, |(path, _)| path)
    }

    /// Returns host and port from `:authority`, an absolute target or `Host`: canonical, or as received if refused.
    pub(crate) fn authority(&self) -> Option<&str> {
        match (&self.canonical_authority, self.uri.authority()) {
            (Some(authority), _) => Some(authority),
            (None, Some(authority)) => Some(authority.as_str()),
            (None, None) => self.headers.get(HOST)?.to_str().ok(),
        }
    }

    /// Returns the target, from which the primary key is made. `None` for a request that is refused.
    pub(crate) fn target(&self) -> Option<Target<'_>> {
        Target::new(self.scheme, self.authority()?, self.path_and_query()).ok()
    }

    /// Returns the request's line of the access log. The request began at `now`.
    pub(crate) fn log_line(&self, now: Timestamp) -> PendingLine {
        let header = |name: &HeaderName| {
            let value = self.headers.get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into())
        };
        PendingLine::new(LogLine {
            method: Some(self.method.clone()),
            host: self.authority().unwrap_or_default().into(),
            target: self.path_and_query().into(),
            version: self.version,
            referer: header(&REFERER),
            user_agent: header(&USER_AGENT),
            ..LogLine::without_request(self.peer.ip(), self.scheme, now)
        })
    }
}
