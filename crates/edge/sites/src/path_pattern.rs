//! Patterns of paths: globs and regular expressions.

use std::fmt;

use edgeward_types::Pattern;
use regex::bytes::{Regex, RegexBuilder};

/// A pattern of paths, written in the [form for matching](crate::path::matching_path).
#[derive(Clone, Debug)]
pub enum PathPattern {
    /// A text that matches whole paths, in which `*` matches zero or more bytes, also slashes. `/static/*` is a prefix.
    Glob(Pattern),
    /// A regular expression, found anywhere in the path unless `^` or `$` fixes it. The time of a search is
    /// proportional to the length of the path, also in the worst case.
    Regex(Regex),
}

/// The reason why a text is not a [`PathPattern`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathPatternError {
    /// The glob can match no path.
    #[error("`{0}` matches no path; write a path that begins with `/`, such as /static/*")]
    NoPath(Box<str>),
    /// The glob is not in the form in which paths are compared, so it would match no path.
    #[error(
        "`{text}` matches no path; write `{form}`, because paths are compared without percent-encoding, dot \
             segments and repeated slashes"
    )]
    NotInForm {
        /// The text.
        text: Box<str>,
        /// The text in the form for matching.
        form: Box<str>,
    },
    /// The regular expression has an error, or its compiled form is too large.
    #[error("`{text}` is not a regular expression: {reason}")]
    Regex {
        /// The text.
        text: Box<str>,
        /// The reason, in one line.
        reason: Box<str>,
    },
}

/// The memory limit of a compiled regular expression, and of the tables that its searches fill. An expression such as
/// `\.(jpe?g|png|gif|webp|avif)$` takes a few KiB.
const REGEX_BYTES_MAX: usize = 256 << 10;

impl PathPattern {
    /// Returns the pattern of a glob.
    pub fn glob(text: &str) -> Result<Self, PathPatternError> {
        if !text.starts_with(['/', '*']) {
            return Err(PathPatternError::NoPath(text.into()));
        }
        let form = crate::path::matching_path(text);
        if text.starts_with('/') && *form != *text.as_bytes() {
            return Err(PathPatternError::NotInForm {
                text: text.into(),
                form: String::from_utf8_lossy(&form).into(),
            });
        }
        Ok(Self::Glob(Pattern::new(text)))
    }

    /// Compiles a regular expression. `.` matches every byte, so that a path with `%0a` or `%ff` evades no rule.
    pub fn regex(text: &str) -> Result<Self, PathPatternError> {
        let regex = RegexBuilder::new(text)
            .unicode(false)
            .dot_matches_new_line(true)
            .size_limit(REGEX_BYTES_MAX)
            .dfa_size_limit(REGEX_BYTES_MAX)
            .build();
        regex.map(Self::Regex).map_err(|error| {
            let message = match error {
                regex::Error::CompiledTooBig(bytes) => {
                    format!("its compiled form exceeds {bytes} bytes")
                }
                error => error.to_string(),
            };
            // A syntax error has several lines. The last one states the reason.
            let reason = message.lines().last().unwrap_or_default();
            PathPatternError::Regex {
                text: text.into(),
                reason: reason.trim_start_matches("error: ").into(),
            }
        })
    }

    /// Returns true if the pattern matches a reading of a path.
    pub fn matches(&self, path: &[u8]) -> bool {
        match self {
            Self::Glob(pattern) => pattern.matches(path),
            Self::Regex(regex) => regex.is_match(path),
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Glob(pattern) => pattern.fmt(f),
            Self::Regex(regex) => regex.as_str().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_paths_and_expressions_parts_of_them() {
        let glob = |text| PathPattern::glob(text).expect("a glob");
        let regex = |text| PathPattern::regex(text).expect("an expression");
        for (pattern, path, matches) in [
            (glob("/static/*"), "/static/a/b", true),
            (glob("/static/*"), "/static/", true),
            (glob("/static/*"), "/static", false),
            (glob("*.css"), "/a/b.css", true),
            (glob("*.css"), "/a/b.css/c", false),
            (glob("/favicon.ico"), "/favicon.ico", true),
            (glob("/.well-known/*"), "/.well-known/x", true),
            (regex(r"\.(jpe?g|png)$"), "/a.jpeg", true),
            (regex(r"\.(jpe?g|png)$"), "/a.jpeg/b", false),
            (regex(r"^/api/v[0-9]+/"), "/api/v12/x", true),
            (regex(r"^/api/v[0-9]+/"), "/x/api/v12/", false),
            (regex(r"^/a/.*\.php$"), "/a/\n.php", true),
        ] {
            assert_eq!(
                pattern.matches(path.as_bytes()),
                matches,
                "{pattern} {path}"
            );
        }
    }

    #[test]
    fn a_byte_that_is_not_utf8_evades_no_expression() {
        let pattern = PathPattern::regex(r"^/a/.*\.php$").expect("an expression");
        assert!(pattern.matches(&crate::path::matching_path("/a/%ff.php")));
    }

    #[test]
    fn errors_of_patterns_say_what_to_write() {
        let error = |result: Result<PathPattern, PathPatternError>| {
            result.expect_err("an invalid pattern").to_string()
        };
        for (message, part) in [
            (error(PathPattern::glob("static/*")), "begins with `/`"),
            (error(PathPattern::glob("")), "begins with `/`"),
            (error(PathPattern::glob("/a%20b/*")), "write `/a b/*`"),
            (error(PathPattern::glob("//a")), "write `/a`"),
            (error(PathPattern::regex("(a")), "unclosed group"),
            (error(PathPattern::regex("a{5000}{100}")), "exceeds"),
            (
                error(PathPattern::regex(r"(a)\1")),
                "backreferences are not supported",
            ),
        ] {
            assert!(message.contains(part), "{message}");
        }
    }
}
