//! Matchers of a Caddyfile as conditions of rules.
//!
//! A condition holds for the same requests as its matcher, with two exceptions that are recorded: it may hold for more
//! requests ([`Condition::difference`]), and if it is unknown, its [`bound`](Unknown::bound) holds for more.

use super::order::Matched;
use super::paths;
use super::state::{METHOD, Proxies, Site};
use super::tree::{Directive, each};
use crate::decision::Decision;
use crate::hosts::{Host, Reason};
use crate::report::Effect;
use crate::rule::When;
use crate::values::{is_field_name, is_network, wider_globs};

/// When something holds.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    pub(super) decision: Decision<bool>,
    /// The difference from the matcher, if the condition also holds for requests for which the matcher does not. Such a
    /// condition serves to deny requests, and to nothing else.
    pub(super) difference: Option<&'static str>,
}

/// A matcher that rules cannot state.
#[derive(Clone, Debug)]
pub(super) struct Unknown {
    pub(super) reason: Reason,
    /// A set that contains all requests for which the matcher holds.
    pub(super) bound: Decision<bool>,
}

impl From<Decision<bool>> for Condition {
    fn from(decision: Decision<bool>) -> Self {
        Self {
            decision,
            difference: None,
        }
    }
}

impl From<Reason> for Unknown {
    fn from(reason: Reason) -> Self {
        Self {
            reason,
            bound: Decision::always(true),
        }
    }
}

/// Networks of private addresses, which `private_ranges` stands for.
pub(super) const PRIVATE_RANGES: [&str; 6] = [
    "192.168.0.0/16",
    "172.16.0.0/12",
    "10.0.0.0/8",
    "127.0.0.1/8",
    "fd00::/8",
    "::1",
];

const PATTERNS: &str = "the value is compared with wider patterns, so more requests are denied";
const NAMES_ALONE: &str =
    "the name of the query parameter is compared, and not its value, so more requests are denied";

impl Site<'_, '_> {
    /// Returns the condition of the matcher of a directive. `path` are the requests of the block around it.
    pub(super) fn condition(
        &self,
        directive: &Directive,
        path: &Decision<bool>,
    ) -> Result<Condition, Unknown> {
        let Some(matcher) = directive.matcher() else {
            return Ok(Decision::always(true).into());
        };
        if !matcher.starts_with('@') {
            if matcher != "*" {
                self.has_sent_path(path)?;
            }
            return Ok(paths::condition(&[matcher.to_owned()], &self.prefix)?.into());
        }
        let named = self
            .matchers
            .get(matcher)
            .ok_or_else(|| format!("there is no matcher {matcher}"))?;
        let condition = match named.args.is_empty() {
            true => self.all(named.inner(), path),
            // `@name path /a`, without a block.
            false => self.all(&[inline(named)], path),
        };
        let ledger = &self.translator.ledger;
        match &condition {
            Ok(condition) => {
                let note = |directive: &Directive| match condition.difference {
                    Some(text) => ledger.differs(directive, Effect::Response, text),
                    None => ledger.translated(directive, "conditions of rules"),
                };
                note(named);
                each(named.inner(), &mut |inner| note(inner));
            }
            Err(unknown) => {
                ledger.left_out(*named, Effect::Operation, &unknown.reason);
                each(named.inner(), &mut |inner| {
                    ledger.left_out(inner, Effect::Operation, &unknown.reason);
                });
            }
        }
        condition
    }

    /// Returns the part of the matcher of a directive on which Caddy's order depends.
    pub(super) fn matched(&self, directive: &Directive) -> Matched {
        let Some(matcher) = directive.matcher().filter(|matcher| *matcher != "*") else {
            return Matched::All;
        };
        if !matcher.starts_with('@') {
            return Matched::Path(matcher.to_owned());
        }
        let Some(named) = self.matchers.get(matcher) else {
            return Matched::Other;
        };
        let paths: Vec<&String> = match named.arg(0) {
            "path" => named.args[1..].iter().collect(),
            _ => {
                let lines = named.inner().iter().filter(|line| line.name == "path");
                lines.flat_map(|line| &line.args).collect()
            }
        };
        match paths[..] {
            [path] => Matched::Path(path.clone()),
            _ => Matched::Other,
        }
    }

