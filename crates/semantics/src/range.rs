//! Single ranges of a complete stored response (RFC 9110 §14).

use http::header::{HeaderMap, HeaderValue, IF_RANGE, RANGE};
use http::{Method, StatusCode};

use crate::date::parse_http_date;
use crate::list;
use crate::validators::{EntityTag, Validators};

/// What part of a stored response to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeAnswer {
    /// All of it, as if there were no `Range`.
    Full,
    /// 206 with these bytes.
    Partial(ByteRange),
    /// 416 with [`unsatisfied_content_range`].
    Unsatisfiable,
}

/// Bytes `first..=last` of a body; never empty, always inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// Index of the first byte.
    pub first: u64,
    /// Index of the last byte.
    pub last: u64,
}

impl ByteRange {
    /// Number of bytes.
    pub const fn length(self) -> u64 {
        self.last - self.first + 1
    }

    /// The `Content-Range` of the 206 (§14.4).
    pub fn content_range(self, complete_length: u64) -> HeaderValue {
        value(format!(
            "bytes {}-{}/{complete_length}",
            self.first, self.last
        ))
    }
}

/// The `Content-Range` of a 416 (§14.4).
pub fn unsatisfied_content_range(complete_length: u64) -> HeaderValue {
    value(format!("bytes */{complete_length}"))
}

/// Decides what of a complete stored body answers the request.
///
/// Call it where [`conditional::evaluate`](crate::conditional::evaluate) said `Full`
/// (§13.2.2 step 5). Several ranges are answered by the whole, which §14.2 permits.
pub fn decide(
    method: &Method,
    request: &HeaderMap,
    status: StatusCode,
    stored: &Validators,
    complete_length: u64,
) -> RangeAnswer {
    // §14.2: defined for GET alone, and for what would be a 200 without it.
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
        // §14.2: what cannot be read is ignored.
        None => RangeAnswer::Full,
    }
}

/// `If-Range` (§13.1.5): the range counts only if the client's parts are of this very
/// representation, which takes a strong validator.
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
    // Equal, not earlier: the client repeats what it was given.
    parse_http_date(condition.as_bytes()).is_some_and(|date| {
        stored.last_modified_is_strong() && stored.last_modified_time == Some(date)
    })
}

/// One range as asked for (§14.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeSpec {
    /// `first-` or `first-last`.
    From { first: u64, last: Option<u64> },
    /// `-length`.
    Suffix { length: u64 },
}

impl RangeSpec {
    /// `None` for another unit, bad syntax or more than one range.
    fn parse(value: &[u8]) -> Option<Self> {
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
            (first, b"") => Some(Self::From {
                first: number(first)?,
                last: None,
            }),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                // §14.1.2: an int-range with last < first is invalid.
                (first <= last).then_some(Self::From {
                    first,
                    last: Some(last),
                })
            }
        }
    }

    fn resolve(self, complete_length: u64) -> RangeAnswer {
        let Some(end) = complete_length.checked_sub(1) else {
            // Nothing to cut. A suffix of an empty body is the empty body (§14.1.2).
            return match self {
                Self::Suffix { length } if length > 0 => RangeAnswer::Full,
                _ => RangeAnswer::Unsatisfiable,
            };
        };
        match self {
            Self::From { first, .. } if first > end => RangeAnswer::Unsatisfiable,
            Self::From { first, last } => RangeAnswer::Partial(ByteRange {
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

/// Digits only; a number too large to hold is as large as can be, which no body is.
fn number(digits: &[u8]) -> Option<u64> {
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
