//! Conditions of VCL as conditions of rules.

use super::acl;
use super::cookies::{self, CookieMatch};
use super::host_names;
use super::state::{Field, Machine};
use super::text::{is_host, request_field, spelled};
use super::tree::{Expr, Operator};
use super::urls;
use crate::decision::Decision;
use crate::hosts::{Host, Reason};
use crate::rule::When;
use crate::values::{literal_branches, wider_globs};

/// When something holds.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    pub(super) decision: Decision<bool>,
    /// The differences from the condition of VCL.
    pub(super) differences: Vec<&'static str>,
}

/// `and` or `or`.
type Join = fn(&Decision<bool>, &Decision<bool>) -> Result<Decision<bool>, Reason>;

impl From<Decision<bool>> for Condition {
    fn from(decision: Decision<bool>) -> Self {
        Self {
            decision,
            differences: Vec::new(),
        }
    }
}

impl Condition {
    fn negated(mut self) -> Self {
        self.decision = self.decision.not();
        self
    }

    fn with(mut self, difference: Option<&'static str>) -> Self {
        self.differences.extend(difference);
        self
    }
}

const SPELLINGS: &str = "the value is compared with patterns, in the usual cases of their letters";
const COOKIE_NAMES: &str = "the names of cookies are compared, and not their values";
const REMOVED_COOKIES: &str = "cookies that were removed before count, too";
const SCHEME: &str = "the scheme is that of the listener: set forwarding.trusted_proxies if a proxy in front ends TLS";
const REWRITTEN: &str = "the path that the client sent is compared, and not the changed one";

impl Machine<'_, '_> {
    /// Returns when an expression is true.
    pub(super) fn condition(&self, expr: &Expr) -> Result<Condition, Reason> {
        match expr {
            Expr::Bool(value) => Ok(Decision::always(*value).into()),
            Expr::Not(inner) => Ok(self.condition(inner)?.negated()),
            Expr::All(parts) => self.joined_conditions(parts, Decision::and),
            Expr::Any(parts) => self.joined_conditions(parts, Decision::or),
            Expr::Compare(left, operator, right) => self.comparison(left, *operator, right),
            Expr::Name(name) => self.presence(name),
            Expr::Call(name, arguments) => {
                let first = arguments.first().and_then(|(_, value)| value.as_text());
                match (name.as_str(), first) {
                    ("cookie.isset", Some(cookie)) => {
                        Ok(Self::with_cookies(&[cookie]).into())
                    }
                    ("cookie.get", Some(cookie)) => Ok(Self::with_cookies(&[cookie]).into()),
                    ("std.healthy", _) => {
                        Err("rules do not ask for the health of origins; stale_if_error and stale_if_disconnected \
                             apply while one fails"
                            .to_owned())
                    }
                    _ => Err(format!("rules have no condition for {name}")),
                }
            }
            _ => Err("rules have no such condition".to_owned()),
        }
    }

    fn joined_conditions(&self, parts: &[Expr], join: Join) -> Result<Condition, Reason> {
        let (first, rest) = parts.split_first().ok_or("an empty condition")?;
        let mut joined = self.condition(first)?;
        for part in rest {
            let part = self.condition(part)?;
            joined.decision = join(&joined.decision, &part.decision)?;
            joined.differences.extend(part.differences);
        }
        Ok(joined)
    }

