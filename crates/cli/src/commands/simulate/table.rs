//! The tables that `edgeward simulate` prints.

use std::io::Write as _;

use edgeward_sim::RunReport;
use edgeward_types::ByteSize;

use super::{Simulation, disk};
use crate::output::{self, Column, Table};

/// Prints the results of all runs.
pub(super) fn print(simulation: &Simulation) -> anyhow::Result<()> {
    let facts = &simulation.trace;
    let mut out = output::stdout();
    writeln!(
        out,
        "{} requests for {} objects of {}, {} of the objects requested once\n",
        output::count(facts.requests),
        output::count(facts.objects),
        ByteSize(facts.footprint_bytes),
        output::percent(facts.one_hit_share),
    )?;
    if let Some(table) = disk::table(&simulation.runs) {
        write!(out, "{table}")?;
        out.flush()?;
        return Ok(());
    }
    if let Some(table) = delayed_hits(&simulation.runs) {
        writeln!(out, "{table}")?;
    }
    let mut table = Table::new([
        Column::words("policy"),
        Column::figures("capacity"),
        Column::figures("hits"),
        Column::figures("object hit ratio"),
        Column::figures("byte hit ratio"),
        Column::figures("requests/s"),
        Column::figures("B/object"),
    ]);
    for run in &simulation.runs {
        table.row([
            run.policy.clone(),
            ByteSize(run.capacity_bytes).to_string(),
            output::count(run.hits),
            output::percent(run.object_hit_ratio),
            output::percent(run.byte_hit_ratio),
            output::count(run.requests_per_second.unwrap_or(0.0) as u64),
            format!("{:.0}", run.bytes_per_object),
        ]);
    }
    for bound in &simulation.bounds {
        table.row([
            "upper bound".to_owned(),
            ByteSize(bound.capacity_bytes).to_string(),
            String::new(),
            output::percent(bound.object_hit_ratio_max),
            output::percent(bound.byte_hit_ratio_max),
            String::new(),
            String::new(),
        ]);
    }
    write!(out, "{table}")?;
    out.flush()?;
    Ok(())
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