    /// Joins matchers, all of which must match. Those of one field are alternatives.
    fn all(&self, matchers: &[Directive], path: &Decision<bool>) -> Result<Condition, Unknown> {
        let mut joined = Condition::from(Decision::always(true));
        let mut reason: Option<Reason> = None;
        let lines = self.joined_lines(matchers)?;
        for matcher in lines {
            let both = self.one(&matcher, path).and_then(|one| {
                joined.decision = self.translator.both(&joined.decision, &one.decision)?;
                joined.difference = joined.difference.or(one.difference);
                Ok(())
            });
            reason = reason.or_else(|| both.err());
        }
        match reason {
            None => Ok(joined),
            Some(reason) => Err(Unknown {
                reason,
                bound: joined.decision,
            }),
        }
    }

    /// Joins the lines of one matcher that Caddy reads as alternatives.
    fn joined_lines(&self, lines: &[Directive]) -> Result<Vec<Directive>, Unknown> {
        let mut joined: Vec<Directive> = Vec::new();
        for line in lines {
            self.translator.spend(1 + joined.len())?;
            let name = line.name.as_str();
            let is_of_field = matches!(name, "header" | "header_regexp");
            let fields = line.args.len().saturating_sub(2);
            let field = match name {
                "header_regexp" => line.arg(fields),
                _ => line.arg(0),
            };
            let is_same = |known: &&mut Directive| {
                known.name == name && (!is_of_field || known.arg(0).eq_ignore_ascii_case(field))
            };
            let mut line = line.clone();
            if name == "header_regexp" {
                line.args.drain(..fields);
            }
            match joined.iter_mut().find(is_same) {
                _ if name == "not" => joined.push(line),
                None => joined.push(line),
                Some(known) => match (name, line.args.len()) {
                    ("header", 2) => known.args.extend(line.args.drain(1..)),
                    ("path" | "method" | "host" | "remote_ip" | "client_ip" | "query", _) => {
                        known.args.extend(line.args);
                    }
                    _ => return Err(format!("several lines {name} of one matcher").into()),
                },
            }
        }
        Ok(joined)
    }

