//! Requests for ranges of bytes of a complete stored response (RFC 9110 §14).
//!
//! One range is answered with its bytes, several ranges with a [`multipart`](crate::multipart) body.

use http::header::{HeaderMap, HeaderValue, IF_RANGE, RANGE};
use http::{Method, StatusCode};

use crate::date::parse_http_date;
use crate::list;
use crate::validators::{EntityTag, Validators};

/// The part of a stored response to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeAnswer {
    /// The full response, as if the request had no `Range`.
    Full,
    /// 206 with these bytes.
    Partial(ByteRange),
    /// 206 with a body of several parts (§15.3.7.2). The list has at least two ranges. They neither overlap nor touch,
    /// and have the order of the request.
    Several(Vec<ByteRange>),
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

    /// Returns true if the ranges have a common byte, or if one begins where the other ends.
    const fn touches(self, other: Self) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
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
/// A field with more than [`RANGES_MAX`] ranges is ignored, which §14.2 permits. Ranges that overlap or touch become
/// one range (§15.3.7.2), so the parts of a response have together at most the bytes of the whole body.
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
    match RangeSpec::parse_all(range.as_bytes()) {
        Some(specs) => resolve(&specs, complete_length),
        // §14.2: an invalid `Range` is ignored.
        None => RangeAnswer::Full,
    }
}

/// The most ranges of a request that is answered with several parts. Viewers of documents and archives send up to a
/// dozen. Each part has a head of about 100 bytes, so a limit bounds the heads that a short request can cause (§14.2).
pub const RANGES_MAX: usize = 16;

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

/// The bytes that one requested range selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selection {
    /// The whole body, which is empty.
    Empty,
    Bytes(ByteRange),
    Unsatisfiable,
}

impl RangeSpec {
    /// Returns `None` for another unit, invalid syntax or more than one range.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        match Self::parse_all(value)?[..] {
            [spec] => Some(spec),
            _ => None,
        }
    }

    /// Returns `None` for another unit, invalid syntax or more than [`RANGES_MAX`] ranges.
    fn parse_all(value: &[u8]) -> Option<Vec<Self>> {
        let equals = value.iter().position(|&byte| byte == b'=')?;
        // §14.1: range units are case-insensitive.
        if !list::trim(&value[..equals]).eq_ignore_ascii_case(b"bytes") {
            return None;
        }
        let mut specs = Vec::new();
        for member in list::Members::new(&value[equals + 1..]) {
            if specs.len() == RANGES_MAX {
                return None;
            }
            specs.push(Self::parse_member(member)?);
        }
        (!specs.is_empty()).then_some(specs)
    }

    fn parse_member(spec: &[u8]) -> Option<Self> {
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

    fn select(self, complete_length: u64) -> Selection {
        let Some(end) = complete_length.checked_sub(1) else {
            // A suffix of an empty body is the empty body (§14.1.2).
            return match self {
                Self::Suffix { length } if length > 0 => Selection::Empty,
                _ => Selection::Unsatisfiable,
            };
        };
        match self {
            Self::FromFirst { first, .. } if first > end => Selection::Unsatisfiable,
            Self::FromFirst { first, last } => Selection::Bytes(ByteRange {
                first,
                last: last.map_or(end, |last| last.min(end)),
            }),
            Self::Suffix { length: 0 } => Selection::Unsatisfiable,
            Self::Suffix { length } => Selection::Bytes(ByteRange {
                first: complete_length.saturating_sub(length),
                last: end,
            }),
        }
    }
}

fn resolve(specs: &[RangeSpec], complete_length: u64) -> RangeAnswer {
    let mut parts = Vec::new();
    for spec in specs {
        match spec.select(complete_length) {
            Selection::Empty => return RangeAnswer::Full,
            Selection::Bytes(range) => coalesce_into(&mut parts, range),
            Selection::Unsatisfiable => {}
        }
    }
    match parts[..] {
        [] => RangeAnswer::Unsatisfiable,
        // §15.3.7: a single range is sent without parts.
        [part] => RangeAnswer::Partial(part),
        _ => RangeAnswer::Several(parts),
    }
}

