//! Caching: `proxy_cache` and its directives.

use super::conditions::is_true;
use super::draft::Draft;
use super::parse::Directive;
use crate::hosts::Cond;
use crate::report::Effect;
use crate::rule::{Settings, Value};
use crate::toml;
use crate::values::{self, Part, parts};

/// The directives of a cache that mean nothing where the cache is off.
const DIRECTIVES: [&str; 14] = [
    "proxy_cache_valid",
    "proxy_cache_key",
    "proxy_cache_bypass",
    "proxy_no_cache",
    "proxy_cache_use_stale",
    "proxy_cache_background_update",
    "proxy_cache_lock",
    "proxy_cache_lock_timeout",
    "proxy_cache_lock_age",
    "proxy_cache_min_uses",
    "proxy_cache_methods",
    "proxy_cache_revalidate",
    "proxy_cache_convert_head",
    "proxy_ignore_headers",
];

/// The shortest time for which stale responses are used. nginx uses them without a limit of time, as long as they are
/// requested.
const STALE_MIN: u64 = values::DAY;

/// The classes of statuses that `any` has.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// Translates the cache of a location with an origin.
pub(super) fn cache(draft: &mut Draft<'_, '_>) {
    let cache = draft.one("proxy_cache");
    let buffering = draft.one("proxy_buffering").filter(|d| d.arg(0) == "off");
    let Some(cache) = cache.filter(|d| d.arg(0) != "off" && buffering.is_none()) else {
        let at = cache
            .or(buffering)
            .map_or_else(|| draft.env.scope_position(), |d| d.at.clone());
        draft.settings.set("pass", "true", &at);
        for off in [cache, buffering].into_iter().flatten() {
            draft.translated(off, "pass = true");
        }
        for unused in draft
            .env
            .scope
            .here()
            .iter()
            .filter(|d| DIRECTIVES.contains(&d.name.as_str()))
        {
            draft.implied(unused, "the cache is off here");
        }
        return;
    };
    if let Some(on) = draft.one("proxy_buffering") {
        draft.implied(on, "the edge stores responses while it sends them");
    }
    draft.settings.set("pass", "false", &cache.at);
    let zone = draft.env.translator.cache_paths.get(cache.arg(0)).copied();
    match cache.arg(0).contains('$') {
        true => draft.differs(
            cache,
            Effect::Caching,
            "the edge has one cache; the variable is not evaluated",
        ),
        false => draft.translated(cache, "pass = false: the edge has one cache"),
    }
    let (is_override, ignored) = ignored_fields(draft);
    stale(draft, zone);
    lifetimes(
        draft,
        if is_override { "ttl" } else { "default_ttl" },
        ignored,
    );
    key(draft);
    exceptions(draft);
    others(draft);
}

/// Translates `proxy_ignore_headers`. Returns true if the lifetimes of nginx replace those of the origin.
fn ignored_fields<'t>(draft: &mut Draft<'_, 't>) -> (bool, Option<&'t Directive>) {
    let Some(ignored) = draft.one("proxy_ignore_headers") else {
        return (false, None);
    };
    let names: Vec<String> = ignored
        .args
        .iter()
        .map(|name| name.to_ascii_lowercase())
        .collect();
    let has = |name: &str| names.iter().any(|known| known == name);
    let is_override = has("cache-control") && has("expires");
    draft.translated(ignored, "ttl, origin_response.remove");
    if is_override && !has("x-accel-expires") {
        let text = "responses with X-Accel-Expires have the time of proxy_cache_valid, too";
        draft.differs(ignored, Effect::Caching, text);
    }
    let hidden = draft.all(&["proxy_hide_header"]);
    let hides = |name: &str| hidden.iter().any(|d| d.arg(0).eq_ignore_ascii_case(name));
    for (lower, name) in [
        ("set-cookie", "Set-Cookie"),
        ("vary", "Vary"),
        ("x-accel-expires", "X-Accel-Expires"),
        ("cache-control", "Cache-Control"),
        ("expires", "Expires"),
    ] {
        let is_lifetime = matches!(lower, "cache-control" | "expires");
        if !has(lower) || (is_lifetime && is_override) {
            continue;
        }
        draft.settings.change(
            "origin_response",
            Value::RemoveField(name.to_owned()),
            &ignored.at,
        );
        if lower != "x-accel-expires" && !hides(name) {
            let text =
                format!("{name} is removed from stored responses; nginx sends it to clients");
            draft.differs(ignored, Effect::Caching, &text);
        }
    }
    (is_override, Some(ignored))
}

