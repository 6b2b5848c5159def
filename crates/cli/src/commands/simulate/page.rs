//! The HTML page of `simulate --report`.

mod disk;

use edgeward_report::{Axis, Bars, Column, Page, Plot, Series, Table, Unit};
use edgeward_sim::{OfflinePolicy, RunReport};
use edgeward_types::ByteSize;

use super::Simulation;
use crate::output;

pub(super) fn render(simulation: &Simulation, label: &str) -> String {
    let facts = &simulation.trace;
    let mut page = Page::new(format!("Simulated caches: {label}"));
    let has_disk = simulation.runs.iter().any(|run| run.disk.is_some());
    let sentence = if has_disk {
        disk::finding(&simulation.runs)
    } else {
        finding(&simulation.runs)
    };
    if let Some(sentence) = sentence {
        page.finding(sentence);
    }
    page.fact("requests", output::count(facts.requests));
    page.fact("objects", output::count(facts.objects));
    page.fact(
        "bytes of all objects",
        ByteSize(facts.footprint_bytes).to_string(),
    );
    page.fact("requested once", output::percent(facts.one_hit_share));

    if has_disk {
        disk::render(&mut page, &simulation.runs);
        return page.render();
    }
    page.section("Hit ratios");
    page.bars(ratio_bars(simulation));
    if capacities(&simulation.runs).len() > 1 {
        page.plot(by_capacity(simulation));
    }
    page.table(table(&simulation.runs));

    for capacity in capacities(&simulation.runs) {
        let runs = || {
            simulation
                .runs
                .iter()
                .filter(move |run| run.capacity_bytes == capacity)
        };
        if runs().any(|run| run.series.len() > 1) {
            page.section(format!("Over time at {}", ByteSize(capacity)));
            page.plot(over_time(runs()));
        }
        if runs().any(|run| !run.tuned.is_empty()) {
            page.plot(tuned_parameter(runs()));
        }
    }
    page.render()
}

/// Returns a sentence about the policy with the highest object hit ratio at the smallest capacity, among the policies
/// that can serve. If LRU ran too, the sentence compares the two.
fn finding(runs: &[RunReport]) -> Option<String> {
    let capacity = capacities(runs).into_iter().next()?;
    let candidates = || {
        runs.iter()
            .filter(move |run| run.capacity_bytes == capacity && can_serve(run))
    };
    let best = candidates().max_by(|a, b| a.object_hit_ratio.total_cmp(&b.object_hit_ratio))?;
    let ratio = output::percent(best.object_hit_ratio);
    let size = ByteSize(capacity);
    Some(match candidates().find(|run| run.policy == "lru") {
        Some(lru) if best.policy != "lru" => format!(
            "With {size}, {} answers {ratio} of the requests from the cache, {} points more than LRU.",
            best.policy,
            output::points(best.object_hit_ratio - lru.object_hit_ratio).trim_start_matches('+'),
        ),
        _ => format!(
            "With {size}, {} answers {ratio} of the requests from the cache.",
            best.policy
        ),
    })
}

fn can_serve(run: &RunReport) -> bool {
    run.policy != "infinite" && run.policy.parse::<OfflinePolicy>().is_err()
}

fn ratio_bars(simulation: &Simulation) -> Bars {
    let mut bars = Bars::new(
        "Requests and bytes answered from the cache",
        Axis::new("hit ratio", Unit::Share),
        ["object hit ratio", "byte hit ratio"],
    );
    for run in &simulation.runs {
        bars.group(name(run), [run.object_hit_ratio, run.byte_hit_ratio]);
    }
    for bound in &simulation.bounds {
        let ratios = [bound.object_hit_ratio_max, bound.byte_hit_ratio_max];
        bars.group(
            format!("upper bound {}", ByteSize(bound.capacity_bytes)),
            ratios,
        );
    }
    bars
}

fn by_capacity(simulation: &Simulation) -> Plot {
    let runs = &simulation.runs;
    let mut plot = Plot::new(
        "Object hit ratio by cache size",
        Axis::new("cache size", Unit::Bytes).log(),
        Axis::new("object hit ratio", Unit::Share),
    );
    let mut policies: Vec<&str> = Vec::new();
    for run in runs {
        if !policies.contains(&run.policy.as_str()) {
            policies.push(&run.policy);
        }
    }
    for policy in policies {
        let mut points: Vec<(f64, f64)> = runs
            .iter()
            .filter(|run| run.policy == policy)
            .map(|run| (run.capacity_bytes as f64, run.object_hit_ratio))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        plot.add(Series::line(policy, points));
    }
    if !simulation.bounds.is_empty() {
        let mut points: Vec<(f64, f64)> = simulation
            .bounds
            .iter()
            .map(|bound| (bound.capacity_bytes as f64, bound.object_hit_ratio_max))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        plot.add(Series::line("upper bound", points));
    }
    plot
}

fn over_time<'a>(runs: impl Iterator<Item = &'a RunReport>) -> Plot {
    let mut plot = Plot::new(
        "Object hit ratio over time",
        Axis::new("requests", Unit::Count),
        Axis::new("object hit ratio", Unit::Share),
    );
    for run in runs {
        let points = run
            .series
            .iter()
            .map(|interval| (interval.requests_end as f64, interval.object_hit_ratio));
        plot.add(Series::line(run.policy.as_str(), points));
    }
    plot
}

fn tuned_parameter<'a>(runs: impl Iterator<Item = &'a RunReport>) -> Plot {
    let mut plot = Plot::new(
        "AdaptSize's size parameter c",
        Axis::new("requests", Unit::Count),
        Axis::new("c", Unit::Bytes).log(),
    )
    .note("An object of c bytes is admitted with probability 1/e. Gaps: all objects are admitted.");
    for run in runs.filter(|run| !run.tuned.is_empty()) {
        let points = run
            .tuned
            .iter()
            .map(|tuned| (tuned.requests_end as f64, tuned.c_bytes.unwrap_or(f64::NAN)));
        plot.add(Series::steps(run.policy.as_str(), points));
    }
    plot
}

fn table(runs: &[RunReport]) -> Table {
    let mut table = Table::new([
        Column::words("policy"),
        Column::figures("capacity"),
        Column::figures("object hit ratio"),
        Column::figures("byte hit ratio"),
        Column::figures("hits"),
        Column::figures("objects at the end"),
    ]);
    for run in runs {
        table.row([
            run.policy.clone(),
            ByteSize(run.capacity_bytes).to_string(),
            output::percent(run.object_hit_ratio),
            output::percent(run.byte_hit_ratio),
            output::count(run.hits),
            output::count(run.residents),
        ]);
    }
    table
}

/// The simulated capacities in ascending order.
fn capacities(runs: &[RunReport]) -> Vec<u64> {
    let mut capacities: Vec<u64> = runs.iter().map(|run| run.capacity_bytes).collect();
    capacities.sort_unstable();
    capacities.dedup();
    capacities
}

fn name(run: &RunReport) -> String {
    format!("{} {}", run.policy, ByteSize(run.capacity_bytes))
}
