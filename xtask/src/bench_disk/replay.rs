//! Replays one trace for each disk admission rule.
//!
//! Each run has a fresh folder, origin and edge. At a fixed rate (`--rate`) all runs send the same requests in their
//! n-th second, so the curves of the page are comparable over time. In a closed loop (`--rate max`) each run goes as
//! fast as it can, and the horizontal axis shows requests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use super::goal::{Bound, Goal};
use super::page;
use super::sample::{Sample, SampleTargets, Sampler, device_of, share};
use super::servers::{Edge, Origin};
use crate::bench_shared::facts;
use crate::bench_shared::process::Scratch;
use crate::options::{Options, format_size};
use crate::say;

pub(crate) const HELP: &str = "\
Replays a trace through the server once for each rule of admission to disk.

usage: cargo xtask bench-disk replay [TRACE] [options]

  TRACE               default: a synthetic trace of 300,000 web requests
  --requests N        only the first N requests of the trace
  --max-size SIZE     skip requests for larger objects
  --hot SIZE          memory for hot objects [64MiB; 8MiB without TRACE]
  --disk SIZE         capacity of the disk cache [1GiB; 128MiB without TRACE]
  --policy NAME       policy of the memory tier [lru]
  --admissions LIST   admission rules of the disk tier [always,second-hit]
  --rate N            requests per second, or max for a closed loop
                      [1000; 3000 without TRACE]
  --connections N     connections of the replay [32]
  --dir FOLDER        folder for the disk cache [bench/scratch/disk]
  --edgeward NAME     a cargo profile or a path to the binary [release]
  --out FOLDER        for replay.jsonl, series.csv and replay.html
                      [bench/scratch/disk]
  --json yes          also print the rows as JSON
";

/// The part of the server's memory budget for code, stacks, connections and the allocator. An idle server uses 11 MiB.
const PROGRAM_BYTES: u64 = 48 << 20;

pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    let plan = Plan::from_options(root, options)?;
    let mut rows = Vec::new();
    for admission in &plan.admissions {
        let row = plan.measure(admission)?;
        say(format!("{}\n", row.line()));
        rows.push(row);
    }
    let goals = goals(&rows);
    for goal in &goals {
        say(format!("{goal}\n"));
    }
    write_results(&plan, &rows, &goals)?;
    if options.value("--json") == Some("yes") {
        rows.iter()
            .for_each(|row| say(format!("{}\n", row.json(&plan))));
    }
    say(format!(
        "rows, series and page: {}\n",
        plan.out.join("replay.html").display()
    ));
    Ok(rows.iter().all(|row| row.errors == 0))
}

/// The options of the command.
pub(crate) struct Plan {
    pub(crate) trace: PathBuf,
    pub(crate) requests: Option<u64>,
    max_size: Option<u64>,
    pub(crate) hot_bytes: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) policy: String,
    admissions: Vec<String>,
    /// Requests per second; `None` means a closed loop.
    pub(crate) rate: Option<f64>,
    pub(crate) connections: u32,
    folder: PathBuf,
    edgeward: PathBuf,
    pub(crate) out: PathBuf,
}

impl Plan {
    fn from_options(root: &Path, options: &Options) -> anyhow::Result<Self> {
        let edgeward = options.edgeward(root, "release")?;
        let folder = options.folder("--dir", root, "bench/scratch/disk")?;
        let (trace, hot, disk, requests_per_second) = match options.positional() {
            [] => (
                synthetic_trace(&edgeward, &folder)?,
                8 << 20,
                128 << 20,
                3000.0,
            ),
            [trace] => (PathBuf::from(trace), 64 << 20, 1 << 30, 1000.0),
            _ => bail!("give only one trace"),
        };
        ensure!(trace.is_file(), "{} does not exist", trace.display());
        let requests = options.number("--requests", 0)?;
        let max_size = options.size("--max-size", 0)?;
        let rate = match options.value("--rate") {
            Some("max") => None,
            _ => Some(options.number("--rate", requests_per_second)?),
        };
        Ok(Self {
            trace,
            requests: (requests > 0).then_some(requests),
            max_size: (max_size > 0).then_some(max_size),
            hot_bytes: options.size("--hot", hot)?,
            disk_bytes: options.size("--disk", disk)?,
            policy: options.text("--policy", "lru"),
            admissions: options.list("--admissions", "always,second-hit")?,
            rate,
            connections: options.number("--connections", 32)?,
            folder,
            edgeward,
            out: options.folder("--out", root, "bench/scratch/disk")?,
        })
    }

