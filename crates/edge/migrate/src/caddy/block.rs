//! The directives of a block, in the order in which Caddy applies them, and what becomes of one that is left out.
//!
//! The first directive that answers a request ends it, so later ones have the earlier conditions as exceptions. A
//! directive that rules cannot state is left out, and **the result fails closed**: requests that it may deny or answer
//! are denied, and requests that it may keep from the cache bypass it.

use super::origins;
use super::paths;
use super::state::{METHOD, Site};
use super::text::plain_name;
use super::tree::Directive;
use crate::decision::Decision;
use crate::hosts::Reason;
use crate::report::{Effect, Outcome};
use crate::rule::Value;
use crate::toml;
use crate::values::is_field_name;

/// The deepest nesting of `handle` and `route`.
const NESTING_MAX: usize = 16;

/// The words of a text whose value the environment has.
const OF_ENVIRONMENT: &str = "{$";

impl<'t> Site<'_, 't> {
    /// Applies the directives of a block to the requests of a path. `is_route` keeps their order.
    pub(super) fn block(
        &mut self,
        directives: &'t [Directive],
        path: &Decision<bool>,
        is_route: bool,
        depth: usize,
    ) {
        let count = directives.len() / 2 + self.matchers.len();
        if self.translator.spend(count.saturating_mul(count)).is_err() {
            return;
        }
        let outer = self.matchers.clone();
        let own = directives
            .iter()
            .filter(|inner| inner.name.starts_with('@'));
        self.matchers
            .extend(own.map(|inner| (inner.name.as_str(), inner)));
        let sorted: Vec<&'t Directive> = match is_route {
            true => directives.iter().collect(),
            false => self
                .translator
                .order
                .sort(directives, |directive| self.matched(directive)),
        };
        // Requests for which no `handle`, and no `rewrite`, of this block has matched.
        let mut unhandled = Decision::always(true);
        let mut unrewritten = Decision::always(true);
        for directive in sorted {
            let first_alone = match directive.name.as_str() {
                "handle" | "handle_path" => Some(&mut unhandled),
                "rewrite" => Some(&mut unrewritten),
                _ => None,
            };
            self.apply(directive, path, first_alone, depth);
        }
        self.matchers = outer;
    }

    /// Applies a directive. `first_alone` has the requests for which no earlier directive of its name has matched.
    fn apply(
        &mut self,
        directive: &'t Directive,
        path: &Decision<bool>,
        first_alone: Option<&mut Decision<bool>>,
        depth: usize,
    ) {
        if directive.name.starts_with('@') {
            return;
        }
        if let Some(reason) = self.unreadable(directive) {
            return self.lost(directive, &reason, path, false);
        }
        let translator = self.translator;
        let left = match &first_alone {
            Some(left) => translator.both(left, path),
            None => Ok(path.clone()),
        };
        let condition = match self.condition(directive, left.as_ref().unwrap_or(path)) {
            Ok(condition) => condition,
            Err(unknown) => {
                let bound = translator.both(path, &unknown.bound);
                let bound = bound.unwrap_or_else(|_| path.clone());
                return self.lost(directive, &unknown.reason, &bound, false);
            }
        };
        let reached = translator
            .both(&self.running, path)
            .and_then(|path| translator.both(&path, &condition.decision));
        let reached = match reached {
            Ok(reached) => reached,
            Err(reason) => return self.lost(directive, &reason, path, false),
        };
        if let Some(difference) = condition.difference {
            if !denies(directive) {
                let text = "its matcher has only a wider condition, which serves to deny requests, and to nothing else";
                return self.lost(directive, text, &reached, false);
            }
            self.translator
                .ledger
                .differs(directive, Effect::Response, difference);
        }
        let result = match first_alone {
            Some(left) => translator.both(left, &reached).and_then(|reached| {
                self.of_name(directive, &reached, depth)?;
                *left = translator.without(&reached, left)?;
                Ok(())
            }),
            None => self.of_name(directive, &reached, depth),
        };
        if let Err(reason) = result {
            self.lost(directive, &reason, &reached, true);
        }
    }

    fn of_name(
        &mut self,
        directive: &'t Directive,
        reached: &Decision<bool>,
        depth: usize,
    ) -> Result<(), Reason> {
        match directive.name.as_str() {
            "handle" | "handle_path" | "route" => self.nested(directive, reached, depth),
            _ => self.directive(directive, reached),
        }
    }

    /// Returns the reason why the words of a directive are not those that Caddy applies.
    fn unreadable(&self, directive: &Directive) -> Option<Reason> {
        let words = [&directive.name].into_iter().chain(&directive.args);
        if words.into_iter().any(|word| word.contains(OF_ENVIRONMENT)) {
            return Some("it depends on the environment; write the value".to_owned());
        }
        match directive.name.as_str() {
            "handle" | "handle_path" | "route" if !directive.words().is_empty() => {
                Some("the word in front of its block is no matcher".to_owned())
            }
            "import" => match self.translator.unread.get(&directive.id) {
                Some(reason) => Some(format!("not read: {reason}")),
                None if directive.block.is_some() => {
                    Some("blocks of import are not translated".to_owned())
                }
                None => None,
            },
            _ => None,
        }
    }

    fn nested(
        &mut self,
        directive: &'t Directive,
        reached: &Decision<bool>,
        depth: usize,
    ) -> Result<(), Reason> {
        if depth > NESTING_MAX {
            return Err("handle and route are nested too deeply".to_owned());
        }
        let prefix = self.prefix.clone();
        if directive.name == "handle_path" {
            let matcher = directive.matcher().unwrap_or_default();
            if !matcher.starts_with('/') || matcher.trim_end_matches('*').contains('*') {
                return Err("handle_path has a path with * at its end".to_owned());
            }
            let own = matcher.trim_end_matches('*').trim_end_matches('/');
            self.prefix.push_str(&own.to_ascii_lowercase());
            if !self.prefix.is_empty() {
                let own = self.prefix.clone();
                if let Err(reason) = self.strip(directive, reached, &own, matcher.ends_with('*')) {
                    self.prefix = prefix;
                    return Err(reason);
                }
            }
        }
        self.translator
            .ledger
            .translated(directive, "rules with conditions");
        let changed_fields = self.changed_fields.clone();
        let is_route = directive.name == "route";
        self.block(directive.inner(), reached, is_route, depth + 1);
        self.prefix = prefix;
        if directive.name == "handle_path" {
            self.replace_path(reached);
        }
        // Directives behind the block get no request of it if all were proxied.
        let left = self.translator.both(&self.running, reached);
        if left.is_ok_and(|left| left.is_never()) {
            self.changed_fields = changed_fields;
        }
        Ok(())
    }

    /// Removes the start of the path for the origin. `has_more` is true if the path may be longer than it.
    pub(super) fn strip(
        &mut self,
        directive: &'t Directive,
        reached: &Decision<bool>,
        prefix: &str,
        has_more: bool,
    ) -> Result<(), Reason> {
        let whole = paths::condition(&[prefix.to_owned()], "")?;
        let whole = self.translator.both(reached, &whole)?;
        self.state("rewrite", &whole, toml::text("/?${query}"), directive)?;
        if has_more {
            let behind = paths::matching(paths::behind(prefix));
            let behind = self.translator.both(reached, &behind)?;
            let target = toml::text("/${1}?${query}");
            self.state("rewrite", &behind, target, directive)?;
        }
        Ok(())
    }

    /// Records a directive that was left out, and denies the requests that it may deny or answer. `is_exact` is true if
    /// these are the requests of the directive, and false if there may be fewer of them.
    fn lost(
        &mut self,
        directive: &'t Directive,
        reason: &str,
        requests: &Decision<bool>,
        is_exact: bool,
    ) {
        if self.translator.is_exhausted() {
            return;
        }
        let loss = loss(directive, is_exact);
        let ledger = &self.translator.ledger;
        let effect = match loss {
            Loss::Operation => Effect::Operation,
            Loss::Response | Loss::Fields => Effect::Response,
            Loss::Caching => Effect::Caching,
            Loss::Access => Effect::Access,
        };
        match loss {
            Loss::Access => {
                let text = format!("{reason}; these requests are denied until you decide");
                ledger.left_out(directive, effect, &text);
            }
            _ => ledger.left_out(directive, effect, reason),
        }
        let text = "belongs to a directive that was left out";
        ledger.rest_of_block(directive.inner(), Outcome::LeftOut, Effect::Operation, text);
        self.keep_origins(directive.inner());
        if loss == Loss::Access {
            self.close(requests, &directive.at);
        }
        self.lost_changes(directive, requests);
        if may_restrict_caching(directive) {
            self.uncached
                .push((requests.clone(), Some(directive.at.clone())));
        }
        if matches!(
            directive.name.as_str(),
            "rewrite" | "uri" | "try_files" | "import" | "handle" | "handle_path" | "route"
        ) {
            self.replace_path(requests);
        }
    }

    /// Records the changes of requests that a directive, or one in its block, may make to some of these requests.
    fn lost_changes(&mut self, directive: &'t Directive, requests: &Decision<bool>) {
        match directive.name.as_str() {
            "request_header" => {
                let lines = directive.inner().iter();
                let of_block = lines.map(|line| line.name.as_str());
                let own = directive.words().first().map(String::as_str);
                for name in own.into_iter().chain(of_block) {
                    self.changed_fields.insert(plain_name(name));
                    self.lost_field(directive, name, requests);
                }
            }
            "method" => _ = self.changed_fields.insert(METHOD.to_owned()),
            name if name.starts_with('@') => {}
            _ => {
                for inner in directive.inner() {
                    self.lost_changes(inner, requests);
                }
            }
        }
    }

    /// Writes the origins of a block that was left out, so that a rule that an operator adds can name them.
    fn keep_origins(&mut self, block: &'t [Directive]) {
        for directive in block {
            match directive.name.as_str() {
                // The reason why an origin is left out belongs to the block.
                "reverse_proxy" => {
                    _ = origins::origin(self, directive, &Decision::always(false));
                }
                _ => self.keep_origins(directive.inner()),
            }
        }
    }

    /// Lets requests bypass the cache if a change of this field of their responses was left out.
    pub(super) fn lost_response_field(
        &mut self,
        line: &Directive,
        name: &str,
        requests: &Decision<bool>,
    ) {
        if is_of_caching(name) {
            self.uncached
                .push((requests.clone(), Some(line.at.clone())));
        }
    }

    /// Removes a request field whose change was left out, because the origin may trust the field. Denies the requests
    /// if the name of the field is unknown.
    pub(super) fn lost_field(
        &mut self,
        directive: &Directive,
        name: &str,
        requests: &Decision<bool>,
    ) {
        let plain = name.trim_start_matches(['+', '-', '?', '>']);
        let is_host = plain.eq_ignore_ascii_case("host");
        let is_stated = is_field_name(plain) && !plain.contains('*') && !is_host && {
            let value = Value::RemoveField(plain.to_owned());
            self.change("request", requests, value, directive).is_ok()
        };
        if !is_stated {
            let text = "request fields that it may change keep the value of the client; these requests are denied \
                        until you decide";
            self.translator
                .ledger
                .left_out(directive, Effect::Access, text);
            self.close(requests, &directive.at);
        }
    }
}

