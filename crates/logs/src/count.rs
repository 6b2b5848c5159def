//! The second half: each partition's rows become one sum a URL.
//!
//! A table holds the sums of one partition. When its URLs would take more memory than a thread
//! has, the partition is read again in two passes, each for half of the fingerprints, or four, …:
//! slower, and never larger.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use hashbrown::HashTable;

use edgeward_analysis::Objects;

use crate::row::Row;
use crate::spill::{PARTITIONS, Partitions, Spill, SpillError};

/// Counts all partitions, those of the same number of all threads together.
pub(crate) fn count<R: Row>(
    parts: &[Partitions<R>],
    spill: &Spill,
    threads: usize,
    memory_bytes: u64,
    top_max: usize,
) -> Result<Objects, SpillError> {
    let next = AtomicUsize::new(0);
    let urls_max = urls_max::<R>(memory_bytes / threads as u64);
    let one = || {
        let mut counter = Counter::<R>::new(urls_max, top_max);
        loop {
            let partition = next.fetch_add(1, Ordering::Relaxed);
            if partition >= PARTITIONS {
                return Ok(counter.objects);
            }
            counter.count(parts, partition, spill)?;
        }
    };
    let results: Vec<Result<Objects, SpillError>> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(one)).collect();
        let mine = one();
        let others = others.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        std::iter::once(mine).chain(others).collect()
    });
    let mut all = Objects::new(top_max);
    for objects in results {
        all.merge(&objects?);
    }
    Ok(all)
}

/// How many URLs' sums fit. A table doubles when it is 7/8 full and for a moment holds both.
fn urls_max<R: Row>(memory_bytes: u64) -> usize {
    let entry = size_of::<(u64, R::Sum)>() + 1;
    let urls = memory_bytes / (entry as u64 * 3);
    usize::try_from(urls).unwrap_or(usize::MAX).max(URLS_MIN)
}

struct Counter<R: Row> {
    table: HashTable<(u64, R::Sum)>,
    urls_max: usize,
    /// As many as the partition before needed, for they are alike.
    passes_log: u32,
    scratch: Vec<u8>,
    objects: Objects,
}

impl<R: Row> Counter<R> {
    fn new(urls_max: usize, top_max: usize) -> Self {
        Self {
            table: HashTable::new(),
            urls_max,
            passes_log: 0,
            scratch: Vec::new(),
            objects: Objects::new(top_max),
        }
    }

    fn count(
        &mut self,
        parts: &[Partitions<R>],
        partition: usize,
        spill: &Spill,
    ) -> Result<(), SpillError> {
        let rows: u64 = parts.iter().map(|part| part.rows(partition)).sum();
        if rows <= self.urls_max as u64 {
            // Even if no URL came twice.
            self.passes_log = 0;
        }
        let mut pass = 0;
        while pass < 1 << self.passes_log {
            if self.pass(parts, partition, spill, pass)? {
                for (fingerprint, sum) in &self.table {
                    self.objects.add(*fingerprint, &R::object(sum));
                }
                pass += 1;
            } else {
                // The URLs of the passes that went well are those of twice as many now.
                self.passes_log += 1;
                pass *= 2;
            }
        }
        Ok(())
    }

    /// Sums up the URLs whose turn it is; false if they are too many.
    fn pass(
        &mut self,
        parts: &[Partitions<R>],
        partition: usize,
        spill: &Spill,
        pass: u64,
    ) -> Result<bool, SpillError> {
        let Self {
            table,
            urls_max,
            scratch,
            ..
        } = self;
        table.clear();
        let passes_log = self.passes_log;
        for part in parts {
            let fits = part.for_each(partition, spill, scratch, |row| {
                let fingerprint = row.fingerprint();
                if passes_log > 0 && turn(fingerprint, passes_log) != pass {
                    return true;
                }
                let entry = table.entry(
                    spread(fingerprint),
                    |(other, _)| *other == fingerprint,
                    |(other, _)| spread(*other),
                );
                let mut entry = entry.or_insert((fingerprint, R::Sum::default()));
                row.add_to(&mut entry.get_mut().1);
                table.len() <= *urls_max || passes_log >= PASSES_LOG_MAX
            })?;
            if !fits {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The bits below the partition's, most significant first: twice as many passes split each.
fn turn(fingerprint: u64, passes_log: u32) -> u64 {
    (fingerprint << 8) >> (64 - passes_log)
}

/// Within a partition the top byte is one, and the table wants its tags from there.
#[inline]
fn spread(fingerprint: u64) -> u64 {
    fingerprint.rotate_left(24)
}

/// Fewer would make passes over nothing.
const URLS_MIN: usize = 64;

/// Fingerprints spread evenly, so this many passes hold 4 million URLs a partition at the least.
/// If somebody made URLs whose fingerprints begin alike, memory gives way rather than time.
const PASSES_LOG_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use edgeward_analysis::Object;

    use crate::row::Sized;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Method: against a plain map, with memory for all and for a few, one thread and three.
        #[test]
        fn counts_are_those_of_a_plain_map(
            rows in prop::collection::vec((0u64..2000, 0u64..1000, any::<bool>()), 0..3000),
            same_partition in any::<bool>(),
            memory_bytes in prop_oneof![Just(0u64), Just(1 << 30)],
            threads in 1usize..4,
        ) {
            let folder = tempfile::tempdir().expect("a folder");
            let spill = Spill::new(folder.path(), u64::MAX, 128);
            let mut parts = vec![Partitions::new(128), Partitions::new(128)];
            let mut exact: HashMap<u64, Object> = HashMap::new();
            for (n, (url, bytes, complete)) in rows.iter().enumerate() {
                let mut fingerprint = url.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                if same_partition {
                    fingerprint >>= 8;
                }
                let row = Sized { fingerprint, bytes: *bytes, complete: *complete };
                parts[n % 2].push(row, &spill).expect("there is room");
                exact.entry(fingerprint).or_default().request(*bytes, *complete);
            }
            let counted = count(&parts, &spill, threads, memory_bytes, 50).expect("the file is there");
            let mut expected = Objects::new(50);
            for (fingerprint, object) in &exact {
                expected.add(*fingerprint, object);
            }
            prop_assert_eq!(counted.urls(), expected.urls());
            prop_assert_eq!(counted.requests(), rows.len() as u64);
            prop_assert_eq!(counted.once(), expected.once());
            prop_assert_eq!(counted.popularity(), expected.popularity());
            prop_assert_eq!(counted.storable(), expected.storable());
            prop_assert_eq!(counted.sizes(), expected.sizes());
            prop_assert_eq!(counted.top(), expected.top());
        }
    }
}
