//! Makes the canonical request from a request as received.
//!
//! The cache key, the `Vary` key and the forwarded request are made only from the [`Request`] that [`canonical`]
//! returns. Hop-by-hop fields are removed before other fields are read; only `Transfer-Encoding` is read earlier.

use std::borrow::Cow;
use std::rc::Rc;

use edgeward_purge::is_purge_method;
use edgeward_semantics::content_coding::{self, AcceptedCodings};
use edgeward_semantics::hop_by_hop::{self, ConnectionOptions, MaxForwards};
use edgeward_semantics::upgrade::Upgrades;
use edgeward_semantics::{Authority, PassReason, RequestTarget, Route, route};
use edgeward_sites::{PathForms, PathReadings};
use http::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING,
};
use http::{Method, Uri, Version};

use super::client::{ClientFacts, ClientSource};
use super::conn::InterimSink;
use super::field_bytes::members;
use super::field_filter::FieldFilter;
use super::heads::HeadCharge;
use super::node;
use super::request::Request;
use super::request_error::RequestError;
use super::upgrade::UpgradeRequest;
use crate::config::{EdgeConfig, FleetKey, OriginId};

/// The rules by which requests are checked, and the fields that are removed from them.
#[derive(Debug)]
pub(crate) struct Canonicaliser {
    pub(crate) field_filter: FieldFilter,
    pub(crate) client_source: ClientSource,
    /// The name of this edge in `Via`, by which a loop is detected.
    pub(crate) via_name: String,
    /// The authority of an HTTP/1.0 request without `Host`.
    default_authority: Box<str>,
    target_bytes_max: u64,
    refused_path_forms: PathForms,
    forwards_trace_requests: bool,
    /// True if the edge adds codings for any site, and their names to entity tags.
    encodes: bool,
    upgrades: Upgrades,
    /// True if clients may purge, so that the edge answers methods of purging itself.
    purges: bool,
    /// The key of the fleet, if the edge belongs to one.
    fleet_key: Option<FleetKey>,
}

impl Canonicaliser {
    pub(crate) fn new(config: &EdgeConfig, via_name: String) -> Self {
        let limits = &config.limits;
        Self {
            field_filter: FieldFilter::new(&config.forwarding, config.sites.fields_read()),
            client_source: ClientSource::new(&config.forwarding),
            via_name,
            default_authority: default_authority(config),
            target_bytes_max: limits.target_bytes_max.bytes(),
            refused_path_forms: config.forwarding.refused_path_forms,
            forwards_trace_requests: config.forwarding.trace,
            encodes: config.compression.enabled || config.sites.compress(),
            upgrades: config.forwarding.upgrades.clone(),
            purges: !config.purge.allow.0.is_empty(),
            fleet_key: config.fleet.as_ref().map(|fleet| fleet.key.clone()),
        }
    }

    /// Returns the forms of a target's path that `forwarding.refused_path_forms` does not allow.
    pub(crate) fn refused_forms(&self, target: &str) -> PathForms {
        if self.refused_path_forms.is_empty() {
            return PathForms::default();
        }
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        PathReadings::of(path)
            .forms()
            .common(self.refused_path_forms)
    }
}

/// Returns the canonical authority of an HTTP/1.0 request without `Host`.
fn default_authority(config: &EdgeConfig) -> Box<str> {
    let text = match &config.forwarding.default_authority {
        Some(authority) => authority.clone(),
        None => config.origins[0].url().authority(),
    };
    match Authority::parse("http", &text) {
        Ok(authority) => authority.canonical().into(),
        // The parser of `origin.url` does not use [`Authority`], so it may accept a text that is invalid here.
        Err(_) => text.into(),
    }
}

