//! Expressions on URLs: which path and query they ask for, and which idioms change the query.
//!
//! Varnish compares `req.url`, path and query together. Rules of the edge compare the path, and the names of query
//! parameters. This module finds out which part an expression means.

use regex::Regex;

use crate::hosts::Reason;
use crate::rule::When;
use crate::values::{self, unwrap_group, wider_globs};

/// Requests for which an expression on the URL is found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct UrlMatch {
    pub(super) when: When,
    /// Paths in which the expression is found, too, as `a=` in `/a=1`.
    pub(super) or_path: Option<When>,
    pub(super) reach: Reach,
    /// The difference, if the expression may also ask for a part of the query.
    pub(super) difference: Option<&'static str>,
}

/// How the condition of rules relates to an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Exact,
    /// The condition holds for further requests.
    Wider,
    /// The condition holds for fewer requests than this one, which may hold for further ones.
    Narrower(When),
    /// The condition states the usual cases of letters, and this one holds for further requests.
    IgnoresCase(When),
    /// The condition is the expression for requests without a query, and for paths that match one of these globs.
    WithoutQuery(Vec<String>),
}

const PATH_ALONE: &str = "the expression is compared with the path, and not with the query";
const NAME_ALONE: &str =
    "the names of query parameters are compared, and not their values or their order";

/// The ways to write "the query, or the end" behind a path.
const QUERY_OR_END: [&str; 12] = [
    r"(\?.*)?$",
    r"(?:\?.*)?$",
    r"(\?.*|)$",
    r"(|\?.*)$",
    r"(\?.*$|$)",
    r"($|\?.*)",
    r"(\?.+)?$",
    r"(\?|$)",
    r"($|\?)",
    r"(?:\?|$)",
    r"(?:$|\?)",
    r"(\?.*)*$",
];

/// The ways to write "a query of some characters, or the end" behind a path.
const SOME_QUERY_OR_END: [&str; 5] = [
    r"(\?[a-z0-9]+)?$",
    r"(\?[a-zA-Z0-9]+)?$",
    r"(\?[^\?]*)?$",
    r"(\?[a-zA-Z0-9\=\.\-]+)?$",
    r"(\?\w+)?$",
];

