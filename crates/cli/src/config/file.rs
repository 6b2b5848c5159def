//! Reads the configuration file: parses TOML with positions and looks up each key in the list of keys.
//!
//! The parser recovers after an error, so that one error does not hide the others.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::kind::{Raw, read_error_text};
use super::{RawSetting, SettingSource, keys, nearest};
use crate::diagnostic::Diagnostic;

/// Reads the file's text.
pub(super) fn read(path: &Path) -> Result<String, Diagnostic> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| {
            let message = format!("the configuration {}", read_error_text(&error));
            // An operator without a file can start with the printed list of keys and edit it.
            Diagnostic::new(message).in_file(path).hint(
                "`edgeward check-config --reference` lists all keys, to start a new file from",
            )
        })?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Diagnostic::new("the configuration exceeds 1 MiB").in_file(path));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid_bytes = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..valid_bytes]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        Diagnostic::new("the configuration is not valid UTF-8")
            .in_file(path)
            .at_line(line)
    })
}

/// Adds the settings in `text` to `raw_settings`, and errors to `diagnostics`.
pub(super) fn parse(
    text: &str,
    raw_settings: &mut Vec<RawSetting>,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut walker = FileWalker {
        text,
        raw_settings,
        diagnostics,
    };
    let mut last_line = 0;
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        let line = walker.line(&span);
        // One error often causes further ones in the same line.
        if line != last_line {
            let diagnostic = walker.syntax(error.message(), &span);
            walker.report(&span, diagnostic);
        }
        last_line = line;
    }
    walker.document(document.get_ref());
}

/// Visits the tables and keys of a parsed file and collects the settings and the errors.
struct FileWalker<'a> {
    text: &'a str,
    raw_settings: &'a mut Vec<RawSetting>,
    diagnostics: &'a mut Vec<(SettingSource, Diagnostic)>,
}

impl FileWalker<'_> {
    fn document(&mut self, document: &DeTable<'_>) {
        for (name, value) in document {
            let table: &str = name.get_ref();
            if !nearest::tables().any(|known_table| known_table == table) {
                let diagnostic = if value.get_ref().is_table() || value.get_ref().is_array() {
                    Diagnostic::new(format!("unknown table [{table}]"))
                        .hint(nearest::table_hint(table))
                } else {
                    Diagnostic::new(format!("unknown key {table} outside of a table"))
                        .hint(nearest::hint(table))
                };
                self.report(&name.span(), diagnostic);
                continue;
            }
            let repeats = keys::is_repeated(table);
            match value.get_ref() {
                DeValue::Table(inner) => self.table(table, 0, inner),
                DeValue::Array(items) if repeats => {
                    for (item, value) in items.iter().enumerate() {
                        match value.get_ref() {
                            DeValue::Table(inner) => self.table(table, item, inner),
                            _ => self.not_a_table(table, value),
                        }
                    }
                }
                DeValue::Array(_) => {
                    let diagnostic =
                        Diagnostic::new(format!("[[{table}]] is given as an array of tables"))
                            .hint(format!("there is only one: write [{table}]"));
                    self.report(&name.span(), diagnostic);
                }
                _ => self.not_a_table(table, value),
            }
        }
    }

    /// Adds the settings of one table. `item` is the index in an array of tables such as `[[listener]]`, otherwise 0.
    fn table(&mut self, table: &str, item: usize, entries: &DeTable<'_>) {
        for (name, value) in entries {
            let path = format!("{table}.{}", name.get_ref());
            // A nested table, such as [origin.link].
            if let DeValue::Table(inner) = value.get_ref()
                && nearest::tables().any(|known_table| known_table == path)
            {
                self.table(&path, item, inner);
                continue;
            }
            let Some(key) = keys::find(&path) else {
                let diagnostic =
                    Diagnostic::new(format!("unknown key {path}")).hint(nearest::hint(&path));
                self.report(&name.span(), diagnostic);
                continue;
            };
            let raw = self.raw(value);
            let source = SettingSource::File {
                line: self.line(&name.span()),
            };
            self.raw_settings.push(RawSetting {
                key,
                item,
                raw,
                source,
            });
        }
    }

    fn raw(&self, value: &Spanned<DeValue<'_>>) -> Raw {
        let other = |kind| Raw::Other {
            kind,
            source: self.excerpt(&value.span()),
        };
        match value.get_ref() {
            DeValue::String(text) => Raw::Text(text.to_string()),
            DeValue::Integer(number) => Raw::Number(number.to_string()),
            DeValue::Boolean(on) => Raw::Switch(*on),
            DeValue::Float(_) => other("a fraction"),
            DeValue::Datetime(_) => other("a date"),
            DeValue::Array(items) => {
                let texts = items.iter().map(|item| match item.get_ref() {
                    DeValue::String(text) => Some(text.to_string()),
                    _ => None,
                });
                match texts.collect::<Option<Vec<_>>>() {
                    Some(items) if !items.is_empty() => Raw::List {
                        items,
                        source: self.excerpt(&value.span()),
                    },
                    _ => other("a list"),
                }
            }
            DeValue::Table(_) => other("a table"),
        }
    }

    fn not_a_table(&mut self, table: &str, value: &Spanned<DeValue<'_>>) {
        let excerpt = self.excerpt(&value.span());
        let diagnostic = Diagnostic::new(format!("{table} = {excerpt} is not a table"))
            .hint(format!("write [{table}] on a line, and its keys below"));
        self.report(&value.span(), diagnostic);
    }

    fn syntax(&self, message: &str, span: &Range<usize>) -> Diagnostic {
        if message == "duplicate key" {
            let key = self.excerpt(span);
            return Diagnostic::new(format!("{key} is given twice")).hint("remove one of the two");
        }
        let excerpt = self.excerpt(span);
        let location = if excerpt.is_empty() {
            String::new()
        } else {
            format!(" at `{excerpt}`")
        };
        Diagnostic::new(format!("invalid TOML: {message}{location}"))
    }

    fn report(&mut self, span: &Range<usize>, diagnostic: Diagnostic) {
        let line = self.line(span);
        self.diagnostics
            .push((SettingSource::File { line }, diagnostic));
    }

    /// The line in which a span starts, counted from 1.
    fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        1 + before.bytes().filter(|byte| *byte == b'\n').count()
    }

    /// The text of a span of the file, shortened for a message.
    fn excerpt(&self, span: &Range<usize>) -> String {
        let source = self.text.get(span.clone()).unwrap_or_default();
        let line = source.lines().next().unwrap_or_default();
        let short: String = line.chars().take(EXCERPT_CHARS_MAX).collect();
        if short.len() < source.trim_end().len() {
            format!("{short}…")
        } else {
            short
        }
    }
}

/// The maximum size of a configuration file, far above the size of any real one. The limit bounds the memory if the
/// user gives the path of another file by mistake.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The maximum length of an excerpt in a message, in characters.
const EXCERPT_CHARS_MAX: usize = 40;
