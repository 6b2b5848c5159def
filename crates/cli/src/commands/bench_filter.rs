//! `edgeward bench-filter`: compares id filters with a hash set.
//!
//! Ids are random UUIDs as text; one half is inserted, the other half is absent. Each time is the CPU time of
//! one thread in the fastest of several rounds, and includes hashing the bytes of the id. A proxy hashes an id once
//! for all filters, so further columns have the times of calls that get hashes: one hash or many hashes per call.
//! Each round of queries uses the same ids, at most 100,000, so the ids stay in the CPU cache. A small filter stays
//! in the CPU cache too.

mod subjects;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use edgeward_filter::Rate;
use edgeward_types::ByteSize;

use crate::output::{self, Column, Table};
use subjects::{Row, Workload};

/// Compare id filters with a hash set: insert, query, memory
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct BenchFilterArgs {
    /// Number of inserted ids, and of absent ids
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000)
    )]
    ids: u64,

    /// False-positive rate of the filters
    #[arg(long, value_name = "RATE", default_value = "1%")]
    fpr: Rate,

    /// Rounds; the fastest one is reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Measures and prints the results.
pub(crate) fn run(args: &BenchFilterArgs) -> anyhow::Result<ExitCode> {
    let rows = subjects::measure(Workload {
        ids: args.ids,
        fpr: args.fpr,
        rounds: args.rounds,
    })?;
    let report = BenchReport {
        ids: args.ids,
        fpr: args.fpr.share(),
        rounds: args.rounds,
        rows,
    };
    if args.json {
        output::print_json(&report)?;
    } else {
        report.print()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The results of all data structures.
#[derive(Debug, Serialize)]
struct BenchReport {
    ids: u64,
    fpr: f64,
    rounds: u32,
    rows: Vec<Row>,
}

impl BenchReport {
    fn print(&self) -> anyhow::Result<()> {
        let mut table = Table::new([
            Column::words("ns per id"),
            Column::figures("insert"),
            Column::figures("(hashed)"),
            Column::figures("(many)"),
            Column::figures("present"),
            Column::figures("absent"),
            Column::figures("(hashed)"),
            Column::figures("(many)"),
            Column::figures("memory"),
            Column::figures("bits/id"),
            Column::figures("false positives"),
        ]);
        let optional = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.1}"));
        for row in &self.rows {
            table.row([
                row.name.clone(),
                format!("{:.1}", row.insert_ns),
                optional(row.insert_hashed_ns),
                optional(row.insert_many_ns),
                format!("{:.1}", row.present_ns),
                format!("{:.1}", row.absent_ns),
                optional(row.query_hashed_ns),
                optional(row.query_many_ns),
                ByteSize(row.bytes).to_string(),
                format!("{:.2}", row.bytes as f64 * 8.0 / self.ids as f64),
                output::percent(row.false_positives),
            ]);
        }
        let mut out = output::stdout();
        let ids = output::count(self.ids);
        let rate = output::percent(self.fpr);
        writeln!(
            out,
            "{ids} ids at {rate}, CPU time of one thread, best of {}\n",
            self.rounds
        )?;
        write!(out, "{table}")?;
        out.flush()?;
        Ok(())
    }
}

const EXAMPLES: &str = "\
Examples:
  edgeward bench-filter --ids 620000 --fpr 3%
  edgeward bench-filter --json

The memory of the hash set is computed: its buckets, and its ids as the allocator
rounds them. The insert time of the static filter includes its construction.
Each round queries the same ids, at most 100,000 of each kind, so that they stay in
the CPU cache; the filter stays there if it is small enough.";
