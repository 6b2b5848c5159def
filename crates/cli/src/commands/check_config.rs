//! `edgeward check-config`: checks a configuration file and prints its settings and sites.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;

use crate::config::{self, CheckedConfig, LoadError, Setting, SettingSource, SiteSummary};
use crate::diagnostic::{self, Diagnostic, Diagnostics};
use crate::negative;
use crate::output::{self, Column, Table};
use crate::privileges;

/// Check a configuration file, and list its settings and sites
///
/// Reads the certificates, keys, tokens and filters, and checks addresses and the free space, as `edgeward serve` does.
/// Prints the settings that the file states; --all adds those with their default.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct CheckConfigArgs {
    /// The file to check
    #[arg(value_name = "FILE", required_unless_present = "reference")]
    file: Option<PathBuf>,

    /// List the settings with their default, too
    #[arg(long, conflicts_with = "reference")]
    all: bool,

    /// Print the result as JSON, with all settings
    #[arg(long)]
    json: bool,

    /// Print the reference of all settings as Markdown
    #[arg(long, conflicts_with_all = ["file", "json"])]
    reference: bool,
}

/// Checks the file and prints its settings and sites, or its errors. Exit codes: 0 the file is valid, 1 it is invalid,
/// 2 it could not be read. With `--reference`, prints the reference of all settings instead.
pub(crate) fn run(args: &CheckConfigArgs) -> anyhow::Result<ExitCode> {
    let Some(file) = &args.file else {
        let mut out = output::stdout();
        out.write_all(config::reference_markdown().as_bytes())?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    };
    match load(file) {
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
            let is_listed =
                |setting: &&Setting| args.all || setting.source != SettingSource::Default;
            let listed: Vec<_> = settings.iter().filter(is_listed).collect();
            let mut out = output::stdout();
            writeln!(
                out,
                "ok: {} is valid\n\n{}",
                file.display(),
                settings_table(&listed)
            )?;
            if listed.len() < settings.len() {
                let others = settings.len() - listed.len();
                writeln!(
                    out,
                    "{others} other settings have their default: --all lists them"
                )?;
            }
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

/// Reads the file, and tries what `edgeward serve` does at its start.
fn load(file: &Path) -> Result<CheckedConfig, LoadError> {
    let checked = config::load(Some(file), &[])?;
    let mut problems = Vec::new();
    for (key, error) in edgeward_proxy::rehearse(&checked.edge) {
        let of_key = |setting: &&Setting| setting.key == key;
        let setting = checked.settings.iter().find(of_key);
        let diagnostic = Diagnostic::from_error(&error).in_file(file);
        problems.push(match setting.map(|setting| &setting.source) {
            Some(SettingSource::File { line }) => diagnostic.at_line(*line),
            _ => diagnostic,
        });
    }
    for error in negative::check_files(&checked.negative) {
        problems.push(Diagnostic::from_error(&error).in_file(file));
    }
    if let Some(name) = &checked.edge.user
        && let Err(diagnostic) = privileges::find_user(name)
    {
        problems.push(diagnostic.in_file(file));
    }
    match problems.is_empty() {
        true => Ok(checked),
        false => Err(LoadError::Invalid(Diagnostics(problems))),
    }
}

/// Returns the table of settings. A long value continues in the next row, so that no line exceeds [`WIDTH_MAX`].
fn settings_table(settings: &[&Setting]) -> Table {
    let mut table = Table::new([
        Column::words("setting"),
        Column::words("value"),
        Column::words("from"),
    ]);
    let widest = |width: fn(&Setting) -> usize| settings.iter().map(|s| width(s)).max();
    let keys = widest(|setting| setting.key.len()).unwrap_or_default();
    let sources = widest(|setting| setting.source.to_string().len()).unwrap_or_default();
    let width = WIDTH_MAX.saturating_sub(keys + sources + 4).max(20);
    for Setting {
        key, value, source, ..
    } in settings
    {
        let mut lines = wrapped(value, width).into_iter();
        let first = lines.next().unwrap_or_default();
        table.row([key.clone(), first, source.to_string()]);
        for line in lines {
            table.row([String::new(), line, String::new()]);
        }
    }
    table
}

/// Divides a text after commas into lines of at most `width` characters. A longer part is divided anywhere.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for part in text.split_inclusive(", ") {
        let mut rest: Vec<char> = part.chars().collect();
        while !rest.is_empty() {
            let line = lines.last_mut().expect("the list has a line");
            let used = line.chars().count();
            let fits = width.saturating_sub(used);
            if rest.len() <= fits || (used == 0 && fits > 0) {
                line.extend(rest.drain(..rest.len().min(fits)));
            } else {
                lines.push(String::new());
            }
        }
    }
    lines
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// The width of the output in characters.
const WIDTH_MAX: usize = 120;

fn sites_table(sites: &[SiteSummary]) -> Table {
    let mut table = Table::new([
        Column::words("site"),
        Column::figures("rules"),
        Column::words("from"),
    ]);
    for SiteSummary {
        hosts, rules, line, ..
    } in sites
    {
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
  edgeward check-config --all edgeward.toml
  edgeward check-config --json edgeward.toml | jq '.settings[] | select(.from != \"default\")'";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_divided_after_commas_and_otherwise_anywhere() {
        let lines = |text: &str| wrapped(text, 10);
        assert_eq!(lines("short"), ["short"]);
        assert_eq!(lines("0123456789"), ["0123456789"]);
        assert_eq!(lines("01234567890"), ["0123456789", "0"]);
        assert_eq!(lines("aaaa, bbbb, cc"), ["aaaa,", "bbbb, cc"]);
        assert_eq!(lines(""), [""]);
    }
}
