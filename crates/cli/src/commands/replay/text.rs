//! The text output of `replay`.

use std::io::Write as _;
use std::time::Duration;

use edgeward_replay::load::Class;
use edgeward_replay::{LatencyMs, PacingReport, ReplayReport};
use edgeward_types::ByteSize;

use crate::output::{self, Column, Table};

pub(super) fn print(report: &ReplayReport) -> anyhow::Result<()> {
    let mut out = output::stdout();
    writeln!(
        out,
        "{} requests of {} to {}, {}\n",
        output::count(report.requests),
        report.trace,
        report.target_url,
        load_text(report),
    )?;
    if has_no_cache_status(report) {
        writeln!(out, "{NO_CACHE_STATUS}\n")?;
    } else {
        writeln!(
            out,
            "object hit ratio {}, byte hit ratio {}\n",
            output::percent(report.object_hit_ratio),
            output::percent(report.byte_hit_ratio),
        )?;
    }
    write!(out, "{}\n{}\n", classes(report), latencies(report))?;
    writeln!(
        out,
        "{} in {}: {}, {}/s",
        ByteSize(report.body_bytes),
        seconds(report.duration_seconds),
        output::per_second(report.throughput.requests_per_second),
        ByteSize(report.throughput.bytes_per_second as u64),
    )?;
    let target = &report.target;
    if let (Some(pid), Some(cpu)) = (target.pid, target.cpu_seconds) {
        write!(out, "process {pid} used {} of CPU", seconds(cpu))?;
        if let Some(rss) = target.rss_bytes_max {
            write!(out, ", at most {} resident", ByteSize(rss))?;
        }
        if let (Some(read), Some(written)) = (target.disk_read_bytes, target.disk_write_bytes) {
            let (read, written) = (ByteSize(read), ByteSize(written));
            write!(out, ", {read} read from disk, {written} written")?;
        }
        writeln!(out)?;
    }
    for (count, what) in [
        (
            report.warmup_requests,
            "requests of the warm-up are not counted",
        ),
        (
            report.skipped_requests,
            "requests skipped: object too large",
        ),
        (
            report.resized_requests,
            "requests differ in size from the first request for their object, and were sent with its size",
        ),
    ] {
        if count > 0 {
            writeln!(out, "{} {what}", output::count(count))?;
        }
    }
    if report.errors_total > 0 {
        writeln!(out, "\n{} failed:", output::count(report.errors_total))?;
        for (kind, &count) in report.errors.iter().filter(|(_, count)| **count > 0) {
            writeln!(out, "  {}: {}", kind.as_str(), output::count(count))?;
        }
        for sample in &report.error_samples {
            let (request, object) = (sample.request, sample.object);
            writeln!(
                out,
                "  request {request}, object {object}: {}",
                sample.detail
            )?;
        }
    }
    if report.stopped_early {
        writeln!(out, "stopped early: too many failures in a row")?;
    }
    out.flush()?;
    Ok(())
}

/// Returns true if no response has a cache status. The hit ratio is then meaningless.
pub(super) fn has_no_cache_status(report: &ReplayReport) -> bool {
    let has_cache_status = report
        .classes
        .iter()
        .any(|(&class, figures)| class != Class::Unknown && figures.requests > 0);
    !has_cache_status
}

pub(super) const NO_CACHE_STATUS: &str =
    "No response states its cache status: there is no Cache-Status (RFC 9211) and no X-Cache.";

/// The load in a few words, such as `closed loop, 32 connections`.
pub(super) fn load_text(report: &ReplayReport) -> String {
    let pacing = match report.plan.pacing {
        PacingReport::Closed => "closed loop".to_owned(),
        PacingReport::Rate {
            requests_per_second,
        } => format!("{requests_per_second} per second"),
        PacingReport::TraceTime { speedup } => format!("at {speedup} times the trace's speed"),
    };
    match report.plan.connections {
        1 => format!("{pacing}, one connection"),
        n => format!("{pacing}, {n} connections"),
    }
}

/// The distributions of times that are not empty, with their names.
pub(super) fn distributions(report: &ReplayReport) -> Vec<(&'static str, LatencyMs)> {
    let mut rows = vec![
        ("latency", report.latency_ms),
        ("first byte", report.first_byte_ms),
        ("latency of hits", report.hit_latency_ms),
        ("latency of others", report.other_latency_ms),
    ];
    if report.plan.pacing != PacingReport::Closed {
        rows.push(("sent late by", report.send_delay_ms));
    }
    rows.retain(|(_, times)| *times != LatencyMs::default());
    rows
}

pub(super) fn millis(ms: f64) -> String {
    output::duration(Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default())
}

pub(super) fn seconds(seconds: f64) -> String {
    output::duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

fn classes(report: &ReplayReport) -> Table {
    let mut table = Table::new([
        Column::words("cache status"),
        Column::figures("requests"),
        Column::figures("share"),
        Column::figures("bytes"),
    ]);
    for (class, figures) in &report.classes {
        if figures.requests > 0 {
            let share = figures.requests as f64 / report.requests as f64;
            table.row([
                class.as_str().to_owned(),
                output::count(figures.requests),
                output::percent(share),
                ByteSize(figures.body_bytes).to_string(),
            ]);
        }
    }
    table
}

fn latencies(report: &ReplayReport) -> Table {
    let mut table = Table::new([
        Column::words("times"),
        Column::figures("p50"),
        Column::figures("p90"),
        Column::figures("p99"),
        Column::figures("p99.9"),
        Column::figures("max"),
    ]);
    for (name, times) in distributions(report) {
        let figures = [times.p50, times.p90, times.p99, times.p99_9, times.max];
        let cells = std::iter::once(name.to_owned()).chain(figures.map(millis));
        table.row(cells);
    }
    table
}
