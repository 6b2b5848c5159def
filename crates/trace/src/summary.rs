//! What a trace holds: requests, objects, bytes, one-hit wonders, sizes.

use edgeward_types::Timestamp;

use crate::Record;
use crate::key_map::KeyMap;

/// Gathers a [`TraceSummary`] record by record. Exact, so it remembers every object: about 20
/// to 40 bytes each, whichever side of doubling the table is on.
#[derive(Default)]
pub struct Summary {
    objects: KeyMap<Seen>,
    requests: u64,
    requested_bytes: u128,
    size_changes: u64,
    times_backwards: u64,
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
        self.times_backwards += u64::from(record.time < self.previous);
        self.previous = record.time;
        self.latest = self.latest.max(record.time);
        self.earliest = Some(self.earliest.map_or(record.time, |t| t.min(record.time)));
        let size = record.size.min(Seen::SIZE_MAX);
        self.objects
            .entry(record.key)
            .and_modify(|seen| {
                self.size_changes += u64::from(seen.size() != size);
                *seen = Seen::again(size);
            })
            .or_insert_with(|| Seen::once(size));
    }

    /// Requests so far.
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// The figures. Takes eight more bytes an object for a moment, to sort the sizes.
    pub fn finish(self) -> TraceSummary {
        let mut sizes: Vec<u64> = self.objects.values().map(|seen| seen.size()).collect();
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
        }
    }
}

/// What a trace holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSummary {
    /// How many requests.
    pub requests: u64,
    /// How many distinct keys.
    pub objects: u64,
    /// Bytes of all objects together, each at the size it had last.
    pub footprint_bytes: u128,
    /// Bytes of all requests together.
    pub requested_bytes: u128,
    /// Objects requested exactly once.
    pub one_hit_objects: u64,
    /// Sizes over the objects, none if there are none.
    pub sizes: Option<SizeQuantiles>,
    /// The earliest request.
    pub earliest: Timestamp,
    /// The latest request.
    pub latest: Timestamp,
    /// Requests whose size was not the object's size before.
    pub size_changes: u64,
    /// Requests earlier than the one before them.
    pub times_backwards: u64,
}

impl TraceSummary {
    /// The share of objects requested exactly once; 0 in an empty trace.
    pub fn one_hit_share(&self) -> f64 {
        if self.objects == 0 {
            return 0.0;
        }
        self.one_hit_objects as f64 / self.objects as f64
    }
}

/// How large objects are. The quantile `q` of `n` sizes is the one at rank `⌊q·n⌋`, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeQuantiles {
    /// The smallest.
    pub min: u64,
    /// Half of the objects are smaller.
    pub p50: u64,
    /// Nine in ten are smaller.
    pub p90: u64,
    /// 99 in a hundred are smaller.
    pub p99: u64,
    /// The largest.
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

/// An object's latest size, and in the top bit whether it was asked for more than once: half
/// the table of two fields side by side.
#[derive(Clone, Copy)]
struct Seen(u64);

impl Seen {
    const AGAIN: u64 = 1 << 63;
    const SIZE_MAX: u64 = Self::AGAIN - 1;

    const fn once(size: u64) -> Self {
        Self(size)
    }

    const fn again(size: u64) -> Self {
        Self(size | Self::AGAIN)
    }

    const fn size(self) -> u64 {
        self.0 & Self::SIZE_MAX
    }

    const fn is_one_hit(self) -> bool {
        self.0 & Self::AGAIN == 0
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
    fn a_trace_is_counted_by_hand() {
        let got = summary(&[(5, 1, 10), (6, 2, 20), (4, 1, 30), (9, 3, 5), (9, 2, 20)]);
        assert_eq!(got.requests, 5);
        assert_eq!(got.objects, 3);
        assert_eq!(got.footprint_bytes, 30 + 20 + 5);
        assert_eq!(got.requested_bytes, 85);
        assert_eq!(got.one_hit_objects, 1);
        assert_eq!((got.size_changes, got.times_backwards), (1, 1));
        assert_eq!((got.earliest.as_secs(), got.latest.as_secs()), (4, 9));
        let sizes = got.sizes.expect("three objects");
        assert_eq!((sizes.min, sizes.p50, sizes.max), (5, 20, 30));
    }

    #[test]
    fn an_empty_trace_has_no_sizes_and_no_shares() {
        let got = summary(&[]);
        assert_eq!((got.requests, got.sizes), (0, None));
        assert_eq!(got.one_hit_share(), 0.0);
    }
}
