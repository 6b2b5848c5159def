//! The directives of a site, in the order in which Caddy applies them.
//!
//! Caddy sorts directives by its own order, and those of one name by their paths, the longest first. The first
//! directive that answers a request ends it, so later ones have the earlier conditions as exceptions.

use super::origins::{self, change};
use super::state::Site;
use super::text::template;
use super::tree::Directive;
use crate::decision::Decision;
use crate::hosts::Reason;
use crate::report::{Effect, Outcome};
use crate::rule::When;
use crate::toml;
use crate::values::{self, is_field_name, literal_regex};

/// The order of directives, the first ones first.
const ORDER: [&str; 33] = [
    "map",
    "vars",
    "root",
    "header",
    "request_body",
    "cache",
    "redir",
    "method",
    "rewrite",
    "uri",
    "try_files",
    "basic_auth",
    "basicauth",
    "forward_auth",
    "request_header",
    "encode",
    "push",
    "intercept",
    "templates",
    "rate_limit",
    "invoke",
    "handle",
    "handle_path",
    "route",
    "abort",
    "error",
    "copy_response",
    "respond",
    "metrics",
    "reverse_proxy",
    "php_fastcgi",
    "file_server",
    "acme_server",
];

/// The deepest nesting of `handle` and `route`.
const NESTING_MAX: usize = 16;

