//! Splits a log into lines without copying them.

use std::io::Read;
use std::ops::Range;

use edgeward_trace::raw::Buffer;

/// A line, or the first bytes of a line with more than `line_bytes_max` bytes.
pub(crate) enum Line<'b> {
    /// The line without its line end.
    Whole(&'b [u8]),
    /// The bytes of the long line that are in the buffer: its start, or the whole line.
    TooLong(&'b [u8]),
}

/// Yields the lines of an input with their numbers.
///
/// Zeros before a line do not belong to it: they are the hole of a log that was truncated while its server kept it
/// open. The last line may end without a line feed. A last line that was truncated by a read error is not yielded.
pub(crate) struct Lines<'b> {
    buffer: &'b mut Buffer,
    /// The number of bytes of the buffer that were yielded.
    position: usize,
    number: u64,
    line_bytes_max: usize,
    /// True after the start of a line that is too long was yielded, until the end of this line.
    inside_long_line: bool,
}

impl<'b> Lines<'b> {
    /// Yields the lines from the current position of the buffer. `before` is the number of the previous line.
    pub(crate) const fn new(buffer: &'b mut Buffer, line_bytes_max: usize, before: u64) -> Self {
        Self {
            buffer,
            position: 0,
            number: before,
            line_bytes_max,
            inside_long_line: false,
        }
    }

    /// Returns the number of the last yielded line.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number and the content of the next line. `None` at the end of the input.
    #[inline(always)]
    pub(crate) fn next(&mut self, input: &mut dyn Read) -> Option<(u64, Line<'_>)> {
        let line = loop {
            let rest = &self.buffer.filled()[self.position..];
            if let Some(length) = memchr::memchr(b'\n', rest) {
                let begin = self.position;
                self.position += length + 1;
                if !self.inside_long_line {
                    break begin..begin + length;
                }
                self.inside_long_line = false;
            } else if self.buffer.ended() {
                break self.last()?;
            } else if let Some(line) = self.read_on(input) {
                break line;
            }
        };
        self.number += 1;
        Some((
            self.number,
            classify(&self.buffer.filled()[line], self.line_bytes_max),
        ))
    }

    /// Returns the bytes after the last line feed as the last line. Returns `None` if no bytes remain, after a read
    /// error, and if the bytes are the end of a line that is too long.
    fn last(&mut self) -> Option<Range<usize>> {
        let line = self.position..self.buffer.filled().len();
        self.position = line.end;
        (!line.is_empty() && !self.buffer.failed() && !self.inside_long_line).then_some(line)
    }

    /// Reads more bytes into the buffer. If the buffer already has the start of a line that is too long,
    /// returns this start once and skips the rest of the line.
    #[cold]
    fn read_on(&mut self, mut input: &mut dyn Read) -> Option<Range<usize>> {
        self.consume();
        let unread = self.buffer.filled().len();
        if unread > self.line_bytes_max {
            self.position = unread;
            if !self.inside_long_line {
                self.inside_long_line = true;
                return Some(0..unread);
            }
            self.consume();
        }
        self.buffer.fill(&mut input);
        None
    }

    /// Releases the yielded bytes of the buffer.
    pub(crate) fn consume(&mut self) {
        self.buffer.consume(self.position);
        self.position = 0;
    }
}

#[inline]
fn classify(line: &[u8], line_bytes_max: usize) -> Line<'_> {
    if line.len() > line_bytes_max {
        return Line::TooLong(line);
    }
    let line = match line.first() {
        Some(0) => &line[line.iter().take_while(|byte| **byte == 0).count()..],
        _ => line,
    };
    Line::Whole(line.strip_suffix(b"\r").unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Yields the bytes of the first field. The second field is the maximum number of bytes per read.
    struct SlowReader<'a>(&'a [u8], usize);

    impl Read for SlowReader<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let count = self.0.len().min(self.1).min(out.len());
            out[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn zeros_before_a_line_do_not_belong_to_it() {
        let mut buffer = Buffer::new();
        let mut lines = Lines::new(&mut buffer, 100, 0);
        let mut input = SlowReader(b"a\n\0\0b\0c\n\0\0", 3);
        for expected in [&b"a"[..], b"b\0c", b""] {
            let (_, line) = lines.next(&mut input).expect("the input has a line");
            assert!(matches!(line, Line::Whole(line) if line == expected));
        }
        assert!(lines.next(&mut input).is_none());
    }

    proptest! {
        /// Method: compare with splitting the whole text at once.
        #[test]
        fn every_line_is_yielded_once_with_its_number(
            text in "([a-z]{0,9}\r?\n){0,30}[a-z]{0,9}",
            step in 1usize..20,
            line_bytes_max in 3usize..12,
        ) {
            let mut expected: Vec<Option<String>> = text
                .split('\n')
                .map(|line| {
                    let whole = line.len() <= line_bytes_max;
                    whole.then(|| line.strip_suffix('\r').unwrap_or(line).to_owned())
                })
                .collect();
            if text.is_empty() || text.ends_with('\n') {
                expected.pop();
            }
            let mut lines = Vec::new();
            let mut input = SlowReader(text.as_bytes(), step);
            let mut buffer = Buffer::new();
            let mut reader = Lines::new(&mut buffer, line_bytes_max, 0);
            while let Some((number, line)) = reader.next(&mut input) {
                lines.push(match line {
                    Line::Whole(line) => Some(String::from_utf8(line.to_vec()).expect("the text is UTF-8")),
                    Line::TooLong(_) => None,
                });
                prop_assert_eq!(number, lines.len() as u64);
            }
            prop_assert_eq!(reader.number(), lines.len() as u64);
            reader.consume();
            prop_assert_eq!(buffer.offset(), text.len() as u64);
            prop_assert_eq!(&lines, &expected);
        }
    }
}
