//! How Caddy answers the requests of the property of `caddy_closed`: a small language of directives, as text and as an
//! interpreter that follows Caddy's documentation and not the translation.

use proptest::prelude::*;
use regex::Regex;

use crate::written::{Request, is_glob};

/// A directive of the property.
#[derive(Clone, Debug)]
pub(crate) enum Statement {
    Respond(Matcher),
    Auth(Matcher),
    Redirect(Matcher),
    Proxy(Matcher, u8),
    Handle(Matcher, Vec<Self>),
    HandlePath(&'static str, Vec<Self>),
    Route(Matcher, Vec<Self>),
    Rewrite(Matcher, &'static str),
    Strip(&'static str),
    /// `cache`, perhaps with an exclusion of targets that contain `/b`.
    Cache(Matcher, bool),
    RemoveField(Matcher),
}

/// The matcher of a directive.
#[derive(Clone, Debug)]
pub(crate) enum Matcher {
    All,
    Path(&'static str),
    Named(Vec<(bool, Term)>),
}

/// A line of a named matcher.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Term {
    Path(&'static str),
    Paths(&'static str, &'static str),
    PathRegexp(&'static str),
    Method,
    Header(&'static str),
    HeaderRegexp(&'static str),
    Query(&'static str),
    Client,
    /// The header `X-E` is present, in a language that the translation does not know.
    Expression,
}

/// A request that an origin gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) origin: String,
    pub(crate) path: String,
    pub(crate) is_cached: bool,
}

const PATHS: [&str; 8] = ["/a*", "/a/*", "/a/b", "/A/B/*", "/b*", "*.c", "/", "/a/*/d"];
const PREFIXES: [&str; 2] = ["/a", "/b"];

fn matcher() -> impl Strategy<Value = Matcher> {
    let path = || prop::sample::select(PATHS.to_vec());
    let term = prop_oneof![
        4 => path().prop_map(Term::Path),
        1 => (path(), path()).prop_map(|(a, b)| Term::Paths(a, b)),
        1 => prop::sample::select(vec!["^/a/", "/b", "^/(a|b)/x"]).prop_map(Term::PathRegexp),
        1 => Just(Term::Method),
        1 => prop::sample::select(vec!["v*", "*", "v1"]).prop_map(Term::Header),
        1 => prop::sample::select(vec!["^v", "^v[0-9]$", "(?i)V"]).prop_map(Term::HeaderRegexp),
        1 => prop::sample::select(vec!["q=*", "q=1"]).prop_map(Term::Query),
        1 => Just(Term::Client),
        1 => Just(Term::Expression),
    ];
    let term = (prop::bool::weighted(0.3), term);
    prop_oneof![
        2 => Just(Matcher::All),
        3 => path().prop_map(|path| if path.starts_with('*') { Matcher::All } else { Matcher::Path(path) }),
        3 => prop::collection::vec(term, 1..3).prop_map(Matcher::Named),
    ]
}

/// Returns the directives of a block with so many levels.
pub(crate) fn block(levels: u32) -> BoxedStrategy<Vec<Statement>> {
    let matcher = || matcher();
    let proxy = || (matcher(), 0..4_u8).prop_map(|(matcher, name)| Statement::Proxy(matcher, name));
    let prefix = || prop::sample::select(PREFIXES.to_vec());
    let leaf = prop_oneof![
        4 => proxy(),
        2 => matcher().prop_map(Statement::Respond),
        1 => matcher().prop_map(Statement::Auth),
        1 => matcher().prop_map(Statement::Redirect),
        1 => (matcher(), prop::sample::select(vec!["/a/b", "/x"]))
            .prop_map(|(matcher, target)| Statement::Rewrite(matcher, target)),
        1 => prefix().prop_map(Statement::Strip),
        1 => (matcher(), any::<bool>()).prop_map(|(matcher, out)| Statement::Cache(matcher, out)),
        1 => matcher().prop_map(Statement::RemoveField),
    ];
    if levels == 0 {
        return prop::collection::vec(leaf, 1..4).boxed();
    }
    let inner = || block(levels - 1);
    let statement = prop_oneof![
        6 => leaf,
        3 => (matcher(), inner()).prop_map(|(matcher, inner)| Statement::Handle(matcher, inner)),
        1 => (prefix(), inner()).prop_map(|(prefix, inner)| Statement::HandlePath(prefix, inner)),
        1 => (matcher(), inner()).prop_map(|(matcher, inner)| Statement::Route(matcher, inner)),
    ];
    prop::collection::vec(statement, 1..5).boxed()
}

/// Returns the requests of the property.
pub(crate) fn requests() -> Vec<Request> {
    let mut all = Vec::new();
    for path in [
        "/", "/a", "/A/b", "/a/b/x.c", "/b", "/b/a/b", "/a/a/x", "/a/b/d", "/x", "/b/x",
    ] {
        for rest in [
            "",
            " X-A:v1 X-E:1",
            "?q=1 X-A:v",
            "?q=2 from:10.0.0.1",
            " X-A:Vx X-E:1 from:10.0.0.1",
        ] {
            all.push(Request::of(&format!("{path}{rest}")));
        }
        all.push(Request::of(&format!("PUT {path} X-E:1")));
    }
    all
}

impl Statement {
    /// The place of the name in Caddy's order, and the matcher.
    fn place(&self) -> (u8, Matcher) {
        match self {
            Self::Cache(matcher, _) => (0, matcher.clone()),
            Self::Redirect(matcher) => (1, matcher.clone()),
            Self::Rewrite(matcher, _) => (2, matcher.clone()),
            Self::Strip(_) => (3, Matcher::All),
            Self::Auth(matcher) => (4, matcher.clone()),
            Self::RemoveField(matcher) => (5, matcher.clone()),
            Self::Handle(matcher, _) => (6, matcher.clone()),
            Self::HandlePath("/a", _) => (6, Matcher::Path("/a/*")),
            Self::HandlePath(..) => (6, Matcher::Path("/b/*")),
            Self::Route(matcher, _) => (7, matcher.clone()),
            Self::Respond(matcher) => (8, matcher.clone()),
            Self::Proxy(matcher, _) => (9, matcher.clone()),
        }
    }
}

impl Matcher {
    fn path(&self) -> Option<&'static str> {
        match self {
            Self::Path(path) => Some(path),
            Self::Named(terms) => {
                let mut paths = terms.iter().filter_map(|(is_negated, term)| match term {
                    Term::Path(path) if !is_negated => Some(Some(*path)),
                    Term::Paths(..) if !is_negated => Some(None),
                    _ => None,
                });
                match (paths.next(), paths.next()) {
                    (Some(path), None) => path,
                    _ => None,
                }
            }
            Self::All => None,
        }
    }

    /// The comparison of `sortRoutes` of Caddy.
    fn precedes(&self, other: &Self) -> bool {
        match (self.path(), other.path()) {
            (Some(a), Some(b))
                if a.strip_suffix('*').unwrap_or(a) == b.strip_suffix('*').unwrap_or(b) =>
            {
                a.len() < b.len()
            }
            (Some(a), Some(b)) => a.len() > b.len(),
            _ => !matches!(self, Self::All) && matches!(other, Self::All),
        }
    }

    fn holds(&self, state: &State) -> bool {
        match self {
            Self::All => true,
            Self::Path(path) => is_path(path, &state.path),
            Self::Named(terms) => {
                // Lines of one name are alternatives.
                let holds_any = |is_of_name: fn(&Term) -> bool| {
                    let mut of_name = terms
                        .iter()
                        .filter(|(is_negated, term)| !is_negated && is_of_name(term))
                        .peekable();
                    of_name.peek().is_none() || of_name.any(|(_, term)| term.holds(state))
                };
                let is_path = |term: &Term| matches!(term, Term::Path(_) | Term::Paths(..));
                let is_header = |term: &Term| matches!(term, Term::Header(_));
                let mut rest = terms.iter().filter(|(is_negated, term)| {
                    *is_negated || !(is_path(term) || is_header(term))
                });
                holds_any(is_path)
                    && holds_any(is_header)
                    && rest.all(|(is_negated, term)| term.holds(state) != *is_negated)
            }
        }
    }
}

impl Term {
    fn holds(&self, state: &State) -> bool {
        let field = |name: &str| {
            let mut fields = state.request.fields.iter();
            let found = fields.find(|(known, _)| known == name);
            found
                .map(|(_, value)| value.as_str())
                .filter(|_| name != "x-a" || !state.is_removed)
        };
        match self {
            Self::Path(path) => is_path(path, &state.path),
            Self::Paths(a, b) => is_path(a, &state.path) || is_path(b, &state.path),
            Self::PathRegexp(regex) => Regex::new(regex).expect(regex).is_match(&state.path),
            Self::Method => state.request.method == "PUT",
            Self::Header(glob) => field("x-a").is_some_and(|value| is_glob(glob, value)),
            Self::HeaderRegexp(regex) => {
                let regex = Regex::new(regex).expect(regex);
                field("x-a").is_some_and(|value| regex.is_match(value))
            }
            Self::Query(text) => {
                let value = state.request.query.strip_prefix("q=");
                value.is_some_and(|value| *text == "q=*" || text[2..] == *value)
            }
            Self::Client => state.request.client.octets()[0] == 10,
            Self::Expression => field("x-e").is_some(),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Path(path) => format!("path {path}"),
            Self::Paths(a, b) => format!("path {a} {b}"),
            Self::PathRegexp(regex) => format!("path_regexp {regex}"),
            Self::Method => "method PUT".to_owned(),
            Self::Header(value) => format!("header X-A {value}"),
            Self::HeaderRegexp(regex) => format!("header_regexp X-A {regex}"),
            Self::Query(text) => format!("query {text}"),
            Self::Client => "remote_ip 10.0.0.0/8".to_owned(),
            Self::Expression => "expression {http.request.header.X-E} != \"\"".to_owned(),
        }
    }
}

/// Compares a path without regard to case. A `*` in the middle stands for a part of one segment.
fn is_path(pattern: &str, path: &str) -> bool {
    let (pattern, path) = (pattern.to_ascii_lowercase(), path.to_ascii_lowercase());
    let inner = pattern.trim_matches('*');
    match inner.split_once('*') {
        None => is_glob(&pattern, &path),
        Some((start, end)) => path
            .strip_prefix(start)
            .and_then(|rest| rest.strip_suffix(end))
            .is_some_and(|middle| !middle.contains('/')),
    }
}

/// A request on its way through the directives.
struct State {
    request: Request,
    path: String,
    is_cached: bool,
    is_excluded: bool,
    is_removed: bool,
}

/// Returns the origin that gets a request. `None` if Caddy answers itself.
pub(crate) fn answer(statements: &[Statement], request: &Request) -> Option<Admitted> {
    let mut state = State {
        request: request.clone(),
        path: request.path.clone(),
        is_cached: false,
        is_excluded: false,
        is_removed: false,
    };
    match run(statements, true, &mut state) {
        Some(Some(origin)) => Some(Admitted {
            origin: format!("o{origin}-80"),
            path: state.path,
            is_cached: state.is_cached && !state.is_excluded,
        }),
        _ => None,
    }
}

/// Returns `Some(None)` if a directive answers, the origin if one proxies, and `None` if none does either.
fn run(statements: &[Statement], is_sorted: bool, state: &mut State) -> Option<Option<u8>> {
    let mut order: Vec<&Statement> = statements.iter().collect();
    for end in 1..if is_sorted { order.len() } else { 0 } {
        let mut at = end;
        while at > 0 {
            let ((a, of_a), (b, of_b)) = (order[at].place(), order[at - 1].place());
            if a > b || (a == b && !of_a.precedes(&of_b)) {
                break;
            }
            order.swap(at, at - 1);
            at -= 1;
        }
    }
    let (mut is_handled, mut is_rewritten) = (false, false);
    for statement in order {
        let (_, matcher) = statement.place();
        if !matcher.holds(state) {
            continue;
        }
        let answer = match statement {
            Statement::Respond(_) | Statement::Auth(_) | Statement::Redirect(_) => Some(None),
            Statement::Proxy(_, name) => Some(Some(*name)),
            Statement::Handle(_, inner) if !is_handled => {
                is_handled = true;
                run(inner, true, state)
            }
            Statement::HandlePath(prefix, inner) if !is_handled => {
                is_handled = true;
                strip(prefix, state);
                run(inner, true, state)
            }
            Statement::Route(_, inner) => run(inner, false, state),
            Statement::Rewrite(_, target) if !is_rewritten => {
                is_rewritten = true;
                state.path = (*target).to_owned();
                None
            }
            Statement::Strip(prefix) => {
                strip(prefix, state);
                None
            }
            Statement::Cache(_, excludes) => {
                state.is_cached = true;
                let target = format!("{}?{}", state.request.path, state.request.query);
                state.is_excluded |= *excludes && target.contains("/b");
                None
            }
            Statement::RemoveField(_) => {
                state.is_removed = true;
                None
            }
            _ => None,
        };
        if answer.is_some() {
            return answer;
        }
    }
    None
}

/// Removes a prefix before a slash or the end.
fn strip(prefix: &str, state: &mut State) {
    let (start, rest) = state.path.split_at(prefix.len().min(state.path.len()));
    if start.eq_ignore_ascii_case(prefix) && (rest.is_empty() || rest.starts_with('/')) {
        state.path = match rest {
            "" => "/".to_owned(),
            rest => rest.to_owned(),
        };
    }
}

/// Returns the directives as text. The matchers of each block are named by their places in it, so that nested blocks
/// repeat the names.
pub(crate) fn text(statements: &[Statement]) -> String {
    let mut text = String::new();
    for (position, statement) in statements.iter().enumerate() {
        let (_, matcher) = statement.place();
        let matcher = match matcher {
            Matcher::All => "*".to_owned(),
            Matcher::Path(path) => path.to_owned(),
            Matcher::Named(terms) => {
                let lines = terms.iter().map(|(is_negated, term)| {
                    let not = if *is_negated { "not " } else { "" };
                    format!("{not}{}\n", term.text())
                });
                text += &format!("@m{position} {{\n{}}}\n", lines.collect::<String>());
                format!("@m{position}")
            }
        };
        text += &match statement {
            Statement::Respond(_) => format!("respond {matcher} 403\n"),
            Statement::Auth(_) => format!("basic_auth {matcher} {{\na b\n}}\n"),
            Statement::Redirect(_) => format!("redir {matcher} /login\n"),
            Statement::Proxy(_, name) => format!("reverse_proxy {matcher} o{name}\n"),
            Statement::Handle(_, inner) => {
                format!("handle {matcher} {{\n{}}}\n", self::text(inner))
            }
            Statement::HandlePath(_, inner) => {
                format!("handle_path {matcher} {{\n{}}}\n", self::text(inner))
            }
            Statement::Route(_, inner) => format!("route {matcher} {{\n{}}}\n", self::text(inner)),
            Statement::Rewrite(_, target) => format!("rewrite {matcher} {target}\n"),
            Statement::Strip(prefix) => format!("uri strip_prefix {prefix}\n"),
            Statement::Cache(_, true) => {
                format!("cache {matcher} {{\nregex {{\nexclude /b\n}}\n}}\n")
            }
            Statement::Cache(_, false) => format!("cache {matcher}\n"),
            Statement::RemoveField(_) => format!("request_header {matcher} -X-A\n"),
        };
    }
    text
}
