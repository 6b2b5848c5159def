//! `edgeward trace convert`: writes traces in another format.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use edgeward_trace::Record;
use edgeward_types::Timestamp;

use super::output_file::{OutputArgs, refuse_overwriting};
use crate::input::{TraceInputArgs, warn_about_skipped};
use crate::output::{self, Progress};

/// Convert traces to another format
///
/// Several traces are joined in the given order. If a trace cannot be read to its end, the requests before the
/// error are written and the exit code is 2.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ConvertArgs {
    #[command(flatten)]
    trace: TraceInputArgs,

    /// The trace to write; - for stdout
    #[arg(value_name = "OUT")]
    out: PathBuf,

    #[command(flatten)]
    output: OutputArgs,

    /// Replace keys by numbers from 0, in order of first appearance
    #[arg(long)]
    dense: bool,

    /// Shift times so that the first is 0
    #[arg(long)]
    rebase: bool,
}

/// Reads the traces and writes them.
pub(crate) fn run(args: ConvertArgs) -> anyhow::Result<ExitCode> {
    let inputs = args.trace.inputs()?;
    refuse_overwriting(inputs.files(), &args.out)?;
    let progress = Progress::new("converting", "bytes", inputs.bytes());
    let mut target = args.output.create(&args.out)?;
    let mut dense_keys: HashMap<u64, u64> = HashMap::new();
    let mut first_time = None;
    let reading = inputs.read(Some(&progress), |records| {
        for record in records {
            let mut record: Record = *record;
            if args.dense {
                let next = dense_keys.len() as u64;
                record.key = *dense_keys.entry(record.key).or_insert(next);
            }
            if args.rebase {
                let first_time = *first_time.get_or_insert(record.time);
                let millis = record.time.since(first_time).as_millis();
                record.time = Timestamp::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
            }
            target.write(&record)?;
        }
        Ok(())
    })?;
    let records = target.finish()?;
    drop(progress);
    for file in &reading.files {
        warn_about_skipped(&file.label, &file.skipped);
    }
    eprintln!("{} requests written", output::count(records));
    reading.error.map_or(Ok(ExitCode::SUCCESS), Err)
}

const EXAMPLES: &str = "\
Examples:
  edgeward trace convert access.log.*.gz requests.txt.zst
  edgeward trace convert trace.csv trace.oracleGeneral.zst
  edgeward trace convert --dense --rebase trace.zst - --to lrb | head";
