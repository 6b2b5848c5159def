//! Simulates policies over a trace in memory, with several threads.
//!
//! The objects are numbered once for all runs. The numbered requests take 32 bytes each until the simulation ends.
//! A thread takes the next run and passes it the whole trace. Each thread therefore has one simulated cache at a time,
//! and runs never wait for each other.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use edgeward_sim::{
    BoundReport, Capacity, Objective, OfflineBounds, OfflineConfig, OriginCost, RecordedTrace,
    Request, Run, RunConfig, RunReport, SimulatedPolicy, TraceFacts, TraceRecorder, Traffic,
    Warmup,
};
use edgeward_trace::Record;
use edgeward_types::{ByteSize, Seed};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Serialize;

use crate::interrupt::{self, StopFlag};
use crate::trace::Trace;

/// Runs each policy at each capacity. Returns the JSON document of `edgeward simulate --json`.
///
/// The arguments are texts as on the command line; 0 threads means one per core.
#[pyfunction]
#[pyo3(signature = (
    trace, policies, capacities, *, warmup = "0", object_overhead = "0", objective = "requests", origin_latency = 100,
    origin_bandwidth = "12MiB", seed = 0, window = None, bounds = false, series = false, threads = 0,
))]
#[expect(
    clippy::too_many_arguments,
    reason = "they are the keyword arguments of a Python function"
)]
pub(crate) fn simulate(
    py: Python<'_>,
    trace: &Trace,
    policies: Vec<String>,
    capacities: Vec<String>,
    warmup: &str,
    object_overhead: &str,
    objective: &str,
    origin_latency: u64,
    origin_bandwidth: &str,
    seed: u64,
    window: Option<u32>,
    bounds: bool,
    series: bool,
    threads: usize,
) -> PyResult<String> {
    let study = Study {
        policies: parse_all(&policies)?,
        capacities: parse_all(&capacities)?,
        warmup: parse(warmup)?,
        object_overhead_bytes: parse::<ByteSize>(object_overhead)?.bytes(),
        objective: parse(objective)?,
        origin_cost: OriginCost {
            latency_ms: origin_latency,
            bytes_per_second: parse::<ByteSize>(origin_bandwidth)?.bytes(),
        },
        seed: Seed(seed),
        window_requests: window,
        bounds,
        series,
        threads: if threads == 0 {
            thread::available_parallelism().map_or(1, usize::from)
        } else {
            threads
        },
    };
    if window == Some(0) {
        return Err(PyValueError::new_err(
            "the window is zero; write window=250000",
        ));
    }
    let records = trace.records();
    let results = interrupt::run(py, move |stop| study.run(&records, stop))?;
    serde_json::to_string(&results?).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> PyResult<T> {
    text.parse()
        .map_err(|error: T::Err| PyValueError::new_err(error.to_string()))
}

fn parse_all<T: std::str::FromStr<Err: std::fmt::Display>>(texts: &[String]) -> PyResult<Vec<T>> {
    texts.iter().map(|text| parse(text)).collect()
}

/// The checked arguments of [`simulate`].
struct Study {
    policies: Vec<SimulatedPolicy>,
    capacities: Vec<Capacity>,
    warmup: Warmup,
    object_overhead_bytes: u64,
    objective: Objective,
    origin_cost: OriginCost,
    seed: Seed,
    window_requests: Option<u32>,
    bounds: bool,
    series: bool,
    threads: usize,
}

/// The results, in the form of the JSON document.
#[derive(Serialize)]
struct Results {
    trace: TraceFacts,
    runs: Vec<RunReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bounds: Vec<BoundReport>,
}

impl Study {
    /// Returns the results. If `stop` was set, they are incomplete, and no caller reads them.
    fn run(&self, records: &[Record], stop: &StopFlag) -> PyResult<Results> {
        let mut traffic = Traffic::default();
        let mut requests = Vec::with_capacity(records.len());
        for batch in batches(records, stop) {
            traffic.count_all(batch, &mut requests);
        }
        let facts = traffic.facts();
        drop(traffic);
        if facts.requests == 0 {
            return Err(PyValueError::new_err("the trace contains no requests"));
        }
        let warmup_requests = self.warmup.requests(Some(facts.requests));
        let capacities_bytes: Vec<u64> = self
            .capacities
            .iter()
            .map(|capacity| capacity.bytes(facts.footprint_bytes).max(1))
            .collect();
        let mut jobs = Vec::new();
        if self.bounds {
            // The bounds take longer than most runs, so they start first.
            jobs.push(Job::Bounds);
        }
        for &capacity_bytes in &capacities_bytes {
            for &policy in &self.policies {
                let interval_requests = (facts.requests / INTERVALS).max(1);
                jobs.push(match policy {
                    SimulatedPolicy::Online(policy) => Job::Run(RunConfig {
                        policy,
                        capacity_bytes,
                        warmup_requests,
                        object_overhead_bytes: self.object_overhead_bytes,
                        seed: self.seed,
                        window_requests: self.window_requests,
                        interval_requests,
                    }),
                    SimulatedPolicy::Offline(policy) => Job::Offline(OfflineConfig {
                        policy,
                        capacity_bytes,
                        warmup_requests,
                        object_overhead_bytes: self.object_overhead_bytes,
                        seed: self.seed,
                        interval_requests,
                        origin_cost: self.origin_cost,
                    }),
                });
            }
        }
        let bounds = || {
            let mut bounds = OfflineBounds::new(warmup_requests, self.object_overhead_bytes);
            for batch in batches(&requests, stop) {
                let records: Vec<Record> = batch.iter().map(Request::record).collect();
                bounds.feed(&records);
            }
            bounds.report(&capacities_bytes)
        };
        let future = self.future(&requests, stop)?;
        let reports = map_in_threads(self.threads, &jobs, stop, |job| match job {
            Job::Bounds => Report::Bounds(bounds()),
            Job::Run(config) => Report::Run(Box::new(self.run_one(config, &requests, stop))),
            Job::Offline(config) => {
                let start = Instant::now();
                let trace = future
                    .as_ref()
                    .expect("an offline policy has a recorded trace");
                Report::Run(Box::new(self.complete(
                    trace.run(config),
                    requests.len(),
                    start,
                )))
            }
        });
        let mut results = Results {
            trace: facts,
            runs: Vec::new(),
            bounds: Vec::new(),
        };
        for report in reports {
            match report {
                Report::Bounds(bounds) => results.bounds = bounds,
                Report::Run(run) => results.runs.push(*run),
            }
        }
        Ok(results)
    }

    fn run_one(&self, config: &RunConfig, requests: &[Request], stop: &StopFlag) -> RunReport {
        let start = Instant::now();
        let mut run = Run::new(config.clone()).with_objective(self.objective, self.origin_cost);
        for batch in batches(requests, stop) {
            run.feed_requests(batch);
        }
        self.complete(run.report(), requests.len(), start)
    }

    /// Returns the trace for policies that know all future requests, or `None` if the study has no such policy.
    fn future(&self, requests: &[Request], stop: &StopFlag) -> PyResult<Option<RecordedTrace>> {
        let is_offline = |policy: &SimulatedPolicy| matches!(policy, SimulatedPolicy::Offline(_));
        if !self.policies.iter().any(is_offline) {
            return Ok(None);
        }
        let mut recorder = TraceRecorder::default();
        for batch in batches(requests, stop) {
            recorder.feed(batch);
        }
        let trace = recorder.finish();
        trace
            .map(Some)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Adds the speed to a report. Removes the time series if the caller did not request it.
    fn complete(&self, mut report: RunReport, requests: usize, start: Instant) -> RunReport {
        report.requests_per_second =
            Some(requests as f64 / start.elapsed().as_secs_f64().max(1e-9));
        if !self.series {
            report.series.clear();
            report.tuned.clear();
        }
        report
    }
}

/// A unit of work, which one thread executes from start to end.
enum Job {
    Bounds,
    Run(RunConfig),
    Offline(OfflineConfig),
}

enum Report {
    Bounds(Vec<BoundReport>),
    Run(Box<RunReport>),
}

/// Iterates over the batches of `items` until `stop` is set.
fn batches<'a, T>(items: &'a [T], stop: &'a StopFlag) -> impl Iterator<Item = &'a [T]> {
    items.chunks(BATCH).take_while(move |_| !stop.is_set())
}

/// Calls `work` for each job on up to `threads` threads. Returns the results in the order of the jobs. After `stop` is
/// set, starts no further job.
fn map_in_threads<J: Sync, R: Send>(
    threads: usize,
    jobs: &[J],
    stop: &StopFlag,
    work: impl Fn(&J) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(jobs.len()));
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                while let Some((index, job)) = next_job(&next, jobs).filter(|_| !stop.is_set()) {
                    let result = work(job);
                    done.lock()
                        .expect("no thread panics with the lock")
                        .push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no thread panics with the lock");
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

fn next_job<'a, J>(next: &AtomicUsize, jobs: &'a [J]) -> Option<(usize, &'a J)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    jobs.get(index).map(|job| (index, job))
}

/// The intended number of points of a time series, as in `edgeward simulate`.
const INTERVALS: u64 = 200;

/// The number of requests between two checks of the stop flag. A simulation of this number of requests takes some
/// milliseconds.
const BATCH: usize = 1 << 15;
