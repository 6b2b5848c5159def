//! Lines out of a log, where they lie.

use std::io::Read;

use edgeward_trace::raw::Buffer;

/// A line, or what stands for one that is too long to be held.
pub(crate) enum Line<'b> {
    /// Without its line end.
    Whole(&'b [u8]),
    /// The beginning of a line that goes on for too long.
    TooLong(&'b [u8]),
}

/// Gives every line to `each` with its number, of which there were `before` before it, until that
/// says to stop; what it was given is then consumed. The last line needs no line feed, unless it was
/// cut by a failure: then it is none.
pub(crate) fn for_each_line(
    buffer: &mut Buffer,
    input: &mut impl Read,
    line_bytes_max: usize,
    before: u64,
    mut each: impl FnMut(u64, Line<'_>) -> bool,
) -> u64 {
    let mut number = before;
    let mut inside_long_line = false;
    loop {
        let filled = buffer.filled();
        let mut at = 0;
        while let Some(length) = memchr::memchr(b'\n', &filled[at..]) {
            let line = &filled[at..at + length];
            at += length + 1;
            if inside_long_line {
                inside_long_line = false;
                continue;
            }
            number += 1;
            if !each(number, judged(line, line_bytes_max)) {
                buffer.consume(at);
                return number;
            }
        }
        buffer.consume(at);
        let left = buffer.filled();
        if buffer.ended() {
            if !left.is_empty() && !buffer.failed() && !inside_long_line {
                number += 1;
                each(number, judged(left, line_bytes_max));
            }
            return number;
        }
        if left.len() > line_bytes_max {
            if !inside_long_line {
                inside_long_line = true;
                number += 1;
                if !each(number, Line::TooLong(left)) {
                    return number;
                }
            }
            let length = left.len();
            buffer.consume(length);
        }
        buffer.fill(input);
    }
}

#[inline]
fn judged(line: &[u8], line_bytes_max: usize) -> Line<'_> {
    if line.len() > line_bytes_max {
        return Line::TooLong(line);
    }
    Line::Whole(line.strip_suffix(b"\r").unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Hands out a few bytes at a time.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let count = self.0.len().min(self.1).min(out.len());
            out[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    proptest! {
        /// Method: against splitting the whole text at once.
        #[test]
        fn every_line_comes_once_with_its_number(
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
            let mut input = Dribble(text.as_bytes(), step);
            let last = for_each_line(&mut Buffer::new(), &mut input, line_bytes_max, 0, |number, line| {
                lines.push(match line {
                    Line::Whole(line) => Some(String::from_utf8(line.to_vec()).expect("text")),
                    Line::TooLong(_) => None,
                });
                number == lines.len() as u64
            });
            prop_assert_eq!(&lines, &expected);
            prop_assert_eq!(last, lines.len() as u64);
        }
    }
}
