//! The trait of all types of settings, and the types that make others optional.

use std::path::Path;

use super::raw::{Raw, ValueError};

/// The type of a setting, with its bounds.
pub(in crate::config) trait SettingValue: Sync {
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
pub(in crate::config) fn read<T: SettingValue>(
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
pub(in crate::config) struct OrNone<T>(pub(in crate::config) T);

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
pub(in crate::config) struct Unset<T>(pub(in crate::config) T);

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

/// The value of an optional setting that is off, or of a seed that is random.
pub(in crate::config) const NONE: &str = "none";
