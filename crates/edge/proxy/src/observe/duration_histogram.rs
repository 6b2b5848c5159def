//! Histograms of durations. One worker observes durations, and each scrape reads the counts of all workers.

use std::time::Duration;

use edgeward_metrics::HistogramValues;

use super::counter::Counter;

/// The counts of durations by bucket, and the sum of all durations.
#[derive(Debug, Default)]
pub(crate) struct DurationHistogram {
    /// The number of durations in each bucket of [`BOUNDS_SECONDS`], then of longer ones.
    counts: [Counter; BUCKETS],
    /// In microseconds. Nanoseconds would overflow within days if tens of thousands of clients wait all the time.
    sum_micros: Counter,
}

impl DurationHistogram {
    pub(crate) fn observe(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        // Prometheus: a value equal to a bound belongs to the bucket of this bound (`le`).
        let bucket = BOUNDS_NANOS.partition_point(|bound| *bound < nanos);
        self.counts[bucket].increment();
        self.sum_micros.add(nanos.saturating_add(500) / 1000);
    }

    /// Adds the counts of another histogram, which nothing changes any more.
    pub(crate) fn add(&self, counted: &Self) {
        for (sum, count) in self.counts.iter().zip(&counted.counts) {
            sum.add(count.value());
        }
        self.sum_micros.add(counted.sum_micros.value());
    }

    /// Adds the counts to `sums`.
    pub(crate) fn add_to(&self, sums: &mut [u64; BUCKETS]) {
        for (sum, count) in sums.iter_mut().zip(&self.counts) {
            *sum += count.value();
        }
    }

    /// Returns the sum of the histograms. `None` if no duration was observed.
    pub(crate) fn sum<'a>(histograms: impl Iterator<Item = &'a Self>) -> Option<HistogramValues> {
        let mut values = HistogramValues {
            counts: vec![0; BUCKETS],
            sum: 0.0,
        };
        for histogram in histograms {
            for (total, count) in values.counts.iter_mut().zip(&histogram.counts) {
                *total += count.value();
            }
            values.sum += histogram.sum_micros.value() as f64 / 1e6;
        }
        let is_empty = values.counts.iter().all(|count| *count == 0);
        (!is_empty).then_some(values)
    }
}

/// The upper bounds of the buckets: 1, 2 and 5 of each power of ten. Nearly all hits take less than the first bound,
/// also over TLS. The last bound is near the default timeouts of an origin and of a client, which are 60 s.
pub(crate) const BOUNDS_SECONDS: [f64; BUCKETS - 1] = [
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
    10.0, 20.0, 50.0,
];

const BOUNDS_NANOS: [u64; BUCKETS - 1] = {
    let mut nanos = [0; BUCKETS - 1];
    let mut at = 0;
    while at < nanos.len() {
        nanos[at] = (BOUNDS_SECONDS[at] * 1e9).round() as u64;
        at += 1;
    }
    nanos
};

pub(crate) const BUCKETS: usize = 19;

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(durations: &[Duration]) -> Vec<u64> {
        let histogram = DurationHistogram::default();
        durations.iter().for_each(|d| histogram.observe(*d));
        let values = DurationHistogram::sum([&histogram].into_iter()).expect("durations");
        values.counts
    }

    /// Both sides of each bound, and the bound itself.
    #[test]
    fn a_duration_is_counted_in_the_first_bucket_whose_bound_is_not_below_it() {
        for (bucket, nanos) in BOUNDS_NANOS.into_iter().enumerate() {
            for (nanos, expected) in [
                (nanos - 1, bucket),
                (nanos, bucket),
                (nanos + 1, bucket + 1),
            ] {
                let counts = counts(&[Duration::from_nanos(nanos)]);
                let found = counts.iter().position(|count| *count == 1);
                assert_eq!(found, Some(expected), "{nanos} ns");
            }
        }
        assert_eq!(counts(&[Duration::MAX])[BUCKETS - 1], 1);
        assert_eq!(counts(&[Duration::ZERO])[0], 1);
    }

    #[test]
    fn histograms_of_workers_are_added() {
        let workers =
            [const { Duration::from_millis(3) }, Duration::from_secs(3)].map(|duration| {
                let histogram = DurationHistogram::default();
                histogram.observe(duration);
                histogram.observe(Duration::from_nanos(1_499));
                histogram
            });
        let values = DurationHistogram::sum(workers.iter()).expect("durations");
        assert_eq!(values.counts.iter().sum::<u64>(), 4);
        assert_eq!(values.counts[0], 2);
        assert!((values.sum - 3.003_002).abs() < 1e-9, "{}", values.sum);
    }

    #[test]
    fn a_histogram_without_durations_has_no_values() {
        let empty = DurationHistogram::default();
        assert_eq!(DurationHistogram::sum([&empty].into_iter()), None);
    }
}
