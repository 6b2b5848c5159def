//! Reads a plan (a TOML file) key by key. Problems have the line, the key and a hint. Other programs with plans use
//! these types, too.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::nearest::nearest;

/// Parses the text of a plan and reads it with `read`.
///
/// # Errors
///
/// Returns all problems, ordered by line: those of the syntax, and those that `read` reports.
pub fn read_document<T>(
    text: &str,
    read: impl FnOnce(Table<'_>) -> Option<T>,
) -> Result<T, Vec<Problem>> {
    let problems_found = ProblemCollector::new(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut last_line = 0;
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        let line = problems_found.line_of(&span);
        // One mistake often causes further errors in the same line.
        if line != last_line {
            let shown = problems_found.excerpt(&span);
            let (message, hint) = match error.message() {
                "duplicate key" => (
                    format!("{shown} is given twice"),
                    "remove one of the two lines",
                ),
                other if shown.is_empty() => (format!("this is not TOML: {other}"), ""),
                other => (format!("this is not TOML: {other} at `{shown}`"), ""),
            };
            problems_found.add(line, message, hint);
        }
        last_line = line;
    }
    let result = read(Table::document(&problems_found, document.get_ref()));
    let problems = problems_found.into_problems();
    match result {
        Some(result) if problems.is_empty() => Ok(result),
        _ => Err(problems),
    }
}

/// A problem in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The mistake in the plan.
    pub message: String,
    /// The line, counted from 1.
    pub line: usize,
    /// How to fix the problem.
    pub hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

/// Collects the problems of a plan. Has the plan's text, to find line numbers and excerpts.
struct ProblemCollector<'a> {
    text: &'a str,
    problems: RefCell<Vec<Problem>>,
}

impl<'a> ProblemCollector<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            problems: RefCell::default(),
        }
    }

    /// Adds a problem. An empty `hint` means that the problem has no hint.
    fn add(&self, line: usize, message: impl Into<String>, hint: impl Into<String>) {
        let hint = hint.into();
        self.problems.borrow_mut().push(Problem {
            message: message.into(),
            line,
            hint: (!hint.is_empty()).then_some(hint),
        });
    }

    /// Returns the problems in the order of their lines, at most [`PROBLEMS_MAX`].
    fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|problem| problem.line);
        problems.truncate(PROBLEMS_MAX);
        problems
    }

    fn line_of(&self, span: &Range<usize>) -> usize {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        1 + before.bytes().filter(|byte| *byte == b'\n').count()
    }

    /// Returns the source text of a value, shortened for a message.
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

/// A table of the plan, with the keys that were read so far.
pub struct Table<'a> {
    problems: &'a ProblemCollector<'a>,
    /// The path, for example `contender[1]` for the second contender; empty for the document.
    path: String,
    /// The line where the table begins, counted from 1.
    pub line: usize,
    entries: &'a DeTable<'a>,
    keys_read: RefCell<Vec<&'static str>>,
}

