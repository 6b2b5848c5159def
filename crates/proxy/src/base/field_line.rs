//! Header fields as lines of HTTP/1.1.

/// Appends `name: value` and a line break.
pub(crate) fn push_field(lines: &mut Vec<u8>, name: impl AsRef<[u8]>, value: &[u8]) {
    lines.extend_from_slice(name.as_ref());
    lines.extend_from_slice(b": ");
    lines.extend_from_slice(value);
    lines.extend_from_slice(b"\r\n");
}