/// Returns the requests whose URL an expression matches. `has_query` is false if the query was removed before.
pub(super) fn matches(pattern: &str, has_query: bool) -> Result<UrlMatch, Reason> {
    let (pattern, ignores_case) = match pattern.strip_prefix("(?i)") {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    // Varnish has `\/`, which the edge's expressions do not need.
    let pattern = &pattern.replace("\\/", "/");
    let exact = |when: When| UrlMatch {
        when,
        or_path: None,
        reach: Reach::Exact,
        difference: None,
    };
    let paths = |paths: Vec<String>| When {
        paths,
        ..When::default()
    };
    if matches!(
        pattern.as_str(),
        "" | "." | ".*" | "^/" | "^" | "^.*$" | "^/.*" | "/"
    ) {
        return Ok(exact(When::default()));
    }
    if matches!(pattern.as_str(), r"\?" | r"\?.*" | r"\?.+" | r"[?]") {
        return Ok(exact(parameters(vec!["*".to_owned()])));
    }
    if let Some(found) = parameter_names(pattern) {
        return of_parameters(found, pattern, ignores_case);
    }
    // An optional query, and anything behind it.
    let pattern = pattern.strip_suffix(r"\??.*$").unwrap_or(pattern);
    let end_of = |ends: &[&str]| {
        let end = ends.iter().find(|end| pattern.ends_with(*end))?;
        Some(format!("{}$", &pattern[..pattern.len() - end.len()]))
    };
    let (path, has_end) = match (end_of(&QUERY_OR_END), end_of(&SOME_QUERY_OR_END)) {
        (Some(path), _) => (path, true),
        (None, Some(path)) => (path, false),
        (None, None) => (pattern.to_owned(), false),
    };
    let of_path = path.replace("[^?]", "").replace(r"[^\?]", "");
    if of_path.contains(r"\?")
        || of_path.contains('=')
        || of_path.contains("[?")
        || of_path.contains("[&")
    {
        return Err("the expression asks for path and query together".to_owned());
    }
    let path = path
        .strip_suffix(".*")
        .map_or_else(|| path.clone(), str::to_owned);
    // Any path in front of an ending.
    let (path, is_of_path) = match path
        .strip_prefix("^[^?]*")
        .or_else(|| path.strip_prefix(r"^[^\?]*"))
    {
        Some(rest) => (rest.to_owned(), true),
        None => (path, false),
    };
    let ends = path.ends_with('$') && !path.ends_with("\\$");
    let is_exact =
        has_end || is_of_path || !has_query || (path.starts_with('^') && !ends && !is_loose(&path));
    let difference = (!is_exact).then_some(PATH_ALONE);
    let reach = match has_end || !has_query || !asserts_end(&path) {
        true => Reach::Exact,
        false => Reach::WithoutQuery(Vec::new()),
    };
    if !ignores_case && let Some(globs) = globs(&path) {
        let prefixes = globs.iter().filter(|glob| glob.ends_with('*'));
        return Ok(UrlMatch {
            reach: match reach {
                Reach::WithoutQuery(_) => Reach::WithoutQuery(prefixes.cloned().collect()),
                reach => reach,
            },
            when: paths(globs),
            or_path: None,
            difference,
        });
    }
    let regexes = vec![values::regex(&path, ignores_case)?];
    Ok(UrlMatch {
        when: When {
            regexes,
            ..When::default()
        },
        or_path: None,
        reach,
        difference,
    })
}

/// Returns the requests with the parameters that an expression asks for.
fn of_parameters(
    found: ParameterNames,
    pattern: &str,
    ignores_case: bool,
) -> Result<UrlMatch, Reason> {
    // `v=` is also found in `?rev=1` and in `/v=1`, and `[?&]v` in `?version=1`.
    let start = if found.is_within() { "*" } else { "" };
    let end = if found.is_open { "*" } else { "" };
    let names = found.names.iter();
    let wide = names.map(|name| format!("{start}{name}{end}").replace("**", "*"));
    let wide = parameters(wide.collect());
    let or_path = match found.start {
        Start::Missing => Some(When {
            regexes: vec![values::regex(pattern, ignores_case)?],
            ..When::default()
        }),
        _ => None,
    };
    let is_exact = !found.has_value && !ignores_case;
    let (when, reach) = match (is_exact, found.start) {
        _ if ignores_case => (
            parameters(values::spellings(wide.parameters)),
            Reach::IgnoresCase(parameters(vec!["*".to_owned()])),
        ),
        (true, Start::Either) => (wide, Reach::Exact),
        (true, Start::Missing) => (parameters(found.names), Reach::Narrower(wide)),
        _ => (wide, Reach::Wider),
    };
    Ok(UrlMatch {
        difference: (reach != Reach::Exact).then_some(NAME_ALONE),
        when,
        or_path,
        reach,
    })
}

/// Divides an expression into its alternatives. `None` if it has one.
pub(super) fn alternatives(pattern: &str) -> Option<Vec<String>> {
    let (start, pattern) = match pattern.strip_prefix("(?i)") {
        Some(rest) => ("(?i)", rest),
        None => ("", pattern),
    };
    let branches = values::split_branches(pattern)?;
    let all = branches.iter().map(|branch| format!("{start}{branch}"));
    (branches.len() > 1).then(|| all.collect())
}

/// Returns true if an expression may ask for the end of the URL, so that a query behind the path matters.
fn asserts_end(pattern: &str) -> bool {
    let mut is_escaped = false;
    pattern.chars().any(|c| {
        let asserts = match is_escaped {
            true => matches!(c, 'z' | 'Z' | 'b' | 'B'),
            false => c == '$',
        };
        is_escaped = c == '\\' && !is_escaped;
        asserts
    })
}

fn parameters(parameters: Vec<String>) -> When {
    When {
        parameters,
        ..When::default()
    }
}

/// Returns true if a part of the expression matches `?`, so that it may reach into the query.
fn is_loose(pattern: &str) -> bool {
    let mut is_escaped = false;
    for c in pattern.chars() {
        match c {
            'S' | 'W' | 'D' if is_escaped => return true,
            '.' if !is_escaped => return true,
            '\\' => {
                is_escaped = !is_escaped;
                continue;
            }
            _ => {}
        }
        is_escaped = false;
    }
    pattern.contains("[^")
}

/// The names of query parameters that an expression asks for.
struct ParameterNames {
    names: Vec<String>,
    start: Start,
    /// True if the expression also asks for values, or for the end of the query.
    has_value: bool,
    /// True if any text may follow the name.
    is_open: bool,
}

impl ParameterNames {
    /// Returns true if another text may stand in front of the name.
    fn is_within(&self) -> bool {
        matches!(self.start, Start::Missing | Start::Anywhere)
    }
}

/// The sign in front of a parameter that an expression asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Missing,
    /// `?` or `&` alone, so that the place of the parameter counts.
    One,
    /// `?` with any text behind it.
    Anywhere,
    Either,
}

