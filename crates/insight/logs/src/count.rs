//! The second half of an analysis: sums the rows of each URL, partition by partition.
//!
//! The first half has stored one row for each request. A URL is identified by a fingerprint (a hash), whose top byte
//! selects the partition of the row. [`Key::first`] returns the first 64 bits of the fingerprint.
//!
//! A table has the sums of one partition. If the URLs of a partition need more memory than a thread has, the
//! thread reads the partition in two passes. Each pass counts the URLs in one half of the range of fingerprints. If
//! this half is still too large, the thread uses four passes, and so on. More passes take more time, but the memory
//! stays limited.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use hashbrown::HashTable;

use edgeward_analysis::{Object, Objects};

use crate::row::{Key, Row};
use crate::spill::{PARTITIONS, Partitions, Spill, SpillError};

/// Receives the sums of all URLs. Each thread has its own `UrlSink`.
pub(crate) trait UrlSink<K>: Send {
    type Error: From<SpillError> + Send;

    /// True if the URLs of a partition must be sorted by key.
    const SORTED: bool;

    /// Adds a URL with the sums over all its requests.
    fn add(&mut self, key: K, object: &Object) -> Result<(), Self::Error>;

    /// Ends a partition. The counter calls this after it has added all URLs of the partition.
    fn end_partition(&mut self, partition: usize) -> Result<(), Self::Error>;
}

impl<K: Key> UrlSink<K> for Objects {
    type Error = SpillError;
    const SORTED: bool = false;

    #[inline]
    fn add(&mut self, key: K, object: &Object) -> Result<(), SpillError> {
        Self::add(self, key.first(), object);
        Ok(())
    }

    fn end_partition(&mut self, _partition: usize) -> Result<(), SpillError> {
        Ok(())
    }
}

/// Counts all partitions with `threads` threads. `parts` has the rows of each reader thread.
pub(crate) fn count<R: Row, F: UrlSink<R::Key>>(
    parts: &[Partitions<R>],
    spill: &Spill,
    threads: usize,
    memory_bytes: u64,
    sink: impl Fn() -> F + Sync,
) -> Result<Vec<F>, F::Error> {
    let urls_max = urls_max::<R>(memory_bytes / threads as u64);
    for_each_partition(
        threads,
        || Counter::<R, F>::new(urls_max, sink()),
        |counter, partition| counter.count(parts, partition, spill),
    )
    .map(|counters| counters.into_iter().map(|counter| counter.sink).collect())
}

/// Calls `process` for every partition, with several threads. Each thread has its own value, made by `init`.
/// Returns the values of all threads.
pub(crate) fn for_each_partition<T: Send, E: Send>(
    threads: usize,
    init: impl Fn() -> T + Sync,
    process: impl Fn(&mut T, usize) -> Result<(), E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut value = init();
        loop {
            let partition = next.fetch_add(1, Ordering::Relaxed);
            if partition >= PARTITIONS {
                return Ok(value);
            }
            process(&mut value, partition)?;
        }
    };
    thread::scope(|scope| {
        let handles: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let own_result = run();
        let handles = handles.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        std::iter::once(own_result).chain(handles).collect()
    })
}

/// Merges the statistics of all threads. The result contains the `top_max` most requested URLs.
pub(crate) fn merge_all(results: Vec<Objects>, top_max: usize) -> Objects {
    let mut all = Objects::new(top_max);
    for objects in results {
        all.merge(&objects);
    }
    all
}

/// Returns the number of URLs that fit into memory. The estimate is three entries per URL: a table whose slots
/// are filled to 7/8 is copied into a table of twice the size. Later, when the old table is free, its memory suffices
/// for sorting, which copies the entries.
fn urls_max<R: Row>(memory_bytes: u64) -> usize {
    let entry = size_of::<(R::Key, R::Sum)>() + 1;
    let urls = memory_bytes / (entry as u64 * 3);
    usize::try_from(urls).unwrap_or(usize::MAX).max(URLS_MIN)
}

struct Counter<R: Row, F> {
    table: HashTable<(R::Key, R::Sum)>,
    /// The sorted entries of the table, if sorting is required.
    sorted: Vec<(R::Key, R::Sum)>,
    urls_max: usize,
    /// The binary logarithm of the number of passes. The thread begins a partition with as many passes as
    /// the partition before it needed, because partitions have similar sizes.
    passes_log: u32,
    /// A buffer for rows that are read from the temporary file.
    scratch: Vec<u8>,
    sink: F,
}

