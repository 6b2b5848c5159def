//! A sample of the objects with all their requests, in bounded memory.
//!
//! The fingerprint of an object decides if the object is sampled, so the sample has either all requests for an
//! object or no request. The hit ratio of the sample in a cache that is smaller by the sampling rate is then
//! about that of all requests in the full cache, because reuse distances are smaller by the same rate.
//!
//! Paper: Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC Construction with SHARDS", FAST 2015. Like in
//! its section 3.2, the rate is reduced when the sample exceeds its memory: the threshold of fingerprints is
//! halved, and the objects whose fingerprints are not below the new threshold are dropped.

use hashbrown::HashMap;

use edgeward_trace::Record;
use edgeward_types::Timestamp;

use crate::wire::{DecodeError, Reader, Writer};
use crate::{Entry, Object};

/// A sample that is being taken.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Objects whose low 24 fingerprint bits are below the threshold are sampled.
    threshold: u32,
    records: Vec<Record>,
    /// For each range of records, the number that the caller gave its log. In the complete sample, requests of the
    /// same time are sorted by this number. Their order therefore does not depend on the thread that read a log.
    runs: Vec<Run>,
    records_max: usize,
    /// The requests for all objects, including those that are not sampled.
    requests: u64,
}

/// The records of one log, up to the start of the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    log: u32,
    start: usize,
}

/// A complete sample: requests in order, each with its object's size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompleteSample {
    /// The share of the objects that is sampled.
    pub rate: f64,
    /// The requests for the sampled objects.
    pub records: Vec<Record>,
    /// The requests for all objects, including the sampled ones.
    pub requests: u64,
    /// The number of `records` whose object has a known size: at least one response had a body.
    pub sized_requests: u64,
}

impl Sample {
    /// Returns an empty sample of at most `records_max` requests, which take 24 bytes each.
    pub fn new(records_max: usize) -> Self {
        Self {
            threshold: THRESHOLD_ALL,
            records: Vec::new(),
            runs: vec![Run { log: 0, start: 0 }],
            records_max: records_max.max(1),
            requests: 0,
        }
    }

    /// Starts a log: the following requests belong to it.
    pub fn begin_log(&mut self, log: u32) {
        let start = self.records.len();
        self.runs.push(Run { log, start });
    }

    /// Replaces the number `n` of each log by `number(n)`.
    pub fn renumber(&mut self, number: impl Fn(u32) -> u32) {
        for run in &mut self.runs {
            run.log = number(run.log);
        }
    }

    /// Returns the highest number that was given to a log.
    pub fn log_max(&self) -> u32 {
        self.runs.iter().map(|run| run.log).max().unwrap_or(0)
    }

    /// Counts a request, and stores it if its object is sampled. Ignores requests that no cache could have answered:
    /// all except GET requests with the status 200, 206 or 304.
    #[inline]
    pub fn add(&mut self, entry: &Entry<'_>, fingerprint: u64) {
        if entry.method != b"GET" || !matches!(entry.status, 200 | 206 | 304) {
            return;
        }
        self.requests += 1;
        if low_bits(fingerprint) >= self.threshold {
            return;
        }
        // The top bit marks a complete response until `finish`.
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
        // An object with more than `records_max` requests is dropped too: the threshold is halved until the object's
        // fingerprint is not below it. The sample then has only objects with smaller fingerprints, or no object.
        while self.records.len() > self.records_max {
            self.threshold /= 2;
            self.drop_above_threshold();
        }
    }

    /// Drops the requests for objects whose fingerprints are not below the threshold.
    fn drop_above_threshold(&mut self) {
        let mut retained = 0;
        for at in 0..self.runs.len() {
            let end = self.run_end(at);
            let start = std::mem::replace(&mut self.runs[at].start, retained);
            for from in start..end {
                let record = self.records[from];
                if low_bits(record.key) < self.threshold {
                    self.records[retained] = record;
                    retained += 1;
                }
            }
        }
        self.records.truncate(retained);
        // Removes runs without records, except the last, which may still get records.
        let starts: Vec<usize> = self.runs.iter().map(|run| run.start).collect();
        let mut at = 0;
        self.runs.retain(|run| {
            at += 1;
            starts.get(at).is_none_or(|next| run.start < *next)
        });
    }

