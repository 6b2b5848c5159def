//! The data structures measured in this process: a hash set, this project's filters, and Guava's format in Rust.

use std::collections::HashSet;
use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use edgeward_filter::guava::{Funnel, GuavaBuilder};
use edgeward_filter::{
    BuildError, Filter, FilterParams, IdForm, IdHash, IdHasher, Rate, StaticBuilder,
    UpdatableFilter,
};
use edgeward_publish::build_workspace;

use edgeward_types::mix64;

/// An id: a UUID as text.
type Id = [u8; 36];

/// The size of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    /// The number of present ids, and of absent ids.
    pub(super) ids: u64,
    /// The false-positive rate of the filters.
    pub(super) fpr: Rate,
    /// The rounds, of which the fastest counts.
    pub(super) rounds: u32,
}

/// The results of one data structure. Times are nanoseconds per id.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) insert_ns: f64,
    /// The time of an insertion without hashing, if the structure can insert a hash.
    pub(super) insert_hashed_ns: Option<f64>,
    /// The time of an insertion without hashing, in a batch call.
    pub(super) insert_many_ns: Option<f64>,
    /// The time of a query for a present id.
    pub(super) present_ns: f64,
    /// The time of a query for an absent id.
    pub(super) absent_ns: f64,
    /// The time of a query without hashing: the mean over present and absent ids.
    pub(super) query_hashed_ns: Option<f64>,
    /// The time of a query without hashing, in a batch call.
    pub(super) query_many_ns: Option<f64>,
    /// The memory of the structure.
    pub(super) bytes: u64,
    /// The share of absent ids that the filter reported as present.
    pub(super) false_positives: f64,
}

/// Measures all structures and returns one row for each.
pub(super) fn measure(workload: Workload) -> anyhow::Result<Vec<Row>> {
    // Present ids have even numbers, absent ids odd numbers.
    let present: Vec<Id> = (0..workload.ids).map(|n| id(n << 1)).collect();
    let absent: Vec<Id> = (0..workload.ids).map(|n| id(n << 1 | 1)).collect();
    let subjects = Subjects {
        workload,
        present: &present,
        absent: &absent,
    };
    Ok(vec![
        subjects.measure_hash_set(),
        subjects.measure_updatable()?,
        subjects.measure_static_filter()?,
        subjects.measure_guava_in_rust()?,
    ])
}

/// The ids with which all structures are measured.
struct Subjects<'a> {
    workload: Workload,
    present: &'a [Id],
    absent: &'a [Id],
}

