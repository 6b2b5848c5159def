//! The canonical form of a request's authority (RFC 9110 §4.2.3, §7.2).
//!
//! The cache key and the `Host` of the forwarded request are both made from an [`Authority`]. If they were made from
//! different texts, a client could send a request that the cache and the origin read as requests for different
//! hosts.

use core::net::Ipv6Addr;
use std::borrow::Cow;
use std::fmt;

/// A valid `host[:port]` of a request.
///
/// The canonical form is the host in lower case without its final dot, followed by the port as a decimal number
/// if it is not the default port of the scheme. User information is rejected, because HTTP requests must not
/// carry it (RFC 9110 §4.2.4).
#[derive(Clone, Copy, Debug)]
pub struct Authority<'a> {
    /// The host with the letter case of the request, without a final dot. An IPv6 address keeps its brackets.
    host: &'a str,
    /// The port, or `None` if it is the default port of the scheme.
    port: Option<u16>,
    /// The text as received.
    text: &'a str,
}

/// A text that is not `host[:port]`. The request is answered with 400.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidTarget {
    authority: String,
}

impl<'a> Authority<'a> {
    /// Parses `:authority`, the authority of an absolute target, or `Host`.
    ///
    /// Rejects user information, a bracketed address that is not IPv6, a port above 65535, an empty label (`a..b`), and
    /// bytes that a host name cannot contain. If a host could contain a `/`, two different targets could have the same
    /// key. A comma is rejected too: it separates the members of a list, and a request has one host.
    pub fn parse(scheme: &str, text: &'a str) -> Result<Self, InvalidTarget> {
        let invalid = || InvalidTarget {
            authority: text.chars().take(ERROR_AUTHORITY_CHARS).collect(),
        };
        let (host, port) = split_port(text).ok_or_else(invalid)?;
        let host = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            Some(address) if address.parse::<Ipv6Addr>().is_ok() => host,
            Some(_) => return Err(invalid()),
            // A final dot marks an absolute name (RFC 3986 §3.2.2). Names in HTTP are always absolute, so the
            // dot is removed.
            None => host.strip_suffix('.').unwrap_or(host),
        };
        let is_name = host.starts_with('[') || host.bytes().all(is_name_byte);
        let has_empty_label = host.split('.').any(str::is_empty);
        if has_empty_label || !is_name {
            return Err(invalid());
        }
        let port = match port {
            None | Some("") => None,
            Some(digits) => {
                let significant = digits.trim_start_matches('0');
                let port = if significant.is_empty() {
                    0
                } else {
                    significant.parse().map_err(|_| invalid())?
                };
                Some(port)
            }
        };
        // RFC 9110 §4.2.3: an empty port is equivalent to the default port.
        let default = match scheme {
            _ if scheme.eq_ignore_ascii_case("http") => Some(80),
            _ if scheme.eq_ignore_ascii_case("https") => Some(443),
            _ => None,
        };
        Ok(Self {
            host,
            port: port.filter(|&port| Some(port) != default),
            text,
        })
    }

    /// Appends the canonical form.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(self.host.as_bytes());
        out[start..].make_ascii_lowercase();
        if let Some(port) = self.port {
            // Every hit makes a key, so this code avoids the allocation of `format!`.
            let mut digits = [0; PORT_DIGITS_MAX];
            let (mut position, mut rest) = (PORT_DIGITS_MAX, port);
            loop {
                position -= 1;
                digits[position] = b'0' + u8::try_from(rest % 10).expect("a digit is below 10");
                rest /= 10;
                if rest == 0 {
                    break;
                }
            }
            out.push(b':');
            out.extend_from_slice(&digits[position..]);
        }
    }

    /// Returns the canonical form, borrowed if the text is already canonical.
    pub fn canonical(&self) -> Cow<'a, str> {
        let is_lower = !self.host.bytes().any(|byte| byte.is_ascii_uppercase());
        let is_same = is_lower
            && match self.port {
                None => self.host.len() == self.text.len(),
                // If the host of the text had a final dot, no colon follows `self.host`, and the text is not canonical.
                // A canonical port has no leading zero.
                Some(port) => self
                    .text
                    .strip_prefix(self.host)
                    .and_then(|rest| rest.strip_prefix(':'))
                    .is_some_and(|digits| !digits.starts_with('0') || port == 0 && digits == "0"),
            };
        if is_same {
            return Cow::Borrowed(self.text);
        }
        let mut text = self.host.to_ascii_lowercase();
        if let Some(port) = self.port {
            text.push_str(&format!(":{port}"));
        }
        Cow::Owned(text)
    }
}

