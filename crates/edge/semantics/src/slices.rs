//! Slices: aligned parts of a large representation, fetched and stored one by one.
//!
//! A cache that has no complete response fetches only the slices that a range needs. The parts of several 206 responses
//! belong together only if they have the same strong validator (RFC 9110 §15.3.7.3, RFC 9111 §3.4). The functions of
//! this module decide which part is requested ([`FirstPart`], [`Slicing`]), and how the response may be used
//! ([`first_answer`], [`slice_answer`]).

use std::ops::Range;

use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue, RANGE};

use crate::content_range::ContentRange;
use crate::range::{ByteRange, RangeSpec};
use crate::validators::{EntityTag, Validators};

/// The slices of one representation. The last slice may be shorter than the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slicing {
    /// The length of the complete representation.
    pub complete_length: u64,
    /// The size of a slice in bytes, at least 1.
    pub slice_bytes: u64,
}

impl Slicing {
    /// Returns the index of the slice that contains the byte at `offset`.
    pub const fn index_of(self, offset: u64) -> u64 {
        offset / self.slice_bytes
    }

    /// Returns the bytes of a slice. The range is empty if the representation ends before the slice.
    pub fn bytes_of(self, index: u64) -> Range<u64> {
        let start = index.saturating_mul(self.slice_bytes);
        let end = start.saturating_add(self.slice_bytes);
        start.min(self.complete_length)..end.min(self.complete_length)
    }

    /// Returns the indexes of the slices that contain bytes of `range`.
    pub fn indexes_of(self, range: &Range<u64>) -> Range<u64> {
        if range.is_empty() {
            return 0..0;
        }
        self.index_of(range.start)..self.index_of(range.end - 1) + 1
    }

    /// Returns the value of `Range` that requests one slice.
    pub fn range_value(self, index: u64) -> HeaderValue {
        let bytes = self.bytes_of(index);
        range_value(bytes.start, bytes.end.saturating_sub(1))
    }
}

/// The part to request for a range, while the length of the representation is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstPart {
    /// The slice that contains the first byte of the range.
    Slice {
        /// The index of the slice.
        index: u64,
    },
    /// These bytes, which lie within the range that the client requests.
    Bytes {
        /// The offset of the first byte.
        first: u64,
        /// The offset of the last byte.
        last: u64,
    },
    /// The last bytes. The position of a suffix is unknown, so the client's range is requested.
    Suffix {
        /// The number of bytes.
        length: u64,
    },
}

impl FirstPart {
    /// Returns the part to request for the range of a request. Returns `None` for a request without a valid range of
    /// bytes, with several ranges, or with an empty suffix.
    pub fn of_request(request: &HeaderMap, slice_bytes: u64) -> Option<Self> {
        match range_of(request)? {
            // The end of the slice must fit into a number that origins can parse.
            RangeSpec::FromFirst { first, .. } if first >= OFFSET_MAX => None,
            RangeSpec::FromFirst { first, .. } => Some(Self::Slice {
                index: first / slice_bytes,
            }),
            RangeSpec::Suffix { length: 0 } => None,
            RangeSpec::Suffix { length } => Some(Self::Suffix { length }),
        }
    }

    /// Like [`of_request`](Self::of_request), for a URL that was never fetched. The part has no byte that the client
    /// does not request, so that a few bytes of each of many URLs cost the origin no more than a few bytes. Slices of
    /// up to [`SMALL_SLICE_BYTES`] are requested as a whole, unless the range has bytes of two slices.
    pub fn of_first_request(request: &HeaderMap, slice_bytes: u64) -> Option<Self> {
        let Self::Slice { index } = Self::of_request(request, slice_bytes)? else {
            return Self::of_request(request, slice_bytes);
        };
        let Some(RangeSpec::FromFirst { first, last }) = range_of(request) else {
            return None;
        };
        let is_small = slice_bytes <= SMALL_SLICE_BYTES;
        let slice_end = index * slice_bytes + (slice_bytes - 1);
        Some(match last {
            // A short range is requested as it is, even across slices.
            Some(last) if last - first < slice_bytes && (!is_small || last > slice_end) => {
                Self::Bytes { first, last }
            }
            // The rest of a long range is requested in slices.
            _ if !is_small => Self::Bytes {
                first,
                last: slice_end,
            },
            _ => Self::Slice { index },
        })
    }

