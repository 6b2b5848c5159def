//! Compares the bytes that the link and other tools send or store for the same packages, and checks the goals. A set
//! has one version of each package. The next set has the next versions.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::bench_shared::facts;
use crate::say;

use super::corpus::{Corpus, TEXT};
use super::{Plan, peers};

/// The goal for the first version of the text package: the bytes of the package divided by the bytes that the link
/// sends.
const TEXT_GOAL: f64 = 5.5;
/// The goal for the next version of a package, as the same quotient.
const UPDATE_GOAL: f64 = 15.0;
/// The goal for the quotient of an update divided by the quotient of `zstd -1` for the same file.
const UPDATE_OVER_ZSTD_GOAL: f64 = 2.5;

pub(super) fn run(root: &std::path::Path, plan: &Plan, corpus: &Corpus) -> anyhow::Result<bool> {
    let mut rows = Vec::new();
    let mut met = true;
    let label = if corpus.synthetic { "SYNTHETIC " } else { "" };
    say(format!(
        "\n{label}packages, one after the other; bytes of the package divided by bytes sent\n"
    ));
    say(format!(
        "{:<18}{:>8}{:>9}{:>9}{:>9}{:>9}{:>10}{:>10}{:>9}\n",
        "package",
        "average",
        "MB",
        "first",
        "update",
        "2nd upd.",
        "repeated",
        "zstd -1",
        "MB/s CPU"
    ));
    for &average in &plan.averages {
        for package in &corpus.packages {
            let steps = [0, 1, 2, 2].map(|set| corpus.tar(set, package));
            let sent = link(plan, average, &steps)?;
            let times = |step: usize| ratio(&sent[step], "wire");
            let zstd = ratio(&sent[1], "zstd_1_by_256k");
            let speed = megabytes(&sent[0]) / sent[0]["cpu_seconds"].as_f64().unwrap_or(f64::NAN);
            say(format!(
                "{package:<18}{average:>8}{:>9.1}{:>9.2}{:>9.1}{:>9.1}{:>10.0}{zstd:>10.2}{speed:>9.0}\n",
                megabytes(&sent[0]),
                times(0),
                times(1),
                times(2),
                times(3),
            ));
            // The goals are for chunks of the default size.
            if average == 8192 {
                let what = |goal| format!("{package}, {goal}");
                if *package == TEXT {
                    met &= check_goal(&what("first pass of text"), times(0), TEXT_GOAL);
                }
                met &= check_goal(&what("version update"), times(1).min(times(2)), UPDATE_GOAL);
                let over = times(1).min(times(2)) / zstd;
                met &= check_goal(
                    &what("update divided by zstd -1"),
                    over,
                    UPDATE_OVER_ZSTD_GOAL,
                );
            }
            for (step, mut row) in ["first", "update", "second update", "repeated"]
                .iter()
                .zip(sent)
            {
                row["kind"] = json!("package");
                row["package"] = json!(package);
                row["step"] = json!(step);
                row["path"] = Value::Null;
                row["synthetic"] = json!(corpus.synthetic);
                rows.push(row);
            }
        }
    }
    met &= compare_tools(plan, corpus, &mut rows)?;
    let facts = json!({
        "kind": "machine",
        "date": facts::today(),
        "load_average": facts::load_average(),
        "packages": corpus.packages,
    });
    rows.insert(0, facts);
    let path = plan.out.join("sizes.jsonl");
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    fs::write(&path, lines).with_context(|| format!("{}", path.display()))?;
    let shown = path.strip_prefix(root).unwrap_or(&path);
    say(format!("\nraw results in {}\n", shown.display()));
    Ok(met)
}

