//! Measures the throughput of a disk cache: `cargo run --release --example bench_disk -- DIR GIB`.
//!
//! For each of four object sizes, writes GIB GiB of objects as fast as the queue accepts them, and reads up to
//! 200,000 objects back. The cache has twice this size, so it evicts no object. Also measures the checksum of the
//! format. Prints one line of JSON per result.
#![expect(clippy::print_stdout, reason = "it prints its result")]

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use edgeward_store::disk::{BeginError, DiskCache, DiskSettings, NonBlockingRead, WriteError};
use edgeward_types::xxh3::xxh3_64_with_seed;
use edgeward_types::{ByteSize, KeyHash};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().ok_or("missing argument: directory")?);
    let gib: u64 = args
        .next()
        .ok_or("missing argument: size in GiB")?
        .parse()?;
    measure_checksum();
    for bytes in [16 << 10, 256 << 10, 1 << 20, 8 << 20] {
        measure_objects(&folder, gib, bytes)?;
    }
    Ok(())
}

fn measure_checksum() {
    let block = vec![7_u8; 64 << 10];
    let started = Instant::now();
    let rounds = 20_000;
    for seed in 0..rounds {
        black_box(xxh3_64_with_seed(black_box(&block), seed));
    }
    report("xxh3-64", block.len() as u64, rounds, started.elapsed());
}

/// Writes `gib` GiB of objects of `bytes` bytes to a cache in `folder`, and reads them back.
fn measure_objects(
    folder: &std::path::Path,
    gib: u64,
    bytes: u64,
) -> Result<(), Box<dyn std::error::Error>> {
    let cache_folder = folder.join(format!("bench-{bytes}"));
    std::fs::create_dir_all(&cache_folder)?;
    let settings = DiskSettings::new(&cache_folder, ByteSize::gib(gib * 2));
    let (cache, _) = DiskCache::open(settings)?;
    let count = (gib << 30) / bytes;
    let chunk = Bytes::from(vec![3_u8; bytes.min(64 << 10) as usize]);
    let started = Instant::now();
    for key in 0..count {
        while let Err(queue_full) = put(&cache, key, bytes, &chunk) {
            assert!(queue_full, "the write failed, but the queue was not full");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    cache.sync()?;
    report("write", bytes, count, started.elapsed());
    let started = Instant::now();
    let (mut found, mut waited) = (0, 0);
    for key in 0..count.min(200_000) {
        let Some(candidate) = cache.lookup(KeyHash(key)) else {
            continue;
        };
        let name = key.to_le_bytes();
        let object = match cache.read_head_now(&candidate, &name) {
            NonBlockingRead::Ready(object) => object,
            NonBlockingRead::WouldBlock => {
                waited += 1;
                cache.read_head(&candidate, &name)?
            }
            NonBlockingRead::Miss(miss) => return Err(miss.into()),
        };
        let mut at = 0;
        while at < object.length() {
            let piece = match object.read_now(at..object.length()) {
                NonBlockingRead::Ready(piece) => piece,
                NonBlockingRead::WouldBlock => {
                    waited += 1;
                    object.read(at..object.length())?
                }
                NonBlockingRead::Miss(miss) => return Err(miss.into()),
            };
            at += piece.len() as u64;
        }
        found += 1;
    }
    report("read", bytes, found, started.elapsed());
    let counters = &cache.counters().devices[0];
    println!(
        "{{\"waited\":{waited},\"write_amplification\":{:.4},\"syncs\":{},\"write_ops\":{}}}",
        counters.write_amplification(),
        counters.syncs,
        counters.write_ops
    );
    drop(cache);
    std::fs::remove_dir_all(&cache_folder)?;
    Ok(())
}

/// Writes an object. Returns `Err(true)` if the queue was full, and `Err(false)` for any other error.
fn put(cache: &DiskCache, key: u64, bytes: u64, chunk: &Bytes) -> Result<(), bool> {
    let name = key.to_le_bytes();
    let started = cache.begin(
        KeyHash(key),
        &name,
        Bytes::from_static(b"head"),
        Some(bytes),
    );
    let mut write = started.map_err(|error| error == BeginError::QueueFull)?;
    let mut left = bytes;
    while left > 0 {
        let part = chunk.slice(..left.min(chunk.len() as u64) as usize);
        left -= part.len() as u64;
        write
            .push(part)
            .map_err(|dropped| dropped == WriteError::QueueFull)?;
    }
    write
        .finish()
        .map_err(|dropped| dropped == WriteError::QueueFull)
}

fn report(name: &str, bytes: u64, count: u64, elapsed: Duration) {
    let secs = elapsed.as_secs_f64();
    println!(
        "{{\"what\":\"{name}\",\"bytes\":{bytes},\"count\":{count},\"mib_per_sec\":{:.0},\"us_each\":{:.2}}}",
        (bytes * count) as f64 / secs / f64::from(1 << 20),
        secs * 1e6 / count as f64
    );
}
