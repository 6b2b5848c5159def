//! The HTML report of the replays: the curves of all runs on one axis.

use edgeward_report::{Axis, Column, Page, Plot, Series, Table, Unit};

use super::goal::Goal;
use super::replay::{Plan, Row};
use super::sample::{Sample, share};
use crate::bench_shared::facts;
use crate::options::format_size;

/// The approximate number of points of a curve. Each point is a mean over an interval of the run.
const POINTS: usize = 60;

pub(crate) fn render(plan: &Plan, rows: &[Row], goals: &[Goal]) -> String {
    let mut page = Page::new("Write every object to disk, or only at its second request?");
    add_findings(&mut page, rows);
    page.fact("trace", plan.trace_name());
    page.fact(
        "requests",
        rows.first()
            .map_or(0, |row| row.growth(|s| s.requests))
            .to_string(),
    );
    page.fact("memory for hot objects", format_size(plan.hot_bytes));
    page.fact("disk", format_size(plan.disk_bytes));
    page.fact("policy of the memory", plan.policy.clone());
    page.fact(
        "rate",
        plan.rate.map_or_else(
            || "closed loop".to_owned(),
            |rate| format!("{rate} requests per second"),
        ),
    );
    page.fact("connections", plan.connections.to_string());
    page.fact("date", facts::today());
    page.fact("command", command());

    page.section("Figures");
    page.table(figure_table(rows));
    page.table(goal_table(goals));
    page.section("Over time");
    page.text(
        "Each run began with an empty cache. Rates are means over intervals of the run. The edge counted its \
         requests, its hits and the write operations of the store. The kernel or the origin counted all other figures.",
    );
    let axis = HorizontalAxis {
        by_time: plan.rate.is_some(),
    };
    page.plot(axis.rates(
        rows,
        "Written to disk",
        "bytes per second",
        Unit::Bytes,
        |s| s.write_bytes,
    ));
    page.plot(axis.rates(
        rows,
        "Write operations of the store",
        "operations per second",
        Unit::Count,
        |s| s.store_write_ops,
    ));
    page.plot(axis.rates(
        rows,
        "Upstream traffic",
        "bytes per second",
        Unit::Bytes,
        |s| s.origin_bytes,
    ));
    page.plot(axis.rates(
        rows,
        "Requests to the origin",
        "requests per second",
        Unit::Count,
        |s| s.origin_requests,
    ));
    page.plot(axis.hits(rows));
    page.plot(axis.saved(rows));
    let mut memory = axis.plot("Resident memory", "bytes", Unit::Bytes);
    let mut cpu = axis.plot("CPU", "share of a core", Unit::Share);
    for (n, row) in rows.iter().enumerate() {
        let points = row
            .series
            .iter()
            .map(|s| (axis.x_value(s), s.rss_bytes as f64));
        memory.add(Series::line(&row.admission, points).colour(n));
        let cpu_shares = interval_values(&row.series, |a, b| {
            (b.cpu_ms.saturating_sub(a.cpu_ms)) as f64 / 1000.0 / (b.seconds - a.seconds)
        });
        cpu.add(Series::line(&row.admission, axis.points(cpu_shares)).colour(n));
    }
    page.plot(memory);
    page.plot(cpu);
    page.render()
}

/// Returns the command line. Paths are shortened to their last part, because the folders exist on this machine only.
fn command() -> String {
    let words = std::env::args().skip(1).map(|word| {
        let name = word.rsplit('/').next().map(str::to_owned);
        name.unwrap_or(word)
    });
    words.collect::<Vec<_>>().join(" ")
}

fn add_findings(page: &mut Page, rows: &[Row]) {
    let named = |name: &str| rows.iter().find(|row| row.admission == name);
    let (Some(always), Some(second)) = (named("always"), named("second-hit")) else {
        return;
    };
    let fewer =
        always.growth(|s| s.write_bytes) as f64 / second.growth(|s| s.write_bytes).max(1) as f64;
    page.finding(format!(
        "The rule second-hit wrote {fewer:.1} times fewer bytes than the rule always."
    ));
    page.finding(format!(
        "With second-hit {:.1} % of the requests were answered from the cache, with always {:.1} %.",
        second.hit_ratio() * 100.0,
        always.hit_ratio() * 100.0,
    ));
    if rows.iter().any(|row| row.delay_p50_ms > 1000.0) {
        page.finding(
            "The machine was too slow for the rate, so the curves do not show equal traffic at \
             equal times.",
        );
    }
}