/// A request's head as received.
pub(crate) struct RawHead {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    /// True if the fast path has parsed the request, see [`Request::plain`].
    pub(crate) plain: bool,
    /// True if the caller knows that `Host` is canonical and that there is no other authority.
    pub(crate) host_is_canonical: bool,
    /// For HTTP/2 and HTTP/3: the charge of the decoded head to the memory budget of heads.
    pub(crate) charge: Option<HeadCharge>,
    /// Receives interim (1xx) responses, see [`Request::interims`].
    pub(crate) interims: Option<InterimSink>,
    /// The `:protocol` of an extended CONNECT over HTTP/2 or HTTP/3 (RFC 8441 §4, RFC 9220 §3).
    pub(crate) connect_protocol: Option<Box<str>>,
    /// True if content follows whose length the head does not state, as HTTP/2 and HTTP/3 allow. In HTTP/1.1,
    /// `Transfer-Encoding` states it.
    pub(crate) has_unsized_content: bool,
}

impl RawHead {
    /// Returns the head of a request that the fast path has not parsed.
    pub(crate) fn new(method: Method, uri: Uri, version: Version, headers: HeaderMap) -> Self {
        Self {
            method,
            uri,
            version,
            headers,
            plain: false,
            host_is_canonical: false,
            charge: None,
            interims: None,
            connect_protocol: None,
            has_unsized_content: false,
        }
    }
}

/// The reason why a request is neither looked up nor forwarded.
pub(crate) enum NotForwarded {
    /// The edge refuses the request.
    Refused(RequestError),
    /// `Max-Forwards` was 0: this edge is the final recipient of the request (RFC 9110 §7.6.2).
    FinalRecipient,
}

impl From<RequestError> for NotForwarded {
    fn from(refusal: RequestError) -> Self {
        Self::Refused(refusal)
    }
}

/// Makes the canonical request. A refused request is returned too, as far as it was made, for the access log.
pub(crate) fn canonical(
    canonicaliser: &Canonicaliser,
    client: &ClientFacts<'_>,
    head: RawHead,
) -> (Rc<Request>, Result<(), NotForwarded>) {
    // The request is built in its shared allocation, because moving it would be a large copy.
    let mut shared = Rc::new(Request {
        method: head.method,
        uri: head.uri,
        version: head.version,
        headers: head.headers,
        plain: head.plain,
        scheme: client.scheme,
        key_exchange: client.key_exchange,
        peer: client.peer,
        peer_text: client.peer_text.clone(),
        peer_is_trusted: client.is_trusted,
        client: client.peer.ip(),
        canonical_authority: None,
        canonical_target: None,
        options: ConnectionOptions::default(),
        hop: None,
        origin: OriginId::default(),
        upgrade: None,
        route: Route::Lookup,
        settings: None,
        class: Box::default(),
        forwarded_target: None,
        forwarded_host: None,
        response_fields: None,
        client_codings: None,
        dictionary: None,
        received_fields: None,
        _charge: head.charge,
        interims: head.interims,
    });
    let request = Rc::get_mut(&mut shared).expect("the only reference");
    if canonicaliser.purges && is_purge_method(request.method.as_str()) {
        request.received_fields = Some(Box::new(request.headers.clone()));
    }
    let result = if request.plain {
        canonicalise_plain(canonicaliser, client, request, head.host_is_canonical)
            .map_err(NotForwarded::from)
    } else {
        canonicalise(
            canonicaliser,
            client,
            request,
            head.connect_protocol.as_deref(),
            head.has_unsized_content,
        )
    };
    (shared, result)
}

/// Asks the origin for a response without a coding. The codings that the client accepts are kept for the answer.
pub(crate) fn ask_for_identity(request: &mut Request) {
    if request.client_codings.is_none() {
        request.client_codings = Some(AcceptedCodings::from_headers(&request.headers));
    }
    let identity = HeaderValue::from_static("identity");
    request.headers.insert(ACCEPT_ENCODING, identity);
}

