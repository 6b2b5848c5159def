//! A request as it arrived becomes the one canonical request.
//!
//! Cache key, `Vary` key and forwarded request are made from the [`Ask`] that [`canonical`] returns, and from nothing
//! else. The order matters: fields of the connection are removed before any other field is read.

use std::borrow::Cow;
use std::rc::Rc;

use edgeward_semantics::hop_by_hop::{self, ConnectionOptions, MaxForwards};
use edgeward_semantics::{Authority, PassReason, RequestTarget, Route, route};
use http::header::{CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::{Method, StatusCode, Uri, Version};

use super::deliver::Refusal;
use super::{Ask, ClientLink};
use crate::client_io::Interims;
use crate::heads::HeadCharge;
use crate::worker::Worker;

/// A request's head as it arrived.
pub(crate) struct RawHead {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    /// See [`Ask::plain`].
    pub(crate) plain: bool,
    /// True if `Host` is known to be canonical and the only authority.
    pub(crate) host_is_canonical: bool,
    /// What the head takes of the memory for heads, if it came by HTTP/2.
    pub(crate) charge: Option<HeadCharge>,
    /// See [`Ask::interims`].
    pub(crate) interims: Option<Interims>,
}

/// Why a request goes no further.
pub(super) enum Stop {
    /// It is refused.
    Refuse(Refusal),
    /// `Max-Forwards` was 0: this edge is its final recipient (RFC 9110 §7.6.2).
    AnswerHere,
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refuse(refusal)
    }
}

/// Makes the canonical request. A refusal comes with the request as far as it was understood, for the log.
pub(super) fn canonical(
    worker: &Worker,
    link: &ClientLink,
    head: RawHead,
) -> (Rc<Ask>, Result<(), Stop>) {
    let plain = head.plain;
    // Made where it stays: it is large.
    let mut shared = Rc::new(Ask {
        method: head.method,
        uri: head.uri,
        version: head.version,
        headers: head.headers,
        plain: head.plain,
        scheme: link.scheme(),
        peer: link.peer,
        peer_text: link.peer_text.clone(),
        peer_is_trusted: link.is_trusted,
        canonical_authority: None,
        canonical_target: None,
        options: ConnectionOptions::default(),
        route: Route::Lookup,
        _charge: head.charge,
        interims: head.interims,
    });
    let ask = Rc::get_mut(&mut shared).expect("nobody else has it yet");
    let result = if plain {
        canonicalise_plain(worker, ask, head.host_is_canonical).map_err(Stop::from)
    } else {
        canonicalise(worker, ask)
    };
    (shared, result)
}

fn canonicalise(worker: &Worker, ask: &mut Ask) -> Result<(), Stop> {
    // Before the fields of the connection go: they say whether there is content.
    let is_coded = has_transfer_coding(&ask.headers)?;
    ask.options = hop_by_hop::strip_request(&mut ask.headers);
    if ask.method == Method::CONNECT {
        return Err(Refusal::not_implemented(
            "CONNECT makes tunnels, and this is a cache before one origin",
        )
        .into());
    }
    ask.canonical_authority = canonical_authority(worker, ask)?;
    ask.canonical_target = canonical_target(worker, ask)?;
    join_cookies(&mut ask.headers);
    ask.route = if is_coded {
        Route::Pass(PassReason::Content)
    } else {
        route(&ask.method, &ask.headers)
    };
    let cacheable = ask.route == Route::Lookup;
    let filter = &worker.shared.field_filter;
    filter.apply(&mut ask.headers, ask.peer_is_trusted, cacheable);
    check(ask, worker)?;
    if ask.method == Method::TRACE && !worker.config().forwarding.trace {
        return Err(Refusal::no_trace().into());
    }
    match hop_by_hop::count_down_max_forwards(&ask.method, &mut ask.headers) {
        MaxForwards::Forward => Ok(()),
        MaxForwards::RespondHere => Err(Stop::AnswerHere),
    }
}