fn figure_table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        Column::words("admission rule"),
        Column::figures("bytes written"),
        Column::figures("write operations"),
        Column::figures("writes of the device"),
        Column::figures("hits"),
        Column::figures("from RAM"),
        Column::figures("from disk"),
        Column::figures("bytes hit"),
        Column::figures("CPU"),
        Column::figures("largest RSS"),
        Column::figures("memory budget"),
        Column::figures("upstream"),
        Column::figures("p99"),
    ])
    .caption("The writes of the device include those of other programs.");
    let bytes = |n: u64| Unit::Bytes.short(n as f64);
    let percent = |part: f64| format!("{:.2} %", part * 100.0);
    for row in rows {
        table.row([
            row.admission.clone(),
            bytes(row.growth(|s| s.write_bytes)),
            row.growth(|s| s.store_write_ops).to_string(),
            row.growth(|s| s.device_write_ops).to_string(),
            percent(row.hit_ratio()),
            percent(row.hit_ratio() - row.disk_hit_ratio()),
            percent(row.disk_hit_ratio()),
            percent(row.byte_hit_ratio),
            Unit::Seconds.short(row.cpu_seconds()),
            bytes(row.rss_bytes_max()),
            bytes(row.rss_budget_bytes()),
            bytes(row.growth(|s| s.origin_bytes)),
            Unit::Seconds.short(row.p99_ms / 1000.0),
        ]);
    }
    table
}

fn goal_table(goals: &[Goal]) -> Table {
    let mut table = Table::new([
        Column::words("goal"),
        Column::figures("required"),
        Column::figures("measured"),
        Column::figures("verdict"),
    ]);
    for goal in goals {
        table.row([
            goal.what.clone(),
            goal.bound_text(),
            goal.measured_text(),
            goal.verdict().to_owned(),
        ]);
    }
    table
}

/// The horizontal axis of the plots: seconds at a fixed rate, requests in a closed loop.
#[derive(Clone, Copy)]
struct HorizontalAxis {
    by_time: bool,
}

impl HorizontalAxis {
    fn x_value(self, sample: &Sample) -> f64 {
        if self.by_time {
            sample.seconds
        } else {
            sample.requests as f64
        }
    }

    fn plot(self, title: &str, label: &str, unit: Unit) -> Plot {
        let along = if self.by_time {
            Axis::new("since the start", Unit::Seconds)
        } else {
            Axis::new("requests so far", Unit::Count)
        };
        Plot::new(title, along, Axis::new(label, unit))
    }

    fn points(self, points: Vec<(&Sample, f64)>) -> Vec<(f64, f64)> {
        let placed = points
            .into_iter()
            .map(|(sample, y)| (self.x_value(sample), y));
        placed.collect()
    }

    fn rates(
        self,
        rows: &[Row],
        title: &str,
        label: &str,
        unit: Unit,
        figure: fn(&Sample) -> u64,
    ) -> Plot {
        let mut plot = self.plot(title, label, unit);
        for (n, row) in rows.iter().enumerate() {
            let points = interval_values(&row.series, |a, b| {
                figure(b).saturating_sub(figure(a)) as f64 / (b.seconds - a.seconds)
            });
            plot.add(Series::line(&row.admission, self.points(points)).colour(n));
        }
        plot
    }

    /// Plots the upstream bytes of each rule except the first, minus those of the first rule after the same number of
    /// requests. The difference is negative if the rule has saved bytes.
    fn saved(self, rows: &[Row]) -> Plot {
        let mut plot = self
            .plot("Upstream bytes so far, beyond those of the first rule", "bytes", Unit::Bytes)
            .note(
                "Rising: the rule fetches more than the first one. Falling: it fetches less. Below zero: it has \
                 fetched less since the start.",
            );
        let Some((first, others)) = rows.split_first() else {
            return plot;
        };
        for (n, row) in others.iter().enumerate() {
            let points = row.series.iter().map(|sample| {
                let more = sample.origin_bytes as f64 - upstream_at(&first.series, sample.requests);
                (self.x_value(sample), more)
            });
            plot.add(Series::line(&row.admission, points).colour(n + 1));
        }
        plot
    }

