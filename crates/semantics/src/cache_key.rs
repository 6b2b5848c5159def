//! The primary cache key: the target URI, and nothing else (RFC 9111 §2).
//!
//! The method is not in it: a stored GET answers HEAD as well.

use std::fmt;

/// The target of a request, its parts checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    scheme: &'a str,
    /// Without user information.
    host: &'a str,
    /// Without the default of the scheme.
    port: Option<&'a str>,
    /// Starts with `/`.
    path_and_query: &'a str,
}

/// An authority that cannot be part of a key: answer 400.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidTarget {
    authority: String,
}

impl<'a> Target<'a> {
    /// Takes a request's target apart. `authority` is `:authority` or `Host`.
    ///
    /// A `Host` with a byte that cannot stand there, such as `/`, is refused: it would
    /// make the key of one host's `/a` the key of another's.
    pub fn new(
        scheme: &'a str,
        authority: &'a str,
        path_and_query: &'a str,
    ) -> Result<Self, InvalidTarget> {
        let refuse = || InvalidTarget {
            authority: authority.chars().take(AUTHORITY_SHOWN_CHARS).collect(),
        };
        let host_and_port = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        let (host, port) = split_port(host_and_port).ok_or_else(refuse)?;
        if host.is_empty() || !host.bytes().all(is_host_byte) {
            return Err(refuse());
        }
        // RFC 9110 §4.2.3: an empty port and the default port are the same.
        let default = match scheme {
            _ if scheme.eq_ignore_ascii_case("http") => "80",
            _ if scheme.eq_ignore_ascii_case("https") => "443",
            _ => "",
        };
        Ok(Self {
            scheme,
            host,
            port: port.filter(|&port| !port.is_empty() && port != default),
            path_and_query,
        })
    }

    /// Appends the primary key: `http://host[:port]/path[?query]`.
    ///
    /// Scheme and host in lower case, the default port left out (RFC 9110 §4.2.3). Path and
    /// query keep their bytes: origins may tell `%41` from `A` although they should not,
    /// and a wrong merge serves the wrong thing where a missed one costs a fetch.
    pub fn write_key(&self, key: &mut Vec<u8>) {
        let start = key.len();
        key.extend_from_slice(self.scheme.as_bytes());
        key.extend_from_slice(b"://");
        key.extend_from_slice(self.host.as_bytes());
        key[start..].make_ascii_lowercase();
        if let Some(port) = self.port {
            key.push(b':');
            key.extend_from_slice(port.as_bytes());
        }
        // RFC 9110 §4.2.3: an empty path is `/`.
        if !self.path_and_query.starts_with('/') {
            key.push(b'/');
        }
        key.extend_from_slice(self.path_and_query.as_bytes());
    }

    /// The primary key as bytes of its own.
    pub fn key(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(
            self.scheme.len() + self.host.len() + self.path_and_query.len() + 10,
        );
        self.write_key(&mut key);
        key
    }

    /// Scheme, host and port agree (RFC 9110 §4.3.1).
    pub fn same_origin(&self, other: &Target<'_>) -> bool {
        self.scheme.eq_ignore_ascii_case(other.scheme)
            && self.host.eq_ignore_ascii_case(other.host)
            && self.port == other.port
    }

    /// The same origin with another path and query.
    pub fn at<'b>(&self, path_and_query: &'b str) -> Target<'b>
    where
        'a: 'b,
    {
        Target {
            path_and_query,
            ..*self
        }
    }

    /// The scheme as given.
    pub fn scheme(&self) -> &'a str {
        self.scheme
    }

    /// Path and query as given.
    pub fn path_and_query(&self) -> &'a str {
        self.path_and_query
    }
}

impl fmt::Display for InvalidTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no host[:port]: send one in Host or :authority",
            self.authority
        )
    }
}

impl std::error::Error for InvalidTarget {}

/// Splits `host[:port]`; `None` if the port is no number or an address bracket is open.
fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(_) => authority.split_at(authority.find(']')? + 1),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    match rest.strip_prefix(':') {
        None if rest.is_empty() => Some((host, None)),
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => Some((host, Some(port))),
        _ => None,
    }
}

/// `reg-name` and IP literals of RFC 3986 §3.2.2.
const fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'.'
                | b'_'
                | b'~'
                | b'%'
                | b'!'
                | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b','
                | b';'
                | b'='
                | b':'
                | b'['
                | b']'
        )
}

/// How much of a bad authority an error repeats.
const AUTHORITY_SHOWN_CHARS: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(scheme: &str, authority: &str, path: &str) -> String {
        let target = Target::new(scheme, authority, path).expect(authority);
        String::from_utf8(target.key()).expect("made of text")
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
            ("http", "user:pw@example.com:80", "/", "http://example.com/"),
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

    /// A `Host` cannot make one host's key look like another's.
    #[test]
    fn an_authority_that_could_forge_a_key_is_refused() {
        for authority in [
            "", ":80", "a/b", "a?b", "a#b", "a b", "a:80:80", "a:x", "a:8 0", "[::1", "[::1]x",
            "a\\b", "a\"", "é",
        ] {
            assert!(Target::new("http", authority, "/").is_err(), "{authority}");
        }
        let error = Target::new("http", "a/b", "/").expect_err("a slash");
        assert_eq!(
            error.to_string(),
            "\"a/b\" is no host[:port]: send one in Host or :authority"
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
        /// Two targets share a key only if origin and path agree.
        #[test]
        fn keys_do_not_collide(
            a in ("https?", "[a-cA-C.]{1,4}", proptest::option::of(prop_oneof![Just(80), Just(443), Just(8080)]), "/[a/:]{0,4}"),
            b in ("https?", "[a-cA-C.]{1,4}", proptest::option::of(prop_oneof![Just(80), Just(443), Just(8080)]), "/[a/:]{0,4}"),
        ) {
            let authority = |host: &str, port: Option<i32>| port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
            let (authority_a, authority_b) = (authority(&a.1, a.2), authority(&b.1, b.2));
            let one = Target::new(&a.0, &authority_a, &a.3).expect("a host");
            let other = Target::new(&b.0, &authority_b, &b.3).expect("a host");
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
