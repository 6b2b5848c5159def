//! Upper bounds of the hit ratios of any policy, even of one that knows the future.
//!
//! For a hit, the object has to stay in the cache from its previous request until this request. If this request is the
//! `n`-th after the previous one, the hit takes `size × n` of the space `capacity × requests`, which the cache offers
//! over the whole trace. `n` is 1 if the two requests are adjacent. The bound gives this space to the cheapest hits
//! first. It ignores that the cache also has a limit at each moment, so no policy can have more hits. A policy with
//! this many hits need not exist.
//!
//! Source: PFOO-L of Berger, Beckmann, Harchol-Balter, "Practical Bounds on Optimal Caching with Variable Object
//! Sizes", SIGMETRICS 2018, section 5. The bound of the byte hit ratio gives the space to the hits with the most bytes
//! per space instead. Cost: O(n log n) for `n` requests; memory: 16 bytes per request that is not the first of its
//! object, and 16 bytes per object.

use edgeward_trace::Record;
use edgeward_types::charge_bytes;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use serde::Serialize;

use crate::facts::{ratio, spread};

/// Collects the requests of a trace for its bounds.
#[derive(Debug)]
pub struct OfflineBounds {
    warmup_requests: u64,
    object_overhead_bytes: u64,
    metadata_bytes: u64,
    requests: u64,
    counted_bytes: u64,
    last_requests: HashTable<LastRequest>,
    intervals: Vec<Interval>,
}

/// The bounds at one capacity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BoundReport {
    /// The capacity in bytes.
    pub capacity_bytes: u64,
    /// No policy has more hits per request.
    pub object_hit_ratio_max: f64,
    /// No policy has more bytes hit per byte requested.
    pub byte_hit_ratio_max: f64,
}

#[derive(Clone, Copy, Debug)]
struct LastRequest {
    key: u64,
    /// The number of the request, from 0.
    number: u64,
}

/// A possible hit: the time from the previous request of an object to the next.
#[derive(Clone, Copy, Debug)]
struct Interval {
    size_bytes: u64,
    /// The number of this request minus the number of the previous one: 1 if they are adjacent. If the previous request
    /// was in the warm-up, the number of the first request after the warm-up is subtracted instead.
    requests: u64,
}

impl OfflineBounds {
    /// The arguments are those of a [`Run`](crate::Run): requests that are not counted, and bytes charged per object in
    /// addition to its body.
    pub fn new(warmup_requests: u64, object_overhead_bytes: u64) -> Self {
        Self {
            warmup_requests,
            object_overhead_bytes,
            metadata_bytes: 0,
            requests: 0,
            counted_bytes: 0,
            last_requests: HashTable::new(),
            intervals: Vec::new(),
        }
    }

    /// Charges each object `bytes` in addition; see [`Run::with_metadata_bytes`](crate::Run::with_metadata_bytes).
    #[must_use]
    pub fn with_metadata_bytes(mut self, bytes: u64) -> Self {
        self.metadata_bytes = bytes;
        self
    }

    /// Processes the next requests, in order.
    pub fn feed(&mut self, records: &[Record]) {
        for record in records {
            self.request(record);
        }
    }

    /// Returns the bounds at each capacity.
    pub fn report(mut self, capacities_bytes: &[u64]) -> Vec<BoundReport> {
        // Both orders are made in place: a copy would double the memory for a long trace.
        let mut intervals = std::mem::take(&mut self.intervals);
        let counted_requests = self.requests.saturating_sub(self.warmup_requests);
        let space = |capacity_bytes| u128::from(capacity_bytes) * u128::from(counted_requests);
        let fits = |interval: &Interval, capacity_bytes| self.charge(interval) <= capacity_bytes;

        intervals.sort_unstable_by_key(|interval| self.space(interval));
        let hits = |&capacity_bytes: &u64| {
            let cheapest = intervals.iter().filter(|hit| fits(hit, capacity_bytes));
            self.hits(space(capacity_bytes), cheapest)
        };
        let hits: Vec<u64> = capacities_bytes.iter().map(hits).collect();

        intervals.sort_unstable_by(|a, b| {
            let space_per_byte = |interval: &Interval| {
                self.space(interval) as f64 / interval.size_bytes.max(1) as f64
            };
            space_per_byte(a).total_cmp(&space_per_byte(b))
        });
        let report = |(&capacity_bytes, hits): (&u64, u64)| {
            let most_bytes = intervals.iter().filter(|hit| fits(hit, capacity_bytes));
            let hit_bytes = self.hit_bytes(space(capacity_bytes), most_bytes);
            BoundReport {
                capacity_bytes,
                object_hit_ratio_max: ratio(hits, counted_requests),
                byte_hit_ratio_max: hit_bytes / self.counted_bytes.max(1) as f64,
            }
        };
        capacities_bytes.iter().zip(hits).map(report).collect()
    }

