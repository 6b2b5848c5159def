//! The parts that all line formats share: the trait of their parsers, and functions for fields.

use crate::Record;

use super::error::{Problem, printable_excerpt};

/// Parses one line at a time.
pub(super) trait LineParser {
    /// Parses a line without its line feed. Returns `None` if the line is not a request, because it is blank, a
    /// comment, or excluded by the parser's options.
    fn parse(&mut self, line: &[u8]) -> Result<Option<Record>, Problem>;

    /// Returns the number of requests that the record of the last line stands for.
    fn requests(&self) -> u64 {
        1
    }

    /// Called when the record of the last line is returned `count` further times.
    fn repeat(&mut self, _count: usize) {}
}

/// Returns true if a line is blank or a `#` comment. Every format ignores these lines.
#[inline]
pub(super) fn is_blank_or_comment(line: &[u8]) -> bool {
    match line.first() {
        None | Some(b'#') => true,
        Some(b' ' | b'\t' | b'\r') => line.trim_ascii().is_empty(),
        Some(_) => false,
    }
}

/// Returns the next field, which ends at white space, and the rest of the line.
#[inline]
pub(super) fn split_field(line: &[u8]) -> (&[u8], &[u8]) {
    let begin = line
        .iter()
        .position(|byte| !is_blank(*byte))
        .unwrap_or(line.len());
    let line = &line[begin..];
    let end = line
        .iter()
        .position(|byte| is_blank(*byte))
        .unwrap_or(line.len());
    line.split_at(end)
}

#[inline]
pub(super) const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

#[cold]
pub(super) fn bad_field(field: &'static str, found: &[u8], expected: &'static str) -> Problem {
    Problem::Field {
        field,
        found: printable_excerpt(found),
        expected,
    }
}

#[cold]
pub(super) fn missing_field(field: &'static str, line: &[u8]) -> Problem {
    Problem::MissingField {
        field,
        found: printable_excerpt(line.trim_ascii()),
    }
}

pub(super) const SIZE_EXPECTED: &str = "a whole number of bytes";
pub(super) const TIME_EXPECTED: &str = "a time: a number with an optional fraction";
