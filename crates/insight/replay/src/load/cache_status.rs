//! Parses how the cache handled a request, from `Cache-Status` (RFC 9211).

use http::HeaderMap;
use http::header::HeaderName;
use serde::{Deserialize, Serialize};

/// How the cache nearest to the client handled the request. This cache is usually the target of the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Served from the cache: `hit`.
    Hit,
    /// Served from the cache after its freshness lifetime: `hit` with a negative `ttl`.
    Stale,
    /// The origin validated the stored response: `fwd-status=304`, and `fwd` is neither `bypass` nor `method`.
    Revalidated,
    /// Shared the fetch of another request: `collapsed`.
    Collapsed,
    /// Fetched from the origin: any other `fwd`.
    Miss,
    /// Forwarded without using the cache: `fwd=bypass` or `fwd=method`.
    Pass,
    /// The response has neither a usable `Cache-Status` nor a usable `X-Cache`.
    Unknown,
}

impl Class {
    /// All classes, in the order of the report.
    pub const ALL: [Self; 7] = [
        Self::Hit,
        Self::Stale,
        Self::Revalidated,
        Self::Collapsed,
        Self::Miss,
        Self::Pass,
        Self::Unknown,
    ];

    /// Returns the name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::Revalidated => "revalidated",
            Self::Collapsed => "collapsed",
            Self::Miss => "miss",
            Self::Pass => "pass",
            Self::Unknown => "unknown",
        }
    }

    /// Returns true if the response was served without a request to the origin. Hit ratios count these classes.
    pub const fn is_hit(self) -> bool {
        matches!(self, Self::Hit | Self::Stale)
    }

    /// Returns the class from `Cache-Status`. If this field has no class, uses `X-Cache`, which many caches
    /// without RFC 9211 send.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        if let Some(status) = CacheStatus::from_headers(headers) {
            return status.class;
        }
        let x_cache = headers.get(&X_CACHE).and_then(|value| value.to_str().ok());
        match x_cache.and_then(|value| value.split([' ', ',', '_', '-']).next()) {
            Some(word) if word.eq_ignore_ascii_case("hit") => Self::Hit,
            Some(word) if word.eq_ignore_ascii_case("miss") => Self::Miss,
            _ => Self::Unknown,
        }
    }
}

/// The parameters of a `Cache-Status` member that the nearest cache has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheStatus {
    pub(crate) class: Class,
    /// True if the request was forwarded because the stored response was stale.
    pub(crate) is_expired: bool,
    /// The remaining freshness lifetime.
    pub(crate) ttl_seconds: Option<i64>,
    /// True if the response was stored.
    pub(crate) is_stored: bool,
    /// The reason or the error, or an empty text.
    pub(crate) detail: String,
}

impl CacheStatus {
    /// Parses the last member of `Cache-Status`. Returns `None` if it states no class.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        // RFC 9211, section 2: each cache appends its member, so the last member is from the nearest cache.
        let last = headers.get_all(&CACHE_STATUS).iter().next_back()?;
        Self::of_last_member(last.to_str().ok()?)
    }

    fn of_last_member(line: &str) -> Option<Self> {
        let member = split_outside_strings(line, b',').last()?;
        let (mut hit, mut collapsed, mut is_stored) = (false, false, false);
        let (mut forward, mut forward_status, mut ttl_seconds) = (None, None, None);
        let mut detail = "";
        for parameter in split_outside_strings(member, b';').skip(1) {
            // RFC 8941, section 3.1.2: no whitespace around `=`; a parameter without a value is true.
            let (name, value) = parameter
                .split_once('=')
                .map_or((parameter, "?1"), |(name, value)| (name, value));
            match name {
                "hit" => hit = value == "?1",
                "collapsed" => collapsed = value == "?1",
                "stored" => is_stored = value == "?1",
                "fwd" => forward = Some(value),
                "fwd-status" => forward_status = Some(value),
                "ttl" => ttl_seconds = value.parse().ok(),
                "detail" => detail = value.trim_matches('"'),
                _ => {}
            }
        }
        let class = match forward {
            _ if hit && ttl_seconds.is_some_and(|ttl: i64| ttl < 0) => Class::Stale,
            _ if hit => Class::Hit,
            _ if collapsed => Class::Collapsed,
            Some("bypass" | "method") => Class::Pass,
            Some(_) if forward_status == Some("304") => Class::Revalidated,
            Some(_) => Class::Miss,
            None => return None,
        };
        Some(Self {
            class,
            is_expired: forward == Some("stale"),
            ttl_seconds,
            is_stored,
            detail: detail.to_owned(),
        })
    }
}

