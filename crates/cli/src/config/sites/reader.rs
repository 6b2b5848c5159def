//! Reads values of the file for the keys of sites, and reports errors with their lines.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use edgeward_sites::{Page, PathPattern};
use toml::Spanned;
use toml::de::DeValue;

use crate::config::setting::SettingSource;
use crate::config::source::SourceText;
use crate::config::value::{self, Count, InputFile, SettingValue, Time, to_value_error};
use crate::diagnostic::Diagnostic;

/// A key of the file with its value, or a member of a list or table.
#[derive(Clone, Debug)]
pub(super) struct Entry<'t> {
    /// The name in messages, such as `response.set.X-Frame-Options`.
    pub(super) name: String,
    pub(super) value: &'t Spanned<DeValue<'t>>,
    /// The line for messages.
    pub(super) line: usize,
}

impl<'t> Entry<'t> {
    /// Returns an entry. `span` is the position of its key, or of its value if it has no key.
    pub(super) fn new(
        name: impl Into<String>,
        value: &'t Spanned<DeValue<'t>>,
        span: &Range<usize>,
        reader: &Reader<'_>,
    ) -> Self {
        Self {
            name: name.into(),
            value,
            line: reader.line(span),
        }
    }

    /// Returns the boolean, if the value is one.
    pub(super) fn as_switch(&self) -> Option<bool> {
        self.value.get_ref().as_bool()
    }

    /// Returns the text, if the value is a string.
    pub(super) fn as_text(&self) -> Option<&'t str> {
        self.value.get_ref().as_str()
    }

    pub(super) fn is_table(&self) -> bool {
        self.value.get_ref().is_table()
    }
}