/// Translates `proxy_cache_valid`.
fn lifetimes(draft: &mut Draft<'_, '_>, map: &'static str, ignored: Option<&Directive>) {
    let mut stated: Vec<String> = Vec::new();
    for valid in draft.all(&["proxy_cache_valid"]) {
        let Some((time, statuses)) = valid.args.split_last() else {
            continue;
        };
        let Some(time) = values::milliseconds(time) else {
            draft.left_out(valid, Effect::Caching, "the time is not valid");
            continue;
        };
        let time = match time / 1000 {
            0 => toml::text("no-store"),
            seconds => values::duration(seconds.min(3650 * 86_400) * 1000),
        };
        let usual = ["200", "301", "302"].map(str::to_owned);
        let statuses = if statuses.is_empty() {
            &usual[..]
        } else {
            statuses
        };
        let is_status = |status: &&String| {
            let number = status.parse::<u16>();
            *status == "any" || number.is_ok_and(|number| (100..600).contains(&number))
        };
        for status in statuses.iter().filter(is_status) {
            // nginx takes the first line that has the status; `any` has all.
            let all = CLASSES.map(str::to_owned);
            let statuses = match status.as_str() {
                "any" => &all[..],
                _ => std::slice::from_ref(status),
            };
            for status in statuses {
                if !stated.contains(status) && !stated.contains(&"2xx".to_owned()) {
                    draft
                        .settings
                        .set_status(map, status, time.clone(), &valid.at);
                }
            }
            stated.extend(statuses.iter().cloned());
        }
        match statuses.iter().all(|status| is_status(&status)) {
            true => draft.translated(valid, map),
            false => draft.left_out(
                valid,
                Effect::Caching,
                "a status is a number from 100 to 599",
            ),
        }
    }
    if let Some(ignored) = ignored.filter(|_| map == "ttl" && stated.is_empty()) {
        draft.settings.set("pass", "true", &ignored.at);
        let text = "without proxy_cache_valid nothing is stored: pass = true";
        draft.differs(ignored, Effect::Caching, text);
        return;
    }
    // nginx does not store other statuses without a lifetime of the origin. Without stale use, the edge forwards each
    // request for them anyway.
    if map == "default_ttl" && !draft.settings.is_on("stale_if_disconnected") {
        return;
    }
    for class in CLASSES {
        if !stated.iter().any(|status| status == class) {
            let at = &draft
                .one("proxy_cache")
                .map_or_else(|| draft.env.scope_position(), |d| d.at.clone());
            draft
                .settings
                .set_status(map, class, toml::text("no-store"), at);
        }
    }
}