/// The start of a parameter: `?`, `&` or one of both, in the ways that are written.
const PARAMETER_START: &str = concat!(
    r"(?:\(\?:\\\?\|&\)|\(\\\?\|&\)|\(&\|\\\?\)|\[\?&\]",
    r"|\[&\?\]|\[\\\?&\]|\[&\\\?\]|\(\\\?\|\\&\)|\\\?\(\.\*&\)\?|\\\?\.\*|\\\?|\\&|&)",
);

/// The end of a parameter: a value without alternatives, or the end of the name.
const PARAMETER_END: &str = r"=(?:[^|()]|\([^()]*\))*|\(=\|\$\)|\(=\|&\|\$\)|\\b|\$";

/// Reads an expression such as `[?&](a|b)=` or `preview=true`.
fn parameter_names(pattern: &str) -> Option<ParameterNames> {
    let text = format!(
        r"^(?:\.\*)?({PARAMETER_START})?(\((?:\?:)?[^()]+\)|[\w.*+\[\]\\-]+?)({PARAMETER_END})?$"
    );
    let shape = Regex::new(&text).expect("the expression is valid");
    let found = shape.captures(pattern)?;
    let end = found.get(3).map_or("", |end| end.as_str());
    if found.get(1).is_none() && !end.starts_with('=') {
        return None;
    }
    let group = found.get(2)?.as_str();
    Some(ParameterNames {
        names: names(group)?,
        start: match found.get(1).map(|start| start.as_str()) {
            None => Start::Missing,
            Some("&" | r"\&" | r"\?") => Start::One,
            Some(r"\?.*") => Start::Anywhere,
            Some(_) => Start::Either,
        },
        has_value: !matches!(end, "=" | "(=|$)" | "(=|&|$)"),
        is_open: matches!(end, "" | r"\b"),
    })
}

/// Returns the globs of names in an expression such as `(utm_[a-z]+|gclid)`.
fn names(group: &str) -> Option<Vec<String>> {
    let branches = unwrap_group(group).split('|');
    let all: Option<Vec<Vec<String>>> = branches
        .map(|branch| wider_globs(&format!("^{branch}$")))
        .collect();
    let all = all?.concat();
    let is_name = |name: &String| {
        !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_-.*[]".contains(c))
    };
    all.iter().all(is_name).then_some(all)
}

