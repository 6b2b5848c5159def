//! The part of the page of `simulate --report` about disks: bytes written and hit ratios for each admission rule.

use edgeward_report::{Axis, Bars, Column, Plot, Series, Table, Unit};
use edgeward_sim::{DiskReport, RunReport, TierInterval};
use edgeward_types::ByteSize;

use crate::commands::simulate::disk_table::runs_with_disk;
use crate::commands::simulate::part::Part;
use crate::output;

/// Returns a sentence that compares the admission rule `always` with another rule. The other rule is the one with the
/// highest hit ratio among the rules that write fewer bytes than `always`. The two runs differ only in the rule.
pub(super) fn finding(runs: &[RunReport]) -> Option<String> {
    let is_same_setup = |a: &(&RunReport, &DiskReport), b: &(&RunReport, &DiskReport)| {
        (
            &a.0.policy,
            a.0.capacity_bytes,
            a.1.capacity_bytes,
            &a.1.eviction,
        ) == (
            &b.0.policy,
            b.0.capacity_bytes,
            b.1.capacity_bytes,
            &b.1.eviction,
        )
    };
    let always = runs_with_disk(runs).find(|(_, disk)| disk.admission == "always")?;
    let (run, disk) = runs_with_disk(runs)
        .filter(|other| is_same_setup(other, &always))
        .filter(|(_, disk)| disk.done.written_bytes < always.1.done.written_bytes)
        .max_by_key(|(run, _)| run.hits)?;
    let (always_run, always_disk) = always;
    if disk.done.written_bytes == 0 {
        return None;
    }
    let times = always_disk.done.written_bytes as f64 / disk.done.written_bytes as f64;
    Some(format!(
        "With {} of RAM and {} of disk, {} writes {times:.1} times fewer bytes than `always`, and {} of the requests \
         are answered from the cache instead of {}.",
        ByteSize(run.capacity_bytes),
        ByteSize(disk.capacity_bytes),
        disk.admission,
        output::percent(run.object_hit_ratio),
        output::percent(always_run.object_hit_ratio),
    ))
}

/// Returns bars, a table and plots over time.
pub(super) fn parts(runs: &[RunReport]) -> Vec<Part> {
    let mut hits = Bars::new(
        "Requests answered by each tier",
        Axis::new("share of requests", Unit::Share),
        ["RAM", "disk"],
    );
    let mut bytes = Bars::new(
        "Bytes written to disk and sent by the origin",
        Axis::new("bytes", Unit::Bytes),
        ["written to disk", "from the origin"],
    );
    for (run, disk) in runs_with_disk(runs) {
        hits.group(
            name(run, disk),
            [disk.ram_object_hit_ratio, disk.disk_object_hit_ratio],
        );
        bytes.group(
            name(run, disk),
            [disk.done.written_bytes as f64, disk.origin_bytes as f64],
        );
    }
    let mut parts = vec![
        Part::Heading("RAM and disk".to_owned()),
        Part::Bars("tier-hits".to_owned(), hits),
        Part::Bars("tier-bytes".to_owned(), bytes),
        Part::Table(table(runs)),
        Part::Plot("missed-sizes".to_owned(), sizes_of_reads(runs)),
    ];
    if !runs_with_disk(runs).any(|(run, _)| run.series.len() > 1) {
        return parts;
    }
    parts.push(Part::Heading("RAM and disk over time".to_owned()));
    let mut plot = |name: &str, plot| parts.push(Part::Plot(format!("over-time-{name}"), plot));
    let share = |label| Axis::new(label, Unit::Share);
    plot(
        "hits",
        over_time(
            runs,
            "Requests answered from RAM or disk",
            share("object hit ratio"),
            |tiers| tiers.ram_object_hit_ratio + tiers.disk_object_hit_ratio,
        ),
    );
    plot(
        "written",
        over_time(
            runs,
            "Bytes written to disk in each interval",
            Axis::new("bytes", Unit::Bytes),
            |tiers| tiers.disk_written_bytes as f64,
        ),
    );
    plot(
        "read",
        over_time(
            runs,
            "Bytes read from disk in each interval",
            Axis::new("bytes", Unit::Bytes),
            |tiers| tiers.disk_read_bytes as f64,
        ),
    );
    plot(
        "origin",
        over_time(
            runs,
            "Bytes from the origin in each interval",
            Axis::new("bytes", Unit::Bytes),
            |tiers| tiers.origin_bytes as f64,
        ),
    );
    parts
}

