//! Summarises a trace: requests, objects, bytes, one-hit wonders, sizes.

use edgeward_types::Timestamp;

use crate::Record;
use crate::key_map::KeyMap;

/// Computes a [`TraceSummary`] record by record. The figures are exact, so every object is stored. An object
/// takes 20 to 40 bytes, because the table doubles when it grows.
#[derive(Default)]
pub struct Summary {
    objects: KeyMap<SizeAndRepeat>,
    requests: u64,
    requested_bytes: u128,
    size_changes: u64,
    times_backwards: u64,
    sized_requests: u64,
    earliest: Option<Timestamp>,
    latest: Timestamp,
    previous: Timestamp,
}

impl Summary {
    /// Counts one request.
    #[inline]
    pub fn add(&mut self, record: &Record) {
        self.requests += 1;
        self.requested_bytes += u128::from(record.size);
        self.sized_requests += u64::from(record.size > 0);
        self.times_backwards += u64::from(record.time < self.previous);
        self.previous = record.time;
        self.latest = self.latest.max(record.time);
        self.earliest = Some(self.earliest.map_or(record.time, |t| t.min(record.time)));
        let size = record.size.min(SizeAndRepeat::SIZE_MAX);
        self.objects
            .entry(record.key)
            .and_modify(|object| {
                // A size of 0 is unknown, so the object keeps its size.
                let before = object.size();
                self.size_changes += u64::from(before != size && before > 0 && size > 0);
                *object = SizeAndRepeat::repeated(if size > 0 { size } else { before });
            })
            .or_insert_with(|| SizeAndRepeat::first(size));
    }

    /// The number of requests so far.
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the summary. The call temporarily takes eight more bytes per object, to sort the sizes.
    pub fn finish(self) -> TraceSummary {
        let mut sizes: Vec<u64> = self.objects.values().map(|object| object.size()).collect();
        sizes.sort_unstable();
        let one_hit_objects = self.objects.values().filter(|s| s.is_one_hit()).count() as u64;
        let earliest = self.earliest.unwrap_or_default();
        TraceSummary {
            requests: self.requests,
            objects: sizes.len() as u64,
            footprint_bytes: sizes.iter().map(|size| u128::from(*size)).sum(),
            requested_bytes: self.requested_bytes,
            one_hit_objects,
            sizes: SizeQuantiles::of_sorted(&sizes),
            earliest,
            latest: self.latest,
            size_changes: self.size_changes,
            times_backwards: self.times_backwards,
            sized_requests: self.sized_requests,
        }
    }
}

/// The summary of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSummary {
    /// The number of requests.
    pub requests: u64,
    /// The number of distinct keys.
    pub objects: u64,
    /// The total size of all objects in bytes, each with its last known size.
    pub footprint_bytes: u128,
    /// The total size of all requests in bytes.
    pub requested_bytes: u128,
    /// The number of objects with exactly one request.
    pub one_hit_objects: u64,
    /// The distribution of object sizes; `None` without objects.
    pub sizes: Option<SizeQuantiles>,
    /// The time of the earliest request.
    pub earliest: Timestamp,
    /// The time of the latest request.
    pub latest: Timestamp,
    /// The number of requests whose size differs from the object's previous size.
    pub size_changes: u64,
    /// The number of requests whose time is earlier than that of the previous request.
    pub times_backwards: u64,
    /// The number of requests with a known size: more than 0 bytes.
    pub sized_requests: u64,
}

impl TraceSummary {
    /// Returns the share of objects with exactly one request; 0 for an empty trace.
    pub fn one_hit_share(&self) -> f64 {
        if self.objects == 0 {
            return 0.0;
        }
        self.one_hit_objects as f64 / self.objects as f64
    }
}

/// The distribution of object sizes in bytes. The quantile `q` of `n` sizes has the rank `⌊q·n⌋`, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeQuantiles {
    /// The minimum.
    pub min: u64,
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The maximum.
    pub max: u64,
}

impl SizeQuantiles {
    fn of_sorted(sizes: &[u64]) -> Option<Self> {
        let at = |percent: usize| sizes.get((sizes.len() * percent / 100).min(sizes.len() - 1));
        Some(Self {
            min: *sizes.first()?,
            p50: *at(50)?,
            p90: *at(90)?,
            p99: *at(99)?,
            max: *sizes.last()?,
        })
    }
}

/// The last size of an object, in bytes. The top bit is set after the object's second request. With two fields
/// instead of one word, an entry of the table would take 24 instead of 16 bytes.
#[derive(Clone, Copy)]
struct SizeAndRepeat(u64);

impl SizeAndRepeat {
    const REPEATED_BIT: u64 = 1 << 63;
    const SIZE_MAX: u64 = Self::REPEATED_BIT - 1;

    const fn first(size: u64) -> Self {
        Self(size)
    }

    const fn repeated(size: u64) -> Self {
        Self(size | Self::REPEATED_BIT)
    }

    const fn size(self) -> u64 {
        self.0 & Self::SIZE_MAX
    }

    const fn is_one_hit(self) -> bool {
        self.0 & Self::REPEATED_BIT == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(records: &[(u64, u64, u64)]) -> TraceSummary {
        let mut summary = Summary::default();
        for &(secs, key, size) in records {
            summary.add(&Record {
                time: Timestamp::from_secs(secs),
                key,
                size,
            });
        }
        summary.finish()
    }

    #[test]
    fn a_summary_has_the_figures_of_a_small_trace() {
        let got = summary(&[(5, 1, 10), (6, 2, 20), (4, 1, 30), (9, 3, 5), (9, 2, 20)]);
        assert_eq!(got.requests, 5);
        assert_eq!(got.objects, 3);
        assert_eq!(got.footprint_bytes, 30 + 20 + 5);
        assert_eq!(got.requested_bytes, 85);
        assert_eq!(got.one_hit_objects, 1);
        assert_eq!((got.size_changes, got.times_backwards), (1, 1));
        assert_eq!((got.earliest.as_secs(), got.latest.as_secs()), (4, 9));
        let sizes = got.sizes.expect("the trace has three objects");
        assert_eq!((sizes.min, sizes.p50, sizes.max), (5, 20, 30));
    }

    #[test]
    fn an_object_keeps_its_last_known_size() {
        let got = summary(&[(1, 1, 0), (2, 1, 10), (3, 1, 0), (4, 2, 0)]);
        assert_eq!((got.size_changes, got.footprint_bytes), (0, 10));
        assert_eq!((got.requests, got.sized_requests), (4, 1));
    }

    #[test]
    fn an_empty_trace_has_no_sizes_and_a_one_hit_share_of_zero() {
        let got = summary(&[]);
        assert_eq!((got.requests, got.sizes), (0, None));
        assert_eq!(got.one_hit_share(), 0.0);
    }
}
