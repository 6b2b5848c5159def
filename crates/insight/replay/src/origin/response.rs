//! Computes the response to a request for an object: conditions, ranges, headers. This module does no input or output.
//!
//! Heads are small and, if possible, of constant length: a cache counts them against its capacity, and a
//! prediction of its hit ratio must know their length. With the defaults, the head of a 200 is
//!
//! ```text
//! HTTP/1.1 200 OK                        17 bytes with CRLF
//! cache-control: max-age=86400           30
//! content-length: N                      18 + the digits of N
//! date: Sat, 21 Nov 2026 05:00:00 GMT    37
//!                                         2
//! ```
//!
//! The sum is 104 bytes plus the digits of the size. With entity tags, zeros in the tag compensate for the digits: the
//! digits of the size and the zeros are always 13 bytes. The rest of the field takes 26 bytes: `etag: "`, 16 hex
//! digits, `"` and CRLF. Each head then has 104 + 13 + 26 = 143 bytes.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, HeaderValue,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE,
};
use http::{Method, StatusCode};

use super::config::OriginConfig;
use super::request::OriginRequest;
use crate::mix;
use crate::pattern::Pattern;

/// The response: the head, and the range of the object's bytes.
#[derive(Debug)]
pub(super) struct OriginResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) bytes: Range<u64>,
}

/// Computes the response to a GET or HEAD request for an object.
pub(super) fn response_for(
    request: OriginRequest<'_>,
    pattern: Pattern,
    method: &Method,
    request_headers: &HeaderMap,
    config: &OriginConfig,
) -> OriginResponse {
    let etag = config.etag.then(|| etag(pattern, request.size));
    let last_modified = config.last_modified.then_some(LAST_MODIFIED_SECS);
    let mut headers = HeaderMap::with_capacity(8);
    let cache_control = request
        .cache_control
        .unwrap_or_else(|| config.cache_control.clone());
    if let Some(value) = cache_control {
        headers.insert(CACHE_CONTROL, value);
    }
    if let Some(etag) = &etag {
        headers.insert(ETAG, etag.clone());
    }
    if let Some(secs) = last_modified {
        let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(secs));
        headers.insert(LAST_MODIFIED, text(date));
    }
    for (name, value) in request
        .headers
        .into_iter()
        .chain(config.headers.iter().cloned())
    {
        headers.append(name, value);
    }
    let mut response = OriginResponse {
        status: request.status,
        headers,
        bytes: 0..request.size,
    };
    // RFC 9110, section 13.2.1: conditions apply only if the response would be successful.
    if request.status == StatusCode::OK {
        if is_unmodified(request_headers, etag.as_ref(), last_modified) {
            response.status = StatusCode::NOT_MODIFIED;
            response.bytes = 0..0;
            return response;
        }
        // Section 14.2: Range is defined for GET only.
        if method == Method::GET && range_applies(request_headers, etag.as_ref(), last_modified) {
            response.apply_range(request_headers.get(RANGE), request.size);
        }
    }
    let has_content = !matches!(response.status.as_u16(), 204 | 205);
    if !has_content {
        response.bytes = 0..0;
    } else if !request.chunked {
        let length = response.bytes.end - response.bytes.start;
        response.headers.insert(CONTENT_LENGTH, length.into());
    }
    response
}

impl OriginResponse {
    /// Applies a `Range` of one part. Several parts, other units and malformed values are ignored, as section 14.2
    /// allows, and the whole object is sent.
    fn apply_range(&mut self, range: Option<&HeaderValue>, size: u64) {
        let Some(part) = range
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("bytes="))
            .and_then(|part| part.split_once('-'))
        else {
            return;
        };
        // `None` if the value is malformed, `Some(None)` for a suffix of 0 bytes, which no object can satisfy.
        let requested_range = match part {
            ("", suffix) => suffix.parse().ok().map(|suffix_bytes: u64| {
                // The client requests the last bytes, or the whole object if it is shorter.
                (suffix_bytes > 0).then(|| size.saturating_sub(suffix_bytes)..size)
            }),
            (first, "") => first.parse().ok().map(|first: u64| Some(first..size)),
            (first, last) => match (first.parse(), last.parse()) {
                (Ok(first), Ok(last)) if first <= last => {
                    let last: u64 = last;
                    Some(Some(first..size.min(last.saturating_add(1))))
                }
                _ => None,
            },
        };
        match requested_range {
            None => {}
            Some(Some(bytes)) if bytes.start < size => {
                self.status = StatusCode::PARTIAL_CONTENT;
                let shown = format!("bytes {}-{}/{size}", bytes.start, bytes.end - 1);
                self.headers.insert(CONTENT_RANGE, text(shown));
                self.bytes = bytes;
            }
            Some(_) => {
                self.status = StatusCode::RANGE_NOT_SATISFIABLE;
                self.headers
                    .insert(CONTENT_RANGE, text(format!("bytes */{size}")));
                self.bytes = 0..0;
            }
        }
    }
}

