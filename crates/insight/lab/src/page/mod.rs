//! The report: findings, figures, published figures, and all curves on one time axis.

mod curves;

use edgeward_report::{Axis, Bars, Column, Page, Table, Unit};
use edgeward_types::ByteSize;

use crate::figure::Figure;
use crate::finding::findings;
use crate::outcome::{ContenderOutcome, Outcome, RunEnd};
use crate::plan::SourceFigure;

/// Renders the whole report as one HTML file. `command` is the command that repeats the run.
pub fn page(outcome: &Outcome, command: &str) -> String {
    let mut page = Page::new(&outcome.title);
    for sentence in findings(outcome) {
        page.finding(sentence);
    }
    if let Some(about) = &outcome.about {
        page.text(about);
    }
    if outcome
        .contenders
        .iter()
        .any(|contender| contender.totals.is_some())
    {
        if !outcome.sources.is_empty() {
            add_sources(&mut page, outcome);
        }
        page.section("Figures");
        page.bars(hit_ratio_bars(outcome));
        page.table(figure_table(outcome));
        page.section("Over time");
        page.text(time_axis_text(outcome));
        curves::plots(&mut page, outcome);
    }
    page.section("Contenders");
    page.table(contender_table(outcome));
    add_facts(&mut page, outcome, command);
    page.render()
}

/// Adds tables with the published figures beside the measured ones. There is one table for each source and pair of
/// contenders, because a table with more columns would not fit on a phone.
fn add_sources(page: &mut Page, outcome: &Outcome) {
    page.section("Comparison with published figures");
    page.text(
        "The sources used other traffic, machines and cache sizes. Compare whether a figure rises or falls, and only \
         roughly by how much.",
    );
    let mut remaining: Vec<&SourceFigure> = outcome.sources.iter().collect();
    while let Some(&first) = remaining.first() {
        let has_same_source = |figure: &&SourceFigure| {
            (&figure.citation, &figure.before, &figure.after)
                == (&first.citation, &first.before, &first.after)
        };
        // The plan may name a group. Its best contender then represents the group.
        let before = outcome.representative(&first.before);
        let after = outcome.representative(&first.after);
        let name = |contender: Option<&ContenderOutcome>, requested: &str| {
            contender.map_or_else(|| requested.to_owned(), |contender| contender.name.clone())
        };
        let mut table = Table::new([
            Column::words("figure"),
            Column::words("published"),
            Column::words("measured"),
        ])
        .caption(format!(
            "{} → {}; source: {}",
            name(before, &first.before),
            name(after, &first.after),
            first.citation
        ));
        for source in remaining
            .iter()
            .copied()
            .filter(|figure| has_same_source(figure))
        {
            table.row([
                source.figure.name().to_owned(),
                source.published.clone(),
                measured_text(source, before, after),
            ]);
        }
        page.table(table);
        remaining.retain(|figure| !has_same_source(figure));
    }
}

/// Compares the two contenders' values as the source does, for example as a difference in percent. Returns the result
/// as text, or the reason why there is no result.
fn measured_text(
    source: &SourceFigure,
    before: Option<&ContenderOutcome>,
    after: Option<&ContenderOutcome>,
) -> String {
    let (Some(before), Some(after)) = (before, after) else {
        return "a contender did not complete the trace".to_owned();
    };
    let is_latency = matches!(
        source.figure,
        Figure::LatencyP50 | Figure::LatencyP90 | Figure::LatencyP99
    );
    if is_latency && (before.was_late() || after.was_late()) {
        return "the machine was too busy".to_owned();
    }
    let value = |contender: &ContenderOutcome| source.figure.of(contender.totals.as_ref()?);
    let compared = value(before)
        .zip(value(after))
        .and_then(|(before, after)| source.comparison.compare(before, after));
    compared.map_or_else(
        || "not measured".to_owned(),
        |compared| compared.to_string(),
    )
}

fn hit_ratio_bars(outcome: &Outcome) -> Bars {
    let mut bars = Bars::new(
        "Answered from the cache",
        Axis::new("share", Unit::Share),
        ["of the requests", "of the bytes"],
    );
    for contender in &outcome.contenders {
        if let Some(totals) = &contender.totals {
            bars.group(
                display_name(contender),
                [totals.hit_ratio, totals.byte_hit_ratio],
            );
        }
    }
    bars
}

