//! The commands that this build lacks, because a feature of Cargo is off. Each accepts all arguments and fails with
//! one line that names the feature. `-h` does not list them; the end of `--help` does.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

use crate::diagnostic::Diagnostic;

// No doc comment, because clap would print it in place of the command's own.
// The arguments of a command that this build lacks. `--help` is one of them, because the options are unknown.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct AbsentArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _ignored: Vec<OsString>,
}

/// Declares the module of a command that this build lacks: `absent!(module::Args, "command", "feature")`.
macro_rules! absent {
    ($module:ident::$Args:ident, $command:literal, $feature:literal) => {
        mod $module {
            use std::process::ExitCode;

            use super::absent::{AbsentArgs, refuse};

            #[derive(clap::Args, Debug)]
            #[command(
                about = concat!("Not in this build, which lacks the feature `", $feature, "`"),
                disable_help_flag = true,
                hide = true
            )]
            pub(crate) struct $Args {
                #[command(flatten)]
                _ignored: AbsentArgs,
            }

            /// Returns an error that names the feature.
            pub(crate) fn run<T>(_: T) -> anyhow::Result<ExitCode> {
                refuse($command, $feature)
            }
        }
    };
}

pub(super) use absent;

/// Returns the error for a command.
pub(super) fn refuse(command: &str, feature: &str) -> anyhow::Result<ExitCode> {
    let command = format!("the command `{command}`");
    Err(Diagnostic::lacks_feature(&command, feature).into())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use crate::Cli;
    use crate::config::{self, FlagSetting};

    /// Returns the error of a command line.
    fn error(arguments: &[&str]) -> String {
        let arguments = ["edgeward"].iter().chain(arguments);
        let cli = Cli::try_parse_from(arguments).expect("all arguments are accepted");
        cli.command
            .run(Cli::command)
            .expect_err("no command")
            .to_string()
    }

    #[test]
    fn a_command_that_this_build_lacks_says_which_feature_has_it() {
        let filter: &[&[&str]] = &[
            &["filter"],
            &["filter", "--help"],
            &["filter", "-h"],
            &["filter", "serve", "--source", "ids.txt", "-o", "x"],
            &["bench-filter", "--ids", "1"],
            &["demo-filter"],
        ];
        let acme: &[&[&str]] = &[&["acme", "status", "--config", "edge.toml"]];
        let link: &[&[&str]] = &[
            &["link", "keygen", "--out", "keys"],
            &["link", "status", "http://127.0.0.1:1", "-q"],
            &["gateway", "--listen=:7443"],
        ];
        for (is_absent, feature, command_lines) in [
            (!cfg!(feature = "filter"), "filter", filter),
            (!cfg!(feature = "link"), "link", link),
            (!cfg!(feature = "acme"), "acme", acme),
        ] {
            for arguments in command_lines.iter().filter(|_| is_absent) {
                let expected = format!(
                    "this build of edgeward lacks the command `{}`: build edgeward-cli with the feature `{feature}`",
                    arguments[0]
                );
                assert_eq!(error(arguments), expected, "{arguments:?}");
            }
        }
    }

    /// The end of `--help` lists them: see `command` in `main.rs`.
    #[test]
    fn the_short_help_lists_no_command_that_this_build_lacks() {
        let help = Cli::command().render_help().to_string();
        let lists = |name: &str| {
            let mut lines = help.lines().map(str::split_whitespace);
            lines.any(|mut words| words.next() == Some(name))
        };
        assert!(lists("serve"), "{help}");
        assert_eq!(lists("gateway"), cfg!(feature = "link"), "{help}");
        assert_eq!(lists("link"), cfg!(feature = "link"), "{help}");
        assert_eq!(lists("filter"), cfg!(feature = "filter"), "{help}");
    }

    #[test]
    #[cfg(not(feature = "link"))]
    fn a_link_is_refused_with_its_key_and_the_feature() {
        let flag = |key: &str, text: &str| FlagSetting {
            flag: format!("--set {key}"),
            key: key.to_owned(),
            text: text.to_owned(),
        };
        let flags = [
            flag("origin.url", "http://127.0.0.1:1"),
            flag("listener.address", "127.0.0.1:0"),
            flag("origin.link.gateway", "gateway.example:7443"),
        ];
        let refused = config::load(None, &flags).expect_err("a link");
        assert_eq!(
            anyhow::Error::from(refused).to_string(),
            "this build of edgeward lacks origin.link.gateway: build edgeward-cli with the feature `link`"
        );
    }
}
