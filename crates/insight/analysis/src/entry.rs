//! One request of a log.

use std::fmt;
use std::time::Duration;

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
    /// The text of the outcome, which says more than the outcome: `EXPIRED` and `MISS` are both misses.
    pub outcome_text: &'l [u8],
    /// The name of the machine that wrote the line, if the line contains it.
    pub machine: &'l [u8],
    /// The time from the request to the end of the response.
    pub duration: Option<Duration>,
}

/// The way in which a cache handled a request. Each cache logs a word for it, for example `TCP_MISS`, which
/// [`Outcome::from_text`] maps to one of these values.
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
    /// Parses the text by which a cache states an outcome: a word of nginx, Varnish, CloudFront, Cloudflare, Fastly,
    /// Akamai, Azure Front Door, Apache Traffic Server or Squid, a Boolean (1 or true is a hit), or the value of a
    /// field `X-Cache` or `Cache-Status` (RFC 9211).
    ///
    /// If several caches have added their words to a list, the word of the cache nearest to the client counts. In
    /// `Cache-Status` and `X-Cache` that is the last member (RFC 9211, section 2). Akamai lists the caches in the other
    /// order and names the nearest one `child`.
    ///
    /// Returns `None` if the text states no outcome: `-`, or a word such as `none` and `Redirect`.
    ///
    /// # Errors
    ///
    /// Fails if the text is not of a cache. The value may belong to another field.
    pub fn from_text(text: &[u8]) -> Result<Option<Self>, UnknownOutcome> {
        let text = text.trim_ascii();
        // Most logs have one of these words.
        match text {
            b"HIT" | b"hit" | b"Hit" | b"TCP_HIT" => return Ok(Some(Self::Hit)),
            b"MISS" | b"miss" | b"Miss" | b"TCP_MISS" | b"uri-miss" | b"EXPIRED" => {
                return Ok(Some(Self::Miss));
            }
            b"PASS" | b"pass" | b"BYPASS" | b"bypass" => return Ok(Some(Self::Pass)),
            b"-" => return Ok(None),
            _ => {}
        }
        if let Some(outcome) = Self::from_word(text) {
            return Ok(outcome);
        }
        let mut nearest = None;
        for member in members(text) {
            if member.is_empty() {
                continue;
            }
            nearest = Some(Self::from_member(member)?);
            if member.ends_with(b" from child") {
                break;
            }
        }
        nearest.ok_or(UnknownOutcome)
    }

    /// Parses a member of a list: `WORD`, `WORD from HOST`, `HOST WORD`, or a cache with parameters (RFC 9211).
    fn from_member(member: &[u8]) -> Result<Option<Self>, UnknownOutcome> {
        if let Some((_, parameters)) = split_once(member, b';') {
            return Ok(Self::from_parameters(parameters));
        }
        let (first, rest) = split_once(member, b' ').unwrap_or((member, b""));
        if let Some(outcome) = Self::from_word(first) {
            let is_word = rest.is_empty() || rest.starts_with(b"from ");
            return is_word.then_some(outcome).ok_or(UnknownOutcome);
        }
        // Varnish at Wikimedia: `cp1 hit/3`.
        let is_name = first.first().is_some_and(u8::is_ascii_alphabetic);
        match Self::from_word(rest) {
            Some(outcome) if is_name && !rest.is_empty() => Ok(outcome),
            _ => Err(UnknownOutcome),
        }
    }

    /// Returns the outcome that the parameters of a member of `Cache-Status` state.
    fn from_parameters(parameters: &[u8]) -> Option<Self> {
        let mut outcome = None;
        let mut revalidated = false;
        for parameter in parameters.split(|byte| *byte == b';') {
            let (name, value) = split_once(parameter, b'=').unwrap_or((parameter, b""));
            match (name.trim_ascii(), value.trim_ascii()) {
                (b"hit", b"" | b"?1") => return Some(Self::Hit),
                (b"fwd", word) => outcome = Self::from_word(word).flatten(),
                (b"fwd-status", b"304") => revalidated = true,
                _ => {}
            }
        }
        // As in the logs of nginx, a response that the origin confirmed by 304 is a hit.
        match outcome {
            Some(Self::Miss) if revalidated => Some(Self::Hit),
            outcome => outcome,
        }
    }

    /// Parses one word. Returns `Some(None)` for a known word that states no outcome, and `None` for an unknown word.
    fn from_word(word: &[u8]) -> Option<Option<Self>> {
        // A known word may be followed by details, as in `HIT-CLUSTER`, `hit/3` and `TCP_HIT/200`.
        let starts = |prefix: &&str| {
            let prefix = prefix.as_bytes();
            word.len() >= prefix.len()
                && word[..prefix.len()].eq_ignore_ascii_case(prefix)
                && !word
                    .get(prefix.len())
                    .is_some_and(u8::is_ascii_alphanumeric)
        };
        let has = |part: &[u8]| {
            word.windows(part.len())
                .any(|window| window.eq_ignore_ascii_case(part))
        };
        if word.contains(&b' ') || word.contains(&b',') || word.contains(&b';') {
            return None;
        }
        match word {
            b"-" => return Some(None),
            b"STALE" | b"1" => return Some(Some(Self::Hit)),
            b"0" => return Some(Some(Self::Miss)),
            _ => {}
        }
        if PASSES.iter().any(starts) {
            return Some(Some(Self::Pass));
        }
        if NO_OUTCOME.iter().any(starts) {
            return Some(None);
        }
        if HITS.iter().any(starts) || has(b"stale-") {
            return Some(Some(Self::Hit));
        }
        if MISSES.iter().any(starts) {
            return Some(Some(Self::Miss));
        }
        let is_squid = |prefix: &[u8]| word.len() > 4 && word[..4].eq_ignore_ascii_case(prefix);
        if is_squid(b"tcp_") || is_squid(b"udp_") {
            return Some(Some(if has(b"HIT") || has(b"UNMODIFIED") {
                Self::Hit
            } else if has(b"MISS") || has(b"MODIFIED") {
                Self::Miss
            } else {
                Self::Pass
            }));
        }
        is_squid(b"err_").then_some(Some(Self::Pass))
    }
}

