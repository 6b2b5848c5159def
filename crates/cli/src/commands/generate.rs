//! `edgeward generate`: manual pages, completions of shells, rules of Prometheus and a dashboard, for packages.

mod alerts;
mod dashboard;
mod panels;
mod rules;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command, Subcommand};
use clap_complete::Shell;

use crate::diagnostic::Diagnostic;
use crate::output;

/// Print completions, alerts or a dashboard, or write the manual pages
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct GenerateArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print the completions of a shell
    #[command(after_long_help = EXAMPLES)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write a manual page for each command into a folder
    #[command(after_long_help = EXAMPLES)]
    Man {
        /// The folder
        folder: PathBuf,
    },
    /// Print the alerts as a file of rules for Prometheus
    #[command(after_long_help = EXAMPLES)]
    Alerts {
        /// Print the reference of all alerts as Markdown
        #[arg(long)]
        reference: bool,
    },
    /// Print a dashboard for Grafana, as JSON to import
    #[command(after_long_help = EXAMPLES)]
    Dashboard,
}

/// Prints or writes what was asked for. `command` is the whole command line of `edgeward`.
pub(crate) fn run(args: &GenerateArgs, mut command: Command) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Completions { shell } => {
            let mut out = output::stdout();
            clap_complete::generate(*shell, &mut command, "edgeward", &mut out);
            out.flush()?;
        }
        What::Man { folder } => {
            let unwritable = |error| Diagnostic::unreadable(folder, "cannot write to", &error);
            fs::create_dir_all(folder).map_err(unwritable)?;
            // Commands that the list of commands omits have pages, too.
            let command = command.mut_subcommands(|subcommand| subcommand.hide(false));
            clap_mangen::generate_to(command, folder).map_err(unwritable)?;
        }
        What::Alerts { reference } => {
            let mut out = output::stdout();
            let text = match reference {
                true => alerts::reference_markdown(),
                false => alerts::rules_yaml(),
            };
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
        What::Dashboard => output::print_json(&dashboard::dashboard())?,
    }
    Ok(ExitCode::SUCCESS)
}

const EXAMPLES: &str = "\
Examples:
  edgeward generate completions bash > /etc/bash_completion.d/edgeward
  edgeward generate alerts > /etc/prometheus/edgeward.yml
  edgeward generate man /usr/local/share/man/man1";
