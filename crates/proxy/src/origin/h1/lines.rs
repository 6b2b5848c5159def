//! The head of a response that may not be stored, as lines.
//!
//! Of such a response the edge needs the status, where its body ends, and nothing else that a map of its fields would be
//! asked for. Making that map, and lines of it again, was a fifth of a pass's work above the kernel. What needs a second look
//! (a field of the connection, a length that is not said once and plainly, a reason that only all directives together
//! give) takes the way through the map.

use edgeward_semantics::{Refusal, refused_at_a_glance};
use http::StatusCode;

/// The end-to-end fields of a head, each with its line's end, as the origin wrote them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lines {
    pub(crate) status: StatusCode,
    /// Why the response may not be stored.
    pub(crate) refusal: Refusal,
    /// Whether one of them is `Date`.
    pub(crate) is_dated: bool,
    bytes: Vec<u8>,
}

impl Lines {
    /// All but `Content-Length`, which is whoever writes the head's to say.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    pub(crate) fn push(&mut self, name: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(b": ");
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(b"\r\n");
    }
}

/// The head's lines and the length of the body behind it, if the response to a plain GET is certain to be one that may not
/// be stored, and its end is certain too.
pub(super) fn of(
    status: StatusCode,
    head_bytes: usize,
    response: &httparse::Response<'_, '_>,
) -> Option<(Lines, u64)> {
    let bodiless = status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
    if bodiless || response.version != Some(1) {
        return None;
    }
    let mut length = None;
    let mut refusal = None;
    let mut lines = Lines {
        status,
        refusal: Refusal::NoStore,
        is_dated: false,
        bytes: Vec::with_capacity(head_bytes + CACHE_STATUS_BYTES),
    };
    for field in response.headers.iter() {
        match meaning(field.name) {
            Meaning::None => {}
            Meaning::Date => lines.is_dated = true,
            Meaning::CacheControl if refusal.is_none() => {
                refusal = Some(refused_at_a_glance(status, field.value)?);
            }
            Meaning::Length if length.is_none() => {
                length = Some(super::head::decimal(field.value)?);
                continue;
            }
            Meaning::Connection if field.value.eq_ignore_ascii_case(b"keep-alive") => continue,
            Meaning::CacheControl | Meaning::Length | Meaning::Connection | Meaning::Some => {
                return None;
            }
        }
        lines.push(field.name.as_bytes(), field.value);
    }
    lines.refusal = refusal?;
    Some((lines, length?))
}

/// What a field does to the way its response is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// Nothing.
    None,
    /// Something: the way through the map knows what.
    Some,
    CacheControl,
    Connection,
    Date,
    Length,
}

fn meaning(name: &str) -> Meaning {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    // By length first, which tells most fields apart.
    match name.len() {
        2 if is("te") => Meaning::Some,
        4 if is("date") => Meaning::Date,
        7 if is("upgrade") || is("trailer") => Meaning::Some,
        10 if is("connection") => Meaning::Connection,
        10 if is("keep-alive") => Meaning::Some,
        12 if is("cache-status") => Meaning::Some,
        13 if is("cache-control") => Meaning::CacheControl,
        14 if is("content-length") => Meaning::Length,
        16 if is("proxy-connection") => Meaning::Some,
        17 if is("transfer-encoding") => Meaning::Some,
        18 if is("proxy-authenticate") => Meaning::Some,
        25 if is("proxy-authentication-info") => Meaning::Some,
        _ => Meaning::None,
    }
}

