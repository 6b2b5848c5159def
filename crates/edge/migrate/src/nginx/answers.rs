//! Answers of nginx itself: `return`, `rewrite`, `if`, `error_page`.

use super::conditions::{Condition, Env};
use super::draft::Draft;
use super::parse::Directive;
use crate::hosts::Cond;
use crate::ledger::LENIENT;
use crate::report::{Effect, Outcome};
use crate::rule::{Settings, Span, When};
use crate::toml;
use crate::values::{self, Part};

/// Returns the settings of a `return`.
///
/// `groups` is true if the rule has one expression, whose groups the text may use. `path` is the only path of the rule,
/// or empty.
pub(super) fn of_return(
    env: &Env<'_, '_>,
    directive: &Directive,
    groups: bool,
    path: &str,
) -> Settings {
    let ledger = &env.translator.ledger;
    let mut settings = Settings::default();
    let (code, text) = match directive.arg(0).parse::<u16>() {
        Ok(code) => (code, directive.arg(1)),
        Err(_) => (302, directive.arg(0)),
    };
    match code {
        301 | 302 | 303 | 307 | 308 if !text.is_empty() => match location(env, text, groups) {
            Ok(location) => {
                settings.set("redirect", toml::text(&location), &directive.at);
                settings.set("redirect_status", code.to_string(), &directive.at);
                ledger.translated(directive, "redirect, redirect_status");
            }
            Err(reason) => {
                ledger.left_out(
                    directive,
                    Effect::Response,
                    &format!("{reason}; these requests get 404"),
                );
                settings.set("deny", "404", &directive.at);
            }
        },
        444 => {
            settings.set("deny", "403", &directive.at);
            let difference = "the edge answers 403; nginx closes the connection";
            ledger.differs(directive, Effect::Response, difference);
        }
        400..=599 => {
            settings.set("deny", code.to_string(), &directive.at);
            match env.fixed_text(text) {
                Ok(text) if text.is_empty() => ledger.translated(directive, "deny"),
                Ok(text) => {
                    let page = values::page(&text, &env.content_type(path));
                    settings.set_status("error_page", &code.to_string(), page, &directive.at);
                    ledger.translated(directive, "deny, error_page");
                }
                Err(reason) => {
                    let text = format!("the edge sends its own text with the status: {reason}");
                    ledger.differs(directive, Effect::Response, &text);
                }
            }
        }
        _ => {
            let body = env.fixed_text(text);
            let answer = body.and_then(|body| {
                let answer = values::answer(code, &body, &env.content_type(path));
                answer.ok_or_else(|| "the edge does not answer with this status".to_owned())
            });
            match answer {
                Ok(answer) => {
                    settings.set("answer", answer, &directive.at);
                    ledger.translated(directive, "answer");
                }
                Err(reason) => {
                    settings.set("deny", "404", &directive.at);
                    let text = format!("{reason}; these requests get 404");
                    ledger.left_out(directive, Effect::Response, &text);
                }
            }
        }
    }
    settings
}

impl Env<'_, '_> {
    /// Returns a text without variables, or with variables that have one value.
    fn fixed_text(&self, text: &str) -> Result<String, String> {
        let parts = values::parts(text).into_iter().map(|part| match part {
            Part::Text(text) => Ok(text),
            Part::Variable(name) => {
                let value = self.constant(&name);
                value.map_err(|_| format!("the text of a page has no variable ${name}"))
            }
        });
        parts.collect()
    }

    /// Returns the type of a text for a path, which is empty for several paths.
    fn content_type(&self, path: &str) -> String {
        let ledger = &self.translator.ledger;
        let has_types = !self.translator.everywhere("types").is_empty()
            || self
                .translator
                .everywhere("include")
                .iter()
                .any(|include| include.arg(0).ends_with("mime.types"));
        let of_extension = match values::extension(path) {
            "html" | "htm" => Some("text/html"),
            _ if !has_types => None,
            "css" => Some("text/css"),
            "js" => Some("application/javascript"),
            "json" => Some("application/json"),
            "svg" => Some("image/svg+xml"),
            "txt" => Some("text/plain"),
            "xml" => Some("text/xml"),
            _ => None,
        };
        if let Some(known) = of_extension {
            return known.to_owned();
        }
        let default = self.scope.one("default_type", ledger);
        default
            .map_or("text/plain", |default| default.arg(0))
            .to_owned()
    }
}

/// The starts of templates that are URLs or paths.
const URL_STARTS: [&str; 4] = ["/", "http://", "https://", "${scheme}://"];

/// Returns the template of the URL to which a `return` redirects.
fn location(env: &Env<'_, '_>, text: &str, groups: bool) -> Result<String, String> {
    let location = env.template(text, groups)?;
    if location.starts_with('/') {
        // nginx makes a path a whole URL.
        return Ok(format!("${{scheme}}://${{host}}{location}"));
    }
    match URL_STARTS.iter().any(|start| location.starts_with(start)) {
        true => Ok(location),
        false => Err("a redirect begins with a slash or a scheme".to_owned()),
    }
}