    /// Returns true if the part is exactly the range that the client requests.
    pub fn is_range_of(self, request: &HeaderMap) -> bool {
        match self {
            Self::Slice { .. } => false,
            Self::Bytes { first, last } => range_of(request).is_some_and(|range| {
                matches!(range, RangeSpec::FromFirst { first: of_client, last: Some(end) }
                    if (of_client, end) == (first, last))
            }),
            Self::Suffix { .. } => true,
        }
    }

    /// Returns the value of `Range` that requests this part.
    pub fn range_value(self, slice_bytes: u64) -> HeaderValue {
        match self {
            Self::Bytes { first, last } => range_value(first, last),
            Self::Slice { index } => {
                let first = index * slice_bytes;
                range_value(first, first + (slice_bytes - 1))
            }
            Self::Suffix { length } => value(format!("bytes=-{length}")),
        }
    }
}

/// The use of a 206 that answers the request for a [`FirstPart`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstAnswer {
    /// The 206 has the complete representation, so it can be used as a 200 (RFC 9110 §15.3.7.3).
    Complete,
    /// The part lies within one slice.
    Slice {
        /// The index of the slice.
        index: u64,
        /// The bytes of the part and the length of the representation.
        content: ContentRange,
    },
    /// The part has bytes of several slices. Only the head of the response is of use.
    Head(ContentRange),
    /// The representation cannot be sliced.
    Unusable(Unusable),
}

/// Why a representation cannot be sliced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unusable {
    /// There is no valid `Content-Range` with a known length, for example because the response is multipart.
    ContentRange,
    /// The response has no strong validator, so its parts cannot be combined with others.
    Validator,
    /// The body's length is unknown, or is not that of the part.
    Length,
}

impl Unusable {
    /// Returns the reason as a token.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ContentRange => "no-content-range",
            Self::Validator => "no-strong-validator",
            Self::Length => "part-length",
        }
    }
}

/// Decides how a 206 to the request for a [`FirstPart`] may be used. The part may be another than the requested one:
/// only its `Content-Range` counts (§15.3.7). `body_length` is the length of the body, if it is known before the body.
pub fn first_answer(
    response: &HeaderMap,
    body_length: Option<u64>,
    slice_bytes: u64,
) -> FirstAnswer {
    let Some(content) = ContentRange::from_headers(response) else {
        return FirstAnswer::Unusable(Unusable::ContentRange);
    };
    if body_length != Some(content.part.length()) {
        return FirstAnswer::Unusable(Unusable::Length);
    }
    if content.is_complete() {
        return FirstAnswer::Complete;
    }
    if StrongValidator::of(&Validators::from_headers(response)).is_none() {
        return FirstAnswer::Unusable(Unusable::Validator);
    }
    let index = content.part.first / slice_bytes;
    if content.part.last / slice_bytes == index {
        FirstAnswer::Slice { index, content }
    } else {
        FirstAnswer::Head(content)
    }
}

/// Returns the head of the complete representation, from the head of a 206: `Content-Range` and the length of the part
/// describe the part alone.
pub fn complete_head(partial: &HeaderMap, complete_length: u64) -> HeaderMap {
    let mut head = partial.clone();
    head.remove(CONTENT_RANGE);
    head.insert(CONTENT_LENGTH, HeaderValue::from(complete_length));
    head
}

/// The validator by which the parts of one representation are recognised (RFC 9110 §8.8.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StrongValidator {
    /// A strong entity tag.
    Tag(EntityTag),
    /// `Last-Modified`, at least one second before `Date` (§8.8.2.2). Used if there is no entity tag.
    Modified(HeaderValue),
}

impl StrongValidator {
    /// Returns the strong validator of a response. A weak tag shows that equal dates do not prove equal bytes either.
    pub fn of(validators: &Validators) -> Option<Self> {
        match &validators.etag {
            Some(tag) => (!tag.is_weak()).then(|| Self::Tag(tag.clone())),
            None => validators
                .last_modified
                .clone()
                .filter(|_| validators.last_modified_is_strong())
                .map(Self::Modified),
        }
    }

    /// Returns the value of `If-Range` (§13.1.5).
    pub fn if_range(&self) -> &HeaderValue {
        match self {
            Self::Tag(tag) => tag.value(),
            Self::Modified(date) => date,
        }
    }

