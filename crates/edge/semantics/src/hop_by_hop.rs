//! Hop-by-hop fields, which are not forwarded (RFC 9110 §7.6.1).

use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, MAX_FORWARDS, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{Method, Version};

use crate::list;

/// The connection options of a stripped request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// True if the client sent `TE: trailers`: it accepts trailer fields (§10.1.4). The field itself is
    /// removed. A proxy that forwards trailers writes its own `TE`.
    pub takes_trailers: bool,
    /// The `Upgrade` field with its lines joined, if `Connection` lists it (§7.8).
    pub upgrade: Option<HeaderValue>,
}

/// Removes the hop-by-hop fields of a request and returns its connection options. A field stays although `Connection`
/// lists it if `keeps` returns true.
///
/// §7.6.1 demands that listed fields are removed, and most proxies forward the list of their own client. A client could
/// then list a field that the proxy sets after it, such as `X-Forwarded-For`, and hide the proxy's value from all code
/// that reads the field. So the caller keeps the fields that it reads. Departs from the MUST for these fields alone.
pub fn strip_request(
    request: &mut HeaderMap,
    keeps: impl Fn(&HeaderName) -> bool,
) -> ConnectionOptions {
    let options = ConnectionOptions {
        takes_trailers: list::members(request, &TE).any(|member| {
            let coding = member
                .split(|&byte| byte == b';')
                .next()
                .unwrap_or_default();
            list::trim(coding).eq_ignore_ascii_case(b"trailers")
        }),
        upgrade: list::has_token(request, &CONNECTION, "upgrade")
            .then(|| joined(request, &UPGRADE))
            .flatten(),
    };
    // §11.7.2: `Proxy-Authorization` is for the first proxy that expects credentials, so it is not forwarded.
    let is_removed = |name: &HeaderName| is_hop_by_hop(name) || *name == PROXY_AUTHORIZATION;
    strip(request, keeps, is_removed);
    options
}

/// Returns the lines of a list field as one value.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let mut lines = headers.get_all(name).into_iter();
    let first = lines.next()?;
    if lines.next().is_none() {
        return Some(first.clone());
    }
    let lines: Vec<&[u8]> = headers
        .get_all(name)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    HeaderValue::from_bytes(&lines.join(&b", "[..])).ok()
}

/// Removes the hop-by-hop fields of a response.
pub fn strip_response(response: &mut HeaderMap) {
    // RFC 9111 §3.1: the two `Proxy-…` fields are for this proxy alone.
    let is_removed = |name: &HeaderName| {
        is_hop_by_hop(name) || *name == PROXY_AUTHENTICATE || *name == PROXY_AUTHENTICATION_INFO
    };
    strip(response, |_| false, is_removed);
}

/// Adds this node to `Via` (§7.6.3), for example `1.1 name`. `received` is the HTTP version of the received
/// message.
pub fn append_via(headers: &mut HeaderMap, received: Version, name: &str) {
    let version = match received {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    };
    if let Ok(value) = HeaderValue::try_from(format!("{version} {name}")) {
        headers.append(VIA, value);
    }
}

/// Returns true if `Via` or `CDN-Loop` (RFC 8586) contains this node: the request is in a forwarding loop.
pub fn is_loop(request: &HeaderMap, name: &str) -> bool {
    let is_in_cdn_loop = list::members(request, &CDN_LOOP).any(|member| {
        let id = member
            .split(|byte| matches!(byte, b';' | b' ' | b'\t'))
            .next();
        id.is_some_and(|id| id.eq_ignore_ascii_case(name.as_bytes()))
    });
    is_in_cdn_loop
        || list::members(request, &VIA).any(|member| {
            let mut words = member
                .split(|byte| matches!(byte, b' ' | b'\t'))
                .filter(|word| !word.is_empty());
            words
                .nth(1)
                .is_some_and(|by| by.eq_ignore_ascii_case(name.as_bytes()))
        })
}