/// A `rewrite` as settings, with the condition on the path.
pub(super) struct Rewrite {
    pub(super) when: When,
    pub(super) settings: Settings,
    pub(super) is_redirect: bool,
    /// The literal start of the new path.
    pub(super) start: String,
}

/// Reads a `rewrite`.
pub(super) fn of_rewrite(env: &Env<'_, '_>, directive: &Directive) -> Result<Rewrite, String> {
    let (pattern, target, flag) = (directive.arg(0), directive.arg(1), directive.arg(2));
    let regex = values::regex(pattern, false)?;
    let mut template = env.template(target, true)?;
    match template.strip_suffix('?') {
        // A `?` at the end removes the query.
        Some(without) => template = without.to_owned(),
        None => template.push_str(if template.contains('?') {
            "&${query}"
        } else {
            "?${query}"
        }),
    }
    let is_url = ["http://", "https://", "$scheme"]
        .iter()
        .any(|start| target.starts_with(start));
    let is_redirect = is_url || matches!(flag, "redirect" | "permanent");
    let starts: &[&str] = match is_redirect {
        true => &URL_STARTS,
        false => &["/", "${path}", "${uri}"],
    };
    if !starts.iter().any(|start| template.starts_with(start)) {
        return Err(format!(
            "the new path must begin with a slash, and not with a part of the old one: {target}"
        ));
    }
    let mut settings = Settings::default();
    let key = if is_redirect { "redirect" } else { "rewrite" };
    settings.set(key, toml::text(&template), &directive.at);
    if is_redirect {
        let status = if flag == "permanent" { "301" } else { "302" };
        settings.set("redirect_status", status, &directive.at);
    }
    let end = target.find('$').unwrap_or(target.len());
    Ok(Rewrite {
        when: When {
            regexes: vec![regex],
            ..When::default()
        },
        settings,
        is_redirect,
        start: target[..end]
            .split('?')
            .next()
            .unwrap_or_default()
            .to_owned(),
    })
}

/// Translates the `return`, `rewrite` and `if` of a location. Returns true if the location always answers itself.
pub(super) fn in_location(draft: &mut Draft<'_, '_>) -> bool {
    let steps: Vec<&Directive> = draft.env.scope.here().iter().collect();
    // nginx executes these directives in their order, and the first answer counts. The last rule counts at the edge.
    let is_step = |d: &&&Directive| matches!(d.name.as_str(), "return" | "rewrite" | "if");
    let end = steps.iter().position(|d| d.name == "return");
    for step in steps.iter().rev().filter(is_step) {
        match step.name.as_str() {
            "return" => {
                let groups = draft.when.regexes.len() == 1;
                let path = match &draft.span {
                    Span::Exact(path) => path.as_str(),
                    _ => "",
                };
                let settings = of_return(&draft.env, step, groups, path);
                draft.settings.0.extend(settings.0);
            }
            "rewrite" => rewrite(draft, step),
            _ => branch(draft, step),
        }
    }
    end.is_some()
}

fn rewrite(draft: &mut Draft<'_, '_>, directive: &Directive) {
    let rewritten = of_rewrite(&draft.env, directive);
    let Rewrite {
        when,
        settings,
        is_redirect,
        start,
    } = match rewritten {
        Ok(rewrite) => rewrite,
        Err(reason) => return draft.left_out(directive, Effect::Response, &reason),
    };
    let is_break = directive.arg(2) == "break";
    let stays = is_redirect || is_break || draft.holds_path(&start);
    if !draft.patch(directive, &when, settings) {
        let text = "one rule cannot have this expression and that of the location";
        return draft.left_out(directive, Effect::Response, text);
    }
    match stays {
        true => draft.translated(directive, if is_redirect { "redirect" } else { "rewrite" }),
        false => draft.left_out(
            directive,
            Effect::Response,
            "the origin gets the new path, but by the settings of this location; nginx applies those of the location of \
             the new path",
        ),
    }
}

/// Translates an `if` of a location.
fn branch<'t>(draft: &mut Draft<'_, 't>, directive: &'t Directive) {
    let is_set = |d: &&Directive| d.name != "set";
    let body: Vec<&Directive> = directive.children().iter().filter(is_set).collect();
    if body.is_empty() {
        // Conditions that read the variable translate it.
        return;
    }
    let condition = match draft.env.condition(directive) {
        Ok(condition) => condition,
        Err(reason) => return left_out_branch(draft, directive, &reason),
    };
    let (mut on, mut off) = (Settings::default(), Settings::default());
    for inner in body {
        match inner.name.as_str() {
            "return" => {
                on.0.extend(of_return(&draft.env, inner, false, "").0);
                for key in ["deny", "redirect", "answer"] {
                    off.set(key, "false", &directive.at);
                }
            }
            "break" => draft.implied(inner, "not needed"),
            _ => {
                return left_out_branch(
                    draft,
                    directive,
                    "a rule for these requests is not made from this block",
                );
            }
        }
    }
    off.0.retain(|key, _| on.0.contains_key(key));
    if on.has_error_page() {
        off.set("error_page", "false", &directive.at);
    }
    if let Some(difference) = exact_enough(&condition) {
        return left_out_branch(draft, directive, &difference);
    }
    let has_names = |when: &When| !when.parameters.is_empty();
    let is_lenient = (on.is_on("deny") || on.is_on("redirect"))
        && matches!(&condition.cond, Cond::Not(all) if all.iter().any(has_names));
    match draft.switch(directive, &condition, &on, &off) {
        Ok(()) if is_lenient => draft.left_out(directive, Effect::Access, LENIENT),
        Ok(()) => draft.translated(directive, "a rule with conditions"),
        Err(reason) => left_out_branch(draft, directive, &reason),
    }
}

