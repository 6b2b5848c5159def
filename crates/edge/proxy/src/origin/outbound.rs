//! Builds the request that the edge sends to the origin.

use std::borrow::Cow;

use edgeward_s3::Content;
use edgeward_semantics::{Validators, VaryFields, conditional, hop_by_hop, request_fields};
use http::header::{
    ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CONNECTION, CONTENT_LENGTH, EXPECT,
    FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, IF_RANGE, RANGE, SEC_WEBSOCKET_KEY, TE,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::uri::{PathAndQuery, Uri};
use http::{Method, Version};

use super::interim;
use super::s3::Signing;
use super::upload::Upload;
use crate::config::{ForwardingConfig, HostPolicy, OriginConfig, OriginProtocol};
use crate::exchange::field_bytes::push_field;
use crate::exchange::hop::HOP;
use crate::exchange::{InterimSink, Request};

/// The parts from which a request to the origin is built. Each try builds the request again.
pub(crate) struct Outbound<'a> {
    pub(crate) edge: EdgeInfo<'a>,
    pub(crate) request: &'a Request,
    /// The method at the origin: GET for a fetch, even if the client's method is HEAD.
    pub(crate) method: &'a Method,
    pub(crate) conditions: Conditions<'a>,
    /// The destination, if the request is sent to another node of the fleet.
    pub(crate) peer: Option<PeerTarget<'a>>,
}

/// The destination of a request to another node of the fleet.
#[derive(Clone, Copy)]
pub(crate) struct PeerTarget<'a> {
    /// The signed statement for the node.
    pub(crate) hop: &'a HeaderValue,
    /// The host as the client has sent it, because the node applies the rules of the site itself.
    pub(crate) host: &'a str,
    /// Path and query as the client has sent them.
    pub(crate) target: &'a str,
}

/// The settings of this edge that affect the requests it sends to the origin.
#[derive(Clone, Copy)]
pub(crate) struct EdgeInfo<'a> {
    pub(crate) origin: &'a OriginConfig,
    pub(crate) forwarding: &'a ForwardingConfig,
    /// The name of this edge in `Via`.
    pub(crate) via_name: &'a str,
    /// The value of `Via` for an HTTP/1.1 request without `Via`.
    pub(crate) via_http11: &'a HeaderValue,
    /// The name of this edge in `CDN-Loop`.
    pub(crate) cdn_loop: &'a HeaderValue,
    /// Signs the requests, if the origin is a bucket.
    pub(crate) signing: Option<Signing<'a>>,
}

/// The conditions and the range of the request to the origin.
#[derive(Clone, Copy)]
pub(crate) enum Conditions<'a> {
    /// Send the client's conditions and range, which the origin evaluates.
    Keep,
    /// Send neither conditions nor a range, so that the response is complete and can be stored.
    Remove,
    /// Send conditions that revalidate the stored response with these validators.
    Revalidate(&'a Validators),
    /// Request a part of the representation, but no part of another version than that of `if_range` (RFC 9110 §13.1.5).
    /// With `stale`, the request also revalidates the stored response with these validators.
    Part {
        range: &'a HeaderValue,
        if_range: Option<&'a HeaderValue>,
        stale: Option<&'a Validators>,
    },
}

