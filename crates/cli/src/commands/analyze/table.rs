//! The report as text for a terminal.

use std::io::{self, Write};

use edgeward_types::ByteSize;

use super::document::{Document, FullFigures, NameRanking, NamedRow, ShareCells, ShareRow};
use super::prediction::Prediction;
use crate::output::{self, Column, Table, count, percent};

pub(super) fn print(document: &Document) -> anyhow::Result<()> {
    let mut out = output::stdout();
    if !document.complete {
        writeln!(
            out,
            "INCOMPLETE: some of the logs were not read completely.\n"
        )?;
    }
    for sentence in document.findings() {
        writeln!(out, "{sentence}")?;
    }
    writeln!(out)?;
    write!(out, "{}", facts(document))?;
    section(&mut out, "Requests per URL", &requests_per_url(document))?;
    section(&mut out, "Most requested", &top(document))?;
    if let Some(full) = &document.full {
        section(
            &mut out,
            "Status",
            &shares_table("status", &full.statuses, None),
        )?;
        for (heading, column, names) in [
            ("Methods", "method", &full.methods),
            ("Hosts", "host", &full.hosts),
            ("Types", "type", &full.types),
            ("Machines", "machine", &full.machines),
        ] {
            let rows = names.top.len() + usize::from(names.others.is_some());
            // A table with a single row would repeat the totals.
            if rows > 1 {
                section(&mut out, heading, &names_table(column, names))?;
            }
        }
    }
    let prediction = document
        .full
        .as_ref()
        .and_then(|full| full.prediction.as_ref());
    if let Some(prediction) = prediction {
        section(&mut out, "Simulated caches", &caches(prediction))?;
        writeln!(
            out,
            "\nConfiguration that suits these logs\n{}",
            prediction.config
        )?;
    } else if let Some(reason) = document
        .full
        .as_ref()
        .and_then(|full| full.prediction_absent)
    {
        writeln!(out, "\nNo cache is predicted: {reason}.")?;
    }
    out.flush()?;
    Ok(())
}

fn section(out: &mut impl Write, heading: &str, table: &Table) -> io::Result<()> {
    write!(out, "\n{heading}\n{table}")
}

