//! The hits of both caches over time, with a bounded number of intervals.

use std::time::Duration;

/// The counts of one interval. Only requests whose verdict is known at both caches are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) incumbent_hits: u64,
    pub(crate) edge_hits: u64,
}

/// Intervals of one length. If there are too many, pairs of them are merged and the length doubles.
#[derive(Debug)]
pub(crate) struct History {
    interval: Duration,
    intervals: Vec<Counts>,
    intervals_max: usize,
}

impl History {
    pub(crate) const fn new(intervals_max: usize) -> Self {
        Self {
            interval: INTERVAL_FIRST,
            intervals: Vec::new(),
            intervals_max,
        }
    }

    pub(crate) fn count(&mut self, at: Duration, incumbent_hit: bool, edge_hit: bool) {
        let mut number = self.number_of(at);
        while number >= self.intervals_max {
            let pairs = self.intervals.chunks(2);
            self.intervals = pairs
                .map(|pair| {
                    pair.iter()
                        .fold(Counts::default(), |sum, part| sum.plus(*part))
                })
                .collect();
            self.interval *= 2;
            number = self.number_of(at);
        }
        if self.intervals.len() <= number {
            self.intervals.resize(number + 1, Counts::default());
        }
        let counts = &mut self.intervals[number];
        *counts = counts.plus(Counts {
            requests: 1,
            incumbent_hits: u64::from(incumbent_hit),
            edge_hits: u64::from(edge_hit),
        });
    }

    fn number_of(&self, at: Duration) -> usize {
        usize::try_from(at.as_nanos() / self.interval.as_nanos()).unwrap_or(usize::MAX)
    }

    /// Returns the start of each interval that has requests, and its counts.
    pub(crate) fn intervals(&self) -> impl Iterator<Item = (Duration, Counts)> {
        let all = (0_u32..).zip(&self.intervals);
        all.filter(|(_, counts)| counts.requests > 0)
            .map(|(number, counts)| (self.interval * number, *counts))
    }

    /// Returns the sum of all intervals.
    pub(crate) fn total(&self) -> Counts {
        let all = self.intervals.iter();
        all.fold(Counts::default(), |sum, counts| sum.plus(*counts))
    }
}

impl Counts {
    const fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            incumbent_hits: self.incumbent_hits + other.incumbent_hits,
            edge_hits: self.edge_hits + other.edge_hits,
        }
    }
}

const INTERVAL_FIRST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every request is counted in the interval of its time, and the number of intervals is bounded.
        #[test]
        fn intervals_are_bounded_and_lose_no_request(
            times in proptest::collection::vec((0_u64..5_000_000, any::<bool>(), any::<bool>()), 1..200),
            intervals_max in 1_usize..20,
        ) {
            let mut history = History::new(intervals_max);
            for (millis, left, right) in &times {
                history.count(Duration::from_millis(*millis), *left, *right);
                prop_assert!(history.intervals.len() <= intervals_max);
            }
            let total = history.total();
            prop_assert_eq!(total.requests, times.len() as u64);
            let hits = times.iter().filter(|(_, left, _)| *left).count();
            prop_assert_eq!(total.incumbent_hits, hits as u64);
            for (start, counts) in history.intervals() {
                let within = times.iter().filter(|(millis, ..)| {
                    let at = Duration::from_millis(*millis);
                    at >= start && at < start + history.interval
                });
                prop_assert_eq!(within.count() as u64, counts.requests);
            }
        }
    }
}
