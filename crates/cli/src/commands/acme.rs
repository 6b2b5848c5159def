//! `edgeward acme`: the certificates of `[[acme]]`, read from the folder of their state.

mod config_file;
mod import;
mod renew;
mod status;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Show or renew the certificates that an edge obtains by ACME
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct AcmeArgs {
    #[command(subcommand)]
    command: AcmeCommand,
}

#[derive(Debug, Subcommand)]
enum AcmeCommand {
    Status(status::StatusArgs),
    Renew(renew::RenewArgs),
    Import(import::ImportArgs),
}

/// Runs the command.
pub(crate) fn run(args: &AcmeArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        AcmeCommand::Status(args) => status::run(args),
        AcmeCommand::Renew(args) => renew::run(args),
        AcmeCommand::Import(args) => import::run(args),
    }
}

const EXAMPLES: &str = "\
Examples:
  edgeward acme status
  edgeward acme renew www.example.com
  edgeward acme import --config edgeward.toml /etc/letsencrypt";
