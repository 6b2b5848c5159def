//! The names of servers, and which hosts they name.
//!
//! nginx prefers an exact name, then the longest `*.DOMAIN`, then the longest `mail.*`, then the first expression.
//! Expressions are divided into hosts and domains as far as possible ([`reach`]), because a site of the edge has those,
//! and a certificate for them. For other hosts the rules compare the expression.

use regex::Regex;

use crate::hosts::Host;
use crate::values;

/// A name of a server.
#[derive(Clone, Debug)]
pub(super) enum ServerName {
    /// A host, or all hosts below a domain.
    Host(Host),
    /// The start of hosts, with its dot: `mail.*`.
    Start(String),
    /// An expression.
    Expression(Expression),
    /// An expression that the edge cannot compare.
    Unknown,
}

/// An expression that the edge can compare, too.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    /// The expression of the edge.
    pub(super) text: String,
    regex: Regex,
    reach: Reach,
}

/// The hosts for which a name may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Never,
    Sometimes,
    Always,
}

/// The hosts that an expression may match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Reach {
    hosts: Vec<String>,
    /// Domains, and true if the expression matches all hosts below the domain.
    domains: Vec<(String, bool)>,
    /// True if the expression may match further hosts.
    is_open: bool,
}

impl ServerName {
    /// Reads a name. `None` if no request has such a host.
    pub(super) fn parse(name: &str) -> Option<Self> {
        if let Some(pattern) = name.strip_prefix('~') {
            // nginx compares the host in lower case, and an expression with capitals without regard to case.
            let name = match values::regex(pattern, true) {
                Ok(text) => Regex::new(&text).map_or(Self::Unknown, |regex| {
                    let reach = reach(pattern);
                    Self::Expression(Expression { text, regex, reach })
                }),
                Err(_) => Self::Unknown,
            };
            return Some(name);
        }
        let lower = name.to_ascii_lowercase();
        let name = lower.as_str();
        if let Some(start) = name.strip_suffix(".*") {
            return is_host(start).then(|| Self::Start(format!("{start}.")));
        }
        let (domain, is_domain) = match name.strip_prefix("*.") {
            Some(domain) => (domain, true),
            None => (name, false),
        };
        let host = match is_domain {
            true => Host::Below(domain.to_owned()),
            false => Host::Exact(domain.to_owned()),
        };
        is_host(domain).then_some(Self::Host(host))
    }

    /// Returns the hosts of the name that are sites of their own.
    pub(super) fn hosts(&self) -> Vec<Host> {
        match self {
            Self::Host(host) => vec![host.clone()],
            Self::Start(_) | Self::Unknown => Vec::new(),
            Self::Expression(expression) => {
                let Reach { hosts, domains, .. } = &expression.reach;
                let domains = domains.iter().map(|(domain, _)| domain.clone());
                let hosts = hosts.iter().cloned().map(Host::Exact);
                hosts.chain(domains.map(Host::Below)).collect()
            }
        }
    }

    /// Returns the expression of the edge for hosts for which the name holds sometimes.
    pub(super) fn expression(&self) -> Option<String> {
        match self {
            Self::Start(start) => Some(format!("^{}", values::literal_regex(start))),
            Self::Expression(expression) => Some(expression.text.clone()),
            Self::Host(_) | Self::Unknown => None,
        }
    }

    /// Returns whether the name holds for the hosts of a site. Hosts that are sites of their own are not among them.
    pub(super) fn holds(&self, host: &Host) -> Holds {
        let holds = |holds: bool| if holds { Holds::Always } else { Holds::Never };
        match (self, host) {
            (Self::Host(Host::Exact(_) | Host::Below(_)), Host::Other) => Holds::Never,
            (Self::Host(known), _) => holds(known.covers(host)),
            (Self::Start(start), Host::Exact(name)) => holds(name.starts_with(start.as_str())),
            (Self::Start(_) | Self::Unknown, _) => Holds::Sometimes,
            (Self::Expression(expression), Host::Exact(name)) => {
                holds(expression.regex.is_match(name))
            }
            (Self::Expression(Expression { reach, .. }), _) => {
                let mut around = reach.domains.iter().filter(|(domain, _)| {
                    *host != Host::Other && Host::Below(domain.clone()).covers(host)
                });
                match (around.clone().any(|(_, is_all)| *is_all), reach.is_open) {
                    (true, _) => Holds::Always,
                    (false, true) => Holds::Sometimes,
                    (false, false) if around.next().is_some() => Holds::Sometimes,
                    (false, false) => Holds::Never,
                }
            }
        }
    }
}

