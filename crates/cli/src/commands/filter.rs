//! `edgeward filter`: id filters from lists of ids, questions to them, and what they hold.

mod answer;
mod build;
mod diff;
mod inspect;
mod opened;
mod source;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Build id filters, ask them, look into them
#[derive(Args, Debug)]
pub(crate) struct FilterArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Build(build::BuildArgs),
    Query(answer::QueryArgs),
    Inspect(inspect::InspectArgs),
    Diff(diff::DiffArgs),
}

/// Carries it out.
pub(crate) fn run(args: FilterArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Build(args) => build::run(&args),
        Action::Query(args) => answer::run(&args),
        Action::Inspect(args) => inspect::run(&args),
        Action::Diff(args) => diff::run(&args),
    }
}
