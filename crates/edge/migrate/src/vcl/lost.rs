//! Statements that restrict requests, and those without a counterpart.
//!
//! A statement that is left out must not open access or store more than Varnish does. All requests that may reach a
//! lost `return (synth(403))` are denied, and those that may reach a lost exception from caching are passed.

use super::request::is_own;
use super::requests::{Requests, upper_or};
use super::state::{Field, Machine, Phase, URL};
use super::text::{request_field, spelled};
use super::tree::{Expr, Kind, Node, every};
use crate::decision::Decision;
use crate::report::{Effect, Outcome};
use crate::rule::{Key, Value};

/// Fields of a response that decide if Varnish's own subroutine stores it.
const FIELDS_OF_STORING: [&str; 5] = [
    "cache-control",
    "surrogate-control",
    "pragma",
    "set-cookie",
    "vary",
];

impl<'t> Machine<'_, 't> {
    /// Passes requests.
    pub(super) fn pass(&mut self, path: &Requests, from: &Node) {
        let value = Value::Toml("true".to_owned());
        let text = "requests that Varnish does not pass are passed, too: their conditions have no exact counterpart";
        self.restrict_and_report("pass", value, path, from, (Effect::Caching, text));
    }

    /// Denies requests with a status of 400 to 599.
    pub(super) fn deny(&mut self, path: &Requests, status: u16, from: &Node) {
        self.deny_with(path, Value::Toml(status.to_string()), from);
    }

    /// Denies requests with a value of `deny`.
    pub(super) fn deny_with(&mut self, path: &Requests, value: Value, from: &Node) {
        let text = "requests that Varnish admits are denied, too: their conditions have no exact counterpart";
        self.restrict_and_report("deny", value, path, from, (Effect::Access, text));
    }

    /// Denies requests that Varnish may answer itself, if a rule does not answer them.
    pub(super) fn deny_excess(&mut self, path: &Requests, from: &Node) {
        if let Some(excess) = path.excess() {
            self.deny(&Requests::within(excess), 403, from);
            let text =
                "no rule states its condition exactly: other requests that may reach it are denied";
            self.translator.ledger.left_out(from, Effect::Access, text);
        }
    }

    fn restrict_and_report(
        &mut self,
        key: &'static str,
        value: Value,
        path: &Requests,
        from: &Node,
        (effect, text): (Effect, &str),
    ) {
        let is_covered = |excess: &Decision<bool>| {
            self.stated("deny").covers(excess) || self.stated(key).covers(excess)
        };
        let is_reported = path.excess().is_some_and(|excess| !is_covered(&excess));
        let is_exact = self.restrict(Key::One(key), path, value, from);
        if is_reported || !is_exact {
            self.translator.ledger.left_out(from, effect, text);
        }
    }

    /// States that responses are not stored.
    pub(super) fn exclude(&mut self, node: &Node, reached: &Requests) {
        if self.status == Some(200) {
            self.pass(reached, node);
        }
        let response = &mut self.response;
        response.uncacheable = upper_or(&response.uncacheable, reached.may());
        response.excluded_from = Some(node.at.clone());
    }

    /// Restricts requests that may reach a statement without a counterpart.
    pub(super) fn lost(&mut self, node: &'t Node, reached: &Requests) {
        let lost = Requests::within(reached.may().clone());
        match &node.kind {
            Kind::Block => {
                let children: Vec<&'t Node> = node.children.iter().collect();
                self.statements(&children, &lost);
            }
            Kind::Call(name) => self.call(node, name, &lost),
            Kind::Return(action, arguments) => self.lost_return(node, action, arguments, &lost),
            Kind::Set(target, ..) | Kind::Unset(target) => {
                self.lost_change(node, &target.to_ascii_lowercase(), target, &lost);
            }
            Kind::Action(action) => {
                let (name, arguments) = action.as_call().unwrap_or_default();
                let values: Vec<&Expr> = arguments.iter().map(|(_, value)| value).collect();
                self.lost_action(name, &values, node, &lost);
            }
            _ => {}
        }
        let text = "belongs to an `if` that was left out, or other requests do not reach it";
        let ledger = &self.translator.ledger;
        if !ledger.has(node) {
            ledger.left_out(node, Effect::Operation, text);
        }
    }

    fn lost_return(&mut self, node: &Node, action: &str, arguments: &[Expr], lost: &Requests) {
        // Statements behind it run for all, but not surely.
        match action {
            "" => self.local = self.local.without(lost).0,
            _ => self.running = self.running.without(lost).0,
        }
        let status = match (action, arguments.first()) {
            // The subroutine that makes the answer of a status above 599 states another one.
            ("synth" | "error", Some(Expr::Number(code))) => match *code as u16 {
                status @ 400..=499 => Some(status),
                500..=599 => None,
                _ => Some(403),
            },
            ("synth" | "error" | "fail" | "vcl", _) => Some(403),
            ("abandon", _) if self.phase == Phase::Fetch => Some(403),
            _ => None,
        };
        match (self.phase, action, status) {
            (Phase::Synth | Phase::Hash, ..) => {}
            (.., Some(status)) => self.deny(lost, status, node),
            (Phase::Response, ..) => self.exclude(node, lost),
            (_, "restart" | "pass" | "pipe", _) => self.pass(lost, node),
            _ => {}
        }
    }

    /// Records that a variable may have another value.
    fn lost_change(&mut self, node: &Node, lower: &str, target: &str, lost: &Requests) {
        if let Some(field) = request_field(lower) {
            return match field {
                "host" => self.lose_variable("host", lost),
                // The client's own value must not reach the origin.
                field if matches!(node.kind, Kind::Unset(_)) && !is_own(field) => {
                    self.lose_removed(&spelled(target), lost, node);
                }
                _ => self.lose_field(&spelled(target), lost, node),
            };
        }
        match lower {
            "req.url" | "bereq.url" => self.lose_field(URL, lost, node),
            "req.method" | "bereq.method" => self.lose_variable("method", lost),
            "req.hash_always_miss" | "bereq.uncacheable" => self.pass(lost, node),
            "beresp.ttl" | "beresp.uncacheable" => self.exclude(node, lost),
            _ => {
                let field = lower.strip_prefix("beresp.http.").unwrap_or_default();
                if matches!(node.kind, Kind::Set(..)) && FIELDS_OF_STORING.contains(&field) {
                    self.exclude(node, lost);
                }
            }
        }
    }

    /// Restricts requests for which a function without a counterpart may run.
    pub(super) fn lost_action(
        &mut self,
        name: &str,
        arguments: &[&Expr],
        node: &Node,
        path: &Requests,
    ) {
        match name {
            // Responses that differ by a value which is not in the key.
            "hash_data" => self.pass(path, node),
            name if name.starts_with("std.") && name != "std.rollback" => {}
            name if name.starts_with("cookie.") => self.jar = Decision::always(Field::Unknown),
            // The function may change the fields that it gets.
            _ => arguments.iter().for_each(|value| {
                if let Some(variable) = value.as_name() {
                    self.lost_change(node, &variable.to_ascii_lowercase(), variable, path);
                }
            }),
        }
    }

    /// Records a block whose condition is lost.
    pub(super) fn left_out_branch(&self, branch: &Node, reason: &str) {
        let effect = self.effect(branch);
        let text = match effect {
            Effect::Access => "; these requests, and those that the condition excludes, are denied",
            Effect::Caching => {
                "; these requests, and those that the condition excludes, are passed if the block has an exception \
                 from caching"
            }
            _ => "",
        };
        let ledger = &self.translator.ledger;
        ledger.left_out(branch, effect, &format!("{reason}{text}"));
        ledger.rest_of_block(
            &branch.children,
            Outcome::LeftOut,
            Effect::Operation,
            "belongs to an `if` that was left out",
        );
    }

    /// Records that a statement was left out.
    pub(super) fn left_out(&self, node: &Node, reason: &str) {
        let effect = self.effect(node);
        self.translator.ledger.left_out(node, effect, reason);
    }

    /// Returns the part of the behaviour that a statement changes, with the subroutines that it calls.
    fn effect(&self, node: &Node) -> Effect {
        let nodes = every(std::slice::from_ref(node));
        let effects = nodes.into_iter().map(|node| match &node.kind {
            Kind::Call(name) => self.effect_of_sub(name),
            _ => effect_of_one(node, self.phase),
        });
        effects.max().unwrap_or(Effect::Response)
    }

    fn effect_of_sub(&self, name: &str) -> Effect {
        let key = (name.to_owned(), self.phase == Phase::Response);
        let known = self.translator.effects.borrow().get(&key).copied();
        if let Some(effect) = known {
            return effect;
        }
        let Some(subs) = self.translator.subs.get(name) else {
            return Effect::Access;
        };
        // The value of a subroutine that calls itself, which Varnish refuses.
        let record = |effect| {
            self.translator
                .effects
                .borrow_mut()
                .insert(key.clone(), effect)
        };
        record(Effect::Operation);
        let effect = subs.iter().map(|sub| self.effect(sub)).max();
        let effect = effect.unwrap_or(Effect::Operation);
        record(effect);
        effect
    }
}

