//! The HTML page of `shadow --report`.

use edgeward_report::{Axis, Column, Page, Plot, Series, Table, Unit};
use edgeward_shadow::ShadowReport;

use super::document::Document;
use super::text::{lines, summary, verdict};
use crate::output;

pub(super) fn render(document: &Document<'_>) -> String {
    let report = document.report;
    let mut page = Page::new("The edge beside the cache that serves the clients");
    page.finding(sentence(&verdict(report)));
    if let (Some(of_incumbent), Some(of_edge)) =
        (report.hits.incumbent_ratio, report.hits.edge_ratio)
    {
        page.finding(format!(
            "The incumbent answered {} of the requests from its cache, the edge {}.",
            output::percent(of_incumbent),
            output::percent(of_edge)
        ));
    }
    page.text(sentence(&summary(document)));
    page.section("Differences");
    if report.groups.is_empty() {
        page.text("The answers of both caches agree.");
    } else {
        page.table(differences(report));
    }
    if report.hits.intervals.len() > 1 {
        page.section("Hits over time");
        page.plot(hits(report));
    }
    page.section("Verdicts");
    page.table(verdicts(report));
    if !report.errors.is_empty() {
        page.section("Failed requests");
        page.table(errors(report));
    }
    page.fact("edge", document.edge);
    if let Some(incumbent) = document.incumbent {
        page.fact("incumbent", incumbent);
    }
    page.fact("version", env!("CARGO_PKG_VERSION"));
    page.section("Figures");
    for line in lines(report) {
        page.text(sentence(&line));
    }
    page.render()
}

fn differences(report: &ShadowReport) -> Table {
    let mut table = Table::new([
        Column::words("cause"),
        Column::figures("count"),
        Column::words("detail"),
        Column::words("incumbent"),
        Column::words("edge"),
        Column::words("first request"),
    ])
    .caption("Differences by cause, with the first request of each");
    for group in &report.groups {
        table.row([
            group.cause.as_str().to_owned(),
            output::count(group.count),
            group.detail.clone(),
            group.incumbent.clone(),
            group.edge.clone(),
            format!("{} {}", group.method, group.url),
        ]);
    }
    table
}

fn hits(report: &ShadowReport) -> Plot {
    let mut plot = Plot::new(
        "Hit ratio by interval",
        Axis::new("time", Unit::Seconds),
        Axis::new("hit ratio", Unit::Share).range(0.0, 1.0),
    )
    .note("An edge that starts with an empty cache needs time to fill it.");
    let intervals = || report.hits.intervals.iter();
    let of_incumbent = intervals()
        .filter_map(|interval| Some((interval.start_seconds, interval.incumbent_ratio?)));
    let of_incumbent: Vec<_> = of_incumbent.collect();
    if !of_incumbent.is_empty() {
        plot.add(Series::line("incumbent", of_incumbent));
    }
    let of_edge =
        intervals().filter_map(|interval| Some((interval.start_seconds, interval.edge_ratio?)));
    plot.add(Series::line("edge", of_edge));
    plot
}

fn verdicts(report: &ShadowReport) -> Table {
    let mut table = Table::new([
        Column::words("incumbent"),
        Column::words("edge"),
        Column::figures("requests"),
    ])
    .caption("Requests by how both caches served them");
    for pair in &report.verdicts {
        table.row([
            pair.incumbent.to_owned(),
            pair.edge.to_owned(),
            output::count(pair.requests),
        ]);
    }
    table
}

fn errors(report: &ShadowReport) -> Table {
    let mut table = Table::new([
        Column::words("cache"),
        Column::words("kind"),
        Column::figures("count"),
        Column::words("first"),
    ]);
    for error in &report.errors {
        table.row([
            error.side.as_str().to_owned(),
            error.kind.as_str().to_owned(),
            output::count(error.count),
            error.example.clone(),
        ]);
    }
    table
}

/// Makes a sentence: a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), chars.as_str()),
        None => String::new(),
    }
}