fn canonicalise(
    canonicaliser: &Canonicaliser,
    client: &ClientFacts<'_>,
    request: &mut Request,
    connect_protocol: Option<&str>,
    has_unsized_content: bool,
) -> Result<(), NotForwarded> {
    // `Transfer-Encoding` is itself a hop-by-hop field, so it is read before these fields are removed.
    let is_coded = has_transfer_coding(&request.headers);
    request.options =
        strip_hop_by_hop(canonicaliser, request.peer_is_trusted, &mut request.headers);
    set_client(canonicaliser, client, request);
    let has_content = is_coded? || has_unsized_content;
    if request.method == Method::CONNECT {
        request.upgrade = Some(extended_connect(canonicaliser, connect_protocol)?.into());
        // RFC 8441 §5: the handshake over HTTP/1.1 is a GET.
        request.method = Method::GET;
    }
    request.canonical_authority = canonical_authority(canonicaliser, request)?;
    request.canonical_target = canonical_target(canonicaliser, request)?;
    check_length(&request.headers)?;
    if client.is_node {
        node::check_hop(canonicaliser.fleet_key.as_ref(), request)?;
    }
    join_cookies(&mut request.headers);
    request.route = if has_content {
        Route::Pass(PassReason::Content)
    } else {
        route(&request.method, &request.headers)
    };
    if canonicaliser.encodes {
        content_coding::restore_if_match(&mut request.headers);
    }
    if request.upgrade.is_none() {
        request.upgrade = upgrade(canonicaliser, request).map(Box::new);
    }
    if request.upgrade.is_some() {
        request.route = Route::Pass(PassReason::Upgrade);
    }
    let cacheable = request.route == Route::Lookup;
    let filter = &canonicaliser.field_filter;
    filter.apply(&mut request.headers, request.peer_is_trusted, cacheable);
    check(canonicaliser, request)?;
    if request.method == Method::TRACE && !canonicaliser.forwards_trace_requests {
        return Err(RequestError::no_trace().into());
    }
    match hop_by_hop::count_down_max_forwards(&request.method, &mut request.headers) {
        MaxForwards::Forward => Ok(()),
        MaxForwards::RespondHere => Err(NotForwarded::FinalRecipient),
    }
}

/// Sets address and scheme of the client, before they are read.
fn set_client(canonicaliser: &Canonicaliser, client: &ClientFacts<'_>, request: &mut Request) {
    if client.is_node && node::set_client(request) {
        return;
    }
    let found = canonicaliser.client_source.find(client, &request.headers);
    (request.client, request.scheme) = (found.address, found.scheme);
}

/// Removes the hop-by-hop fields. `Connection` removes no field that the edge reads.
fn strip_hop_by_hop(
    canonicaliser: &Canonicaliser,
    is_trusted: bool,
    headers: &mut HeaderMap,
) -> ConnectionOptions {
    let filter = &canonicaliser.field_filter;
    hop_by_hop::strip_request(headers, |name| filter.is_read(name, is_trusted))
}

/// Like [`canonicalise`], for a plain request. The fast path has checked that the omitted steps change no field.
fn canonicalise_plain(
    canonicaliser: &Canonicaliser,
    client: &ClientFacts<'_>,
    request: &mut Request,
    host_is_canonical: bool,
) -> Result<(), RequestError> {
    set_client(canonicaliser, client, request);
    if !host_is_canonical {
        request.canonical_authority = canonical_authority(canonicaliser, request)?;
    }
    let target_bytes = request.path_and_query().len() as u64;
    if target_bytes > canonicaliser.target_bytes_max {
        return Err(RequestError::target_too_long());
    }
    check_path(canonicaliser, request)?;
    let filter = &canonicaliser.field_filter;
    filter.apply_to_plain(&mut request.headers, request.peer_is_trusted);
    debug_assert!(
        is_canonical(canonicaliser, request),
        "a plain request is canonical after these steps"
    );
    Ok(())
}

