//! Patterns of paths: those of Caddy as conditions, and conditions as the edge compares them.
//!
//! Caddy compares paths without regard to the case of letters, and the edge in their case. Conditions have the globs of
//! Caddy in lower case while rules are made, and [`written`] turns them into expressions that ignore the case.

use crate::decision::{Decision, covers_prefix};
use crate::hosts::Reason;
use crate::rule::When;
use crate::values::{self, literal_regex};

/// Returns the condition of a list of patterns. `prefix` was removed from the paths that Caddy compares.
pub(super) fn condition(patterns: &[String], prefix: &str) -> Result<Decision<bool>, Reason> {
    if patterns.is_empty() {
        return Err("a matcher without a path".to_owned());
    }
    let mut paths = Vec::new();
    for pattern in patterns {
        let lower = pattern.to_ascii_lowercase();
        if matches!(lower.as_str(), "*" | "/*") {
            return Ok(Decision::always(true));
        }
        let is_known = lower.starts_with(['/', '*'])
            && lower
                .bytes()
                .all(|byte| byte.is_ascii_graphic() || byte == b' ')
            && !lower.contains(['{', '}', '%', '?', '[', ']', '\\'])
            && !lower.contains("//")
            && !lower
                .split('/')
                .any(|segment| matches!(segment, "." | ".."));
        if !is_known {
            return Err(format!("{pattern} is not a path that rules compare"));
        }
        match (prefix, lower.starts_with('/')) {
            ("", _) => paths.push(lower),
            (_, true) => {
                // Without its prefix, the path of the prefix itself is empty, which Caddy reads as `/`.
                if lower == "/" {
                    paths.push(prefix.to_owned());
                }
                paths.push(format!("{prefix}{lower}"));
            }
            (_, false) => {
                return Err(format!(
                    "{pattern} is compared with the path behind {prefix}"
                ));
            }
        }
    }
    Ok(Decision::when(When {
        paths,
        ..When::default()
    }))
}

/// Returns an expression on the path that Caddy compares, without `prefix`, as one on the path that the client sent.
pub(super) fn regex(pattern: &str, prefix: &str) -> Result<String, Reason> {
    let pattern = values::regex(pattern, false)?;
    if prefix.is_empty() {
        return Ok(pattern);
    }
    let rest = pattern.strip_prefix('^');
    let body = rest.unwrap_or(&pattern);
    if body.contains('^') || body.starts_with("(?") || has_branches(body) {
        return Err(format!(
            "the expression {pattern} is compared with the path behind {prefix}"
        ));
    }
    let prefix = literal_regex(prefix);
    Ok(match rest {
        Some(rest) => format!("^(?i:{prefix}){rest}"),
        None => format!("^(?i:{prefix})(?s:.*)(?:{body})"),
    })
}

/// Returns an expression for the paths behind a prefix: its group 1 is the rest behind the slash.
pub(super) fn behind(prefix: &str) -> String {
    format!("^(?i:{}/)(.*)$", literal_regex(prefix))
}

/// Returns the requests of a decision whose path matches an expression.
pub(super) fn matching(regex: String) -> Decision<bool> {
    Decision::when(When {
        regexes: vec![regex],
        ..When::default()
    })
}

/// Returns a decision if rules can state all its conditions.
pub(super) fn statable<T: Clone + PartialEq>(decision: Decision<T>) -> Result<Decision<T>, Reason> {
    let is_statable = |when: &When| {
        when.paths.is_empty()
            || when.regexes.is_empty()
            || is_implied(when)
            || !when.paths.iter().any(|path| needs_regex(path))
    };
    match decision.layers().iter().all(|(when, _)| is_statable(when)) {
        true => Ok(decision),
        false => Err(
            "one rule cannot compare a path without regard to case and with another expression"
                .to_owned(),
        ),
    }
}

/// Returns a condition as the edge compares it.
pub(super) fn written(mut when: When) -> When {
    if !when.regexes.is_empty() && is_implied(&when) {
        when.paths.clear();
    }
    if when.regexes.is_empty() && when.paths.iter().any(|path| needs_regex(path)) {
        let paths = std::mem::take(&mut when.paths);
        when.regexes = paths.iter().map(|path| glob_regex(path)).collect();
    }
    when
}

/// Returns true for a glob that the edge does not compare as Caddy does.
fn needs_regex(glob: &str) -> bool {
    let inner = glob.strip_prefix('*').unwrap_or(glob);
    let inner = inner.strip_suffix('*').unwrap_or(inner);
    inner.contains('*') || glob.contains(|c: char| c.is_ascii_alphabetic())
}

/// Returns a glob of Caddy as an expression. `*` stands for any text at the start and the end, and otherwise for a part
/// of one segment.
fn glob_regex(glob: &str) -> String {
    let stars = glob.matches('*').count();
    let (start, end) = (glob.starts_with('*'), glob.ends_with('*'));
    let is_plain = match stars {
        0 => true,
        1 => start || end,
        2 => start && end,
        _ => false,
    };
    let body = match is_plain {
        true => literal_regex(glob.trim_matches('*')),
        false => {
            let parts: Vec<String> = glob.split('*').map(literal_regex).collect();
            parts.join("[^/]*")
        }
    };
    let case = match glob.contains(|c: char| c.is_ascii_alphabetic()) {
        true => "(?i)",
        false => "",
    };
    let first = if is_plain && start { "" } else { "^" };
    let last = if is_plain && end { "" } else { "$" };
    format!("{case}{first}{body}{last}")
}

