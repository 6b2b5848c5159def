//! Changes of the traffic mix, as in section 6.3 of the AdaptSize paper (NSDI 2017), with a tenth of its requests.
//!
//! - `randomised`: 500,000 requests of the preset `mixed`, then a million requests. Every second request of the
//!   million is for one of 200 to 1,000 objects, drawn from all objects of the trace. The figure is the object hit
//!   ratio of the million requests. Experiment `n`, from 0, has the seed `SEED + 1 + n`.
//! - `adversarial`: one trace of phases of 300,000 requests. In each phase 90 % of the requests are for one class of
//!   objects: small, medium, large, medium, small and so on. The figure is the object hit ratio of each phase.
//!
//! Prints CSV: kind, number of the experiment or phase, seed, policy, requests, hits.
//! `cargo run --release -p edgeward-sim --example robustness -- RANDOMISED ADVERSARIAL SEED` runs it. The first
//! two arguments are the numbers of experiments and of phases.
#![expect(clippy::print_stdout, reason = "a program whose result is its output")]

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use edgeward_policy::rng::Rng;
use edgeward_policy::{EvictionSpec, PolicySpec};
use edgeward_sim::{
    OfflineConfig, OfflinePolicy, OriginCost, Request, Run, RunConfig, SimulatedPolicy,
    TraceRecorder, Traffic,
};
use edgeward_trace::Record;
use edgeward_trace::generate::{Class, Generator, Phase, Preset, Sizes, Workload};
use edgeward_types::Seed;

/// A tenth of the paper's memory cache is 123 MiB. This is about four times as much, so that several large objects fit.
const CAPACITY_BYTES: u64 = 512 << 20;

/// Requests between two steps of AdaptSize's tuner: a tenth of the paper's.
const WINDOW_REQUESTS: u32 = 25_000;

/// The number of future requests that SIZE-OPT knows: a tenth of the paper's.
const LOOKAHEAD_REQUESTS: NonZeroU32 = NonZeroU32::new(100_000).expect("not zero");

const STABLE_REQUESTS: usize = 500_000;
const CHANGED_REQUESTS: usize = 1_000_000;
const PHASE_REQUESTS: usize = 300_000;

