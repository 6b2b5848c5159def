//! Statements on responses of origins: lifetimes, grace, fields, and which responses are not stored.

use super::state::{Lifetime, Machine, Phase};
use super::text::spelled;
use super::tree::{Expr, Kind, Node, every};
use crate::decision::Decision;
use crate::grouping::Setting;
use crate::report::{Effect, Outcome};
use crate::rule::{Key, Value};
use crate::toml;
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

impl<'t> Machine<'_, 't> {
    pub(super) fn assign_response(
        &mut self,
        node: &'t Node,
        lower: &str,
        target: &str,
        value: &Expr,
        reached: &Decision<bool>,
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
                let response = &mut self.response;
                let known = match lower {
                    "beresp.ttl" => &mut response.ttl,
                    _ => &mut response.grace,
                };
                *known = Decision::select(reached, &stated, known)?;
                let text = match lower {
                    "beresp.ttl" => "ttl, default_ttl, pass",
                    _ => "stale_while_revalidate, stale_if_error, stale_if_disconnected",
                };
                self.translator.ledger.translated(node, text);
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
                    self.exclude(node, reached)?;
                    self.translator.ledger.translated(node, "pass");
                    Ok(())
                }
                _ => Ok(()),
            },
            "beresp.do_gzip" => match value {
                Expr::Bool(false) => {
                    let value = Value::Toml("false".to_owned());
                    self.set(Key::One("compression"), reached, value, node)?;
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

    /// States that responses are not stored.
    fn exclude(&mut self, node: &'t Node, reached: &Decision<bool>) -> Result<(), String> {
        if self.status == Some(200) {
            self.pass(reached, node)?;
        }
        self.response.uncacheable = reached.or(&self.response.uncacheable)?;
        Ok(())
    }

    fn assign_response_field(
        &mut self,
        node: &'t Node,
        field: &str,
        target: &str,
        value: &Expr,
        reached: &Decision<bool>,
    ) -> Result<(), String> {
        if !is_field_name(field)
            || matches!(field, "content-length" | "transfer-encoding" | "connection")
        {
            return Err("the edge writes this field itself".to_owned());
        }
        let name = spelled(target);
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
        self.change(group(field), reached, value, node)?;
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
        reached: &Decision<bool>,
    ) -> Result<(), String> {
        let Some(field) = lower.strip_prefix("beresp.http.") else {
            return Ok(());
        };
        if !is_field_name(field) {
            return Err("this is not the name of a field".to_owned());
        }
        self.change(
            group(field),
            reached,
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
        reached: &Decision<bool>,
    ) -> Result<(), String> {
        let ledger = &self.translator.ledger;
        match action {
            "deliver" | "ok" => {
                ledger.translated(node, "ttl");
                self.end(reached)
            }
            "pass" | "hit_for_pass" => {
                self.exclude(node, reached)?;
                ledger_of(self).translated(node, "pass");
                self.end(reached)
            }
            "abandon" | "fail" | "error" => {
                ledger.differs(
                    node,
                    Effect::Caching,
                    "stale_if_error: the edge uses a stale response in place of an error, and else sends the error",
                );
                self.response.uncacheable = reached.or(&self.response.uncacheable)?;
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
    pub(super) fn is_idiom(&mut self, branches: &[&'t Node], path: &Decision<bool>) -> bool {
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
                if all(&["req.http.upgrade", "req.http.connection"])
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
                    && all(&[
                        "beresp.ttl",
                        "beresp.http.set-cookie",
                        "beresp.http.surrogate-control",
                        "beresp.http.cache-control",
                        "beresp.http.pragma",
                        "beresp.http.vary",
                        "bereq.uncacheable",
                    ])
                    && only(&|node| {
                        is_return(node, &["deliver", "pass", "hit_for_pass"])
                            || names_only(node, "beresp.uncacheable")
                            || names_only(node, "beresp.ttl")
                    })
                    && (all(&["bereq.uncacheable"])
                        || statements.iter().any(|node| excludes(node))) =>
            {
                self.response.checks_origin = true;
                "these responses are not stored, and caching.hit_for_miss is the time without collapsing"
            }
            // A cookie of a response that is stored.
            Phase::Response
                if is_alone
                    && all(&["beresp.ttl", "bereq.method", "req.method"])
                    && only(&removes_cookie) =>
            {
                self.translator
                    .fact("caching", "set_cookie", toml::text("strip"), branches[0]);
                return self.implied_blocks(branches, "caching.set_cookie");
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
        let Ok(condition) = self.condition(expr) else {
            return false;
        };
        ["GET", "HEAD"].iter().all(|method| {
            let layers = condition.decision.layers();
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
        reached: &Decision<bool>,
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
            if !matches!(
                value,
                super::state::Field::Text(_) | super::state::Field::Absent
            ) {
                return Err("a template has no cookies".to_owned());
            }
        }
        let name = spelled(target);
        let key = Key::Field("response", field.to_owned());
        let stated = text.map(|value| {
            let value = match value {
                super::state::Field::Text(text) => Value::SetField(name.clone(), text.clone()),
                _ => Value::RemoveField(name.clone()),
            };
            let from = Some(node.at.clone());
            Some(Setting { value, from })
        });
        let known = self.settings.get(&key).cloned();
        let known = known.unwrap_or_else(|| Decision::always(None));
        let stated = Decision::select(reached, &stated, &known)?;
        self.settings.insert(key, stated);
        self.translator.ledger.translated(node, "response.set");
        Ok(())
    }

    pub(super) fn unset_delivery(
        &mut self,
        node: &'t Node,
        lower: &str,
        target: &str,
        reached: &Decision<bool>,
    ) -> Result<(), String> {
        let Some(field) = lower.strip_prefix("resp.http.") else {
            return Ok(());
        };
        if !is_field_name(field) {
            return Err("this is not the name of a field".to_owned());
        }
        self.change(
            "response",
            reached,
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
    names_only(node, "beresp.uncacheable")
        || is_return(node, &["pass", "hit_for_pass"])
        || matches!(&node.kind, Kind::Set(_, _, Expr::Duration(time)) if *time <= 0.0)
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

fn ledger_of<'m>(machine: &'m Machine<'_, '_>) -> &'m crate::ledger::Ledger {
    &machine.translator.ledger
}
