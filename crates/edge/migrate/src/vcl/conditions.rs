//! Conditions of VCL as conditions of rules.

use super::acl;
use super::cookies::{self, CookieMatch};
use super::host_names;
use super::requests::Requests;
use super::state::{Field, Machine, URL};
use super::text::{is_host, request_field, spelled};
use super::tree::{Expr, Operator};
use super::urls::{self, Reach};
use crate::decision::Decision;
use crate::hosts::{Host, Reason};
use crate::rule::{Key, When};
use crate::values::{literal_branches, spellings};

/// When something holds.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    requests: Requests,
    /// The differences from the condition of VCL.
    pub(super) differences: Vec<&'static str>,
    /// The reason why rules cannot state the condition or a part of it.
    pub(super) lost: Option<Reason>,
}

/// `and` or `or`.
type Join = fn(&Requests, &Requests) -> (Requests, Option<Reason>);

impl From<Requests> for Condition {
    fn from(requests: Requests) -> Self {
        Self {
            requests,
            differences: Vec::new(),
            lost: None,
        }
    }
}

impl From<Decision<bool>> for Condition {
    fn from(decision: Decision<bool>) -> Self {
        Requests::from(decision).into()
    }
}

impl Condition {
    /// Returns a condition that rules cannot state, and that holds for no request outside of `may`.
    fn lost_within(may: Decision<bool>, reason: Reason) -> Self {
        Self {
            lost: Some(reason),
            ..Requests::within(may).into()
        }
    }

    /// Returns the requests for which the condition holds: those for which it surely does if a part of it is lost.
    pub(super) fn requests(&self) -> Requests {
        match self.lost {
            None => self.requests.clone(),
            Some(_) => self.requests.clone().surely(),
        }
    }

    pub(super) fn negated(mut self) -> Self {
        self.requests = self.requests.not();
        self
    }

    fn with(mut self, difference: Option<&'static str>) -> Self {
        self.differences.extend(difference);
        self
    }

    /// Returns the condition if the variable that it compares may have another value for some requests.
    fn except_unsure(mut self, unsure: Option<&Decision<bool>>) -> Self {
        self.requests = self.requests.except_unsure(unsure);
        self
    }
}

const PATTERNS: &str = "the value is compared with patterns that match further ones";
const COOKIES: &str = "cookies are compared with patterns that match further ones";
const REMOVED_COOKIES: &str = "cookies that were removed before count, too";
const SCHEME: &str = "the scheme is that of the listener: set forwarding.trusted_proxies if a proxy in front ends TLS";
const LOST_CASE: &str =
    "the case of letters does not count in VCL, and rules compare the usual cases alone";

impl Machine<'_, '_> {
    /// Returns when an expression is true.
    pub(super) fn condition(&self, expr: &Expr) -> Condition {
        match expr {
            Expr::Not(inner) => self.condition(inner).negated(),
            Expr::All(parts) => self.joined_conditions(parts, Requests::and),
            Expr::Any(parts) => self.joined_conditions(parts, Requests::or),
            _ => or_lost(self.single(expr)),
        }
    }

