//! Divides a text in VCL into tokens: words, numbers with units, strings and signs.

use std::sync::Arc;

use crate::source::Position;
use crate::syntax::{FILE_BYTES_MAX, ParseError, ParseErrorReason};

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A word: letters, digits, `_`, `.` and `-`, for example `req.http.X-Forwarded-For`.
    Word(String),
    /// A number with the unit directly behind it.
    Number(f64, String),
    Text(String),
    Sign(&'static str),
    End,
}

/// A token with its place.
#[derive(Clone, Debug)]
pub(super) struct Spanned {
    pub(super) token: Token,
    pub(super) line: usize,
    /// The bytes of the token in the text.
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The signs, longer ones first.
const SIGNS: [&str; 28] = [
    "&&", "||", "==", "!=", "<=", ">=", "!~", "+=", "-=", "*=", "/=", "{", "}", "(", ")", ";", ",",
    "=", "<", ">", "~", "!", "+", "-", "*", "/", "%", ":",
];

/// Reads all tokens of a text. The last one is [`Token::End`].
pub(super) fn tokens(file: &Arc<str>, text: &str) -> Result<Vec<Spanned>, ParseError> {
    let mut lexer = Lexer {
        file,
        text,
        offset: 0,
        line: 1,
    };
    if text.len() > FILE_BYTES_MAX {
        return Err(lexer.error(1, ParseErrorReason::FileSize));
    }
    let mut all = Vec::new();
    loop {
        lexer.skip_space()?;
        let (line, start) = (lexer.line, lexer.offset);
        let token = lexer.token()?;
        let is_end = token == Token::End;
        let end = lexer.offset;
        all.push(Spanned {
            token,
            line,
            start,
            end,
        });
        if is_end {
            return Ok(all);
        }
    }
}

struct Lexer<'a> {
    file: &'a Arc<str>,
    text: &'a str,
    offset: usize,
    line: usize,
}

impl<'a> Lexer<'a> {
    fn error(&self, line: usize, reason: ParseErrorReason) -> ParseError {
        let file = Arc::clone(self.file);
        let at = Position { file, line };
        ParseError { at, reason }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.offset..]
    }

    /// Moves behind a part of the rest, and returns it.
    fn take(&mut self, bytes: usize) -> &'a str {
        let part = &self.rest()[..bytes];
        self.line += part.bytes().filter(|byte| *byte == b'\n').count();
        self.offset += bytes;
        part
    }

    /// Moves behind `end`, which ends a construct that began in this line, and returns the text before it.
    fn take_until(&mut self, end: &str, reason: ParseErrorReason) -> Result<&'a str, ParseError> {
        let line = self.line;
        let Some(at) = self.rest().find(end) else {
            return Err(self.error(line, reason));
        };
        let part = self.take(at);
        self.take(end.len());
        Ok(part)
    }

    fn skip_space(&mut self) -> Result<(), ParseError> {
        loop {
            let rest = self.rest();
            let is_space = |c: char| c.is_ascii_whitespace() || c == '\u{feff}';
            let spaces = rest.len() - rest.trim_start_matches(is_space).len();
            if spaces > 0 {
                self.take(spaces);
            } else if rest.starts_with('#') || rest.starts_with("//") {
                self.take(rest.find('\n').unwrap_or(rest.len()));
            } else if rest.starts_with("/*") {
                self.take(2);
                self.take_until("*/", ParseErrorReason::UnclosedComment)?;
            } else {
                return Ok(());
            }
        }
    }

    fn token(&mut self) -> Result<Token, ParseError> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Ok(Token::End);
        };
        if rest.starts_with("C{") {
            return Err(self.error(self.line, ParseErrorReason::InlineC));
        }
        for (start, end) in [("{\"", "\"}"), ("\"\"\"", "\"\"\"")] {
            if rest.starts_with(start) {
                self.take(start.len());
                let text = self.take_until(end, ParseErrorReason::UnclosedQuote)?;
                return Ok(Token::Text(text.to_owned()));
            }
        }
        if first == '"' {
            let inner = &rest[1..];
            return match inner.find(['"', '\n']) {
                Some(at) if inner[at..].starts_with('"') => {
                    self.take(at + 2);
                    Ok(Token::Text(inner[..at].to_owned()))
                }
                _ => Err(self.error(self.line, ParseErrorReason::UnclosedQuote)),
            };
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if first.is_ascii_digit() {
            let is_number = |c: char| c.is_ascii_digit() || c == '.';
            let digits = rest.len() - rest.trim_start_matches(is_number).len();
            let Ok(number) = rest[..digits].parse::<f64>() else {
                return Err(self.error(self.line, ParseErrorReason::Unexpected(first)));
            };
            self.take(digits);
            let behind = self.rest();
            let letters = behind.len() - behind.trim_start_matches(is_name).len();
            return Ok(Token::Number(number, self.take(letters).to_owned()));
        }
        if first.is_ascii_alphabetic() || matches!(first, '_' | '.') {
            let is_word = |c: char| is_name(c) || matches!(c, '.' | '-');
            let bytes = rest.len() - rest.trim_start_matches(is_word).len();
            return Ok(Token::Word(self.take(bytes).to_owned()));
        }
        match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            Some(sign) => {
                self.take(sign.len());
                Ok(Token::Sign(sign))
            }
            None => Err(self.error(self.line, ParseErrorReason::Unexpected(first))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Token>, ParseError> {
        let all = tokens(&"t".into(), text)?;
        Ok(all.into_iter().map(|spanned| spanned.token).collect())
    }

    #[test]
    fn tokens_are_those_of_varnish() {
        let word = |text: &str| Token::Word(text.to_owned());
        let string = |text: &str| Token::Text(text.to_owned());
        for (text, expected) in [
            ("req.http.X-A", vec![word("req.http.X-A")]),
            (
                "1h 0.5s",
                vec![
                    Token::Number(1.0, "h".to_owned()),
                    Token::Number(0.5, "s".to_owned()),
                ],
            ),
            ("\"a\\\" \"b\"", vec![string("a\\"), string("b")]),
            ("{\"a\n\"b\"\"}", vec![string("a\n\"b\"")]),
            ("\"\"\"a\"b\"\"\"", vec![string("a\"b")]),
            (
                "a # b\n// c\n/* d\n */ !~",
                vec![word("a"), Token::Sign("!~")],
            ),
            (".host=", vec![word(".host"), Token::Sign("=")]),
        ] {
            let found = read(text).expect(text);
            assert_eq!(found[..found.len() - 1], expected, "{text}");
        }
    }

    #[test]
    fn errors_have_the_line_of_their_cause() {
        use ParseErrorReason as Reason;
        for (text, line, reason) in [
            ("\n\"a\nb\"", 2, Reason::UnclosedQuote),
            ("\n\n{\"a", 3, Reason::UnclosedQuote),
            ("\n/* a", 2, Reason::UnclosedComment),
            ("a\nC{ int x; }C", 2, Reason::InlineC),
            ("a $", 1, Reason::Unexpected('$')),
            ("1.2.3", 1, Reason::Unexpected('1')),
        ] {
            let error = read(text).expect_err(text);
            assert_eq!((error.at.line, error.reason), (line, reason), "{text}");
        }
        let spaces = |bytes: usize| read(&" ".repeat(bytes)).err().map(|error| error.reason);
        assert_eq!(spaces(FILE_BYTES_MAX), None);
        assert_eq!(spaces(FILE_BYTES_MAX + 1), Some(Reason::FileSize));
    }
}