/// The effect of `Max-Forwards` on a TRACE or OPTIONS request (§7.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxForwards {
    /// Forward the request. A valid value was decremented.
    Forward,
    /// Respond as the final recipient, because the value was 0.
    RespondHere,
}

/// Decrements `Max-Forwards` in a TRACE or OPTIONS request (§7.6.2).
pub fn count_down_max_forwards(method: &Method, request: &mut HeaderMap) -> MaxForwards {
    if method != Method::TRACE && method != Method::OPTIONS {
        return MaxForwards::Forward;
    }
    let remaining = request
        .get(MAX_FORWARDS)
        .and_then(|value| crate::cache_control::delta_seconds(value.as_bytes()));
    match remaining {
        None => MaxForwards::Forward,
        Some(0) => MaxForwards::RespondHere,
        Some(remaining) => {
            request.insert(MAX_FORWARDS, HeaderValue::from(remaining - 1));
            MaxForwards::Forward
        }
    }
}

/// Removes the fields that `Connection` lists and `keeps` does not, and those for which `is_removed` returns true.
fn strip(
    headers: &mut HeaderMap,
    keeps: impl Fn(&HeaderName) -> bool,
    is_removed: impl Fn(&HeaderName) -> bool,
) {
    // `Keep-Alive`, which most servers list, is removed below.
    let listed: Vec<HeaderName> = list::members(headers, &CONNECTION)
        .filter(|member| !member.eq_ignore_ascii_case(KEEP_ALIVE.as_str().as_bytes()))
        .filter_map(|member| HeaderName::from_bytes(member).ok())
        .filter(|name| !is_end_to_end(name) && !keeps(name))
        .collect();
    for name in &listed {
        headers.remove(name);
    }
    // §7.6.1: "intermediaries SHOULD remove … even when not listed".
    list::remove_where(headers, is_removed);
}

/// The fields that [`strip_request`] removes from every request, even if `Connection` does not list them.
pub const REQUEST_FIELDS: [HeaderName; 7] = [
    CONNECTION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    PROXY_AUTHORIZATION,
];

/// Returns true for fields that are hop-by-hop even if `Connection` does not list them.
pub fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(*name, CONNECTION | TE | TRANSFER_ENCODING | UPGRADE)
        || *name == KEEP_ALIVE
        || *name == PROXY_CONNECTION
}

/// Returns true for fields that a peer cannot remove by listing them in `Connection` (§7.6.1: a sender MUST NOT
/// list fields intended for all recipients). `Connection: authorization` would make a private response public,
/// and `Connection: cache-control` would make a response storable.
fn is_end_to_end(name: &HeaderName) -> bool {
    use http::header;
    [
        header::AGE,
        header::AUTHORIZATION,
        header::CACHE_CONTROL,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::CONTENT_RANGE,
        header::CONTENT_TYPE,
        header::COOKIE,
        header::DATE,
        header::EXPIRES,
        header::HOST,
        header::PRAGMA,
        header::SET_COOKIE,
        header::VARY,
        VIA,
        // RFC 8586 §2: a client must not be able to remove the field.
        CDN_LOOP,
    ]
    .contains(name)
}

