//! A count-min sketch that estimates how often each key was requested recently.
//!
//! A key has four counters of four bits, all in one cache line. Its estimate is the smallest of them. Other keys may
//! use the same counters, so an estimate may be too high. The maximum of a counter is 15; a lower estimate is never too
//! low.
//!
//! When the number of requests reaches ten per object of the cache, it is halved together with all counters. Old
//! requests thus lose weight.
//!
//! Sources: Cormode and Muthukrishnan, "An Improved Data Stream Summary: The Count-Min Sketch and its Applications",
//! J. Algorithms 2005; Einziger, Friedman and Manes, "TinyLFU: A Highly Efficient Cache Admission Policy", ACM TOS 2017
//! (halving, and increments of the smallest counters only). Cost: one access to memory per request or estimate, and
//! amortised O(1) for halving. Memory: 8 to 16 bytes per object.

use edgeward_types::{KeyHash, mix64};

/// Estimated numbers of recent requests.
#[derive(Debug)]
pub struct FrequencySketch {
    /// Blocks of eight words, a cache line each. The number of blocks is a power of two. A row of the sketch has two
    /// words of each block.
    words: Vec<u64>,
    /// The number of objects in the cache.
    objects: usize,
    /// The number of recorded requests. It is halved together with the counters.
    requests: usize,
}

impl FrequencySketch {
    /// Makes an empty sketch for a cache of at most 1024 objects.
    pub fn new() -> Self {
        Self {
            words: vec![0; OBJECTS_MIN],
            objects: 0,
            requests: 0,
        }
    }

    /// Sets the number of objects in the cache. Enlarges the sketch if it is too small for them; the counts stay.
    pub fn set_objects(&mut self, objects: usize) {
        self.objects = objects;
        while self.words.len() < objects {
            // The low bits of a hash select the block. After the doubling, a key's block is a copy of its former block.
            self.words.extend_from_within(..);
        }
    }

    /// Counts a request.
    pub fn record(&mut self, key: KeyHash) {
        let counters = self.counters(key);
        let count = self.smallest(counters);
        if count < COUNT_MAX {
            // The larger counters overestimate this key already, so only the smallest are incremented.
            for counter in counters {
                if self.count(counter) == count {
                    self.words[counter.word] += 1 << counter.shift;
                }
            }
        }
        self.requests += 1;
        if self.requests >= REQUESTS_PER_OBJECT * self.objects.max(OBJECTS_MIN) {
            self.requests /= 2;
            for word in &mut self.words {
                *word = (*word >> 1) & LOW_THREE_BITS;
            }
        }
    }

    /// Returns the estimated number of recent requests of a key, at most 15.
    pub fn estimate(&self, key: KeyHash) -> u32 {
        self.smallest(self.counters(key)) as u32
    }

    /// Returns the bytes of the counters.
    pub fn bookkeeping_bytes(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }

    fn smallest(&self, counters: [Counter; ROWS]) -> u64 {
        let counts = counters.map(|counter| self.count(counter));
        counts.into_iter().fold(COUNT_MAX, u64::min)
    }

    fn count(&self, counter: Counter) -> u64 {
        (self.words[counter.word] >> counter.shift) & COUNT_MAX
    }

    /// Returns the key's counter in each row.
    fn counters(&self, key: KeyHash) -> [Counter; ROWS] {
        let hash = mix64(key.0 ^ SALT);
        let block = hash as usize & (self.words.len() / BLOCK_WORDS - 1);
        // Bits 44 to 63 select the counters. A sketch of 2^44 blocks does not fit into memory, so no bit is used twice.
        std::array::from_fn(|row| {
            let bits = (hash >> (44 + 5 * row)) as usize;
            Counter {
                word: BLOCK_WORDS * block + 2 * row + (bits & 1),
                shift: 4 * ((bits >> 1) & 15) as u32,
            }
        })
    }
}

impl Default for FrequencySketch {
    fn default() -> Self {
        Self::new()
    }
}