fn facts(document: &Document) -> Table {
    let mut table = Table::new([Column::words(""), Column::figures("")]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("requests", count(document.requests));
    row("URLs", count(document.urls));
    row("  requested once", count(document.once));
    if let Some(full) = &document.full {
        full_facts(full, &mut row);
        for (field, requests) in full.known.partly_known(document.requests) {
            row(
                &format!("{field} known in"),
                format!(
                    "{} of {} requests",
                    count(requests),
                    count(document.requests)
                ),
            );
        }
    }
    row("format", document.formats());
    if let Some(zipf) = &document.zipf {
        row("Zipf exponent", format!("{:.2}", zipf.exponent));
    }
    row("lines", count(document.lines));
    if document.lines_passed_over > 0 {
        row("  ignored", count(document.lines_passed_over));
    }
    if document.lines_malformed > 0 {
        row("  malformed", count(document.lines_malformed));
    }
    table
}

fn full_facts(full: &FullFigures, row: &mut impl FnMut(&str, String)) {
    let size = |bytes: Option<u64>| {
        bytes.map_or_else(|| "-".to_owned(), |bytes| ByteSize(bytes).to_string())
    };
    if let (Some(from), Some(to)) = (&full.from, &full.to) {
        row("from", from.clone());
        row("to", to.clone());
    }
    row("bytes sent", ByteSize(full.bytes).to_string());
    if let Some(cache) = &full.cache {
        let ratio = cache.hit_ratio.map_or_else(|| "-".to_owned(), percent);
        row("hit ratio of the logged cache", ratio);
    }
    // The objects that a cache may store, each with its size.
    row(
        "bytes of all objects",
        ByteSize(full.storable.bytes).to_string(),
    );
    row(
        "  requested once",
        ByteSize(full.storable.once_bytes).to_string(),
    );
    let sizes = &full.object_sizes;
    row("object size, median", size(sizes.p50));
    row("  p90", size(sizes.p90));
    row("  p99", size(sizes.p99));
    row("  maximum", size(sizes.max));
    let busiest = full.hours.iter().max_by_key(|hour| hour.share.requests);
    if let Some(hour) = busiest {
        row(
            "busiest hour",
            format!("{} requests at {}", count(hour.share.requests), hour.from),
        );
    }
}

fn caches(prediction: &Prediction) -> Table {
    let mut table = Table::new([
        Column::words("RAM policy"),
        Column::figures("RAM"),
        Column::figures("disk"),
        Column::words("disk admission"),
        Column::figures("object hit ratio"),
        Column::figures("byte hit ratio"),
        Column::figures("written"),
    ]);
    let size = |bytes: Option<u64>| {
        bytes.map_or_else(|| "-".to_owned(), |bytes| ByteSize(bytes).to_string())
    };
    for row in &prediction.caches {
        table.row([
            row.policy.clone(),
            ByteSize(row.ram_bytes).to_string(),
            size(row.disk_bytes),
            row.disk_admission.clone().unwrap_or_else(|| "-".to_owned()),
            percent(row.object_hit_ratio),
            percent(row.byte_hit_ratio),
            size(row.disk_written_bytes),
        ]);
    }
    table
}

/// The histogram of requests per URL.
fn requests_per_url(document: &Document) -> Table {
    let mut table = Table::new([
        Column::words("requested"),
        Column::figures("URLs"),
        Column::figures("share"),
        Column::figures("requests"),
        Column::figures("share"),
    ]);
    for bin in document.doubling_bins() {
        let request_counts = if bin.from == bin.to {
            count(bin.from)
        } else {
            format!("{}-{}", count(bin.from), count(bin.to))
        };
        table.row([
            request_counts,
            count(bin.urls),
            percent(bin.urls as f64 / document.urls as f64),
            count(bin.requests),
            percent(bin.requests as f64 / document.requests as f64),
        ]);
    }
    table
}

fn top(document: &Document) -> Table {
    let full = document.full.is_some();
    let mut columns = vec![Column::figures("requests"), Column::figures("share")];
    if full {
        columns.push(Column::figures("size"));
    }
    columns.push(Column::words(if full {
        "URL"
    } else {
        "fingerprint of URL"
    }));
    let mut table = Table::new(columns);
    for row in &document.top {
        let mut cells = vec![
            count(row.requests),
            percent(row.requests as f64 / document.requests as f64),
        ];
        cells.extend(row.size.map(|size| ByteSize(size).to_string()));
        let name = row.url.as_ref().unwrap_or(&row.fingerprint);
        cells.push(printable(name, URL_CHARS_MAX));
        table.row(cells);
    }
    table
}

fn names_table(column: &str, names: &NameRanking) -> Table {
    shares_table(column, &names.top, names.others.as_ref())
}

fn shares_table(column: &str, rows: &[NamedRow], others: Option<&ShareRow>) -> Table {
    // A row without hits and misses has `-` as its hit ratio.
    let shares = ShareCells::of(rows, others, "-");
    let figures = shares.columns.into_iter().map(Column::figures);
    let mut table = Table::new(
        std::iter::once(Column::words(column))
            .chain(figures)
            .collect::<Vec<_>>(),
    );
    for (name, cells) in shares.rows {
        table.row(
            std::iter::once(printable(name, NAME_CHARS_MAX))
                .chain(cells)
                .collect::<Vec<_>>(),
        );
    }
    table
}

/// Truncates a name from a log to `chars_max` characters and replaces control characters, which could move the
/// cursor of the terminal.
fn printable(name: &str, chars_max: usize) -> String {
    let replace_control = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut text: String = name.chars().take(chars_max).map(replace_control).collect();
    if name.chars().nth(chars_max).is_some() {
        text.push('…');
    }
    text
}

const URL_CHARS_MAX: usize = 80;
const NAME_CHARS_MAX: usize = 40;
