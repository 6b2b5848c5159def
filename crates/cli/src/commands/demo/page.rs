//! The HTML page of the demo.

use edgeward_replay::monitor::Sample;
use edgeward_report::{Axis, Bars, Column, Page, Plot, Series, Table, Unit};
use edgeward_types::{ByteSize, Seed};

use super::outcome::{EdgeOutcome, INTERVALS, Outcome};
use super::text::{ROWS, best_first, findings, headline};
use crate::output;

pub(super) fn render(outcome: &Outcome) -> String {
    let mut page = Page::new(headline(outcome));
    for finding in findings(outcome) {
        page.finding(finding);
    }
    if let [best, _, ..] = best_first(outcome).as_slice() {
        page.setting(format!("[hot]\npolicy = \"{}\"", best.policy));
    }
    page.section("Side by side").table(table(outcome));
    page.section("Over the run").plot(hit_ratios(outcome));
    if let Some(plot) = size_parameter(outcome) {
        page.plot(plot);
    }
    page.section("Effect on visitors and on the origin")
        .bars(latencies(outcome))
        .bars(origin(
            outcome,
            "Requests to the origin",
            Unit::Count,
            |e| e.origin_requests,
        ))
        .bars(origin(outcome, "Bytes from the origin", Unit::Bytes, |e| {
            e.origin_bytes
        }));
    page.section("Resources of the edge")
        .plot(memory(outcome))
        .bars(cpu(outcome));
    facts(&mut page, outcome);
    page.render()
}

fn table(outcome: &Outcome) -> Table {
    let mut table = Table::new(
        std::iter::once(Column::words("")).chain(
            outcome
                .edges
                .iter()
                .map(|edge| Column::figures(&edge.policy)),
        ),
    );
    for (name, figure) in ROWS {
        let name = name.trim().to_owned();
        table.row(std::iter::once(name).chain(outcome.edges.iter().map(figure)));
    }
    table
}

fn hit_ratios(outcome: &Outcome) -> Plot {
    let mut plot = Plot::new(
        "Object hit ratio",
        requests_axis(outcome),
        Axis::new("hits per request, by interval", Unit::Share),
    )
    .note("Solid: measured over HTTP. Dashed: predicted by the simulator.");
    for (n, edge) in outcome.edges.iter().enumerate() {
        plot.add(Series::line(&edge.policy, measured(edge, outcome)).colour(n));
        let predicted = edge.predicted.series.iter();
        // The last interval may be shorter than the others, and its ratio would be noisy. It is omitted.
        let requests_end_max = outcome.trace.requests / INTERVALS * INTERVALS;
        let predicted = predicted.take_while(|interval| interval.requests_end <= requests_end_max);
        let points = predicted.map(|i| (i.requests_end as f64, i.object_hit_ratio));
        let name = format!("{}, predicted", edge.policy);
        plot.add(Series::line(name, points).colour(n).dashed());
    }
    plot.mark(outcome.warmup_requests as f64, "end of the warm-up");
    plot
}

/// The horizontal axis of the plots: the number of requests. All plots have the same range, so that they are
/// comparable.
fn requests_axis(outcome: &Outcome) -> Axis {
    Axis::new("requests so far", Unit::Count).range(0.0, outcome.trace.requests as f64)
}

/// The measured hit ratios over time. Samples are combined until they cover as many requests as a point of the
/// prediction.
fn measured(edge: &EdgeOutcome, outcome: &Outcome) -> Vec<(f64, f64)> {
    let interval_requests = (outcome.trace.requests / INTERVALS).max(1);
    let mut points = Vec::new();
    let mut last = &Sample::default();
    for sample in &edge.measured.target.series {
        let requests = sample.requests - last.requests;
        if requests >= interval_requests {
            let hits = sample.hits - last.hits;
            points.push((sample.requests as f64, hits as f64 / requests as f64));
            last = sample;
        }
    }
    points
}

/// Plots the parameter `c` of each self-tuning policy, as measured on the edge's status page and as simulated.
/// Returns `None` if no edge has this parameter.
fn size_parameter(outcome: &Outcome) -> Option<Plot> {
    let mut plot = Plot::new(
        "AdaptSize's parameter c",
        requests_axis(outcome),
        Axis::new("c", Unit::Bytes).log(),
    )
    .note("An object of c bytes is admitted with probability 1/e = 37 %, a larger one less often.");
    let mut has_series = false;
    for (n, edge) in outcome.edges.iter().enumerate() {
        let tuned_size = |sample: &Sample| {
            let c = sample.status.as_ref()?["hot"]["tuning"]["c_bytes"].as_f64()?;
            Some((sample.requests as f64, c))
        };
        let measured_points: Vec<(f64, f64)> = edge
            .measured
            .target
            .series
            .iter()
            .filter_map(tuned_size)
            .collect();
        if measured_points.is_empty() {
            continue;
        }
        has_series = true;
        plot.add(Series::steps(&edge.policy, measured_points).colour(n));
        let tuned = edge.predicted.tuned.iter();
        let points = tuned.filter_map(|t| Some((t.requests_end as f64, t.c_bytes?)));
        let name = format!("{}, simulated", edge.policy);
        plot.add(Series::dots(name, points).colour(n + outcome.edges.len()));
    }
    has_series.then_some(plot)
}

