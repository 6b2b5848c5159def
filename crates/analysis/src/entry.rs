//! One request of a log.

use std::fmt;

use edgeward_types::Timestamp;

/// The fields of one request, borrowed from the line. A field that the log does not have is empty or `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry<'l> {
    /// The time of the request by the log's clock.
    pub time: Option<Timestamp>,
    /// The method, for example `GET`.
    pub method: &'l [u8],
    /// The requested host in any letter case, perhaps with a port.
    pub host: &'l [u8],
    /// Path and query. Never empty, because the parsers return no entry for a line without a URL.
    pub url: &'l [u8],
    /// The status, or 0 if the log has no status.
    pub status: u16,
    /// The bytes of the sent body, or of head and body if the log counts the bytes of both.
    pub bytes: Option<u64>,
    /// The media type with its parameters.
    pub media_type: &'l [u8],
    /// How the cache that wrote the log handled the request.
    pub outcome: Option<Outcome>,
    /// The name of the machine that wrote the line, if the line contains it.
    pub machine: &'l [u8],
}

/// The way in which a cache handled a request. Each cache logs a word for it, for example `TCP_MISS`, which
/// [`Outcome::from_word`] maps to one of these values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The cache answered from a stored response, with or without validation.
    Hit,
    /// The cache fetched the response from upstream, and stored it or could have stored it.
    Miss,
    /// The request was not answered by caching: it was passed or piped, or the response was synthesised or an error.
    Pass,
}

impl Outcome {
    /// Parses the word for an outcome in logs of nginx, Varnish, CloudFront, Fastly, Apache Traffic Server and Squid,
    /// or in RFC 9211.
    /// Returns `None` for `-` and for unknown words.
    pub fn from_word(word: &[u8]) -> Option<Self> {
        let starts = |prefix: &[u8]| {
            word.len() >= prefix.len() && word[..prefix.len()].eq_ignore_ascii_case(prefix)
        };
        let has = |part: &[u8]| {
            word.windows(part.len())
                .any(|window| window.eq_ignore_ascii_case(part))
        };
        // The words of passes are checked first, because some of them start with `hit`. `method` and `request` are
        // values of `fwd` in RFC 9211.
        // `only-if-cached`, `id-filter`, `refused` and `rule` are words of this edge for responses that it generates.
        let passes: [&[u8]; 13] = [
            b"hitpass",
            b"hit-for",
            b"hfp",
            b"hfm",
            b"pass",
            b"pipe",
            b"synth",
            b"bypass",
            b"error",
            b"only-if-cached",
            b"id-filter",
            b"refused",
            b"rule",
        ];
        if passes.iter().any(|pass| starts(pass)) || starts(b"method") || starts(b"request") {
            return Some(Self::Pass);
        }
        // nginx serves STALE, UPDATING and REVALIDATED from its cache; so does CloudFront with RefreshHit and
        // Squid with TCP_REFRESH_UNMODIFIED. EXPIRED was fetched again.
        let hits: [&[u8]; 7] = [
            b"hit",
            b"stale-",
            b"updating",
            b"revalidated",
            b"refreshhit",
            b"memory_hit",
            b"originshieldhit",
        ];
        if hits.iter().any(|hit| starts(hit)) || word == b"STALE" {
            return Some(Self::Hit);
        }
        if starts(b"tcp_") || starts(b"udp_") {
            return if has(b"HIT") || has(b"UNMODIFIED") {
                Some(Self::Hit)
            } else if has(b"MISS") || has(b"MODIFIED") {
                Some(Self::Miss)
            } else {
                Some(Self::Pass)
            };
        }
        // `stale` in lower case is a value of `fwd` in RFC 9211: the request was forwarded because the stored
        // response was stale.
        let misses: [&[u8]; 6] = [
            b"miss",
            b"expired",
            b"uri-miss",
            b"vary-miss",
            b"stale",
            b"partial",
        ];
        if misses.iter().any(|miss| starts(miss)) {
            return Some(Self::Miss);
        }
        None
    }
}

/// The reason why a line is malformed: a field is missing or invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedLine {
    /// The name of the field.
    pub field: &'static str,
    /// The expected content, or `None` if the field is missing.
    pub expected: Option<&'static str>,
}

impl MalformedLine {
    /// Returns the error for a line without this field.
    pub(crate) const fn missing(field: &'static str) -> Self {
        Self {
            field,
            expected: None,
        }
    }

    /// Returns the error for a field that does not have the expected content.
    pub(crate) const fn not(field: &'static str, expected: &'static str) -> Self {
        Self {
            field,
            expected: Some(expected),
        }
    }
}

impl fmt::Display for MalformedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.expected {
            None => write!(f, "no {}", self.field),
            Some(expected) => write!(f, "{} is not {expected}", self.field),
        }
    }
}

impl std::error::Error for MalformedLine {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_every_cache_mean_hit_miss_or_pass() {
        for (outcome, words) in [
            (
                Some(Outcome::Hit),
                "HIT hit hit-stale STALE UPDATING REVALIDATED Hit RefreshHit OriginShieldHit HIT-STALE \
                 HIT-CLUSTER TCP_HIT TCP_MEM_HIT TCP_REFRESH_UNMODIFIED TCP_HIT/200",
            ),
            (
                Some(Outcome::Miss),
                "MISS miss EXPIRED Miss MISS-CLUSTER uri-miss vary-miss stale partial TCP_MISS \
                 TCP_REFRESH_MODIFIED",
            ),
            (
                Some(Outcome::Pass),
                "PASS pass pipe synth BYPASS bypass Error hitpass hit-for-pass method request \
                 TCP_DENIED only-if-cached id-filter refused rule",
            ),
            (None, "- none x Redirect"),
        ] {
            for word in words.split_ascii_whitespace() {
                assert_eq!(Outcome::from_word(word.as_bytes()), outcome, "{word}");
            }
        }
        assert_eq!(Outcome::from_word(b""), None);
    }
}
