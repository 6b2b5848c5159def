//! The sizes of the requests that the memory tier does not answer. With a disk tier, these requests reach the disk.

use serde::Serialize;

/// Numbers of requests by the size of their object. A bucket counts the sizes from one power of two to the next.
#[derive(Clone, Debug)]
pub(crate) struct MissedSizes {
    buckets: [Bucket; BUCKETS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    requests: u64,
    bytes: u64,
}

/// The requests for objects of similar sizes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MissedBucket {
    /// The smallest size of the bucket in bytes: 0, or a power of two.
    pub from_bytes: u64,
    /// Requests for objects of at least `from_bytes` and less than twice `from_bytes`. The bucket of 0 has only the
    /// size 0.
    pub requests: u64,
    /// The total size of the objects of these requests.
    pub bytes: u64,
}

impl MissedSizes {
    #[inline]
    pub(crate) fn add(&mut self, size_bytes: u64) {
        let bucket = &mut self.buckets[(u64::BITS - size_bytes.leading_zeros()) as usize];
        bucket.requests += 1;
        bucket.bytes = bucket.bytes.saturating_add(size_bytes);
    }

    /// Returns the buckets with requests, the smallest sizes first.
    pub(crate) fn report(&self) -> Vec<MissedBucket> {
        let buckets = self.buckets.iter().enumerate();
        let report = |(bits, bucket): (usize, &Bucket)| MissedBucket {
            from_bytes: if bits == 0 { 0 } else { 1 << (bits - 1) },
            requests: bucket.requests,
            bytes: bucket.bytes,
        };
        buckets
            .map(report)
            .filter(|bucket| bucket.requests > 0)
            .collect()
    }
}

impl Default for MissedSizes {
    fn default() -> Self {
        Self {
            buckets: [Bucket::default(); BUCKETS],
        }
    }
}

/// One bucket for 0, and one for each position of the highest bit.
const BUCKETS: usize = u64::BITS as usize + 1;

#[cfg(test)]
mod tests {
    use edgeward_policy::PolicySpec;
    use edgeward_trace::Record;
    use edgeward_types::{Seed, Timestamp};
    use proptest::prelude::*;

    use super::*;
    use crate::{Run, RunConfig};

    #[test]
    fn a_bucket_ends_before_the_next_power_of_two() {
        let mut sizes = MissedSizes::default();
        for size in [0, 1, 2, 3, 4, 7, 8, u64::MAX] {
            sizes.add(size);
        }
        let report = sizes.report();
        let buckets: Vec<_> = report
            .iter()
            .map(|b| (b.from_bytes, b.requests, b.bytes))
            .collect();
        let expected = [
            (0, 1, 0),
            (1, 1, 1),
            (2, 2, 5),
            (4, 2, 11),
            (8, 1, 8),
            (1 << 63, 1, u64::MAX),
        ];
        assert_eq!(buckets, expected);
    }

    proptest! {
        /// An infinite cache misses each object once, at its first request. The warm-up is not counted.
        #[test]
        fn the_missed_requests_of_an_infinite_cache_are_the_first_ones(
            keys in prop::collection::vec(0u64..40, 1..200),
            warmup in 0usize..30,
        ) {
            let size = |key: u64| key * key;
            let record = |&key: &u64| Record { time: Timestamp::ZERO, key, size: size(key) };
            let records: Vec<Record> = keys.iter().map(record).collect();
            let mut run = Run::new(RunConfig {
                policy: PolicySpec::INFINITE,
                capacity_bytes: 1,
                warmup_requests: warmup as u64,
                object_overhead_bytes: 0,
                seed: Seed(1),
                window_requests: None,
                interval_requests: 7,
            });
            run.feed(&records);
            let mut expected = std::collections::BTreeMap::<u64, (u64, u64)>::new();
            for (at, &key) in keys.iter().enumerate().skip(warmup) {
                if !keys[..at].contains(&key) {
                    let from = if key == 0 { 0 } else { 1 << size(key).ilog2() };
                    let bucket = expected.entry(from).or_default();
                    *bucket = (bucket.0 + 1, bucket.1 + size(key));
                }
            }
            let report = run.report().missed_sizes.into_iter();
            let found: Vec<_> = report.map(|b| (b.from_bytes, (b.requests, b.bytes))).collect();
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
