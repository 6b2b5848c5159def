//! Measures static and updatable filters in nanoseconds per id. Prints a table for each to stdout.
//!
//! Run `cargo run --release -p edgeward-filter --example filter_speed [-- IDS..]`. Each `IDS` is the number of ids of
//! one filter. Each filter is measured with false-positive rates of 1 % and 3 %. Ids are UUIDs as text. Each time is
//! the lowest of many short passes, because other load on the machine only adds time. The columns:
//!
//! - build: adding the ids and solving the filter, with memory from the allocator; in large pages: the same with
//!   tables in pages of 2 MiB that are mapped for each build, like those of `filter build` and `filter serve`;
//! - hash: hashing alone; probe: a lookup of the hash of an absent id by `contains`; probe, present: the same for a
//!   present id; many: a lookup by `contains_many`; ask: hash and lookup;
//! - chained: a lookup that depends on the previous answer, which is the latency of a single lookup;
//! - insert (updatable filter only): inserting all hashed ids into an empty filter, one by one, or (many) by
//!   `insert_many`; hash, insert: hashing the text and inserting.
#![expect(clippy::print_stdout, reason = "a program whose result is its output")]

use std::hint::black_box;
use std::time::Instant;

use edgeward_filter::{
    BuildWorkspace, Filter, FilterParams, IdForm, IdHash, IdHasher, Rate, StaticBuilder,
    UpdatableFilter,
};
use edgeward_types::mix64;
use memmap2::MmapMut;

fn main() {
    let mut sizes: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|ids| ids.parse().ok())
        .collect();
    if sizes.is_empty() {
        sizes = vec![10_000, 100_000, 620_000, 1_000_000];
    }
    println!("static\n");
    println!(
        "ids | rate | KiB | build | in large pages | hash | probe | probe, present | many | ask | chained"
    );
    println!("---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:");
    for &ids in &sizes {
        for rate in [0.01, 0.03] {
            measure_static(&Ids::new(ids, Rate::new(rate).expect("the rate is valid")));
        }
    }
    println!("\nupdatable\n");
    println!(
        "ids | rate | KiB | insert | insert, many | hash, insert | hash, insert, many | probe | probe, present | many | ask | chained"
    );
    println!("---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:");
    for &ids in &sizes {
        for rate in [0.01, 0.03] {
            measure_updatable(&Ids::new(ids, Rate::new(rate).expect("the rate is valid")));
        }
    }
}

/// The ids to insert and to look up. Present ids are made from even numbers, absent ids from odd numbers.
struct Ids {
    params: FilterParams,
    texts: Vec<Text>,
    present: Vec<IdHash>,
    absent: Vec<Text>,
    absent_hashes: Vec<IdHash>,
}

impl Ids {
    fn new(ids: u64, rate: Rate) -> Self {
        let hasher = IdHasher {
            form: IdForm::Uuid,
            seed: 0,
        };
        let texts: Vec<Text> = (0..ids).map(|n| id(n << 1)).collect();
        let absent: Vec<Text> = (0..ids.min(PASS_IDS)).map(|n| id(n << 1 | 1)).collect();
        Self {
            params: FilterParams {
                hasher,
                ..FilterParams::with_rate(rate)
            },
            present: texts.iter().map(|id| hasher.hash_canonical(id)).collect(),
            texts,
            absent_hashes: absent.iter().map(|id| hasher.hash_canonical(id)).collect(),
            absent,
        }
    }

    /// Returns the columns probe, probe (present), many, ask and chained, in nanoseconds per lookup.
    fn measure_lookups(&self, filter: &Filter<Vec<u8>>) -> [f64; 5] {
        let hasher = self.params.hasher;
        let hashes = &self.absent_hashes;
        let count = |ids: &[IdHash]| {
            black_box(ids.iter().filter(|&&id| filter.contains(id)).count());
        };
        let present = &self.present[..hashes.len()];
        let mut answers = vec![false; hashes.len()];
        [
            best(hashes, PASSES, count),
            best(present, PASSES, count),
            best(hashes, PASSES, |ids| {
                filter.contains_many(ids, &mut answers[..ids.len()]);
                black_box(&answers);
            }),
            best(&self.absent, PASSES, |ids| {
                let asked = ids
                    .iter()
                    .map(|id| filter.contains(hasher.hash_canonical(id)));
                black_box(asked.filter(|&maybe| maybe).count());
            }),
            best(hashes, PASSES, |ids| {
                black_box(ids.iter().fold(0, |last, id| {
                    u64::from(filter.contains(IdHash(id.0 ^ last)))
                }));
            }),
        ]
    }

