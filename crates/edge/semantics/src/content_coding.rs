//! Content codings (RFC 9110 §8.4.1) that a cache applies itself: which one a request accepts, which responses may be
//! encoded, and the head of the encoded representation.
//!
//! A representation in another coding is another representation (§8.8.3.3). [`encoded_tag`] therefore adds the name of
//! the coding to a strong entity tag. A weak tag stays, because it only states that the meaning is the same (§8.8.1).
//! Deltas by all dictionaries have one weak tag: a client validates the decoded bytes, with or without the dictionary.

mod accepted;
mod coding;
mod eligible;

use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, ETAG, HeaderMap, HeaderName,
    HeaderValue, IF_MATCH, IF_NONE_MATCH, IF_RANGE, RANGE, VARY,
};
use http::{Method, StatusCode};

use crate::conditional::{self, Evaluation};
use crate::list;
use crate::validators::{EntityTag, Validators};
pub use accepted::{AcceptedCodings, CodingOrder};
pub use coding::Coding;
pub use eligible::{
    CompressibleTypes, CompressionRules, DEFAULT_TYPES, InvalidTypePattern, NotEncodedReason,
    may_encode,
};

/// Adds `Accept-Encoding` to `Vary`, unless the field lists it. All representations of a response that may be encoded
/// have it, also the one without a coding (§12.5.5).
pub fn add_vary(head: &mut HeaderMap) {
    let name = ACCEPT_ENCODING.as_str();
    if !list::has_token(head, &VARY, name) && !list::has_token(head, &VARY, "*") {
        head.append(VARY, HeaderValue::from_name(ACCEPT_ENCODING));
    }
}

/// Turns the head of a response without a coding into the head of the encoded representation. `length` is the number
/// of encoded bytes.
pub fn encode_head(head: &mut HeaderMap, coding: Coding, length: u64) {
    list::remove_where(head, is_changed_by_coding);
    head.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    head.insert(CONTENT_LENGTH, HeaderValue::from(length));
    if let Some(tag) = head.remove(ETAG)
        && let Some(tag) = encoded_tag(&tag, coding)
    {
        head.insert(ETAG, tag);
    }
}

/// Returns true for fields, beside `ETag`, that describe the bytes without the coding. Ranges of encoded
/// representations are not served, so `Accept-Ranges` is removed.
pub fn is_changed_by_coding(name: &HeaderName) -> bool {
    *name == ACCEPT_RANGES
        || *name == CONTENT_ENCODING
        || *name == CONTENT_LENGTH
        || matches!(
            name.as_str(),
            "content-digest" | "content-md5" | "digest" | "repr-digest"
        )
}

/// Returns the entity tag of an encoded representation: `"a"` becomes `"a~br"`, or `W/"a"` for a coding with a
/// dictionary, and a weak tag stays. `None` if the tag is invalid.
pub fn encoded_tag(tag: &HeaderValue, coding: Coding) -> Option<HeaderValue> {
    if EntityTag::new(tag)?.is_weak() {
        return Some(tag.clone());
    }
    if coding.needs_dictionary() {
        return HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).ok();
    }
    let opaque = tag.as_bytes().strip_suffix(b"\"")?;
    let name = coding.name().as_bytes();
    HeaderValue::from_bytes(&[opaque, b"~", name, b"\""].concat()).ok()
}

/// Returns the tag of the origin if the cache has added a coding to it: `"a~br"` becomes `"a"`.
pub fn origin_tag(tag: &[u8]) -> Option<Vec<u8>> {
    let inside = tag.strip_suffix(b"\"")?;
    let at = inside.iter().rposition(|&byte| byte == b'~')?;
    let is_coding = Coding::GENERAL
        .iter()
        .any(|coding| coding.name().as_bytes() == &inside[at + 1..]);
    let is_strong = tag.starts_with(b"\"") && at > 0;
    (is_coding && is_strong).then(|| [&inside[..at], b"\""].concat())
}

