//! Rules of all fields of requests: names, values, and fields of connections (RFC 9114 §4.2, §10.3).

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::error::StreamError;
use crate::qpack::decoder::FieldLine;

/// Appends a regular field of a request, if it is well-formed.
pub(crate) fn append(headers: &mut HeaderMap, line: &FieldLine<'_>) -> Result<(), StreamError> {
    // Refuses capitals, spaces, colons and control characters.
    let name = HeaderName::from_lowercase(line.name)
        .map_err(|_| StreamError::malformed("the name of a field is invalid or has capitals"))?;
    if is_of_connection(&name) {
        return Err(StreamError::malformed("a field of HTTP/1.1 connections"));
    }
    if name == http::header::TE && line.value != b"trailers" {
        return Err(StreamError::malformed(
            "TE has another value than `trailers`",
        ));
    }
    // RFC 9110 §5.5: spaces around a value are not part of it, so only code that changes messages writes them.
    let is_space = |byte: Option<&u8>| byte.is_some_and(|byte| matches!(byte, b' ' | b'\t'));
    if is_space(line.value.first()) || is_space(line.value.last()) {
        return Err(StreamError::malformed(
            "the value of a field has spaces around it",
        ));
    }
    // Refuses CR, LF, NUL and other control characters.
    let mut value = HeaderValue::from_bytes(line.value)
        .map_err(|_| StreamError::malformed("the value of a field has control characters"))?;
    value.set_sensitive(line.is_sensitive);
    // A map has a limit of its own, 32 768 names.
    let appended = headers.try_append(name, value);
    appended
        .map(drop)
        .map_err(|_| StreamError::too_large("a field section has too many fields"))
}

/// Returns true for fields that describe a connection of HTTP/1.1 (RFC 9114 §4.2). No message of HTTP/3 has them.
pub(crate) fn is_of_connection(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade"
    )
}
