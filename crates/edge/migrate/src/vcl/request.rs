//! Statements on requests: fields, URLs, cookies, backends, cache keys, and what `vcl_recv` returns.

use super::cookies::{self, Cookies};
use super::origins;
use super::requests::Requests;
use super::state::{Field, Machine, Phase, URL, ledger_of};
use super::text::{constant, is_host, request_field, spelled};
use super::tree::{Expr, Kind, Node, every};
use super::urls::{self, UrlChange};
use crate::decision::{Decision, covers};
use crate::grouping::Setting;
use crate::report::Effect;
use crate::rule::{Key, Value, When};
use crate::toml;
use crate::values::is_field_name;

/// Fields that the edge writes itself.
const OWN_FIELDS: [&str; 17] = [
    "connection",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "range",
    "x-forwarded-for",
    "accept-encoding",
];

/// Returns true for a field that the edge writes itself, and for cookies, on which hits do not depend.
pub(super) fn is_own(field: &str) -> bool {
    field == "cookie" || OWN_FIELDS.contains(&field)
}

impl<'t> Machine<'_, 't> {
    pub(super) fn assign_request(
        &mut self,
        node: &'t Node,
        lower: &str,
        target: &str,
        value: &Expr,
        reached: &Requests,
    ) -> Result<(), String> {
        let ledger = &self.translator.ledger;
        if let Some(field) = request_field(lower) {
            return match field {
                "host" => self.assign_host(node, value, reached),
                "cookie" => self.assign_cookies(node, value, reached),
                field if OWN_FIELDS.contains(&field) => {
                    ledger.implied(node, "the edge writes this field itself");
                    self.lose_variable(field, reached);
                    Ok(())
                }
                _ => self.assign_field(node, &spelled(target), value, reached),
            };
        }
        match lower {
            "req.backend_hint" | "bereq.backend" | "req.backend" => {
                let origin = origins::of_hint(self.translator, value)?;
                let value = Value::Toml(toml::text(&origin));
                self.set(Key::One("origin"), reached.best(), value, node)?;
                self.translator.ledger.translated(node, "origin");
                Ok(())
            }
            "req.url" | "bereq.url" => self.assign_url(node, value, reached),
            "req.method" | "bereq.method" => Err("requests keep their method".to_owned()),
            "bereq.uncacheable" if *value == Expr::Bool(true) => {
                self.pass(reached, node);
                self.translator.ledger.translated(node, "pass");
                Ok(())
            }
            "req.hash_always_miss" if *value == Expr::Bool(true) => {
                self.pass(reached, node);
                let text =
                    "pass: the response does not replace the stored one; a soft purge does that";
                self.translator.ledger.differs(node, Effect::Caching, text);
                Ok(())
            }
            "req.hash_ignore_busy" => {
                ledger.implied(
                    node,
                    "collapsing has limits of its own: caching.collapse_wait_max",
                );
                Ok(())
            }
            "req.esi" if *value == Expr::Bool(false) => {
                ledger.implied(node, "the edge has no ESI");
                Ok(())
            }
            "req.grace" => {
                let text = "the edge has one stale_while_revalidate for a response, also while its origin is healthy";
                ledger.differs(node, Effect::Caching, text);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn unset_request(
        &mut self,
        node: &'t Node,
        lower: &str,
        target: &str,
        reached: &Requests,
    ) -> Result<(), String> {
        let Some(field) = request_field(lower) else {
            return Ok(());
        };
        let ledger = &self.translator.ledger;
        if field == "host" || !is_field_name(field) {
            return Err("each request has a host".to_owned());
        }
        if OWN_FIELDS.contains(&field) {
            ledger.implied(node, "the edge writes this field itself");
            self.lose_variable(field, reached);
            return Ok(());
        }
        self.set_field(
            &spelled(target),
            reached,
            &Decision::always(Field::Absent),
            node,
        )?;
        ledger_of(self).translated(node, "request.remove");
        Ok(())
    }

    fn assign_field(
        &mut self,
        node: &'t Node,
        name: &str,
        value: &Expr,
        reached: &Requests,
    ) -> Result<(), String> {
        if !is_field_name(name) {
            return Err("this is not the name of a field".to_owned());
        }
        // The number of purged objects.
        if let Some((function, _)) = value.as_call()
            && matches!(
                function,
                "xkey.purge" | "xkey.softpurge" | "purge.hard" | "purge.soft"
            )
        {
            self.allow_purge(node, reached);
            return Ok(());
        }
        // `set req.http.X = req.http.X + …` and the like would need the value before.
        let value = self.value(value)?;
        if value
            .layers()
            .iter()
            .any(|(_, value)| matches!(value, Field::Cookies(_)))
        {
            return Err("a field is set to the cookies that remain".to_owned());
        }
        self.set_field(name, reached, &value, node)?;
        ledger_of(self).translated(node, "request.set, conditions of rules");
        Ok(())
    }

    fn assign_host(
        &mut self,
        node: &'t Node,
        value: &Expr,
        reached: &Requests,
    ) -> Result<(), String> {
        let template = self.template(value)?;
        let ledger = &self.translator.ledger;
        if template == "${host}" {
            ledger.implied(node, "hosts are compared in lower case and without a port");
            return Ok(());
        }
        if template.is_empty() || template.contains(['/', ' ']) {
            return Err("this is not a host".to_owned());
        }
        self.change(
            "request",
            reached.best(),
            Value::SetField("Host".to_owned(), template),
            node,
        )?;
        self.lose_variable("host", reached);
        let text = "request.set.Host: the origin gets this host; each host of clients has stored responses of its own";
        ledger_of(self).differs(node, Effect::Caching, text);
        Ok(())
    }

    fn assign_cookies(
        &mut self,
        node: &'t Node,
        value: &Expr,
        reached: &Requests,
    ) -> Result<(), String> {
        let is_cookie = |expr: &Expr| {
            let name = expr.as_name().map(str::to_ascii_lowercase);
            matches!(
                name.as_deref(),
                Some("req.http.cookie" | "bereq.http.cookie")
            )
        };
        let current = self.field("Cookie");
        let changed = match value {
            // `";" + req.http.Cookie` begins the idiom of Drupal.
            Expr::Sum(parts) if parts.len() == 2 && parts.iter().any(is_cookie) => current,
            Expr::Call(name, arguments) if matches!(name.as_str(), "regsub" | "regsuball") => {
                let [(_, source), (_, pattern), (_, replacement)] = &arguments[..] else {
                    return Err("regsub has three arguments".to_owned());
                };
                let (Some(pattern), Some(replacement)) = (pattern.as_text(), replacement.as_text())
                else {
                    return Err("the expression is composed of variables".to_owned());
                };
                if !is_cookie(source) {
                    return Err("cookies are made from another field".to_owned());
                }
                current.bind(|field| {
                    let mut cookies = match field {
                        Field::Client => Cookies::default(),
                        Field::Cookies(cookies) => cookies.clone(),
                        Field::Absent => return Ok(Decision::always(Field::Absent)),
                        _ => return Err("the field was replaced before".to_owned()),
                    };
                    cookies.replace(&pattern, &replacement)?;
                    Ok(Decision::always(Field::Cookies(cookies)))
                })?
            }
            Expr::Call(name, _) if name == "cookie.get_string" => self.jar.clone(),
            Expr::Text(text) if text.is_empty() => Decision::always(Field::Absent),
            _ => return Err("cookies are set to another value".to_owned()),
        };
        self.set_field("Cookie", reached, &changed, node)?;
        let text = "hits do not depend on cookies, so they may stay; a request to the origin has all of them \
                    or none";
        ledger_of(self).differs(node, Effect::Operation, text);
        Ok(())
    }

    /// Runs a function of the vmod `cookie`.
    pub(super) fn cookie_jar(
        &mut self,
        node: &'t Node,
        name: &str,
        arguments: &[&Expr],
        reached: &Requests,
    ) -> Result<(), String> {
        let text = arguments.first().and_then(|value| value.as_text());
        let ledger = &self.translator.ledger;
        let change: Box<dyn Fn(&mut Cookies)> = match (name, text) {
            ("cookie.parse", _) => {
                let source = arguments.first().and_then(|value| value.as_name());
                if !source.is_some_and(|name| name.eq_ignore_ascii_case("req.http.cookie")) {
                    return Err("cookies are read from another field".to_owned());
                }
                self.jar = Decision::select(reached.best(), &self.field("Cookie"), &self.jar)?;
                self.make_unsure("jar", reached);
                ledger_of(self).implied(node, "rules read cookies themselves");
                return Ok(());
            }
            ("cookie.keep" | "cookie.filter_except", Some(text)) => {
                let names = cookies::listed(&text);
                Box::new(move |cookies| cookies.keep(names.clone()))
            }
            ("cookie.filter" | "cookie.delete", Some(text)) => {
                let names = cookies::listed(&text);
                Box::new(move |cookies| cookies.drop(names.clone()))
            }
            ("cookie.keep_re" | "cookie.filter_re", Some(text)) => {
                let names =
                    cookies::names(&text).ok_or("the expression has no names of cookies")?;
                let keeps = name == "cookie.keep_re";
                Box::new(move |cookies| match keeps {
                    true => cookies.keep(names.clone()),
                    false => cookies.drop(names.clone()),
                })
            }
            ("cookie.clean", _) => Box::new(|cookies| cookies.keep(Vec::new())),
            _ => {
                return Err(format!(
                    "the edge does not change the values of cookies: {name}"
                ));
            }
        };
        let changed = self.jar.map(|field| {
            let mut cookies = match field {
                Field::Cookies(cookies) => cookies.clone(),
                Field::Client => Cookies::default(),
                other => return other.clone(),
            };
            change(&mut cookies);
            Field::Cookies(cookies)
        });
        self.jar = Decision::select(reached.best(), &changed, &self.jar)?;
        self.make_unsure("jar", reached);
        let text = "hits do not depend on cookies; a request to the origin has all of them or none";
        ledger.differs(node, Effect::Operation, text);
        Ok(())
    }

    fn assign_url(
        &mut self,
        node: &'t Node,
        value: &Expr,
        reached: &Requests,
    ) -> Result<(), String> {
        let is_url = |expr: &Expr| matches!(expr.as_name(), Some("req.url" | "bereq.url"));
        let (name, arguments) = value.as_call().unwrap_or_default();
        let arguments: Vec<&Expr> = arguments.iter().map(|(_, value)| value).collect();
        match (name, &arguments[..]) {
            ("std.querysort", [source]) if is_url(source) => {
                let value = Value::Toml("true".to_owned());
                self.set(Key::One("query.sort"), reached.best(), value, node)?;
                ledger_of(self).translated(node, "query.sort");
                return Ok(());
            }
            // Nested calls change the URL one behind the other.
            ("std.querysort", [source]) => {
                self.assign_url(node, source, reached)?;
                let value = Value::Toml("true".to_owned());
                return self.set(Key::One("query.sort"), reached.best(), value, node);
            }
            ("regsub" | "regsuball", [source, pattern, replacement]) => {
                let (Some(pattern), Some(replacement)) = (pattern.as_text(), replacement.as_text())
                else {
                    return Err("the expression is composed of variables".to_owned());
                };
                if !is_url(source) {
                    self.assign_url(node, source, reached)?;
                }
                let change = urls::change(&pattern, &replacement)?;
                return self.change_url(node, change, reached);
            }
            ("querystring.remove" | "querystring.clean" | "querystring.filter", _) => {
                return Err("write query.drop or query.keep with the parameters".to_owned());
            }
            _ => {}
        }
        if is_url(value) {
            ledger_of(self).implied(node, "the URL stays as it is");
            return Ok(());
        }
        // A new path, or a prefix in front of the URL.
        let template = match value {
            Expr::Sum(parts) if parts.last().is_some_and(is_url) => {
                let start = self.template(&Expr::Sum(parts[..parts.len() - 1].to_vec()))?;
                format!("{start}${{path}}?${{query}}")
            }
            _ => self.template(value)?,
        };
        if !template.starts_with('/') {
            return Err("the new path must begin with a slash".to_owned());
        }
        self.rewrite(node, reached, template)
    }

    fn change_url(
        &mut self,
        node: &'t Node,
        change: UrlChange,
        reached: &Requests,
    ) -> Result<(), String> {
        match change {
            UrlChange::Implied => {
                ledger_of(self).implied(
                    node,
                    "the edge compares URLs in this form, or clients do not send the other one",
                );
                Ok(())
            }
            UrlChange::DropParameters(names) => {
                // Without a parameter nothing is dropped, so its condition is not needed.
                let of_others = reached.best().without_parameters(&names);
                self.append("query.drop", &of_others, &names, node)?;
                self.dropped.extend(names);
                ledger_of(self).translated(node, "query.drop");
                Ok(())
            }
            UrlChange::DropQuery => {
                let value = Value::Toml("[]".to_owned());
                self.set(Key::One("query.keep"), reached.best(), value, node)?;
                match reached.must().constant() {
                    Some(true) => self.is_without_query = true,
                    _ => self.lose_field(URL, reached, node),
                }
                ledger_of(self).translated(node, "query.keep");
                Ok(())
            }
            UrlChange::Rewrite { regex, template } => {
                let when = Decision::when(When {
                    regexes: vec![regex],
                    ..When::default()
                });
                let (both, reason) = Requests::from(when).and(reached);
                match reason {
                    None => self.rewrite(node, &both, template),
                    Some(reason) => Err(reason),
                }
            }
        }
    }

    fn rewrite(&mut self, node: &'t Node, path: &Requests, template: String) -> Result<(), String> {
        let key = Key::One("rewrite");
        if self.fields.contains_key(URL) && self.phase == Phase::Fetch {
            return Err("the path was rewritten before".to_owned());
        }
        self.set(key, path.best(), Value::Toml(toml::text(&template)), node)?;
        match template.contains("${") {
            true => self.lose_field(URL, path, node),
            false => self.set_field(URL, path, &constant(&template), node)?,
        }
        let text =
            "rewrite: the origin gets the new path, and the cache key keeps that of the client";
        ledger_of(self).differs(node, Effect::Caching, text);
        Ok(())
    }

    /// Runs `vcl_hash`. Passed requests need no key, so it runs as if they had the fields of the others, unless it
    /// changes fields.
    pub(super) fn hash(&mut self) {
        let subs = self.translator.subs.get("vcl_hash").into_iter().flatten();
        let mut nodes = subs.flat_map(|sub| every(&sub.children));
        let changes = nodes.any(|node| match &node.kind {
            Kind::Set(..) | Kind::Unset(_) | Kind::Call(_) => true,
            Kind::Action(action) => action.as_call().is_none_or(|(name, _)| name != "hash_data"),
            _ => false,
        });
        if changes {
            return self.run("vcl_hash", Phase::Hash);
        }
        let before = (self.fields.clone(), self.unsure.clone());
        let passed = self.passed();
        let is_passed = |when: &When| passed.iter().any(|known| covers(known, when));
        for field in self.fields.values_mut() {
            field.value = field.value.without(is_passed);
        }
        for unsure in self.unsure.values_mut() {
            *unsure = unsure.without(is_passed);
        }
        self.run("vcl_hash", Phase::Hash);
        (self.fields, self.unsure) = before;
    }

    /// Returns the conditions of requests that are passed, whatever other conditions hold.
    fn passed(&self) -> Vec<When> {
        let Some(pass) = self.settings.get(&Key::One("pass")) else {
            return Vec::new();
        };
        let passes = |setting: &Option<Setting>| {
            let value = setting.as_ref().map(|setting| &setting.value);
            value == Some(&Value::Toml("true".to_owned()))
        };
        let layers = pass.layers().iter().rev();
        let last = layers.take_while(|(_, setting)| passes(setting));
        last.map(|(when, _)| when.clone()).collect()
    }

    /// Adds parts of the cache key.
    pub(super) fn hash_data(
        &mut self,
        node: &'t Node,
        arguments: &[&Expr],
        reached: &Requests,
    ) -> Result<(), String> {
        let [value] = arguments else {
            return Err("hash_data has one argument".to_owned());
        };
        let parts: Vec<&Expr> = match value {
            Expr::Sum(parts) => parts.iter().collect(),
            value => vec![value],
        };
        let has_text = parts.iter().any(|part| part.as_text().is_some());
        let mut classes: Vec<String> = Vec::new();
        let mut difference = None;
        for part in parts {
            self.classes(part, &mut classes, &mut difference)?;
        }
        // A text distinguishes the requests that reach the statement from the others.
        let of_conditions = match classes.is_empty() && has_text {
            true => self.classes_of_path(reached, &mut difference)?,
            false => Vec::new(),
        };
        if self.phase != Phase::Hash {
            return Err("hash_data outside of vcl_hash".to_owned());
        }
        match classes.is_empty() && of_conditions.is_empty() {
            true => ledger_of(self).implied(node, "URL, host and scheme are always in the key"),
            false => {
                self.append("key", reached.may(), &classes, node)?;
                self.append("key", &Decision::always(true), &of_conditions, node)?;
                match difference {
                    Some(text) => ledger_of(self).differs(node, Effect::Caching, text),
                    None => ledger_of(self).translated(node, "key"),
                }
            }
        }
        Ok(())
    }

    /// Finds the classes of the key for a part of `hash_data`.
    fn classes(
        &self,
        part: &Expr,
        classes: &mut Vec<String>,
        difference: &mut Option<&'static str>,
    ) -> Result<(), String> {
        if is_host(part) || part.as_text().is_some() {
            return Ok(());
        }
        let mut add = |class: String| {
            if !classes.contains(&class) {
                classes.push(class);
            }
        };
        let value = match part.as_name().map(str::to_ascii_lowercase) {
            Some(name) => match request_field(&name) {
                Some("x-forwarded-proto") => return Ok(()),
                Some(field) => {
                    let value = self.field(field);
                    if value.constant() == Some(&Field::Client) {
                        add(format!(
                            "header:{}",
                            spelled(part.as_name().unwrap_or_default())
                        ));
                        return Ok(());
                    }
                    value
                }
                None => match name.as_str() {
                    "req.url" | "bereq.url" | "server.ip" | "local.ip" | "req.method" => {
                        return Ok(());
                    }
                    "client.ip" => return Err("the key of the edge has no addresses".to_owned()),
                    _ => return Err(format!("the key of the edge has no {name}")),
                },
            },
            None => self.value(part)?,
        };
        for (when, value) in value.layers() {
            match value {
                Field::Cookie(cookie) => add(format!("cookie:{cookie}")),
                Field::Cookies(cookies) => match &cookies.kept {
                    Some(kept) => {
                        for name in kept {
                            match name.contains('*') {
                                true => {
                                    return Err(format!(
                                        "the key has cookies by name, and not by {name}"
                                    ));
                                }
                                false => add(format!("cookie:{name}")),
                            }
                        }
                    }
                    None => add("header:Cookie".to_owned()),
                },
                Field::Client if self.is_without_key(when) => {}
                Field::Client => match part.as_name() {
                    Some(name) => add(format!("header:{}", spelled(name))),
                    None => {
                        return Err("the field is the client's for some requests only".to_owned());
                    }
                },
                Field::Text(text) if text.contains("${") => {
                    let only = text
                        .strip_prefix("${header.")
                        .and_then(|rest| rest.strip_suffix('}'));
                    match only {
                        Some(name) => add(format!("header:{name}")),
                        None if text == "${uri}" && self.changes_query() => {
                            return Err(
                                "the key lacks parameters that a statement removes".to_owned()
                            );
                        }
                        None if text == "${uri}" || text == "${path}" || text == "${host}" => {}
                        None => return Err("the key of the edge has no composed texts".to_owned()),
                    }
                }
                Field::Unknown | Field::Removed => {
                    return Err("a statement without a counterpart makes the value".to_owned());
                }
                Field::Absent | Field::Text(_) => {}
            }
            // The value follows from these conditions, so they distinguish the same requests.
            let is_sure = match part.as_name().map(str::to_ascii_lowercase) {
                Some(name) => !self
                    .unsure
                    .contains_key(request_field(&name).unwrap_or_default()),
                None => self.unsure.is_empty(),
            };
            for class in self.classes_of(when, is_sure, difference)? {
                add(class);
            }
        }
        Ok(())
    }

    /// Returns the classes that distinguish requests that reach a statement from the others.
    fn classes_of_path(
        &self,
        reached: &Requests,
        difference: &mut Option<&'static str>,
    ) -> Result<Vec<String>, String> {
        let mut all: Vec<String> = Vec::new();
        for decision in [reached.best(), reached.must(), reached.may()] {
            for (when, _) in decision.layers() {
                let is_new = |class: &String| !all.contains(class);
                let classes = self.classes_of(when, reached.is_exact(), difference)?;
                let new: Vec<String> = classes.into_iter().filter(is_new).collect();
                all.extend(new);
            }
        }
        Ok(all)
    }

    /// Returns the classes of the key that distinguish requests with a condition from others. `is_sure` is false if the
    /// condition stands for one that asks for more.
    fn classes_of(
        &self,
        when: &When,
        is_sure: bool,
        difference: &mut Option<&'static str>,
    ) -> Result<Vec<String>, String> {
        const WHOLE: &str =
            "the key has the whole field, so each of its values has stored responses of its own";
        let mut classes = Vec::new();
        for cookie in &when.cookies {
            match cookie.as_str() {
                "*" => classes.push("has-cookie:*".to_owned()),
                cookie if is_sure => classes.push(format!("has-cookie:{cookie}")),
                _ => {
                    *difference = Some(WHOLE);
                    classes.push("header:Cookie".to_owned());
                }
            }
        }
        for name in when.headers.keys() {
            if ["user-agent", "cookie"].contains(&name.to_ascii_lowercase().as_str()) {
                *difference = Some(WHOLE);
            }
            classes.push(format!("header:{name}"));
        }
        if !when.clients.is_empty() {
            return Err("the key of the edge has no addresses".to_owned());
        }
        // GET and HEAD have one stored response.
        let has = |method: &str| when.methods.iter().any(|known| known == method);
        if has("GET") != has("HEAD") {
            return Err("the key of the edge has no methods".to_owned());
        }
        let is_kept = |name: &String| !name.contains('*') && !self.is_dropped(name);
        if self.changes_query() && !when.parameters.iter().all(is_kept) {
            return Err("the key has no parameters that a statement has removed".to_owned());
        }
        Ok(classes)
    }

    /// Returns true if a statement has removed parameters, so that the key lacks them.
    fn changes_query(&self) -> bool {
        self.is_without_query
            || !self.dropped.is_empty()
            || self.settings.contains_key(&Key::One("query.keep"))
    }

    /// Returns true if requests with a condition are passed or answered, so that they need no key.
    fn is_without_key(&self, when: &When) -> bool {
        let answered = self
            .answered
            .best()
            .layers()
            .iter()
            .filter(|(_, holds)| *holds);
        let passed = self.settings.get(&Key::One("pass"));
        let passed = passed.into_iter().flat_map(|passed| passed.layers());
        answered
            .map(|(known, _)| known)
            .chain(
                passed
                    .filter(|(_, setting)| setting.is_some())
                    .map(|(known, _)| known),
            )
            .any(|known| covers(known, when))
    }

    pub(super) fn returned_request(
        &mut self,
        node: &'t Node,
        action: &str,
        arguments: &[Expr],
        reached: &Requests,
    ) -> Result<(), String> {
        match action {
            "hash" | "lookup" => {
                ledger_of(self).translated(node, "pass = false");
                self.end(reached)
            }
            "pass" => {
                self.pass(reached, node);
                ledger_of(self).translated(node, "pass");
                self.end(reached)
            }
            "pipe" => {
                self.pass(reached, node);
                let text = "pass: the request is forwarded, and only WebSocket becomes a tunnel (forwarding.upgrades)";
                ledger_of(self).differs(node, Effect::Response, text);
                self.end(reached)
            }
            "purge" => {
                self.purge(node, reached);
                self.end(reached)
            }
            "synth" => self.synth(node, arguments, reached),
            "fail" => {
                self.deny(reached, 503, node);
                ledger_of(self).translated(node, "deny");
                Ok(())
            }
            _ => Err("the edge does not restart, and has one configuration".to_owned()),
        }
    }

    /// Runs the part of Varnish's own `vcl_recv` that decides about caching.
    pub(super) fn builtin_recv(&mut self) {
        let with_cookie = self.condition(&Expr::Name("req.http.Cookie".to_owned()));
        let authorization = self.condition(&Expr::Name("req.http.Authorization".to_owned()));
        let parts = [
            ("vcl_req_authorization", authorization),
            ("vcl_req_cookie", with_cookie),
        ];
        for (sub, condition) in parts {
            // Varnish joins a subroutine of this name with its own: a `return` in it skips that of Varnish.
            self.part(sub);
            let (running, _) = self.running.and(&self.local);
            self.local = Requests::all();
            let (reached, _) = condition.requests().and(&running);
            let value = Value::Toml("true".to_owned());
            self.restrict_from(Key::One("pass"), &reached, Setting { value, from: None });
        }
    }

    /// Returns the changes of request fields as settings of rules.
    pub(super) fn field_settings(&mut self) {
        for (lower, field) in self.fields.clone() {
            if lower == URL {
                continue;
            }
            let name = field.name.clone();
            let settings = field.value.bind(|value| {
                Ok(match value {
                    Field::Client | Field::Cookie(_) | Field::Unknown => Decision::always(None),
                    Field::Absent | Field::Removed => {
                        Decision::always(Some(Value::RemoveField(name.clone())))
                    }
                    Field::Text(text) if text.is_empty() => {
                        Decision::always(Some(Value::RemoveField(name.clone())))
                    }
                    Field::Text(text) => {
                        Decision::always(Some(Value::SetField(name.clone(), text.clone())))
                    }
                    Field::Cookies(cookies) => match &cookies.kept {
                        Some(kept) => Decision::select(
                            &Self::with_cookies(kept),
                            &Decision::always(None),
                            &Decision::always(Some(Value::RemoveField(name.clone()))),
                        )?,
                        None => Decision::always(None),
                    },
                })
            });
            // A condition that no rule can state leaves the field to the origin.
            let Ok(settings) = settings else {
                continue;
            };
            let from = field.from.clone();
            let stated = settings.map(|value| {
                value.clone().map(|value| Setting {
                    value,
                    from: Some(from.clone()),
                })
            });
            self.settings.insert(Key::Field("request", lower), stated);
        }
    }
}