/// Returns the part of the behaviour that one statement changes.
fn effect_of_one(node: &Node, phase: Phase) -> Effect {
    match &node.kind {
        Kind::Return(action, arguments) => match (action.as_str(), arguments.first()) {
            // An answer in place of the origin's, as a redirect to a login, also restricts access.
            ("synth", Some(Expr::Number(status))) if (500.0..600.0).contains(status) => {
                Effect::Response
            }
            ("synth" | "fail" | "vcl", _) => Effect::Access,
            ("abandon", _) if phase == Phase::Fetch => Effect::Access,
            ("pass" | "pipe" | "hash" | "lookup" | "purge" | "hit_for_pass" | "restart", _) => {
                Effect::Caching
            }
            _ if phase == Phase::Response => Effect::Caching,
            ("deliver" | "fetch" | "ok" | "", _) => Effect::Operation,
            _ => Effect::Response,
        },
        Kind::Set(target, ..) | Kind::Unset(target) => match target.to_ascii_lowercase().as_str() {
            "beresp.ttl"
            | "beresp.grace"
            | "beresp.uncacheable"
            | "bereq.uncacheable"
            | "req.grace"
            | "req.ttl"
            | "req.url"
            | "req.http.cookie"
            | "req.http.host"
            | "req.hash_always_miss" => Effect::Caching,
            target if target.starts_with("resp.http.x-") => Effect::Operation,
            target if target.starts_with("beresp.keep") => Effect::Operation,
            _ => Effect::Response,
        },
        Kind::Action(action) => match action.as_call().map_or("", |(name, _)| name) {
            "hash_data" | "ban" | "std.ban" => Effect::Caching,
            name if name.starts_with("purge.") || name.starts_with("xkey.") => Effect::Caching,
            name if name.starts_with("std.") => Effect::Operation,
            _ => Effect::Response,
        },
        _ => Effect::Operation,
    }
}
