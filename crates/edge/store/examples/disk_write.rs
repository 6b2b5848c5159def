//! Streams writes through a disk cache: `cargo run --release --example disk_write -- DIR MIB KIB`.
//!
//! Writes objects of KIB KiB (default: 1024) as fast as the queue accepts them until MIB MiB are written, and syncs.
//! Prints one line of JSON, which `cargo xtask bench-disk write` compares with fio.
#![expect(clippy::print_stdout, reason = "it prints its result")]

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use edgeward_store::disk::{BeginError, DiskCache, DiskSettings, WriteError};
use edgeward_types::{ByteSize, KeyHash};

/// The size of the chunks in which a body arrives from an origin.
const PIECE_BYTES: usize = 64 << 10;

/// The number of bytes after which the content repeats. It is larger than the window of a compressor.
const POOL_BYTES: usize = 32 << 20;

/// The time to wait when the queue is full. In this time the disk writes far fewer bytes than the queue has, so
/// the queue does not become empty.
const FULL_WAIT: Duration = Duration::from_micros(500);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().ok_or("missing argument: directory")?);
    let mib: u64 = args
        .next()
        .ok_or("missing argument: size in MiB")?
        .parse()?;
    let object_bytes = args.next().map_or(Ok(1024), |kib| kib.parse::<u64>())? << 10;
    let count = (mib << 20) / object_bytes.max(1);

    // The device has space for all objects, so no segment is reclaimed.
    let capacity = ByteSize::mib((mib / 4 * 5).max(1024));
    let (cache, _) = DiskCache::open(DiskSettings::new(&folder, capacity))?;
    let pool = incompressible();
    let mut pieces = (0..POOL_BYTES / PIECE_BYTES).cycle().map(|n| {
        let at = n * PIECE_BYTES;
        pool.slice(at..at + PIECE_BYTES)
    });
    let mut waits = 0_u64;
    let started = Instant::now();
    for key in 0..count {
        while !put(&cache, key, object_bytes, &mut pieces)? {
            waits += 1;
            thread::sleep(FULL_WAIT);
        }
    }
    cache.sync()?;
    let elapsed = started.elapsed();
    let counters = cache.counters();
    let device = counters.devices.first().ok_or("no device")?;
    println!(
        "{{\"bytes\":{},\"seconds\":{:.4},\"bytes_per_second\":{:.0},\"waits\":{waits},\
         \"written_bytes\":{},\"write_ops\":{},\"syncs\":{}}}",
        count * object_bytes,
        elapsed.as_secs_f64(),
        (count * object_bytes) as f64 / elapsed.as_secs_f64(),
        device.written_bytes,
        device.write_ops,
        device.syncs,
    );
    Ok(())
}

/// Returns bytes that a compressing device or host cannot compress: xorshift64, Marsaglia 2003.
fn incompressible() -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 56) as u8
    };
    (0..POOL_BYTES).map(next).collect()
}

/// Writes an object. Returns false if the queue was full; no part of the object is then stored.
fn put(
    cache: &DiskCache,
    key: u64,
    object_bytes: u64,
    pieces: &mut impl Iterator<Item = Bytes>,
) -> Result<bool, Box<dyn std::error::Error>> {
    let name = key.to_le_bytes();
    let head = Bytes::from_static(b"head");
    let mut write = match cache.begin(KeyHash(key), &name, head, Some(object_bytes)) {
        Ok(write) => write,
        Err(BeginError::QueueFull) => return Ok(false),
        Err(refused) => return Err(refused.into()),
    };
    let mut left = object_bytes as usize;
    while left > 0 {
        let piece = pieces.next().ok_or("the pool is a cycle")?;
        let part = piece.slice(..left.min(piece.len()));
        left -= part.len();
        match write.push(part) {
            Ok(()) => {}
            Err(WriteError::QueueFull) => return Ok(false),
            Err(dropped) => return Err(dropped.into()),
        }
    }
    match write.finish() {
        Ok(()) => Ok(true),
        Err(WriteError::QueueFull) => Ok(false),
        Err(dropped) => Err(dropped.into()),
    }
}
