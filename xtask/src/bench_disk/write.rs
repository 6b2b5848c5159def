//! Compares streaming writes with fio, and measures how writing affects hits from memory.
//!
//! **Throughput.** The example `disk_write` of the store and fio alternate. Both write the same amount to the
//! same folder through the page cache, into a preallocated file: writes of 1 MiB and an fdatasync every 64 MiB.
//!
//! **Latency.** Small objects are requested at a fixed rate and served from memory, in three phases: alone;
//! while large misses pass through an edge without a disk; and while an edge writes the same misses to disk.
//! The second phase shows how much the misses delay the hits on these cores. The ratio of the third phase to
//! the second shows how much the writes to disk delay them.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::fs::syncfs;
use serde_json::{Value, json};

use super::goal::{Bound, Goal};
use super::servers::{Edge, Origin, total};
use crate::bench_shared::facts;
use crate::bench_shared::median;
use crate::bench_shared::process::{Scratch, find};
use crate::options::Options;
use crate::say;

pub(crate) const HELP: &str = "\
Compares streaming writes with fio; measures hits from memory during writes.

usage: cargo xtask bench-disk write [options]

  --size SIZE         bytes that each run writes [1GiB]
  --runs N            runs of each measurement [3]
  --seconds N         duration of each run with hits from memory [5]
  --hit-rate N        hits per second [1000]
  --miss-rate N       misses of 1 MiB per second
                      [80 % of the store's write speed, at most 200]
  --edge-config FILE  configuration of the edge that writes to disk
  --dir FOLDER        folder for the files [bench/scratch/disk]
  --edgeward NAME     a cargo profile or a path to the binary [release]
  --out FOLDER        for write.jsonl [bench/scratch/disk]
";

const MIB: f64 = 1_048_576.0;

/// The number of small objects whose hits are measured; all fit in memory.
const HOT_KEYS: u64 = 200;
const HOT_BYTES: u64 = 1024;
const MISS_BYTES: u64 = 1 << 20;
/// The maximum number of misses per second. A higher rate would need more CPU time than two cores have.
const MISS_RATE_MAX: f64 = 200.0;

/// The time for which misses run before the hits start.
const LEAD: Duration = Duration::from_millis(500);

pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    let benchmark = WriteBenchmark {
        edgeward: options.edgeward(root, "release")?,
        folder: options.folder("--dir", root, "bench/scratch/disk")?,
        config: options.text("--edge-config", ""),
        runs: options.number("--runs", 3)?,
        seconds: options.number("--seconds", 5)?,
    };
    let size = options.size("--size", 1 << 30)?;
    let mut lines = String::new();
    let mut note = |line: Value| {
        eprintln!("  {line}");
        _ = writeln!(lines, "{line}");
    };

    let example = build_example(root)?;
    let (mut ours, mut fios) = (Vec::new(), Vec::new());
    for round in 0..benchmark.runs {
        let speed = benchmark.store(&example, size)?;
        note(json!({ "what": "store", "round": round, "bytes": size, "run": speed }));
        ours.extend(speed["bytes_per_second"].as_f64());
        match benchmark.fio(size) {
            Ok(speed) => {
                note(
                    json!({ "what": "fio", "round": round, "bytes": size, "bytes_per_second": speed }),
                );
                fios.push(speed);
            }
            Err(error) => eprintln!("  fio is skipped: {error:#}"),
        }
    }
    let store_speed = median(&ours).context("the store was not measured")?;
    let mut goals = Vec::new();
    if let Some(fio_speed) = median(&fios) {
        goals.push(Goal {
            what: format!(
                "streaming writes, {:.0} MiB/s divided by {:.0} MiB/s of fio",
                store_speed / MIB,
                fio_speed / MIB
            ),
            measured: store_speed / fio_speed,
            bound: Bound::AtLeast(0.8),
            unit: "x",
        });
    }

    let default_miss_rate = (store_speed * 0.8 / MISS_BYTES as f64)
        .min(MISS_RATE_MAX)
        .floor();
    let rates = Rates {
        hits: options.number("--hit-rate", 1000.0)?,
        misses: options.number("--miss-rate", default_miss_rate.max(1.0))?,
    };
    let latency = benchmark.latencies(&rates, &mut note)?;
    for (what, compared_phase_ms) in [
        (
            "p99 of RAM hits with misses written to disk, divided by p99 with misses without disk",
            &latency.passing,
        ),
        (
            "p99 of RAM hits with misses written to disk, divided by p99 without misses",
            &latency.alone,
        ),
    ] {
        goals.push(Goal {
            what: what.to_owned(),
            measured: latency.writing / compared_phase_ms,
            bound: Bound::AtMost(1.1),
            unit: "x",
        });
    }
    say(format!(
        "p99 of RAM hits: {:.3} ms alone, {:.3} ms with misses without disk, {:.3} ms while writing {:.0} MiB/s\n",
        latency.alone,
        latency.passing,
        latency.writing,
        latency.written_per_second / MIB,
    ));
    for goal in &goals {
        say(format!("{goal}\n"));
        _ = writeln!(lines, "{}", goal.json());
    }
    let out = options.folder("--out", root, "bench/scratch/disk")?;
    fs::write(out.join("write.jsonl"), lines)?;
    Ok(latency.errors == 0)
}