/// Returns the table of all figures, with one column per contender.
fn figure_table(outcome: &Outcome) -> Table {
    let ran: Vec<&ContenderOutcome> = outcome
        .contenders
        .iter()
        .filter(|contender| contender.totals.is_some())
        .collect();
    let columns = ran
        .iter()
        .map(|contender| Column::figures(display_name(contender)));
    let mut table = Table::new(std::iter::once(Column::words("")).chain(columns));
    if outcome.contenders.iter().any(|contender| {
        contender
            .totals
            .as_ref()
            .is_some_and(|t| t.device_operations.is_some())
    }) {
        table = table.caption(
            "Without the warm-up. Operations of the device include those of other programs.",
        );
    } else {
        table = table.caption("Without the warm-up.");
    }
    let of = |contender: &ContenderOutcome,
              figure: &dyn Fn(&crate::outcome::Totals) -> Option<String>| {
        let shown = contender.totals.as_ref().and_then(figure);
        shown.unwrap_or_else(|| "–".to_owned())
    };
    let mut row = |name: &str, figure: &dyn Fn(&crate::outcome::Totals) -> Option<String>| {
        let cells = ran.iter().map(|contender| of(contender, figure));
        let cells: Vec<String> = std::iter::once(name.to_owned()).chain(cells).collect();
        // A row without any value is left out.
        if cells[1..].iter().any(|cell| cell != "–") {
            table.row(cells);
        }
    };
    row("requests", &|t| Some(Unit::Count.exact(t.requests as f64)));
    for figure in Figure::ALL {
        row(figure.name(), &|totals| {
            let value = figure.of(totals)?;
            Some(match figure.unit() {
                Unit::Share => format!("{:.2} %", value * 100.0),
                unit => unit.short(value),
            })
        });
        if figure == Figure::HitRatio {
            row("requests that did not reach the origin", &|totals| {
                Some(format!("{:.2} %", totals.spared_ratio * 100.0))
            });
        }
    }
    row("failures", &|t| Some(Unit::Count.exact(t.errors as f64)));
    row("duration", &|t| Some(Unit::Seconds.short(t.seconds)));
    table
}

fn time_axis_text(outcome: &Outcome) -> String {
    let load = &outcome.load;
    let order = if load.together {
        "All contenders ran at the same time, each with its own origin"
    } else {
        "The contenders ran one after the other; the time axis begins with the load of each contender"
    };
    let speed = match load.rate {
        Some(rate) => format!(
            "at {} requests per second, so each second has the same traffic for all",
            Unit::Count.exact(rate)
        ),
        None => "as fast as responses arrived, so a faster contender ended earlier".to_owned(),
    };
    let emulated = match (load.round_trip_ms > 0.0, load.origin_round_trip_ms > 0.0) {
        (false, false) => String::new(),
        _ => format!(
            " Emulated round-trip times: {} ms to the clients, {} ms to the origin.",
            load.round_trip_ms, load.origin_round_trip_ms
        ),
    };
    format!("{order}, {speed}.{emulated} Point at a plot for exact values.")
}

fn contender_table(outcome: &Outcome) -> Table {
    let mut table = Table::new([
        Column::words("contender"),
        Column::words("program"),
        Column::words("settings"),
        Column::words("run"),
    ]);
    for contender in &outcome.contenders {
        let version = contender.version.as_deref().unwrap_or("");
        let ended = match &contender.end {
            RunEnd::Completed => "complete".to_owned(),
            RunEnd::NotInstalled { hint } => format!("left out: {hint}"),
            RunEnd::NotStarted { why } => format!("failed: {why}"),
            RunEnd::EndedEarly { why } => format!("ended early: {why}"),
        };
        table.row([
            contender.name.clone(),
            format!("{} {version}", contender.server).trim().to_owned(),
            contender.settings.join("; "),
            ended,
        ]);
    }
    table
}

/// Returns the contender's name, with a suffix if the contender did not complete the trace.
fn display_name(contender: &ContenderOutcome) -> String {
    if contender.end.is_complete() {
        contender.name.clone()
    } else {
        format!("{} (partial)", contender.name)
    }
}

fn add_facts(page: &mut Page, outcome: &Outcome, command: &str) {
    let (trace, load, machine) = (&outcome.trace, &outcome.load, &outcome.machine);
    let count = |n: u64| Unit::Count.exact(n as f64);
    page.fact(
        "program",
        concat!("edgeward ", env!("CARGO_PKG_VERSION"), ", lab"),
    )
    .fact("command", command)
    .fact(
        "trace",
        format!(
            "{}: {} requests of {} for {} objects of {}, {:.1} % of them requested once",
            trace.label,
            count(trace.requests),
            Unit::Bytes.short(trace.requested_bytes as f64),
            count(trace.objects),
            ByteSize(trace.footprint_bytes),
            trace.one_hit_share * 100.0
        ),
    )
    .fact(
        "load",
        format!(
            "{} connections; the first {} requests are the warm-up and are not in the figures",
            load.connections,
            count(load.warmup_requests)
        ),
    );
    let processor = machine.processor.as_deref().unwrap_or("processor");
    let kernel = machine.kernel.as_deref().unwrap_or("unknown");
    page.fact(
        "machine",
        format!("{} cores of {processor}, Linux {kernel}", machine.cores),
    );
    if let Some(before) = machine.load_before {
        let after = machine
            .load_after
            .map_or_else(String::new, |after| format!(", {after} at the end"));
        page.fact(
            "load average",
            format!(
                "{before} before{after}; load generator, origin and contender share the machine"
            ),
        );
    }
}

#[cfg(test)]
mod tests;