/// Returns true if [`canonicalise`] would not change the request.
fn is_canonical(canonicaliser: &Canonicaliser, request: &Request) -> bool {
    let mut headers = request.headers.clone();
    join_cookies(&mut headers);
    let options = strip_hop_by_hop(canonicaliser, request.peer_is_trusted, &mut headers);
    let filter = &canonicaliser.field_filter;
    filter.apply(&mut headers, request.peer_is_trusted, true);
    headers == request.headers
        && options == request.options
        && request.route == route(&request.method, &headers)
        && matches!(has_transfer_coding(&headers), Ok(false))
        && matches!(canonical_target(canonicaliser, request), Ok(None))
        && matches!(canonical_authority(canonicaliser, request), Ok(form) if form == request.canonical_authority)
        && check(canonicaliser, request).is_ok()
}

/// Returns the upgrade of an extended CONNECT. Refuses any other CONNECT.
fn extended_connect(
    canonicaliser: &Canonicaliser,
    protocol: Option<&str>,
) -> Result<UpgradeRequest, RequestError> {
    match protocol {
        Some("websocket") if canonicaliser.upgrades.allows("websocket") => {
            UpgradeRequest::of_connect()
                .ok_or_else(|| RequestError::overloaded("the system provides no random bytes"))
        }
        Some(_) => Err(RequestError::not_implemented(UPGRADE_NOT_ALLOWED)),
        None => Err(RequestError::not_implemented(
            "CONNECT is not supported: this cache forwards to one origin only",
        )),
    }
}

/// Returns the upgrade that the origin gets, if the request asks for an allowed one. Any other upgrade is ignored: the
/// client offers it, and a server need not accept it (RFC 9110 §7.8).
fn upgrade(canonicaliser: &Canonicaliser, request: &Request) -> Option<UpgradeRequest> {
    // §7.8: a server ignores the field in an HTTP/1.0 request.
    let offered = request.options.upgrade.as_ref();
    let offered = offered.filter(|_| request.version == Version::HTTP_11)?;
    let protocols = canonicaliser.upgrades.allowed_of(offered)?;
    match request.route {
        // RFC 6455 §4.1: WebSocket needs a GET. With content, the bytes of the new protocol would begin after the
        // content, which the origin may leave unread. With an unsafe method, the response would have to wait for
        // invalidations.
        Route::Pass(PassReason::Method | PassReason::Content) => None,
        _ => Some(UpgradeRequest::new(protocols)),
    }
}

/// Refuses lengths that no content has. Many programs have no number for them, and the edge would wait for the content.
fn check_length(headers: &HeaderMap) -> Result<(), RequestError> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).into_iter();
    let is_too_large = |length: &HeaderValue| {
        let length = length.to_str().ok().and_then(|text| text.parse().ok());
        length.is_some_and(|length: u64| i64::try_from(length).is_err())
    };
    match lengths.any(is_too_large) {
        true => Err(RequestError::bad_request(
            "Content-Length is above 2^63 - 1",
        )),
        false => Ok(()),
    }
}

/// Refuses paths that the configuration does not allow.
fn check_path(canonicaliser: &Canonicaliser, request: &Request) -> Result<(), RequestError> {
    let refused = canonicaliser.refused_forms(request.path_and_query());
    if refused.is_empty() {
        return Ok(());
    }
    Err(RequestError::bad_request(format!(
        "forwarding.refused_path_forms does not allow the path: {refused}"
    )))
}

/// Refuses requests that have passed through this edge before, and paths that the configuration does not allow.
fn check(canonicaliser: &Canonicaliser, request: &Request) -> Result<(), RequestError> {
    if hop_by_hop::is_loop(&request.headers, &canonicaliser.via_name) {
        return Err(RequestError::forwarding_loop());
    }
    check_path(canonicaliser, request)
}