impl Outbound<'_> {
    /// Returns the request for hyper's client, with its fields as a map.
    pub(crate) fn request(&self, upload: Upload) -> http::Request<Upload> {
        let Self { edge, request, .. } = *self;
        let mut headers = request.headers.clone();
        if request.options.takes_trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
            if edge.origin.protocol == OriginProtocol::Http1 {
                // RFC 9110 §10.1.4. HTTP/2 has no connection options (RFC 9113 §8.2.2).
                headers.insert(CONNECTION, HeaderValue::from_static("te"));
            }
        }
        if let Some(upgrade) = &request.upgrade {
            headers.append(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, upgrade.protocols.clone());
            if let Some(key) = &upgrade.made_key {
                headers.insert(SEC_WEBSOCKET_KEY, key.clone());
            }
        }
        if upload.expectation().is_none() {
            // The request has no body, or the edge reads the body without waiting for the origin.
            headers.remove(EXPECT);
        }
        set_canonical_values(&mut headers);
        set_forwarded_fields(edge, request, &mut headers);
        // RFC 8586 §2: a member for each network, after those of the received request.
        append_member(&mut headers, &hop_by_hop::CDN_LOOP, edge.cdn_loop);
        if !edge.origin.via {
            headers.remove(VIA);
        } else if request.version == Version::HTTP_11 && !headers.contains_key(VIA) {
            headers.insert(VIA, edge.via_http11.clone());
        } else {
            hop_by_hop::append_via(&mut headers, request.version, edge.via_name);
        }
        match self.conditions {
            Conditions::Keep => {}
            Conditions::Remove => conditional::remove_client_conditions(&mut headers),
            Conditions::Revalidate(stored) => {
                conditional::revalidation_request(&mut headers, stored);
            }
            Conditions::Part {
                range,
                if_range,
                stale,
            } => {
                match stale {
                    Some(stale) => conditional::revalidation_request(&mut headers, stale),
                    None => conditional::remove_client_conditions(&mut headers),
                }
                headers.insert(RANGE, range.clone());
                if let Some(validator) = if_range {
                    headers.insert(IF_RANGE, validator.clone());
                }
            }
        }
        // The origin gets one line, also if the client has sent several equal ones (RFC 9110 §8.6).
        match upload.length() {
            Some(length) if length > 0 || is_expected_content(self.method) => {
                headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
            }
            _ => _ = headers.remove(CONTENT_LENGTH),
        }
        if let Some(peer) = self.peer {
            headers.insert(HOP, peer.hop.clone());
        }
        let (host, target) = self.destination();
        let uri = match edge.origin.protocol {
            OriginProtocol::Http1 => {
                headers.insert(HOST, host);
                // hyper sends a body of unknown length with these methods only if the field is present.
                if matches!(*self.method, Method::GET | Method::HEAD) && upload.length().is_none() {
                    headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
                }
                origin_form(request)
            }
            OriginProtocol::Http2 => {
                headers.remove(HOST);
                absolute_form(edge, request, &host, target)
            }
        };
        let expectation = upload.expectation().cloned();
        let relay = upload.interim_relay();
        let mut built = http::Request::new(upload);
        interim::report_to(&mut built, expectation, relay);
        *built.method_mut() = self.method.clone();
        *built.uri_mut() = uri;
        *built.headers_mut() = headers;
        *built.version_mut() = match edge.origin.protocol {
            OriginProtocol::Http1 => Version::HTTP_11,
            OriginProtocol::Http2 => Version::HTTP_2,
        };
        self.sign(&mut built);
        built
    }

    /// Returns host and target of the request.
    fn destination(&self) -> (HeaderValue, &str) {
        let request = self.request;
        match self.peer {
            None => (host(self.edge, request), request.forwarded_target()),
            Some(PeerTarget { host, target, .. }) => {
                let host = HeaderValue::try_from(host);
                (host.unwrap_or(HeaderValue::from_static("")), target)
            }
        }
    }

    /// Signs a request if the origin is a bucket. A request that is sent again is signed again, because a bucket
    /// refuses old signatures.
    pub(super) fn sign(&self, built: &mut http::Request<Upload>) {
        if let Some(signing) = self.edge.signing {
            let content = match built.body() {
                Upload::Empty => Content::Empty,
                Upload::Stream(_) => Content::Unsigned,
            };
            signing.sign(built, content);
        }
    }

    /// Returns the bytes of the request's head on an HTTP/1.1 connection (RFC 9112 §3), without a body.
    pub(crate) fn head(&self) -> Vec<u8> {
        if self.is_ordinary() {
            self.ordinary_head()
        } else {
            head_of(&self.request(Upload::Empty))
        }
    }

    /// Returns the sink of interim responses, if the client can receive them.
    pub(crate) fn interims(&self) -> Option<&InterimSink> {
        self.request.interims.as_ref()
    }

    /// Returns true if [`ordinary_head`](Self::ordinary_head) applies. A [plain](Request::plain) request has neither
    /// `Via` nor `CDN-Loop`.
    fn is_ordinary(&self) -> bool {
        self.request.version == Version::HTTP_11
            && self.edge.signing.is_none()
            && self.peer.is_none()
            && !self.edge.forwarding.forwarded
            && !self.request.peer_is_trusted
            && !self.request.options.takes_trailers
            && self.request.upgrade.is_none()
            && matches!(self.conditions, Conditions::Keep | Conditions::Remove)
            && (self.request.plain
                || !(self.request.headers.contains_key(VIA)
                    || self.request.headers.contains_key(hop_by_hop::CDN_LOOP)))
    }

    /// Returns a head with the same lines as [`head_of`] returns for [`request`](Self::request). Builds no map of the
    /// fields, because the map would take a third of the CPU time of a miss.
    fn ordinary_head(&self) -> Vec<u8> {
        let Self { edge, request, .. } = *self;
        let keeps_conditions = matches!(self.conditions, Conditions::Keep);
        let authority = request.authority();
        let mut head = Vec::with_capacity(ORDINARY_HEAD_BYTES);
        request_line(&mut head, self.method, request.forwarded_target());
        let mut canonical: Option<&HeaderName> = None;
        for (name, value) in &request.headers {
            let is_removed = *name == HOST
                || *name == EXPECT
                || *name == CONTENT_LENGTH
                || (!keeps_conditions && conditional::is_condition(name));
            if is_removed || canonical == Some(name) {
                continue;
            }
            if request_fields::has_canonical_form(name) {
                // The value joins all lines of the field, so the further lines of this field are skipped.
                canonical = Some(name);
                head.extend_from_slice(name.as_str().as_bytes());
                head.extend_from_slice(b": ");
                request_fields::write_value(name, &request.headers, &mut head);
                head.extend_from_slice(b"\r\n");
            } else {
                push_field(&mut head, name, value.as_bytes());
            }
        }
        if edge.forwarding.x_forwarded {
            push_field(&mut head, &X_FORWARDED_FOR, request.peer_text.as_bytes());
            push_field(&mut head, &X_FORWARDED_PROTO, request.scheme.as_bytes());
            if let Some(host) = authority {
                push_field(&mut head, &X_FORWARDED_HOST, host.as_bytes());
            }
        }
        if edge.origin.via {
            push_field(&mut head, &VIA, edge.via_http11.as_bytes());
        }
        push_field(&mut head, &hop_by_hop::CDN_LOOP, edge.cdn_loop.as_bytes());
        match edge.origin.host_policy() {
            HostPolicy::Forward if request.forwarded_host.is_none() => {
                push_field(&mut head, &HOST, authority.unwrap_or_default().as_bytes());
            }
            _ => {
                push_field(&mut head, &HOST, host(edge, request).as_bytes());
            }
        }
        end_head(&mut head, self.method);
        head
    }
}

