//! Finds words that the glossary replaces, sentences that do not begin with their subject, and lines that are
//! too long.
//!
//! The lists of words are the last two tables of `docs/words.md`. Phrases are looked up in prose: comments,
//! string literals and Markdown, without code between backticks. A phrase of one word is looked up in
//! identifiers too, which are split at underscores and capitals: `BODY_TIMEOUT` has the words `body` and
//! `timeout`.

use std::path::Path;

use anyhow::{Context as _, ensure};

use super::Finding;
use super::tokens::{Kind, with_comments};

/// The page with the lists of replaced words.
pub(crate) const GLOSSARY: &str = "docs/words.md";

/// The maximum number of columns of a line of code or Markdown. Table rows, links and lines of a string may be
/// longer, because they cannot be broken.
const COLUMNS_MAX: usize = 120;

/// A sentence that begins with one of these words has its subject at the end, or none at all.
const BANNED_FIRST_WORDS: [&str; 4] = ["of", "what", "whatever", "whether"];

/// The folder with raw results of benchmarks. They stay unchanged, so their words are not checked.
const RAW_RESULTS: &str = "bench/runs";

/// The words that the glossary replaces.
#[derive(Debug)]
pub(crate) struct ReplacedWords {
    phrases: Vec<Replaced>,
    types: Vec<Replaced>,
}

/// One row of a list: the words to find, and the words to write instead.
#[derive(Debug)]
struct Replaced {
    words: Vec<String>,
    instead: String,
}

impl ReplacedWords {
    /// Reads the lists below the headings "Replaced words" and "Replaced names of types".
    pub(crate) fn parse(glossary: &str) -> anyhow::Result<Self> {
        let phrases = rows(glossary, "## Replaced words")?;
        let types = rows(glossary, "## Replaced names of types")?;
        let mut replaced = Self {
            phrases: Vec::new(),
            types: Vec::new(),
        };
        for (left, right) in phrases {
            let words = left.split_whitespace().map(str::to_lowercase).collect();
            let instead = right.to_owned();
            replaced.phrases.push(Replaced { words, instead });
        }
        for (left, right) in types {
            for name in left.split(", ") {
                replaced.types.push(Replaced {
                    words: vec![name.to_owned()],
                    instead: right.to_owned(),
                });
            }
        }
        Ok(replaced)
    }
}

/// Returns the first two cells of each row of the table below `heading`.
fn rows<'a>(glossary: &'a str, heading: &str) -> anyhow::Result<Vec<(&'a str, &'a str)>> {
    let (_, after) = glossary
        .split_once(heading)
        .with_context(|| format!("{GLOSSARY} has no section {heading:?}"))?;
    // Skips the rest of the heading's line, and the head of the table.
    let rows: Vec<_> = after
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .filter_map(|line| {
            let mut cells = line.trim_matches(['|', ' ']).split(" | ");
            Some((cells.next()?.trim(), cells.next()?.trim()))
        })
        .collect();
    ensure!(
        !rows.is_empty(),
        "{GLOSSARY} has no table below {heading:?}"
    );
    Ok(rows)
}

/// Checks one file of Rust or Markdown.
pub(crate) fn check(replaced: &ReplacedWords, file: &Path, text: &str) -> Vec<Finding> {
    if file.starts_with(RAW_RESULTS) {
        return Vec::new();
    }
    let words = match file.extension().and_then(|extension| extension.to_str()) {
        Some("rs") => words_of_code(text),
        Some("md") if file != Path::new(GLOSSARY) => words_of_markdown(text),
        _ => return Vec::new(),
    };
    let mut findings = Vec::new();
    let place = file.display();
    for row in &replaced.phrases {
        for window in words.windows(row.words.len()) {
            let one_sentence = window.iter().skip(1).all(|word| word.follows);
            let texts = window.iter().map(|word| &word.text);
            if one_sentence && texts.eq(row.words.iter()) {
                findings.push(Finding::new(
                    "words",
                    format!("{place}:{}", window[0].line),
                    format!("\"{}\" is replaced by the glossary", row.words.join(" ")),
                    &format!("write: {}", row.instead),
                ));
            }
        }
    }
    for word in words.iter().filter(|word| word.begins_sentence) {
        if BANNED_FIRST_WORDS.contains(&word.text.as_str()) {
            findings.push(Finding::new(
                "turned",
                format!("{place}:{}", word.line),
                format!("a sentence begins with \"{}\"", word.text),
                "begin with the subject of the sentence",
            ));
        }
    }
    if file.extension().is_some_and(|extension| extension == "rs") {
        findings.extend(types(replaced, &place.to_string(), text));
    }
    findings.extend(long_lines(&place.to_string(), text));
    findings
}

/// A word of prose or of an identifier, in lower case; or "." or "?" at the end of a sentence.
#[derive(Debug)]
struct Word {
    text: String,
    line: usize,
    /// True if no punctuation separates this word from the previous one.
    follows: bool,
    /// True for the first word of a sentence in a comment or in Markdown, unless the sentence is a question.
    begins_sentence: bool,
}

