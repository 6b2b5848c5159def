//! Settings with their sources, and the locations of sources in messages.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::diagnostic::Diagnostic;

/// One setting with its final value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The key, for example `hot.capacity` or `listener[0].address`.
    pub(crate) key: String,
    /// The value in the form of the configuration file, without quotes.
    pub(crate) value: String,
    pub(crate) source: SettingSource,
    /// True if a reload applies the setting.
    pub(crate) is_live: bool,
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

/// The configuration file, for the locations in messages and for relative paths.
pub(super) struct SettingsFile<'a> {
    pub(super) file: Option<&'a Path>,
}

impl SettingsFile<'_> {
    /// Adds to `diagnostic` the location of the setting.
    pub(super) fn locate(&self, diagnostic: Diagnostic, source: &SettingSource) -> Diagnostic {
        match (source, self.file) {
            (SettingSource::File { line }, Some(file)) => diagnostic.in_file(file).at_line(*line),
            (SettingSource::Default, Some(file)) => diagnostic.in_file(file),
            _ => diagnostic,
        }
    }

    /// The folder at which relative paths start. For a setting in the file, this is the file's folder, so that a
    /// service finds its certificates wherever it is started. For a flag, this is the working directory.
    pub(super) fn folder(&self, source: &SettingSource) -> PathBuf {
        match (source, self.file.and_then(Path::parent)) {
            (SettingSource::File { .. }, Some(folder)) => folder.to_owned(),
            _ => PathBuf::new(),
        }
    }
}