    /// Returns when a variable is present or true.
    fn presence(&self, name: &str) -> Result<Condition, Reason> {
        let lower = name.to_ascii_lowercase();
        if let Some(field) = request_field(&lower) {
            return match field {
                "host" => Ok(Decision::always(true).into()),
                _ => self.field_holds(field, |value| match value {
                    Field::Client if field == "cookie" => {
                        Ok(Self::with_cookies(&["*".to_owned()]).into())
                    }
                    Field::Client => Ok(header(&spelled(name), vec!["*".to_owned()]).into()),
                    Field::Absent => Ok(Decision::always(false).into()),
                    Field::Text(_) => Ok(Decision::always(true).into()),
                    Field::Cookies(cookies) => Ok(match &cookies.kept {
                        Some(kept) => Self::with_cookies(kept).into(),
                        None => Condition::from(Self::with_cookies(&["*".to_owned()]))
                            .with((!cookies.is_all()).then_some(REMOVED_COOKIES)),
                    }),
                    Field::Cookie(cookie) => {
                        Ok(Self::with_cookies(std::slice::from_ref(cookie)).into())
                    }
                }),
            };
        }
        match lower.as_str() {
            "bereq.uncacheable" | "bereq.is_bgfetch" | "req.is_hitmiss" | "req.is_hitpass"
            | "obj.uncacheable" => Ok(Decision::always(false).into()),
            "req.url" => Ok(Decision::always(true).into()),
            _ => Err(format!("rules have no condition for {name}")),
        }
    }

    /// Joins the conditions for each value that a field may have.
    fn field_holds(
        &self,
        field: &str,
        holds: impl Fn(&Field) -> Result<Condition, Reason>,
    ) -> Result<Condition, Reason> {
        let value = self.field(field);
        let mut differences = Vec::new();
        for (_, value) in value.layers() {
            differences.extend(holds(value)?.differences);
        }
        let decision = value.bind(|value| Ok(holds(value)?.decision))?;
        Ok(Condition {
            decision,
            differences,
        })
    }

    fn comparison(
        &self,
        left: &Expr,
        operator: Operator,
        right: &Expr,
    ) -> Result<Condition, Reason> {
        let (operator, is_negated) = match operator {
            Operator::Unequal => (Operator::Equal, true),
            Operator::NoMatch => (Operator::Match, true),
            other => (other, false),
        };
        let condition = self.positive(left, operator, right)?;
        Ok(match is_negated {
            true => condition.negated(),
            false => condition,
        })
    }

    fn positive(&self, left: &Expr, operator: Operator, right: &Expr) -> Result<Condition, Reason> {
        if let Some(number) = self.number(left) {
            return compare_numbers(number?, operator, right);
        }
        let unsupported = || match left.as_name() {
            Some(name) => format!("rules have no condition for {name} with this comparison"),
            None => "rules have no condition for this comparison".to_owned(),
        };
        if let (Some("client.ip"), Operator::Match, Some(name)) =
            (left.as_name(), operator, right.as_name())
        {
            let acl = self.translator.acls.get(name);
            let acl = acl.ok_or_else(|| format!("there is no ACL {name}"))?;
            return Ok(acl::decision(self.translator, acl)?.into());
        }
        let literal = right.as_text().ok_or_else(unsupported)?;
        if !matches!(operator, Operator::Equal | Operator::Match) {
            return Err(unsupported());
        }
        let is_match = operator == Operator::Match;
        if is_host(left) {
            return self.compare_host(is_match, &literal);
        }
        match left {
            Expr::Name(name) => self.compare_variable(name, is_match, &literal),
            Expr::Call(name, arguments) => match (name.as_str(), &arguments[..]) {
                ("std.tolower" | "std.toupper", [(_, source)]) if is_match => {
                    let pattern = format!("(?i){literal}");
                    self.positive(source, operator, &Expr::Text(pattern))
                }
                ("cookie.get", [(_, cookie)]) if !is_match => {
                    let cookie = cookie.as_text().ok_or_else(unsupported)?;
                    match literal.is_empty() {
                        true => Ok(Self::with_cookies(&[cookie]).not().into()),
                        false => Ok(cookie_value(&cookie, &literal).into()),
                    }
                }
                _ => Err(unsupported()),
            },
            _ => Err(unsupported()),
        }
    }

