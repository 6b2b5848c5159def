//! Reads the text of an nginx configuration as a tree of directives.
//!
//! The grammar is that of nginx's own reader: words end at white space, `;` or `{`; a word that begins with a quote
//! ends at the same quote; a backslash keeps the next character; `${` does not begin a block. The reader has no
//! recursion, and the nesting of blocks has a limit, so that no file can exhaust the stack.

use std::sync::Arc;

use crate::ledger::{Node, Numbered};
use crate::source::Position;
use crate::syntax::{DIRECTIVES_MAX, FILE_BYTES_MAX, NESTING_MAX, ParseError, ParseErrorReason};

/// A directive with its words and its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Directive {
    /// The number of the directive, unique within a translation.
    pub id: usize,
    /// The first word.
    pub name: String,
    /// The other words, without quotes.
    pub args: Vec<String>,
    /// The line of the first word.
    pub at: Position,
    /// The directives between the braces.
    pub block: Option<Vec<Self>>,
}

impl Directive {
    /// Returns a word after the name.
    pub(crate) fn arg(&self, index: usize) -> &str {
        self.args.get(index).map_or("", String::as_str)
    }

    /// Returns the directives of the block.
    pub(crate) fn children(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }
}

impl Numbered for Directive {
    fn id(&self) -> usize {
        self.id
    }
}

impl Node for Directive {
    fn at(&self) -> &Position {
        &self.at
    }

    fn children(&self) -> &[Self] {
        Self::children(self)
    }

    fn text(&self) -> String {
        let mut text = self.name.clone();
        for arg in &self.args {
            text.push(' ');
            text.extend(arg.chars().map(|c| if c.is_control() { ' ' } else { c }));
            if text.chars().count() > TEXT_CHARS_MAX {
                let end = text.char_indices().nth(TEXT_CHARS_MAX);
                text.truncate(end.map_or(text.len(), |(at, _)| at));
                text.push('…');
                break;
            }
        }
        if self.block.is_some() {
            text.push_str(" {…}");
        }
        text
    }
}

/// The longest text of a directive in a message.
const TEXT_CHARS_MAX: usize = 80;

/// A block whose end was not read yet.
struct OpenBlock {
    directive: Directive,
    siblings: Vec<Directive>,
}

/// Reads a file. `next_id` is the number of the next directive.
pub(crate) fn parse(
    file: &Arc<str>,
    text: &str,
    next_id: &mut usize,
) -> Result<Vec<Directive>, ParseError> {
    let mut reader = Reader {
        file,
        text,
        offset: 0,
        line: 1,
    };
    if text.len() > FILE_BYTES_MAX {
        return Err(reader.error(1, ParseErrorReason::FileSize));
    }
    let mut open: Vec<OpenBlock> = Vec::new();
    let mut directives: Vec<Directive> = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut first_line = 1;
    loop {
        reader.skip_space();
        let line = reader.line;
        let Some(c) = reader.peek() else {
            return match open.last() {
                _ if !words.is_empty() => Err(reader.error(first_line, ParseErrorReason::NoEnd)),
                Some(block) => {
                    Err(reader.error(block.directive.at.line, ParseErrorReason::UnclosedBlock))
                }
                None => Ok(directives),
            };
        };
        match c {
            ';' | '{' if words.is_empty() => {
                return Err(reader.error(line, ParseErrorReason::Unexpected(c)));
            }
            ';' | '{' => {
                reader.next();
                if *next_id >= DIRECTIVES_MAX {
                    return Err(reader.error(first_line, ParseErrorReason::Directives));
                }
                let name = words.remove(0);
                let directive = Directive {
                    id: *next_id,
                    name,
                    args: std::mem::take(&mut words),
                    at: reader.position(first_line),
                    block: (c == '{').then(Vec::new),
                };
                *next_id += 1;
                if c == ';' {
                    directives.push(directive);
                } else if directive.name.ends_with("_by_lua_block") {
                    reader.skip_code(first_line)?;
                    directives.push(directive);
                } else if open.len() >= NESTING_MAX {
                    return Err(reader.error(line, ParseErrorReason::Nesting));
                } else {
                    let siblings = std::mem::take(&mut directives);
                    open.push(OpenBlock {
                        directive,
                        siblings,
                    });
                }
            }
            '}' if words.is_empty() => {
                reader.next();
                let Some(block) = open.pop() else {
                    return Err(reader.error(line, ParseErrorReason::Unexpected('}')));
                };
                let mut directive = block.directive;
                directive.block = Some(std::mem::replace(&mut directives, block.siblings));
                directives.push(directive);
            }
            '}' => return Err(reader.error(line, ParseErrorReason::Unexpected('}'))),
            _ => {
                if words.is_empty() {
                    first_line = line;
                }
                words.push(reader.word()?);
            }
        }
    }
}

