//! The time that a name or an issuer is left alone after failures.

use std::time::Duration;

use edgeward_types::mix64;
use serde::{Deserialize, Serialize};

/// The reason why an order failed. It decides how long to wait, and whether the name or the issuer is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The issuer could not validate the name.
    Validation,
    /// The issuer refuses the name, the profile or the account.
    Rejected,
    /// A limit of the issuer was reached. It may name a time after which to try again.
    RateLimited(Option<Duration>),
    /// The issuer cannot be reached, or answers with an error of its own.
    Issuer,
    /// The work of this process failed: a hook, a file, or the process was killed.
    Local,
}

impl Failure {
    /// The label of metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Validation => "validation",
            Self::Rejected => "rejected",
            Self::RateLimited(_) => "rate-limited",
            Self::Issuer => "issuer",
            Self::Local => "local",
        }
    }

    /// The labels of all failures, in the order of [`index`](Self::index).
    pub const LABELS: [&'static str; 5] =
        ["validation", "rejected", "rate-limited", "issuer", "local"];

    /// The position in [`LABELS`](Self::LABELS).
    pub const fn index(self) -> usize {
        match self {
            Self::Validation => 0,
            Self::Rejected => 1,
            Self::RateLimited(_) => 2,
            Self::Issuer => 3,
            Self::Local => 4,
        }
    }

    /// The first and the longest wait of the name.
    const fn bounds_of_name(self) -> (u64, u64) {
        match self {
            // Let's Encrypt admits five failed validations of a name per hour.
            Self::Validation => (15 * MINUTE, 24 * HOUR),
            Self::Rejected => (HOUR, 24 * HOUR),
            Self::RateLimited(_) => (HOUR, 24 * HOUR),
            Self::Issuer | Self::Local => (MINUTE, 6 * HOUR),
        }
    }

    /// The first and the longest wait of the issuer. `None`: the issuer is not to blame.
    pub(crate) const fn bounds_of_issuer(self) -> Option<(u64, u64)> {
        match self {
            Self::Issuer => Some((MINUTE, 6 * HOUR)),
            Self::RateLimited(_) => Some((5 * MINUTE, HOUR)),
            Self::Validation | Self::Rejected | Self::Local => None,
        }
    }
}

/// Consecutive failures, and the wait after the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// Failures since the last success.
    pub failures: u32,
    /// The time of the last failure, in seconds since 1970.
    pub failed_at: u64,
    /// The wait after it.
    pub delay_seconds: u64,
}

impl Backoff {
    /// Returns when the wait ends. A failure in the future counts as one of now.
    pub fn ends_at(&self, now: u64) -> u64 {
        match self.failures {
            0 => 0,
            _ => self.failed_at.min(now).saturating_add(self.delay_seconds),
        }
    }

    /// Records a failure of a name.
    pub(crate) fn fail_name(&mut self, failure: Failure, now: u64, seed: u64) {
        self.fail(failure.bounds_of_name(), now, seed);
        if let Failure::RateLimited(Some(wait)) = failure {
            let wait = wait.as_secs().min(RETRY_AFTER_SECONDS_MAX);
            self.delay_seconds = self.delay_seconds.max(wait);
        }
    }

    /// Records a failure: the wait doubles each time. `seed` varies it by up to a tenth, so that the names of an outage
    /// do not return at the same moment.
    pub(crate) fn fail(&mut self, (first, longest): (u64, u64), now: u64, seed: u64) {
        let doublings = self.failures.min(20);
        let delay = (first << doublings).min(longest);
        let jitter = mix64(seed ^ u64::from(self.failures + 1)) % (delay / 10 + 1);
        *self = Self {
            failures: self.failures.saturating_add(1),
            failed_at: now,
            delay_seconds: delay + jitter,
        };
    }
}

const MINUTE: u64 = 60;
const HOUR: u64 = 3600;

/// The longest wait that an issuer can demand. Limits of Let's Encrypt end after a week at the latest.
const RETRY_AFTER_SECONDS_MAX: u64 = 7 * 24 * HOUR;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_bound_and_is_never_shorter_than_the_first() {
        for failure in [
            Failure::Validation,
            Failure::Rejected,
            Failure::RateLimited(None),
            Failure::Issuer,
            Failure::Local,
        ] {
            let (first, longest) = failure.bounds_of_name();
            let mut backoff = Backoff::default();
            for n in 0..100_u32 {
                backoff.fail_name(failure, 1000, 9);
                let expected = first.checked_shl(n.min(30)).unwrap_or(longest).min(longest);
                let range = expected..=expected + expected / 10;
                assert!(
                    range.contains(&backoff.delay_seconds),
                    "{failure:?} {n} {backoff:?}"
                );
            }
            assert_eq!(Failure::LABELS[failure.index()], failure.label());
        }
    }

    #[test]
    fn a_wait_that_the_issuer_demands_is_kept_up_to_a_week() {
        let mut backoff = Backoff::default();
        let two_days = Duration::from_secs(48 * HOUR);
        backoff.fail_name(Failure::RateLimited(Some(two_days)), 1000, 9);
        assert_eq!(backoff.ends_at(5000), 1000 + 48 * HOUR);
        backoff.fail_name(Failure::RateLimited(Some(Duration::MAX)), 1000, 9);
        assert_eq!(backoff.delay_seconds, RETRY_AFTER_SECONDS_MAX);
    }

    #[test]
    fn a_failure_in_the_future_counts_as_one_of_now() {
        let mut backoff = Backoff::default();
        backoff.fail((10, 10), 1_000_000, 0);
        assert!(backoff.ends_at(50) <= 50 + 11);
    }
}