    fn hits(self, rows: &[Row]) -> Plot {
        let mut plot = self
            .plot("Requests answered from the cache", "hit ratio", Unit::Share)
            .note("Dashed: hits from RAM only.");
        for (n, row) in rows.iter().enumerate() {
            let ratios = |figure: fn(&Sample) -> u64| {
                interval_values(&row.series, |a, b| {
                    let requests = b.requests.saturating_sub(a.requests);
                    share(figure(b).saturating_sub(figure(a)), requests)
                })
            };
            let all_hits = self.points(ratios(|s| s.hits));
            let memory_hits = self.points(ratios(|s| s.hits.saturating_sub(s.disk_hits)));
            plot.add(Series::line(&row.admission, all_hits).colour(n));
            let name = format!("{}, RAM", row.admission);
            plot.add(Series::line(name, memory_hits).colour(n).dashed());
        }
        plot
    }
}

/// Returns the upstream bytes of a run after `requests` requests, interpolated linearly between two samples.
fn upstream_at(series: &[Sample], requests: u64) -> f64 {
    let after = series.partition_point(|sample| sample.requests < requests);
    let Some(b) = series.get(after) else {
        return series.last().map_or(0.0, |last| last.origin_bytes as f64);
    };
    let Some(a) = after.checked_sub(1).map(|before| &series[before]) else {
        return b.origin_bytes as f64;
    };
    let part = share(requests - a.requests, b.requests - a.requests);
    a.origin_bytes as f64 + part * b.origin_bytes.saturating_sub(a.origin_bytes) as f64
}

/// Divides the run into intervals. Calls `figure` with the samples at the start and the end of each interval. Returns
/// each value with the sample at the end. A short interval at the end of the run is merged with the previous one.
fn interval_values(
    series: &[Sample],
    figure: impl Fn(&Sample, &Sample) -> f64,
) -> Vec<(&Sample, f64)> {
    let step = series.len().div_ceil(POINTS).max(1);
    let mut ends: Vec<&Sample> = series.iter().step_by(step).collect();
    if let Some(last) = series
        .last()
        .filter(|_| !(series.len() - 1).is_multiple_of(step))
    {
        ends.push(last);
    }
    // Rates over a very short interval are meaningless.
    if let [.., a, b, c] = ends[..]
        && c.seconds - b.seconds < (b.seconds - a.seconds) / 2.0
    {
        ends.remove(ends.len() - 2);
    }
    let pairs = ends
        .windows(2)
        .filter(|pair| pair[1].seconds > pair[0].seconds);
    pairs
        .map(|pair| (pair[1], figure(pair[0], pair[1])))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_bytes_are_interpolated_between_two_samples() {
        let sample = |requests, origin_bytes| Sample {
            requests,
            origin_bytes,
            ..Sample::default()
        };
        let series = [
            sample(10, 100),
            sample(20, 200),
            sample(20, 200),
            sample(40, 240),
        ];
        for (requests, bytes) in [
            (5, 100.0),
            (10, 100.0),
            (15, 150.0),
            (20, 200.0),
            (30, 220.0),
            (50, 240.0),
        ] {
            assert_eq!(upstream_at(&series, requests), bytes, "{requests}");
        }
    }

    #[test]
    fn a_short_interval_at_the_end_is_merged_with_the_previous_one() {
        let at = |seconds| Sample {
            seconds,
            ..Sample::default()
        };
        let series = [at(0.0), at(1.0), at(2.0), at(2.1)];
        let ends: Vec<f64> = interval_values(&series, |_, _| 0.0)
            .iter()
            .map(|p| p.0.seconds)
            .collect();
        assert_eq!(ends, [1.0, 2.1]);
    }

    #[test]
    fn the_intervals_cover_the_whole_run() {
        for length in [2_u64, 3, 59, 60, 61, 200, 1000] {
            let series: Vec<Sample> = (0..length)
                .map(|n| Sample {
                    seconds: n as f64,
                    requests: n * n,
                    ..Sample::default()
                })
                .collect();
            let parts = interval_values(&series, |a, b| (b.requests - a.requests) as f64);
            let sum: f64 = parts.iter().map(|part| part.1).sum();
            assert_eq!(sum as u64, (length - 1) * (length - 1), "{length} samples");
            assert!(parts.len() <= POINTS + 1);
        }
    }
}
