//! Runs the statements of subroutines for all requests of a host at once.
//!
//! Each statement runs for the requests for which the conditions around it hold and no earlier statement has ended the
//! subroutine. A statement that cannot be translated is recorded as left out, and so are the statements of a block
//! whose condition cannot be translated.

use super::answers::PURGE_METHODS;
use super::conditions::Condition;
use super::requests::Requests;
use super::state::{Machine, Phase};
use super::tree::{Expr, Kind, Node};
use crate::report::{Effect, Outcome};
use crate::rule::Key;

/// The deepest nesting of calls. Varnish refuses recursion.
const CALLS_MAX: usize = 32;

const UNREACHED: &str =
    "never reached: an earlier statement ends the subroutine, or no request has the condition";

impl<'t> Machine<'_, 't> {
    /// Runs a subroutine that Varnish calls.
    pub(super) fn run(&mut self, name: &'static str, phase: Phase) {
        self.phase = phase;
        self.running = Requests::all();
        self.part(name);
    }

    /// Runs a subroutine that Varnish's own calls, for the requests for which the subroutine around it has not ended.
    pub(super) fn part(&mut self, name: &'static str) {
        self.local = Requests::all();
        let always = Requests::all();
        for sub in self.translator.subs.get(name).cloned().unwrap_or_default() {
            self.translator.ledger.translated(sub, "rules of sites");
            let nodes: Vec<&'t Node> = sub.children.iter().collect();
            self.statements(&nodes, &always);
        }
    }

    /// Runs statements for the requests of a path.
    pub(super) fn statements(&mut self, nodes: &[&'t Node], path: &Requests) {
        let mut rest = nodes;
        while let Some((first, behind)) = rest.split_first() {
            let is_chained = |node: &&&Node| matches!(node.kind, Kind::ElseIf(_) | Kind::Else);
            let chain = match first.kind {
                Kind::If(_) => 1 + behind.iter().take_while(is_chained).count(),
                _ => 1,
            };
            let (these, behind) = rest.split_at(chain);
            rest = behind;
            let layers = self
                .running
                .layers()
                .max(self.local.layers())
                .max(path.layers());
            if !self.translator.spend(layers) {
                return;
            }
            let (reached, reason) = self.reached(path);
            if reached.is_never() {
                for node in these {
                    self.rest(node, Outcome::Implied, UNREACHED);
                }
                continue;
            }
            match (&first.kind, reason) {
                (Kind::If(_), _) => self.chain(these, path),
                (_, Some(reason)) => {
                    self.left_out(first, &reason);
                    self.lost(first, &reached);
                }
                (_, None) if reached.is_lost() => self.lost(first, &reached),
                (_, None) => self.statement(first, &reached),
            }
        }
    }

    /// Returns the requests of a path for which the subroutine has not ended, and the reason if no rule can state them.
    fn reached(&self, path: &Requests) -> (Requests, Option<String>) {
        // The requests for which the subroutine has ended are exceptions from all conditions, so they come last.
        let (running, reason) = self.running.and(&self.local);
        let (reached, further) = running.and(path);
        (reached, reason.or(further))
    }

    /// Returns true if all requests surely reach a statement of a path.
    pub(super) fn reached_by_all(&self, path: &Requests) -> bool {
        self.reached(path).0.must().constant() == Some(&true)
    }

    /// Records an outcome for a node and all nodes in it that have none.
    fn rest(&self, node: &Node, outcome: Outcome, text: &str) {
        let nodes = std::slice::from_ref(node);
        let ledger = &self.translator.ledger;
        ledger.rest_of_block(nodes, outcome, Effect::Operation, text);
    }

    /// Runs the branches of an `if`.
    fn chain(&mut self, branches: &[&'t Node], path: &Requests) {
        let is_lost = path.is_lost();
        if !is_lost && self.is_idiom(branches, path) {
            return;
        }
        let mut remaining = path.clone();
        // The reason why no statement of the rest of the chain is translated.
        let mut lost: Option<String> = None;
        for branch in branches {
            let children: Vec<&'t Node> = branch.children.iter().collect();
            let (Kind::If(expr) | Kind::ElseIf(expr)) = &branch.kind else {
                self.statements(&children, &remaining);
                match lost {
                    _ if is_lost => {}
                    Some(reason) => self.left_out_branch(branch, &reason),
                    None => {
                        let ledger = &self.translator.ledger;
                        ledger.translated(*branch, "rules with conditions");
                    }
                }
                return;
            };
            let condition = self.condition(expr);
            let split = |requests: Requests, negated: Requests| {
                (remaining.and(&requests), remaining.and(&negated))
            };
            let (requests, negated) =
                (condition.requests(), condition.clone().negated().requests());
            let mut parts = split(requests.clone(), negated.clone());
            if parts.0.1.is_some() || parts.1.1.is_some() {
                let requests = requests.simplified();
                parts = split(requests.clone(), requests.not());
            }
            let ((then, no_then), (otherwise, no_otherwise)) = parts;
            let before = (self.running.clone(), self.answered.clone());
            let denied = self.settings.get(&Key::One("deny")).cloned();
            self.statements(&children, &then);
            let is_purge = |path: &Requests| path.may().without_methods(&PURGE_METHODS).is_never();
            let is_of_purge = is_purge(&then) && !is_purge(&remaining);
            lost = lost.or_else(|| condition.lost.clone());
            match lost.clone().or(no_then) {
                _ if is_lost => {}
                Some(reason) => self.left_out_branch(branch, &reason),
                None => self.branched(branch, &condition),
            }
            if is_of_purge {
                // The edge answers requests that purge before it applies rules, so no exception is needed.
                (self.running, self.answered) = before;
                if self.translator.purges(&then) {
                    match denied {
                        Some(denied) => _ = self.settings.insert(Key::One("deny"), denied),
                        None => _ = self.settings.remove(&Key::One("deny")),
                    }
                }
                continue;
            }
            lost = lost.or(no_otherwise);
            remaining = otherwise;
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

    fn statement(&mut self, node: &'t Node, reached: &Requests) {
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
                let reason;
                (self.local, reason) = self.local.without(reached);
                if let Some(reason) = reason {
                    self.left_out(node, &reason);
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
                    self.lost(node, reached);
                }
            }
            Kind::Unset(target) => {
                let lower = target.to_ascii_lowercase();
                if let Err(reason) = self.unset(node, &lower, target, reached) {
                    self.left_out(node, &reason);
                    self.lost(node, reached);
                }
            }
            Kind::Action(action) => {
                let (name, arguments) = action.as_call().unwrap_or_default();
                let values: Vec<&Expr> = arguments.iter().map(|(_, value)| value).collect();
                if let Err(reason) = self.action(node, name, &values, reached) {
                    self.left_out(node, &reason);
                    self.lost_action(name, &values, node, reached);
                }
            }
            // Without a block before it, and declarations, which have outcomes of their own.
            _ => {}
        }
    }

    pub(super) fn call(&mut self, node: &'t Node, name: &str, reached: &Requests) {
        let Some(subs) = self.translator.subs.get(name).cloned() else {
            let text = format!("there is no subroutine {name}, so its requests are denied");
            self.left_out(node, &text);
            return self.deny(reached, 403, node);
        };
        if self.depth >= CALLS_MAX {
            return self.left_out(node, "the subroutine calls itself");
        }
        if !reached.is_lost() {
            let ledger = &self.translator.ledger;
            ledger.translated(node, "the rules of the subroutine");
        }
        let local = std::mem::replace(&mut self.local, Requests::all());
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
    pub(super) fn end(&mut self, reached: &Requests) -> Result<(), String> {
        let reason;
        (self.running, reason) = self.running.without(reached);
        reason.map_or(Ok(()), Err)
    }

    fn assign(
        &mut self,
        node: &'t Node,
        lower: &str,
        target: &str,
        value: &Expr,
        reached: &Requests,
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
        reached: &Requests,
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

    fn returned(&mut self, node: &'t Node, action: &str, arguments: &[Expr], reached: &Requests) {
        let done = match self.phase {
            Phase::Request => self.returned_request(node, action, arguments, reached),
            Phase::Response => self.returned_response(node, action, reached),
            Phase::Fetch if matches!(action, "pass" | "pipe") => {
                self.pass(reached, node);
                self.translator.ledger.translated(node, "pass");
                self.end(reached)
            }
            Phase::Fetch if matches!(action, "abandon" | "fail") => {
                self.deny(reached, 503, node);
                self.translator.ledger.translated(node, "deny");
                self.end(reached)
            }
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
            self.lost(node, reached);
            // Statements behind it that restrict requests run for these, too.
            _ = self.end(&reached.unsure());
        }
    }

    fn action(
        &mut self,
        node: &'t Node,
        name: &str,
        arguments: &[&Expr],
        reached: &Requests,
    ) -> Result<(), String> {
        match name {
            "hash_data" => self.hash_data(node, arguments, reached),
            "ban" | "std.ban" => self.ban(node, arguments, reached),
            "purge.hard" | "purge.soft" | "xkey.purge" | "xkey.softpurge" | "purge" => {
                self.allow_purge(node, reached);
                Ok(())
            }
            "synthetic" if self.phase == Phase::Synth => {
                if let [value] = arguments {
                    self.synthetic_body(node, value);
                }
                Ok(())
            }
            name if name.starts_with("cookie.") => self.cookie_jar(node, name, arguments, reached),
            _ => {
                // The row of the function has its outcome.
                self.lost_action(name, arguments, node, reached);
                Ok(())
            }
        }
    }
}
