//! The configuration of an edge: reads the file and the flags, checks them and returns the result.
//!
//! Each setting is defined once, in [`keys`]: name, type, bounds, description. A setting can be given in the
//! file or as a flag; flags override the file. All errors are found in one pass, and each [`Diagnostic`] names
//! the line and a way to fix it. The result contains an [`EdgeConfig`], the only part that other crates use.

mod check;
mod choice;
mod file;
mod keys;
mod kind;
mod nearest;
mod reference;
mod sites;
mod source;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use edgeward_proxy::config::EdgeConfig;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::link_settings::LinkSettings;
use crate::negative::NegativeSettings;
use file::FileSettings;
use keys::Key;
use kind::Raw;

/// A valid configuration, and the source of each of its settings.
#[derive(Debug)]
pub(crate) struct CheckedConfig {
    pub(crate) edge: EdgeConfig,
    /// The `[[negative]]` rules. Their filters are started together with the edge.
    pub(crate) negative: Vec<NegativeSettings>,
    /// The settings of the link, or `None` if the edge has no link. The link is started together with the edge.
    pub(crate) link: Option<LinkSettings>,
    pub(crate) settings: Vec<Setting>,
    /// The `[[site]]`s of the file.
    pub(crate) sites: Vec<SiteSummary>,
    /// Settings that are valid and probably not meant.
    pub(crate) warnings: Vec<Diagnostic>,
}

/// One setting with its final value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The key, for example `hot.capacity` or `listener[0].address`.
    pub(crate) key: String,
    /// The value in the form of the configuration file, without quotes.
    pub(crate) value: String,
    pub(crate) source: SettingSource,
}

/// The place where a setting was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SettingSource {
    Default,
    File { line: usize },
    Flag(String),
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { line } => write!(f, "line {line}"),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// A setting given on the command line.
#[derive(Clone, Debug)]
pub(crate) struct FlagSetting {
    /// The flag as given: `--hot`, or `--set hot.capacity`.
    pub(crate) flag: String,
    /// The key of the same setting in the file.
    pub(crate) key: String,
    /// The value.
    pub(crate) text: String,
}

/// The reason why the configuration could not be loaded.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// The file could not be read.
    Unreadable(Diagnostic),
    /// The file or the flags are invalid.
    Invalid(Diagnostics),
}

impl From<LoadError> for anyhow::Error {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Unreadable(diagnostic) => diagnostic.into(),
            LoadError::Invalid(diagnostics) => diagnostics.into(),
        }
    }
}

/// Reads `file`, adds `flags`, and checks the result.
pub(crate) fn load(file: Option<&Path>, flags: &[FlagSetting]) -> Result<CheckedConfig, LoadError> {
    let settings_file = SettingsFile { file };
    let mut settings = match file {
        Some(path) => {
            let text = file::read(path).map_err(LoadError::Unreadable)?;
            let folder = path.parent().unwrap_or_else(|| Path::new(""));
            file::parse(&text, folder)
        }
        None => FileSettings::default(),
    };
    let FileSettings {
        raw_settings,
        diagnostics,
        ..
    } = &mut settings;
    if flags.iter().any(|flag| flag.key == "listener.address") {
        // Listeners given by flags replace the listeners of the file.
        raw_settings.retain(|setting| !setting.key.path.starts_with("listener."));
    }
    if flags.iter().any(|flag| flag.key == "disk_device.path") {
        // Disk devices given by flags replace the disk devices of the file.
        raw_settings.retain(|setting| !setting.key.path.starts_with("disk_device."));
    }
    let mut items: HashMap<&str, usize> = HashMap::new();
    for flag in flags {
        match keys::find(&flag.key) {
            Some(key) => {
                let item = if REPEATED.contains(&key.path) {
                    let next = items.entry(key.path).or_default();
                    *next += 1;
                    *next - 1
                } else {
                    0
                };
                raw_settings.push(RawSetting {
                    key,
                    item,
                    raw: Raw::Flag(flag.text.clone()),
                    source: SettingSource::Flag(flag.flag.clone()),
                });
            }
            None => diagnostics.push((
                SettingSource::Flag(flag.flag.clone()),
                Diagnostic::new(format!("{}: unknown key", flag.flag))
                    .hint(nearest::hint(&flag.key)),
            )),
        }
    }
    check::check(settings, &settings_file).map_err(LoadError::Invalid)
}

/// The keys of flags that may be given several times. The nth value belongs to the nth item of the array of tables.
const REPEATED: [&str; 3] = [
    "listener.address",
    "disk_device.path",
    "disk_device.capacity",
];

/// A site for the list of `check-config`.
pub(crate) use sites::{SiteSummary, TableText};

/// Returns the reference of all settings as Markdown: `docs/reference/configuration.md`.
pub(crate) use reference::markdown as reference_markdown;

/// One setting as the user gave it, not yet checked.
#[derive(Clone, Debug)]
struct RawSetting {
    key: &'static Key,
    /// The index of the item, for keys of an array of tables such as `[[listener]]`; otherwise 0.
    item: usize,
    raw: Raw,
    source: SettingSource,
}

/// The configuration file, for the locations in messages and for relative paths.
struct SettingsFile<'a> {
    file: Option<&'a Path>,
}

impl SettingsFile<'_> {
    /// Adds to `diagnostic` the location of the setting.
    fn locate(&self, diagnostic: Diagnostic, source: &SettingSource) -> Diagnostic {
        match (source, self.file) {
            (SettingSource::File { line }, Some(file)) => diagnostic.in_file(file).at_line(*line),
            (SettingSource::Default, Some(file)) => diagnostic.in_file(file),
            _ => diagnostic,
        }
    }

    /// The folder at which relative paths start. For a setting in the file, this is the file's folder, so that a
    /// service finds its certificates wherever it is started. For a flag, this is the working directory.
    fn folder(&self, source: &SettingSource) -> PathBuf {
        match (source, self.file.and_then(Path::parent)) {
            (SettingSource::File { .. }, Some(folder)) => folder.to_owned(),
            _ => PathBuf::new(),
        }
    }
}

#[cfg(test)]
mod tests;