/// Returns a request's head as bytes. The types of the crate `http` ensure that no field contains a line break.
fn head_of(request: &http::Request<Upload>) -> Vec<u8> {
    let target = request.uri().path_and_query();
    let mut head = Vec::with_capacity(ORDINARY_HEAD_BYTES);
    request_line(
        &mut head,
        request.method(),
        target.map_or("/", |target| target.as_str()),
    );
    for (name, value) in request.headers() {
        // The request has no body, even if the client's request had one.
        if *name != CONTENT_LENGTH && *name != TRANSFER_ENCODING {
            push_field(&mut head, name, value.as_bytes());
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

/// RFC 9110 §8.6: requests with these methods usually have content, so they get `Content-Length: 0` without content.
fn is_expected_content(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

fn end_head(head: &mut Vec<u8>, method: &Method) {
    if is_expected_content(method) {
        push_field(head, &CONTENT_LENGTH, b"0");
    }
    head.extend_from_slice(b"\r\n");
}

fn host(edge: EdgeInfo<'_>, request: &Request) -> HeaderValue {
    if let Some(host) = &request.forwarded_host {
        return host.clone();
    }
    let origin = edge.origin;
    let text = match origin.host_policy() {
        HostPolicy::Forward => request.authority().unwrap_or_default().to_owned(),
        HostPolicy::Origin => origin.url().authority(),
        HostPolicy::Fixed(host) => host.clone(),
    };
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn origin_form(request: &Request) -> Uri {
    // `OPTIONS *` keeps its asterisk (RFC 9112 §3.2.4).
    let is_as_sent = request.canonical_target.is_none() && request.forwarded_target.is_none();
    let target = match request.uri.path_and_query() {
        Some(target) if is_as_sent => target.clone(),
        _ => PathAndQuery::try_from(request.forwarded_target())
            .expect("a canonical target and a rewritten one are a path and query"),
    };
    Uri::from(target)
}

/// Returns header fields in which each of `fields` has the value that the origin receives: the client's value, or the
/// value that the edge writes. The origin selects a variant by these values. The map is copied only if the response
/// varies by a field that the edge writes, which is rare.
pub(crate) fn as_origin_sees<'a>(
    edge: EdgeInfo<'_>,
    request: &'a Request,
    fields: &VaryFields,
) -> Cow<'a, HeaderMap> {
    let is_written_by_edge = |name: &HeaderName| {
        *name == HOST
            || *name == FORWARDED
            || *name == X_FORWARDED_FOR
            || *name == X_FORWARDED_PROTO
            || *name == X_FORWARDED_HOST
    };
    if !fields.names().iter().any(is_written_by_edge) {
        return Cow::Borrowed(&request.headers);
    }
    let mut headers = request.headers.clone();
    set_forwarded_fields(edge, request, &mut headers);
    headers.insert(HOST, host(edge, request));
    Cow::Owned(headers)
}

/// Replaces the client's values by the canonical values that `Vary` keys contain: see [`request_fields`].
fn set_canonical_values(headers: &mut HeaderMap) {
    for name in [ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE] {
        if headers.contains_key(&name) {
            let mut value = Vec::with_capacity(VALUE_BYTES);
            request_fields::write_value(&name, headers, &mut value);
            let value = HeaderValue::from_bytes(&value);
            headers.insert(name, value.expect("a canonical value is a valid value"));
        }
    }
}

fn absolute_form(edge: EdgeInfo<'_>, request: &Request, host: &HeaderValue, target: &str) -> Uri {
    let scheme = if edge.origin.url().tls {
        "https"
    } else {
        "http"
    };
    Uri::builder()
        .scheme(scheme)
        .authority(host.as_bytes())
        .path_and_query(target)
        .build()
        .unwrap_or_else(|_| origin_form(request))
}

/// Sets the fields that describe the client. If a trusted proxy sent them, appends to lists and keeps other values. The
/// scheme is that of the key, also if the proxies have sent a list.
fn set_forwarded_fields(edge: EdgeInfo<'_>, request: &Request, headers: &mut HeaderMap) {
    let config = edge.forwarding;
    if config.x_forwarded || headers.contains_key(&X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(request.scheme));
    }
    if config.x_forwarded {
        append_member(headers, &X_FORWARDED_FOR, &request.peer_text);
        if let Some(host) = request
            .authority()
            .and_then(|host| HeaderValue::try_from(host).ok())
        {
            headers.entry(X_FORWARDED_HOST).or_insert(host);
        }
    }
    if config.forwarded {
        let peer = request.peer.ip().to_canonical();
        // RFC 7239 §6: an IPv6 address is in brackets and quotes.
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

/// A capacity that is enough for most values.
const VALUE_BYTES: usize = 64;

/// A capacity that is enough for most heads, so that writing a head allocates once.
const ORDINARY_HEAD_BYTES: usize = 512;

#[cfg(test)]
mod tests;
