//! How much CPU and memory does counting a site's requests cost, beside what people do it with?
//!
//! A combined log is made up from a seed (Zipf, 70 % of the URLs requested once) and cut into
//! files, gzip and zstd. Each engine counts how often each URL was requested: requests, URLs, URLs
//! requested once. All must agree. CPU time is what compares on a machine that is not idle; it is
//! read from the kernel's accounts of the finished process, its children included.

mod engines;
mod logs;
pub(crate) mod usage;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::json;

use crate::bench_hits::subjects::edgeward_binary;
use crate::say;

use engines::Engine;
use usage::Usage;

const HELP: &str = "\
Counting the requests of a made-up site: edgeward, DuckDB, DataFusion, chDB, and awk | sort | uniq.

usage: cargo xtask bench-analyze [options]

  --lines N        lines of the log [5000000; the goal is stated for 100000000]
  --urls N         distinct URLs [15 % of the lines]
  --files N        the log is cut into so many [8]
  --memory SIZE    what edgeward and the engines may take, in megabytes [700MB]
  --compress LIST  gz, zst [zst,gz]
  --python PATH    a Python; of duckdb, datafusion with pyarrow, and chdb those it has are measured
                   [bench/scratch/venv/bin/python]
  --no-awk         leave awk | sort | uniq out, which takes minutes
  --edgeward NAME  a cargo profile or a path to the binary [dist]
  --out FOLDER     logs and results, as analyze.jsonl [bench/scratch/analyze]
";

pub(crate) fn run(root: &Path, arguments: impl Iterator<Item = String>) -> anyhow::Result<bool> {
    let Some(plan) = Plan::parse(root, arguments)? else {
        say(HELP);
        return Ok(true);
    };
    let sets = logs::ensure(&plan)?;
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
            "engine", "wall s", "CPU s", "µs a line", "RSS MB"
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
                    "  counts {counts}, and the first engine's {expected}\n"
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
    compressions: Vec<String>,
    python: PathBuf,
    awk: bool,
    edgeward: PathBuf,
    out: PathBuf,
}

impl Plan {
    fn parse(
        root: &Path,
        mut arguments: impl Iterator<Item = String>,
    ) -> anyhow::Result<Option<Self>> {
        let mut binary = "dist".to_owned();
        let mut urls = None;
        let mut plan = Self {
            lines: 5_000_000,
            urls: 0,
            files: 8,
            memory: "700MB".to_owned(),
            compressions: vec!["zst".to_owned(), "gz".to_owned()],
            python: root.join("bench/scratch/venv/bin/python"),
            awk: true,
            edgeward: PathBuf::new(),
            out: root.join("bench/scratch/analyze"),
        };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--help" => return Ok(None),
                "--no-awk" => {
                    plan.awk = false;
                    continue;
                }
                _ => {}
            }
            let value = arguments
                .next()
                .with_context(|| format!("{argument} needs a value"))?;
            let unclear = || format!("{argument} {value} is not understood");
            match argument.as_str() {
                "--lines" => plan.lines = value.parse().with_context(unclear)?,
                "--urls" => urls = Some(value.parse().with_context(unclear)?),
                "--files" => plan.files = value.parse().with_context(unclear)?,
                // Each engine is told in its own way.
                "--memory" => match value.strip_suffix("MB").map(str::parse::<u64>) {
                    Some(Ok(1..)) => plan.memory = value,
                    _ => bail!("--memory {value}: a whole number of megabytes, as 1000MB"),
                },
                "--compress" => plan.compressions = value.split(',').map(str::to_owned).collect(),
                "--python" => plan.python = root.join(value),
                "--edgeward" => binary = value,
                "--out" => plan.out = root.join(value),
                _ => bail!("no option is called {argument}\n  hint: --help lists them"),
            }
        }
        if let Some(other) = plan
            .compressions
            .iter()
            .find(|c| !matches!(c.as_str(), "gz" | "zst"))
        {
            bail!("{other} is no compression here\n  hint: gz, zst");
        }
        plan.urls = urls.unwrap_or(plan.lines * 15 / 100);
        plan.files = plan.files.clamp(1, 1000);
        plan.edgeward = edgeward_binary(&binary, root)?;
        Ok(Some(plan))
    }
}
