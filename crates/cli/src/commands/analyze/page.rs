//! The HTML page of `analyze --report`.

use std::iter;

use edgeward_report::{Axis, Column, Page, Plot, Series, Table, Unit};
use edgeward_trace::raw::iso8601;
use edgeward_types::ByteSize;

use super::document::{
    Document, FullFigures, HourRow, NameRanking, NamedRow, ShareCells, ShareRow, SizeFigures,
};
use super::prediction::{CacheRow, Prediction};
use crate::output::{count, percent};

pub(super) fn render(document: &Document, label: &str) -> String {
    let mut page = Page::new(format!("Request logs: {label}"));
    if !document.complete {
        page.finding(
            "Incomplete: some of the logs were not read completely; see the table of logs.",
        );
    }
    for sentence in document.findings() {
        page.finding(sentence);
    }
    let prediction = document
        .full
        .as_ref()
        .and_then(|full| full.prediction.as_ref());
    if let Some(prediction) = prediction {
        page.setting(prediction.config.clone());
    }
    facts(&mut page, document);

    page.section("Popularity");
    page.plot(popularity(document));
    page.plot(requests_per_url(document));
    page.table(top(document));
    if let Some(full) = &document.full {
        page.section("Sizes");
        page.plot(sizes("Objects by size", "objects", &full.object_sizes));
        page.plot(sizes(
            "Requests by bytes sent",
            "requests",
            &full.response_sizes,
        ));
        traffic(&mut page, full);
        if let Some(prediction) = &full.prediction {
            prediction_section(&mut page, prediction);
        }
        shares_section(&mut page, full);
    }
    page.section("Logs");
    page.table(logs(document));
    page.render()
}

fn facts(page: &mut Page, document: &Document) {
    page.fact("requests", count(document.requests));
    page.fact("URLs", count(document.urls));
    if let Some(full) = &document.full {
        if let (Some(from), Some(to)) = (&full.from, &full.to) {
            page.fact("from", from.clone());
            page.fact("to", to.clone());
        }
        page.fact("bytes sent", ByteSize(full.bytes).to_string());
        page.fact(
            "bytes of all objects",
            ByteSize(full.storable.bytes).to_string(),
        );
        for (field, requests) in full.known.partly_known(document.requests) {
            page.fact(
                format!("{field} known in"),
                format!(
                    "{} of {} requests",
                    count(requests),
                    count(document.requests)
                ),
            );
        }
        if let Some(reason) = full.prediction_absent {
            page.fact("no prediction", reason.to_owned());
        }
        if let Some(prediction) = &full.prediction {
            page.fact(
                "sample for predictions",
                format!(
                    "{} of the objects; they have {} requests",
                    percent(prediction.sample_rate),
                    count(prediction.sample_requests)
                ),
            );
        }
    }
    if let Some(zipf) = &document.zipf {
        page.fact(
            "Zipf exponent",
            format!(
                "{:.2} over the {} most requested (R² {:.3})",
                zipf.exponent,
                count(zipf.ranks),
                zipf.r_squared
            ),
        );
    }
    page.fact("lines", count(document.lines));
    page.fact("malformed lines, skipped", count(document.lines_malformed));
    page.fact("version", format!("edgeward {}", env!("CARGO_PKG_VERSION")));
}

fn popularity(document: &Document) -> Plot {
    let mut plot = Plot::new(
        "Requests by rank of the URL",
        Axis::new("rank, the most requested URL first", Unit::Count).log(),
        Axis::new("requests", Unit::Count).log(),
    );
    let points = document.popularity.iter();
    plot.add(Series::line(
        "requests",
        points.map(|row| (row.rank as f64, row.requests as f64)),
    ));
    if let Some(zipf) = &document.zipf {
        let law = [1.0, zipf.ranks as f64];
        let law = law.map(|rank| (rank, zipf.requests_of_first * rank.powf(-zipf.exponent)));
        plot.add(Series::line(format!("Zipf's law, {:.2}", zipf.exponent), law).dashed());
    }
    plot
}

