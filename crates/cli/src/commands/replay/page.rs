//! The HTML page of `replay --report`.

use edgeward_replay::ReplayReport;
use edgeward_replay::monitor::Sample;
use edgeward_report::{Axis, Column, Page, Plot, Series, Table, Unit};
use edgeward_types::ByteSize;

use super::text::{
    NO_CACHE_STATUS, distributions, has_no_cache_status, load_text, millis, seconds,
};
use crate::output;

pub(super) fn render(report: &ReplayReport) -> String {
    let mut page = Page::new(format!("{} against {}", report.trace, report.target_url));
    page.finding(if has_no_cache_status(report) {
        NO_CACHE_STATUS.to_owned()
    } else {
        format!(
            "{} of the requests and {} of the bytes came from the cache.",
            output::percent(report.object_hit_ratio),
            output::percent(report.byte_hit_ratio),
        )
    });
    page.finding(format!(
        "Half of the responses took at most {}, 99 of 100 at most {}.",
        millis(report.latency_ms.p50),
        millis(report.latency_ms.p99),
    ));
    page.finding(match report.errors_total {
        0 => "Every byte of every response was correct.".to_owned(),
        n => format!("{} requests failed.", output::count(n)),
    });
    page.fact("requests", output::count(report.requests));
    page.fact("warm-up requests", output::count(report.warmup_requests));
    page.fact("load", load_text(report));
    page.fact("duration", seconds(report.duration_seconds));
    let throughput = &report.throughput;
    page.fact(
        "throughput",
        output::per_second(throughput.requests_per_second),
    );
    page.fact("bytes", ByteSize(report.body_bytes).to_string());

    page.section("Responses");
    page.table(classes(report));
    page.table(times(report));
    if report.errors_total > 0 {
        page.section("Failures");
        page.table(failures(report));
    }

    let series = &report.target.series;
    if series.len() > 2 {
        page.section("Over time");
        page.plot(hit_ratios(series));
        page.plot(rate(
            "Requests per second",
            Unit::Count,
            series,
            &[("requests", |sample| Some(sample.requests as f64))],
        ));
        page.plot(rate(
            "Body bytes per second",
            Unit::Bytes,
            series,
            &[("bytes", |sample| Some(sample.body_bytes as f64))],
        ));
    }
    if report.target.cpu_seconds.is_some() && series.len() > 2 {
        target(&mut page, report);
    }
    for note in &report.target.notes {
        page.text(format!("Not measured: {note}."));
    }
    page.render()
}

fn target(page: &mut Page, report: &ReplayReport) {
    let series = &report.target.series;
    page.section("Resources of the target");
    page.plot(rate(
        "Cores in use",
        Unit::Count,
        series,
        &[
            ("user", |sample| sample.cpu_user_seconds),
            ("system", |sample| sample.cpu_system_seconds),
        ],
    ));
    let mut memory = Plot::new(
        "Memory",
        Axis::new("time", Unit::Seconds),
        Axis::new("bytes", Unit::Bytes),
    );
    memory.add(over_time("resident", series, |sample| sample.rss_bytes));
    memory.add(over_time("proportional", series, |sample| sample.pss_bytes));
    page.plot(memory);
    page.plot(rate(
        "Disk bytes per second",
        Unit::Bytes,
        series,
        &[
            ("read", |sample| sample.disk_read_bytes.map(|n| n as f64)),
            ("written", |sample| {
                sample.disk_write_bytes.map(|n| n as f64)
            }),
        ],
    ));
    let mut resources = Plot::new(
        "Descriptors and threads",
        Axis::new("time", Unit::Seconds),
        Axis::new("open", Unit::Count),
    );
    resources.add(over_time("descriptors", series, |sample| {
        sample.descriptors
    }));
    resources.add(over_time("sockets", series, |sample| sample.sockets));
    resources.add(over_time("threads", series, |sample| sample.threads));
    page.plot(resources);
}

fn classes(report: &ReplayReport) -> Table {
    let mut table = Table::new([
        Column::words("cache status"),
        Column::figures("requests"),
        Column::figures("bytes"),
    ])
    .caption("By the cache status of the response");
    for (class, figures) in &report.classes {
        table.row([
            class.as_str().to_owned(),
            output::count(figures.requests),
            ByteSize(figures.body_bytes).to_string(),
        ]);
    }
    table
}

fn times(report: &ReplayReport) -> Table {
    let mut table = Table::new([
        Column::words("times"),
        Column::figures("mean"),
        Column::figures("p50"),
        Column::figures("p90"),
        Column::figures("p99"),
        Column::figures("p99.9"),
        Column::figures("max"),
    ]);
    for (name, ms) in distributions(report) {
        let figures = [ms.mean, ms.p50, ms.p90, ms.p99, ms.p99_9, ms.max];
        table.row(std::iter::once(name.to_owned()).chain(figures.map(millis)));
    }
    table
}

fn failures(report: &ReplayReport) -> Table {
    let mut table = Table::new([
        Column::figures("request"),
        Column::figures("object"),
        Column::words("kind"),
        Column::words("detail"),
    ])
    .caption("The first failures");
    for sample in &report.error_samples {
        table.row([
            sample.request.to_string(),
            sample.object.to_string(),
            sample.kind.as_str().to_owned(),
            sample.detail.clone(),
        ]);
    }
    table
}

/// Plots the hit ratio of each interval between two samples. A ratio since the start would show a change only slowly.
fn hit_ratios(series: &[Sample]) -> Plot {
    let mut plot = Plot::new(
        "Hit ratios between samples",
        Axis::new("time", Unit::Seconds),
        Axis::new("hit ratio", Unit::Share).range(0.0, 1.0),
    );
    let ratio = |counts: fn(&Sample) -> (u64, u64)| {
        series.windows(2).filter_map(move |pair| {
            let ((part, total), (part_before, total_before)) = (counts(&pair[1]), counts(&pair[0]));
            let total_increase = total - total_before;
            let share = (part - part_before) as f64 / total_increase as f64;
            (total_increase > 0).then_some((pair[1].seconds, share))
        })
    };
    plot.add(Series::line("objects", ratio(|s| (s.hits, s.requests))));
    plot.add(Series::line(
        "bytes",
        ratio(|s| (s.hit_bytes, s.body_bytes)),
    ));
    plot
}

/// The label of a line, and a function that returns the counter in a sample, or `None` if it was not measured.
type Counter = (&'static str, fn(&Sample) -> Option<f64>);

/// Plots the increase per second of each counter between two samples.
fn rate(title: &str, unit: Unit, series: &[Sample], counters: &[Counter]) -> Plot {
    let y = Axis::new(title.to_lowercase(), unit);
    let mut plot = Plot::new(title, Axis::new("time", Unit::Seconds), y);
    for &(name, counter) in counters {
        let points = series.windows(2).filter_map(|pair| {
            let increase = counter(&pair[1])? - counter(&pair[0])?;
            let seconds = pair[1].seconds - pair[0].seconds;
            // The last sample may follow the previous sample after a very short time. A rate over this time is noise.
            (seconds > 0.05).then_some((pair[1].seconds, increase / seconds))
        });
        plot.add(Series::line(name, points));
    }
    plot
}

fn over_time(name: &str, series: &[Sample], figure: impl Fn(&Sample) -> Option<u64>) -> Series {
    let points = series
        .iter()
        .filter_map(|sample| Some((sample.seconds, figure(sample)? as f64)));
    Series::line(name, points)
}
