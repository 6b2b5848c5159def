//! The fast path's parser of request heads. The fast path serves plain requests ([`PlainHead`]) without hyper.
//!
//! hyper gets the unchanged bytes of other requests, unless the target has a fragment or
//! [delimiters](edgeward_semantics::encode_delimiters). The fast path and hyper both parse with `httparse`, so they find
//! the same end of a head.

use std::mem::MaybeUninit;

use edgeward_semantics::has_delimiters;
use http::Method;
use http::header::HeaderName;

use super::request_end::RequestEndScan;
use crate::exchange::field_bytes::{Span, decimal, span};

/// The result of parsing the start of the inbox, the buffer of bytes that the client has sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ParsedHead<'a, 'f> {
    /// The head of a plain request.
    Plain(PlainHead<'a, 'f>),
    /// The complete head of a request that is not plain. hyper serves it.
    Bounded {
        head_bytes: usize,
        /// The scan for the end of the request.
        scan: RequestEndScan,
    },
    /// A head whose target has delimiters that have to be encoded: the place of the target.
    Delimiters(Span),
    /// A head whose target has a fragment. The edge refuses the request, because hyper would ignore the fragment.
    Fragment(Method),
    /// An incomplete head.
    Partial,
    /// Any other bytes. The fast path cannot tell where the next request starts.
    Other,
}

/// A GET or HEAD over HTTP/1.1 for one host, without conditions, ranges, cache directives or credentials.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PlainHead<'a, 'f> {
    pub(super) bytes: &'a [u8],
    /// True if the method is HEAD, false if it is GET.
    pub(super) head_only: bool,
    /// True if the client asks to close the connection after the response (RFC 9112 §9.6).
    pub(super) closes: bool,
    pub(super) host: &'a str,
    /// Path and query.
    pub(super) target: &'a str,
    /// The value of `Accept-Encoding`.
    pub(super) accept_encoding: Option<&'a [u8]>,
    pub(super) fields: &'f [httparse::Header<'a>],
}

impl<'a> PlainHead<'a, '_> {
    /// Returns the values of a field.
    pub(super) fn values(&self, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
        let is_named =
            |field: &&httparse::Header<'a>| field.name.eq_ignore_ascii_case(name.as_str());
        self.fields.iter().filter(is_named).map(|field| field.value)
    }

    /// Returns the first value of a field.
    pub(super) fn value(&self, name: &HeaderName) -> Option<&'a [u8]> {
        self.values(name).next()
    }
}

/// A buffer for the parsed fields of a head.
pub(super) type Fields<'a> = [MaybeUninit<httparse::Header<'a>>; FIELDS_MAX];

pub(super) const fn no_fields<'a>() -> Fields<'a> {
    [const { MaybeUninit::uninit() }; FIELDS_MAX]
}

