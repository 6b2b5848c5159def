//! The configuration of the synthetic origin.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

use edgeward_types::Seed;
use http::{HeaderName, HeaderValue, StatusCode};

/// The configuration of the synthetic origin, with all defaults filled in.
#[derive(Clone, Debug)]
pub struct OriginConfig {
    /// The address to listen on. Port 0 selects a free port.
    pub listen: SocketAddr,

    /// Worker threads, each with its own runtime and listener.
    ///
    /// The default is one: one worker generates several GB per second, and the cache under test needs the other
    /// cores.
    pub workers: NonZeroUsize,

    /// The delay before each response. Default: none. The resolution is one millisecond.
    pub latency: Duration,

    /// The maximum deviation from `latency`. The delay of each response is uniformly distributed between
    /// `latency - jitter` (at least zero) and `latency + jitter`.
    pub jitter: Duration,

    /// The share of requests answered with `error_status`.
    pub error_rate: f64,

    /// The status of an injected error. Default: 503.
    pub error_status: StatusCode,

    /// The `Cache-Control` of every object whose request does not set another one. `None` sends no header.
    ///
    /// The default is `max-age=86400`: a replay takes less than a day, so no object becomes stale with this default.
    pub cache_control: Option<HeaderValue>,

    /// True if objects have an `ETag` and the origin answers conditional requests.
    ///
    /// Off by default to keep heads small. The tag is one character longer for each digit by which
    /// `Content-Length` is shorter, so that all heads of status 200 have the same length.
    pub etag: bool,

    /// True if objects have a `Last-Modified`, the same date for all, and the origin answers conditional requests.
    pub last_modified: bool,

    /// Further headers of every response for an object.
    pub headers: Vec<(HeaderName, HeaderValue)>,

    /// Larger objects are rejected with 400; at most 2^40.
    pub size_bytes_max: u64,

    /// Connections served at the same time by all workers. Further connections wait to be accepted.
    pub connections_max: NonZeroUsize,

    /// The seed of the random numbers for latency and errors. The origin counts requests from its start, and the
    /// count at a request selects the random numbers of this request. A single connection therefore gets the same
    /// sequence of latencies and errors in each run.
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
            // Far more than a proxy opens to one origin, and within the usual limit of 65,536 descriptors.
            connections_max: NonZeroUsize::new(16_384).expect("the number is not zero"),
            seed: Seed(1),
        }
    }
}

impl OriginConfig {
    /// Returns the injected delay and error of request number `n`.
    pub(super) fn injection(&self, n: u64) -> Injection {
        // Each request has two random numbers from 0 to 1: number 0 for the delay, number 1 for the error.
        let draw = |which| crate::mix::unit(crate::mix::draw(self.seed.0, 2 * n + which));
        let latency = if self.jitter.is_zero() {
            self.latency
        } else {
            let earliest = self.latency.saturating_sub(self.jitter);
            let latest = self.latency + self.jitter;
            earliest + (latest - earliest).mul_f64(draw(0))
        };
        Injection {
            latency,
            fails: self.error_rate > 0.0 && draw(1) < self.error_rate,
        }
    }
}

/// The injected delay and error of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Injection {
    pub(super) latency: Duration,
    pub(super) fails: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_cover_the_range_of_the_jitter() {
        let config = OriginConfig {
            latency: Duration::from_millis(20),
            jitter: Duration::from_millis(5),
            ..OriginConfig::default()
        };
        let drawn: Vec<f64> = (0..2000)
            .map(|n| config.injection(n).latency.as_secs_f64() * 1000.0)
            .collect();
        assert!(drawn.iter().all(|ms| (15.0..=25.0).contains(ms)));
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        assert!((mean - 20.0).abs() < 0.3, "{mean}");
        assert!(drawn.iter().any(|&ms| ms < 15.1) && drawn.iter().any(|&ms| ms > 24.9));
    }

    #[test]
    fn errors_have_the_configured_rate_and_depend_on_the_seed() {
        let failing = |rate: f64, seed: u64| -> Vec<u64> {
            let config = OriginConfig {
                error_rate: rate,
                seed: Seed(seed),
                ..OriginConfig::default()
            };
            (0..100_000)
                .filter(|&n| config.injection(n).fails)
                .collect()
        };
        // Three standard deviations of the binomial distribution: sqrt(1e5 * 0.01 * 0.99) = 31.
        let some = failing(0.01, 7);
        assert!(some.len().abs_diff(1000) < 95, "{}", some.len());
        assert_eq!(some, failing(0.01, 7));
        assert_ne!(some, failing(0.01, 8));
        assert!(failing(0.0, 7).is_empty());
        assert_eq!(failing(1.0, 7).len(), 100_000);
    }
}
