//! Traffic by hour.

use std::collections::BTreeMap;

use edgeward_types::Timestamp;

use crate::wire::{DecodeError, Reader, Writer};
use crate::{Entry, Outcome};

/// The requests of each hour. At most [`Hours::MAX`] hours are stored, so that invalid times cannot fill the
/// memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hours {
    /// The counts by hour. The key is the number of hours since 1970.
    rows: BTreeMap<u64, TrafficCounts>,
    /// The hour of the last request, and counts of this hour that are not yet in `rows`.
    current: Option<(u64, TrafficCounts)>,
    /// The number of requests that were not counted, because the table already had `MAX` other hours.
    dropped: u64,
}

/// The requests of one hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficCounts {
    /// The number of requests.
    pub requests: u64,
    /// The number of bytes sent.
    pub bytes: u64,
    /// Requests that the logged cache answered from a stored response.
    pub hits: u64,
    /// Requests that the logged cache fetched from upstream.
    pub misses: u64,
    /// Requests that were not answered by caching: see [`Outcome::Pass`].
    pub passes: u64,
}

impl TrafficCounts {
    pub(crate) fn add(&mut self, entry: &Entry<'_>) {
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(entry.bytes.unwrap_or(0));
        match entry.outcome {
            Some(Outcome::Hit) => self.hits += 1,
            Some(Outcome::Miss) => self.misses += 1,
            Some(Outcome::Pass) => self.passes += 1,
            None => {}
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.hits += other.hits;
        self.misses += other.misses;
        self.passes += other.passes;
    }

    pub(crate) fn write_to(&self, out: &mut Writer) {
        for number in [
            self.requests,
            self.bytes,
            self.hits,
            self.misses,
            self.passes,
        ] {
            out.number(number);
        }
    }

    pub(crate) fn read_from(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        // `counted` refuses numbers whose sums could overflow. Sums of `bytes` saturate, so `number` is enough.
        Ok(Self {
            requests: from.counted()?,
            bytes: from.number()?,
            hits: from.counted()?,
            misses: from.counted()?,
            passes: from.counted()?,
        })
    }

    /// The number of requests whose outcome is known.
    pub const fn outcomes(&self) -> u64 {
        self.hits + self.misses + self.passes
    }

    /// Returns the hits divided by the sum of hits and misses. Returns `None` if this sum is 0 or if the outcome of
    /// most requests is unknown.
    pub fn hit_ratio(&self) -> Option<f64> {
        let hits_and_misses = self.hits + self.misses;
        let is_known = suffices(self.outcomes(), self.requests);
        (hits_and_misses > 0 && is_known).then(|| self.hits as f64 / hits_and_misses as f64)
    }
}

/// Returns true if a field that is known in `count` of `total` requests allows a statement about all of them: if it is
/// known in at least half.
pub const fn suffices(count: u64, total: u64) -> bool {
    count.saturating_mul(2) >= total
}

impl Hours {
    /// The number of requests with a time.
    pub fn requests(&self) -> u64 {
        let current = self.current.as_ref().map_or(0, |(_, row)| row.requests);
        let rows: u64 = self.rows.values().map(|row| row.requests).sum();
        rows + current + self.dropped
    }

    /// The largest number of hours: those of five years.
    pub const MAX: usize = 24 * 366 * 5;

    /// Counts a request in the hour of `time`.
    #[inline]
    pub fn add(&mut self, time: Timestamp, entry: &Entry<'_>) {
        let hour = time.as_secs() / 3600;
        match &mut self.current {
            Some((current, row)) if *current == hour => row.add(entry),
            _ => {
                self.store_current_hour();
                let mut row = TrafficCounts::default();
                row.add(entry);
                self.current = Some((hour, row));
            }
        }
    }

    /// Adds the requests of another table.
    pub fn merge(&mut self, mut other: Self) {
        self.store_current_hour();
        other.store_current_hour();
        self.dropped += other.dropped;
        for (hour, row) in other.rows {
            self.insert(hour, &row);
        }
    }

    fn store_current_hour(&mut self) {
        if let Some((hour, row)) = self.current.take() {
            self.insert(hour, &row);
        }
    }