type Milliseconds = fn(&EdgeOutcome) -> f64;

fn latencies(outcome: &Outcome) -> Bars {
    let names: Vec<&str> = outcome.edges.iter().map(|e| e.policy.as_str()).collect();
    let mut bars = Bars::new(
        "Latency",
        Axis::new("to the last byte", Unit::Seconds).log(),
        names,
    )
    .note(format!(
        "The origin starts each response after {:.1} ms. Shorter is better.",
        outcome.origin_latency_ms
    ));
    let rows: [(&str, Milliseconds); 4] = [
        ("median", |e| e.measured.latency_ms.p50),
        ("p90", |e| e.measured.latency_ms.p90),
        ("p99", |e| e.measured.latency_ms.p99),
        ("p99.9", |e| e.measured.latency_ms.p99_9),
    ];
    for (name, figure) in rows {
        bars.group(name, outcome.edges.iter().map(|e| figure(e) / 1e3));
    }
    bars
}

fn origin(outcome: &Outcome, title: &str, unit: Unit, figure: fn(&EdgeOutcome) -> u64) -> Bars {
    let label = format!(
        "of {} requested",
        match unit {
            Unit::Bytes => ByteSize(outcome.trace.bytes).to_string(),
            _ => output::count(outcome.trace.requests),
        }
    );
    let mut bars = Bars::new(title, Axis::new(label, unit), [""]);
    for edge in &outcome.edges {
        bars.group(&edge.policy, [figure(edge) as f64]);
    }
    bars
}

fn memory(outcome: &Outcome) -> Plot {
    let mut plot = Plot::new(
        "Memory of the edge",
        requests_axis(outcome),
        Axis::new("resident set", Unit::Bytes),
    );
    for (n, edge) in outcome.edges.iter().enumerate() {
        let series = edge.measured.target.series.iter();
        let points = series.filter_map(|s| Some((s.requests as f64, s.rss_bytes? as f64)));
        plot.add(Series::line(&edge.policy, points).colour(n));
    }
    plot.add(
        Series::level("size of the memory tier", outcome.hot_bytes as f64)
            .colour(6)
            .dashed(),
    );
    plot
}

fn cpu(outcome: &Outcome) -> Bars {
    let mut bars = Bars::new(
        "CPU of the edge for the whole run",
        Axis::new("CPU time", Unit::Seconds),
        [""],
    );
    for edge in &outcome.edges {
        bars.group(
            &edge.policy,
            [edge.measured.target.cpu_seconds.unwrap_or(f64::NAN)],
        );
    }
    bars
}

fn facts(page: &mut Page, outcome: &Outcome) {
    let trace = &outcome.trace;
    page.fact("program", concat!("edgeward ", env!("CARGO_PKG_VERSION")))
        .fact(
            "trace",
            format!(
                "generated, preset {}, seed {}: {} requests for {} objects of {}, {} of them \
                 requested once",
                outcome.preset,
                Seed(outcome.seed),
                output::count(trace.requests),
                output::count(trace.objects),
                ByteSize(trace.footprint_bytes),
                output::percent(trace.one_hit_share),
            ),
        )
        .fact(
            "size of the memory tier",
            ByteSize(outcome.hot_bytes).to_string(),
        )
        .fact(
            "warm-up",
            format!(
                "{} requests, not counted",
                output::count(outcome.warmup_requests)
            ),
        )
        .fact(
            "overhead per object",
            format!(
                "{} bytes in addition to its body, measured on an edge and used by the simulator",
                output::count(outcome.object_overhead_bytes)
            ),
        )
        .fact(
            "AdaptSize's window",
            format!(
                "{} requests instead of the paper's 250,000, so that the tuner runs several times",
                output::count(u64::from(outcome.window_requests))
            ),
        );
    if let Some(edge) = outcome.edges.first() {
        page.fact(
            "load",
            format!(
                "{} connections, each sends its next request after the last response",
                edge.measured.plan.connections
            ),
        );
    }
}
