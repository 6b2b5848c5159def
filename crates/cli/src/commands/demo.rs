//! `edgeward demo`: compares the policies LRU, AdaptSize, GDSF and `density` over real HTTP.
//!
//! The demo generates one trace and starts one synthetic origin. For each policy it simulates the trace, starts an
//! edge, replays the trace through the edge and compares the results. Origin and edge have their own processes, so
//! that the CPU time and the memory of the edge can be measured; they listen on free loopback ports. The edges
//! run one after the other, because on a small machine they would compete for cores.

mod outcome;
mod page;
mod process;
mod status;
mod text;

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;

use edgeward_policy::PolicySpec;
use edgeward_replay::ReplayReport;
use edgeward_replay::load::{self, ReplayPlan, Target};
use edgeward_sim::{Run, RunConfig, RunReport, TraceFacts, Traffic};
use edgeward_trace::Record;
use edgeward_trace::generate::{Generator, Preset};
use edgeward_types::{ByteSize, Seed, allocated_bytes};

use crate::output::{self, Progress};
use outcome::{EdgeOutcome, INTERVALS, Outcome};
use process::Process;

/// Compare cache policies over real HTTP, predicted and measured
///
/// Starts a synthetic origin and an edge for each policy on free loopback ports, replays one generated trace through
/// them, and compares the simulator's predictions with the measurements.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DemoArgs {
    /// Policies to compare
    #[arg(
        long,
        short,
        value_delimiter = ',',
        default_value = "lru,adaptsize,gdsf,density",
        value_parser = PolicySpec::parse_served,
        value_name = "LIST"
    )]
    policy: Vec<PolicySpec>,

    /// Requests in the trace
    #[arg(
        long,
        default_value_t = 150_000,
        value_parser = clap::value_parser!(u64).range(1000..=10_000_000),
        value_name = "N"
    )]
    requests: u64,

    /// Size of the memory tier
    #[arg(long, default_value = "16MiB", value_name = "SIZE")]
    hot: ByteSize,

    /// Page to write, or folder for edgeward-demo.html
    #[arg(long, default_value = REPORT_FOLDER, value_name = "FILE")]
    report: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Time until the origin starts each response
    #[arg(
        long,
        default_value = "2ms",
        value_parser = super::flag_values::duration,
        value_name = "TIME",
        hide_short_help = true
    )]
    origin_latency: Duration,

    /// Connections of the load generator
    #[arg(long, default_value = "40", value_name = "N", hide_short_help = true)]
    connections: NonZeroUsize,

    /// Requests between two runs of AdaptSize's tuner; low, so that a short demo has several runs
    #[arg(
        long,
        default_value = "50000",
        value_name = "N",
        hide_short_help = true
    )]
    window_requests: NonZeroU32,

    /// Seed of all random numbers
    #[arg(long, default_value_t = 1, value_name = "N", hide_short_help = true)]
    seed: u64,
}

