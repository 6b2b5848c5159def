//! The request as the origin gets it.

use std::borrow::Cow;

use edgeward_semantics::{Validators, VaryFields, conditional, hop_by_hop, request_fields};
use http::header::{
    ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CONNECTION, CONTENT_LENGTH, EXPECT,
    FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, VIA,
};
use http::uri::{PathAndQuery, Uri};
use http::{Method, Version};

use super::interim;
use super::upload::Upload;
use crate::base::config::{ForwardingConfig, HostPolicy, OriginConfig, OriginProtocol};
use crate::exchange::{InterimSink, Request};

/// What goes to the origin for a request, built anew for each try.
pub(crate) struct Outbound<'a> {
    pub(crate) hop: Hop<'a>,
    pub(crate) request: &'a Request,
    pub(crate) method: &'a Method,
    pub(crate) conditions: Conditions<'a>,
}

/// This edge as a hop between a client and its origin.
#[derive(Clone, Copy)]
pub(crate) struct Hop<'a> {
    pub(crate) origin: &'a OriginConfig,
    pub(crate) forwarding: &'a ForwardingConfig,
    /// Its name in `Via`.
    pub(crate) via_name: &'a str,
    /// The whole field for a request by HTTP/1.1 that came straight from a client.
    pub(crate) via_http11: &'a HeaderValue,
}

/// What becomes of the client's conditions and its range.
#[derive(Clone, Copy)]
pub(crate) enum Conditions<'a> {
    /// The origin answers them.
    Keep,
    /// The answer is to be complete, so that it can be stored.
    Remove,
    /// The origin is asked whether what is stored still holds.
    Revalidate(&'a Validators),
}

impl Outbound<'_> {
    /// The request as a map, for hyper.
    pub(crate) fn request(&self, upload: Upload) -> http::Request<Upload> {
        let Self { hop, request, .. } = *self;
        let mut headers = request.headers.clone();
        if request.options.takes_trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
            if hop.origin.protocol == OriginProtocol::Http1 {
                // RFC 9110 §10.1.4. HTTP/2 has no connection options (RFC 9113 §8.2.2).
                headers.insert(CONNECTION, HeaderValue::from_static("te"));
            }
        }
        if upload.expectation().is_none() {
            // There is no body, or the edge reads it without asking the origin.
            headers.remove(EXPECT);
        }
        canonical_values(&mut headers);
        forwarded(hop, request, &mut headers);
        if request.version == Version::HTTP_11 && !headers.contains_key(VIA) {
            headers.insert(VIA, hop.via_http11.clone());
        } else {
            hop_by_hop::append_via(&mut headers, request.version, hop.via_name);
        }
        match self.conditions {
            Conditions::Keep => {}
            Conditions::Remove => conditional::remove_client_conditions(&mut headers),
            Conditions::Revalidate(stored) => {
                conditional::revalidation_request(&mut headers, stored);
            }
        }
        let uri = match hop.origin.protocol {
            OriginProtocol::Http1 => {
                headers.insert(HOST, host(hop, request));
                origin_form(request)
            }
            OriginProtocol::Http2 => {
                headers.remove(HOST);
                absolute_form(hop, request, &host(hop, request))
            }
        };
        let expectation = upload.expectation().cloned();
        let relay = upload.interim_relay();
        let mut built = http::Request::new(upload);
        interim::listen(&mut built, expectation, relay);
        *built.method_mut() = self.method.clone();
        *built.uri_mut() = uri;
        *built.headers_mut() = headers;
        *built.version_mut() = match hop.origin.protocol {
            OriginProtocol::Http1 => Version::HTTP_11,
            OriginProtocol::Http2 => Version::HTTP_2,
        };
        built
    }

    /// The head of the request on an HTTP/1.1 connection (RFC 9112 §3), without a body to follow.
    pub(crate) fn head(&self) -> Vec<u8> {
        if self.is_ordinary() {
            self.ordinary_head()
        } else {
            head_of(&self.request(Upload::Empty))
        }
    }

    /// The address of the client it is made for.
    pub(crate) fn client(&self) -> std::net::IpAddr {
        self.request.peer.ip()
    }

    pub(crate) fn method(&self) -> &Method {
        self.method
    }

    /// Where interim responses go, if the client can take them.
    pub(crate) fn interims(&self) -> Option<&InterimSink> {
        self.request.interims.as_ref()
    }

    /// Whether nothing in the request has to be joined, taken apart or replaced.
    fn is_ordinary(&self) -> bool {
        self.request.version == Version::HTTP_11
            && !self.hop.forwarding.forwarded
            && !self.request.peer_is_trusted
            && !self.request.options.takes_trailers
            && !matches!(self.conditions, Conditions::Revalidate(_))
            && (self.request.plain || !self.request.headers.contains_key(VIA))
    }

    /// The same bytes as by way of the map, which would cost a third of all the work of a miss.
    fn ordinary_head(&self) -> Vec<u8> {
        let Self { hop, request, .. } = *self;
        let keeps_conditions = matches!(self.conditions, Conditions::Keep);
        let authority = request.authority();
        let mut head = Vec::with_capacity(ORDINARY_HEAD_BYTES);
        request_line(&mut head, self.method, request.path_and_query());
        let mut canonical: Option<&HeaderName> = None;
        for (name, value) in &request.headers {
            let goes = *name == HOST
                || *name == EXPECT
                || *name == CONTENT_LENGTH
                || (!keeps_conditions && conditional::is_condition(name));
            if goes || canonical == Some(name) {
                continue;
            }
            if request_fields::has_canonical_form(name) {
                // All its lines at once; the others follow this one.
                canonical = Some(name);
                head.extend_from_slice(name.as_str().as_bytes());
                head.extend_from_slice(b": ");
                request_fields::write_value(name, &request.headers, &mut head);
                head.extend_from_slice(b"\r\n");
            } else {
                field(&mut head, name, value.as_bytes());
            }
        }
        if hop.forwarding.x_forwarded {
            field(&mut head, &X_FORWARDED_FOR, request.peer_text.as_bytes());
            field(&mut head, &X_FORWARDED_PROTO, request.scheme.as_bytes());
            if let Some(host) = authority {
                field(&mut head, &X_FORWARDED_HOST, host.as_bytes());
            }
        }
        field(&mut head, &VIA, hop.via_http11.as_bytes());
        match hop.origin.host_policy() {
            HostPolicy::Forward => {
                field(&mut head, &HOST, authority.unwrap_or_default().as_bytes());
            }
            HostPolicy::Origin | HostPolicy::Fixed(_) => {
                field(&mut head, &HOST, host(hop, request).as_bytes());
            }
        }
        end_head(&mut head, self.method);
        head
    }
}

