//! The `edgeward` binary: parses the command line, checks the configuration and calls a library.
//!
//! Results go to stdout; progress, logs and errors go to stderr. The exit code is 0 if the command succeeded, 1 if it
//! answered a question with no (for example `filter query` for an absent id), and 2 if it failed. If the reader of
//! stdout closes the pipe early, as `head` does, the exit code is 0.
//!
//! Each command is one file in [`commands`] with its arguments and a `run`. `negative` and `link_edge` connect the
//! server to id filters and to a link. `memory`, `allocator` and `descriptors` concern resources of the process.
#![forbid(unsafe_code)]

#[cfg(feature = "acme")]
mod acme;
#[cfg(not(feature = "acme"))]
mod acme_absent;
mod acme_settings;
mod allocator;
mod commands;
mod config;
mod descriptors;
mod diagnostic;
#[cfg(feature = "fleet")]
mod fleet;
#[cfg(not(feature = "fleet"))]
mod fleet_absent;
#[cfg(feature = "fleet")]
mod fleet_members;
mod fleet_settings;
mod input;
mod insight;
#[cfg(feature = "link")]
mod link_edge;
#[cfg(not(feature = "link"))]
mod link_edge_absent;
mod link_settings;
mod logging;
mod memory;
mod negative;
mod output;
mod privileges;
mod reload;
mod service;
mod signals;
mod stated;
mod upgrade;

use std::process::ExitCode;

use clap::{ArgAction, CommandFactory as _, FromArgMatches as _, Parser};

#[cfg(not(feature = "acme"))]
use acme_absent as acme;
use commands::Command;
#[cfg(not(feature = "fleet"))]
use fleet_absent as fleet;
#[cfg(not(feature = "link"))]
use link_edge_absent as link_edge;

/// The allocator of the binary. `docs/adr/0008-jemalloc.md` gives the reasons for jemalloc.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A cache node for content delivery, and tools that predict its behaviour.
#[derive(Debug, Parser)]
#[command(
    name = "edgeward",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    disable_version_flag = true
)]
struct Cli {
    #[command(flatten)]
    logging: logging::LogArgs,

    /// Do not show progress on stderr
    #[arg(short, long, global = true, hide_short_help = true)]
    quiet: bool,

    /// Print version
    #[arg(short = 'V', long, action = ArgAction::Version, hide_short_help = true)]
    version: Option<bool>,

    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let cli = match command()
        .try_get_matches()
        .and_then(|matches| Cli::from_arg_matches(&matches))
    {
        Ok(cli) => cli,
        Err(error) => {
            // `--help` and `--version` take this path too; clap prints them to stdout, and the exit code is 0.
            // A closed stdout is not an error.
            _ = error.print();
            return ExitCode::from(if error.use_stderr() { EXIT_FAILED } else { 0 });
        }
    };
    output::set_quiet(cli.quiet);
    let result = logging::start(&cli.logging, cli.command.default_log())
        .and_then(|()| cli.command.run(command));
    match result {
        Ok(code) => code,
        Err(error) if output::is_stdout_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            diagnostic::print(&error);
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// The command line. The end of `--help` lists the commands that `-h` has no place for.
fn command() -> clap::Command {
    let command = Cli::command();
    let further: String = command
        .get_subcommands()
        .filter(|command| command.is_hide_set())
        .map(|command| {
            format!(
                "  {:<12}  {}\n",
                command.get_name(),
                command.get_about().unwrap_or_default()
            )
        })
        .collect();
    let help = format!(
        "`edgeward COMMAND -h` shows common options, `--help` all options and examples.\n\n\
         Further commands:\n{further}\n{LONG_HELP}"
    );
    command.after_long_help(help)
}

/// The exit code of a command that failed. A command that succeeds and answers "no" exits with 1.
const EXIT_FAILED: u8 = 2;

const LONG_HELP: &str = "\
Examples:
  edgeward init http://127.0.0.1:9000 && edgeward serve --config edgeward.toml
  edgeward serve --listen 127.0.0.1:8080 --origin http://127.0.0.1:9000 --hot 256MiB
  edgeward simulate access.log.gz --policy lru,adaptsize,gdsf --capacity 64MiB,1%

Exit codes: 0 done, 1 the answer is no, 2 the command failed.

Results go to stdout; progress, logs and errors go to stderr, so that
`edgeward simulate … --json | jq` works. --log or the variable EDGEWARD_LOG
sets the level of logs, as in --log info,edgeward_proxy=debug.";