/// Adds `range` to the list. The parts that it overlaps or touches become one part, at the position of the first of
/// them (§15.3.7.2: parts keep the order of the request).
fn coalesce_into(parts: &mut Vec<ByteRange>, mut range: ByteRange) {
    let mut position = parts.len();
    while let Some(at) = parts.iter().position(|part| part.touches(range)) {
        let part = parts.remove(at);
        range.first = range.first.min(part.first);
        range.last = range.last.max(part.last);
        position = position.min(at);
    }
    parts.insert(position.min(parts.len()), range);
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

pub(crate) fn value(text: String) -> HeaderValue {
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

    fn several(parts: &[(u64, u64)]) -> RangeAnswer {
        let parts = parts.iter();
        RangeAnswer::Several(
            parts
                .map(|&(first, last)| ByteRange { first, last })
                .collect(),
        )
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

    /// §14.2 and §15.3.7.2, with both sides of [`RANGES_MAX`].
    #[test]
    fn several_ranges_become_parts_in_the_order_of_the_request() {
        use RangeAnswer::{Full, Unsatisfiable};
        let table = [
            ("0-0,-1", several(&[(0, 0), (9_999, 9_999)])),
            ("0-9,20-29,-5", several(&[(0, 9), (20, 29), (9_995, 9_999)])),
            ("500-600, 0-9", several(&[(500, 600), (0, 9)])),
            // Overlapping and touching ranges become one.
            ("0-9,5-14", part(0, 14)),
            ("0-9,10-14", part(0, 14)),
            ("0-9,11-14", several(&[(0, 9), (11, 14)])),
            ("0-,0-,0-", part(0, 9_999)),
            ("50-59,0-9,30-39,5-35", several(&[(50, 59), (0, 39)])),
            ("0-9,20-29,10-19,40-49", several(&[(0, 29), (40, 49)])),
            // Unsatisfiable ranges are left out.
            ("10000-,0-9", part(0, 9)),
            ("10000-,0-9,-0,20-29", several(&[(0, 9), (20, 29)])),
            ("10000-,-0", Unsatisfiable),
            // One invalid range makes the field invalid.
            ("0-9,5-4", Full),
            ("0-9,a", Full),
            (",", Full),
        ];
        for (ranges, expected) in table {
            assert_eq!(
                answer(&format!("range: bytes={ranges}"), "", 10_000),
                expected,
                "{ranges}"
            );
        }
        assert_eq!(answer("range: bytes=0-1,-5", "", 0), Full);
        let of = |count: u64| {
            let ranges = (0..count).map(|n| format!("{}-{}", n * 10, n * 10));
            let ranges = ranges.collect::<Vec<_>>().join(",");
            answer(&format!("range: bytes={ranges}"), "", 10_000)
        };
        assert!(matches!(of(16), RangeAnswer::Several(parts) if parts.len() == 16));
        assert_eq!(of(17), Full);
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
                RangeAnswer::Several(_) => prop_assert!(false, "one range was requested"),
                RangeAnswer::Unsatisfiable => prop_assert!(expected.is_empty()),
                RangeAnswer::Full => prop_assert!(
                    (first.is_none() && last.is_none())
                        || first.zip(last).is_some_and(|(first, last)| last < first)
                        || (length == 0 && first.is_none())
                ),
            }
        }

        /// The parts have exactly the bytes that a check of each byte of the body selects, each byte once.
        #[test]
        fn several_ranges_have_exactly_the_requested_bytes(length in 0_u64..40, specs in specs()) {
            let selects = |(first, last): &(Option<u64>, Option<u64>), at: u64| match (first, last) {
                (Some(first), last) => at >= *first && last.is_none_or(|last| at <= last),
                (None, Some(suffix)) => at + suffix >= length,
                (None, None) => false,
            };
            let expected: Vec<u64> = (0..length)
                .filter(|&at| specs.iter().any(|spec| selects(spec, at)))
                .collect();
            let text = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
            let texts = specs.iter().map(|&(first, last)| format!("{}-{}", text(first), text(last)));
            let line = format!("range: bytes={}", texts.collect::<Vec<_>>().join(","));
            let is_invalid = specs.len() > RANGES_MAX
                || specs.iter().any(|spec| match *spec {
                    (None, None) => true,
                    (first, last) => first.zip(last).is_some_and(|(first, last)| last < first),
                });
            let is_empty_suffix =
                length == 0 && specs.iter().any(|spec| matches!(spec, (None, Some(1..))));
            let parts = match answer(&line, "", length) {
                RangeAnswer::Full => {
                    prop_assert!(is_invalid || is_empty_suffix);
                    return Ok(());
                }
                RangeAnswer::Unsatisfiable => vec![],
                RangeAnswer::Partial(part) => vec![part],
                RangeAnswer::Several(parts) => {
                    prop_assert!(parts.len() > 1);
                    parts
                }
            };
            prop_assert!(!is_invalid && !is_empty_suffix);
            let mut bytes: Vec<u64> = parts.iter().flat_map(|part| part.first..=part.last).collect();
            bytes.sort_unstable();
            prop_assert_eq!(bytes, expected);
            // Between two parts is at least one byte that no range selects.
            let is_separate = |a: &ByteRange, b: &ByteRange| a == b || !a.touches(*b);
            prop_assert!(parts.iter().all(|a| parts.iter().all(|b| is_separate(a, b))));
            // The parts have the order of the first range that lies in each of them.
            let first_spec = |part: &ByteRange| {
                let lies_in = |spec| (part.first..=part.last).any(|at| selects(spec, at));
                specs.iter().position(lies_in)
            };
            prop_assert!(parts.iter().map(first_spec).is_sorted());
        }
    }

    /// Up to 18 pairs of a first and a last byte, two more than [`RANGES_MAX`]. Most of them are valid.
    fn specs() -> impl Strategy<Value = Vec<(Option<u64>, Option<u64>)>> {
        let spec = prop_oneof![
            8 => (0_u64..45, 0_u64..6).prop_map(|(first, more)| (Some(first), Some(first + more))),
            1 => (0_u64..45).prop_map(|first| (Some(first), None)),
            1 => (0_u64..10).prop_map(|suffix| (None, Some(suffix))),
            1 => proptest::option::of(0_u64..9).prop_map(|last| (last.map(|n| n + 1), last)),
        ];
        prop_oneof![
            4 => proptest::collection::vec(spec.clone(), 1..6),
            1 => proptest::collection::vec(spec, 1..19),
        ]
    }
}