fn requests_per_url(document: &Document) -> Plot {
    let mut plot = Plot::new(
        "URLs by number of requests",
        Axis::new("requests per URL, upper end of the bin", Unit::Count).log(),
        Axis::new("share", Unit::Share),
    )
    .note("Two shares per bin: of the URLs, and of the requests for them.");
    let bins = document.doubling_bins();
    let total = document.urls as f64;
    plot.add(Series::columns(
        "share of URLs",
        bins.iter()
            .map(|bin| (bin.to as f64, bin.urls as f64 / total)),
    ));
    let total = document.requests as f64;
    plot.add(Series::line(
        "share of requests",
        bins.iter()
            .map(|bin| (bin.to as f64, bin.requests as f64 / total)),
    ));
    plot
}

fn top(document: &Document) -> Table {
    let full = document.full.is_some();
    let mut columns = vec![
        Column::words(if full {
            "most requested URL"
        } else {
            "fingerprint of URL"
        }),
        Column::figures("requests"),
        Column::figures("share"),
    ];
    if full {
        columns.push(Column::figures("size"));
    }
    let mut table = Table::new(columns);
    for row in &document.top {
        let name = row.url.as_ref().unwrap_or(&row.fingerprint);
        let mut cells = vec![
            name.clone(),
            count(row.requests),
            percent(row.requests as f64 / document.requests as f64),
        ];
        cells.extend(row.size.map(|size| ByteSize(size).to_string()));
        table.row(cells);
    }
    table
}

fn sizes(title: &str, what: &str, sizes: &SizeFigures) -> Plot {
    let count: u64 = sizes.buckets.iter().map(|bucket| bucket.count).sum();
    let bytes: u64 = sizes.buckets.iter().map(|bucket| bucket.bytes).sum();
    let mut plot = Plot::new(
        title,
        Axis::new("size", Unit::Bytes).log(),
        Axis::new("share that is smaller", Unit::Share).range(0.0, 1.0),
    );
    let (mut count_share, mut bytes_share) = (0.0, 0.0);
    let (mut by_count, mut by_bytes) = (Vec::new(), Vec::new());
    for bucket in &sizes.buckets {
        count_share += bucket.count as f64 / count as f64;
        bytes_share += bucket.bytes as f64 / bytes.max(1) as f64;
        let to = bucket.to as f64;
        by_count.push((to, count_share));
        by_bytes.push((to, bytes_share));
    }
    plot.add(Series::line(format!("of {what}"), by_count));
    plot.add(Series::line("of their bytes", by_bytes));
    plot
}

fn traffic(page: &mut Page, full: &FullFigures) {
    let Some(first) = full.hours.first() else {
        return;
    };
    page.section("Traffic");
    let since = format!(
        "time since {}",
        first.from.replace('T', " ").replace(":00Z", " UTC")
    );
    let mut plot = Plot::new(
        "Requests per hour",
        Axis::new(since.clone(), Unit::Seconds),
        Axis::new("requests", Unit::Count),
    );
    plot.add(Series::steps(
        "requests",
        over_time(full, |share| share.requests as f64),
    ));
    page.plot(plot);
    let mut plot = Plot::new(
        "Bytes sent per hour",
        Axis::new(since.clone(), Unit::Seconds),
        Axis::new("bytes", Unit::Bytes),
    );
    plot.add(Series::steps(
        "bytes",
        over_time(full, |share| share.bytes as f64),
    ));
    page.plot(plot);
    if full.cache.is_some() {
        let mut plot = Plot::new(
            "Hit ratio of the cache that wrote the logs",
            Axis::new(since, Unit::Seconds),
            Axis::new("hits / (hits + misses)", Unit::Share),
        );
        let ratio = |share: &ShareRow| share.hit_ratio.unwrap_or(f64::NAN);
        plot.add(Series::steps("hit ratio", over_time(full, ratio)));
        page.plot(plot);
    }
}

/// The points of the curve of a value per hour. The time is in seconds since the first hour; the value is 0 in hours
/// without a request.
fn over_time(full: &FullFigures, value: impl Fn(&ShareRow) -> f64) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let start = full.hours.first().map_or(0.0, start_secs);
    for hour in &full.hours {
        let seconds = start_secs(hour) - start;
        if let Some((previous_seconds, _)) = points.last().copied()
            && seconds > previous_seconds + 3600.0
        {
            points.push((previous_seconds + 3600.0, 0.0));
        }
        points.push((seconds, value(&hour.share)));
    }
    if let Some((seconds, last)) = points.last().copied() {
        points.push((seconds + 3600.0, last));
    }
    points
}

fn start_secs(hour: &HourRow) -> f64 {
    iso8601(hour.from.as_bytes()).map_or(0.0, |time| time.as_secs() as f64)
}