/// Replaces the tags of encoded representations in `If-Match` by the tags of the origin.
///
/// A client that changes a resource sends the tag of the representation that it has read (RFC 9110 §13.1.1). The origin
/// does not know the tags that the cache has made, and would refuse the change with 412.
pub fn restore_if_match(request: &mut HeaderMap) {
    if !request.contains_key(IF_MATCH) {
        return;
    }
    let mut has_changed = false;
    let mut tags: Vec<Vec<u8>> = Vec::new();
    for line in request.get_all(IF_MATCH) {
        for tag in conditional::listed_tags(line.as_bytes()) {
            let original = if tag.weak {
                None
            } else {
                origin_tag(tag.opaque)
            };
            has_changed |= original.is_some();
            let prefix: &[u8] = if tag.weak { b"W/" } else { b"" };
            tags.push(original.unwrap_or_else(|| [prefix, tag.opaque].concat()));
        }
    }
    // The bytes of tags are bytes of field values.
    if has_changed && let Ok(value) = HeaderValue::from_bytes(&tags.join(&b", "[..])) {
        request.insert(IF_MATCH, value);
    }
}

/// Returns the first coding of `order` whose representation the client has, according to `If-None-Match`. `stored` are
/// the validators of the response without a coding. Its answer is a 304 with the tag of the encoded representation.
pub fn matching_coding(
    method: &Method,
    request: &HeaderMap,
    status: StatusCode,
    stored: &Validators,
    order: &CodingOrder,
) -> Option<Coding> {
    let tag = stored.etag.as_ref().filter(|tag| !tag.is_weak())?;
    if !request.contains_key(IF_NONE_MATCH) {
        return None;
    }
    order.iter().find(|&coding| {
        let etag = encoded_tag(tag.value(), coding);
        let encoded = Validators {
            etag: etag.as_ref().and_then(EntityTag::new),
            ..Validators::default()
        };
        conditional::evaluate(method, request, status, &encoded) == Evaluation::NotModified
    })
}