/// Parses the head at the start of `bytes`.
pub(super) fn parse<'a, 'f>(bytes: &'a [u8], fields: &'f mut Fields<'a>) -> ParsedHead<'a, 'f> {
    let mut request = httparse::Request::new(&mut []);
    let head_bytes = match request.parse_with_uninit_headers(bytes, fields) {
        Ok(httparse::Status::Complete(head_bytes)) => head_bytes,
        Ok(httparse::Status::Partial) => return ParsedHead::Partial,
        Err(_) => return ParsedHead::Other,
    };
    let (Some(method), Some(target)) = (request.method, request.path) else {
        return ParsedHead::Other;
    };
    if target.contains('#') {
        return ParsedHead::Fragment(Method::from_bytes(method.as_bytes()).unwrap_or_default());
    }
    if has_delimiters(target.as_bytes()) {
        return ParsedHead::Delimiters(span(bytes, target.as_bytes()));
    }
    let (is_get_or_head, head_only) = match method {
        "GET" => (true, false),
        "HEAD" => (true, true),
        // After CONNECT, all bytes of the connection belong to a tunnel.
        "CONNECT" => return ParsedHead::Other,
        _ => (false, false),
    };
    let mut is_plain = is_get_or_head && request.version == Some(1) && target.starts_with('/');
    let mut scan = RequestEndScan::sized(head_bytes, 0);
    let mut host = None;
    let mut closes = false;
    let mut has_cookie = false;
    let mut accept_encoding = None;
    let mut framing_fields = 0;
    for field in request.headers.iter() {
        match effect_of(field.name) {
            Effect::Irrelevant => {}
            Effect::Host if host.is_none() => match std::str::from_utf8(field.value) {
                Ok(value) => host = Some(value),
                Err(_) => is_plain = false,
            },
            // Several lines of `Cookie` have to be joined, so such a request is not plain.
            Effect::Cookie if !has_cookie => has_cookie = true,
            Effect::AcceptEncoding if accept_encoding.is_none() => {
                accept_encoding = Some(field.value);
            }
            Effect::Host | Effect::Cookie | Effect::AcceptEncoding | Effect::Special => {
                is_plain = false;
            }
            Effect::Connection if field.value.eq_ignore_ascii_case(b"close") => closes = true,
            Effect::Connection => is_plain &= field.value.eq_ignore_ascii_case(b"keep-alive"),
            Effect::Length | Effect::TransferCoding if framing_fields > 0 => {
                return ParsedHead::Other;
            }
            Effect::Length => {
                // hyper decides whether to accept a length that is not a plain number.
                let Some(length) = decimal(field.value) else {
                    return ParsedHead::Other;
                };
                scan = RequestEndScan::sized(head_bytes, length);
                (is_plain, framing_fields) = (false, 1);
            }
            Effect::TransferCoding => {
                // HTTP/1.0 has no chunked coding (RFC 9112 §6.1).
                if request.version != Some(1) || !field.value.eq_ignore_ascii_case(b"chunked") {
                    return ParsedHead::Other;
                }
                scan = RequestEndScan::chunked(head_bytes);
                (is_plain, framing_fields) = (false, 1);
            }
        }
    }
    match host {
        Some(host) if is_plain => ParsedHead::Plain(PlainHead {
            bytes: &bytes[..head_bytes],
            head_only,
            closes,
            host,
            target,
            accept_encoding,
            fields: request.headers,
        }),
        _ => ParsedHead::Bounded { head_bytes, scan },
    }
}

/// The effect of a field on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// The field has no effect, unless the response varies by it.
    Irrelevant,
    /// The field makes the request not plain.
    Special,
    Host,
    Cookie,
    /// The field selects a coding if the edge has encoded the response.
    AcceptEncoding,
    Connection,
    /// The field gives the length of the body.
    Length,
    /// The field gives the coding of the body, such as `chunked`.
    TransferCoding,
}

fn effect_of(name: &str) -> Effect {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    // Names are compared by their length first, which is enough for most fields that browsers send.
    match name.len() {
        2 if is("te") => Effect::Special,
        3 if is("via") => Effect::Special,
        4 if is("host") => Effect::Host,
        5 if is("range") => Effect::Special,
        6 if is("cookie") => Effect::Cookie,
        6 if is("pragma") || is("expect") => Effect::Special,
        // The edge never switches protocols, so the end of a request with `Upgrade` is found as for other requests.
        7 if is("upgrade") || is("trailer") => Effect::Special,
        8 if is("if-match") || is("if-range") || is("cdn-loop") => Effect::Special,
        10 if is("connection") => Effect::Connection,
        12 if is("max-forwards") => Effect::Special,
        13 if is("if-none-match") || is("cache-control") || is("authorization") => Effect::Special,
        14 if is("content-length") => Effect::Length,
        14 if is("http2-settings") => Effect::Special,
        15 if is("accept-encoding") => Effect::AcceptEncoding,
        17 if is("transfer-encoding") => Effect::TransferCoding,
        17 if is("if-modified-since") => Effect::Special,
        19 if is("if-unmodified-since") => Effect::Special,
        20 if is("available-dictionary") => Effect::Special,
        _ => Effect::Irrelevant,
    }
}