impl PartialEq for Authority<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.host.eq_ignore_ascii_case(other.host) && self.port == other.port
    }
}

impl Eq for Authority<'_> {}

impl fmt::Display for InvalidTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not host[:port]: send one in Host or :authority",
            self.authority
        )
    }
}

impl std::error::Error for InvalidTarget {}

/// Splits `host[:port]`. Returns `None` if an address bracket is not closed, or if the text after the host is not empty
/// and not a colon with digits or nothing after it.
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

/// Returns true for bytes of `reg-name` (RFC 3986 §3.2.2). Percent-encoding is rejected: no DNS name needs it,
/// and an origin may decode it.
const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'.'
                | b'_'
                | b'~'
                | b'!'
                | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b';'
                | b'='
        )
}

/// The maximum number of digits of a port: 65535 has five.
const PORT_DIGITS_MAX: usize = 5;

/// The number of characters of an invalid authority that the error message repeats.
const ERROR_AUTHORITY_CHARS: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn canonical(scheme: &str, text: &str) -> String {
        let authority = Authority::parse(scheme, text).unwrap_or_else(|e| panic!("{e}"));
        let mut written = Vec::new();
        authority.write(&mut written);
        let canonical = authority.canonical().into_owned();
        assert_eq!(written, canonical.as_bytes(), "{text}");
        canonical
    }

    #[test]
    fn equivalent_authorities_have_one_form() {
        for (scheme, text, expected) in [
            ("http", "shop.example", "shop.example"),
            ("http", "Shop.EXAMPLE", "shop.example"),
            ("http", "shop.example:80", "shop.example"),
            ("http", "shop.example:", "shop.example"),
            ("http", "shop.example.", "shop.example"),
            ("http", "shop.example.:0080", "shop.example"),
            ("http", "shop.example.:8080", "shop.example:8080"),
            ("http", "shop.example:08080", "shop.example:8080"),
            ("http", "shop.example:443", "shop.example:443"),
            ("https", "shop.example:443", "shop.example"),
            ("HTTPS", "shop.example:443", "shop.example"),
            ("http", "h:0", "h:0"),
            ("http", "h:00", "h:0"),
            ("http", "[2001:DB8::1]:80", "[2001:db8::1]"),
            ("http", "127.0.0.1:81", "127.0.0.1:81"),
        ] {
            assert_eq!(canonical(scheme, text), expected, "{scheme} {text}");
        }
    }

    #[test]
    fn a_text_that_is_not_host_and_port_is_rejected() {
        for text in [
            "",
            ":80",
            ".",
            ".:80",
            "a..",
            "a..b",
            ".a",
            "a..b:80",
            "a,b",
            "a/b",
            "a?b",
            "a#b",
            "a b",
            "a:80:80",
            "a:x",
            "a:8 0",
            "a:65536",
            "[::1",
            "[::1]x",
            "[::1].",
            "[x]",
            "[]",
            "a]b",
            "a%2fb",
            "a\\b",
            "a\"",
            "é",
            "x@shop.example",
            "user:pw@shop.example",
            "@shop.example",
        ] {
            assert!(Authority::parse("http", text).is_err(), "{text}");
        }
    }

    proptest! {
        /// Parsing a canonical form returns an equal authority, whose canonical form is the same text.
        #[test]
        fn the_canonical_form_is_a_fixed_point(
            scheme in "https?",
            text in "[a-cA-C.]{1,4}(:[0-9]{0,6})?|\\[[0-9a-fA-F:]{1,6}\\](:[0-9]{0,3})?|.{0,12}",
        ) {
            if let Ok(authority) = Authority::parse(&scheme, &text) {
                let canonical = authority.canonical().into_owned();
                let again = Authority::parse(&scheme, &canonical).expect("a canonical form is valid");
                prop_assert_eq!(&again, &authority);
                prop_assert!(matches!(again.canonical(), Cow::Borrowed(_)), "{}", canonical);
                prop_assert_eq!(again.canonical().into_owned(), canonical);
            }
        }

        /// Two authorities are equal if and only if their canonical forms are equal.
        #[test]
        fn equal_authorities_have_equal_forms(
            a in "[abAB]{1,2}[.]?(:(80|81|)?)?",
            b in "[abAB]{1,2}[.]?(:(80|81|)?)?",
        ) {
            if let (Ok(one), Ok(other)) = (Authority::parse("http", &a), Authority::parse("http", &b)) {
                prop_assert_eq!(one == other, one.canonical() == other.canonical());
            }
        }
    }
}
