//! The objects that a purge covers.

use std::fmt;

use edgeward_types::Pattern;
use edgeward_types::xxh3::xxh3_64_with_seed;

use crate::tags::groups;

/// A sequence number of a purge, with the epoch of the log or the stream that assigned it. The stamp of an object is
/// the newest one when the object's request was sent to the origin.
///
/// The upper 24 bits are the epoch: a random number of the log, or a hash of the time at which the stream was created.
/// Stamps of one epoch are ordered by their sequence numbers. [`Stamp::NONE`] is older than all purges of any log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub u64);

/// A requested purge of one scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purge {
    /// The objects that the purge covers.
    pub scope: Scope,
    /// True if the objects become stale; false if they must not be used again.
    pub soft: bool,
}

/// The objects that a purge covers. URLs are compared in the form of cache keys: `http://host[:port]/path[?query]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The object of one URL, with all its variants.
    Url(Box<str>),
    /// The objects of one host, and of one port if it is not the default port of the scheme.
    Host(Box<str>),
    /// The objects that have a tag.
    Tag(Box<str>),
    /// The objects of one cache group, which has members of one origin only (RFC 9875 §2.1).
    Group {
        /// The origin in the form of a cache key: `http://host[:port]`.
        origin: Box<str>,
        /// The name of the group.
        group: Box<str>,
    },
    /// The objects whose URL starts with this text. A text without `://` is compared with the URL without its
    /// `scheme://`.
    Prefix(Box<str>),
    /// The objects whose URL matches the pattern. A pattern without `://` is compared as such a prefix is.
    Pattern(Pattern),
}

/// The reason why a text is not a scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScopeError {
    /// The text is empty or too long.
    #[error("a {kind} has 1 to {TEXT_BYTES_MAX} bytes, and this one has {bytes}")]
    Length {
        /// The kind of the scope.
        kind: &'static str,
        /// The length of the text in bytes.
        bytes: usize,
    },
    /// The text contains white space or a control character.
    #[error("the {kind} `{text}` contains white space or a control character")]
    Character {
        /// The kind of the scope.
        kind: &'static str,
        /// The text.
        text: Box<str>,
    },
    /// The text is not a host.
    #[error("`{0}` is not a host; write example.com or example.com:8080")]
    Host(Box<str>),
    /// The text is not a URL.
    #[error("`{0}` is not a URL; write https://example.com/path")]
    Url(Box<str>),
    /// A prefix or pattern has no host, so it would match no URL.
    #[error("the {kind} `{text}` has no host; write example.com/path or https://example.com/path")]
    NoHost {
        /// The kind of the scope.
        kind: &'static str,
        /// The text.
        text: Box<str>,
    },
}

impl Purge {
    /// Returns a hard purge of all objects.
    pub fn all() -> Self {
        Self {
            scope: Scope::all(),
            soft: false,
        }
    }
}

impl Scope {
    /// Returns the scope of one URL. Converts its scheme and host to lower case.
    pub fn url(text: &str) -> Result<Self, ScopeError> {
        check("URL", text)?;
        match text.split_once("://") {
            // A target that clients request has no fragment.
            Some((scheme, rest))
                if !scheme.is_empty() && host_bytes(rest) > 0 && !rest.contains('#') =>
            {
                let mut url = lower_host(text);
                // RFC 9110 §4.2.3: an empty path is `/`.
                let host = url.len() - rest.len();
                let path = host + host_bytes(rest);
                if !url[path..].starts_with('/') {
                    url.insert(path, '/');
                }
                Ok(Self::Url(url.into()))
            }
            _ => Err(ScopeError::Url(text.into())),
        }
    }

    /// Returns the scope of one host.
    pub fn host(text: &str) -> Result<Self, ScopeError> {
        check("host", text)?;
        if text.contains(['/', '*', '@', '?', '#']) {
            return Err(ScopeError::Host(text.into()));
        }
        Ok(Self::Host(text.to_ascii_lowercase().into()))
    }

    /// Returns the scope of one tag. It may contain spaces, as members of `Cache-Tag` and `Cache-Groups` may.
    pub fn tag(text: &str) -> Result<Self, ScopeError> {
        check_length("tag", text)?;
        if text.trim() != text || text.contains(|c: char| c.is_control()) {
            let text = text.into();
            return Err(ScopeError::Character { kind: "tag", text });
        }
        Ok(Self::Tag(text.into()))
    }