/// As [`canonicalise`], for a plain request. The lane has read each of its fields and found nothing that the other steps look
/// for, and a look into the map costs more than one at the bytes.
fn canonicalise_plain(
    worker: &Worker,
    ask: &mut Ask,
    host_is_canonical: bool,
) -> Result<(), Refusal> {
    if !host_is_canonical {
        ask.canonical_authority = canonical_authority(worker, ask)?;
    }
    let target_bytes = ask.path_and_query().len() as u64;
    if target_bytes > worker.config().limits.target_bytes_max.bytes() {
        return Err(Refusal::target_too_long());
    }
    let filter = &worker.shared.field_filter;
    filter.apply_to_plain(&mut ask.headers, ask.peer_is_trusted);
    debug_assert!(is_canonical(worker, ask), "a plain request needs no more");
    Ok(())
}

/// Returns true if the steps of [`canonicalise`] would change nothing in the request.
fn is_canonical(worker: &Worker, ask: &Ask) -> bool {
    let mut headers = ask.headers.clone();
    join_cookies(&mut headers);
    let options = hop_by_hop::strip_request(&mut headers);
    let filter = &worker.shared.field_filter;
    filter.apply(&mut headers, ask.peer_is_trusted, true);
    headers == ask.headers
        && options == ask.options
        && ask.route == route(&ask.method, &headers)
        && matches!(has_transfer_coding(&headers), Ok(false))
        && matches!(canonical_target(worker, ask), Ok(None))
        && matches!(canonical_authority(worker, ask), Ok(form) if form == ask.canonical_authority)
        && check(ask, worker).is_ok()
}

/// Refuses what cannot be answered by anyone, with the reason.
fn check(ask: &Ask, worker: &Worker) -> Result<(), Refusal> {
    if ask.options.upgrade.as_ref().is_some_and(wants_upgrade) {
        return Err(Refusal::not_implemented(
            "no protocol can be switched to; WebSocket needs a way past this edge",
        ));
    }
    if let Some(max) = worker.config().limits.request_body_bytes_max
        && declared_length(ask).is_some_and(|length| length > max.bytes())
    {
        return Err(Refusal::too_large());
    }
    if hop_by_hop::is_loop(&ask.headers, &worker.shared.via_name) {
        return Err(Refusal::looped());
    }
    Ok(())
}

/// Whether the content is chunked. Refuses any other coding: no part of the edge decodes it (RFC 9112 §6.1).
fn has_transfer_coding(headers: &HeaderMap) -> Result<bool, Refusal> {
    let mut codings = headers
        .get_all(TRANSFER_ENCODING)
        .iter()
        .flat_map(|line| line.as_bytes().split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|coding| !coding.is_empty())
        .peekable();
    let is_coded = codings.peek().is_some();
    let only_chunked = codings
        .next()
        .is_none_or(|coding| coding.eq_ignore_ascii_case(b"chunked") && codings.next().is_none());
    if only_chunked {
        Ok(is_coded)
    } else {
        Err(Refusal::not_implemented(
            "the only transfer coding understood in a request is chunked",
        ))
    }
}

/// The canonical authority, if it is not the text in the request.
///
/// RFC 9112 §3.2: HTTP/1.1 needs `Host`, once, even beside an absolute target, which goes before it (§3.2.2). RFC 9113
/// §8.3.1: `:authority` and `Host` must agree.
fn canonical_authority(worker: &Worker, ask: &Ask) -> Result<Option<Box<str>>, Refusal> {
    let mut hosts = ask.headers.get_all(HOST).into_iter();
    let host = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(Refusal::bad_request("more than one Host".to_owned())),
        (host, None) => host,
    };
    let parse = |text| {
        Authority::parse(ask.scheme, text).map_err(|error| Refusal::bad_request(error.to_string()))
    };
    let host = match host {
        Some(host) => {
            let text = host
                .to_str()
                .map_err(|_| Refusal::bad_request("Host is not a host[:port]".to_owned()))?;
            Some(parse(text)?)
        }
        None => None,
    };
    let target = match ask.uri.authority() {
        Some(authority) => Some(parse(authority.as_str())?),
        None => None,
    };
    let authority = match (target, host) {
        (Some(target), Some(host)) if ask.version == Version::HTTP_2 && target != host => {
            return Err(Refusal::bad_request(
                "Host differs from :authority: send one of them".to_owned(),
            ));
        }
        (_, None) if ask.version == Version::HTTP_11 => None,
        (target, host) => target.or(host),
    };
    match authority {
        Some(authority) => match authority.canonical() {
            Cow::Borrowed(_) => Ok(None),
            Cow::Owned(text) => Ok(Some(text.into())),
        },
        None if ask.version < Version::HTTP_11 => Ok(Some(worker.shared.default_authority.clone())),
        None => Err(Refusal::bad_request("no Host".to_owned())),
    }
}

