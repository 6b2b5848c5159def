//! `edgeward reload`: lets a running edge read its configuration file again.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::admin_api::AdminApi;
use crate::output;

/// Let a running edge read its configuration again
///
/// Nearly all settings change at once; the answer lists all differences and says which of them need a new process, for
/// example by `edgeward upgrade`. An invalid file changes nothing. SIGHUP does the same.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    admin: AdminApi,

    /// Print the response as JSON
    #[arg(long)]
    json: bool,
}

/// Sends the request and prints the differences.
pub(crate) fn run(args: &ReloadArgs) -> anyhow::Result<ExitCode> {
    let answer = args.admin.post("/reload", &json!({}), "reload")?;
    let mut out = output::stdout();
    if args.json {
        writeln!(out, "{answer}")?;
    } else {
        let changes = answer["changes"]
            .as_array()
            .map_or(&[][..], |changes| changes);
        for change in changes {
            writeln!(out, "{}", change.as_str().unwrap_or_default())?;
        }
        writeln!(out, "reloaded, {} settings differ", changes.len())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

const EXAMPLES: &str = "\
Examples:
  edgeward check-config edge.toml && edgeward reload --admin 127.0.0.1:9101 --token-file token
  kill -HUP $(pidof edgeward)";
