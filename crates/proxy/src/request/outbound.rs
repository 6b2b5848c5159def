//! The request as the origin gets it.

use edgeward_semantics::hop_by_hop;
use http::header::{EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, TE, VIA};
use http::uri::{PathAndQuery, Uri};
use http::{Method, Request, Version};

use super::{Ask, Upload};
use crate::config::{HostPolicy, OriginProtocol};
use crate::worker::Worker;

/// Builds the request anew for each try.
///
/// `adapt` changes the head at last: conditions for a validation, none for a fetch.
pub(super) fn request(
    worker: &Worker,
    ask: &Ask,
    method: &Method,
    upload: Upload,
    adapt: impl FnOnce(&mut HeaderMap),
) -> Request<Upload> {
    let mut headers = ask.headers.clone();
    let options = hop_by_hop::strip_request(&mut headers);
    if options.takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    // The edge has taken it upon itself: hyper sends 100 when the origin's connection asks for the
    // first byte of the upload (RFC 9110 §10.1.1).
    headers.remove(EXPECT);
    forwarded(worker, ask, &mut headers);
    if ask.version == Version::HTTP_11 && !headers.contains_key(VIA) {
        headers.insert(VIA, worker.shared.via_http11.clone());
    } else {
        hop_by_hop::append_via(&mut headers, ask.version, &worker.shared.via_name);
    }
    adapt(&mut headers);
    let host = host(worker, ask);
    let uri = match worker.origin.config().protocol {
        OriginProtocol::Http1 => {
            headers.insert(HOST, host);
            origin_form(ask)
        }
        OriginProtocol::Http2 => {
            headers.remove(HOST);
            absolute_form(worker, ask, &host)
        }
    };
    let mut request = Request::new(upload);
    *request.method_mut() = method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    *request.version_mut() = match worker.origin.config().protocol {
        OriginProtocol::Http1 => Version::HTTP_11,
        OriginProtocol::Http2 => Version::HTTP_2,
    };
    request
}

fn host(worker: &Worker, ask: &Ask) -> HeaderValue {
    let origin = worker.origin.config();
    let text = match &origin.host {
        HostPolicy::Forward => ask.authority().unwrap_or_default().to_owned(),
        HostPolicy::Origin => origin.url.authority(),
        HostPolicy::Fixed(host) => host.clone(),
    };
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn origin_form(ask: &Ask) -> Uri {
    match ask.uri.path_and_query() {
        // `OPTIONS *` keeps its star (RFC 9112 §3.2.4).
        Some(target) => Uri::from(target.clone()),
        None => Uri::from(PathAndQuery::from_static("/")),
    }
}

fn absolute_form(worker: &Worker, ask: &Ask, host: &HeaderValue) -> Uri {
    let scheme = if worker.origin.config().url.tls {
        "https"
    } else {
        "http"
    };
    Uri::builder()
        .scheme(scheme)
        .authority(host.as_bytes())
        .path_and_query(ask.path_and_query())
        .build()
        .unwrap_or_else(|_| origin_form(ask))
}

/// Tells the origin whom it answers. What a client wrote into these fields stays in front: whoever
/// reads them knows which of the hops to believe.
fn forwarded(worker: &Worker, ask: &Ask, headers: &mut HeaderMap) {
    let config = &worker.config().forwarding;
    if config.x_forwarded {
        append_member(headers, &X_FORWARDED_FOR, &ask.peer_text);
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(ask.scheme));
        if let Some(host) = ask
            .authority()
            .and_then(|host| HeaderValue::try_from(host).ok())
        {
            headers.insert(X_FORWARDED_HOST, host);
        }
    }
    if config.forwarded {
        let peer = ask.peer.ip().to_canonical();
        // RFC 7239 §6: an IPv6 address stands in brackets and quotes.
        let node = if peer.is_ipv6() {
            format!("\"[{peer}]\"")
        } else {
            peer.to_string()
        };
        let host = ask.authority().unwrap_or_default();
        let member = format!("for={node};host=\"{host}\";proto={}", ask.scheme);
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
