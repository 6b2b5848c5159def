//! Measures the throughput of a disk cache: `cargo run --release --example bench_disk -- DIR GIB`.
//!
//! Writes objects of several sizes as fast as the queue accepts them, and reads them back. Also measures the
//! checksum of the format. Prints one line of JSON per result.
#![expect(clippy::print_stdout, reason = "its result is what it prints")]

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use edgeward_store::disk::{DiskCache, DiskSettings, Dropped, Now, Refused};
use edgeward_types::xxh3::xxh3_64_with_seed;
use edgeward_types::{ByteSize, KeyHash};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().ok_or("which directory?")?);
    let gib: u64 = args.next().ok_or("how many GiB?")?.parse()?;
    checksum();
    for bytes in [16 << 10, 256 << 10, 1 << 20, 8 << 20] {
        objects(&folder, gib, bytes)?;
    }
    Ok(())
}

fn checksum() {
    let block = vec![7_u8; 64 << 10];
    let begun = Instant::now();
    let rounds = 20_000;
    for seed in 0..rounds {
        black_box(xxh3_64_with_seed(black_box(&block), seed));
    }
    tell("xxh3-64", block.len() as u64, rounds, begun.elapsed());
}

fn objects(
    folder: &std::path::Path,
    gib: u64,
    bytes: u64,
) -> Result<(), Box<dyn std::error::Error>> {
    let inside = folder.join(format!("bench-{bytes}"));
    std::fs::create_dir_all(&inside)?;
    let settings = DiskSettings::new(&inside, ByteSize::gib(gib * 2));
    let (cache, _) = DiskCache::open(settings)?;
    let count = (gib << 30) / bytes;
    let chunk = Bytes::from(vec![3_u8; bytes.min(64 << 10) as usize]);
    let begun = Instant::now();
    for key in 0..count {
        while let Err(refused) = put(&cache, key, bytes, &chunk) {
            assert!(refused, "only a full queue is waited for");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    cache.sync()?;
    tell("write", bytes, count, begun.elapsed());
    let begun = Instant::now();
    let (mut found, mut waited) = (0, 0);
    for key in 0..count.min(200_000) {
        let Some(candidate) = cache.lookup(KeyHash(key)) else {
            continue;
        };
        let name = key.to_le_bytes();
        let object = match cache.read_head_now(&candidate, &name) {
            Now::Ready(object) => object,
            Now::WouldBlock => {
                waited += 1;
                cache.read_head(&candidate, &name)?
            }
            Now::Miss(miss) => return Err(miss.into()),
        };
        let mut at = 0;
        while at < object.length() {
            let piece = match object.read_now(at..object.length()) {
                Now::Ready(piece) => piece,
                Now::WouldBlock => {
                    waited += 1;
                    object.read(at..object.length())?
                }
                Now::Miss(miss) => return Err(miss.into()),
            };
            at += piece.len() as u64;
        }
        found += 1;
    }
    tell("read", bytes, found, begun.elapsed());
    let counters = &cache.counters().devices[0];
    println!(
        "{{\"waited\":{waited},\"write_amplification\":{:.4},\"syncs\":{},\"write_ops\":{}}}",
        counters.write_amplification(),
        counters.syncs,
        counters.write_ops
    );
    drop(cache);
    std::fs::remove_dir_all(&inside)?;
    Ok(())
}

/// Returns `Err(true)` if the queue was full.
fn put(cache: &DiskCache, key: u64, bytes: u64, chunk: &Bytes) -> Result<(), bool> {
    let name = key.to_le_bytes();
    let begun = cache.begin(
        KeyHash(key),
        &name,
        Bytes::from_static(b"head"),
        Some(bytes),
    );
    let mut write = begun.map_err(|refused| refused == Refused::QueueFull)?;
    let mut left = bytes;
    while left > 0 {
        let part = chunk.slice(..left.min(chunk.len() as u64) as usize);
        left -= part.len() as u64;
        write
            .push(part)
            .map_err(|dropped| dropped == Dropped::QueueFull)?;
    }
    write
        .finish()
        .map_err(|dropped| dropped == Dropped::QueueFull)
}

fn tell(what: &str, bytes: u64, count: u64, elapsed: Duration) {
    let secs = elapsed.as_secs_f64();
    println!(
        "{{\"what\":\"{what}\",\"bytes\":{bytes},\"count\":{count},\"mib_per_sec\":{:.0},\"us_each\":{:.2}}}",
        (bytes * count) as f64 / secs / f64::from(1 << 20),
        secs * 1e6 / count as f64
    );
}
