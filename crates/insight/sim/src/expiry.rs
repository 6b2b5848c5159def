//! Expiry: an object whose lifetime has ended answers no request.
//!
//! The lifetime of an object starts when its fetch from the origin ends. The trace states its length for
//! each request. A request at the end of the lifetime or later finds the object stale, as in the server (RFC 9111,
//! section 4.2): it is a miss and starts the next lifetime. The object stays in the cache, as in the server after a 304
//! of the origin. The policy counts the request as a hit of the object, as the server's lookup does, because eviction
//! depends on popularity and not on freshness.

use edgeward_trace::NO_TTL;

use crate::objects::Request;

/// The ends of the lifetimes of all objects. The table takes 8 bytes per object.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    /// The time in ms from which an object is stale, by the number of the object.
    stale_from_ms: Vec<u64>,
}

impl Expiry {
    /// Returns true if the lifetime of the object has not ended. An object that was not fetched yet counts as fresh.
    pub(crate) fn is_fresh(&self, request: &Request) -> bool {
        let stale_from_ms = self.stale_from_ms.get(request.object.index());
        request.time.as_millis() < stale_from_ms.copied().unwrap_or(NEVER_MS)
    }

    /// Starts the lifetime of the object at the end of its fetch. `None`: fetches take no time.
    pub(crate) fn start(&mut self, request: &Request, fetch_end_ms: Option<u64>) {
        let index = request.object.index();
        if index >= self.stale_from_ms.len() {
            self.stale_from_ms.resize(index + 1, NEVER_MS);
        }
        let start_ms = fetch_end_ms.unwrap_or(request.time.as_millis());
        self.stale_from_ms[index] = match request.ttl_seconds {
            NO_TTL => NEVER_MS,
            seconds => start_ms.saturating_add(u64::from(seconds) * 1000),
        };
    }
}

/// The end of the lifetime of an object that does not expire.
const NEVER_MS: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use edgeward_policy::PolicySpec;
    use edgeward_trace::Record;
    use edgeward_types::{Seed, Timestamp};
    use proptest::prelude::*;

    use super::*;
    use crate::{Run, RunConfig, Traffic};

    /// A naive LRU cache for objects of size 1. Each object is a key and the end of its lifetime in ms; the most
    /// recently used object is first.
    struct NaiveLru {
        capacity: usize,
        objects: Vec<(u64, Option<u64>)>,
    }

    impl NaiveLru {
        /// Returns true for a hit.
        fn request(&mut self, key: u64, now_ms: u64, ttl: Option<u64>) -> bool {
            let fresh = Some(ttl.map(|seconds| now_ms + seconds * 1000));
            let found = self
                .objects
                .iter()
                .position(|(resident, _)| *resident == key);
            let end = found.map(|at| self.objects.remove(at).1);
            let is_hit = end.is_some_and(|end| end.is_none_or(|end| now_ms < end));
            let end = if is_hit { end } else { fresh };
            self.objects.insert(0, (key, end.flatten()));
            self.objects.truncate(self.capacity);
            is_hit
        }
    }

    fn lru(capacity_bytes: u64, requests: &[Request]) -> u64 {
        let mut run = Run::new(RunConfig {
            policy: PolicySpec::LRU,
            capacity_bytes,
            warmup_requests: 0,
            object_overhead_bytes: 0,
            seed: Seed(1),
            window_requests: None,
            interval_requests: 7,
        });
        run.feed_requests(requests);
        let report = run.report();
        let missed: u64 = report
            .missed_sizes
            .iter()
            .map(|bucket| bucket.requests)
            .sum();
        assert_eq!(report.hits + missed, requests.len() as u64);
        report.hits
    }

    proptest! {
        #[test]
        fn the_hits_are_those_of_a_naive_cache_with_lifetimes(
            steps in prop::collection::vec((0u64..12, 0u64..3_000, prop::option::of(0u32..6)), 1..300),
            capacity in 1u64..10,
        ) {
            let mut naive = NaiveLru { capacity: capacity as usize, objects: Vec::new() };
            let (mut now_ms, mut hits) = (0, 0);
            let (mut records, mut ttls) = (Vec::new(), Vec::new());
            for (key, pause_ms, ttl) in steps {
                now_ms += pause_ms;
                records.push(Record { time: Timestamp::from_millis(now_ms), key, size: 1 });
                ttls.push(ttl.unwrap_or(NO_TTL));
                hits += u64::from(naive.request(key, now_ms, ttl.map(u64::from)));
            }
            let mut requests = Vec::new();
            Traffic::default().count_all_with_ttls(&records, &ttls, &mut requests);
            prop_assert_eq!(lru(capacity, &requests), hits);
        }
    }

    /// The object is fresh until its lifetime ends, and stale from this moment. An object with a lifetime of 0 answers
    /// no request.
    #[test]
    fn an_object_is_stale_when_its_lifetime_has_ended() {
        let hits = |times_ms: &[u64], ttl: u32| {
            let record = |&time_ms: &u64| Record {
                time: Timestamp::from_millis(time_ms),
                key: 7,
                size: 1,
            };
            let records: Vec<Record> = times_ms.iter().map(record).collect();
            let mut requests = Vec::new();
            let ttls = vec![ttl; records.len()];
            Traffic::default().count_all_with_ttls(&records, &ttls, &mut requests);
            lru(1, &requests)
        };
        assert_eq!(hits(&[0, 1999], 2), 1);
        assert_eq!(hits(&[0, 2000], 2), 0);
        // The miss at 2000 starts a new lifetime.
        assert_eq!(hits(&[0, 2000, 3999], 2), 1);
        assert_eq!(hits(&[0, 0, 0], 0), 0);
        assert_eq!(hits(&[0, u64::MAX], NO_TTL), 1);
    }
}
