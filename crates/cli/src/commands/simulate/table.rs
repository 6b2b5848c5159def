//! The tables that `edgeward simulate` prints.

use std::io::Write;

use edgeward_policy::Objective;
use edgeward_sim::RunReport;
use edgeward_types::ByteSize;

use super::runs::{Simulation, TraceResults, has_several_seeds};
use super::{disk_table, fleet};
use crate::output::{self, Column, Table};

/// Prints the results of all runs, trace by trace. `named` is true if each trace is printed with
/// its name.
pub(super) fn print(results: &[TraceResults], named: bool) -> anyhow::Result<()> {
    let mut out = output::stdout();
    for (n, TraceResults { name, simulation }) in results.iter().enumerate() {
        if n > 0 {
            writeln!(out)?;
        }
        if named {
            write!(out, "{name}: ")?;
        }
        write_trace(&mut out, simulation)?;
    }
    out.flush()?;
    Ok(())
}

fn write_trace(out: &mut impl Write, simulation: &Simulation) -> anyhow::Result<()> {
    let facts = &simulation.trace;
    writeln!(
        out,
        "{} requests for {} objects of {}, {} of the objects requested once\n",
        output::count(facts.requests),
        output::count(facts.objects),
        ByteSize(facts.footprint_bytes),
        output::percent(facts.one_hit_share),
    )?;
    if !simulation.fleets.is_empty() {
        return fleet::write_tables(out, &simulation.fleets);
    }
    if let Some(table) = disk_table::table(&simulation.runs) {
        write!(out, "{table}")?;
        return Ok(());
    }
    if let Some(table) = delayed_hits(&simulation.runs) {
        writeln!(out, "{table}")?;
    }
    if let Some(table) = origin_costs(&simulation.runs) {
        writeln!(out, "{table}")?;
    }
    let several_seeds = has_several_seeds(&simulation.runs);
    let seed_column = several_seeds.then(|| Column::figures("seed"));
    let columns = [Column::words("policy"), Column::figures("capacity")];
    let mut table = Table::new(columns.into_iter().chain(seed_column).chain([
        Column::figures("hits"),
        Column::figures("object hit ratio"),
        Column::figures("byte hit ratio"),
        Column::figures("requests/s"),
        Column::figures("B/object"),
    ]));
    for run in &simulation.runs {
        let names = [run.policy.clone(), ByteSize(run.capacity_bytes).to_string()];
        let seed = several_seeds.then(|| run.seed.to_string());
        table.row(names.into_iter().chain(seed).chain([
            output::count(run.hits),
            output::percent(run.object_hit_ratio),
            output::percent(run.byte_hit_ratio),
            output::count(run.requests_per_second.unwrap_or(0.0) as u64),
            format!("{:.0}", run.bytes_per_object),
        ]));
    }
    for bound in &simulation.bounds {
        let size = ByteSize(bound.capacity_bytes).to_string();
        let seed = several_seeds.then(String::new);
        table.row(
            ["upper bound".to_owned(), size]
                .into_iter()
                .chain(seed)
                .chain([
                    String::new(),
                    output::percent(bound.object_hit_ratio_max),
                    output::percent(bound.byte_hit_ratio_max),
                    String::new(),
                    String::new(),
                ]),
        );
    }
    write!(out, "{table}")?;
    Ok(())
}

/// Returns the table of origin costs, or `None` if no policy has an objective other than `requests`.
fn origin_costs(runs: &[RunReport]) -> Option<Table> {
    let default = Objective::Requests.to_string();
    let differs = |run: &&RunReport| {
        let objective = run.objective.as_ref();
        objective.is_some_and(|objective| *objective != default)
    };
    runs.iter().find(differs)?;
    let mut table = Table::new([
        Column::words("policy"),
        Column::figures("capacity"),
        Column::words("objective"),
        Column::figures("origin cost saved"),
    ]);
    for run in runs {
        table.row([
            run.policy.clone(),
            ByteSize(run.capacity_bytes).to_string(),
            run.objective
                .clone()
                .unwrap_or_else(|| "ignored".to_owned()),
            output::percent(run.origin_cost_saved_ratio),
        ]);
    }
    Some(table)
}

/// Returns the table of `--fetch-latency`, or `None` without this option.
fn delayed_hits(runs: &[RunReport]) -> Option<Table> {
    let mut table = Table::new([
        Column::words("policy"),
        Column::figures("capacity"),
        Column::figures("fetch latency"),
        Column::figures("delayed hits"),
        Column::figures("of requests"),
        Column::figures("mean wait"),
    ]);
    let mut rows = 0;
    for run in runs {
        let Some(fetches) = &run.fetches else {
            continue;
        };
        rows += 1;
        table.row([
            run.policy.clone(),
            ByteSize(run.capacity_bytes).to_string(),
            format!("{} ms", output::count(fetches.fetch_latency_ms)),
            output::count(fetches.delayed_hits),
            output::percent(fetches.delayed_hit_ratio),
            format!("{:.2} ms", fetches.mean_wait_ms),
        ]);
    }
    (rows > 0).then_some(table)
}
