//! The command line of `edgeward simulate`: the options, or a plan and the options that replace its keys.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::args::SimulateArgs;

/// The checked command line.
#[derive(Debug)]
pub(crate) struct SimulateCommand {
    /// The file of `--plan`.
    pub(super) plan: Option<PathBuf>,
    pub(super) args: SimulateArgs,
    /// The options on the command line, which replace keys of a plan.
    pub(super) given: Vec<GivenOption>,
}

/// An option on the command line.
#[derive(Debug)]
pub(super) struct GivenOption {
    pub(super) id: String,
    /// The option as arguments: one `--option=value` for each value, or `--option` if it takes no value.
    pub(super) words: Vec<OsString>,
}

impl FromArgMatches for SimulateCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self {
            plan: matches.get_one(PLAN).cloned(),
            args: SimulateArgs::from_arg_matches(matches)?,
            given: given_options(matches),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SimulateCommand {
    /// Adds the options and `--plan`. A plan contains traces and capacities, so they are required only without a plan.
    fn augment_args(command: Command) -> Command {
        let unless_plan = |arg: Arg| arg.required(false).required_unless_present(PLAN);
        SimulateArgs::augment_args(command)
            .arg(
                Arg::new(PLAN)
                    .long(PLAN)
                    .value_name("FILE")
                    .value_parser(ValueParser::path_buf())
                    .action(ArgAction::Set)
                    .conflicts_with_all([FILES, "curve", "sample"])
                    .help("Run a plan: a TOML file with traces and settings")
                    .long_help(
                        "Run a plan: a TOML file with traces and settings\n\n\
                         A plan has traces, policies, capacities, seeds and other settings. Options beside \
                         --plan replace keys of the plan. docs/how-to/plans.md describes plans.",
                    ),
            )
            .mut_arg(FILES, unless_plan)
            .mut_arg("capacity", unless_plan)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Returns a command with all options except `--plan`.
pub(super) fn options() -> Command {
    SimulateArgs::augment_args(Command::new("simulate"))
}

fn given_options(matches: &ArgMatches) -> Vec<GivenOption> {
    let mut given = Vec::new();
    for option in options().get_arguments() {
        let (id, Some(flag)) = (option.get_id().as_str(), option.get_long()) else {
            continue;
        };
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let words = if option.get_action().takes_values() {
            let values = matches.get_raw(id).into_iter().flatten();
            let word = |value| {
                let mut word = OsString::from(format!("--{flag}="));
                word.push(value);
                word
            };
            values.map(word).collect()
        } else {
            vec![OsString::from(format!("--{flag}"))]
        };
        given.push(GivenOption {
            id: id.to_owned(),
            words,
        });
    }
    given
}

const PLAN: &str = "plan";

/// The id of the positional argument with the traces.
pub(super) const FILES: &str = "files";
