//! Measures hits from disk of edgeward, of nginx's cache and of a minimal `sendfile` server, on the same file system.
//! The servers take turns.
//!
//! The edge's memory admits no object, because its policy admits only objects of at most one byte. All hits of the edge
//! therefore come from disk, like those of nginx. To check this, the edge's own counter of disk hits is
//! compared with the client's count of responses.
//!
//! In the warm state, all files are in the page cache. In the cold state, the pages of the server's files are
//! dropped before each run (`posix_fadvise` after a sync). Pages of other programs and the file system's
//! metadata stay cached. Cached metadata helps nginx, which has many files, more than edgeward.

mod limits;
pub(super) mod sendfile_server;
mod test_servers;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::goal::{Bound, Goal};
use super::sample::share;
use crate::bench_shared::facts;
use crate::bench_shared::load;
use crate::bench_shared::median;
use crate::bench_shared::process::find;
use crate::options::{Options, format_size};
use crate::say;
use limits::{files_allowed, objects_at_most};
use test_servers::{Subject, TestServers};

pub(crate) const HELP: &str = "\
Compares hits from disk with nginx's proxy_cache on the same file system.

usage: cargo xtask bench-disk hits [options]

  --sizes LIST        sizes of the objects [16KiB,256KiB,1MiB]
  --states LIST       states of the page cache: warm, cold [warm,cold]
  --warm-set SIZE     total size of the objects in the warm state [128MiB]
  --cold-set SIZE     total size in the cold state; in a larger set, fewer
                      objects are requested twice in a run [1GiB]
  --runs N            runs of each server [3]
  --seconds N         duration of a run [3]
  --connections N     connections of wrk [64]
  --server-core N     core of the server [0]
  --client-core N     core of wrk and the origin [1]
  --dir FOLDER        folder for the caches [bench/scratch/disk]
  --edgeward NAME     a cargo profile or a path to the binary [release]
  --out FOLDER        for hits.jsonl and hits.md [bench/scratch/disk]
";

/// The goal: requests per CPU-second, divided by those of the best nginx variant.
const GOAL: f64 = 1.3;

/// The load for each server.
pub(crate) struct Plan {
    runs: u32,
    seconds: u64,
    connections: u32,
    pub(crate) server_core: u32,
    pub(crate) client_core: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Warm,
    Cold,
}

/// One run of one server.
struct Run {
    size: u64,
    state: State,
    subject: Subject,
    requests_per_cpu_second: f64,
    p99_us: f64,
    /// The bytes read from the device, as a share of the body bytes sent.
    from_device: f64,
    invalid_reason: Option<String>,
}

pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    let plan = Plan {
        runs: options.count("--runs", 3)?,
        seconds: options.count("--seconds", 3)?,
        connections: options.number("--connections", 64)?,
        server_core: options.number("--server-core", 0)?,
        client_core: options.number("--client-core", 1)?,
    };
    let states = options.choice("--states", &[State::Warm, State::Cold], State::name)?;
    let (warm_set, cold_set) = (
        options.size("--warm-set", 128 << 20)?,
        options.size("--cold-set", 1 << 30)?,
    );
    let edgeward = options.edgeward(root, "release")?;
    let folder = options.folder("--dir", root, "bench/scratch/disk")?;
    let out = options.folder("--out", root, "bench/scratch/disk")?;
    let mut raw = File::create(out.join("hits.jsonl"))?;
    let congestion = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    let congestion = congestion.unwrap_or_default().trim().to_owned();
    let objects_max = objects_at_most(files_allowed(), plan.connections);

    let mut runs = Vec::new();
    for size in options.sizes("--sizes", "16KiB,256KiB,1MiB")? {
        for &state in &states {
            let set = if state == State::Warm {
                warm_set
            } else {
                cold_set
            };
            let keys = (set / size).clamp(1, objects_max);
            eprintln!("{} {}: {keys} objects", state.name(), format_size(size));
            if keys < set / size {
                eprintln!(
                    "  fewer than {}: nginx keeps the file of each object open, and ulimit -Hn limits the open files",
                    set / size
                );
            }
            let mut test_servers = TestServers::start(&plan, root, &edgeward, &folder, size, keys)?;
            for round in 0..plan.runs {
                // Each round begins with another server.
                for position in 0..test_servers.subjects().len() {
                    let index = (position + round as usize) % test_servers.subjects().len();
                    let subject = test_servers.subjects()[index];
                    let run = measure(
                        &plan,
                        root,
                        &mut test_servers,
                        subject,
                        state,
                        round,
                        &mut raw,
                    )?;
                    eprintln!("  {}", run.line());
                    runs.push(run);
                }
            }
        }
    }
    let text = summary(&runs) + &congestion_text(&congestion);
    fs::write(out.join("hits.md"), &text)?;
    say(text);
    Ok(runs.iter().all(|run| run.invalid_reason.is_none()))
}

