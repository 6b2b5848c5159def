//! Measures the CPU time and memory of counting the requests of a log, for edgeward and other programs,
//! called engines.
//!
//! A combined log is generated from a seed (Zipf, 70 % of the URLs requested once) and split into files with gzip and
//! zstd. Each engine counts the requests of each URL. It reports three numbers: requests, URLs, and URLs requested
//! once. All engines must agree. The kernel reports the CPU time of each finished process and its children. CPU time is
//! comparable even if the machine is not idle.

mod engines;
mod logs;
pub(crate) mod usage;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::json;

use crate::options::Options;
use crate::say;

use engines::Engine;
use usage::Usage;

pub(crate) const HELP: &str = "\
Compares the counting of requests with DuckDB and others.

usage: cargo xtask bench-analyze [options]

  --lines N        lines of the generated log [5000000; the goal applies to
                   100000000]
  --urls N         distinct URLs [15 % of the lines]
  --files N        number of files of the log [8]
  --memory SIZE    memory limit of edgeward and the engines, in MB [700MB]
  --compress LIST  gz, zst [zst,gz]
  --python PATH    the Python for duckdb, chdb, and datafusion with pyarrow;
                   packages that are not installed are not measured
                   [bench/scratch/venv/bin/python]
  --no-awk         skip awk | sort | uniq, which takes minutes
  --edgeward NAME  a cargo profile or a path to the binary [dist]
  --out FOLDER     the logs, and the results in analyze.jsonl
                   [bench/scratch/analyze]
";

pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    let plan = Plan::from_options(root, options)?;
    let sets = logs::ensure_logs(&plan)?;
    let mut all_agree = true;
    let mut results = String::new();
    for set in &sets {
        say(format!(
            "\n{}: {} lines, {} MB raw, {} MB compressed\n",
            set.compression,
            plan.lines,
            set.raw_bytes / 1_000_000,
            set.bytes / 1_000_000
        ));
        say(format!(
            "{:<28}{:>9}{:>9}{:>12}{:>10}\n",
            "engine", "wall s", "CPU s", "µs/line", "RSS MiB"
        ));
        let mut agreed: Option<String> = None;
        for engine in Engine::all(&plan) {
            let (counts, usage) = match engine.run(&plan, set) {
                Err(error) if engine.may_fail() => {
                    say(format!("{:<28}  {error:#}\n", engine.name()));
                    continue;
                }
                result => result?,
            };
            say(row(engine.name(), &usage, plan.lines));
            let expected = agreed.get_or_insert_with(|| counts.clone());
            if *expected != counts {
                all_agree = false;
                say(format!(
                    "  counted {counts}, but the first engine counted {expected}\n"
                ));
            }
            let line = json!({
                "engine": engine.name(),
                "compression": set.compression,
                "lines": plan.lines,
                "wall_seconds": usage.wall.as_secs_f64(),
                "cpu_seconds": usage.cpu.as_secs_f64(),
                "rss_bytes": usage.rss_bytes,
                "counts": counts,
            });
            results += &format!("{line}\n");
        }
        say(format!(
            "requests, URLs, requested once: {}\n",
            agreed.unwrap_or_default()
        ));
    }
    let path = plan.out.join("analyze.jsonl");
    fs::write(&path, results).with_context(|| format!("{}", path.display()))?;
    say(format!("\nresults in {}\n", path.display()));
    Ok(all_agree)
}

fn row(name: &str, usage: &Usage, lines: u64) -> String {
    let cpu = usage.cpu.as_secs_f64();
    let rss = usage
        .rss_bytes
        .map_or_else(|| "-".to_owned(), |bytes| (bytes >> 20).to_string());
    format!(
        "{name:<28}{:>9.2}{cpu:>9.2}{:>12.3}{rss:>10}\n",
        usage.wall.as_secs_f64(),
        cpu * 1e6 / lines as f64,
    )
}

struct Plan {
    lines: u64,
    urls: u64,
    files: u64,
    memory: String,
    compressions: Vec<&'static str>,
    python: PathBuf,
    awk: bool,
    edgeward: PathBuf,
    out: PathBuf,
}

impl Plan {
    fn from_options(root: &Path, options: &Options) -> anyhow::Result<Self> {
        let lines = options.number("--lines", 5_000_000)?;
        let memory = options.text("--memory", "700MB");
        // Each engine has its own option for the memory limit.
        match memory.strip_suffix("MB").map(str::parse::<u64>) {
            Some(Ok(1..)) => {}
            _ => bail!("--memory {memory}: write a whole number of megabytes, such as 1000MB"),
        }
        Ok(Self {
            lines,
            urls: options.number("--urls", lines * 15 / 100)?,
            files: options.number("--files", 8)?.clamp(1, 1000),
            memory,
            compressions: options.choice("--compress", &["zst", "gz"], |name| name)?,
            python: options.path("--python", root, "bench/scratch/venv/bin/python"),
            awk: !options.is_set("--no-awk"),
            out: options.path("--out", root, "bench/scratch/analyze"),
            edgeward: options.edgeward(root, "dist")?,
        })
    }
}
