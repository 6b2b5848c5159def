//! Values before they are parsed, and the reasons why they are rejected.

use std::fmt;
use std::io;

/// A value before it is parsed.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::config) enum Raw {
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
pub(in crate::config) struct ValueError {
    pub(in crate::config) reason: String,
    pub(in crate::config) hint: Option<String>,
}

impl Raw {
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Flag(text) | Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl ValueError {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            hint: None,
        }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Converts an error of another crate to a reason and a hint. The error's message has the form "`text` is wrong; do
/// this".
pub(in crate::config) fn to_value_error(text: &str, error: &dyn fmt::Display) -> ValueError {
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
pub(in crate::config) fn error_of_sentence(error: &dyn fmt::Display) -> ValueError {
    let message = error.to_string();
    match message.split_once("; ") {
        Some((reason, hint)) => ValueError::new(reason).hint(hint),
        None => ValueError::new(message),
    }
}

/// Describes an error of reading a file. The texts of the usual errors omit the system's error number.
pub(in crate::config) fn read_error_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "cannot be read: permission denied".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}
