//! The one canonical request: cache key, forwarded request and log line are made from it and from nothing else.

use std::net::SocketAddr;

use edgeward_semantics::hop_by_hop::ConnectionOptions;
use edgeward_semantics::{Route, Target};
use edgeward_types::Timestamp;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue, REFERER, USER_AGENT};
use http::{Method, Uri, Version};

use super::conn::InterimSink;
use super::heads::HeadCharge;
use crate::base::access_log::{LogLine, PendingLine};

/// A request's head in its canonical form, and whom to answer.
pub(crate) struct Request {
    pub(crate) method: Method,
    /// The target as it arrived: see [`path_and_query`](Self::path_and_query) and [`authority`](Self::authority).
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    /// Without the fields of the connection, and without those that no origin gets.
    pub(crate) headers: HeaderMap,
    /// A GET or HEAD for one host, without a body, conditions, a range, directives or anything else that needs a second
    /// look, as the [fast path](crate::client::h1) found.
    pub(crate) plain: bool,
    pub(crate) scheme: &'static str,
    pub(crate) peer: SocketAddr,
    pub(crate) peer_text: HeaderValue,
    /// What the head takes of the memory for heads, if it came by HTTP/2.
    pub(crate) _charge: Option<HeadCharge>,
    pub(crate) peer_is_trusted: bool,
    /// Where the text in the request is another; most requests are canonical, and a hit should not copy them.
    pub(crate) canonical_authority: Option<Box<str>>,
    pub(crate) canonical_target: Option<Box<str>>,
    /// What the removed fields of the connection said.
    pub(crate) options: ConnectionOptions,
    pub(crate) route: Route,
    /// Takes the interim responses for a client of HTTP/1.1. hyper's server cannot send them, so the [fast path](crate::client::h1)
    /// writes them beneath it.
    pub(crate) interims: Option<InterimSink>,
}

impl Request {
    /// Path and query, or `*`: canonical unless the request is refused.
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

    /// The host and port that the request is for, canonical unless the request is refused: from `:authority`, an
    /// absolute target, or `Host`.
    pub(crate) fn authority(&self) -> Option<&str> {
        if let Some(authority) = &self.canonical_authority {
            return Some(authority);
        }
        match self.uri.authority() {
            Some(authority) => Some(authority.as_str()),
            None => self.headers.get(HOST)?.to_str().ok(),
        }
    }

    /// What the primary key is made of. Nothing for a request that is refused.
    pub(crate) fn target(&self) -> Option<Target<'_>> {
        Target::new(self.scheme, self.authority()?, self.path_and_query()).ok()
    }

    /// The request's line of the access log, begun at `now`.
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
            ..LogLine::unread(self.peer.ip(), self.scheme, now)
        })
    }
}
