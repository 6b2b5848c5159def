//! Compares the predictions of `what_if` with full simulations of a trace.
//!
//! ```text
//! cargo run --release -p edgeward-live --example check_traces -- TRACE CAPACITY MEMORY RATE [REQUESTS]
//! ```
//!
//! TRACE has lines `time key size`. CAPACITY and MEMORY are sizes such as `1GiB`, RATE is the number of requests per
//! second of the replay.

#![expect(clippy::print_stdout, reason = "it prints its result")]

use std::io::{BufRead, BufReader};
use std::time::Instant;

use edgeward_live::what_if::{Counts, Request, Totals, WhatIf, WhatIfConfig};
use edgeward_policy::PolicySpec;
use edgeward_sim::{Run, RunConfig};
use edgeward_trace::Record;
use edgeward_types::{ByteSize, KeyHash, Seed, Timestamp, charge_bytes, mix64};

const OVERHEAD_BYTES: u64 = 550;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [trace, capacity, memory, rate, rest @ ..] = &args[..] else {
        panic!("TRACE CAPACITY MEMORY RATE [REQUESTS]");
    };
    let capacity_bytes = capacity.parse::<ByteSize>().expect("a size").bytes();
    let memory_max_bytes = memory.parse::<ByteSize>().expect("a size").bytes();
    let rate: u64 = rate.parse().expect("a number");
    let requests_max = rest
        .first()
        .map_or(usize::MAX, |n| n.parse().expect("a number"));
    let file = std::fs::File::open(trace).expect("the trace can be opened");
    let records: Vec<Record> = BufReader::new(file)
        .lines()
        .take(requests_max)
        .map(|line| {
            let line = line.expect("text");
            let mut columns = line.split(' ');
            let mut next = || columns.next().expect("three columns");
            let _time = next();
            Record {
                time: Timestamp::ZERO,
                key: next().parse().expect("a key"),
                size: next().parse().expect("a size"),
            }
        })
        .collect();
    let start = Instant::now();
    let mut what_if = WhatIf::new(WhatIfConfig {
        capacity_bytes,
        memory_max_bytes,
        samples_per_second_max: 4000,
    });
    let mut counts = Counts::default();
    let mut memory_max = 0;
    let mut taken = 0;
    for (index, record) in records.iter().enumerate() {
        let at = Timestamp::from_millis(1_000_000 + index as u64 * 1000 / rate);
        counts.requests += 1;
        counts.bytes += record.size;
        let request = Request {
            at,
            key: KeyHash(mix64(record.key + 1)),
            charge_bytes: charge_bytes(record.size, OVERHEAD_BYTES),
            length: record.size,
            sent_bytes: record.size,
            lifetime_ms: u64::MAX,
            stale_while_revalidate_ms: 0,
            has_validator: true,
        };
        if what_if.sample().takes(request.key, request.charge_bytes) {
            taken += 1;
            what_if.request(&request);
            memory_max = memory_max.max(what_if.memory_bytes());
        }
        if index % 1000 == 0 || index + 1 == records.len() {
            let totals = Totals {
                of_objects: counts,
                ..Totals::default()
            };
            what_if.count(at, &totals);
        }
    }
    let elapsed = start.elapsed();
    let report = what_if
        .report(Timestamp::from_secs(10_000), None)
        .expect("requests");
    println!(
        "{} requests, {taken} samples in {:.2} s, memory {}, share {:.5}, {} in the window",
        records.len(),
        elapsed.as_secs_f64(),
        ByteSize(memory_max),
        what_if.sample().share(),
        report.all.requests,
    );
    let first = records.len() - report.all.requests as usize;
    let points: Vec<_> = report.points.iter().collect();
    let (one, two) = points.split_at(points.len() / 2);
    let run = |points: &[&edgeward_live::what_if::Point]| -> Vec<(f64, f64)> {
        points
            .iter()
            .map(|point| full(&records, first as u64, point.policy, point.capacity_bytes))
            .collect()
    };
    let full: Vec<(f64, f64)> = std::thread::scope(|scope| {
        let second = scope.spawn(|| run(two));
        let mut all = run(one);
        all.extend(second.join().expect("no panic"));
        all
    });
    let mut worst: f64 = 0.0;
    for (point, (hits, bytes)) in points.iter().zip(full) {
        worst = worst.max((point.hit_ratio - hits).abs());
        println!(
            "{:8} {:4} hit {:.4} is {:.4} ({:+.2}, error {:.2})  bytes {:.4} is {:.4} ({:+.2})",
            point.policy.to_string(),
            point.size,
            point.hit_ratio,
            hits,
            100.0 * (point.hit_ratio - hits),
            100.0 * point.hit_ratio_error,
            point.byte_hit_ratio,
            bytes,
            100.0 * (point.byte_hit_ratio - bytes),
        );
    }
    println!("worst {:.2} points", 100.0 * worst);
}

fn full(records: &[Record], warmup: u64, policy: PolicySpec, capacity_bytes: u64) -> (f64, f64) {
    let mut run = Run::new(RunConfig {
        policy,
        capacity_bytes,
        warmup_requests: warmup,
        object_overhead_bytes: OVERHEAD_BYTES,
        seed: Seed(1),
        window_requests: None,
        interval_requests: u64::MAX,
    });
    run.feed(records);
    let report = run.report();
    (report.object_hit_ratio, report.byte_hit_ratio)
}
