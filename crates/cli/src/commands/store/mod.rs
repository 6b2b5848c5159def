//! `edgeward store`: inspects and verifies a disk cache.

mod look;

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
    Inspect(look::InspectArgs),
    Verify(look::VerifyArgs),
}

/// Runs the subcommand.
pub(crate) fn run(args: &StoreArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        Action::Inspect(args) => look::inspect(args),
        Action::Verify(args) => look::verify(args),
    }
}

const EXAMPLES: &str = "\
Example:
  edgeward store verify /var/cache/edgeward";