/// Returns true if the content is chunked. Refuses other codings: the edge cannot decode them (RFC 9112 §6.1).
fn has_transfer_coding(headers: &HeaderMap) -> Result<bool, RequestError> {
    let mut codings = members(headers, TRANSFER_ENCODING).peekable();
    let is_coded = codings.peek().is_some();
    let only_chunked = codings
        .next()
        .is_none_or(|coding| coding.eq_ignore_ascii_case(b"chunked") && codings.next().is_none());
    if only_chunked {
        Ok(is_coded)
    } else {
        Err(RequestError::not_implemented(
            "the only transfer coding supported in a request is chunked",
        ))
    }
}

/// Returns the canonical authority, or `None` if the text in the request is canonical.
///
/// RFC 9112 §3.2: HTTP/1.1 needs exactly one `Host`, also with an absolute target, which overrides `Host`
/// (§3.2.2). RFC 9113 §8.3.1: `:authority` and `Host` must agree, also in HTTP/3.
fn canonical_authority(
    canonicaliser: &Canonicaliser,
    request: &Request,
) -> Result<Option<Box<str>>, RequestError> {
    let mut hosts = request.headers.get_all(HOST).into_iter();
    let host = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(RequestError::bad_request("more than one Host")),
        (host, None) => host,
    };
    let parse = |text| {
        Authority::parse(request.scheme, text)
            .map_err(|error| RequestError::bad_request(error.to_string()))
    };
    let invalid = |_| RequestError::bad_request("Host is not a host[:port]");
    let host = host.map(|host| host.to_str().map_err(invalid).and_then(parse));
    let host = host.transpose()?;
    let target = request.uri.authority();
    let target = target.map(|target| parse(target.as_str())).transpose()?;
    let authority = match (target, host) {
        (Some(target), Some(host)) if request.version >= Version::HTTP_2 && target != host => {
            return Err(RequestError::bad_request(
                "Host differs from :authority: send one of them",
            ));
        }
        (_, None) if request.version == Version::HTTP_11 => None,
        (target, host) => target.or(host),
    };
    match authority {
        Some(authority) => match authority.canonical() {
            Cow::Borrowed(_) => Ok(None),
            Cow::Owned(text) => Ok(Some(text.into())),
        },
        None if request.version < Version::HTTP_11 => {
            Ok(Some(canonicaliser.default_authority.clone()))
        }
        None => Err(RequestError::bad_request("no Host")),
    }
}

/// Returns the canonical target, or `None` if the text in the request is canonical.
fn canonical_target(
    canonicaliser: &Canonicaliser,
    request: &Request,
) -> Result<Option<Box<str>>, RequestError> {
    let path_and_query = request
        .uri
        .path_and_query()
        .map_or("", |target| target.as_str());
    if path_and_query.len() as u64 > canonicaliser.target_bytes_max {
        return Err(RequestError::target_too_long());
    }
    let target = RequestTarget {
        method: &request.method,
        scheme: request.uri.scheme_str(),
        has_authority: request.uri.authority().is_some(),
        is_pseudo_header: request.version >= Version::HTTP_2,
        path_and_query,
    };
    match target.canonical() {
        Ok(canonical) if canonical == path_and_query => Ok(None),
        Ok(canonical) => Ok(Some(canonical.into())),
        Err(error) => Err(RequestError::bad_request(error.to_string())),
    }
}

/// Joins lines of `Cookie`. HTTP/2 and HTTP/3 clients may split the field (RFC 9113 §8.2.3, RFC 9114 §4.2.1). Origins
/// expect one (RFC 6265 §5.4).
fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(COOKIE).into_iter();
    if crumbs.nth(1).is_none() {
        return;
    }
    let crumbs: Vec<&[u8]> = headers
        .get_all(COOKIE)
        .into_iter()
        .map(HeaderValue::as_bytes)
        .collect();
    let joined = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]));
    headers.insert(COOKIE, joined.expect("joined values form a valid value"));
}

/// Returns the length of the body that `Content-Length` states.
pub(crate) fn declared_length(request: &Request) -> Option<u64> {
    let length = request.headers.get(CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

const UPGRADE_NOT_ALLOWED: &str =
    "forwarding.upgrades does not allow the protocol that the request asks for";
