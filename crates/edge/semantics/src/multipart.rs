//! The body of a 206 with several ranges: `multipart/byteranges` (RFC 9110 §14.6 and §15.3.7.2).
//!
//! Each part has a delimiter, its own `Content-Type` and `Content-Range`, and the bytes of its range. The functions of
//! this module return the text around the bytes, so that the caller can send the bytes without a copy.

use http::header::HeaderValue;

use crate::range::{ByteRange, value};

/// Returns the `Content-Type` of the response. `boundary` separates the parts, and must not occur in the body.
pub fn content_type(boundary: Boundary) -> HeaderValue {
    value(format!("multipart/byteranges; boundary={boundary}"))
}

/// Returns the text before the bytes of a part. `content_type` is that of the whole representation.
pub fn part_head(
    boundary: Boundary,
    is_first: bool,
    content_type: Option<&HeaderValue>,
    range: ByteRange,
    complete_length: u64,
) -> Vec<u8> {
    // RFC 2046 §5.1.1: the line break before a delimiter belongs to the delimiter.
    let line_break = if is_first { "" } else { "\r\n" };
    let mut head = format!("{line_break}--{boundary}\r\n").into_bytes();
    if let Some(content_type) = content_type {
        head.extend_from_slice(b"Content-Type: ");
        head.extend_from_slice(content_type.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"Content-Range: ");
    head.extend_from_slice(range.content_range(complete_length).as_bytes());
    head.extend_from_slice(b"\r\n\r\n");
    head
}

/// Returns the text after the last part.
pub fn end(boundary: Boundary) -> Vec<u8> {
    format!("\r\n--{boundary}--\r\n").into_bytes()
}

/// The text that separates the parts of one response: 32 hexadecimal digits.
///
/// The number must be random. A number that the author of a body can predict would let the body contain a delimiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary(pub u128);

impl std::fmt::Display for Boundary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout of the RFC's example (§15.3.7.2).
    #[test]
    fn each_part_has_a_delimiter_its_type_and_its_range() {
        let boundary = Boundary(0xabc);
        let text = "00000000000000000000000000000abc";
        assert_eq!(
            content_type(boundary),
            format!("multipart/byteranges; boundary={text}")
        );
        let range = ByteRange {
            first: 500,
            last: 999,
        };
        let pdf = HeaderValue::from_static("application/pdf");
        assert_eq!(
            part_head(boundary, true, Some(&pdf), range, 8000),
            format!("--{text}\r\nContent-Type: application/pdf\r\nContent-Range: bytes 500-999/8000\r\n\r\n")
                .as_bytes()
        );
        assert_eq!(
            part_head(boundary, false, None, range, 8000),
            format!("\r\n--{text}\r\nContent-Range: bytes 500-999/8000\r\n\r\n").as_bytes()
        );
        assert_eq!(end(boundary), format!("\r\n--{text}--\r\n").as_bytes());
    }
}
