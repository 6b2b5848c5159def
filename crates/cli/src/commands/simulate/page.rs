//! The HTML page of `simulate --report`.

mod disk;

use edgeward_policy::PolicySpec;
use edgeward_report::{Axis, Bars, Column, Page, Plot, Series, Table, Unit};
use edgeward_sim::{OfflinePolicy, RunReport};
use edgeward_types::ByteSize;

use super::fleet;
use super::part::{Part, add_all};
use super::runs::{Simulation, TraceResults, has_several_seeds};
use crate::output;
use disk::missed_sizes;

/// Returns the page with the results of all traces.
pub(super) fn render(title: &str, results: &[TraceResults]) -> String {
    let mut page = Page::new(format!("Simulated caches: {title}"));
    if let [_, _, ..] = results
        && let Some(sentence) = wins(results)
    {
        page.finding(sentence);
    }
    for result in results {
        let runs = &result.simulation.runs;
        let fleets = &result.simulation.fleets;
        let sentence = match has_disk(runs) {
            _ if !fleets.is_empty() => fleet::finding(fleets),
            true => disk::finding(runs),
            false => finding(&cells(runs)),
        };
        match sentence {
            Some(sentence) if results.len() > 1 => {
                page.finding(format!("{}: {sentence}", result.name));
            }
            Some(sentence) => _ = page.finding(sentence),
            None => {}
        }
    }
    if let [result] = results
        && let Some(lines) = setting(&result.simulation.runs)
    {
        page.setting(lines);
    }
    for result in results {
        let prefix = match results {
            [_] => String::new(),
            _ => format!("{}: ", result.name),
        };
        facts(&mut page, &prefix, &result.simulation);
        add_all(&mut page, &prefix, parts(&result.simulation));
    }
    page.render()
}

/// Adds the properties of a trace. Their names begin with `prefix`.
fn facts(page: &mut Page, prefix: &str, simulation: &Simulation) {
    let facts = &simulation.trace;
    let mut fact = |name: &str, value: String| {
        page.fact(format!("{prefix}{name}"), value);
    };
    fact("requests", output::count(facts.requests));
    fact("objects", output::count(facts.objects));
    fact(
        "bytes of all objects",
        ByteSize(facts.footprint_bytes).to_string(),
    );
    fact("requested once", output::percent(facts.one_hit_share));
}

/// Returns the headings, plots and tables of a trace.
pub(super) fn parts(simulation: &Simulation) -> Vec<Part> {
    let runs = &simulation.runs;
    if !simulation.fleets.is_empty() {
        return fleet::parts(&simulation.fleets);
    }
    if has_disk(runs) {
        return disk::parts(runs);
    }
    let mut parts = vec![
        Part::Heading("Hit ratios".to_owned()),
        Part::Bars("hit-ratios".to_owned(), ratio_bars(simulation)),
    ];
    if capacities(runs).len() > 1 {
        parts.push(Part::Plot("by-size".to_owned(), by_capacity(simulation)));
    }
    parts.push(Part::Table(table(runs)));

    for capacity in capacities(runs) {
        let size = ByteSize(capacity);
        // The curves of several seeds would cover each other.
        let seed = runs.first().map(|run| run.seed);
        let runs = || {
            let runs = runs.iter().filter(|run| Some(run.seed) == seed);
            runs.filter(|run| run.capacity_bytes == capacity)
        };
        if runs().any(|run| run.series.len() > 1) {
            parts.push(Part::Heading(format!("Over time at {size}")));
            parts.push(Part::Plot(format!("over-time-{size}"), over_time(runs())));
        }
        if runs().any(|run| !run.tuned.is_empty()) {
            let plot = tuned_parameter(runs());
            parts.push(Part::Plot(format!("c-over-time-{size}"), plot));
        }
        if runs().any(|run| !run.missed_sizes.is_empty()) {
            let title = format!("Sizes of requests that reach the disk or the origin at {size}");
            let runs = runs().map(|run| (run.policy.clone(), run));
            let plot = missed_sizes(title, runs);
            parts.push(Part::Plot(format!("missed-sizes-{size}"), plot));
        }
    }
    if !simulation.by_c.is_empty() {
        parts.push(Part::Heading(
            "Predictions of AdaptSize's models".to_owned(),
        ));
        for by_c in &simulation.by_c {
            parts.push(Part::Plot(by_c.name(), by_c.plot()));
        }
    }
    parts
}

