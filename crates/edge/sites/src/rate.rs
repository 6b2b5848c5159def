//! Limits of the requests of one client, or of all clients of a site.
//!
//! The limiter is a token bucket in the form of the generic cell rate algorithm (ITU-T I.371): one time for each client
//! says until when its past requests have used up the rate.

use core::net::IpAddr;
use std::time::Duration;

use edgeward_types::{Timestamp, mix64};
use http::header::HeaderName;

use crate::fields::{Fields, first_line};

/// A rate of requests, and what counts as one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The number of the limit in the configuration. Clients have one bucket for each limit.
    pub number: u32,
    /// Requests in each [`per`](Self::per).
    pub requests: u32,
    /// The time in which a client may send `requests`.
    pub per: Duration,
    /// Requests that a client may send at once after a pause.
    pub burst: u32,
    /// The part of a request by which clients are counted.
    pub by: RateKey,
}

/// The part of a request by which a [`RateLimit`] counts clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateKey {
    /// The address: an IPv4 address, or an IPv6 network with a prefix of 64 bits.
    Client,
    /// The first line of a request field, such as an API key. Requests without the field count by address. A client
    /// can invent keys, so its requests with keys count by address, too ([`RateLimit::of_address`]).
    Header(HeaderName),
    /// Nothing: all clients share one bucket.
    Site,
}

impl RateKey {
    /// Returns true if a request has the field by which it counts.
    pub fn is_stated(&self, fields: &dyn Fields) -> bool {
        match self {
            Self::Header(name) => fields.any_line(name, &mut |_| true),
            Self::Client | Self::Site => false,
        }
    }
}

impl RateLimit {
    /// Returns the time between two requests at the full rate. A stricter limit has a longer one.
    pub fn interval(&self) -> Duration {
        self.per / self.requests.max(1)
    }

    /// Returns the hash that identifies the bucket of a request. `seed` is secret, so that clients cannot choose
    /// colliding buckets.
    pub fn bucket(&self, client: IpAddr, fields: &dyn Fields, seed: u64) -> u64 {
        let text = match &self.by {
            RateKey::Client => None,
            RateKey::Site => Some(Vec::new()),
            RateKey::Header(name) => first_line(fields, name),
        };
        let text = text.unwrap_or_else(|| address_text(client));
        let seed = mix64(seed ^ u64::from(self.number));
        edgeward_types::xxh3::xxh3_64_with_seed(&text, seed)
    }

    /// Returns the limit of all requests with keys from one address, and the hash of its bucket: `keys` times this
    /// limit. Returns `None` for a limit that does not count by a field.
    pub fn of_address(&self, client: IpAddr, keys: u32, seed: u64) -> Option<(Self, u64)> {
        if !matches!(self.by, RateKey::Header(_)) {
            return None;
        }
        let limit = Self {
            requests: self.requests.saturating_mul(keys),
            burst: self.burst.saturating_mul(keys),
            by: RateKey::Client,
            ..self.clone()
        };
        // A seed of its own, because requests without the field count by address in another bucket.
        let seed = mix64(seed ^ u64::from(self.number) ^ OF_ADDRESS);
        let hash = edgeward_types::xxh3::xxh3_64_with_seed(&address_text(client), seed);
        Some((limit, hash))
    }
}

/// Returns the part of an address that counts as one client.
fn address_text(client: IpAddr) -> Vec<u8> {
    match client.to_canonical() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets()[..8].to_vec(),
    }
}

/// Distinguishes the buckets of [`RateLimit::of_address`]. The numbers of limits are smaller.
const OF_ADDRESS: u64 = 1 << 32;

/// The buckets of all clients, in a table of fixed size. A new client replaces the client of its set that has used up
/// the least, so a flood of addresses makes the limiter forget only clients that are far below their limit.
#[derive(Debug)]
pub struct RateLimiter {
    buckets: Box<[Bucket]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// 0 if the bucket is free.
    hash: u64,
    /// The time until which the past requests have used up the rate, in microseconds.
    used_until_us: u64,
}

/// The result of [`RateLimiter::admit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The request is within the limit.
    Admit,
    /// The request exceeds the limit. The next one is within it after this time.
    Refuse {
        /// At least one microsecond.
        wait: Duration,
    },
}

/// Buckets that one client may be stored in.
const SET_BUCKETS: usize = 8;

impl RateLimiter {
    /// Returns a limiter that remembers about this number of clients. A client takes 16 bytes.
    pub fn new(clients: usize) -> Self {
        let sets = clients.div_ceil(SET_BUCKETS).max(1).next_power_of_two();
        Self {
            buckets: vec![Bucket::default(); sets * SET_BUCKETS].into(),
        }
    }

