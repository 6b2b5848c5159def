//! The freshness lifetime of a response (RFC 9111 §4.2.1 and §4.2.2).

use edgeward_types::Timestamp;
use http::StatusCode;
use http::header::{DATE, EXPIRES, HeaderMap, LAST_MODIFIED};

use crate::cache_control::ResponseDirectives;
use crate::date::{date_field, parse_http_date};
use crate::rules::{Heuristic, Rules};

/// A freshness lifetime and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The lifetime in milliseconds. It begins when the response is generated, or, if the operator states it, when the
    /// response arrives ([`LifetimeSource::begins_at_arrival`]).
    pub millis: u64,
    /// The field or rule that gave the lifetime.
    pub source: LifetimeSource,
}

/// The sources of a lifetime, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifetimeSource {
    /// A lifetime of the operator that replaces the one of the response ([`Lifetimes::replacing`](crate::Lifetimes::replacing)).
    Replaced,
    /// `s-maxage`, for shared caches only.
    SMaxage,
    /// `max-age`.
    MaxAge,
    /// `Expires` minus `Date`.
    Expires,
    /// A lifetime of the operator for responses that state none ([`Lifetimes::unstated`](crate::Lifetimes::unstated)).
    Unstated,
    /// An estimate by [`Heuristic`].
    Heuristic,
    /// No source: the response is stale from the start.
    Nothing,
}

impl LifetimeSource {
    /// Returns true if the origin or the operator stated the lifetime.
    pub const fn is_explicit(self) -> bool {
        !matches!(self, Self::Heuristic | Self::Nothing)
    }

    /// Returns true if the operator stated the lifetime. It begins when the response arrives, because the operator
    /// chose it for this cache, and it must depend neither on caches before this one nor on the clock of the origin.
    pub const fn begins_at_arrival(self) -> bool {
        matches!(self, Self::Replaced | Self::Unstated)
    }
}

impl Lifetime {
    /// Returns the first of `s-maxage`, `max-age` and `Expires` that is present. Otherwise returns the heuristic
    /// lifetime if `rules` and the response permit it, or else zero. `Expires` is ignored if a targeted field gave
    /// `directives`. `response_date`, the wall time of the arrival, replaces a missing or invalid `Date`.
    pub fn compute(
        rules: &Rules,
        status: StatusCode,
        directives: &ResponseDirectives,
        response: &HeaderMap,
        response_date: Timestamp,
    ) -> Self {
        let from_secs = |secs: u32, source| Self {
            millis: u64::from(secs) * 1000,
            source,
        };
        if let Some(secs) = rules.replacing_lifetime(status) {
            return from_secs(secs, LifetimeSource::Replaced);
        }
        if let Some(secs) = directives.s_maxage {
            return from_secs(secs, LifetimeSource::SMaxage);
        }
        if let Some(secs) = directives.max_age {
            return from_secs(secs, LifetimeSource::MaxAge);
        }
        let date = date_field(response, &DATE).unwrap_or(response_date);
        if !directives.is_targeted && response.contains_key(EXPIRES) {
            return Self {
                millis: expires_after_ms(response, date),
                source: LifetimeSource::Expires,
            };
        }
        if let Some(secs) = rules.unstated_lifetime(status) {
            return from_secs(secs, LifetimeSource::Unstated);
        }
        // §4.2.2: the heuristic applies only without an explicit lifetime, and only to heuristically cacheable
        // statuses or with `public`.
        match rules.heuristic {
            Some(heuristic) if is_heuristically_cacheable(status) || directives.public => Self {
                millis: heuristic_ms(heuristic, response, date),
                source: LifetimeSource::Heuristic,
            },
            _ => Self {
                millis: 0,
                source: LifetimeSource::Nothing,
            },
        }
    }
}

/// Returns true for statuses that may be reused without an explicit lifetime (RFC 9110 §15.1).
pub const fn is_heuristically_cacheable(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501
    )
}

/// Returns `Expires` minus `Date`. An invalid `Expires`, in particular `0`, is in the past (§5.3). If there are
/// several `Expires` lines, the earliest date counts (§4.2.1).
fn expires_after_ms(response: &HeaderMap, date: Timestamp) -> u64 {
    response
        .get_all(EXPIRES)
        .into_iter()
        .map(|line| {
            parse_http_date(line.as_bytes()).map_or(0, |expires| {
                expires
                    .as_secs()
                    .saturating_sub(date.as_secs())
                    .saturating_mul(1000)
            })
        })
        .min()
        .unwrap_or(0)
}

