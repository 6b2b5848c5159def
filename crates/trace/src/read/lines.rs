//! What the line formats share: the seam between finding a line and understanding it.

use crate::Record;

use super::error::{Problem, shown};

/// Understands one line at a time.
pub(super) trait LineParser {
    /// The line comes without its line feed. `None` means a line that is no request: blank, a
    /// comment, or ruled out by the options.
    fn parse(&mut self, line: &[u8]) -> Result<Option<Record>, Problem>;
}

/// Blank lines and `#` comments belong to no format and disturb none.
#[inline]
pub(super) fn is_void(line: &[u8]) -> bool {
    match line.first() {
        None | Some(b'#') => true,
        Some(b' ' | b'\t' | b'\r') => line.trim_ascii().is_empty(),
        Some(_) => false,
    }
}

/// The next field up to white space, and what follows it.
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
        found: shown(found),
        expected,
    }
}

#[cold]
pub(super) fn missing_field(field: &'static str, line: &[u8]) -> Problem {
    Problem::MissingField {
        field,
        found: shown(line.trim_ascii()),
    }
}

pub(super) const SIZE_EXPECTED: &str = "a whole number of bytes";
pub(super) const TIME_EXPECTED: &str = "a time: a number with an optional fraction";