const POLICIES: [SimulatedPolicy; 6] = [
    SimulatedPolicy::Online(PolicySpec::LRU),
    SimulatedPolicy::Online(PolicySpec::ADAPTSIZE),
    SimulatedPolicy::Online(PolicySpec::ADAPTSIZE_HORIZON),
    SimulatedPolicy::Online(PolicySpec::GDSF),
    SimulatedPolicy::Online(PolicySpec::evicting(EvictionSpec::Density)),
    SimulatedPolicy::Offline(OfflinePolicy::SizeOpt {
        lookahead_requests: LOOKAHEAD_REQUESTS,
    }),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .map(|text| text.parse())
        .collect::<Result<_, _>>()?;
    let [randomised, adversarial, seed] = numbers[..] else {
        return Err("usage: robustness RANDOMISED ADVERSARIAL SEED".into());
    };
    let mut jobs: Vec<Box<dyn Fn() -> Vec<String> + Send + Sync>> = Vec::new();
    // The longest jobs are first, so that all threads end at about the same time: the long trace, and for it SIZE-OPT.
    for &policy in POLICIES.iter().rev().filter(|_| adversarial > 0) {
        jobs.push(Box::new(move || {
            adversarial_rows(adversarial as usize, Seed(seed), policy)
        }));
    }
    for n in 0..randomised {
        jobs.push(Box::new(move || randomised_rows(n, Seed(seed + 1 + n))));
    }
    let taken = AtomicUsize::new(0);
    let work = || {
        while let Some(job) = jobs.get(taken.fetch_add(1, Ordering::Relaxed)) {
            job().iter().for_each(|row| println!("{row}"));
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    Ok(())
}

/// Runs all policies over one randomised experiment.
fn randomised_rows(number: u64, seed: Seed) -> Vec<String> {
    let mut rng = Rng::new(seed, 1);
    let below = |rng: &mut Rng, limit: usize| (rng.unit() * limit as f64) as usize;
    let requests = STABLE_REQUESTS + CHANGED_REQUESTS / 2;
    let workload = Preset::Mixed.workload().scaled_to(requests as u64);
    let base: Vec<Record> = Generator::new(workload, seed)
        .expect("a valid workload")
        .collect();
    let objects: HashMap<u64, u64> = base
        .iter()
        .map(|record| (record.key, record.size))
        .collect();
    let popular: Vec<u64> = (0..200 + below(&mut rng, 801))
        .map(|_| below(&mut rng, objects.len()) as u64)
        .collect();
    let mut records = base[..STABLE_REQUESTS].to_vec();
    for record in &base[STABLE_REQUESTS..] {
        let key = popular[below(&mut rng, popular.len())];
        records.push(*record);
        records.push(Record {
            key,
            size: objects[&key],
            ..*record
        });
    }
    let row = |policy: &SimulatedPolicy| {
        let hits = hits(*policy, &records, &[STABLE_REQUESTS, records.len()]);
        format!(
            "randomised,{number},{},{policy},{CHANGED_REQUESTS},{}",
            seed.0, hits[1]
        )
    };
    POLICIES.iter().map(row).collect()
}

/// Runs one policy over the adversarial trace.
fn adversarial_rows(phases: usize, seed: Seed, policy: SimulatedPolicy) -> Vec<String> {
    let class = |name, median_bytes, sigma, zipf_exponent, max_bytes| Class {
        name,
        catalogue_weight: 1.0,
        zipf_exponent,
        sizes: Sizes {
            median_bytes,
            sigma,
            tail: None,
            min_bytes: 100,
            max_bytes,
        },
    };
    let weights = |phase: usize| {
        let dominant = [0, 1, 2, 1][phase % 4];
        (0..3)
            .map(|class| if class == dominant { 18.0 } else { 1.0 })
            .collect()
    };
    let workload = Workload {
        requests: (phases * PHASE_REQUESTS) as u64,
        objects: (phases * PHASE_REQUESTS / 7) as u64,
        phases: (0..phases)
            .map(|n| Phase {
                from: n as f64 / phases as f64,
                weights: weights(n),
            })
            .collect(),
        classes: vec![
            class("small", 16.0 * 1024.0, 1.2, 0.9, 1 << 20),
            class("medium", 1024.0 * 1024.0, 0.5, 0.9, 8 << 20),
            class("large", 8192.0 * 1024.0, 0.6, 0.9, 64 << 20),
        ],
        ..Preset::Mixed.workload()
    };
    let records: Vec<Record> = Generator::new(workload, seed)
        .expect("a valid workload")
        .collect();
    let ends: Vec<usize> = (1..=phases).map(|n| n * PHASE_REQUESTS).collect();
    let hits = hits(policy, &records, &ends);
    let row = |(n, hits): (usize, &u64)| {
        format!(
            "adversarial,{n},{},{policy},{PHASE_REQUESTS},{hits}",
            seed.0
        )
    };
    hits.iter().enumerate().map(row).collect()
}

/// Returns the hits of a policy in each part of a trace. `ends` has the index after the last request of each part.
fn hits(policy: SimulatedPolicy, records: &[Record], ends: &[usize]) -> Vec<u64> {
    let totals: Vec<u64> = match policy {
        SimulatedPolicy::Online(policy) => {
            let mut run = Run::new(RunConfig {
                policy,
                capacity_bytes: CAPACITY_BYTES,
                warmup_requests: 0,
                object_overhead_bytes: 0,
                seed: Seed(1),
                window_requests: Some(WINDOW_REQUESTS),
                interval_requests: u64::MAX,
            });
            let mut done = 0;
            let part = |&end: &usize| {
                run.feed(&records[done..end]);
                done = end;
                run.report().hits
            };
            ends.iter().map(part).collect()
        }
        SimulatedPolicy::Offline(policy) => {
            let mut recorder = TraceRecorder::default();
            let mut traffic = Traffic::default();
            let requests: Vec<Request> =
                records.iter().map(|record| traffic.count(record)).collect();
            recorder.feed(&requests);
            let report = recorder
                .finish()
                .expect("a short trace")
                .run(&OfflineConfig {
                    policy,
                    capacity_bytes: CAPACITY_BYTES,
                    warmup_requests: 0,
                    object_overhead_bytes: 0,
                    seed: Seed(1),
                    interval_requests: INTERVAL_REQUESTS as u64,
                    origin_cost: OriginCost::default(),
                });
            let hits = report.series.iter().map(|interval| {
                (interval.object_hit_ratio * INTERVAL_REQUESTS as f64).round() as u64
            });
            let hits: Vec<u64> = hits.collect();
            ends.iter()
                .map(|end| hits[..end / INTERVAL_REQUESTS].iter().sum())
                .collect()
        }
    };
    let before = std::iter::once(&0).chain(&totals);
    totals
        .iter()
        .zip(before)
        .map(|(total, before)| total - before)
        .collect()
}

/// The length of an interval in reports of offline policies. It divides the lengths of all parts, so that each part
/// consists of whole intervals.
const INTERVAL_REQUESTS: usize = 100_000;
