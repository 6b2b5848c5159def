//! `edgeward link`: what is to be done about a link apart from running its ends.

mod estimate;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Links between edges and gateways: what one would save
#[derive(Args, Debug)]
pub(crate) struct LinkArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Estimate(estimate::EstimateArgs),
}

/// Carries it out.
pub(crate) fn run(args: &LinkArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        Action::Estimate(args) => estimate::run(args),
    }
}
