//! `edgeward bench-filter`: our filters beside a hash set, and Guava's on the JVM if it is there.
//!
//! Ids are random UUIDs as text, one half put in, the other not. Every figure is the CPU time of one
//! thread, best of several rounds, from the id's bytes on: hashing is part of it for everybody. What
//! a filter costs once hashing is done is told apart, since a proxy hashes an id once for all; so is what it
//! costs when many ids are put in or asked for in one call. A round asks for the same 100,000 ids, which stay in a
//! cache; whether the filter does, its memory tells.

mod guava;
mod subjects;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use edgeward_filter::Rate;
use edgeward_types::ByteSize;

use crate::output::{self, Column, Table};

/// Compare id filters with a hash set: insert, query, memory
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct BenchFilterArgs {
    /// Ids put in; as many others are asked for
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    ids: u64,

    /// The false-positive rate of the filters
    #[arg(long, value_name = "RATE", default_value = "1%")]
    fpr: Rate,

    /// Rounds, of which the best counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Jars of Guava and failureaccess, joined by a colon: also measure Guava
    #[arg(long, value_name = "JARS")]
    guava: Option<String>,

    /// The java to run Guava with
    #[arg(
        long,
        value_name = "PROGRAM",
        default_value = "java",
        hide_short_help = true
    )]
    java: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Carries it out.
pub(crate) fn run(args: &BenchFilterArgs) -> anyhow::Result<ExitCode> {
    let mut rows = subjects::measure(args)?;
    if let Some(jars) = &args.guava {
        rows.push(guava::measure(args, jars)?);
    }
    let bench = Bench {
        ids: args.ids,
        fpr: args.fpr.share(),
        rounds: args.rounds,
        rows,
    };
    if args.json {
        output::print_json(&bench)?;
    } else {
        bench.print()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Bench {
    ids: u64,
    fpr: f64,
    rounds: u32,
    rows: Vec<Row>,
}

/// One way to keep ids. Times are nanoseconds an id.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Row {
    name: String,
    insert_ns: f64,
    /// Without hashing, where it can be left out.
    insert_hashed_ns: Option<f64>,
    /// The same where many are put in at once.
    insert_many_ns: Option<f64>,
    present_ns: f64,
    absent_ns: f64,
    /// Without hashing; the mean of present and absent ids.
    query_hashed_ns: Option<f64>,
    /// The same where many are asked for at once.
    query_many_ns: Option<f64>,
    bytes: u64,
    /// The share of absent ids that passed.
    false_positives: f64,
}

impl Bench {
    fn print(&self) -> anyhow::Result<()> {
        let mut table = Table::new([
            Column::words("ns an id"),
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

/// CPU time this thread has used.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

const EXAMPLES: &str = "\
Examples:
  edgeward bench-filter --ids 620000 --fpr 3%
  edgeward bench-filter --guava guava.jar:failureaccess.jar --json

The hash set's memory is computed: its buckets, and its ids as the allocator
rounds them. The static filter's insert is gathering and building together.
A round asks for 100,000 ids of each kind, again and again, so that they come
out of a cache; the filter does if the cache has room for its memory.";
