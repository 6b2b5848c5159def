//! Compares disk admission and reinsertion rules over a trace; writes CSV to stdout.
//!
//! `cargo run --release -p edgeward-sim --example disk_study -- STUDY TRACE RAM_BYTES DISK_BYTES..`, where
//! `STUDY` is one of:
//!
//! - `eviction`: the disk admission rules `always`, `second-hit`, `nth-hit:3` and `size-density` (with half of the
//!   measured mean size). Each of them runs with four reinsertion rules: none, objects with at least one hit, objects
//!   with at least two hits, and the objects with the most hits per byte;
//! - `rules`: second-hit admission; objects evicted from memory are, or are not, offered to the disk; disk hits
//!   are, or are not, counted by the admission;
//! - `density`: `size-density` with half of the measured mean size and with fixed sizes, compared with `always`,
//!   `second-hit` and `nth-hit`;
//! - `period`: `second-hit` and `nth-hit` with key filters for 1/16 to 4 times the default number of keys, which
//!   remember a key for shorter or longer periods;
//! - `filter`: second-hit admission with filters of several sizes and several fill limits.
//!
//! The memory tier uses LRU. The first fifth of the requests is the warm-up.
#![expect(clippy::print_stdout, reason = "a program whose result is its output")]

use std::error::Error;
use std::fs::File;
use std::num::NonZeroU64;
use std::path::Path;

use edgeward_policy::disk_admission::{FALSE_POSITIVE_RATE_MAX, memory_for_disk};
use edgeward_policy::log::Reinsertion;
use edgeward_policy::sketch::{RotatingBloomConfig, rates};
use edgeward_policy::{DiskAdmissionSpec, HierarchyRules, PolicySpec};
use edgeward_sim::{DiskConfig, Run, RunConfig, Traffic};
use edgeward_trace::{ReadOptions, Record};
use edgeward_types::Seed;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, trace, ram, disks @ ..] = arguments.as_slice() else {
        return Err(
            "usage: disk_study eviction|rules|density|period|filter TRACE RAM_BYTES DISK_BYTES.."
                .into(),
        );
    };
    let study = match what.as_str() {
        "eviction" => eviction,
        "rules" => rules,
        "density" => density,
        "period" => period,
        "filter" => filter,
        _ => return Err(format!("`{what}` is not a study").into()),
    };
    let mut records: Vec<Record> =
        edgeward_trace::open(File::open(trace)?, ReadOptions::default())?
            .collect::<Result<_, _>>()?;
    let mut traffic = Traffic::default();
    // Gives each request the first size of its object, so that the size of an object never changes.
    records
        .iter_mut()
        .for_each(|record| traffic.count_and_fix_size(record));
    let name = Path::new(trace)
        .file_name()
        .map_or_else(|| trace.clone(), |name| name.to_string_lossy().into_owned());
    let name = name.trim_end_matches(".tr.zst");
    // `forgotten_share`: the share of supposed first requests whose object had been requested before, but was forgotten
    // when the filter of the admission rule rotated.
    println!(
        "trace,ram_bytes,disk_bytes,admission,eviction,offer_evicted,note_disk_hits,filter_keys,filter_fill,\
         ohr_ram,ohr_disk,ohr,bhr,written_bytes,written_records,written_objects,reinserted_bytes,from_ram_bytes,\
         read_bytes,write_amplification,origin_bytes,rotations,false_positive_rate,forgotten_share"
    );
    let ram_bytes = ram.parse()?;
    for disk in disks {
        for config in study(disk.parse()?) {
            simulate(name, ram_bytes, &config, &records);
        }
    }
    Ok(())
}

/// Returns a configuration that reinserts objects with at least one hit.
fn with_one_hit_reinsertion(capacity_bytes: u64, admission: DiskAdmissionSpec) -> DiskConfig {
    DiskConfig {
        capacity_bytes,
        admission,
        memory: memory_for_disk(capacity_bytes),
        eviction: Reinsertion::Hit { hits_min: 1 },
        rules: HierarchyRules::default(),
    }
}

fn eviction(capacity_bytes: u64) -> Vec<DiskConfig> {
    let mut configs = Vec::new();
    for admission in [
        DiskAdmissionSpec::Always,
        DiskAdmissionSpec::SecondHit,
        DiskAdmissionSpec::NthHit(3),
        DiskAdmissionSpec::MeasuredDensity,
    ] {
        for eviction in [
            Reinsertion::Never,
            Reinsertion::Hit { hits_min: 1 },
            Reinsertion::Hit { hits_min: 2 },
            Reinsertion::HitsPerByte,
        ] {
            configs.push(DiskConfig {
                eviction,
                ..with_one_hit_reinsertion(capacity_bytes, admission)
            });
        }
    }
    configs
}

