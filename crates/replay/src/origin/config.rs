//! How the synthetic origin behaves.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

use edgeward_types::Seed;
use http::{HeaderName, HeaderValue, StatusCode};

/// The synthetic origin, with every default filled in.
#[derive(Clone, Debug)]
pub struct OriginConfig {
    /// Where to listen. Port 0 takes a free one.
    pub listen: SocketAddr,

    /// Threads, each with a runtime and a listener of its own.
    ///
    /// One by default: it makes several GB a second, and what stands before it needs the
    /// other cores.
    pub workers: NonZeroUsize,

    /// How long a request waits before it is answered. Nothing by default. Timers tick
    /// once a millisecond.
    pub latency: Duration,

    /// The latency of each request is drawn evenly from `latency - jitter ..= latency + jitter`.
    pub jitter: Duration,

    /// The share of requests answered with `error_status`, drawn for each.
    pub error_rate: f64,

    /// What an error is. 503 by default.
    pub error_status: StatusCode,

    /// `Cache-Control` of every object unless its query says otherwise; none if `None`.
    ///
    /// `max-age=86400` by default: a replay takes less than a day, so that nothing goes
    /// stale unless it is asked to.
    pub cache_control: Option<HeaderValue>,

    /// Whether objects carry an `ETag` and answer conditions on it.
    ///
    /// Off by default to keep heads small. The tag has a filler that makes up for the
    /// digits of `Content-Length`, so that all heads of status 200 are equally long.
    pub etag: bool,

    /// Whether objects carry a `Last-Modified` (the same for all) and answer conditions on it.
    pub last_modified: bool,

    /// More header lines on every response to a request for an object.
    pub headers: Vec<(HeaderName, HeaderValue)>,

    /// Objects larger than this are refused with 400; never more than 2^40.
    pub size_bytes_max: u64,

    /// Connections served at once, over all workers; others wait to be accepted.
    pub connections_max: NonZeroUsize,

    /// Where the draws for latency and errors come from: request number `n` since the
    /// start gets draw `n`, so one connection sees the same sequence every time.
    pub seed: Seed,
}

impl Default for OriginConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            workers: NonZeroUsize::MIN,
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            error_rate: 0.0,
            error_status: StatusCode::SERVICE_UNAVAILABLE,
            cache_control: Some(HeaderValue::from_static("max-age=86400")),
            etag: false,
            last_modified: false,
            headers: Vec::new(),
            size_bytes_max: super::OBJECT_BYTES_MAX,
            // Far beyond what a proxy opens to one origin, within the usual limit of
            // 65536 descriptors.
            connections_max: NonZeroUsize::new(16_384).expect("not zero"),
            seed: Seed(1),
        }
    }
}

impl OriginConfig {
    /// What fate has in store for request number `n`: how long it waits, and whether it fails.
    pub(super) fn fate(&self, n: u64) -> Fate {
        let draw = |which| crate::mix::unit(crate::mix::draw(self.seed.0, 2 * n + which));
        let latency = if self.jitter.is_zero() {
            self.latency
        } else {
            let earliest = self.latency.saturating_sub(self.jitter);
            let latest = self.latency + self.jitter;
            earliest + (latest - earliest).mul_f64(draw(0))
        };
        Fate {
            latency,
            fails: self.error_rate > 0.0 && draw(1) < self.error_rate,
        }
    }
}

/// What a request meets besides its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fate {
    pub(super) latency: Duration,
    pub(super) fails: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_stays_within_its_jitter_and_fills_it() {
        let config = OriginConfig {
            latency: Duration::from_millis(20),
            jitter: Duration::from_millis(5),
            ..OriginConfig::default()
        };
        let drawn: Vec<f64> = (0..2000)
            .map(|n| config.fate(n).latency.as_secs_f64() * 1000.0)
            .collect();
        assert!(drawn.iter().all(|ms| (15.0..=25.0).contains(ms)));
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        assert!((mean - 20.0).abs() < 0.3, "{mean}");
        assert!(drawn.iter().any(|&ms| ms < 15.1) && drawn.iter().any(|&ms| ms > 24.9));
    }

    #[test]
    fn errors_come_at_their_rate_and_the_same_ones_for_a_seed() {
        let failing = |rate: f64, seed: u64| -> Vec<u64> {
            let config = OriginConfig {
                error_rate: rate,
                seed: Seed(seed),
                ..OriginConfig::default()
            };
            (0..100_000).filter(|&n| config.fate(n).fails).collect()
        };
        // Three standard deviations of a binomial draw: sqrt(1e5 * 0.01 * 0.99) = 31.
        let some = failing(0.01, 7);
        assert!(some.len().abs_diff(1000) < 95, "{}", some.len());
        assert_eq!(some, failing(0.01, 7));
        assert_ne!(some, failing(0.01, 8));
        assert!(failing(0.0, 7).is_empty());
        assert_eq!(failing(1.0, 7).len(), 100_000);
    }
}
