//! The subset of URL patterns by which the edge checks that a dictionary may be used for a URL.

use std::fmt;

/// A pattern for the URLs of one origin, from the key `match` of `Use-As-Dictionary` (RFC 9842 §2.1.1).
///
/// The subset has literal text and `*`. Patterns with groups, modifiers or names (`(…)`, `{…}`, `:name`, `+`) are not
/// parsed: a cache that does not understand a pattern makes no deltas. A pattern without `?` matches any query, because
/// the components of a URL pattern after the last stated one are wildcards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchPattern {
    path: Glob,
    query: Option<Glob>,
}

/// Literal texts, between any two of which an arbitrary text may be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Glob(Box<[Box<str>]>);

impl MatchPattern {
    /// Parses a pattern. `origin` is scheme, host and port of the dictionary's URL such as `https://a.example`, and
    /// `target` is its path and query, to which a relative pattern refers.
    ///
    /// Returns `None` for a pattern of another origin, and outside the subset.
    pub fn parse(text: &str, origin: &str, target: &str) -> Option<Self> {
        let text = match text.strip_prefix(origin) {
            Some(rest) if rest.starts_with('/') => rest,
            _ => text,
        };
        let mut path = Builder::default();
        if !text.starts_with('/') {
            let target = target.split('?').next().unwrap_or_default();
            path.literal.push_str(&target[..=target.rfind('/')?]);
        } else if text.starts_with("//") {
            return None; // a host follows
        }
        let mut query: Option<Builder> = None;
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            let in_path = query.is_none();
            let part = query.as_mut().unwrap_or(&mut path);
            match char {
                '\\' => part.push(chars.next()?)?,
                '*' => part.end_literal(),
                // After a wildcard, `?` would be a modifier.
                '?' if in_path && part.may_end() => query = Some(Builder::default()),
                '?' | '#' | ':' | '(' | ')' | '{' | '}' | '+' => return None,
                _ => part.push(char)?,
            }
        }
        let path = path.finish();
        // URL patterns remove such segments; canonical paths do not have them.
        let has_dots = |part: &str| part.split('/').any(|it| matches!(it, "." | ".."));
        if path.0.iter().any(|part| has_dots(part)) {
            return None;
        }
        let query = query.map(Builder::finish);
        Some(Self { path, query })
    }

    /// Returns true if the pattern matches the path and query of a URL of its origin.
    pub fn matches(&self, target: &str) -> bool {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let has_query = |glob: &Glob| glob.matches(query);
        self.path.matches(path) && self.query.as_ref().is_none_or(has_query)
    }
}

/// Writes the pattern without escapes.
impl fmt::Display for MatchPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path.0.join("*"))?;
        match &self.query {
            Some(query) => write!(f, "?{}", query.0.join("*")),
            None => Ok(()),
        }
    }
}

/// A [`Glob`] that is being parsed.
#[derive(Default)]
struct Builder {
    parts: Vec<Box<str>>,
    literal: String,
}

impl Builder {
    fn push(&mut self, char: char) -> Option<()> {
        // A URL has no other characters.
        char.is_ascii_graphic().then(|| self.literal.push(char))
    }

    fn end_literal(&mut self) {
        self.parts.push(std::mem::take(&mut self.literal).into());
    }

    /// Returns false after a wildcard.
    fn may_end(&self) -> bool {
        self.parts.is_empty() || !self.literal.is_empty()
    }

    fn finish(mut self) -> Glob {
        self.end_literal();
        Glob(self.parts.into())
    }
}

impl Glob {
    /// Takes the first match of each literal, which leaves the longest rest for those that follow.
    fn matches(&self, text: &str) -> bool {
        let (first, others) = self.0.split_first().expect("a glob has a part");
        let Some(mut rest) = text.strip_prefix(&**first) else {
            return false;
        };
        let Some((last, middle)) = others.split_last() else {
            return rest.is_empty();
        };
        for part in middle {
            let Some(at) = rest.find(&**part) else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(&**last)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ORIGIN: &str = "https://a.example";

    fn parse(text: &str) -> Option<MatchPattern> {
        MatchPattern::parse(text, ORIGIN, "/js/app.1.js?v=1")
    }

    #[test]
    fn a_pattern_matches_paths_and_queries_of_its_origin() {
        for (pattern, target, expected) in [
            ("/js/app.*.js", "/js/app.2.js", true),
            ("/js/app.*.js", "/js/app.2.js?v=3", true),
            ("/js/app.*.js", "/js/app.a/b.js", true),
            ("/js/app.*.js", "/js/app.js", false),
            ("/js/app.*.js", "/js/app..js", true),
            ("/js/app.*.js", "/js/app.2.js.map", false),
            ("/app.js", "/app.js", true),
            ("/app.js", "/app.js?v=2", true),
            ("/app.js", "/App.js", false),
            ("/app.js?v=*", "/app.js?v=2", true),
            ("/app.js\\?v=*", "/app.js", false), // the escaped `?` is a part of the path
            ("/app.js?v=*", "/app.js?w=2", false),
            ("app.*.js", "/js/app.2.js", true),
            ("app.*.js", "/app.2.js", false),
            ("https://a.example/js/*", "/js/x", true),
            ("/**/x", "/a/b/x", true),
            ("/*", "/", true),
            ("/a*b*c", "/abcbc", true),
            ("/a*b*c", "/acb", false),
            ("/a\\:b", "/a:b", true),
        ] {
            let parsed = parse(pattern).expect(pattern);
            assert_eq!(parsed.matches(target), expected, "{pattern} {target}");
        }
    }

    #[test]
    fn other_origins_and_other_syntax_are_not_parsed() {
        for pattern in [
            "https://b.example/js/*",
            "https://a.example.evil/js/*",
            "http://a.example/js/*",
            "https://a.example",
            "//b.example/js/*",
            "/js/:name",
            "/js/(a|b)",
            "/js/{a}?",
            "/js/*?",
            "/js/a+",
            "/js/a#b",
            "/js/\\",
            "/js/ä",
            "/js/a b",
            "../js/*",
            "/a/./b",
        ] {
            assert_eq!(parse(pattern), None, "{pattern}");
        }
    }

    /// Returns true if a glob matches, by trying each length for each wildcard.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|at| naive(rest, &text[at..])),
            Some((byte, rest)) => text
                .split_first()
                .is_some_and(|(first, others)| first == byte && naive(rest, others)),
        }
    }

    proptest! {
        #[test]
        fn a_pattern_matches_like_a_naive_matcher(pattern in "/[ab/*]{0,8}", path in "/[ab/]{0,8}") {
            prop_assume!(!pattern.starts_with("//"));
            let parsed = parse(&pattern).expect("a pattern of the subset");
            prop_assert_eq!(parsed.matches(&path), naive(pattern.as_bytes(), path.as_bytes()));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,20}", target in "\\PC{0,10}") {
            if let Some(pattern) = MatchPattern::parse(&text, ORIGIN, &target) {
                pattern.matches(&target);
            }
        }
    }
}
