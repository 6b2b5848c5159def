//! The runs over one trace: each combination of policy, capacity and disk options.
//!
//! If an option is a share of the trace (`--capacity 1%`), a first pass over the trace measures its size. Then the
//! trace is read once for all runs: each batch is passed to every run, and the runs are distributed over threads
//! ([`schedule`](super::schedule)). With `--disk`, every run has a disk tier below its memory tier. Offline policies
//! run after this pass ([`offline`]).

use std::num::NonZeroU32;

use serde::Serialize;

use edgeward_sim::{
    BoundReport, Capacity, DiskConfig, Fleet, FleetReport, OfflineBounds, OfflineConfig, Request,
    Run, RunConfig, RunReport, SimulatedPolicy, TraceFacts, Traffic,
};
use edgeward_types::Seed;

use super::args::SimulateArgs;
use super::by_c::{ByC, Comparison};
use super::fleet;
use super::job::{Job, report};
use super::offline;
use super::pass::Pass;
use super::schedule::feed_all;
use crate::diagnostic::Diagnostic;
use crate::input::Inputs;
use crate::output;

/// Reads a trace once and returns its facts. Options that are shares of the trace need its number of requests and its
/// footprint.
pub(super) fn measure(inputs: &Inputs, pass: &mut Pass) -> anyhow::Result<TraceFacts> {
    if inputs.contains_stdin() {
        return Err(Diagnostic::new(
            "a share of the trace needs two passes, and stdin can be read only once",
        )
        .hint("give --capacity in bytes and --warmup in requests, or put the trace in a file")
        .into());
    }
    let mut traffic = Traffic::default();
    for_each_batch(inputs, &mut traffic, BATCH_REQUESTS_MAX, |batch, bytes| {
        pass.advance(batch.len() as u64, bytes);
        batch.clear();
    })?;
    pass.end_trace(inputs.bytes());
    Ok(traffic.facts())
}

/// Executes the runs over one trace.
pub(super) fn simulate(
    args: &SimulateArgs,
    inputs: &Inputs,
    known_facts: Option<&TraceFacts>,
    pass: &mut Pass,
) -> anyhow::Result<Simulation> {
    let requests = known_facts.map(|facts| facts.requests);
    let warmup_requests = args.warmup.requests(requests);
    let footprint_bytes = known_facts.map_or(0, |facts| facts.footprint_bytes);
    let (mut jobs, offline_runs) = runs(args, requests, footprint_bytes);
    if !offline_runs.is_empty() {
        jobs.push(Job::Recorder(Box::default()));
    }
    if args.bounds {
        let bounds = OfflineBounds::new(warmup_requests, args.object_overhead.bytes())
            .with_metadata_bytes(args.count_metadata.bytes());
        jobs.push(Job::Bounds(Box::new(bounds)));
    }
    if args.by_c {
        let comparison = |capacity: &Capacity| {
            let capacity_bytes = capacity.bytes(footprint_bytes).max(1);
            Job::ByC(Box::new(Comparison::new(args, capacity_bytes, requests)))
        };
        jobs.extend(args.capacity.iter().map(comparison));
    }
    let threads = args.threads();
    let mut traffic = Traffic::default();
    let batch_requests = (BATCH_REQUESTS_PER_JOB * jobs.len()).min(BATCH_REQUESTS_MAX);
    let (jobs, read) = feed_all(jobs, threads, Job::feed, |schedule| {
        for_each_batch(inputs, &mut traffic, batch_requests, |batch, bytes| {
            let requests = batch.len() as u64;
            schedule.push(batch);
            pass.advance(requests, bytes);
        })
    });
    read?;
    pass.end_trace(inputs.bytes());
    let facts = traffic.facts();
    check_facts(&facts, inputs)?;
    args.fleet.check(facts.requests)?;
    let mut simulation = Simulation {
        trace: facts,
        runs: Vec::new(),
        fleets: Vec::new(),
        bounds: Vec::new(),
        by_c: Vec::new(),
    };
    let mut offline_reports = Vec::new();
    for job in jobs {
        match job {
            Job::Run { run, run_time } => {
                let report = report(&run, run_time, simulation.trace.requests, !args.no_series);
                simulation.runs.push(report);
            }
            Job::Fleet(fleet) => simulation.fleets.push(fleet.report()),
            Job::Recorder(recorder) => {
                let trace = recorder.finish()?;
                offline_reports = offline::run_all(&trace, &offline_runs, threads);
            }
            Job::ByC(comparison) => simulation.by_c.push(comparison.report()),
            Job::Bounds(bounds) => {
                let capacity_bytes = |capacity: &Capacity| capacity.bytes(footprint_bytes).max(1);
                let capacities: Vec<u64> = args.capacity.iter().map(capacity_bytes).collect();
                simulation.bounds = bounds.report(&capacities);
            }
        }
    }
    for (row, mut report) in offline_reports {
        if args.no_series {
            report.series.clear();
        }
        simulation.runs.insert(row, report);
    }
    fleet::finish(&mut simulation.fleets, !args.no_series);
    Ok(simulation)
}

