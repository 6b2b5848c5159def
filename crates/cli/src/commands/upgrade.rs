//! `edgeward upgrade`: replaces a running edge by a new process of the program without a lost request.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::admin_api::AdminApi;
use crate::output;

/// Replace a running edge by a new process without a lost request
///
/// The edge starts its program again, with the same arguments, and passes its listening sockets and its disk store to
/// the new process. The command ends when the new process accepts connections; the old one then finishes its requests.
/// If the new process does not start, the old one carries on. SIGUSR2 does the same.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct UpgradeArgs {
    #[command(flatten)]
    admin: AdminApi,

    /// Print the response as JSON
    #[arg(long)]
    json: bool,
}

/// Sends the request and prints the id of the new process.
pub(crate) fn run(args: &UpgradeArgs) -> anyhow::Result<ExitCode> {
    let answer = args.admin.post("/upgrade", &json!({}), "upgrade")?;
    let mut out = output::stdout();
    if args.json {
        writeln!(out, "{answer}")?;
    } else {
        writeln!(out, "upgraded, process {}", answer["pid"])?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

const EXAMPLES: &str = "\
Examples:
  install -m 755 edgeward-new /usr/local/bin/edgeward
  edgeward upgrade --admin 127.0.0.1:9101 --token-file token
  kill -USR2 $(cat /run/edgeward.pid)";