/// Returns true if a request is for a range of the representation without a coding. `stored` are its validators.
///
/// Other requests with `Range` get a whole representation. A date in `If-Range` does not select a range: all codings
/// have the same `Last-Modified`, so the client may have a part of an encoded representation (§8.8.2.2, §13.1.5).
pub fn wants_plain_range(method: &Method, request: &HeaderMap, stored: &Validators) -> bool {
    if *method != Method::GET || !request.contains_key(RANGE) {
        return false;
    }
    let Some(condition) = request.get(IF_RANGE) else {
        return true;
    };
    let tag = EntityTag::new(condition);
    matches!((&stored.etag, &tag), (Some(own), Some(tag)) if own.strong_eq(tag))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::headers;

    #[test]
    fn the_head_of_an_encoded_representation_describes_the_encoded_bytes() {
        let mut head = headers(
            "content-type: text/html\netag: \"a\"\nvary: cookie\naccept-ranges: bytes\ncontent-length: 900\n\
             content-md5: x\nrepr-digest: x\ncontent-digest: x\ndigest: x\nlast-modified: x",
        );
        add_vary(&mut head);
        add_vary(&mut head);
        encode_head(&mut head, Coding::Brotli, 100);
        let expected = headers(
            "content-type: text/html\netag: \"a~br\"\nvary: cookie\nvary: accept-encoding\ncontent-length: 100\n\
             content-encoding: br\nlast-modified: x",
        );
        assert_eq!(head, expected);
    }

    #[test]
    fn a_vary_that_lists_the_field_or_a_star_stays() {
        for line in [
            "vary: Accept-Encoding, cookie",
            "vary: *",
            "vary: accept, accept-encoding",
        ] {
            let mut head = headers(line);
            add_vary(&mut head);
            assert_eq!(head, headers(line));
        }
    }

    /// RFC 9110 §8.8.3.3. Each row: the tag, the tag in gzip, and that of a delta.
    #[test]
    fn strong_tags_name_the_coding_and_deltas_have_weak_tags() {
        for (tag, gzip, delta) in [
            ("\"a\"", Some("\"a~gzip\""), Some("W/\"a\"")),
            ("\"\"", Some("\"~gzip\""), Some("W/\"\"")),
            ("W/\"a\"", Some("W/\"a\""), Some("W/\"a\"")),
            ("a", None, None),
            ("\"a", None, None),
        ] {
            let tag = HeaderValue::from_static(tag);
            for (coding, expected) in [(Coding::Gzip, gzip), (Coding::DictionaryZstd, delta)] {
                let expected = expected.map(HeaderValue::from_static);
                assert_eq!(encoded_tag(&tag, coding), expected, "{tag:?}");
            }
        }
    }

    #[test]
    fn the_origin_gets_its_own_tags_in_if_match() {
        for (client, origin) in [
            ("if-match: \"a~br\"", "if-match: \"a\""),
            (
                "if-match: \"b\", \"a~gzip\" , W/\"a~br\"",
                "if-match: \"b\", \"a\", W/\"a~br\"",
            ),
            (
                "if-match: \"b\"\nif-match: \"a,~zstd\"",
                "if-match: \"b\", \"a,\"",
            ),
            (
                "if-match: \"a-br\",\"~other\"",
                "if-match: \"a-br\",\"~other\"",
            ),
            ("if-match: *", "if-match: *"),
            ("if-none-match: \"a~br\"", "if-none-match: \"a~br\""),
        ] {
            let mut request = headers(client);
            restore_if_match(&mut request);
            assert_eq!(request, headers(origin));
        }
    }

    #[test]
    fn a_conditional_request_matches_the_coding_that_the_client_has() {
        let order = |accept: &str| {
            let lines = headers(accept);
            AcceptedCodings::from_headers(&lines).order(&Coding::GENERAL)
        };
        let all = "accept-encoding: gzip, br, zstd";
        for (etag, accept, condition, expected) in [
            (
                "\"a\"",
                all,
                "if-none-match: \"a~br\"",
                Some(Coding::Brotli),
            ),
            (
                "\"a\"",
                all,
                "if-none-match: \"b\", W/\"a~gzip\"",
                Some(Coding::Gzip),
            ),
            (
                "\"a\"",
                "accept-encoding: gzip",
                "if-none-match: \"a~br\"",
                None,
            ),
            ("\"a\"", all, "if-none-match: \"a\"", None),
            ("\"b\"", all, "if-none-match: \"a~br\"", None),
            (
                "\"a\"",
                all,
                "if-modified-since: Sun, 06 Nov 1994 08:49:37 GMT",
                None,
            ),
            ("W/\"a\"", all, "if-none-match: W/\"a\"", None), // the representation without a coding matches
        ] {
            let stored = Validators::from_headers(&headers(&format!("etag: {etag}")));
            let request = headers(condition);
            let (method, status) = (Method::GET, StatusCode::OK);
            let found = matching_coding(&method, &request, status, &stored, &order(accept));
            assert_eq!(found, expected, "{etag} {accept} {condition}");
        }
    }

    #[test]
    fn a_range_is_taken_from_the_plain_bytes_only_if_the_client_has_no_encoded_part() {
        let stored = "etag: \"a\"\nlast-modified: Sun, 06 Nov 1994 08:49:37 GMT\ndate: Sun, 06 Nov 1994 09:49:37 GMT";
        let stored = Validators::from_headers(&headers(stored));
        for (request, expected) in [
            ("", false),
            ("range: bytes=0-1", true),
            ("range: bytes=0-1\nif-range: \"a\"", true),
            ("range: bytes=0-1\nif-range: \"a~br\"", false),
            ("range: bytes=0-1\nif-range: W/\"a\"", false),
            (
                "range: bytes=0-1\nif-range: Sun, 06 Nov 1994 08:49:37 GMT",
                false,
            ),
        ] {
            assert_eq!(
                wants_plain_range(&Method::GET, &headers(request), &stored),
                expected,
                "{request}"
            );
            assert!(!wants_plain_range(
                &Method::HEAD,
                &headers(request),
                &stored
            ));
        }
    }

    proptest! {
        /// The tag of the origin is found again in each strong tag, and tags of different codings differ.
        #[test]
        fn the_tag_of_the_origin_can_be_recovered(inside in "[!#-~]{0,12}") {
            let tag = HeaderValue::try_from(format!("\"{inside}\"")).expect("visible ASCII");
            let mut encoded = Vec::new();
            for coding in Coding::GENERAL {
                let one = encoded_tag(&tag, coding).expect("a strong tag");
                let original = origin_tag(one.as_bytes());
                prop_assert_eq!(original.as_deref(), Some(tag.as_bytes()));
                prop_assert!(!encoded.contains(&one) && one != tag);
                encoded.push(one);
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = origin_tag(&bytes);
            if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                let _ = encoded_tag(&value, Coding::Zstd);
            }
        }
    }
}
