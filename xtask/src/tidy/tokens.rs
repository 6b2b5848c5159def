//! A small lexer for Rust that finds words outside comments and strings.
//!
//! The rules of [`super`] ask simple questions: does a file have an allow attribute, and which files does it
//! declare as modules? A full parser would be the largest dependency of this crate. The lexer recognises
//! everything that is *not* code: nested comments, raw strings, and the character `'a'`, which begins like the
//! lifetime `'a`.

/// A token of the source. Each literal and each comment is one token. Whitespace is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    /// The line in which the token begins, from 1.
    pub(crate) line: usize,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or a keyword.
    Word,
    /// A punctuation character, or `::`.
    Mark,
    /// A string, character or number.
    Literal,
    Lifetime,
    Comment,
}

/// Splits `source` into tokens without its comments. An unterminated string or comment extends to the end of
/// the file; rustc reports it.
pub(crate) fn tokenize(source: &str) -> Vec<Token<'_>> {
    let mut tokens = with_comments(source);
    tokens.retain(|token| token.kind != Kind::Comment);
    tokens
}

/// Splits `source` into tokens and comments.
pub(crate) fn with_comments(source: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = source;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let (length, kind) = if first.is_whitespace() {
            (first.len_utf8(), None)
        } else if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), Some(Kind::Comment))
        } else if rest.starts_with("/*") {
            (block_comment(rest), Some(Kind::Comment))
        } else if let Some(length) = string(rest) {
            (length, Some(Kind::Literal))
        } else if first == '\'' {
            quote(rest)
        } else if first.is_ascii_digit() {
            (number(rest), Some(Kind::Literal))
        } else if is_word(first) {
            (word(rest), Some(Kind::Word))
        } else if rest.starts_with("::") {
            (2, Some(Kind::Mark))
        } else {
            (first.len_utf8(), Some(Kind::Mark))
        };
        let (text, after) = rest.split_at(length);
        if let Some(kind) = kind {
            // `r#type` is the identifier `type`.
            let text = text
                .strip_prefix("r#")
                .filter(|_| kind == Kind::Word)
                .unwrap_or(text);
            tokens.push(Token { text, line, kind });
        }
        line += text.matches('\n').count();
        rest = after;
    }
    tokens
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn word(rest: &str) -> usize {
    let start = if rest.starts_with("r#") { 2 } else { 0 };
    rest[start..]
        .find(|c| !is_word(c))
        .map_or(rest.len(), |end| start + end)
}

/// Returns the length of the number at the start of `rest`. `1..2` is two numbers, `1.5` is one.
fn number(rest: &str) -> usize {
    let mut end = word(rest);
    let tail = &rest[end..];
    if tail.starts_with('.') && tail[1..].starts_with(|c: char| c.is_ascii_digit()) {
        end += 1 + word(&tail[1..]);
    }
    end
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let here = &rest[at..];
        if here.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if here.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += here.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Returns the length of the string literal at the start of `rest`, of any kind: `""`, `b""`, `c""`, `r#""#`.
fn string(rest: &str) -> Option<usize> {
    let prefix = rest
        .find(|c: char| !matches!(c, 'b' | 'c' | 'r'))
        .filter(|&n| n <= 2)?;
    let raw = rest[..prefix].contains('r');
    let body = &rest[prefix..];
    if raw {
        let hashes = body.find(|c| c != '#')?;
        if !body[hashes..].starts_with('"') {
            return None;
        }
        let end = format!("\"{}", "#".repeat(hashes));
        let open = prefix + hashes + 1;
        return Some(
            rest[open..]
                .find(&end)
                .map_or(rest.len(), |at| open + at + end.len()),
        );
    }
    if !body.starts_with('"') {
        return None;
    }
    let mut escaped = false;
    for (at, c) in body.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(prefix + at + 1),
            _ => {}
        }
    }
    Some(rest.len())
}

/// Returns the length and kind of the token that begins with a quote: `'x'` and `'\n'` are characters, `'x` is a
/// lifetime.
fn quote(rest: &str) -> (usize, Option<Kind>) {
    let mut inside = rest.char_indices().skip(1);
    match inside.next() {
        Some((_, '\\')) => {
            // The escaped character may be a quote.
            let end = inside
                .skip(1)
                .find(|&(_, c)| c == '\'')
                .map_or(rest.len(), |(at, _)| at + 1);
            (end, Some(Kind::Literal))
        }
        Some((_, _)) if inside.next().is_some_and(|(_, c)| c == '\'') => {
            let end = rest.char_indices().nth(3).map_or(rest.len(), |(at, _)| at);
            (end, Some(Kind::Literal))
        }
        _ => (1 + word(&rest[1..]), Some(Kind::Lifetime)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<&str> {
        tokenize(source).iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_are_not_code() {
        assert_eq!(texts("a // b\n/* c /* d */ e */ f"), ["a", "f"]);
    }

    #[test]
    fn a_string_is_one_token_for_any_content() {
        assert_eq!(texts(r##"x("a // \" b", r#"c " d"#, b"e")"##).len(), 8);
        assert_eq!(texts("\"std::fs\"")[0], "\"std::fs\"");
    }

    #[test]
    fn a_quote_begins_a_character_or_a_lifetime() {
        let kinds: Vec<_> = tokenize("'a' 'b '\\'' '\\u{41}' 'é'")
            .iter()
            .map(|t| t.kind)
            .collect();
        use Kind::{Lifetime, Literal};
        assert_eq!(kinds, [Literal, Lifetime, Literal, Literal, Literal]);
    }

    #[test]
    fn lines_are_counted_through_strings_and_comments() {
        let lines: Vec<_> = tokenize("a\n\"x\ny\"\n/*\n*/ b")
            .iter()
            .map(|t| t.line)
            .collect();
        assert_eq!(lines, [1, 2, 5]);
    }

    #[test]
    fn words_that_begin_with_a_string_prefix_are_words() {
        assert_eq!(
            texts("break; r#type br c"),
            ["break", ";", "type", "br", "c"]
        );
    }
}
