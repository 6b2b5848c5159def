//! Requests for one range of bytes of a complete stored response (RFC 9110 §14).

use http::header::{HeaderMap, HeaderValue, IF_RANGE, RANGE};
use http::{Method, StatusCode};

use crate::date::parse_http_date;
use crate::list;
use crate::validators::{EntityTag, Validators};

/// The part of a stored response to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeAnswer {
    /// The full response, as if the request had no `Range`.
    Full,
    /// 206 with these bytes.
    Partial(ByteRange),
    /// 416 with [`unsatisfied_content_range`].
    Unsatisfiable,
}

/// Bytes `first..=last` of a body. The range is never empty and lies within the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// The index of the first byte.
    pub first: u64,
    /// The index of the last byte.
    pub last: u64,
}

impl ByteRange {
    /// Returns the number of bytes.
    pub const fn length(self) -> u64 {
        self.last - self.first + 1
    }

    /// Returns the `Content-Range` of the 206 (§14.4).
    pub fn content_range(self, complete_length: u64) -> HeaderValue {
        value(format!(
            "bytes {}-{}/{complete_length}",
            self.first, self.last
        ))
    }
}

/// Returns the `Content-Range` of a 416 (§14.4).
pub fn unsatisfied_content_range(complete_length: u64) -> HeaderValue {
    value(format!("bytes */{complete_length}"))
}

/// Decides which part of a complete stored body answers the request.
///
/// Call this if [`conditional::evaluate`](crate::conditional::evaluate) returned `Evaluation::Full` (§13.2.2 step 5).
/// Several ranges are answered with the full response, which §14.2 permits.
pub fn decide(
    method: &Method,
    request: &HeaderMap,
    status: StatusCode,
    stored: &Validators,
    complete_length: u64,
) -> RangeAnswer {
    // §14.2: ranges are defined for GET alone, and for responses that would be a 200.
    if *method != Method::GET || status != StatusCode::OK {
        return RangeAnswer::Full;
    }
    let mut lines = request.get_all(RANGE).into_iter();
    let (Some(range), None) = (lines.next(), lines.next()) else {
        return RangeAnswer::Full;
    };
    if !if_range_holds(request, stored) {
        return RangeAnswer::Full;
    }
    match RangeSpec::parse(range.as_bytes()) {
        Some(spec) => spec.resolve(complete_length),
        // §14.2: an invalid `Range` is ignored.
        None => RangeAnswer::Full,
    }
}

/// Evaluates `If-Range` (§13.1.5). The range counts only if the parts that the client already has belong to
/// this representation. Only a strong validator proves this.
fn if_range_holds(request: &HeaderMap, stored: &Validators) -> bool {
    let Some(condition) = request.get(IF_RANGE) else {
        return true;
    };
    if let Some(tag) = EntityTag::new(condition) {
        return stored
            .etag
            .as_ref()
            .is_some_and(|etag| etag.strong_eq(&tag));
    }
    // The dates must be equal, because the client repeats the date that it received.
    parse_http_date(condition.as_bytes()).is_some_and(|date| {
        stored.last_modified_is_strong() && stored.last_modified_time == Some(date)
    })
}

/// One requested range (§14.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeSpec {
    /// The form `first-` or `first-last`.
    FromFirst { first: u64, last: Option<u64> },
    /// The form `-length`: the last bytes of the body.
    Suffix { length: u64 },
}

