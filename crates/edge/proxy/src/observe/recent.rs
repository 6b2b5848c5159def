//! The hit ratios of the last minutes, for `/status`. The workers' sweeps sample the counters at intervals.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::rt::panics::lock;

/// Sums of counters at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) hits: u64,
    pub(crate) requests: u64,
    pub(crate) hit_bytes: u64,
    pub(crate) bytes: u64,
}

/// Samples of [`Totals`] over the longest window.
#[derive(Debug)]
pub(crate) struct RecentRequests {
    started_at: Instant,
    /// In the order of their times. At most 31.
    samples: Mutex<VecDeque<(Instant, Totals)>>,
}

impl RecentRequests {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            started_at: now,
            samples: Mutex::new(VecDeque::new()),
        }
    }

    pub(crate) fn uptime(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started_at)
    }

    /// Adds a sample if the last one is old enough.
    pub(crate) fn sample(&self, now: Instant, totals: impl FnOnce() -> Totals) {
        let mut samples = lock(&self.samples);
        let last = samples.back().map_or(self.started_at, |(at, _)| *at);
        if now.saturating_duration_since(last) < INTERVAL {
            return;
        }
        samples.push_back((now, totals()));
        // The oldest sample that is needed is the newest one that is not within the longest window.
        while samples
            .get(1)
            .is_some_and(|(at, _)| now.saturating_duration_since(*at) >= LONGEST_WINDOW)
        {
            samples.pop_front();
        }
    }

    /// Returns the growth of `totals` within the window, or since the start if the start is within the window. The
    /// window is up to [`INTERVAL`] longer than requested, because it begins at a sample.
    pub(crate) fn within(&self, window: Duration, now: Instant, totals: Totals) -> Totals {
        let samples = lock(&self.samples);
        let before = samples
            .iter()
            .rev()
            .find(|(at, _)| now.saturating_duration_since(*at) >= window);
        let before = before.map(|(_, totals)| *totals).unwrap_or_default();
        Totals {
            hits: totals.hits.saturating_sub(before.hits),
            requests: totals.requests.saturating_sub(before.requests),
            hit_bytes: totals.hit_bytes.saturating_sub(before.hit_bytes),
            bytes: totals.bytes.saturating_sub(before.bytes),
        }
    }
}

/// The longest window of [`RecentRequests::within`].
pub(crate) const LONGEST_WINDOW: Duration = Duration::from_secs(300);

/// The interval of samples, and so the largest error of a window: 10 s of a minute.
const INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Method: one request per second, sampled four times a second as the sweep does. The second minute has no hits.
    #[test]
    fn a_window_begins_at_the_newest_sample_before_it() {
        let start = Instant::now();
        let recent = RecentRequests::new(start);
        let totals_at = |seconds: u64| Totals {
            hits: seconds.min(60) + seconds.saturating_sub(120),
            requests: seconds,
            hit_bytes: 0,
            bytes: 10 * seconds,
        };
        for quarters in 0..4 * 1000 {
            let now = start + Duration::from_millis(250 * quarters);
            let totals = totals_at(quarters / 4);
            recent.sample(now, || totals);
            for window in [MINUTE, LONGEST_WINDOW] {
                let within = recent.within(window, now, totals);
                let seconds = quarters / 4;
                let shortest = seconds.min(window.as_secs());
                let longest = seconds.min(window.as_secs() + INTERVAL.as_secs());
                assert!(
                    (shortest..=longest).contains(&within.requests),
                    "{within:?}"
                );
                assert_eq!(within.bytes, 10 * within.requests);
            }
            if quarters == 4 * 120 {
                assert_eq!(recent.within(MINUTE, now, totals).hits, 0);
                assert_eq!(recent.within(LONGEST_WINDOW, now, totals).hits, 60);
            }
        }
        assert!(lock(&recent.samples).len() <= 31);
    }
}