fn measure(
    plan: &Plan,
    root: &Path,
    test_servers: &mut TestServers,
    subject: Subject,
    state: State,
    round: u32,
    raw: &mut File,
) -> anyhow::Result<Run> {
    if state == State::Cold {
        test_servers.forget_pages(subject)?;
    }
    let origin_before = test_servers.origin_requests()?;
    let disk_before = test_servers.disk_hits(subject)?;
    let read_before = test_servers.read_bytes(subject)?;
    let cpu_before = test_servers.cpu_seconds(subject)?;
    let (size, keys) = (test_servers.size, test_servers.keys);
    let load = wrk(plan, root, size, keys, test_servers.port(subject), round)?;
    let cpu_seconds = test_servers.cpu_seconds(subject)? - cpu_before;
    let read_bytes = test_servers
        .read_bytes(subject)?
        .saturating_sub(read_before);
    let disk_hits = test_servers
        .disk_hits(subject)?
        .zip(disk_before)
        .map(|(after, before)| after - before);
    let origin_requests = test_servers
        .origin_requests()?
        .saturating_sub(origin_before);
    let from_device = share(read_bytes, load.requests * size);
    let invalid_reason = invalid_reason(
        state,
        load.requests,
        load.errors,
        origin_requests,
        disk_hits,
        from_device,
    );
    // The CPU clock has a resolution of 10 ms. The minimum avoids a division by zero.
    let requests_per_cpu_second = load.requests as f64 / cpu_seconds.max(0.01);
    let seconds = load.duration.as_secs_f64();
    let line = json!({
        "state": state.name(),
        "size": size,
        "keys": keys,
        "server": subject.to_string(),
        "round": round,
        "requests": load.requests,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "requests_per_cpu_second": requests_per_cpu_second,
        "requests_per_second": load.requests as f64 / seconds,
        "latency_us": load.latency_us,
        "errors": load.errors,
        "origin_requests": origin_requests,
        "disk_hits": disk_hits,
        "device_read_bytes": read_bytes,
        "load_average": facts::load_average(),
        "spoiled": invalid_reason,
    });
    writeln!(raw, "{line}")?;
    Ok(Run {
        size,
        state,
        subject,
        requests_per_cpu_second,
        p99_us: load.p99_us(),
        from_device,
        invalid_reason,
    })
}

/// Returns the reason why a run is invalid, or `None` for a valid run.
fn invalid_reason(
    state: State,
    requests: u64,
    errors: u64,
    origin_requests: u64,
    disk_hits: Option<u64>,
    from_device: f64,
) -> Option<String> {
    if requests == 0 {
        return Some("no request was answered".to_owned());
    }
    if errors > 0 {
        return Some(format!("{errors} of {requests} requests failed"));
    }
    if origin_requests > requests / 1000 {
        return Some(format!(
            "{origin_requests} of {requests} requests reached the origin"
        ));
    }
    // The edge may count more requests than wrk, because wrk does not count those that are pending when it stops.
    if let Some(hits) = disk_hits.filter(|&hits| hits < requests) {
        return Some(format!(
            "only {hits} of {requests} responses came from disk"
        ));
    }
    (state == State::Warm && from_device > 0.01).then(|| {
        format!(
            "{:.0} % of the bytes were not in the page cache",
            from_device * 100.0
        )
    })
}

fn wrk(
    plan: &Plan,
    root: &Path,
    size: u64,
    keys: u64,
    port: u16,
    seed: u32,
) -> anyhow::Result<load::LoadResult> {
    let output = Command::new("taskset")
        .args(["--cpu-list", &plan.client_core.to_string()])
        .arg(find("wrk")?)
        .args(["--threads", "1", "--latency", "--timeout", "10s"])
        .args(["--connections", &plan.connections.to_string()])
        .args([
            "--duration",
            &format!("{}s", Duration::from_secs(plan.seconds).as_secs()),
        ])
        .arg("--script")
        .arg(root.join("bench/disk/load.lua"))
        .arg(format!("http://127.0.0.1:{port}/"))
        .arg("--")
        .args([size.to_string(), keys.to_string(), (seed + 1).to_string()])
        .output()
        .context("wrk cannot be started")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "wrk: {}", text.trim());
    load::parse(&text)
}

impl Run {
    fn line(&self) -> String {
        let note = self
            .invalid_reason
            .as_ref()
            .map_or_else(String::new, |why| format!("  ! {why}"));
        format!(
            "{:<34} {:>8.0} /CPU-s  p99 {:>8.2} ms  {:>3.0} % from the device{note}",
            self.subject.to_string(),
            self.requests_per_cpu_second,
            self.p99_us / 1000.0,
            self.from_device * 100.0,
        )
    }
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cold => "cold",
        }
    }
}

