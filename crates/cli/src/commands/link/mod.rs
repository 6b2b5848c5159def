//! `edgeward link`: keys, ways in, what was saved, and what would be. The gateway is a command of its own.

pub(crate) mod end;
mod estimate;
mod forward;
mod keygen;
mod status;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Links to gateways: keys, ways in, what they save or would save
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LinkArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Keygen(keygen::KeygenArgs),
    Forward(forward::ForwardArgs),
    Socks(forward::SocksArgs),
    Status(status::StatusArgs),
    Estimate(estimate::EstimateArgs),
}

impl LinkArgs {
    /// Ways into a link are servers and say what they do.
    pub(crate) fn default_log(&self) -> &'static str {
        match self.action {
            Action::Forward(_) | Action::Socks(_) => "info",
            _ => "warn",
        }
    }
}

/// What a start line adds, so that nobody overlooks it.
pub(crate) fn unencrypted(encryption: end::OnOff) -> &'static str {
    match encryption {
        end::OnOff::On => "",
        end::OnOff::Off => ", NOT ENCRYPTED",
    }
}

/// Carries it out.
pub(crate) fn run(args: &LinkArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        Action::Keygen(args) => keygen::run(args),
        Action::Forward(args) => forward::forward(args),
        Action::Socks(args) => forward::socks(args),
        Action::Status(args) => status::run(args),
        Action::Estimate(args) => estimate::run(args),
    }
}

const EXAMPLES: &str = "\
Examples:
  edgeward link keygen --out keys
  edgeward link estimate releases/5.2.6 releases/5.2.7";
