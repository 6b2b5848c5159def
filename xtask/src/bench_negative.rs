//! Measures the cost of an id filter on an edge, and how fast the edge answers from the filter.
//!
//! Two edges run, one of them with a filter of many ids. They get requests for cached objects in turn. The filter does
//! not affect hits, so the CPU time per request should be equal. Then the edge with the filter gets requests for absent
//! ids. For comparison, nginx with `return 404` gets the same requests. The resident sets of both edges are
//! shown beside the filter's size.

mod test_servers;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use crate::bench_shared::facts;
use crate::bench_shared::median;
use crate::bench_shared::process::find;
use crate::options::Options;
use crate::say;

use test_servers::{Server, TestServers};

pub(crate) const HELP: &str = "\
Compares an edge with an id filter to one without.

usage: cargo xtask bench-negative [options]

  --ids N            number of ids in the filter [100000000]
  --runs N           pairs of runs [7]
  --seconds N        duration of a run [4]
  --connections N    connections of wrk [64]
  --server-core N    core of the servers [0]
  --client-core N    core of wrk and the origin [1]
  --edgeward NAME    a cargo profile or a path to the binary [release]
  --folder FOLDER    the filter, kept for later runs [bench/scratch/negative]
  --build-only       only build the filter
  --out FOLDER       for runs.jsonl and summary.md [bench/scratch/negative]
";

struct Plan {
    ids: u64,
    runs: u32,
    seconds: u64,
    connections: u32,
    server_core: u32,
    client_core: u32,
    edgeward: PathBuf,
    folder: PathBuf,
    build_only: bool,
    out: PathBuf,
}

pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    let plan = Plan::from_options(root, options)?;
    for folder in [&plan.folder, &plan.out] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let filter = filter(&plan)?;
    if plan.build_only {
        return Ok(true);
    }
    let machine = facts::common(root, &plan.edgeward);
    let test_servers = TestServers::start(&plan, root, &filter)?;
    let memory = test_servers.memory(&filter)?;
    test_servers.fill()?;
    let mut raw = File::create(plan.out.join("runs.jsonl"))?;
    writeln!(raw, "{memory}")?;
    let mut runs = Vec::new();
    // These runs of one second are a warm-up for connections, allocators and branch predictors. Their results are
    // dropped.
    for (server, kind) in MEASUREMENTS {
        measure(&plan, root, &test_servers, server, kind, 1, 0)?;
    }
    for round in 0..plan.runs {
        for position in 0..MEASUREMENTS.len() {
            // The order changes with each round, so that neither edge is always first.
            let index = if round % 2 == 0 {
                position
            } else {
                MEASUREMENTS.len() - 1 - position
            };
            let (server, kind) = MEASUREMENTS[index];
            let run = measure(
                &plan,
                root,
                &test_servers,
                server,
                kind,
                plan.seconds,
                round,
            )?;
            eprintln!(
                "  {:<30} {kind:<7} {:>9.0} /CPU-s",
                server.name(),
                run["requests_per_cpu_second"].as_f64().unwrap_or(f64::NAN)
            );
            writeln!(raw, "{run}")?;
            runs.push(run);
        }
    }
    let text = summary(&plan, &machine, &memory, &runs);
    fs::write(plan.out.join("summary.md"), &text)?;
    fs::write(plan.out.join("machine.json"), format!("{machine:#}\n"))?;
    say(&text);
    Ok(true)
}

/// The servers and the kinds of requests in each round.
const MEASUREMENTS: [(Server, &str); 4] = [
    (Server::WithoutFilter, "hit"),
    (Server::WithFilter, "hit"),
    (Server::WithFilter, "absent"),
    (Server::Nginx, "absent"),
];

/// Returns the filter file. The filter contains the integers from 1 on.
fn filter(plan: &Plan) -> anyhow::Result<PathBuf> {
    let path = plan.folder.join(format!("{}.ids", plan.ids));
    if path.exists() {
        return Ok(path);
    }
    eprintln!("building a filter of {} ids", plan.ids);
    let build = format!(
        "seq -f %.0f 1 {} | '{}' filter build --source - --ids integer --fpr 1% -o '{}'",
        plan.ids,
        plan.edgeward.display(),
        path.display()
    );
    let built = Command::new("bash")
        .args(["-o", "pipefail", "-c", &build])
        .status()
        .context("bash and seq are needed")?;
    ensure!(built.success(), "`{build}` failed");
    Ok(path)
}

