//! Benchmark of the chunk store's index for several store sizes: its memory, the time of a lookup, and the speed of
//! adding new bodies.
//!
//! ```sh
//! cargo run --release --package edgeward-chunk-store --example bench_link_index -- [--wait] [AVERAGE_KIB]…
//! ```
//!
//! For each average chunk size (64, 16 and 8 KiB by default), the benchmark measures three indexes: for stores of
//! 1 GB, 10 GB and 10 TB. The index for 10 TB takes about 1 GB of memory with chunks of 64 KiB, 4 GB with 16 KiB,
//! and 8 GB with 8 KiB. With `--wait`, the benchmark waits for a line on stdin after the indexes are filled, so that
//! the machine can become idle.
//!
//! Each index is filled with the ids of a full store. Then the benchmark does the work of a full store to which
//! bodies are added. It cuts random bytes into chunks, hashes them, looks up and inserts their ids, and removes an
//! old id for each new one. Times are CPU time of the thread, except `fill_ns`, the elapsed time per id while the index
//! was filled. This time is measured once. The other times and the speeds are medians of several measurements, which
//! alternate between the three indexes. The output is one JSON object per line. `full` is the used share of the
//! index's slots, `dropped` the number of entries that were dropped because no slot was free for a new one, and
//! `gb_per_tb` the GB of the index per TB of the store.

use std::hint::black_box;
use std::io::{self, Write as _};
use std::time::Instant;

use edgeward_chunk_store::{Index, SLOT_BYTES};
use edgeward_dedup::chunker::{Chunker, ChunkerParams};
use edgeward_dedup::id::{ChunkId, IdKey};
use edgeward_types::SplitMix64;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wait = arguments.iter().any(|argument| argument == "--wait");
    let averages = arguments.iter().filter_map(|kib| kib.parse().ok());
    let mut averages: Vec<u32> = averages.collect();
    if averages.is_empty() {
        averages = vec![64, 16, 8];
    }
    let noise = noise();
    for kib in averages {
        let fill = |store: u64| FullIndex::new(store * 1_000_000_000, kib << 10);
        let mut filled = [1, 10, 10_000].map(fill);
        if wait {
            eprintln!("{kib} KiB: filled");
            io::stdin().read_line(&mut String::new())?;
        }
        for _ in 0..ROUNDS {
            for filled in &mut filled {
                filled.measure(&noise);
            }
        }
        for filled in &mut filled {
            filled.print()?;
        }
    }
    Ok(())
}

/// The index of a full store, and the measurements of this index.
struct FullIndex {
    index: Index,
    store_bytes: u64,
    /// The configured average chunk size in bytes.
    average: u32,
    /// The number of containers of the store. A container has 1 MiB.
    containers: u64,
    /// The number of chunks with which the index was filled.
    chunks: u64,
    /// The mean length of a chunk in bytes.
    chunk_bytes: u64,
    /// The number of the chunk that is removed next. Numbers from `chunks` on belong to the ids in `inserted`.
    oldest: u64,
    /// The ids inserted after the index was filled.
    inserted: Vec<ChunkId>,
    /// The elapsed time per insertion while the index was filled, in nanoseconds.
    fill_nanos: f64,
    /// The growth of the process's resident memory when the index was created.
    rss_bytes: u64,
    /// The results of each measurement: nanoseconds per dependent lookup and per overlapping lookup, and GB/s
    /// of adding bodies with and without the index.
    figures: [Vec<f64>; 4],
}

impl FullIndex {
    fn new(store_bytes: u64, average: u32) -> Self {
        // The chunker cuts no chunk shorter than a quarter of the configured average, so the mean length is above this
        // average: by about an eighth, as measured. `Chunks` of this crate expects the same mean length.
        let chunk_bytes = u64::from(average) * 9 / 8;
        let chunks = store_bytes / chunk_bytes;
        let before = rss_bytes();
        let mut index = Index::for_chunks(chunks).expect("the memory is available");
        index.allocate(0..index.buckets());
        let rss_bytes = rss_bytes() - before;
        let containers = (store_bytes >> 20).max(1);
        let start = Instant::now();
        for n in 0..chunks {
            index.insert(&id(n), position_of(n, chunks, containers));
        }
        Self {
            fill_nanos: start.elapsed().as_nanos() as f64 / chunks as f64,
            index,
            store_bytes,
            average,
            containers,
            chunks,
            chunk_bytes,
            oldest: 0,
            inserted: Vec::new(),
            rss_bytes,
            figures: Default::default(),
        }
    }