fn rules(capacity_bytes: u64) -> Vec<DiskConfig> {
    let mut configs = Vec::new();
    for eviction in [Reinsertion::Never, Reinsertion::Hit { hits_min: 1 }] {
        for offer_evicted in [false, true] {
            for note_disk_hits in [false, true] {
                configs.push(DiskConfig {
                    eviction,
                    rules: HierarchyRules {
                        offer_evicted,
                        note_disk_hits,
                        ..HierarchyRules::default()
                    },
                    ..with_one_hit_reinsertion(capacity_bytes, DiskAdmissionSpec::SecondHit)
                });
            }
        }
    }
    configs
}

/// Returns the configuration with the server's default reinsertion rule: objects with at least two hits.
fn with_defaults(capacity_bytes: u64, admission: DiskAdmissionSpec) -> DiskConfig {
    DiskConfig {
        eviction: Reinsertion::Hit { hits_min: 2 },
        ..with_one_hit_reinsertion(capacity_bytes, admission)
    }
}

fn density(capacity_bytes: u64) -> Vec<DiskConfig> {
    let fixed = (1..=13).map(|doubled| {
        let bytes = NonZeroU64::new(1024 << doubled).expect("the number is not zero");
        DiskAdmissionSpec::SizeDensity(bytes)
    });
    [
        DiskAdmissionSpec::Always,
        DiskAdmissionSpec::SecondHit,
        DiskAdmissionSpec::NthHit(3),
        DiskAdmissionSpec::NthHit(4),
        DiskAdmissionSpec::MeasuredDensity,
    ]
    .into_iter()
    .chain(fixed)
    .map(|admission| with_defaults(capacity_bytes, admission))
    .collect()
}

fn period(capacity_bytes: u64) -> Vec<DiskConfig> {
    let mut configs = vec![with_defaults(capacity_bytes, DiskAdmissionSpec::Always)];
    let keys = memory_for_disk(capacity_bytes).expected_keys.get();
    for sixteenths in [1, 2, 4, 8, 16, 64] {
        let keys = NonZeroU64::new(keys * sixteenths / 16).expect("the number is not zero");
        for admission in [
            DiskAdmissionSpec::SecondHit,
            DiskAdmissionSpec::NthHit(3),
            DiskAdmissionSpec::NthHit(4),
        ] {
            configs.push(DiskConfig {
                memory: RotatingBloomConfig::new(keys, FALSE_POSITIVE_RATE_MAX),
                ..with_defaults(capacity_bytes, admission)
            });
        }
    }
    configs
}

fn filter(capacity_bytes: u64) -> Vec<DiskConfig> {
    let base = with_one_hit_reinsertion(capacity_bytes, DiskAdmissionSpec::SecondHit);
    let mut configs = Vec::new();
    let keys_at = |fill: f64, scale: f64| {
        // A higher fill limit allows more keys in the same number of blocks.
        let blocks = base.memory.blocks() as f64 * scale;
        (rates::keys_per_block(fill) * blocks).max(1.0) as u64
    };
    for scale in [0.25, 1.0, 4.0] {
        for fill in [0.4, 0.5, 0.6, 0.7] {
            let keys = NonZeroU64::new(keys_at(fill, scale)).expect("the number is not zero");
            configs.push(DiskConfig {
                memory: RotatingBloomConfig::with_fill_max(keys, fill),
                ..base.clone()
            });
        }
    }
    configs
}

fn simulate(name: &str, ram_bytes: u64, disk: &DiskConfig, records: &[Record]) {
    let config = RunConfig {
        policy: PolicySpec::LRU,
        capacity_bytes: ram_bytes,
        warmup_requests: records.len() as u64 / 5,
        object_overhead_bytes: 0,
        seed: Seed(1),
        window_requests: None,
        interval_requests: u64::MAX,
    };
    let mut run = Run::with_disk(config, disk.clone());
    run.feed(records);
    let report = run.report();
    let disk_report = report.disk.as_ref().expect("the run has a disk");
    let done = disk_report.done;
    println!(
        "{name},{ram_bytes},{},{},{},{},{},{},{:.3},{:.4},{:.4},{:.4},{:.4},{},{},{},{},{},{},{:.3},{},{},{:.5},{:.5}",
        disk.capacity_bytes,
        disk_report.admission,
        disk_report.eviction,
        disk.rules.offer_evicted,
        disk.rules.note_disk_hits,
        disk.memory.expected_keys,
        disk.memory.fill_max,
        disk_report.ram_object_hit_ratio,
        disk_report.disk_object_hit_ratio,
        report.object_hit_ratio,
        report.byte_hit_ratio,
        done.written_bytes,
        done.write_operations,
        done.written_objects,
        done.reinserted_bytes,
        done.from_ram_bytes,
        done.read_bytes,
        disk_report.write_amplification,
        disk_report.origin_bytes,
        disk_report.admission_rotations,
        disk_report.admission_false_seen,
        disk_report.admission_lost_seen,
    );
}