/// Returns true if a text may be the host of a site of the edge.
fn is_host(text: &str) -> bool {
    let is_name = |text: &str| {
        !text.is_empty()
            && !text.starts_with('.')
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
    };
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    text.len() <= 255
        && (is_name(text) || inner.is_some_and(|t| t.parse::<core::net::Ipv6Addr>().is_ok()))
}

/// A part of the texts that an expression matches.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// Any text may stand here. `is_all` is false if some texts do not match.
    Open {
        is_all: bool,
    },
}

/// One alternative of an expression.
type Sequence = Vec<Piece>;

/// The most alternatives of an expression that become hosts of their own.
const ALTERNATIVES_MAX: usize = 32;

/// Returns the hosts that an expression may match.
fn reach(pattern: &str) -> Reach {
    let open = Reach {
        is_open: true,
        ..Reach::default()
    };
    let Some(branches) = values::split_branches(pattern) else {
        return open;
    };
    let mut reach = Reach::default();
    for branch in branches {
        let Some(sequences) = anchored(branch) else {
            return open;
        };
        for sequence in sequences {
            reach.add(&sequence);
        }
    }
    match reach.hosts.len() + reach.domains.len() > ALTERNATIVES_MAX {
        true => open,
        false => reach,
    }
}

impl Reach {
    fn add(&mut self, sequence: &[Piece]) {
        match sequence {
            [Piece::Text(name)] => {
                // A text that is no host matches no request.
                let name = name.to_ascii_lowercase();
                if is_host(&name) && !self.hosts.contains(&name) {
                    self.hosts.push(name);
                }
            }
            [.., Piece::Open { is_all }, Piece::Text(end)] => {
                let domain = end.strip_prefix('.').map(str::to_ascii_lowercase);
                match domain.filter(|domain| is_host(domain)) {
                    Some(domain) => {
                        let is_all = *is_all && sequence.len() == 2;
                        self.domains.push((domain, is_all));
                    }
                    None => self.is_open = true,
                }
            }
            [] => {}
            _ => self.is_open = true,
        }
    }
}

/// Returns the alternatives of a branch with its anchors. `None` if they are unknown.
fn anchored(branch: &str) -> Option<Vec<Sequence>> {
    let (inner, is_start) = match branch.strip_prefix('^') {
        Some(inner) => (inner, true),
        None => (branch, false),
    };
    let is_end = inner.ends_with('$') && !inner.ends_with("\\$");
    let inner = if is_end {
        &inner[..inner.len() - 1]
    } else {
        inner
    };
    let mut sequences = vec![Vec::new()];
    if !is_start {
        sequences = product(&sequences, &[vec![Piece::Open { is_all: true }]])?;
    }
    sequences = product(&sequences, &alternatives(inner, 0)?)?;
    if !is_end {
        sequences = product(&sequences, &[vec![Piece::Open { is_all: true }]])?;
    }
    Some(sequences)
}

/// The deepest nesting of groups that is divided into alternatives.
const DEPTH_MAX: usize = 8;

/// Returns the alternatives of an expression without anchors. `None` if they are unknown or too many.
fn alternatives(pattern: &str, depth: usize) -> Option<Vec<Sequence>> {
    if depth > DEPTH_MAX {
        return None;
    }
    let mut all = Vec::new();
    for branch in values::split_branches(pattern)? {
        all.extend(sequences(branch, depth)?);
        if all.len() > ALTERNATIVES_MAX {
            return None;
        }
    }
    Some(all)
}

