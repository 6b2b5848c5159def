//! Compares AdaptSize with other policies at the start of a trace, when AdaptSize's tuner has seen few requests.
//!
//! Prints CSV: trace, size, policy, and the object hit ratios from the first request up to each count in `AFTER`.
//!
//! `cargo run --release -p edgeward-sim --example adaptsize_start -- TRACE SIZE..`. A size up to 1 is a share
//! of the footprint, such as 0.01. A size above 1 is a number of MiB.
#![expect(clippy::print_stdout, reason = "a program whose result is its output")]

use std::error::Error;
use std::fs::File;
use std::path::Path;

use edgeward_policy::PolicySpec;
use edgeward_sim::{Run, RunConfig, Traffic};
use edgeward_trace::{ReadOptions, Record};
use edgeward_types::Seed;

/// Hit ratios are written after these numbers of requests, and at the end.
const AFTER: [usize; 5] = [2_000, 10_000, 50_000, 250_000, 1_000_000];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, sizes @ ..] = arguments.as_slice() else {
        return Err("usage: adaptsize_start TRACE SIZE..".into());
    };
    let mut records: Vec<Record> = edgeward_trace::open(File::open(path)?, ReadOptions::default())?
        .collect::<Result<_, _>>()?;
    // Each object keeps the size of its first record.
    let mut traffic = Traffic::default();
    records
        .iter_mut()
        .for_each(|record| traffic.count_and_fix_size(record));
    let mut objects: Vec<(u64, u64)> = records.iter().map(|r| (r.key, r.size)).collect();
    objects.sort_unstable();
    objects.dedup_by_key(|entry| entry.0);
    let footprint: u64 = objects.iter().map(|entry| entry.1).sum();
    let name = Path::new(path)
        .file_name()
        .map_or_else(|| path.clone(), |name| name.to_string_lossy().into_owned());
    for size in sizes {
        let number: f64 = size.parse()?;
        let unit = if number <= 1.0 {
            footprint as f64
        } else {
            1_048_576.0
        };
        let capacity_bytes = (number * unit) as u64;
        for policy in [
            PolicySpec::LRU,
            PolicySpec::ADAPTSIZE,
            PolicySpec::ADAPTSIZE_HORIZON,
            PolicySpec::GDSF,
        ] {
            let mut run = Run::new(RunConfig {
                policy,
                capacity_bytes,
                warmup_requests: 0,
                object_overhead_bytes: 0,
                seed: Seed(1),
                window_requests: None,
                interval_requests: u64::MAX,
            });
            let mut done = 0;
            let mut line = format!("{name},{size},{policy}");
            for after in AFTER.into_iter().chain([records.len()]) {
                let after = after.min(records.len()).max(done);
                run.feed(&records[done..after]);
                done = after;
                line += &format!(",{:.4}", run.report().object_hit_ratio);
            }
            println!("{line}");
        }
    }
    Ok(())
}
