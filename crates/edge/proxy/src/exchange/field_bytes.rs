//! Header fields as bytes: their positions in a head, their lines in HTTP/1.1, the members of lists.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// The offset and the length of a part of a head.
pub(crate) type Span = (usize, usize);

/// Returns the span of `part`, a slice of `head`.
pub(crate) fn span(head: &[u8], part: &[u8]) -> Span {
    (part.as_ptr().addr() - head.as_ptr().addr(), part.len())
}

/// The spans of the names and values of a head's fields.
pub(crate) struct FieldSpans(Vec<(Span, Span)>);

impl FieldSpans {
    /// Returns the spans of fields that were parsed from `head`.
    pub(crate) fn of(head: &[u8], fields: &[httparse::Header<'_>]) -> Self {
        let field = |field: &httparse::Header<'_>| {
            (span(head, field.name.as_bytes()), span(head, field.value))
        };
        Self(fields.iter().map(field).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the fields of `head` in a map with capacity for `added` more. Fails if `http` rejects a name or a value.
    pub(crate) fn read(&self, head: &Bytes, added: usize) -> Result<HeaderMap, httparse::Error> {
        let mut headers = HeaderMap::with_capacity(self.len() + added);
        for &(name, value) in &self.0 {
            let name = HeaderName::from_bytes(&head[name.0..name.0 + name.1])
                .map_err(|_| httparse::Error::HeaderName)?;
            let value = HeaderValue::from_maybe_shared(head.slice(value.0..value.0 + value.1))
                .map_err(|_| httparse::Error::HeaderValue)?;
            headers.append(name, value);
        }
        Ok(headers)
    }
}

/// Parses a number that consists of digits only. `u64::from_str` would accept a plus sign.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Appends `name: value` and a line break.
pub(crate) fn push_field(lines: &mut Vec<u8>, name: impl AsRef<[u8]>, value: &[u8]) {
    lines.extend_from_slice(name.as_ref());
    lines.extend_from_slice(b": ");
    lines.extend_from_slice(value);
    lines.extend_from_slice(b"\r\n");
}

/// Returns the non-empty members of a list field (RFC 9110 §5.6.1). Does not support members that are quoted strings,
/// which may contain commas.
pub(crate) fn members(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    let lines = headers.get_all(name).into_iter();
    lines
        .flat_map(|line| line.as_bytes().split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|member| !member.is_empty())
}
