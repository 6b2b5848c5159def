//! Conditions of requests and their literal evaluation (RFC 9110 §13, RFC 9111 §4.3), for a body of ten bytes.

use edgeward_semantics::conditional::{self, Evaluation};
use edgeward_semantics::range::{self, ByteRange, RangeAnswer};
use edgeward_semantics::{Validators, format_http_date};
use edgeward_types::Timestamp;
use http::header::{HeaderMap, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::{Method, StatusCode};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestCaseError;

use crate::message::Request;
use crate::oracle::Remembered;

/// The conditions and the range of a request.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    if_none_match: Option<&'static str>,
    /// Seconds after the request, or before it if negative.
    if_modified_since: Option<i64>,
    if_range: Option<&'static str>,
    range: Option<&'static str>,
}

pub(crate) fn conditions() -> impl Strategy<Value = Conditions> {
    let tags = vec!["\"a\"", "W/\"a\"", "\"b\"", "\"c\", W/\"b\"", "*"];
    let if_range = vec!["\"a\"", "W/\"a\"", "\"b\""];
    let range = vec!["bytes=2-4", "bytes=10-", "bytes=4-2"];
    (
        of(select(tags)),
        of(-60_i64..10),
        of(select(if_range)),
        of(select(range)),
    )
        .prop_map(
            |(if_none_match, if_modified_since, if_range, range)| Conditions {
                if_none_match,
                if_modified_since,
                if_range,
                range,
            },
        )
}

impl Conditions {
    pub(crate) fn add_to(&self, head: &mut HeaderMap, now_secs: u64) {
        let values = [
            (IF_NONE_MATCH, self.if_none_match),
            (IF_RANGE, self.if_range),
            (RANGE, self.range),
        ];
        for (name, value) in values {
            head.extend(value.map(|value| (name, HeaderValue::from_static(value))));
        }
        let since = self.since(now_secs).map(Timestamp::from_secs);
        head.extend(since.map(|since| (IF_MODIFIED_SINCE, format_http_date(since))));
    }

    fn since(&self, now_secs: u64) -> Option<u64> {
        let offset = self.if_modified_since?;
        now_secs.checked_add_signed(offset)
    }

    /// Returns true if the stored response is not modified (RFC 9110 §13.2.2 steps 3 and 4).
    fn is_not_modified(&self, stored: &Remembered, now_secs: u64) -> bool {
        // §13.2.1: conditions count if the response without them is a success.
        if !(200..300).contains(&stored.response.status) {
            return false;
        }
        match (self.if_none_match, self.since(now_secs)) {
            // §13.1.2: `*` is false for any stored response; otherwise tags are compared weakly (§8.8.3.2).
            (Some("*"), _) => true,
            (Some(tags), _) => stored.response.etag.is_some_and(|etag| {
                let opaque = |tag: &str| tag.trim_start_matches("W/").to_owned();
                tags.split(", ").any(|tag| opaque(tag) == opaque(etag))
            }),
            // §13.1.3. RFC 9111 §4.3.2: without `Last-Modified`, with `Date`.
            (None, Some(since)) => stored.last_modified.unwrap_or_else(|| stored.date()) <= since,
            (None, None) => false,
        }
    }

    /// Returns the bytes that are sent if the response is modified (RFC 9110 §14.2).
    fn selected(&self, method: &Method, stored: &Remembered) -> RangeAnswer {
        // §13.1.5: the tags are equal and strong.
        let is_same = |tag: &str| !tag.starts_with("W/") && stored.response.etag == Some(tag);
        let counts = *method == Method::GET
            && stored.response.status == 200
            && self.if_range.is_none_or(is_same);
        match self.range {
            Some("bytes=2-4") if counts => RangeAnswer::Partial(ByteRange { first: 2, last: 4 }),
            Some("bytes=10-") if counts => RangeAnswer::Unsatisfiable,
            // §14.1.1: an invalid range is ignored.
            _ => RangeAnswer::Full,
        }
    }
}

/// Compares the answer to the conditions of a request with the oracle. Returns true if it is a 304.
pub(crate) fn check_answer(
    request: &Request,
    head: &HeaderMap,
    now_secs: u64,
    validators: &Validators,
    stored: &Remembered,
) -> Result<bool, TestCaseError> {
    let status = StatusCode::from_u16(stored.response.status).expect("three digits");
    let evaluation = conditional::evaluate(&request.method, head, status, validators);
    let is_not_modified = request.conditions.is_not_modified(stored, now_secs);
    prop_assert_eq!(
        evaluation == Evaluation::NotModified,
        is_not_modified,
        "{:?} {:?}",
        request,
        stored
    );
    let selected = range::decide(&request.method, head, status, validators, 10);
    prop_assert_eq!(
        selected,
        request.conditions.selected(&request.method, stored)
    );
    Ok(is_not_modified)
}

/// Compares a validation request with the oracle (RFC 9111 §4.3.1): it has the stored validators, and no condition and
/// no range of the client.
pub(crate) fn check_validation(
    mut head: HeaderMap,
    validators: &Validators,
    stored: &Remembered,
) -> Result<(), TestCaseError> {
    conditional::revalidation_request(&mut head, validators);
    let modified = stored
        .last_modified
        .map(Timestamp::from_secs)
        .map(format_http_date);
    prop_assert_eq!(
        head.get(IF_NONE_MATCH).and_then(|tag| tag.to_str().ok()),
        stored.response.etag
    );
    prop_assert_eq!(head.get(IF_MODIFIED_SINCE), modified.as_ref());
    prop_assert!(!head.contains_key(IF_RANGE) && !head.contains_key(RANGE));
    Ok(())
}