/// Returns globs for exactly the paths that an expression with `^` matches, if it consists of literal texts.
fn globs(pattern: &str) -> Option<Vec<String>> {
    let Texts { open, ended } = texts(pattern.strip_prefix('^')?)?;
    let is_path = |path: &String| path.starts_with('/');
    if !open.iter().chain(&ended).all(is_path) {
        return None;
    }
    let open = open.into_iter().map(|start| format!("{start}*"));
    Some(ended.into_iter().chain(open).collect())
}

/// The texts of an expression.
struct Texts {
    /// Those behind which any text may follow.
    open: Vec<String>,
    /// Those with `$`.
    ended: Vec<String>,
}

/// Returns the texts of an expression of literal texts and groups of them.
fn texts(body: &str) -> Option<Texts> {
    const TEXTS_MAX: usize = 64;
    let mut open: Vec<String> = vec![String::new()];
    let mut ended: Vec<String> = Vec::new();
    let mut rest = body;
    while let Some(c) = rest.chars().next() {
        if c == '$' && rest.len() == 1 {
            ended.append(&mut open);
            break;
        }
        if c == '(' {
            let end = rest.find(')')?;
            let inner = rest[1..end]
                .strip_prefix("?:")
                .unwrap_or_else(|| &rest[1..end]);
            rest = &rest[end + 1..];
            if rest.starts_with(['*', '+', '?', '{']) {
                return None;
            }
            let mut next = Vec::new();
            for branch in inner.split('|') {
                let (branch, ends) = match branch.strip_suffix('$') {
                    Some(branch) => (branch, true),
                    None => (branch, false),
                };
                let text = literal(branch)?;
                let with = open.iter().map(|start| format!("{start}{text}"));
                match ends {
                    true => ended.extend(with),
                    false => next.extend(with),
                }
            }
            open = next;
        } else {
            let bytes = if c == '\\' { 2 } else { c.len_utf8() };
            let text = literal(rest.get(..bytes)?)?;
            rest = &rest[bytes..];
            if rest.starts_with(['*', '+', '?', '{']) {
                return None;
            }
            open.iter_mut().for_each(|start| start.push_str(&text));
        }
        if open.len() + ended.len() > TEXTS_MAX {
            return None;
        }
    }
    Some(Texts { open, ended })
}

/// Returns globs for exactly the texts in which an expression is found, if it consists of literal texts.
pub(super) fn exact_globs(pattern: &str) -> Option<Vec<String>> {
    let branches: Vec<&str> = match pattern.contains('(') {
        true => vec![pattern],
        false => pattern.split('|').collect(),
    };
    let mut globs = Vec::new();
    for branch in branches {
        let (body, start) = match branch.strip_prefix('^') {
            Some(body) => (body, ""),
            None => (branch, "*"),
        };
        let Texts { open, ended } = texts(body)?;
        if open.iter().chain(&ended).any(String::is_empty) {
            return None;
        }
        globs.extend(ended.iter().map(|text| format!("{start}{text}")));
        globs.extend(open.iter().map(|text| format!("{start}{text}*")));
    }
    Some(globs)
}

/// Returns globs that match each text in which an expression is found, also if it has one group of alternatives.
pub(super) fn wide_globs(pattern: &str) -> Option<Vec<String>> {
    let distributed = || {
        let (start, rest) = pattern.split_once('(')?;
        let (inner, end) = rest.split_once(')')?;
        let is_plain = !inner.contains(['(', '\\'])
            && !start.contains(['|', '\\', '['])
            && !end.contains(['(', ')', '|'])
            && !end.starts_with(['*', '+', '?', '{']);
        let inner = inner.strip_prefix("?:").unwrap_or(inner);
        let branches = inner
            .split('|')
            .map(|branch| format!("{start}{branch}{end}"));
        is_plain.then(|| branches.collect::<Vec<_>>().join("|"))
    };
    wider_globs(pattern).or_else(|| wider_globs(&distributed()?))
}

