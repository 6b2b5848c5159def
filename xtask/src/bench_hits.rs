//! Compares edgeward, nginx and Varnish: `cargo xtask bench-hits`.
//!
//! The figure is requests per CPU-second of the server. CPU time is the user and system time during a run,
//! including child processes. Idle time does not count, so the figure hardly changes if the client is too slow to
//! saturate the server. The servers of one workload run at the same time, and all but the measured one are idle. The
//! order in which they are measured changes with each round.
//!
//! The origin counts its requests. A run is valid only if no request failed, at most 0.1 % of the hits reached the
//! origin, and at least 99 % of the misses and passes reached it.

pub(crate) mod client;
pub(crate) mod facts;
pub(crate) mod load;
mod plan;
pub(crate) mod process;
pub(crate) mod subjects;
pub(crate) mod summary;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::options::{Options, edgeward_binary};
use crate::say;

pub(crate) use plan::HELP;
use plan::{Kind, Plan, Workload};
use subjects::{RunningServer, TestServers};
use summary::Run;

/// Runs the benchmark and writes the results. Returns true if every run is valid.
pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    let plan = Plan::from_options(options)?;
    let cores = std::thread::available_parallelism()?.get();
    ensure!(
        cores >= 2,
        "the server and wrk need one core each, but this machine has {cores}"
    );
    let has_edgeward = plan.servers.iter().any(|server| server.is_edgeward());
    let edgeward = if has_edgeward {
        edgeward_binary(&plan.edgeward, root)?
    } else {
        PathBuf::new()
    };

    let out = results_folder(&plan, root)?;
    let machine = facts::machine(root, &edgeward, &plan);
    fs::write(out.join("machine.json"), format!("{machine:#}\n"))?;
    let mut raw = File::create(out.join("runs.jsonl"))?;

    let mut runs = Vec::new();
    for &workload in &plan.workloads {
        runs.extend(measure_workload(
            &plan, root, &edgeward, workload, &mut raw,
        )?);
        // The summary is written after each workload, so that an interrupted benchmark leaves its results.
        let text = summary::markdown(&runs, &plan.workloads, &plan.servers);
        fs::write(out.join("summary.md"), preface(&machine) + &text)?;
    }
    say(summary::markdown(&runs, &plan.workloads, &plan.servers));
    say(format!("raw results: {}\n", out.display()));
    Ok(runs.iter().all(|run| run.invalid_reason.is_none()))
}

fn measure_workload(
    plan: &Plan,
    root: &Path,
    edgeward: &Path,
    workload: Workload,
    raw: &mut File,
) -> anyhow::Result<Vec<Run>> {
    eprintln!("{workload}");
    let mut test_servers = TestServers::start(plan, root, edgeward, workload)?;
    let subjects = test_servers.subjects().to_vec();
    for &running in &subjects {
        if workload.kind == Kind::Hit {
            test_servers.fill(running, workload, plan.keys)?;
        }
        // This run is a warm-up for connections, allocators and branch predictors. Its result is dropped.
        load::run(
            plan,
            root,
            workload,
            running.port,
            Duration::from_secs(1),
            tag(),
        )?;
    }
    let mut runs = Vec::new();
    for round in 0..plan.runs {
        for position in 0..subjects.len() {
            let running = subjects[(position + round as usize) % subjects.len()];
            let run = measure(plan, root, &mut test_servers, running, workload, round, raw)?;
            let note = run
                .invalid_reason
                .as_ref()
                .map_or(String::new(), |why| format!("  ! {why}"));
            eprintln!(
                "  {:<38} {:>9.0} /CPU-s  p99 {:>8.2} ms{note}",
                run.subject.to_string(),
                run.per_cpu_second,
                run.p99_us / 1000.0
            );
            runs.push(run);
        }
    }
    Ok(runs)
}