impl RangeSpec {
    /// Returns `None` for another unit, invalid syntax or more than one range.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let equals = value.iter().position(|&byte| byte == b'=')?;
        // §14.1: range units are case-insensitive.
        if !list::trim(&value[..equals]).eq_ignore_ascii_case(b"bytes") {
            return None;
        }
        let mut specs = list::Members::new(&value[equals + 1..]);
        let (spec, None) = (specs.next()?, specs.next()) else {
            return None;
        };
        let dash = spec.iter().position(|&byte| byte == b'-')?;
        match (&spec[..dash], &spec[dash + 1..]) {
            (b"", b"") => None,
            (b"", length) => Some(Self::Suffix {
                length: number(length)?,
            }),
            (first, b"") => Some(Self::FromFirst {
                first: number(first)?,
                last: None,
            }),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                // §14.1.2: an int-range with last < first is invalid.
                (first <= last).then_some(Self::FromFirst {
                    first,
                    last: Some(last),
                })
            }
        }
    }

    fn resolve(self, complete_length: u64) -> RangeAnswer {
        let Some(end) = complete_length.checked_sub(1) else {
            // The body is empty. A suffix of an empty body is the empty body (§14.1.2).
            return match self {
                Self::Suffix { length } if length > 0 => RangeAnswer::Full,
                _ => RangeAnswer::Unsatisfiable,
            };
        };
        match self {
            Self::FromFirst { first, .. } if first > end => RangeAnswer::Unsatisfiable,
            Self::FromFirst { first, last } => RangeAnswer::Partial(ByteRange {
                first,
                last: last.map_or(end, |last| last.min(end)),
            }),
            Self::Suffix { length: 0 } => RangeAnswer::Unsatisfiable,
            Self::Suffix { length } => RangeAnswer::Partial(ByteRange {
                first: complete_length.saturating_sub(length),
                last: end,
            }),
        }
    }
}