impl Subjects<'_> {
    fn measure_hash_set(&self) -> Row {
        let mut set = HashSet::new();
        let insert_ns = self.fastest(self.present, |ids| {
            set = HashSet::with_capacity(ids.len());
            set.extend(ids.iter().map(|id| Box::<[u8]>::from(&id[..])));
        });
        let (present_ns, absent_ns, false_positives) = self.query(|id| set.contains(&id[..]));
        // hashbrown has 8/7 buckets per id, rounded up to a power of two. A bucket takes 16 bytes and a control
        // byte. The allocator rounds the 36 bytes of an id to 48.
        let buckets = (set.capacity() as u64 * 8 / 7).next_power_of_two();
        Row {
            name: "hash set (std)".to_owned(),
            insert_ns,
            insert_hashed_ns: None,
            insert_many_ns: None,
            present_ns,
            absent_ns,
            query_hashed_ns: None,
            query_many_ns: None,
            bytes: buckets * 17 + set.len() as u64 * 48,
            false_positives,
        }
    }

    fn measure_updatable(&self) -> anyhow::Result<Row> {
        let hasher = hasher();
        // The filter does not count an inserted id that it already reports as present, so a capacity for all ids is
        // always enough.
        let empty = UpdatableFilter::new(self.params(), self.workload.ids)?;
        let mut filter = empty.clone();
        let insert_ns = self.fastest(self.present, |ids| {
            filter.clone_from(&empty);
            for id in ids {
                _ = black_box(filter.insert(hasher.hash_canonical(id)));
            }
        });
        let hashes = hashes(self.present);
        let insert_hashed_ns = self.fastest(&hashes, |hashes| {
            filter.clone_from(&empty);
            for hash in hashes {
                _ = black_box(filter.insert(*hash));
            }
        });
        let insert_many_ns = self.fastest(&hashes, |hashes| {
            filter.clone_from(&empty);
            _ = black_box(filter.insert_many(hashes));
        });
        // 1 is the epoch in the header of the filter; queries do not use it.
        let row = self.measure_queries("blocked Bloom (updatable)", &filter.to_filter(1));
        Ok(Row {
            insert_ns,
            insert_hashed_ns: Some(insert_hashed_ns),
            insert_many_ns: Some(insert_many_ns),
            ..row
        })
    }

    fn measure_static_filter(&self) -> anyhow::Result<Row> {
        let hasher = hasher();
        let params = self.params();
        let mut filter = build(params, std::iter::empty());
        let insert_ns = self.fastest(self.present, |ids| {
            filter = build(params, ids.iter().map(|id| hasher.hash_canonical(id)));
        });
        let hashes = hashes(self.present);
        let insert_hashed_ns = self.fastest(&hashes, |hashes| {
            filter = build(params, hashes.iter().copied());
        });
        let row = self.measure_queries("binary fuse (static)", &filter?);
        Ok(Row {
            insert_ns,
            insert_hashed_ns: Some(insert_hashed_ns),
            ..row
        })
    }

    fn measure_guava_in_rust(&self) -> anyhow::Result<Row> {
        let hash = |id: &Id| Funnel::Utf8.hash(id).expect("the funnel accepts any bytes");
        let build = |ids: &[Id]| {
            let mut builder = GuavaBuilder::new();
            ids.iter().for_each(|id| builder.insert(hash(id)));
            builder.finish(self.workload.fpr)
        };
        let mut filter = build(&[]);
        let insert_ns = self.fastest(self.present, |ids| filter = build(ids));
        let (filter, _) = filter?;
        let (present_ns, absent_ns, false_positives) =
            self.query(|id| filter.might_contain(hash(id)));
        Ok(Row {
            name: "Guava's form, in Rust".to_owned(),
            insert_ns,
            insert_hashed_ns: None,
            insert_many_ns: None,
            present_ns,
            absent_ns,
            query_hashed_ns: None,
            query_many_ns: None,
            bytes: filter.to_bytes().len() as u64,
            false_positives,
        })
    }

    /// Measures the queries of a filter and returns its row. The caller sets the insertion times.
    fn measure_queries(&self, name: &str, filter: &Filter<Vec<u8>>) -> Row {
        let hasher = hasher();
        let (present_ns, absent_ns, false_positives) =
            self.query(|id| filter.contains(hasher.hash_canonical(id)));
        let (mut hashed_ns, mut many_ns) = (0.0, 0.0);
        for ids in [self.present, self.absent] {
            let hashes = hashes(sample(ids));
            hashed_ns += self.fastest(&hashes, |hashes| {
                black_box(hashes.iter().filter(|hash| filter.contains(**hash)).count());
            });
            let mut answers = vec![false; hashes.len()];
            many_ns += self.fastest(&hashes, |hashes| {
                filter.contains_many(hashes, &mut answers);
                black_box(&answers);
            });
        }
        Row {
            name: name.to_owned(),
            insert_ns: 0.0,
            insert_hashed_ns: None,
            insert_many_ns: None,
            present_ns,
            absent_ns,
            query_hashed_ns: Some(hashed_ns / 2.0),
            query_many_ns: Some(many_ns / 2.0),
            bytes: filter.bytes().len() as u64,
            false_positives,
        }
    }

    /// Returns the nanoseconds of a query for a present id and for an absent id, and the share of absent ids
    /// reported as present.
    fn query(&self, contains: impl Fn(&Id) -> bool) -> (f64, f64, f64) {
        let count = |ids: &[Id]| ids.iter().filter(|id| contains(id)).count();
        let found = count(self.present);
        assert_eq!(
            found,
            self.present.len(),
            "the filter contains every inserted id"
        );
        let false_positives = count(self.absent) as f64 / self.absent.len() as f64;
        let measure = |ids| {
            self.fastest(sample(ids), |ids| {
                black_box(count(ids));
            })
        };
        (measure(self.present), measure(self.absent), false_positives)
    }

    /// Calls `work` once per round and returns the CPU nanoseconds per item in the fastest round.
    fn fastest<T>(&self, items: &[T], mut work: impl FnMut(&[T])) -> f64 {
        let rounds = (0..self.workload.rounds).map(|_| {
            let start = cpu_time();
            work(black_box(items));
            cpu_time().saturating_sub(start)
        });
        let fastest = rounds.min().unwrap_or_default();
        fastest.as_nanos() as f64 / items.len().max(1) as f64
    }

    fn params(&self) -> FilterParams {
        FilterParams {
            hasher: hasher(),
            ..FilterParams::with_rate(self.workload.fpr)
        }
    }
}

/// Builds a static filter in the same way as `filter build` with one thread.
fn build(
    params: FilterParams,
    hashes: impl Iterator<Item = IdHash>,
) -> Result<Filter<Vec<u8>>, BuildError> {
    let mut builder = StaticBuilder::new(params);
    for hash in hashes {
        builder.insert(hash)?;
    }
    builder.finish_with(build_workspace())
}

fn hasher() -> IdHasher {
    IdHasher {
        form: IdForm::Uuid,
        seed: 0,
    }
}

/// The first [`QUERIES_PER_ROUND`] ids, which are queried in each round.
fn sample(ids: &[Id]) -> &[Id] {
    &ids[..ids.len().min(QUERIES_PER_ROUND)]
}

fn hashes(ids: &[Id]) -> Vec<IdHash> {
    ids.iter().map(|id| hasher().hash_canonical(id)).collect()
}

/// The number of ids that are queried in a round. These ids fit into the CPU cache. In a proxy, the queried id is in
/// the CPU cache too, because it was just read from a request. With more ids, the benchmark would also measure the time
/// to load the ids from memory.
const QUERIES_PER_ROUND: usize = 100_000;

/// Returns the n-th UUID, which is pseudo-random and unique.
fn id(n: u64) -> Id {
    let high = scramble(n);
    let low = scramble(!n);
    let hex = format!("{high:016x}{low:016x}");
    let text = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-");
    text.as_bytes()
        .try_into()
        .expect("a UUID has 36 characters")
}

/// A permutation of 64-bit numbers, so that no two ids are equal.
fn scramble(n: u64) -> u64 {
    mix64(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The CPU time of this thread so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}