/// Translates `proxy_cache_key`.
fn key(draft: &mut Draft<'_, '_>) {
    let Some(directive) = draft.one("proxy_cache_key") else {
        return;
    };
    let mut classes: Vec<String> = Vec::new();
    let (mut has_host, mut has_path, mut has_query) = (false, false, false);
    let mut unknown = None;
    for part in parts(directive.arg(0)) {
        let Part::Variable(name) = part else {
            continue;
        };
        match name.as_str() {
            "host" | "http_host" | "proxy_host" | "server_name" => has_host = true,
            "request_uri" => (has_path, has_query) = (true, true),
            "uri" | "document_uri" => has_path = true,
            "args" | "query_string" | "is_args" => has_query = true,
            "scheme" | "request_method" | "slice_range" | "server_port" | "proxy_port"
            | "https" => {}
            // The edge distinguishes codings itself.
            "http_accept_encoding" => {}
            _ => {
                if let Some(cookie) = name.strip_prefix("cookie_") {
                    classes.push(format!("cookie:{cookie}"));
                } else if let Some(field) = name.strip_prefix("http_") {
                    classes.push(format!("header:{}", super::conditions::field_name(field)));
                } else if name.strip_prefix("arg_").is_some() {
                    has_query = true;
                } else {
                    unknown = Some(name);
                }
            }
        }
    }
    draft.translated(directive, "key");
    if !classes.is_empty() {
        draft
            .settings
            .set("key", toml::array(&classes), &directive.at);
    }
    if let Some(name) = unknown {
        let text = format!(
            "a key has no ${name}; use key = [\"header:NAME\", \"cookie:NAME\", \"device\"], if one fits"
        );
        draft.left_out(directive, Effect::Caching, &text);
        draft.settings.set("pass", "true", &directive.at);
    } else if !has_path {
        draft.left_out(
            directive,
            Effect::Caching,
            "the edge's key always has the path",
        );
    } else if !has_query {
        let text = "the edge's key has the query; query.drop and query.keep remove parameters, also for the origin";
        draft.left_out(directive, Effect::Caching, text);
    } else if !has_host {
        let text = "the edge's key has the host, so each host has stored responses of its own";
        draft.differs(directive, Effect::Caching, text);
    }
}

/// Translates the use of stale responses.
fn stale(draft: &mut Draft<'_, '_>, zone: Option<&Directive>) {
    let update = draft.one("proxy_cache_background_update");
    let is_background = update.is_some_and(|d| d.arg(0) == "on");
    if let Some(update) = update {
        draft.translated(update, "stale_while_revalidate");
    }
    let Some(stale) = draft.one("proxy_cache_use_stale") else {
        return;
    };
    let inactive = zone.and_then(|zone| {
        let text = zone
            .args
            .iter()
            .find_map(|arg| arg.strip_prefix("inactive="))?;
        values::milliseconds(text)
    });
    let time = inactive.unwrap_or(0).clamp(STALE_MIN, 3650 * values::DAY);
    let time = values::duration(time / 1000 * 1000);
    let has = |names: &[&str]| stale.args.iter().any(|word| names.contains(&word.as_str()));
    draft.translated(
        stale,
        "stale_if_error, stale_if_disconnected, stale_while_revalidate",
    );
    if has(&["error", "timeout", "invalid_header"]) {
        draft
            .settings
            .set("stale_if_disconnected", time.clone(), &stale.at);
    }
    if stale.args.iter().any(|word| word.starts_with("http_5")) {
        draft
            .settings
            .set("stale_if_error", time.clone(), &stale.at);
    }
    if has(&["http_403", "http_404", "http_429"]) {
        let text = "stale_if_error applies to statuses of 5xx; 403, 404 and 429 go to the client";
        draft.differs(stale, Effect::Caching, text);
    }
    if has(&["updating"]) {
        match is_background {
            true => draft.settings.set("stale_while_revalidate", time, &stale.at),
            false => draft.differs(
                stale,
                Effect::Caching,
                "requests wait for an update that is under way; add stale_while_revalidate to answer them at once",
            ),
        }
    }
}