/// Room for this node's own line.
const CACHE_STATUS_BYTES: usize = 96;

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use edgeward_semantics::{Exchange, Rules, Verdict, hop_by_hop, on_response};
    use edgeward_types::Timestamp;
    use http::Method;
    use http::header::{CONTENT_LENGTH, DATE, HeaderMap, HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::super::HeadLimits;
    use super::super::head::{Fields, Head, parse};
    use super::*;

    const LIMITS: HeadLimits = HeadLimits {
        bytes_max: 4096,
        fields_max: 64,
    };

    fn read(text: &str, lines_do: bool) -> Option<Head> {
        let mut inbox = BytesMut::from(text);
        let head = parse(&mut inbox, LIMITS, &Method::GET, lines_do).ok()??;
        assert!(inbox.is_empty(), "a head was left behind: {inbox:?}");
        Some(head)
    }

    fn map_of(lines: &[u8]) -> HeaderMap {
        let text = std::str::from_utf8(lines).expect("ASCII");
        let mut map = HeaderMap::new();
        for line in text.split_terminator("\r\n") {
            let (name, value) = line.split_once(": ").expect("a field's line");
            map.append(
                HeaderName::try_from(name).expect("a name"),
                HeaderValue::try_from(value).expect("a value"),
            );
        }
        map
    }

    fn lines_of(text: &str) -> Option<Lines> {
        match read(text, true) {
            Some(Head::Final {
                fields: Fields::Lines(lines),
                ..
            }) => Some(lines),
            _ => None,
        }
    }

    #[test]
    fn a_head_that_may_not_be_stored_goes_on_as_it_came() {
        let lines = lines_of(
            "HTTP/1.1 200 OK\r\nServer:  someone \r\nCache-Control: no-store\r\nContent-Length: 5\r\n\
             Connection: keep-alive\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nDate: x\r\n\r\n",
        )
        .expect("its lines");
        assert_eq!(
            std::str::from_utf8(lines.bytes()),
            Ok(
                "Server: someone\r\nCache-Control: no-store\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nDate: x\r\n"
            )
        );
        assert!(lines.is_dated);
        assert_eq!(lines.refusal, Refusal::NoStore);
    }

    #[test]
    fn what_needs_a_second_look_becomes_a_map() {
        for head in [
            // May be stored, or not for a reason that these lines alone do not give.
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nCache-Control: max-age=5",
            "HTTP/1.1 200 OK\r\nContent-Length: 5",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nCache-Control: no-store, must-understand",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nCache-Control: no-store\r\nCache-Control: must-understand",
            "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nCache-Control: no-store",
            // Ends where only the other way knows.
            "HTTP/1.1 200 OK\r\nCache-Control: no-store",
            "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nTransfer-Encoding: chunked",
            "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 5, 5",
            "HTTP/1.1 204 No Content\r\nCache-Control: no-store\r\nContent-Length: 5",
            "HTTP/1.0 200 OK\r\nCache-Control: no-store\r\nContent-Length: 5",
            // Speaks of the connection.
            "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 5\r\nConnection: close",
            "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 5\r\nKeep-Alive: timeout=5",
            // Has a list to which this node adds.
            "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 5\r\nCache-Status: x; hit",
        ] {
            let read = read(&format!("{head}\r\n\r\n"), true);
            let is_map = matches!(
                read,
                Some(Head::Final {
                    fields: Fields::Map(_),
                    ..
                })
            );
            assert!(is_map, "{head:?} gave {read:?}");
        }
    }

    #[test]
    fn a_length_that_is_none_is_refused_as_by_the_map() {
        let head = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n";
        assert!(parse(&mut BytesMut::from(head), LIMITS, &Method::GET, true).is_err());
    }

    fn field() -> impl Strategy<Value = String> {
        let name = prop::sample::select(vec![
            "cache-control",
            "Cache-Control",
            "content-length",
            "connection",
            "keep-alive",
            "date",
            "etag",
            "set-cookie",
            "transfer-encoding",
            "te",
            "upgrade",
            "trailer",
            "proxy-authenticate",
            "cache-status",
            "vary",
            "x-any",
            "age",
            "proxy-connection",
            "proxy-authentication-info",
            "expires",
        ]);
        let value = prop::sample::select(vec![
            "no-store",
            "private",
            "No-Store",
            "max-age=60",
            "must-understand, no-store",
            "private, max-age=1",
            "private=\"set-cookie\"",
            "5",
            "5",
            "7",
            "keep-alive",
            "close",
            "x-any",
            "chunked",
            "",
            "a b",
        ]);
        (name, value).prop_map(|(name, value)| format!("{name}: {value}\r\n"))
    }

    proptest! {
        /// What goes on as lines is what the way through the map would pass on, for the reason it would give, and ends
        /// where it would see the end.
        #[test]
        fn lines_and_map_agree(
            code in prop::sample::select(vec![200_u16, 204, 206, 304, 404, 416, 429, 500, 503]),
            fields in prop::collection::vec(field(), 0..7),
        ) {
            // Most heads with three drawn fields would not be refused at a glance.
            let mut text = format!("HTTP/1.1 {code} X\r\nContent-Length: 5\r\nCache-Control: no-store\r\n{}\r\n", fields.concat());
            if code % 2 == 1 {
                text = format!("HTTP/1.1 {code} X\r\n{}\r\n", fields.concat());
            }
            let Some(Head::Final { fields: Fields::Lines(lines), framing, reusable }) = read(&text, true) else {
                return Ok(());
            };
            let Some(Head::Final { fields: Fields::Map(parts), framing: by_map, reusable: also }) = read(&text, false) else {
                panic!("{text:?} has lines and no map");
            };
            prop_assert_eq!(framing, by_map);
            prop_assert_eq!(reusable, also);
            let mut map = parts.headers;
            hop_by_hop::strip_response(&mut map);
            let exchange = Exchange { request_time: Timestamp::ZERO, response_time: Timestamp::ZERO };
            let verdict = on_response(&Rules::default(), &Method::GET, &HeaderMap::new(), parts.status, &map, exchange);
            prop_assert!(matches!(verdict, Verdict::Refuse(refusal) if refusal == lines.refusal), "{verdict:?}");
            map.remove(CONTENT_LENGTH);
            prop_assert_eq!(lines.is_dated, map.contains_key(DATE));
            prop_assert_eq!(map_of(lines.bytes()), map);
        }
    }
}
