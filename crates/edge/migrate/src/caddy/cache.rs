//! The directive `cache` of Souin.

use super::paths;
use super::state::Site;
use super::tree::Directive;
use crate::decision::Decision;
use crate::hosts::Reason;
use crate::report::{Effect, Outcome};
use crate::rule::When;
use crate::toml;
use crate::values::{self, is_field_name};

impl<'t> Site<'_, 't> {
    /// Translates `cache`: the options of the global one, then its own. An option that was left out may restrict the
    /// stored responses, so its requests bypass the cache.
    pub(super) fn cached(
        &mut self,
        directive: &'t Directive,
        reached: &Decision<bool>,
    ) -> Result<(), Reason> {
        self.state("pass", reached, "false", directive)?;
        self.translator.ledger.translated(directive, "pass = false");
        for option in self.global_cache.iter().chain(directive.inner()) {
            if let Err(reason) = self.cache_option(option, reached) {
                self.lost_option(option, &reason, reached);
            }
        }
        Ok(())
    }

    fn lost_option(&mut self, option: &'t Directive, reason: &str, reached: &Decision<bool>) {
        let ledger = &self.translator.ledger;
        // Without them, fewer responses are stored.
        let is_narrower = matches!(option.name.as_str(), "ttl" | "stale" | "mode");
        let text = match is_narrower {
            true => reason.to_owned(),
            false => format!("{reason}; these requests bypass the cache until you decide"),
        };
        ledger.left_out(option, Effect::Caching, &text);
        ledger.rest_of_block(option.inner(), Outcome::LeftOut, Effect::Operation, reason);
        if !is_narrower {
            self.uncached
                .push((reached.clone(), Some(option.at.clone())));
        }
    }

    fn cache_option(
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
                        _ => {
                            let text = "the key always has scheme, host, path and query: query.keep and query.drop \
                                        change the query";
                            return Err(text.to_owned());
                        }
                    }
                }
                if !classes.is_empty() {
                    self.state("key", reached, toml::array(&classes), inner)?;
                }
                self.translator.ledger.translated(inner, "key");
            }
            "regex" => {
                for option in inner.inner() {
                    self.excluded(option, reached)?;
                }
                self.translator.ledger.translated(inner, "pass");
            }
            "default_cache_control" => {
                return Err("write origin_response.set.Cache-Control, which replaces that of the origin, or default_ttl".to_owned());
            }
            "allowed_http_verbs"
                if inner
                    .args
                    .iter()
                    .any(|verb| !matches!(verb.as_str(), "GET" | "HEAD"))
                    || !inner.args.iter().any(|verb| verb == "GET") =>
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

    /// Translates `exclude`, whose expression Souin compares with the path and the query.
    fn excluded(&mut self, option: &'t Directive, reached: &Decision<bool>) -> Result<(), Reason> {
        if option.name != "exclude" || option.args.len() != 1 {
            return Err("exclude has one expression".to_owned());
        }
        let pattern = option.arg(0);
        if pattern.contains('%') {
            return Err("the edge compares paths without percent-encoding".to_owned());
        }
        let at = Some(option.at.clone());
        if matches!(pattern, ".*" | "^.*" | ".*$" | "^.*$" | "." | "/" | "^/") {
            self.uncached.push((reached.clone(), at));
            self.translator.ledger.translated(option, "pass");
            return Ok(());
        }
        let mut all = vec![paths::matching(values::regex(pattern, false)?)];
        let is_of_path = |c: char| c.is_ascii_alphanumeric() || "-_/()|^".contains(c);
        let plain = pattern.replace("\\.", "").replace("\\-", "");
        let has_path_alone = pattern.starts_with("^/")
            && plain.chars().all(is_of_path)
            && !pattern[1..].contains('^');
        match has_path_alone {
            true => self.translator.ledger.translated(option, "pass"),
            false => {
                all.push(Decision::when(When {
                    parameters: vec!["*".to_owned()],
                    ..When::default()
                }));
                let text = "pass: the expression is compared with the path, and all requests with a query bypass the \
                            cache";
                self.translator
                    .ledger
                    .differs(option, Effect::Caching, text);
            }
        }
        for excluded in all {
            // Without the condition of `cache`, more requests bypass it.
            let both = self.translator.both(reached, &excluded);
            self.uncached.push((both.unwrap_or(excluded), at.clone()));
        }
        Ok(())
    }
}
