//! The canonical form of a request target (RFC 9112 §3.2, RFC 9113 §8.3.1).
//!
//! The cache key and the forwarded request line are both made from this text.

use std::borrow::Cow;
use std::fmt;

use http::Method;

/// The parts of a request's target as received.
#[derive(Clone, Copy, Debug)]
pub struct RequestTarget<'a> {
    /// The request's method. Only OPTIONS may have the target `*`.
    pub method: &'a Method,
    /// The scheme of an absolute target, or `:scheme`.
    pub scheme: Option<&'a str>,
    /// True if the target has an authority: absolute form, authority form, or `:authority`.
    pub has_authority: bool,
    /// True if the target was received as `:path`.
    pub is_pseudo_header: bool,
    /// Path and query. Empty if the target has neither.
    pub path_and_query: &'a str,
}

/// Why a target is rejected with 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidRequestTarget {
    /// The target has a `#`. Fragments must not be sent (RFC 9110 §7.1).
    Fragment,
    /// The target is `*`, but the method is not OPTIONS.
    Asterisk,
    /// The target is `host:port`, the form of CONNECT (RFC 9112 §3.2.3).
    AuthorityForm,
    /// The scheme is neither `http` nor `https`.
    Scheme,
    /// The target does not start with `/`, and no other reason applies.
    NotAPath,
}

impl<'a> RequestTarget<'a> {
    /// Returns path and query as they are used in the key and forwarded. The text starts with `/` or is `*`.
    ///
    /// Path and query keep their bytes, since origins may distinguish `%41` from `A` although they should not. Only
    /// [delimiters](encode_delimiters) are encoded.
    pub fn canonical(&self) -> Result<Cow<'a, str>, InvalidRequestTarget> {
        let path_and_query = self.path_and_query;
        if let Some(scheme) = self.scheme
            && !scheme.eq_ignore_ascii_case("http")
            && !scheme.eq_ignore_ascii_case("https")
        {
            return Err(InvalidRequestTarget::Scheme);
        }
        if path_and_query.contains('#') {
            return Err(InvalidRequestTarget::Fragment);
        }
        let may_lack_slash = self.scheme.is_some() || self.is_pseudo_header;
        match path_and_query.as_bytes().first() {
            Some(b'/') => Ok(encode_delimiters(path_and_query)),
            Some(b'*') if path_and_query.len() == 1 => {
                if *self.method == Method::OPTIONS {
                    Ok(Cow::Borrowed(path_and_query))
                } else {
                    Err(InvalidRequestTarget::Asterisk)
                }
            }
            // RFC 9110 §4.2.3: an empty path is `/`.
            Some(b'?') if may_lack_slash => Ok(Cow::Owned(format!(
                "/{}",
                encode_delimiters(path_and_query)
            ))),
            None if may_lack_slash => Ok(Cow::Borrowed("/")),
            None if self.has_authority => Err(InvalidRequestTarget::AuthorityForm),
            _ => Err(InvalidRequestTarget::NotAPath),
        }
    }
}

/// Encodes `"`, `<` and `>`, and in the path also the backtick.
///
/// A URI contains none of them (RFC 3986 appendix C), but programs such as curl send them unencoded, and most servers
/// accept that. As sent and encoded, they are one target for keys and rules.
pub fn encode_delimiters(target: &str) -> Cow<'_, str> {
    if !has_delimiters(target.as_bytes()) {
        return Cow::Borrowed(target);
    }
    let mut encoded = String::with_capacity(target.len() + 16);
    let mut in_path = true;
    for character in target.chars() {
        in_path &= character != '?';
        match character {
            '"' => encoded.push_str("%22"),
            '<' => encoded.push_str("%3C"),
            '>' => encoded.push_str("%3E"),
            '`' if in_path => encoded.push_str("%60"),
            other => encoded.push(other),
        }
    }
    Cow::Owned(encoded)
}

/// Returns true if [`encode_delimiters`] changes the target.
pub fn has_delimiters(target: &[u8]) -> bool {
    // Without an early end, the compiler compares many bytes at once.
    let (mut anywhere, mut backtick) = (false, false);
    for byte in target {
        anywhere |= matches!(byte, b'"' | b'<' | b'>');
        backtick |= *byte == b'`';
    }
    let is_end = |byte: &u8| matches!(byte, b'?' | b'`');
    anywhere || (backtick && target.iter().find(|byte| is_end(byte)) == Some(&b'`'))
}

impl fmt::Display for InvalidRequestTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fragment => "the target has a fragment: send it without `#` and what follows",
            Self::Asterisk => "the target `*` belongs to OPTIONS: send a path",
            Self::AuthorityForm => "the target is an authority: send a path, and the host in Host",
            Self::Scheme => "the target's scheme is neither http nor https",
            Self::NotAPath => "the target is not a path: it must start with `/`",
        })
    }
}