fn words_of_code(source: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut comment_ends = None;
    for token in with_comments(source) {
        match token.kind {
            Kind::Comment => {
                let text = token.text.trim_start_matches(['/', '!', '*', ' ']);
                let continues = comment_ends == Some(token.line - 1) && !text.is_empty();
                push_prose(&mut words, text, token.line, continues, true);
                comment_ends = (!text.is_empty()).then_some(token.line);
            }
            Kind::Literal if token.text.contains(' ') => {
                push_prose(&mut words, token.text, token.line, false, false);
            }
            Kind::Word => push_identifier(&mut words, token.text, token.line),
            // A literal without spaces is a name, such as a key or a flag. Such names are public and may not change.
            Kind::Literal | Kind::Mark | Kind::Lifetime => {}
        }
    }
    settle_questions(words)
}

fn words_of_markdown(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let (mut fenced, mut continues) = (false, false);
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continues = false;
        } else if !fenced {
            let structured = line.trim_start().starts_with(['#', '|']);
            push_prose(&mut words, line, at + 1, continues, !structured);
            continues = !structured && !line.trim().is_empty();
        }
    }
    settle_questions(words)
}

/// Appends the words of one line of prose. `continues` is true if the previous line belongs to the same paragraph;
/// `sentences` is true if the line consists of sentences.
fn push_prose(words: &mut Vec<Word>, text: &str, line: usize, continues: bool, sentences: bool) {
    let ended = words
        .last()
        .is_none_or(|word| word.text == "." || word.text == "?");
    let mut begins = sentences && (!continues || ended);
    let mut follows = continues && !begins;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        if length == 0 {
            let (mark, after) = rest.split_at(first.len_utf8());
            rest = after;
            let ends_sentence = matches!(mark, "." | "?" | "!")
                && after
                    .chars()
                    .next()
                    .is_none_or(|c| c.is_whitespace() || "*)\"`".contains(c));
            if ends_sentence {
                words.push(Word::mark(if mark == "?" { "?" } else { "." }, line));
                (begins, follows) = (sentences, false);
            } else if ",;:()[]\"|".contains(mark) {
                follows = false;
            } else if mark == "`" {
                // Code in prose consists of names, so it is skipped. A word after it does not begin a sentence.
                rest = after
                    .split_once('`')
                    .map_or("", |(_, after_code)| after_code);
                (begins, follows) = (false, false);
            }
            continue;
        }
        let (word, after) = rest.split_at(length);
        rest = after;
        words.push(Word {
            text: word.to_lowercase(),
            line,
            follows,
            begins_sentence: std::mem::take(&mut begins),
        });
        follows = true;
    }
}

fn push_identifier(words: &mut Vec<Word>, identifier: &str, line: usize) {
    for part in identifier.split('_').filter(|part| !part.is_empty()) {
        let mut start = 0;
        let mut before = None;
        // The capital letter at the end completes the last word.
        for (at, c) in part.char_indices().chain([(part.len(), 'A')]) {
            let splits = c.is_uppercase() && before.is_some_and(|b: char| !b.is_uppercase());
            if (splits || at == part.len()) && at > start {
                words.push(Word {
                    text: part[start..at].to_lowercase(),
                    line,
                    follows: false,
                    begins_sentence: false,
                });
                start = at;
            }
            before = Some(c);
        }
    }
}

/// Permits any first word in questions, and removes the marks that end sentences.
fn settle_questions(mut words: Vec<Word>) -> Vec<Word> {
    let mut is_question = false;
    for word in words.iter_mut().rev() {
        match word.text.as_str() {
            "?" => is_question = true,
            "." => is_question = false,
            _ => word.begins_sentence &= !is_question,
        }
        if word.begins_sentence {
            is_question = false;
        }
    }
    words.retain(|word| word.text != "." && word.text != "?");
    words
}

impl Word {
    fn mark(text: &str, line: usize) -> Self {
        Self {
            text: text.to_owned(),
            line,
            follows: false,
            begins_sentence: false,
        }
    }
}

/// Finds definitions of types whose names the glossary replaces.
fn types(replaced: &ReplacedWords, place: &str, source: &str) -> Vec<Finding> {
    let tokens = super::tokens::tokenize(source);
    let mut findings = Vec::new();
    for pair in tokens.windows(2) {
        let defines = matches!(pair[0].text, "struct" | "enum" | "trait" | "union" | "type");
        let row = replaced
            .types
            .iter()
            .find(|row| row.words[0] == pair[1].text);
        if let Some(row) = row.filter(|_| defines && pair[1].kind == Kind::Word) {
            findings.push(Finding::new(
                "words",
                format!("{place}:{}", pair[1].line),
                format!("a type is named {}", pair[1].text),
                &format!("name the type after its content: {}", row.instead),
            ));
        }
    }
    findings
}