    fn single(&self, expr: &Expr) -> Result<Condition, Reason> {
        match expr {
            Expr::Bool(value) => Ok(Decision::always(*value).into()),
            Expr::Compare(left, operator, right) => self.comparison(left, *operator, right),
            Expr::Name(name) => self.presence(name),
            Expr::Call(name, arguments) => {
                let first = arguments.first().and_then(|(_, value)| value.as_text());
                match (name.as_str(), first) {
                    ("cookie.isset" | "cookie.get", Some(cookie)) => {
                        self.of_jar(Self::with_cookies(&[cookie]))
                    }
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

    fn joined_conditions(&self, parts: &[Expr], join: Join) -> Condition {
        let mut all = parts.iter().map(|part| self.condition(part));
        let Some(mut joined) = all.next() else {
            return or_lost(Err("an empty condition".to_owned()));
        };
        for part in all {
            let layers = joined.requests.layers().max(part.requests.layers());
            if !self.translator.spend(layers) {
                return joined;
            }
            let (mut requests, mut reason) = join(&joined.requests, &part.requests);
            if reason.is_some() {
                let [a, b] = [&joined.requests, &part.requests].map(Requests::simplified);
                (requests, reason) = join(&a, &b);
            }
            joined.requests = requests;
            joined.differences.extend(part.differences);
            joined.lost = joined.lost.or(part.lost).or(reason);
        }
        joined
    }

    /// Returns a condition on the cookies that the functions of the vmod `cookie` have left.
    fn of_jar(&self, decision: Decision<bool>) -> Result<Condition, Reason> {
        let is_known = |field: &Field| matches!(field, Field::Client | Field::Cookies(_));
        if !self.jar.layers().iter().all(|(_, field)| is_known(field)) {
            return Err("the cookies follow from a statement without a counterpart".to_owned());
        }
        let condition = match self.jar.constant() {
            Some(Field::Client) => Condition::from(decision),
            _ => Condition::from(Requests::wider(decision)).with(Some(REMOVED_COOKIES)),
        };
        Ok(condition.except_unsure(self.unsure.get("jar")))
    }

    /// Returns when a variable is present or true.
    fn presence(&self, name: &str) -> Result<Condition, Reason> {
        let lower = name.to_ascii_lowercase();
        if let Some(field) = request_field(&lower) {
            return match field {
                "host" => Ok(Decision::always(true).into()),
                // Varnish adds the address of the client to this field.
                "x-forwarded-for" => Ok(Decision::always(true).into()),
                _ => Ok(self.field_holds(field, |value| match value {
                    Field::Client if field == "cookie" => {
                        Ok(Self::with_cookies(&["*".to_owned()]).into())
                    }
                    Field::Client => Ok(header(&spelled(name), vec!["*".to_owned()]).into()),
                    Field::Absent => Ok(Decision::always(false).into()),
                    Field::Text(_) => Ok(Decision::always(true).into()),
                    Field::Cookies(cookies) => {
                        let all = ["*".to_owned()];
                        let names = cookies.kept.as_deref().unwrap_or(&all);
                        Ok(match cookies.is_all() || cookies.has_exact_names() {
                            true => Self::with_cookies(names).into(),
                            false => Condition::from(Requests::wider(Self::with_cookies(names)))
                                .with(Some(REMOVED_COOKIES)),
                        })
                    }
                    Field::Cookie(cookie) => {
                        Ok(Self::with_cookies(std::slice::from_ref(cookie)).into())
                    }
                    Field::Unknown | Field::Removed => Err(unknown(name)),
                })),
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
    ) -> Condition {
        let value = self.field(field);
        let of_value = |value: &Field| or_lost(holds(value));
        let of_values = value.layers().iter().map(|(_, value)| of_value(value));
        let of_values: Vec<Condition> = of_values.collect();
        let bound = |part: fn(&Requests) -> &Decision<bool>| {
            value.bind(|value| Ok(part(&of_value(value).requests).clone()))
        };
        let best = bound(Requests::best);
        let is_exact = |condition: &Condition| condition.requests.is_exact();
        let reason = best.as_ref().err().cloned();
        let never = Decision::always(false);
        let requests = match best {
            Ok(best) if of_values.iter().all(is_exact) => best.into(),
            best => Requests::between(
                bound(Requests::must).unwrap_or_else(|_| never.clone()),
                best.unwrap_or(never),
                bound(Requests::may).unwrap_or_else(|_| Decision::always(true)),
            ),
        };
        let is_reported = |condition: &Condition| condition.requests.is_reported();
        let requests = match reason.is_some() || of_values.iter().any(is_reported) {
            true => requests,
            false => requests.unreported(),
        };
        let mut condition = Condition::from(requests);
        condition.lost = reason;
        for of_value in of_values {
            condition.differences.extend(of_value.differences);
            condition.lost = condition.lost.or(of_value.lost);
        }
        condition.except_unsure(self.unsure.get(field))
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
            return acl::requests(self.translator, acl).map(Condition::from);
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
                        // A `*` of a rule stands for any text.
                        _ if literal.contains('*') => Err(unsupported()),
                        true => Ok(self.of_jar(Self::with_cookies(&[cookie]))?.negated()),
                        false => self.of_jar(cookie_value(&cookie, &literal)),
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
        if self.unsure.contains_key("host") {
            return Err("a statement changes the host that is compared".to_owned());
        }
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
                    true => methods(literal).ok_or_else(unsupported)?,
                    false => vec![literal.to_owned()],
                };
                let decision = Decision::when(When {
                    methods,
                    ..When::default()
                });
                Ok(Condition::from(decision).except_unsure(self.unsure.get("method")))
            }
            "req.url" | "bereq.url" => Ok(self.field_holds(URL, |value| match value {
                Field::Client if is_match => self.match_url(literal),
                Field::Client => self.compare_url(literal),
                Field::Text(url) => compare_text(url, is_match, literal),
                _ => Err("a statement changes the URL that is compared".to_owned()),
            })),
            "client.ip" if !is_match => Ok(Decision::when(When {
                clients: vec![literal.to_owned()],
                ..When::default()
            })
            .into()),
            _ => Err(unsupported()),
        }
    }

    /// Returns when the URL is a text.
    fn compare_url(&self, literal: &str) -> Result<Condition, Reason> {
        let (path, query) = literal.split_once('?').unwrap_or((literal, ""));
        if !path.starts_with('/') || path.contains('*') {
            return Err("rules have no condition for this URL".to_owned());
        }
        let when = When {
            paths: vec![path.to_owned()],
            ..When::default()
        };
        match query {
            // The query may have had no other parameters than those that a statement has removed.
            "" if !self.dropped.is_empty() => {
                let exact = self.without_query(when.clone());
                let requests = Requests::between(exact.clone(), exact, Decision::when(when));
                Ok(requests.unreported().into())
            }
            "" => Ok(self.without_query(when).into()),
            _ => {
                let text = "rules compare the names of query parameters, and not the whole query";
                Ok(Condition::lost_within(
                    Decision::when(when),
                    text.to_owned(),
                ))
            }
        }
    }

    /// Returns when an expression matches the URL.
    fn match_url(&self, literal: &str) -> Result<Condition, Reason> {
        let found = match (
            urls::matches(literal, !self.is_without_query),
            urls::alternatives(literal),
        ) {
            (Ok(found), _) => found,
            (Err(reason), None) => return Err(reason),
            (Err(_), Some(all)) => return Ok(self.match_one_of(&all)),
        };
        let names = &found.when.parameters;
        if !names.is_empty() {
            let is_literal = |name: &String| !name.contains('*');
            let is_changed = self.is_without_query
                || self.settings.contains_key(&Key::One("query.keep"))
                || found.reach == Reach::Exact
                    && !self.dropped.is_empty()
                    && !names.iter().all(is_literal)
                || names.iter().any(|name| self.is_dropped(name));
            if is_changed {
                return Err("a statement has removed parameters that are compared".to_owned());
            }
        }
        let or_path = |when: When| Decision::any([when].into_iter().chain(found.or_path.clone()));
        let requests = match found.reach {
            Reach::Exact => Decision::when(found.when).into(),
            Reach::Wider => Requests::wider(or_path(found.when)),
            Reach::Narrower(may) => {
                let exact = Decision::when(found.when);
                Requests::between(exact.clone(), exact, or_path(may)).unreported()
            }
            Reach::IgnoresCase(may) => {
                let never = Decision::always(false);
                Requests::between(never, or_path(found.when), or_path(may))
            }
            // Other requests with a query are only restricted.
            Reach::WithoutQuery(prefixes) => {
                let exact = self.without_query(found.when.clone());
                let exact = match prefixes.is_empty() {
                    true => exact,
                    false => {
                        let always = Decision::when(When {
                            paths: prefixes,
                            ..When::default()
                        });
                        exact.or(&always).unwrap_or(exact)
                    }
                };
                let may = Decision::when(found.when);
                Requests::between(exact.clone(), exact, may).unreported()
            }
        };
        Ok(Condition::from(requests).with(found.difference))
    }

    /// Returns when one of several expressions matches the URL.
    fn match_one_of(&self, all: &[String]) -> Condition {
        let mut joined = Condition::from(Requests::none());
        for literal in all {
            let part = or_lost(self.match_url(literal));
            let (requests, reason) = joined.requests.or(&part.requests);
            joined.requests = requests;
            joined.differences.extend(part.differences);
            joined.lost = joined.lost.or(part.lost).or(reason);
        }
        joined
    }

    /// Returns the decision that holds for requests with a condition and without query parameters.
    fn without_query(&self, when: When) -> Decision<bool> {
        let with_query = When {
            parameters: vec!["*".to_owned()],
            ..when.clone()
        };
        let exception = Decision::when(with_query).not();
        let decision = Decision::when(when);
        match self.is_without_query {
            true => decision,
            false => exception.and(&decision).unwrap_or(decision),
        }
    }

    /// Returns true if a statement has removed query parameters with a name.
    pub(super) fn is_dropped(&self, name: &str) -> bool {
        self.dropped.iter().any(|glob| match glob.split_once('*') {
            Some((start, _)) => name.starts_with(start),
            None => glob == name,
        })
    }

    /// Returns when a field is absent, or present without a value.
    fn emptiness(&self, field: &str, name: &str) -> Result<Condition, Reason> {
        let mut absent = self.presence(name)?.negated();
        if matches!(field, "host" | "x-forwarded-for" | "cookie") {
            return Ok(absent);
        }
        let empty = self.field_holds(field, |value| match value {
            Field::Client => Ok(header(&spelled(name), vec![String::new()]).into()),
            _ => Ok(Decision::always(false).into()),
        });
        let (requests, reason) = absent.requests.or(&empty.requests);
        absent.requests = requests;
        absent.lost = absent.lost.or(reason);
        Ok(absent)
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
            return self.emptiness(field, name);
        }
        if is_match && matches!(literal, "." | ".+" | "^.+$") {
            return Ok(self.emptiness(field, name)?.negated());
        }
        // Varnish compares an absent field as an empty text.
        if is_match && matches!(literal, ".*" | "^.*$" | "^.*" | "") {
            return Ok(Decision::always(true).into());
        }
        if field == "x-forwarded-for" {
            return Err(
                "Varnish adds the address of the client to X-Forwarded-For; use client".to_owned(),
            );
        }
        Ok(self.field_holds(field, |value| match value {
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
                let is_all = match value {
                    Field::Cookies(cookies) => cookies.is_all(),
                    _ => true,
                };
                cookie_field(literal, is_all)
            }
            Field::Client => client_field(&spelled(name), is_match, literal),
            // A `*` of a rule stands for any text.
            Field::Cookie(_) if literal.contains('*') => {
                Err("rules do not compare the value of a cookie with a `*`".to_owned())
            }
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
            Field::Unknown | Field::Removed => Err(unknown(name)),
            _ => Err(format!(
                "the value of {name} depends on the request, so rules do not compare it"
            )),
        }))
    }
}

/// Returns a condition, or a lost one that may hold for all requests.
fn or_lost(condition: Result<Condition, Reason>) -> Condition {
    condition.unwrap_or_else(|reason| Condition::lost_within(Decision::always(true), reason))
}

fn unknown(name: &str) -> Reason {
    format!("a statement without a counterpart changes {name}")
}

/// Returns the methods of an expression such as `^(GET|HEAD)$`, or `GET|HEAD` if no other method has such a part.
fn methods(pattern: &str) -> Option<Vec<String>> {
    const WHOLE: [&str; 9] = [
        "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PURGE",
    ];
    let methods = literal_branches(pattern)?;
    let is_anchored = pattern.starts_with('^') && pattern.ends_with('$');
    let is_whole = |method: &String| WHOLE.contains(&method.as_str());
    let is_one = methods.len() == 1 || pattern.contains('(') || !is_anchored;
    (is_one && (is_anchored || methods.iter().all(is_whole))).then_some(methods)
}

/// Returns when an expression matches the field `Cookie`. `is_all` is false if cookies were removed before.
fn cookie_field(literal: &str, is_all: bool) -> Result<Condition, Reason> {
    let CookieMatch { when, is_exact } = cookies::matches(literal)?;
    let decision = Decision::when(when);
    if literal.contains("(?i") {
        let present = Machine::with_cookies(&["*".to_owned()]);
        return Ok(ignoring_case(decision, is_exact && is_all, present));
    }
    Ok(match is_exact && is_all {
        true => decision.into(),
        false => Condition::from(Requests::wider(decision)).with(Some(COOKIES)),
    })
}

/// Returns a condition on the usual spellings of a value, if the case of letters does not count.
fn ignoring_case(best: Decision<bool>, is_exact: bool, present: Decision<bool>) -> Condition {
    let must = match is_exact {
        true => best.clone(),
        false => Decision::always(false),
    };
    Condition::from(Requests::between(must, best, present)).with(Some(LOST_CASE))
}

/// Returns the condition for requests with the value of a cookie.
fn cookie_value(cookie: &str, value: &str) -> Decision<bool> {
    Decision::when(cookie_line(cookie, value))
}

fn cookie_line(cookie: &str, value: &str) -> When {
    let globs = ["", "*;", "*; "].iter().flat_map(|start| {
        let ends = ["", ";*"].iter();
        ends.map(move |end| format!("{start}{cookie}={value}{end}"))
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
    let exact = match pattern.starts_with('^') && pattern.ends_with('$') {
        true => {
            literal_branches(pattern).filter(|_| pattern.contains('(') || !pattern.contains('|'))
        }
        false => None,
    };
    let exact = exact.or_else(|| urls::exact_globs(pattern));
    let is_exact = exact.is_some();
    let present = || {
        // An absent field is compared as an empty text.
        let is_for_empty = regex::Regex::new(pattern).map_or(true, |regex| regex.is_match(""));
        match is_for_empty {
            true => Decision::always(true),
            false => header(name, vec!["*".to_owned()]),
        }
    };
    let Some(globs) = exact.or_else(|| urls::wide_globs(pattern)) else {
        return Ok(Condition::lost_within(present(), unsupported()));
    };
    Ok(match (ignores_case, is_exact) {
        (true, _) => ignoring_case(header(name, spellings(globs)), is_exact, present()),
        (false, true) => header(name, globs).into(),
        (false, false) => {
            Condition::from(Requests::wider(header(name, globs))).with(Some(PATTERNS))
        }
    })
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
