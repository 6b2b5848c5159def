//! Reads Caddyfiles with all that they import as a tree of directives.
//!
//! Words end at white space; words in `"…"` and between backquotes may have spaces; `<<MARKER` begins a text of lines.
//! A `{` at the end of a line begins a block, and a `}` at its start ends one, so braces of placeholders such as
//! `{host}` belong to words. `import` of a snippet repeats its directives.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::tree::Directive;
use crate::error::MigrateError;
use crate::source::{Position, Sources};
use crate::syntax::{
    DIRECTIVES_MAX, FILE_BYTES_MAX, IMPORTED_BYTES_MAX, INCLUDES_NESTING_MAX, NESTING_MAX,
    ParseError, ParseErrorReason,
};

/// The directives of all files.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Sites, and the block of global options. Snippets are where they are imported.
    pub(super) directives: Vec<Directive>,
    /// Why the files of an `import` were not read, by the number of the directive.
    pub(super) unread: BTreeMap<usize, String>,
}

/// Reads the files and all that they import. Relative paths of `import` start at `prefix`.
pub(super) fn read(
    sources: &dyn Sources,
    files: &[String],
    prefix: &str,
) -> Result<Tree, MigrateError> {
    let mut reader = Reader {
        sources,
        prefix: prefix.trim_end_matches('/'),
        next_id: 0,
        bytes: 0,
        unread: BTreeMap::new(),
        snippets: BTreeMap::new(),
    };
    let mut directives = Vec::new();
    for file in files {
        let text = sources
            .read(file)
            .map_err(|reason| MigrateError::Unreadable {
                file: file.clone(),
                reason,
            })?;
        let parsed = reader.parse(file, &text)?;
        directives.extend(reader.expand(parsed, &[], 0)?);
    }
    Ok(Tree {
        directives,
        unread: reader.unread,
    })
}

struct Reader<'a> {
    sources: &'a dyn Sources,
    prefix: &'a str,
    next_id: usize,
    /// The bytes of all files and of the words of imported snippets.
    bytes: usize,
    unread: BTreeMap<usize, String>,
    snippets: BTreeMap<String, Vec<Directive>>,
}