/// Returns a table of the medians, and the ratio of edgeward to the best nginx variant.
fn summary(runs: &[Run]) -> String {
    let mut groups: Vec<(State, u64)> = Vec::new();
    for run in runs {
        if !groups.contains(&(run.state, run.size)) {
            groups.push((run.state, run.size));
        }
    }
    let mut out =
        "| page cache | object | server | requests per CPU-second | p99 | from the device |\n\
                   |---|---|---|---:|---:|---:|\n"
            .to_owned();
    let mut goals = String::new();
    for (state, size) in groups {
        let median_of = |subject: Subject, figure: fn(&Run) -> f64| {
            let counted = runs.iter().filter(|run| {
                (run.state, run.size, run.subject) == (state, size, subject)
                    && run.invalid_reason.is_none()
            });
            median(&counted.map(figure).collect::<Vec<_>>())
        };
        let mut best = 0.0_f64;
        for subject in Subject::ALL {
            let Some(rate) = median_of(subject, |run| run.requests_per_cpu_second) else {
                continue;
            };
            if matches!(subject, Subject::Nginx(..)) {
                best = best.max(rate);
            }
            out += &format!(
                "| {} | {} | {subject} | {rate:.0} | {:.2} ms | {:.0} % |\n",
                state.name(),
                format_size(size),
                median_of(subject, |run| run.p99_us).unwrap_or(f64::NAN) / 1000.0,
                median_of(subject, |run| run.from_device).unwrap_or(f64::NAN) * 100.0,
            );
        }
        if let Some(ours) = median_of(Subject::Edgeward, |run| run.requests_per_cpu_second)
            && best > 0.0
        {
            let goal = Goal {
                what: format!(
                    "{} hits of {}, divided by those of the best nginx",
                    state.name(),
                    format_size(size)
                ),
                measured: ours / best,
                bound: Bound::AtLeast(GOAL),
                unit: "x",
            };
            goals += &format!("{goal}\n");
            if let Some(sendfile_server) =
                median_of(Subject::SendfileServer, |run| run.requests_per_cpu_second)
            {
                goals += &format!(
                    "      divided by those of sendfile alone: edgeward {:.2}, nginx {:.2}\n",
                    ours / sendfile_server,
                    best / sendfile_server
                );
            }
        }
    }
    for run in runs.iter().filter(|run| run.invalid_reason.is_some()) {
        goals += &format!(
            "invalid: {} {}: {}\n",
            run.state.name(),
            format_size(run.size),
            run.line()
        );
    }
    format!("{out}\n```text\n{goals}```\n")
}

/// Returns a sentence about the congestion controls that edgeward and nginx used.
fn congestion_text(system: &str) -> String {
    if system.starts_with("bbr") {
        format!(
            "\nThe system's congestion control is {system}. nginx uses it; edgeward uses reno on a loopback address.\n\
             To make both use reno: sysctl net.ipv4.tcp_congestion_control=reno\n"
        )
    } else {
        format!("\nAll servers use {system}, the system's congestion control.\n")
    }
}

/// Returns the number of bytes that a process has read from devices.
fn device_read_bytes(pid: u32) -> u64 {
    fs::read_to_string(format!("/proc/{pid}/io"))
        .map_or(0, |text| super::sample::counter(&text, "read_bytes"))
}

/// Returns the number of disk hits on the status page of an edge.
fn disk_hits_on_page(status: &Value) -> u64 {
    super::servers::count(&status["disk_lookups"], "hit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_with_errors_misses_or_cold_pages_is_invalid() {
        let warm = |errors, origin, hits, device| {
            invalid_reason(State::Warm, 10_000, errors, origin, hits, device).is_none()
        };
        // 64 requests are pending when wrk stops; the edge counts them, but wrk does not.
        assert!(warm(0, 0, Some(10_064), 0.0));
        assert!(warm(0, 10, None, 0.01));
        assert!(!warm(1, 0, None, 0.0));
        assert!(!warm(0, 11, None, 0.0));
        assert!(!warm(0, 0, Some(9_999), 0.0));
        assert!(!warm(0, 0, None, 0.02));
        assert!(invalid_reason(State::Warm, 0, 0, 0, None, 0.0).is_some());
        assert!(invalid_reason(State::Cold, 10_000, 0, 0, None, 0.9).is_none());
    }

    #[test]
    fn the_goal_compares_with_the_best_nginx_variant() {
        let run = |subject, requests_per_cpu_second| Run {
            size: 16 << 10,
            state: State::Warm,
            subject,
            requests_per_cpu_second,
            p99_us: 1.0,
            from_device: 0.0,
            invalid_reason: None,
        };
        let runs = [
            run(Subject::Edgeward, 260.0),
            run(Subject::ALL[1], 200.0),
            run(Subject::ALL[2], 100.0),
            run(Subject::SendfileServer, 520.0),
        ];
        let text = summary(&runs);
        assert!(text.contains("ok ") && text.contains("1.30 x"), "{text}");
        assert!(text.contains("edgeward 0.50, nginx 0.38"), "{text}");
    }
}
