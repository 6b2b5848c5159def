//! Writes a page with one element of each kind to stdout, to check the style after a change.
//!
//! `cargo run -p edgeward-report --example sample_page > page.html`

use edgeward_report::{Axis, Bars, Column, Page, Plot, Series, Table, Unit};

fn main() {
    let mut page = Page::new("LRU or AdaptSize for this site?");
    page.finding("AdaptSize answered 66 of 100 requests from memory where LRU answered 58.")
        .finding("The simulator had predicted both within half a point.");

    let mut table = Table::new([
        Column::words("policy"),
        Column::figures("predicted"),
        Column::figures("measured"),
        Column::figures("p50"),
        Column::figures("p99"),
        Column::figures("origin requests"),
    ])
    .caption("Both edges, same trace, same memory");
    table.row(["lru", "58.10 %", "57.92 %", "210 µs", "3.10 ms", "42,080"]);
    table.row([
        "adaptsize",
        "66.31 %",
        "66.04 %",
        "190 µs",
        "2.80 ms",
        "33,960",
    ]);
    page.section("Results").table(table);

    let wave = |base: f64, amplitude: f64| {
        (0..200).map(move |n| {
            let x = f64::from(n) * 500.0;
            (
                x,
                base * (1.0 - (-x / 9000.0).exp()) + amplitude * (x / 7000.0).sin(),
            )
        })
    };
    let mut plot = Plot::new(
        "Object hit ratio over the run",
        Axis::new("requests so far", Unit::Count),
        Axis::new("object hit ratio, per 500 requests", Unit::Share),
    )
    .note("Solid lines are measured over HTTP, dashed ones were predicted beforehand.");
    plot.add(Series::line("lru", wave(0.58, 0.02)).colour(0))
        .add(Series::level("lru, predicted", 0.581).colour(0).dashed())
        .add(Series::line("adaptsize", wave(0.66, 0.03)).colour(1))
        .add(
            Series::level("adaptsize, predicted", 0.6631)
                .colour(1)
                .dashed(),
        )
        .mark(20_000.0, "warm-up ends");
    page.section("Over time").plot(plot);

    let mut plot = Plot::new(
        "Size threshold c of AdaptSize",
        Axis::new("requests so far", Unit::Count),
        Axis::new("c", Unit::Bytes).log(),
    );
    plot.add(Series::steps(
        "c",
        [
            (0.0, 65536.0),
            (25_000.0, 12_000.0),
            (50_000.0, 3_500.0),
            (75_000.0, 18_900.0),
        ],
    ));
    plot.add(Series::dots(
        "best in hindsight",
        [(25_000.0, 9000.0), (75_000.0, 21_000.0)],
    ));
    page.plot(plot);

    let mut plot = Plot::new(
        "Object sizes",
        Axis::new("size", Unit::Bytes).log(),
        Axis::new("objects", Unit::Count),
    );
    plot.add(Series::columns(
        "objects",
        (7..27).map(|n| {
            let x = f64::from(n);
            (x.exp2(), 40_000.0 * (-(x - 13.0).powi(2) / 18.0).exp())
        }),
    ));
    page.plot(plot);

    let mut bars = Bars::new(
        "Latency",
        Axis::new("time to the last byte", Unit::Seconds).log(),
        ["lru", "adaptsize"],
    )
    .note("Shorter is better.");
    bars.group("p50", [210e-6, 190e-6])
        .group("p99", [3.1e-3, 2.8e-3])
        .group("p99.9", [12.1e-3, f64::NAN]);
    page.section("Latency and origin traffic").bars(bars);
    let mut bars = Bars::new(
        "Bytes from the origin",
        Axis::new("bytes", Unit::Bytes),
        [""],
    );
    bars.group("lru", [3.2e9]).group("adaptsize", [3.4e9]);
    page.bars(bars);

    page.fact("trace", "generated: preset small, seed 0x000000000000002a")
        .fact("memory for hot objects", "64 MiB each")
        .fact("version", "edgeward 0.1.0")
        .fact(
            "command",
            "edgeward demo --requests 100000 --report report.html",
        );
    print_page(&page);
}

#[expect(clippy::print_stdout, reason = "an example whose result is its stdout")]
fn print_page(page: &Page) {
    print!("{}", page.render());
}