    fn measure(&mut self, noise: &[u8]) {
        let (index, chunks) = (&self.index, self.chunks);
        // Each id depends on the result of the last lookup, so the processor cannot overlap lookups.
        let (mut n, mut last) = (self.oldest, 0);
        let dependent = nanos(|| {
            for _ in 0..LOOKUPS {
                n = mix(n ^ last) % chunks;
                last = index.candidates(&id(n)).next().map_or(0, u64::from);
            }
            black_box(last);
        });
        let mut n = self.oldest + 1;
        let overlapping = nanos(|| {
            let mut found = 0;
            for _ in 0..LOOKUPS {
                n += 1;
                found += index.candidates(&id(mix(n) % chunks)).count();
            }
            black_box(found);
        });
        self.figures[0].push(dependent / LOOKUPS as f64);
        self.figures[1].push(overlapping / LOOKUPS as f64);

        let params = ChunkerParams::new(self.average, self.oldest).expect("the size is supported");
        let without = nanos(|| {
            add_bodies(noise, params, self.oldest, |id| {
                _ = black_box(id);
            });
        });
        let (mut oldest, containers) = (self.oldest, self.containers);
        let (index, inserted) = (&mut self.index, &mut self.inserted);
        let with = nanos(|| {
            add_bodies(noise, params, oldest + 1, |new| {
                if index.candidates(new).next().is_some() {
                    return;
                }
                let old = match oldest.checked_sub(chunks) {
                    None => id(oldest),
                    Some(nth) => inserted[nth as usize],
                };
                let position = position_of(oldest % chunks, chunks, containers);
                index.remove(&old, position);
                index.insert(new, position);
                inserted.push(*new);
                oldest += 1;
            });
        });
        self.oldest = oldest;
        self.figures[2].push(noise.len() as f64 / with);
        self.figures[3].push(noise.len() as f64 / without);
    }

    fn print(&mut self) -> io::Result<()> {
        let [dependent, overlapping, with, without] = self.figures.each_mut().map(|all| {
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        });
        let bytes = self.index.bytes() as f64;
        writeln!(
            io::stdout(),
            r#"{{"average":{},"store_gb":{},"chunks":{},"chunk_bytes":{},"index_bytes":{bytes},"rss_bytes":{},"gb_per_tb":{:.3},"full":{:.3},"dropped":{},"fill_ns":{:.0},"lookup_dependent_ns":{dependent:.0},"lookup_overlapping_ns":{overlapping:.0},"gb_per_s":{with:.3},"gb_per_s_without_index":{without:.3},"load_average":{}}}"#,
            self.average,
            self.store_bytes / 1_000_000_000,
            self.chunks,
            self.chunk_bytes,
            self.rss_bytes,
            bytes / self.store_bytes as f64 * 1e3,
            self.index.used() as f64 * SLOT_BYTES / bytes,
            self.index.dropped(),
            self.fill_nanos,
            load_average(),
        )
    }
}

/// Cuts the random bytes into bodies of 4 MiB and these into chunks, and calls `visit` with the id of each chunk. The
/// ids depend on `seed`, so that the same bytes give new ids.
fn add_bodies(noise: &[u8], params: ChunkerParams, seed: u64, mut visit: impl FnMut(&ChunkId)) {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let key = IdKey::new(key);
    for body in noise.chunks(4 << 20) {
        let (mut chunker, mut rest) = (Chunker::new(params), body);
        while let Some(end) = chunker.next_cut(rest) {
            visit(&key.id(&rest[..end]));
            rest = &rest[end..];
        }
    }
}

/// Returns an id that is distributed like a hash.
fn id(n: u64) -> ChunkId {
    let halves = [mix(n), mix(n ^ 0x5555_5555_5555_5555)];
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&halves[0].to_le_bytes());
    bytes[8..].copy_from_slice(&halves[1].to_le_bytes());
    ChunkId(bytes)
}

/// Returns the position of the container of chunk `n`.
fn position_of(n: u64, chunks: u64, containers: u64) -> u32 {
    (u128::from(n) * u128::from(containers) / u128::from(chunks)) as u32
}

/// Returns the first output of SplitMix64 with this seed. Different seeds have different outputs.
fn mix(n: u64) -> u64 {
    SplitMix64(n).draw()
}

/// Returns the random bytes from which all bodies are cut.
fn noise() -> Vec<u8> {
    (0..NOISE_BYTES as u64 / 8)
        .flat_map(|n| mix(n).to_le_bytes())
        .collect()
}

/// Runs the work, and returns its CPU time in nanoseconds.
fn nanos(mut work: impl FnMut()) -> f64 {
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    let start = now();
    work();
    now() - start
}

/// Returns the resident memory of this process in bytes.
fn rss_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has /proc");
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("the second field is the number of resident pages")
        * rustix::param::page_size() as u64
}

/// Returns the load average of the last minute. It is printed because other processes distort the times.
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").expect("Linux has /proc");
    let first = text.split(' ').next().and_then(|word| word.parse().ok());
    first.expect("the first field is a number")
}

const NOISE_BYTES: usize = 256 << 20;
/// The number of lookups of each kind in one measurement.
const LOOKUPS: u64 = 300_000;
/// The number of measurements of each index.
const ROUNDS: usize = 7;
