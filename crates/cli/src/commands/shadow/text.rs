//! The text output of `shadow`.

use std::io::Write as _;
use std::time::Duration;

use edgeward_shadow::{Latency, ShadowReport, Skip};
use edgeward_types::ByteSize;

use super::document::Document;
use crate::output::{self, Column, Table};

pub(super) fn print(document: &Document<'_>) -> anyhow::Result<()> {
    let mut out = output::stdout();
    let report = document.report;
    writeln!(out, "{}\n", summary(document))?;
    if report.groups.is_empty() {
        writeln!(out, "{}\n", verdict(report))?;
    } else {
        writeln!(out, "{}:\n", verdict(report))?;
        write!(out, "{}\n{}\n", differences(report), examples(report))?;
    }
    for line in lines(report) {
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    Ok(())
}

/// The requests, such as `shadow of http://a by http://b: 10 requests in 5.0 s, 9 answered, 9 compared`.
pub(super) fn summary(document: &Document<'_>) -> String {
    let report = document.report;
    format!(
        "{} requests in {}: {} answered by {}, {} compared, {} with body",
        output::count(report.requests),
        seconds(report.duration_seconds),
        output::count(report.answered),
        document.edge,
        output::count(report.compared),
        output::count(report.compared_bodies),
    )
}

pub(super) fn verdict(report: &ShadowReport) -> String {
    match (report.differences, report.groups.len()) {
        (0, _) if report.compared == 0 => "no request was compared".to_owned(),
        (0, _) => "no difference".to_owned(),
        (1, _) => "one difference".to_owned(),
        (count, 1) => format!("{} differences of one kind", output::count(count)),
        (count, kinds) => format!("{} differences of {kinds} kinds", output::count(count)),
    }
}

fn differences(report: &ShadowReport) -> Table {
    let mut table = Table::new([
        Column::words("cause"),
        Column::figures("count"),
        Column::words("detail"),
        Column::words("incumbent"),
        Column::words("edge"),
    ]);
    for group in &report.groups {
        table.row([
            group.cause.as_str().to_owned(),
            output::count(group.count),
            cut(&group.detail),
            cut(&group.incumbent),
            cut(&group.edge),
        ]);
    }
    table
}

fn examples(report: &ShadowReport) -> Table {
    let mut table = Table::new([Column::words("cause"), Column::words("first request")]);
    for group in &report.groups {
        table.row([
            group.cause.as_str().to_owned(),
            format!("{} {}", group.method, group.url),
        ]);
    }
    table
}

/// The hit ratios, latencies, budget, skipped and failed requests, one line each.
pub(super) fn lines(report: &ShadowReport) -> Vec<String> {
    let mut lines = Vec::new();
    let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "unknown".to_owned(), output::percent);
    lines.push(format!(
        "hit ratio: incumbent {}, edge {}",
        ratio(report.hits.incumbent_ratio),
        ratio(report.hits.edge_ratio)
    ));
    let latency = |latency: Option<Latency>| match latency {
        Some(Latency { p50_ms, p99_ms }) => format!("{} / {}", millis(p50_ms), millis(p99_ms)),
        None => "unknown".to_owned(),
    };
    lines.push(format!(
        "latency (p50 / p99): incumbent {}, edge {}",
        latency(report.incumbent_latency),
        latency(report.edge_latency)
    ));
    let budget = &report.budget;
    let mut line = format!(
        "the edge asked the origin {} times for {}",
        output::count(budget.origin_requests),
        ByteSize(budget.origin_bytes)
    );
    if budget.waited_seconds > 0.0 {
        let waited = seconds(budget.waited_seconds);
        line += &format!("; requests waited {waited} in total for the budget");
    }
    lines.push(line);
    for (skip, &count) in report.skipped.iter().filter(|(_, count)| **count > 0) {
        lines.push(format!("{} {}", output::count(count), skipped(*skip)));
    }
    for (count, what) in [
        (
            report.unasked,
            "requests not sent to the incumbent, because of its rate limit",
        ),
        (
            report.changing_bodies,
            "bodies differ because the origin changes them",
        ),
        (
            report.without_credentials,
            "requests sent without their cookies or Authorization",
        ),
        (
            report.ungrouped,
            "differences beyond the limit of the table",
        ),
        (
            report.edge_restarts,
            "times the edge was unreachable for a while",
        ),
    ] {
        if count > 0 {
            lines.push(format!("{} {what}", output::count(count)));
        }
    }
    for error in &report.errors {
        lines.push(format!(
            "{} requests failed at the {} ({}), the first: {}",
            output::count(error.count),
            error.side.as_str(),
            error.kind.as_str(),
            error.example
        ));
    }
    if let Some(log) = &report.log {
        lines.push(format!(
            "log {}: {} lines, {} rotations, {} truncations, {} not read",
            log.path,
            output::count(log.lines),
            log.rotations,
            log.truncations,
            ByteSize(log.behind_bytes)
        ));
    }
    lines
}

const fn skipped(skip: Skip) -> &'static str {
    match skip {
        Skip::Method => "requests not sent: neither GET nor HEAD",
        Skip::Target => "requests not sent: no path, or too long",
        Skip::Sample => "requests outside the sample",
        Skip::Own => "requests of the shadow itself skipped",
        Skip::QueueFull => "requests dropped: the queue was full",
        Skip::Malformed => "malformed lines of the log skipped",
    }
}

/// Cuts a value to the width of a column.
fn cut(text: &str) -> String {
    match text.char_indices().nth(CELL_CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

fn millis(ms: f64) -> String {
    seconds(ms / 1000.0)
}

pub(super) fn seconds(seconds: f64) -> String {
    output::duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// Five columns then fit most terminals. The JSON and the page have whole values.
const CELL_CHARS_MAX: usize = 40;