impl<'t> Site<'_, 't> {
    /// Applies the directives of a block to the requests of a path. `is_route` keeps their order.
    pub(super) fn block(
        &mut self,
        directives: &'t [Directive],
        path: &Decision<bool>,
        is_route: bool,
        depth: usize,
    ) {
        let rank = |directive: &Directive| {
            let known = ORDER.iter().position(|name| *name == directive.name);
            // `handle` and `handle_path` are one group.
            let known = match directive.name.as_str() {
                "handle_path" => ORDER.iter().position(|name| *name == "handle"),
                _ => known,
            };
            let matcher = directive.matcher().unwrap_or("*");
            let specificity = match matcher {
                "*" => 0,
                path if path.starts_with('/') => {
                    2 + path.trim_end_matches('*').len() * 2 + usize::from(!path.ends_with('*'))
                }
                _ => 1,
            };
            (known.unwrap_or(0), std::cmp::Reverse(specificity))
        };
        let mut sorted: Vec<&'t Directive> = directives.iter().collect();
        if !is_route {
            sorted.sort_by_key(|directive| rank(directive));
        }
        // Requests for which no `handle` of this block has matched.
        let mut unhandled = Decision::always(true);
        for directive in sorted {
            let condition = match self.condition(directive) {
                Ok(condition) => condition,
                Err(reason) => {
                    self.lost(directive, &reason, path);
                    continue;
                }
            };
            let reached = self
                .running
                .and(path)
                .and_then(|path| path.and(&condition.decision));
            let reached = match reached {
                Ok(reached) => reached,
                Err(reason) => {
                    self.lost(directive, &reason, path);
                    continue;
                }
            };
            let result = match directive.name.as_str() {
                "handle" | "handle_path" => unhandled.and(&reached).and_then(|reached| {
                    self.handle(directive, &reached, depth)?;
                    unhandled = reached.not().and(&unhandled)?;
                    Ok(())
                }),
                "route" => self.handle(directive, &reached, depth),
                _ => self.directive(directive, &reached),
            };
            match (result, condition.difference) {
                (Err(reason), _) => self.lost(directive, &reason, path),
                (Ok(()), Some(text)) => {
                    self.translator
                        .ledger
                        .differs(directive, Effect::Response, text);
                }
                (Ok(()), None) => {}
            }
        }
    }

    /// Records a directive that was left out. Requests that it may protect are denied.
    fn lost(&mut self, directive: &'t Directive, reason: &str, path: &Decision<bool>) {
        let ledger = &self.translator.ledger;
        let (effect, protects) = match directive.name.as_str() {
            "basic_auth" | "basicauth" | "forward_auth" => (Effect::Access, true),
            "respond" | "abort" | "error" => (Effect::Access, false),
            "cache" => (Effect::Caching, false),
            "encode" | "log" | "root" => (Effect::Operation, false),
            _ => (Effect::Response, false),
        };
        ledger.left_out(directive, effect, reason);
        let text = "belongs to a directive that was left out";
        ledger.rest_of_block(directive.inner(), Outcome::LeftOut, Effect::Operation, text);
        if protects {
            _ = self.state("deny", path, "403", directive);
        }
    }

    fn handle(
        &mut self,
        directive: &'t Directive,
        reached: &Decision<bool>,
        depth: usize,
    ) -> Result<(), Reason> {
        if depth > NESTING_MAX {
            return Err("handle and route are nested too deeply".to_owned());
        }
        let before = self.prefix.clone();
        if directive.name == "handle_path" {
            let matcher = directive.matcher().unwrap_or_default();
            let prefix = matcher
                .trim_end_matches('*')
                .trim_end_matches('/')
                .to_owned();
            self.prefix = Some(format!("{}{prefix}", before.as_deref().unwrap_or_default()));
        }
        self.translator
            .ledger
            .translated(directive, "rules with conditions");
        self.block(
            directive.inner(),
            reached,
            directive.name == "route",
            depth + 1,
        );
        self.prefix = before;
        Ok(())
    }

    fn directive(
        &mut self,
        directive: &'t Directive,
        reached: &Decision<bool>,
    ) -> Result<(), Reason> {
        let ledger = &self.translator.ledger;
        let words = directive.words();
        let word = |index: usize| words.get(index).map_or("", String::as_str);
        match directive.name.as_str() {
            "reverse_proxy" => self.proxy(directive, reached),
            "header" | "request_header" => self.fields(directive, reached),
            "redir" => self.redirect(directive, reached),
            "respond" | "error" => self.respond(directive, reached),
            "abort" => {
                let reached = &self.answer(reached)?;
                self.state("deny", reached, "403", directive)?;
                let text = "the edge answers 403; Caddy closes the connection";
                self.translator
                    .ledger
                    .differs(directive, Effect::Response, text);
                Ok(())
            }
            "rewrite" => {
                let target = rewritten(word(0), has_regex(reached))?;
                self.rewrite(directive, reached, &target)
            }
            "uri" => self.uri(directive, reached),
            "encode" => {
                self.state("compression", reached, "true", directive)?;
                let ledger = &self.translator.ledger;
                ledger.translated(directive, "compression");
                let text = "the edge has Brotli, zstd and gzip: [compression]";
                ledger.rest_of_block(directive.inner(), Outcome::Implied, Effect::Operation, text);
                Ok(())
            }
            "request_body" => {
                for inner in directive.inner() {
                    match (inner.name.as_str(), size(inner.arg(0))) {
                        ("max_size", Some(size)) => {
                            self.state("request_body_max", reached, toml::text(&size), inner)?;
                            self.translator.ledger.translated(inner, "request_body_max");
                        }
                        _ => self.translator.ledger.left_out(
                            inner,
                            Effect::Operation,
                            "request bodies have a limit, and no other option",
                        ),
                    }
                }
                self.translator
                    .ledger
                    .translated(directive, "request_body_max");
                Ok(())
            }
            "cache" => self.cached(directive, reached),
            "basic_auth" | "basicauth" | "forward_auth" => {
                let reached = &self.answer(reached)?;
                self.state("deny", reached, "403", directive)?;
                let ledger = &self.translator.ledger;
                let text = "no authentication: these requests are denied until you decide";
                ledger.left_out(directive, Effect::Access, text);
                ledger.rest_of_block(directive.inner(), Outcome::LeftOut, Effect::Operation, text);
                Ok(())
            }
            "file_server" | "php_fastcgi" => {
                let reached = &self.answer(reached)?;
                self.state("deny", reached, "404", directive)?;
                let ledger = &self.translator.ledger;
                let text = "the edge serves no files and speaks HTTP only: these requests get 404; keep Caddy for them";
                ledger.left_out(directive, Effect::Response, text);
                ledger.rest_of_block(directive.inner(), Outcome::LeftOut, Effect::Operation, text);
                Ok(())
            }
            "rate_limit" => Err("write rate_limit in a rule".to_owned()),
            // Options of the whole site, which the translation of sites reads.
            "tls" | "log" | "bind" | "import" => Ok(()),
            name if name.starts_with('@') => Ok(()),
            _ => {
                if let Some((outcome, effect, text)) = super::table::row(&directive.name) {
                    match outcome {
                        Outcome::Implied => ledger.implied(directive, &text),
                        _ => ledger.left_out(directive, effect, &text),
                    }
                    ledger.rest_of_block(directive.inner(), outcome, Effect::Operation, &text);
                    return Ok(());
                }
                Err(
                    "unknown to this translation; look for it in docs/how-to/from-caddy.md"
                        .to_owned(),
                )
            }
        }
    }

    fn proxy(&mut self, directive: &'t Directive, reached: &Decision<bool>) -> Result<(), Reason> {
        let origin = origins::origin(self, directive, reached)?;
        self.state("origin", reached, toml::text(&origin), directive)?;
        if let Some(prefix) = self.prefix.clone().filter(|prefix| !prefix.is_empty()) {
            self.strip(directive, reached, &prefix)?;
        }
        self.translator.ledger.translated(directive, "origin");
        self.end(reached)
    }

    fn fields(&mut self, directive: &'t Directive, reached: &Decision<bool>) -> Result<(), Reason> {
        let group = match directive.name.as_str() {
            "header" => "response",
            _ => "request",
        };
        if !directive.words().is_empty() {
            return change(self, directive, directive.words(), reached, group);
        }
        self.translator.ledger.translated(directive, group);
        for inner in directive.inner() {
            if inner.name == "defer" {
                self.translator
                    .ledger
                    .implied(inner, "fields are changed when a response is sent");
                continue;
            }
            let words: Vec<String> = [&inner.name]
                .into_iter()
                .chain(&inner.args)
                .cloned()
                .collect();
            if let Err(reason) = change(self, inner, &words, reached, group) {
                let effect = match inner.name.starts_with('?') {
                    true => Effect::Operation,
                    false => Effect::Response,
                };
                self.translator.ledger.left_out(inner, effect, &reason);
            }
        }
        Ok(())
    }

    fn redirect(
        &mut self,
        directive: &'t Directive,
        reached: &Decision<bool>,
    ) -> Result<(), Reason> {
        let words = directive.words();
        let target = words.first().ok_or("redir without a target")?;
        let status = match words.get(1).map(String::as_str) {
            None | Some("temporary") => 302,
            Some("permanent") => 301,
            Some(code) => match code.parse::<u16>() {
                Ok(code @ (301 | 302 | 303 | 307 | 308)) => code,
                _ => return Err("a redirect has the status 301, 302, 303, 307 or 308".to_owned()),
            },
        };
        let location = template(target, has_regex(reached))?;
        let is_url = ["/", "http://", "https://", "${scheme}://"]
            .iter()
            .any(|start| location.starts_with(start));
        if !is_url {
            return Err("a redirect begins with a slash or a scheme".to_owned());
        }
        let reached = &self.answer(reached)?;
        self.state("redirect", reached, toml::text(&location), directive)?;
        self.state("redirect_status", reached, status.to_string(), directive)?;
        self.translator
            .ledger
            .translated(directive, "redirect, redirect_status");
        Ok(())
    }

    fn respond(
        &mut self,
        directive: &'t Directive,
        reached: &Decision<bool>,
    ) -> Result<(), Reason> {
        let words = directive.words();
        let mut codes = words.iter().filter_map(|word| word.parse::<u16>().ok());
        let code = codes.next_back().unwrap_or(match directive.name.as_str() {
            "error" => 500,
            _ => 200,
        });
        let has_text = words.iter().any(|word| word.parse::<u16>().is_err())
            || directive.inner().iter().any(|inner| inner.name == "body");
        let ledger = &self.translator.ledger;
        for inner in directive.inner() {
            ledger.implied(inner, "belongs to the answer");
        }
        let reached = &self.answer(reached)?;
        match (code, has_text) {
            (400..=599, false) => {
                self.state("deny", reached, code.to_string(), directive)?;
                self.translator.ledger.translated(directive, "deny");
            }
            (400..=599, true) => {
                self.state("deny", reached, code.to_string(), directive)?;
                let text =
                    "the edge sends its own text with the status; error_page replaces it by a file";
                self.translator
                    .ledger
                    .differs(directive, Effect::Response, text);
            }
            _ => {
                self.state("deny", reached, "404", directive)?;
                let text = "the edge does not answer with this status and text, so they get 404; write the text to a \
                            file, and answer = \"FILE\" in place of deny";
                self.translator
                    .ledger
                    .left_out(directive, Effect::Response, text);
            }
        }
        Ok(())
    }

    fn rewrite(
        &mut self,
        directive: &'t Directive,
        reached: &Decision<bool>,
        target: &str,
    ) -> Result<(), Reason> {
        self.state("rewrite", reached, toml::text(target), directive)?;
        let text = "rewrite: the origin gets the new path; matchers and the cache key have that of the client";
        self.translator
            .ledger
            .differs(directive, Effect::Response, text);
        Ok(())
    }

    fn uri(&mut self, directive: &'t Directive, reached: &Decision<bool>) -> Result<(), Reason> {
        let words = directive.words();
        let word = |index: usize| words.get(index).map_or("", String::as_str);
        match (word(0), word(1), word(2)) {
            ("strip_prefix", prefix, "") => {
                let prefix = format!("/{}", prefix.trim_matches('/'));
                self.strip(directive, reached, &prefix)?;
                self.translator.ledger.translated(directive, "rewrite");
                Ok(())
            }
            ("strip_suffix", suffix, "") if !suffix.is_empty() => {
                let regex = format!("^/(.*){}$", literal_regex(suffix));
                let both = matching(&regex, reached)?;
                self.rewrite(directive, &both, "/${1}?${query}")
            }
            ("query", _, _) => Err("write query.keep, query.drop or rewrite in a rule".to_owned()),
            _ => Err("the edge replaces the whole path: rewrite with path_regex".to_owned()),
        }
    }

    /// Removes the start of the path for the origin.
    fn strip(
        &mut self,
        directive: &'t Directive,
        reached: &Decision<bool>,
        prefix: &str,
    ) -> Result<(), Reason> {
        let regex = format!("^{}(?:/(.*))?$", literal_regex(prefix));
        let both = matching(&regex, reached)?;
        self.state("rewrite", &both, toml::text("/${1}?${query}"), directive)
    }

    /// Translates the `cache` of Souin.
    fn cached(&mut self, directive: &'t Directive, reached: &Decision<bool>) -> Result<(), Reason> {
        self.state("pass", reached, "false", directive)?;
        self.cache = Some(directive);
        self.translator.ledger.translated(directive, "pass = false");
        for inner in directive.inner() {
            if let Err(reason) = self.cache_option(inner, reached) {
                let ledger = &self.translator.ledger;
                ledger.left_out(inner, Effect::Caching, &reason);
                ledger.rest_of_block(inner.inner(), Outcome::LeftOut, Effect::Operation, &reason);
            }
        }
        Ok(())
    }

    /// Translates an option of `cache`, in a site or in the global options.
    pub(super) fn cache_option(
        &mut self,
        inner: &'t Directive,
        reached: &Decision<bool>,
    ) -> Result<(), Reason> {
        let ledger = &self.translator.ledger;
        let time = |text: &str| {
            let time = values::milliseconds(text).ok_or_else(|| "not a time".to_owned())?;
            Ok::<_, Reason>(values::duration(time.div_ceil(1000) * 1000))
        };
        match inner.name.as_str() {
            "ttl" => {
                let time = time(inner.arg(0))?;
                self.state("default_ttl", reached, time, inner)?;
                self.translator.ledger.translated(inner, "default_ttl");
            }
            "stale" => {
                let time = time(inner.arg(0))?;
                for key in [
                    "stale_while_revalidate",
                    "stale_if_error",
                    "stale_if_disconnected",
                ] {
                    self.state(key, reached, time.clone(), inner)?;
                }
                let ledger = &self.translator.ledger;
                ledger.translated(
                    inner,
                    "stale_while_revalidate, stale_if_error, stale_if_disconnected",
                );
            }
            "key" => {
                let mut classes = Vec::new();
                for option in inner.inner() {
                    match option.name.as_str() {
                        "headers" if option.args.iter().all(|name| is_field_name(name)) => {
                            classes.extend(option.args.iter().map(|name| format!("header:{name}")));
                            ledger.translated(option, "key");
                        }
                        "disable_body" | "hide" | "hash" => ledger.implied(option, "not needed"),
                        _ => ledger.left_out(
                            option,
                            Effect::Caching,
                            "the key always has scheme, host, path and query: query.keep and query.drop change the query",
                        ),
                    }
                }
                if !classes.is_empty() {
                    self.state("key", reached, toml::array(&classes), inner)?;
                }
                self.translator.ledger.translated(inner, "key");
            }
            "regex" => {
                ledger.translated(inner, "pass");
                for option in inner.inner() {
                    let pattern = values::regex(option.arg(0), false)?;
                    let both = matching(&pattern, reached)?;
                    self.state("pass", &both, "true", option)?;
                    self.translator.ledger.translated(option, "pass");
                }
            }
            "default_cache_control" => {
                return Err("write origin_response.set.Cache-Control, which replaces that of the origin, or default_ttl".to_owned());
            }
            "allowed_http_verbs"
                if inner
                    .args
                    .iter()
                    .any(|verb| !matches!(verb.as_str(), "GET" | "HEAD")) =>
            {
                return Err("responses to GET and HEAD are stored, and no others".to_owned());
            }
            "mode" if inner.arg(0) != "strict" => {
                return Err(
                    "the edge obeys the directives of the origin: ttl in a rule replaces them"
                        .to_owned(),
                );
            }
            "timeout"
            | "allowed_http_verbs"
            | "mode"
            | "cache_name"
            | "log_level"
            | "api"
            | "max_cacheable_body_bytes"
            | "storers"
            | "badger"
            | "nuts"
            | "otter"
            | "simplefs"
            | "olric"
            | "redis"
            | "etcd"
            | "nats"
            | "distributed"
            | "cdn"
            | "disable_coalescing" => {
                let text =
                    "the edge has stores of its own: [hot], [[disk_device]]; purges by [purge]";
                ledger.implied(inner, text);
                ledger.rest_of_block(inner.inner(), Outcome::Implied, Effect::Operation, text);
            }
            _ => {
                return Err(
                    "unknown to this translation; look for it in docs/how-to/from-caddy.md"
                        .to_owned(),
                );
            }
        }
        Ok(())
    }
}