/// The text does not state an outcome of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownOutcome;

/// Splits a list at the commas that are not within quotes.
fn members(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    list.split(move |byte| {
        quoted ^= *byte == b'"';
        *byte == b',' && !quoted
    })
    .map(<[u8]>::trim_ascii)
}

fn split_once(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(separator, text)?;
    Some((&text[..at], &text[at + 1..]))
}

/// Words of logs that state neither a hit nor a miss nor a pass: the request did not reach the cache.
const NO_OUTCOME: [&str; 12] = [
    "none",
    "unknown",
    "n/a",
    "redirect",
    "constructed",
    "tag_none",
    "limitexceeded",
    "capacityexceeded",
    "functiongeneratedresponse",
    "lambdageneratedresponse",
    "deliver",
    "log",
];

/// Words of requests that were not answered by caching. `method` and `request` are values of `fwd` in RFC 9211.
/// `only-if-cached`, `id-filter`, `refused` and `rule` are words of this edge for responses that it generates.
const PASSES: [&str; 36] = [
    "hitpass",
    "hitmiss",
    "hit-for-pass",
    "hit-for-miss",
    "hfp",
    "hfm",
    "pass",
    "pipe",
    "synth",
    "hit-synth",
    "bypass",
    "error",
    "bg-error",
    "only-if-cached",
    "id-filter",
    "refused",
    "rule",
    "method",
    "request",
    "dynamic",
    "ignored",
    "uncacheable",
    "notcacheable",
    "none_none",
    "cache_noconfig",
    "config_nocache",
    "private_nostore",
    "functionexecutionerror",
    "functionthrottlederror",
    "lambdaexecutionerror",
    "lambdathrottlederror",
    "lambdavalidationerror",
    "lambdalimitexceeded",
    "originerror",
    "clientcommerror",
    "abortedorigin",
];

