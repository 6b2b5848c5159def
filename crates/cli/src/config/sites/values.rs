//! The types of the keys of sites that other tables do not have.

use std::fmt::Display;
use std::time::Duration;

use super::reader::{Entry, Reader};
use crate::config::value::SettingValue;

/// The type of a key. All types of other tables are types of keys of sites, too.
pub(super) trait SiteValue {
    /// The type of a parsed value.
    type Parsed;

    /// The name of the type in the reference.
    fn name(&self) -> String;

    /// Reads a value, or reports why it is wrong.
    fn read(&self, reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<Self::Parsed>;
}

impl<T: SettingValue> SiteValue for T {
    type Parsed = T::Parsed;

    fn name(&self) -> String {
        SettingValue::name(self)
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<T::Parsed> {
        reader.value(entry, self)
    }
}

/// A duration in whole seconds.
pub(super) struct Seconds;

impl SiteValue for Seconds {
    type Parsed = Duration;

    fn name(&self) -> String {
        "duration".to_owned()
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<Duration> {
        reader.duration(entry)
    }
}

/// A string with the noun and the example of messages, and its parser.
pub(super) struct Text<T, E> {
    pub(super) name: &'static str,
    pub(super) noun_phrase: &'static str,
    pub(super) example: &'static str,
    pub(super) parse: fn(&str) -> Result<T, E>,
}

impl<T, E: Display> SiteValue for Text<T, E> {
    type Parsed = T;

    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<T> {
        reader.parse(entry, self.noun_phrase, self.example, self.parse)
    }
}

/// A list of strings, or one string.
pub(super) struct ListOf<T, E>(pub(super) Text<T, E>);

impl<T, E: Display> SiteValue for ListOf<T, E> {
    type Parsed = Vec<T>;

    fn name(&self) -> String {
        self.0.name()
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<Vec<T>> {
        reader.parse_list(entry, self.0.noun_phrase, self.0.example, self.0.parse)
    }
}

/// The members of a condition. An empty list is refused: it reads like a condition that never holds, but a rule without
/// a condition always applies.
pub(super) struct AnyOf<T, E>(pub(super) Text<T, E>);

impl<T, E: Display> SiteValue for AnyOf<T, E> {
    type Parsed = Vec<T>;

    fn name(&self) -> String {
        self.0.name()
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<Vec<T>> {
        let values = reader.parse_list(entry, self.0.noun_phrase, self.0.example, self.0.parse)?;
        if values.is_empty() {
            reject_empty(reader, entry);
            return None;
        }
        Some(values)
    }
}

/// Reports an empty condition.
pub(super) fn reject_empty(reader: &mut Reader<'_>, entry: &Entry<'_>) {
    let hint = "remove the key: a rule without a condition applies to all requests";
    reader.reject(entry, "is empty", hint);
}

/// A list of patterns, or `"all"` for no restriction.
pub(super) struct OrAll<T, E>(pub(super) Text<T, E>);

impl<T, E: Display> SiteValue for OrAll<T, E> {
    type Parsed = Option<Vec<T>>;

    fn name(&self) -> String {
        format!("{}, or `\"all\"`", self.0.name)
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<Option<Vec<T>>> {
        if entry.as_text() == Some("all") {
            return Some(None);
        }
        let values = reader.parse_list(entry, self.0.noun_phrase, self.0.example, self.0.parse);
        values.map(Some)
    }
}
