//! Fields of requests to the origin and of responses to clients.

use super::draft::Draft;
use super::parse::Directive;
use crate::report::Effect;
use crate::rule::{Key, Value};
use crate::values;

const NO_NAME: &str = "this is not the name of a field";

/// Translates `proxy_set_header`.
pub(super) fn request(draft: &mut Draft<'_, '_>) {
    for directive in draft.all(&["proxy_set_header", "grpc_set_header"]) {
        let (name, value) = (directive.arg(0), directive.arg(1));
        let lower = name.to_ascii_lowercase();
        if lower.starts_with("x-forwarded-") {
            draft.env.translator.sets_forwarded.set(true);
        }
        match lower.as_str() {
            "host" => {}
            _ if !values::is_field_name(name) => {
                draft.left_out(directive, Effect::Operation, NO_NAME);
            }
            "connection" | "upgrade" | "content-length" | "te" | "keep-alive"
            | "proxy-connection" => {
                draft.implied(
                    directive,
                    "the edge writes this field itself; WebSockets pass (forwarding.upgrades)",
                );
            }
            "range" | "if-range" => draft.implied(directive, "the edge fetches ranges in slices"),
            "if-modified-since" | "if-none-match" | "expect" => {
                draft.implied(directive, "the edge writes conditions itself");
            }
            "x-forwarded-for" if matches!(value, "$proxy_add_x_forwarded_for" | "$remote_addr") => {
                draft.implied(directive, "forwarding.x_forwarded");
            }
            "x-forwarded-proto" if matches!(value, "$scheme" | "$http_x_forwarded_proto") => {
                draft.implied(directive, "forwarding.x_forwarded");
            }
            "x-forwarded-host" if matches!(value, "$host" | "$http_host") => {
                draft.implied(directive, "forwarding.x_forwarded");
            }
            "proxy" if value.is_empty() => remove(draft, directive, name),
            _ if value.is_empty() => remove(draft, directive, name),
            _ => match draft.env.template(value, false) {
                Ok(template) => {
                    let value = Value::SetField(name.to_owned(), template);
                    draft.settings.change("request", value, &directive.at);
                    draft.translated(directive, "request.set");
                }
                Err(reason) => {
                    let text = format!("the origin does not get this field: {reason}");
                    draft.left_out(directive, Effect::Operation, &text);
                }
            },
        }
    }
    if let Some(body) = draft.one("proxy_pass_request_headers")
        && body.arg(0) == "off"
    {
        draft.left_out(
            body,
            Effect::Response,
            "request.only names the fields that the origin gets",
        );
    }
}

fn remove(draft: &mut Draft<'_, '_>, directive: &Directive, name: &str) {
    let value = Value::RemoveField(name.to_owned());
    draft.settings.change("request", value, &directive.at);
    draft.translated(directive, "request.remove");
}

/// Translates `proxy_hide_header`, `add_header`, `expires`, and `gzip off`.
pub(super) fn response(draft: &mut Draft<'_, '_>) {
    if let Some(off) = draft.one("gzip").filter(|d| d.arg(0) == "off") {
        draft.settings.set("compression", "false", &off.at);
        draft.translated(off, "compression = false");
    }
    for directive in draft.all(&["proxy_hide_header"]) {
        let name = directive.arg(0);
        if !values::is_field_name(name) {
            draft.implied(directive, NO_NAME);
            continue;
        }
        let key = Key::Field("origin_response", name.to_ascii_lowercase());
        if !draft.settings.0.contains_key(&key) {
            let value = Value::RemoveField(name.to_owned());
            draft.settings.change("response", value, &directive.at);
        }
        draft.translated(directive, "response.remove");
    }
    for directive in draft.all(&["add_header", "more_set_headers"]) {
        add(draft, directive);
    }
    expires(draft);
}

/// Translates `add_header`.
fn add(draft: &mut Draft<'_, '_>, directive: &Directive) {
    if directive.name != "add_header" {
        let text = "a module's directive; write response.set";
        draft.left_out(directive, Effect::Operation, text);
        return;
    }
    let (name, value) = (directive.arg(0), directive.arg(1));
    let lower = name.to_ascii_lowercase();
    if value.contains("$upstream_cache_status") {
        draft.implied(
            directive,
            "the response has Cache-Status, and the log has $upstream_cache_status",
        );
        return;
    }
    if value.is_empty() {
        draft.implied(directive, "nginx sends no empty field");
        return;
    }
    if !values::is_field_name(name) {
        draft.left_out(directive, Effect::Operation, NO_NAME);
        return;
    }
    let template = match draft.env.template(value, false) {
        Ok(template) => template,
        Err(reason) => {
            let effect = if lower == "cache-control" {
                Effect::Caching
            } else {
                Effect::Operation
            };
            draft.left_out(directive, effect, &reason);
            return;
        }
    };
    let changes = draft
        .settings
        .0
        .get(&Key::Field("response", lower.clone()))
        .map(|(value, _)| value.clone());
    let value = match changes {
        None => Value::AddField(name.to_owned(), template),
        Some(Value::RemoveField(_)) => Value::SetField(name.to_owned(), template),
        Some(Value::AddField(_, old) | Value::SetField(_, old)) if lower != "set-cookie" => {
            let text = "the lines of the field are joined with a comma";
            draft.differs(directive, Effect::Operation, text);
            Value::AddField(name.to_owned(), format!("{old}, {template}"))
        }
        Some(_) => {
            let text = "a rule makes one change of a field";
            draft.left_out(directive, Effect::Operation, text);
            return;
        }
    };
    draft.settings.change("response", value, &directive.at);
    match directive.args.get(2).is_some_and(|word| word == "always") || lower != "cache-control" {
        true => draft.translated(directive, "response.add"),
        false => {
            let text = "response.add applies to error responses, too";
            draft.differs(directive, Effect::Operation, text);
        }
    }
}

/// Translates `expires`, which nginx writes into responses that it also stores by other rules.
fn expires(draft: &mut Draft<'_, '_>) {
    let Some(directive) = draft.one("expires") else {
        return;
    };
    let (value, text) = match (directive.arg(0), directive.arg(1)) {
        ("off", _) => {
            draft.implied(directive, "off");
            return;
        }
        ("epoch", _) => ("no-cache".to_owned(), ""),
        ("max", _) => ("max-age=315360000".to_owned(), ""),
        (time, "") if time.starts_with('-') => ("no-cache".to_owned(), ""),
        (time, "") => match values::milliseconds(time) {
            Some(time) => (format!("max-age={}", time / 1000), ""),
            None => (
                String::new(),
                "the time has a variable or is not valid; write one rule for each value",
            ),
        },
        _ => (
            String::new(),
            "the edge has no lifetime from the time of modification",
        ),
    };
    if value.is_empty() {
        draft.left_out(directive, Effect::Caching, text);
        return;
    }
    let key = Key::Field("response", "cache-control".to_owned());
    let change = match draft.settings.0.get(&key) {
        Some((Value::AddField(_, old) | Value::SetField(_, old), _)) => format!("{value}, {old}"),
        _ => value,
    };
    let change = Value::SetField("Cache-Control".to_owned(), change);
    draft.settings.change("response", change, &directive.at);
    let value = Value::RemoveField("Expires".to_owned());
    draft.settings.change("response", value, &directive.at);
    let text = "response.set applies to error responses, too, and Expires is removed";
    draft.differs(directive, Effect::Operation, text);
}