    /// Returns the number of an expression, if rules know it.
    fn number(&self, expr: &Expr) -> Option<Result<f64, Reason>> {
        match expr {
            Expr::Name(name) => match name.as_str() {
                "req.restarts" | "req.esi_level" | "bereq.retries" => Some(Ok(0.0)),
                "beresp.status" | "resp.status" | "obj.status" => Some(match self.status {
                    Some(status) => Ok(f64::from(status)),
                    None => Err("rules have no condition for the status of a response".to_owned()),
                }),
                _ => None,
            },
            _ => None,
        }
    }

    fn compare_host(&self, is_match: bool, literal: &str) -> Result<Condition, Reason> {
        let holds = match (is_match, self.host) {
            (true, host) => host_names::is_match(host, literal)?,
            // A host that a condition names has a site of its own.
            (false, Host::Exact(name)) => {
                let literal = literal.split(':').next().unwrap_or_default();
                name.eq_ignore_ascii_case(literal)
            }
            (false, _) => false,
        };
        Ok(Decision::always(holds).into())
    }

    fn compare_variable(
        &self,
        name: &str,
        is_match: bool,
        literal: &str,
    ) -> Result<Condition, Reason> {
        let lower = name.to_ascii_lowercase();
        if let Some(field) = request_field(&lower) {
            return self.compare_field(field, name, is_match, literal);
        }
        let unsupported = || format!("rules have no condition for {name} with this comparison");
        match lower.as_str() {
            "req.method" | "bereq.method" | "req.request" => {
                let methods = match is_match {
                    true => literal_branches(literal).ok_or_else(unsupported)?,
                    false => vec![literal.to_owned()],
                };
                Ok(Decision::when(When {
                    methods,
                    ..When::default()
                })
                .into())
            }
            "req.url" | "bereq.url" => {
                let rewritten = self.is_rewritten.then_some(REWRITTEN);
                if !is_match {
                    let path = literal.split('?').next().unwrap_or_default();
                    let has_query = literal.contains('?');
                    if has_query || !path.starts_with('/') || path.contains('*') {
                        return Err(unsupported());
                    }
                    let when = When {
                        paths: vec![path.to_owned()],
                        ..When::default()
                    };
                    return Ok(Condition::from(Decision::when(when)).with(rewritten));
                }
                let found = urls::matches(literal, !self.is_without_query)?;
                Ok(Condition::from(Decision::any([found.when]))
                    .with(found.difference)
                    .with(rewritten))
            }
            "client.ip" if !is_match => Ok(Decision::when(When {
                clients: vec![literal.to_owned()],
                ..When::default()
            })
            .into()),
            _ => Err(unsupported()),
        }
    }

    fn compare_field(
        &self,
        field: &str,
        name: &str,
        is_match: bool,
        literal: &str,
    ) -> Result<Condition, Reason> {
        let is_empty = match is_match {
            true => cookies::is_empty_field(literal),
            false => literal.is_empty(),
        };
        if is_empty {
            return Ok(self.presence(name)?.negated());
        }
        if is_match && matches!(literal, "." | ".+" | ".*" | "^.+$" | "^.*$") {
            return self.presence(name);
        }
        self.field_holds(field, |value| match value {
            Field::Absent => compare_text("", is_match, literal),
            Field::Text(text) if !text.contains("${") => compare_text(text, is_match, literal),
            Field::Client if field == "x-forwarded-proto" => {
                let scheme = |scheme: &'static str| {
                    Condition::from(Decision::when(When {
                        scheme: Some(scheme),
                        ..When::default()
                    }))
                    .with(Some(SCHEME))
                };
                match literal.trim_start_matches("(?i)") {
                    "https" | "^https$" | "^https" => Ok(scheme("https")),
                    "http" | "^http$" if !is_match || literal.ends_with('$') => Ok(scheme("http")),
                    _ => Err(format!("rules have no condition for {name} with {literal}")),
                }
            }
            Field::Client | Field::Cookies(_) if field == "cookie" => {
                if !is_match {
                    return Err(
                        "rules compare the names of cookies, and not the whole field".to_owned(),
                    );
                }
                Ok(match cookies::matches(literal)? {
                    CookieMatch::Names(names) => {
                        Condition::from(Self::with_cookies(&names)).with(Some(COOKIE_NAMES))
                    }
                    CookieMatch::Lines(lines) => header("Cookie", lines).into(),
                })
            }
            Field::Client => client_field(&spelled(name), is_match, literal),
            Field::Cookie(cookie) => match is_match {
                false => Ok(cookie_value(cookie, literal).into()),
                true => match literal_branches(literal) {
                    Some(values) => Ok(Decision::any(
                        values.iter().map(|value| cookie_line(cookie, value)),
                    )
                    .into()),
                    None => Err(format!(
                        "rules do not compare the value of the cookie {cookie} with {literal}"
                    )),
                },
            },
            _ => Err(format!(
                "the value of {name} depends on the request, so rules do not compare it"
            )),
        })
    }
}

