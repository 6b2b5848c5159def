//! Reads the configuration file: parses TOML with positions and looks up each key in the list of keys.
//!
//! The parser recovers after an error, so that one error does not hide the others.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, Key};
use super::nearest;
use super::setting::SettingSource;
use super::sites::{self, SiteDraft};
use super::source::SourceText;
use super::value::{Raw, read_error_text};
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
        return Err(Diagnostic::new("the configuration exceeds 16 MiB").in_file(path));
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

/// One setting as the user gave it, not yet checked.
#[derive(Clone, Debug)]
pub(super) struct RawSetting {
    pub(super) key: &'static Key,
    /// The index of the item, for keys of an array of tables such as `[[listener]]`; otherwise 0.
    pub(super) item: usize,
    pub(super) raw: Raw,
    pub(super) source: SettingSource,
}

/// The settings of a file, not yet checked together.
#[derive(Debug, Default)]
pub(super) struct FileSettings {
    pub(super) raw_settings: Vec<RawSetting>,
    pub(super) sites: Vec<SiteDraft>,
    pub(super) diagnostics: Vec<(SettingSource, Diagnostic)>,
    /// The lines with syntax errors. The parser guesses the values of these lines, so further errors of them are not
    /// reported.
    pub(super) lines_with_errors: HashSet<usize>,
}

/// Returns the settings in `text`. Relative paths of sites start at `folder`.
pub(super) fn parse(text: &str, folder: &Path) -> FileSettings {
    let (document, errors) = DeTable::parse_recoverable(text);
    let source = SourceText::new(text);
    let mut walker = FileWalker {
        source: &source,
        folder,
        settings: FileSettings::default(),
    };
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        // One error often causes further ones in the same line.
        let lines = &mut walker.settings.lines_with_errors;
        if !lines.insert(source.line(&span)) {
            continue;
        }
        let reported = walker.settings.diagnostics.len();
        if reported < SYNTAX_ERRORS_MAX {
            let diagnostic = walker.syntax(error.message(), &span);
            walker.report(&span, diagnostic);
        } else if reported == SYNTAX_ERRORS_MAX {
            let diagnostic = Diagnostic::new("this and further errors of TOML are not listed")
                .hint("correct the first one: a missing quote or bracket causes errors in the lines after it");
            walker.report(&span, diagnostic);
        }
    }
    walker.document(document.get_ref());
    walker.settings
}

/// Visits the tables and keys of a parsed file and collects the settings and the errors.
struct FileWalker<'a> {
    source: &'a SourceText<'a>,
    folder: &'a Path,
    settings: FileSettings,
}

impl FileWalker<'_> {
    fn document(&mut self, document: &DeTable<'_>) {
        for (name, value) in document {
            let table: &str = name.get_ref();
            if table == keys::SITES {
                self.settings.sites = sites::read(
                    value,
                    self.source,
                    self.folder,
                    &self.settings.lines_with_errors,
                    &mut self.settings.diagnostics,
                );
                continue;
            }
            // A table may have nested tables only, such as [fleet.nats].
            let is_known = |known: &str| {
                let rest = known.strip_prefix(table);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            if !nearest::tables().any(is_known) {
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
            // Nested tables, such as [origin.link] and [[admin.token]].
            if nearest::tables().any(|known_table| known_table == path) {
                match value.get_ref() {
                    DeValue::Table(inner) => self.table(&path, item, inner),
                    DeValue::Array(items) if keys::is_repeated(&path) => {
                        for (item, value) in items.iter().enumerate() {
                            match value.get_ref() {
                                DeValue::Table(inner) => self.table(&path, item, inner),
                                _ => self.not_a_table(&path, value),
                            }
                        }
                    }
                    _ => self.not_a_table(&path, value),
                }
                continue;
            }
            let Some(key) = keys::find(&path) else {
                let diagnostic =
                    Diagnostic::new(format!("unknown key {path}")).hint(nearest::hint(&path));
                self.report(&name.span(), diagnostic);
                continue;
            };
            let raw = self.source.raw(value);
            let source = SettingSource::File {
                line: self.source.line(&name.span()),
            };
            self.settings.raw_settings.push(RawSetting {
                key,
                item,
                raw,
                source,
            });
        }
    }

    fn not_a_table(&mut self, table: &str, value: &Spanned<DeValue<'_>>) {
        let excerpt = self.source.excerpt(&value.span());
        let diagnostic = Diagnostic::new(format!("{table} = {excerpt} is not a table"))
            .hint(format!("write [{table}] on a line, and its keys below"));
        self.report(&value.span(), diagnostic);
    }

    fn syntax(&self, message: &str, span: &Range<usize>) -> Diagnostic {
        if message == "duplicate key" {
            let key = self.source.excerpt(span);
            return Diagnostic::new(format!("{key} is given twice")).hint("remove one of the two");
        }
        let excerpt = self.source.excerpt(span);
        let location = if excerpt.is_empty() {
            String::new()
        } else {
            format!(" at `{excerpt}`")
        };
        Diagnostic::new(format!("invalid TOML: {message}{location}"))
    }

    fn report(&mut self, span: &Range<usize>, diagnostic: Diagnostic) {
        let line = self.source.line(span);
        self.settings
            .diagnostics
            .push((SettingSource::File { line }, diagnostic));
    }
}

/// Errors of syntax that are listed. One missing bracket can cause an error in each line after it.
const SYNTAX_ERRORS_MAX: usize = 10;

/// The maximum size of a configuration file: eight times the size of a file with a thousand sites and twenty rules each
/// (`bench/sites`). The limit bounds the memory if the user gives the path of another file by mistake.
const FILE_BYTES_MAX: u64 = 16 << 20;
