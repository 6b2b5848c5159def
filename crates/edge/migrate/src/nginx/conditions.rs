//! Conditions: `if`, `map`, `geo`, `set`, and variables whose value decides about a request.

use regex::Regex;

use super::parse::Directive;
use super::scope::Scope;
use super::translator::Translator;
use crate::hosts::{Cond, Host, Reason};
use crate::rule::When;
use crate::values::{self, Part, literal_branches, parts, spellings, wider_globs};

/// A condition, and how close it is to that of nginx.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) cond: Cond,
    /// Why the condition is not exactly that of nginx. It may hold for more requests, or compare another case of
    /// letters.
    pub(super) difference: Option<String>,
}

impl From<Cond> for Condition {
    fn from(cond: Cond) -> Self {
        Self {
            cond,
            difference: None,
        }
    }
}

/// The value of a variable while a condition holds. If several conditions hold, the last value counts.
#[derive(Clone, Debug)]
pub(super) struct Assignment {
    pub(super) condition: Condition,
    pub(super) value: String,
}

/// The server and the host for which conditions are evaluated.
#[derive(Clone, Copy)]
pub(super) struct Env<'a, 't> {
    pub(super) translator: &'a Translator<'t>,
    pub(super) scope: &'a Scope<'t>,
    pub(super) host: &'a Host,
    /// True if the rules have a condition on the host already.
    pub(super) has_host_regex: bool,
}

/// Returns true if nginx takes a value for true.
pub(super) fn is_true(value: &str) -> bool {
    !value.is_empty() && value != "0"
}

