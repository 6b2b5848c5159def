//! Invalidation of stored responses by unsafe requests (RFC 9111 §4.4).

use http::header::{CONTENT_LOCATION, HeaderMap, LOCATION};
use http::{Method, StatusCode};

use crate::cache_key::Target;

/// Returns true if the response invalidates stored responses: the method is not known to be safe, and the
/// response is not an error.
pub fn applies(method: &Method, status: StatusCode) -> bool {
    !is_safe(method) && (status.is_success() || status.is_redirection())
}

/// Returns the primary keys to remove: the target, and `Location` and `Content-Location` if they have the same
/// origin. Returns an empty list if [`applies`] returns false.
///
/// Keys of other origins are never returned, because a server must not remove the cached responses of another
/// server.
pub fn targets(
    method: &Method,
    status: StatusCode,
    target: &Target<'_>,
    response: &HeaderMap,
) -> Vec<Vec<u8>> {
    if !applies(method, status) {
        return Vec::new();
    }
    let mut keys = vec![target.key()];
    for name in [LOCATION, CONTENT_LOCATION] {
        let Some(reference) = response.get(&name).and_then(|value| value.to_str().ok()) else {
            continue;
        };
        if let Some(key) = same_origin_key(target, reference)
            && !keys.contains(&key)
        {
            keys.push(key);
        }
    }
    keys
}

/// Returns true for safe methods (RFC 9110 §9.2.1). An unknown method counts as unsafe (RFC 9111 §4.4).
fn is_safe(method: &Method) -> bool {
    matches!(
        method.as_str(),
        "GET" | "HEAD" | "OPTIONS" | "TRACE" | "QUERY" | "PROPFIND" | "REPORT" | "SEARCH"
    )
}

/// Resolves a URI reference (RFC 3986 §5.2) and returns its key, if it has the same origin as the target.
pub(crate) fn same_origin_key(target: &Target<'_>, reference: &str) -> Option<Vec<u8>> {
    let reference = reference.trim_matches([' ', '\t']);
    let reference = reference.split('#').next().unwrap_or_default();
    let (scheme, rest) = match split_scheme(reference) {
        Some((scheme, rest)) => (scheme, rest),
        None => (target.scheme(), reference),
    };
    if let Some(rest) = rest.strip_prefix("//") {
        let path_at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path_and_query) = rest.split_at(path_at);
        let path_and_query = without_dot_segments(path_and_query);
        let other = Target::new(scheme, authority, &path_and_query).ok()?;
        return other.same_origin(target).then(|| other.key());
    }
    if !scheme.eq_ignore_ascii_case(target.scheme()) {
        return None;
    }
    // A reference such as `http:x`, with the scheme of the target and without an authority, is resolved like `x`
    // (RFC 3986 §5.2.2 allows this for compatibility).
    let base = target.path_and_query();
    let base_path = base.split('?').next().unwrap_or_default();
    let resolved = if rest.is_empty() {
        base.to_owned()
    } else if rest.starts_with('/') {
        rest.to_owned()
    } else if rest.starts_with('?') {
        format!("{base_path}{rest}")
    } else {
        let directory = base_path.rfind('/').map_or("/", |at| &base_path[..=at]);
        format!("{directory}{rest}")
    };
    Some(
        target
            .with_path_and_query(&without_dot_segments(&resolved))
            .key(),
    )
}

/// Splits `scheme:` from a reference (RFC 3986 §3.1).
fn split_scheme(reference: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = reference.split_once(':')?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    is_scheme.then_some((scheme, rest))
}

