//! Idioms that remove cookies from a request.

use regex::Regex;

use super::urls::{exact_globs, wide_globs};
use crate::hosts::Reason;
use crate::rule::When;
use crate::values::wider_globs;

/// The cookies that remain in a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cookies {
    /// The patterns of the names that remain. `None` is all names.
    pub(super) kept: Option<Vec<String>>,
    /// The patterns of names that were removed from all.
    pub(super) dropped: Vec<String>,
    /// Names that `"; \1="` has marked, so that the next replacement keeps them.
    marked: Option<Vec<String>>,
}

impl Cookies {
    /// Removes all other cookies.
    pub(super) fn keep(&mut self, names: Vec<String>) {
        self.kept = Some(names);
        self.dropped.clear();
    }

    /// Removes cookies.
    pub(super) fn drop(&mut self, names: Vec<String>) {
        match &mut self.kept {
            Some(kept) => kept.retain(|name| !names.contains(name)),
            None => self.dropped.extend(names),
        }
    }

    /// Returns true if no cookie is removed.
    pub(super) fn is_all(&self) -> bool {
        self.kept.is_none() && self.dropped.is_empty()
    }

    /// Returns true if the names that remain are listed.
    pub(super) fn has_exact_names(&self) -> bool {
        let kept = self.kept.as_ref();
        kept.is_some_and(|kept| kept.iter().all(|name| !name.contains('*')))
    }

    /// Applies `regsub` or `regsuball` to the field.
    pub(super) fn replace(&mut self, pattern: &str, replacement: &str) -> Result<(), Reason> {
        if pattern == ";[^ ][^;]*" && replacement.is_empty() {
            let marked = self.marked.take();
            self.keep(marked.unwrap_or_default());
            return Ok(());
        }
        let is_separator = |c: char| " ;^$*+?|()[]\\".contains(c);
        if pattern.replace("\\s", " ").chars().all(is_separator) {
            return Ok(());
        }
        let names = names(pattern).ok_or_else(|| {
            "the expression has another form than those that usually remove cookies by name"
                .to_owned()
        })?;
        match replacement {
            r"; \1=" => self.marked = Some(names),
            "" | r"\1" | ";" | "; " => self.drop(names),
            _ => return Err("the expression changes the values of cookies".to_owned()),
        }
        Ok(())
    }
}

/// Returns the patterns of the names in an expression such as `(^|;\s*)(_ga|__utm.)=[^;]*`.
pub(super) fn names(pattern: &str) -> Option<Vec<String>> {
    const SHAPE: &str = concat!(
        r"^(?:\(\?:\^\|;[^()]*\)|\(\^\|;[^()]*\)|",
        r"\(;\|\^\)|\(\^\|(?:\(\?<=; \)|[^()]*)\)|\^|;\\s[*+]|; \*|;\?|; ?|\\b)?",
        r"(?: ?\*|\\s\*)?(\((?:\?:)?(?:[^()]|\([^()]*\))+\)(?:[\w.*+\[\]\\^-]*)|[^()=;|]+(?:\([^()]*\))?[^()=;|]*)",
        r"(?:=(?:[^|()]|\([^()]*\))*)?$",
    );
    let shape = Regex::new(SHAPE).expect("the expression is valid");
    let group = shape.captures(pattern)?.get(1)?.as_str();
    let (inner, behind) = match group
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(')'))
    {
        Some((inner, behind)) if !inner.contains('(') => {
            (inner.strip_prefix("?:").unwrap_or(inner), behind)
        }
        _ => (group, ""),
    };
    let optional = Regex::new(r"\([^()]*\)\?").expect("the expression is valid");
    let mut all = Vec::new();
    for branch in inner.split('|') {
        // An optional group, as in `(__)?utm`, stands for any text.
        let branch = format!("{branch}{behind}");
        let plain = optional.replace_all(&branch, ".*");
        all.extend(wider_globs(&format!("^{plain}$"))?);
    }
    Some(all)
}

/// Returns the name of the cookie whose value an expression such as `^.*?currency=([^;]*).*$` selects.
pub(super) fn selected(pattern: &str, replacement: &str) -> Option<String> {
    const SHAPE: &str = concat!(
        r"^\^?(?:\.\*\??)?(?:\(\?:\^\|;\\s\*\)|;\\s\*|;\s?\*?|\\b)?",
        r"\(?([\w-]+)=\)?(?:\\s\*)?\(?\(\[\^;\][*+]?\??\)\)?.*$",
    );
    let shape = Regex::new(SHAPE).expect("the expression is valid");
    let found = shape.captures(pattern)?;
    (replacement == r"\1").then(|| found[1].to_owned())
}

/// The condition for an expression on the whole field.
#[derive(Debug)]
pub(super) struct CookieMatch {
    /// Globs of the names of cookies, or of the whole field.
    pub(super) when: When,
    /// False if the condition holds for further requests.
    pub(super) is_exact: bool,
}