/// The most fields that the fast path parses. hyper gets requests with more fields, and applies `limits.headers_max`.
const FIELDS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use edgeward_semantics::{RequestDirectives, Route, conditional, hop_by_hop, route};
    use http::Method;
    use http::header::{
        AUTHORIZATION, CONTENT_LENGTH, EXPECT, HOST, RANGE, TRANSFER_ENCODING, UPGRADE,
    };
    use proptest::prelude::*;

    use super::*;
    use crate::exchange::field_bytes::FieldSpans;

    /// Parses bytes. The buffer of fields is leaked, so that the result can borrow from it.
    fn parse_leaked(bytes: &[u8]) -> ParsedHead<'_, '_> {
        parse(bytes, Box::leak(Box::new(no_fields())))
    }

    /// Returns the expected result for a request that is not plain and has no body.
    fn bodyless(request: &str) -> ParsedHead<'static, 'static> {
        let head_bytes = request.len();
        let scan = RequestEndScan::sized(head_bytes, 0);
        ParsedHead::Bounded { head_bytes, scan }
    }

    fn head(fields: &str) -> String {
        format!("GET /a?b HTTP/1.1\r\nHost: example.com\r\n{fields}\r\n")
    }

    #[test]
    fn a_plain_get_is_parsed_with_its_end() {
        let bytes = head("Accept: */*\r\nConnection: keep-alive\r\n") + "GET /next";
        let ParsedHead::Plain(plain) = parse_leaked(bytes.as_bytes()) else {
            panic!("{bytes} is plain");
        };
        assert_eq!(plain.bytes.len(), bytes.len() - "GET /next".len());
        assert_eq!((plain.host, plain.target), ("example.com", "/a?b"));
        assert!(!plain.head_only);
    }

    #[test]
    fn a_plain_get_may_close_its_connection() {
        for (field, closes) in [
            ("Connection: close", true),
            ("connection: Close", true),
            ("Connection: keep-alive\r\nConnection: close", true),
            ("Connection: close\r\nConnection: keep-alive", true),
            ("Connection: keep-alive", false),
        ] {
            let bytes = head(&format!("{field}\r\n"));
            let ParsedHead::Plain(plain) = parse_leaked(bytes.as_bytes()) else {
                panic!("{field} is plain");
            };
            assert_eq!(plain.closes, closes, "{field}");
        }
    }

    #[test]
    fn a_field_with_an_effect_makes_a_request_not_plain() {
        for field in [
            "Range: bytes=0-1",
            "If-None-Match: \"a\"",
            "if-modified-since: Sun, 06 Nov 1994 08:49:37 GMT",
            "If-Match: *",
            "If-Unmodified-Since: x",
            "If-Range: \"a\"",
            "Cache-Control: no-cache",
            "Pragma: no-cache",
            "Authorization: Basic eA==",
            "Connection: close, te",
            "Connection: close\r\nConnection: te",
            "Expect: 100-continue",
            "TE: trailers",
            "Via: 1.1 x",
            "Max-Forwards: 1",
            "Host: other.example",
            "Cookie: a=1\r\ncookie: b=2",
            "Accept-Encoding: br\r\naccept-encoding: gzip",
        ] {
            let bytes = head(&format!("{field}\r\n"));
            assert_eq!(parse_leaked(bytes.as_bytes()), bodyless(&bytes), "{field}");
        }
    }

    #[test]
    fn the_end_of_a_request_with_a_body_is_known_if_its_head_is_unambiguous() {
        // The expected end: `Some(Some(length))`, `Some(None)` for a chunked body, or `None` if it is ambiguous.
        for (field, end) in [
            ("Content-Length: 5", Some(Some(5))),
            ("Content-Length: 0", Some(Some(0))),
            ("Upgrade: h2c\r\nHTTP2-Settings: x", Some(Some(0))),
            ("Transfer-Encoding: chunked", Some(None)),
            ("transfer-encoding: Chunked", Some(None)),
            ("Content-Length: +5", None),
            ("Content-Length: 5, 5", None),
            ("Content-Length: ", None),
            ("Content-Length: 5\r\nContent-Length: 5", None),
            ("Content-Length: 5\r\nTransfer-Encoding: chunked", None),
            ("Content-Length: 18446744073709551616", None),
            ("transfer-encoding: identity", None),
            ("transfer-encoding: gzip, chunked", None),
        ] {
            for method in ["GET", "POST"] {
                let bytes = head(&format!("{field}\r\n")).replacen("GET", method, 1);
                let head_bytes = bytes.len();
                let expected = match end {
                    Some(Some(length)) => ParsedHead::Bounded {
                        head_bytes,
                        scan: RequestEndScan::sized(head_bytes, length),
                    },
                    Some(None) => ParsedHead::Bounded {
                        head_bytes,
                        scan: RequestEndScan::chunked(head_bytes),
                    },
                    None => ParsedHead::Other,
                };
                let parsed = parse_leaked(bytes.as_bytes());
                assert_eq!(parsed, expected, "{method} {field}");
            }
        }
        for request in [
            "CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\n",
            "\0\0\0",
        ] {
            let parsed = parse_leaked(request.as_bytes());
            assert_eq!(parsed, ParsedHead::Other, "{request:?}");
        }
    }

    #[test]
    fn a_fragment_is_detected_before_hyper_removes_it() {
        for target in ["/a#b", "/#", "http://x/#a", "#"] {
            for method in [Method::GET, Method::POST] {
                let bytes = format!("{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n");
                let parsed = parse_leaked(bytes.as_bytes());
                assert_eq!(parsed, ParsedHead::Fragment(method), "{target}");
            }
        }
    }

    #[test]
    fn delimiters_are_found_before_hyper_refuses_them() {
        for (method, target) in [
            ("GET", "/a?b=\"c\""),
            ("POST", "/<a>"),
            ("HEAD", "http://x/`"),
        ] {
            let bytes = format!("{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n");
            let parsed = parse_leaked(bytes.as_bytes());
            let place = span(
                bytes.as_bytes(),
                &bytes.as_bytes()[method.len() + 1..][..target.len()],
            );
            assert_eq!(parsed, ParsedHead::Delimiters(place), "{target}");
        }
    }

    #[test]
    fn hyper_gets_other_versions_and_targets() {
        for request in [
            "GET / HTTP/1.0\r\nHost: x\r\n\r\n",
            "GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
        ] {
            let parsed = parse_leaked(request.as_bytes());
            assert_eq!(parsed, bodyless(request), "{request:?}");
        }
    }

    proptest! {
        /// Method: parse a head that is cut at any byte.
        #[test]
        fn a_head_is_partial_until_its_last_byte(cut in 0usize..200) {
            let bytes = head("Accept: text/html\r\nUser-Agent: someone\r\n");
            let cut = cut.min(bytes.len() - 1);
            prop_assert_eq!(parse_leaked(&bytes.as_bytes()[..cut]), ParsedHead::Partial);
        }

        /// The parser does not panic, and each head that it finds ends with a line feed.
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            match parse(&bytes, &mut no_fields()) {
                ParsedHead::Plain(PlainHead { bytes: head, .. }) => prop_assert!(head.ends_with(b"\n")),
                ParsedHead::Bounded { head_bytes, .. } => {
                    prop_assert!(bytes[..head_bytes].ends_with(b"\n"));
                }
                ParsedHead::Delimiters((start, length)) => prop_assert!(start + length < bytes.len()),
                ParsedHead::Partial | ParsedHead::Fragment(_) | ParsedHead::Other => {}
            }
        }

        /// A request that is parsed as plain has no condition, range, directive or credentials for the request path.
        #[test]
        fn a_plain_request_has_no_effects_for_the_request_path(
            fields in prop::collection::vec((prop::sample::select(NAMES), "[ -~]{0,12}"), 0..4),
        ) {
            let lines: String = fields
                .iter()
                .map(|(name, value)| format!("{name}: {}\r\n", value.trim()))
                .collect();
            let bytes = head(&lines);
            let ParsedHead::Plain(plain) = parse_leaked(bytes.as_bytes()) else {
                return Ok(());
            };
            let spans = FieldSpans::of(plain.bytes, plain.fields);
            let headers = spans.read(&Bytes::copy_from_slice(plain.bytes), 0).expect("the fields are valid");
            prop_assert_eq!(route(&Method::GET, &headers), Route::Lookup);
            prop_assert_eq!(RequestDirectives::from_headers(&headers), RequestDirectives::default());
            prop_assert!(!conditional::is_conditional(&headers));
            prop_assert!(!hop_by_hop::is_loop(&headers, "edge"));
            for name in [RANGE, AUTHORIZATION, UPGRADE, EXPECT, TRANSFER_ENCODING, CONTENT_LENGTH] {
                prop_assert!(!headers.contains_key(name));
            }
            prop_assert_eq!(headers.get_all(HOST).iter().count(), 1);
        }
    }

    const NAMES: &[&str] = &[
        "accept",
        "authorization",
        "cache-control",
        "connection",
        "content-length",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "cdn-loop",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-range",
        "if-unmodified-since",
        "keep-alive",
        "max-forwards",
        "pragma",
        "proxy-connection",
        "range",
        "te",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "via",
        "x-forwarded-for",
    ];
}