impl std::error::Error for InvalidRequestTarget {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn target<'a>(
        method: &'a Method,
        scheme: Option<&'a str>,
        pseudo: bool,
        path: &'a str,
    ) -> RequestTarget<'a> {
        RequestTarget {
            method,
            scheme,
            has_authority: scheme.is_some(),
            is_pseudo_header: pseudo,
            path_and_query: path,
        }
    }

    #[test]
    fn every_form_of_a_target_has_one_canonical_form() {
        let (get, options) = (&Method::GET, &Method::OPTIONS);
        for (method, scheme, pseudo, path, expected) in [
            (get, None, false, "/a?b", "/a?b"),
            (get, Some("http"), false, "/a?b", "/a?b"),
            (get, Some("HTTP"), false, "", "/"),
            (get, Some("http"), false, "?x=1", "/?x=1"),
            (get, Some("https"), true, "?x=1", "/?x=1"),
            (get, None, true, "?x=1", "/?x=1"),
            (get, None, false, "//a//./b/../%2e", "//a//./b/../%2e"),
            (get, None, false, "/`\"<?\"`>", "/%60%22%3C?%22`%3E"),
            (get, Some("http"), false, "?<", "/?%3C"),
            (options, None, false, "*", "*"),
            (options, None, true, "*", "*"),
            (options, None, false, "/*", "/*"),
        ] {
            let canonical = target(method, scheme, pseudo, path).canonical();
            assert_eq!(canonical.as_deref(), Ok(expected), "{method} {path}");
        }
    }

    #[test]
    fn a_target_without_canonical_form_is_rejected_with_its_reason() {
        let (get, options) = (&Method::GET, &Method::OPTIONS);
        for (method, scheme, pseudo, path, reason) in [
            (get, None, false, "*", InvalidRequestTarget::Asterisk),
            (get, None, true, "*", InvalidRequestTarget::Asterisk),
            (options, None, false, "*?a", InvalidRequestTarget::NotAPath),
            (get, None, false, "/a#b", InvalidRequestTarget::Fragment),
            (get, None, false, "#", InvalidRequestTarget::Fragment),
            (get, Some("ftp"), false, "/a", InvalidRequestTarget::Scheme),
            (get, None, false, "?a", InvalidRequestTarget::NotAPath),
            (get, None, false, "a", InvalidRequestTarget::NotAPath),
            (get, None, false, "", InvalidRequestTarget::NotAPath),
        ] {
            let canonical = target(method, scheme, pseudo, path).canonical();
            assert_eq!(canonical, Err(reason), "{method} {path}");
        }
        let authority_form = RequestTarget {
            has_authority: true,
            ..target(get, None, false, "")
        };
        assert_eq!(
            authority_form.canonical(),
            Err(InvalidRequestTarget::AuthorityForm)
        );
    }

    proptest! {
        /// A canonical target that is sent again in origin form stays the same and ends with the bytes of the
        /// original.
        #[test]
        fn the_canonical_form_is_a_fixed_point(
            path in "[/?*#a.%]{0,6}",
            absolute in any::<bool>(),
            pseudo in any::<bool>(),
        ) {
            let scheme = absolute.then_some("http");
            if let Ok(canonical) = target(&Method::OPTIONS, scheme, pseudo, &path).canonical() {
                prop_assert!(canonical.ends_with(&path));
                let again = target(&Method::OPTIONS, None, false, &canonical).canonical();
                prop_assert_eq!(again.as_deref(), Ok(canonical.as_ref()));
            }
        }
    }

    proptest! {
        /// Oracle: the bytes one by one.
        #[test]
        fn delimiters_are_encoded_and_found(target in "[/a?\"<>`%#é]{0,40}") {
            let path_end = target.find('?').unwrap_or(target.len());
            let is_delimiter = |(at, byte): (usize, &u8)| {
                matches!(byte, b'"' | b'<' | b'>') || (*byte == b'`' && at < path_end)
            };
            let count = target.as_bytes().iter().enumerate().filter(|item| is_delimiter(*item)).count();
            let encoded = encode_delimiters(&target);
            prop_assert_eq!(encoded.len(), target.len() + 2 * count);
            prop_assert_eq!(has_delimiters(target.as_bytes()), count > 0);
            prop_assert!(!has_delimiters(encoded.as_bytes()));
            let decoded = encoded.replace("%22", "\"").replace("%3C", "<").replace("%3E", ">").replace("%60", "`");
            prop_assert_eq!(decoded, target);
        }
    }
}
