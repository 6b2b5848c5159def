//! The results on a terminal: the findings and a table.

use std::io::Write as _;
use std::path::Path;

use edgeward_lab::{ContenderOutcome, Outcome, RunEnd, Totals, findings};
use edgeward_types::ByteSize;

use crate::output::{self, Column, Table};

pub(super) fn print(outcome: &Outcome, report: &Path) -> anyhow::Result<()> {
    let results: Vec<(&ContenderOutcome, &Totals)> = outcome
        .contenders
        .iter()
        .filter_map(|contender| Some((contender, contender.totals.as_ref()?)))
        .collect();
    let mut out = output::stdout();
    writeln!(out, "{}\n", findings(outcome).join("\n"))?;
    if !results.is_empty() {
        // Each contender is a row, not a column: the number of contenders varies, and a terminal has a limited width.
        let mut table = Table::new([
            Column::words("contender"),
            Column::figures("object hit ratio"),
            Column::figures("byte hit ratio"),
            Column::figures("from origin"),
            Column::figures("CPU"),
            Column::figures("memory"),
            Column::figures("written"),
            Column::figures("p50"),
            Column::figures("p99"),
        ]);
        for (contender, totals) in results {
            table.row(cells(contender, totals));
        }
        writeln!(out, "{table}")?;
    }
    writeln!(out, "report: {}", report.display())?;
    out.flush()?;
    Ok(())
}

fn cells(contender: &ContenderOutcome, totals: &Totals) -> [String; 9] {
    let bytes = |bytes: Option<u64>| {
        // The figure is rounded to a tenth of a MiB. The JSON document has the exact figure.
        bytes.map_or_else(
            || "-".to_owned(),
            |bytes| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        )
    };
    let ms = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2} ms"));
    let mark = if contender.end.is_complete() {
        ""
    } else {
        " (partial)"
    };
    [
        format!("{}{mark}", contender.name),
        output::percent(totals.hit_ratio),
        output::percent(totals.byte_hit_ratio),
        bytes(Some(totals.origin_bytes)),
        totals
            .cpu_seconds
            .map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1} s")),
        bytes(totals.memory_bytes_max),
        bytes(totals.disk_write_bytes),
        ms(totals.latency_p50_ms),
        ms(totals.latency_p99_ms),
    ]
}

/// Returns the line about one contender that is printed when the contender ends.
pub(super) fn line(contender: &ContenderOutcome) -> String {
    let early_end = match &contender.end {
        RunEnd::Completed => String::new(),
        RunEnd::NotInstalled { hint } => {
            return format!("{}: not installed, {hint}", contender.name);
        }
        RunEnd::NotStarted { why } => return format!("{}: {why}", contender.name),
        RunEnd::EndedEarly { why } => format!(", ended early: {why}"),
        _ => ", ended early".to_owned(),
    };
    // The shifts by 20 bits round the bytes down to whole MiB.
    match &contender.totals {
        Some(totals) => format!(
            "{}: {} of {} requests from the cache, {} from the origin, {:.0} s{}{early_end}",
            contender.name,
            output::percent(totals.hit_ratio),
            output::count(totals.requests),
            ByteSize(totals.origin_bytes >> 20 << 20),
            totals.seconds,
            failures(contender, totals),
        ),
        None => format!("{}: no requests counted{early_end}", contender.name),
    }
}

/// Describes the failed requests, which are the reason for exit code 1: their number and the first failure.
fn failures(contender: &ContenderOutcome, totals: &Totals) -> String {
    if totals.errors == 0 {
        return String::new();
    }
    let first = contender.error_samples.first();
    let first = first.map_or_else(String::new, |sample| format!(", first: {}", sample.detail));
    format!(", {} failed{first}", output::count(totals.errors))
}