/// Returns the alternatives of a branch.
fn sequences(branch: &str, depth: usize) -> Option<Vec<Sequence>> {
    const OPEN: Piece = Piece::Open { is_all: false };
    let mut all: Vec<Sequence> = vec![Vec::new()];
    let mut rest = branch;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        let (atom, is_any) = match c {
            '(' => {
                let end = group_end(rest)?;
                let inner = &rest[..end];
                rest = &rest[end + 1..];
                (alternatives(group_body(inner)?, depth + 1)?, false)
            }
            '[' => {
                let end = rest.find(']')?;
                let class = &rest[..end];
                rest = &rest[end + 1..];
                match class {
                    "." | "\\." => (vec![vec![Piece::Text(".".to_owned())]], false),
                    // The bracket or the class may end later.
                    "" | "^" => return None,
                    _ if class.contains('[') || class.ends_with('\\') => return None,
                    _ => (vec![vec![OPEN]], false),
                }
            }
            '\\' => {
                let escaped = rest.chars().next()?;
                rest = &rest[escaped.len_utf8()..];
                match escaped {
                    'd' | 'w' | 'D' | 'W' | 's' | 'S' => (vec![vec![OPEN]], false),
                    c if c.is_ascii_alphanumeric() => return None,
                    c => (vec![vec![Piece::Text(c.to_string())]], false),
                }
            }
            '.' => (vec![vec![OPEN]], true),
            // `split_branches` misses a `|` between classes with single parentheses.
            '^' | '$' | '*' | '+' | '?' | '{' | ')' | ']' | '|' => return None,
            c => (vec![vec![Piece::Text(c.to_string())]], false),
        };
        let (atom, after) = repeated(atom, is_any, rest)?;
        rest = after;
        all = product(&all, &atom)?;
    }
    Some(all)
}

/// Returns an atom with the repetition behind it, and the text behind that.
fn repeated(atom: Vec<Sequence>, is_any: bool, rest: &str) -> Option<(Vec<Sequence>, &str)> {
    let open = |is_all| vec![vec![Piece::Open { is_all }]];
    let (atom, rest) = match rest.chars().next() {
        Some('?') => {
            let mut atom = atom;
            atom.push(Vec::new());
            (atom, &rest[1..])
        }
        Some('*' | '+') => (open(is_any), &rest[1..]),
        Some('{') => (open(false), &rest[rest.find('}')? + 1..]),
        _ => return Some((atom, rest)),
    };
    // A lazy or possessive repetition matches the same texts, or fewer.
    Some((atom, rest.strip_prefix(['?', '+']).unwrap_or(rest)))
}

