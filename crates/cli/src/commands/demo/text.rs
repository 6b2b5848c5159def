//! The results of the demo as text: the output on the terminal, and the headline, sentences and table of the report
//! page.

use std::io::Write as _;

use edgeward_types::ByteSize;

use super::outcome::{EdgeOutcome, Outcome};
use crate::output::{self, Column, Table};

pub(super) fn print(outcome: &Outcome) -> anyhow::Result<()> {
    let mut table = Table::new(
        std::iter::once(Column::words("")).chain(
            outcome
                .edges
                .iter()
                .map(|edge| Column::figures(&edge.policy)),
        ),
    );
    for (name, figure) in ROWS {
        table.row(std::iter::once((*name).to_owned()).chain(outcome.edges.iter().map(figure)));
    }
    let mut out = output::stdout();
    writeln!(out, "{}\n\n{table}", findings(outcome).join("\n"))?;
    writeln!(out, "report: {}", outcome.report.display())?;
    out.flush()?;
    Ok(())
}

/// The heading of the page. It names the policy with the highest measured hit ratio.
pub(super) fn headline(outcome: &Outcome) -> String {
    let memory = ByteSize(outcome.hot_bytes);
    match best_first(outcome).as_slice() {
        [] => format!("A cache of {memory}"),
        [only] => format!("{} in a cache of {memory}", only.policy),
        [best, ..] => format!("{} hits most in a cache of {memory}", best.policy),
    }
}

/// The edges in descending order of the measured object hit ratio.
pub(super) fn best_first(outcome: &Outcome) -> Vec<&EdgeOutcome> {
    let mut edges: Vec<&EdgeOutcome> = outcome.edges.iter().collect();
    let ratio = |edge: &EdgeOutcome| edge.measured.object_hit_ratio;
    edges.sort_by(|a, b| ratio(b).total_cmp(&ratio(a)));
    edges
}

/// The main results, as sentences.
pub(super) fn findings(outcome: &Outcome) -> Vec<String> {
    let mut findings = Vec::new();
    let of_hundred = |edge: &EdgeOutcome| format!("{:.1}", edge.measured.object_hit_ratio * 100.0);
    let memory = ByteSize(outcome.hot_bytes);
    if let [first, others @ ..] = best_first(outcome).as_slice() {
        let mut sentence = format!(
            "With {memory} of memory, {} answered {} of 100 requests from the cache",
            first.policy,
            of_hundred(first)
        );
        for edge in others {
            sentence.push_str(&format!(", {} {}", edge.policy, of_hundred(edge)));
        }
        findings.push(sentence + ".");
    }
    let worst = outcome
        .edges
        .iter()
        .map(|edge| difference(edge).abs())
        .fold(0.0, f64::max);
    findings.push(if worst <= 0.01 {
        format!(
            "The predicted object hit ratios differ from the measured ones by at most {:.2} percentage points.",
            worst * 100.0
        )
    } else {
        format!(
            "The predicted object hit ratios differ from the measured ones by up to {:.1} percentage points.",
            worst * 100.0
        )
    });
    let errors: u64 = outcome
        .edges
        .iter()
        .map(|edge| edge.measured.errors_total)
        .sum();
    findings.push(match errors {
        0 => "Every byte of every response was checked and correct.".to_owned(),
        n => format!(
            "{} requests failed or had wrong responses.",
            output::count(n)
        ),
    });
    findings
}

/// The measured object hit ratio minus the predicted object hit ratio.
pub(super) fn difference(edge: &EdgeOutcome) -> f64 {
    edge.measured.object_hit_ratio - edge.predicted.object_hit_ratio
}

type Figure = fn(&EdgeOutcome) -> String;

/// The rows of the table, in order: the name of a row, and the function that formats the figure of an edge.
pub(super) const ROWS: &[(&str, Figure)] = &[
    ("object hit ratio, predicted", |edge| {
        output::percent(edge.predicted.object_hit_ratio)
    }),
    ("object hit ratio, measured", |edge| {
        output::percent(edge.measured.object_hit_ratio)
    }),
    ("  difference in points", |edge| {
        output::points(difference(edge))
    }),
    ("byte hit ratio, predicted", |edge| {
        output::percent(edge.predicted.byte_hit_ratio)
    }),
    ("byte hit ratio, measured", |edge| {
        output::percent(edge.measured.byte_hit_ratio)
    }),
    ("requests to the origin", |edge| {
        output::count(edge.origin_requests)
    }),
    ("bytes from the origin", |edge| {
        ByteSize(edge.origin_bytes).to_string()
    }),
    ("latency, median", |edge| {
        milliseconds(edge.measured.latency_ms.p50)
    }),
    ("latency, p99", |edge| {
        milliseconds(edge.measured.latency_ms.p99)
    }),
    ("requests per second", |edge| {
        output::count(edge.measured.throughput.requests_per_second.round() as u64)
    }),
    ("CPU of the edge", |edge| {
        edge.measured
            .target
            .cpu_seconds
            .map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1} s"))
    }),
    ("memory of the edge (RSS)", |edge| {
        edge.measured
            .target
            .rss_bytes_max
            .map_or_else(|| "-".to_owned(), |bytes| ByteSize(bytes).to_string())
    }),
];

fn milliseconds(ms: f64) -> String {
    output::duration(std::time::Duration::from_secs_f64((ms / 1e3).max(0.0)))
}
