//! `edgeward store`: inspects and verifies a disk cache.

mod inspect;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Inspect a disk cache while its server is stopped
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Inspect(inspect::InspectArgs),
    Verify(inspect::VerifyArgs),
}

/// Runs the subcommand.
pub(crate) fn run(args: &StoreArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        Action::Inspect(args) => inspect::inspect(args),
        Action::Verify(args) => inspect::verify(args),
    }
}

const EXAMPLES: &str = "\
Example:
  edgeward store verify /var/cache/edgeward";
