//! The configuration of an edge: what was typed, in a file and as flags, becomes what is meant.
//!
//! Each setting is defined once, in [`keys`]: its name, what it takes, its bounds, what it does.
//! The file and the flags are two ways to type the same settings, a flag the stronger one. All
//! that is wrong is found in one go and each [`Complaint`] names the line and the way out.
//! [`EdgeConfig`] is what comes out, and only that travels on.

mod check;
mod choice;
mod file;
mod keys;
mod kind;
mod nearest;
mod reference;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use edgeward_proxy::config::EdgeConfig;

use crate::complaint::{Complaint, Complaints};
use crate::link_edge::LinkSettings;
use crate::negative::NegativeSettings;
use keys::Key;
use kind::Raw;

/// A configuration that can be served, and where each of its settings came from.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) edge: EdgeConfig,
    /// Filters to start beside it.
    pub(crate) negative: Vec<NegativeSettings>,
    /// The link to start beside it.
    pub(crate) link: Option<LinkSettings>,
    pub(crate) settings: Vec<Setting>,
}

/// One setting as it will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// `hot.capacity`, or `listener[0].address`.
    pub(crate) key: String,
    /// As one would write it in the file, without quotes.
    pub(crate) value: String,
    pub(crate) source: Source,
}

/// Where a setting came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Default,
    File { line: usize },
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { line } => write!(f, "line {line}"),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// A setting as typed at the prompt.
#[derive(Clone, Debug)]
pub(crate) struct FlagSetting {
    /// As it was typed: `--hot`, or `--set hot.capacity`.
    pub(crate) flag: String,
    /// The key in the file that means the same.
    pub(crate) key: String,
    pub(crate) text: String,
}

/// Why there is no configuration.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// The file could not be read at all.
    Unreadable(Complaint),
    /// It was read, and this is wrong with it or with the flags.
    Wrong(Complaints),
}

impl From<LoadError> for anyhow::Error {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Unreadable(complaint) => complaint.into(),
            LoadError::Wrong(complaints) => complaints.into(),
        }
    }
}

/// Reads `file`, adds `flags`, and checks the whole.
pub(crate) fn load(file: Option<&Path>, flags: &[FlagSetting]) -> Result<Checked, LoadError> {
    let mut typed = Vec::new();
    let mut complaints = Vec::new();
    if let Some(path) = file {
        let text = file::read(path).map_err(LoadError::Unreadable)?;
        file::parse(&text, &mut typed, &mut complaints);
    }
    let told = Told { file };
    if flags.iter().any(|flag| flag.key == "listener.address") {
        // Addresses at the prompt stand in for those of the file, not beside them.
        typed.retain(|one| !one.key.path.starts_with("listener."));
    }
    if flags.iter().any(|flag| flag.key == "disk_device.path") {
        typed.retain(|one| !one.key.path.starts_with("disk_device."));
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
                typed.push(Typed {
                    key,
                    item,
                    raw: Raw::Typed(flag.text.clone()),
                    source: Source::Flag(flag.flag.clone()),
                });
            }
            None => complaints.push((
                Source::Flag(flag.flag.clone()),
                Complaint::new(format!("{}: there is no such key", flag.flag))
                    .hint(nearest::hint(&flag.key)),
            )),
        }
    }
    check::check(typed, complaints, &told).map_err(LoadError::Wrong)
}

/// What may be typed several times at the prompt: the nth speaks of the nth.
const REPEATED: [&str; 3] = [
    "listener.address",
    "disk_device.path",
    "disk_device.capacity",
];

/// The reference of all settings, as Markdown: `docs/reference/configuration.md`.
pub(crate) use reference::markdown as reference_markdown;

/// One setting, typed and not yet checked.
#[derive(Clone, Debug)]
struct Typed {
    key: &'static Key,
    /// Which of several, for keys of `[[listener]]` and `[[disk_device]]`.
    item: usize,
    raw: Raw,
    source: Source,
}

/// Where the settings were told.
struct Told<'a> {
    file: Option<&'a Path>,
}

impl Told<'_> {
    /// Puts a complaint where its setting was typed.
    fn place(&self, complaint: Complaint, source: &Source) -> Complaint {
        match (source, self.file) {
            (Source::File { line }, Some(file)) => complaint.in_file(file).at_line(*line),
            (Source::Default, Some(file)) => complaint.in_file(file),
            _ => complaint,
        }
    }

    /// What a relative path in a setting is relative to: the file's folder, so that a service
    /// finds its certificates wherever it is started; at the prompt, the current folder.
    fn folder(&self, source: &Source) -> PathBuf {
        match (source, self.file.and_then(Path::parent)) {
            (Source::File { .. }, Some(folder)) => folder.to_owned(),
            _ => PathBuf::new(),
        }
    }
}

#[cfg(test)]
mod tests;
