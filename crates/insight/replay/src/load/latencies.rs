//! Histograms of latencies that other threads can read while a replay runs.
//!
//! The difference of two snapshots has the percentiles of the interval between them. Each doubling of the
//! latency has 64 buckets, so the error of a percentile above 66 µs is at most 0.8 %. Below 66 µs, the error is
//! at most 0.5 µs. To count a latency takes one relaxed addition. The module `tally` has the more precise
//! histograms of the whole run.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One counter per bucket. Several threads increment them.
pub(super) struct LatencyCounts(Box<[AtomicU64]>);

impl LatencyCounts {
    pub(super) fn count(&self, took: Duration) {
        self.0[bucket(took)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> Latencies {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        Latencies(counts.collect())
    }

    pub(super) fn reset(&self) {
        self.0
            .iter()
            .for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

impl Default for LatencyCounts {
    fn default() -> Self {
        Self((0..BUCKETS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl fmt::Debug for LatencyCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

/// The number of latencies in each bucket: since the start of the counters, or within an interval.
#[derive(Clone, PartialEq, Eq)]
pub struct Latencies(Box<[u64]>);

impl Latencies {
    /// Returns the number of latencies.
    pub fn len(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns true if there are no latencies.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&count| count == 0)
    }

    /// Returns the latencies counted after `earlier`, a snapshot of the same counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.0.iter().zip(&earlier.0);
        Self(pairs.map(|(now, then)| now.saturating_sub(*then)).collect())
    }

    /// Adds the counts of another replay.
    pub fn add(&mut self, more: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&more.0) {
            *mine += theirs;
        }
    }

    /// Returns the latency that a `share` of the values does not exceed, or `None` without values.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let all = self.len();
        if all == 0 {
            return None;
        }
        // A share of zero selects the smallest value.
        let rank = ((all as f64 * share).ceil() as u64).clamp(1, all);
        let mut seen = 0;
        let reached = self.0.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        reached.map(middle)
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self(vec![0; BUCKETS].into())
    }
}

impl fmt::Debug for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latencies")
            .field("count", &self.len())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .finish()
    }
}

/// Returns the number of the bucket of a latency. Below 64 units, each unit has its own bucket.
fn bucket(took: Duration) -> usize {
    let units = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) >> UNIT_BITS;
    let units = units.min(UNITS_MAX);
    if units < 1 << BUCKETS_PER_DOUBLING_LOG2 {
        return units as usize;
    }
    let shift = units.ilog2() - BUCKETS_PER_DOUBLING_LOG2;
    // `units >> shift` is 64 to 127, and each shift has 64 buckets. For shift 0 the bucket is thus the number
    // of units.
    (shift as usize * BUCKETS_PER_DOUBLING) + (units >> shift) as usize
}

/// Returns the middle of the range of latencies that a bucket counts.
fn middle(bucket: usize) -> Duration {
    let nanos = if bucket < BUCKETS_PER_DOUBLING {
        ((bucket as u64) << UNIT_BITS) + (1 << (UNIT_BITS - 1))
    } else {
        let shift = bucket / BUCKETS_PER_DOUBLING - 1;
        let units = (bucket - shift * BUCKETS_PER_DOUBLING) as u64;
        let low = units << shift << UNIT_BITS;
        low + (1 << shift << UNIT_BITS) / 2
    };
    Duration::from_nanos(nanos)
}

/// A unit is 2^10 ns. Reading the clock takes about a tenth of a unit.
const UNIT_BITS: u32 = 10;

/// The number of buckets for each doubling of the latency, and its binary logarithm.
const BUCKETS_PER_DOUBLING: usize = 1 << BUCKETS_PER_DOUBLING_LOG2;
const BUCKETS_PER_DOUBLING_LOG2: u32 = 6;

/// 2^32 units are 73 minutes. All longer latencies are counted in the last bucket.
const UNITS_MAX: u64 = (1 << 32) - 1;

/// The number of buckets: 64 for values below 64 units, then 64 for each doubling up to 2^32 units.
const BUCKETS: usize = BUCKETS_PER_DOUBLING * (32 - BUCKETS_PER_DOUBLING_LOG2 as usize + 1);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_error_of_a_percentile_is_at_most_one_part_in_64(nanos in 0_u64..4_000_000_000_000) {
            let counts = LatencyCounts::default();
            counts.count(Duration::from_nanos(nanos));
            let median = counts.snapshot().quantile(0.5).expect("a latency was counted").as_nanos() as f64;
            // The error is half a bucket, or half a unit below 64 units. The test permits twice this error.
            let off = (median - nanos as f64).abs();
            prop_assert!(off <= (nanos as f64 / 64.0).max(1024.0), "{nanos} counted, {median} returned");
        }

        #[test]
        fn a_longer_latency_is_not_in_a_lower_bucket(a in 0_u64..1 << 43, b in 0_u64..1 << 43) {
            let (a, b) = (a.min(b), a.max(b));
            prop_assert!(bucket(Duration::from_nanos(a)) <= bucket(Duration::from_nanos(b)));
            prop_assert!(bucket(Duration::from_nanos(b)) < BUCKETS);
        }
    }

    /// The expected percentiles are those of the sorted list.
    #[test]
    fn percentiles_of_an_interval_exclude_earlier_responses() {
        let counts = LatencyCounts::default();
        (0..1000).for_each(|_| counts.count(Duration::from_secs(9)));
        let before = counts.snapshot();
        (1..=1000).for_each(|ms| counts.count(Duration::from_millis(ms)));
        let interval = counts.snapshot().since(&before);
        assert_eq!(interval.len(), 1000);
        for (share, ms) in [
            (0.0, 1.0),
            (0.5, 500.0),
            (0.9, 900.0),
            (0.99, 990.0),
            (1.0, 1000.0),
        ] {
            let quantile = interval
                .quantile(share)
                .expect("latencies were counted")
                .as_secs_f64()
                * 1000.0;
            assert!((quantile - ms).abs() <= ms / 64.0, "{share}: {quantile} ms");
        }
        assert_eq!(
            counts.snapshot().since(&counts.snapshot()).quantile(0.5),
            None
        );
    }

    #[test]
    fn the_longest_latency_is_in_the_last_bucket() {
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
        assert_eq!(bucket(Duration::ZERO), 0);
    }
}