    /// Returns the scopes of the groups that the lines of a field `Cache-Group-Invalidation` name (RFC 9875 §3). `url`
    /// is the cache key of the request's target. The list is empty for a malformed field, and has [`GROUPS_MAX`] groups
    /// at most.
    pub fn invalidated_groups<'v>(
        url: &[u8],
        lines: impl IntoIterator<Item = &'v [u8]>,
    ) -> Vec<Self> {
        let Some(origin) = origin_of(url).and_then(|origin| str::from_utf8(origin).ok()) else {
            return Vec::new();
        };
        let lines: Vec<_> = lines.into_iter().collect();
        let field = lines.join(&b", "[..]);
        let mut scopes: Vec<Self> = Vec::new();
        for group in groups(&field).unwrap_or_default() {
            let group = String::from_utf8_lossy(&group).into();
            let scope = Self::Group {
                origin: origin.into(),
                group,
            };
            if scopes.len() < GROUPS_MAX && !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        scopes
    }

    /// Returns the scope of all objects: a pattern that every URL matches.
    pub fn all() -> Self {
        Self::Pattern(Pattern::new("*"))
    }

    /// Returns the scope of all URLs that start with a text.
    pub fn prefix(text: &str) -> Result<Self, ScopeError> {
        check("prefix", text)?;
        check_host("prefix", text)?;
        Ok(Self::Prefix(lower_host(text).into()))
    }

    /// Returns the scope of all URLs that match a pattern.
    pub fn pattern(text: &str) -> Result<Self, ScopeError> {
        check("pattern", text)?;
        check_host("pattern", text)?;
        Ok(Self::Pattern(Pattern::new(&lower_host(text))))
    }

    /// Returns the name of the kind for metrics and logs.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Url(_) => "url",
            Self::Host(_) => "host",
            Self::Tag(_) => "tag",
            Self::Group { .. } => "group",
            Self::Prefix(_) => "prefix",
            Self::Pattern(_) => "pattern",
        }
    }

    /// Returns true if the scope contains the object with this URL and these tags.
    pub fn contains(&self, url: &[u8], tags: &[&[u8]]) -> bool {
        match self {
            Self::Url(own) => own.as_bytes() == url,
            Self::Host(own) => authority_of(url) == Some(own.as_bytes()),
            Self::Tag(own) => tags.contains(&own.as_bytes()),
            Self::Group { origin, group } => {
                origin_of(url) == Some(origin.as_bytes()) && tags.contains(&group.as_bytes())
            }
            Self::Prefix(own) => comparable(own, url).starts_with(own.as_bytes()),
            Self::Pattern(own) => own.matches(comparable(own.as_str(), url)),
        }
    }

    /// Returns the hash by which a table finds the scope. Returns `None` for a prefix or pattern, which a table
    /// compares with each URL.
    pub(crate) fn hash(&self, seed: u64) -> Option<u64> {
        match self {
            Self::Url(url) => Some(hash_url(url.as_bytes(), seed)),
            Self::Host(host) => Some(hash_host(host.as_bytes(), seed)),
            Self::Tag(tag) => Some(hash_tag(tag.as_bytes(), seed)),
            Self::Group { origin, group } => {
                Some(hash_group(origin.as_bytes(), group.as_bytes(), seed))
            }
            Self::Prefix(_) | Self::Pattern(_) => None,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(text) | Self::Host(text) | Self::Tag(text) | Self::Prefix(text) => {
                f.write_str(text)
            }
            Self::Group { origin, group } => write!(f, "{origin} {group}"),
            Self::Pattern(pattern) => pattern.fmt(f),
        }
    }
}

/// Returns the authority of a URL that has the form of a cache key, or `None` if the URL has no scheme.
pub fn authority_of(url: &[u8]) -> Option<&[u8]> {
    let rest = &url[scheme_bytes(url)?..];
    let end = rest.iter().position(|byte| *byte == b'/');
    Some(&rest[..end.unwrap_or(rest.len())])
}

/// Returns the origin of a URL that has the form of a cache key (RFC 9110 §4.3.1), or `None` if it has no scheme.
pub(crate) fn origin_of(url: &[u8]) -> Option<&[u8]> {
    let authority = scheme_bytes(url)?;
    Some(&url[..authority + authority_of(url)?.len()])
}

/// Returns the part of a URL that is compared with the prefix or pattern `own`: the URL, without its scheme if `own`
/// has no scheme.
fn comparable<'u>(own: &str, url: &'u [u8]) -> &'u [u8] {
    match scheme_bytes(url) {
        Some(bytes) if !own.contains("://") => &url[bytes..],
        _ => url,
    }
}

/// Returns the length of `scheme://` at the start of a URL in bytes.
fn scheme_bytes(url: &[u8]) -> Option<usize> {
    Some(url.windows(3).position(|three| three == b"://")? + 3)
}

