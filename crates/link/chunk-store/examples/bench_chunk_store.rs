//! Benchmark of compressed chunk stores: the compression ratio, and the CPU time to store and to load chunks.
//!
//! ```sh
//! cargo run --release --package edgeward-chunk-store --example bench_chunk_store -- FILE…
//! ```
//!
//! Each file is cut into chunks, which are stored in a new store in memory. Then all chunks are loaded twice:
//! first in runs of 56 neighbouring chunks, like the link does for references, and then one by one in a mixed
//! order, which is the worst case. The speed in GB/s is the number of bytes divided by the CPU time of the
//! thread, without cutting and hashing; the best of three rounds counts. The output is one JSON object for each
//! file and compression method. In it, `keep_gbps` is the speed of storing, `runs_gbps` the speed of loading runs,
//! and `singly_gbps` the speed of loading single chunks. All three are in GB/s.

use std::io;
use std::path::Path;
use std::sync::Arc;

use edgeward_chunk_store::{ChunkSettings, Chunks, ScratchDevice};
use edgeward_dedup::chunker::{Chunker, ChunkerParams};
use edgeward_dedup::codec::Method;
use edgeward_dedup::id::{ChunkId, IdKey};
use edgeward_dedup::store::{ChunkLocation, ChunkStore as _, Entry, bytes_of};

fn main() -> io::Result<()> {
    for file in std::env::args().skip(1) {
        let body = std::fs::read(&file)?;
        let chunks = cut(&body);
        for method in [Method::None, Method::Lz4, Method::Zstd] {
            let best = (0..ROUNDS)
                .map(|_| measure(&chunks, method))
                .reduce(Speeds::best);
            best.expect("there are several rounds").print(&file, method);
        }
    }
    Ok(())
}

/// Cuts a body into chunks like the link, and computes their ids.
fn cut(body: &[u8]) -> Vec<(ChunkId, &[u8])> {
    let params = ChunkerParams::new(AVERAGE_BYTES, 1).expect("the size is supported");
    let (key, mut chunker) = (IdKey::new([0; 32]), Chunker::new(params));
    let (mut chunks, mut rest) = (Vec::new(), body);
    while let Some(end) = chunker.next_cut(rest) {
        let (chunk, others) = rest.split_at(end);
        chunks.push((key.id(chunk), chunk));
        rest = others;
    }
    chunks
}

/// The results for one file and method.
#[derive(Clone, Copy)]
struct Speeds {
    /// The uncompressed bytes divided by the stored bytes.
    ratio: f64,
    /// The speed of storing all chunks, in GB/s.
    store: f64,
    /// The speed of loading runs of neighbouring chunks, in GB/s.
    runs: f64,
    /// The speed of loading single chunks, in GB/s.
    single_chunks: f64,
}

impl Speeds {
    fn best(self, other: Self) -> Self {
        Self {
            ratio: self.ratio,
            store: self.store.max(other.store),
            runs: self.runs.max(other.runs),
            single_chunks: self.single_chunks.max(other.single_chunks),
        }
    }

    #[expect(clippy::print_stdout, reason = "a measurement's result")]
    fn print(&self, file: &str, method: Method) {
        let file = Path::new(file).file_name().unwrap_or_default();
        println!(
            r#"{{"file":{file:?},"method":"{method:?}","ratio":{:.2},"keep_gbps":{:.2},"runs_gbps":{:.2},"singly_gbps":{:.2}}}"#,
            self.ratio, self.store, self.runs, self.single_chunks
        );
    }
}

fn measure(chunks: &[(ChunkId, &[u8])], compression: Method) -> Speeds {
    let bytes: usize = chunks.iter().map(|(_, chunk)| chunk.len()).sum();
    let device = ScratchDevice::new(Path::new("/dev/shm"), bytes as u64 * 2 + (8 << 20));
    let settings = ChunkSettings {
        compression,
        ..ChunkSettings::new(AVERAGE_BYTES, 1)
    };
    let device = Arc::new(device.expect("the file can be created"));
    let mut store = Chunks::open(device, settings).expect("the store opens");
    let mut locations: Vec<ChunkLocation> = Vec::new();
    let store_speed = timed(bytes, || {
        locations.extend(
            chunks
                .iter()
                .filter_map(|(id, chunk)| store.insert(*id, chunk)),
        );
        store.flush().expect("the store can be written");
    });
    let counters = store.counters();
    let mut out: Vec<u8> = Vec::new();
    let runs_speed = timed(bytes, || {
        let mut entries: Vec<Entry> = Vec::new();
        let mut nth = 0;
        while nth < locations.len() {
            entries.clear();
            store.entries(locations[nth], RUN_CHUNKS, &mut entries);
            let bytes = bytes_of(&entries);
            out.resize(bytes.max(out.len()), 0);
            assert!(store.load(locations[nth], &entries, &mut out[..bytes]));
            nth += entries.len();
        }
    });
    // The stride is prime, so each chunk is loaded once, unless the number of chunks is a multiple of it.
    let stride = 7919;
    let single_chunks_speed = timed(bytes, || {
        for nth in 0..locations.len() {
            let nth = nth * stride % locations.len();
            let (id, chunk) = chunks[nth];
            let entry = Entry {
                id,
                length: chunk.len() as u32,
            };
            out.resize(chunk.len().max(out.len()), 0);
            assert!(store.load(locations[nth], &[entry], &mut out[..chunk.len()]));
        }
    });
    Speeds {
        ratio: counters.raw_bytes as f64 / counters.stored_bytes as f64,
        store: store_speed,
        runs: runs_speed,
        single_chunks: single_chunks_speed,
    }
}

/// Runs the work on `bytes` bytes, and returns its speed in GB per second of CPU time.
fn timed(bytes: usize, work: impl FnOnce()) -> f64 {
    let before = cpu_nanos();
    work();
    bytes as f64 / (cpu_nanos() - before) as f64
}

fn cpu_nanos() -> i128 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

/// The average chunk size in bytes.
const AVERAGE_BYTES: u32 = 8 << 10;

/// The number of chunks that are loaded with one call.
const RUN_CHUNKS: usize = 56;
const ROUNDS: usize = 3;
