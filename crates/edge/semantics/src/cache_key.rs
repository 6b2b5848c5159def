//! The primary cache key: the target URI alone (RFC 9111 §2).
//!
//! The key does not contain the method, because a stored GET response also answers HEAD.

use crate::authority::{Authority, InvalidTarget};

/// The checked target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    scheme: &'a str,
    authority: Authority<'a>,
    /// Path and query as received. The path may be empty.
    path_and_query: &'a str,
}

impl<'a> Target<'a> {
    /// Parses a request's target. `authority` is `:authority` or `Host`.
    ///
    /// Fails if [`Authority::parse`] fails.
    pub fn new(
        scheme: &'a str,
        authority: &'a str,
        path_and_query: &'a str,
    ) -> Result<Self, InvalidTarget> {
        Ok(Self {
            scheme,
            authority: Authority::parse(scheme, authority)?,
            path_and_query,
        })
    }

    /// Appends the primary key: `http://host[:port]/path[?query]`.
    ///
    /// Scheme and host are in lower case, and the default port is omitted (RFC 9110 §4.2.3). Path and query
    /// keep their bytes, since origins may distinguish `%41` from `A` although they should not. A wrong merge
    /// of two keys serves wrong content, while a missed merge only costs a fetch.
    pub fn write_key(&self, key: &mut Vec<u8>) {
        let start = key.len();
        key.extend_from_slice(self.scheme.as_bytes());
        key[start..].make_ascii_lowercase();
        key.extend_from_slice(b"://");
        self.authority.write(key);
        // RFC 9110 §4.2.3: an empty path is `/`.
        if !self.path_and_query.starts_with('/') {
            key.push(b'/');
        }
        key.extend_from_slice(self.path_and_query.as_bytes());
    }

    /// Returns the primary key.
    pub fn key(&self) -> Vec<u8> {
        let mut key =
            Vec::with_capacity(self.scheme.len() + AUTHORITY_BYTES + self.path_and_query.len());
        self.write_key(&mut key);
        key
    }

    /// Returns true if scheme, host and port of both targets are equal (RFC 9110 §4.3.1).
    pub fn same_origin(&self, other: &Target<'_>) -> bool {
        self.scheme.eq_ignore_ascii_case(other.scheme) && self.authority == other.authority
    }

    /// Returns a target of the same origin with another path and query.
    pub fn with_path_and_query<'b>(&self, path_and_query: &'b str) -> Target<'b>
    where
        'a: 'b,
    {
        Target {
            path_and_query,
            ..*self
        }
    }

    /// The scheme as received.
    pub fn scheme(&self) -> &'a str {
        self.scheme
    }

    /// Path and query as received.
    pub fn path_and_query(&self) -> &'a str {
        self.path_and_query
    }
}

/// The capacity reserved for an authority in a new key. A longer authority costs one more allocation.
const AUTHORITY_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(scheme: &str, authority: &str, path: &str) -> String {
        let target = Target::new(scheme, authority, path).expect(authority);
        String::from_utf8(target.key()).expect("the key is UTF-8")
    }

    /// RFC 9110 §4.2.3.
    #[test]
    fn equivalent_targets_have_one_key() {
        let table = [
            ("http", "example.com", "/a?b", "http://example.com/a?b"),
            ("HTTP", "EXAMPLE.com", "/a?b", "http://example.com/a?b"),
            ("http", "example.com:80", "/a", "http://example.com/a"),
            ("http", "example.com:", "/a", "http://example.com/a"),
            ("https", "example.com:443", "/a", "https://example.com/a"),
            ("https", "example.com:80", "/a", "https://example.com:80/a"),
            (
                "http",
                "example.com:8080",
                "/a",
                "http://example.com:8080/a",
            ),
            ("http", "example.com", "", "http://example.com/"),
            ("http", "example.com", "?a", "http://example.com/?a"),
            ("http", "[::1]:80", "/", "http://[::1]/"),
            ("http", "[::1]:81", "/", "http://[::1]:81/"),
            ("http", "example.com.:80", "/", "http://example.com/"),
        ];
        for (scheme, authority, path, expected) in table {
            assert_eq!(key(scheme, authority, path), expected);
        }
    }

    #[test]
    fn path_and_query_keep_their_bytes() {
        let keys = [
            "/A",
            "/a",
            "/%41",
            "/a/",
            "/a//",
            "/a?",
            "/a?x=1&y=2",
            "/a?y=2&x=1",
            "/./a",
        ]
        .map(|path| key("http", "h", path));
        for (n, one) in keys.iter().enumerate() {
            assert!(!keys[n + 1..].contains(one), "{one}");
        }
    }

    /// A client cannot forge the key of another host with a `Host` field.
    #[test]
    fn an_authority_that_could_forge_a_key_is_rejected() {
        for authority in [
            "", ":80", "a/b", "a?b", "a#b", "a b", "a:80:80", "a:x", "a:8 0", "[::1", "[::1]x",
            "a\\b", "a\"", "é", "u@a",
        ] {
            assert!(Target::new("http", authority, "/").is_err(), "{authority}");
        }
        let error = Target::new("http", "a/b", "/").expect_err("the authority has a slash");
        assert_eq!(
            error.to_string(),
            "\"a/b\" is not host[:port]: send one in Host or :authority"
        );
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let target = |scheme, authority| Target::new(scheme, authority, "/").expect(authority);
        assert!(target("http", "a").same_origin(&target("HTTP", "A:80")));
        assert!(!target("http", "a").same_origin(&target("https", "a")));
        assert!(!target("http", "a").same_origin(&target("http", "a:81")));
        assert!(!target("http", "a").same_origin(&target("http", "b")));
    }

    proptest! {
        /// Two targets have the same key if their origins and paths are equal, and only then.
        #[test]
        fn keys_do_not_collide(
            a in (
                "https?",
                "[a-cA-C]{1,4}",
                proptest::option::of(prop_oneof![Just(80), Just(443), Just(8080)]),
                "/[a/:]{0,4}",
            ),
            b in (
                "https?",
                "[a-cA-C]{1,4}",
                proptest::option::of(prop_oneof![Just(80), Just(443), Just(8080)]),
                "/[a/:]{0,4}",
            ),
        ) {
            let authority = |host: &str, port: Option<i32>| {
                port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
            };
            let (authority_a, authority_b) = (authority(&a.1, a.2), authority(&b.1, b.2));
            let one = Target::new(&a.0, &authority_a, &a.3).expect("the authority is valid");
            let other = Target::new(&b.0, &authority_b, &b.3).expect("the authority is valid");
            prop_assert_eq!(one.key() == other.key(), one.same_origin(&other) && a.3 == b.3);
        }

        #[test]
        fn no_text_panics(scheme in ".{0,8}", authority in ".{0,24}", path in ".{0,24}") {
            if let Ok(target) = Target::new(&scheme, &authority, &path) {
                prop_assert!(!target.key().is_empty());
            }
        }
    }
}
