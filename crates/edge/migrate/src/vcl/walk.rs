//! Runs the statements of subroutines for all requests of a host at once.
//!
//! Each statement runs for the requests for which the conditions around it hold and no earlier statement has ended the
//! subroutine. A statement that cannot be translated is recorded as left out, and so are the statements of a block
//! whose condition cannot be translated.

use super::answers::PURGE_METHODS;
use super::conditions::Condition;
use super::state::{Machine, Phase};
use super::tree::{Expr, Kind, Node, every};
use crate::decision::Decision;
use crate::report::{Effect, Outcome};
use crate::rule::{Key, Value};

/// The deepest nesting of calls. Varnish refuses recursion.
const CALLS_MAX: usize = 32;

const UNREACHED: &str =
    "never reached: an earlier statement ends the subroutine, or no request has the condition";

impl<'t> Machine<'_, 't> {
    /// Runs a subroutine that Varnish calls.
    pub(super) fn run(&mut self, name: &'static str, phase: Phase) {
        self.phase = phase;
        self.running = Decision::always(true);
        self.part(name);
    }

    /// Runs a subroutine that Varnish's own calls, for the requests for which the subroutine around it has not ended.
    pub(super) fn part(&mut self, name: &'static str) {
        self.local = Decision::always(true);
        let always = Decision::always(true);
        for sub in self.translator.subs.get(name).cloned().unwrap_or_default() {
            self.translator.ledger.translated(sub, "rules of sites");
            let nodes: Vec<&'t Node> = sub.children.iter().collect();
            self.statements(&nodes, &always);
        }
    }

    /// Runs statements for the requests of a path.
    pub(super) fn statements(&mut self, nodes: &[&'t Node], path: &Decision<bool>) {
        let mut rest = nodes;
        while let Some((first, behind)) = rest.split_first() {
            let is_chained = |node: &&&Node| matches!(node.kind, Kind::ElseIf(_) | Kind::Else);
            let chain = match first.kind {
                Kind::If(_) => 1 + behind.iter().take_while(is_chained).count(),
                _ => 1,
            };
            let (these, behind) = rest.split_at(chain);
            rest = behind;
            let reached = self.reached(path);
            if reached.as_ref().is_ok_and(Decision::is_never) {
                for node in these {
                    self.rest(node, Outcome::Implied, UNREACHED);
                }
                continue;
            }
            match (&first.kind, reached) {
                (Kind::If(_), _) => self.chain(these, path),
                (_, Ok(reached)) => self.statement(first, &reached),
                (_, Err(reason)) => self.left_out(first, &reason),
            }
        }
    }

    /// Returns the requests of a path for which the subroutine has not ended.
    fn reached(&self, path: &Decision<bool>) -> Result<Decision<bool>, String> {
        // The requests for which the subroutine has ended are exceptions from all conditions, so they come last.
        self.running.and(&self.local)?.and(path)
    }

    /// Records an outcome for a node and all nodes in it that have none.
    fn rest(&self, node: &Node, outcome: Outcome, text: &str) {
        let nodes = std::slice::from_ref(node);
        let ledger = &self.translator.ledger;
        ledger.rest_of_block(nodes, outcome, Effect::Operation, text);
    }

    /// Records that a statement was left out.
    pub(super) fn left_out(&self, node: &Node, reason: &str) {
        let effect = self.effect(node);
        self.translator.ledger.left_out(node, effect, reason);
    }

    /// Returns the part of the behaviour that a statement changes.
    fn effect(&self, node: &Node) -> Effect {
        let of_one = |node: &Node| match &node.kind {
            Kind::Return(action, arguments) => match (action.as_str(), arguments.first()) {
                ("synth", Some(Expr::Number(status)))
                    if [401.0, 403.0, 405.0, 429.0].contains(status) =>
                {
                    Effect::Access
                }
                ("pass" | "pipe" | "hash" | "lookup" | "purge" | "hit_for_pass", _) => {
                    Effect::Caching
                }
                ("deliver" | "fetch" | "ok" | "", _) => Effect::Operation,
                _ => Effect::Response,
            },
            Kind::Set(target, ..) | Kind::Unset(target) => {
                match target.to_ascii_lowercase().as_str() {
                    "beresp.ttl"
                    | "beresp.grace"
                    | "beresp.uncacheable"
                    | "req.grace"
                    | "req.ttl"
                    | "req.url"
                    | "req.http.cookie"
                    | "req.http.host"
                    | "req.hash_always_miss" => Effect::Caching,
                    target if target.starts_with("resp.http.x-") => Effect::Operation,
                    target if target.starts_with("beresp.keep") => Effect::Operation,
                    _ => Effect::Response,
                }
            }
            Kind::Action(action) => match action.as_call().map_or("", |(name, _)| name) {
                "hash_data" | "ban" | "std.ban" => Effect::Caching,
                name if name.starts_with("purge.") || name.starts_with("xkey.") => Effect::Caching,
                name if name.starts_with("std.") => Effect::Operation,
                _ => Effect::Response,
            },
            _ => Effect::Operation,
        };
        let nodes = every(std::slice::from_ref(node));
        let effects = nodes.into_iter().map(of_one);
        effects.max().unwrap_or(Effect::Response)
    }

    /// Runs the branches of an `if`.
    fn chain(&mut self, branches: &[&'t Node], path: &Decision<bool>) {
        if self.is_idiom(branches, path) {
            return;
        }
        let mut remaining = path.clone();
        for (position, branch) in branches.iter().enumerate() {
            let children: Vec<&'t Node> = branch.children.iter().collect();
            let (Kind::If(expr) | Kind::ElseIf(expr)) = &branch.kind else {
                let ledger = &self.translator.ledger;
                ledger.translated(*branch, "rules with conditions");
                self.statements(&children, &remaining);
                return;
            };
            let condition = self.condition(expr);
            let split = condition.and_then(|condition| {
                let then = remaining.and(&condition.decision)?;
                let otherwise = remaining.and(&condition.decision.not());
                Ok((condition, then, otherwise))
            });
            match split {
                Ok((condition, then, otherwise)) => {
                    self.branched(branch, &condition);
                    let before = (self.running.clone(), self.answered.clone());
                    self.statements(&children, &then);
                    let is_purge =
                        |path: &Decision<bool>| path.without_methods(&PURGE_METHODS).is_never();
                    if is_purge(&then) && !is_purge(&remaining) {
                        // The edge answers requests that purge before it applies rules, so no exception is needed.
                        (self.running, self.answered) = before;
                        continue;
                    }
                    match otherwise {
                        Ok(otherwise) => remaining = otherwise,
                        Err(reason) => {
                            for node in &branches[position + 1..] {
                                self.left_out_branch(node, &reason, &remaining);
                            }
                            return;
                        }
                    }
                }
                Err(reason) => {
                    for node in &branches[position..] {
                        self.left_out_branch(node, &reason, &remaining);
                    }
                    return;
                }
            }
        }
    }

    /// Records a condition.
    fn branched(&self, branch: &Node, condition: &Condition) {
        let ledger = &self.translator.ledger;
        match &condition.differences[..] {
            [] => ledger.translated(branch, "rules with conditions"),
            [first, ..] => {
                let mut texts = vec![*first];
                texts.extend(condition.differences.iter().filter(|text| *text != first));
                texts.dedup();
                ledger.differs(branch, Effect::Response, &texts.join("; "));
            }
        }
    }

    /// Records a block whose condition is lost. Requests that may be exceptions from caching are passed.
    fn left_out_branch(&mut self, branch: &'t Node, reason: &str, remaining: &Decision<bool>) {
        let is_pass = |node: &&Node| match &node.kind {
            Kind::Return(action, _) => matches!(action.as_str(), "pass" | "pipe"),
            Kind::Set(target, _, value) => {
                target == "beresp.uncacheable" && *value == Expr::Bool(true)
            }
            _ => false,
        };
        let is_exception = every(&branch.children).iter().any(is_pass);
        let is_common = self.status.is_none_or(|status| status == 200);
        let mut text = reason.to_owned();
        if is_exception && is_common && matches!(self.phase, Phase::Request | Phase::Response) {
            let reached = self.reached(remaining);
            let reached = reached.unwrap_or_else(|_| remaining.clone());
            if self.pass(&reached, branch).is_ok() {
                text.push_str(
                    "; these requests, and those that the condition excludes, are passed",
                );
            }
        }
        let effect = self.effect(branch);
        let ledger = &self.translator.ledger;
        ledger.left_out(branch, effect, &text);
        ledger.rest_of_block(
            &branch.children,
            Outcome::LeftOut,
            Effect::Operation,
            "belongs to an `if` that was left out",
        );
    }

    /// Passes requests.
    pub(super) fn pass(&mut self, path: &Decision<bool>, from: &Node) -> Result<(), String> {
        let value = || Value::Toml("true".to_owned());
        self.set(Key::One("pass"), path, value(), from)
    }

    fn statement(&mut self, node: &'t Node, reached: &Decision<bool>) {
        let ledger = &self.translator.ledger;
        match &node.kind {
            Kind::Block => {
                ledger.translated(node, "rules of sites");
                let children: Vec<&'t Node> = node.children.iter().collect();
                self.statements(&children, reached);
            }
            Kind::Call(name) => self.call(node, name, reached),
            Kind::Return(action, _) if action.is_empty() => {
                ledger.translated(node, "rules of sites");
                match reached.not().and(&self.local) {
                    Ok(local) => self.local = local,
                    Err(reason) => self.left_out(node, &reason),
                }
            }
            Kind::Return(action, arguments) => self.returned(node, action, arguments, reached),
            Kind::Set(target, operator, value) => {
                let lower = target.to_ascii_lowercase();
                let done = match *operator {
                    "=" => self.assign(node, &lower, target, value, reached),
                    _ => Err("the value depends on the one before".to_owned()),
                };
                if let Err(reason) = done {
                    self.left_out(node, &reason);
                }
            }
            Kind::Unset(target) => {
                let lower = target.to_ascii_lowercase();
                if let Err(reason) = self.unset(node, &lower, target, reached) {
                    self.left_out(node, &reason);
                }
            }
            Kind::Action(action) => {
                let (name, arguments) = action.as_call().unwrap_or_default();
                let values: Vec<&Expr> = arguments.iter().map(|(_, value)| value).collect();
                if let Err(reason) = self.action(node, name, &values, reached) {
                    self.left_out(node, &reason);
                }
            }
            // Without a block before it, and declarations, which have outcomes of their own.
            _ => {}
        }
    }

    fn call(&mut self, node: &'t Node, name: &str, reached: &Decision<bool>) {
        let Some(subs) = self.translator.subs.get(name).cloned() else {
            let text = format!("there is no subroutine {name}");
            return self.left_out(node, &text);
        };
        if self.depth >= CALLS_MAX {
            return self.left_out(node, "the subroutine calls itself");
        }
        self.translator
            .ledger
            .translated(node, "the rules of the subroutine");
        let local = std::mem::replace(&mut self.local, Decision::always(true));
        self.depth += 1;
        for sub in subs {
            self.translator.ledger.translated(sub, "rules of sites");
            let children: Vec<&'t Node> = sub.children.iter().collect();
            self.statements(&children, reached);
        }
        self.depth -= 1;
        self.local = local;
    }

    /// Ends the subroutine for requests.
    pub(super) fn end(&mut self, reached: &Decision<bool>) -> Result<(), String> {
        self.running = reached.not().and(&self.running)?;
        Ok(())
    }

    fn assign(
        &mut self,
        node: &'t Node,
        lower: &str,
        target: &str,
        value: &Expr,
        reached: &Decision<bool>,
    ) -> Result<(), String> {
        match lower.split('.').next().unwrap_or_default() {
            "req" | "bereq" => self.assign_request(node, lower, target, value, reached),
            "beresp" => self.assign_response(node, lower, target, value, reached),
            "resp" if self.phase == Phase::Synth => {
                self.assign_synthetic(node, lower, target, value)
            }
            "resp" => self.assign_delivery(node, lower, target, value, reached),
            _ => Ok(()),
        }
    }

    fn unset(
        &mut self,
        node: &'t Node,
        lower: &str,
        target: &str,
        reached: &Decision<bool>,
    ) -> Result<(), String> {
        match lower.split('.').next().unwrap_or_default() {
            "req" | "bereq" => self.unset_request(node, lower, target, reached),
            "beresp" => self.unset_response(node, lower, target, reached),
            "resp" if self.phase == Phase::Synth => {
                self.translator
                    .ledger
                    .implied(node, "the edge's answers have few fields");
                Ok(())
            }
            "resp" => self.unset_delivery(node, lower, target, reached),
            _ => Ok(()),
        }
    }

    fn returned(
        &mut self,
        node: &'t Node,
        action: &str,
        arguments: &[Expr],
        reached: &Decision<bool>,
    ) {
        let done = match self.phase {
            Phase::Request => self.returned_request(node, action, arguments, reached),
            Phase::Response => self.returned_response(node, action, reached),
            _ => match action {
                "deliver" | "fetch" | "lookup" | "hash" | "ok" | "pass" | "pipe" | "miss" => {
                    self.translator
                        .ledger
                        .implied(node, "the edge goes this way by itself");
                    self.end(reached)
                }
                _ => Err("the edge does not restart, retry or answer at this point".to_owned()),
            },
        };
        if let Err(reason) = done {
            self.left_out(node, &reason);
            // The statements behind it do not run for these requests.
            _ = self.end(reached);
        }
    }

    fn action(
        &mut self,
        node: &'t Node,
        name: &str,
        arguments: &[&Expr],
        reached: &Decision<bool>,
    ) -> Result<(), String> {
        match name {
            "hash_data" => self.hash_data(node, arguments, reached),
            "ban" | "std.ban" => self.ban(node, arguments, reached),
            "purge.hard" | "purge.soft" | "xkey.purge" | "xkey.softpurge" | "purge" => {
                self.allow_purge(node, reached);
                Ok(())
            }
            "synthetic" if self.phase == Phase::Synth => {
                self.synthetic.has_body = true;
                let text =
                    "the edge sends its own text with the status; error_page replaces it by a file";
                self.translator.ledger.differs(node, Effect::Response, text);
                Ok(())
            }
            name if name.starts_with("cookie.") => self.cookie_jar(node, name, arguments, reached),
            _ => Ok(()),
        }
    }
}