    fn request(&mut self, record: &Record) {
        let (key, number) = (record.key, self.requests);
        let counted = number >= self.warmup_requests;
        let entry =
            self.last_requests
                .entry(spread(key), |last| last.key == key, |last| spread(last.key));
        match entry {
            Entry::Vacant(vacant) => {
                vacant.insert(LastRequest { key, number });
            }
            Entry::Occupied(mut occupied) => {
                let last = std::mem::replace(&mut occupied.get_mut().number, number);
                if counted {
                    self.intervals.push(Interval {
                        size_bytes: record.size,
                        requests: number - last.max(self.warmup_requests),
                    });
                }
            }
        }
        self.requests += 1;
        if counted {
            self.counted_bytes = self.counted_bytes.saturating_add(record.size);
        }
    }

    /// The largest number of hits whose intervals take at most this space.
    fn hits<'a>(&self, space: u128, cheapest_first: impl Iterator<Item = &'a Interval>) -> u64 {
        let mut space_left = space;
        let mut hits = 0;
        for interval in cheapest_first {
            match space_left.checked_sub(self.space(interval)) {
                Some(left) => space_left = left,
                None => break,
            }
            hits += 1;
        }
        hits
    }

    /// The largest number of hit bytes whose intervals take at most this space. A part of the last hit is counted.
    fn hit_bytes<'a>(
        &self,
        space: u128,
        most_bytes_first: impl Iterator<Item = &'a Interval>,
    ) -> f64 {
        let mut space_left = space;
        let mut bytes = 0.0;
        for interval in most_bytes_first {
            let needed = self.space(interval);
            match space_left.checked_sub(needed) {
                Some(left) => space_left = left,
                None => {
                    return bytes + interval.size_bytes as f64 * space_left as f64 / needed as f64;
                }
            }
            bytes += interval.size_bytes as f64;
        }
        bytes
    }

    /// The space of a hit in bytes × requests.
    fn space(&self, interval: &Interval) -> u128 {
        u128::from(self.charge(interval)) * u128::from(interval.requests)
    }

    fn charge(&self, interval: &Interval) -> u64 {
        charge_bytes(interval.size_bytes, self.object_overhead_bytes)
            .saturating_add(self.metadata_bytes)
    }
}

#[cfg(test)]
mod tests {
    use edgeward_policy::PolicySpec;
    use edgeward_types::{Seed, Timestamp};
    use proptest::prelude::*;

    use super::*;
    use crate::{Run, RunConfig};

    fn records(requests: &[(u64, u64)]) -> Vec<Record> {
        let record = |&(key, size)| Record {
            time: Timestamp::ZERO,
            key,
            size,
        };
        requests.iter().map(record).collect()
    }

    fn bound(requests: &[(u64, u64)], warmup_requests: u64, capacity_bytes: u64) -> BoundReport {
        let mut bounds = OfflineBounds::new(warmup_requests, 0);
        bounds.feed(&records(requests));
        bounds.report(&[capacity_bytes]).remove(0)
    }

    /// The hit on object 1 takes 10 bytes × 1 request, because its two requests are adjacent: the later one is counted.
    /// The hit on object 2 takes 30 bytes × 3 requests: the two of object 1, and its own second request. Five requests
    /// with 20 bytes of capacity offer 100 bytes × requests; object 2 is larger than the cache.
    #[test]
    fn a_hit_takes_its_size_times_the_requests_between() {
        let requests = [(2, 30), (1, 10), (1, 10), (2, 30), (3, 10)];
        assert_eq!(bound(&requests, 0, 20).object_hit_ratio_max, 0.2);
        assert_eq!(bound(&requests, 0, 30).object_hit_ratio_max, 0.4);
        assert_eq!(bound(&requests, 0, 30).byte_hit_ratio_max, 40.0 / 90.0);
    }

    /// A hit right after the warm-up takes space only from the end of the warm-up.
    #[test]
    fn the_warm_up_takes_no_space() {
        let requests = [(1, 10), (2, 10), (3, 10), (1, 10)];
        assert_eq!(bound(&requests, 3, 10).object_hit_ratio_max, 1.0);
        assert_eq!(bound(&requests, 0, 5).object_hit_ratio_max, 0.0);
    }

    proptest! {
        /// No policy has more hits or hit bytes than the bound.
        #[test]
        fn no_policy_exceeds_the_bounds(
            keys in prop::collection::vec(0u64..40, 1..300),
            capacity in 1u64..200,
            warmup in 0u64..20,
        ) {
            let requests: Vec<(u64, u64)> =
                keys.into_iter().map(|key| (key, 1 + spread(key) % 40)).collect();
            let bound = bound(&requests, warmup, capacity);
            for policy in PolicySpec::examples() {
                if policy == PolicySpec::INFINITE {
                    continue;
                }
                let mut run = Run::new(RunConfig {
                    policy,
                    capacity_bytes: capacity,
                    warmup_requests: warmup,
                    object_overhead_bytes: 0,
                    seed: Seed(1),
                    window_requests: None,
                    interval_requests: u64::MAX,
                });
                run.feed(&records(&requests));
                let report = run.report();
                prop_assert!(report.object_hit_ratio <= bound.object_hit_ratio_max + 1e-9, "{policy}");
                prop_assert!(report.byte_hit_ratio <= bound.byte_hit_ratio_max + 1e-9, "{policy}");
            }
        }
    }
}
