//! The flags of `serve` that set one key each, generated from the list of keys.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

use super::keys::{self, Flag, Key};
use super::setting::FlagSetting;

/// The settings that are given by their own flags.
#[derive(Clone, Debug)]
pub(crate) struct SettingFlags(pub(crate) Vec<FlagSetting>);

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let settings = keys_with_flags().flat_map(|(key, flag)| {
            let texts: Vec<String> = match flag.value_name() {
                Some(_) => matches
                    .get_many(key.path)
                    .into_iter()
                    .flatten()
                    .cloned()
                    .collect(),
                None if matches.get_flag(key.path) => vec!["true".to_owned()],
                None => Vec::new(),
            };
            texts.into_iter().map(move |text| FlagSetting {
                flag: flag.name().to_owned(),
                key: key.path.to_owned(),
                text,
            })
        });
        Ok(Self(settings.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        let mut flags: Vec<_> = keys_with_flags().collect();
        // `--config` follows, so that all flags with files stand together.
        flags.sort_by_key(|(_, flag)| flag.value_name() == Some("FILE"));
        command.args(flags.into_iter().map(|(key, flag)| arg(key, &flag)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn keys_with_flags() -> impl Iterator<Item = (&'static Key, Flag)> {
    keys::all().filter_map(|key| Some((key, key.flag?)))
}

fn arg(key: &'static Key, flag: &Flag) -> Arg {
    let arg = Arg::new(key.path)
        .long(flag.name().trim_start_matches('-'))
        .help(flag.help)
        .long_help(format!("{}\n\n{}", flag.help, without_links(key.doc())))
        .hide_short_help(flag.is_hidden);
    match flag.value_name() {
        // A size below zero is reported with the reason, and not as an unknown flag.
        Some(value) => arg
            .value_name(value)
            .allow_hyphen_values(value == "SIZE")
            .action(match flag.is_repeatable {
                true => ArgAction::Append,
                false => ArgAction::Set,
            }),
        None => arg.action(ArgAction::SetTrue),
    }
}

/// Replaces the links of Markdown by their texts.
fn without_links(markdown: &str) -> String {
    let mut text = markdown.to_owned();
    while let Some(middle) = text.find("](")
        && let Some(start) = text[..middle].rfind('[')
        && let Some(length) = text[middle..].find(')')
    {
        text.replace_range(middle..=middle + length, "");
        text.remove(start);
    }
    text
}
