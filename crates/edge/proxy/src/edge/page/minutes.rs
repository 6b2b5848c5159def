//! Samples of counters in the last minutes, so that their growth within a window is known.

use std::collections::VecDeque;
use std::time::Duration;

/// At most `minutes` samples, one a minute.
#[derive(Debug)]
pub(super) struct Minutes<T> {
    minutes: usize,
    /// Each with its time since the start, in the order of the times.
    samples: VecDeque<(Duration, T)>,
}

impl<T: Default> Minutes<T> {
    /// Returns samples for windows of up to `minutes`. The first sample is that of the start, which is empty.
    pub(super) fn new(minutes: usize) -> Self {
        Self {
            minutes,
            samples: VecDeque::from([(Duration::ZERO, T::default())]),
        }
    }

    /// Adds a sample if the last one is a minute old.
    pub(super) fn add(&mut self, uptime: Duration, sample: impl FnOnce() -> T) {
        let last = self.samples.back().map_or(Duration::ZERO, |(at, _)| *at);
        if uptime.saturating_sub(last) < MINUTE {
            return;
        }
        self.samples.push_back((uptime, sample()));
        // The oldest sample that is needed is the newest one that is not within the longest window.
        while self.samples.len() > self.minutes + 1 {
            self.samples.pop_front();
        }
    }

    /// Returns the newest sample that is at least `minutes` old, or else the oldest one, with the seconds since then.
    pub(super) fn before(&self, minutes: usize, uptime: Duration) -> (f64, &T) {
        let window = MINUTE * minutes as u32;
        let mut samples = self.samples.iter().rev();
        let found = samples.find(|(at, _)| uptime.saturating_sub(*at) >= window);
        let (at, sample) = found
            .or_else(|| self.samples.front())
            .expect("a sample always exists");
        let seconds = uptime.saturating_sub(*at).as_secs_f64();
        (seconds.max(1.0), sample)
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_begins_at_the_newest_sample_that_is_old_enough() {
        let mut minutes = Minutes::<u64>::new(5);
        for second in 0..=1000u64 {
            let uptime = Duration::from_secs(second);
            minutes.add(uptime, || second);
            assert!(minutes.samples.len() <= 6);
            for window in [1, 5] {
                let (seconds, sample) = minutes.before(window, uptime);
                let since = second - sample;
                assert!(since < 60 * (window as u64 + 1), "{second}: {since}");
                assert!(since >= second.min(60 * window as u64), "{second}: {since}");
                assert_eq!(seconds, (since as f64).max(1.0));
            }
        }
    }
}
