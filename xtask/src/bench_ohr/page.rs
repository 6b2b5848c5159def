//! The HTML report of the hit ratios.

use edgeward_report::{Axis, Column, Page, Plot, Series, Table, Unit};
use serde_json::Value;

use super::findings::{CellResults, Verdict, cells_of, label, ratios_text, rows, traces};
use super::policies::{BOUND, Policy};

/// The policies of the plots. The position of a policy selects its colour. A table below each plot has all policies.
const PLOTTED: [&str; 10] = [
    BOUND,
    "BeladySize",
    "density",
    "gdsf",
    "lru",
    "S3FIFO",
    "LHD",
    "WTinyLFU",
    "ThreeLCache",
    "GLCache",
];

pub(super) fn render(table: &[CellResults], verdicts: &[Verdict], document: &Value) -> String {
    let mut page = Page::new("Hit ratios of cache policies");
    let met = verdicts
        .iter()
        .filter(|verdict| verdict.met == Some(true))
        .count();
    page.finding(format!("{met} of {} goals are met.", verdicts.len()));
    if let Some(first) = verdicts.first() {
        page.finding(format!(
            "{}: {}, {}.",
            first.goal,
            first.word(),
            first.figures
        ));
    }
    for name in ["date", "commit", "command", "cpu", "cores", "referee"] {
        let value = &document[name];
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        page.fact(name, text);
    }
    page.section("Goals");
    let mut goals = Table::new(["goal", "verdict", "figures"].map(Column::words));
    for verdict in verdicts {
        goals.row([&verdict.goal[..], verdict.word(), &verdict.figures]);
    }
    page.table(goals);
    for trace in traces(table) {
        let cells = cells_of(table, trace);
        page.section(trace);
        page.plot(plot(&cells));
        page.table(ratios(&cells));
    }
    page.render()
}

/// Returns a plot of the object hit ratios of the [`PLOTTED`] policies over the capacity.
fn plot(cells: &[&CellResults]) -> Plot {
    let mut plot = Plot::new(
        "Object hit ratio",
        Axis::new("capacity", Unit::Bytes).log(),
        Axis::new("object hit ratio", Unit::Share).tight(),
    )
    .note("Dashed: policies that know the future, and the upper bound of all policies.");
    for (policy, outcomes) in rows(cells) {
        let Some(colour) = PLOTTED.iter().position(|name| *name == policy.name) else {
            continue;
        };
        let points = cells.iter().zip(&outcomes).filter_map(|(cell, outcome)| {
            Some((cell.capacity_bytes as f64, (*outcome)?.ratios?.0))
        });
        let series = Series::line(label(policy), points).colour(colour);
        plot.add(if policy.offline {
            series.dashed()
        } else {
            series
        });
    }
    plot
}

fn ratios(cells: &[&CellResults]) -> Table {
    let sizes = cells.iter().map(|cell| Column::figures(&cell.size));
    let mut table = Table::new([Column::words("policy")].into_iter().chain(sizes))
        .caption("Object hit ratio and byte hit ratio; `lcs` is libCacheSim.");
    for (policy, outcomes) in rows(cells) {
        let texts = outcomes.into_iter().map(ratios_text);
        table.row([name(policy)].into_iter().chain(texts));
    }
    table
}

fn name(policy: Policy) -> String {
    if policy.offline {
        format!("{} (offline)", label(policy))
    } else {
        label(policy)
    }
}
