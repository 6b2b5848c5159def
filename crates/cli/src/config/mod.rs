//! The configuration of an edge: reads the file and the flags, checks them and returns the result.
//!
//! Each setting is defined once, in [`keys`]: name, type, bounds, description. A setting can be given in the
//! file or as a flag; flags override the file. All errors are found in one pass, and each [`Diagnostic`] names
//! the line and a way to fix it. The result contains an [`EdgeConfig`](edgeward_proxy::EdgeConfig), the only part that other crates use.

mod check;
mod choice;
mod draft;
mod file;
mod flags;
mod keys;
mod nearest;
mod reference;
mod setting;
mod sites;
mod source;
mod value;

use std::collections::HashMap;
use std::path::Path;

use crate::diagnostic::{Diagnostic, Diagnostics};
pub(crate) use check::CheckedConfig;
use file::{FileSettings, RawSetting};
pub(crate) use flags::SettingFlags;
use setting::SettingsFile;
pub(crate) use setting::{FlagSetting, Setting, SettingSource};
use value::Raw;

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

/// Checks the text of a file that does not exist yet. Relative paths start at `folder`.
pub(crate) fn check_text(text: &str, folder: &Path) -> Result<CheckedConfig, Diagnostics> {
    let settings_file = SettingsFile {
        file: Some(Path::new("the result")),
    };
    check::check(file::parse(text, folder), &settings_file)
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
                let item = if key.flag.is_some_and(|flag| flag.is_repeatable) {
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

/// A site for the list of `check-config`.
pub(crate) use sites::{SiteSummary, TableText};

/// Returns the reference of all settings as Markdown: `docs/reference/configuration.md`.
pub(crate) use reference::markdown as reference_markdown;

#[cfg(test)]
mod tests;
