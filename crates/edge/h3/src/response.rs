//! Field sections of responses.
//!
//! A response is, on the stream of its request: interim responses (1xx), each a HEADERS frame; the head, a HEADERS
//! frame; content, in DATA frames; and perhaps trailers, a HEADERS frame (RFC 9114 §4.1).

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::field::is_of_connection;
use crate::qpack::decoder::FIELD_OVERHEAD_BYTES;
use crate::qpack::encoder::{begin_section, push_field};

/// Appends the field section of a head or of an interim response. The section is the same for every client, and more
/// fields may follow it by [`push_header`].
///
/// Fields of HTTP/1.1 connections are left out. An intermediary must remove them (RFC 9114 §4.2).
///
/// # Panics
///
/// If the status is 101, which HTTP/3 does not have (§4.5): a successful extended CONNECT has the status 200.
pub fn push_response(out: &mut Vec<u8>, status: StatusCode, headers: &HeaderMap) {
    assert_ne!(
        status,
        StatusCode::SWITCHING_PROTOCOLS,
        "not a status of HTTP/3"
    );
    begin_section(out);
    push_field(out, b":status", status.as_str().as_bytes(), false);
    headers
        .iter()
        .for_each(|(name, value)| push_header(out, name, value));
}

/// Appends the field section of trailers.
pub fn push_trailers(out: &mut Vec<u8>, trailers: &HeaderMap) {
    begin_section(out);
    trailers
        .iter()
        .for_each(|(name, value)| push_header(out, name, value));
}

/// Appends a field to a section, unless it is a field of HTTP/1.1 connections.
pub fn push_header(out: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    if !is_of_connection(name) {
        push_field(
            out,
            name.as_str().as_bytes(),
            value.as_bytes(),
            value.is_sensitive(),
        );
    }
}

/// Returns the size of a head as the limit of a client counts it (RFC 9114 §4.2.2). A larger head should not be sent:
/// see [`Settings::field_section_bytes_max`](crate::Settings::field_section_bytes_max).
pub fn response_bytes(headers: &HeaderMap) -> u64 {
    let status = b":status".len() + 3 + FIELD_OVERHEAD_BYTES;
    let fields = headers.iter().filter(|(name, _)| !is_of_connection(name));
    let fields =
        fields.map(|(name, value)| name.as_str().len() + value.len() + FIELD_OVERHEAD_BYTES);
    (status + fields.sum::<usize>()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qpack::decoder::{FieldSection, SectionLimits};

    fn lines(section: &[u8], limits: SectionLimits) -> Vec<(String, String)> {
        let mut section = FieldSection::new(section, limits).expect("the section is valid");
        let mut lines = Vec::new();
        while let Some(line) = section
            .next_line()
            .expect("the section is within its limits")
        {
            let text = |bytes: &[u8]| str::from_utf8(bytes).expect("text").to_owned();
            lines.push((text(line.name), text(line.value)));
        }
        lines
    }

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for &(name, value) in fields {
            let name = HeaderName::from_static(name);
            headers.append(name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_head_has_its_status_first_and_no_fields_of_connections() {
        let headers = headers(&[
            ("connection", "close"),
            ("content-type", "text/css"),
            ("transfer-encoding", "chunked"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
        ]);
        let mut section = Vec::new();
        push_response(&mut section, StatusCode::NOT_FOUND, &headers);
        // The limit is exactly the size of this head.
        let bytes_max = usize::try_from(response_bytes(&headers)).expect("a small number");
        let limits = SectionLimits {
            bytes_max,
            fields_max: 4,
        };
        let expected = [
            (":status", "404"),
            ("content-type", "text/css"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(lines(&section, limits), expected);
        let limits = SectionLimits {
            bytes_max: bytes_max - 1,
            ..limits
        };
        let mut section = FieldSection::new(&section, limits).expect("the section is valid");
        assert!((0..4).any(|_| section.next_line().is_err()));
    }

    /// A stored section and a field of one request are the section of all fields.
    #[test]
    fn fields_may_be_appended_to_a_stored_section() {
        let mut appended = Vec::new();
        push_response(
            &mut appended,
            StatusCode::OK,
            &headers(&[("etag", "\"1\"")]),
        );
        push_header(
            &mut appended,
            &http::header::AGE,
            &HeaderValue::from_static("7"),
        );
        let mut whole = Vec::new();
        push_response(
            &mut whole,
            StatusCode::OK,
            &headers(&[("etag", "\"1\""), ("age", "7")]),
        );
        assert_eq!(appended, whole);
    }

    #[test]
    fn trailers_have_no_status() {
        let mut section = Vec::new();
        push_trailers(
            &mut section,
            &headers(&[("x-checksum", "1"), ("upgrade", "x")]),
        );
        let expected = [("x-checksum".to_owned(), "1".to_owned())];
        assert_eq!(lines(&section, SectionLimits::default()), expected);
    }

    #[test]
    #[should_panic(expected = "not a status of HTTP/3")]
    fn a_response_does_not_switch_protocols() {
        push_response(
            &mut Vec::new(),
            StatusCode::SWITCHING_PROTOCOLS,
            &HeaderMap::new(),
        );
    }
}
