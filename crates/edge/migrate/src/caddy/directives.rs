//! The directives that do not have directives of a site in their block.

use edgeward_sites::PAGE_BYTES_MAX;

use super::origins::{self, change};
use super::paths;
use super::state::Site;
use super::text::{plain_name, template};
use super::tree::Directive;
use crate::decision::Decision;
use crate::hosts::Reason;
use crate::report::{Effect, Outcome};
use crate::rule::{Key, Value};
use crate::toml;
use crate::values::{self, literal_regex};

impl<'t> Site<'_, 't> {
    /// Applies a directive other than `handle` and its relatives.
    pub(super) fn directive(
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
                if target.contains("${path}") {
                    self.has_whole_path(reached)?;
                }
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
            "file_server" | "php_fastcgi" | "metrics" | "acme_server" | "webdav" => {
                let reached = &self.answer(reached)?;
                self.state("deny", reached, "404", directive)?;
                let ledger = &self.translator.ledger;
                let text = "the edge serves no files and speaks HTTP only: these requests get 404; keep Caddy for them";
                ledger.left_out(directive, Effect::Response, text);
                ledger.rest_of_block(directive.inner(), Outcome::LeftOut, Effect::Operation, text);
                Ok(())
            }
            // Options of the whole site, which the translation of sites reads.
            "tls" | "log" | "bind" | "import" => Ok(()),
            _ => match super::table::row(&directive.name) {
                Some((Outcome::Implied, _, text)) => {
                    ledger.implied(directive, &text);
                    let inner = directive.inner();
                    ledger.rest_of_block(inner, Outcome::Implied, Effect::Operation, &text);
                    Ok(())
                }
                Some((_, _, text)) => Err(text),
                None => Err(
                    "unknown to this translation; look for it in docs/how-to/from-caddy.md"
                        .to_owned(),
                ),
            },
        }
    }

    fn proxy(&mut self, directive: &'t Directive, reached: &Decision<bool>) -> Result<(), Reason> {
        let origin = origins::origin(self, directive, reached)?;
        self.state("origin", reached, toml::text(&origin), directive)?;
        self.translator.ledger.translated(directive, "origin");
        self.end(reached)
    }

    fn fields(&mut self, directive: &'t Directive, reached: &Decision<bool>) -> Result<(), Reason> {
        let group = match directive.name.as_str() {
            "header" => "response",
            _ => "request",
        };
        if group == "request" {
            let own = directive.words().first().into_iter();
            let names = own.chain(directive.inner().iter().map(|line| &line.name));
            self.changed_fields
                .extend(names.map(|name| plain_name(name)));
        }
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
                match group {
                    "request" => self.lost_field(inner, &inner.name, reached),
                    _ => self.lost_response_field(inner, &inner.name, reached),
                }
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
        let code = status(directive);
        let of_block = directive.inner().iter().find(|inner| inner.name == "body");
        let of_words = words.iter().find(|word| word.parse::<u16>().is_err());
        let text = of_words.map_or_else(|| of_block.map_or("", |body| body.arg(0)), String::as_str);
        let kind = match text.starts_with(['{', '[']) {
            true => "application/json",
            false => "text/plain; charset=utf-8",
        };
        let has_placeholder = text.split('{').skip(1).any(is_placeholder);
        let is_fixed = !has_placeholder && text.len() <= PAGE_BYTES_MAX;
        let answer = values::answer(code, text, kind).filter(|_| is_fixed);
        let ledger = &self.translator.ledger;
        for inner in directive.inner() {
            ledger.implied(inner, "belongs to the answer");
        }
        let reached = &self.answer(reached)?;
        match (code, answer) {
            (400..=599, _) if text.is_empty() => {
                self.state("deny", reached, code.to_string(), directive)?;
                self.translator.ledger.translated(directive, "deny");
            }
            (400..=599, _) if is_fixed => {
                let page = Value::DenyWithPage(code, values::page(text, kind));
                self.set(Key::One("deny"), reached, page, Some(&directive.at))?;
                let ledger = &self.translator.ledger;
                ledger.translated(directive, "deny, error_page");
            }
            (400..=599, _) => {
                self.state("deny", reached, code.to_string(), directive)?;
                let text = "the text has placeholders, so the edge sends its own with the status";
                self.translator
                    .ledger
                    .differs(directive, Effect::Response, text);
            }
            (_, Some(answer)) => {
                self.state("answer", reached, answer, directive)?;
                self.translator.ledger.translated(directive, "answer");
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
        self.replace_path(reached);
        let text = "rewrite: the origin gets the new path; the cache key has that of the client";
        self.translator
            .ledger
            .differs(directive, Effect::Response, text);
        Ok(())
    }

    fn uri(&mut self, directive: &'t Directive, reached: &Decision<bool>) -> Result<(), Reason> {
        let words = directive.words();
        let word = |index: usize| words.get(index).map_or("", String::as_str);
        match (word(0), word(1), word(2)) {
            ("strip_prefix", prefix, "") if !prefix.contains('{') => {
                self.has_sent_path(reached)?;
                let prefix = format!("{}/{}", self.prefix, prefix.trim_matches('/'));
                self.strip(directive, reached, &prefix, true)?;
                self.replace_path(reached);
                self.translator.ledger.translated(directive, "rewrite");
                Ok(())
            }
            ("strip_suffix", suffix, "") if !suffix.is_empty() && !suffix.contains('{') => {
                self.has_whole_path(reached)?;
                let regex = format!("^/(.*){}$", literal_regex(suffix));
                let both = self.translator.both(reached, &paths::matching(regex))?;
                self.rewrite(directive, &both, "/${1}?${query}")
            }
            ("query", _, _) => Err("write query.keep, query.drop or rewrite in a rule".to_owned()),
            _ => Err("the edge replaces the whole path: rewrite with path_regex".to_owned()),
        }
    }

    /// Returns an error if the path of some of these requests is not the one that the client sent.
    fn has_whole_path(&self, reached: &Decision<bool>) -> Result<(), Reason> {
        match self.prefix.is_empty() {
            true => self.has_sent_path(reached),
            false => Err("handle_path has removed a part of the path".to_owned()),
        }
    }
}

/// Returns the status that `respond` or `error` answers with.
pub(super) fn status(directive: &Directive) -> u16 {
    let words = directive.words().iter();
    let mut codes = words.filter_map(|word| word.parse::<u16>().ok());
    codes.next_back().unwrap_or(match directive.name.as_str() {
        "error" => 500,
        _ => 200,
    })
}

/// Returns true if the text behind a brace is a name of Caddy's, so that the brace begins a placeholder.
fn is_placeholder(text: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '$' | '>');
    let name = text.split_once('}').map_or("", |(name, _)| name);
    !name.is_empty() && name.chars().all(is_name)
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