/// Returns the text of an expression without operators. A `*` has no spelling in a glob.
fn literal(pattern: &str) -> Option<String> {
    let mut text = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                '*' => return None,
                c if c.is_ascii_alphanumeric() => return None,
                c => text.push(c),
            },
            '.' | '[' | ']' | '(' | ')' | '{' | '}' | '|' | '^' | '$' | '*' | '?' | '+' => {
                return None;
            }
            c => text.push(c),
        }
    }
    Some(text)
}

/// A change of the URL by `regsub` or `regsuball`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum UrlChange {
    /// The edge's URLs are so without the change.
    Implied,
    /// These parameters are removed.
    DropParameters(Vec<String>),
    /// The whole query is removed.
    DropQuery,
    /// Paths that the expression matches get the path of a template.
    Rewrite { regex: String, template: String },
}

/// Returns the change of the URL that `regsub(req.url, pattern, replacement)` makes.
pub(super) fn change(pattern: &str, replacement: &str) -> Result<UrlChange, Reason> {
    let pattern = pattern.replace("\\/", "/");
    let pattern = pattern.as_str();
    match (pattern, replacement) {
        // A `?` or `&` at the end, two of them in succession, and fragments, which clients do not send.
        (
            r"\?$" | r"(\?|&)$" | r"(\?&|\?|&)$" | r"[?&]+$" | r"[?|&]+$" | r"\?&?$" | r"(\?&?|&)$"
            | r"[?&]$" | r"\#.*$" | "#.*$" | "#.*",
            "",
        )
        | (r"(\?|&)+$" | r"[&?]+$" | r"&+$" | r"&$" | r"(\?|\&)$", "")
        | (
            r"\?&" | r"(\?)&" | r"(\?)&+" | r"\?&+" | r"\?\&" | r"\?+" | r"(\?\&|\?\?)",
            "?" | r"\1",
        )
        | (r"&&+" | r"&{2,}", "&") => return Ok(UrlChange::Implied),
        (r"\?.*$" | r"\?.*" | r"(\?.*)$" | r"\?.+$" | r"(\?.*)?$", "") => {
            return Ok(UrlChange::DropQuery);
        }
        // A whole URL in the first line of a request.
        (pattern, "") if pattern.starts_with("^http") || pattern.starts_with("(?i)^http") => {
            return Ok(UrlChange::Implied);
        }
        // Repeated slashes: rules compare all forms of a path.
        (r"//+" | r"/+" | r"/{2,}", "/") => return Ok(UrlChange::Implied),
        _ => {}
    }
    if matches!(replacement, "" | "?" | "&" | r"\1" | r"\2")
        && let Some(names) = dropped(pattern)
    {
        return Ok(UrlChange::DropParameters(names));
    }
    rewrite(pattern, replacement)
}

/// Returns the names of parameters that an expression removes, such as `&(utm_source|gclid)=([A-z0-9]+)`.
fn dropped(pattern: &str) -> Option<Vec<String>> {
    let text = format!(
        r"^(?:\({PARAMETER_START}\)|{PARAMETER_START})?&?(\((?:\?:)?[^()]+\)|[\w.*+\[\]\\-]+?)=[^=]*$"
    );
    let shape = Regex::new(&text).expect("the expression is valid");
    let found = shape.captures(pattern)?;
    names(found.get(1)?.as_str())
}

