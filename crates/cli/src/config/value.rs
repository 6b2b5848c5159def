//! The types of settings: how a value is written, its bounds, and how it is parsed and shown.

mod files;
mod numbers;
mod texts;
mod units;

use std::fmt;
use std::io;
use std::path::Path;

use edgeward_types::ByteSize;

pub(super) use files::{InputFile, OutputFile, PathName};
pub(super) use numbers::{Count, Seed, Share, Size, Switch, Time};
pub(super) use texts::{
    Address, Bucket, Codings, DiskRule, Filter, Host, HostName, HostPort, Hosts, Listed, Listen,
    Log, MediaTypes, NameServers, OriginHost, PathOfId, Policy, ProxyNetworks, PublicKeys,
    ReinsertionRule, RoleList, Syslog, Target, Token, UpgradeList, Url, Urls, Word,
};
#[cfg(test)]
pub(super) use units::DURATION_UNITS;

/// The type of a setting, with its bounds.
pub(super) trait SettingValue: Sync {
    /// The type of a parsed value.
    type Parsed;

    /// The name of the type in the reference.
    fn name(&self) -> String;

    /// The name of the type with its article, for messages such as "is not a size".
    fn noun_phrase(&self) -> &'static str;

    /// An example or a description of a valid value, for hints such as "write \"64MiB\"" or "write true or false".
    fn example(&self) -> String;

    /// Parses and checks a value. Relative paths start at `folder`. A list is passed as a text with commas.
    fn read(&self, raw: &Raw, folder: &Path) -> Result<Self::Parsed, ValueError>;

    /// Formats a value in the form that a user would write. Returns `None` if it counts as not set.
    fn show(&self, value: &Self::Parsed) -> Option<String>;

    /// The minimum and the maximum, as text.
    fn bounds(&self) -> Option<(String, String)> {
        None
    }

    /// True if the configuration file needs quotes around the value.
    fn is_quoted(&self) -> bool {
        true
    }

    /// True if the value is a list: text with commas, or a TOML array of strings.
    fn is_list(&self) -> bool {
        false
    }

    /// The hint for a value of another type of TOML.
    fn hint(&self, _raw: &Raw) -> String {
        format!("write {}", self.example())
    }

    /// The error for a value of another type.
    fn wrong_type_error(&self, raw: &Raw) -> ValueError {
        let noun_phrase = self.noun_phrase();
        let raw_type = match raw {
            Raw::Flag(_) => {
                return ValueError::new(format!("is not {noun_phrase}"))
                    .hint(format!("write {}", self.example()));
            }
            Raw::Text(_) => "a string",
            Raw::Number(_) => "a number",
            Raw::Switch(_) => "a boolean",
            Raw::List { .. } => "a list",
            Raw::Other { kind, .. } => kind,
        };
        ValueError::new(format!("is {raw_type}, not {noun_phrase}")).hint(self.hint(raw))
    }

    /// Returns the text of a flag or a string.
    fn text<'r>(&self, raw: &'r Raw) -> Result<&'r str, ValueError> {
        raw.text().ok_or_else(|| self.wrong_type_error(raw))
    }
}

/// Parses a value of the file or of a flag.
pub(super) fn read<T: SettingValue>(
    kind: &T,
    raw: &Raw,
    folder: &Path,
) -> Result<T::Parsed, ValueError> {
    let Raw::List { items, .. } = raw else {
        return kind.read(raw, folder);
    };
    if !kind.is_list() {
        return Err(kind.wrong_type_error(raw));
    }
    if let Some(item) = items.iter().find(|item| item.contains(',')) {
        let reason = format!("has a comma in the item {item:?}");
        return Err(ValueError::new(reason).hint("write each member as an item of its own"));
    }
    kind.read(&Raw::Text(items.join(",")), folder)
}

/// A value of another type, or `"none"`.
pub(super) struct OrNone<T>(pub(super) T);

impl<T: SettingValue> SettingValue for OrNone<T> {
    type Parsed = Option<T::Parsed>;

    fn name(&self) -> String {
        format!("{} or `\"none\"`", self.0.name())
    }