/// The loss if a directive is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Operation,
    Response,
    /// The origin may trust the fields.
    Fields,
    Caching,
    Access,
}

fn loss(directive: &Directive, is_exact: bool) -> Loss {
    match directive.name.as_str() {
        "encode" | "log" | "root" | "tracing" | "log_skip" | "skip_log" | "log_append" | "fs"
        | "tls" | "bind" => Loss::Operation,
        "intercept" if answers(directive.inner()) => Loss::Access,
        "header"
        | "handle_errors"
        | "intercept"
        | "map"
        | "vars"
        | "method"
        | "templates"
        | "copy_response"
        | "copy_response_headers"
        | "replace"
        | "try_files"
        | "rate_limit"
        | "push"
        | "request_body" => Loss::Response,
        "request_header" => Loss::Fields,
        "cache" => Loss::Caching,
        // The origin of the next `reverse_proxy` is no secret, but these requests are not for it.
        "reverse_proxy" if !is_exact => Loss::Response,
        "uri"
            if directive
                .words()
                .first()
                .is_some_and(|word| word == "query") =>
        {
            Loss::Response
        }
        "handle" | "handle_path" | "route" if may_answer(directive) => Loss::Access,
        "handle" | "handle_path" | "route" => Loss::Response,
        _ => Loss::Access,
    }
}