    fn insert(&mut self, hour: u64, row: &TrafficCounts) {
        if self.rows.len() >= Self::MAX && !self.rows.contains_key(&hour) {
            self.dropped += row.requests;
            return;
        }
        self.rows.entry(hour).or_default().merge(row);
    }

    /// Yields the hours with requests, the earliest first, each with its start time.
    pub fn rows(&mut self) -> impl Iterator<Item = (Timestamp, &TrafficCounts)> {
        self.store_current_hour();
        self.rows
            .iter()
            .map(|(hour, row)| (Timestamp::from_secs(hour.saturating_mul(3600)), row))
    }

    pub(crate) fn write_to(&self, out: &mut Writer) {
        let mut all = self.clone();
        all.store_current_hour();
        out.number(all.dropped);
        out.number(all.rows.len() as u64);
        for (hour, row) in &all.rows {
            out.number(*hour);
            row.write_to(out);
        }
    }

    pub(crate) fn read_from(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut hours = Self {
            dropped: from.counted()?,
            ..Self::default()
        };
        // A row has six numbers of at least one byte each. `count` refuses more rows than the remaining bytes can
        // contain.
        for _ in 0..from.count(6)? {
            let hour = from.number()?;
            if hours
                .rows
                .last_key_value()
                .is_some_and(|(last, _)| *last >= hour)
            {
                return Err(from.decode_error());
            }
            hours.rows.insert(hour, TrafficCounts::read_from(from)?);
        }
        if hours.rows.len() > Self::MAX {
            return Err(from.decode_error());
        }
        Ok(hours)
    }

    /// Returns the number of requests that were not counted, because the table already had [`Hours::MAX`] other hours.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(hours: &mut Hours, hour: u64, outcome: Option<Outcome>) {
        let entry = Entry {
            bytes: Some(10),
            outcome,
            ..Entry::default()
        };
        hours.add(Timestamp::from_secs(hour * 3600 + 7), &entry);
    }

    #[test]
    fn requests_are_counted_in_their_hours_in_any_order() {
        let mut hours = Hours::default();
        for hour in [5, 5, 9, 5, 2] {
            add(&mut hours, hour, Some(Outcome::Hit));
        }
        add(&mut hours, 5, Some(Outcome::Miss));
        let mut other = Hours::default();
        add(&mut other, 9, None);
        hours.merge(other);
        let rows: Vec<(u64, u64, u64)> = hours
            .rows()
            .map(|(time, row)| (time.as_secs() / 3600, row.requests, row.bytes))
            .collect();
        assert_eq!(rows, [(2, 1, 10), (5, 4, 40), (9, 2, 20)]);
        assert_eq!(hours.requests(), 7);
        let ratios: Vec<_> = hours.rows().map(|(_, row)| row.hit_ratio()).collect();
        assert_eq!(ratios, [Some(1.0), Some(0.75), Some(1.0)]);
    }

    /// Both sides of one half, and requests that were passed: their outcome is known.
    #[test]
    fn a_hit_ratio_needs_the_outcome_of_half_of_the_requests() {
        let ratio = |hits, passes, requests| {
            let counts = TrafficCounts {
                requests,
                hits,
                passes,
                ..TrafficCounts::default()
            };
            counts.hit_ratio()
        };
        assert_eq!(ratio(5, 0, 10), Some(1.0));
        assert_eq!(ratio(4, 0, 10), None);
        assert_eq!(ratio(4, 1, 10), Some(1.0));
        assert_eq!(ratio(0, 5, 10), None);
    }

    #[test]
    fn requests_without_a_time_are_not_in_the_hours() {
        let mut hours = Hours::default();
        for hour in [5, 5, 9] {
            add(&mut hours, hour, None);
        }
        assert_eq!(hours.requests(), 3);
    }

    #[test]
    fn invalid_times_do_not_fill_the_memory() {
        let mut hours = Hours::default();
        for hour in 0..Hours::MAX as u64 + 100 {
            add(&mut hours, hour * 1000, None);
        }
        assert_eq!(hours.rows().count(), Hours::MAX);
        assert_eq!(hours.dropped(), 100);
    }
}