    fn one(&self, matcher: &Directive, path: &Decision<bool>) -> Result<Condition, Reason> {
        let args = &matcher.args;
        self.translator.spend(args.len())?;
        let when = |when: When| Condition::from(Decision::when(when));
        match matcher.name.as_str() {
            "path" => {
                self.has_sent_path(path)?;
                Ok(paths::condition(args, &self.prefix)?.into())
            }
            "path_regexp" => {
                self.has_sent_path(path)?;
                let pattern = args.last().ok_or("path_regexp without an expression")?;
                let regex = paths::regex(pattern, &self.prefix)?;
                Ok(paths::matching(regex).into())
            }
            "method" if self.changed_fields.contains(METHOD) => Err(
                "a directive in front of it changes the method, and rules compare that of the client"
                    .to_owned(),
            ),
            "method" => {
                let is_method = |text: &String| {
                    !text.is_empty() && text.bytes().all(|b| b.is_ascii_uppercase())
                };
                match !args.is_empty() && args.iter().all(is_method) {
                    true => Ok(when(When {
                        methods: args.clone(),
                        ..When::default()
                    })),
                    false => Err("methods are compared in upper case".to_owned()),
                }
            }
            "protocol" if self.translator.proxies != Proxies::Untrusted => Err(
                "with trusted_proxies, the scheme of a request is the one that they state"
                    .to_owned(),
            ),
            "protocol" => match matcher.arg(0) {
                "http" => Ok(scheme("http").into()),
                "https" => Ok(scheme("https").into()),
                other => Err(format!("rules have no condition for the protocol {other}")),
            },
            "host" if self.changed_fields.contains("host") => Err(
                "a directive in front of it changes the host, and rules compare that of the client"
                    .to_owned(),
            ),
            "host" => {
                let mut holds = false;
                for name in args {
                    holds |= self.is_host(name)?;
                }
                Ok(Decision::always(holds).into())
            }
            "remote_ip" | "client_ip" => self.client(matcher),
            "header" => self.header(matcher),
            "header_regexp" => self.header_regexp(matcher),
            "query" => {
                // A directive that replaces the path may replace the query.
                self.has_sent_path(path)?;
                let [arg] = &args[..] else {
                    return Err(
                        "rules compare one parameter, and Caddy needs all of these".to_owned()
                    );
                };
                let (name, value) = arg.split_once('=').ok_or("a query is NAME=VALUE")?;
                let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
                if name.is_empty() || !name.chars().all(is_name) {
                    return Err(format!("{name} is not the name of a parameter"));
                }
                let mut condition = when(When {
                    parameters: vec![name.to_owned()],
                    ..When::default()
                });
                condition.difference = (value != "*").then_some(NAMES_ALONE);
                Ok(condition)
            }
            // The edge finds a name in more queries than Caddy: in `x=1;name=2` and `name[]=2`, too.
            "not" if matcher.arg(0) == "query" || has_query(matcher.inner()) => Err(
                "the edge finds parameters in more queries, so the condition cannot be negated"
                    .to_owned(),
            ),
            "not" => {
                let inner = match matcher.args.is_empty() {
                    true => self.all(matcher.inner(), path),
                    false => self.all(&[inline(matcher)], path),
                };
                let inner = inner.map_err(|unknown| unknown.reason)?;
                match inner.difference {
                    None => Ok(inner.decision.not().into()),
                    Some(_) => Err(
                        "the condition holds for more requests than the matcher, so it cannot be negated"
                            .to_owned(),
                    ),
                }
            }
            other => Err(format!("rules have no condition for the matcher {other}")),
        }
    }