/// The field by which content delivery networks detect loops (RFC 8586).
pub const CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const PROXY_AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("proxy-authentication-info");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    /// §7.6.1: the standard fields and the fields that `Connection` lists.
    #[test]
    fn hop_by_hop_fields_are_not_forwarded() {
        let mut request = headers(
            "connection: x-mine, Upgrade\nconnection: X-More\nx-mine: 1\nx-more: 2\nx-other: 3\nupgrade: websocket\n\
             te: gzip;q=0.5, Trailers\nkeep-alive: timeout=5\nproxy-connection: close\ntransfer-encoding: chunked\n\
             proxy-authorization: basic x\nhost: a",
        );
        let options = strip_request(&mut request, |_| false);
        assert_eq!(request, headers("x-other: 3\nhost: a"));
        assert!(options.takes_trailers);
        assert_eq!(options.upgrade, Some(HeaderValue::from_static("websocket")));

        let mut response = headers(
            "connection: close, x\nx: 1\nkeep-alive: 5\nproxy-authenticate: basic\nproxy-authentication-info: x\n\
             trailer: y\netag: \"a\"",
        );
        strip_response(&mut response);
        assert_eq!(response, headers("trailer: y\netag: \"a\""));
    }

    #[test]
    fn the_list_for_requests_has_the_fields_that_are_stripped() {
        for name in REQUEST_FIELDS {
            assert!(is_hop_by_hop(&name) || name == PROXY_AUTHORIZATION);
            let mut request = headers("host: a");
            request.insert(name, HeaderValue::from_static("x"));
            strip_request(&mut request, |_| true);
            assert_eq!(request, headers("host: a"));
        }
    }

    /// §7.8: an `Upgrade` that `Connection` does not list is ignored.
    #[test]
    fn an_upgrade_needs_its_connection_option() {
        let options = strip_request(&mut headers("upgrade: h2c\nte: gzip"), |_| false);
        assert_eq!(options, ConnectionOptions::default());
        let mut request = headers("upgrade: a\nupgrade: b/1\nconnection: upgrade");
        let options = strip_request(&mut request, |_| false);
        assert_eq!(options.upgrade, Some(HeaderValue::from_static("a, b/1")));
    }

    /// A client lists fields that the proxy between it and the edge sets.
    #[test]
    fn a_field_that_the_caller_reads_stays_although_connection_lists_it() {
        let mut request = headers("connection: x-read, X-Other\nx-read: 1\nx-other: 2\nhost: a");
        strip_request(&mut request, |name| name == "x-read");
        assert_eq!(request, headers("x-read: 1\nhost: a"));
    }

    #[test]
    fn listing_an_end_to_end_field_does_not_strip_it() {
        let lines = "authorization: x\ncache-control: private\nset-cookie: a\nvary: b\nhost: c";
        let mut message = headers(&format!(
            "{lines}\nconnection: authorization, Cache-Control, set-cookie, vary, host"
        ));
        strip_response(&mut message);
        assert_eq!(message, headers(lines));
    }

    /// §7.6.3: each node appends its name, so a node can find its own name in a request that loops.
    #[test]
    fn via_is_appended_and_reveals_loops() {
        let mut request = headers("via: 1.0 fred, 1.1 p.example.net (squid)");
        assert!(!is_loop(&request, "edge"));
        append_via(&mut request, Version::HTTP_2, "edge");
        append_via(&mut request, Version::HTTP_11, "gate");
        let lines: Vec<_> = request.get_all(VIA).iter().collect();
        assert_eq!(
            lines,
            ["1.0 fred, 1.1 p.example.net (squid)", "2 edge", "1.1 gate"]
        );
        assert!(
            is_loop(&request, "edge") && is_loop(&request, "Gate") && is_loop(&request, "fred")
        );
        assert!(!is_loop(&request, "p.example"));
        assert!(!is_loop(&request, "(squid)"));
    }

    /// §7.6.2: an invalid value is ignored, and other methods ignore the field.
    #[test]
    fn max_forwards_counts_for_trace_and_options_alone() {
        let count = |method: &Method, line: &str| {
            let mut request = headers(line);
            let verdict = count_down_max_forwards(method, &mut request);
            (verdict, request.get(MAX_FORWARDS).cloned())
        };
        let remaining = |text| Some(HeaderValue::from_static(text));
        for method in [Method::TRACE, Method::OPTIONS] {
            assert_eq!(
                count(&method, "max-forwards: 2"),
                (MaxForwards::Forward, remaining("1"))
            );
            assert_eq!(
                count(&method, "max-forwards: 0"),
                (MaxForwards::RespondHere, remaining("0"))
            );
            assert_eq!(
                count(&method, "max-forwards: x"),
                (MaxForwards::Forward, remaining("x"))
            );
            assert_eq!(count(&method, ""), (MaxForwards::Forward, None));
        }
        assert_eq!(
            count(&Method::GET, "max-forwards: 0"),
            (MaxForwards::Forward, remaining("0"))
        );
    }
}
