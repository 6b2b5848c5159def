//! Conditional requests at a cache (RFC 9110 §13, RFC 9111 §4.3).

use http::header::{
    CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderMap,
    HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
    TRANSFER_ENCODING,
};
use http::{Method, StatusCode};

use crate::date::parse_http_date;
use crate::list;
use crate::validators::{EntityTag, TagRef, Validators};

/// The kind of response with which a cache answers a conditional request, if the stored response may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluation {
    /// The full response. A `Range` may still select a part, see [`range`](crate::range).
    Full,
    /// 304: the client's copy is valid.
    NotModified,
}

/// Returns true if the request carries a condition that this module evaluates. Hits call this first: two
/// lookups are cheaper than an evaluation.
#[inline]
pub fn is_conditional(request: &HeaderMap) -> bool {
    request.contains_key(IF_NONE_MATCH) || request.contains_key(IF_MODIFIED_SINCE)
}

/// Evaluates the client's conditions against a stored response (RFC 9110 §13.2.2 for a cache, RFC 9111 §4.3.2).
///
/// A cache does not evaluate `If-Match` and `If-Unmodified-Since`. [`route`](crate::route()) passes requests
/// with these fields to the origin.
pub fn evaluate(
    method: &Method,
    request: &HeaderMap,
    status: StatusCode,
    stored: &Validators,
) -> Evaluation {
    // RFC 9110 §13.2.1: conditions count only if the unconditional response would be a success.
    if (method != Method::GET && method != Method::HEAD) || !status.is_success() {
        return Evaluation::Full;
    }
    // §13.2.2 step 3. With `If-None-Match`, `If-Modified-Since` is ignored (§13.1.3).
    if request.contains_key(IF_NONE_MATCH) {
        return if none_match(request, stored.etag.as_ref()) {
            Evaluation::Full
        } else {
            Evaluation::NotModified
        };
    }
    // §13.2.2 step 4. An invalid date, or more than one date, is ignored (§13.1.3).
    let mut lines = request.get_all(IF_MODIFIED_SINCE).into_iter();
    let (Some(since), None) = (lines.next(), lines.next()) else {
        return Evaluation::Full;
    };
    let Some(since) = parse_http_date(since.as_bytes()) else {
        return Evaluation::Full;
    };
    // RFC 9111 §4.3.2: without `Last-Modified` the stored `Date` is used.
    match stored.last_modified_time.or(stored.date) {
        Some(modified) if modified.as_secs() <= since.as_secs() => Evaluation::NotModified,
        _ => Evaluation::Full,
    }
}

/// Returns the head of a 304 for a stored response (RFC 9110 §15.4.5): the stored head without the fields that
/// describe the content.
pub fn not_modified_head(stored: &HeaderMap) -> HeaderMap {
    let mut head = stored.clone();
    for name in [
        CONTENT_ENCODING,
        CONTENT_LANGUAGE,
        CONTENT_LENGTH,
        CONTENT_RANGE,
        CONTENT_TYPE,
        TRANSFER_ENCODING,
    ] {
        head.remove(name);
    }
    head
}

/// Removes the client's conditions and range from a request, so that the origin sends a complete response that
/// can be stored. The cache then calls [`evaluate`] with the original request to answer the client.
pub fn remove_client_conditions(request: &mut HeaderMap) {
    list::remove_where(request, is_condition);
}

/// Returns true for request fields that may lead to less than the full response.
pub fn is_condition(name: &HeaderName) -> bool {
    matches!(
        *name,
        IF_NONE_MATCH | IF_MODIFIED_SINCE | IF_MATCH | IF_UNMODIFIED_SINCE | IF_RANGE | RANGE
    )
}

/// Turns a request into a validation of a stored response (RFC 9111 §4.3.1). The validators replace the
/// client's conditions and range.
pub fn revalidation_request(request: &mut HeaderMap, stored: &Validators) {
    remove_client_conditions(request);
    if let Some(etag) = &stored.etag {
        request.insert(IF_NONE_MATCH, etag.value().clone());
    }
    // Sends both validators, since some origins do not support entity tags. Sends only a valid date: an origin
    // ignores an invalid date and would answer every validation with 200.
    if let (Some(modified), Some(_)) = (&stored.last_modified, stored.last_modified_time) {
        request.insert(IF_MODIFIED_SINCE, modified.clone());
    }
}

