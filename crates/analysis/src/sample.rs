//! All requests for a sample of the objects, within a bounded memory.
//!
//! Whether an object is in the sample is decided by its fingerprint, so either all of its requests
//! are or none. A cache scaled down like the sample then behaves like the whole one: distances
//! between two requests for an object shrink by the sampling rate, and so do bytes.
//!
//! Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC Construction with SHARDS", FAST 2015. As
//! there (section 3.2), the rate falls when the sample outgrows its memory: the threshold that
//! fingerprints stay below is lowered and what lies above it is let go. Here it is halved.

use hashbrown::HashMap;

use edgeward_trace::Record;
use edgeward_types::Timestamp;

use crate::{Entry, Object};

/// A sample under way.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Fingerprints whose low 24 bits are below it are in.
    threshold: u32,
    records: Vec<Record>,
    records_max: usize,
    requests: u64,
}

/// A sample that is complete: requests in order, each with its object's size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampled {
    /// The share of the objects that is in it.
    pub rate: f64,
    /// Their requests.
    pub records: Vec<Record>,
    /// Requests of all objects, those in the sample among them.
    pub requests: u64,
}

impl Sample {
    /// An empty one that holds at most so many requests, 24 bytes each.
    pub fn new(records_max: usize) -> Self {
        Self {
            threshold: ALL,
            records: Vec::new(),
            records_max: records_max.max(1),
            requests: 0,
        }
    }

    /// Takes a request in if it is one a cache could have answered: a GET that came to a complete
    /// answer, a part of one, or to the word that the client's copy is good.
    #[inline]
    pub fn add(&mut self, entry: &Entry<'_>, fingerprint: u64) {
        if entry.method != b"GET" || !matches!(entry.status, 200 | 206 | 304) {
            return;
        }
        self.requests += 1;
        if low_bits(fingerprint) >= self.threshold {
            return;
        }
        let complete = u64::from(entry.status == 200) << 63;
        self.records.push(Record {
            time: entry.time.unwrap_or(Timestamp::ZERO),
            key: fingerprint,
            size: entry.bytes.unwrap_or(0).min(SIZE_MAX) | complete,
        });
        if self.records.len() > self.records_max {
            self.shrink();
        }
    }

    #[cold]
    fn shrink(&mut self) {
        // An object may have more requests than there is room for. Then none is left, and nothing
        // is said of reuse.
        while self.records.len() > self.records_max {
            self.threshold /= 2;
            let threshold = self.threshold;
            self.records
                .retain(|record| low_bits(record.key) < threshold);
        }
    }

    /// Adds what another sampled.
    pub fn merge(&mut self, mut other: Self) {
        self.requests += other.requests;
        self.threshold = self.threshold.min(other.threshold);
        let threshold = self.threshold;
        let stays = |record: &Record| low_bits(record.key) < threshold;
        self.records.retain(stays);
        other.records.retain(stays);
        self.records.append(&mut other.records);
        self.shrink();
    }

    /// Puts the requests in order and gives each its object's size: that of the largest complete
    /// answer, or of the largest at all where none was complete, and a byte at the least.
    pub fn finish(mut self) -> Sampled {
        let mut objects: HashMap<u64, Object> = HashMap::new();
        for record in &self.records {
            let object = objects.entry(record.key).or_default();
            object.request(record.size & SIZE_MAX, record.size > SIZE_MAX);
        }
        for record in &mut self.records {
            record.size = objects[&record.key].size.max(1);
        }
        // Stable: within a second the order is the log's.
        self.records.sort_by_key(|record| record.time);
        Sampled {
            rate: f64::from(self.threshold) / f64::from(ALL),
            records: self.records,
            requests: self.requests,
        }
    }
}

/// The partition is made by the high bits and tables by those below, so these are free.
#[inline]
const fn low_bits(fingerprint: u64) -> u32 {
    (fingerprint & (ALL as u64 - 1)) as u32
}

/// The threshold that everything is below.
const ALL: u32 = 1 << 24;

/// The top bit tells a complete answer until sizes are settled.
const SIZE_MAX: u64 = u64::MAX >> 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(time: u64, status: u16, bytes: u64) -> Entry<'static> {
        Entry {
            time: Some(Timestamp::from_secs(time)),
            method: b"GET",
            status,
            bytes: Some(bytes),
            ..Entry::default()
        }
    }

    /// 64-bit numbers that look random.
    fn fingerprint(n: u64) -> u64 {
        let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    #[test]
    fn sizes_are_settled_and_requests_in_order() {
        let mut sample = Sample::new(100);
        for (time, status, bytes) in [(5, 304, 0), (3, 206, 900), (9, 200, 500), (4, 404, 7)] {
            sample.add(&entry(time, status, bytes), 1);
        }
        sample.add(
            &Entry {
                method: b"POST",
                ..entry(1, 200, 1)
            },
            1,
        );
        sample.add(&entry(7, 304, 0), 2);
        let sampled = sample.finish();
        assert_eq!((sampled.rate, sampled.requests), (1.0, 4));
        let rows: Vec<_> = sampled
            .records
            .iter()
            .map(|record| (record.time.as_secs(), record.key, record.size))
            .collect();
        assert_eq!(rows, [(3, 1, 500), (5, 1, 500), (7, 2, 1), (9, 1, 500)]);
    }

    /// Method: 20,000 objects, each requested three times, by two threads; room for 6,000 requests.
    #[test]
    fn a_sample_holds_all_requests_of_its_objects_and_its_rate_is_their_share() {
        let (mut one, mut two) = (Sample::new(6000), Sample::new(6000));
        for n in 0..60_000u64 {
            let sample = if n % 7 == 0 { &mut one } else { &mut two };
            sample.add(&entry(n, 200, n % 20_000), fingerprint(n % 20_000));
        }
        one.merge(two);
        let sampled = one.finish();
        assert!(sampled.records.len() <= 6000 && sampled.records.len() > 1500);
        assert_eq!(sampled.requests, 60_000);
        let mut counts: HashMap<u64, u32> = HashMap::new();
        for record in &sampled.records {
            *counts.entry(record.key).or_default() += 1;
        }
        assert!(counts.values().all(|count| *count == 3));
        let share = counts.len() as f64 / 20_000.0;
        assert!(
            (share / sampled.rate - 1.0).abs() < 0.1,
            "{share} {}",
            sampled.rate
        );
    }

    #[test]
    fn one_object_that_outgrows_the_room_leaves_none() {
        let mut sample = Sample::new(10);
        (0..100).for_each(|n| sample.add(&entry(n, 200, 5), 0));
        let sampled = sample.finish();
        assert!(sampled.records.is_empty() && sampled.rate == 0.0);
    }
}
