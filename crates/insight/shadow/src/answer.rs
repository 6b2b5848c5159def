//! The answers of the two caches to one request.

use std::time::Duration;

use edgeward_analysis::Outcome;

use crate::request::Request;

/// How a cache served an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A stored response that was fresh.
    Hit,
    /// A stored response that may have been stale. The cache may refresh it in the background, which no answer shows.
    StaleHit,
    /// A stored response that the origin has confirmed.
    Revalidated,
    /// Fetched from the origin, because the stored response had expired.
    Expired,
    /// Fetched from the origin, because the cache had no response.
    Miss,
    /// The cache neither looked for a response nor stored one.
    Pass,
}

impl Verdict {
    /// Parses the word of a log or of a response field, as [`Outcome::from_text`] does. Returns `None` if the text
    /// states no verdict.
    ///
    /// Only `HIT` and a `hit` of RFC 9211 without a negative `ttl` state that the response was fresh. A `hit` of
    /// Varnish may be within the grace period.
    pub fn from_text(text: &[u8]) -> Option<Self> {
        let text = text.trim_ascii();
        let has = |part: &[u8]| {
            let mut windows = text.windows(part.len());
            windows.any(|window| window.eq_ignore_ascii_case(part))
        };
        Some(match Outcome::from_text(text).ok()?? {
            Outcome::Hit if has(b"reval") || has(b"unmodified") || has(b"refreshhit") => {
                Self::Revalidated
            }
            Outcome::Hit if has(b"fwd-status=304") => Self::Revalidated,
            Outcome::Hit if text == b"HIT" => Self::Hit,
            Outcome::Hit if has(b"; hit") && !has(b"ttl=-") => Self::Hit,
            Outcome::Hit => Self::StaleHit,
            Outcome::Miss if has(b"expired") || has(b"stale") => Self::Expired,
            Outcome::Miss => Self::Miss,
            Outcome::Pass => Self::Pass,
        })
    }

    /// Returns true if the answer was a stored response.
    pub const fn is_hit(self) -> bool {
        matches!(self, Self::Hit | Self::StaleHit | Self::Revalidated)
    }

    /// Returns true if the cache got a new or confirmed response from the origin.
    pub const fn is_fetch(self) -> bool {
        matches!(self, Self::Revalidated | Self::Expired | Self::Miss)
    }

    /// Returns the name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::StaleHit => "stale",
            Self::Revalidated => "revalidated",
            Self::Expired => "expired",
            Self::Miss => "miss",
            Self::Pass => "pass",
        }
    }
}

/// The answer of one cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The time of the answer by the clock of its source, since any start. Times of a log are not compared with times
    /// of this process.
    pub at: Duration,
    /// The status.
    pub status: u16,
    /// The length of the body as it was sent, if it is known.
    pub bytes: Option<u64>,
    /// How the cache served the answer, if it states it.
    pub verdict: Option<Verdict>,
    /// The remaining freshness lifetime that the cache states (`ttl` of RFC 9211).
    pub ttl_seconds: Option<i64>,
    /// True if the cache states that it has stored the response (`stored` of RFC 9211).
    pub is_stored: bool,
    /// The reason that the cache states (`detail` of RFC 9211), or an empty text.
    pub detail: String,
    /// The time from the request to the end of the answer.
    pub latency: Option<Duration>,
    /// The head and the hash of the body. `None` for an answer that is known from a log alone.
    pub head: Option<Head>,
}

impl Answer {
    /// Returns the value of a field of the head. Returns `None` if the head is unknown or lacks the field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.as_ref()?.field(name)
    }
}

/// The head of an answer, and the hash of its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The fields with names in lower case. Several lines of one field are joined by `, `; those of `set-cookie` are
    /// separate.
    pub fields: Vec<(String, String)>,
    /// The hash of the body without its content coding. `None` if the body has no hash: it was cut short, it is longer
    /// than the limit, or its coding is unknown.
    pub body_hash: Option<u128>,
}

impl Head {
    /// Returns the value of the first field with this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(known, _)| known == name);
        found.map(|(_, value)| &value[..])
    }
}

/// One request with the answers of both caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The request that both caches got.
    pub request: Request,
    /// The answer that the incumbent gave to its client, as its log states it.
    pub logged: Option<Answer>,
    /// The answer of the incumbent to the same request of the shadow.
    pub asked: Option<Answer>,
    /// The answer of the edge under test.
    pub edge: Answer,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_of_a_log_has_its_verdict() {
        for (word, verdict) in [
            ("HIT", Some(Verdict::Hit)),
            ("hit", Some(Verdict::StaleHit)),
            ("STALE", Some(Verdict::StaleHit)),
            ("UPDATING", Some(Verdict::StaleHit)),
            ("REVALIDATED", Some(Verdict::Revalidated)),
            ("TCP_REFRESH_UNMODIFIED", Some(Verdict::Revalidated)),
            ("EXPIRED", Some(Verdict::Expired)),
            ("MISS", Some(Verdict::Miss)),
            ("miss", Some(Verdict::Miss)),
            ("BYPASS", Some(Verdict::Pass)),
            ("edge; hit; ttl=20", Some(Verdict::Hit)),
            ("edge; hit; ttl=-3", Some(Verdict::StaleHit)),
            ("edge; fwd=stale; fwd-status=200", Some(Verdict::Expired)),
            (
                "edge; fwd=stale; fwd-status=304",
                Some(Verdict::Revalidated),
            ),
            ("edge; fwd=uri-miss; stored", Some(Verdict::Miss)),
            ("-", None),
            ("Mozilla/5.0", None),
        ] {
            assert_eq!(Verdict::from_text(word.as_bytes()), verdict, "{word}");
        }
    }
}
