//! Access: `allow`, `deny`, limits of rates and bodies, authentication.

use super::draft::Draft;
use super::parse::Directive;
use crate::report::Effect;
use crate::rule::{Settings, When};
use crate::toml;
use crate::values;

/// Translates the access of a location.
pub(super) fn access(draft: &mut Draft<'_, '_>) {
    let is_any = draft.one("satisfy").filter(|d| d.arg(0) == "any");
    for name in ["auth_basic", "auth_request", "auth_jwt", "auth_ldap"] {
        let Some(auth) = draft.one(name).filter(|d| d.arg(0) != "off") else {
            continue;
        };
        let text = "the edge does not authenticate clients, so these requests are denied; let the origin authenticate \
                    them, and remove deny";
        draft.left_out(auth, Effect::Access, text);
        draft.settings.set("deny", "true", &auth.at);
    }
    for name in [
        "auth_basic_user_file",
        "auth_request_set",
        "auth_basic",
        "auth_request",
    ] {
        if let Some(other) = draft.one(name) {
            draft.implied(other, "belongs to the authentication");
        }
    }
    match is_any {
        Some(any) => draft.left_out(
            any,
            Effect::Access,
            "the edge has no authentication as an alternative to addresses",
        ),
        None => {
            if let Some(all) = draft.one("satisfy") {
                draft.implied(all, "all conditions apply");
            }
        }
    }
    addresses(draft);
    rates(draft);
    methods(draft);
    // The limit of the whole configuration is one of the edge.
    if let Some(size) = draft.one("client_max_body_size")
        && !draft
            .env
            .translator
            .http
            .here()
            .iter()
            .any(|d| d.id == size.id)
    {
        body_size(draft, size);
    }
}

/// Translates a list of `allow` and `deny`. nginx applies the first directive that matches.
fn addresses(draft: &mut Draft<'_, '_>) {
    let list = draft.all(&["allow", "deny"]);
    let is_authenticated = draft.settings.one("deny") == Some("true");
    let mut rest: &[&Directive] = &list;
    let mut is_first = true;
    // The last line of nginx comes first, because the last rule of the edge counts.
    while let Some((last, _)) = rest.split_last() {
        let same = rest
            .iter()
            .rev()
            .take_while(|d| d.name == last.name && d.arg(0) != "all")
            .count();
        let count = if last.arg(0) == "all" { 1 } else { same };
        let (before, group) = rest.split_at(rest.len() - count);
        rest = before;
        let mut settings = Settings::default();
        let is_deny = last.name == "deny" || is_authenticated;
        settings.set("deny", if is_deny { "true" } else { "false" }, &group[0].at);
        let is_known = group
            .iter()
            .all(|d| d.arg(0) == "all" || values::is_network(d.arg(0)));
        if !is_known {
            group.iter().for_each(|d| {
                draft.left_out(d, Effect::Access, "clients are addresses or networks");
            });
            // A list that is not complete could permit too much.
            draft.settings.set("deny", "true", &last.at);
        } else if last.arg(0) == "all" {
            if !is_first {
                // Earlier lines of the file follow; later ones never apply.
                draft.patches.retain(|_| false);
            }
            draft.settings.0.extend(settings.0);
            draft.translated(last, "deny");
        } else {
            let when = When {
                clients: group.iter().map(|d| d.arg(0).to_owned()).collect(),
                ..When::default()
            };
            let is_stated = draft.patch(group[0], &when, settings);
            for directive in group {
                match is_stated {
                    true => draft.translated(directive, "deny with client"),
                    false => draft.left_out(
                        directive,
                        Effect::Access,
                        "the location has another condition on clients",
                    ),
                }
            }
        }
        is_first = false;
    }
}