/// The mean hit ratios of a policy at a capacity, over all seeds.
struct Cell<'a> {
    policy: &'a str,
    capacity_bytes: u64,
    object_hit_ratio: f64,
    byte_hit_ratio: f64,
}

impl Cell<'_> {
    /// Returns true if a server can run the policy. The offline policies and the infinite cache exist in the simulator
    /// only.
    fn can_serve(&self) -> bool {
        self.policy != "infinite" && self.policy.parse::<OfflinePolicy>().is_err()
    }
}

/// Returns one cell for each policy and capacity, in the order of the cells' first runs.
fn cells(runs: &[RunReport]) -> Vec<Cell<'_>> {
    let mut groups: Vec<Vec<&RunReport>> = Vec::new();
    for run in runs {
        let is_same = |group: &&mut Vec<&RunReport>| {
            group[0].policy == run.policy && group[0].capacity_bytes == run.capacity_bytes
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    let cell = |group: &Vec<&'_ RunReport>| {
        let mean = |ratio: fn(&RunReport) -> f64| {
            group.iter().map(|run| ratio(run)).sum::<f64>() / group.len() as f64
        };
        (
            mean(|run| run.object_hit_ratio),
            mean(|run| run.byte_hit_ratio),
        )
    };
    let groups = groups.into_iter().map(|group| (group[0], cell(&group)));
    groups
        .map(|(first, (object_hit_ratio, byte_hit_ratio))| Cell {
            policy: &first.policy,
            capacity_bytes: first.capacity_bytes,
            object_hit_ratio,
            byte_hit_ratio,
        })
        .collect()
}

fn has_disk(runs: &[RunReport]) -> bool {
    runs.iter().any(|run| run.disk.is_some())
}

/// Returns a sentence about the policy that most often has the highest object hit ratio. Only policies that a server
/// can run count. Returns `None` if the runs have disks.
fn wins(results: &[TraceResults]) -> Option<String> {
    let mut wins: Vec<(String, usize)> = Vec::new();
    let mut cases = 0;
    for result in results {
        let runs = &result.simulation.runs;
        if has_disk(runs) {
            return None;
        }
        let cells = cells(runs);
        for capacity in capacities(runs) {
            let best = best(&cells, capacity)?;
            cases += 1;
            match wins.iter_mut().find(|(policy, _)| policy == best.policy) {
                Some((_, count)) => *count += 1,
                None => wins.push((best.policy.to_owned(), 1)),
            }
        }
    }
    let most = wins.iter().map(|(_, count)| *count).max()?;
    let (policy, count) = wins.into_iter().find(|(_, count)| *count == most)?;
    Some(format!(
        "{policy} has the highest object hit ratio in {count} of {cases} cases (a trace and a cache size).",
    ))
}

/// Returns the policy with the highest object hit ratio at a capacity, among the policies that a server can run.
fn best<'a>(cells: &'a [Cell<'a>], capacity_bytes: u64) -> Option<&'a Cell<'a>> {
    let candidates = cells.iter();
    let candidates = candidates.filter(|cell| cell.capacity_bytes == capacity_bytes);
    let candidates = candidates.filter(|cell| cell.can_serve());
    candidates.max_by(|a, b| a.object_hit_ratio.total_cmp(&b.object_hit_ratio))
}

