//! Fields for one connection, which no message carries further (RFC 9110 §7.6.1).

use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, MAX_FORWARDS, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{Method, Version};

use crate::list;

/// What a stripped request had asked of this connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// `TE: trailers`: the client takes trailer fields (§10.1.4). A driver that passes
    /// trailers on writes its own `TE`.
    pub takes_trailers: bool,
    /// `Connection: upgrade` with this `Upgrade` (§7.8).
    pub upgrade: Option<HeaderValue>,
}

/// Takes out of a request what was meant for this connection and says what it was.
pub fn strip_request(request: &mut HeaderMap) -> ConnectionOptions {
    let options = ConnectionOptions {
        takes_trailers: list::members(request, &TE).any(|member| {
            let coding = member
                .split(|&byte| byte == b';')
                .next()
                .unwrap_or_default();
            list::trim(coding).eq_ignore_ascii_case(b"trailers")
        }),
        upgrade: if list::has_token(request, &CONNECTION, "upgrade") {
            request.get(UPGRADE).cloned()
        } else {
            None
        },
    };
    // §11.7.2: the first inbound proxy that expects credentials consumes them.
    strip(request, |name| {
        is_of_connection(name) || *name == PROXY_AUTHORIZATION
    });
    options
}

/// Takes out of a response what was meant for this connection.
pub fn strip_response(response: &mut HeaderMap) {
    strip(response, |name| {
        // RFC 9111 §3.1: the last two speak to this proxy alone.
        is_of_connection(name) || *name == PROXY_AUTHENTICATE || *name == PROXY_AUTHENTICATION_INFO
    });
}

/// Adds this node to `Via` (§7.6.3): `1.1 name`.
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

/// Whether this node itself is in the request's `Via`: a forwarding loop.
pub fn is_loop(request: &HeaderMap, name: &str) -> bool {
    list::members(request, &VIA).any(|member| {
        let mut words = member
            .split(|byte| matches!(byte, b' ' | b'\t'))
            .filter(|word| !word.is_empty());
        words
            .nth(1)
            .is_some_and(|by| by.eq_ignore_ascii_case(name.as_bytes()))
    })
}

/// What `Max-Forwards` wants of a TRACE or OPTIONS request (§7.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxForwards {
    /// Forward it; the field, if any, has been counted down.
    Forward,
    /// It was 0: answer as the final recipient.
    RespondHere,
}

/// Counts `Max-Forwards` down where §7.6.2 says it counts.
pub fn count_down_max_forwards(method: &Method, request: &mut HeaderMap) -> MaxForwards {
    if method != Method::TRACE && method != Method::OPTIONS {
        return MaxForwards::Forward;
    }
    let left = request
        .get(MAX_FORWARDS)
        .and_then(|value| crate::cache_control::delta_seconds(value.as_bytes()));
    match left {
        None => MaxForwards::Forward,
        Some(0) => MaxForwards::RespondHere,
        Some(left) => {
            request.insert(MAX_FORWARDS, HeaderValue::from(left - 1));
            MaxForwards::Forward
        }
    }
}

/// Removes the fields that `Connection` lists, and those that `is_removed` names.
fn strip(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    let listed: Vec<HeaderName> = list::members(headers, &CONNECTION)
        .filter_map(|member| HeaderName::from_bytes(member).ok())
        .filter(|name| !is_end_to_end(name))
        .collect();
    for name in &listed {
        headers.remove(name);
    }
    // §7.6.1: "intermediaries SHOULD remove … even when not listed".
    list::remove_where(headers, is_removed);
}

/// The fields that [`strip_request`] takes out of every request, whatever `Connection` says.
pub const OF_REQUESTS: [HeaderName; 7] = [
    CONNECTION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    PROXY_AUTHORIZATION,
];

/// Whether a field speaks of the connection whatever `Connection` says.
pub fn is_of_connection(name: &HeaderName) -> bool {
    matches!(*name, CONNECTION | TE | TRANSFER_ENCODING | UPGRADE)
        || *name == KEEP_ALIVE
        || *name == PROXY_CONNECTION
}

/// Fields that a peer must not be able to strip by listing them (§7.6.1: a sender MUST NOT
/// list fields intended for all recipients). `Connection: authorization` would turn a
/// private answer into a public one, and `Connection: cache-control` an unstorable into a
/// storable one.
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
    ]
    .contains(name)
}

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const PROXY_AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("proxy-authentication-info");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    /// §7.6.1: the standard fields and those that `Connection` lists.
    #[test]
    fn what_was_for_this_connection_goes_no_further() {
        let mut request = headers(
            "connection: x-mine, Upgrade\nconnection: X-More\nx-mine: 1\nx-more: 2\nx-other: 3\nupgrade: websocket\n\
             te: gzip;q=0.5, Trailers\nkeep-alive: timeout=5\nproxy-connection: close\ntransfer-encoding: chunked\n\
             proxy-authorization: basic x\nhost: a",
        );
        let options = strip_request(&mut request);
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
        for name in OF_REQUESTS {
            assert!(is_of_connection(&name) || name == PROXY_AUTHORIZATION);
            let mut request = headers("host: a");
            request.insert(name, HeaderValue::from_static("x"));
            strip_request(&mut request);
            assert_eq!(request, headers("host: a"));
        }
    }

    /// §7.8: an `Upgrade` that `Connection` does not list was not meant for us.
    #[test]
    fn an_upgrade_needs_its_connection_option() {
        let options = strip_request(&mut headers("upgrade: h2c\nte: gzip"));
        assert_eq!(options, ConnectionOptions::default());
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

    /// §7.6.3.
    #[test]
    fn via_grows_at_its_end_and_shows_loops() {
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

    /// §7.6.2.
    #[test]
    fn max_forwards_counts_for_trace_and_options_alone() {
        let count = |method: &Method, line: &str| {
            let mut request = headers(line);
            let verdict = count_down_max_forwards(method, &mut request);
            (verdict, request.get(MAX_FORWARDS).cloned())
        };
        let left = |text| Some(HeaderValue::from_static(text));
        for method in [Method::TRACE, Method::OPTIONS] {
            assert_eq!(
                count(&method, "max-forwards: 2"),
                (MaxForwards::Forward, left("1"))
            );
            assert_eq!(
                count(&method, "max-forwards: 0"),
                (MaxForwards::RespondHere, left("0"))
            );
            assert_eq!(
                count(&method, "max-forwards: x"),
                (MaxForwards::Forward, left("x"))
            );
            assert_eq!(count(&method, ""), (MaxForwards::Forward, None));
        }
        assert_eq!(
            count(&Method::GET, "max-forwards: 0"),
            (MaxForwards::Forward, left("0"))
        );
    }
}