    /// Returns true if a name of the matcher `host` is that of the site.
    fn is_host(&self, name: &str) -> Result<bool, Reason> {
        let name = name.to_ascii_lowercase();
        let plain = name.strip_prefix("*.").unwrap_or(&name);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if plain.is_empty() || !plain.chars().all(is_plain) {
            return Err(format!("{name} is not a host or a domain"));
        }
        Ok(match (self.host, name.strip_prefix("*.")) {
            (Host::Exact(host), None) => host.eq_ignore_ascii_case(&name),
            // Caddy's `*` is one label.
            (Host::Exact(host), Some(domain)) => host
                .split_once('.')
                .is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(domain)),
            (Host::Below(host), Some(domain)) => host == domain,
            // A host that a matcher names has a site of its own.
            _ => false,
        })
    }

    fn client(&self, matcher: &Directive) -> Result<Condition, Reason> {
        let is_known = match self.translator.proxies {
            Proxies::Untrusted => true,
            Proxies::Server => matcher.name == "client_ip",
            Proxies::Other => false,
        };
        if !is_known {
            return Err(format!(
                "with trusted_proxies, rules compare the address that they state, and {} another one",
                matcher.name
            ));
        }
        let mut clients: Vec<String> = Vec::new();
        for arg in &matcher.args {
            match arg.as_str() {
                "private_ranges" => clients.extend(PRIVATE_RANGES.map(str::to_owned)),
                network if is_network(network) => clients.push(network.to_owned()),
                other => return Err(format!("{other} is not a network")),
            }
        }
        match clients.is_empty() {
            true => Err(format!("{} without a network", matcher.name)),
            false => Ok(Decision::when(When {
                clients,
                ..When::default()
            })
            .into()),
        }
    }

    fn header(&self, matcher: &Directive) -> Result<Condition, Reason> {
        let (field, values) = match &matcher.args[..] {
            [field] if field.starts_with('!') => {
                let any = vec!["*".to_owned()];
                return Ok(self.with_field(&field[1..], any)?.decision.not().into());
            }
            [field, values @ ..] if !values.is_empty() && !field.starts_with('!') => {
                (field, values)
            }
            _ => return Err("a header has one field and one value".to_owned()),
        };
        for value in values {
            let inner = value.strip_prefix('*').unwrap_or(value);
            let inner = inner.strip_suffix('*').unwrap_or(inner);
            if inner.contains(['*', '{']) {
                return Err(format!(
                    "the value {value} has a placeholder, or a * that is not at its start or end"
                ));
            }
        }
        self.with_field(field, values.to_vec())
    }

    fn header_regexp(&self, matcher: &Directive) -> Result<Condition, Reason> {
        let [.., field, pattern] = &matcher.args[..] else {
            return Err("header_regexp without a field".to_owned());
        };
        let is_plain = |c: char| c.is_ascii() && !c.is_ascii_control();
        let globs = wider_globs(pattern)
            .filter(|_| pattern.chars().all(is_plain) && !pattern.contains("(?"))
            .ok_or_else(|| format!("rules have no condition for {field} with {pattern}"))?;
        let mut condition = self.with_field(field, globs)?;
        condition.difference = (!is_literal(pattern)).then_some(PATTERNS);
        Ok(condition)
    }

    fn with_field(&self, field: &str, values: Vec<String>) -> Result<Condition, Reason> {
        let lower = field.to_ascii_lowercase();
        if self.changed_fields.contains(&lower) {
            return Err(format!(
                "a directive in front of it changes {field}, and rules compare the field of the client"
            ));
        }
        match is_field_name(field) && lower != "host" && !values.is_empty() {
            true => Ok(Decision::when(When {
                headers: [(lower, values)].into(),
                ..When::default()
            })
            .into()),
            false => Err(format!("rules have no condition for the field {field}")),
        }
    }
}

/// Returns true if a matcher, or one that it negates, compares a parameter.
fn has_query(lines: &[Directive]) -> bool {
    let is_of_query = |line: &Directive| {
        line.name == "query" || line.arg(0) == "query" || has_query(line.inner())
    };
    lines.iter().any(is_of_query)
}

/// Returns the matcher behind the first word of a line.
fn inline(line: &Directive) -> Directive {
    Directive {
        name: line.arg(0).to_owned(),
        args: line.args[1..].to_vec(),
        ..line.clone()
    }
}

/// Returns true if the globs of an expression match the same texts: it has literal texts, `.*`, and `|` between them.
fn is_literal(pattern: &str) -> bool {
    let inner = pattern
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'))
        .unwrap_or(pattern);
    inner.split('|').all(|branch| {
        let branch = branch.strip_prefix('^').unwrap_or(branch);
        let branch = branch.strip_suffix('$').unwrap_or(branch);
        let plain = branch.replace(".*", "").replace("\\.", "");
        !plain.contains([
            '.', '\\', '*', '+', '?', '[', ']', '(', ')', '{', '}', '^', '$',
        ])
    })
}

pub(super) fn scheme(scheme: &'static str) -> Decision<bool> {
    Decision::when(When {
        scheme: Some(scheme),
        ..When::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_of_literal_texts_has_the_same_globs() {
        for (pattern, expected) in [
            ("abc", true),
            ("^abc$", true),
            ("(a|b_c)", true),
            ("^a.*b$", true),
            (r"a\.b", true),
            ("a.b", false),
            ("a[0-9]", false),
            ("ab?", false),
            ("^(a|b)$", false),
            (r"a\d", false),
        ] {
            assert_eq!(is_literal(pattern), expected, "{pattern}");
        }
    }
}