/// A request's head as bytes. Its fields come from `http` types, which hold no line break.
fn head_of(request: &http::Request<Upload>) -> Vec<u8> {
    let target = request.uri().path_and_query();
    let mut head = Vec::with_capacity(ORDINARY_HEAD_BYTES);
    request_line(
        &mut head,
        request.method(),
        target.map_or("/", |target| target.as_str()),
    );
    for (name, value) in request.headers() {
        // There is no body, whatever the client's request said of one.
        if *name != CONTENT_LENGTH && *name != TRANSFER_ENCODING {
            field(&mut head, name, value.as_bytes());
        }
    }
    end_head(&mut head, request.method());
    head
}

fn request_line(head: &mut Vec<u8>, method: &Method, target: &str) {
    head.extend_from_slice(method.as_str().as_bytes());
    head.push(b' ');
    head.extend_from_slice(target.as_bytes());
    head.extend_from_slice(b" HTTP/1.1\r\n");
}

fn field(head: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    head.extend_from_slice(name.as_str().as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

fn end_head(head: &mut Vec<u8>, method: &Method) {
    // RFC 9110 §8.6: said only where a body would be expected.
    if matches!(*method, Method::POST | Method::PUT | Method::PATCH) {
        field(head, &CONTENT_LENGTH, b"0");
    }
    head.extend_from_slice(b"\r\n");
}

fn host(hop: Hop<'_>, request: &Request) -> HeaderValue {
    let origin = hop.origin;
    let text = match origin.host_policy() {
        HostPolicy::Forward => request.authority().unwrap_or_default().to_owned(),
        HostPolicy::Origin => origin.url.authority(),
        HostPolicy::Fixed(host) => host.clone(),
    };
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn origin_form(request: &Request) -> Uri {
    // `OPTIONS *` keeps its star (RFC 9112 §3.2.4).
    let target = match (&request.canonical_target, request.uri.path_and_query()) {
        (None, Some(target)) => target.clone(),
        _ => PathAndQuery::try_from(request.path_and_query())
            .expect("a canonical target is a path and query"),
    };
    Uri::from(target)
}

/// The fields of the request as the origin sees them, as far as these decide on a variant: those that the edge
/// writes are its own.
///
/// Copies the map only if the response varies by such a field; few do.
pub(crate) fn as_origin_sees<'a>(
    hop: Hop<'_>,
    request: &'a Request,
    fields: &VaryFields,
) -> Cow<'a, HeaderMap> {
    let is_ours = |name: &HeaderName| {
        *name == HOST
            || *name == FORWARDED
            || *name == X_FORWARDED_FOR
            || *name == X_FORWARDED_PROTO
            || *name == X_FORWARDED_HOST
    };
    if !fields.names().iter().any(is_ours) {
        return Cow::Borrowed(&request.headers);
    }
    let mut headers = request.headers.clone();
    forwarded(hop, request, &mut headers);
    headers.insert(HOST, host(hop, request));
    Cow::Owned(headers)
}

/// Puts the values that `Vary` keys hold in the place of the client's: see [`request_fields`].
fn canonical_values(headers: &mut HeaderMap) {
    for name in [ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE] {
        if headers.contains_key(&name) {
            let mut value = Vec::with_capacity(VALUE_BYTES);
            request_fields::write_value(&name, headers, &mut value);
            let value = HeaderValue::from_bytes(&value);
            headers.insert(name, value.expect("made of the bytes of values"));
        }
    }
}

fn absolute_form(hop: Hop<'_>, request: &Request, host: &HeaderValue) -> Uri {
    let scheme = if hop.origin.url.tls { "https" } else { "http" };
    Uri::builder()
        .scheme(scheme)
        .authority(host.as_bytes())
        .path_and_query(request.path_and_query())
        .build()
        .unwrap_or_else(|_| origin_form(request))
}

/// Tells the origin whom it answers. These fields are there already only if the client is a trusted proxy: then its
/// lists are continued, and what it says of the first request stays.
fn forwarded(hop: Hop<'_>, request: &Request, headers: &mut HeaderMap) {
    let config = hop.forwarding;
    if config.x_forwarded {
        append_member(headers, &X_FORWARDED_FOR, &request.peer_text);
        headers
            .entry(X_FORWARDED_PROTO)
            .or_insert_with(|| HeaderValue::from_static(request.scheme));
        if let Some(host) = request
            .authority()
            .and_then(|host| HeaderValue::try_from(host).ok())
        {
            headers.entry(X_FORWARDED_HOST).or_insert(host);
        }
    }
    if config.forwarded {
        let peer = request.peer.ip().to_canonical();
        // RFC 7239 §6: an IPv6 address stands in brackets and quotes.
        let node = if peer.is_ipv6() {
            format!("\"[{peer}]\"")
        } else {
            peer.to_string()
        };
        let host = request.authority().unwrap_or_default();
        let member = format!("for={node};host=\"{host}\";proto={}", request.scheme);
        if let Ok(member) = HeaderValue::try_from(member) {
            append_member(headers, &FORWARDED, &member);
        }
    }
}

fn append_member(headers: &mut HeaderMap, name: &HeaderName, member: &HeaderValue) {
    if !headers.contains_key(name) {
        headers.insert(name.clone(), member.clone());
        return;
    }
    let mut line = Vec::with_capacity(64);
    for value in headers.get_all(name) {
        line.extend_from_slice(value.as_bytes());
        line.extend_from_slice(b", ");
    }
    line.extend_from_slice(member.as_bytes());
    if let Ok(value) = HeaderValue::try_from(line) {
        headers.insert(name.clone(), value);
    }
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// What most values fit into.
const VALUE_BYTES: usize = 64;

/// What most heads fit into, so that writing one allocates once.
const ORDINARY_HEAD_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use edgeward_semantics::Route;
    use proptest::prelude::*;

    use super::*;
    use crate::exchange::FieldFilter;

    /// A head's lines, sorted: the order of different fields means nothing (RFC 9110 §5.3).
    fn lines(head: &[u8]) -> Vec<String> {
        let text = String::from_utf8_lossy(head);
        let mut lines: Vec<_> = text.split("\r\n").map(str::to_owned).collect();
        lines.sort();
        lines
    }

    proptest! {
        /// Whatever the client's fields, the short way writes what the map would.
        #[test]
        fn the_short_way_writes_what_the_map_would(
            fields in prop::collection::vec(
                (prop::sample::select(NAMES), "[ -~]{0,12}"),
                0..10,
            ),
            removes in any::<bool>(),
            head in any::<bool>(),
            trusted in any::<bool>(),
        ) {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static("example.com"));
            for (name, value) in &fields {
                headers.append(*name, value.trim().parse().expect("a value"));
            }
            let peer = std::net::SocketAddr::from(([192, 0, 2, 1], 4711));
            let options = hop_by_hop::strip_request(&mut headers);
            let filter = FieldFilter::new(&ForwardingConfig::default());
            filter.apply(&mut headers, trusted, true);
            let request = Request {
                method: Method::GET,
                uri: Uri::from_static("/a?b"),
                version: Version::HTTP_11,
                headers,
                plain: false,
                scheme: "http",
                peer,
                peer_text: HeaderValue::from_static("192.0.2.1"),
                _charge: None,
                peer_is_trusted: trusted,
                canonical_authority: None,
                canonical_target: None,
                options,
                route: Route::Lookup,
                interims: None,
            };
            let origin = OriginConfig::new("http://origin.example:81".parse().expect("a URL"));
            let outbound = Outbound {
                hop: Hop {
                    origin: &origin,
                    forwarding: &ForwardingConfig::default(),
                    via_name: "edge",
                    via_http11: &HeaderValue::from_static("1.1 edge"),
                },
                request: &request,
                method: if head { &Method::HEAD } else { &Method::GET },
                conditions: if removes { Conditions::Remove } else { Conditions::Keep },
            };
            let by_map = head_of(&outbound.request(Upload::Empty));
            prop_assert_eq!(lines(&outbound.head()), lines(&by_map));
        }
    }

    const NAMES: &[&str] = &[
        "accept",
        "accept-encoding",
        "accept-language",
        "user-agent",
        "cookie",
        "range",
        "if-none-match",
        "if-modified-since",
        "expect",
        "te",
        "connection",
        "keep-alive",
        "via",
        "x-forwarded-for",
        "x-forwarded-host",
        "forwarded",
        "authorization",
        "proxy-authorization",
        "content-length",
        "upgrade",
        "proxy-connection",
        "transfer-encoding",
    ];
}
