//! Measures the speed of a link endpoint on one core, compared with a plain TCP proxy in the same run, and the
//! latency that the link adds.
//!
//! The example `bench_link_speed` of the crate `link` measures. This module prints its rows beside the goals, and
//! beside the published figures of a commercial product (one core of 2 GHz, 2012, first pass of random data).

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::bench_shared::facts;
use crate::bench_shared::process::find;
use crate::say;

use super::Plan;
use super::corpus::{Corpus, TEXT};

/// A row of the table.
struct Row {
    name: &'static str,
    /// The goal for the throughput divided by that of the plain proxy.
    goal: Option<f64>,
    /// The corresponding row of the commercial product: its name and its throughput in Mb/s.
    theirs: &'static [(&'static str, u32)],
}

const fn row(name: &'static str, goal: Option<f64>, theirs: &'static [(&'static str, u32)]) -> Row {
    Row { name, goal, theirs }
}

/// The rows to measure, with their names in `bench_link_speed`. A row that begins with `nor` also lacks what the row
/// above lacks. In the first two rows, the commercial product compressed its cache. In the rows `names by gmac`, chunk
/// ids are computed by GMAC instead of BLAKE3.
const ROWS: [Row; 16] = [
    row(
        "everything on, incompressible",
        Some(0.40),
        &[("TLS, compression, dedup, cache compression", 314)],
    ),
    row("without TLS", None, &[("without TLS", 442)]),
    row(
        "nor compressed stores",
        None,
        &[("nor cache compression", 550)],
    ),
    row(
        "dedup only, chunks of 64 KiB",
        None,
        &[("fast chunker", 705)],
    ),
    row("dedup only", Some(0.60), &[("dedup only", 880)]),
    row("TLS only", None, &[]),
    row("frames only", None, &[]),
    row("all duplicate", Some(1.0), &[]),
    row("all duplicate, kept by both", Some(1.0), &[]),
    row("all duplicate, the second time", None, &[]),
    row("all duplicate, without TLS", None, &[]),
    row("everything on, names by gmac", Some(0.40), &[]),
    row("dedup only, names by gmac", Some(0.60), &[]),
    row("all duplicate, names by gmac", Some(1.0), &[]),
    row("text, zstd", Some(0.15), &[]),
    row("text, zstd, stores too", None, &[]),
];

/// The names by which `bench_link_speed` selects the latency rows. Their results are named `latency, idle` and
/// `latency, beside a download`.
const LATENCIES: &str = "latency;bulk";

/// The throughput of the commercial product without any processing, in Mb/s: the limit of its network card.
const PLAIN_2012: u32 = 896;

/// The goal of the row `text, zstd`: the body's bytes divided by the bytes that the link sent.
const TEXT_GOAL: f64 = 5.5;
/// The most microseconds that the link may add to the p99 of short requests without other traffic.
const ADDED_P99_GOAL_US: f64 = 1000.0;
/// The most microseconds by which a download over the link may raise the p99 of short requests.
const RAISED_P99_GOAL_US: f64 = 5000.0;

/// Measures and prints all rows, and writes the raw results to `speed.jsonl`. Returns false if a goal was missed.
pub(super) fn run(root: &Path, plan: &Plan, corpus: &Corpus) -> anyhow::Result<bool> {
    say("\nmeasuring speed takes about two minutes\n");
    let names = ROWS.map(|row| row.name).join(";");
    let text = measure(plan, corpus, &names, true)? + &measure(plan, corpus, LATENCIES, false)?;
    let measured: Vec<Value> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let found = |name: &str| measured.iter().find(|row| row["row"] == name);
    say(format!(
        "\none core of the busier endpoint; ratios to a plain proxy are medians of {} pairs; `both`: both endpoints share the core\n{:<32}{:>8}{:>8}{:>8}{:>8}{:>9}   {}\n",
        plan.rounds,
        "",
        "Gb/s",
        "ratio",
        "both",
        "goal",
        "smaller",
        "the commercial product of 2012: Mb/s, ratio"
    ));
    let mut met = true;
    for Row { name, goal, theirs } in ROWS {
        let Some(row) = found(name) else {
            say(format!("{name:<32}       skipped\n"));
            continue;
        };
        let figure = |field: &str| row[field].as_f64().unwrap_or(f64::NAN);
        let (ratio, smaller) = (figure("ratio"), figure("smaller"));
        let goal_shown = goal.map_or_else(|| "-".to_owned(), |goal| format!("{goal:.2}"));
        let theirs = theirs.iter().map(|(words, mbps)| {
            let ratio = f64::from(*mbps) / f64::from(PLAIN_2012);
            format!("{mbps}, {ratio:.2}: {words}")
        });
        let theirs = theirs.collect::<Vec<_>>().join("; ");
        say(format!(
            "{name:<32}{:>8.2}{ratio:>8.2}{:>8.2}{goal_shown:>8}{smaller:>9.2}   {theirs}\n",
            figure("gbps"),
            figure("ratio_both")
        ));
        let reached = goal.is_none_or(|goal| ratio >= goal);
        let small = name != "text, zstd" || smaller >= TEXT_GOAL;
        if !(reached && small) {
            say("  goal missed\n");
            met = false;
        }
    }
    let latencies = [
        ("latency, idle", "added_p99_us", ADDED_P99_GOAL_US),
        (
            "latency, beside a download",
            "raised_p99_us",
            RAISED_P99_GOAL_US,
        ),
    ];
    for (name, field, goal) in latencies {
        let Some(row) = found(name) else {
            continue;
        };
        let [all, undisturbed] =
            [field.to_owned(), format!("{field}_undisturbed")].map(|field| row[field].as_f64());
        // The undisturbed value excludes requests during which the virtual machine's host took a core away. If
        // this cannot be detected, the value of all requests is used.
        let (micros, of) = match undisturbed {
            Some(micros) => (micros, "of undisturbed requests"),
            None => (
                all.unwrap_or(f64::NAN),
                "of all requests; disturbances are unknown",
            ),
        };
        say(format!(
            "{name}: adds {micros:.0} µs to the p99 {of} ({:.0} µs of all requests); the goal is at most {goal:.0} µs\n",
            all.unwrap_or(f64::NAN)
        ));
        met &= micros <= goal;
    }
    let path = plan.out.join("speed.jsonl");
    let machine = serde_json::json!({
        "kind": "machine",
        "date": facts::today(),
        "load_average": facts::load_average(),
    });
    fs::write(&path, format!("{machine}\n{text}"))
        .with_context(|| format!("{}", path.display()))?;
    let shown = path.strip_prefix(root).unwrap_or(&path);
    say(format!("\nraw results in {}\n", shown.display()));
    Ok(met)
}

/// Runs the example and returns its rows, one JSON object per line.
///
/// With `one_core`, the source, the proxy or link, and the sink share one core. With two cores, the CPU time of
/// the same pass varies by up to a factor of two, for the proxy and the link alike. The time depends on two
/// facts: a core may share its execution units with a busy core, and the kernel's work on TCP segments is charged
/// to different threads.
fn measure(plan: &Plan, corpus: &Corpus, rows: &str, one_core: bool) -> anyhow::Result<String> {
    let mut command = match find("taskset") {
        Ok(taskset) if one_core => {
            let mut command = Command::new(taskset);
            command.args(["--cpu-list", CORE]).arg(&plan.speed);
            command
        }
        _ => Command::new(&plan.speed),
    };
    command.args(["--rounds", &plan.rounds.to_string(), "--rows", rows]);
    if corpus.packages.contains(&TEXT) {
        command.arg("--text").arg(corpus.tar(1, TEXT));
    }
    let output = command.output().context("bench_link_speed cannot be run")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "bench_link_speed: {}",
        stderr.trim()
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// The core to which the example is pinned. Every machine has core 0.
const CORE: &str = "0";