/// Returns true if a condition of the request calls for a 304. If `If-None-Match` is present, `If-Modified-Since` is
/// ignored (RFC 9110, section 13.2.2, steps 3 and 4).
fn is_unmodified(
    request_headers: &HeaderMap,
    etag: Option<&HeaderValue>,
    last_modified: Option<u64>,
) -> bool {
    if request_headers.contains_key(IF_NONE_MATCH) {
        return request_headers.get_all(IF_NONE_MATCH).iter().any(|tags| {
            let tags = tags.to_str().unwrap_or_default().split(',').map(str::trim);
            // Weak comparison, section 13.1.2.
            let tags = tags.map(|tag| tag.trim_start_matches("W/"));
            let mut tags = tags.map(str::as_bytes);
            tags.any(|tag| tag == b"*" || etag.is_some_and(|etag| etag.as_bytes() == tag))
        });
    }
    match (date(request_headers, IF_MODIFIED_SINCE), last_modified) {
        (Some(since), Some(modified)) => modified <= since,
        _ => false,
    }
}

/// Returns true if the `Range` of the request applies. `If-Range` requires a strong match of the entity tag, or
/// exactly the date of the object (section 13.1.5).
fn range_applies(
    request_headers: &HeaderMap,
    etag: Option<&HeaderValue>,
    last_modified: Option<u64>,
) -> bool {
    match request_headers.get(IF_RANGE) {
        None => true,
        Some(value) if value.as_bytes().ends_with(b"\"") => etag == Some(value),
        Some(_) => {
            let requested_date = date(request_headers, IF_RANGE);
            requested_date.is_some() && requested_date == last_modified
        }
    }
}

fn date(request_headers: &HeaderMap, name: HeaderName) -> Option<u64> {
    let value = request_headers.get(name)?.to_str().ok()?;
    let date = httpdate::parse_http_date(value).ok()?;
    let since_epoch = date.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(since_epoch.as_secs())
}

/// Returns the entity tag. It depends on id and size, because another size is another version of the object.
fn etag(pattern: Pattern, size: u64) -> HeaderValue {
    let version = mix::draw(pattern.key(), size);
    let digits = size.checked_ilog10().unwrap_or(0) as usize + 1;
    let filler = SIZE_DIGITS_MAX.saturating_sub(digits);
    let mut tag = String::with_capacity(32);
    _ = write!(tag, "\"{version:016x}{:0>filler$}\"", "");
    text(tag)
}

fn text(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("the text has visible characters only")
}

/// The number of digits of 2^40, the largest size.
const SIZE_DIGITS_MAX: usize = 13;
const _: () = assert!(super::OBJECT_BYTES_MAX.ilog10() as usize + 1 == SIZE_DIGITS_MAX);

/// Thu, 01 Jan 2026 00:00:00 GMT. All objects have the same date.
const LAST_MODIFIED_SECS: u64 = 1_767_225_600;

#[cfg(test)]
mod tests {
    use super::*;

    fn response_to(
        query: &str,
        request_headers: &[(HeaderName, &str)],
        config: &OriginConfig,
    ) -> OriginResponse {
        let request =
            OriginRequest::read("/o/17", Some(query), 1 << 40).expect("the request is valid");
        let mut headers = HeaderMap::new();
        for (name, value) in request_headers {
            headers.append(name, value.parse().expect("the header value is valid"));
        }
        response_for(
            request,
            Pattern::for_id("17"),
            &Method::GET,
            &headers,
            config,
        )
    }

    fn with_validators() -> OriginConfig {
        OriginConfig {
            etag: true,
            last_modified: true,
            ..OriginConfig::default()
        }
    }

    fn shown(response: &OriginResponse, name: &HeaderName) -> String {
        let value = response.headers.get(name).map(|value| value.to_str());
        value
            .transpose()
            .expect("the value is text")
            .unwrap_or_default()
            .into()
    }