    fn run_end(&self, at: usize) -> usize {
        let next = self.runs.get(at + 1);
        next.map_or(self.records.len(), |next| next.start)
    }

    /// Adds another sample.
    pub fn merge(&mut self, mut other: Self) {
        self.requests += other.requests;
        self.threshold = self.threshold.min(other.threshold);
        other.threshold = self.threshold;
        self.drop_above_threshold();
        other.drop_above_threshold();
        let before = self.records.len();
        self.runs.extend(other.runs.iter().map(|run| Run {
            start: before + run.start,
            ..*run
        }));
        self.records.append(&mut other.records);
        self.records_max = self.records_max.min(other.records_max);
        self.shrink();
    }

    /// Encodes the sample.
    pub fn write_to(&self, out: &mut Writer) {
        out.number(u64::from(self.threshold));
        out.number(self.records_max as u64);
        out.number(self.requests);
        out.number(self.runs.len() as u64);
        for (at, run) in self.runs.iter().enumerate() {
            out.number(u64::from(run.log));
            out.number((self.run_end(at) - run.start) as u64);
        }
        let mut before = 0u64;
        for record in &self.records {
            let time = record.time.as_millis();
            // Times of a log are close together and may decrease: zigzag encoding.
            let step = time.wrapping_sub(before).cast_signed();
            out.number((step.cast_unsigned() << 1) ^ (step >> 63).cast_unsigned());
            before = time;
            out.fixed(record.key);
            // The top bit becomes the lowest bit, because small numbers take fewer bytes.
            out.number(record.size.rotate_left(1));
        }
    }

    /// Decodes a sample.
    ///
    /// # Errors
    ///
    /// Fails if [`Self::write_to`] did not write these bytes.
    pub fn read_from(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let threshold = u32::try_from(from.number()?).map_err(|_| from.decode_error())?;
        let records_max = usize::try_from(from.number()?).map_err(|_| from.decode_error())?;
        // `counted` rejects numbers whose sums could overflow.
        let requests = from.counted()?;
        if threshold > THRESHOLD_ALL || !(1..=RECORDS_MAX).contains(&records_max) {
            return Err(from.decode_error());
        }
        let mut runs = Vec::new();
        let mut start = 0usize;
        // A run takes at least 2 bytes: two numbers.
        for _ in 0..from.count(2)? {
            let log = u32::try_from(from.number()?).map_err(|_| from.decode_error())?;
            runs.push(Run { log, start });
            let records = usize::try_from(from.number()?).map_err(|_| from.decode_error())?;
            start = start.saturating_add(records);
        }
        if start > records_max {
            return Err(from.decode_error());
        }
        // The memory grows as records are decoded, because the stated number of records may be wrong.
        let mut records = Vec::new();
        let mut time = 0u64;
        for _ in 0..start {
            let step = from.number()?;
            let step = (step >> 1) ^ (step & 1).wrapping_neg();
            time = time.wrapping_add(step);
            let key = from.fixed()?;
            if low_bits(key) >= threshold {
                return Err(from.decode_error());
            }
            records.push(Record {
                time: Timestamp::from_millis(time),
                key,
                size: from.number()?.rotate_right(1),
            });
        }
        Ok(Self {
            threshold,
            records,
            runs,
            records_max,
            requests,
        })
    }

    /// Sorts the requests by time, and sets the size of each request to the size of its object. This is the
    /// size of the largest complete response, or of the largest response if no response was complete, and at
    /// least one byte.
    pub fn finish(mut self) -> CompleteSample {
        let mut objects: HashMap<u64, Object> = HashMap::new();
        for record in &self.records {
            let object = objects.entry(record.key).or_default();
            object.request(record.size & SIZE_MAX, record.size > SIZE_MAX);
        }
        let mut sized_requests = 0;
        for record in &mut self.records {
            let size = objects[&record.key].size;
            sized_requests += u64::from(size > 0);
            record.size = size.max(1);
        }
        let mut order: Vec<usize> = (0..self.runs.len()).collect();
        order.sort_by_key(|at| self.runs[*at].log);
        let mut records = Vec::with_capacity(self.records.len());
        for at in order {
            records.extend_from_slice(&self.records[self.runs[at].start..self.run_end(at)]);
        }
        // The sort is stable: requests of the same time keep the order of the log.
        records.sort_by_key(|record| record.time);
        CompleteSample {
            rate: f64::from(self.threshold) / f64::from(THRESHOLD_ALL),
            records,
            requests: self.requests,
            sized_requests,
        }
    }
}

