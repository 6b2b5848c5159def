//! `Content-Range` of a 206 with one part (RFC 9110 §14.4).

use http::header::{CONTENT_RANGE, HeaderMap};

use crate::list;
use crate::range::{ByteRange, number};

/// The part that a 206 contains, and the length of the complete representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// The bytes in the response.
    pub part: ByteRange,
    /// The length of the complete representation. It is larger than `part.last`.
    pub complete_length: u64,
}

impl ContentRange {
    /// Parses `bytes first-last/complete`. Returns `None` for another unit, an unknown length (`*`), the form of a 416,
    /// or a range that is invalid or does not lie within the complete length (§14.4).
    pub fn parse(value: &[u8]) -> Option<Self> {
        let space = value.iter().position(|&byte| byte == b' ')?;
        let (unit, rest) = (&value[..space], list::trim(&value[space + 1..]));
        // §14.1: range units are case-insensitive.
        if !unit.eq_ignore_ascii_case(b"bytes") {
            return None;
        }
        let slash = rest.iter().position(|&byte| byte == b'/')?;
        let (range, complete) = (&rest[..slash], &rest[slash + 1..]);
        let dash = range.iter().position(|&byte| byte == b'-')?;
        let part = ByteRange {
            first: number(&range[..dash])?,
            last: number(&range[dash + 1..])?,
        };
        // A number that is too large is read as `u64::MAX`, so a representation with such a length counts as invalid.
        let complete_length = number(complete).filter(|&length| length < u64::MAX)?;
        (part.first <= part.last && part.last < complete_length).then_some(Self {
            part,
            complete_length,
        })
    }

    /// Parses the field of a response. Returns `None` if it is missing, invalid, or present twice.
    pub fn from_headers(response: &HeaderMap) -> Option<Self> {
        let mut lines = response.get_all(CONTENT_RANGE).into_iter();
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return None;
        };
        Self::parse(line.as_bytes())
    }

    /// Returns true if the part is the complete representation.
    pub const fn is_complete(self) -> bool {
        self.part.length() == self.complete_length
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::headers;

    fn parse(value: &str) -> Option<(u64, u64, u64)> {
        ContentRange::parse(value.as_bytes())
            .map(|range| (range.part.first, range.part.last, range.complete_length))
    }

    #[test]
    fn only_a_part_of_a_known_length_is_a_content_range() {
        let table = [
            ("bytes 0-499/1234", Some((0, 499, 1234))),
            ("bytes 734-1233/1234", Some((734, 1233, 1234))),
            ("BYTES 0-0/1", Some((0, 0, 1))),
            ("bytes  0-0/1", Some((0, 0, 1))),
            ("bytes 42-1233/*", None),
            ("bytes */1234", None),
            ("bytes 5-4/10", None),
            ("bytes 0-10/10", None),
            ("bytes 0-9/0", None),
            ("bytes 0-/10", None),
            ("bytes -9/10", None),
            ("bytes 0-9", None),
            ("bytes=0-9/10", None),
            ("lines 0-9/10", None),
            ("bytes 0-9/10x", None),
            ("bytes 0-99999999999999999999/99999999999999999999", None),
            ("bytes 0-1/18446744073709551615", None),
            ("", None),
        ];
        for (value, expected) in table {
            assert_eq!(parse(value), expected, "{value}");
        }
    }

    #[test]
    fn two_fields_are_no_content_range() {
        let lines = "content-range: bytes 0-1/9\ncontent-range: bytes 0-1/9";
        assert_eq!(ContentRange::from_headers(&headers(lines)), None);
        assert_eq!(ContentRange::from_headers(&headers("")), None);
    }

    proptest! {
        #[test]
        fn a_written_field_parses_to_its_part(first: u32, length in 1_u64..1 << 40, after: u32) {
            let first = u64::from(first);
            let part = ByteRange { first, last: first + length - 1 };
            let complete_length = first + length + u64::from(after);
            let field = part.content_range(complete_length);
            let parsed = ContentRange::parse(field.as_bytes()).expect("a valid field");
            prop_assert_eq!(parsed, ContentRange { part, complete_length });
            prop_assert_eq!(parsed.is_complete(), first == 0 && after == 0);
        }
    }
}