/// Splits a text at the separators outside quoted strings, and trims the parts.
fn split_outside_strings(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let (mut quoted, mut escaped) = (false, false);
        let end = text.bytes().position(|byte| {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                _ => return byte == separator && !quoted,
            }
            false
        });
        let part = match end {
            Some(end) => {
                // The separator is ASCII, so both parts are valid UTF-8.
                rest = Some(&text[end + 1..]);
                &text[..end]
            }
            None => {
                rest = None;
                text
            }
        };
        Some(part.trim_matches([' ', '\t']))
    })
}

const CACHE_STATUS: HeaderName = http::header::CACHE_STATUS;
const X_CACHE: HeaderName = HeaderName::from_static("x-cache");

#[cfg(test)]
mod tests {
    use super::*;

    fn class(lines: &[(&'static str, &'static str)]) -> Class {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().expect("the header value is valid"));
        }
        Class::from_headers(&headers)
    }

    /// The lines are the examples of RFC 9211, section 3, and further edge cases.
    #[test]
    fn each_cache_status_has_its_class() {
        for (line, expected) in [
            ("ExampleCache; hit", Class::Hit),
            ("ExampleCache; hit; ttl=376", Class::Hit),
            ("ExampleCache;hit;ttl=-412", Class::Stale),
            ("ExampleCache; hit=?0; fwd=miss", Class::Miss),
            ("ExampleCache; fwd=uri-miss", Class::Miss),
            ("ExampleCache; fwd=uri-miss; stored", Class::Miss),
            ("ExampleCache; fwd=uri-miss; collapsed", Class::Collapsed),
            ("ExampleCache; fwd=uri-miss; collapsed=?0", Class::Miss),
            (
                "ExampleCache; fwd=stale; fwd-status=304",
                Class::Revalidated,
            ),
            ("ExampleCache; fwd=stale; fwd-status=200", Class::Miss),
            (
                "ExampleCache; fwd=request; fwd-status=304",
                Class::Revalidated,
            ),
            ("ExampleCache; fwd=partial; fwd-status=206", Class::Miss),
            ("ExampleCache; fwd=bypass", Class::Pass),
            ("ExampleCache; fwd=method", Class::Pass),
            (
                "OriginCache; hit; ttl=1100, \"CDN, Company\"; fwd=uri-miss",
                Class::Miss,
            ),
            (
                "Origin; fwd=miss, Edge; hit; detail=\"fwd=miss, no\\\"; x\"",
                Class::Hit,
            ),
            ("ExampleCache", Class::Unknown),
            ("", Class::Unknown),
        ] {
            assert_eq!(class(&[("cache-status", line)]), expected, "{line}");
        }
    }

    #[test]
    fn the_parameters_of_the_last_member_are_parsed() {
        let status = |line| CacheStatus::of_last_member(line).expect("the member has a class");
        let hit = status("edgeward; hit; ttl=376");
        assert_eq!((hit.class, hit.ttl_seconds), (Class::Hit, Some(376)));
        let stored = status("o; hit, edgeward; fwd=uri-miss; fwd-status=200; stored");
        assert_eq!((stored.class, stored.is_stored), (Class::Miss, true));
        let refused = status("edgeward; fwd=stale; fwd-status=200; detail=\"no-store\"");
        assert!(refused.is_expired && !refused.is_stored);
        assert_eq!(refused.detail, "no-store");
    }

    #[test]
    fn the_last_line_is_from_the_nearest_cache() {
        let lines = [
            ("cache-status", "Far; hit"),
            ("cache-status", "Near; fwd=miss"),
        ];
        assert_eq!(class(&lines), Class::Miss);
    }

    #[test]
    fn x_cache_is_used_without_a_cache_status() {
        assert_eq!(class(&[("x-cache", "HIT")]), Class::Hit);
        assert_eq!(class(&[("x-cache", "MISS from squid")]), Class::Miss);
        assert_eq!(class(&[("x-cache", "Hit-Front")]), Class::Hit);
        assert_eq!(class(&[("x-cache", "HITCHED")]), Class::Unknown);
        let both = [("x-cache", "HIT"), ("cache-status", "c; fwd=miss")];
        assert_eq!(class(&both), Class::Miss);
        assert_eq!(class(&[]), Class::Unknown);
    }
}