impl<R: Row, F: UrlSink<R::Key>> Counter<R, F> {
    fn new(urls_max: usize, sink: F) -> Self {
        Self {
            table: HashTable::new(),
            sorted: Vec::new(),
            urls_max,
            passes_log: 0,
            scratch: Vec::new(),
            sink,
        }
    }

    fn count(
        &mut self,
        parts: &[Partitions<R>],
        partition: usize,
        spill: &Spill,
    ) -> Result<(), F::Error> {
        let rows: u64 = parts.iter().map(|part| part.rows(partition)).sum();
        if rows <= self.urls_max as u64 {
            // The table has space for all rows, even if each row has a different URL.
            self.passes_log = 0;
        }
        let mut pass = 0;
        while pass < 1 << self.passes_log {
            if self.pass(parts, partition, spill, pass)? {
                self.flush_table()?;
                pass += 1;
            } else {
                // Twice as many passes are needed. Each completed pass counts as two of them.
                self.passes_log += 1;
                pass *= 2;
            }
        }
        self.sink.end_partition(partition)
    }

    /// Passes the URLs of the table to `sink`. Passes cover ascending ranges of keys, so the URLs of all passes
    /// are in ascending order if each pass is sorted.
    fn flush_table(&mut self) -> Result<(), F::Error> {
        let sink = &mut self.sink;
        let mut add = |(key, sum): &(R::Key, R::Sum)| sink.add(*key, &R::object(sum));
        if !F::SORTED {
            return self.table.iter().try_for_each(add);
        }
        self.sorted.clear();
        self.sorted.extend(self.table.iter().copied());
        self.sorted.sort_unstable_by_key(|(key, _)| *key);
        self.sorted.iter().try_for_each(&mut add)
    }

    /// Sums the rows of the URLs of this pass. Returns false if the table has no space for all of these URLs.
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
                let key = row.key();
                if passes_log > 0 && pass_of(key.first(), passes_log) != pass {
                    return true;
                }
                let entry = table.entry(
                    spread(key.first()),
                    |(other, _)| *other == key,
                    |(other, _)| spread(other.first()),
                );
                let mut entry = entry.or_insert((key, R::Sum::default()));
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

/// Returns the pass of a fingerprint. The top byte of a fingerprint is the number of its partition, and the
/// next `passes_log` bits are the number of its pass. If the number of passes doubles, each pass is split in
/// two.
fn pass_of(fingerprint: u64, passes_log: u32) -> u64 {
    (fingerprint << 8) >> (64 - passes_log)
}

/// Returns the hash for the table. The table takes a tag from the top bits of a hash, but the top byte of the
/// fingerprint is constant within a partition. The rotation moves other bits there.
#[inline]
fn spread(fingerprint: u64) -> u64 {
    fingerprint.rotate_left(24)
}

/// The minimum number of URLs per pass.
const URLS_MIN: usize = 64;

/// The maximum binary logarithm of the number of passes. Fingerprints are uniform, so this allows at least 4 million
/// URLs per partition (2^16 passes of [`URLS_MIN`] URLs). If an attacker creates URLs with similar fingerprints, the
/// table grows beyond its limit instead of the number of passes.
const PASSES_LOG_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use edgeward_analysis::Object;

    use crate::row::SizedRow;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Method: compare with a hash map. Count with memory for all URLs and for few URLs, and with one to
        /// three threads.
        #[test]
        fn counts_equal_those_of_a_hash_map(
            rows in prop::collection::vec((0u64..2000, 0u64..1000, any::<bool>()), 0..3000),
            same_partition in any::<bool>(),
            memory_bytes in prop_oneof![Just(0u64), Just(1 << 30)],
            threads in 1usize..4,
        ) {
            let folder = tempfile::tempdir().expect("the folder can be created");
            // Chunks have only 128 bytes, so that some rows are written to the temporary file.
            let spill = Spill::new(folder.path(), u64::MAX, 128);
            let mut parts = vec![Partitions::new(128), Partitions::new(128)];
            let mut exact: HashMap<u64, Object> = HashMap::new();
            for (n, (url, bytes, complete)) in rows.iter().enumerate() {
                let mut fingerprint = url.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                if same_partition {
                    fingerprint >>= 8;
                }
                let row = SizedRow { key: fingerprint, bytes: *bytes, complete: *complete };
                parts[n % 2].push(row, &spill).expect("the disk has space");
                exact.entry(fingerprint).or_default().request(*bytes, *complete);
            }
            let counted = count(&parts, &spill, threads, memory_bytes, || Objects::new(50));
            let counted = merge_all(counted.expect("the temporary file can be read"), 50);
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
