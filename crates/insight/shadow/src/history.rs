//! The hits of both caches over time, with a bounded number of intervals.

use std::time::Duration;

use crate::report::Side;

/// The requests and hits of one cache. Only requests whose verdict is known are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HitCounts {
    pub(crate) requests: u64,
    pub(crate) hits: u64,
}

impl HitCounts {
    /// Returns the hits divided by the requests. Returns `None` without a request.
    pub(crate) fn ratio(self) -> Option<f64> {
        (self.requests > 0).then(|| self.hits as f64 / self.requests as f64)
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            hits: self.hits + other.hits,
        }
    }
}

/// The counts of one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) incumbent: HitCounts,
    pub(crate) edge: HitCounts,
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

    pub(crate) fn count(&mut self, at: Duration, side: Side, is_hit: bool) {
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
        let one = HitCounts {
            requests: 1,
            hits: u64::from(is_hit),
        };
        let counts = match side {
            Side::Incumbent => &mut counts.incumbent,
            Side::Edge => &mut counts.edge,
        };
        *counts = counts.plus(one);
    }

    fn number_of(&self, at: Duration) -> usize {
        usize::try_from(at.as_nanos() / self.interval.as_nanos()).unwrap_or(usize::MAX)
    }

    /// Returns the start of each interval that has requests, and its counts.
    pub(crate) fn intervals(&self) -> impl Iterator<Item = (Duration, Counts)> {
        let all = (0_u32..).zip(&self.intervals);
        all.filter(|(_, counts)| **counts != Counts::default())
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
            incumbent: self.incumbent.plus(other.incumbent),
            edge: self.edge.plus(other.edge),
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
            for (millis, is_edge, is_hit) in &times {
                let side = if *is_edge { Side::Edge } else { Side::Incumbent };
                history.count(Duration::from_millis(*millis), side, *is_hit);
                prop_assert!(history.intervals.len() <= intervals_max);
            }
            let total = history.total();
            prop_assert_eq!(total.edge.requests + total.incumbent.requests, times.len() as u64);
            let hits = times.iter().filter(|(_, is_edge, is_hit)| *is_edge && *is_hit).count();
            prop_assert_eq!(total.edge.hits, hits as u64);
            for (start, counts) in history.intervals() {
                let within = times.iter().filter(|(millis, ..)| {
                    let at = Duration::from_millis(*millis);
                    at >= start && at < start + history.interval
                });
                let counted = counts.edge.requests + counts.incumbent.requests;
                prop_assert_eq!(within.count() as u64, counted);
            }
        }
    }
}
