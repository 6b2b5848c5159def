//! Measures the disk tier's index with very many objects: memory, lookups, insertions, checkpoints.
//!
//! ```sh
//! cargo run --release --package edgeward-store --example bench_index -- [OBJECTS] [DEVICE_GIB] [FOLDER]
//! ```
//!
//! The defaults are 100 million objects on a device of 2 TiB, and the system's temporary folder for the
//! checkpoint. The output has one JSON object per line for each figure. Times of operations are CPU times, so
//! that other processes have less influence. Each time is the median of batches of 10 000 operations, with the
//! 99th percentile of the batches beside it. In a *dependent* run the next key is computed from the last
//! result, so that the processor cannot overlap lookups. (If all lookups are misses, a fence separates them.)
//! The result is the latency of one lookup. In an *overlapping* run the processor may overlap lookups. The
//! result is the throughput of a busy core.
//!
//! The index identifies a key by a part of its hash, the identity. `identities_met` is the number of new keys that
//! replaced the entry of another key with the same identity. `moves` is the number of entries that were moved to
//! their other bucket, per insertion. `displaced` counts the entries that were removed because the index was full.
//! `load` is the share of the slots that have an entry. A false match is a lookup of an absent key that finds the
//! entry of another key: `false_match_rate_stated` is its calculated rate, `false_match_rate_met` its measured rate.
//! `ram_counted` is the memory by the index's own count, `ram_rss` the growth of the process, and
//! `ram_lines_in_use` the memory of the buckets in use.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufReader, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Instant;

use edgeward_store::disk::{Index, IndexConfig, InsertOutcome, Location};
use edgeward_types::{ByteSize, KeyHash, SplitMix64};

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| {
        arguments.next().map_or(default, |text| {
            text.parse()
                .expect("the arguments are a number of objects and a number of GiB")
        })
    };
    let (objects, device_gib) = (number(100_000_000), number(2048));
    let folder = arguments
        .next()
        .map_or_else(std::env::temp_dir, PathBuf::from);

    let config = IndexConfig::for_device(ByteSize::gib(device_gib));
    assert!(
        objects < config.objects_max,
        "a device of {device_gib} GiB has an index for {} objects",
        config.objects_max
    );
    let mut out = Figures(io::stdout());
    out.report("objects", objects as f64, "")?;
    out.report("device", device_gib as f64, "GiB")?;
    out.report("load_average_before", load_average(), "")?;

    let rss_before = rss_bytes();
    let index = Index::new(config);
    insertions(&index, objects, &mut out)?;
    let rss = rss_bytes() - rss_before;
    out.report(
        "ram_counted",
        index.bytes() as f64 / objects as f64,
        "B/object",
    )?;
    out.report("ram_rss", rss as f64 / objects as f64, "B/object")?;
    let counts = index.counts();
    // A bucket is one cache line of 64 bytes with nine slots.
    let lines = 64.0 * counts.buckets as f64 / counts.entries as f64;
    out.report("ram_lines_in_use", lines, "B/object")?;
    out.report(
        "load",
        counts.entries as f64 / (9 * counts.buckets) as f64,
        "",
    )?;
    out.report("moves", counts.moved as f64 / objects as f64, "/insertion")?;
    out.report("displaced", counts.displaced as f64, "")?;
    out.report("false_match_rate_stated", index.false_match_rate(), "")?;

    lookups(&index, objects, &mut out)?;
    during_writes(&index, objects, &mut out)?;
    checkpoint(index, config, &folder, objects, &mut out)
}

fn insertions(index: &Index, objects: u64, out: &mut Figures) -> io::Result<()> {
    let mut replaced = 0_u64;
    let mut next = 0;
    let mut insert = |batch: u64| {
        for _ in 0..batch {
            // The first record starts at 4096 bytes (8 units of 512 bytes), as after the header of a segment.
            let at = Location::from_unit(next * STRIDE_UNITS + 8);
            replaced += u64::from(index.insert(key(next), at) != InsertOutcome::New);
            next += 1;
        }
    };
    let (start, cpu_start) = (Instant::now(), thread_nanos());
    out.batches("insert_growing", objects / BATCH, &mut insert)?;
    insert(objects % BATCH);
    out.report("insert_growing_all", start.elapsed().as_secs_f64(), "s")?;
    out.report(
        "insert_growing_all_cpu",
        (thread_nanos() - cpu_start) / 1e9,
        "s",
    )?;
    out.report("identities_met", replaced as f64, "")
}

fn lookups(index: &Index, objects: u64, out: &mut Figures) -> io::Result<()> {
    // A chain of random keys would enter a cycle after about ten thousand keys. The counter `n` prevents this.
    let (mut n, mut found) = (0, 0);
    out.batches("find_hit_dependent", LOOKUP_BATCHES, |batch| {
        for _ in 0..batch {
            n += 1;
            found = hit(index, mix(n ^ found << 40) % objects);
        }
    })?;
    out.batches("find_hit_overlapping", LOOKUP_BATCHES, |batch| {
        for _ in 0..batch {
            n += 1;
            black_box(hit(index, mix(n) % objects));
        }
    })?;
    let (mut absent, mut matches) = (objects, 0_u64);
    out.batches("find_miss_dependent", LOOKUP_BATCHES, |batch| {
        for _ in 0..batch {
            matches += u64::from(black_box(index.find(key(absent))).is_some());
            fence(Ordering::SeqCst);
            absent += 1;
        }
    })?;
    out.batches("find_miss_overlapping", LOOKUP_BATCHES, |batch| {
        for _ in 0..batch {
            matches += u64::from(black_box(index.find(key(absent))).is_some());
            absent += 1;
        }
    })?;
    let lookups = (absent - objects) as f64;
    out.report("false_match_rate_met", matches as f64 / lookups, "")?;
    // `touch` counts a hit on an entry.
    out.batches("touch", LOOKUP_BATCHES, |batch| {
        for _ in 0..batch {
            n += 1;
            let which = mix(n) % objects;
            index.touch(key(which), Location::from_unit(which * STRIDE_UNITS + 8));
        }
    })
}