/// Returns a sentence about the policy with the highest object hit ratio at the smallest capacity. Only policies that a
/// server can run count. If LRU ran too, the sentence compares the two.
fn finding(cells: &[Cell<'_>]) -> Option<String> {
    let capacity = cells.iter().map(|cell| cell.capacity_bytes).min()?;
    let best = best(cells, capacity)?;
    let mut same_size = cells.iter().filter(|cell| cell.capacity_bytes == capacity);
    let ratio = output::percent(best.object_hit_ratio);
    let size = ByteSize(capacity);
    Some(match same_size.find(|cell| cell.policy == "lru") {
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

/// Returns the lines of a configuration with the policy that the finding names. `None` with a disk, or if an edge
/// cannot run the policy.
fn setting(runs: &[RunReport]) -> Option<String> {
    if has_disk(runs) {
        return None;
    }
    let cells = cells(runs);
    let capacity = cells.iter().map(|cell| cell.capacity_bytes).min()?;
    let best = best(&cells, capacity)?;
    let policy: PolicySpec = best.policy.parse().ok()?;
    policy.is_served().then(|| {
        let rounded = ByteSize(capacity).to_string().replace(' ', "");
        let is_exact = rounded.parse() == Ok(ByteSize(capacity));
        let size = if is_exact {
            rounded
        } else {
            format!("{capacity}B")
        };
        format!("[hot]\ncapacity = \"{size}\"\npolicy = \"{}\"", best.policy)
    })
}

fn ratio_bars(simulation: &Simulation) -> Bars {
    let mut bars = Bars::new(
        "Requests and bytes answered from the cache",
        Axis::new("hit ratio", Unit::Share),
        ["object hit ratio", "byte hit ratio"],
    );
    if has_several_seeds(&simulation.runs) {
        bars = bars.note("Means over all seeds.");
    }
    let mut cells = cells(&simulation.runs);
    // At each size, the best policy first.
    cells.sort_by(|a, b| {
        let by_size = a.capacity_bytes.cmp(&b.capacity_bytes);
        by_size.then(b.object_hit_ratio.total_cmp(&a.object_hit_ratio))
    });
    for cell in cells {
        let name = format!("{} {}", cell.policy, ByteSize(cell.capacity_bytes));
        bars.group(name, [cell.object_hit_ratio, cell.byte_hit_ratio]);
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
    let cells = cells(&simulation.runs);
    let mut plot = Plot::new(
        "Object hit ratio by cache size",
        Axis::new("cache size", Unit::Bytes).log(),
        // Curves that are close to each other need the whole height.
        Axis::new("object hit ratio", Unit::Share).tight(),
    );
    let mut policies: Vec<&str> = Vec::new();
    for cell in &cells {
        if !policies.contains(&cell.policy) {
            policies.push(cell.policy);
        }
    }
    for policy in policies {
        let same_policy = cells.iter().filter(|cell| cell.policy == policy);
        let mut points: Vec<(f64, f64)> = same_policy
            .map(|cell| (cell.capacity_bytes as f64, cell.object_hit_ratio))
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
        plot.add(Series::line("upper bound", points).dashed());
    }
    plot
}

fn over_time<'a>(runs: impl Iterator<Item = &'a RunReport>) -> Plot {
    let mut plot = Plot::new(
        "Object hit ratio over time",
        Axis::new("requests", Unit::Count),
        // Curves that are close to each other need the whole height.
        Axis::new("object hit ratio", Unit::Share).tight(),
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

/// Returns the plot of the requests that memory does not answer, by object size. `runs` has a name for each run.
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
    let several_seeds = has_several_seeds(runs);
    let columns = [Column::words("policy"), Column::figures("capacity")];
    let seed_column = several_seeds.then(|| Column::figures("seed"));
    let mut table = Table::new(columns.into_iter().chain(seed_column).chain([
        Column::figures("object hit ratio"),
        Column::figures("byte hit ratio"),
        Column::figures("hits"),
        Column::figures("objects at the end"),
    ]));
    for run in runs {
        let names = [run.policy.clone(), ByteSize(run.capacity_bytes).to_string()];
        let seed = several_seeds.then(|| run.seed.to_string());
        table.row(names.into_iter().chain(seed).chain([
            output::percent(run.object_hit_ratio),
            output::percent(run.byte_hit_ratio),
            output::count(run.hits),
            output::count(run.residents),
        ]));
    }
    table
}

/// Returns the simulated capacities in ascending order.
fn capacities(runs: &[RunReport]) -> Vec<u64> {
    let mut capacities: Vec<u64> = runs.iter().map(|run| run.capacity_bytes).collect();
    capacities.sort_unstable();
    capacities.dedup();
    capacities
}