/// Translates `proxy_cache_bypass` and `proxy_no_cache`.
fn exceptions(draft: &mut Draft<'_, '_>) {
    let words = |directives: &[&Directive]| {
        let mut words: Vec<String> = directives.iter().flat_map(|d| d.args.clone()).collect();
        words.sort();
        words.dedup();
        words
    };
    let bypass = draft.all(&["proxy_cache_bypass"]);
    let no_cache = draft.all(&["proxy_no_cache"]);
    let (bypass_words, no_cache_words) = (words(&bypass), words(&no_cache));
    let mut all: Vec<String> = [bypass_words.clone(), no_cache_words.clone()].concat();
    all.sort();
    all.dedup();
    for word in all {
        let has_word = |d: &&&Directive| d.args.contains(&word);
        let directives: Vec<&Directive> = bypass
            .iter()
            .chain(&no_cache)
            .filter(has_word)
            .copied()
            .collect();
        let Some(from) = directives.first().copied() else {
            continue;
        };
        let (mut on, mut off) = (Settings::default(), Settings::default());
        on.set("pass", "true", &from.at);
        off.set("pass", "false", &from.at);
        // Fields of the response decide after the request was sent.
        let result = match word.starts_with("$upstream_") || word.starts_with("$sent_") {
            true => Err(
                "rules have no condition on responses; the origin may send Cache-Control: no-store"
                    .to_owned(),
            ),
            false => draft.env.holds(&word, is_true).and_then(|condition| {
                draft
                    .switch(from, &condition, &on, &off)
                    .map(|()| condition)
            }),
        };
        if result.is_err() {
            // Pages of one user could be stored for all.
            draft.settings.set("pass", "true", &from.at);
        }
        for directive in directives {
            match &result {
                Ok(condition) => {
                    draft.translated(directive, "pass = true in a rule with conditions");
                    if let Some(difference) = &condition.difference {
                        draft.differs(directive, Effect::Caching, difference);
                    }
                    if condition.cond != Cond::Never
                        && bypass_words.contains(&word) != no_cache_words.contains(&word)
                    {
                        let text = match directive.name.as_str() {
                            "proxy_cache_bypass" => "the response is not stored either",
                            _ => "such a request is not answered from the cache either",
                        };
                        draft.differs(directive, Effect::Caching, text);
                    }
                }
                Err(reason) => {
                    let text = format!(
                        "{reason}; the whole location bypasses the cache until you write a rule"
                    );
                    draft.left_out(directive, Effect::Caching, &text);
                }
            }
        }
    }
}

/// Translates the directives whose counterpart is always on, and those without one.
fn others(draft: &Draft<'_, '_>) {
    for (name, text) in [
        (
            "proxy_cache_lock",
            "the edge sends one request for each key",
        ),
        (
            "proxy_cache_revalidate",
            "a stale response with a validator is revalidated",
        ),
        (
            "proxy_cache_convert_head",
            "HEAD and GET share stored responses",
        ),
    ] {
        if let Some(directive) = draft.one(name) {
            draft.implied(directive, text);
        }
    }
    if let Some(methods) = draft.one("proxy_cache_methods") {
        match methods
            .args
            .iter()
            .all(|method| matches!(method.as_str(), "GET" | "HEAD"))
        {
            true => draft.implied(methods, "the edge stores responses to GET"),
            false => draft.left_out(
                methods,
                Effect::Caching,
                "responses to other methods than GET and HEAD are not stored",
            ),
        }
    }
    for name in ["proxy_cache_lock_timeout", "proxy_cache_lock_age"] {
        if let Some(directive) = draft.one(name) {
            match values::milliseconds(directive.arg(0)) {
                Some(time) if name == "proxy_cache_lock_timeout" => {
                    let time = values::duration(time.min(values::DAY));
                    draft
                        .env
                        .translator
                        .fact("caching", "collapse_wait_max", time, directive);
                }
                _ => draft.implied(directive, "caching.collapse_wait_max limits the wait"),
            }
        }
    }
    if let Some(uses) = draft.one("proxy_cache_min_uses") {
        let rule = match uses.arg(0) {
            "1" => "always".to_owned(),
            "2" => "second-hit".to_owned(),
            number => format!("nth-hit:{number}"),
        };
        let translator = draft.env.translator;
        let text = match translator.cache_paths.is_empty() {
            true => {
                "the input has no proxy_cache_path, and the number applies to the disk only: disk.admission"
            }
            false => {
                translator.fact("disk", "admission", toml::text(&rule), uses);
                "the number applies to the disk only; the policy of memory decides itself"
            }
        };
        draft.differs(uses, Effect::Caching, text);
    }
}