    /// Decides about a request of the client with the bucket `hash`, and counts it if it is admitted.
    pub fn admit(&mut self, limit: &RateLimit, hash: u64, now: Timestamp) -> Admission {
        let per_us = u64::try_from(limit.per.as_micros()).unwrap_or(u64::MAX);
        let interval_us = (per_us / u64::from(limit.requests.max(1))).max(1);
        let now_us = now.as_millis().saturating_mul(1000);
        let hash = hash.max(1);
        let sets = self.buckets.len() / SET_BUCKETS;
        let first = (hash as usize & (sets - 1)) * SET_BUCKETS;
        let set = &mut self.buckets[first..first + SET_BUCKETS];
        let at = set.iter().position(|bucket| bucket.hash == hash);
        let at = at.unwrap_or_else(|| {
            let least = set
                .iter()
                .enumerate()
                .min_by_key(|(_, bucket)| bucket.used_until_us);
            let (at, _) = least.expect("a set has buckets");
            set[at] = Bucket {
                hash,
                used_until_us: 0,
            };
            at
        });
        let used_until = set[at].used_until_us.max(now_us);
        // A client may be ahead of its rate by the burst. One request is always allowed.
        let ahead_max = interval_us.saturating_mul(u64::from(limit.burst.max(1)) - 1);
        match (used_until - now_us).checked_sub(ahead_max) {
            None | Some(0) => {
                set[at].used_until_us = used_until.saturating_add(interval_us);
                Admission::Admit
            }
            Some(excess_us) => Admission::Refuse {
                wait: Duration::from_micros(excess_us),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use http::header::HeaderMap;
    use proptest::prelude::*;

    use super::*;

    fn limit(requests: u32, burst: u32) -> RateLimit {
        RateLimit {
            number: 0,
            requests,
            per: Duration::from_secs(1),
            burst,
            by: RateKey::Client,
        }
    }

    #[test]
    fn a_client_gets_its_burst_and_then_its_rate() {
        let limit = limit(10, 3);
        let mut limiter = RateLimiter::new(16);
        let mut at = |millis| limiter.admit(&limit, 7, Timestamp::from_millis(millis));
        assert_eq!(at(1000), Admission::Admit);
        assert_eq!(at(1000), Admission::Admit);
        assert_eq!(at(1000), Admission::Admit);
        let wait = Duration::from_millis(100);
        assert_eq!(at(1000), Admission::Refuse { wait });
        assert_eq!(
            at(1099),
            Admission::Refuse {
                wait: Duration::from_millis(1)
            }
        );
        assert_eq!(at(1100), Admission::Admit);
        assert!(matches!(at(1100), Admission::Refuse { .. }));
        assert_eq!(at(5000), Admission::Admit);
    }

    #[test]
    fn a_bucket_depends_on_the_limit_the_client_and_the_field() {
        let fields = |value: &str| {
            let mut fields = HeaderMap::new();
            fields.insert("x-key", value.parse().expect("a value"));
            fields
        };
        let (a, b) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let by_address = limit(1, 1);
        let bucket = |limit: &RateLimit, client, key: &str| limit.bucket(client, &fields(key), 3);
        assert_eq!(bucket(&by_address, a, "k"), bucket(&by_address, a, "l"));
        assert_ne!(bucket(&by_address, a, "k"), bucket(&by_address, b, "k"));
        let other = RateLimit {
            number: 1,
            ..by_address.clone()
        };
        assert_ne!(bucket(&by_address, a, "k"), bucket(&other, a, "k"));
        let by_key = RateLimit {
            by: RateKey::Header(HeaderName::from_static("x-key")),
            ..by_address
        };
        assert_eq!(bucket(&by_key, a, "k"), bucket(&by_key, b, "k"));
        assert_ne!(bucket(&by_key, a, "k"), bucket(&by_key, a, "l"));
        let by_site = RateLimit {
            by: RateKey::Site,
            ..by_key
        };
        assert_eq!(bucket(&by_site, a, "k"), bucket(&by_site, b, "l"));
        let network = |text: &str| bucket(&limit(1, 1), text.parse().expect("an address"), "");
        assert_eq!(network("2001:db8::1"), network("2001:db8::2"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
    }

    #[test]
    fn invented_keys_of_one_address_share_a_limit() {
        let by_key = RateLimit {
            by: RateKey::Header(HeaderName::from_static("x-key")),
            ..limit(1, 5)
        };
        let (a, b) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let mut limiter = RateLimiter::new(1024);
        let now = Timestamp::from_secs(10);
        let mut admitted = |client| {
            let (limit, hash) = by_key.of_address(client, 4, 3).expect("by a field");
            (0..60)
                .filter(|_| limiter.admit(&limit, hash, now) == Admission::Admit)
                .count()
        };
        assert_eq!([admitted(a), admitted(a), admitted(b)], [20, 0, 20]);
        let (_, of_address) = by_key.of_address(a, 4, 3).expect("by a field");
        assert_ne!(of_address, by_key.bucket(a, &HeaderMap::new(), 3));
        assert_eq!(limit(1, 5).of_address(a, 4, 3), None);
    }

    #[test]
    fn a_flood_of_clients_does_not_free_a_client_at_its_limit() {
        let limit = limit(1, 5);
        let mut limiter = RateLimiter::new(64);
        let now = Timestamp::from_secs(10);
        for _ in 0..5 {
            assert_eq!(limiter.admit(&limit, 7, now), Admission::Admit);
        }
        for other in 100..100_000u64 {
            limiter.admit(&limit, mix64(other), now);
        }
        assert!(matches!(
            limiter.admit(&limit, 7, now),
            Admission::Refuse { .. }
        ));
    }

    proptest! {
        /// Oracle: a token bucket with exact fractions for each client, without a bound of clients.
        #[test]
        fn the_limiter_agrees_with_token_buckets(
            requests in proptest::collection::vec((1u64..4, 0u64..400), 1..200),
            rate in prop::sample::select(vec![1u32, 2, 4, 5, 10]),
            burst in 1u32..5,
        ) {
            let limit = limit(rate, burst);
            let mut limiter = RateLimiter::new(64);
            // Tokens in units of 1/1000, so that a millisecond adds `rate` of them.
            let full = u64::from(burst) * 1000;
            let mut tokens: HashMap<u64, (u64, u64)> = HashMap::new();
            let mut now = 1_000_000;
            for (client, pause) in requests {
                now += pause;
                let (left, since) = tokens.entry(client).or_insert((full, now));
                *left = (*left + (now - *since) * u64::from(rate)).min(full);
                *since = now;
                let admits = *left >= 1000;
                if admits {
                    *left -= 1000;
                }
                let admission = limiter.admit(&limit, client, Timestamp::from_millis(now));
                prop_assert_eq!(admission == Admission::Admit, admits);
            }
        }
    }
}