/// Compares the bytes that the link and other tools send or store for all packages of a set, then for all packages of
/// the next set. Appends the results to `rows`.
fn compare_tools(plan: &Plan, corpus: &Corpus, rows: &mut Vec<Value>) -> anyhow::Result<bool> {
    let raw: Vec<u64> = (0..corpus.sets.len())
        .map(|set| {
            let tars = corpus.tars(set);
            let bytes = tars
                .iter()
                .map(|tar| fs::metadata(tar).map(|facts| facts.len()));
            bytes.sum::<Result<u64, _>>()
        })
        .collect::<Result<_, _>>()?;
    let all: u64 = raw.iter().sum();
    say(format!(
        "\nall packages, set after set, {:.0} MB; MB stored or sent\n{:<22}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}\n",
        all as f64 / 1e6,
        "",
        "first",
        "second",
        "third",
        "all",
        "times",
        "CPU s",
        "MB/s CPU"
    ));
    let (mut link_best, mut zstd_long_best) = (0.0_f64, None);
    let mut show = |tool: &str, bytes: &[u64], cpu_seconds: f64| {
        let sum: u64 = bytes.iter().sum();
        let times = all as f64 / sum as f64;
        let cell = |set: usize| {
            // Some tools report only the sum for all sets.
            let has_sets = bytes.len() > 1;
            let bytes = bytes.get(set).filter(|_| has_sets);
            bytes.map_or_else(
                || "-".to_owned(),
                |bytes| format!("{:.2}", *bytes as f64 / 1e6),
            )
        };
        say(format!(
            "{tool:<22}{:>9}{:>9}{:>9}{:>9.1}{times:>9.2}{cpu_seconds:>9.1}{:>9.0}\n",
            cell(0),
            cell(1),
            cell(2),
            sum as f64 / 1e6,
            all as f64 / 1e6 / cpu_seconds,
        ));
        rows.push(json!({
            "kind": "whole", "tool": tool, "raw": raw, "bytes": bytes, "times": times,
            "cpu_seconds": cpu_seconds, "synthetic": corpus.synthetic,
        }));
        times
    };
    for &average in &plan.averages {
        let steps: Vec<PathBuf> = (0..corpus.sets.len())
            .flat_map(|set| corpus.tars(set))
            .collect();
        let sent = link(plan, average, &steps)?;
        let by_set = sent.chunks(corpus.packages.len());
        let sum = |rows: &[Value], field: &str| {
            rows.iter()
                .filter_map(|row| row[field].as_f64())
                .sum::<f64>()
        };
        let bytes: Vec<u64> = by_set.map(|set| sum(set, "wire") as u64).collect();
        let cpu_seconds = sum(&sent, "cpu_seconds");
        let times = show(
            &format!("link, {} KiB chunks", average >> 10),
            &bytes,
            cpu_seconds,
        );
        link_best = link_best.max(times);
    }
    if !plan.peers {
        return Ok(true);
    }
    for outcome in peers::all(corpus, &plan.out.join("peers")) {
        match outcome {
            Ok(outcome) => {
                let times = show(&outcome.tool, &outcome.bytes, outcome.cpu_seconds);
                if outcome.tool.contains("--long") {
                    zstd_long_best =
                        Some(zstd_long_best.map_or(times, |best: f64| best.max(times)));
                }
            }
            Err(why) => say(format!("{why}: skipped\n")),
        }
    }
    let zstd_long_best = zstd_long_best.unwrap_or(f64::NAN);
    Ok(check_goal(
        "whole corpus divided by zstd --long=27",
        link_best / zstd_long_best,
        1.0,
    ))
}

/// Returns a row for each file, with the bytes that the link sends for it after the previous files. `average` is the
/// average length of a chunk in bytes.
fn link(plan: &Plan, average: u32, paths: &[PathBuf]) -> anyhow::Result<Vec<Value>> {
    let mut command = Command::new(&plan.savings);
    command
        .args(["--json", "--average", &average.to_string()])
        .args(paths);
    let output = command.output().context("link_savings cannot be run")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "link_savings: {}", stderr.trim());
    let text = String::from_utf8(output.stdout)?;
    let rows: Vec<Value> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    ensure!(
        rows.len() == paths.len(),
        "link_savings did not print a row for each file"
    );
    Ok(rows)
}

fn megabytes(row: &Value) -> f64 {
    row["bytes"].as_f64().unwrap_or(f64::NAN) / 1e6
}

fn ratio(row: &Value, field: &str) -> f64 {
    row["bytes"].as_f64().unwrap_or(f64::NAN) / row[field].as_f64().unwrap_or(f64::NAN)
}

/// Returns true if a goal is reached, and prints a note if it is not.
fn check_goal(what: &str, value: f64, goal: f64) -> bool {
    let reached = value >= goal;
    if !reached {
        say(format!(
            "  goal missed: {what}: {value:.2}, the goal is {goal}\n"
        ));
    }
    reached
}