fn measure(
    plan: &Plan,
    root: &Path,
    test_servers: &mut TestServers,
    running: RunningServer,
    workload: Workload,
    round: u32,
    raw: &mut File,
) -> anyhow::Result<Run> {
    let origin_before = test_servers.origin_requests()?;
    // The ticks that the host took from this virtual machine, and all ticks.
    let (stolen_before, ticks_before) = facts::stolen();
    let cpu_before = test_servers.cpu_seconds(running)?;
    let duration = Duration::from_secs(plan.seconds.into());
    let load = load::run(plan, root, workload, running.port, duration, tag())?;
    let cpu_seconds = test_servers.cpu_seconds(running)? - cpu_before;
    let (stolen, ticks) = facts::stolen();
    let origin_requests = test_servers.origin_requests()? - origin_before;
    ensure!(
        cpu_seconds > 0.0,
        "{} used no CPU time for {} requests",
        running.subject,
        load.requests
    );

    let invalid_reason = invalid_reason(workload.kind, load.requests, load.errors, origin_requests);
    let seconds = load.duration.as_secs_f64();
    let per_cpu_second = load.requests as f64 / cpu_seconds;
    let line = json!({
        "workload": workload.to_string(),
        "kind": workload.kind.name(),
        "transport": workload.transport.name(),
        "size": workload.size,
        "server": running.subject.to_string(),
        "round": round,
        "requests": load.requests,
        "seconds": (seconds * 1000.0).round() / 1000.0,
        "cpu_seconds": (cpu_seconds * 100.0).round() / 100.0,
        "requests_per_cpu_second": per_cpu_second.round(),
        "requests_per_second": (load.requests as f64 / seconds).round(),
        "server_core_busy": (cpu_seconds / seconds * 1000.0).round() / 1000.0,
        "latency_us": load.latency_us,
        "errors": load.errors,
        "origin_requests": origin_requests,
        "stolen_share": (stolen - stolen_before) as f64 / (ticks - ticks_before).max(1) as f64,
        "load_average": facts::load_average(),
        "spoiled": invalid_reason,
    });
    writeln!(raw, "{line}")?;
    Ok(Run {
        workload,
        subject: running.subject,
        per_cpu_second,
        p99_us: load.p99_us(),
        invalid_reason,
    })
}

/// Returns the reason why a run is invalid, or `None` for a valid run.
fn invalid_reason(kind: Kind, requests: u64, errors: u64, origin_requests: u64) -> Option<String> {
    if errors > 0 {
        return Some(format!("{errors} of {requests} requests failed"));
    }
    match kind {
        _ if requests == 0 => Some("no request was answered".to_owned()),
        Kind::Hit if origin_requests > requests / 1000 => Some(format!(
            "{origin_requests} of {requests} hits reached the origin"
        )),
        // Every request has its own key. The origin also counts requests that were pending at the end, so there is no
        // upper limit.
        Kind::Miss | Kind::Pass if origin_requests < requests / 100 * 99 => Some(format!(
            "only {origin_requests} of {requests} misses reached the origin"
        )),
        _ => None,
    }
}

/// Returns a number that no other run on this machine has used, so that its keys are new.
fn tag() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the folder for the results. Without `--out`, a plan that options reduce writes to the scratch folder. A
/// whole plan gets a new folder each time, so its results are never overwritten.
fn results_folder(plan: &Plan, root: &Path) -> anyhow::Result<PathBuf> {
    let folder = if let Some(named) = &plan.out {
        named.clone()
    } else if plan.partial {
        root.join("bench/scratch/hits")
    } else {
        let name = format!("{}-hits", facts::today());
        let numbered = (2..100).map(|n| format!("{name}-{n}"));
        let mut candidates = [name.clone()]
            .into_iter()
            .chain(numbered)
            .map(|name| root.join("bench/runs").join(name));
        candidates
            .find(|folder| !folder.exists())
            .context("bench/runs already has a hundred results of today")?
    };
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

fn preface(machine: &serde_json::Value) -> String {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or("unknown").to_owned();
    let versions = &machine["versions"];
    let changes = if machine["uncommitted_changes"] == true {
        ", with uncommitted changes"
    } else {
        ""
    };
    format!(
        "# edgeward, nginx and Varnish compared, {}\n\n\
         `cargo xtask {}` at commit {}{changes}. {} cores of {}, {}, Linux {}. {}, {}, {}, {}.\n\n\
         The server has one core; wrk and the origin share another core. Runs of the servers alternate. A run \
         is valid only if no request failed, at most 0.1 % of the hits reached the origin, and at least 99 % of the \
         misses and passes reached it. [runs.jsonl](runs.jsonl) has each run, and [machine.json](machine.json) \
         describes the machine.\n\n",
        text(&machine["date"]),
        text(&machine["command"]),
        text(&machine["commit"]),
        machine["cores"],
        text(&machine["cpu"]),
        text(&machine["memory"]),
        text(&machine["kernel"]),
        text(&versions["edgeward"]),
        text(&versions["nginx"]),
        text(&versions["varnish"]),
        text(&versions["wrk"]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_with_errors_or_unexpected_origin_requests_is_invalid() {
        assert_eq!(invalid_reason(Kind::Hit, 100_000, 0, 0), None);
        assert_eq!(invalid_reason(Kind::Hit, 100_000, 0, 100), None);
        assert!(invalid_reason(Kind::Hit, 0, 0, 0).is_some());
        assert!(invalid_reason(Kind::Hit, 100_000, 0, 101).is_some());
        assert!(invalid_reason(Kind::Hit, 100_000, 1, 0).is_some());
        assert_eq!(invalid_reason(Kind::Miss, 100_000, 0, 100_064), None);
        assert_eq!(invalid_reason(Kind::Pass, 100_000, 0, 99_000), None);
        assert!(invalid_reason(Kind::Miss, 100_000, 0, 98_999).is_some());
    }
}