fn long_lines(place: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        // A raw string begins with `r`, a byte string with `b`.
        let cannot_break = line.trim_start().starts_with(['|', '"', 'r', 'b'])
            && !line.trim_start().starts_with("//")
            && (line.contains('"') || line.contains('|'));
        if columns > COLUMNS_MAX && !cannot_break && !line.contains("](") && !line.contains("://") {
            findings.push(Finding::new(
                "columns",
                format!("{place}:{}", at + 1),
                format!("{columns} columns, more than {COLUMNS_MAX}"),
                "break the line at the end of a clause",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A glossary with short lists.
    const LISTS: &str = "# Glossary\n\n## Replaced words\n\n| do not write | write |\n|---|---|\n\
        | xyzzy | magic |\n| plugh over | hollow |\n\n## Replaced names of types\n\n\
        | do not name a type | name it |\n|---|---|\n| Foo, Bar | `Baz` |\n";

    fn findings(file: &str, text: &str) -> Vec<String> {
        let replaced = ReplacedWords::parse(LISTS).expect("the lists are valid");
        let findings = check(&replaced, Path::new(file), text);
        findings
            .iter()
            .map(|f| format!("{} {}", f.position, f.rule))
            .collect()
    }

    #[test]
    fn a_replaced_word_is_found_in_comments_strings_identifiers_and_markdown() {
        assert_eq!(
            findings("a.rs", "fn f() {}\n// An Xyzzy.\n"),
            ["a.rs:2 words"]
        );
        assert_eq!(findings("a.rs", "f(\"no xyzzy\")"), ["a.rs:1 words"]);
        assert_eq!(
            findings("a.rs", "const XYZZY_MAX: u8 = 0;"),
            ["a.rs:1 words"]
        );
        assert_eq!(findings("a.rs", "struct TheXyzzy;"), ["a.rs:1 words"]);
        assert_eq!(findings("a.md", "An xyzzy."), ["a.md:1 words"]);
        assert_eq!(findings("a.md", "```sh\nxyzzy\n```\nAn xyzzyx."), [""; 0]);
    }

    #[test]
    fn names_of_flags_and_keys_may_have_a_replaced_word() {
        assert_eq!(findings("a.rs", "let key = \"link.xyzzy\";"), [""; 0]);
        assert_eq!(
            findings("a.rs", "// The flag `--xyzzy`, and xyzzy."),
            ["a.rs:1 words"]
        );
        assert_eq!(findings("a.md", "The flag `--xyzzy` is old."), [""; 0]);
    }

    #[test]
    fn a_phrase_is_found_across_lines_and_not_across_sentences_or_code() {
        assert_eq!(
            findings("a.rs", "/// It is plugh\n/// over."),
            ["a.rs:1 words"]
        );
        assert_eq!(findings("a.md", "a plugh\nover"), ["a.md:1 words"]);
        assert_eq!(
            findings("a.rs", "// Plugh. Over.\n\nlet plugh_over = 1;"),
            [""; 0]
        );
        assert_eq!(findings("a.rs", "// plugh\n\n// over"), [""; 0]);
    }

    #[test]
    fn a_sentence_that_begins_with_a_banned_word_is_found_unless_it_is_a_question() {
        assert_eq!(findings("a.rs", "/// Whether it fits."), ["a.rs:1 turned"]);
        assert_eq!(
            findings("a.rs", "/// It fits. Of\n/// which one."),
            ["a.rs:1 turned"]
        );
        assert_eq!(
            findings("a.rs", "/// It fits.\n/// What it is."),
            ["a.rs:2 turned"]
        );
        assert_eq!(findings("a.rs", "/// Tells\n/// whether it fits."), [""; 0]);
        assert_eq!(
            findings("a.md", "# What it is\n\nWhat does it cost? Little."),
            [""; 0]
        );
    }

    #[test]
    fn a_type_with_a_replaced_name_is_found() {
        assert_eq!(
            findings("a.rs", "struct Foo;\nenum Barn {}\ntype Bar = u8;"),
            ["a.rs:1 words", "a.rs:3 words"]
        );
    }

    #[test]
    fn a_long_line_is_found_except_in_tables_and_with_links() {
        let long = "x".repeat(COLUMNS_MAX + 1);
        assert_eq!(findings("a.md", &long), ["a.md:1 columns"]);
        assert_eq!(findings("a.md", &long[1..]), [""; 0]);
        assert_eq!(findings("a.md", &format!("| {long} |")), [""; 0]);
        assert_eq!(findings("a.md", &format!("[x](y) {long}")), [""; 0]);
        assert_eq!(findings("a.rs", &format!("// {long}")), ["a.rs:1 columns"]);
    }

    #[test]
    fn a_glossary_without_its_lists_is_an_error() {
        assert!(ReplacedWords::parse("# Glossary").is_err());
    }
}