/// Measures one run against one server, and checks its responses.
fn measure(
    plan: &Plan,
    root: &Path,
    test_servers: &TestServers,
    server: Server,
    kind: &str,
    seconds: u64,
    round: u32,
) -> anyhow::Result<Value> {
    let origin_before = test_servers.origin_requests()?;
    // The CPU ticks that the host took from this virtual machine, and all ticks.
    let (stolen_before, ticks_before) = facts::stolen();
    let cpu_before = test_servers.cpu_seconds(server)?;
    let output = Command::new("taskset")
        .args(["--cpu-list", &plan.client_core.to_string()])
        .arg(find("wrk")?)
        .args(["--threads", "1", "--latency", "--timeout", "10s"])
        .args(["--connections", &plan.connections.to_string()])
        .args(["--duration", &format!("{seconds}s"), "--script"])
        .arg(root.join("bench/negative/load.lua"))
        .arg(format!("http://127.0.0.1:{}/", test_servers.port(server)))
        .args(["--", kind, &KEYS.to_string(), &plan.ids.to_string()])
        .output()
        .context("wrk cannot be started")?;
    let cpu = test_servers.cpu_seconds(server)? - cpu_before;
    let (stolen, ticks) = facts::stolen();
    let to_origin = test_servers.origin_requests()? - origin_before;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("result "));
    let line = line.with_context(|| format!("wrk's script printed no result:\n{text}"))?;
    let load: Value = serde_json::from_str(line).context("the result of wrk's script")?;
    let number = |key: &str| load[key].as_f64().unwrap_or(f64::NAN);
    let requests = number("requests");
    let errors = load["errors"].as_object().into_iter().flatten();
    let errors: u64 = errors.filter_map(|(_, count)| count.as_u64()).sum();
    // `refused` is the share of responses with status 404. One in a hundred absent ids passes the filter. The origin
    // answers these requests, because it has an object for every path.
    let refused = number("refused") / requests;
    let is_right = match (kind, server) {
        ("hit", _) => refused == 0.0 && to_origin as f64 <= requests / 1000.0,
        (_, Server::Nginx) => refused == 1.0,
        _ => (0.985..0.996).contains(&refused),
    };
    if errors > 0 || !is_right {
        bail!(
            "{} answered {kind} requests wrongly: {errors} errors, {:.2} % with status 404, {to_origin} to the origin",
            server.name(),
            refused * 100.0
        );
    }
    Ok(json!({
        "server": server.name(),
        "kind": kind,
        "round": round,
        "requests": requests,
        "refused_share": refused,
        "origin_requests": to_origin,
        "seconds": number("duration_us") / 1e6,
        "cpu_seconds": (cpu * 100.0).round() / 100.0,
        "requests_per_cpu_second": (requests / cpu).round(),
        "latency_us": load["latency_us"],
        "stolen_share": (stolen - stolen_before) as f64 / (ticks - ticks_before).max(1) as f64,
        "load_average": facts::load_average(),
    }))
}

fn summary(plan: &Plan, machine: &Value, memory: &Value, runs: &[Value]) -> String {
    let speeds = |server: Server, kind: &str| -> Vec<f64> {
        let is_selected = |run: &&Value| run["server"] == server.name() && run["kind"] == kind;
        let speed = |run: &Value| run["requests_per_cpu_second"].as_f64();
        runs.iter().filter(is_selected).filter_map(speed).collect()
    };
    let (without, with) = (
        speeds(Server::WithoutFilter, "hit"),
        speeds(Server::WithFilter, "hit"),
    );
    let ratios = with
        .iter()
        .zip(&without)
        .map(|(with, without)| with / without);
    let ratios: Vec<f64> = ratios.collect();
    let (absent, nginx) = (
        speeds(Server::WithFilter, "absent"),
        speeds(Server::Nginx, "absent"),
    );
    let mib = |key: &str| memory[key].as_f64().unwrap_or(f64::NAN) / f64::from(1 << 20);
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    format!(
        "# An edge with a filter of {} ids, {}\n\n\
         `cargo xtask {}` at commit {}, {} cores of {}, load {}.\n\n\
         | requests per CPU-second, median of {} | |\n|---|---|\n\
         | hits without a filter | {:.0} |\n| hits with a filter | {:.0} |\n\
         | median ratio of the pairs | {:.3} ({least:.3} to {most:.3}) |\n\
         | 404 from the filter (1 % pass to the origin) | {:.0} |\n\
         | nginx, `return 404` | {:.0} |\n\n\
         | memory | MiB |\n|---|---|\n\
         | resident without the filter | {:.1} |\n| resident with the filter | {:.1} |\n| difference | {:.1} |\n\
         | the filter | {:.1} |\n",
        plan.ids,
        machine["date"].as_str().unwrap_or_default(),
        machine["command"].as_str().unwrap_or_default(),
        machine["commit"].as_str().unwrap_or_default(),
        machine["cores"],
        machine["cpu"].as_str().unwrap_or_default(),
        machine["load_average"],
        ratios.len(),
        median_or_nan(&without),
        median_or_nan(&with),
        median_or_nan(&ratios),
        median_or_nan(&absent),
        median_or_nan(&nginx),
        mib("rss_without"),
        mib("rss_with"),
        mib("rss_with") - mib("rss_without"),
        mib("filter_bytes"),
    )
}

/// Returns the median, or NaN for an empty list.
fn median_or_nan(numbers: &[f64]) -> f64 {
    median(numbers).unwrap_or(f64::NAN)
}

impl Plan {
    fn from_options(root: &Path, options: &Options) -> anyhow::Result<Self> {
        let ids = options.number("--ids", 100_000_000)?;
        // The keys of hits are the first multiples of 7919, and all must be among the ids.
        ensure!(
            ids >= KEYS * 7919,
            "--ids needs at least {} ids",
            KEYS * 7919
        );
        Ok(Self {
            ids,
            runs: options.number("--runs", 7)?,
            seconds: options.number("--seconds", 4)?,
            connections: options.number("--connections", 64)?,
            server_core: options.number("--server-core", 0)?,
            client_core: options.number("--client-core", 1)?,
            folder: options.path("--folder", root, "bench/scratch/negative"),
            build_only: options.is_set("--build-only"),
            out: options.path("--out", root, "bench/scratch/negative"),
            edgeward: options.edgeward(root, "release")?,
        })
    }
}

/// The number of objects that are requested as hits, 1 KiB each.
const KEYS: u64 = 1000;

/// The timeout for filling the caches.
const FILL_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_ids_than_the_hits_need_are_rejected() {
        let words = ["--ids", "1000"].map(str::to_owned);
        let options = Options::parse(HELP, words.into_iter());
        let options = options
            .expect("the options are valid")
            .expect("the words do not ask for help");
        let refused = Plan::from_options(Path::new("/"), &options);
        assert!(refused.is_err_and(|error| error.to_string().contains("at least")));
    }
}
