//! Measures the speed of reading a trace: `cargo run --release -p edgeward-trace --example read_speed FILE…`
//!
//! Each file is read into memory first, so that the time is that of decompression and parsing.

use std::time::Instant;

use edgeward_trace::{ReadOptions, open};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path)?;
        let start = Instant::now();
        let mut reader = open(&bytes[..], ReadOptions::named(&path))?;
        // The sum of all fields prevents the compiler from removing unused parsing.
        let mut sum = 0u64;
        while let Some(batch) = reader.next_batch()? {
            for record in batch {
                sum = sum
                    .wrapping_add(record.key ^ record.size)
                    .wrapping_add(record.time.as_millis());
            }
        }
        let secs = start.elapsed().as_secs_f64();
        // M/s are millions of records per second. MB/s are megabytes of the file, before decompression.
        eprintln!(
            "{path}: {} in {}, {} records, {:.1} M/s, {:.0} MB/s (sum {sum:x})",
            reader.format(),
            reader.compression(),
            reader.records(),
            reader.records() as f64 / secs / 1e6,
            bytes.len() as f64 / secs / 1e6,
        );
    }
    Ok(())
}