impl Reader<'_> {
    /// Parses a file. A site without braces gets the rest of the file as its block.
    fn parse(&mut self, path: &str, text: &str) -> Result<Vec<Directive>, ParseError> {
        let file: Arc<str> = Arc::from(path);
        self.take(text.len()).map_err(|reason| ParseError {
            at: Position {
                file: Arc::clone(&file),
                line: 1,
            },
            reason,
        })?;
        let lines = lines(&file, text)?;
        let is_open = lines.iter().any(|line| line.opens || line.closes);
        let first_is_site = lines
            .first()
            .is_some_and(|line| !line.opens && !line.words.is_empty());
        let name = lines.first().and_then(|line| line.words.first());
        let is_site = name.is_some_and(|word| !is_directive(word));
        let mut directives = self.blocks(&file, &lines)?;
        // `example.org` in the first line, and directives behind it.
        if first_is_site && is_site && (directives.len() > 1 || !is_open) {
            let rest = directives.split_off(1);
            directives[0].block = Some(rest);
        }
        Ok(directives)
    }

    fn blocks(&mut self, file: &Arc<str>, lines: &[Line]) -> Result<Vec<Directive>, ParseError> {
        let mut open: Vec<(Directive, Vec<Directive>)> = Vec::new();
        let mut directives: Vec<Directive> = Vec::new();
        let error = |line: usize, reason| ParseError {
            at: Position {
                file: Arc::clone(file),
                line,
            },
            reason,
        };
        for line in lines {
            if line.closes {
                let Some((mut directive, siblings)) = open.pop() else {
                    return Err(error(line.number, ParseErrorReason::Unexpected('}')));
                };
                directive.block = Some(std::mem::replace(&mut directives, siblings));
                directives.push(directive);
                continue;
            }
            if self.next_id >= DIRECTIVES_MAX {
                return Err(error(line.number, ParseErrorReason::Directives));
            }
            let mut words = line.words.iter().cloned();
            let directive = Directive {
                id: self.next_id,
                name: words.next().unwrap_or_default(),
                args: words.collect(),
                at: Position {
                    file: Arc::clone(file),
                    line: line.number,
                },
                block: None,
            };
            self.next_id += 1;
            if !line.opens {
                directives.push(directive);
            } else if open.len() >= NESTING_MAX {
                return Err(error(line.number, ParseErrorReason::Nesting));
            } else {
                open.push((directive, std::mem::take(&mut directives)));
            }
        }
        match open.pop() {
            Some((directive, _)) => Err(error(directive.at.line, ParseErrorReason::UnclosedBlock)),
            None => Ok(directives),
        }
    }

    /// Adds the directives of imported snippets and files behind each `import`. `args` are those of the import around.
    fn expand(
        &mut self,
        directives: Vec<Directive>,
        args: &[String],
        depth: usize,
    ) -> Result<Vec<Directive>, ParseError> {
        let mut expanded = Vec::with_capacity(directives.len());
        for mut directive in directives {
            for word in [&mut directive.name].into_iter().chain(&mut directive.args) {
                if let Some(with_args) = with_args(word, args) {
                    self.take(with_args.len()).map_err(|reason| ParseError {
                        at: directive.at.clone(),
                        reason,
                    })?;
                    *word = with_args;
                }
            }
            let snippet = directive
                .name
                .strip_prefix('(')
                .and_then(|name| name.strip_suffix(')'));
            if let (Some(name), true) = (snippet, directive.block.is_some()) {
                // The directives get further numbers where they are imported.
                let block = directive.inner().to_vec();
                self.snippets.insert(name.to_owned(), block);
                expanded.push(directive);
                continue;
            }
            if let Some(block) = directive.block.take() {
                directive.block = Some(self.expand(block, args, depth)?);
            }
            let imported = match directive.name.as_str() {
                "import" => self.imported(&directive, depth)?,
                _ => Vec::new(),
            };
            expanded.push(directive);
            expanded.extend(imported);
        }
        Ok(expanded)
    }

    fn imported(&mut self, import: &Directive, depth: usize) -> Result<Vec<Directive>, ParseError> {
        let error = |reason| ParseError {
            at: import.at.clone(),
            reason,
        };
        if depth >= INCLUDES_NESTING_MAX {
            return Err(error(ParseErrorReason::Includes));
        }
        let args: Vec<String> = import.args.iter().skip(1).cloned().collect();
        if let Some(snippet) = self.snippets.get(import.arg(0)).cloned() {
            let numbered = self.numbered(snippet).map_err(error)?;
            return self.expand(numbered, &args, depth + 1);
        }
        let path = match import.arg(0) {
            path if path.starts_with('/') => path.to_owned(),
            path => format!("{}/{path}", self.prefix),
        };
        let files = match path.contains(['*', '?', '[']) {
            true => self.sources.glob(&path),
            false => vec![path],
        };
        let mut all = Vec::new();
        for file in files {
            match self.sources.read(&file) {
                Ok(text) => {
                    let parsed = self.parse(&file, &text)?;
                    all.extend(self.expand(parsed, &args, depth + 1)?);
                }
                Err(reason) => {
                    self.unread.insert(import.id, format!("{file}: {reason}"));
                }
            }
        }
        Ok(all)
    }

    /// Counts bytes of the input, which imports repeat.
    fn take(&mut self, bytes: usize) -> Result<(), ParseErrorReason> {
        self.bytes += bytes;
        match self.bytes > IMPORTED_BYTES_MAX {
            true => Err(ParseErrorReason::ImportedBytes),
            false => Ok(()),
        }
    }

    /// Returns directives with new numbers.
    fn numbered(&mut self, directives: Vec<Directive>) -> Result<Vec<Directive>, ParseErrorReason> {
        let mut numbered = Vec::with_capacity(directives.len());
        for mut directive in directives {
            if self.next_id >= DIRECTIVES_MAX {
                return Err(ParseErrorReason::Directives);
            }
            directive.id = self.next_id;
            self.next_id += 1;
            let words = [&directive.name].into_iter().chain(&directive.args);
            self.take(words.map(String::len).sum())?;
            if let Some(block) = directive.block.take() {
                directive.block = Some(self.numbered(block)?);
            }
            numbered.push(directive);
        }
        Ok(numbered)
    }
}

