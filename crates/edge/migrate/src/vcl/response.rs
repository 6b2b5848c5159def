//! Statements on responses of origins: lifetimes, grace, fields, and which responses are not stored.

use super::requests::{Requests, upper_and, upper_or};
use super::state::{Field, Lifetime, Machine, Phase, ledger_of};
use super::text::spelled;
use super::tree::{Expr, Kind, Node, Operator, every};
use crate::decision::Decision;
use crate::grouping::Setting;
use crate::report::{Effect, Outcome};
use crate::rule::{Key, Value};
use crate::values::is_field_name;

/// Fields of a response by which the edge decides about storing it. Varnish has decided before `vcl_backend_response`
/// runs, so changes of them are for clients.
const FIELDS_OF_FRESHNESS: [&str; 6] = [
    "cache-control",
    "expires",
    "pragma",
    "age",
    "date",
    "surrogate-control",
];

/// The longest lifetime of the edge.
const LIFETIME_MAX: u64 = 3650 * 86_400_000;

const INEXACT_LIFETIME: &str = "no rule states its condition exactly: the rule has the lifetime for further responses, \
                                or not for all; compare the conditions";

impl<'t> Machine<'_, 't> {
    pub(super) fn assign_response(
        &mut self,
        node: &'t Node,
        lower: &str,
        target: &str,
        value: &Expr,
        reached: &Requests,
    ) -> Result<(), String> {
        let ledger = &self.translator.ledger;
        match lower {
            "beresp.ttl" | "beresp.grace" => {
                let Expr::Duration(time) = value else {
                    return Err(
                        "the time depends on the response; state it in a rule by path".to_owned(),
                    );
                };
                let seconds = (time.max(0.0) / 1000.0).round() as u64;
                let stated = Decision::always(Some(Lifetime {
                    milliseconds: (seconds * 1000).min(LIFETIME_MAX),
                    from: node.at.clone(),
                }));
                if lower == "beresp.ttl" && seconds == 0 {
                    let zero = upper_or(&self.response.zero, reached.may());
                    self.response.zero = zero;
                    self.response.excluded_from = Some(node.at.clone());
                } else if lower == "beresp.ttl" {
                    let zero = upper_and(&self.response.zero, &reached.must().not());
                    self.response.zero = zero;
                }
                let response = &mut self.response;
                let known = match lower {
                    "beresp.ttl" => &mut response.ttl,
                    _ => &mut response.grace,
                };
                *known = Decision::select(reached.best(), &stated, known)?;
                match lower {
                    "beresp.ttl" if reached.is_reported() => {
                        ledger.left_out(node, Effect::Caching, INEXACT_LIFETIME);
                    }
                    "beresp.ttl" => ledger.translated(node, "ttl, default_ttl, pass"),
                    _ => ledger.translated(
                        node,
                        "stale_while_revalidate, stale_if_error, stale_if_disconnected",
                    ),
                }
                Ok(())
            }
            "beresp.keep" => {
                ledger.implied(
                    node,
                    "stale responses stay until their space is needed, and are revalidated",
                );
                Ok(())
            }
            "beresp.uncacheable" => match value {
                Expr::Bool(true) => {
                    self.exclude(node, reached);
                    self.translator.ledger.translated(node, "ttl, pass");
                    Ok(())
                }
                // A new response is cacheable.
                Expr::Bool(false) if self.response.uncacheable.is_never() => {
                    ledger.implied(node, "responses are stored by default");
                    Ok(())
                }
                _ => Err("the edge does not store what was excluded before".to_owned()),
            },
            "beresp.do_gzip" => match value {
                Expr::Bool(false) => {
                    let value = Value::Toml("false".to_owned());
                    self.set(Key::One("compression"), reached.best(), value, node)?;
                    self.translator.ledger.translated(node, "compression");
                    Ok(())
                }
                _ => {
                    ledger.implied(
                        node,
                        "stored texts are compressed by default: [compression]",
                    );
                    Ok(())
                }
            },
            "beresp.do_stream" => {
                ledger.implied(node, "responses are always streamed");
                Ok(())
            }
            "beresp.do_esi" | "beresp.do_gunzip" if *value == Expr::Bool(false) => {
                ledger.implied(node, "the edge does neither");
                Ok(())
            }
            "beresp.do_esi" => Err("the edge does not assemble pages from parts (ESI)".to_owned()),
            _ => match lower.strip_prefix("beresp.http.") {
                Some(field) => self.assign_response_field(node, field, target, value, reached),
                None => Ok(()),
            },
        }
    }

    fn assign_response_field(
        &mut self,
        node: &'t Node,
        field: &str,
        target: &str,
        value: &Expr,
        reached: &Requests,
    ) -> Result<(), String> {
        if !is_field_name(field)
            || matches!(field, "content-length" | "transfer-encoding" | "connection")
        {
            return Err("the edge writes this field itself".to_owned());
        }
        let name = spelled(target);
        // Varnish's own subroutine, which runs behind this one, reads these fields.
        if matches!(field, "cache-control" | "surrogate-control") && forbids_storing(value) {
            self.exclude(node, reached);
        }
        if field == "location"
            && value
                .as_call()
                .is_some_and(|(name, _)| name.starts_with("regsub"))
        {
            let text = "origin.rewrite_location: scheme, host and port of the origin become those of the client";
            self.translator.ledger.differs(node, Effect::Response, text);
            return Ok(());
        }
        // `set beresp.http.Vary = beresp.http.Vary + ", X"` adds a line.
        let value = match value {
            Expr::Sum(parts)
                if parts.len() == 2
                    && parts[0]
                        .as_name()
                        .is_some_and(|name| name.eq_ignore_ascii_case(target)) =>
            {
                let text = self.template(&parts[1])?;
                Value::AddField(name, text.trim_start_matches([',', ' ']).to_owned())
            }
            value => Value::SetField(name, self.template(value)?),
        };
        self.change(group(field), reached.best(), value, node)?;
        self.translator
            .ledger
            .translated(node, &format!("{}.set", group(field)));
        Ok(())
    }

    pub(super) fn unset_response(
        &mut self,
        node: &'t Node,
        lower: &str,
        target: &str,
        reached: &Requests,
    ) -> Result<(), String> {
        let Some(field) = lower.strip_prefix("beresp.http.") else {
            return Ok(());
        };
        if !is_field_name(field) {
            return Err("this is not the name of a field".to_owned());
        }
        if field == "set-cookie" && self.response.refuses_cookies {
            return Err(
                "responses with cookies were excluded before, and the edge reads Set-Cookie later"
                    .to_owned(),
            );
        }
        // A response without these fields may be stored, so it must not lose them by mistake.
        let path = match field {
            "set-cookie" | "vary" => reached.must(),
            _ => reached.best(),
        };
        self.change(
            group(field),
            path,
            Value::RemoveField(spelled(target)),
            node,
        )?;
        self.translator
            .ledger
            .translated(node, &format!("{}.remove", group(field)));
        Ok(())
    }

    pub(super) fn returned_response(
        &mut self,
        node: &'t Node,
        action: &str,
        reached: &Requests,
    ) -> Result<(), String> {
        let ledger = &self.translator.ledger;
        match action {
            "deliver" | "ok" => {
                ledger.translated(node, "ttl");
                self.end(reached)
            }
            "pass" | "hit_for_pass" => {
                self.exclude(node, reached);
                ledger_of(self).translated(node, "ttl, pass");
                self.end(reached)
            }
            "abandon" | "fail" | "error" => {
                ledger.differs(
                    node,
                    Effect::Caching,
                    "stale_if_error: the edge uses a stale response in place of an error, and else sends the error",
                );
                self.exclude(node, reached);
                self.end(reached)
            }
            "retry" => {
                ledger.differs(
                    node,
                    Effect::Operation,
                    "origin.retries_max: requests without an answer are sent again, and an error status is an answer",
                );
                self.end(reached)
            }
            _ => Err("the edge does not restart or answer at this point".to_owned()),
        }
    }

    /// Returns true if an `if` with its branches only states what the edge does anyway, or if its condition is one that
    /// the edge has of its own, and records it.
    pub(super) fn is_idiom(&mut self, branches: &[&'t Node], path: &Requests) -> bool {
        let [
            Node {
                kind: Kind::If(first),
                ..
            },
            ..,
        ] = branches
        else {
            return false;
        };
        if self.phase == Phase::Request
            && branches.len() == 1
            && self.is_throttle(branches[0], first, path)
        {
            return true;
        }
        let mut names: Vec<String> = Vec::new();
        for branch in branches {
            for expr in branch.expressions() {
                expr.each(&mut |part| match part {
                    Expr::Name(name) => names.push(name.to_ascii_lowercase()),
                    Expr::Call(name, _) => names.push(format!("{name}()")),
                    _ => {}
                });
            }
        }
        let all = |known: &[&str]| {
            !names.is_empty() && names.iter().all(|name| known.contains(&name.as_str()))
        };
        let statements: Vec<&Node> = branches
            .iter()
            .flat_map(|branch| every(&branch.children))
            .collect();
        let only = |test: &dyn Fn(&Node) -> bool| {
            !statements.is_empty() && statements.iter().all(|node| test(node))
        };
        let difference = match self.phase {
            Phase::Request
                if names.iter().any(|name| name == "std.healthy()")
                    && only(&|node| names_only(node, "req.grace")) =>
            {
                Some((
                    Effect::Caching,
                    "the edge has one stale_while_revalidate for a response, also while its origin is healthy",
                ))
            }
            Phase::Deliver
                if names
                    .iter()
                    .any(|name| name.starts_with("obj.") || name == "req.is_hitmiss")
                    && only(&|node| is_of_response(node)) =>
            {
                Some((
                    Effect::Operation,
                    "the field Cache-Status has the result for each request",
                ))
            }
            _ => None,
        };
        if let Some((effect, text)) = difference {
            let ledger = &self.translator.ledger;
            for branch in branches {
                ledger.differs(*branch, effect, text);
            }
            return self.implied_blocks(branches, text);
        }
        let is_alone = branches.len() == 1;
        let text = match self.phase {
            // Methods other than GET and HEAD are always passed.
            Phase::Request
                if is_alone
                    && all(&["req.method"])
                    && only(&|node| is_return(node, &["pass", "pipe"]))
                    && self.excludes_get(first) =>
            {
                "requests with other methods than GET and HEAD are always passed"
            }
            Phase::Request
                if is_alone
                    && asks_for_websocket(first)
                    && only(&|node| is_return(node, &["pipe", "pass"])) =>
            {
                "WebSocket is forwarded: forwarding.upgrades"
            }
            Phase::Request
                if names.iter().any(|name| name == "req.http.accept-encoding")
                    && only(&|node| names_only(node, "req.http.accept-encoding")) =>
            {
                "the edge has its own codings, and Vary: Accept-Encoding has few variants"
            }
            Phase::Request if only(&|node| names_only(node, "req.http.x-forwarded-for")) => {
                "forwarding.x_forwarded: the edge sets it"
            }
            // Responses that Varnish's own subroutine excludes, too.
            Phase::Response
                if is_alone
                    && first.as_name() == Some("bereq.uncacheable")
                    && only(&states_exclusion) =>
            {
                "requests that are passed are not stored"
            }
            Phase::Response if is_alone && is_exclusion(branches[0]) => {
                self.response.checks_origin = true;
                self.response.refuses_cookies |=
                    names.iter().any(|name| name == "beresp.http.set-cookie");
                "these responses are not stored, and caching.hit_for_miss is the time without collapsing"
            }
            // A cookie of a response that is stored.
            Phase::Response
                if is_alone
                    && is_stored(first)
                    && only(&removes_cookie)
                    && !self.response.refuses_cookies
                    && self.reached_by_all(path) =>
            {
                self.response.strips_cookies = Some(branches[0].id);
                "caching.set_cookie"
            }
            Phase::Response if only(&is_implied_of_response) => {
                "stored texts are compressed by default, and responses are always streamed"
            }
            _ => return false,
        };
        for branch in branches {
            self.translator.ledger.implied(*branch, text);
        }
        self.implied_blocks(branches, text)
    }

    /// Returns true if a condition on methods holds neither for GET nor for HEAD.
    fn excludes_get(&self, expr: &Expr) -> bool {
        let condition = self.condition(expr).requests();
        ["GET", "HEAD"].iter().all(|method| {
            let layers = condition.may().layers();
            let decided = layers.iter().rfind(|(when, _)| {
                when.methods.is_empty() || when.methods.iter().any(|known| known == method)
            });
            decided.is_some_and(|(_, holds)| !holds)
        })
    }

    fn implied_blocks(&self, branches: &[&'t Node], text: &str) -> bool {
        branches
            .iter()
            .all(|branch| self.implied_block(branch, text))
    }

    fn implied_block(&self, branch: &Node, text: &str) -> bool {
        let ledger = &self.translator.ledger;
        ledger.rest_of_block(&branch.children, Outcome::Implied, Effect::Operation, text);
        true
    }

    pub(super) fn assign_delivery(
        &mut self,
        node: &'t Node,
        lower: &str,
        target: &str,
        value: &Expr,
        reached: &Requests,
    ) -> Result<(), String> {
        let Some(field) = lower.strip_prefix("resp.http.") else {
            return Err("the edge keeps the status of a response".to_owned());
        };
        let mut reads_object = false;
        value.each(&mut |part| {
            reads_object |= part.as_name().is_some_and(|name| name.starts_with("obj."));
        });
        if reads_object || matches!(field, "x-cache" | "x-cache-hits") {
            let text = "the field Cache-Status has the result for each request";
            self.translator
                .ledger
                .differs(node, Effect::Operation, text);
            return Ok(());
        }
        if !is_field_name(field)
            || matches!(field, "content-length" | "transfer-encoding" | "connection")
        {
            return Err("the edge writes this field itself".to_owned());
        }
        let text = self.value(value)?;
        for (_, value) in text.layers() {
            if !matches!(value, Field::Text(_) | Field::Absent) {
                return Err("a template has no cookies".to_owned());
            }
        }
        let name = spelled(target);
        let key = Key::Field("response", field.to_owned());
        let stated = text.map(|value| {
            let value = match value {
                Field::Text(text) => Value::SetField(name.clone(), text.clone()),
                _ => Value::RemoveField(name.clone()),
            };
            let from = Some(node.at.clone());
            Some(Setting { value, from })
        });
        let known = self.settings.get(&key).cloned();
        let known = known.unwrap_or_else(|| Decision::always(None));
        let stated = Decision::select(reached.best(), &stated, &known)?;
        self.settings.insert(key, stated);
        self.translator.ledger.translated(node, "response.set");
        Ok(())
    }

    pub(super) fn unset_delivery(
        &mut self,
        node: &'t Node,
        lower: &str,
        target: &str,
        reached: &Requests,
    ) -> Result<(), String> {
        let Some(field) = lower.strip_prefix("resp.http.") else {
            return Ok(());
        };
        if !is_field_name(field) {
            return Err("this is not the name of a field".to_owned());
        }
        self.change(
            "response",
            reached.best(),
            Value::RemoveField(spelled(target)),
            node,
        )?;
        self.translator.ledger.translated(node, "response.remove");
        Ok(())
    }
}

fn is_of_response(node: &Node) -> bool {
    match &node.kind {
        Kind::Set(target, ..) | Kind::Unset(target) => {
            target.to_ascii_lowercase().starts_with("resp.http.")
        }
        Kind::If(_) | Kind::ElseIf(_) | Kind::Else | Kind::Block => true,
        _ => false,
    }
}

fn removes_cookie(node: &Node) -> bool {
    match &node.kind {
        Kind::Unset(target) => target.eq_ignore_ascii_case("beresp.http.set-cookie"),
        _ => false,
    }
}

/// Returns true if a statement excludes a response from being stored.
fn excludes(node: &Node) -> bool {
    match &node.kind {
        Kind::Set(target, _, Expr::Bool(true)) => target == "beresp.uncacheable",
        Kind::Set(target, _, Expr::Duration(time)) => target == "beresp.ttl" && *time <= 0.0,
        _ => is_return(node, &["pass", "hit_for_pass"]),
    }
}

/// Returns true for the statements by which Varnish's own subroutine excludes a response.
fn states_exclusion(node: &Node) -> bool {
    match &node.kind {
        Kind::Set(target, "=", Expr::Duration(_)) => target == "beresp.ttl",
        _ => excludes(node) || is_return(node, &["deliver"]),
    }
}

/// Returns true for an `if` that excludes responses which Varnish's own subroutine excludes, too.
fn is_exclusion(branch: &Node) -> bool {
    let Kind::If(expr) = &branch.kind else {
        return false;
    };
    let children = &branch.children;
    let is_of_lifetime =
        matches!(expr, Expr::Compare(left, ..) if left.as_name() == Some("beresp.ttl"));
    match is_own_exclusion(expr) {
        true => children.iter().all(states_exclusion) && children.iter().any(excludes),
        // Fewer responses than the conditions in it exclude.
        false => is_of_lifetime && !children.is_empty() && children.iter().all(is_exclusion),
    }
}

/// Returns true for the conditions of Varnish's own subroutine, and for one of them.
fn is_own_exclusion(expr: &Expr) -> bool {
    match expr {
        Expr::Any(parts) => parts.iter().all(is_own_exclusion),
        Expr::Not(inner) => match &**inner {
            Expr::Compare(left, Operator::Greater, right) => {
                left.as_name() == Some("beresp.ttl") && is_zero(right)
            }
            _ => false,
        },
        Expr::Name(name) => {
            name.eq_ignore_ascii_case("beresp.http.set-cookie") || name == "bereq.uncacheable"
        }
        // Surrogate-Control precedes Cache-Control in both.
        Expr::All(parts) => match &parts[..] {
            [Expr::Not(name), part] => {
                let name = name.as_name().unwrap_or_default();
                name.eq_ignore_ascii_case("beresp.http.surrogate-control") && is_own_exclusion(part)
            }
            _ => false,
        },
        Expr::Compare(left, operator, right) => {
            let name = left.as_name().unwrap_or_default().to_ascii_lowercase();
            match (name.as_str(), operator) {
                ("beresp.ttl", Operator::LessOrEqual) => is_zero(right),
                ("beresp.http.vary", Operator::Equal) => right.as_text().as_deref() == Some("*"),
                (
                    "beresp.http.cache-control" | "beresp.http.surrogate-control",
                    Operator::Match,
                ) => forbids_storing(right),
                _ => false,
            }
        }
        _ => false,
    }
}

/// Returns true for a condition that holds for responses that are stored.
fn is_stored(expr: &Expr) -> bool {
    match expr {
        Expr::All(parts) => parts.iter().all(is_stored),
        Expr::Any(_) => is_of_get_and_head(expr),
        Expr::Compare(left, operator, right) => match (left.as_name(), operator) {
            (Some("beresp.ttl"), Operator::Greater | Operator::GreaterOrEqual) => is_zero(right),
            _ => false,
        },
        _ => false,
    }
}

/// Returns true for `bereq.method == "GET" || bereq.method == "HEAD"`. Other requests are passed.
fn is_of_get_and_head(expr: &Expr) -> bool {
    let Expr::Any(parts) = expr else {
        return false;
    };
    let mut methods: Vec<String> = Vec::new();
    for part in parts {
        match part {
            Expr::Compare(left, Operator::Equal, right)
                if matches!(left.as_name(), Some("bereq.method" | "req.method")) =>
            {
                methods.extend(right.as_text());
            }
            _ => return false,
        }
    }
    ["GET", "HEAD"]
        .iter()
        .all(|method| methods.iter().any(|known| known == method))
}

fn is_zero(expr: &Expr) -> bool {
    matches!(expr, Expr::Duration(time) | Expr::Number(time) if *time == 0.0)
}

/// Returns true for a text, or an expression such as `(?i:no-cache|private)`, of directives that forbid storing.
fn forbids_storing(expr: &Expr) -> bool {
    let Some(text) = expr.as_text() else {
        return false;
    };
    let text = text.to_ascii_lowercase();
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let mut words = words.filter(|word| !matches!(*word, "" | "i"));
    let is_known = |word: &str| matches!(word, "private" | "no-cache" | "no-store");
    match expr {
        // The statement sets the field to this text. One directive that forbids to store is sufficient.
        _ if text.contains(',') || !text.contains(['|', '(']) => words.any(is_known),
        _ => words.all(is_known),
    }
}

/// Returns true for conditions by which clients ask for WebSocket.
fn asks_for_websocket(expr: &Expr) -> bool {
    let parts = match expr {
        Expr::All(parts) => &parts[..],
        expr => std::slice::from_ref(expr),
    };
    let is_of = |part: &Expr, field: &str, value: &str| match part {
        Expr::Compare(left, Operator::Match | Operator::Equal, right) => {
            let name = left.as_name().unwrap_or_default();
            let text = right.as_text().unwrap_or_default().to_ascii_lowercase();
            let text = text.replace("(?i)", "").replace(['^', '$'], "");
            name.eq_ignore_ascii_case(field) && text == value
        }
        _ => false,
    };
    parts
        .iter()
        .any(|part| is_of(part, "req.http.upgrade", "websocket"))
        && parts.iter().all(|part| {
            is_of(part, "req.http.upgrade", "websocket")
                || is_of(part, "req.http.connection", "upgrade")
        })
}

/// Returns the group of a rule that changes a field of an origin's response.
fn group(field: &str) -> &'static str {
    match FIELDS_OF_FRESHNESS.contains(&field) {
        true => "response",
        false => "origin_response",
    }
}