/// Returns true if a response field may restrict caching.
fn is_of_caching(name: &str) -> bool {
    let name = plain_name(name);
    name.contains("cache-control") || matches!(name.as_str(), "vary" | "expires" | "set-cookie")
}

/// Returns true if responses may be stored that are not stored, or under another key, with the directive.
fn may_restrict_caching(directive: &Directive) -> bool {
    match directive.name.as_str() {
        "header" => {
            let own = directive.words().first().into_iter();
            let mut names = own.chain(directive.inner().iter().map(|line| &line.name));
            names.any(|name| is_of_caching(name))
        }
        _ => {
            matches!(
                loss(directive, true),
                Loss::Fields | Loss::Caching | Loss::Access
            ) || matches!(directive.name.as_str(), "handle" | "handle_path" | "route")
        }
    }
}

/// Returns true if a directive may deny or answer requests that its origin would get otherwise.
fn restricts(directive: &Directive) -> bool {
    match directive.name.as_str() {
        "import" => directive.block.is_some(),
        "reverse_proxy" => false,
        name if name.starts_with('@') => false,
        "handle" | "handle_path" | "route" => may_answer(directive),
        _ => loss(directive, true) == Loss::Access,
    }
}

/// Returns true if `intercept` may deny or answer requests in its block.
fn answers(block: &[Directive]) -> bool {
    block.iter().any(|line| match line.name.as_str() {
        "handle_response" => answers(line.inner()),
        _ => restricts(line),
    })
}

/// Returns true if Caddy may answer requests in a block itself. A `handle` without `reverse_proxy` for all of them is
/// such a block, because no later `handle` gets the rest.
fn may_answer(block: &Directive) -> bool {
    let proxies = |inner: &Directive| {
        inner.name == "reverse_proxy" && matches!(inner.matcher(), None | Some("*"))
    };
    let is_open = block.name != "route" && !block.inner().iter().any(proxies);
    is_open || block.inner().iter().any(restricts)
}

/// Returns true if a directive denies all its requests.
fn denies(directive: &Directive) -> bool {
    match directive.name.as_str() {
        "abort" | "basic_auth" | "basicauth" | "forward_auth" => true,
        "respond" | "error" => matches!(super::directives::status(directive), 400..=599),
        _ => false,
    }
}