/// Runs the demo. Exit codes: 0 every response was correct, 1 some requests failed.
pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    let report_path = report_path(&args.report)?;
    let interrupted = InterruptFlag::watch()?;
    let (records, facts) = generate(args)?;
    interrupted.check()?;

    let origin = Process::start(&origin_command(args))?;
    // The first line that the origin prints is JSON, and `/listen` is a JSON pointer into it.
    let origin_addr: SocketAddr = origin.first_line_text("/listen")?.parse()?;
    let overhead_bytes = object_overhead_bytes(args, origin_addr, &records)?;
    let mut edges = Vec::new();
    for &policy in &args.policy {
        interrupted.check()?;
        let predicted = predict(args, policy, overhead_bytes, &records);
        let before = status::fetch(origin_addr)?;
        let measured = measure(args, policy, origin_addr, &records, &interrupted)?;
        interrupted.check()?;
        let after = status::fetch(origin_addr)?;
        let increase = |name: &str| {
            let count = |status: &serde_json::Value| status[name].as_u64().unwrap_or(0);
            count(&after).saturating_sub(count(&before))
        };
        edges.push(EdgeOutcome {
            policy: policy.to_string(),
            predicted,
            measured,
            origin_requests: increase("requests"),
            origin_bytes: increase("body_bytes"),
        });
    }
    drop(origin);

    let outcome = Outcome {
        trace: facts,
        preset: Preset::Small.name(),
        seed: args.seed,
        hot_bytes: args.hot.bytes(),
        window_requests: args.window_requests.get(),
        warmup_requests: warmup_requests(&records),
        object_overhead_bytes: overhead_bytes,
        origin_latency_ms: args.origin_latency.as_secs_f64() * 1e3,
        edges,
        report: report_path.clone(),
    };
    std::fs::write(&report_path, page::render(&outcome))
        .with_context(|| format!("cannot write {}", report_path.display()))?;
    if args.json {
        output::print_json(&outcome)?;
    } else {
        text::print(&outcome)?;
    }
    let is_correct = |edge: &EdgeOutcome| edge.measured.errors_total == 0;
    Ok(if outcome.edges.iter().all(is_correct) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn generate(args: &DemoArgs) -> anyhow::Result<(Vec<Record>, TraceFacts)> {
    let workload = Preset::Small.workload().scaled_to(args.requests);
    let progress = Progress::new("generating the trace", "requests", Some(workload.requests));
    let mut traffic = Traffic::default();
    let records: Vec<Record> = Generator::new(workload, Seed(args.seed))?
        .map(|mut record| {
            // Each request for an object gets the size of the first request for it.
            traffic.count_and_fix_size(&mut record);
            record
        })
        .collect();
    anyhow::ensure!(
        !records.is_empty(),
        "the generated trace is empty: give a higher --requests"
    );
    progress.set(records.len() as u64);
    Ok((records, traffic.facts()))
}

fn predict(
    args: &DemoArgs,
    policy: PolicySpec,
    overhead_bytes: u64,
    records: &[Record],
) -> RunReport {
    let mut run = Run::new(RunConfig {
        policy,
        capacity_bytes: args.hot.bytes(),
        warmup_requests: warmup_requests(records),
        object_overhead_bytes: overhead_bytes,
        seed: Seed(args.seed),
        window_requests: Some(args.window_requests.get()),
        interval_requests: (records.len() as u64 / INTERVALS).max(1),
    });
    let progress = Progress::new(
        format!("simulating {policy}"),
        "requests",
        Some(records.len() as u64),
    );
    for batch in records.chunks(BATCH_RECORDS) {
        run.feed(batch);
        progress.advance(batch.len() as u64);
    }
    run.report()
}

/// Returns the bytes of memory that an object takes in addition to its body. The function starts an edge,
/// requests one object through it and reads the used memory from the edge's status.
fn object_overhead_bytes(
    args: &DemoArgs,
    origin: SocketAddr,
    records: &[Record],
) -> anyhow::Result<u64> {
    let edge = Edge::start(args, PolicySpec::LRU, origin)?;
    let sample = records
        .iter()
        .filter(|record| record.size > 0)
        .min_by_key(|record| record.size)
        .context("the trace is empty")?;
    let plan = ReplayPlan::new("probe", edge.target()?);
    let report = load::run(
        &plan,
        [Ok::<_, std::convert::Infallible>(*sample)].into_iter(),
    )?;
    anyhow::ensure!(report.errors_total == 0, "the edge does not respond");
    let status = status::fetch(edge.admin)?;
    let used = status["hot"]["used_bytes"].as_u64().unwrap_or(0);
    let body = allocated_bytes(sample.size);
    anyhow::ensure!(
        used > body && status["hot"]["objects"] == 1,
        "the edge did not store an object of {} bytes",
        sample.size
    );
    Ok(used - body)
}

fn measure(
    args: &DemoArgs,
    policy: PolicySpec,
    origin: SocketAddr,
    records: &[Record],
    interrupted: &InterruptFlag,
) -> anyhow::Result<ReplayReport> {
    let edge = Edge::start(args, policy, origin)?;
    let mut plan = ReplayPlan::new(format!("preset {}", Preset::Small), edge.target()?);
    plan.connections = args.connections;
    plan.warmup_requests = warmup_requests(records);
    plan.pid = Some(edge.process.id());
    plan.status = Some(format!("http://{}/status", edge.admin).parse()?);
    plan.sample_interval = SAMPLE_INTERVAL;
    plan.timeout = Duration::from_secs(10);
    let progress = Progress::new(
        format!("replaying through {policy}"),
        "requests",
        Some(records.len() as u64),
    );
    let live = Arc::clone(&plan.live);
    let result = thread::scope(|scope| {
        let replay = scope.spawn(|| {
            load::run_from(&plan, |feeder| {
                for &record in records {
                    if interrupted.is_set() || feeder.push(record).is_break() {
                        break;
                    }
                }
                Ok::<_, std::convert::Infallible>(())
            })
        });
        while !replay.is_finished() {
            progress.set(live.requests());
            thread::park_timeout(Duration::from_millis(200));
        }
        replay.join()
    });
    match result {
        Ok(report) => Ok(report?),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// A running edge.
struct Edge {
    process: Process,
    url: String,
    admin: SocketAddr,
}

impl Edge {
    fn start(args: &DemoArgs, policy: PolicySpec, origin: SocketAddr) -> anyhow::Result<Self> {
        let process = Process::start(&[
            "serve".to_owned(),
            "--json".to_owned(),
            "--listen=127.0.0.1:0".to_owned(),
            "--admin=127.0.0.1:0".to_owned(),
            "--workers=1".to_owned(),
            format!("--origin=http://{origin}"),
            format!("--hot={}", args.hot.bytes()),
            format!("--policy={policy}"),
            format!("--seed={}", args.seed),
            format!("--hash-seed={}", args.seed),
            format!("--window-requests={}", args.window_requests),
            "--set=server.drain_timeout=1s".to_owned(),
            // The replay needs few connections. The default exceeds the limit of open files of most machines, so the
            // edge would lower it and log a warning.
            "--set=limits.connections_max=1024".to_owned(),
            "--log=warn".to_owned(),
        ])?;
        let url = process.first_line_text("/listening/0")?.to_owned();
        let admin = process.first_line_text("/admin")?;
        let admin = admin.strip_prefix("http://").unwrap_or(admin).parse()?;
        Ok(Self {
            process,
            url,
            admin,
        })
    }

    fn target(&self) -> anyhow::Result<Target> {
        Ok(self.url.parse()?)
    }
}

fn origin_command(args: &DemoArgs) -> Vec<String> {
    vec![
        "origin".to_owned(),
        "--json".to_owned(),
        "--listen=127.0.0.1:0".to_owned(),
        format!("--latency={}us", args.origin_latency.as_micros()),
        "--log=warn".to_owned(),
    ]
}

/// A flag that the first SIGINT or SIGTERM sets. The child processes have their own process groups, so Ctrl-C reaches
/// only this process, which then stops its children itself.
#[derive(Clone, Debug)]
struct InterruptFlag(Arc<AtomicBool>);

impl InterruptFlag {
    fn watch() -> anyhow::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        let flag = Self(Arc::default());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        let (mut terminate, mut interrupt) = {
            let _inside = runtime.enter();
            (
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
            )
        };
        let flag_of_thread = flag.clone();
        // The thread ends with the process.
        thread::Builder::new()
            .name("demo-signals".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = terminate.recv() => {}
                        _ = interrupt.recv() => {}
                    }
                });
                flag_of_thread.0.store(true, Ordering::Relaxed);
            })?;
        Ok(flag)
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.is_set(),
            "interrupted; all started processes were stopped"
        );
        Ok(())
    }
}