/// Returns the length of the text of a group.
fn group_end(text: &str) -> Option<usize> {
    let (mut depth, mut is_escaped) = (0_usize, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Returns the expression of a group without its name.
fn group_body(group: &str) -> Option<&str> {
    let Some(options) = group.strip_prefix('?') else {
        return Some(group);
    };
    if let Some(body) = options.strip_prefix(':') {
        return Some(body);
    }
    let named = options
        .strip_prefix('P')
        .unwrap_or(options)
        .strip_prefix('<')?;
    let (name, body) = named.split_once('>')?;
    let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (is_name && !name.is_empty()).then_some(body)
}

/// Returns each sequence of one list followed by each of another. `None` if these are too many.
fn product(first: &[Sequence], second: &[Sequence]) -> Option<Vec<Sequence>> {
    if first.len() * second.len() > ALTERNATIVES_MAX {
        return None;
    }
    let mut all = Vec::with_capacity(first.len() * second.len());
    for start in first {
        for end in second {
            let mut sequence = start.clone();
            for piece in end {
                match (sequence.last_mut(), piece) {
                    (Some(Piece::Text(text)), Piece::Text(more)) => text.push_str(more),
                    (_, piece) => sequence.push(piece.clone()),
                }
            }
            all.push(sequence);
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn described(pattern: &str) -> String {
        let Reach {
            hosts,
            domains,
            is_open,
        } = reach(pattern);
        let domains = domains.iter().map(|(domain, is_all)| {
            let sign = if *is_all { "" } else { "~" };
            format!("{sign}*.{domain}")
        });
        let rest = is_open.then(|| "?".to_owned());
        let all: Vec<String> = hosts.into_iter().chain(domains).chain(rest).collect();
        all.join(" ")
    }

    #[test]
    fn expressions_become_hosts_and_domains_as_far_as_they_name_them() {
        for (pattern, expected) in [
            (r"^(www\.)?ex\.com$", "www.ex.com ex.com"),
            (r"^(a|b)\.(c|d)$", "a.c a.d b.c b.d"),
            (r"^a\.b$|^c\.d$", "a.b c.d"),
            (r"^(?<sub>.+)\.d$", "*.d"),
            (r"^(?:.*\.)?d\.e$", "d.e *.d.e"),
            (r"^(?P<sub>[^.]+)\.d$", "~*.d"),
            (r"^(?<user>\w+)[.]d\.e$", "~*.d.e"),
            (r"^api-\d+\.d$", "~*.d"),
            (r"\.d$", "*.d"),
            (r"^WWW\.D$", "www.d"),
            (r"^(www\.)?(.+)$", "?"),
            (r"d\.e$", "?"),
            (r"^d\.e", "?"),
            (r"(^|\.)d\.e$", "?"),
            (r"^a.d$", "?"),
            (r"^(a{2}|b)\.d$", "b.d ~*.d"),
            (r"^[a-d]x\.d$", "?"),
            (r"^[(a]x\.d|y[)b]\.d$", "?"),
        ] {
            assert_eq!(described(pattern), expected, "{pattern}");
        }
        let many = format!(
            "^({})$",
            (0..33).map(|n| n.to_string()).collect::<Vec<_>>().join("|")
        );
        assert_eq!(described(&many), "?");
    }

    #[test]
    fn a_name_that_no_request_has_is_refused() {
        for name in [
            "a:80",
            "http://a",
            "a b",
            "*.",
            ".*",
            "$hostname",
            "a.*.b",
            "",
        ] {
            assert!(ServerName::parse(name).is_none(), "{name}");
        }
        assert!(matches!(
            ServerName::parse("~(?!a)b"),
            Some(ServerName::Unknown)
        ));
    }

    /// Expressions of a grammar with all that the division knows, and some that it does not.
    fn expressions() -> impl Strategy<Value = String> {
        let atom = prop::sample::select(vec![
            "a",
            "b",
            r"\.",
            ".",
            "[.]",
            "[ab]",
            r"\w",
            "(a|b)",
            r"(?<n>a\.)",
            "(.+)",
            "(a|.)",
            "(|b)",
        ]);
        let repetition = prop::sample::select(vec!["", "", "", "?", "+", "*", "{1,2}", "??"]);
        let branch = (
            any::<bool>(),
            prop::collection::vec((atom, repetition), 1..5),
            any::<bool>(),
        );
        let branch = branch.prop_map(|(start, atoms, end)| {
            let atoms: String = atoms.iter().map(|(a, r)| format!("{a}{r}")).collect();
            let (start, end) = (if start { "^" } else { "" }, if end { "$" } else { "" });
            format!("{start}{atoms}{end}")
        });
        prop::collection::vec(branch, 1..3).prop_map(|branches| branches.join("|"))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        /// A host that the expression matches is one of its hosts or domains, unless it is open. Each host below a
        /// domain with all hosts matches.
        #[test]
        fn hosts_and_domains_are_those_that_the_expression_matches(
            pattern in expressions(),
            host in r"[ab]{1,2}(\.[ab]{1,2}){0,2}",
        ) {
            let Ok(regex) = Regex::new(&pattern) else { return Ok(()) };
            let Reach { hosts, domains, is_open } = reach(&pattern);
            let below = |domain: &str| Host::Below(domain.to_owned()).covers(&Host::Exact(host.clone()));
            let is_known = is_open
                || hosts.contains(&host)
                || domains.iter().any(|(domain, _)| below(domain));
            if regex.is_match(&host) {
                prop_assert!(is_known, "{pattern} {host}");
            } else {
                prop_assert!(!hosts.contains(&host), "{pattern} {host}");
                let is_all = domains.iter().any(|(domain, is_all)| *is_all && below(domain));
                prop_assert!(!is_all, "{pattern} {host}");
            }
        }
    }
}
