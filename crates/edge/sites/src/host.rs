//! Patterns of hosts, and a table that finds the most specific pattern for a host.

use std::fmt;
use std::str::FromStr;

use hashbrown::HashMap;

/// A host, `www.example.com`, or all hosts below a domain, `*.example.com`. The port of a request is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern {
    /// The whole host, or the domain with a leading dot.
    suffix: Box<str>,
}

/// The text is not a [`HostPattern`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a host name")]
pub struct ParseHostPatternError;

impl FromStr for HostPattern {
    type Err = ParseHostPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, suffix) = match text.strip_prefix("*.") {
            Some(domain) => (domain, &text[1..]),
            None => (text, text),
        };
        let is_bracketed = name.starts_with('[') && name.ends_with(']') && name == suffix;
        let is_host_byte = |b: u8| match b {
            b':' | b'[' | b']' => is_bracketed,
            _ => b.is_ascii_alphanumeric() || b"-._".contains(&b),
        };
        let is_name = !name.is_empty() && !name.starts_with('.') && name.len() <= HOST_BYTES_MAX;
        if !is_name || !name.bytes().all(is_host_byte) {
            return Err(ParseHostPatternError);
        }
        Ok(Self {
            suffix: suffix.to_ascii_lowercase().into(),
        })
    }
}

/// The length limit of domain names (RFC 1035 §2.3.4). An IPv6 address is shorter.
const HOST_BYTES_MAX: usize = 255;

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wildcard = if self.suffix.starts_with('.') {
            "*"
        } else {
            ""
        };
        write!(f, "{wildcard}{}", self.suffix)
    }
}

/// A map from host patterns to values. A lookup finds the most specific pattern: the host itself, or the longest
/// parent domain.
///
/// A lookup costs one probe of a hash table for the host, and one for each parent domain that has at most as many
/// labels as the longest wildcard of the table. A host with a hundred labels therefore costs no more than usual hosts.
#[derive(Clone, Debug)]
pub struct HostTable<T> {
    by_suffix: HashMap<Box<[u8]>, T>,
    /// The number of dots in the longest wildcard, counted with its leading dot. 0 without wildcards.
    wildcard_dots_max: usize,
}

impl<T> HostTable<T> {
    /// Returns an empty table.
    pub fn new() -> Self {
        Self {
            by_suffix: HashMap::new(),
            wildcard_dots_max: 0,
        }
    }

    /// Returns true if the table has no pattern.
    pub fn is_empty(&self) -> bool {
        self.by_suffix.is_empty()
    }

    /// Adds a pattern. Returns the previous value of the same pattern.
    pub fn insert(&mut self, pattern: &HostPattern, value: T) -> Option<T> {
        if pattern.suffix.starts_with('.') {
            let dots = dots(pattern.suffix.as_bytes());
            self.wildcard_dots_max = self.wildcard_dots_max.max(dots);
        }
        let suffix = pattern.suffix.as_bytes().into();
        self.by_suffix.insert(suffix, value)
    }

    /// Returns the value of the most specific pattern for a host, which must be in lower case and without a port.
    pub fn get(&self, host: &[u8]) -> Option<&T> {
        if let Some(value) = self.by_suffix.get(host) {
            return Some(value);
        }
        if self.wildcard_dots_max == 0 {
            return None;
        }
        let mut dots_left = dots(host);
        for at in 0..host.len() {
            if host[at] != b'.' {
                continue;
            }
            if dots_left <= self.wildcard_dots_max
                && let Some(value) = self.by_suffix.get(&host[at..])
            {
                return Some(value);
            }
            dots_left -= 1;
        }
        None
    }
}

impl<T> Default for HostTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns an authority without its port. The colons of an IPv6 address are within brackets.
pub(crate) fn without_port(authority: &str) -> &str {
    match authority.rfind(':') {
        Some(colon) if !authority[colon..].contains(']') => &authority[..colon],
        _ => authority,
    }
}

fn dots(host: &[u8]) -> usize {
    host.iter().filter(|byte| **byte == b'.').count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> HostPattern {
        text.parse().expect(text)
    }

    #[test]
    fn a_pattern_formats_to_its_text_and_invalid_patterns_are_refused() {
        for host in ["example.com", "*.example.com", "10.0.0.7", "[2001:db8::1]"] {
            assert_eq!(pattern(host).to_string(), host);
        }
        for nonsense in [
            "",
            "*",
            "*.",
            "*example.com",
            "a.*.com",
            "http://a",
            "a:80",
            "a/b",
            "..",
            "[::1",
            "*.[::1]",
        ] {
            assert_eq!(
                nonsense.parse::<HostPattern>(),
                Err(ParseHostPatternError),
                "{nonsense}"
            );
        }
    }

    /// The literal definition: of all patterns that match, the one with the longest suffix.
    fn most_specific<'a>(patterns: &'a [HostPattern], host: &str) -> Option<&'a HostPattern> {
        let matches = |pattern: &&HostPattern| match pattern.suffix.starts_with('.') {
            true => host.ends_with(&*pattern.suffix),
            false => *pattern.suffix == *host,
        };
        let candidates = patterns.iter().filter(matches);
        candidates.max_by_key(|pattern| pattern.suffix.len())
    }

    proptest! {
        #[test]
        fn a_lookup_finds_the_most_specific_pattern(
            patterns in proptest::collection::vec(r"(\*\.)?[ab](\.[ab]){0,4}", 0..8),
            host in r"[ab](\.[ab]){0,6}",
        ) {
            let patterns: Vec<HostPattern> = patterns.iter().map(|text| pattern(text)).collect();
            let mut table = HostTable::new();
            for pattern in &patterns {
                table.insert(pattern, pattern.clone());
            }
            prop_assert_eq!(table.get(host.as_bytes()), most_specific(&patterns, &host));
        }
    }
}