    pub(crate) fn trace_name(&self) -> String {
        let name = self.trace.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn measure(&self, admission: &str) -> anyhow::Result<Row> {
        let scratch = Scratch::new(&self.folder)?;
        let store = scratch.path.join("store");
        fs::create_dir(&store)?;
        let origin = Origin::start(&self.edgeward, None, &scratch.path)?;
        let edge_options = format!(
            "--hot {} --policy {} --disk {} --disk-size {} --disk-admission {admission}",
            format_size(self.hot_bytes),
            self.policy,
            store.display(),
            format_size(self.disk_bytes),
        );
        let edge = Edge::start(
            &self.edgeward,
            "edge",
            &origin,
            &edge_options,
            None,
            &scratch.path,
        )?;
        let load_before = facts::load_average();
        let sampler = Sampler::start(SampleTargets {
            label: admission.to_owned(),
            pid: edge.server.pid(),
            admin: edge.admin,
            origin: origin.port,
            device: device_of(&self.folder),
            requests_total: self.requests,
        });
        let replay = self.replay(&edge);
        let series = sampler.stop()?;
        let replay = replay?;
        Ok(Row {
            admission: admission.to_owned(),
            errors: replay["errors_total"].as_u64().context("errors_total")?,
            byte_hit_ratio: replay["byte_hit_ratio"].as_f64().unwrap_or(0.0),
            body_bytes: replay["body_bytes"].as_u64().unwrap_or(0),
            seconds: replay["duration_seconds"].as_f64().unwrap_or(0.0),
            p99_ms: replay["latency_ms"]["p99"].as_f64().unwrap_or(0.0),
            delay_p50_ms: replay["send_delay_ms"]["p50"].as_f64().unwrap_or(0.0),
            load_average: (load_before, facts::load_average()),
            hot_bytes: self.hot_bytes,
            series,
        })
    }

    fn replay(&self, edge: &Edge) -> anyhow::Result<Value> {
        let mut command = Command::new(&self.edgeward);
        command
            .args(["--quiet", "replay", "--json", "--target"])
            .arg(format!("http://127.0.0.1:{}", edge.port))
            .args(["--connections", &self.connections.to_string()]);
        if let Some(rate) = self.rate {
            command.args(["--rate", &rate.to_string()]);
        }
        if let Some(requests) = self.requests {
            command.args(["--requests", &requests.to_string()]);
        }
        if let Some(bytes) = self.max_size {
            command.args(["--max-size", &bytes.to_string()]);
        }
        let output = command
            .arg(&self.trace)
            .stderr(Stdio::inherit())
            .output()
            .context("the replay does not start")?;
        // Exit code 1 means that responses were wrong. The report contains their number.
        ensure!(
            matches!(output.status.code(), Some(0 | 1)),
            "edgeward replay ended with {}",
            output.status
        );
        serde_json::from_slice(&output.stdout).context("the JSON of the replay")
    }
}

/// Generates a trace from a seed once, so that no trace file is needed.
fn synthetic_trace(edgeward: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let path = folder.join("web-300k.oracleGeneral");
    if !path.is_file() {
        let status = Command::new(edgeward)
            .args([
                "--quiet", "trace", "generate", "--preset", "small", "--seed", "1",
            ])
            .args(["--requests", "300000", "--output"])
            .arg(&path)
            .status()?;
        ensure!(
            status.success(),
            "edgeward trace generate ended with {status}"
        );
    }
    Ok(path)
}

/// The results of one run.
pub(crate) struct Row {
    pub(crate) admission: String,
    /// The number of wrong responses.
    errors: u64,
    pub(crate) byte_hit_ratio: f64,
    body_bytes: u64,
    seconds: f64,
    pub(crate) p99_ms: f64,
    /// The median delay between the scheduled time and the send time of a request. A long delay means that the
    /// machine was too slow for the rate.
    pub(crate) delay_p50_ms: f64,
    /// The load average of the machine before and after the run.
    load_average: (Option<f64>, Option<f64>),
    hot_bytes: u64,
    pub(crate) series: Vec<Sample>,
}

impl Row {
    /// Returns the growth of a counter over the run.
    pub(crate) fn growth(&self, figure: fn(&Sample) -> u64) -> u64 {
        let ends = self.series.first().zip(self.series.last());
        ends.map_or(0, |(first, last)| {
            figure(last).saturating_sub(figure(first))
        })
    }

