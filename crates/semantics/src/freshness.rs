//! How long a response stays fresh (RFC 9111 §4.2.1 and §4.2.2).

use edgeward_types::Timestamp;
use http::StatusCode;
use http::header::{DATE, EXPIRES, HeaderMap, LAST_MODIFIED};

use crate::cache_control::ResponseDirectives;
use crate::date::{date_field, parse_http_date};
use crate::rules::{Heuristic, Rules};

/// A freshness lifetime and where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Milliseconds from the moment the response was generated.
    pub millis: u64,
    /// What stated it.
    pub source: LifetimeSource,
}

/// What a lifetime was taken from, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifetimeSource {
    /// `s-maxage`, for shared caches only.
    SMaxage,
    /// `max-age`.
    MaxAge,
    /// `Expires` minus `Date`.
    Expires,
    /// A guess, by [`Heuristic`].
    Heuristic,
    /// Nothing states one: stale from the start.
    Nothing,
}

impl LifetimeSource {
    /// Whether the origin stated it.
    pub const fn is_explicit(self) -> bool {
        matches!(self, Self::SMaxage | Self::MaxAge | Self::Expires)
    }
}

impl Lifetime {
    /// The first of `s-maxage`, `max-age`, `Expires` that is there, else the guess.
    pub fn of(
        rules: &Rules,
        status: StatusCode,
        directives: &ResponseDirectives,
        response: &HeaderMap,
        response_time: Timestamp,
    ) -> Self {
        let from_secs = |secs: u32, source| Self {
            millis: u64::from(secs) * 1000,
            source,
        };
        if let Some(secs) = directives.s_maxage {
            return from_secs(secs, LifetimeSource::SMaxage);
        }
        if let Some(secs) = directives.max_age {
            return from_secs(secs, LifetimeSource::MaxAge);
        }
        let date = date_field(response, &DATE).unwrap_or(response_time);
        if response.contains_key(EXPIRES) {
            return Self {
                millis: expires_after_ms(response, date),
                source: LifetimeSource::Expires,
            };
        }
        // §4.2.2: a guess only where nothing is explicit, and only for statuses that are
        // heuristically cacheable or where `public` says so.
        match rules.heuristic {
            Some(heuristic) if is_heuristically_cacheable(status) || directives.public => Self {
                millis: guess_ms(heuristic, response, date),
                source: LifetimeSource::Heuristic,
            },
            _ => Self {
                millis: 0,
                source: LifetimeSource::Nothing,
            },
        }
    }
}

/// The statuses a response may be reused with although nothing says so (RFC 9110 §15.1).
pub const fn is_heuristically_cacheable(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501
    )
}

/// `Expires` minus `Date`. An `Expires` that is no date, in particular `0`, is in the past
/// (§5.3); of several the earliest counts (§4.2.1).
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

fn guess_ms(heuristic: Heuristic, response: &HeaderMap, date: Timestamp) -> u64 {
    let lifetime_max_ms = u64::try_from(heuristic.lifetime_max.as_millis()).unwrap_or(u64::MAX);
    let guess = match date_field(response, &LAST_MODIFIED) {
        Some(modified) => {
            let unchanged_secs = date.as_secs().saturating_sub(modified.as_secs());
            // seconds * percent / 100, in milliseconds: * 1000 / 100 = * 10.
            unchanged_secs
                .saturating_mul(u64::from(heuristic.percent))
                .saturating_mul(10)
        }
        None => u64::try_from(heuristic.without_last_modified.as_millis()).unwrap_or(u64::MAX),
    };
    guess.min(lifetime_max_ms)
}
