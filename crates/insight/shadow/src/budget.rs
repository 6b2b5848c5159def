//! The limit of the requests and bytes that a cache may ask of the origin.

use std::time::Duration;

/// A budget of requests and bytes per second.
///
/// Only the answer shows if a request needed the origin and how many bytes it cost. A request therefore takes its place
/// in the budget before it is sent, and gives it back after a hit. Bytes are charged afterwards, and the next request
/// waits until they are paid. The number of requests to the origin therefore never exceeds the budget, and the bytes
/// exceed it by the bodies in transit at most.
#[derive(Clone, Debug)]
pub struct Budget {
    requests: Bucket,
    bytes: Bucket,
}

impl Budget {
    /// Returns a full budget at time 0. A rate of `None` is no limit. One second of the rate may be spent at once.
    pub fn new(requests_per_second: Option<f64>, bytes_per_second: Option<f64>) -> Self {
        Self {
            requests: Bucket::new(requests_per_second, 1.0),
            bytes: Bucket::new(bytes_per_second, 0.0),
        }
    }

    /// Takes the place of one request.
    ///
    /// # Errors
    ///
    /// Returns the time to wait before the next attempt.
    pub fn take(&mut self, now: Duration) -> Result<(), Duration> {
        self.requests.refill(now);
        self.bytes.refill(now);
        let wait = self.requests.wait(1.0).max(self.bytes.wait(0.0));
        if wait > Duration::ZERO {
            return Err(wait);
        }
        self.requests.level -= 1.0;
        Ok(())
    }

    /// Gives a place back, because the request did not reach the origin.
    pub fn give_back(&mut self) {
        self.requests.level = (self.requests.level + 1.0).min(self.requests.level_max);
    }

    /// Charges the bytes of a body that came from the origin.
    pub fn charge(&mut self, bytes: u64) {
        if self.bytes.per_second.is_some() {
            self.bytes.level -= bytes as f64;
        }
    }
}

#[derive(Clone, Debug)]
struct Bucket {
    per_second: Option<f64>,
    level: f64,
    level_max: f64,
    refilled: Duration,
}

impl Bucket {
    fn new(per_second: Option<f64>, level_min: f64) -> Self {
        let level_max = per_second.unwrap_or(f64::INFINITY).max(level_min);
        Self {
            per_second,
            level: level_max,
            level_max,
            refilled: Duration::ZERO,
        }
    }

    fn refill(&mut self, now: Duration) {
        if let Some(per_second) = self.per_second {
            let passed = now.saturating_sub(self.refilled).as_secs_f64();
            self.level = (self.level + passed * per_second).min(self.level_max);
        }
        self.refilled = self.refilled.max(now);
    }

    /// Returns the time until the level is at least `needed`.
    fn wait(&self, needed: f64) -> Duration {
        match self.per_second {
            Some(per_second) if self.level < needed => {
                let seconds = (needed - self.level) / per_second;
                // Rounded up, so that the next attempt succeeds.
                Duration::from_secs_f64(seconds.min(WAIT_SECONDS_MAX)) + Duration::from_micros(1)
            }
            _ => Duration::ZERO,
        }
    }
}

/// The longest wait between two attempts, which keeps a large debt of bytes from overflowing a `Duration`.
const WAIT_SECONDS_MAX: f64 = 3600.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_hit_costs_nothing_and_a_miss_costs_its_place_and_its_bytes() {
        let mut budget = Budget::new(Some(2.0), Some(1000.0));
        for _ in 0..100 {
            assert_eq!(budget.take(Duration::ZERO), Ok(()));
            budget.give_back();
        }
        assert_eq!(budget.take(Duration::ZERO), Ok(()));
        assert_eq!(budget.take(Duration::ZERO), Ok(()));
        let wait = budget
            .take(Duration::ZERO)
            .expect_err("the budget is spent");
        assert_eq!(budget.take(wait), Ok(()));
        budget.charge(3000);
        let wait = budget.take(wait).expect_err("the bytes are not paid");
        assert!((1.9..2.1).contains(&wait.as_secs_f64()), "{wait:?}");
    }

    #[test]
    fn a_budget_without_limits_never_waits() {
        let mut budget = Budget::new(None, None);
        for _ in 0..1000 {
            assert_eq!(budget.take(Duration::ZERO), Ok(()));
            budget.charge(u64::MAX);
        }
    }

    proptest! {
        /// Method: send as soon as the budget permits, and count the requests that reach the origin.
        #[test]
        fn the_requests_to_the_origin_never_exceed_the_budget(
            per_second in 1_u32..50,
            steps in proptest::collection::vec((0_u64..300, any::<bool>()), 1..300),
        ) {
            let mut budget = Budget::new(Some(f64::from(per_second)), None);
            let (mut now, mut sent) = (Duration::ZERO, 0_u32);
            for (millis, is_hit) in steps {
                now += Duration::from_millis(millis);
                if budget.take(now).is_ok() {
                    match is_hit {
                        true => budget.give_back(),
                        false => sent += 1,
                    }
                }
                let allowed = f64::from(per_second) * (now.as_secs_f64() + 1.0);
                prop_assert!(f64::from(sent) <= allowed + 1e-6);
            }
        }
    }
}