    fn noun_phrase(&self) -> &'static str {
        self.0.noun_phrase()
    }

    fn example(&self) -> String {
        self.0.example()
    }

    fn read(&self, raw: &Raw, folder: &Path) -> Result<Self::Parsed, ValueError> {
        match raw.text() {
            Some(NONE) => Ok(None),
            _ => self.0.read(raw, folder).map(Some),
        }
    }

    fn show(&self, value: &Self::Parsed) -> Option<String> {
        match value {
            Some(value) => self.0.show(value),
            None => Some(NONE.to_owned()),
        }
    }

    fn bounds(&self) -> Option<(String, String)> {
        self.0.bounds()
    }

    fn is_quoted(&self) -> bool {
        self.0.is_quoted()
    }

    fn is_list(&self) -> bool {
        self.0.is_list()
    }

    fn hint(&self, raw: &Raw) -> String {
        self.0.hint(raw)
    }
}

/// A setting that has no value unless it is given.
pub(super) struct Unset<T>(pub(super) T);

impl<T: SettingValue> SettingValue for Unset<T> {
    type Parsed = Option<T::Parsed>;

    fn name(&self) -> String {
        self.0.name()
    }

    fn noun_phrase(&self) -> &'static str {
        self.0.noun_phrase()
    }

    fn example(&self) -> String {
        self.0.example()
    }

    fn read(&self, raw: &Raw, folder: &Path) -> Result<Self::Parsed, ValueError> {
        self.0.read(raw, folder).map(Some)
    }

    fn show(&self, value: &Self::Parsed) -> Option<String> {
        self.0.show(value.as_ref()?)
    }

    fn bounds(&self) -> Option<(String, String)> {
        self.0.bounds()
    }

    fn is_quoted(&self) -> bool {
        self.0.is_quoted()
    }

    fn is_list(&self) -> bool {
        self.0.is_list()
    }

    fn hint(&self, raw: &Raw) -> String {
        self.0.hint(raw)
    }
}

/// A value before it is parsed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Raw {
    /// The value of a flag.
    Flag(String),
    /// A string in the file.
    Text(String),
    /// A whole number in the file, as written.
    Number(String),
    /// `true` or `false` in the file.
    Switch(bool),
    /// A list of strings in the file. `source` is its text.
    List { items: Vec<String>, source: String },
    /// A value of another TOML type in the file. `kind` is the name of the type with its article ("a list"), `source`
    /// is the text in the file.
    Other { kind: &'static str, source: String },
}

/// Writes the value as the user wrote it.
impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(text) => write!(f, "{}", text.escape_debug()),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Number(text)
            | Self::List { source: text, .. }
            | Self::Other { source: text, .. } => f.write_str(text),
            Self::Switch(on) => write!(f, "{on}"),
        }
    }
}

/// The reason why a value is rejected. It completes a sentence that begins with `KEY = VALUE`, for example "is too
/// small".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValueError {
    pub(super) reason: String,
    pub(super) hint: Option<String>,
}

impl Raw {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Flag(text) | Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl ValueError {
    fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            hint: None,
        }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Converts an error of another crate to a reason and a hint. The error's message has the form "`text` is wrong; do
/// this".
pub(super) fn to_value_error(text: &str, error: &dyn fmt::Display) -> ValueError {
    let message = error.to_string();
    let (reason, hint) = match message.split_once("; ") {
        Some((reason, hint)) => (reason, Some(hint.to_owned())),
        None => (message.as_str(), None),
    };
    let prefix = format!("`{text}` ");
    let reason = match reason.strip_prefix(&prefix) {
        Some(rest) => rest.to_owned(),
        None => format!("is invalid: {reason}"),
    };
    ValueError { reason, hint }
}

/// Converts an error of another crate whose message completes "VALUE …", with the hint after a semicolon.
pub(super) fn error_of_sentence(error: &dyn fmt::Display) -> ValueError {
    let message = error.to_string();
    match message.split_once("; ") {
        Some((reason, hint)) => ValueError::new(reason).hint(hint),
        None => ValueError::new(message),
    }
}

/// Describes an error of reading a file. The texts of the usual errors omit the system's error number.
pub(super) fn read_error_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "cannot be read: permission denied".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}

/// The value of an optional setting that is off, or of a seed that is random.
pub(super) const NONE: &str = "none";

/// The values of the limits of request bodies, also of those of rules.
pub(super) const REQUEST_BODY_SIZES: OrNone<Size> =
    OrNone(Size(ByteSize(0), ByteSize::gib(16 << 10)));
