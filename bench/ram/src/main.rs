//! Throughput of in-memory caches: `make bench-ram`.
//!
//! In the workload `hits`, all objects fit, and every request is a hit. In `mixed`, the budget is 10 % of the bytes of
//! all objects, and a miss inserts its object. The caches take turns in each round, so that other load on the machine
//! affects all of them. A figure is the median of the rounds. The map of the first row never evicts; in `mixed` it
//! holds all requested objects after the first pass.
//!
//! A lookup returns a handle of the value that the caller owns, for every cache. `--profile CACHE PASSES` sends hits to
//! one cache, for a profiler. `--policy-change` measures the pauses while a policy changes.

mod caches;
mod policy_change;
mod workload;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use caches::{CANDIDATES, Cache};
use serde::Serialize;
use workload::{Requests, size_bytes};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    if let [profile, cache, passes] = &arguments[..]
        && profile == "--profile"
    {
        profile_hits(cache, passes.parse().expect("a number of passes"));
        return;
    }
    if arguments == ["--policy-change"] {
        policy_change::measure();
        return;
    }
    let mut rows = Vec::new();
    for workload in [Workload::Hits, Workload::Mixed] {
        for threads in [1, 2] {
            rows.extend(measure(workload, threads));
        }
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&rows).expect("numbers"));
    } else {
        print(&rows);
    }
}

/// Sends the requests of the workload `hits` to one cache, from one thread, so that a profiler can count its
/// instructions: the difference between two numbers of passes excludes the fill.
fn profile_hits(cache: &str, passes: usize) {
    let requests = Requests::new(REQUESTS, OBJECTS, ZIPF_EXPONENT, 1);
    let candidate = CANDIDATES.iter().find(|candidate| candidate.0 == cache);
    let cache = candidate.expect("the name of a cache").1(u64::MAX / 2, OBJECTS);
    for pass in 0..passes {
        let begin = Instant::now();
        pass_over(&*cache, &requests);
        let nanoseconds = begin.elapsed().as_nanos() as f64 / REQUESTS as f64;
        println!("pass {pass}: {nanoseconds:.2} ns per request");
    }
}