    #[test]
    fn a_range_request_gets_the_bytes_of_its_range() {
        for (range, status, bytes) in [
            ("bytes=0-0", 206, 0..1),
            ("bytes=10-19", 206, 10..20),
            ("bytes=90-", 206, 90..100),
            ("bytes=99-1000", 206, 99..100),
            ("bytes=0-18446744073709551615", 206, 0..100),
            ("bytes=-1", 206, 99..100),
            ("bytes=-1000", 206, 0..100),
            ("bytes=100-", 416, 0..0),
            ("bytes=-0", 416, 0..0),
            ("bytes=2-1", 200, 0..100),
            ("bytes=0-1,5-6", 200, 0..100),
            ("lines=0-1", 200, 0..100),
            ("bytes=x-", 200, 0..100),
        ] {
            let response = response_to("size=100", &[(RANGE, range)], &OriginConfig::default());
            assert_eq!(response.status, status, "{range}");
            assert_eq!(response.bytes, bytes, "{range}");
            let content_range = match status {
                206 => format!("bytes {}-{}/100", bytes.start, bytes.end - 1),
                416 => "bytes */100".to_owned(),
                _ => String::new(),
            };
            assert_eq!(shown(&response, &CONTENT_RANGE), content_range, "{range}");
        }
        let empty = response_to("size=0", &[(RANGE, "bytes=0-")], &OriginConfig::default());
        assert_eq!(empty.status, 416);
    }

    #[test]
    fn conditions_are_evaluated_in_the_order_of_the_standard() {
        let config = with_validators();
        let fresh = response_to("size=100", &[], &config);
        let tag = shown(&fresh, &ETAG);
        let (modified, before) = (
            "Thu, 01 Jan 2026 00:00:00 GMT",
            "Wed, 31 Dec 2025 23:59:59 GMT",
        );
        let weak = format!("W/{tag}");
        let listed = format!("\"x\", {weak}");
        for (request_headers, status) in [
            (vec![(IF_NONE_MATCH, tag.as_str())], 304),
            (vec![(IF_NONE_MATCH, listed.as_str())], 304),
            (vec![(IF_NONE_MATCH, "*")], 304),
            (vec![(IF_NONE_MATCH, "\"x\"")], 200),
            (vec![(IF_MODIFIED_SINCE, modified)], 304),
            (vec![(IF_MODIFIED_SINCE, before)], 200),
            (vec![(IF_MODIFIED_SINCE, "yesterday")], 200),
            (
                vec![(IF_NONE_MATCH, "\"x\""), (IF_MODIFIED_SINCE, modified)],
                200,
            ),
            (vec![(RANGE, "bytes=0-1"), (IF_RANGE, &tag)], 206),
            (vec![(RANGE, "bytes=0-1"), (IF_RANGE, &weak)], 200),
            (vec![(RANGE, "bytes=0-1"), (IF_RANGE, modified)], 206),
            (vec![(RANGE, "bytes=0-1"), (IF_RANGE, before)], 200),
        ] {
            let response = response_to("size=100", &request_headers, &config);
            assert_eq!(response.status, status, "{request_headers:?}");
            assert_eq!(shown(&response, &ETAG), tag);
            assert_eq!(status == 304, response.bytes.is_empty());
        }
        let other_size = response_to("size=101", &[(IF_NONE_MATCH, &tag)], &config);
        assert_eq!(other_size.status, 200);
    }

    /// With entity tags all heads have the same length. Without tags, the length grows with the digits of the size.
    #[test]
    fn heads_have_the_documented_length() {
        let head_bytes = |response: &OriginResponse| -> usize {
            let lines = response.headers.iter();
            let lines = lines.map(|(name, value)| name.as_str().len() + 2 + value.len() + 2);
            let date = "date: Sat, 21 Nov 2026 05:00:00 GMT\r\n".len();
            "HTTP/1.1 200 OK\r\n".len() + lines.sum::<usize>() + date + 2
        };
        let tagged = OriginConfig {
            etag: true,
            ..OriginConfig::default()
        };
        for (size, digits) in [(0, 1), (9, 1), (10, 2), (99_999, 5), (1_u64 << 40, 13)] {
            let query = format!("size={size}");
            let plain = response_to(&query, &[], &OriginConfig::default());
            assert_eq!(head_bytes(&plain), 104 + digits, "{size}");
            let tagged = response_to(&query, &[], &tagged);
            assert_eq!(head_bytes(&tagged), 143, "{size}");
        }
    }

    #[test]
    fn the_query_overrides_the_configuration() {
        let config = OriginConfig::default();
        let cc = |query| shown(&response_to(query, &[], &config), &CACHE_CONTROL);
        assert_eq!(cc("size=1"), "max-age=86400");
        assert_eq!(cc("size=1&cc=no-store"), "no-store");
        assert_eq!(cc("size=1&cc="), "");
        let response = response_to("size=9&status=404", &[(RANGE, "bytes=0-1")], &config);
        assert_eq!((response.status.as_u16(), response.bytes), (404, 0..9));
        let response = response_to("size=9&status=204", &[], &config);
        assert_eq!((response.status.as_u16(), response.bytes), (204, 0..0));
        let response = response_to("size=9&chunked=1", &[], &config);
        assert!(!response.headers.contains_key(CONTENT_LENGTH));
    }
}