/// Returns true if each path that one of the expressions matches also matches one of the globs.
fn is_implied(when: &When) -> bool {
    when.regexes.iter().all(|regex| {
        literal_start(regex)
            .is_some_and(|start| when.paths.iter().any(|path| covers_prefix(path, &start)))
    })
}

/// Returns the text, in lower case, with which each path begins that an expression matches.
fn literal_start(regex: &str) -> Option<String> {
    let body = regex
        .strip_prefix("(?i)")
        .unwrap_or(regex)
        .strip_prefix('^')?;
    if has_branches(body) {
        return None;
    }
    let (group, rest) = match body.strip_prefix("(?i:") {
        Some(inner) => inner.split_once(')')?,
        None => ("", body),
    };
    let mut start = String::new();
    for part in [group, rest] {
        let mut chars = part.chars().peekable();
        while let Some(c) = chars.next() {
            let literal = match c {
                '\\' => chars.next().filter(char::is_ascii_punctuation),
                c if c.is_ascii_alphanumeric() || "/-_ ~,:;=@!%&'\"<>".contains(c) => Some(c),
                _ => None,
            };
            let is_repeated = matches!(chars.peek(), Some('*' | '?' | '+' | '{'));
            match literal {
                Some(c) if !is_repeated => start.push(c.to_ascii_lowercase()),
                _ => return Some(start),
            }
        }
    }
    Some(start)
}

/// Returns true if an expression has a `|` outside of groups.
fn has_branches(regex: &str) -> bool {
    let (mut depth, mut is_escaped) = (0_i32, false);
    regex.chars().any(|c| {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '|' => return depth <= 0,
            _ => {}
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(paths: &[&str], regexes: &[&str]) -> When {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        When {
            paths: owned(paths),
            regexes: owned(regexes),
            ..When::default()
        }
    }

    #[test]
    fn globs_are_written_as_caddy_compares_them() {
        for (glob, expected) in [
            ("/admin/*", Some("(?i)^/admin/")),
            ("*.php", Some(r"(?i)\.php$")),
            ("*x*", Some("(?i)x")),
            ("/a", Some("(?i)^/a$")),
            ("/a/*/b", Some("(?i)^/a/[^/]*/b$")),
            ("/a/*/b/*", Some("(?i)^/a/[^/]*/b/[^/]*$")),
            ("/1/*/2", Some("^/1/[^/]*/2$")),
            ("/1/*", None),
            ("/", None),
        ] {
            let when = written(of(&[glob], &[]));
            match expected {
                Some(regex) => assert_eq!(when, of(&[], &[regex]), "{glob}"),
                None => assert_eq!(when, of(&[glob], &[]), "{glob}"),
            }
        }
    }

    /// A rule has paths and expressions only if both are compared in the case of their letters, or the expression alone
    /// if it implies the path.
    #[test]
    fn an_expression_within_a_path_is_stated_only_if_it_implies_the_path() {
        for (paths, regex, is_statable) in [
            (&["/api/*"][..], "^/api/v[0-9]", true),
            (&["/api/*"], "^/api/?v", false),
            (&["/api/*"], "^/api/a|x", false),
            (&["/api/*"], "^/api/(a|x)", true),
            (&["/api/*"], r"\.php$", false),
            (&["/api*"], "^(?i:/api/)(.*)$", true),
            (&["/api/*"], "^(?i:/api/)(.*)$", true),
            (&["/api/x*"], "^(?i:/api/)(.*)$", false),
            (&["/1/*"], r"\.php$", true),
            (&["/b/*", "/api/*"], "^/api/x", true),
            (&["*/api/x"], "^/api/x", false),
        ] {
            let decision = Decision::when(of(paths, &[regex]));
            assert_eq!(statable(decision).is_ok(), is_statable, "{paths:?} {regex}");
        }
        assert_eq!(
            written(of(&["/api/*"], &["^/api/v[0-9]"])),
            of(&[], &["^/api/v[0-9]"])
        );
    }

    #[test]
    fn patterns_behind_a_prefix_are_those_of_the_whole_path() {
        let paths = |pattern: &str| {
            let decision = condition(&[pattern.to_owned()], "/api").ok()?;
            let (when, _) = decision.layers().last().cloned()?;
            Some(when.paths)
        };
        assert_eq!(paths("/Admin/*"), Some(vec!["/api/admin/*".to_owned()]));
        assert_eq!(
            paths("/"),
            Some(vec!["/api".to_owned(), "/api/".to_owned()])
        );
        assert_eq!(paths("/*"), Some(vec![]));
        assert_eq!(paths("*.php"), None);
        assert_eq!(regex("^/x", "/api").as_deref(), Ok("^(?i:/api)/x"));
        assert_eq!(
            regex(r"\.php$", "/api").as_deref(),
            Ok(r"^(?i:/api)(?s:.*)(?:\.php$)")
        );
        assert!(regex("^/x|y", "/api").is_err());
        for pattern in [
            "/a%20b", "/a//b", "/a/../b", "/a?b", "/[a]", "{x}", "a", "/é",
        ] {
            assert!(condition(&[pattern.to_owned()], "").is_err(), "{pattern}");
        }
    }
}