/// Returns the rewrite of the paths that an expression matches.
fn rewrite(pattern: &str, replacement: &str) -> Result<UrlChange, Reason> {
    if pattern.contains(r"\?") || pattern.contains('|') && !pattern.contains('(') {
        return Err("the expression changes path and query together".to_owned());
    }
    let Some(body) = pattern.strip_prefix('^') else {
        return Err(
            "only an expression with ^ rewrites a path: the edge replaces the whole path"
                .to_owned(),
        );
    };
    let ends = body.ends_with('$') && !body.ends_with("\\$");
    let regex = match ends {
        true => pattern.to_owned(),
        false => format!("{pattern}(.*)$"),
    };
    let groups = Regex::new(&values::regex(&regex, false)?)
        .map_err(|error| error.to_string())?
        .captures_len()
        - 1;
    if groups > 9 {
        return Err("the expression has more than nine groups".to_owned());
    }
    let mut template = String::new();
    let mut chars = replacement.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some(digit)) if digit.is_ascii_digit() => {
                if *digit == '0' {
                    return Err("the replacement repeats the whole match".to_owned());
                }
                template.push_str(&format!("${{{digit}}}"));
                chars.next();
            }
            ('$', Some('{')) => return Err("the replacement has ${".to_owned()),
            _ => template.push(c),
        }
    }
    if !ends {
        template.push_str(&format!("${{{groups}}}"));
    }
    if !template.starts_with('/') {
        return Err("the new path must begin with a slash".to_owned());
    }
    template.push_str(if template.contains('?') {
        "&${query}"
    } else {
        "?${query}"
    });
    Ok(UrlChange::Rewrite { regex, template })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_asks_for_the_path_or_for_parameters() {
        let texts =
            |all: &[&str]| -> Vec<String> { all.iter().map(|&text| text.to_owned()).collect() };
        enum Expected {
            Paths(&'static [&'static str]),
            Regex(&'static str),
            Parameters(&'static [&'static str]),
            All,
            Refused,
        }
        enum Expects {
            Exact,
            Wider,
            Narrower(&'static str),
            WithoutQuery(&'static [&'static str]),
        }
        use Expected::{All, Paths, Refused, Regex};
        use Expects::{Exact, Narrower, Wider, WithoutQuery};
        for (pattern, expected, reach, is_exact) in [
            ("^/admin", Paths(&["/admin*"]), Exact, true),
            (r"^\/api\/", Paths(&["/api/*"]), Exact, true),
            (
                "^/(admin|user)/",
                Paths(&["/admin/*", "/user/*"]),
                Exact,
                true,
            ),
            (
                "^/(a|b)(/|$)",
                Paths(&["/a", "/b", "/a/*", "/b/*"]),
                WithoutQuery(&["/a/*", "/b/*"]),
                true,
            ),
            ("^/x$", Paths(&["/x"]), WithoutQuery(&[]), false),
            (r"^/x(\?|$)", Paths(&["/x"]), Exact, true),
            ("^/a.b", Regex("^/a.b"), Exact, false),
            (r"^/a\.b", Paths(&["/a.b*"]), Exact, true),
            ("^/[a-z]+/", Regex("^/[a-z]+/"), Exact, true),
            ("^/[^/]+/x", Regex("^/[^/]+/x"), Exact, false),
            (
                r"\.(png|css)$",
                Regex(r"\.(png|css)$"),
                WithoutQuery(&[]),
                false,
            ),
            (r"\.(png|css)(\?.*)?$", Regex(r"\.(png|css)$"), Exact, true),
            (
                r"(?i)\.(png|css)(\?.*|)$",
                Regex(r"(?i)\.(png|css)$"),
                Exact,
                true,
            ),
            ("wp-(login|admin)", Regex("wp-(login|admin)"), Exact, false),
            ("/", All, Exact, true),
            (
                "[?&]preview=",
                Expected::Parameters(&["preview"]),
                Exact,
                true,
            ),
            (
                r"(\?|&)(a|b)=",
                Expected::Parameters(&["a", "b"]),
                Exact,
                true,
            ),
            (
                "preview=",
                Expected::Parameters(&["preview"]),
                Narrower("*preview"),
                false,
            ),
            ("&a=", Expected::Parameters(&["a"]), Wider, false),
            (
                "preview=true",
                Expected::Parameters(&["*preview"]),
                Wider,
                false,
            ),
            ("[?&]a", Expected::Parameters(&["a*"]), Wider, false),
            (r"\?.*a=", Expected::Parameters(&["*a"]), Wider, false),
            ("a|b=1", Refused, Exact, false),
            ("[?&]a=(b|c)", Expected::Parameters(&["a"]), Wider, false),
            (r"\?", Expected::Parameters(&["*"]), Exact, true),
            (
                r"[?&](utm_[a-z]+|gclid)=",
                Expected::Parameters(&["utm_*", "gclid"]),
                Exact,
                true,
            ),
            (r"^/x\??.*$", Paths(&["/x*"]), Exact, true),
            (r"^/x(\?\w+)?$", Paths(&["/x"]), WithoutQuery(&[]), false),
            (
                r"^/(a|b$)",
                Paths(&["/b", "/a*"]),
                WithoutQuery(&["/a*"]),
                true,
            ),
            (r"^/a\?b=c", Refused, Exact, false),
            (r"(?!x)y", Refused, Exact, false),
        ] {
            let expected_when = match expected {
                Paths(all) => When {
                    paths: all.iter().map(|&text| text.to_owned()).collect(),
                    ..When::default()
                },
                Regex(text) => When {
                    regexes: vec![text.to_owned()],
                    ..When::default()
                },
                Expected::Parameters(all) => {
                    parameters(all.iter().map(|&text| text.to_owned()).collect())
                }
                All => When::default(),
                Refused => {
                    assert!(matches(pattern, true).is_err(), "{pattern}");
                    continue;
                }
            };
            let found = matches(pattern, true).expect(pattern);
            assert_eq!(found.when, expected_when, "{pattern}");
            let reach = match reach {
                Exact => Reach::Exact,
                Wider => Reach::Wider,
                Narrower(name) => Reach::Narrower(parameters(texts(&[name]))),
                WithoutQuery(all) => Reach::WithoutQuery(texts(all)),
            };
            assert_eq!(found.reach, reach, "{pattern}");
            assert_eq!(found.difference.is_none(), is_exact, "{pattern}");
        }
    }

    #[test]
    fn idioms_on_the_query_become_settings_of_the_query() {
        let drop = |names: &[&str]| {
            let names = names.iter().map(|&name| name.to_owned());
            UrlChange::DropParameters(names.collect())
        };
        for (pattern, replacement, expected) in [
            (
                r"&(utm_source|utm_medium|gclid)=([A-z0-9_\-\.%25]+)",
                "",
                drop(&["utm_source", "utm_medium", "gclid"]),
            ),
            (
                r"\?(utm_source|gclid)=([A-z0-9_\-\.%25]+)",
                "?",
                drop(&["utm_source", "gclid"]),
            ),
            (
                "(gclid|utm_[a-z]+)=[-_A-z0-9+()%.]+&?",
                "",
                drop(&["gclid", "utm_*"]),
            ),
            (r"\?&", "?", UrlChange::Implied),
            (r"\?$", "", UrlChange::Implied),
            (r"\?.*$", "", UrlChange::DropQuery),
        ] {
            assert_eq!(change(pattern, replacement), Ok(expected), "{pattern}");
        }
    }

    #[test]
    fn a_new_path_keeps_what_the_expression_does_not_match() {
        let rewrite = |regex: &str, template: &str| {
            Ok(UrlChange::Rewrite {
                regex: regex.to_owned(),
                template: template.to_owned(),
            })
        };
        assert_eq!(
            change("^/old/", "/new/"),
            rewrite("^/old/(.*)$", "/new/${1}?${query}")
        );
        assert_eq!(
            change("^/u/([0-9]+)$", r"/user?id=\1"),
            rewrite("^/u/([0-9]+)$", "/user?id=${1}&${query}")
        );
        assert!(change("old", "new").is_err());
        assert!(change("^/a", "b").is_err());
        assert!(change("^/(?!a)", "/b").is_err());
    }
}