/// Returns the low 24 bits of a fingerprint, which decide if an object is sampled. The crate `logs` selects
/// a partition by the highest bits, and a position in a hash table by the next bits. The low bits are independent
/// of both.
#[inline]
const fn low_bits(fingerprint: u64) -> u32 {
    (fingerprint & (THRESHOLD_ALL as u64 - 1)) as u32
}

/// The threshold that samples all objects.
const THRESHOLD_ALL: u32 = 1 << 24;

/// The largest size of a response. Until [`Sample::finish`] sets the sizes, the bit above it marks a complete
/// response.
const SIZE_MAX: u64 = u64::MAX >> 1;

/// The largest `records_max` that is accepted when a sample is decoded.
const RECORDS_MAX: usize = 1 << 24;

#[cfg(test)]
mod tests {
    use edgeward_types::mix64;

    use super::*;

    #[test]
    fn requests_for_objects_of_known_size_are_counted() {
        let mut sample = Sample::new(100);
        for (key, status, bytes) in [
            (1, 200, 0),
            (1, 304, 0),
            (2, 304, 0),
            (2, 200, 5),
            (3, 206, 7),
        ] {
            sample.add(&entry(1, status, bytes), key);
        }
        let complete = sample.finish();
        assert_eq!((complete.records.len(), complete.sized_requests), (5, 3));
    }

    fn entry(time: u64, status: u16, bytes: u64) -> Entry<'static> {
        Entry {
            time: Some(Timestamp::from_secs(time)),
            method: b"GET",
            status,
            bytes: Some(bytes),
            ..Entry::default()
        }
    }

    /// Returns a fingerprint whose bits look random.
    fn fingerprint(n: u64) -> u64 {
        mix64(n + 1)
    }

    #[test]
    fn finish_sets_the_sizes_and_sorts_the_requests() {
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

    /// Method: read twelve logs with one reader, and with two readers in another order. Encode and decode the
    /// sample of the second of the two. Repeat this with samples that have space for all requests, and for a part of
    /// them.
    #[test]
    fn two_merged_samples_equal_one_sample() {
        for records_max in [100_000, 3000] {
            let mut samples = [0; 3].map(|_| Sample::new(records_max));
            for (log, reader) in [7, 2, 11, 0, 9, 4, 1, 10, 3, 8, 6, 5]
                .into_iter()
                .zip([1, 2].into_iter().cycle())
            {
                for sample in [0, reader] {
                    let log = if sample == 0 { log } else { 11 - log };
                    samples[sample].begin_log(log);
                    for n in 0..500u64 {
                        let url = (u64::from(log) * 31 + n * n) % 4001;
                        samples[sample].add(&entry(n / 7, 200, n % 3), fingerprint(url));
                    }
                }
            }
            let [whole, mut one, two] = samples;
            let mut wire = Writer::new();
            two.write_to(&mut wire);
            let mut reader = Reader::new(wire.bytes(), "sample");
            one.merge(Sample::read_from(&mut reader).expect("the bytes were written above"));
            reader.end().expect("all bytes were decoded");
            assert!(whole.records.len() < 6000 || whole.threshold == THRESHOLD_ALL);
            assert_eq!(one.finish(), whole.finish());
        }
    }

    /// Method: add three requests for each of 20,000 objects to two samples with space for 6,000 requests, and
    /// merge the samples.
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
    fn one_object_with_too_many_requests_empties_the_sample() {
        let mut sample = Sample::new(10);
        (0..100).for_each(|n| sample.add(&entry(n, 200, 5), 0));
        let sampled = sample.finish();
        assert!(sampled.records.is_empty() && sampled.rate == 0.0);
    }
}