/// Translates `limit_req` and `limit_conn`.
fn rates(draft: &mut Draft<'_, '_>) {
    let limits = draft.all(&["limit_req"]);
    for (number, limit) in limits.iter().enumerate() {
        let option = |name: &str| limit.args.iter().find_map(|arg| arg.strip_prefix(name));
        if number > 0 {
            draft.left_out(limit, Effect::Access, "a rule has one rate_limit");
            continue;
        }
        let zone = option("zone=").and_then(|zone| draft.env.translator.rates.get(zone).copied());
        let rate = zone.and_then(|zone| zone.args.iter().find_map(|arg| arg.strip_prefix("rate=")));
        let rate = rate.and_then(rate_of);
        let (Some(zone), Some(rate)) = (zone, rate) else {
            draft.left_out(
                limit,
                Effect::Access,
                "its limit_req_zone is missing or has no valid rate",
            );
            continue;
        };
        let by = match zone.arg(0) {
            "$binary_remote_addr" | "$remote_addr" | "$realip_remote_addr" => None,
            "$server_name" | "$host" | "$http_host" => Some("site".to_owned()),
            key => match key.strip_prefix("$http_") {
                Some(field) => {
                    let text = "requests without the field count by their address; nginx does not count them";
                    draft.differs(limit, Effect::Access, text);
                    Some(format!("header:{}", super::conditions::field_name(field)))
                }
                None => {
                    let text = "rate_limit_by is the client, a field or the site";
                    draft.left_out(limit, Effect::Access, text);
                    draft.left_out(zone, Effect::Access, text);
                    continue;
                }
            },
        };
        draft
            .settings
            .set("rate_limit", toml::text(&rate), &zone.at);
        if let Some(by) = by {
            draft
                .settings
                .set("rate_limit_by", toml::text(&by), &zone.at);
        }
        // nginx counts the requests above the first one.
        let burst = option("burst=")
            .and_then(|burst| burst.parse::<u32>().ok())
            .unwrap_or(0);
        draft.settings.set(
            "rate_limit_burst",
            (burst + 1).min(1_000_000).to_string(),
            &limit.at,
        );
        draft.translated(zone, "rate_limit");
        let limits = draft.env.translator.everywhere("limit_req");
        let uses = limits
            .iter()
            .filter(|other| other.args.contains(&limit.args[0]))
            .count();
        let is_here = draft.env.scope.here().iter().any(|d| d.id == limit.id);
        if uses > 1 || !is_here {
            let text = "each rule counts its own requests; nginx counts those of all locations of the zone together";
            draft.differs(limit, Effect::Access, text);
        }
        match limit
            .args
            .iter()
            .any(|arg| arg == "nodelay" || arg.starts_with("delay="))
            || burst == 0
        {
            true => draft.translated(limit, "rate_limit, rate_limit_burst"),
            false => draft.differs(
                limit,
                Effect::Access,
                "requests within the burst are not delayed",
            ),
        }
    }
    if let Some(status) = draft.one("limit_req_status") {
        match status.arg(0) {
            "429" => draft.implied(status, "429"),
            _ => draft.differs(status, Effect::Response, "the edge answers 429"),
        }
    } else if let Some(limit) = limits.first() {
        draft.differs(
            limit,
            Effect::Response,
            "the edge answers 429, and nginx 503",
        );
    }
    for limit in draft.all(&["limit_conn"]) {
        let text = "the edge has no limit of connections of a client; origin.client_share_percent limits its part of \
                    connections to the origin";
        draft.left_out(limit, Effect::Access, text);
    }
}

/// Returns a rate such as `10r/s` as the edge writes it.
fn rate_of(text: &str) -> Option<String> {
    let (number, unit) = text.split_once("r/")?;
    let number: u32 = number.parse().ok().filter(|number| *number > 0)?;
    match unit {
        "s" => Some(format!("{number}/s")),
        "m" => Some(format!("{number}/min")),
        _ => None,
    }
}

/// Translates `limit_except`.
fn methods(draft: &mut Draft<'_, '_>) {
    let blocks: Vec<&Directive> = draft
        .env
        .scope
        .here()
        .iter()
        .filter(|d| d.name == "limit_except")
        .collect();
    for block in blocks {
        let is_closed =
            matches!(block.children(), [only] if only.name == "deny" && only.arg(0) == "all");
        let is_open = draft.settings.one("deny").is_none() && draft.patches.is_empty();
        if !is_closed || !is_open {
            let text = "write rules with method, client and deny; these requests are denied";
            draft.left_out(block, Effect::Access, text);
            draft.settings.set("deny", "true", &block.at);
            continue;
        }
        let mut methods = block.args.clone();
        if methods.iter().any(|method| method == "GET") {
            methods.push("HEAD".to_owned());
        }
        let mut open = Settings::default();
        open.set("deny", "false", &block.at);
        draft.settings.set("deny", "true", &block.at);
        draft.patch(
            block,
            &When {
                methods,
                ..When::default()
            },
            open,
        );
        draft.translated(block, "deny with method");
        draft.translated(&block.children()[0], "deny with method");
    }
}

/// Translates `client_max_body_size`.
fn body_size(draft: &mut Draft<'_, '_>, directive: &Directive) {
    match values::size(directive.arg(0)) {
        Some((0, _)) => draft
            .settings
            .set("request_body_max", "\"none\"", &directive.at),
        Some((_, size)) => draft.settings.set("request_body_max", size, &directive.at),
        None => {
            draft.left_out(directive, Effect::Access, "the size is not valid");
            return;
        }
    }
    draft.translated(directive, "request_body_max");
}
