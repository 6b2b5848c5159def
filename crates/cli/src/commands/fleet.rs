//! `edgeward fleet`: the state of a fleet, as one of its nodes sees it.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::admin_api::{AdminServer, read_token};
use crate::diagnostic::Diagnostic;
use crate::output::{self, Column, Table};

/// Show the state of a fleet of edges
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct FleetArgs {
    #[command(subcommand)]
    command: FleetCommand,
}

#[derive(Debug, Subcommand)]
enum FleetCommand {
    Status(FleetStatusArgs),
}

/// Show the members of the fleet, as a running edge sees them
///
/// A member that is down owns no keys until a request reaches it again. A joining member owns none until it has the
/// purges of the fleet, and a draining member owns none because of its setting or because it stops. The exit code is 1
/// if a member is down.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
struct FleetStatusArgs {
    #[command(flatten)]
    admin: AdminServer,

    /// File with a token of the edge, if it has admin.require_token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Print the state as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &FleetArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        FleetCommand::Status(args) => status(args),
    }
}

fn status(args: &FleetStatusArgs) -> anyhow::Result<ExitCode> {
    let token = args.token_file.as_deref().map(read_token).transpose()?;
    let page = args.admin.get("/status", token.as_deref())?;
    let status: Value = serde_json::from_str(&page).context("/status is not JSON")?;
    let fleet = &status["fleet"];
    let Some(members) = fleet["members"].as_array() else {
        let diagnostic = Diagnostic::new("this edge belongs to no fleet");
        return Err(diagnostic.hint("see docs/how-to/fleet.md").into());
    };
    if args.json {
        output::print_json(fleet)?;
    } else {
        let mut out = output::stdout();
        write!(out, "{}", table(members))?;
        out.flush()?;
    }
    Ok(
        match members.iter().any(|member| member["state"] == "down") {
            true => ExitCode::from(1),
            false => ExitCode::SUCCESS,
        },
    )
}

/// Returns the members as a table. The member that answers has an asterisk.
fn table(members: &[Value]) -> Table {
    let mut table = Table::new([
        Column::words("member"),
        Column::words("group"),
        Column::figures("weight"),
        Column::words("state"),
        Column::figures("requests"),
        Column::figures("failures"),
    ]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for member in members {
        let mark = if member["is_self"] == true { "*" } else { "" };
        table.row([
            format!("{}{mark}", text(&member["name"])),
            text(&member["group"]),
            member["weight"].to_string(),
            text(&member["state"]),
            member["requests"].to_string(),
            member["failures"].to_string(),
        ]);
    }
    table
}

const EXAMPLES: &str = "\
Examples:
  edgeward fleet status --admin 127.0.0.1:9101
  edgeward fleet status --admin unix:/run/edgeward/admin.sock --json";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_table_marks_the_member_that_answers() {
        let member = |name: &str, is_self: bool| {
            json!({
                "name": name, "group": "edge", "weight": 100, "state": "up",
                "is_self": is_self, "requests": 12, "failures": 1,
            })
        };
        let shown = table(&[member("a", true), member("b", false)]).to_string();
        let lines: Vec<_> = shown.lines().map(str::split_whitespace).collect();
        let lines: Vec<Vec<_>> = lines.into_iter().map(Iterator::collect).collect();
        assert_eq!(lines[1], ["a*", "edge", "100", "up", "12", "1"]);
        assert_eq!(lines[2], ["b", "edge", "100", "up", "12", "1"]);
    }
}