    pub(crate) fn hit_ratio(&self) -> f64 {
        share(self.growth(|s| s.hits), self.growth(|s| s.requests))
    }

    pub(crate) fn disk_hit_ratio(&self) -> f64 {
        share(self.growth(|s| s.disk_hits), self.growth(|s| s.requests))
    }

    pub(crate) fn cpu_seconds(&self) -> f64 {
        self.growth(|s| s.cpu_ms) as f64 / 1000.0
    }

    pub(crate) fn rss_bytes_max(&self) -> u64 {
        self.series.iter().map(|s| s.rss_bytes).max().unwrap_or(0)
    }

    /// Returns the memory budget in bytes: the memory tier, the largest memory of the disk tier and of the fills that a
    /// sample reports, and [`PROGRAM_BYTES`].
    pub(crate) fn rss_budget_bytes(&self) -> u64 {
        let most = |figure: fn(&Sample) -> u64| self.series.iter().map(figure).max().unwrap_or(0);
        self.hot_bytes + most(|s| s.disk_memory_bytes) + most(|s| s.fill_bytes) + PROGRAM_BYTES
    }

    /// Returns the body bytes that the origin sent in a part of the run. `from` and `to` are shares of the requests,
    /// from 0 to 1.
    fn upstream(&self, from: f64, to: f64) -> u64 {
        let all = self.growth(|s| s.requests) as f64;
        let at = |place: f64| {
            let reached = self
                .series
                .iter()
                .find(|s| s.requests as f64 >= place * all);
            reached
                .or_else(|| self.series.last())
                .map_or(0, |s| s.origin_bytes)
        };
        at(to).saturating_sub(at(from))
    }

    fn line(&self) -> String {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        format!(
            "{:<12} written {:>8.0} MiB in {:>6} operations  hits {:>5.2} % (RAM {:>5.2}, disk {:>5.2}), bytes {:>5.2} %  \
             CPU {:>5.1} s  RSS {:>4.0} MiB  upstream {:>7.0} MiB, {} requests  {:.0} s, p99 {:.1} ms, {} errors",
            self.admission,
            mib(self.growth(|s| s.write_bytes)),
            self.growth(|s| s.store_write_ops),
            self.hit_ratio() * 100.0,
            (self.hit_ratio() - self.disk_hit_ratio()) * 100.0,
            self.disk_hit_ratio() * 100.0,
            self.byte_hit_ratio * 100.0,
            self.cpu_seconds(),
            mib(self.rss_bytes_max()),
            mib(self.growth(|s| s.origin_bytes)),
            self.growth(|s| s.origin_requests),
            self.seconds,
            self.p99_ms,
            self.errors,
        )
    }

