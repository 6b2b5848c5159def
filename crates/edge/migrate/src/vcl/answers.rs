//! Answers without an origin: `synth`, purges and bans.

use std::collections::BTreeMap;

use edgeward_sites::PAGE_BYTES_MAX;

use super::acl;
use super::requests::Requests;
use super::state::{Machine, Phase, Synthetic, ledger_of};
use super::text::spelled;
use super::translator::KNOWN_METHODS;
use super::tree::{Expr, Kind, Node, Operator, every};
use crate::decision::Decision;
use crate::grouping::Setting;
use crate::report::Effect;
use crate::rule::{Key, Value, When};
use crate::toml;
use crate::values;

/// Methods with which clients purge.
pub(super) const PURGE_METHODS: [&str; 6] =
    ["PURGE", "BAN", "PURGEKEYS", "URIBAN", "REFRESH", "FULLBAN"];

/// The fields whose tags the edge reads in a request that purges.
const TAG_FIELDS: [&str; 12] = [
    "xkey",
    "xkey-purge",
    "xkey-softpurge",
    "surrogate-key",
    "cache-tags",
    "cache-tag",
    "purge-cache-tags",
    "x-cache-tags",
    "x-magento-tags",
    "x-magento-tags-pattern",
    "x-drupal-cache-tags",
    "x-tag",
];

/// The type of texts of Varnish without another.
const HTML: &str = "text/html; charset=utf-8";

