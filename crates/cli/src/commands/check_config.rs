//! `edgeward check-config`: checks a configuration file and prints its settings and sites.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;

use crate::config::{self, CheckedConfig, LoadError, Setting, SiteSummary};
use crate::diagnostic::{self, Diagnostic, Diagnostics};
use crate::output::{self, Column, Table};

/// Check a configuration file and list its settings and sites
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct CheckConfigArgs {
    /// The file to check
    #[arg(value_name = "FILE", required_unless_present = "reference")]
    file: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Print the reference of all settings as Markdown
    #[arg(long, conflicts_with_all = ["file", "json"])]
    reference: bool,
}

/// Checks the file and prints its settings and sites, or its errors. Exit codes: 0 the file is valid, 1 it is invalid,
/// 2
/// it could not be read. With `--reference`, prints the reference of all settings instead.
pub(crate) fn run(args: &CheckConfigArgs) -> anyhow::Result<ExitCode> {
    let Some(file) = &args.file else {
        let mut out = output::stdout();
        out.write_all(config::reference_markdown().as_bytes())?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    };
    match config::load(Some(file), &[]) {
        Ok(checked) if args.json => {
            output::print_json(&json!({
                "ok": true,
                "file": file,
                "settings": checked.settings.iter().map(SettingJson::from).collect::<Vec<_>>(),
                "sites": checked.sites,
                "warnings": checked.warnings.iter().map(Diagnostic::to_json).collect::<Vec<_>>(),
            }))?;
            Ok(ExitCode::SUCCESS)
        }
        Ok(CheckedConfig {
            settings,
            sites,
            warnings,
            ..
        }) => {
            diagnostic::print_warnings(&warnings);
            let mut table = Table::new([
                Column::words("setting"),
                Column::words("value"),
                Column::words("from"),
            ]);
            for Setting { key, value, source } in settings {
                table.row([key, value, source.to_string()]);
            }
            let mut out = output::stdout();
            writeln!(out, "ok: {} is valid\n\n{table}", file.display())?;
            if !sites.is_empty() {
                writeln!(out, "\n{}", sites_table(&sites))?;
            }
            out.flush()?;
            Ok(ExitCode::SUCCESS)
        }
        Err(LoadError::Invalid(diagnostics)) => {
            if args.json {
                let Diagnostics(all) = &diagnostics;
                output::print_json(&json!({
                    "ok": false,
                    "file": file,
                    "problems": all.iter().map(Diagnostic::to_json).collect::<Vec<_>>(),
                }))?;
            } else {
                diagnostic::print(&diagnostics.into());
            }
            Ok(ExitCode::from(1))
        }
        Err(error @ LoadError::Unreadable(_)) => Err(error.into()),
    }
}

fn sites_table(sites: &[SiteSummary]) -> Table {
    let mut table = Table::new([
        Column::words("site"),
        Column::figures("rules"),
        Column::words("from"),
    ]);
    for SiteSummary { hosts, rules, line } in sites {
        table.row([hosts.join(", "), rules.to_string(), format!("line {line}")]);
    }
    table
}

#[derive(Serialize)]
struct SettingJson<'a> {
    key: &'a str,
    value: &'a str,
    from: String,
}

impl<'a> From<&'a Setting> for SettingJson<'a> {
    fn from(setting: &'a Setting) -> Self {
        Self {
            key: &setting.key,
            value: &setting.value,
            from: setting.source.to_string(),
        }
    }
}

const EXAMPLES: &str = "\
Exit codes: 0 the file is valid, 1 it is invalid, 2 it could not be read.

Examples:
  edgeward check-config edgeward.toml
  edgeward check-config --json edgeward.toml | jq '.settings[] | select(.from != \"default\")'";
