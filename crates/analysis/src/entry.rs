//! One request as a log tells it.

use std::fmt;

use edgeward_types::Timestamp;

/// What a line says of a request. Fields lie where they were found; what the log does not tell is
/// empty or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry<'l> {
    /// When, by the log's own clock.
    pub time: Option<Timestamp>,
    /// `GET` and the like.
    pub method: &'l [u8],
    /// The host asked for, in any case, perhaps with a port.
    pub host: &'l [u8],
    /// Path and query. Never empty.
    pub url: &'l [u8],
    /// The status, or 0.
    pub status: u16,
    /// Bytes of the body sent, or of the whole response where the log counts those.
    pub bytes: Option<u64>,
    /// The media type, parameters included.
    pub media_type: &'l [u8],
    /// What the cache that wrote the log did.
    pub outcome: Option<Outcome>,
    /// Who wrote the line, where the log itself tells.
    pub machine: &'l [u8],
}

/// What a cache did with a request, as far as logs of different makes agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Answered from what was stored, validated or not.
    Hit,
    /// Asked for upstream, and stored or storable.
    Miss,
    /// Not a matter for the cache: passed, piped, synthesised, an error.
    Pass,
}

impl Outcome {
    /// By the words of nginx, Varnish, CloudFront, Fastly, Apache Traffic Server, Squid and
    /// RFC 9211; nothing for `-` and for words of nobody.
    pub fn of(word: &[u8]) -> Option<Self> {
        let starts = |prefix: &[u8]| {
            word.len() >= prefix.len() && word[..prefix.len()].eq_ignore_ascii_case(prefix)
        };
        let has = |part: &[u8]| {
            word.windows(part.len())
                .any(|window| window.eq_ignore_ascii_case(part))
        };
        // What begins like a hit and is none, or has a hit's name within, comes first.
        let passes: [&[u8]; 9] = [
            b"hitpass", b"hit-for", b"hfp", b"hfm", b"pass", b"pipe", b"synth", b"bypass", b"error",
        ];
        if passes.iter().any(|pass| starts(pass)) || starts(b"method") || starts(b"request") {
            return Some(Self::Pass);
        }
        // nginx serves STALE, UPDATING and REVALIDATED from what it has; CloudFront's RefreshHit
        // and Squid's TCP_REFRESH_UNMODIFIED too. EXPIRED was fetched anew.
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
        // `stale` in small letters is RFC 9211's reason to go forward.
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

/// Why a line is no request: a field that is not there, or does not hold what it must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Which field.
    pub field: &'static str,
    /// What it should hold; nothing if it is missing.
    pub expected: Option<&'static str>,
}

impl Malformed {
    pub(crate) const fn missing(field: &'static str) -> Self {
        Self {
            field,
            expected: None,
        }
    }

    pub(crate) const fn not(field: &'static str, expected: &'static str) -> Self {
        Self {
            field,
            expected: Some(expected),
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.expected {
            None => write!(f, "no {}", self.field),
            Some(expected) => write!(f, "{} is not {expected}", self.field),
        }
    }
}

impl std::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_every_cache_mean_hit_miss_or_pass() {
        for (outcome, words) in [
            (
                Some(Outcome::Hit),
                "HIT hit STALE UPDATING REVALIDATED Hit RefreshHit OriginShieldHit HIT-STALE \
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
                 TCP_DENIED",
            ),
            (None, "- none x Redirect"),
        ] {
            for word in words.split_ascii_whitespace() {
                assert_eq!(Outcome::of(word.as_bytes()), outcome, "{word}");
            }
        }
        assert_eq!(Outcome::of(b""), None);
    }
}
