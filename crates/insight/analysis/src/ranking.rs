//! Bounded tables of the most requested names.

use hashbrown::HashMap;

use crate::Entry;
use crate::hours::TrafficCounts;
use crate::wire::{DecodeError, Reader, Writer};

/// Requests and bytes by name: for hosts, media types, methods and the machines that wrote the logs.
///
/// The table has at most `2 * names_max` names. If more names occur, those with the fewest requests are dropped:
/// usually half of the table. The algorithm of Misra and Gries is similar, but it also subtracts from the
/// remaining counts. If a dropped name occurs again, its earlier requests are missing from its count. A count is
/// therefore too small by at most [`Ranking::undercount_max`], which is 0 until the first drop.
#[derive(Clone, Debug)]
pub struct Ranking {
    rows: HashMap<Box<[u8]>, TrafficCounts>,
    /// At least this number of names remains when names are dropped. The table has at most twice this number.
    names_max: usize,
    /// The sum of the counts of all dropped names.
    others: TrafficCounts,
    undercount_max: u64,
}

/// A name and its counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankedName<'r> {
    /// The name as written in the log.
    pub name: &'r [u8],
    /// The requests and bytes of this name.
    pub counts: &'r TrafficCounts,
}

impl Ranking {
    /// Returns an empty table, in which at least `names_max` names fit.
    pub fn new(names_max: usize) -> Self {
        Self {
            rows: HashMap::new(),
            names_max: names_max.max(1),
            others: TrafficCounts::default(),
            undercount_max: 0,
        }
    }

    /// Counts a request. A name is truncated to [`Self::NAME_BYTES_MAX`] bytes.
    #[inline]
    pub fn add(&mut self, name: &[u8], entry: &Entry<'_>) {
        let name = &name[..name.len().min(Self::NAME_BYTES_MAX)];
        if let Some(row) = self.rows.get_mut(name) {
            row.add(entry);
            return;
        }
        let mut row = TrafficCounts::default();
        row.add(entry);
        self.insert(name.into(), row);
    }

    fn insert(&mut self, name: Box<[u8]>, row: TrafficCounts) {
        self.rows.entry(name).or_default().merge(&row);
        if self.rows.len() > 2 * self.names_max {
            self.drop_rarest();
        }
    }

    /// Drops the names with the fewest requests.
    fn drop_rarest(&mut self) {
        let mut counts: Vec<u64> = self.rows.values().map(|row| row.requests).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let count_min = counts[self.names_max];
        // A name that was dropped in this round may have had this count.
        self.undercount_max += count_min;
        let others = &mut self.others;
        let mut names_left = self.names_max;
        self.rows.retain(|_, row| {
            // Names with exactly this count stay while fewer than `names_max` names are kept. Names with a higher
            // count always stay, so more than `names_max` names may remain.
            let is_kept = row.requests > count_min || (row.requests == count_min && names_left > 0);
            if is_kept {
                names_left = names_left.saturating_sub(1);
            } else {
                others.merge(row);
            }
            is_kept
        });
    }

    /// Adds another table.
    pub fn merge(&mut self, other: Self) {
        self.others.merge(&other.others);
        self.undercount_max += other.undercount_max;
        for (name, row) in other.rows {
            self.insert(name, row);
        }
    }

    /// Returns the names with the most requests, the most requested first, and the sum of all other names.
    pub fn top(&self, count: usize) -> (Vec<RankedName<'_>>, TrafficCounts) {
        let mut all: Vec<RankedName<'_>> = self
            .rows
            .iter()
            .map(|(name, counts)| RankedName { name, counts })
            .collect();
        all.sort_by(|a, b| {
            let by_requests = b.counts.requests.cmp(&a.counts.requests);
            by_requests.then_with(|| a.name.cmp(b.name))
        });
        let mut others = self.others;
        for ranked in all.iter().skip(count) {
            others.merge(ranked.counts);
        }
        all.truncate(count);
        (all, others)
    }

    pub(crate) fn write_to(&self, out: &mut Writer) {
        out.number(self.names_max as u64);
        out.number(self.undercount_max);
        self.others.write_to(out);
        out.number(self.rows.len() as u64);
        // The rows are sorted, so that equal tables have equal bytes.
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_unstable_by_key(|(name, _)| *name);
        for (name, row) in rows {
            out.text(name);
            row.write_to(out);
        }
    }

    pub(crate) fn read_from(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let names_max = usize::try_from(from.number()?).map_err(|_| from.decode_error())?;
        if !(1..=NAMES_MAX).contains(&names_max) {
            return Err(from.decode_error());
        }
        let mut ranking = Self::new(names_max);
        // `counted` rejects numbers whose sums could overflow.
        ranking.undercount_max = from.counted()?;
        ranking.others = TrafficCounts::read_from(from)?;
        // A row takes at least 6 bytes: a name and five numbers.
        let count = from.count(6)?;
        if count > 2 * names_max {
            return Err(from.decode_error());
        }
        for _ in 0..count {
            let name = from.text()?;
            let row = TrafficCounts::read_from(from)?;
            if name.len() > Self::NAME_BYTES_MAX || ranking.rows.contains_key(name) {
                return Err(from.decode_error());
            }
            ranking.rows.insert(name.into(), row);
        }
        Ok(ranking)
    }

    /// The number of names in the table.
    pub fn names(&self) -> usize {
        self.rows.len()
    }

    /// The largest number of requests that may be missing from a count.
    pub const fn undercount_max(&self) -> u64 {
        self.undercount_max
    }

    /// The maximum length of a name in bytes. A host name has at most 253 bytes (RFC 1035), and media types and
    /// machine names are shorter.
    pub const NAME_BYTES_MAX: usize = 256;
}

/// The largest `names_max` that is accepted when a table is decoded.
const NAMES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn add(ranking: &mut Ranking, name: u8) {
        let entry = Entry {
            bytes: Some(3),
            ..Entry::default()
        };
        ranking.add(&[name], &entry);
    }

    proptest! {
        /// No count is too high. No count is too low by more than `undercount_max`. The sum of all counts is exact.
        #[test]
        fn counts_are_exact_within_the_stated_error(
            names in prop::collection::vec(0u8..40, 0..400),
            names_max in 1usize..50,
            cut in 0usize..400,
        ) {
            let mut exact: BTreeMap<u8, u64> = BTreeMap::new();
            let (mut first, mut second) = (Ranking::new(names_max), Ranking::new(names_max));
            for (n, name) in names.iter().enumerate() {
                *exact.entry(*name).or_default() += 1;
                add(if n < cut { &mut first } else { &mut second }, *name);
            }
            first.merge(second);
            prop_assert!(first.names() <= 2 * names_max);
            let (rows, others) = first.top(10);
            let mut sum = others.requests;
            for row in &rows {
                let true_count = exact[&row.name[0]];
                sum += row.counts.requests;
                prop_assert!(row.counts.requests <= true_count);
                prop_assert!(row.counts.requests + first.undercount_max() >= true_count);
                prop_assert_eq!(row.counts.bytes, row.counts.requests * 3);
            }
            prop_assert_eq!(sum, names.len() as u64);
            prop_assert!(rows.is_sorted_by(|a, b| a.counts.requests >= b.counts.requests));
            if 2 * names_max >= exact.len() {
                prop_assert_eq!(first.undercount_max(), 0);
            }
        }
    }
}
