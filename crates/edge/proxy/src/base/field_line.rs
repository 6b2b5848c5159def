//! Writes header fields as lines of HTTP/1.1, and splits list fields into their members.

use http::header::{HeaderMap, HeaderName};

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