impl<'t> Env<'_, 't> {
    /// Returns the condition of an `if`.
    pub(super) fn condition(&self, directive: &'t Directive) -> Result<Condition, Reason> {
        let mut tokens: Vec<&str> = directive.args.iter().map(String::as_str).collect();
        if let Some(first) = tokens.first_mut() {
            *first = first.strip_prefix('(').unwrap_or(first);
        }
        if let Some(last) = tokens.last_mut() {
            *last = last.strip_suffix(')').unwrap_or(last);
        }
        if tokens.first() == Some(&"") {
            tokens.remove(0);
        }
        if tokens.len().is_multiple_of(2) && tokens.last() == Some(&"") {
            tokens.pop();
        }
        match tokens[..] {
            [variable] => self.holds(variable, is_true),
            [variable, op, ref literal @ ..] => self.compare(variable, op, &literal.join(" ")),
            _ => Err("the condition has no variable".to_owned()),
        }
    }

    /// Returns when the value of a variable satisfies a test.
    pub(super) fn holds(
        &self,
        variable: &str,
        test: impl Fn(&str) -> bool,
    ) -> Result<Condition, Reason> {
        let mut result = Condition::from(Cond::Never);
        for Assignment { condition, value } in self.assignments(variable)? {
            let holds = test(&value);
            result.difference = result.difference.or(condition.difference);
            result.cond = match (result.cond, condition.cond, holds) {
                (old, Cond::Never, _) => old,
                (_, Cond::Always, true) => Cond::Always,
                (_, Cond::Always, false) => Cond::Never,
                (Cond::Always, _, true) => Cond::Always,
                (Cond::Never, _, false) => Cond::Never,
                (Cond::Never, cond, true) => cond,
                (Cond::Always, cond, false) => cond.negated(),
                (Cond::Any(mut old), Cond::Any(new), true) => {
                    old.extend(
                        new.into_iter()
                            .filter(|when| !old.contains(when))
                            .collect::<Vec<_>>(),
                    );
                    Cond::Any(old)
                }
                (Cond::Not(mut old), Cond::Any(new), false) => {
                    old.extend(new);
                    Cond::Not(old)
                }
                _ => {
                    return Err(format!(
                        "{variable} depends on several conditions that undo each other"
                    ));
                }
            };
        }
        Ok(result)
    }

    /// Returns the values of a variable.
    pub(super) fn assignments(&self, variable: &str) -> Result<Vec<Assignment>, Reason> {
        let name = plain_name(variable)?;
        let when_present = |when: When| {
            let value = |condition: Cond, value: &str| Assignment {
                condition: condition.into(),
                value: value.to_owned(),
            };
            vec![value(Cond::Always, ""), value(Cond::Any(vec![when]), "1")]
        };
        if let Some(cookie) = name.strip_prefix("cookie_") {
            let cookies = vec![cookie.to_owned()];
            return Ok(when_present(When {
                cookies,
                ..When::default()
            }));
        }
        if let Some(parameter) = name.strip_prefix("arg_") {
            let parameters = vec![parameter.to_owned()];
            return Ok(when_present(When {
                parameters,
                ..When::default()
            }));
        }
        if matches!(name, "args" | "query_string" | "is_args") {
            let parameters = vec!["*".to_owned()];
            return Ok(when_present(When {
                parameters,
                ..When::default()
            }));
        }
        if let Some(field) = name.strip_prefix("http_").filter(|field| *field != "host") {
            return Ok(when_present(header(field, vec!["*".to_owned()])));
        }
        if let Some(map) = self.translator.maps.get(name) {
            return self.of_map(map);
        }
        if let Some(geo) = self.translator.geos.get(name) {
            return self.of_geo(geo);
        }
        self.of_set(name)
    }

    /// The values by `set`, in the order of the file.
    fn of_set(&self, name: &str) -> Result<Vec<Assignment>, Reason> {
        let mut found = Vec::new();
        let is_set = |d: &&Directive| d.name == "set" && d.arg(0).strip_prefix('$') == Some(name);
        for directive in self.scope.levels().iter().flat_map(|level| level.iter()) {
            let (sets, condition): (Vec<&Directive>, Condition) = match directive.name.as_str() {
                "set" => (vec![directive], Cond::Always.into()),
                "if" if directive.children().iter().any(|d| is_set(&d)) => (
                    directive.children().iter().collect(),
                    self.condition(directive)?,
                ),
                _ => continue,
            };
            for set in sets.into_iter().filter(is_set) {
                if parts(set.arg(1))
                    .iter()
                    .any(|part| matches!(part, Part::Variable(_)))
                {
                    return Err(format!("${name} is composed of other variables"));
                }
                self.translator
                    .ledger
                    .translated(set, "a condition of rules");
                if directive.name == "if" {
                    self.translator
                        .ledger
                        .translated(directive, "a condition of rules");
                }
                found.push(Assignment {
                    condition: condition.clone(),
                    value: set.arg(1).to_owned(),
                });
            }
        }
        match found.is_empty() {
            true => Err(format!(
                "${name} has no value that depends on the request alone"
            )),
            false => Ok(found),
        }
    }

    fn of_map(&self, map: &'t Directive) -> Result<Vec<Assignment>, Reason> {
        let source = map.arg(0);
        let ledger = &self.translator.ledger;
        let (mut plain, mut regexes, mut default) = (Vec::new(), Vec::new(), String::new());
        for row in map.children() {
            if matches!(row.name.as_str(), "hostnames" | "volatile" | "include") {
                ledger.implied(row, "not needed");
                continue;
            }
            ledger.translated(row, "a condition of rules");
            let value = row.arg(0).to_owned();
            if value.contains('$') {
                return Err(format!(
                    "a value of the map is composed of variables: {value}"
                ));
            }
            let key = row.name.as_str();
            let assignment = |condition| Assignment {
                condition,
                value: value.clone(),
            };
            if key == "default" {
                default.clone_from(&value);
            } else if let Some(regex) = key.strip_prefix("~*") {
                regexes.push(assignment(self.compare(source, "~*", regex)?));
            } else if let Some(regex) = key.strip_prefix('~') {
                regexes.push(assignment(self.compare(source, "~", regex)?));
            } else {
                let key = key.strip_prefix('\\').unwrap_or(key);
                plain.push(assignment(self.compare(source, "=", key)?));
            }
        }
        ledger.translated(map, "conditions of rules");
        regexes.reverse();
        let first = Assignment {
            condition: Cond::Always.into(),
            value: default,
        };
        Ok([first].into_iter().chain(regexes).chain(plain).collect())
    }

    fn of_geo(&self, geo: &'t Directive) -> Result<Vec<Assignment>, Reason> {
        if geo.args.len() > 1 && geo.arg(0) != "$remote_addr" {
            return Err("geo of another variable than the address of the client".to_owned());
        }
        let ledger = &self.translator.ledger;
        let mut rows: Vec<(i32, Assignment)> = Vec::new();
        for row in geo.children() {
            if matches!(
                row.name.as_str(),
                "ranges" | "delete" | "proxy" | "proxy_recursive" | "include"
            ) {
                return Err(format!("geo with {}", row.name));
            }
            ledger.translated(row, "a condition of rules");
            let (length, cond) = match row.name.as_str() {
                "default" => (-1, Cond::Always),
                network => {
                    let length = network
                        .rsplit_once('/')
                        .and_then(|(_, bits)| bits.parse().ok());
                    let clients = vec![network.to_owned()];
                    (
                        length.unwrap_or(128),
                        Cond::Any(vec![When {
                            clients,
                            ..When::default()
                        }]),
                    )
                }
            };
            let value = row.arg(0).to_owned();
            rows.push((
                length,
                Assignment {
                    condition: cond.into(),
                    value,
                },
            ));
        }
        ledger.translated(geo, "conditions of rules");
        // The longest network counts.
        rows.sort_by_key(|(length, _)| *length);
        Ok(rows.into_iter().map(|(_, assignment)| assignment).collect())
    }

    /// Returns when a comparison holds. `op` is `=`, `~` or `~*`, or one of them behind `!`.
    pub(super) fn compare(
        &self,
        variable: &str,
        op: &str,
        literal: &str,
    ) -> Result<Condition, Reason> {
        let (op, is_negated) = match op.strip_prefix('!') {
            Some(op) => (op, true),
            None => (op, false),
        };
        if !matches!(op, "=" | "~" | "~*") {
            return Err("the condition asks for a file".to_owned());
        }
        let literal = literal.trim_matches(|c| c == '"');
        let mut condition = self.positive(variable, op, literal)?;
        if is_negated {
            if let Some(difference) = condition.difference {
                // A negated condition that holds for more requests would hold for fewer.
                return Err(difference);
            }
            condition.cond = condition.cond.negated();
        }
        Ok(condition)
    }

    fn positive(&self, variable: &str, op: &str, literal: &str) -> Result<Condition, Reason> {
        let name = plain_name(variable)?;
        let any = |when: When| Condition::from(Cond::Any(vec![when]));
        let unsupported = || format!("rules have no condition for {variable} {op} {literal}");
        match (name, op) {
            ("host" | "http_host" | "server_name", _) => {
                let is_free = !self.has_host_regex && name != "server_name";
                let compared = self.host.compare(op, literal, is_free);
                compared.map(Condition::from)
            }
            ("scheme", "=") => match literal {
                "http" => Ok(any(scheme("http"))),
                "https" => Ok(any(scheme("https"))),
                _ => Ok(Cond::Never.into()),
            },
            ("https", "=") => match literal {
                "on" => Ok(any(scheme("https"))),
                "" => Ok(any(scheme("http"))),
                _ => Ok(Cond::Never.into()),
            },
            ("request_method", _) => {
                let methods = match op {
                    "=" => vec![literal.to_owned()],
                    _ => literal_branches(literal).ok_or_else(unsupported)?,
                };
                Ok(any(When {
                    methods,
                    ..When::default()
                }))
            }
            ("request_uri" | "uri" | "document_uri", "=")
                if literal.starts_with('/') && !literal.contains('?') =>
            {
                Ok(any(exact_path(literal)))
            }
            ("request_uri" | "uri" | "document_uri", "~" | "~*") => {
                let mut condition = any(When {
                    regexes: vec![values::regex(literal, op == "~*")?],
                    ..When::default()
                });
                if name == "request_uri" {
                    if literal.contains("\\?") || literal.contains('=') {
                        return Err(unsupported());
                    }
                    condition.difference = Some(
                        "the expression is compared with the path, and not with the query"
                            .to_owned(),
                    );
                }
                Ok(condition)
            }
            ("args" | "query_string" | "is_args", "=") if literal.is_empty() || literal == "?" => {
                let present = self.holds(variable, is_true)?;
                Ok(if literal.is_empty() {
                    present.cond.negated().into()
                } else {
                    present
                })
            }
            ("remote_addr", "=") => Ok(any(When {
                clients: vec![literal.to_owned()],
                ..When::default()
            })),
            ("http_cookie", "~" | "~*") => {
                let globs = wider_globs(literal).ok_or_else(unsupported)?;
                Ok(Condition {
                    cond: Cond::Any(vec![When {
                        cookies: in_case(globs, op),
                        ..When::default()
                    }]),
                    difference: Some("the names of cookies are compared, in their case".to_owned()),
                })
            }
            _ if name.starts_with("cookie_") || name.starts_with("arg_") => match (op, literal) {
                ("=", "") => Ok(self.holds(variable, is_true)?.cond.negated().into()),
                _ => Err(unsupported()),
            },
            _ if name == "content_type" || (name.starts_with("http_") && name != "http_host") => {
                let field = name.strip_prefix("http_").unwrap_or("Content-Type");
                match (op, literal) {
                    ("=", "") => Ok(Cond::Not(vec![header(field, vec!["*".to_owned()])]).into()),
                    ("=", _) if !literal.contains('*') => {
                        Ok(any(header(field, vec![literal.to_owned()])))
                    }
                    ("=", _) => Err(unsupported()),
                    _ => {
                        let globs = wider_globs(literal).ok_or_else(unsupported)?;
                        let is_exact = op == "~"
                            && globs
                                .iter()
                                .all(|glob| !glob.trim_matches('*').contains('*'))
                            && !literal.contains(['[', '.', '+', '?']);
                        Ok(Condition {
                            cond: Cond::Any(vec![header(field, in_case(globs, op))]),
                            difference: (!is_exact).then(|| {
                                "the value is compared with patterns, in the case of their letters".to_owned()
                            }),
                        })
                    }
                }
            }
            _ if op == "=" => self.holds(variable, |value| value == literal),
            _ => {
                let text = values::regex(literal, op == "~*")?;
                let regex = Regex::new(&text).map_err(|_| unsupported())?;
                self.holds(variable, |value| regex.is_match(value))
            }
        }
    }
}

