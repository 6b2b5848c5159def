//! The curves of all contenders over the same time axis.

use edgeward_report::{Axis, Page, Plot, Series, Unit};

use crate::outcome::{ContenderOutcome, Outcome, share};
use crate::sample::{Sample, interval_values};

/// Adds the plots for which there is data.
pub(super) fn plots(page: &mut Page, outcome: &Outcome) {
    let curves = Curves::new(outcome);
    page.plot(curves.rates(
        plot("Requests answered from the cache", "hit ratio", Unit::Share),
        |a, b| {
            let requests = b.requests.saturating_sub(a.requests);
            (requests > 0).then(|| share(b.hits.saturating_sub(a.hits), requests))
        },
    ));
    page.plot(curves.rates(
        plot("Processor time", "cores in use", Unit::Count),
        |a, b| Some((b.cpu_seconds? - a.cpu_seconds?).max(0.0) / (b.seconds - a.seconds)),
    ));
    page.plot(curves.levels(
        plot(
            "Memory",
            "bytes of processes and files in memory",
            Unit::Bytes,
        ),
        |sample| sample.memory_bytes.map(|bytes| bytes as f64),
    ));
    let per_second = |figure: fn(&Sample) -> Option<u64>| {
        move |a: &Sample, b: &Sample| {
            let growth = figure(b)?.saturating_sub(figure(a)?);
            Some(growth as f64 / (b.seconds - a.seconds))
        }
    };
    if curves.any(|sample| sample.store_write_operations.unwrap_or(0) > 0) {
        page.plot(
            curves.rates(
                plot(
                    "Disk operations: writes of the disk cache",
                    "writes per second",
                    Unit::Count,
                )
                .note("Counted by the server; not every server counts them."),
                per_second(|sample| sample.store_write_operations),
            ),
        );
    }
    if curves.any(|sample| sample.device_operations.unwrap_or(0) > 0) {
        page.plot(
            curves.rates(
                plot(
                    "Disk operations: reads and writes of the device",
                    "operations per second",
                    Unit::Count,
                )
                .note("Includes operations of the kernel's write-back and of other programs."),
                per_second(|sample| sample.device_operations),
            ),
        );
    }
    if curves.any(|sample| sample.disk_write_bytes.unwrap_or(0) > 1 << 20) {
        page.plot(curves.rates(
            plot("Bytes written to disk", "bytes per second", Unit::Bytes),
            per_second(|sample| sample.disk_write_bytes),
        ));
    }
    page.plot(curves.rates(
        plot("Traffic from the origin", "bytes per second", Unit::Bytes),
        per_second(|sample| Some(sample.origin_bytes)),
    ));
    page.plot(curves.rates(
        plot("Traffic to the clients", "bytes per second", Unit::Bytes).note(
            "Without failed requests. The curves of servers that keep up with the rate coincide.",
        ),
        per_second(|sample| Some(sample.body_bytes)),
    ));
    type Latency = fn(&Sample) -> Option<f64>;
    let latencies: [(&str, Latency); 3] = [
        ("Latency: median", |s| s.latency_p50_ms),
        ("Latency: 90th percentile", |s| s.latency_p90_ms),
        ("Latency: 99th percentile", |s| s.latency_p99_ms),
    ];
    for (title, figure) in latencies {
        let axis = Axis::new("latency to the last byte", Unit::Seconds).log();
        page.plot(
            curves.levels(Plot::new(title, time(), axis), move |sample| {
                figure(sample).map(|ms| ms / 1e3)
            }),
        );
    }
    page.plot(curves.levels(
        plot("Connections", "open sockets of the server", Unit::Count),
        |sample| sample.sockets.map(|sockets| sockets as f64),
    ));
}

fn plot(title: &str, label: &str, unit: Unit) -> Plot {
    Plot::new(title, time(), Axis::new(label, unit))
}

fn time() -> Axis {
    Axis::new("since the load began", Unit::Seconds)
}

/// The contenders with at least two samples, each with its index among all contenders, which selects its colour.
struct Curves<'a>(Vec<(usize, &'a ContenderOutcome)>);

impl<'a> Curves<'a> {
    fn new(outcome: &'a Outcome) -> Self {
        let contenders = outcome.contenders.iter().enumerate();
        Self(
            contenders
                .filter(|(_, contender)| contender.series.len() > 1)
                .collect(),
        )
    }

    fn any(&self, figure: impl Fn(&Sample) -> bool) -> bool {
        self.0
            .iter()
            .any(|(_, contender)| contender.series.iter().any(&figure))
    }

    /// Adds a line per contender. `figure` returns the value for the interval between two samples.
    fn rates(&self, mut plot: Plot, figure: impl Fn(&Sample, &Sample) -> Option<f64>) -> Plot {
        for (colour, contender) in &self.0 {
            let points = interval_values(&contender.series, &figure);
            plot.add(series(contender, *colour, points));
        }
        self.add_marks(&mut plot);
        plot
    }

    /// Adds a line per contender. `figure` returns the value of one sample.
    fn levels(&self, mut plot: Plot, figure: impl Fn(&Sample) -> Option<f64>) -> Plot {
        for (colour, contender) in &self.0 {
            let samples = contender.series.iter();
            let points = samples.filter_map(|sample| Some((sample.seconds, figure(sample)?)));
            plot.add(series(contender, *colour, points.collect()));
        }
        self.add_marks(&mut plot);
        plot
    }

    /// Marks the time of each switch of settings, and the end of the warm-up if it is nearly the same for all
    /// contenders.
    fn add_marks(&self, plot: &mut Plot) {
        let warm: Vec<f64> = self
            .0
            .iter()
            .filter_map(|(_, contender)| contender.warm_seconds)
            .collect();
        let earliest = warm.iter().copied().fold(f64::INFINITY, f64::min);
        let latest = warm.iter().copied().fold(0.0, f64::max);
        if earliest > 0.0 && latest - earliest <= (latest * 0.05).max(2.0) {
            plot.mark(latest, "warmed up");
        }
        for (_, contender) in &self.0 {
            if let Some(at) = contender.switched_seconds {
                plot.mark(at, format!("{}: switched", contender.name));
            }
        }
    }
}

/// Returns the line of a contender in its colour. From the ninth contender on, the colours repeat with dashed lines.
fn series(contender: &ContenderOutcome, colour: usize, points: Vec<(f64, f64)>) -> Series {
    let name = super::display_name(contender);
    let series = Series::line(name, points).colour(colour);
    if colour >= COLOURS {
        series.dashed()
    } else {
        series
    }
}

/// The number of colours in `edgeward_report`.
const COLOURS: usize = 8;
