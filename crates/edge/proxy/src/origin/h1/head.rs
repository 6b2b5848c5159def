//! Parses the head of a response, and decides how its body ends.

use bytes::{Buf as _, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderValue, LINK, TRANSFER_ENCODING};
use http::response::Parts;
use http::{Method, Response, StatusCode, Version};

use super::body::Framing;
use super::chunked::Chunked;
use super::error::H1Error;
use crate::config::{LimitsConfig, OriginConfig};
use crate::exchange::field_bytes::{FieldSpans, decimal, members};
use crate::origin::interim;

/// Limits of a response's head, and the framing that is accepted.
#[derive(Clone, Copy, Debug)]
pub(in crate::origin) struct HeadLimits {
    pub(in crate::origin) bytes_max: usize,
    pub(in crate::origin) fields_max: usize,
    /// See [`OriginConfig::accepts_unknown_codings`].
    pub(in crate::origin) accepts_unknown_codings: bool,
    /// True if the request asks for another protocol, so that 101 is a final response.
    pub(in crate::origin) accepts_switch: bool,
}

impl HeadLimits {
    pub(in crate::origin) fn of(limits: &LimitsConfig, origin: &OriginConfig) -> Self {
        Self {
            accepts_unknown_codings: origin.accepts_unknown_codings,
            bytes_max: limits.head_len_max(),
            fields_max: limits.headers_max.get(),
            accepts_switch: false,
        }
    }
}

/// A parsed head. Its bytes were removed from the inbox, the buffer of received bytes.
#[derive(Debug)]
pub(super) enum Head {
    Final {
        parts: Box<Parts>,
        framing: Framing,
        /// True if the connection can serve another request after this response.
        reusable: bool,
    },
    /// An interim response: its lines, if it is forwarded to an HTTP/1.1 client, and the values of `Link` of a 103.
    Interim(Option<Vec<u8>>, Vec<HeaderValue>),
}

/// Parses the response's head at the start of `inbox`. Returns `None` if the head is incomplete.
pub(super) fn parse(
    inbox: &mut BytesMut,
    limits: HeadLimits,
    method: &Method,
) -> Result<Option<Head>, H1Error> {
    if inbox.is_empty() {
        return Ok(None);
    }
    let mut on_stack = [const { std::mem::MaybeUninit::uninit() }; FIELDS_ON_STACK];
    let mut on_heap = Vec::new();
    let fields = if limits.fields_max <= FIELDS_ON_STACK {
        &mut on_stack[..limits.fields_max]
    } else {
        on_heap.resize_with(limits.fields_max, std::mem::MaybeUninit::uninit);
        &mut on_heap[..]
    };
    let mut response = httparse::Response::new(&mut []);
    // RFC 9112 §5.1: a proxy removes the whitespace between a name and the colon. In a request it is an error.
    let parsed = httparse::ParserConfig::default()
        .allow_spaces_after_header_name_in_responses(true)
        .parse_response_with_uninit_headers(&mut response, inbox, fields);
    let bytes = match parsed {
        Ok(httparse::Status::Complete(bytes)) if bytes <= limits.bytes_max => bytes,
        Ok(httparse::Status::Partial) if inbox.len() < limits.bytes_max => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(H1Error::HeadTooLarge),
        Err(error) => return Err(H1Error::Head(error)),
    };
    let status = StatusCode::from_u16(response.code.unwrap_or_default())
        .map_err(|_| H1Error::Head(httparse::Error::Status))?;
    let version = match response.version {
        Some(1) => Version::HTTP_11,
        _ => Version::HTTP_10,
    };
    let is_switch = status == StatusCode::SWITCHING_PROTOCOLS && limits.accepts_switch;
    if status.is_informational() && !is_switch {
        let lines = interim_lines(status, response.headers)?;
        let links = match status.as_u16() {
            103 => links(response.headers),
            _ => Vec::new(),
        };
        inbox.advance(bytes);
        return Ok(Some(Head::Interim(lines, links)));
    }
    let spans = FieldSpans::of(inbox, response.headers);
    let head = inbox.split_to(bytes).freeze();
    let mut headers = spans.read(&head, FIELDS_ADDED).map_err(H1Error::Head)?;
    let (framing, is_unambiguous) = framing(method, status, version, limits, &mut headers)?;
    let reusable = is_unambiguous && keeps_alive(version, &headers);
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = status;
    parts.version = version;
    parts.headers = headers;
    Ok(Some(Head::Final {
        parts: Box::new(parts),
        framing,
        reusable,
    }))
}