struct Reader<'a> {
    file: &'a Arc<str>,
    text: &'a str,
    offset: usize,
    line: usize,
}

impl Reader<'_> {
    fn position(&self, line: usize) -> Position {
        Position {
            file: Arc::clone(self.file),
            line,
        }
    }

    fn error(&self, line: usize, reason: ParseErrorReason) -> ParseError {
        ParseError {
            at: self.position(line),
            reason,
        }
    }

    fn peek(&self) -> Option<char> {
        self.text[self.offset..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.offset += c.len_utf8();
        self.line += usize::from(c == '\n');
        Some(c)
    }

    /// Skips white space and comments.
    fn skip_space(&mut self) {
        while let Some(c) = self.peek() {
            if c == '#' {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.next();
                }
            } else if is_space(c) || c == '\u{feff}' {
                self.next();
            } else {
                return;
            }
        }
    }

    /// Reads a word.
    fn word(&mut self) -> Result<String, ParseError> {
        let line = self.line;
        let quote = self.peek().filter(|c| matches!(c, '"' | '\''));
        if quote.is_some() {
            self.next();
        }
        let mut word = String::new();
        while let Some(c) = self.peek() {
            match quote {
                Some(quote) if c == quote => {
                    self.next();
                    return match self.peek() {
                        None | Some(';' | '{' | ')') => Ok(self.with_bracket(word)),
                        Some(c) if is_space(c) => Ok(word),
                        Some(_) => Err(self.error(line, ParseErrorReason::AfterQuote)),
                    };
                }
                None if is_space(c) || matches!(c, ';' | '{') => return Ok(word),
                _ => {}
            }
            self.next();
            match c {
                '\\' => match self.next() {
                    Some(c @ ('"' | '\'' | '\\')) => word.push(c),
                    Some('t') => word.push('\t'),
                    Some('r') => word.push('\r'),
                    Some('n') => word.push('\n'),
                    Some(other) => word.extend(['\\', other]),
                    None => word.push('\\'),
                },
                '$' if quote.is_none() && self.peek() == Some('{') => {
                    self.next();
                    word.push_str("${");
                }
                _ => word.push(c),
            }
        }
        match quote {
            Some(_) => Err(self.error(line, ParseErrorReason::UnclosedQuote)),
            None => Ok(word),
        }
    }

    /// Adds the `)` directly behind a quote, as in `if ($a = "b")`.
    fn with_bracket(&mut self, mut word: String) -> String {
        while self.peek() == Some(')') {
            self.next();
            word.push(')');
        }
        word
    }

    /// Skips a block of Lua up to its `}`. Braces in strings and comments of Lua count, as nginx's module counts them
    /// only in balanced code.
    fn skip_code(&mut self, first_line: usize) -> Result<(), ParseError> {
        let mut depth = 1;
        while let Some(c) = self.next() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
        Err(self.error(first_line, ParseErrorReason::UnclosedBlock))
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Vec<Directive>, ParseError> {
        parse(&"test.conf".into(), text, &mut 0)
    }

    fn words(text: &str) -> Vec<String> {
        let directive = read(text).expect("the text is valid").remove(0);
        [directive.name].into_iter().chain(directive.args).collect()
    }

    #[test]
    fn words_are_those_of_nginx() {
        for (text, expected) in [
            ("a b;", vec!["a", "b"]),
            ("a 'b c' \"d;e\";", vec!["a", "b c", "d;e"]),
            ("a '' \"\";", vec!["a", "", ""]),
            (r"a b\ c;", vec!["a", r"b\ c"]),
            (r"a \.php$;", vec!["a", r"\.php$"]),
            (r#"a "b\"c\\d";"#, vec!["a", "b\"c\\d"]),
            ("a ${b}c;", vec!["a", "${b}c"]),
            ("a b#c;", vec!["a", "b#c"]),
            ("a b'c d';", vec!["a", "b'c", "d'"]),
            ("a # b;\n c;", vec!["a", "c"]),
            ("if ($a = \"b\") {}", vec!["if", "($a", "=", "b)"]),
            ("a [0-9]{2};", vec!["a", "[0-9]"]),
        ] {
            let found = match text.contains("{2}") {
                // A brace in a word that has no quotes begins a block, so the rest is an error, as for nginx.
                true => {
                    assert!(read(text).is_err(), "{text}");
                    continue;
                }
                false => words(text),
            };
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn blocks_nest_and_each_directive_has_its_line() {
        let tree = read("http {\n server {\n  listen 80;\n }\n}\n").expect("valid");
        let server = &tree[0].children()[0];
        assert_eq!((tree[0].at.line, server.at.line), (1, 2));
        assert_eq!(server.children()[0].at.line, 3);
        assert_eq!(server.text(), "server {…}");
    }

    #[test]
    fn errors_have_the_line_of_their_cause() {
        use ParseErrorReason as Reason;
        for (text, line, reason) in [
            ("a;\nb {\n c;\n", 2, Reason::UnclosedBlock),
            ("a;\n}\n", 2, Reason::Unexpected('}')),
            ("a;\n;", 2, Reason::Unexpected(';')),
            ("a;\nb 'c;\n", 2, Reason::UnclosedQuote),
            ("a;\nb c\n", 2, Reason::NoEnd),
            ("a 'b'c;", 1, Reason::AfterQuote),
            ("a b }", 1, Reason::Unexpected('}')),
        ] {
            let error = read(text).expect_err(text);
            assert_eq!((error.at.line, error.reason), (line, reason), "{text}");
        }
    }

    #[test]
    fn size_nesting_and_number_of_directives_have_limits() {
        let reason = |text: &str| read(text).err().map(|error| error.reason);
        let nested = |depth| "a {".repeat(depth) + &"}".repeat(depth);
        assert_eq!(reason(&nested(NESTING_MAX)), None);
        assert_eq!(
            reason(&nested(NESTING_MAX + 1)),
            Some(ParseErrorReason::Nesting)
        );
        assert_eq!(reason(&nested(10_000)), Some(ParseErrorReason::Nesting));
        let spaces = |bytes: usize| " ".repeat(bytes);
        assert_eq!(reason(&spaces(FILE_BYTES_MAX)), None);
        assert_eq!(
            reason(&spaces(FILE_BYTES_MAX + 1)),
            Some(ParseErrorReason::FileSize)
        );
        assert_eq!(reason(&"a;".repeat(DIRECTIVES_MAX)), None);
        let error = reason(&"a;".repeat(DIRECTIVES_MAX + 1));
        assert_eq!(error, Some(ParseErrorReason::Directives));
    }

    #[test]
    fn code_of_lua_is_skipped_as_a_whole() {
        let tree = read("a_by_lua_block { if x then return {1;2} end }\nb;").expect("valid");
        assert_eq!(tree.len(), 2);
        assert_eq!(tree[1].at.line, 2);
    }

    /// Words as a tree that can be written as text: a word, then a block or none.
    fn trees() -> impl Strategy<Value = String> {
        let leaf = "[a-z_]{1,8}( (\\$[a-z]{1,3}|'[a-z;{} ]{0,5}'|[0-9]{1,3})){0,3};\n";
        leaf.prop_recursive(4, 40, 5, |inner| {
            (prop::collection::vec(inner, 0..5), "[a-z]{1,5}")
                .prop_map(|(inner, name)| format!("{name} {{\n{}}}\n", inner.concat()))
        })
    }

    proptest! {
        #[test]
        fn a_tree_has_one_directive_for_each_end_outside_of_quotes(text in trees()) {
            let mut next_id = 0;
            let tree = parse(&"t".into(), &text, &mut next_id).expect("the text is valid");
            fn count(tree: &[Directive]) -> usize {
                tree.iter().map(|directive| 1 + count(directive.children())).sum()
            }
            let ends = text.lines().filter(|line| line.ends_with(';') || line.ends_with('{'));
            prop_assert_eq!(count(&tree), ends.count());
            prop_assert_eq!(count(&tree), next_id);
        }

        #[test]
        fn any_text_gives_a_tree_or_an_error_with_a_line_of_it(text in "[a{};'\"\\\\$# \n]{0,60}") {
            if let Err(error) = read(&text) {
                prop_assert!((1..=text.matches('\n').count() + 1).contains(&error.at.line));
            }
        }
    }
}