fn is_return(node: &Node, actions: &[&str]) -> bool {
    matches!(&node.kind, Kind::Return(action, _) if actions.contains(&action.as_str()))
}

/// Returns true if a statement only changes one variable, or is a condition around such statements.
fn names_only(node: &Node, variable: &str) -> bool {
    match &node.kind {
        Kind::Set(target, ..) | Kind::Unset(target) => target.eq_ignore_ascii_case(variable),
        Kind::If(_) | Kind::ElseIf(_) | Kind::Else | Kind::Block => true,
        _ => false,
    }
}

/// Returns true if a statement states what the edge does for all responses.
fn is_implied_of_response(node: &Node) -> bool {
    match &node.kind {
        Kind::Set(target, _, value) => match target.as_str() {
            "beresp.do_gzip" | "beresp.do_stream" => *value == Expr::Bool(true),
            "beresp.do_esi" | "beresp.do_gunzip" => *value == Expr::Bool(false),
            "beresp.keep" => true,
            _ => false,
        },
        Kind::If(_) | Kind::ElseIf(_) | Kind::Else | Kind::Block => true,
        Kind::Action(action) => action
            .as_call()
            .is_some_and(|(name, _)| matches!(name, "std.log" | "std.syslog" | "std.timestamp")),
        _ => false,
    }
}
