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
        key.extend(self.scheme.bytes().map(|byte| byte.to_ascii_lowercase()));
        key.extend_from_slice(b"://");
        key.extend(self.host.bytes().map(|byte| byte.to_ascii_lowercase()));
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