/// A value and its position in the plan.
pub struct Entry<'a> {
    problems: &'a ProblemCollector<'a>,
    /// The path, for example `load.rate`.
    pub path: String,
    /// The line of the key, counted from 1.
    pub line: usize,
    pub(super) value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Table<'a> {
    fn document(problems: &'a ProblemCollector<'a>, entries: &'a DeTable<'a>) -> Self {
        Self::new(problems, String::new(), 1, entries)
    }

    fn new(
        problems: &'a ProblemCollector<'a>,
        path: String,
        line: usize,
        entries: &'a DeTable<'a>,
    ) -> Self {
        Self {
            problems,
            path,
            line,
            entries,
            keys_read: RefCell::default(),
        }
    }

    /// Returns the value of a key, if the key exists, and records the key as read.
    pub fn entry(&self, key: &'static str) -> Option<Entry<'a>> {
        self.keys_read.borrow_mut().push(key);
        let (name, value) = self.entries.get_key_value(key)?;
        Some(Entry {
            problems: self.problems,
            path: self.path_of(key),
            line: self.problems.line_of(&name.span()),
            value,
        })
    }

    /// Returns the value of a key if it is a string. Reports no problem and does not record the key as read.
    pub(crate) fn peek(&self, key: &str) -> Option<&'a str> {
        self.entries.get(key)?.get_ref().as_str()
    }

    /// Returns the texts of a list under a key. Reports no problem and does not record the key as read.
    pub(crate) fn peek_texts(&self, key: &str) -> Option<Vec<String>> {
        let items = self.entries.get(key)?.get_ref().as_array()?.iter();
        items
            .map(|item| item.get_ref().as_str().map(str::to_owned))
            .collect()
    }

    /// Returns the keys of the table under a key. Reports no problem and does not record the key as read.
    pub(crate) fn peek_keys(&self, key: &str) -> Vec<String> {
        let table = self
            .entries
            .get(key)
            .and_then(|value| value.get_ref().as_table());
        let keys = table.into_iter().flat_map(|table| table.keys());
        keys.map(|key| key.get_ref().to_string()).collect()
    }

    /// Returns true if the key has a list. Does not record the key as read.
    pub(crate) fn has_list(&self, key: &str) -> bool {
        let value = self.entries.get(key);
        value.is_some_and(|value| value.get_ref().is_array())
    }

    /// Returns all keys with their values. Does not record the keys as read.
    pub fn all(&self) -> impl Iterator<Item = (&'a str, Entry<'a>)> {
        self.entries.iter().map(|(name, value)| {
            let key: &str = name.get_ref();
            let entry = Entry {
                problems: self.problems,
                path: self.path_of(key),
                line: self.problems.line_of(&name.span()),
                value,
            };
            (key, entry)
        })
    }

    /// Returns the table under a key, if the key exists. Reports a value that is not a table.
    pub(crate) fn table(&self, key: &'static str) -> Option<Self> {
        self.entry(key)?.table()
    }

    /// Returns the tables of the array under a key; no tables if the key does not exist. Reports a value of
    /// another type.
    pub(crate) fn tables(&self, key: &'static str) -> Vec<Self> {
        let Some(entry) = self.entry(key) else {
            return Vec::new();
        };
        let DeValue::Array(items) = entry.value.get_ref() else {
            entry.wrong("is not a list of tables", format!("write [[{key}]]"));
            return Vec::new();
        };
        let mut tables = Vec::new();
        for (n, item) in items.iter().enumerate() {
            let path = format!("{}[{n}]", entry.path);
            let line = self.problems.line_of(&item.span());
            match item.get_ref() {
                DeValue::Table(entries) => {
                    tables.push(Self::new(self.problems, path, line, entries));
                }
                _ => {
                    let shown = self.problems.excerpt(&item.span());
                    let message = format!("{path} = {shown} is not a table");
                    self.problems.add(line, message, format!("write [[{key}]]"));
                }
            }
        }
        tables
    }

    /// Reports that a required key is missing.
    pub fn missing(&self, key: &str, hint: impl Into<String>) {
        let message = format!("{} is missing", self.path_of(key));
        self.problems.add(self.line, message, hint);
    }

    /// Reports a problem with the whole table.
    pub fn wrong(&self, message: impl Into<String>, hint: impl Into<String>) {
        self.problems.add(self.line, message, hint);
    }

    /// Reports a problem in another line.
    pub fn wrong_at(&self, line: usize, message: impl Into<String>, hint: impl Into<String>) {
        self.problems.add(line, message, hint);
    }

    /// Reports every key that no code has read.
    pub fn finish(self) {
        let keys_read = self.keys_read.borrow();
        for (key, entry) in self.all() {
            if !keys_read.contains(&key) {
                entry.unknown(&keys_read);
            }
        }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }
}

impl<'a> Entry<'a> {
    /// Returns the items of a list. Any other value is a list of length 1.
    pub fn items(&self) -> Vec<Self> {
        let item = |value: &'a Spanned<DeValue<'a>>| Self {
            problems: self.problems,
            path: self.path.clone(),
            line: self.problems.line_of(&value.span()),
            value,
        };
        match self.value.get_ref() {
            DeValue::Array(items) => items.iter().map(item).collect(),
            _ => vec![item(self.value)],
        }
    }

    /// Reports that the key is unknown. The hint suggests the most similar of `known`.
    pub fn unknown(&self, known: &[&str]) {
        let message = format!("there is no key {}", self.path);
        let key = self.path.rsplit('.').next().unwrap_or(&self.path);
        let hint = match nearest(key, known.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("the keys here are {}", known.join(", ")),
        };
        self.problems.add(self.line, message, hint);
    }

    /// Returns true if the value is a table.
    pub fn is_table(&self) -> bool {
        self.value.get_ref().is_table()
    }

    /// Returns true if the value is a list.
    pub(crate) fn is_list(&self) -> bool {
        self.value.get_ref().is_array()
    }

    /// Reports a problem with the value: `load.rate = "fast" is not …`.
    pub fn wrong(&self, what: &str, hint: impl Into<String>) {
        let shown = self.problems.excerpt(&self.value.span());
        let message = format!("{} = {shown} {what}", self.path);
        self.problems.add(self.line, message, hint);
    }

    /// Returns the table. Reports a value that is not a table.
    pub fn table(&self) -> Option<Table<'a>> {
        match self.value.get_ref() {
            DeValue::Table(entries) => {
                let path = self.path.clone();
                Some(Table::new(self.problems, path, self.line, entries))
            }
            _ => {
                self.wrong("is not a table", format!("write [{}]", self.path));
                None
            }
        }
    }
}

/// The maximum number of problems that are reported.
const PROBLEMS_MAX: usize = 50;

const EXCERPT_CHARS_MAX: usize = 40;