/// Returns the plot of the sizes that reach the disk. The disk has no influence on them, so runs that differ only in
/// the disk have one line.
fn sizes_of_reads(runs: &[RunReport]) -> Plot {
    let mut lines: Vec<&RunReport> = Vec::new();
    for run in runs {
        let is_same = |line: &&RunReport| {
            (&line.policy, line.capacity_bytes) == (&run.policy, run.capacity_bytes)
        };
        if !lines.iter().any(is_same) && lines.len() < SERIES_MAX {
            lines.push(run);
        }
    }
    let name = |run: &RunReport| format!("{} {}", run.policy, ByteSize(run.capacity_bytes));
    let lines = lines.into_iter().map(|run| (name(run), run));
    missed_sizes("Sizes of requests that reach the disk".to_owned(), lines)
}

fn over_time(
    runs: &[RunReport],
    title: &str,
    axis: Axis,
    value: impl Fn(&TierInterval) -> f64,
) -> Plot {
    let mut plot = Plot::new(title, Axis::new("requests", Unit::Count), axis);
    for (run, disk) in runs_with_disk(runs).take(SERIES_MAX) {
        let points = run.series.iter().filter_map(|interval| {
            let tiers = interval.tiers.as_ref()?;
            Some((interval.requests_end as f64, value(tiers)))
        });
        plot.add(Series::line(name(run, disk), points));
    }
    if runs_with_disk(runs).count() > SERIES_MAX {
        return plot.note(format!(
            "Only the first {SERIES_MAX} runs; the table has all of them."
        ));
    }
    plot
}

fn table(runs: &[RunReport]) -> Table {
    let mut table = Table::new([
        Column::words("policy"),
        Column::figures("RAM"),
        Column::figures("disk"),
        Column::words("admission"),
        Column::words("eviction"),
        Column::figures("OHR, RAM"),
        Column::figures("OHR, disk"),
        Column::figures("OHR"),
        Column::figures("BHR"),
        Column::figures("written"),
        Column::figures("records written"),
        Column::figures("read"),
        Column::figures("records read"),
        Column::figures("write amplification"),
        Column::figures("from the origin"),
    ]);
    for (run, disk) in runs_with_disk(runs) {
        table.row([
            run.policy.clone(),
            ByteSize(run.capacity_bytes).to_string(),
            ByteSize(disk.capacity_bytes).to_string(),
            disk.admission.clone(),
            disk.eviction.clone(),
            output::percent(disk.ram_object_hit_ratio),
            output::percent(disk.disk_object_hit_ratio),
            output::percent(run.object_hit_ratio),
            output::percent(run.byte_hit_ratio),
            ByteSize(disk.done.written_bytes).to_string(),
            output::count(disk.done.write_operations),
            ByteSize(disk.done.read_bytes).to_string(),
            output::count(disk.done.read_operations),
            format!("{:.2}", disk.write_amplification),
            ByteSize(disk.origin_bytes).to_string(),
        ]);
    }
    table
}

fn name(run: &RunReport, disk: &DiskReport) -> String {
    format!(
        "{} {}, {} {} {}",
        run.policy,
        ByteSize(run.capacity_bytes),
        ByteSize(disk.capacity_bytes),
        disk.admission,
        disk.eviction
    )
}

/// The maximum number of lines in a plot; more lines are not readable.
const SERIES_MAX: usize = 8;

/// Plots the requests that memory does not answer by the size of their objects.
pub(super) fn missed_sizes<'a>(
    title: String,
    runs: impl Iterator<Item = (String, &'a RunReport)>,
) -> Plot {
    let mut plot = Plot::new(
        title,
        Axis::new("object size", Unit::Bytes).log(),
        Axis::new("share of all requests", Unit::Share),
    )
    .note("The requests that memory does not answer. A point counts the sizes up to the next point, twice its size.");
    for (name, run) in runs {
        let requests = run.requests.max(1) as f64;
        let share = |from_bytes: u64| {
            let mut buckets = run.missed_sizes.iter();
            let bucket = buckets.find(|bucket| bucket.from_bytes == from_bytes);
            bucket.map_or(0.0, |bucket| bucket.requests as f64 / requests)
        };
        // A logarithmic axis does not show the size 0.
        let mut sizes = run.missed_sizes.iter().map(|bucket| bucket.from_bytes);
        let (first, last) = (sizes.clone().find(|&size| size > 0), sizes.next_back());
        let sizes = std::iter::successors(first, |size| size.checked_mul(2));
        let shown = sizes.take_while(|size| Some(size / 2) <= last);
        let points = shown.map(|from_bytes| (from_bytes as f64, share(from_bytes)));
        plot.add(Series::steps(name, points));
    }
    plot
}