/// Returns the requests of a path that an expression matches.
fn matching(regex: &str, reached: &Decision<bool>) -> Result<Decision<bool>, Reason> {
    let when = Decision::when(When {
        regexes: vec![values::regex(regex, false)?],
        ..When::default()
    });
    reached.and(&when)
}

/// Returns true if each condition that holds has one expression, whose groups a template may use.
fn has_regex(reached: &Decision<bool>) -> bool {
    let mut holds = reached.layers().iter().filter(|(_, holds)| *holds);
    holds.all(|(when, _)| when.regexes.len() == 1)
}

/// Returns the template of the new path and query.
fn rewritten(target: &str, groups: bool) -> Result<String, Reason> {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let path = template(path, groups)?;
    if !path.starts_with('/') && path != "${path}" && path != "${uri}" {
        return Err("the new path must begin with a slash".to_owned());
    }
    let path = path.replace("${uri}", "${path}");
    let query = match query {
        None => "${query}".to_owned(),
        Some(query) => template(query, groups)?,
    };
    Ok(format!("{path}?{query}"))
}

/// Returns a size such as `10MB` as a size of TOML.
fn size(text: &str) -> Option<String> {
    let upper = text.to_ascii_uppercase();
    let digits = upper.len() - upper.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let unit = match &upper[digits..] {
        "" | "B" => "B",
        "K" | "KB" => "KB",
        "M" | "MB" => "MB",
        "G" | "GB" => "GB",
        "KIB" => "KiB",
        "MIB" => "MiB",
        "GIB" => "GiB",
        _ => return None,
    };
    let number: u64 = upper[..digits].parse().ok()?;
    (number > 0).then(|| format!("{number}{unit}"))
}
