//! Commands that need the whole workspace: `cargo xtask <command>`.

mod docs_site;
/// Writes random test scripts for the filter clients. A script describes the life of a client: a sequence of events.
mod lives;
mod options;
mod tidy;
/// Rewrites the golden files under `vectors/`.
mod vectors;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use options::Options;

/// A command, with the options that its help declares.
struct Subcommand {
    name: &'static str,
    help: &'static str,
    /// Executes the command. Returns true on success, and false if a check failed.
    run: fn(&Path, &Options) -> anyhow::Result<bool>,
}

impl Subcommand {
    fn run(&self, root: &Path, arguments: impl Iterator<Item = String>) -> anyhow::Result<bool> {
        let mut arguments = arguments.peekable();
        if matches!(arguments.peek().map(String::as_str), Some("--help" | "-h")) {
            say(self.help);
            return Ok(true);
        }
        (self.run)(root, &Options::parse(self.help, arguments)?)
    }
}

/// All commands.
const SUBCOMMANDS: [Subcommand; 4] = [
    Subcommand {
        name: "tidy",
        help: tidy::HELP,
        run: tidy::run,
    },
    Subcommand {
        name: "docs-site",
        help: docs_site::HELP,
        run: docs_site::run,
    },
    Subcommand {
        name: "lives",
        help: lives::HELP,
        run: lives::run,
    },
    Subcommand {
        name: "vectors",
        help: vectors::HELP,
        run: vectors::run,
    },
];

fn main() -> ExitCode {
    let root = &workspace_root();
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next();
    let outcome = match command.as_deref() {
        Some("help" | "--help" | "-h") | None => {
            say(help());
            Ok(true)
        }
        Some(name) => match SUBCOMMANDS.iter().find(|command| command.name == name) {
            Some(command) => command.run(root, arguments),
            None => Err(anyhow::anyhow!(
                "no command is called {name}\n  hint: cargo xtask --help lists the commands"
            )),
        },
    };
    // Exit codes: 0 for success, 1 for a failed check, 2 for an error.
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Returns a list of all commands with the first line of their help.
fn help() -> String {
    let mut text = String::from(
        "Commands that need the whole workspace.\n\nusage: cargo xtask <command> [options]\n\n",
    );
    let commands = SUBCOMMANDS
        .iter()
        .map(|command| (command.name, command.help));
    for (name, help) in commands {
        let about = help.lines().next().unwrap_or_default();
        _ = writeln!(text, "  {name:<17} {about}");
    }
    text + "\nEach command has --help.\n"
}

/// Returns the folder of the workspace's `Cargo.toml`: the parent of this crate's folder.
fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a folder of the workspace")
        .to_path_buf()
}

/// Writes to stdout. A closed pipe (`| head`) is not an error.
pub(crate) fn say(text: impl AsRef<str>) {
    use std::io::Write as _;
    _ = std::io::stdout().write_all(text.as_ref().as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_help_fits_on_a_screen_and_has_a_usage_line() {
        let helps = SUBCOMMANDS
            .iter()
            .map(|command| (command.name, command.help));
        for (name, help) in helps {
            assert!(
                help.contains(&format!("\n\nusage: cargo xtask {name}")),
                "{name}"
            );
            assert!(help.lines().count() <= 24, "{name} has too many lines");
            for line in help.lines().chain(super::help().lines()) {
                assert!(line.chars().count() <= 80, "{name}: too long: {line}");
            }
        }
    }
}
