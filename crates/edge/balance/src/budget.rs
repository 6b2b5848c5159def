//! The budget of retries of an origin.
//!
//! Without a budget, an origin that begins to fail gets each request several times, which keeps it from recovering.
//! With a budget, the retries of the last ten seconds are at most a share of the requests of the same time, plus a
//! small number that lets rare requests be retried too. Finagle introduced this rule.

use edgeward_types::Timestamp;

/// The limits of retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetSettings {
    /// Retries as a percentage of the requests of the window.
    pub percent: u32,
    /// Retries per second that are allowed in addition.
    pub per_second: u32,
}

impl Default for BudgetSettings {
    /// Returns 20 % and 10 per second, the defaults of Finagle. A pool of two servers that loses one fails at most the
    /// requests under way, which are far fewer than 20 % of the requests of ten seconds.
    fn default() -> Self {
        Self {
            percent: 20,
            per_second: 10,
        }
    }
}

/// Counts the requests and the retries of the last ten seconds.
#[derive(Clone, Debug)]
pub struct RetryBudget {
    settings: BudgetSettings,
    /// The counts of each second, by the second modulo [`WINDOW_SECONDS`].
    seconds: [Counts; WINDOW_SECONDS],
    /// The newest second that was counted.
    second: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    requests: u64,
    retries: u64,
}

impl RetryBudget {
    /// Returns a budget without counted requests.
    pub fn new(settings: BudgetSettings) -> Self {
        Self {
            settings,
            seconds: [Counts::default(); WINDOW_SECONDS],
            second: 0,
        }
    }

    /// Counts the first attempt of a request.
    pub fn record_request(&mut self, now: Timestamp) {
        self.current(now).requests += 1;
    }

    /// Returns true and counts the retry if the budget allows one.
    pub fn try_retry(&mut self, now: Timestamp) -> bool {
        let _ = self.current(now);
        let requests: u64 = self.seconds.iter().map(|counts| counts.requests).sum();
        let retries: u64 = self.seconds.iter().map(|counts| counts.retries).sum();
        let share = requests * u64::from(self.settings.percent) / 100;
        let fixed = u64::from(self.settings.per_second) * WINDOW_SECONDS as u64;
        let allows = retries < share + fixed;
        if allows {
            self.current(now).retries += 1;
        }
        allows
    }

    /// Returns the counts of the current second, and clears those of seconds that have left the window. A clock that
    /// was set back counts as the newest second.
    fn current(&mut self, now: Timestamp) -> &mut Counts {
        let second = now.as_secs().max(self.second);
        let passed = (second - self.second).min(WINDOW_SECONDS as u64);
        for step in 0..passed {
            self.seconds[index(second - step)] = Counts::default();
        }
        self.second = second;
        &mut self.seconds[index(second)]
    }
}

fn index(second: u64) -> usize {
    (second % WINDOW_SECONDS as u64) as usize
}

/// The length of the window. Shorter windows would deny the retries of requests that fail after some seconds, because
/// the requests themselves would have left the window.
const WINDOW_SECONDS: usize = 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Method: the oracle keeps the second of each request and each retry, and counts those of the window.
        #[test]
        fn retries_of_a_window_are_at_most_the_share_and_the_fixed_number(
            percent in 0_u32..150,
            per_second in 0_u32..3,
            steps in proptest::collection::vec((any::<bool>(), 0_u64..2500), 0..300),
        ) {
            let mut budget = RetryBudget::new(BudgetSettings { percent, per_second });
            let (mut requests, mut retries): (Vec<u64>, Vec<u64>) = Default::default();
            let mut millis = 0;
            for (is_retry, wait) in steps {
                millis += wait;
                let now = Timestamp::from_millis(millis);
                let second = now.as_secs();
                if !is_retry {
                    requests.push(second);
                    budget.record_request(now);
                    continue;
                }
                let count = |seconds: &[u64]| {
                    seconds.iter().filter(|counted| second - **counted < 10).count() as u64
                };
                let allowed = count(&requests) * u64::from(percent) / 100 + 10 * u64::from(per_second);
                let expected = count(&retries) < allowed;
                prop_assert_eq!(budget.try_retry(now), expected);
                retries.extend(expected.then_some(second));
            }
        }
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_reset_the_budget() {
        let settings = BudgetSettings {
            percent: 0,
            per_second: 1,
        };
        let mut budget = RetryBudget::new(settings);
        for _ in 0..10 {
            assert!(budget.try_retry(Timestamp::from_secs(100)));
        }
        assert!(!budget.try_retry(Timestamp::from_secs(50)));
        assert!(budget.try_retry(Timestamp::from_secs(110)));
    }
}