/// Reads an expression on the field `Cookie`.
pub(super) fn matches(pattern: &str) -> Result<CookieMatch, Reason> {
    let unsupported = || format!("rules have no condition for cookies that match {pattern}");
    let plain = pattern.strip_prefix("(?i)").unwrap_or(pattern);
    let lines = |lines: Vec<String>, is_exact| CookieMatch {
        when: When {
            headers: [("Cookie".to_owned(), lines)].into(),
            ..When::default()
        },
        is_exact,
    };
    if let Some(globs) = exact_globs(plain) {
        return Ok(lines(globs, true));
    }
    // A value: `name=value`, with both in plain letters.
    let value =
        Regex::new(r"^(?:\(\^\|;\\?s?\*?\)|;? ?)?([\w-]+=[\w-]+)(?:;|\(;\|\$\))?$").expect("valid");
    if let Some(found) = value.captures(plain) {
        return Ok(lines(vec![format!("*{}*", &found[1])], false));
    }
    let is_of_any = plain.starts_with("(^|") || plain.starts_with("(?:^|");
    if !is_of_any && !plain.starts_with(['^', ';']) {
        return Ok(lines(wide_globs(plain).ok_or_else(unsupported)?, false));
    }
    let names = names(plain).ok_or_else(unsupported)?;
    let is_whole = plain.ends_with('=');
    let is_exact = is_of_any && is_whole && names.iter().all(|name| !name.contains('*'));
    let end = if plain.contains('=') { "" } else { "*" };
    let names = names
        .into_iter()
        .map(|name| format!("{name}{end}").replace("**", "*"));
    let when = When {
        cookies: names.collect(),
        ..When::default()
    };
    Ok(CookieMatch { when, is_exact })
}

/// Returns the names of a list such as `a, b` of the vmod `cookie`.
pub(super) fn listed(text: &str) -> Vec<String> {
    let names = text.split(',').map(|name| name.trim().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

/// Returns true for an expression that only an empty field matches.
pub(super) fn is_empty_field(pattern: &str) -> bool {
    matches!(
        pattern,
        r"^\s*$" | r"^ *$" | "^$" | r"^[;\s]*$" | r"^[; ]*$" | r"^;?\s*$"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idioms_that_keep_or_remove_cookies_are_read() {
        let mut drupal = Cookies::default();
        for (pattern, replacement) in [
            ("; +", ";"),
            (";(SESS[a-z0-9]+|SSESS[a-z0-9]+|NO_CACHE)=", r"; \1="),
            (";[^ ][^;]*", ""),
            ("^[; ]+|[; ]+$", ""),
        ] {
            drupal.replace(pattern, replacement).expect(pattern);
        }
        let kept = ["SESS*", "SSESS*", "NO_CACHE"].map(str::to_owned);
        assert_eq!(drupal.kept, Some(kept.to_vec()));
        for (pattern, expected) in [
            (r"has_js=[^;]+(; )?", vec!["has_js"]),
            (r"__utm.=[^;]+(; )?", vec!["__utm*"]),
            (r"(^|;\s*)(_[_a-z]+|has_js)=[^;]*", vec!["_*", "has_js"]),
            (r"(^|; ) *__utm.=[^;]+;? *", vec!["__utm*"]),
            (r"_ga=[^;]+(; )?", vec!["_ga"]),
            (r"wp-settings-1=[^;]+(; )?", vec!["wp-settings-1"]),
            (r"(^|;\s*)(__[a-z]+|utm_[a-z]+)=[^;]*", vec!["__*", "utm_*"]),
        ] {
            let mut cookies = Cookies::default();
            cookies.replace(pattern, "").expect(pattern);
            assert_eq!(cookies.dropped, expected, "{pattern}");
        }
        assert!(Cookies::default().replace("a=b", "a=c").is_err());
    }

    #[test]
    fn an_expression_selects_the_value_of_a_cookie() {
        for pattern in [
            r"^.*?currency=([^;]*);*.*$",
            r".*currency=([^;]+).*",
            r"^.*;\s*currency=([^;]*).*$",
        ] {
            assert_eq!(
                selected(pattern, r"\1").as_deref(),
                Some("currency"),
                "{pattern}"
            );
        }
        assert_eq!(selected("currency", r"\1"), None);
    }

    #[test]
    fn conditions_on_the_field_are_as_narrow_as_globs_can_be() {
        enum Expected {
            Names(&'static [&'static str]),
            Lines(&'static [&'static str]),
        }
        use Expected::{Lines, Names};
        for (pattern, expected, is_exact) in [
            (
                "wordpress_logged_in",
                Lines(&["*wordpress_logged_in*"]),
                true,
            ),
            (
                "(wp-postpass|comment_)",
                Lines(&["*wp-postpass*", "*comment_*"]),
                true,
            ),
            ("PHPSESSID=", Lines(&["*PHPSESSID=*"]), true),
            ("^a=", Lines(&["a=*"]), true),
            ("(a|b)=", Lines(&["*a=*", "*b=*"]), true),
            (
                "([sS]ession|Token)=",
                Lines(&["*ession=*", "*Token=*"]),
                false,
            ),
            ("ab=b1", Lines(&["*ab=b1*"]), true),
            ("(^|;s*)ab=b1", Lines(&["*ab=b1*"]), false),
            ("SESS[a-f0-9]+=", Lines(&["*SESS*=*"]), false),
            (r"(^|;\s*)session=", Names(&["session"]), true),
            (r"(^|; )(a|b)=", Names(&["a", "b"]), true),
            (r"(^|; )sess", Names(&["sess*"]), false),
            (r"(^|; )S[0-9]+=", Names(&["S*"]), false),
        ] {
            let found = matches(pattern).expect(pattern);
            let texts = |all: &[&str]| all.iter().map(|&text| text.to_owned()).collect();
            let when = match expected {
                Names(all) => When {
                    cookies: texts(all),
                    ..When::default()
                },
                Lines(all) => When {
                    headers: [("Cookie".to_owned(), texts(all))].into(),
                    ..When::default()
                },
            };
            assert_eq!((found.when, found.is_exact), (when, is_exact), "{pattern}");
        }
        for pattern in [".*", "(^|; )logged_in=1|(^|; )admin=1"] {
            assert!(matches(pattern).is_err(), "{pattern}");
        }
    }
}
