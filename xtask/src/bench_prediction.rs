//! Checks how well the simulator predicts the hit ratio of the server for the same trace.
//!
//! Each case starts a synthetic origin and an edge, and fetches one object to learn the edge's overhead per object.
//! Then the trace is replayed over HTTP and simulated with this overhead. A row shows the object hit ratios and
//! the byte hit ratios of both.
//!
//! In the simulator a fill takes no time. On the server, a request that arrives during a fill of its object
//! shares the fill. The server calls such a request `collapsed` in `Cache-Status`, and the simulator counts a
//! hit. With several connections the goal therefore applies to the sum of hits and collapsed requests: the
//! requests that caused no request to the origin. The ratio of hits alone is also shown.
//!
//! Requests also share fills of objects that the policy rejects, and the simulator counts misses for these. A few large
//! objects then change the byte hit ratio by several points. Its goal therefore applies to one connection only.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::bench_hits::client::Client;
use crate::bench_hits::facts;
use crate::bench_hits::process::{Scratch, Server, free_port};
use crate::options::Options;
use crate::say;

pub(crate) const HELP: &str = "\
Compares the hit ratio of the simulator with a replay.

usage: cargo xtask bench-prediction TRACE [options]

  --capacities LIST   capacities of the cache [1MiB,4MiB]
  --policies LIST     policies of the cache [lru,adaptsize,gdsf,density]
  --workers LIST      workers of the edge [1,2]
  --requests N        only the first N requests of the trace
  --connections N     connections of the replay [4]
  --window N          requests between two tunings of AdaptSize [250000]
  --edgeward NAME     a cargo profile or a path to the binary [release]
  --out FOLDER        for prediction.jsonl [bench/scratch/prediction]
";

/// The maximum difference in percentage points of the object hit ratio: for one worker, and for several workers.
const GOALS_POINTS: (f64, f64) = (0.5, 1.0);

/// The maximum difference in percentage points of the byte hit ratio, for one connection.
const GOAL_BYTES_POINTS: f64 = 1.5;

/// The size of the object that is fetched to learn the overhead.
const PROBE_BYTES: u64 = 1024;

/// The number of bytes that the edge charges for the body of this object, computed by
/// `edgeward_types::allocated_bytes`.
const PROBE_BODY_BYTES: u64 = 1088;

pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    let plan = Plan::from_options(root, options)?;
    fs::create_dir_all(&plan.out)?;
    let mut rows = Vec::new();
    for &workers in &plan.workers {
        for policy in &plan.policies {
            for capacity in &plan.capacities {
                let row = plan.measure(workers, policy, capacity)?;
                say(row.line());
                rows.push(row);
            }
        }
    }
    let path = plan.out.join("prediction.jsonl");
    let mut text = fs::read_to_string(&path).unwrap_or_default();
    for row in &rows {
        text.push_str(&row.json(&plan).to_string());
        text.push('\n');
    }
    fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
    say(format!("\nrows appended to {}\n", path.display()));
    Ok(rows.iter().all(Row::meets_goal))
}

struct Plan {
    trace: PathBuf,
    capacities: Vec<String>,
    policies: Vec<String>,
    workers: Vec<u32>,
    requests: Option<u64>,
    connections: u32,
    window: Option<u32>,
    edgeward: PathBuf,
    out: PathBuf,
}

impl Plan {
    fn from_options(root: &Path, options: &Options) -> anyhow::Result<Self> {
        let trace = options.positional().first().map(PathBuf::from);
        let trace = trace.context("the trace is missing\n  hint: --help prints the usage")?;
        ensure!(trace.is_file(), "{} does not exist", trace.display());
        Ok(Self {
            trace,
            capacities: options.list("--capacities", "1MiB,4MiB")?,
            policies: options.list("--policies", "lru,adaptsize,gdsf,density")?,
            workers: options.numbers("--workers", "1,2")?,
            requests: options.number_given("--requests")?,
            connections: options.number("--connections", 4)?,
            window: options.number_given("--window")?,
            out: options.path("--out", root, "bench/scratch/prediction"),
            edgeward: options.edgeward(root, "release")?,
        })
    }

    fn measure(&self, workers: u32, policy: &str, capacity: &str) -> anyhow::Result<Row> {
        let scratch = Scratch::new(&std::env::temp_dir())?;
        let (origin_port, port, admin) = (free_port()?, free_port()?, free_port()?);
        let start = |name, line: String, port| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Server::start_unpinned(name, &self.edgeward, &words, port, &scratch.path)
        };
        let _origin = start(
            "origin",
            format!("origin --listen 127.0.0.1:{origin_port} --cache-control max-age=86400"),
            origin_port,
        )?;
        let config = scratch.path.join("edge.toml");
        let window = self
            .window
            .map_or_else(String::new, |n| format!("window_requests = {n}\n"));
        fs::write(&config, format!("[hot]\n{window}"))?;
        let _edge = start(
            "edge",
            format!(
                "serve --config {} --listen 127.0.0.1:{port} --admin 127.0.0.1:{admin} \
                 --origin http://127.0.0.1:{origin_port} --hot {capacity} --policy {policy} \
                 --workers {workers}",
                config.display()
            ),
            port,
        )?;
        let hot = |key: &str| -> anyhow::Result<u64> {
            let status: Value =
                serde_json::from_slice(&Client::connect(admin)?.get_page("/status")?)?;
            status["hot"][key]
                .as_u64()
                .with_context(|| format!("/status has no hot.{key}"))
        };
        Client::connect(port)?.get(&format!("/o/1000000?size={PROBE_BYTES}"))?;
        let overhead = hot("used_bytes")?
            .checked_sub(PROBE_BODY_BYTES)
            .context("the edge did not store the first object")?;