/// Returns the name of a text that is one variable.
fn plain_name(variable: &str) -> Result<&str, Reason> {
    let name = variable.strip_prefix('$').unwrap_or("");
    let name = name
        .strip_prefix('{')
        .and_then(|n| n.strip_suffix('}'))
        .unwrap_or(name);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match !name.is_empty() && name.chars().all(is_name) {
        true => Ok(name),
        false => Err(format!("{variable} is not one variable")),
    }
}

/// Returns the condition for one path.
pub(super) fn exact_path(path: &str) -> When {
    match path.contains('*') {
        false => When {
            paths: vec![path.to_owned()],
            ..When::default()
        },
        true => When {
            regexes: vec![format!("^{}$", values::literal_regex(path))],
            ..When::default()
        },
    }
}

fn scheme(scheme: &'static str) -> When {
    When {
        scheme: Some(scheme),
        ..When::default()
    }
}

/// Returns the condition on a field that a variable `$http_…` names.
fn header(field: &str, values: Vec<String>) -> When {
    When {
        headers: [(field_name(field), values)].into(),
        ..When::default()
    }
}

/// Returns the usual spelling of the field of a variable: `User-Agent` for `user_agent`.
pub(super) fn field_name(variable: &str) -> String {
    let words = variable.split('_').map(|word| {
        let mut chars = word.chars();
        let first = chars.next().map(|c| c.to_ascii_uppercase());
        first.into_iter().chain(chars).collect::<String>()
    });
    words.collect::<Vec<_>>().join("-")
}

/// Returns patterns in the usual spellings, unless the operator compares the case of letters.
fn in_case(globs: Vec<String>, op: &str) -> Vec<String> {
    match op {
        "~" => globs,
        _ => spellings(globs),
    }
}