/// The position of a counter.
#[derive(Clone, Copy, Debug)]
struct Counter {
    word: usize,
    shift: u32,
}

/// The number of rows, as in the paper.
const ROWS: usize = 4;

const BLOCK_WORDS: usize = 2 * ROWS;

/// The maximum of a counter.
const COUNT_MAX: u64 = 15;

/// The three low bits of each counter of a word.
const LOW_THREE_BITS: u64 = 0x7777_7777_7777_7777;

/// The least number of objects for which a sketch has space. Such a sketch takes 8 KiB.
const OBJECTS_MIN: usize = 1024;

/// The requests per object until the counters are halved. With ten, counters of four bits rarely reach their maximum.
const REQUESTS_PER_OBJECT: usize = 10;

/// Makes the counters independent of the hash table that uses the same key.
const SALT: u64 = 0x6672_6571_7565_6e63;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// With few keys, the estimates equal exact counts up to the maximum, also if the sketch grows in between.
        #[test]
        fn few_keys_are_counted_exactly(
            keys in prop::collection::vec(0u64..20, 0..300),
            growth_at in prop::option::of(0usize..300),
        ) {
            let mut sketch = FrequencySketch::new();
            let mut counts: HashMap<u64, u32> = HashMap::new();
            for (n, &key) in keys.iter().enumerate() {
                if Some(n) == growth_at {
                    sketch.set_objects(5000);
                }
                sketch.record(KeyHash(key));
                *counts.entry(key).or_default() += 1;
                prop_assert_eq!(sketch.estimate(KeyHash(key)), counts[&key].min(15));
            }
        }
    }

    /// Method: record one to eight requests of each key, with as many keys as the sketch has space for.
    #[test]
    fn estimates_are_never_too_low_and_rarely_too_high() {
        let objects = 4096;
        let mut sketch = FrequencySketch::new();
        sketch.set_objects(objects);
        let requests = |key: u64| 8 - (key % 8) as u32;
        for round in 0..8 {
            (0..objects as u64)
                .filter(|&key| requests(key) > round)
                .for_each(|key| sketch.record(KeyHash(key)));
        }
        let errors: Vec<i64> = (0..objects as u64)
            .map(|key| i64::from(sketch.estimate(KeyHash(key))) - i64::from(requests(key)))
            .collect();
        assert!(errors.iter().all(|&error| error >= 0));
        let too_high = errors.iter().filter(|&&error| error > 0).count();
        assert!(too_high < objects / 100, "{too_high} of {objects}");
    }

    /// The first halving is after ten requests per object, each later one after five.
    #[test]
    fn old_requests_lose_weight() {
        let mut sketch = FrequencySketch::new();
        let mut others = 0..;
        let mut record_others = |sketch: &mut FrequencySketch, requests: usize| {
            for key in others.by_ref().take(requests) {
                sketch.record(KeyHash(key));
            }
        };
        (0..12).for_each(|_| sketch.record(KeyHash(u64::MAX)));
        record_others(&mut sketch, 10 * OBJECTS_MIN - 13);
        let before = sketch.estimate(KeyHash(u64::MAX));
        record_others(&mut sketch, 1);
        assert_eq!(sketch.estimate(KeyHash(u64::MAX)), before / 2);
        record_others(&mut sketch, 5 * OBJECTS_MIN - 1);
        let before = sketch.estimate(KeyHash(u64::MAX));
        record_others(&mut sketch, 1);
        assert_eq!(sketch.estimate(KeyHash(u64::MAX)), before / 2);
    }

    #[test]
    fn the_sketch_takes_8_to_16_bytes_per_object() {
        let mut sketch = FrequencySketch::new();
        for objects in [1024, 1025, 100_000] {
            sketch.set_objects(objects);
            let bytes_per_object = sketch.bookkeeping_bytes() as f64 / objects as f64;
            assert!(
                (8.0..16.0).contains(&bytes_per_object),
                "{bytes_per_object}"
            );
        }
    }
}