/// Parses digits. A number that does not fit becomes `u64::MAX`, which is larger than any body.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, &byte| {
        byte.is_ascii_digit().then(|| {
            number
                .saturating_mul(10)
                .saturating_add(u64::from(byte - b'0'))
        })
    })
}

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("digits and ASCII punctuation")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::headers;

    fn answer(lines: &str, stored: &str, length: u64) -> RangeAnswer {
        decide(
            &Method::GET,
            &headers(lines),
            StatusCode::OK,
            &Validators::from_headers(&headers(stored)),
            length,
        )
    }

    fn part(first: u64, last: u64) -> RangeAnswer {
        RangeAnswer::Partial(ByteRange { first, last })
    }

    /// §14.1.2 and §14.2, with the RFC's own examples on 10000 bytes.
    #[test]
    fn a_range_is_cut_to_the_body() {
        use RangeAnswer::{Full, Unsatisfiable};
        let table = [
            ("bytes=0-499", 10_000, part(0, 499)),
            ("bytes=500-999", 10_000, part(500, 999)),
            ("bytes=-500", 10_000, part(9_500, 9_999)),
            ("bytes=9500-", 10_000, part(9_500, 9_999)),
            ("bytes=0-0", 10_000, part(0, 0)),
            ("bytes=-1", 10_000, part(9_999, 9_999)),
            ("bytes=0-99999", 10_000, part(0, 9_999)),
            ("bytes=9999-", 10_000, part(9_999, 9_999)),
            ("bytes=10000-", 10_000, Unsatisfiable),
            ("bytes=99999999999999999999-", 10_000, Unsatisfiable),
            ("bytes=0-99999999999999999999", 10_000, part(0, 9_999)),
            ("bytes=-99999999999999999999", 10_000, part(0, 9_999)),
            ("bytes=-20000", 10_000, part(0, 9_999)),
            ("bytes=-0", 10_000, Unsatisfiable),
            ("BYTES=0-1", 10_000, part(0, 1)),
            ("bytes= 0-1 ,", 10_000, part(0, 1)),
            ("bytes=0-", 0, Unsatisfiable),
            ("bytes=-5", 0, Full),
            ("bytes=-0", 0, Unsatisfiable),
            // Several ranges: the full response, as §14.2 permits.
            ("bytes=0-0,-1", 10_000, Full),
            // Invalid ranges are ignored.
            ("bytes=5-4", 10_000, Full),
            ("bytes=", 10_000, Full),
            ("bytes=-", 10_000, Full),
            ("bytes=a-b", 10_000, Full),
            ("bytes=0 - 1", 10_000, Full),
            ("bytes=1", 10_000, Full),
            ("bytes", 10_000, Full),
            ("lines=0-1", 10_000, Full),
        ];
        for (range, length, expected) in table {
            assert_eq!(
                answer(&format!("range: {range}"), "", length),
                expected,
                "{range} of {length}"
            );
        }
        assert_eq!(answer("", "", 10), Full);
        assert_eq!(answer("range: bytes=0-1\nrange: bytes=0-1", "", 10), Full);
    }

    /// §14.2: ranges apply to GET and 200 only.
    #[test]
    fn other_methods_and_statuses_ignore_the_range() {
        let request = headers("range: bytes=0-1");
        let stored = Validators::default();
        assert_eq!(
            decide(&Method::HEAD, &request, StatusCode::OK, &stored, 10),
            RangeAnswer::Full
        );
        assert_eq!(
            decide(&Method::GET, &request, StatusCode::NOT_FOUND, &stored, 10),
            RangeAnswer::Full
        );
    }

    /// §13.1.5: the range counts only with a strong match.
    #[test]
    fn if_range_takes_a_strong_and_equal_validator() {
        let then = "Sun, 06 Nov 1994 08:49:37 GMT";
        let later = "Sun, 06 Nov 1994 08:49:38 GMT";
        let strong_date = format!("last-modified: {then}\ndate: {later}");
        let weak_date = format!("last-modified: {then}\ndate: {then}");
        let table = [
            ("\"a\"", "etag: \"a\"", true),
            ("\"a\"", "etag: \"b\"", false),
            ("W/\"a\"", "etag: W/\"a\"", false),
            ("\"a\"", "etag: W/\"a\"", false),
            ("\"a\"", "", false),
            (then, &strong_date, true),
            (then, &weak_date, false),
            (later, &strong_date, false),
            (then, "etag: \"a\"", false),
            ("a", "etag: \"a\"", false),
            ("*", "etag: \"a\"", false),
        ];
        for (condition, stored, counts) in table {
            let expected = if counts {
                part(0, 1)
            } else {
                RangeAnswer::Full
            };
            let request = format!("range: bytes=0-1\nif-range: {condition}");
            assert_eq!(
                answer(&request, stored, 10),
                expected,
                "{condition} of {stored}"
            );
        }
    }

    #[test]
    fn content_range_has_the_bytes_and_the_complete_length() {
        assert_eq!(
            ByteRange {
                first: 0,
                last: 499
            }
            .content_range(1234),
            "bytes 0-499/1234"
        );
        assert_eq!(unsatisfied_content_range(1234), "bytes */1234");
    }

    proptest! {
        /// The range has exactly the bytes that a check of each byte of the body selects.
        #[test]
        fn a_range_has_exactly_the_requested_bytes(
            length in 0_u64..40, first in proptest::option::of(0_u64..50), last in proptest::option::of(0_u64..50),
        ) {
            let text = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
            let line = format!("range: bytes={}-{}", text(first), text(last));
            let expected: Vec<u64> = (0..length)
                .filter(|&at| match (first, last) {
                    (Some(first), last) => at >= first && last.is_none_or(|last| at <= last),
                    (None, Some(suffix)) => at + suffix >= length,
                    (None, None) => true,
                })
                .collect();
            match answer(&line, "", length) {
                RangeAnswer::Partial(range) => {
                    prop_assert_eq!(&(range.first..=range.last).collect::<Vec<_>>(), &expected);
                    prop_assert_eq!(range.length(), expected.len() as u64);
                }
                RangeAnswer::Unsatisfiable => prop_assert!(expected.is_empty()),
                RangeAnswer::Full => prop_assert!(
                    (first.is_none() && last.is_none())
                        || first.zip(last).is_some_and(|(first, last)| last < first)
                        || (length == 0 && first.is_none())
                ),
            }
        }
    }
}
