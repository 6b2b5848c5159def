//! Checks that pure crates do not mention I/O, clocks or randomness in shipped code. Pure crates are ring 0 in
//! ARCHITECTURE.md.
//!
//! `cargo check --target wasm32-unknown-unknown` finds code that does not compile without an operating system.
//! The list below finds code that compiles without one and still reads a clock, does I/O or draws random
//! numbers.

use super::Finding;
use super::source::{with_uses_expanded, without_tests};
use super::tokens::{Token, tokenize};

/// The banned phrases, each with a hint for the author.
///
/// `SystemTime` itself is allowed: `httpdate` uses it, and the conversion to a `Timestamp` reads no clock. Only
/// `SystemTime::now` is banned.
const BANNED: [(&str, &str); 21] = [
    ("Instant::now", NOW),
    ("std::time::Instant", NOW),
    ("SystemTime::now", NOW),
    (".elapsed(", NOW),
    ("std::net", DRIVER),
    ("std::fs", DRIVER),
    ("std::thread", DRIVER),
    ("std::process", DRIVER),
    ("std::env", DRIVER),
    ("std::sync::Mutex", DRIVER),
    ("std::sync::RwLock", DRIVER),
    ("std::io::stdin", DRIVER),
    ("std::io::stdout", DRIVER),
    ("std::io::stderr", DRIVER),
    ("tokio::", DRIVER),
    (".await", DRIVER),
    ("thread_rng", SEED),
    ("RandomState", SEED),
    ("tracing::", OBSERVER),
    ("println!", OBSERVER),
    ("eprintln!", OBSERVER),
];

const NOW: &str = "take `now: Timestamp` as an argument";
const DRIVER: &str =
    "take bytes as arguments and return actions; a driver in ring 1 or 2 does the I/O";
const SEED: &str = "use a generator that is seeded with the seed of the run";
const OBSERVER: &str = "report events in the return value or to an observer";

/// Returns the banned phrases in the shipped code of a file of a pure crate.
pub(crate) fn check(place: &str, source: &str) -> Vec<Finding> {
    let code = with_uses_expanded(&without_tests(source));
    let mut findings = Vec::new();
    for (phrase, hint) in BANNED {
        let words = tokenize(phrase);
        for at in matches(&code, &words) {
            let place = format!("{place}:{}", code[at].line);
            let what = format!("`{phrase}` in a pure crate");
            findings.push(Finding::new("pure", place, what, hint));
        }
    }
    findings
}

/// Returns the positions of `words` in `code`. Skips matches after `crate::`, `self::` or `super::`, because
/// they name modules of this project.
fn matches(code: &[Token<'_>], words: &[Token<'_>]) -> Vec<usize> {
    let same = |window: &[Token<'_>]| window.iter().zip(words).all(|(a, b)| a.text == b.text);
    code.windows(words.len())
        .enumerate()
        .filter(|(_, window)| same(window))
        // `crate::tracing::` is a module of this project, not the library.
        .filter(|&(at, _)| {
            let ours = |before: &Token<'_>| matches!(before.text, "crate" | "self" | "super");
            !(at >= 2 && code[at - 1].text == "::" && ours(&code[at - 2]))
        })
        .map(|(at, _)| at)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<String> {
        check("x.rs", source)
            .into_iter()
            .map(|finding| finding.problem)
            .collect()
    }

    #[test]
    fn each_banned_phrase_is_found() {
        for (phrase, _) in BANNED {
            let receiver = if phrase.starts_with('.') { "value" } else { "" };
            let source = format!("fn f() {{ {receiver}{phrase} }}");
            assert!(
                !found(&source).is_empty(),
                "{phrase} was not found in {source}"
            );
        }
    }

    #[test]
    fn a_banned_phrase_is_found_in_a_grouped_import() {
        assert_eq!(found("use std::{fmt, fs::{self, File}};").len(), 2);
        assert_eq!(found("use std::time::{Duration, Instant};").len(), 1);
    }

    #[test]
    fn tests_comments_strings_and_own_modules_may_have_a_banned_phrase() {
        assert_eq!(
            found("// std::fs\nfn f() -> &'static str { \"std::net\" }"),
            [""; 0]
        );
        assert_eq!(found("#[cfg(test)] mod tests { use std::fs; }"), [""; 0]);
        assert_eq!(
            found("use crate::tracing::Span; use super::tokio::Tick;"),
            [""; 0]
        );
        assert_eq!(found("use std::time::{Duration, SystemTime};"), [""; 0]);
    }
}