/// Returns the path of the report page. Creates the file already now: if that fails, the demo ends before it measures.
fn report_path(given: &Path) -> anyhow::Result<PathBuf> {
    let is_file_name = given.extension().is_some_and(|ending| ending == "html");
    let path = if is_file_name {
        given.to_owned()
    } else {
        std::fs::create_dir_all(given)
            .with_context(|| format!("cannot create the folder {}", given.display()))?;
        given.join(REPORT_NAME)
    };
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(std::path::absolute(&path)?)
}

/// The number of requests of the warm-up: a fifth of the trace. The results do not include the warm-up.
fn warmup_requests(records: &[Record]) -> u64 {
    records.len() as u64 / 5
}

const REPORT_FOLDER: &str = "demo-report";

const REPORT_NAME: &str = "edgeward-demo.html";

/// The number of records that are simulated between two updates of the progress.
const BATCH_RECORDS: usize = 1 << 14;

/// The time between two samples of the edge's status page and of its memory.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

const EXAMPLES: &str = "\
Exit codes: 0 every response was correct, 1 some requests failed, 2 the demo failed.

Examples:
  edgeward demo
  edgeward demo --policy lru,gdsf,adaptsize,adaptsize-horizon --hot 8MiB
  edgeward demo --json --report /tmp | jq '.edges[] | {policy, ohr: .measured.object_hit_ratio}'";
