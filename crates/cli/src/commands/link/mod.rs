//! `edgeward link`: creates keys, runs local listeners, prints the status of links and estimates the bytes that a
//! link saves. The gateway is a separate command, `edgeward gateway`.

pub(crate) mod endpoint;
mod estimate;
mod forward;
mod keygen;
mod keys;
mod reasons;
mod status;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Links to gateways: keys, forwarding, status and estimates
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LinkArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Keygen(keygen::KeygenArgs),
    Keys(keys::KeysArgs),
    Forward(forward::ForwardArgs),
    Socks(forward::SocksArgs),
    Status(status::StatusArgs),
    Estimate(estimate::EstimateArgs),
}

impl LinkArgs {
    /// The default log filter: `info` for `forward` and `socks`, which are servers, `warn` for tools.
    pub(crate) fn default_log(&self) -> &'static str {
        match self.action {
            Action::Forward(_) | Action::Socks(_) => "info",
            _ => "warn",
        }
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &LinkArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        Action::Keygen(args) => keygen::run(args),
        Action::Keys(args) => keys::run(args),
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