/// Returns a job for each run of an online policy, and the configuration of each run of an offline policy. Each
/// configuration comes with the position of its report among all reports.
fn runs(
    args: &SimulateArgs,
    requests: Option<u64>,
    footprint_bytes: u64,
) -> (Vec<Job>, Vec<(usize, OfflineConfig)>) {
    let warmup_requests = args.warmup.requests(requests);
    let interval_requests = requests.map_or(INTERVAL_REQUESTS, |n| (n / INTERVALS).max(1));
    let disks = args.disk.configs(footprint_bytes);
    let metadata_bytes = args.count_metadata.bytes();
    let object_overhead_bytes = args.object_overhead.bytes();
    let configured = |run: Run| {
        run.with_metadata_bytes(metadata_bytes)
            .with_objective(args.objective, args.origin_cost())
    };
    let mut jobs: Vec<Job> = Vec::new();
    let mut offline_runs: Vec<(usize, OfflineConfig)> = Vec::new();
    for (capacity, &policy, &seed) in args.cells() {
        let capacity_bytes = capacity.bytes(footprint_bytes).max(1);
        let policy = match policy {
            SimulatedPolicy::Online(policy) => policy,
            SimulatedPolicy::Offline(policy) => {
                let config = OfflineConfig {
                    policy,
                    capacity_bytes,
                    warmup_requests,
                    object_overhead_bytes,
                    seed: Seed(seed),
                    interval_requests,
                    origin_cost: args.origin_cost(),
                };
                offline_runs.push((jobs.len() + offline_runs.len(), config));
                continue;
            }
        };
        let config = RunConfig {
            policy,
            capacity_bytes,
            warmup_requests,
            object_overhead_bytes,
            seed: Seed(seed),
            window_requests: args.window.map(NonZeroU32::get),
            interval_requests,
        };
        if let Some(configs) = args.fleet.configs(&config, requests, footprint_bytes) {
            let configured = |config| {
                let fleet = Fleet::new(config).with_metadata_bytes(metadata_bytes);
                fleet.with_objective(args.objective, args.origin_cost())
            };
            let job = |config| Job::Fleet(Box::new(configured(config)));
            jobs.extend(configs.into_iter().map(job));
        } else if disks.is_empty() {
            let mut run = configured(Run::new(config));
            if let Some(latency_ms) = args.fetch_latency {
                run = run.with_fetch_latency_ms(latency_ms);
            }
            jobs.push(Job::run(run));
        } else {
            let with_disk = |disk: &DiskConfig| {
                let run = Run::with_disk(config.clone(), disk.clone());
                Job::run(configured(run))
            };
            jobs.extend(disks.iter().map(with_disk));
        }
    }
    (jobs, offline_runs)
}

/// Checks that the trace has requests and that most of them have a size.
pub(super) fn check_facts(facts: &TraceFacts, inputs: &Inputs) -> anyhow::Result<()> {
    let TraceFacts {
        requests,
        unsized_requests,
        ..
    } = *facts;
    if unsized_requests > requests {
        return Err(Diagnostic::new(format!(
            "the size of the object is known in {} of {} requests of {}",
            output::count(requests),
            output::count(requests + unsized_requests),
            inputs.label()
        ))
        .hint("a simulation needs sizes; `edgeward trace info` shows how the trace was read")
        .into());
    }
    if requests == 0 {
        return Err(
            Diagnostic::new(format!("{} contains no requests", inputs.label()))
                .hint("`edgeward trace info` shows the contents of a trace")
                .into(),
        );
    }
    Ok(())
}

/// Reads the traces, counts their requests and passes them to `each`, which must empty the batch. All batches but the
/// last have at least `batch_requests` requests. The second argument of `each` is the number of bytes read so far.
fn for_each_batch(
    inputs: &Inputs,
    traffic: &mut Traffic,
    batch_requests: usize,
    mut each: impl FnMut(&mut Vec<Request>, u64),
) -> anyhow::Result<()> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    inputs.for_each_batch(|read| {
        bytes = read.bytes_read;
        traffic.count_all_with_ttls(read.records, read.ttls, &mut batch);
        if batch.len() >= batch_requests {
            each(&mut batch, bytes);
        }
    })?;
    if !batch.is_empty() {
        each(&mut batch, bytes);
    }
    Ok(())
}

/// The results of a trace.
#[derive(Debug, Serialize)]
pub(super) struct TraceResults {
    /// The name of the trace in its plan, or its path.
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) simulation: Simulation,
}

/// The results of all runs over a trace. Without a plan, they are the JSON document of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Simulation {
    pub(super) trace: TraceFacts,
    pub(super) runs: Vec<RunReport>,
    /// Fleets, separate caches and single nodes for each capacity, policy and seed. There are then no `runs`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) fleets: Vec<FleetReport>,
    /// Upper bounds for any policy, one per capacity.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) bounds: Vec<BoundReport>,
    /// The hit ratios for each `c` of AdaptSize, one comparison per capacity.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) by_c: Vec<ByC>,
}

/// A batch has this number of requests for each job, up to [`BATCH_REQUESTS_MAX`]. A small batch stays in the
/// processor's cache beside the state of a single run. If many runs share this cache, each run must load its state
/// again for each batch; a large batch amortises this cost.
const BATCH_REQUESTS_PER_JOB: usize = 1 << 13;

/// The number of requests in a batch for eight jobs and more: 2 MiB.
pub(super) const BATCH_REQUESTS_MAX: usize = 1 << 16;

/// The intended number of points of a time series. A plot cannot show more points.
const INTERVALS: u64 = 200;

/// The number of requests between two points of a time series if the length of the trace is unknown.
const INTERVAL_REQUESTS: u64 = 50_000;

/// Returns true if the runs have different seeds.
pub(super) fn has_several_seeds(runs: &[RunReport]) -> bool {
    runs.windows(2).any(|pair| pair[0].seed != pair[1].seed)
}
