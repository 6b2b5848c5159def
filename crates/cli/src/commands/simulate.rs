//! `edgeward simulate`: runs a trace through the server's cache policies.
//!
//! Each combination of policy, capacity and disk options is one run. If an option is a share of the
//! trace (`--capacity 1%`), a first pass over the trace measures its size. Then the trace is read once for
//! all runs: each batch is passed to every run, and the runs are distributed over threads (`schedule`). With `--disk`,
//! every run has a disk tier below its memory tier. Policies that know the future run after this pass (`offline`).

mod csv;
mod curve;
mod disk;
mod offline;
mod page;
mod schedule;

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use edgeward_policy::{ADMISSION_NAMES, EVICTION_NAMES};
use edgeward_sim::{
    BoundReport, Capacity, DiskConfig, OFFLINE_NAMES, OfflineBounds, OfflineConfig,
    ParseShareError, Request, Run, RunConfig, RunReport, Share, SimulatedPolicy, TraceFacts,
    TraceRecorder, Traffic, Warmup,
};
use edgeward_trace::Record;
use edgeward_types::{ByteSize, Seed};

use self::schedule::feed_all;
use crate::diagnostic::Diagnostic;
use crate::input::{Inputs, TraceInputArgs};
use crate::output::{self, Column, Progress, Table};

/// Run a trace through cache policies and compare their hit ratios
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    trace: TraceInputArgs,

    /// Policies, such as lru, gdsf or adaptsize+gdsf
    #[arg(
        long,
        short,
        value_delimiter = ',',
        default_value = "lru,adaptsize,gdsf,density",
        value_name = "LIST",
        long_help = policy_help()
    )]
    policy: Vec<SimulatedPolicy>,

    /// RAM tier sizes: bytes (64MiB) or a share of the trace's footprint (1%)
    #[arg(
        long,
        visible_alias = "hot",
        short,
        value_delimiter = ',',
        required = true,
        value_name = "LIST"
    )]
    capacity: Vec<Capacity>,

    #[command(flatten)]
    disk: disk::DiskArgs,

    /// Requests that warm the cache and are not counted: 20% or a number
    #[arg(long, default_value = "0", value_name = "SHARE")]
    warmup: Warmup,

    /// Bytes per object in addition to its body; bodies are then rounded up as in a live edge
    #[arg(long, default_value = "0", value_name = "SIZE", hide_short_help = true)]
    object_overhead: ByteSize,

    /// Bytes per object in addition to its body, without rounding, as in the literature
    ///
    /// Use --object-overhead instead to predict a live edge.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "0",
        conflicts_with = "object_overhead",
        hide_short_help = true
    )]
    count_metadata: ByteSize,

    /// Milliseconds that a fetch from the origin takes; requests during it are delayed hits
    ///
    /// A delayed hit waits for the fetch of an earlier request. It costs the origin no request and is not counted as a
    /// hit. The times are those of the trace.
    #[arg(
        long,
        value_name = "MS",
        conflicts_with = "disk",
        hide_short_help = true
    )]
    fetch_latency: Option<u64>,

    /// Compute miss-ratio curves of this number of sizes, from the smallest to the largest --capacity
    ///
    /// The curve of lru is computed from stack distances in one pass. Each other policy is simulated at each size.
    #[arg(
        long,
        value_name = "POINTS",
        value_parser = clap::value_parser!(u16).range(2..=1000),
        conflicts_with_all = ["disk", "bounds", "fetch_latency"],
        hide_short_help = true
    )]
    curve: Option<u16>,

    /// Share of the objects from which curves are estimated, such as 1% (SHARDS, miniature simulation)
    #[arg(
        long,
        value_name = "SHARE",
        value_parser = sample_share,
        requires = "curve",
        hide_short_help = true
    )]
    sample: Option<Share>,

    /// Seed of the policies' random numbers
    #[arg(long, default_value_t = 0, hide_short_help = true)]
    seed: u64,

    /// Requests between two runs of AdaptSize's tuner [default: 250000, as in the paper]
    #[arg(long, value_name = "REQUESTS", hide_short_help = true)]
    window: Option<NonZeroU32>,

    /// Threads of the runs [default: one per core]
    #[arg(long, hide_short_help = true)]
    threads: Option<NonZeroUsize>,

    /// Compute upper bounds of the hit ratios of any policy, even of one that knows the future
    ///
    /// Takes 16 bytes of memory per request and 16 to 37 bytes per object.
    #[arg(long, conflicts_with = "disk", hide_short_help = true)]
    bounds: bool,

    /// Omit hit ratios over time from the JSON
    #[arg(long, hide_short_help = true)]
    no_series: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Write an HTML page with plots
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Write the results as CSV
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    csv: Option<PathBuf>,
}

