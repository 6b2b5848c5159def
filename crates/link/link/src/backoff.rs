//! The delay before an edge's next attempt to connect to its gateway.
//!
//! The delay doubles after each failed attempt, up to a limit. A random part is subtracted, so that the edges of a
//! gateway do not all connect to it at the same time after it has restarted.

use std::time::Duration;

/// The number of attempts that failed in a row, and the limits of the delay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    delay_min: Duration,
    delay_max: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(delay_min: Duration, delay_max: Duration) -> Self {
        Self {
            delay_min,
            delay_max: delay_max.max(delay_min),
            failures: 0,
        }
    }

    /// Counts a failed attempt and returns the delay before the next one. `random` is
    /// uniformly distributed over all values of its type.
    pub(crate) fn failed(&mut self, random: u32) -> Duration {
        let factor = 2_u32.saturating_pow(self.failures.min(30));
        let full_delay = self.delay_min.saturating_mul(factor).min(self.delay_max);
        self.failures = self.failures.saturating_add(1);
        // The result is random, between half of the full delay and the full delay.
        full_delay / 2 + full_delay.mul_f64(f64::from(random) / f64::from(u32::MAX) / 2.0)
    }

    /// Resets the delay after an attempt that succeeded.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_limit() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(100), ms(1000));
        let full: Vec<_> = (0..6).map(|_| backoff.failed(u32::MAX)).collect();
        assert_eq!(full, [100, 200, 400, 800, 1000, 1000].map(ms));
        assert_eq!(backoff.failed(0), ms(500));
        backoff.succeeded();
        assert_eq!(backoff.failed(0), ms(50));
        let mut long = Backoff::new(ms(1), Duration::from_secs(30));
        assert!((0..100).all(|n| long.failed(n) <= Duration::from_secs(30)));
    }
}