/// Returns the lines of an interim response, if it is to be forwarded. `100 Continue` is not forwarded, because this
/// module sends no request with a body. `101 Switching Protocols` is an error: the request asks for no other protocol.
fn interim_lines(
    status: StatusCode,
    fields: &[httparse::Header<'_>],
) -> Result<Option<Vec<u8>>, H1Error> {
    let fields = fields
        .iter()
        .map(|field| (field.name.as_bytes(), field.value));
    match status {
        StatusCode::SWITCHING_PROTOCOLS => Err(H1Error::Framing("the response switches protocols")),
        StatusCode::CONTINUE => Ok(None),
        _ => Ok(interim::lines(status, fields)),
    }
}

/// Returns the values of `Link`.
fn links(fields: &[httparse::Header<'_>]) -> Vec<HeaderValue> {
    let links = fields
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case(LINK.as_str()));
    links
        .filter_map(|field| HeaderValue::from_bytes(field.value).ok())
        .collect()
}

/// Returns the framing of the body (RFC 9112 §6.3), and true if the connection can be reused after the body.
fn framing(
    method: &Method,
    status: StatusCode,
    version: Version,
    limits: HeadLimits,
    headers: &mut HeaderMap,
) -> Result<(Framing, bool), H1Error> {
    let bodiless = *method == Method::HEAD
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED;
    if bodiless {
        return Ok((Framing::Length(0), true));
    }
    if status == StatusCode::SWITCHING_PROTOCOLS {
        // RFC 9110 §15.2: a server must not send a 1xx to an HTTP/1.0 client, and an HTTP/1.0 server knows none.
        return match version {
            Version::HTTP_10 => Err(H1Error::Framing("a 101 over HTTP/1.0")),
            _ => Ok((Framing::Length(0), false)),
        };
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        if version == Version::HTTP_10 {
            return Err(H1Error::Framing(
                "Transfer-Encoding in an HTTP/1.0 response",
            ));
        }
        // §6.1: `Content-Length` is then ignored and not forwarded, and the connection is not reused.
        let is_unambiguous = headers.remove(CONTENT_LENGTH).is_none();
        let mut codings = members(headers, TRANSFER_ENCODING);
        return match (codings.next(), codings.next()) {
            (Some(only), None) if only.eq_ignore_ascii_case(b"chunked") => {
                Ok((Framing::Chunked(Chunked::default()), is_unambiguous))
            }
            // §6.3, rule 4: without a final `chunked`, the end of the connection ends the body.
            (Some(only), None) if limits.accepts_unknown_codings && is_unambiguous => {
                tracing::debug!(coding = %only.escape_ascii(), "unknown transfer coding");
                Ok((Framing::UntilClose, false))
            }
            _ => Err(H1Error::Framing("a transfer coding other than chunked")),
        };
    }
    match content_length(headers)? {
        Some(length) => Ok((Framing::Length(length), true)),
        None => Ok((Framing::UntilClose, false)),
    }
}

/// Returns the value of `Content-Length`. Replaces repeated equal values by one value. Refuses different values.
fn content_length(headers: &mut HeaderMap) -> Result<Option<u64>, H1Error> {
    const INVALID: H1Error = H1Error::Framing("the Content-Length is not a single number");
    let mut times = 0;
    let mut length = None;
    for line in headers.get_all(CONTENT_LENGTH) {
        for member in line.as_bytes().split(|&byte| byte == b',') {
            times += 1;
            let member = decimal(member.trim_ascii()).ok_or(INVALID)?;
            if length.is_some_and(|length| length != member) {
                return Err(INVALID);
            }
            length = Some(member);
        }
    }
    if let Some(length) = length
        && times > 1
    {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(length)
}

/// Returns true if the connection persists after this response (RFC 9112 §9.3).
fn keeps_alive(version: Version, headers: &HeaderMap) -> bool {
    let has_option =
        |name: &[u8]| members(headers, CONNECTION).any(|option| option.eq_ignore_ascii_case(name));
    !has_option(b"close") && (version == Version::HTTP_11 || has_option(b"keep-alive"))
}

/// The spare capacity of the map for fields that the edge adds later.
const FIELDS_ADDED: usize = 4;

/// The number of fields that are parsed without an allocation.
const FIELDS_ON_STACK: usize = crate::config::HEADERS_ON_STACK;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: HeadLimits = HeadLimits {
        bytes_max: 4096,
        fields_max: 16,
        accepts_unknown_codings: false,
        accepts_switch: false,
    };

    fn read(text: &str) -> Result<Option<Head>, H1Error> {
        parse(&mut BytesMut::from(text), LIMITS, &Method::GET)
    }

    fn final_of(text: &str) -> (Parts, Framing, bool) {
        match read(text) {
            Ok(Some(Head::Final {
                parts,
                framing,
                reusable,
            })) => (*parts, framing, reusable),
            other => panic!("{text:?} gave {other:?}"),
        }
    }

    #[test]
    fn the_head_determines_the_end_of_a_body() {
        for (head, expected, expected_reuse) in [
            ("200 OK\r\nContent-Length: 5", Framing::Length(5), true),
            ("200 OK\r\nContent-Length : 5", Framing::Length(5), true),
            ("200 OK\r\nContent-Length\t : 5", Framing::Length(5), true),
            (
                "200 OK\r\nTransfer-Encoding : chunked\r\nContent-Length: 5",
                Framing::Chunked(Chunked::default()),
                false,
            ),
            ("200 OK\r\nContent-Length: 5, 5", Framing::Length(5), true),
            (
                "200 OK\r\nContent-Length: 5\r\ncontent-length: 5",
                Framing::Length(5),
                true,
            ),
            (
                "204 No Content\r\nContent-Length: 5",
                Framing::Length(0),
                true,
            ),
            (
                "304 Not Modified\r\nContent-Length: 5",
                Framing::Length(0),
                true,
            ),
            ("200 OK", Framing::UntilClose, false),
            (
                "200 OK\r\nTransfer-Encoding: chunked",
                Framing::Chunked(Chunked::default()),
                true,
            ),
            (
                "200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: Chunked",
                Framing::Chunked(Chunked::default()),
                false,
            ),
            (
                "200 OK\r\nContent-Length: 5\r\nConnection: x, Close",
                Framing::Length(5),
                false,
            ),
        ] {
            let (_, framing, reusable) = final_of(&format!("HTTP/1.1 {head}\r\n\r\n"));
            assert_eq!(framing, expected, "{head}");
            assert_eq!(reusable, expected_reuse, "{head}");
        }
    }

    #[test]
    fn an_http10_connection_is_reused_only_with_keep_alive() {
        let (_, _, reusable) = final_of("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n");
        assert!(!reusable);
        let (_, _, reusable) =
            final_of("HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n");
        assert!(reusable);
    }

    #[test]
    fn a_repeated_length_is_forwarded_once_and_a_length_beside_chunks_is_removed() {
        let (parts, ..) = final_of("HTTP/1.1 200 OK\r\nContent-Length: 7, 7\r\n\r\n");
        assert_eq!(parts.headers[CONTENT_LENGTH], "7");
        let (parts, ..) =
            final_of("HTTP/1.1 200 OK\r\nContent-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert!(!parts.headers.contains_key(CONTENT_LENGTH));
    }

    #[test]
    fn an_ambiguous_end_is_refused() {
        for head in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5, 6",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6",
            "HTTP/1.1 200 OK\r\nContent-Length: +5",
            "HTTP/1.1 200 OK\r\nContent-Length: ",
            "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding:",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x",
            "HTTP/1.1 200 OK\r\n Content-Length: 5",
            "HTTP/1.1 200 OK\r\nContent Length: 5",
            "HTTP/1.1 200 OK\r\nX: a\r\n folded",
        ] {
            let read = read(&format!("{head}\r\n\r\n"));
            assert!(read.is_err(), "{head:?} gave {read:?}");
        }
    }

    /// RFC 9112 §6.3, rule 4. A list of codings and a length beside a coding are errors in any case.
    #[test]
    fn an_unknown_coding_is_read_to_the_end_of_the_connection_if_it_is_accepted() {
        let limits = HeadLimits {
            accepts_unknown_codings: true,
            ..LIMITS
        };
        for (fields, is_accepted) in [
            ("Transfer-Encoding: x-unknown", true),
            ("Transfer-Encoding: identity", true),
            ("Transfer-Encoding: gzip, chunked", false),
            ("Transfer-Encoding: chunked, chunked", false),
            ("Transfer-Encoding: x\r\nTransfer-Encoding: chunked", false),
            ("Transfer-Encoding: x\r\nContent-Length: 5", false),
            ("Transfer-Encoding:", false),
        ] {
            let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
            let read = parse(&mut BytesMut::from(&*text), limits, &Method::GET);
            let is_read_to_end = matches!(
                read,
                Ok(Some(Head::Final {
                    framing: Framing::UntilClose,
                    reusable: false,
                    ..
                }))
            );
            assert_eq!(is_read_to_end, is_accepted, "{fields}: {read:?}");
        }
    }

    #[test]
    fn an_interim_response_precedes_the_final_one() {
        let mut inbox =
            BytesMut::from("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n");
        let interim = parse(&mut inbox, LIMITS, &Method::GET);
        let Ok(Some(Head::Interim(Some(lines), links))) = interim else {
            panic!("{interim:?}");
        };
        assert_eq!(links, ["</a>"]);
        assert_eq!(lines, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        let last = parse(&mut inbox, LIMITS, &Method::GET);
        assert!(matches!(last, Ok(Some(Head::Final { .. }))), "{last:?}");
        assert!(inbox.is_empty());
    }

    #[test]
    fn a_head_beyond_its_limits_is_refused_complete_or_partial() {
        let whole = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(5000));
        assert!(matches!(read(&whole), Err(H1Error::HeadTooLarge)));
        assert!(matches!(read(&whole[..4500]), Err(H1Error::HeadTooLarge)));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: a\r\n".repeat(17));
        assert!(matches!(read(&many), Err(H1Error::HeadTooLarge)));
    }

    proptest! {
        /// Method: parse random bytes after a status line. A parsed head is removed from the inbox.
        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut inbox = BytesMut::from(&b"HTTP/1.1 200 OK\r\n"[..]);
            inbox.extend_from_slice(&bytes);
            let before = inbox.len();
            if let Ok(Some(_)) = parse(&mut inbox, LIMITS, &Method::GET) {
                prop_assert!(inbox.len() < before);
            }
        }

        /// Method: parse a head that is cut at any byte.
        #[test]
        fn a_head_is_partial_until_its_last_byte(cut in 0_usize..60) {
            let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: someone\r\n\r\n";
            let cut = cut.min(text.len() - 1);
            prop_assert!(matches!(read(&text[..cut]), Ok(None)));
        }
    }
}
