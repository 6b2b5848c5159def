//! The benefit of a hit, from the objective of the policy and the time of the last fetch.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use edgeward_policy::{Benefit, Objective};

/// Computes benefits. An object has no measured fetch if it was read from disk or moved by a change of policy. It
/// counts with the mean time of the recent fetches.
#[derive(Debug)]
pub(super) struct Benefits {
    objective: Objective,
    /// A moving average of the measured times in µs; 0 before the first measurement.
    mean_fetch_us: AtomicU64,
}

impl Benefits {
    pub(super) fn new(objective: Objective) -> Self {
        Self {
            objective,
            mean_fetch_us: AtomicU64::new(0),
        }
    }

    pub(super) const fn objective(&self) -> Objective {
        self.objective
    }

    /// Returns the benefit of a hit on an object. Records the time of its fetch if the objective is `origin-cost`.
    pub(super) fn of(&self, charge_bytes: u64, fetch_time: Option<Duration>) -> Benefit {
        self.objective.benefit(charge_bytes, || match fetch_time {
            Some(time) => {
                self.record(time);
                time.as_secs_f64()
            }
            None => self.mean_fetch_us.load(Relaxed) as f64 / 1e6,
        })
    }

    /// Adds a measured time to the average. Two concurrent calls may lose one of the times.
    fn record(&self, time: Duration) {
        let time_us = u64::try_from(time.as_micros())
            .unwrap_or(u64::MAX / WEIGHT)
            .max(1);
        let mean_us = match self.mean_fetch_us.load(Relaxed) {
            0 => time_us,
            mean_us => mean_us - mean_us / WEIGHT + time_us / WEIGHT,
        };
        self.mean_fetch_us.store(mean_us.max(1), Relaxed);
    }
}

/// A new time has a weight of 1/64 in the average.
const WEIGHT: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_without_a_fetch_counts_with_the_mean_of_recent_fetches() {
        let benefits = Benefits::new(Objective::OriginCost);
        let fetch = |ms| benefits.of(1000, Some(Duration::from_millis(ms)));
        assert_eq!(fetch(200), Benefit::new(0.2));
        assert_eq!(benefits.of(1, None), Benefit::new(0.2));
        (0..1000).for_each(|_| _ = fetch(50));
        let mean = benefits.of(1, None);
        assert!(
            mean >= Benefit::new(0.05) && mean < Benefit::new(0.051),
            "{mean:?}"
        );
    }

    #[test]
    fn the_time_of_a_fetch_counts_for_the_origin_cost_only() {
        for (objective, expected) in [
            (Objective::Requests, Benefit::ONE),
            (Objective::Bytes, Benefit::new(1000.0)),
        ] {
            let benefits = Benefits::new(objective);
            let benefit = |time| benefits.of(1000, time);
            assert_eq!(benefit(Some(Duration::from_secs(3))), expected);
            assert_eq!(benefit(None), expected);
        }
    }
}
