//! `edgeward trace`: inspects, converts and generates traces.

mod convert;
mod generate;
mod info;
mod output_file;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Inspect, convert and generate request traces
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Info(info::InfoArgs),
    Convert(convert::ConvertArgs),
    Generate(generate::GenerateArgs),
}

/// Runs the subcommand.
pub(crate) fn run(args: TraceArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Info(args) => info::run(args),
        Action::Convert(args) => convert::run(args),
        Action::Generate(args) => generate::run(args),
    }
}

const EXAMPLES: &str = "\
Examples:
  edgeward trace info access.log.gz
  edgeward trace generate --preset web --requests 1000000 --output web.csv";