/// The canonical target, if it is not the text in the request.
fn canonical_target(worker: &Worker, ask: &Ask) -> Result<Option<Box<str>>, Refusal> {
    let path_and_query = ask
        .uri
        .path_and_query()
        .map_or("", |target| target.as_str());
    if path_and_query.len() as u64 > worker.config().limits.target_bytes_max.bytes() {
        return Err(Refusal::target_too_long());
    }
    let target = RequestTarget {
        method: &ask.method,
        scheme: ask.uri.scheme_str(),
        has_authority: ask.uri.authority().is_some(),
        is_pseudo_header: ask.version == Version::HTTP_2,
        path_and_query,
    };
    match target.canonical() {
        Ok(canonical) if canonical == path_and_query => Ok(None),
        Ok(canonical) => Ok(Some(canonical.into())),
        Err(error) => Err(Refusal::bad_request(error.to_string())),
    }
}

/// RFC 9113 §8.2.3: HTTP/2 splits the field, and no other protocol does (RFC 6265 §5.4).
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
    headers.insert(COOKIE, joined.expect("made of values and visible ASCII"));
}

/// `Upgrade: h2c` is what clients send on the off-chance and is ignored, as RFC 9110 §7.8 allows;
/// whoever asks for another protocol means it.
fn wants_upgrade(protocol: &HeaderValue) -> bool {
    !protocol
        .as_bytes()
        .trim_ascii()
        .eq_ignore_ascii_case(b"h2c")
}

fn declared_length(ask: &Ask) -> Option<u64> {
    let length = ask.headers.get(CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

impl Refusal {
    pub(super) fn bad_request(text: String) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            cache_status: None,
            text: text.into(),
            close: true,
        }
    }

    pub(crate) fn fragment() -> Self {
        Self::bad_request(edgeward_semantics::InvalidRequestTarget::Fragment.to_string())
    }

    pub(crate) fn target_too_long() -> Self {
        Self {
            status: StatusCode::URI_TOO_LONG,
            cache_status: None,
            text: "the target is longer than limits.target_bytes_max".into(),
            close: true,
        }
    }

    fn no_trace() -> Self {
        Self {
            status: StatusCode::METHOD_NOT_ALLOWED,
            cache_status: None,
            text: "TRACE is not forwarded; forwarding.trace = true allows it".into(),
            close: false,
        }
    }

    pub(super) fn too_many_fields() -> Self {
        Self {
            status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            cache_status: None,
            text: "the request has more header fields than allowed".into(),
            close: false,
        }
    }

    pub(super) fn overloaded(text: &'static str) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            cache_status: None,
            text: text.into(),
            close: false,
        }
    }

    fn not_implemented(text: &'static str) -> Self {
        Self {
            status: StatusCode::NOT_IMPLEMENTED,
            cache_status: None,
            text: text.into(),
            close: true,
        }
    }

    fn too_large() -> Self {
        Self {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            cache_status: None,
            text: "the request's body is larger than allowed".into(),
            // Else the body that is coming would have to be read to find the next request.
            close: true,
        }
    }

    fn looped() -> Self {
        Self {
            status: StatusCode::LOOP_DETECTED,
            cache_status: None,
            text:
                "this request has passed through this very edge before: the origin leads back here"
                    .into(),
            close: false,
        }
    }
}
