//! `edgeward filter`: id filters from lists of ids, questions to them, what they hold, and their publisher.

mod answer;
mod build;
mod changes;
mod database;
mod diff;
mod inspect;
mod keygen;
mod opened;
mod reading;
mod serve;
mod source;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Build id filters, ask them, look into them, publish them
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
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
    Serve(Box<serve::ServeArgs>),
    Keygen(keygen::KeygenArgs),
}

impl FilterArgs {
    /// A publisher is a server and says what it does.
    pub(crate) fn default_log(&self) -> &'static str {
        // A Cassandra node's warnings come with each page of a scan, some hundred times the same; what goes
        // wrong with it the scan tells itself.
        match self.action {
            Action::Serve(_) => "info,scylla=error",
            _ => "warn,scylla=error",
        }
    }
}

/// Carries it out.
pub(crate) fn run(args: FilterArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Build(args) => build::run(&args),
        Action::Query(args) => answer::run(&args),
        Action::Inspect(args) => inspect::run(&args),
        Action::Diff(args) => diff::run(&args),
        Action::Serve(args) => serve::run(&args),
        Action::Keygen(args) => keygen::run(&args),
    }
}

const EXAMPLES: &str = "\
Examples:
  edgeward filter build --source ids.txt --ids uuid --fpr 1% -o resource.ids
  edgeward filter query resource.ids 550e8400-e29b-41d4-a716-446655440000";