/// Parses the share of objects in a sample, which must be more than 0.
fn sample_share(text: &str) -> Result<Share, String> {
    let share: Share = text
        .parse()
        .map_err(|error: ParseShareError| error.to_string())?;
    if share.fraction() > 0.0 {
        Ok(share)
    } else {
        Err("a sample has objects; write 1%".to_owned())
    }
}

/// Returns the help of `--policy`, which lists all rules.
fn policy_help() -> String {
    format!(
        "Policies: an eviction rule, an admission rule, or both, such as adaptsize+gdsf\n\n\
         Eviction rules: {EVICTION_NAMES}.\n\n\
         Admission rules: {ADMISSION_NAMES}.\n\n\
         Three policies know all future requests and cannot serve: {OFFLINE_NAMES}. They take 8 bytes of memory per \
         request.\n\n\
         docs/explanation/policies.md describes them."
    )
}

/// Runs the simulation and prints the results.
pub(crate) fn run(args: SimulateArgs) -> anyhow::Result<ExitCode> {
    offline::check(&args)?;
    let inputs = args.trace.inputs()?;
    if let Some(points) = args.curve {
        return draw_curves(&args, &inputs, usize::from(points));
    }
    let facts = if args.needs_facts() {
        Some(measure(&inputs)?)
    } else {
        None
    };
    let simulation = simulate(&args, &inputs, facts.as_ref())?;
    if let Some(path) = &args.report {
        write_page(path, &page::render(&simulation, &inputs.label()), args.json)?;
    }
    if let Some(path) = &args.csv {
        csv::rows(&simulation, &inputs.label()).write(path)?;
    }
    if args.json {
        output::print_json(&simulation)?;
    } else {
        print_table(&simulation)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Computes miss-ratio curves and prints them.
fn draw_curves(args: &SimulateArgs, inputs: &Inputs, points: usize) -> anyhow::Result<ExitCode> {
    let curves = curve::compute(args, inputs, points)?;
    if let Some(path) = &args.report {
        write_page(path, &curves.page(&inputs.label()), args.json)?;
    }
    if let Some(path) = &args.csv {
        curves.csv(&inputs.label()).write(path)?;
    }
    if args.json {
        output::print_json(&curves)?;
    } else {
        curves.print()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page to `path`. Also prints the path to stderr, unless stdout has the JSON document.
fn write_page(path: &Path, html: &str, json: bool) -> anyhow::Result<()> {
    std::fs::write(path, html).with_context(|| format!("cannot write {}", path.display()))?;
    if !json {
        eprintln!("report: {}", path.display());
    }
    Ok(())
}

impl SimulateArgs {
    /// Returns true if an option is a share of the trace. The trace must then be read once before the simulation.
    fn needs_facts(&self) -> bool {
        let is_share = |capacity: &Capacity| matches!(capacity, Capacity::OfFootprint(_));
        self.capacity.iter().any(is_share)
            || self.disk.needs_footprint()
            || matches!(self.warmup, Warmup::Share(_))
    }
}

/// Reads the trace once and returns its facts. Options that are shares need the number of requests and the footprint.
fn measure(inputs: &Inputs) -> anyhow::Result<TraceFacts> {
    if inputs.contains_stdin() {
        return Err(Diagnostic::new(
            "a share of the trace needs two passes, and stdin can be read only once",
        )
        .hint("give --capacity in bytes and --warmup in requests, or put the trace in a file")
        .into());
    }
    let progress = Progress::new("measuring", "requests", inputs.requests_max());
    let mut traffic = Traffic::default();
    for_each_batch(inputs, &mut traffic, BATCH_REQUESTS_MAX, |batch| {
        progress.advance(batch.len() as u64);
        batch.clear();
    })?;
    Ok(traffic.facts())
}

fn simulate(
    args: &SimulateArgs,
    inputs: &Inputs,
    known_facts: Option<&TraceFacts>,
) -> anyhow::Result<Simulation> {
    let requests = known_facts.map(|facts| facts.requests);
    let warmup_requests = args.warmup.requests(requests);
    let footprint_bytes = known_facts.map_or(0, |facts| facts.footprint_bytes);
    let disks = args.disk.configs(footprint_bytes);
    let interval_requests = requests.map_or(INTERVAL_REQUESTS, |n| (n / INTERVALS).max(1));
    let mut jobs: Vec<Job> = Vec::new();
    // Offline runs, each with the position of its report among all reports.
    let mut offline_runs: Vec<(usize, OfflineConfig)> = Vec::new();
    for capacity in &args.capacity {
        let capacity_bytes = capacity.bytes(footprint_bytes).max(1);
        for &policy in &args.policy {
            let policy = match policy {
                SimulatedPolicy::Online(policy) => policy,
                SimulatedPolicy::Offline(policy) => {
                    let config = OfflineConfig {
                        policy,
                        capacity_bytes,
                        warmup_requests,
                        object_overhead_bytes: args.object_overhead.bytes(),
                        seed: Seed(args.seed),
                        interval_requests,
                    };
                    offline_runs.push((jobs.len() + offline_runs.len(), config));
                    continue;
                }
            };
            let config = RunConfig {
                policy,
                capacity_bytes,
                warmup_requests,
                object_overhead_bytes: args.object_overhead.bytes(),
                seed: Seed(args.seed),
                window_requests: args.window.map(NonZeroU32::get),
                interval_requests,
            };
            let metadata_bytes = args.count_metadata.bytes();
            if disks.is_empty() {
                let mut run = Run::new(config).with_metadata_bytes(metadata_bytes);
                if let Some(latency_ms) = args.fetch_latency {
                    run = run.with_fetch_latency_ms(latency_ms);
                }
                jobs.push(Job::run(run));
            } else {
                let with_disk = |disk: &DiskConfig| {
                    let run = Run::with_disk(config.clone(), disk.clone());
                    Job::run(run.with_metadata_bytes(metadata_bytes))
                };
                jobs.extend(disks.iter().map(with_disk));
            }
        }
    }
    if !offline_runs.is_empty() {
        jobs.push(Job::Recorder(Box::default()));
    }
    if args.bounds {
        let bounds = OfflineBounds::new(warmup_requests, args.object_overhead.bytes())
            .with_metadata_bytes(args.count_metadata.bytes());
        jobs.push(Job::Bounds(Box::new(bounds)));
    }
    let threads = threads(args);
    let progress = Progress::new(
        "simulating",
        "requests",
        requests.or_else(|| inputs.requests_max()),
    );
    let mut traffic = Traffic::default();
    let batch_requests = (BATCH_REQUESTS_PER_JOB * jobs.len()).min(BATCH_REQUESTS_MAX);
    let (jobs, read) = feed_all(jobs, threads, Job::feed, |schedule| {
        for_each_batch(inputs, &mut traffic, batch_requests, |batch| {
            let requests = batch.len() as u64;
            schedule.push(batch);
            progress.advance(requests);
        })
    });
    read?;
    drop(progress);
    let facts = traffic.facts();
    if facts.requests == 0 {
        return Err(no_requests(inputs));
    }
    let mut simulation = Simulation {
        trace: facts,
        runs: Vec::new(),
        bounds: Vec::new(),
    };
    let mut offline_reports = Vec::new();
    for job in jobs {
        match job {
            Job::Run { run, run_time } => {
                let report = report(&run, run_time, simulation.trace.requests, !args.no_series);
                simulation.runs.push(report);
            }
            Job::Recorder(recorder) => {
                let trace = recorder.finish()?;
                offline_reports = offline::run_all(&trace, &offline_runs, threads);
            }
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
    Ok(simulation)
}

fn no_requests(inputs: &Inputs) -> anyhow::Error {
    Diagnostic::new(format!("{} contains no requests", inputs.label()))
        .hint("`edgeward trace info` shows the contents of a trace")
        .into()
}

/// The number of threads, from `--threads` or the number of cores.
fn threads(args: &SimulateArgs) -> NonZeroUsize {
    args.threads
        .or_else(|| thread::available_parallelism().ok())
        .unwrap_or(NonZeroUsize::MIN)
}

/// Reads the traces, counts their requests and passes them to `each`, which must empty the batch. All batches but the
/// last have at least `batch_requests` requests.
fn for_each_batch(
    inputs: &Inputs,
    traffic: &mut Traffic,
    batch_requests: usize,
    mut each: impl FnMut(&mut Vec<Request>),
) -> anyhow::Result<()> {
    let mut batch = Vec::new();
    inputs.for_each_batch(|records| {
        traffic.count_all(records, &mut batch);
        if batch.len() >= batch_requests {
            each(&mut batch);
        }
    })?;
    if !batch.is_empty() {
        each(&mut batch);
    }
    Ok(())
}

fn print_table(simulation: &Simulation) -> anyhow::Result<()> {
    use std::io::Write as _;

    let facts = &simulation.trace;
    let mut out = output::stdout();
    writeln!(
        out,
        "{} requests for {} objects of {}, {} of the objects requested once\n",
        output::count(facts.requests),
        output::count(facts.objects),
        ByteSize(facts.footprint_bytes),
        output::percent(facts.one_hit_share),
    )?;
    if let Some(table) = disk::table(&simulation.runs) {
        write!(out, "{table}")?;
        out.flush()?;
        return Ok(());
    }
    if let Some(table) = delayed_hits(&simulation.runs) {
        writeln!(out, "{table}")?;
    }
    let mut table = Table::new([
        Column::words("policy"),
        Column::figures("capacity"),
        Column::figures("hits"),
        Column::figures("object hit ratio"),
        Column::figures("byte hit ratio"),
        Column::figures("requests/s"),
        Column::figures("B/object"),
    ]);
    for run in &simulation.runs {
        table.row([
            run.policy.clone(),
            ByteSize(run.capacity_bytes).to_string(),
            output::count(run.hits),
            output::percent(run.object_hit_ratio),
            output::percent(run.byte_hit_ratio),
            output::count(run.requests_per_second.unwrap_or(0.0) as u64),
            format!("{:.0}", run.bytes_per_object),
        ]);
    }
    for bound in &simulation.bounds {
        table.row([
            "upper bound".to_owned(),
            ByteSize(bound.capacity_bytes).to_string(),
            String::new(),
            output::percent(bound.object_hit_ratio_max),
            output::percent(bound.byte_hit_ratio_max),
            String::new(),
            String::new(),
        ]);
    }
    write!(out, "{table}")?;
    out.flush()?;
    Ok(())
}

/// Returns the table of `--fetch-latency`, or `None` without this option.
fn delayed_hits(runs: &[RunReport]) -> Option<Table> {
    let mut table = Table::new([
        Column::words("policy"),
        Column::figures("capacity"),
        Column::figures("fetch latency"),
        Column::figures("delayed hits"),
        Column::figures("of requests"),
        Column::figures("mean wait"),
    ]);
    let mut rows = 0;
    for run in runs {
        let Some(fetches) = &run.fetches else {
            continue;
        };
        rows += 1;
        table.row([
            run.policy.clone(),
            ByteSize(run.capacity_bytes).to_string(),
            format!("{} ms", output::count(fetches.fetch_latency_ms)),
            output::count(fetches.delayed_hits),
            output::percent(fetches.delayed_hit_ratio),
            format!("{:.2} ms", fetches.mean_wait_ms),
        ]);
    }
    (rows > 0).then_some(table)
}

/// The results of all runs. They are also the JSON document of `--json`.
#[derive(Debug, Serialize)]
struct Simulation {
    trace: TraceFacts,
    runs: Vec<RunReport>,
    /// Upper bounds for any policy, one per capacity.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bounds: Vec<BoundReport>,
}

/// A consumer of all requests.
#[derive(Debug)]
enum Job {
    /// A simulated cache, and the processing time of its requests so far.
    Run { run: Box<Run>, run_time: Duration },
    /// The trace, for policies that know the future.
    Recorder(Box<TraceRecorder>),
    /// The upper bounds of the hit ratios.
    Bounds(Box<OfflineBounds>),
}

impl Job {
    fn run(run: Run) -> Self {
        Self::Run {
            run: Box::new(run),
            run_time: Duration::ZERO,
        }
    }

    fn feed(&mut self, requests: &[Request]) {
        match self {
            Self::Run { run, run_time } => {
                let start = Instant::now();
                run.feed_requests(requests);
                *run_time += start.elapsed();
            }
            Self::Recorder(recorder) => recorder.feed(requests),
            Self::Bounds(bounds) => {
                let records: Vec<Record> = requests.iter().map(Request::record).collect();
                bounds.feed(&records);
            }
        }
    }
}

/// Returns the report of a run, with its speed: `requests` per second. Without `series`, removes the time series.
fn report(run: &Run, run_time: Duration, requests: u64, series: bool) -> RunReport {
    let mut report = run.report();
    if run_time > Duration::ZERO {
        report.requests_per_second = Some(requests as f64 / run_time.as_secs_f64());
    }
    if !series {
        report.series.clear();
        report.tuned.clear();
    }
    report
}

/// A batch has this number of requests for each job, up to [`BATCH_REQUESTS_MAX`]. A small batch stays in the
/// processor's cache beside the state of a single run. If many runs share this cache, each run must load its state
/// again for each batch; a large batch amortises this cost.
const BATCH_REQUESTS_PER_JOB: usize = 1 << 13;

/// The number of requests in a batch for eight jobs and more: 2 MiB.
const BATCH_REQUESTS_MAX: usize = 1 << 16;

/// The intended number of points of a time series. A plot cannot show more points.
const INTERVALS: u64 = 200;

/// The number of requests between two points of a time series if the length of the trace is unknown.
const INTERVAL_REQUESTS: u64 = 50_000;

const EXAMPLES: &str = "\
Examples:
  edgeward simulate access.log.gz --capacity 256MiB,1GiB
  edgeward simulate day.tr.zst -p lru,gdsf,adaptsize -c 0.1%,1% --warmup 20% --report sim.html
  edgeward simulate day.tr.zst -p adaptsize -c 1GiB --object-overhead 600 --json
  edgeward simulate day.tr.zst -p lru,gdsf -c 0.1%,20% --curve 30 --sample 1% --report curves.html
  edgeward simulate day.tr.zst -p adaptsize --hot 64MiB --disk 10GiB --disk-admission second-hit,always

With --object-overhead the results predict a live edge, which uses the same policies. The
overhead of an object is hot.object_overhead_bytes in /status of the edge, plus the allocations of
its key, its head and two reference counts (docs/explanation/memory.md). Bodies are then rounded
up to the allocator's size classes.";
