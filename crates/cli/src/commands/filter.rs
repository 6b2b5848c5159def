//! `edgeward filter`: builds, queries, inspects, compares and publishes id filters.

mod build;
mod build_args;
mod changes;
mod database;
mod diff;
mod inspect;
mod keygen;
mod open_filter;
mod query;
mod serve;
mod source;
mod source_reader;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Build, query, inspect and publish id filters
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FilterArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Build(build_args::BuildArgs),
    Query(query::QueryArgs),
    Inspect(inspect::InspectArgs),
    Diff(diff::DiffArgs),
    Serve(Box<serve::ServeArgs>),
    Keygen(keygen::KeygenArgs),
}

impl FilterArgs {
    /// The default log level: `info` for the publisher, which is a server, `warn` for tools.
    pub(crate) fn default_log(&self) -> &'static str {
        // The crate `scylla` logs the warnings of a database node for each page of a scan, that is, hundreds of
        // times. The level `error` suppresses these warnings.
        match self.action {
            Action::Serve(_) => "info,scylla=error",
            _ => "warn,scylla=error",
        }
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: FilterArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Build(args) => build::run(&args),
        Action::Query(args) => query::run(&args),
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