    fn print(&self, filter: &Filter<Vec<u8>>, columns: &[f64]) {
        let columns: Vec<String> = columns.iter().map(|ns| format!("{ns:.1}")).collect();
        println!(
            "{} | {}% | {} | {}",
            self.present.len(),
            self.params.rate.share() * 100.0,
            filter.bytes().len() / 1024,
            columns.join(" | ")
        );
    }
}

fn measure_static(ids: &Ids) {
    let hasher = ids.params.hasher;
    let mut filter = None;
    let mut build = |workspace: fn() -> BuildWorkspace| {
        best(&ids.present, BUILDS, |present| {
            let mut builder = StaticBuilder::new(ids.params);
            for &id in present {
                builder.insert(id).expect("the builder accepts the id");
            }
            filter = Some(
                builder
                    .finish_with(workspace())
                    .expect("the filter is solvable"),
            );
        })
    };
    let builds = [build(BuildWorkspace::default), build(large_pages)];
    let hash = best(&ids.absent, PASSES, |ids| {
        black_box(
            ids.iter()
                .fold(0, |sum, id| sum ^ hasher.hash_canonical(id).0),
        );
    });
    let filter = filter.expect("the filter was built");
    let columns = [&builds[..], &[hash], &ids.measure_lookups(&filter)].concat();
    ids.print(&filter, &columns);
}

fn measure_updatable(ids: &Ids) {
    let hasher = ids.params.hasher;
    let empty =
        UpdatableFilter::new(ids.params, ids.present.len() as u64).expect("the filter fits");
    let mut filter = empty.clone();
    let columns = [
        best(&ids.present, INSERTS, |hashes| {
            filter.clone_from(&empty);
            for &id in hashes {
                _ = black_box(filter.insert(id));
            }
        }),
        best(&ids.present, INSERTS, |hashes| {
            filter.clone_from(&empty);
            _ = black_box(filter.insert_many(hashes));
        }),
        best(&ids.texts, INSERTS, |texts| {
            filter.clone_from(&empty);
            for id in texts {
                _ = black_box(filter.insert(hasher.hash_canonical(id)));
            }
        }),
        best(&ids.texts, INSERTS, |texts| {
            filter.clone_from(&empty);
            for batch in texts.chunks(BATCH) {
                let mut hashes = [IdHash(0); BATCH];
                for (hash, id) in hashes.iter_mut().zip(batch) {
                    *hash = hasher.hash_canonical(id);
                }
                _ = black_box(filter.insert_many(&hashes[..batch.len()]));
            }
        }),
    ];
    let filter = filter.to_filter(1);
    let columns = [&columns[..], &ids.measure_lookups(&filter)].concat();
    ids.print(&filter, &columns);
}

/// Returns a workspace in pages of 2 MiB, if the system has them.
fn large_pages() -> BuildWorkspace {
    let memory = MmapMut::map_anon(BuildWorkspace::BYTES).expect("the memory is mapped");
    #[cfg(target_os = "linux")]
    memory
        .advise(memmap2::Advice::HugePage)
        .expect("the mapping accepts the advice");
    BuildWorkspace::within(memory)
}

/// Returns the nanoseconds per item of the fastest pass.
fn best<T>(items: &[T], passes: u32, mut work: impl FnMut(&[T])) -> f64 {
    let pass = (0..passes).map(|_| {
        let start = Instant::now();
        work(black_box(items));
        start.elapsed().as_nanos() as f64
    });
    pass.fold(f64::INFINITY, f64::min) / items.len() as f64
}

/// Returns the n-th of a sequence of distinct pseudorandom UUIDs.
fn id(n: u64) -> Text {
    let high = mix64(n + 1);
    let low = mix64(high);
    let hex = format!("{high:016x}{low:016x}");
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    let text = parts.join("-");
    text.as_bytes()
        .try_into()
        .expect("a UUID has 36 characters")
}

/// A UUID as text.
type Text = [u8; 36];

/// The number of times that a static filter is built.
const BUILDS: u32 = 10;

/// The number of times that an updatable filter is filled.
const INSERTS: u32 = 30;

/// The number of ids that are hashed before `insert_many` inserts them.
const BATCH: usize = 256;

/// The number of passes of lookups or hashes.
const PASSES: u32 = 60;

/// The largest number of lookups in a pass. A pass takes about a millisecond.
const PASS_IDS: u64 = 100_000;