/// Reads values and collects errors.
pub(super) struct Reader<'a> {
    source: &'a SourceText<'a>,
    /// The folder at which relative paths start.
    folder: &'a Path,
    lines_with_errors: &'a HashSet<usize>,
    diagnostics: &'a mut Vec<(SettingSource, Diagnostic)>,
    /// The compiled regular expressions. Sites often repeat the expressions of others, and to compile one takes far
    /// longer than to read the rest of its rule.
    expressions: HashMap<Box<str>, PathPattern>,
    /// The error pages that were read, so that sites share the memory of a page.
    pub(super) pages: HashMap<PathBuf, Arc<Page>>,
    /// The number of rate limits so far.
    pub(super) rate_limits: u32,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        source: &'a SourceText<'a>,
        folder: &'a Path,
        lines_with_errors: &'a HashSet<usize>,
        diagnostics: &'a mut Vec<(SettingSource, Diagnostic)>,
    ) -> Self {
        Self {
            source,
            folder,
            lines_with_errors,
            diagnostics,
            expressions: HashMap::new(),
            pages: HashMap::new(),
            rate_limits: 0,
        }
    }

    /// The line in which a span starts.
    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        self.source.line(span)
    }

    /// Returns the name and the value of an entry as in the file, with the white space of a list on several lines
    /// removed.
    pub(super) fn text_of(&self, entry: &Entry<'_>) -> (String, String) {
        let text = self.source.text_of(&entry.value.span());
        let words: Vec<&str> = text.split_whitespace().collect();
        (entry.name.clone(), words.join(" "))
    }

    /// Reports an error in a line.
    pub(super) fn report(&mut self, line: usize, diagnostic: Diagnostic) {
        if !self.lines_with_errors.contains(&line) {
            self.diagnostics
                .push((SettingSource::File { line }, diagnostic));
        }
    }

    /// Reports that a value is wrong. `reason` completes a sentence that begins with the key and its value.
    pub(super) fn reject(
        &mut self,
        entry: &Entry<'_>,
        reason: impl Display,
        hint: impl Into<String>,
    ) {
        let excerpt = self.source.excerpt(&entry.value.span());
        let message = format!("{} = {excerpt} {reason}", entry.name);
        self.report(entry.line, Diagnostic::new(message).hint(hint));
    }

    /// Reports that a value is of another type than its key.
    pub(super) fn reject_type(&mut self, entry: &Entry<'_>, noun_phrase: &str, example: &str) {
        let kind = match entry.value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a number",
            DeValue::Float(_) => "a fraction",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.reject(
            entry,
            format_args!("is {kind}, not {noun_phrase}"),
            format!("write {example}"),
        );
    }

    /// Reads a value of a kind that other tables have, too.
    pub(super) fn value<T: SettingValue>(
        &mut self,
        entry: &Entry<'_>,
        kind: &T,
    ) -> Option<T::Parsed> {
        let raw = self.source.raw(entry.value);
        match value::read(kind, &raw, self.folder) {
            Ok(value) => Some(value),
            Err(error) => {
                let message = format!("{} = {raw} {}", entry.name, error.reason);
                let diagnostic = Diagnostic::new(message);
                let diagnostic = match error.hint {
                    Some(hint) => diagnostic.hint(hint),
                    None => diagnostic,
                };
                self.report(entry.line, diagnostic);
                None
            }
        }
    }

    /// Reads a duration in whole seconds, the unit in which HTTP counts lifetimes (RFC 9111 §1.2.2).
    pub(super) fn duration(&mut self, entry: &Entry<'_>) -> Option<Duration> {
        let duration = self.value(entry, &Time(Duration::ZERO, DURATION_MAX))?;
        if duration.subsec_nanos() > 0 {
            self.reject(entry, "is not a whole number of seconds", "write \"1s\"");
            return None;
        }
        Some(duration)
    }

    pub(super) fn number(&mut self, entry: &Entry<'_>, min: u64, max: u64) -> Option<u64> {
        self.value(entry, &Count::of(min, max))
    }

    /// Reads the path of an existing file.
    pub(super) fn file(&mut self, entry: &Entry<'_>) -> Option<PathBuf> {
        self.value(entry, &InputFile)
    }

    /// Reads a string.
    pub(super) fn text<'t>(
        &mut self,
        entry: &Entry<'t>,
        noun_phrase: &str,
        example: &str,
    ) -> Option<&'t str> {
        let text = entry.as_text();
        if text.is_none() {
            self.reject_type(entry, noun_phrase, example);
        }
        text
    }

    /// Parses a string.
    pub(super) fn parse<T, E: Display>(
        &mut self,
        entry: &Entry<'_>,
        noun_phrase: &str,
        example: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(entry, noun_phrase, example)?;
        match parse(text) {
            Ok(value) => Some(value),
            Err(error) => {
                let error = to_value_error(text, &error);
                let hint = error.hint.unwrap_or_else(|| format!("write {example}"));
                self.reject(entry, error.reason, hint);
                None
            }
        }
    }

    /// Returns the members of a list. A value that is not a list is its only member.
    pub(super) fn members<'t>(&self, entry: &Entry<'t>) -> Vec<Entry<'t>> {
        match entry.value.get_ref() {
            DeValue::Array(items) => {
                let member = |item: &'t Spanned<DeValue<'t>>| {
                    Entry::new(entry.name.clone(), item, &item.span(), self)
                };
                items.iter().map(member).collect()
            }
            _ => vec![entry.clone()],
        }
    }

    /// Parses the strings of a list, or a single string. Returns `None` if one of them is wrong.
    pub(super) fn parse_list<T, E: Display>(
        &mut self,
        entry: &Entry<'_>,
        noun_phrase: &str,
        example: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<Vec<T>> {
        let members = self.members(entry);
        let count = members.len();
        let values: Vec<T> = members
            .iter()
            .filter_map(|member| self.parse(member, noun_phrase, example, &parse))
            .collect();
        (values.len() == count).then_some(values)
    }

    /// Returns the members of a table.
    pub(super) fn table<'t>(
        &mut self,
        entry: &Entry<'t>,
        noun_phrase: &str,
        example: &str,
    ) -> Vec<(&'t str, Entry<'t>)> {
        let Some(table) = entry.value.get_ref().as_table() else {
            self.reject_type(entry, noun_phrase, example);
            return Vec::new();
        };
        table
            .iter()
            .map(|(name, value)| {
                let key: &str = name.get_ref();
                let name_in_messages = format!("{}.{key}", entry.name);
                (key, Entry::new(name_in_messages, value, &name.span(), self))
            })
            .collect()
    }

    /// Compiles a regular expression. `example` is an expression for the key, in quotes.
    pub(super) fn regex(&mut self, entry: &Entry<'_>, example: &str) -> Option<PathPattern> {
        let text = self.text(entry, "a regular expression", example)?;
        if let Some(pattern) = self.expressions.get(text) {
            return Some(pattern.clone());
        }
        let pattern = self.parse(entry, "a regular expression", example, PathPattern::regex)?;
        self.expressions.insert(text.into(), pattern.clone());
        Some(pattern)
    }
}

/// The longest lifetime: ten years. RFC 9111 §1.2.2 asks caches to represent up to 68 years, and RFC 2616 asked origins
/// to state no more than one year.
const DURATION_MAX: Duration = Duration::from_secs(3650 * 24 * 60 * 60);
