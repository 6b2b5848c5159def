//! The fingerprint of a URL: 64 bits of XXH3 over path and query, seeded with the host.
//!
//! The probability that two of `n` URLs have the same fingerprint is about `n² / 2^65`: 6e-6 for fifteen
//! million URLs, and 3 % for a thousand million. Two URLs with the same fingerprint count as one.

use edgeward_types::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::Entry;

/// States whether the query of a URL is part of the URL's identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueryRule {
    /// The query is part of the URL, as for a cache without other configuration (RFC 9111, section 2).
    #[default]
    Keep,
    /// The query is removed.
    Cut,
}

/// Computes fingerprints. Remembers the last host, because successive lines often have the same host.
#[derive(Clone, Debug, Default)]
pub struct Fingerprints {
    query: QueryRule,
    /// The last host, as the log spells it.
    host: Vec<u8>,
    /// The hash of `host` in lower case, or 0 without a host.
    host_seed: u64,
    /// A buffer for `host` in lower case.
    lower: Vec<u8>,
}

impl Fingerprints {
    /// Returns a state that computes fingerprints of URLs with or without their queries.
    pub fn new(query: QueryRule) -> Self {
        Self {
            query,
            ..Self::default()
        }
    }

    /// Returns the fingerprint of a request's URL.
    #[inline(always)]
    pub fn fingerprint(&mut self, entry: &Entry<'_>) -> u64 {
        let url = self.hashed_part(entry.url);
        if entry.host != self.host {
            self.learn_host(entry.host);
        }
        if self.host_seed == 0 {
            xxh3_64(url)
        } else {
            xxh3_64_with_seed(url, self.host_seed)
        }
    }

    /// Returns another 64 bits, for a fingerprint of 128 bits. The probability that two of 10^12 URLs have the
    /// same 128 bits is 1e-15.
    #[inline]
    pub fn second_half(&mut self, entry: &Entry<'_>) -> u64 {
        let url = self.hashed_part(entry.url);
        if entry.host != self.host {
            self.learn_host(entry.host);
        }
        xxh3_64_with_seed(url, self.host_seed ^ SECOND_SEED)
    }

    /// Returns the part of the URL that the fingerprint covers.
    #[inline(always)]
    pub fn hashed_part<'l>(&self, url: &'l [u8]) -> &'l [u8] {
        match self.query {
            QueryRule::Keep => url,
            QueryRule::Cut => memchr::memchr(b'?', url).map_or(url, |at| &url[..at]),
        }
    }

    #[cold]
    fn learn_host(&mut self, host: &[u8]) {
        self.host.clear();
        self.host.extend_from_slice(host);
        // Host names are case-insensitive (RFC 9110, section 4.2.3).
        self.lower.clear();
        self.lower.extend(host.iter().map(u8::to_ascii_lowercase));
        self.host_seed = if host.is_empty() {
            0
        } else {
            xxh3_64(&self.lower)
        };
    }
}

/// An arbitrary constant (the bits of the golden ratio), so that the seeds of both halves differ.
const SECOND_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry<'l>(host: &'l str, url: &'l str) -> Entry<'l> {
        Entry {
            host: host.as_bytes(),
            url: url.as_bytes(),
            ..Entry::default()
        }
    }

    #[test]
    fn the_fingerprint_depends_on_host_path_and_query() {
        let mut keep = Fingerprints::new(QueryRule::Keep);
        let mut cut = Fingerprints::new(QueryRule::Cut);
        let a = keep.fingerprint(&entry("example.org", "/a?x"));
        assert_eq!(a, keep.fingerprint(&entry("Example.ORG", "/a?x")));
        assert_ne!(a, keep.fingerprint(&entry("example.net", "/a?x")));
        assert_ne!(a, keep.fingerprint(&entry("", "/a?x")));
        assert_ne!(a, keep.fingerprint(&entry("example.org", "/A?x")));
        assert_ne!(a, keep.fingerprint(&entry("example.org", "/a?y")));
        assert_eq!(
            cut.fingerprint(&entry("", "/a?x")),
            cut.fingerprint(&entry("", "/a")),
            "the query is not part of the fingerprint"
        );
        // The value must not change, because machines that count separately must compute equal fingerprints.
        assert_eq!(
            keep.fingerprint(&entry("", "/index.html")),
            0xaa8f_18ab_73b5_f828
        );
    }
}