    fn json(&self, plan: &Plan) -> Value {
        json!({
            "date": facts::today(),
            "trace": plan.trace_name(),
            "requests": self.growth(|s| s.requests),
            "body_bytes": self.body_bytes,
            "hot_bytes": plan.hot_bytes,
            "disk_bytes": plan.disk_bytes,
            "policy": plan.policy,
            "admission": self.admission,
            "rate": plan.rate,
            "connections": plan.connections,
            "seconds": self.seconds,
            "errors": self.errors,
            "hit_ratio": self.hit_ratio(),
            "disk_hit_ratio": self.disk_hit_ratio(),
            "byte_hit_ratio": self.byte_hit_ratio,
            "process_write_bytes": self.growth(|s| s.write_bytes),
            "process_read_bytes": self.growth(|s| s.read_bytes),
            "process_write_calls": self.growth(|s| s.write_calls),
            "store_written_bytes": self.growth(|s| s.store_written_bytes),
            "store_write_ops": self.growth(|s| s.store_write_ops),
            "store_syncs": self.growth(|s| s.store_syncs),
            "store_dropped": self.growth(|s| s.store_dropped),
            "device_write_ops": self.growth(|s| s.device_write_ops),
            "device_write_bytes": self.growth(|s| s.device_write_bytes),
            "cpu_seconds": self.cpu_seconds(),
            "rss_bytes_max": self.rss_bytes_max(),
            "rss_budget_bytes": self.rss_budget_bytes(),
            "upstream_bytes": self.growth(|s| s.origin_bytes),
            "upstream_requests": self.growth(|s| s.origin_requests),
            "p99_ms": self.p99_ms,
            "send_delay_p50_ms": self.delay_p50_ms,
            "load_average": [self.load_average.0, self.load_average.1],
        })
    }
}

/// Compares second-hit with always, if both ran. Checks the memory of every run.
pub(crate) fn goals(rows: &[Row]) -> Vec<Goal> {
    let named = |name: &str| rows.iter().find(|row| row.admission == name);
    let mut goals = Vec::new();
    if let (Some(always), Some(second)) = (named("always"), named("second-hit")) {
        let fewer = |figure: fn(&Sample) -> u64| {
            always.growth(figure) as f64 / second.growth(figure).max(1) as f64
        };
        let upstream =
            |from, to| second.upstream(from, to) as f64 / always.upstream(from, to).max(1) as f64;
        goals.extend([
            goal(
                "bytes written to disk, always divided by second-hit",
                fewer(|s| s.write_bytes),
                Bound::AtLeast(4.0),
                "x",
            ),
            goal(
                "write operations of the store, always divided by second-hit",
                fewer(|s| s.store_write_ops),
                Bound::AtLeast(4.0),
                "x",
            ),
            goal(
                "hit ratio, second-hit minus always",
                (second.hit_ratio() - always.hit_ratio()) * 100.0,
                Bound::AtLeast(0.0),
                "points",
            ),
            goal(
                "upstream bytes in the first fifth, second-hit divided by always",
                upstream(0.0, 0.2),
                Bound::AtLeast(1.0),
                "x",
            ),
            goal(
                "upstream bytes in the last two fifths, second-hit divided by always",
                upstream(0.6, 1.0),
                Bound::AtMost(1.0),
                "x",
            ),
        ]);
    }
    for row in rows {
        let used = row.rss_bytes_max() as f64 / row.rss_budget_bytes().max(1) as f64;
        let what = format!("largest RSS divided by its budget, {}", row.admission);
        goals.push(goal(&what, used, Bound::AtMost(1.0), "x"));
    }
    goals
}

fn goal(what: &str, measured: f64, bound: Bound, unit: &'static str) -> Goal {
    Goal {
        what: what.to_owned(),
        measured,
        bound,
        unit,
    }
}

fn write_results(plan: &Plan, rows: &[Row], goals: &[Goal]) -> anyhow::Result<()> {
    let mut lines = String::new();
    let mut table = format!("admission,{}\n", Sample::COLUMNS.join(","));
    for row in rows {
        lines += &format!("{}\n", row.json(plan));
        for sample in &row.series {
            table += &format!("{},{}\n", row.admission, sample.cells().join(","));
        }
    }
    for goal in goals {
        lines += &format!("{}\n", goal.json());
    }
    fs::write(plan.out.join("replay.jsonl"), lines)?;
    fs::write(plan.out.join("series.csv"), table)?;
    fs::write(
        plan.out.join("replay.html"),
        page::render(plan, rows, goals),
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(admission: &str, written: u64, upstream: &[u64]) -> Row {
        let last = upstream.len() as u64 - 1;
        let series = upstream.iter().zip(0..).map(|(&origin_bytes, n)| Sample {
            seconds: n as f64,
            requests: n * 100,
            hits: n * 50,
            write_bytes: written * n / last,
            store_write_ops: written * n / last,
            origin_bytes,
            rss_bytes: 100,
            ..Sample::default()
        });
        Row {
            admission: admission.to_owned(),
            errors: 0,
            byte_hit_ratio: 0.5,
            body_bytes: 1,
            seconds: 10.0,
            p99_ms: 1.0,
            delay_p50_ms: 0.0,
            load_average: (None, None),
            hot_bytes: 1 << 20,
            series: series.collect(),
        }
    }

    /// The upstream traffic of second-hit is higher at first and lower at the end, so both goals are met.
    #[test]
    fn upstream_goals_apply_to_the_start_and_the_end_of_the_run() {
        let always = row("always", 800, &[0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
        let second = row(
            "second-hit",
            200,
            &[0, 15, 30, 40, 50, 58, 64, 68, 72, 76, 80],
        );
        let goals = goals(&[always, second]);
        let found: Vec<_> = goals.iter().map(Goal::measured_text).collect();
        assert_eq!(
            found[..5],
            ["4.00 x", "4.00 x", "0.00 points", "1.50 x", "0.40 x"]
        );
        assert!(goals.iter().all(Goal::is_met), "{found:?}");
    }

    #[test]
    fn a_single_rule_has_only_the_goal_for_memory() {
        let goals = goals(&[row("always", 800, &[0, 10])]);
        assert_eq!(goals.len(), 1, "the goal for memory");
    }
}