/// Removes dot segments from the path (RFC 3986 §5.2.4). The query is not changed.
fn without_dot_segments(path_and_query: &str) -> String {
    let (path, query) = match path_and_query.find('?') {
        Some(at) => path_and_query.split_at(at),
        None => (path_and_query, ""),
    };
    let mut segments: Vec<&str> = Vec::new();
    let mut parts = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        match part {
            "." => {
                if is_last {
                    segments.push("");
                }
            }
            ".." => {
                segments.pop();
                if is_last {
                    segments.push("");
                }
            }
            segment => segments.push(segment),
        }
    }
    format!("/{}{query}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::headers;

    fn invalidated_keys(method: &str, status: u16, lines: &str) -> Vec<String> {
        let target = Target::new("http", "h:80", "/a/b?q").expect("the authority is valid");
        let method = Method::from_bytes(method.as_bytes()).expect("the method is a token");
        let status = StatusCode::from_u16(status).expect("the status is valid");
        targets(&method, status, &target, &headers(lines))
            .into_iter()
            .map(|key| String::from_utf8(key).expect("the key is UTF-8"))
            .collect()
    }

    /// §4.4: unsafe and unknown methods invalidate if the response is not an error.
    #[test]
    fn only_unsafe_methods_that_succeed_invalidate() {
        let target_key = vec!["http://h/a/b?q".to_owned()];
        for method in ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH", "PURGE", "get"] {
            for status in [200, 201, 204, 299, 301, 303, 304, 399] {
                assert_eq!(
                    invalidated_keys(method, status, ""),
                    target_key,
                    "{method} {status}"
                );
            }
            for status in [100, 400, 404, 409, 500, 503] {
                assert!(
                    invalidated_keys(method, status, "").is_empty(),
                    "{method} {status}"
                );
            }
        }
        for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
            assert!(
                invalidated_keys(method, 200, "location: /x").is_empty(),
                "{method}"
            );
        }
    }

    /// §4.4 with RFC 3986 §5. Each row: a reference, and the key that it invalidates besides the target.
    #[test]
    fn a_location_is_resolved_and_invalidated_if_it_has_the_same_origin() {
        let table = [
            ("http://h/x", Some("http://h/x")),
            ("HTTP://H:80/x?y", Some("http://h/x?y")),
            ("http://h", Some("http://h/")),
            ("http://h?x", Some("http://h/?x")),
            ("http://h/x#frag", Some("http://h/x")),
            ("//h/x", Some("http://h/x")),
            ("/x", Some("http://h/x")),
            ("x", Some("http://h/a/x")),
            ("./x", Some("http://h/a/x")),
            ("../x", Some("http://h/x")),
            ("../../../x", Some("http://h/x")),
            (".", Some("http://h/a/")),
            ("..", Some("http://h/")),
            ("x/./y/../z", Some("http://h/a/x/z")),
            ("?other", Some("http://h/a/b?other")),
            ("", None),
            ("#frag", None),
            ("http://h/a/b?q", None),
            ("https://h/x", None),
            ("http://h:81/x", None),
            ("http://other/x", None),
            ("//other/x", None),
            ("mailto:a@h", None),
            ("http://h/%zz/é", None),
        ];
        for (reference, expected) in table {
            let mut expected_keys = vec!["http://h/a/b?q".to_owned()];
            expected_keys.extend(expected.map(str::to_owned));
            for field in ["location", "content-location"] {
                assert_eq!(
                    invalidated_keys("POST", 201, &format!("{field}: {reference}")),
                    expected_keys,
                    "{field}: {reference}"
                );
            }
        }
    }

    #[test]
    fn both_fields_invalidate_their_keys_once() {
        let keys = invalidated_keys("POST", 201, "location: /x\ncontent-location: /y");
        assert_eq!(keys, ["http://h/a/b?q", "http://h/x", "http://h/y"]);
        assert_eq!(
            invalidated_keys("POST", 201, "location: /x\ncontent-location: /x").len(),
            2
        );
    }

    proptest! {
        /// No reference invalidates a key of another origin.
        #[test]
        fn no_reference_invalidates_another_origin(reference in "[a-z/:.?#@%\\[\\]]{0,24}") {
            for key in invalidated_keys("POST", 200, &format!("location: {reference}")) {
                prop_assert!(key.starts_with("http://h/"), "{} made {}", reference, key);
            }
        }
    }
}