    /// Returns true if a response with these validators is of the same representation.
    pub fn matches(&self, response: &Validators) -> bool {
        match self {
            Self::Tag(tag) => response
                .etag
                .as_ref()
                .is_some_and(|etag| etag.strong_eq(tag)),
            Self::Modified(date) => {
                response.etag.as_ref().is_none_or(|etag| !etag.is_weak())
                    && response.last_modified.as_ref() == Some(date)
            }
        }
    }
}

/// Why the response to the request for a slice is not that slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceMismatch {
    /// The representation at the origin is another one.
    Changed,
    /// The origin did not send the slice, but not because the representation has changed. It ignores `Range` or
    /// `If-Range`, or sends another part or no validator.
    Ignored,
    /// The origin answered with an error that says nothing about the representation.
    Error,
}

/// Decides about the response to a request for slice `index` with `If-Range`. Returns the part of the slice that the
/// response has. `body_length` is the length of the body, if it is known before the body.
pub fn slice_answer(
    slicing: Slicing,
    index: u64,
    validator: &StrongValidator,
    status: StatusCode,
    response: &HeaderMap,
    body_length: Option<u64>,
) -> Result<ByteRange, SliceMismatch> {
    let validators = Validators::from_headers(response);
    let is_same = validator.matches(&validators);
    match status.as_u16() {
        206 => {}
        200 if is_same => return Err(SliceMismatch::Ignored),
        // The representation is gone or shorter, moved or replaced. 412 is unexpected, but says the same.
        200 | 204 | 300..400 | 404 | 410 | 412 | 416 => return Err(SliceMismatch::Changed),
        _ => return Err(SliceMismatch::Error),
    }
    if !is_same {
        // §15.3.7: a 206 repeats the validator of the 200. Without any, the part cannot be attributed.
        let has_validator = validators.etag.is_some() || validators.last_modified.is_some();
        return Err(if has_validator {
            SliceMismatch::Changed
        } else {
            SliceMismatch::Ignored
        });
    }
    let content = ContentRange::from_headers(response).ok_or(SliceMismatch::Ignored)?;
    if content.complete_length != slicing.complete_length {
        return Err(SliceMismatch::Changed);
    }
    let bytes = slicing.bytes_of(index);
    let part = content.part;
    let is_within = bytes.contains(&part.first) && bytes.contains(&part.last);
    if is_within && body_length == Some(part.length()) {
        Ok(part)
    } else {
        Err(SliceMismatch::Ignored)
    }
}

/// Returns the number of slices to fetch ahead of a client that has read `given_bytes` in order: none at the start, one
/// after half a slice, then one more for each slice, up to `slices_max`. Most readers that seek read little at each
/// position, and get no byte that they did not request.
pub fn read_ahead(given_bytes: u64, slice_bytes: u64, slices_max: u64) -> u64 {
    let half = slice_bytes.div_ceil(2);
    match given_bytes {
        given if given < half => 0,
        given => (1 + given / slice_bytes).min(slices_max),
    }
}

/// Returns the range of a request, if it has exactly one.
fn range_of(request: &HeaderMap) -> Option<RangeSpec> {
    let mut lines = request.get_all(RANGE).into_iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return None;
    };
    RangeSpec::parse(line.as_bytes())
}

fn range_value(first: u64, last: u64) -> HeaderValue {
    value(format!("bytes={first}-{last}"))
}

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("digits and ASCII punctuation")
}

/// The largest slice that is requested as a whole at the first request of a URL: a request and its response take about
/// as long without these bytes.
pub const SMALL_SLICE_BYTES: u64 = 64 << 10;

