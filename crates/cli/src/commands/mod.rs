//! One file a command: its arguments as typed, and a `run` that carries it out.
//!
//! To add one: a file with `pub(crate) struct XArgs` (`#[derive(clap::Args)]`) and
//! `pub(crate) fn run(args: XArgs) -> anyhow::Result<ExitCode>`, a variant and an arm here.
//! The test in `tests/help.rs` then holds its `-h` to one screen.

mod simulate;

use std::process::ExitCode;

use clap::Subcommand;

/// What edgeward can be asked to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Simulate(simulate::SimulateArgs),
}

impl Command {
    /// Carries the command out.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Simulate(args) => simulate::run(args),
        }
    }

    /// What is logged when nobody asked: servers say what they do, tools only what is wrong.
    pub(crate) fn default_log(&self) -> &'static str {
        "warn"
    }
}