/// Returns a word with the arguments of an import, or `None` if it has no place for them.
fn with_args(word: &str, args: &[String]) -> Option<String> {
    let mut text = String::new();
    let mut rest = word;
    let mut has_args = false;
    while let Some(start) = rest.find("{args") {
        let inner = &rest[start + "{args".len()..];
        let place = inner.split_once('}').and_then(|(place, after)| {
            let in_brackets = place.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
            let number = in_brackets.or_else(|| place.strip_prefix('.'))?;
            Some((args.get(number.parse::<usize>().ok()?)?, after))
        });
        match place {
            Some((arg, after)) => {
                text.push_str(&rest[..start]);
                text.push_str(arg);
                rest = after;
                has_args = true;
            }
            None => {
                text.push_str(&rest[..start + "{args".len()]);
                rest = inner;
            }
        }
        if text.len() > IMPORTED_BYTES_MAX {
            break;
        }
    }
    text.push_str(rest);
    has_args.then_some(text)
}

/// Returns true for the name of a directive that may stand in the first line of an imported file.
fn is_directive(word: &str) -> bool {
    let is_host = word.contains(['.', ':', '/', '*']) || word == "localhost";
    word.starts_with(['@', '(', '&']) || !is_host
}

/// A line of words, with the brace at its end.
#[derive(Debug)]
struct Line {
    number: usize,
    words: Vec<String>,
    opens: bool,
    closes: bool,
}

/// Divides a text into lines of words.
fn lines(file: &Arc<str>, text: &str) -> Result<Vec<Line>, ParseError> {
    let error = |line: usize, reason| ParseError {
        at: Position {
            file: Arc::clone(file),
            line,
        },
        reason,
    };
    if text.len() > FILE_BYTES_MAX {
        return Err(error(1, ParseErrorReason::FileSize));
    }
    let mut lines = Vec::new();
    let mut number = 1;
    let mut line = Line {
        number,
        words: Vec::new(),
        opens: false,
        closes: false,
    };
    let mut rest = text;
    loop {
        let c = rest.chars().next();
        match c {
            None | Some('\n') => {
                let has_words = !line.words.is_empty();
                // A `{` at the end of the line begins a block.
                if line.words.last().is_some_and(|word| word == "{") {
                    line.words.pop();
                    line.opens = true;
                }
                let is_end =
                    line.words.first().is_some_and(|word| word == "}") && line.words.len() == 1;
                if is_end {
                    line.words.clear();
                    line.closes = true;
                }
                if has_words {
                    lines.push(line);
                }
                number += 1;
                line = Line {
                    number,
                    words: Vec::new(),
                    opens: false,
                    closes: false,
                };
                match c {
                    None => return Ok(lines),
                    Some(_) => rest = &rest[1..],
                }
            }
            Some('\\') if rest.starts_with("\\\n") => {
                number += 1;
                rest = &rest[2..];
            }
            Some(c) if c.is_whitespace() || c == '\u{feff}' => rest = &rest[c.len_utf8()..],
            Some('#') => rest = &rest[rest.find('\n').unwrap_or(rest.len())..],
            Some(quote @ ('"' | '`')) => {
                let start = number;
                let mut word = String::new();
                let mut chars = rest[1..].char_indices();
                let mut end = None;
                while let Some((at, c)) = chars.next() {
                    match c {
                        c if c == quote => {
                            end = Some(at);
                            break;
                        }
                        '\\' if quote == '"' => match chars.next() {
                            Some((_, c @ '"')) => word.push(c),
                            Some((_, c)) => {
                                number += usize::from(c == '\n');
                                word.extend(['\\', c]);
                            }
                            None => break,
                        },
                        c => {
                            number += usize::from(c == '\n');
                            word.push(c);
                        }
                    }
                }
                let Some(end) = end else {
                    return Err(error(start, ParseErrorReason::UnclosedQuote));
                };
                line.words.push(word);
                rest = &rest[1 + end + 1..];
            }
            Some('<') if heredoc(rest).is_some() => {
                let (marker, body) = heredoc(rest).unwrap_or_default();
                let mut word = String::new();
                let start = number;
                let mut consumed = rest.len() - body.len();
                let mut is_closed = false;
                for of_body in body.split_inclusive('\n') {
                    number += 1;
                    consumed += of_body.len();
                    if of_body.trim() == marker {
                        is_closed = true;
                        // The line end belongs to the directive.
                        consumed -= usize::from(of_body.ends_with('\n'));
                        break;
                    }
                    word.push_str(of_body);
                }
                if !is_closed {
                    return Err(error(start, ParseErrorReason::UnclosedQuote));
                }
                line.words.push(word);
                rest = &rest[consumed..];
            }
            Some(_) => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                line.words.push(rest[..end].to_owned());
                rest = &rest[end..];
            }
        }
    }
}

