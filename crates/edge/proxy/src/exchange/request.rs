//! The canonical request, from which the cache key, the forwarded request and the log line are made.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use edgeward_semantics::content_coding::AcceptedCodings;
use edgeward_semantics::dictionary::{DictionaryOffer, MalformedOffer};
use edgeward_semantics::hop_by_hop::ConnectionOptions;
use edgeward_semantics::{Route, Target};
use edgeward_types::Timestamp;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, Uri, Version};

use super::conn::InterimSink;
use super::field_edit::FieldEdit;
use super::heads::HeadCharge;
use super::hop::Hop;
use super::request_settings::RequestSettings;
use super::upgrade::UpgradeRequest;
use crate::config::OriginId;
use crate::config::watch::SampledText;
use crate::observe::access_log::{LogQueue, RequestFacts, RequestText};
use crate::observe::causes::KeyExchange;

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
    /// The scheme by which the client sent the request, see [`StatedClient`](super::StatedClient).
    pub(crate) scheme: &'static str,
    /// That of the connection. `None` without TLS.
    pub(crate) key_exchange: Option<KeyExchange>,
    pub(crate) peer: SocketAddr,
    /// The address of `peer` as a value of `X-Forwarded-For`.
    pub(crate) peer_text: HeaderValue,
    /// For HTTP/2 and HTTP/3: the charge of the decoded head to the memory budget of heads.
    pub(crate) _charge: Option<HeadCharge>,
    /// True if the address of `peer` is one of `forwarding.trusted_proxies`.
    pub(crate) peer_is_trusted: bool,
    /// The address of the client: that of `peer`, or the one that trusted proxies state.
    pub(crate) client: IpAddr,
    /// `None` if the received text is canonical, as in most requests, so that a hit need not copy the text.
    pub(crate) canonical_authority: Option<Box<str>>,
    pub(crate) canonical_target: Option<Box<str>>,
    /// From the removed hop-by-hop fields: the `Upgrade` field, and whether the client accepts trailers.
    pub(crate) options: ConnectionOptions,
    /// The statement of the node of the fleet that has sent the request.
    pub(crate) hop: Option<Box<Hop>>,
    /// The origin from which a miss is fetched.
    pub(crate) origin: OriginId,
    /// The upgrade that the origin gets, if the request asks for an allowed one.
    pub(crate) upgrade: Option<Box<UpgradeRequest>>,
    /// `Lookup` if a stored response may answer the request.
    pub(crate) route: Route,
    /// The settings of the site and its rules. `None` in a request that is refused before its site is known.
    pub(crate) settings: Option<Rc<RequestSettings>>,
    /// The part of the cache key that a rule adds to the URL.
    pub(crate) class: Box<[u8]>,
    /// The target that the origin gets, if a rule rewrites it.
    pub(crate) forwarded_target: Option<Box<str>>,
    /// The `Host` that the origin gets, if a rule sets it.
    pub(crate) forwarded_host: Option<HeaderValue>,
    /// The changes of the response's fields that rules demand.
    pub(crate) response_fields: Option<Rc<[(HeaderName, FieldEdit)]>>,
    /// The codings that the client accepts, if `headers` has another `Accept-Encoding` for the origin.
    pub(crate) client_codings: Option<AcceptedCodings>,
    /// The dictionary that the client offers, if the site makes dictionaries. The origin does not get the offer.
    pub(crate) dictionary: Option<Box<Result<DictionaryOffer, MalformedOffer>>>,
    /// All fields as received, of a request by which a client purges.
    pub(crate) received_fields: Option<Box<HeaderMap>>,
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

    /// Returns the address of the client. Its port is 0 if a trusted proxy has stated the client.
    pub(crate) fn client_addr(&self) -> SocketAddr {
        match self.client == self.peer.ip() {
            true => self.peer,
            false => SocketAddr::new(self.client, 0),
        }
    }

    /// Returns the settings of the request's site. Panics if the request was refused before its site was known.
    pub(crate) fn settings(&self) -> &RequestSettings {
        let settings = self.settings.as_ref();
        settings.expect("a request that is served has a site")
    }

    /// Returns path and query of the request that the origin gets.
    pub(crate) fn forwarded_target(&self) -> &str {
        match &self.forwarded_target {
            Some(target) => target,
            None => self.path_and_query(),
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

    /// Returns the text of the request for the access log. The request began at the wall time `now`.
    pub(crate) fn log_text(&self, queue: &LogQueue, now: Timestamp) -> RequestText {
        queue.text(&self.facts(now), |name| self.value(name))
    }

    /// Returns the text of the request for its spans.
    pub(crate) fn trace_text(&self, now: Timestamp) -> RequestText {
        let agent = [self.value(&USER_AGENT)].into_iter();
        RequestText::new(&mut Vec::new(), &self.facts(now), agent)
    }

    /// Returns the text of the request for the watcher.
    pub(crate) fn seen_text(&self) -> Box<SampledText> {
        let site = self.settings.as_ref().map(|settings| settings.site.0);
        let host = self.authority().unwrap_or_default();
        let mut text = SampledText::new(host, self.path_and_query(), site);
        text.set_request(self.method == Method::GET, |name| self.value(name));
        text
    }

    fn value(&self, name: &HeaderName) -> Option<&[u8]> {
        Some(self.headers.get(name)?.as_bytes())
    }

    fn facts(&self, now: Timestamp) -> RequestFacts<'_> {
        RequestFacts {
            time: now,
            peer: self.client,
            is_tls: self.scheme == "https",
            key_exchange: self.key_exchange,
            method: Some(self.method.as_str().as_bytes()),
            host: self.authority().unwrap_or_default().as_bytes(),
            target: self.path_and_query().as_bytes(),
            version: self.version,
        }
    }
}
