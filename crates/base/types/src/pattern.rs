//! Patterns for URLs, paths and names: `*` matches zero or more bytes, and each other byte matches itself.

use std::fmt;

/// A pattern, which matches whole texts. The time of a match is at most proportional to the product of both lengths,
/// and there is no recursion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Box<str>);

impl Pattern {
    /// Returns the pattern that a text describes.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the pattern matches the whole text.
    pub fn matches(&self, text: &[u8]) -> bool {
        let pattern = self.0.as_bytes();
        // The positions in the pattern and in the text.
        let (mut at, mut in_text) = (0, 0);
        // The position in the pattern after the last `*`, and the end of the bytes of the text that this `*` matches.
        let mut star: Option<(usize, usize)> = None;
        while in_text < text.len() {
            match pattern.get(at) {
                Some(b'*') => {
                    at += 1;
                    if at == pattern.len() {
                        return true;
                    }
                    star = Some((at, in_text));
                }
                Some(byte) if *byte == text[in_text] => {
                    at += 1;
                    in_text += 1;
                }
                _ => {
                    // The last `*` takes one more byte. An earlier `*` need not take more: the parts before the last
                    // `*` matched at their first possible positions, which leaves the most text for the rest.
                    let Some((after_star, end)) = star else {
                        return false;
                    };
                    star = Some((after_star, end + 1));
                    at = after_star;
                    in_text = end + 1;
                }
            }
        }
        pattern[at..].iter().all(|byte| *byte == b'*')
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The literal definition: a `*` matches each possible number of bytes.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|taken| naive(rest, &text[taken..])),
            Some((byte, rest)) => text.first() == Some(byte) && naive(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn a_pattern_matches_by_the_literal_definition(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(
                Pattern::new(&pattern).matches(text.as_bytes()),
                naive(pattern.as_bytes(), text.as_bytes())
            );
        }
    }
}