/// Returns the text with scheme and host in lower case, as cache keys have them (RFC 9110 §4.2.3).
fn lower_host(text: &str) -> String {
    let host = text.find("://").map_or(0, |at| at + 3);
    let path = host + host_bytes(&text[host..]);
    text[..path].to_ascii_lowercase() + &text[path..]
}

/// Returns the length of the host at the start of a URL without scheme.
fn host_bytes(rest: &str) -> usize {
    rest.find(['/', '?']).unwrap_or(rest.len())
}

fn check_length(kind: &'static str, text: &str) -> Result<(), ScopeError> {
    match text.len() {
        1..=TEXT_BYTES_MAX => Ok(()),
        bytes => Err(ScopeError::Length { kind, bytes }),
    }
}

fn check(kind: &'static str, text: &str) -> Result<(), ScopeError> {
    check_length(kind, text)?;
    match text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        true => Err(ScopeError::Character {
            kind,
            text: text.into(),
        }),
        false => Ok(()),
    }
}

fn check_host(kind: &'static str, text: &str) -> Result<(), ScopeError> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    match rest.starts_with('/') || rest.is_empty() {
        true => Err(ScopeError::NoHost {
            kind,
            text: text.into(),
        }),
        false => Ok(()),
    }
}

/// Returns the hash of a URL. Each kind of scope has its own seed, so a tag and a host with equal texts have different
/// hashes.
pub(crate) fn hash_url(url: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(url, seed)
}

pub(crate) fn hash_host(host: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(host, seed.wrapping_add(1))
}

pub(crate) fn hash_tag(tag: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(tag, seed.wrapping_add(2))
}

pub(crate) fn hash_group(origin: &[u8], group: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(group, xxh3_64_with_seed(origin, seed.wrapping_add(3)))
}

/// The most groups that one response invalidates. RFC 9875 §3 demands support of 32.
pub const GROUPS_MAX: usize = 128;

/// The maximum length of a scope's text in bytes: a URL of 8000 octets (RFC 9110 §4.1) fits.
pub const TEXT_BYTES_MAX: usize = 8192;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sfv::{BareItem, List, ListEntry, Parser, Version};

    use super::*;

    fn invalidated(lines: &[&str]) -> Vec<String> {
        let lines = lines.iter().map(|line| line.as_bytes());
        let scopes = Scope::invalidated_groups(b"http://h:8080/a?b", lines);
        scopes.iter().map(ToString::to_string).collect()
    }

    /// RFC 9875 §3.
    #[test]
    fn a_response_invalidates_the_groups_of_its_origin_that_it_lists() {
        assert_eq!(
            invalidated(&["\"a\", \"b c\";p, \"a\""]),
            ["http://h:8080 a", "http://h:8080 b c"]
        );
        assert_eq!(
            invalidated(&["\"a\"", "\"b\""]),
            ["http://h:8080 a", "http://h:8080 b"]
        );
        for malformed in [
            &["a"][..],
            &["\"a\", 1"],
            &["(\"a\")"],
            &["\"a\",", "\"b"],
            &[""],
            &[],
        ] {
            assert!(invalidated(malformed).is_empty(), "{malformed:?}");
        }
        let many: Vec<_> = (0..=GROUPS_MAX).map(|n| format!("\"{n:0>32}\"")).collect();
        assert_eq!(invalidated(&[&many.join(", ")]).len(), GROUPS_MAX);
    }

    /// Returns the strings of a list as a parser of structured fields reads them (RFC 9651 §4.2).
    fn oracle(field: &str) -> Option<Vec<String>> {
        let list: List = Parser::new(field.as_bytes())
            .with_version(Version::Rfc9651)
            .parse()
            .ok()?;
        let strings = list.iter().map(|entry| match entry {
            ListEntry::Item(item) => match &item.bare_item {
                BareItem::String(text) => Some(text.as_str().to_owned()),
                _ => None,
            },
            ListEntry::InnerList(_) => None,
        });
        strings.collect()
    }

    proptest! {
        /// The list of a field is that of a parser of structured fields. The parser of this crate accepts more in one
        /// respect: it does not check parameters.
        #[test]
        fn groups_equal_those_of_a_parser_of_structured_fields(
            field in r#"("[a-c \\"]{0,3}"?|[a1( ]|,|, |;p=1|;q="x,"|\t){0,6}"#
        ) {
            let field = field.trim(); // a field value has no white space at its ends (RFC 9110 §5.5)
            let own = groups(field.as_bytes());
            let own: Option<Vec<_>> = own.map(|groups| {
                groups.iter().map(|group| String::from_utf8_lossy(group).into_owned()).collect()
            });
            if let Some(expected) = oracle(field) {
                prop_assert_eq!(own, Some(expected));
            } else if !field.contains(';') {
                prop_assert_eq!(own, None);
            }
        }
    }
}
