//! `edgeward store`: what a disk cache holds, and whether it is what was written.

mod look;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Look into a disk cache that no server is using
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

/// Carries it out.
pub(crate) fn run(args: &StoreArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        Action::Inspect(args) => look::inspect(args),
        Action::Verify(args) => look::verify(args),
    }
}

const EXAMPLES: &str = "\
Example:
  edgeward store verify /var/cache/edgeward";