/// Returns the condition for requests with the value of a cookie.
fn cookie_value(cookie: &str, value: &str) -> Decision<bool> {
    Decision::when(cookie_line(cookie, value))
}

fn cookie_line(cookie: &str, value: &str) -> When {
    let globs = ["", "; "].iter().flat_map(|start| {
        ["", ";*"].map(|end| match *start {
            "" => format!("{cookie}={value}{end}"),
            start => format!("*{start}{cookie}={value}{end}"),
        })
    });
    When {
        headers: [("Cookie".to_owned(), globs.collect())].into(),
        ..When::default()
    }
}

fn header(name: &str, values: Vec<String>) -> Decision<bool> {
    Decision::when(When {
        headers: [(name.to_owned(), values)].into(),
        ..When::default()
    })
}

/// Compares a field as the client sent it.
fn client_field(name: &str, is_match: bool, literal: &str) -> Result<Condition, Reason> {
    let unsupported = || format!("rules have no condition for {name} with {literal}");
    if !is_match {
        return match literal.contains('*') {
            true => Err(unsupported()),
            false => Ok(header(name, vec![literal.to_owned()]).into()),
        };
    }
    let (pattern, ignores_case) = match literal.strip_prefix("(?i)") {
        Some(rest) => (rest, true),
        None => (literal, false),
    };
    if pattern.starts_with('^')
        && pattern.ends_with('$')
        && !ignores_case
        && let Some(values) = literal_branches(pattern)
    {
        return Ok(header(name, values).into());
    }
    let globs = wider_globs(pattern).ok_or_else(unsupported)?;
    let is_exact = !ignores_case
        && !pattern.contains(['[', '.', '+', '?', '*'])
        && globs
            .iter()
            .all(|glob| !glob.trim_matches('*').contains('*'));
    let globs = match ignores_case {
        true => crate::values::spellings(globs),
        false => globs,
    };
    Ok(Condition::from(header(name, globs)).with((!is_exact).then_some(SPELLINGS)))
}

/// Compares a known text.
fn compare_text(text: &str, is_match: bool, literal: &str) -> Result<Condition, Reason> {
    let holds = match is_match {
        true => {
            let regex = regex::Regex::new(literal);
            let regex = regex.map_err(|_| format!("the edge has no expression {literal}"))?;
            regex.is_match(text)
        }
        false => text == literal,
    };
    Ok(Decision::always(holds).into())
}

fn compare_numbers(number: f64, operator: Operator, right: &Expr) -> Result<Condition, Reason> {
    let Expr::Number(other) = right else {
        return Err("the number is compared with another variable".to_owned());
    };
    let holds = match operator {
        Operator::Equal => number == *other,
        Operator::Less => number < *other,
        Operator::LessOrEqual => number <= *other,
        Operator::Greater => number > *other,
        Operator::GreaterOrEqual => number >= *other,
        _ => return Err("a number is compared with an expression".to_owned()),
    };
    Ok(Decision::always(holds).into())
}