fn prediction_section(page: &mut Page, prediction: &Prediction) {
    page.section("Prediction for a cache");
    let mut plot = Plot::new(
        "Hit ratio of an LRU cache by its size",
        Axis::new("cache size", Unit::Bytes).log(),
        Axis::new("hit ratio", Unit::Share),
    )
    .note("The cache starts empty, no object expires, and one cache serves the requests of all machines.");
    let rows = || prediction.lru.iter();
    plot.add(Series::line(
        "of requests",
        rows().map(|row| (row.cache_bytes as f64, row.object_hit_ratio)),
    ));
    plot.add(Series::line(
        "of bytes",
        rows().map(|row| (row.cache_bytes as f64, row.byte_hit_ratio)),
    ));
    page.plot(plot);
    page.table(caches(&prediction.caches));
    let Some(first) = prediction.working_set.first() else {
        return;
    };
    let time = |text: &str| iso8601(text.as_bytes()).map_or(0.0, |time| time.as_secs() as f64);
    let start = time(&first.from);
    let mut plot = Plot::new(
        "Working set: bytes of the distinct objects requested in an hour",
        Axis::new("time since the first hour", Unit::Seconds),
        Axis::new("bytes", Unit::Bytes),
    );
    let rows = || prediction.working_set.iter();
    plot.add(Series::steps(
        "all",
        rows().map(|row| (time(&row.from) - start, row.bytes as f64)),
    ));
    plot.add(Series::steps(
        "first requested in this hour",
        rows().map(|row| (time(&row.from) - start, row.new_bytes as f64)),
    ));
    page.plot(plot);
}

fn caches(rows: &[CacheRow]) -> Table {
    let mut table = Table::new([
        Column::words("RAM policy"),
        Column::figures("RAM"),
        Column::figures("disk"),
        Column::words("disk admission"),
        Column::figures("object hit ratio"),
        Column::figures("byte hit ratio"),
        Column::figures("bytes written"),
    ])
    .caption("Simulated; the caches start empty");
    let size = |bytes: Option<u64>| {
        bytes.map_or_else(|| "–".to_owned(), |bytes| ByteSize(bytes).to_string())
    };
    for row in rows {
        table.row([
            row.policy.clone(),
            ByteSize(row.ram_bytes).to_string(),
            size(row.disk_bytes),
            row.disk_admission.clone().unwrap_or_else(|| "–".to_owned()),
            percent(row.object_hit_ratio),
            percent(row.byte_hit_ratio),
            size(row.disk_written_bytes),
        ]);
    }
    table
}

fn shares_section(page: &mut Page, full: &FullFigures) {
    page.section("Requests by kind");
    page.table(shares_table("status", &full.statuses, None));
    for (heading, names) in [
        ("method", &full.methods),
        ("host", &full.hosts),
        ("type", &full.types),
        ("machine", &full.machines),
    ] {
        // A table with a single row would repeat the totals.
        if names.top.len() + usize::from(names.others.is_some()) > 1 {
            page.table(names_table(heading, names));
        }
    }
}

fn names_table(heading: &str, names: &NameRanking) -> Table {
    shares_table(heading, &names.top, names.others.as_ref())
}

fn shares_table(heading: &str, rows: &[NamedRow], others: Option<&ShareRow>) -> Table {
    let shares = ShareCells::of(rows, others, "–");
    let figures = shares.columns.into_iter().map(Column::figures);
    let mut table = Table::new(iter::once(Column::words(heading)).chain(figures));
    for (name, cells) in shares.rows {
        table.row(iter::once(name.to_owned()).chain(cells));
    }
    table
}

fn logs(document: &Document) -> Table {
    let mut table = Table::new([
        Column::words("log"),
        Column::words("format"),
        Column::figures("lines"),
        Column::figures("malformed"),
        Column::words("error"),
    ]);
    for file in document.files.iter().take(FILES_SHOWN_MAX) {
        table.row([
            file.file.clone(),
            file.format.clone().unwrap_or_default(),
            count(file.lines),
            count(file.lines_malformed),
            file.problem.clone().unwrap_or_default(),
        ]);
    }
    if document.files.len() > FILES_SHOWN_MAX {
        let more = document.files.len() - FILES_SHOWN_MAX;
        table.row([
            format!("… and {more} more"),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
        ]);
    }
    table
}

const FILES_SHOWN_MAX: usize = 100;