struct WriteBenchmark {
    edgeward: PathBuf,
    folder: PathBuf,
    /// The configuration file of the edge that writes; empty for the defaults.
    config: String,
    runs: u32,
    seconds: u32,
}

/// Requests per second.
struct Rates {
    hits: f64,
    misses: f64,
}

/// The results of the three phases. The first three fields have the 99th percentile of the latency of hits in
/// milliseconds: the median of all runs.
struct Latencies {
    /// Without misses.
    alone: f64,
    /// With misses that pass through the edge without a disk.
    passing: f64,
    /// With misses that the edge writes to disk.
    writing: f64,
    /// The bytes per second that the edge wrote to disk in the third phase.
    written_per_second: f64,
    /// The number of requests for small objects that were not hits.
    errors: u64,
}

impl WriteBenchmark {
    /// Runs `disk_write` with `size` bytes, and returns its report.
    fn store(&self, example: &Path, size: u64) -> anyhow::Result<Value> {
        let scratch = self.synced_folder()?;
        let output = Command::new(example)
            .arg(&scratch.path)
            .arg((size >> 20).to_string())
            .stderr(Stdio::inherit())
            .output()?;
        ensure!(
            output.status.success(),
            "disk_write ended with {}",
            output.status
        );
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Returns the write speed of fio in bytes per second.
    fn fio(&self, size: u64) -> anyhow::Result<f64> {
        let fio = find("fio")?;
        let scratch = self.synced_folder()?;
        let output = Command::new(fio)
            .args(["--name=write", "--rw=write", "--bs=1m", "--ioengine=psync"])
            .args(["--fallocate=posix", "--fdatasync=64", "--end_fsync=1"])
            .args([
                format!("--size={size}"),
                format!("--directory={}", scratch.path.display()),
            ])
            .arg("--output-format=json")
            .output()?;
        ensure!(
            output.status.success(),
            "fio: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let report: Value = serde_json::from_slice(&output.stdout).context("the JSON of fio")?;
        report["jobs"][0]["write"]["bw_bytes"]
            .as_f64()
            .context("fio's report has no bw_bytes")
    }

    /// Creates a folder, and syncs its file system, so that no writes of earlier runs are pending.
    fn synced_folder(&self) -> anyhow::Result<Scratch> {
        let scratch = Scratch::new(&self.folder)?;
        syncfs(File::open(&scratch.path)?).context("syncfs")?;
        Ok(scratch)
    }

    /// Measures the three phases in each of the `runs` rounds.
    fn latencies(&self, rates: &Rates, note: &mut impl FnMut(Value)) -> anyhow::Result<Latencies> {
        let scratch = self.synced_folder()?;
        let store = scratch.path.join("store");
        fs::create_dir(&store)?;
        let origin = Origin::start(&self.edgeward, None, &scratch.path)?;
        // With this policy, large objects do not enter the memory of the edges.
        let hot = "--hot 64MiB --policy threshold:64KiB";
        let mut disk = format!(
            "--disk {} --disk-size 4GiB --disk-admission always",
            store.display()
        );
        if !self.config.is_empty() {
            _ = write!(disk, " --config {}", self.config);
        }
        let edge = |name, more: &str| {
            let more = format!("{hot} {more}");
            Edge::start(&self.edgeward, name, &origin, &more, None, &scratch.path)
        };
        let (writing, passing) = (edge("writing", &disk)?, edge("passing", "")?);
        // The replay sends the address of the edge as `Host`, which is part of the cache key. The small objects are
        // therefore fetched by a replay to the same address.
        let warm = scratch.path.join("warm.txt");
        fs::write(&warm, trace(HOT_KEYS, |n| n, HOT_BYTES))?;
        for edge in [&writing, &passing] {
            let output = self.replay(edge, &warm, rates.hits).output()?;
            ensure!(output.status.success(), "the hot objects cannot be fetched");
        }
        let hits = scratch.path.join("hits.txt");
        let requests = (rates.hits * f64::from(self.seconds)) as u64;
        fs::write(&hits, trace(requests, |n| n % HOT_KEYS, HOT_BYTES))?;
        // The trace has more misses than needed, so that the misses last until the end of the hits.
        let misses_each = (rates.misses * f64::from(self.seconds + 2)) as u64;
        let misses = scratch.path.join("misses.txt");

        let (mut alone, mut passed, mut written) = (Vec::new(), Vec::new(), Vec::new());
        let (mut speeds, mut errors) = (Vec::new(), 0);
        for round in 0..self.runs {
            for (what, edge, found) in [
                ("alone", &writing, &mut alone),
                ("passing", &passing, &mut passed),
                ("writing", &writing, &mut written),
            ] {
                // Each run that writes uses keys that were not requested before.
                let first = 1_000_000 + u64::from(round) * misses_each;
                fs::write(&misses, trace(misses_each, |n| first + n, MISS_BYTES))?;
                let written_and_dropped = |edge: &Edge| -> anyhow::Result<(u64, u64)> {
                    let status = edge.status()?;
                    let devices = &status["disk"]["devices"];
                    let dropped = total(devices, "dropped_queue_full");
                    Ok((total(devices, "written_bytes"), dropped))
                };
                let mut load = None;
                if what != "alone" {
                    load = Some(
                        self.replay(edge, &misses, rates.misses)
                            .stdout(Stdio::null())
                            .spawn()?,
                    );
                    sleep(LEAD);
                }
                let (bytes_before, dropped_before) = written_and_dropped(edge)?;
                let output = self.replay(edge, &hits, rates.hits).output()?;
                let (bytes, dropped) = written_and_dropped(edge)?;
                load.map_or(Ok(()), wait_for_success)?;
                let report: Value =
                    serde_json::from_slice(&output.stdout).context("the JSON of the replay")?;
                let seconds = report["duration_seconds"].as_f64().unwrap_or(f64::NAN);
                let speed = (bytes - bytes_before) as f64 / seconds;
                let p99 = report["hit_latency_ms"]["p99"].as_f64().context("p99")?;
                let missed = requests.saturating_sub(report["hits"].as_u64().unwrap_or(0));
                errors += missed;
                note(json!({
                    "what": what, "round": round, "hit_rate": rates.hits,
                    "miss_rate": if what == "alone" { 0.0 } else { rates.misses },
                    "hit_latency_ms": report["hit_latency_ms"], "not_hit": missed,
                    "written_bytes_per_second": speed, "dropped": dropped - dropped_before,
                    "load_average": facts::load_average(),
                }));
                found.push(p99);
                if what == "writing" {
                    speeds.push(speed);
                }
            }
        }
        let middle = |values: Vec<f64>| median(&values).context("no run was measured");
        Ok(Latencies {
            alone: middle(alone)?,
            passing: middle(passed)?,
            writing: middle(written)?,
            written_per_second: middle(speeds)?,
            errors,
        })
    }

    fn replay(&self, edge: &Edge, trace: &Path, rate: f64) -> Command {
        let mut command = Command::new(&self.edgeward);
        command
            .args(["--quiet", "replay", "--json", "--connections", "16"])
            .args(["--rate", &rate.to_string(), "--target"])
            .arg(format!("http://127.0.0.1:{}", edge.port))
            .arg(trace);
        command
    }
}

fn wait_for_success(mut child: Child) -> anyhow::Result<()> {
    let status = child.wait()?;
    ensure!(status.success(), "the replay of misses ended with {status}");
    Ok(())
}

/// Returns a trace as text: time, key, size.
fn trace(requests: u64, key: impl Fn(u64) -> u64, size: u64) -> String {
    (0..requests)
        .map(|n| format!("{n} {} {size}\n", key(n)))
        .collect()
}

/// Builds the store's example `disk_write` with optimisations.
fn build_example(root: &Path) -> anyhow::Result<PathBuf> {
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--release",
            "--quiet",
            "--package",
            "edgeward-store",
        ])
        .args(["--example", "disk_write"])
        .current_dir(root)
        .status()?;
    ensure!(status.success(), "the example disk_write cannot be built");
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("release/examples/disk_write"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_a_line_for_each_request() {
        assert_eq!(trace(3, |n| n % 2, 10), "0 0 10\n1 1 10\n2 0 10\n");
    }
}
