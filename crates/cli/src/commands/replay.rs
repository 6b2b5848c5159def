//! `edgeward replay`: sends a trace to a server over HTTP and checks every byte of the responses.

mod page;
mod text;

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use edgeward_replay::ReplayReport;
use edgeward_replay::load::{self, Feeder, Pacing, ReplayError, ReplayPlan, Target};
use edgeward_sim::Warmup;
use edgeward_types::ByteSize;

use super::flag_values::duration;
use crate::diagnostic::Diagnostic;
use crate::input::{Inputs, TraceInputArgs};
use crate::output::{self, Progress};

/// Send a trace to a cache and report hits, latency and resources
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    trace: TraceInputArgs,

    /// The server under test, as `https://cache.example`
    #[arg(long, short, value_name = "URL")]
    target: String,

    /// PEM file of the CA of an https target [default: the system's]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    ca: Option<PathBuf>,

    /// Connections, each with one request at a time
    #[arg(long, short, default_value = "32", value_name = "N")]
    connections: NonZeroUsize,

    /// Threads that send the requests
    #[arg(long, default_value = "1", value_name = "N")]
    workers: NonZeroUsize,

    /// Open loop: send N requests per second
    #[arg(long, value_parser = positive, value_name = "N", conflicts_with = "speedup")]
    rate: Option<f64>,

    /// Open loop: send at the times of the trace, X times as fast
    #[arg(long, value_parser = positive, value_name = "X")]
    speedup: Option<f64>,

    /// Skip requests for objects above this size
    #[arg(long, value_name = "SIZE")]
    max_size: Option<ByteSize>,

    /// Requests that warm the cache and are not counted: 20% or a number
    #[arg(long, default_value = "0", value_name = "SHARE")]
    warmup: Warmup,

    /// Request the size of each record; by default, the size of the object's first record is requested
    #[arg(long, hide_short_help = true)]
    sizes_as_recorded: bool,

    /// A request fails if no byte arrives for this long
    #[arg(long, default_value = "30s", value_parser = duration, value_name = "TIME", hide_short_help = true)]
    timeout: Duration,

    /// Stop after this number of consecutive failures
    #[arg(long, default_value = "1000", value_name = "N", hide_short_help = true)]
    max_failures: NonZeroU64,

    /// Measure this process: CPU, memory, disk, descriptors
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    /// Add the page at this URL to each resource sample
    ///
    /// For an edge, /status of its admin server: http://127.0.0.1:9900/status.
    #[arg(long, value_name = "URL")]
    status: Option<String>,

    /// Time between two samples of the resources
    #[arg(long, default_value = "1s", value_parser = duration, value_name = "TIME", hide_short_help = true)]
    interval: Duration,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Write an HTML page with plots
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

