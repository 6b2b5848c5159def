//! Matchers of a Caddyfile as conditions of rules.

use super::state::Site;
use super::tree::Directive;
use crate::decision::Decision;
use crate::hosts::{Host, Reason};
use crate::ledger::Node as _;
use crate::report::Effect;
use crate::rule::When;
use crate::values::{self, is_field_name, is_network, wider_globs};

/// When something holds.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    pub(super) decision: Decision<bool>,
    /// The difference from the matcher.
    pub(super) difference: Option<&'static str>,
}

impl From<Decision<bool>> for Condition {
    fn from(decision: Decision<bool>) -> Self {
        Self {
            decision,
            difference: None,
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

const SPELLINGS: &str = "the value is compared with patterns, in the usual cases of their letters";
const NAMES_ALONE: &str = "the names of query parameters are compared, and not their values";

impl Site<'_, '_> {
    /// Returns the condition of the matcher of a directive.
    pub(super) fn condition(&self, directive: &Directive) -> Result<Condition, Reason> {
        let Some(matcher) = directive.matcher() else {
            return Ok(Decision::always(true).into());
        };
        match matcher.strip_prefix('@') {
            None => Ok(paths(&[matcher.to_owned()])?.into()),
            Some(_) => {
                let named = self
                    .matchers
                    .get(matcher)
                    .ok_or_else(|| format!("there is no matcher {matcher}"))?;
                let condition = self.named(named);
                let ledger = &self.translator.ledger;
                match &condition {
                    Ok(condition) => {
                        let note = |directive: &Directive| match condition.difference {
                            Some(text) => ledger.differs(directive, Effect::Response, text),
                            None => ledger.translated(directive, "conditions of rules"),
                        };
                        note(named);
                        every(named.children(), &mut |inner| note(inner));
                    }
                    Err(reason) => {
                        ledger.left_out(*named, Effect::Operation, reason);
                        every(named.children(), &mut |inner| {
                            ledger.left_out(inner, Effect::Operation, reason);
                        });
                    }
                }
                condition
            }
        }
    }

    fn named(&self, named: &Directive) -> Result<Condition, Reason> {
        if named.args.is_empty() {
            return self.all(named.inner());
        }
        // `@name path /a`, without a block.
        let inline = Directive {
            name: named.arg(0).to_owned(),
            args: named.args[1..].to_vec(),
            ..named.clone()
        };
        self.all(std::slice::from_ref(&inline))
    }

    /// Joins matchers, all of which must match. Those of one field are alternatives.
    fn all(&self, matchers: &[Directive]) -> Result<Condition, Reason> {
        let mut joined = Condition::from(Decision::always(true));
        let mut seen: Vec<String> = Vec::new();
        for (position, matcher) in matchers.iter().enumerate() {
            let group = match matcher.name.as_str() {
                "header" => format!("header {}", matcher.arg(0).to_ascii_lowercase()),
                name @ ("path" | "method" | "host" | "remote_ip" | "client_ip" | "query") => {
                    name.to_owned()
                }
                name => format!("{name} {position}"),
            };
            if seen.contains(&group) {
                return Err(format!(
                    "several lines {group} of one matcher; write their values in one line"
                ));
            }
            seen.push(group);
            let one = self.one(matcher)?;
            joined.decision = joined.decision.and(&one.decision)?;
            joined.difference = joined.difference.or(one.difference);
        }
        Ok(joined)
    }

    fn one(&self, matcher: &Directive) -> Result<Condition, Reason> {
        let args = &matcher.args;
        let when = |when: When| Condition::from(Decision::when(when));
        match matcher.name.as_str() {
            "path" => Ok(paths(args)?.into()),
            "path_regexp" => {
                let pattern = args.last().ok_or("path_regexp without an expression")?;
                Ok(when(When {
                    regexes: vec![values::regex(pattern, false)?],
                    ..When::default()
                }))
            }
            "method" => Ok(when(When {
                methods: args.clone(),
                ..When::default()
            })),
            "protocol" => match matcher.arg(0) {
                "http" => Ok(scheme("http").into()),
                "https" => Ok(scheme("https").into()),
                other => Err(format!("rules have no condition for the protocol {other}")),
            },
            "host" => {
                let mut holds = false;
                for name in args {
                    holds |= match (self.host, name.strip_prefix("*.")) {
                        (Host::Exact(host), None) => host.eq_ignore_ascii_case(name),
                        (Host::Exact(host), Some(domain)) => host
                            .strip_suffix(domain)
                            .is_some_and(|rest| rest.ends_with('.')),
                        (Host::Below(host), Some(domain)) => host == domain,
                        // A host that a matcher names has a site of its own.
                        _ => false,
                    };
                }
                Ok(Decision::always(holds).into())
            }
            "remote_ip" | "client_ip" => {
                let mut clients: Vec<String> = Vec::new();
                for arg in args {
                    match arg.as_str() {
                        "private_ranges" => clients.extend(PRIVATE_RANGES.map(str::to_owned)),
                        network if is_network(network) => clients.push(network.to_owned()),
                        other => return Err(format!("{other} is not a network")),
                    }
                }
                Ok(when(When {
                    clients,
                    ..When::default()
                }))
            }
            "header" => self.header(matcher),
            "header_regexp" => {
                let [.., field, pattern] = &args[..] else {
                    return Err("header_regexp without a field".to_owned());
                };
                let (pattern, ignores_case) = match pattern.strip_prefix("(?i)") {
                    Some(rest) => (rest, true),
                    None => (pattern.as_str(), false),
                };
                let globs = wider_globs(pattern)
                    .ok_or_else(|| format!("rules have no condition for {field} with {pattern}"))?;
                let globs = match ignores_case {
                    true => values::spellings(globs),
                    false => globs,
                };
                let mut condition = match field.eq_ignore_ascii_case("cookie") {
                    true => when(When {
                        cookies: globs,
                        ..When::default()
                    }),
                    false => with_field(field, globs)?,
                };
                condition.difference = Some(SPELLINGS);
                Ok(condition)
            }
            "query" => {
                let mut difference = None;
                let mut parameters = Vec::new();
                for arg in args {
                    let (name, value) = arg.split_once('=').unwrap_or((arg, "*"));
                    if value != "*" {
                        difference = Some(NAMES_ALONE);
                    }
                    parameters.push(name.to_owned());
                }
                let mut condition = when(When {
                    parameters,
                    ..When::default()
                });
                condition.difference = difference;
                Ok(condition)
            }
            "not" => {
                let inner = match matcher.args.is_empty() {
                    true => self.all(matcher.inner())?,
                    false => {
                        let inline = Directive {
                            name: matcher.arg(0).to_owned(),
                            args: matcher.args[1..].to_vec(),
                            ..matcher.clone()
                        };
                        self.one(&inline)?
                    }
                };
                Ok(Condition {
                    decision: inner.decision.not(),
                    difference: inner.difference,
                })
            }
            other => Err(format!("rules have no condition for the matcher {other}")),
        }
    }

    fn header(&self, matcher: &Directive) -> Result<Condition, Reason> {
        let field = matcher.arg(0);
        if let Some(field) = field.strip_prefix('!') {
            return Ok(Condition::from(
                with_field(field, vec!["*".to_owned()])?.decision.not(),
            ));
        }
        let values: Vec<String> = match matcher.args.len() {
            1 => vec!["*".to_owned()],
            _ => matcher.args[1..].to_vec(),
        };
        with_field(field, values)
    }
}

fn with_field(field: &str, values: Vec<String>) -> Result<Condition, Reason> {
    match is_field_name(field) && !values.is_empty() {
        true => Ok(Decision::when(When {
            headers: [(field.to_owned(), values)].into(),
            ..When::default()
        })
        .into()),
        false => Err(format!("{field} is not the name of a field")),
    }
}

pub(super) fn scheme(scheme: &'static str) -> Decision<bool> {
    Decision::when(When {
        scheme: Some(scheme),
        ..When::default()
    })
}

/// Returns the condition for paths. `*` alone stands for all.
fn paths(patterns: &[String]) -> Result<Decision<bool>, Reason> {
    if patterns
        .iter()
        .any(|pattern| matches!(pattern.as_str(), "*" | "/*"))
    {
        return Ok(Decision::always(true));
    }
    let is_path = |pattern: &&String| pattern.starts_with(['/', '*']) && !pattern.contains('{');
    match patterns.iter().find(|pattern| !is_path(pattern)) {
        None if !patterns.is_empty() => Ok(Decision::when(When {
            paths: patterns.to_vec(),
            ..When::default()
        })),
        other => Err(format!(
            "{} is not a path",
            other.map_or("", String::as_str)
        )),
    }
}

fn every(directives: &[Directive], visit: &mut dyn FnMut(&Directive)) {
    for directive in directives {
        visit(directive);
        every(directive.inner(), visit);
    }
}