/// Evaluates `If-None-Match` (RFC 9110 §13.1.2). Returns true if no listed tag weakly equals the stored tag.
fn none_match(request: &HeaderMap, etag: Option<&EntityTag>) -> bool {
    let lines = request.get_all(IF_NONE_MATCH);
    // The condition `*` is false if any representation exists. This is the case, because the cache has one.
    if lines.iter().any(|line| list::trim(line.as_bytes()) == b"*") {
        return false;
    }
    let Some(etag) = etag else { return true };
    let stored = etag.as_ref();
    !lines
        .iter()
        .any(|line| listed_tags(line.as_bytes()).any(|tag| tag.weak_eq(stored)))
}

/// Yields the entity tags of one line. An invalid member is skipped up to the next comma.
pub(crate) fn listed_tags(mut rest: &[u8]) -> impl Iterator<Item = TagRef<'_>> {
    std::iter::from_fn(move || {
        loop {
            while let [b',' | b' ' | b'\t', after @ ..] = rest {
                rest = after;
            }
            if rest.is_empty() {
                return None;
            }
            match TagRef::parse(rest) {
                Some((tag, after)) => {
                    rest = after;
                    // Only white space may follow a tag in its member: `"a"b` is not a tag.
                    let next = after.iter().find(|byte| !matches!(byte, b' ' | b'\t'));
                    if matches!(next, None | Some(b',')) {
                        return Some(tag);
                    }
                }
                None => {
                    let comma = rest
                        .iter()
                        .position(|&byte| byte == b',')
                        .unwrap_or(rest.len());
                    rest = &rest[comma..];
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use http::header::{ETAG, HeaderValue, LAST_MODIFIED};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::headers;

    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    /// Replaces the names of dates in a head or request.
    fn with_dates(text: &str) -> String {
        text.replace("{earlier}", EARLIER)
            .replace("{then}", THEN)
            .replace("{later}", LATER)
    }

    /// RFC 9110 §13.1.2, §13.1.3, §13.2 and RFC 9111 §4.3.2. Each row: the stored head, the request, and the
    /// expected evaluation.
    #[test]
    fn conditions_are_evaluated_in_the_order_of_the_rfc() {
        use Evaluation::{Full, NotModified};
        let both = "etag: \"a\"\nlast-modified: {then}";
        let table = [
            (both, "", Full),
            (both, "if-none-match: \"a\"", NotModified),
            (both, "if-none-match: W/\"a\"", NotModified),
            (both, "if-none-match: \"b\"", Full),
            (both, "if-none-match: \"b\", \"a\"", NotModified),
            (
                both,
                "if-none-match: \"b\"\nif-none-match: \"a\"",
                NotModified,
            ),
            (both, "if-none-match: b, \"a\"", NotModified),
            (both, "if-none-match: \"b,\"a\"", Full),
            (both, "if-none-match: \"a\"x", Full),
            (both, "if-none-match: \"a", Full),
            (both, "if-none-match: a", Full),
            (both, "if-none-match: *", NotModified),
            (both, "if-none-match: ", Full),
            (
                "etag: \"b, \\\"",
                "if-none-match: \"a\", \"b, \\\"",
                NotModified,
            ),
            ("etag: W/\"a\"", "if-none-match: \"a\"", NotModified),
            ("", "if-none-match: *", NotModified),
            ("", "if-none-match: \"a\"", Full),
            // If-None-Match takes precedence over If-Modified-Since in both cases.
            (
                both,
                "if-none-match: \"b\"\nif-modified-since: {later}",
                Full,
            ),
            (
                both,
                "if-none-match: \"a\"\nif-modified-since: {earlier}",
                NotModified,
            ),
            (both, "if-modified-since: {earlier}", Full),
            (both, "if-modified-since: {then}", NotModified),
            (both, "if-modified-since: {later}", NotModified),
            (both, "if-modified-since: never", Full),
            (
                both,
                "if-modified-since: {later}\nif-modified-since: {later}",
                Full,
            ),
            // Without Last-Modified, the condition is compared with Date.
            ("date: {then}", "if-modified-since: {then}", NotModified),
            ("date: {then}", "if-modified-since: {earlier}", Full),
            ("", "if-modified-since: {later}", Full),
        ];
        for (stored, request, expected) in table {
            let stored = Validators::from_headers(&headers(&with_dates(stored)));
            let request = headers(&with_dates(request));
            for method in [Method::GET, Method::HEAD] {
                let answer = evaluate(&method, &request, StatusCode::OK, &stored);
                assert_eq!(answer, expected, "{stored:?} {request:?}");
            }
            assert_eq!(
                evaluate(&Method::POST, &request, StatusCode::OK, &stored),
                Full
            );
            // RFC 9110 §13.2.1: a 404 is sent regardless of the conditions.
            assert_eq!(
                evaluate(&Method::GET, &request, StatusCode::NOT_FOUND, &stored),
                Full
            );
        }
    }

    /// RFC 9111 §4.3.1: the conditions of the client are removed, and the stored validators are sent.
    #[test]
    fn a_revalidation_sends_only_the_stored_validators() {
        let mut request = headers(
            "host: x\nif-none-match: \"client\"\nif-modified-since: {then}\nrange: bytes=0-1\nif-range: \"client\"",
        );
        let stored = Validators::from_headers(&headers(&with_dates(
            "etag: W/\"a\"\nlast-modified: {then}",
        )));
        revalidation_request(&mut request, &stored);
        assert_eq!(
            request,
            headers(&with_dates(
                "host: x\nif-none-match: W/\"a\"\nif-modified-since: {then}"
            ))
        );

        let mut request = headers("if-none-match: \"client\"");
        revalidation_request(
            &mut request,
            &Validators::from_headers(&headers("last-modified: yesterday")),
        );
        assert!(request.is_empty(), "an invalid date is not sent");
    }

    /// RFC 9110 §15.4.5: a 304 must repeat certain fields of the stored head.
    #[test]
    fn a_304_has_all_fields_except_those_that_describe_the_content() {
        let stored = headers(
            "etag: \"a\"\ndate: x\nexpires: x\ncache-control: x\nvary: x\ncontent-location: /x\nset-cookie: a\n\
             content-length: 5\ncontent-type: x\ncontent-encoding: gzip",
        );
        let head = not_modified_head(&stored);
        for name in [
            "etag",
            "date",
            "expires",
            "cache-control",
            "vary",
            "content-location",
            "set-cookie",
        ] {
            assert!(head.contains_key(name), "{name}");
        }
        assert_eq!(head.len(), 7);
    }

    proptest! {
        /// A list that contains the tag matches, regardless of the other members.
        #[test]
        fn a_listed_tag_is_found(
            before in proptest::collection::vec("(W/)?\"[!#-~]{0,8}\"", 0..5),
            tag in "(W/)?\"[!#-~]{0,8}\"",
            after in proptest::collection::vec("(W/)?\"[!#-~]{0,8}\"", 0..5),
            separator in "[ \t]{0,2},[ \t,]{0,3}",
        ) {
            let mut stored = HeaderMap::new();
            stored.insert(ETAG, HeaderValue::try_from(&tag).expect("visible ASCII"));
            let stored = Validators::from_headers(&stored);
            let opaque = tag.trim_start_matches("W/");
            let expected = before.iter().chain(&after).any(|other| other.trim_start_matches("W/") == opaque);
            let matches = |tags: Vec<String>| {
                let mut request = HeaderMap::new();
                request.insert(IF_NONE_MATCH, HeaderValue::try_from(tags.join(&separator)).expect("ASCII"));
                evaluate(&Method::GET, &request, StatusCode::OK, &stored) == Evaluation::NotModified
            };
            prop_assert_eq!(matches([before.clone(), after.clone()].concat()), expected);
            prop_assert!(matches([before, vec![tag], after].concat()));
        }

        #[test]
        fn no_bytes_panic(line in proptest::collection::vec(any::<u8>(), 0..64)) {
            let Ok(value) = HeaderValue::from_bytes(&line) else { return Ok(()) };
            let mut request = HeaderMap::new();
            for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE] {
                request.insert(name, value.clone());
                let mut stored = HeaderMap::new();
                stored.insert(ETAG, value.clone());
                stored.insert(LAST_MODIFIED, value.clone());
                let _ = evaluate(&Method::GET, &request, StatusCode::OK, &Validators::from_headers(&stored));
            }
        }
    }
}