impl<'t> Machine<'_, 't> {
    /// Translates `return (synth(…))`.
    pub(super) fn synth(
        &mut self,
        node: &'t Node,
        arguments: &[Expr],
        reached: &Requests,
    ) -> Result<(), String> {
        let Some(Expr::Number(code)) = arguments.first() else {
            return Err("the status is not a number".to_owned());
        };
        let code = *code as u16;
        let is_purge = |when: &When| {
            !when.methods.is_empty()
                && when
                    .methods
                    .iter()
                    .all(|m| PURGE_METHODS.contains(&m.as_str()))
        };
        let holds = reached.best().layers().iter().filter(|(_, holds)| *holds);
        if holds.clone().count() > 0 && holds.clone().all(|(when, _)| is_purge(when)) {
            // The edge answers requests that purge itself.
            let text = "the edge answers 200 to a purge, and 403 to a client that may not purge";
            ledger_of(self).differs(node, Effect::Operation, text);
            // These requests do not reach the origin, and the rule is not needed where purge.allow has its methods.
            let status = match code {
                400..=499 => code,
                _ => 403,
            };
            self.deny_purge(reached, status, node);
            // A refused purge is an exception from later ones.
            return match code {
                200..=299 => Ok(()),
                _ => self.end(reached),
            };
        }
        // Without a reason, it is that of the status.
        let reason = arguments.get(1);
        let reason = reason.and_then(|reason| self.template(reason).ok());
        let answer = self.synthetic(code, reason);
        let (reached, further) = &reached.and(&self.answered.not());
        if let Some(reason) = further {
            return Err(reason.clone());
        }
        let best = reached.best();
        let status = answer.status;
        let one = |value: String| Value::Toml(value);
        match (&answer.location, status) {
            (Some(location), 301 | 302 | 303 | 307 | 308) => {
                if !["/", "http://", "https://", "${scheme}"]
                    .iter()
                    .any(|start| location.starts_with(start))
                {
                    return Err("a redirect begins with a slash or a scheme".to_owned());
                }
                self.set(Key::One("redirect"), best, one(toml::text(location)), node)?;
                self.set(
                    Key::One("redirect_status"),
                    best,
                    one(status.to_string()),
                    node,
                )?;
                ledger_of(self).translated(node, "redirect, redirect_status");
                self.deny_excess(reached, node);
            }
            (_, 400..=599) => {
                let kind = answer.content_type.as_deref().unwrap_or(HTML);
                let body = answer.body.as_deref();
                let denial = match body.filter(|body| body.len() <= PAGE_BYTES_MAX) {
                    Some(body) => Value::DenyWithPage(status, values::page(body, kind)),
                    None => one(status.to_string()),
                };
                match status {
                    ..=499 => self.deny_with(reached, denial, node),
                    _ => self.set(Key::One("deny"), best, denial, node)?,
                }
                ledger_of(self).translated(node, "deny, error_page");
            }
            (_, 300..=399) => {
                return Err(
                    "the statement that sets Location in vcl_synth was not found".to_owned(),
                );
            }
            _ => {
                let body = answer.body.as_deref().unwrap_or_default();
                let kind = answer.content_type.as_deref().unwrap_or(HTML);
                let value = values::answer(status, body, kind);
                match value {
                    Some(value) => {
                        self.set(Key::One("answer"), best, one(value), node)?;
                        match answer.body {
                            Some(_) => ledger_of(self).translated(node, "answer"),
                            None => {
                                let text = "the answer is empty; Varnish sends a page, or a text with variables";
                                ledger_of(self).differs(node, Effect::Response, text);
                            }
                        }
                    }
                    None => {
                        self.set(Key::One("deny"), best, one("404".to_owned()), node)?;
                        let text =
                            "the edge does not answer with this status, so these requests get 404";
                        ledger_of(self).left_out(node, Effect::Response, text);
                    }
                }
                self.deny_excess(reached, node);
            }
        }
        for (name, value, from) in answer.fields {
            let key = Key::Field("response", name.to_ascii_lowercase());
            let value = Value::SetField(name, value);
            let from = Some(from);
            self.state(key, best, Setting { value, from })?;
        }
        let (answered, reason) = self.answered.or(reached);
        match reason {
            None => self.answered = answered,
            // Later answers count for these requests, too.
            Some(_) => self.answered = Requests::none(),
        }
        Ok(())
    }

    /// Runs `vcl_synth` for a status and a reason.
    fn synthetic(&mut self, code: u16, reason: Option<String>) -> Synthetic {
        let saved = (self.phase, self.running.clone(), self.local.clone());
        let (status, text) = (self.status, self.reason.take());
        self.synthetic = Synthetic {
            status: code,
            ..Synthetic::default()
        };
        self.status = Some(code);
        self.reason = reason;
        self.run("vcl_synth", Phase::Synth);
        if !self.running.is_never() {
            // Varnish's own subroutine runs behind it and replaces the body.
            self.synthetic.body = None;
        }
        (self.phase, self.running, self.local) = saved;
        (self.status, self.reason) = (status, text);
        std::mem::take(&mut self.synthetic)
    }

    /// Runs an assignment in `vcl_synth`.
    pub(super) fn assign_synthetic(
        &mut self,
        node: &'t Node,
        lower: &str,
        target: &str,
        value: &Expr,
    ) -> Result<(), String> {
        match lower {
            "resp.status" => {
                let Expr::Number(status) = value else {
                    return Err("the status is not a number".to_owned());
                };
                self.synthetic.status = *status as u16;
                // Varnish replaces the reason by that of the status.
                self.reason = None;
                ledger_of(self).translated(node, "deny, redirect_status");
            }
            "resp.reason" => {
                self.reason = self.template(value).ok();
                ledger_of(self).implied(node, "HTTP/2 has no reasons");
            }
            "resp.http.location" => {
                self.synthetic.location = Some(self.template(value)?);
                ledger_of(self).translated(node, "redirect");
            }
            "resp.http.content-type" => {
                self.synthetic.content_type = self.fixed_text(value);
                ledger_of(self).implied(node, "the type of the text");
            }
            "resp.http.server" => {
                ledger_of(self).implied(node, "the edge states no Server");
            }
            _ if lower.starts_with("resp.http.") => {
                let value = self.template(value)?;
                self.synthetic
                    .fields
                    .push((spelled(target), value, node.at.clone()));
                ledger_of(self).translated(node, "response.set");
            }
            // The body, in the syntax of Varnish 7.
            "resp.body" => self.synthetic_body(node, value),
            _ => {}
        }
        Ok(())
    }

    /// Runs `synthetic` and an assignment of `resp.body`.
    pub(super) fn synthetic_body(&mut self, node: &'t Node, value: &Expr) {
        self.synthetic.body = self.fixed_text(value);
        match &self.synthetic.body {
            Some(_) => ledger_of(self).translated(node, "answer, error_page"),
            None => {
                let text = "the edge sends a text of its own in place of one with variables";
                ledger_of(self).differs(node, Effect::Response, text);
            }
        }
    }

    /// Returns a text whose variables are known in `vcl_synth`.
    fn fixed_text(&self, expr: &Expr) -> Option<String> {
        match expr {
            Expr::Text(text) => Some(text.clone()),
            Expr::Sum(parts) => parts.iter().map(|part| self.fixed_text(part)).collect(),
            Expr::Name(_) => {
                let text = self.template(expr).ok()?;
                (!text.contains("${")).then_some(text)
            }
            _ => None,
        }
    }

    /// Translates `return (purge)`. Requests that purge do not reach the origin.
    pub(super) fn purge(&mut self, node: &'t Node, reached: &Requests) {
        self.allow_purge(node, reached);
        if !self.translator.purges(reached) {
            self.deny_purge(reached, 403, node);
        }
    }

    /// Denies requests that purge, also to the clients that may do so: the edge answers those before it applies rules.
    fn deny_purge(&mut self, reached: &Requests, status: u16, node: &Node) {
        let holds = reached.may().layers().iter().filter(|(_, holds)| *holds);
        let of_all_clients = holds.map(|(when, _)| When {
            clients: Vec::new(),
            ..when.clone()
        });
        self.deny(&Decision::any(of_all_clients).into(), status, node);
    }

    /// Translates functions that purge.
    pub(super) fn allow_purge(&mut self, node: &'t Node, reached: &Requests) {
        let ledger = ledger_of(self);
        let mut methods: Vec<&str> = Vec::new();
        let mut networks: Option<Vec<String>> = None;
        if !is_of_clients(reached) {
            let text = "purge.allow has networks, and no other conditions and no exceptions";
            return ledger.left_out(node, Effect::Access, text);
        }
        for (when, _) in reached.best().layers().iter().filter(|(_, holds)| *holds) {
            methods.extend(when.methods.iter().map(String::as_str));
            networks
                .get_or_insert_default()
                .extend(when.clients.clone());
        }
        let networks = networks.unwrap_or_default();
        if methods.is_empty() {
            let text = "purge.allow is for the methods PURGE, BAN and PURGEKEYS; use edgeward purge for other requests";
            return ledger.left_out(node, Effect::Caching, text);
        }
        if let Some(method) = methods
            .iter()
            .find(|method| !KNOWN_METHODS.contains(method))
        {
            let text = format!("the edge purges by PURGE, BAN and PURGEKEYS, and not by {method}");
            return ledger.left_out(node, Effect::Caching, &text);
        }
        let networks = match networks.is_empty() {
            false => networks,
            // The condition excludes clients, so the one that is listed may purge, or no ACL limits it.
            true => match self.excluded(reached) {
                Some(networks) => networks,
                None => {
                    ledger.left_out(
                        node,
                        Effect::Access,
                        "any client may purge; purge.allow needs the addresses of those that may",
                    );
                    return;
                }
            },
        };
        match self.translator.allow_purges(&networks, &methods, node) {
            true => ledger.translated(node, "purge.allow"),
            false => {
                let text = "purge.allow is for all methods that purge: it has the networks that may use each";
                ledger.left_out(node, Effect::Access, text);
            }
        }
    }

    /// Returns the networks of the ACL that conditions on `client.ip` in front of a purge name.
    fn excluded(&self, reached: &Requests) -> Option<Vec<String>> {
        let has_method = |when: &When| {
            when.methods
                .iter()
                .any(|method| PURGE_METHODS.contains(&method.as_str()))
        };
        let holds = reached
            .best()
            .layers()
            .iter()
            .any(|(when, holds)| *holds && has_method(when));
        if !holds {
            return None;
        }
        // `if (!client.ip ~ purgers) { return (synth(405)); }` as the only condition on clients near purges.
        let mut names: Vec<&str> = Vec::new();
        for node in every(self.translator.tree) {
            for expr in node.expressions() {
                expr.each(&mut |part| {
                    if let Expr::Compare(left, Operator::Match | Operator::NoMatch, right) = part
                        && left.as_name() == Some("client.ip")
                        && let Some(name) = right.as_name()
                        && name.to_ascii_lowercase().contains("purge")
                    {
                        names.extend(
                            self.translator
                                .acls
                                .get_key_value(name)
                                .map(|(name, _)| *name),
                        );
                    }
                });
            }
        }
        let acl = self.translator.acls.get(names.first()?)?;
        acl::networks(self.translator, acl).ok()
    }

    /// Translates `ban(…)` with an expression of the kinds that plugins send.
    pub(super) fn ban(
        &mut self,
        node: &'t Node,
        arguments: &[&Expr],
        reached: &Requests,
    ) -> Result<(), String> {
        let [expr] = arguments else {
            return Err("ban has one argument".to_owned());
        };
        let parts: Vec<&Expr> = match expr {
            Expr::Sum(parts) => parts.iter().collect(),
            expr => vec![expr],
        };
        let mut texts = String::new();
        for part in parts {
            match part {
                Expr::Text(text) => texts.push_str(text),
                Expr::Name(name) => {
                    let lower = name.to_ascii_lowercase();
                    let field = lower.strip_prefix("req.http.");
                    let is_known = field.is_none_or(|field| {
                        TAG_FIELDS.contains(&field)
                            || matches!(
                                field,
                                "host"
                                    | "x-host"
                                    | "x-url"
                                    | "x-ban-url"
                                    | "x-ban-host"
                                    | "x-content-type"
                            )
                    });
                    if !is_known || (field.is_none() && lower != "req.url") {
                        return Err(format!(
                            "the edge does not read {name} in a BAN; see docs/how-to/purge.md"
                        ));
                    }
                    texts.push('?');
                }
                _ => return Err("the expression of the ban is composed by functions".to_owned()),
            }
        }
        // Each condition of the ban compares a URL, a host or tags.
        let is_known = |condition: &str| {
            let name = condition.split_whitespace().next().unwrap_or_default();
            let name = name.to_ascii_lowercase();
            let field = name
                .strip_prefix("obj.http.")
                .or_else(|| name.strip_prefix("req.http."));
            name == "req.url"
                || field.is_some_and(|field| {
                    TAG_FIELDS.contains(&field)
                        || matches!(field, "host" | "x-host" | "x-url" | "url")
                })
        };
        if !texts.split("&&").all(is_known) {
            return Err(format!(
                "the edge purges by URL, host, tag and pattern, and not by {texts}"
            ));
        }
        self.allow_purge(node, reached);
        Ok(())
    }

    /// Translates an `if` whose condition is the rate of a client. Returns true if it is one.
    pub(super) fn is_throttle(
        &mut self,
        branch: &'t Node,
        expr: &Expr,
        remaining: &Requests,
    ) -> bool {
        let parts: Vec<&Expr> = match expr {
            Expr::All(parts) => parts.iter().collect(),
            expr => vec![expr],
        };
        let (throttles, others): (Vec<&Expr>, Vec<&Expr>) = parts.into_iter().partition(|part| {
            part.as_call()
                .is_some_and(|(name, _)| name == "vsthrottle.is_denied")
        });
        let [throttle] = throttles[..] else {
            return false;
        };
        let [
            Node {
                kind: Kind::Return(action, _),
                ..
            },
        ] = &branch.children[..]
        else {
            return false;
        };
        if action != "synth" {
            return false;
        }
        if let Err(reason) = self.throttle(branch, throttle, &others, remaining) {
            self.left_out(branch, &reason);
            let ledger = ledger_of(self);
            ledger.left_out(&branch.children[0], Effect::Access, &reason);
        }
        true
    }

    fn throttle(
        &mut self,
        branch: &'t Node,
        throttle: &Expr,
        others: &[&Expr],
        remaining: &Requests,
    ) -> Result<(), String> {
        let (_, arguments) = throttle.as_call().unwrap_or_default();
        let values: Vec<&Expr> = arguments.iter().map(|(_, value)| value).collect();
        let [key, Expr::Number(limit), Expr::Duration(period), ..] = &values[..] else {
            return Err("the limit is not a number with a time".to_owned());
        };
        let mut by = None;
        key.each(&mut |part| {
            if let Some(name) = part.as_name() {
                let field = name.to_ascii_lowercase();
                by = by.take().or_else(|| match field.as_str() {
                    "client.ip" | "client.identity" | "req.http.x-forwarded-for" => {
                        Some("client".to_owned())
                    }
                    _ => field
                        .strip_prefix("req.http.")
                        .map(|_| format!("header:{}", spelled(name))),
                });
            }
        });
        let by = by.ok_or("the key of the rate is neither the client nor a field")?;
        let mut path = remaining.clone();
        for other in others {
            let condition = self.condition(other);
            let reason;
            (path, reason) = condition.requests().and(&path);
            if let Some(reason) = condition.lost.or(reason) {
                return Err(reason);
            }
        }
        let (path, reason) = path.and(&self.running);
        if let Some(reason) = reason {
            return Err(reason);
        }
        let path = path.best();
        let units = [("s", 1000.0), ("min", 60_000.0), ("h", 3_600_000.0)];
        let rate = units.iter().find_map(|(unit, length)| {
            let rate = limit * length / period;
            (rate >= 1.0 && rate.fract() == 0.0 && rate < 1e6).then(|| format!("{rate}/{unit}"))
        });
        let rate = rate.ok_or("the rate is not a whole number per second, minute or hour")?;
        let text = |value: String| Value::Toml(toml::text(&value));
        self.set(Key::One("rate_limit"), path, text(rate), branch)?;
        let burst = Value::Toml(limit.clamp(1.0, 1e6).to_string());
        self.set(Key::One("rate_limit_burst"), path, burst, branch)?;
        if by != "client" {
            self.set(Key::One("rate_limit_by"), path, text(by), branch)?;
        }
        let ledger = ledger_of(self);
        ledger.translated(branch, "rate_limit, rate_limit_burst");
        ledger.translated(&branch.children[0], "the edge answers 429");
        Ok(())
    }
}

/// Returns true if a set consists of requests with methods and of clients, so that `purge.allow` can state it. Fields
/// with tags are a part of a purge.
fn is_of_clients(reached: &Requests) -> bool {
    let is_tag = |name: &String| TAG_FIELDS.contains(&name.to_ascii_lowercase().as_str());
    let mut methods: Vec<&str> = Vec::new();
    reached.is_exact()
        && reached.best().layers().iter().all(|(when, holds)| {
            if !holds {
                // An exception from the layers before it. Purges by tag are allowed like the others.
                if !when.headers.is_empty() && when.headers.keys().all(is_tag) {
                    return true;
                }
                let is_apart = |method: &&str| !when.methods.iter().any(|other| other == method);
                return methods.is_empty()
                    || !when.methods.is_empty() && methods.iter().all(is_apart);
            }
            methods.extend(when.methods.iter().map(String::as_str));
            let rest = When {
                methods: Vec::new(),
                clients: Vec::new(),
                headers: BTreeMap::new(),
                ..when.clone()
            };
            rest == When::default() && when.headers.keys().all(is_tag)
        })
}