fn heuristic_ms(heuristic: Heuristic, response: &HeaderMap, date: Timestamp) -> u64 {
    let lifetime_max_ms = u64::try_from(heuristic.lifetime_max.as_millis()).unwrap_or(u64::MAX);
    let lifetime_ms = match date_field(response, &LAST_MODIFIED) {
        Some(modified) => {
            let unchanged_secs = date.as_secs().saturating_sub(modified.as_secs());
            // seconds * percent / 100, in milliseconds: * 1000 / 100 = * 10.
            unchanged_secs
                .saturating_mul(u64::from(heuristic.percent))
                .saturating_mul(10)
        }
        None => u64::try_from(heuristic.without_last_modified.as_millis()).unwrap_or(u64::MAX),
    };
    lifetime_ms.min(lifetime_max_ms)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::headers;

    /// 1994-11-06T08:49:37Z.
    const NOW: Timestamp = Timestamp::from_secs(784_111_777);

    fn lifetime(rules: &Rules, status: u16, lines: &str) -> (u64, LifetimeSource) {
        let response = headers(lines);
        let directives = ResponseDirectives::from_headers(&response);
        let status = StatusCode::from_u16(status).expect("the status is valid");
        let lifetime = Lifetime::compute(rules, status, &directives, &response, NOW);
        (lifetime.millis, lifetime.source)
    }

    const DATE_NOW: &str = "date: Sun, 06 Nov 1994 08:49:37 GMT";
    const EXPIRES_IN_60: &str = "expires: Sun, 06 Nov 1994 08:50:37 GMT";

    /// §4.2.1: the first source that is present counts.
    #[test]
    fn s_maxage_precedes_max_age_and_max_age_precedes_expires() {
        use LifetimeSource::{Expires, MaxAge, Nothing, SMaxage};
        let table = [
            ("cache-control: s-maxage=5, max-age=10", 5_000, SMaxage),
            ("cache-control: max-age=10", 10_000, MaxAge),
            ("cache-control: max-age=10\n{expires}", 10_000, MaxAge),
            ("cache-control: max-age=x\n{expires}", 0, MaxAge),
            ("cache-control: s-maxage=x, max-age=10", 0, SMaxage),
            ("{date}\n{expires}", 60_000, Expires),
            ("{expires}", 60_000, Expires),
            (
                "date: Sun, 06 Nov 1994 08:50:07 GMT\n{expires}",
                30_000,
                Expires,
            ),
            ("date: never\n{expires}", 60_000, Expires),
            ("{date}\nexpires: Sun, 06 Nov 1994 08:49:37 GMT", 0, Expires),
            ("{date}\nexpires: Sun, 06 Nov 1994 08:49:36 GMT", 0, Expires),
            ("{date}\nexpires: 0", 0, Expires),
            ("{date}\nexpires: -1", 0, Expires),
            ("{date}\n{expires}\nexpires: 0", 0, Expires),
            (
                "{date}\nexpires: Sun, 06 Nov 1994 09:49:37 GMT\n{expires}",
                60_000,
                Expires,
            ),
            (
                "{date}\nlast-modified: Sun, 06 Nov 1994 08:49:00 GMT",
                0,
                Nothing,
            ),
            // RFC 9213 §2.2: a targeted field replaces both fields.
            ("cdn-cache-control: max-age=5\n{expires}", 5_000, MaxAge),
            ("cdn-cache-control: public\n{expires}", 0, Nothing),
            (
                "cdn-cache-control: public\ncache-control: max-age=5",
                0,
                Nothing,
            ),
        ];
        for (lines, millis, source) in table {
            let lines = lines
                .replace("{date}", DATE_NOW)
                .replace("{expires}", EXPIRES_IN_60);
            assert_eq!(
                lifetime(&Rules::default(), 200, &lines),
                (millis, source),
                "{lines}"
            );
        }
    }

    /// §4.2.2: 10 % of the time since `Last-Modified`, for heuristically cacheable statuses or with `public`,
    /// and never with an explicit lifetime.
    #[test]
    fn a_heuristic_lifetime_is_used_only_without_an_explicit_one() {
        use LifetimeSource::{Expires, Heuristic as Estimate, Nothing};
        let rules = Rules {
            heuristic: Some(Heuristic {
                percent: 10,
                lifetime_max: Duration::from_secs(500),
                without_last_modified: Duration::from_secs(7),
            }),
            ..Rules::default()
        };
        let modified_1000_ago = "last-modified: Sun, 06 Nov 1994 08:32:57 GMT";
        let table = [
            (200, modified_1000_ago.to_owned(), 100_000, Estimate),
            (404, modified_1000_ago.to_owned(), 100_000, Estimate),
            (302, modified_1000_ago.to_owned(), 0, Nothing),
            (
                302,
                format!("cache-control: public\n{modified_1000_ago}"),
                100_000,
                Estimate,
            ),
            (200, format!("expires: 0\n{modified_1000_ago}"), 0, Expires),
            (
                200,
                "last-modified: Sun, 06 Nov 1994 08:49:38 GMT".to_owned(),
                0,
                Estimate,
            ),
            (
                200,
                // The day does not exist, so the date is invalid and counts as absent.
                "last-modified: Sun, 31 Nov 1984 08:49:37 GMT".to_owned(),
                7_000,
                Estimate,
            ),
            (
                200,
                "last-modified: Tue, 06 Nov 1984 08:49:37 GMT".to_owned(),
                500_000,
                Estimate,
            ),
            (200, String::new(), 7_000, Estimate),
        ];
        for (status, lines, millis, source) in table {
            let lines = format!("{DATE_NOW}\n{lines}");
            assert_eq!(
                lifetime(&rules, status, &lines),
                (millis, source),
                "{status} {lines}"
            );
        }
    }

    /// RFC 9110 §15.1. Method: check all 900 status codes.
    #[test]
    fn heuristically_cacheable_statuses_are_those_of_the_rfc() {
        let listed: Vec<u16> = (100..1000)
            .filter(|&code| {
                is_heuristically_cacheable(StatusCode::from_u16(code).expect("three digits"))
            })
            .collect();
        assert_eq!(
            listed,
            [200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501]
        );
    }
}