/// Replays the trace and prints the report. Exit codes: 0 every response was correct, 1 some requests failed.
pub(crate) fn run(args: ReplayArgs) -> anyhow::Result<ExitCode> {
    let inputs = args.trace.inputs()?;
    let total = match &args.warmup {
        Warmup::Share(_) => Some(count(&inputs, args.max_size)?),
        Warmup::Requests(_) => inputs.requests_max(),
    };
    let plan = args.plan(&inputs, total)?;
    let report = replay(&plan, &inputs, total)?;
    if let Some(path) = &args.report {
        std::fs::write(path, page::render(&report))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        output::print_json(&report)?;
    } else {
        text::print(&report)?;
        if let Some(path) = &args.report {
            eprintln!("report: {}", path.display());
        }
    }
    Ok(if report.errors_total == 0 && !report.stopped_early {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl ReplayArgs {
    fn plan(&self, inputs: &Inputs, total: Option<u64>) -> anyhow::Result<ReplayPlan> {
        let target = |flag: &str, url: &str| -> anyhow::Result<Target> {
            url.parse().with_context(|| format!("{flag} {url}"))
        };
        let mut plan = ReplayPlan::new(inputs.label(), target("--target", &self.target)?);
        if plan.target.has_tls() {
            let tls = edgeward_filter_client::client_config(self.ca.as_deref());
            plan.tls = Some(Arc::new(tls.context("--ca")?));
        } else if self.ca.is_some() {
            let message = "--ca is given, and the target has no TLS";
            let hint = "write --target https://HOST:PORT";
            return Err(Diagnostic::new(message).hint(hint).into());
        }
        plan.connections = self.connections;
        plan.workers = self.workers;
        plan.pacing = match (self.rate, self.speedup) {
            (Some(rate), _) => Pacing::Rate(rate),
            (None, Some(speedup)) => Pacing::TraceTime { speedup },
            (None, None) => Pacing::Closed,
        };
        plan.size_bytes_max = self.max_size.map(ByteSize::bytes);
        plan.warmup_requests = self.warmup.requests(total);
        plan.settle_sizes = !self.sizes_as_recorded;
        plan.timeout = self.timeout.max(Duration::from_millis(1));
        plan.failures_in_a_row_max = self.max_failures;
        plan.pid = self.pid;
        if let Some(url) = &self.status {
            let status = target("--status", url)?;
            if status.has_tls() {
                let message = "--status reads a page over http only";
                return Err(Diagnostic::new(message).into());
            }
            plan.status = Some(status);
        }
        plan.sample_interval = self.interval;
        Ok(plan)
    }
}

/// Reads the trace once to count its requests, because the user has given the warm-up as a share of them.
fn count(inputs: &Inputs, max_size: Option<ByteSize>) -> anyhow::Result<u64> {
    if inputs.contains_stdin() {
        return Err(Diagnostic::new(
            "--warmup as a share needs two passes over the trace, and stdin can be read only once",
        )
        .hint("give --warmup as a number of requests, or put the trace in a file")
        .into());
    }
    let size_bytes_max = max_size.map_or(u64::MAX, ByteSize::bytes);
    let mut requests = 0;
    inputs.for_each_batch(|batch| {
        let batch = batch.records;
        let sent = batch.iter().filter(|record| record.size <= size_bytes_max);
        requests += sent.count() as u64;
    })?;
    Ok(requests)
}

fn replay(plan: &ReplayPlan, inputs: &Inputs, total: Option<u64>) -> anyhow::Result<ReplayReport> {
    let progress = Progress::new("replaying", "requests", total);
    let live = Arc::clone(&plan.live);
    let result = thread::scope(|scope| {
        let replay = scope.spawn(|| load::run_from(plan, |feeder| feed(inputs, feeder)));
        while !replay.is_finished() {
            progress.set(live.requests());
            thread::park_timeout(PROGRESS_INTERVAL);
        }
        replay.join()
    });
    match result {
        Ok(Ok(report)) => Ok(report),
        // A `TraceReadError` contains the location and the hint of the error, so it is taken out of the `ReplayError`.
        Ok(Err(ReplayError::Trace { requests, source })) => {
            let error = match source.downcast::<TraceReadError>() {
                Ok(error) => error.0,
                Err(source) => anyhow::Error::from_boxed(source),
            };
            eprintln!("stopped after {} requests", output::count(requests));
            Err(error)
        }
        Ok(Err(error @ ReplayError::Connect { .. })) => Err(Diagnostic::from_error(&error)
            .hint("start the server under test, or give its address with --target")
            .into()),
        Ok(Err(error)) => Err(error.into()),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Reads the trace and passes its records to the replay, until the trace or the replay ends.
fn feed(inputs: &Inputs, feeder: &mut Feeder) -> Result<(), TraceReadError> {
    let mut queue_is_closed = false;
    let reading = inputs.read(None, |records| {
        for &record in records {
            if feeder.push(record).is_break() {
                queue_is_closed = true;
                anyhow::bail!("the replay takes no more records");
            }
        }
        Ok(())
    });
    let reading = match reading {
        Err(_) if queue_is_closed => return Ok(()),
        Err(error) => return Err(TraceReadError(error)),
        Ok(reading) => reading,
    };
    for file in &reading.files {
        if file.skipped.lines > 0 {
            let lines = output::count(file.skipped.lines);
            eprintln!("warning: {lines} malformed lines of {} skipped", file.label);
        }
    }
    match reading.error {
        Some(error) => Err(TraceReadError(error)),
        None => Ok(()),
    }
}

/// Wraps an error, so that it keeps its location and its hint while the library passes it on.
#[derive(Debug)]
struct TraceReadError(anyhow::Error);

impl std::fmt::Display for TraceReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for TraceReadError {}

fn positive(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|number: &f64| number.is_finite() && *number > 0.0)
        .ok_or_else(|| format!("`{text}` is not a positive number"))
}

const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  edgeward replay day.tr.zst --target http://127.0.0.1:8080
  edgeward replay day.tr.zst -t http://127.0.0.1:8080 --warmup 20% --pid 4242 --report run.html
  edgeward replay day.tr.zst -t http://127.0.0.1:8080 --speedup 10 --status http://127.0.0.1:9900/status
  edgeward replay bu98.tr.zst -t http://127.0.0.1:8080 --connections 1 --json | jq .object_hit_ratio

Requests are for /o/KEY?size=SIZE; `edgeward origin` behind the target serves these objects.
In a closed loop (neither --rate nor --speedup) a connection sends its next request after
the response to the last. In an open loop every request has a scheduled time, and its
latency counts from this time, even if no connection was free.

Exit codes: 0 every response was correct, 1 some requests failed, 2 the replay failed.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_positive() {
        assert_eq!(positive("0.5"), Ok(0.5));
        for text in ["0", "-1", "inf", "nan", ""] {
            assert!(positive(text).is_err(), "{text}");
        }
    }
}