/// Sends a sequence of requests to a cache. A miss inserts its object. Returns the number of hits.
fn pass_over(cache: &dyn Cache, requests: &Requests) -> u64 {
    let mut hits = 0;
    for &key in requests.keys() {
        if cache.lookup(key).is_some() {
            hits += 1;
        } else {
            cache.insert(key, size_bytes(key));
        }
    }
    hits
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Workload {
    Hits,
    Mixed,
}

/// The result of one cache with one workload and number of threads.
#[derive(Debug, Serialize)]
struct Row {
    workload: Workload,
    threads: usize,
    cache: &'static str,
    /// Requests of all threads per second of wall-clock time: the median over the rounds.
    requests_per_second: f64,
    /// Requests per second of CPU time: the median over the rounds.
    requests_per_cpu_second: f64,
    /// Requests per CPU-second, divided by those of the sharded map in the same round: the median of the ratios.
    share_of_sharded_map: f64,
    /// The smallest of these ratios.
    share_min: f64,
    /// The largest of these ratios.
    share_max: f64,
    /// The hit ratio of the first measured round.
    hit_ratio: f64,
}

fn measure(workload: Workload, threads: usize) -> Vec<Row> {
    let requests: Vec<Requests> = (0..threads)
        .map(|thread| Requests::new(REQUESTS, OBJECTS, ZIPF_EXPONENT, 1 + thread as u64))
        .collect();
    let footprint_bytes: u64 = (0..OBJECTS as u64)
        .map(|object| size_bytes(edgeward_types::mix64(object)))
        .sum();
    let (capacity_bytes, objects) = match workload {
        Workload::Hits => (2 * footprint_bytes, OBJECTS),
        Workload::Mixed => (footprint_bytes / 10, OBJECTS / 10),
    };
    let mut rounds: Vec<Vec<Measured>> = vec![Vec::new(); CANDIDATES.len()];
    for round in 0..=ROUNDS {
        eprintln!("{workload:?}, {threads} threads: round {round} of {ROUNDS}");
        for turn in 0..CANDIDATES.len() {
            let n = (turn + round) % CANDIDATES.len();
            let cache = (CANDIDATES[n].1)(capacity_bytes, objects);
            // The first pass fills the cache.
            run(&*cache, &requests);
            let measured = run(&*cache, &requests);
            // Round 0 warms the processor and the allocator, and is not measured.
            if round > 0 {
                rounds[n].push(measured);
            }
        }
    }
    let row = |n: usize| {
        let measured = &rounds[n];
        let figures = |figure: fn(&Measured) -> f64| measured.iter().map(figure).collect();
        let per_cpu_second = |round: &Measured| round.requests_per_cpu_second;
        let shares: Vec<f64> = (0..ROUNDS)
            .map(|round| per_cpu_second(&measured[round]) / per_cpu_second(&rounds[0][round]))
            .collect();
        Row {
            workload,
            threads,
            cache: CANDIDATES[n].0,
            requests_per_second: median(figures(|round| round.requests_per_second)),
            requests_per_cpu_second: median(figures(|round| round.requests_per_cpu_second)),
            share_min: shares.iter().copied().fold(f64::INFINITY, f64::min),
            share_max: shares.iter().copied().fold(0.0, f64::max),
            share_of_sharded_map: median(shares),
            hit_ratio: measured[0].hit_ratio,
        }
    };
    (0..CANDIDATES.len()).map(row).collect()
}

/// The result of one pass over the requests.
#[derive(Clone, Copy, Debug)]
struct Measured {
    requests_per_second: f64,
    requests_per_cpu_second: f64,
    hit_ratio: f64,
}

/// Sends each sequence of requests to the cache, from a thread of its own. A miss inserts its object.
fn run(cache: &dyn Cache, requests: &[Requests]) -> Measured {
    let hits = AtomicU64::new(0);
    let cpu_nanoseconds = AtomicU64::new(0);
    let start = Barrier::new(requests.len() + 1);
    let end = Barrier::new(requests.len() + 1);
    let seconds = thread::scope(|scope| {
        for requests in requests {
            scope.spawn(|| {
                start.wait();
                let begin = thread_cpu_time();
                let own_hits = pass_over(cache, requests);
                let cpu_time = thread_cpu_time() - begin;
                cpu_nanoseconds.fetch_add(cpu_time.as_nanos() as u64, Relaxed);
                hits.fetch_add(own_hits, Relaxed);
                end.wait();
            });
        }
        start.wait();
        let begin = Instant::now();
        end.wait();
        begin.elapsed().as_secs_f64()
    });
    let total = (requests.len() * REQUESTS) as f64;
    Measured {
        requests_per_second: total / seconds,
        requests_per_cpu_second: total * 1e9 / cpu_nanoseconds.into_inner() as f64,
        hit_ratio: hits.into_inner() as f64 / total,
    }
}

/// Returns the CPU time of the calling thread.
fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn print(rows: &[Row]) {
    println!(
        "workload  threads  cache              M requests/s  per CPU-second  of the map  (min - max)  hit ratio"
    );
    for row in rows {
        println!(
            "{:<8}  {:>7}  {:<17}  {:>12.2}  {:>14.2}  {:>8.0} %  {:>3.0} - {:>3.0} %  {:>7.1} %",
            format!("{:?}", row.workload).to_lowercase(),
            row.threads,
            row.cache,
            row.requests_per_second / 1e6,
            row.requests_per_cpu_second / 1e6,
            100.0 * row.share_of_sharded_map,
            100.0 * row.share_min,
            100.0 * row.share_max,
            100.0 * row.hit_ratio,
        );
    }
}

/// The number of objects of a workload.
const OBJECTS: usize = 200_000;

/// The number of requests of each thread in one pass.
const REQUESTS: usize = 1_000_000;

const ZIPF_EXPONENT: f64 = 0.9;

/// The number of measured rounds.
const ROUNDS: usize = 5;
