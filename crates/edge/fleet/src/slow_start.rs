//! The weight of a node that has started. Its cache is empty, so it owns few keys at first.

use std::time::Duration;

/// The share of its weight that a node announces. It grows in ten steps.
#[derive(Debug)]
pub(crate) struct SlowStart {
    lasts: Duration,
    /// `None` before the start and after its end.
    began_at: Option<Duration>,
    /// Tenths of the weight.
    tenths: u32,
}

impl SlowStart {
    /// Returns the state before a start that will last for this time.
    pub(crate) fn new(lasts: Duration) -> Self {
        Self {
            lasts,
            began_at: None,
            tenths: if lasts.is_zero() { 10 } else { 1 },
        }
    }

    /// The node is empty and may own keys. Returns true if its share has fallen.
    pub(crate) fn begin(&mut self, now: Duration) -> bool {
        if self.lasts.is_zero() {
            return false;
        }
        self.began_at = Some(now);
        std::mem::replace(&mut self.tenths, 1) != 1
    }

    /// The node has the objects of an earlier process.
    pub(crate) fn skip(&mut self) {
        (self.began_at, self.tenths) = (None, 10);
    }

    /// Returns true if the share has grown.
    pub(crate) fn tick(&mut self, now: Duration) -> bool {
        let Some(began_at) = self.began_at else {
            return false;
        };
        let elapsed = now.saturating_sub(began_at).as_nanos() * 10;
        let tenths = (elapsed / self.lasts.as_nanos()).clamp(1, 10);
        let tenths = u32::try_from(tenths).expect("it is at most 10");
        if tenths == 10 {
            self.began_at = None;
        }
        std::mem::replace(&mut self.tenths, tenths) != tenths
    }

    /// Returns the time of the next growth.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        let after = (self.lasts * (self.tenths + 1)).as_nanos().div_ceil(10);
        let after = Duration::from_nanos(u64::try_from(after).unwrap_or(u64::MAX));
        self.began_at.map(|began_at| began_at + after)
    }

    /// Returns the share of a weight, at least 1.
    pub(crate) fn of(&self, weight: u32) -> u32 {
        weight.saturating_mul(self.tenths).div_ceil(10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Method: each growth is at the time that was stated before, and not a nanosecond earlier. 7 s have no tenth that
    /// is a whole number of milliseconds, and 1.000000001 s none of nanoseconds.
    #[test]
    fn the_weight_grows_in_ten_steps_at_the_stated_times() {
        for lasts in [7_000_000_000, 1_000_000_001].map(Duration::from_nanos) {
            let mut start = SlowStart::new(lasts);
            assert_eq!((start.of(100), start.wake_at()), (10, None));
            let mut now = Duration::from_secs(5);
            assert!(!start.begin(now));
            for tenths in 2..=10 {
                now = start.wake_at().expect("a growth");
                assert!(!start.tick(now - Duration::from_nanos(1)));
                assert!(start.tick(now));
                assert_eq!(start.of(100), 10 * tenths);
            }
            assert!((now - Duration::from_secs(5)).abs_diff(lasts) < Duration::from_nanos(10));
            assert_eq!(start.wake_at(), None);
            assert!(start.begin(now), "the share falls again");
        }
    }

    #[test]
    fn a_node_without_a_slow_start_or_with_objects_has_its_whole_weight() {
        let mut start = SlowStart::new(Duration::ZERO);
        assert!(!start.begin(Duration::ZERO));
        assert_eq!((start.of(1), start.of(7), start.wake_at()), (1, 7, None));
        let mut start = SlowStart::new(Duration::from_secs(1));
        assert_eq!((start.of(1), start.of(7)), (1, 1));
        start.skip();
        assert_eq!((start.of(7), start.tick(Duration::MAX)), (7, false));
    }
}