/// nginx serves STALE, UPDATING and REVALIDATED from its cache; so does CloudFront with RefreshHit and Squid with
/// TCP_REFRESH_UNMODIFIED.
const HITS: [&str; 11] = [
    "hit",
    "hitstale",
    "updating",
    "revalidated",
    "refreshhit",
    "memory_hit",
    "originshieldhit",
    "remote_hit",
    "partial_hit",
    "stream_hit",
    "true",
];

/// EXPIRED was fetched again. `stale` in lower case is a value of `fwd` in RFC 9211: the request was forwarded because
/// the stored response was stale.
const MISSES: [&str; 9] = [
    "miss",
    "expired",
    "scarce",
    "uri-miss",
    "vary-miss",
    "stale",
    "partial",
    "deferred",
    "false",
];

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
                 HIT-CLUSTER TCP_HIT TCP_MEM_HIT TCP_REFRESH_UNMODIFIED TCP_HIT/200 TCP_HIT/HIT/- hit/3 1 true \
                 REMOTE_HIT PARTIAL_HIT HitStale TCP_REMOTE_HIT",
            ),
            (
                Some(Outcome::Miss),
                "MISS miss EXPIRED Miss MISS-CLUSTER uri-miss vary-miss stale partial TCP_MISS \
                 TCP_REFRESH_MODIFIED TCP_MISS_ABORTED SCARCE 0 false",
            ),
            (
                Some(Outcome::Pass),
                "PASS pass pipe synth BYPASS bypass Error hitpass hitmiss hit-for-pass method request \
                 TCP_DENIED ERR_CLIENT_ABORT NONE_NONE only-if-cached id-filter refused rule dynamic CACHE_NOCONFIG",
            ),
            (None, "- none Redirect N/A LambdaGeneratedResponse TAG_NONE"),
        ] {
            for word in words.split_ascii_whitespace() {
                assert_eq!(Outcome::from_text(word.as_bytes()), Ok(outcome), "{word}");
            }
        }
    }

    #[test]
    fn the_cache_nearest_to_the_client_states_the_outcome() {
        for (list, outcome) in [
            ("HIT, MISS", Some(Outcome::Miss)),
            ("MISS, HIT", Some(Outcome::Hit)),
            ("Hit from cloudfront", Some(Outcome::Hit)),
            (
                "MISS from proxy.example, HIT from edge.example",
                Some(Outcome::Hit),
            ),
            ("cp1 miss, cp2 hit/3", Some(Outcome::Hit)),
            ("Miss from child, Hit from parent", Some(Outcome::Miss)),
            ("edge; hit; ttl=100", Some(Outcome::Hit)),
            (
                "origin; hit, edge; fwd=uri-miss; stored",
                Some(Outcome::Miss),
            ),
            ("edge; fwd=stale; fwd-status=304", Some(Outcome::Hit)),
            ("edge; fwd=stale; fwd-status=200", Some(Outcome::Miss)),
            ("edge; fwd=bypass; detail=\"a, b\"", Some(Outcome::Pass)),
            ("\"a, b\"; hit", Some(Outcome::Hit)),
            ("edge; ttl=5", None),
        ] {
            assert_eq!(Outcome::from_text(list.as_bytes()), Ok(outcome), "{list}");
        }
    }

    #[test]
    fn a_text_of_another_field_is_not_an_outcome() {
        for text in [
            "",
            "x",
            "hitchhiker",
            "200",
            "2904",
            "GET",
            "/a",
            "192.0.2.1",
            "9307 192.0.2.10 TCP_MISS",
            "9307 TCP_MISS",
            "HIT /a",
            "HIT, x",
            "Mozilla/5.0 (X11)",
            ",",
        ] {
            assert_eq!(
                Outcome::from_text(text.as_bytes()),
                Err(UnknownOutcome),
                "{text}"
            );
        }
    }
}
