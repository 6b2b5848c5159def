//! Nanoseconds an id of the static filter, apart by what they go into, as a table on stdout.
//!
//! `cargo run --release -p edgeward-filter --example filter_speed [-- IDS..]`, for 1 % and 3 %. Ids are
//! UUIDs as text. "build" is gathering and solving in memory of the allocator's, "in large pages" with tables that are mapped
//! anew for each build in such pages, as `filter build` and `filter serve` do. "hash" is their hashing alone, "probe" a question once that is done, "many" the same by
//! `contains_many`, "ask" hash and probe; "chained" is a probe that must wait for the answer before, which
//! is what a single question takes. The best of
//! many short passes, since other work on the machine only adds.
#![expect(clippy::print_stdout, reason = "a program whose result is its output")]

use std::hint::black_box;
use std::time::Instant;

use edgeward_filter::{Filter, IdForm, IdHash, IdHasher, Rate, Request, StaticBuilder, Tables};
use memmap2::MmapMut;

fn main() {
    let mut sizes: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|ids| ids.parse().ok())
        .collect();
    if sizes.is_empty() {
        sizes = vec![10_000, 100_000, 620_000, 1_000_000];
    }
    println!(
        "ids | rate | KiB | build | in large pages | hash | probe | probe, present | many | ask | chained"
    );
    println!("---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:");
    for ids in sizes {
        for rate in [0.01, 0.03] {
            row(ids, Rate::new(rate).expect("a rate"));
        }
    }
}

fn row(ids: u64, rate: Rate) {
    let hasher = IdHasher {
        form: IdForm::Uuid,
        seed: 0,
    };
    let present: Vec<IdHash> = (0..ids).map(|n| hasher.canonical(&id(n << 1))).collect();
    let absent: Vec<[u8; 36]> = (0..ids.min(PASS_IDS)).map(|n| id(n << 1 | 1)).collect();
    let hashes: Vec<IdHash> = absent.iter().map(|id| hasher.canonical(id)).collect();
    let request = Request {
        hasher,
        ..Request::with_rate(rate)
    };
    let mut filter = None;
    let mut build = |tables: fn() -> Tables| {
        best(&present, BUILDS, |ids| {
            let mut builder = StaticBuilder::new(request);
            for &id in ids {
                builder.insert(id).expect("not too many");
            }
            filter = Some(builder.finish_with(tables()).expect("solvable"));
        })
    };
    let builds = [build(Tables::default), build(large_pages)];
    let filter: Filter<Vec<u8>> = filter.expect("it was built");
    let count = |ids: &[IdHash]| {
        black_box(ids.iter().filter(|&&id| filter.contains(id)).count());
    };
    let some = &present[..present.len().min(PASS_IDS as usize)];
    let mut answers = vec![false; hashes.len()];
    let figures = [
        builds[0],
        builds[1],
        best(&absent, PASSES, |ids| {
            black_box(ids.iter().fold(0, |sum, id| sum ^ hasher.canonical(id).0));
        }),
        best(&hashes, PASSES, count),
        best(some, PASSES, count),
        best(&hashes, PASSES, |ids| {
            filter.contains_many(ids, &mut answers[..ids.len()]);
            black_box(&answers);
        }),
        best(&absent, PASSES, |ids| {
            let asked = ids.iter().map(|id| filter.contains(hasher.canonical(id)));
            black_box(asked.filter(|&maybe| maybe).count());
        }),
        best(&hashes, PASSES, |ids| {
            black_box(ids.iter().fold(0, |last, id| {
                u64::from(filter.contains(IdHash(id.0 ^ last)))
            }));
        }),
    ];
    let figures = figures.map(|ns| format!("{ns:.1}")).join(" | ");
    println!(
        "{ids} | {}% | {} | {figures}",
        rate.share() * 100.0,
        filter.bytes().len() / 1024
    );
}

/// Tables in pages of 2 MiB, if the system has them.
fn large_pages() -> Tables {
    let memory = MmapMut::map_anon(Tables::BYTES).expect("memory");
    #[cfg(target_os = "linux")]
    memory
        .advise(memmap2::Advice::HugePage)
        .expect("memory of its own");
    Tables::within(memory)
}

/// Nanoseconds an item, the best of some passes.
fn best<T>(items: &[T], passes: u32, mut work: impl FnMut(&[T])) -> f64 {
    let pass = (0..passes).map(|_| {
        let start = Instant::now();
        work(black_box(items));
        start.elapsed().as_nanos() as f64
    });
    pass.fold(f64::INFINITY, f64::min) / items.len() as f64
}

/// The n-th UUID: as good as random, never twice.
fn id(n: u64) -> [u8; 36] {
    let scrambled = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let high = scrambled ^ scrambled >> 32;
    let low = high.rotate_left(23).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hex = format!("{high:016x}{low:016x}");
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    let text = parts.join("-");
    text.as_bytes().try_into().expect("36 characters")
}

const BUILDS: u32 = 10;

const PASSES: u32 = 60;

/// Questions of a pass: a fraction of a millisecond.
const PASS_IDS: u64 = 100_000;
