//! Limits of events in a sliding window.

use std::time::Duration;

/// A limit: at most `count` events in each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The most events in a window.
    pub count: u32,
    /// The length of the window.
    pub window: Duration,
}

impl Rate {
    /// Returns the time from which one more event is within the limit. `times` are those of past events, in order. A
    /// time in the future counts as now.
    pub(crate) fn admits_at(&self, times: &[u64], now: u64) -> u64 {
        let count = self.count as usize;
        if count == 0 {
            return u64::MAX;
        }
        // The event that has to leave the window before the next one may enter it.
        match times.len().checked_sub(count) {
            Some(oldest) => self.end(times[oldest].min(now)),
            None => 0,
        }
    }

    /// Drops times that no longer count, and all but the newest `count`, which alone decide.
    pub(crate) fn trim(&self, times: &mut Vec<u64>, now: u64) {
        times.retain(|&at| self.end(at) > now);
        let surplus = times.len().saturating_sub(self.count as usize);
        times.drain(..surplus);
    }

    /// Returns when an event of the time `at` leaves the window.
    const fn end(&self, at: u64) -> u64 {
        at.saturating_add(self.window.as_secs())
            .saturating_add(MARGIN_SECONDS)
    }
}

/// Added to each window, because times are rounded to seconds and small jumps of the clock are not corrected.
const MARGIN_SECONDS: u64 = 2 * crate::reading::JUMP_SECONDS_MIN;

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate {
        count: 2,
        window: Duration::from_secs(100),
    };

    #[test]
    fn an_event_waits_until_the_oldest_leaves_the_window() {
        assert_eq!(RATE.admits_at(&[], 50), 0);
        assert_eq!(RATE.admits_at(&[40], 50), 0);
        assert_eq!(RATE.admits_at(&[40, 45], 50), 40 + 100 + MARGIN_SECONDS);
        assert_eq!(RATE.admits_at(&[10, 40, 45], 50), 40 + 100 + MARGIN_SECONDS);
        assert_eq!(RATE.admits_at(&[400, 450], 50), 50 + 100 + MARGIN_SECONDS);
        let none = Rate { count: 0, ..RATE };
        assert_eq!(none.admits_at(&[], 50), u64::MAX);
    }

    /// Method: trim at each time, and compare with the full list.
    #[test]
    fn trimming_changes_no_decision() {
        let all = [1, 20, 30, 95, 99, 130, 131];
        for now in 131..400 {
            let mut trimmed = all.to_vec();
            RATE.trim(&mut trimmed, now);
            assert!(trimmed.len() <= 2);
            let may = |times: &[u64]| RATE.admits_at(times, now) <= now;
            assert_eq!(may(&trimmed), may(&all), "{now}");
        }
    }
}