/// Ranges that begin here or later are not sliced. No representation is this long (8 EiB).
const OFFSET_MAX: u64 = 1 << 62;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::headers;

    const DATE: &str = "date: Sun, 06 Nov 1994 08:49:37 GMT";
    const MODIFIED: &str = "last-modified: Sun, 06 Nov 1994 08:00:00 GMT";
    const OTHER: &str = "last-modified: Sun, 06 Nov 1994 08:00:01 GMT";

    #[test]
    fn the_first_part_is_the_slice_of_the_first_byte() {
        let slice = |index| Some(FirstPart::Slice { index });
        let table = [
            ("range: bytes=0-", slice(0)),
            ("range: bytes=99-100", slice(0)),
            ("range: bytes=100-100", slice(1)),
            ("range: bytes=250-999", slice(2)),
            ("range: bytes=-5", Some(FirstPart::Suffix { length: 5 })),
            ("range: bytes=-0", None),
            ("range: bytes=5-4", None),
            ("range: bytes=0-1,5-6", None),
            ("range: lines=0-1", None),
            ("range: bytes=99999999999999999999-", None),
            ("range: bytes=0-1\nrange: bytes=0-1", None),
            ("", None),
        ];
        for (lines, expected) in table {
            assert_eq!(
                FirstPart::of_request(&headers(lines), 100),
                expected,
                "{lines}"
            );
        }
        assert_eq!(
            FirstPart::Slice { index: 2 }.range_value(100),
            "bytes=200-299"
        );
        assert_eq!(FirstPart::Suffix { length: 7 }.range_value(100), "bytes=-7");
        let last = FirstPart::of_request(&headers("range: bytes=4611686018427387903-"), 1 << 26);
        assert_eq!(
            last.expect("a part").range_value(1 << 26),
            "bytes=4611686018360279040-4611686018427387903"
        );
    }

    /// From a URL that was never fetched, only the bytes of the request are fetched, unless slices are small.
    #[test]
    fn the_first_part_of_an_unknown_url_has_no_byte_beyond_the_range() {
        const BIG: u64 = 1 << 20;
        let bytes = |first, last| Some(FirstPart::Bytes { first, last });
        let slice = |index| Some(FirstPart::Slice { index });
        // Slice size, range, part, and if the part is the client's range.
        let table = [
            (BIG, "0-1", bytes(0, 1), true),
            (BIG, "1048575-1048576", bytes(1_048_575, 1_048_576), true),
            (BIG, "5-1048581", bytes(5, BIG - 1), false),
            (BIG, "5-1048580", bytes(5, 1_048_580), true),
            (BIG, "5-", bytes(5, BIG - 1), false),
            (BIG, "1048577-", bytes(BIG + 1, 2 * BIG - 1), false),
            (BIG, "-5", Some(FirstPart::Suffix { length: 5 }), true),
            (BIG, "0-1,3-4", None, false),
            (SMALL_SLICE_BYTES, "0-1", slice(0), false),
            (
                SMALL_SLICE_BYTES,
                "65535-65536",
                bytes(65_535, 65_536),
                true,
            ),
            (SMALL_SLICE_BYTES, "5-", slice(0), false),
            (SMALL_SLICE_BYTES + 1, "0-1", bytes(0, 1), true),
        ];
        for (slice_bytes, range, part, is_range) in table {
            let request = headers(&format!("range: bytes={range}"));
            let found = FirstPart::of_first_request(&request, slice_bytes);
            assert_eq!(found, part, "{range} in {slice_bytes}");
            let is_own = found.is_some_and(|part| part.is_range_of(&request));
            assert_eq!(is_own, is_range, "{range} in {slice_bytes}");
        }
        let value = FirstPart::Bytes { first: 3, last: 9 }.range_value(BIG);
        assert_eq!(value, "bytes=3-9");
    }

    #[test]
    fn a_first_206_is_used_as_its_content_range_says() {
        let answer = |length, lines: &str| first_answer(&headers(lines), length, 100);
        let content = |first, last, complete_length| ContentRange {
            part: ByteRange { first, last },
            complete_length,
        };
        let slice = |index, first, last, complete_length| FirstAnswer::Slice {
            index,
            content: content(first, last, complete_length),
        };
        let unusable = FirstAnswer::Unusable;
        let dated = format!("content-range: bytes 0-99/1000\n{DATE}\n{MODIFIED}");
        let weakly_dated = format!("content-range: bytes 0-99/1000\n{MODIFIED}");
        let weak = format!("{dated}\netag: W/\"a\"");
        let tagged = "content-range: bytes 0-99/1000\netag: \"a\"";
        let table = [
            (Some(100), tagged, slice(0, 0, 99, 1000)),
            (
                Some(11),
                "content-range: bytes 120-130/1000\netag: \"a\"",
                slice(1, 120, 130, 1000),
            ),
            (Some(100), &dated, slice(0, 0, 99, 1000)),
            (
                Some(101),
                "content-range: bytes 50-150/1000\netag: \"a\"",
                FirstAnswer::Head(content(50, 150, 1000)),
            ),
            (
                Some(10),
                "content-range: bytes 0-9/10",
                FirstAnswer::Complete,
            ),
            (
                Some(1000),
                "content-range: bytes 0-999/1000",
                FirstAnswer::Complete,
            ),
            (
                Some(100),
                "content-range: bytes 0-99/*\netag: \"a\"",
                unusable(Unusable::ContentRange),
            ),
            (Some(100), "etag: \"a\"", unusable(Unusable::ContentRange)),
            (Some(99), tagged, unusable(Unusable::Length)),
            (None, tagged, unusable(Unusable::Length)),
            (
                Some(5),
                "content-range: bytes 0-9/10",
                unusable(Unusable::Length),
            ),
            (
                Some(100),
                "content-range: bytes 0-99/1000",
                unusable(Unusable::Validator),
            ),
            (Some(100), &weakly_dated, unusable(Unusable::Validator)),
            (Some(100), &weak, unusable(Unusable::Validator)),
        ];
        for (length, lines, expected) in table {
            assert_eq!(answer(length, lines), expected, "{length:?} {lines}");
        }
    }

    /// RFC 9110 §15.3.7.3: parts are combined only with the same strong validator.
    #[test]
    fn a_slice_of_another_version_is_never_used() {
        use SliceMismatch::{Changed, Error, Ignored};
        let slicing = Slicing {
            complete_length: 250,
            slice_bytes: 100,
        };
        let tag = StrongValidator::of(&Validators::from_headers(&headers("etag: \"a\"")))
            .expect("strong");
        let range = "content-range: bytes 200-249/250";
        let table = [
            (206, format!("{range}\netag: \"a\""), Ok((200, 249))),
            (
                206,
                "content-range: bytes 210-259/250\netag: \"a\"".to_owned(),
                Err(Ignored),
            ),
            (
                206,
                "content-range: bytes 210-220/250\netag: \"a\"".to_owned(),
                Err(Ignored),
            ),
            (206, format!("{range}\netag: \"b\""), Err(Changed)),
            (206, format!("{range}\netag: W/\"a\""), Err(Changed)),
            (206, format!("{range}\n{MODIFIED}"), Err(Changed)),
            (206, range.to_owned(), Err(Ignored)),
            (206, "etag: \"a\"".to_owned(), Err(Ignored)),
            (
                206,
                "content-range: bytes 200-249/251\netag: \"a\"".to_owned(),
                Err(Changed),
            ),
            (
                206,
                "content-range: bytes 0-99/250\netag: \"a\"".to_owned(),
                Err(Ignored),
            ),
            (
                206,
                "content-range: bytes 100-249/250\netag: \"a\"".to_owned(),
                Err(Ignored),
            ),
            (200, "etag: \"b\"".to_owned(), Err(Changed)),
            (200, "etag: \"a\"".to_owned(), Err(Ignored)),
            (416, "content-range: bytes */10".to_owned(), Err(Changed)),
            (412, String::new(), Err(Changed)),
            (404, String::new(), Err(Changed)),
            (302, String::new(), Err(Changed)),
            (403, String::new(), Err(Error)),
            (500, String::new(), Err(Error)),
            (503, "etag: \"a\"".to_owned(), Err(Error)),
        ];
        for (status, lines, expected) in table {
            let status = StatusCode::from_u16(status).expect("a status");
            let answer = slice_answer(slicing, 2, &tag, status, &headers(&lines), Some(50));
            assert_eq!(
                answer.map(|part| (part.first, part.last)),
                expected,
                "{status} {lines}"
            );
        }
        let answer = |lines: &str, length| {
            slice_answer(
                slicing,
                2,
                &tag,
                StatusCode::PARTIAL_CONTENT,
                &headers(lines),
                length,
            )
        };
        let part = "content-range: bytes 210-220/250\netag: \"a\"";
        assert_eq!(
            answer(part, Some(11)),
            Ok(ByteRange {
                first: 210,
                last: 220
            })
        );
        assert_eq!(answer(part, None), Err(Ignored));
    }

    #[test]
    fn a_date_is_a_strong_validator_only_without_an_entity_tag() {
        let of = |lines: &str| StrongValidator::of(&Validators::from_headers(&headers(lines)));
        let date = of(&format!("{DATE}\n{MODIFIED}")).expect("strong");
        assert_eq!(date.if_range(), "Sun, 06 Nov 1994 08:00:00 GMT");
        let matches = |lines: &str| date.matches(&Validators::from_headers(&headers(lines)));
        assert!(matches(MODIFIED) && matches(&format!("{MODIFIED}\netag: \"new\"")));
        assert!(!matches(OTHER) && !matches("") && !matches(&format!("{MODIFIED}\netag: W/\"a\"")));
        assert_eq!(of(&format!("{DATE}\n{MODIFIED}\netag: W/\"a\"")), None);
        assert_eq!(of(MODIFIED), None);
    }

    #[test]
    fn the_head_of_a_part_becomes_the_head_of_the_representation() {
        let part = headers("content-range: bytes 0-9/50\ncontent-length: 10\netag: \"a\"");
        assert_eq!(
            complete_head(&part, 50),
            headers("content-length: 50\netag: \"a\"")
        );
    }

    #[test]
    fn reading_ahead_begins_after_half_a_slice() {
        let ahead = |given| read_ahead(given, 100, 2);
        assert_eq!(
            [0, 49, 50, 99, 100, 199, 1000].map(ahead),
            [0, 0, 1, 1, 2, 2, 2]
        );
        assert_eq!(read_ahead(1000, 100, 0), 0);
    }

    proptest! {
        /// Method: mark the slice of each byte, and compare the bytes of all slices that a range touches.
        #[test]
        fn the_slices_of_a_range_are_exactly_those_that_contain_its_bytes(
            complete_length in 0_u64..80, slice_bytes in 1_u64..20, start in 0_u64..80, length in 0_u64..80,
        ) {
            let slicing = Slicing { complete_length, slice_bytes };
            let range = start.min(complete_length)..(start + length).min(complete_length);
            let mut touched: Vec<u64> = range.clone().map(|at| at / slice_bytes).collect();
            touched.dedup();
            prop_assert_eq!(slicing.indexes_of(&range).collect::<Vec<_>>(), touched.clone());
            for index in touched {
                let expected: Vec<u64> = (0..complete_length).filter(|at| at / slice_bytes == index).collect();
                prop_assert_eq!(slicing.bytes_of(index).collect::<Vec<_>>(), expected);
            }
        }

        /// The slices cover each byte exactly once.
        #[test]
        fn slices_join_to_the_representation(complete_length in 0_u64..200, slice_bytes in 1_u64..50) {
            let slicing = Slicing { complete_length, slice_bytes };
            let joined: Vec<u64> = slicing
                .indexes_of(&(0..complete_length))
                .flat_map(|index| slicing.bytes_of(index))
                .collect();
            prop_assert_eq!(joined, (0..complete_length).collect::<Vec<_>>());
        }

        /// A slice is accepted only if each of its bytes is a byte of the requested slice of the same length.
        #[test]
        fn an_accepted_part_lies_within_the_requested_slice(
            complete_length in 1_u64..60, slice_bytes in 1_u64..20, index in 0_u64..10,
            first in 0_u64..60, last in 0_u64..60, length in 0_u64..60,
        ) {
            let slicing = Slicing { complete_length, slice_bytes };
            let lines = format!("content-range: bytes {first}-{last}/{length}\netag: \"a\"");
            let tag = StrongValidator::of(&Validators::from_headers(&headers("etag: \"a\""))).expect("strong");
            let body_length = (last + 1).checked_sub(first);
            let response = headers(&lines);
            let answer = slice_answer(slicing, index, &tag, StatusCode::PARTIAL_CONTENT, &response, body_length);
            let fits = first <= last
                && last < length
                && length == complete_length
                && (first..=last).all(|at| at / slice_bytes == index);
            prop_assert_eq!(answer.is_ok(), fits);
        }

        #[test]
        fn first_parts_contain_the_first_requested_byte(first in 0_u64..OFFSET_MAX, slice in 16_u32..26) {
            let slice_bytes = 1 << slice;
            let request = headers(&format!("range: bytes={first}-"));
            let part = FirstPart::of_request(&request, slice_bytes).expect("a part");
            let FirstPart::Slice { index } = part else { panic!("{part:?}") };
            let slicing = Slicing { complete_length: u64::MAX, slice_bytes };
            prop_assert!(slicing.bytes_of(index).contains(&first));
            prop_assert_eq!(part.range_value(slice_bytes), slicing.range_value(index));
        }
    }
}