/// Returns the marker of a text of lines and what follows its line.
fn heredoc(rest: &str) -> Option<(&str, &str)> {
    let (first, body) = rest.strip_prefix("<<")?.split_once('\n')?;
    let is_marker = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let marker = first.trim_end();
    (!marker.is_empty() && marker.chars().all(is_marker)).then_some((marker, body))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ledger::Node as _;
    use crate::testing::Files;

    fn read_text(text: &str) -> Result<Vec<Directive>, ParseError> {
        match read(&Files::new(&[("/e/a", text)]), &["/e/a".to_owned()], "/e") {
            Ok(tree) => Ok(tree.directives),
            Err(MigrateError::Syntax(error)) => Err(error),
            Err(other) => panic!("{other}"),
        }
    }

    fn texts(directives: &[Directive]) -> Vec<(usize, String)> {
        let mut texts = Vec::new();
        for directive in directives {
            texts.push((directive.at.line, directive.text()));
            texts.extend(self::texts(directive.inner()));
        }
        texts
    }

    #[test]
    fn blocks_words_and_lines_are_those_of_caddy() {
        let text = "{\n\temail a@b.example\n}\na.example, b.example {\n\theader {\n\t\tX \"a \\\" b\" # c\n\t}\n\
                    \trespond `{\"a\"}` 200\n\treverse_proxy {host}:80 \\\n\t\tb:80\n}\n";
        let found = texts(&read_text(text).expect("valid"));
        let expected = [
            (1, "{…}"),
            (2, "email a@b.example"),
            (4, "a.example, b.example {…}"),
            (5, "header {…}"),
            (6, "X a \" b"),
            (8, "respond {\"a\"} 200"),
            (9, "reverse_proxy {host}:80 b:80"),
        ];
        let expected: Vec<_> = expected
            .iter()
            .map(|(line, text)| (*line, (*text).to_owned()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_site_without_braces_has_the_rest_of_the_file() {
        let tree = read_text("a.example\nencode gzip\nreverse_proxy b:80\n").expect("valid");
        assert_eq!(tree.len(), 1);
        assert_eq!(tree[0].inner().len(), 2);
    }

    #[test]
    fn heredocs_are_words() {
        let tree = read_text("a.example {\n respond <<END\n x\n }\n END 200\n}\n");
        assert!(
            tree.is_err(),
            "a word behind the marker does not end the text"
        );
        let tree = read_text("a.example {\n respond <<END\n x {\n END\n}\n").expect("valid");
        assert_eq!(tree[0].inner()[0].arg(0), " x {\n");
    }

    #[test]
    fn snippets_and_files_are_imported_with_arguments() {
        let files = Files::new(&[
            (
                "/e/a",
                "(s) {\n header X {args[0]}\n}\na.example {\n import s one\n import b\n import none\n}\n",
            ),
            ("/e/b", "header Y 2\n"),
        ]);
        let tree = read(&files, &["/e/a".to_owned()], "/e").expect("readable");
        let found: Vec<String> = texts(&tree.directives)
            .into_iter()
            .map(|(_, text)| text)
            .collect();
        let expected = [
            "(s) {…}",
            "header X {args[0]}",
            "a.example {…}",
            "import s one",
            "header X one",
            "import b",
            "header Y 2",
            "import none",
        ];
        assert_eq!(found, expected);
        assert_eq!(tree.unread.len(), 1);
        let circle =
            read_text("(s) {\n import s\n}\na.example {\n import s\n}\n").expect_err("a circle");
        assert!(circle.to_string().contains("include itself"), "{circle}");
    }

    #[test]
    fn errors_have_the_line_of_their_cause_and_limits_are_kept() {
        use ParseErrorReason as Reason;
        for (text, line, reason) in [
            ("a.example {\n x {\n }\n", 1, Reason::UnclosedBlock),
            ("a.example {\n}\n}\n", 3, Reason::Unexpected('}')),
            ("a.example {\n x \"y\n}\n", 2, Reason::UnclosedQuote),
            ("a.example {\n x <<E\n}\n", 2, Reason::UnclosedQuote),
        ] {
            let error = read_text(text).expect_err(text);
            assert_eq!((error.at.line, error.reason), (line, reason), "{text}");
        }
        let reason = |text: &str| read_text(text).err().map(|error| error.reason);
        assert_eq!(reason(&"a {\n".repeat(10_000)), Some(Reason::Nesting));
        assert_eq!(
            reason(&" ".repeat(FILE_BYTES_MAX + 1)),
            Some(Reason::FileSize)
        );
        assert_eq!(
            reason(&"a\n".repeat(DIRECTIVES_MAX + 1)),
            Some(Reason::Directives)
        );
    }

    /// Each import may repeat its arguments, so their bytes have a limit.
    #[test]
    fn arguments_that_grow_from_import_to_import_are_refused() {
        let ten = "{args[0]}".repeat(10);
        let mut text = String::new();
        for n in (0..12).rev() {
            text += &format!("(s{n}) {{\n import s{} {ten}\n}}\n", n + 1);
        }
        text += "a.example {\n import s0 x\n}\n";
        let error = read_text(&text).expect_err("too large").reason;
        assert_eq!(error, ParseErrorReason::ImportedBytes);
        assert!(error.to_string().contains("64 MiB"), "{error}");
    }

    #[test]
    fn arguments_replace_their_places() {
        let args = ["x".to_owned(), "{args[0]}".to_owned()];
        for (word, expected) in [
            ("a{args[0]}b{args.1}", Some("axb{args[0]}")),
            ("{args[2]}", None),
            ("{args[:]}{args[0]}", Some("{args[:]}x")),
            ("{args", None),
        ] {
            assert_eq!(with_args(word, &args).as_deref(), expected, "{word}");
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_a_tree_or_an_error_with_a_line_of_it(text in "[a{}\"`\\\\<E#@ \n]{0,60}") {
            if let Err(error) = read_text(&text) {
                prop_assert!((1..=text.matches('\n').count() + 1).contains(&error.at.line));
            }
        }
    }
}