/// Returns why a condition must not decide about an answer: it may hold for other requests than that of nginx.
pub(super) fn exact_enough(condition: &Condition) -> Option<String> {
    condition.difference.clone()
}

fn left_out_branch(draft: &Draft<'_, '_>, directive: &Directive, reason: &str) {
    draft.left_out(directive, Effect::Access, reason);
    let ledger = &draft.env.translator.ledger;
    let text = "belongs to an `if` that was left out";
    ledger.rest_of_block(
        directive.children(),
        Outcome::LeftOut,
        Effect::Operation,
        text,
    );
}

/// Translates `error_page` and `proxy_intercept_errors`.
pub(super) fn error_pages(draft: &mut Draft<'_, '_>) {
    let intercepts = draft.one("proxy_intercept_errors");
    let replaces_all = intercepts.is_some_and(|intercepts| intercepts.arg(0) == "on");
    for page in draft.all(&["error_page"]) {
        error_page(draft, page, replaces_all);
    }
    if let Some(intercepts) = intercepts {
        draft.implied(
            intercepts,
            "error_page replaces error responses of the origin, too",
        );
    }
}

/// The statuses of errors that nginx answers itself if the origin does not answer.
const OF_PROXY: [&str; 2] = ["502", "504"];

/// Translates an `error_page`. `replaces_all` is true if the page replaces bodies of the origin, too.
fn error_page(draft: &mut Draft<'_, '_>, page: &Directive, replaces_all: bool) {
    let Some((target, statuses)) = page.args.split_last() else {
        return;
    };
    let is_path = target.starts_with('/') && statuses.iter().all(|s| s.parse::<u16>().is_ok());
    if !is_path {
        let text = "the edge does not answer errors by another location or status";
        return draft.left_out(page, Effect::Response, text);
    }
    let Some(file) = draft.env.file_of(target) else {
        let text = format!(
            "write the page to a file, and error_page = {{ {} = \"FILE\" }}; the file replaces bodies of the origin, too",
            statuses.first().map_or("404", String::as_str)
        );
        return draft.left_out(page, Effect::Response, &text);
    };
    let (own, others): (Vec<&String>, Vec<&String>) = statuses
        .iter()
        .partition(|status| replaces_all || OF_PROXY.contains(&status.as_str()));
    for status in &own {
        let value = toml::text(&file);
        draft
            .settings
            .set_status("error_page", status, value, &page.at);
    }
    match (replaces_all, others.is_empty()) {
        (true, _) => draft.translated(page, "error_page"),
        (false, true) => {
            let text = "error_page replaces bodies of the origin with these statuses, too";
            draft.differs(page, Effect::Response, text);
        }
        (false, false) => {
            let text = "error_page replaces bodies of the origin, too, so that only 502 and 504 have the page";
            draft.left_out(page, Effect::Response, text);
        }
    }
}

impl<'t> Env<'_, 't> {
    /// Returns the file that nginx sends for a path with a location of its own, if the edge can send it.
    fn file_of(&self, path: &str) -> Option<String> {
        let levels = self.scope.levels();
        let is_exact = |d: &&Directive| {
            d.name == "location"
                && match (d.arg(0), d.arg(1)) {
                    ("=", known) => known == path,
                    (known, "") => known.strip_prefix('=') == Some(path),
                    _ => false,
                }
        };
        let (depth, location) = levels
            .iter()
            .enumerate()
            .find_map(|(depth, level)| Some((depth, level.iter().find(is_exact)?)))?;
        let inner = [&levels[..=depth], &[location.children()]].concat();
        self.file_at(&inner, path)
    }

    /// Returns the file that nginx sends for the only path of a location, if the edge can send it. `levels` has the
    /// blocks around the location, and its own.
    pub(super) fn file_at(&self, levels: &[&'t [Directive]], path: &str) -> Option<String> {
        let own = levels.last()?;
        let is_other = |d: &Directive| {
            d.name.ends_with("_pass")
                || matches!(
                    d.name.as_str(),
                    "return" | "rewrite" | "if" | "try_files" | "auth_basic"
                )
        };
        if own.iter().any(is_other) {
            return None;
        }
        if let Some(alias) = own.iter().find(|d| d.name == "alias") {
            return self.translator.page(alias.arg(0), "");
        }
        let root = levels
            .iter()
            .rev()
            .find_map(|level| level.iter().find(|d| d.name == "root"))?;
        self.translator.page(root.arg(0), path)
    }
}