fn hit(index: &Index, which: u64) -> u64 {
    index.find(key(which)).map_or(0, Location::unit)
}

/// Measures lookups while another thread replaces one entry after another.
fn during_writes(index: &Index, objects: u64, out: &mut Figures) -> io::Result<()> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut n, start) = (0_u64, thread_nanos());
            while !stop.load(Ordering::Relaxed) {
                let which = mix(n) % objects;
                let at = Location::from_unit(which * STRIDE_UNITS + 8);
                _ = black_box(index.insert(key(which), at));
                n += 1;
            }
            (thread_nanos() - start) / n as f64
        });
        // Other numbers than the writer's: the two sequences of keys differ.
        let (mut n, mut found) = (1 << 50, 0);
        let result = out.batches("find_hit_beside_writer", LOOKUP_BATCHES, |batch| {
            for _ in 0..batch {
                n += 1;
                found = hit(index, mix(n ^ found << 40) % objects);
            }
        });
        stop.store(true, Ordering::Relaxed);
        let mean = writer.join().expect("the writer does not panic");
        result.and_then(|()| out.report("replace_beside_lookups_mean", mean, "ns"))
    })
}

fn checkpoint(
    index: Index,
    config: IndexConfig,
    folder: &std::path::Path,
    objects: u64,
    out: &mut Figures,
) -> io::Result<()> {
    let start = Instant::now();
    // The epoch 1 is arbitrary: this index has no log.
    let saved = index.save(1, &mut io::sink())?;
    out.report("save_to_nowhere", start.elapsed().as_secs_f64(), "s")?;
    out.report(
        "checkpoint",
        saved.bytes as f64 / objects as f64,
        "B/object",
    )?;

    let path = folder.join(format!("bench-index-{}", std::process::id()));
    let mut file = File::create_new(&path)?;
    let start = Instant::now();
    index.save(1, &mut file)?;
    out.report("save_to_file", start.elapsed().as_secs_f64(), "s")?;
    file.sync_all()?;
    out.report("save_to_file_synced", start.elapsed().as_secs_f64(), "s")?;
    // A second index would double the memory.
    drop(index);

    let start = Instant::now();
    let mut input = BufReader::with_capacity(1 << 20, File::open(&path)?);
    let loaded = Index::load(config, &mut input);
    let seconds = start.elapsed().as_secs_f64();
    std::fs::remove_file(&path)?;
    let (loaded, _) = loaded.map_err(io::Error::other)?;
    assert_eq!(loaded.len(), saved.entries, "all saved entries are loaded");
    out.report("load_from_page_cache", seconds, "s")
}

/// Writes figures, one JSON object per line.
struct Figures(io::Stdout);

impl Figures {
    fn report(&mut self, name: &str, value: f64, unit: &str) -> io::Result<()> {
        writeln!(
            self.0,
            r#"{{"what":"{name}","value":{value},"unit":"{unit}"}}"#
        )
    }

    /// Measures `count` batches of an operation.
    fn batches(&mut self, name: &str, count: u64, mut batch: impl FnMut(u64)) -> io::Result<()> {
        let mut nanos: Vec<f64> = (0..count)
            .map(|_| {
                let start = thread_nanos();
                batch(BATCH);
                (thread_nanos() - start) / BATCH as f64
            })
            .collect();
        nanos.sort_by(f64::total_cmp);
        let at = |share: f64| nanos[(nanos.len() as f64 * share) as usize];
        let (p50, p99) = (at(0.5), at(0.99));
        writeln!(
            self.0,
            r#"{{"what":"{name}","value":{p50:.1},"p99":{p99:.1},"unit":"ns","batches":{count}}}"#
        )
    }
}

/// Returns the CPU time of this thread.
fn thread_nanos() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn rss_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has this file");
    let pages = statm
        .split(' ')
        .nth(1)
        .expect("the second field is the resident pages");
    let pages: u64 = pages.parse().expect("the text is a number");
    pages * rustix::param::page_size() as u64
}

/// Returns the load average of the last minute, because other processes distort the times.
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").expect("Linux has this file");
    let first = text.split(' ').next().and_then(|word| word.parse().ok());
    first.expect("the file begins with a number")
}

/// Returns the key of an object.
fn key(n: u64) -> KeyHash {
    KeyHash(mix(n))
}

/// Mixes a number with the output step of SplitMix64. This step is a bijection, so different numbers give
/// different results.
fn mix(n: u64) -> u64 {
    SplitMix64(n).draw()
}

/// The distance between the starts of two records, in units of 512 bytes: 20 KiB.
const STRIDE_UNITS: u64 = 40;
const BATCH: u64 = 10_000;
const LOOKUP_BATCHES: u64 = 500;