        let limit = self
            .requests
            .map_or_else(Vec::new, |n| vec!["--requests".to_owned(), n.to_string()]);
        let replay = self.json(
            [
                "replay",
                "--target",
                &format!("http://127.0.0.1:{port}"),
                "--connections",
                &self.connections.to_string(),
            ],
            &limit,
        )?;
        let mut more = limit;
        if let Some(window) = self.window {
            more.extend(["--window".to_owned(), window.to_string()]);
        }
        let simulation = self.json(
            [
                "simulate",
                "--no-series",
                "--policy",
                policy,
                "--capacity",
                capacity,
                "--object-overhead",
                &overhead.to_string(),
            ],
            &more,
        )?;
        let ratio = |value: &Value| value.as_f64().context("the JSON has no hit ratio");
        let errors: u64 = replay["errors"]
            .as_object()
            .map_or(0, |kinds| kinds.values().filter_map(Value::as_u64).sum());
        let requests = replay["requests"]
            .as_u64()
            .context("the JSON has no requests")?;
        let collapsed = &replay["classes"]["collapsed"];
        let share = |collapsed: &Value, all: &Value| {
            collapsed.as_f64().unwrap_or(0.0) / all.as_f64().unwrap_or(0.0).max(1.0)
        };
        let collapsed_bytes = share(&collapsed["body_bytes"], &replay["body_bytes"]);
        let collapsed = share(&collapsed["requests"], &replay["requests"]);
        Ok(Row {
            workers,
            connections: self.connections,
            policy: policy.to_owned(),
            capacity: capacity.to_owned(),
            overhead,
            requests,
            errors,
            simulated: ratio(&simulation["runs"][0]["object_hit_ratio"])?,
            hits_only: ratio(&replay["object_hit_ratio"])?,
            measured: ratio(&replay["object_hit_ratio"])? + collapsed,
            simulated_bytes: ratio(&simulation["runs"][0]["byte_hit_ratio"])?,
            measured_bytes: ratio(&replay["byte_hit_ratio"])? + collapsed_bytes,
            seconds: replay["duration_seconds"].as_f64().unwrap_or(0.0),
        })
    }

    /// Runs an edgeward command over the trace and parses its JSON.
    fn json<'a>(
        &self,
        arguments: impl IntoIterator<Item = &'a str>,
        more: &[String],
    ) -> anyhow::Result<Value> {
        let output = Command::new(&self.edgeward)
            .args(arguments)
            .args(more)
            .arg("--json")
            .arg(&self.trace)
            .stderr(Stdio::inherit())
            .output()?;
        ensure!(
            output.status.success(),
            "edgeward ended with {}",
            output.status
        );
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// The results of one case.
struct Row {
    workers: u32,
    connections: u32,
    policy: String,
    capacity: String,
    /// The bytes that the edge charges for an object in addition to its body.
    overhead: u64,
    requests: u64,
    errors: u64,
    /// The object hit ratio in the simulation.
    simulated: f64,
    /// The ratio of hits and collapsed requests to all requests of the replay.
    measured: f64,
    /// The byte hit ratio in the simulation.
    simulated_bytes: f64,
    /// The ratio of the bytes of hits and collapsed requests to all bytes of the replay.
    measured_bytes: f64,
    /// The ratio of hits alone to all requests of the replay.
    hits_only: f64,
    seconds: f64,
}

impl Row {
    fn difference_points(&self) -> f64 {
        (self.simulated - self.measured) * 100.0
    }

    fn difference_bytes_points(&self) -> f64 {
        (self.simulated_bytes - self.measured_bytes) * 100.0
    }

    fn goal_points(&self) -> f64 {
        if self.workers == 1 {
            GOALS_POINTS.0
        } else {
            GOALS_POINTS.1
        }
    }

    fn meets_goal(&self) -> bool {
        self.errors == 0
            && self.difference_points().abs() <= self.goal_points()
            && (self.connections > 1 || self.difference_bytes_points().abs() <= GOAL_BYTES_POINTS)
    }

    fn line(&self) -> String {
        format!(
            "{} workers {}  {:<18} {:>8}  simulated {:.4}  measured {:.4}  difference {:+.2} points \
             (goal {}; hits only {:.4})  bytes {:.4}, {:.4}, {:+.2} points  \
             {} requests, {} errors, {:.0} s\n",
            if self.meets_goal() { "ok  " } else { "FAIL" },
            self.workers,
            self.policy,
            self.capacity,
            self.simulated,
            self.measured,
            self.difference_points(),
            self.goal_points(),
            self.hits_only,
            self.simulated_bytes,
            self.measured_bytes,
            self.difference_bytes_points(),
            self.requests,
            self.errors,
            self.seconds,
        )
    }

    fn json(&self, plan: &Plan) -> Value {
        json!({
            "date": facts::today(),
            "trace": plan.trace.file_name().map(|name| name.to_string_lossy().into_owned()),
            "requests": self.requests,
            "workers": self.workers,
            "connections": plan.connections,
            "policy": self.policy,
            "capacity": self.capacity,
            "window_requests": plan.window,
            "object_overhead_bytes": self.overhead,
            "simulated_object_hit_ratio": self.simulated,
            "measured_object_hit_ratio": self.measured,
            "measured_hits_only_ratio": self.hits_only,
            "difference_points": self.difference_points(),
            "simulated_byte_hit_ratio": self.simulated_bytes,
            "measured_byte_hit_ratio": self.measured_bytes,
            "difference_bytes_points": self.difference_bytes_points(),
            "errors": self.errors,
            "seconds": self.seconds,
        })
    }
}
