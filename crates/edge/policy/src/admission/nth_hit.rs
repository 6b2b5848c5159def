//! Admits an object at the N-th of its misses that the rule remembers.
//!
//! Sources: `proxy_cache_min_uses N` of nginx; for N = 2, "cache on second hit" of Maggs and Sitaraman, "Algorithmic
//! Nuggets in Content Delivery", CCR 2015, section 4. nginx counts each request, and forgets the count of an object
//! when it removes the file. This rule counts misses only. An eviction keeps the count; rotations of the filters forget
//! it.
//!
//! A [`RequestCounter`] counts with rotating Bloom filters, as the disk tier does: one pair of filters for first
//! requests, a pair of half the size for second requests, and so on. At most one percent of the new keys are falsely
//! counted as keys with one request.
//!
//! Cost: up to N-1 lookups in filters, each of one cache line. Memory: none per object; the filters take about 0.1 %
//! of the capacity for N = 2, and at most 0.2 % for larger N.

use std::num::NonZeroU64;

use crate::disk_admission::{FALSE_POSITIVE_RATE_MAX, RequestCounter};
use crate::object::Object;
use crate::sketch::RotatingBloomConfig;

/// The rule with its counter of requests.
#[derive(Debug)]
pub struct NthHit {
    counter: RequestCounter,
}

impl NthHit {
    /// Makes a rule that admits at request number `requests`, for a tier of this capacity.
    ///
    /// # Panics
    /// If `requests` is less than 2.
    pub fn new(requests: u32, capacity_bytes: u64) -> Self {
        let keys = (capacity_bytes / CAPACITY_BYTES_PER_KEY).clamp(KEYS_MIN, KEYS_MAX);
        let keys = NonZeroU64::new(keys).expect("KEYS_MIN is above zero");
        let memory = RotatingBloomConfig::new(keys, FALSE_POSITIVE_RATE_MAX);
        Self {
            counter: RequestCounter::new(requests - 1, memory),
        }
    }

    /// Counts the request and returns true if it is the N-th or a later one.
    pub(super) fn admits(&self, object: &Object) -> bool {
        self.counter.count(object.key) >= self.counter.count_max()
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let filters = self.counter.stats();
        filters.iter().map(|filter| filter.memory_bytes).sum()
    }
}

/// The filters have space for one distinct key per this number of bytes of the capacity.
const CAPACITY_BYTES_PER_KEY: u64 = 4 << 10;

/// The least number of keys, which takes 0.2 MB. Fewer keys would save little memory.
const KEYS_MIN: u64 = 1 << 16;

/// The greatest number of keys, which takes 0.8 GB. More keys improved no measured trace. The limit is needed because
/// the policy `infinite` has a capacity of nearly 2^64 bytes.
const KEYS_MAX: u64 = 1 << 28;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use edgeward_types::KeyHash;
    use proptest::prelude::*;

    use super::*;

    fn admits(rule: &NthHit, key: u64) -> bool {
        rule.admits(&Object {
            key: KeyHash(key),
            size_bytes: 1,
        })
    }

    proptest! {
        /// With few keys, the rule equals a table of exact counts.
        #[test]
        fn an_object_is_admitted_from_its_nth_request_on(
            requests in 2u32..=8,
            keys in prop::collection::vec(0u64..30, 0..300),
        ) {
            let rule = NthHit::new(requests, 1 << 20);
            let mut counts: HashMap<u64, u32> = HashMap::new();
            for key in keys {
                let count = counts.entry(key).or_default();
                *count += 1;
                prop_assert_eq!(admits(&rule, key), *count >= requests);
            }
        }
    }

    /// Method: request one key, then many others. Half a period of others keeps the key; three periods forget it.
    #[test]
    fn a_request_is_remembered_for_a_period_and_forgotten_after_a_few() {
        for (others, remembered) in [(KEYS_MIN / 2, true), (3 * KEYS_MIN, false)] {
            let rule = NthHit::new(2, 1 << 20);
            assert!(!admits(&rule, u64::MAX));
            for key in 0..others {
                admits(&rule, key);
            }
            assert_eq!(admits(&rule, u64::MAX), remembered, "after {others} keys");
        }
    }

    /// docs/explanation/policies.md states the shares of the capacity.
    #[test]
    fn the_memory_is_a_small_share_of_the_capacity() {
        let share =
            |requests| NthHit::new(requests, 16 << 30).memory_bytes() as f64 / (16u64 << 30) as f64;
        assert!(share(2) < 0.0011, "{}", share(2));
        assert!(share(8) < 0.0022, "{}", share(8));
    }
}
