//! The text of the configuration file: lines and excerpts for messages.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use super::value::Raw;

/// The text of a file and the start of each of its lines.
pub(super) struct SourceText<'a> {
    text: &'a str,
    /// The positions of the line feeds, in ascending order. A search for a line takes the time of a binary search: a
    /// file of a thousand sites has a hundred thousand keys, and each of them needs its line.
    line_feeds: Vec<usize>,
}

impl<'a> SourceText<'a> {
    /// Finds the lines of a text.
    pub(super) fn new(text: &'a str) -> Self {
        let line_feeds = text.bytes().enumerate();
        Self {
            text,
            line_feeds: line_feeds
                .filter_map(|(at, byte)| (byte == b'\n').then_some(at))
                .collect(),
        }
    }

    /// The line in which a span starts, counted from 1.
    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        1 + self.line_feeds.partition_point(|at| *at < span.start)
    }

    /// The text of a span of the file.
    pub(super) fn text_of(&self, span: &Range<usize>) -> &'a str {
        self.text.get(span.clone()).unwrap_or_default()
    }

    /// The text of a span of the file, shortened for a message.
    pub(super) fn excerpt(&self, span: &Range<usize>) -> String {
        let source = self.text.get(span.clone()).unwrap_or_default();
        let line = source.lines().next().unwrap_or_default();
        let short: String = line.chars().take(EXCERPT_CHARS_MAX).collect();
        if short.len() < source.trim_end().len() {
            format!("{short}…")
        } else {
            short
        }
    }

    /// Converts a value of the file to the form that the types of settings parse.
    pub(super) fn raw(&self, value: &Spanned<DeValue<'_>>) -> Raw {
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
}

/// The maximum length of an excerpt in a message, in characters.
const EXCERPT_CHARS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_counted_from_one_and_ends_with_its_line_feed() {
        let source = SourceText::new("a\nbc\n\nd");
        let lines: Vec<usize> = (0..=7).map(|at| source.line(&(at..at))).collect();
        assert_eq!(lines, [1, 1, 2, 2, 2, 3, 4, 4]);
        assert_eq!(SourceText::new("").line(&(0..0)), 1);
    }
}
