//! Origins: the servers of `reverse_proxy`.

use super::state::Site;
use super::text::template;
use super::tree::Directive;
use crate::decision::Decision;
use crate::hosts::Reason;
use crate::report::{Effect, Outcome};
use crate::rule::Value;
use crate::toml::{self, Table};
use crate::values::{self, DAY, is_field_name};

/// Translates a `reverse_proxy`. Returns the name of the origin.
pub(super) fn origin(
    site: &mut Site<'_, '_>,
    proxy: &Directive,
    path: &Decision<bool>,
) -> Result<String, Reason> {
    let ledger = &site.translator.ledger;
    let mut table = Table::new("[[origin]]");
    let mut addresses: Vec<String> = proxy.words().to_vec();
    for inner in proxy.inner() {
        if inner.name == "to" {
            addresses.extend(inner.args.iter().cloned());
            ledger.translated(inner, "origin.servers");
        }
    }
    for inner in proxy.inner() {
        match (inner.name.as_str(), inner.arg(0)) {
            ("rewrite" | "method" | "handle_response", _) => {
                return Err(format!("origins have no option {}", inner.name));
            }
            ("transport", other) if other != "http" => {
                return Err(format!("the edge does not speak {other}"));
            }
            _ => {}
        }
    }
    let is_tls = addresses
        .iter()
        .any(|address| address.starts_with("https://"))
        || transport(proxy)
            .iter()
            .any(|inner| inner.name.starts_with("tls"));
    let mut urls = Vec::new();
    for address in &addresses {
        urls.push(url(address, is_tls)?);
    }
    urls.dedup();
    let policy = proxy.inner().iter().find(|inner| inner.name == "lb_policy");
    let is_first = policy.is_some_and(|policy| policy.arg(0) == "first");
    match &urls[..] {
        [] => match dynamic(proxy) {
            Some((url, node)) => {
                ledger.translated(node, "origin.url; names are resolved again by themselves");
                ledger.rest_of_block(
                    node.inner(),
                    Outcome::Implied,
                    Effect::Operation,
                    "names are resolved again by themselves",
                );
                table.set("url", toml::text(&url), Some(&node.at));
                urls.push(url);
            }
            None => return Err("reverse_proxy without a server".to_owned()),
        },
        [one] => table.set("url", toml::text(one), Some(&proxy.at)),
        [first, rest @ ..] if is_first => {
            table.set(
                "servers",
                toml::array(std::slice::from_ref(first)),
                Some(&proxy.at),
            );
            table.set("backup_servers", toml::array(rest), Some(&proxy.at));
        }
        all => table.set("servers", toml::array(all), Some(&proxy.at)),
    }
    let is_several = urls.len() > 1 && !is_first;
    let mut host = ("forward".to_owned(), None);
    for inner in proxy.inner() {
        option(site, inner, path, &mut table, is_several, &mut host);
    }
    let (host, from) = host;
    let position = from.map(|from: &Directive| &from.at);
    table.set("host", toml::text(&host), position);
    site.translator.spend_for_origin()?;
    let name = urls[0].rsplit('/').next().unwrap_or_default().to_owned();
    Ok(site.translator.origins.borrow_mut().name_of(&name, table))
}

fn transport(proxy: &Directive) -> &[Directive] {
    let transport = proxy.inner().iter().find(|inner| inner.name == "transport");
    transport.map_or(&[], Directive::inner)
}

/// Returns the URL of `dynamic a NAME PORT` and `dynamic srv NAME`.
fn dynamic(proxy: &Directive) -> Option<(String, &Directive)> {
    let dynamic = proxy.inner().iter().find(|inner| inner.name == "dynamic")?;
    let option = |name: &str| {
        let inner = dynamic.inner().iter().find(|inner| inner.name == name);
        inner.map(|inner| inner.arg(0).to_owned())
    };
    let name = option("name").or_else(|| dynamic.args.get(1).cloned())?;
    let url = match dynamic.arg(0) {
        "srv" => format!("http://{name}"),
        "a" => {
            let port = option("port").or_else(|| dynamic.args.get(2).cloned());
            format!("http://{name}:{}", port.unwrap_or_else(|| "80".to_owned()))
        }
        _ => return None,
    };
    is_url(&url).then_some((url, dynamic))
}

fn is_url(url: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_:/[]".contains(c);
    url.chars().all(is_plain)
}

/// Returns the URL of a server.
fn url(address: &str, is_tls: bool) -> Result<String, Reason> {
    if address.contains('{') {
        return Err(format!(
            "the address {address} depends on the request or the environment"
        ));
    }
    if let Some(socket) = address.strip_prefix("unix/") {
        return Ok(format!("unix:{socket}"));
    }
    let (scheme, rest) = match address.split_once("://") {
        Some(("h2c", rest)) => ("http", rest),
        Some((scheme @ ("http" | "https"), rest)) => (scheme, rest),
        Some((scheme, _)) => return Err(format!("the edge does not speak {scheme}")),
        None if is_tls => ("https", address),
        None => ("http", address),
    };
    let rest = rest.trim_end_matches('/');
    let rest = match rest.strip_prefix(':') {
        Some(port) => format!("127.0.0.1:{port}"),
        None => rest.to_owned(),
    };
    let has_port = rest
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let port = if scheme == "https" { 443 } else { 80 };
    let url = match has_port {
        true => format!("{scheme}://{rest}"),
        false => format!("{scheme}://{rest}:{port}"),
    };
    match rest.is_empty() || rest.contains('/') || !is_url(&url) {
        true => Err(format!("{address} is not the address of one server")),
        false => Ok(url),
    }
}

/// Returns a time such as `1m30s` in milliseconds.
fn time(text: &str) -> Option<u64> {
    values::milliseconds(text)
        .filter(|_| text.chars().last().is_some_and(|c| c.is_ascii_alphabetic()))
}

fn option<'t>(
    site: &mut Site<'_, '_>,
    inner: &'t Directive,
    path: &Decision<bool>,
    table: &mut Table,
    is_several: bool,
    host: &mut (String, Option<&'t Directive>),
) {
    let ledger = &site.translator.ledger;
    let mut duration = |key: &str| match time(inner.arg(0)) {
        Some(time) => {
            table.set(key, values::duration(time.clamp(1, DAY)), Some(&inner.at));
            ledger.translated(inner, &format!("origin.{key}"));
        }
        None => ledger.left_out(inner, Effect::Operation, "not a time"),
    };
    match inner.name.as_str() {
        "to" | "dynamic" => {}
        "lb_policy" => match inner.arg(0) {
            policy @ ("round_robin" | "least_conn" | "uri_hash") if is_several => {
                let balance = match policy {
                    "round_robin" => "round-robin",
                    "least_conn" => "least-requests",
                    _ => "hash",
                };
                table.set("balance", toml::text(balance), Some(&inner.at));
                ledger.translated(inner, "origin.balance");
            }
            "round_robin" | "least_conn" | "uri_hash" => ledger.implied(inner, "there is one server"),
            "first" => ledger.translated(inner, "origin.backup_servers"),
            "random" | "random_choose" => ledger.differs(
                inner,
                Effect::Operation,
                "origin.balance: of two servers at random, the one with fewer requests",
            ),
            _ => ledger.left_out(
                inner,
                Effect::Response,
                "the edge does not keep a client at one server; store sessions where all servers find them",
            ),
        },
        "health_uri" | "health_path" => {
            table.set("health_path", toml::text(inner.arg(0)), Some(&inner.at));
            ledger.translated(inner, "origin.health_path");
        }
        "health_interval" => duration("health_interval"),
        "health_timeout" => duration("health_timeout"),
        "fail_duration" => duration("ejection_time"),
        "health_status" => match inner.arg(0).parse::<u16>() {
            Ok(status @ 100..=599) => {
                table.set("health_status", status.to_string(), Some(&inner.at));
                ledger.translated(inner, "origin.health_status");
            }
            _ => ledger.differs(inner, Effect::Operation, "origin.health_status: any status of 200 to 399"),
        },
        "health_passes" | "health_fails" | "max_fails" | "lb_retries" => {
            let (key, max) = match inner.name.as_str() {
                "health_passes" => ("health_successes", 1000),
                "health_fails" => ("health_failures", 1000),
                "max_fails" => ("failures_max", 1000),
                _ => ("retries_max", 10),
            };
            match inner.arg(0).parse::<u32>() {
                Ok(count) => {
                    let least = u32::from(key != "retries_max");
                    table.set(key, count.clamp(least, max).to_string(), Some(&inner.at));
                    ledger.translated(inner, &format!("origin.{key}"));
                }
                Err(_) => ledger.left_out(inner, Effect::Operation, "not a number"),
            }
        }
        "health_port" | "health_body" | "health_headers" | "unhealthy_status" | "unhealthy_latency" => {
            let text = "health checks are GET requests to each server, and error statuses are answers";
            ledger.left_out(inner, Effect::Operation, text);
            ledger.rest_of_block(inner.inner(), Outcome::LeftOut, Effect::Operation, text);
        }
        "lb_try_duration" | "lb_try_interval" | "unhealthy_request_count" => {
            ledger.implied(inner, "requests are sent again to other servers within a budget: origin.retry_percent");
        }
        "flush_interval" | "request_buffers" | "response_buffers" | "stream_timeout" | "stream_close_delay" => {
            ledger.implied(inner, "responses are always streamed");
        }
        "trusted_proxies" => networks(site.translator, inner, &inner.args),
        "header_up" => {
            if let Err(reason) = header_up(site, inner, path, host) {
                site.translator.ledger.left_out(inner, Effect::Response, &reason);
                site.lost_field(inner, inner.arg(0), path);
            }
        }
        "header_down" => {
            if let Err(reason) = change(site, inner, &inner.args, path, "origin_response") {
                site.translator.ledger.left_out(inner, Effect::Response, &reason);
                site.lost_response_field(inner, inner.arg(0), path);
            }
        }
        "transport" => {
            ledger.translated(inner, "origin");
            for option in inner.inner() {
                transport_option(site, option, table);
            }
        }
        _ => {
            let text = "the edge has no such option; handle these responses at the origin";
            ledger.left_out(inner, Effect::Response, text);
            ledger.rest_of_block(inner.inner(), Outcome::LeftOut, Effect::Operation, text);
        }
    }
}

fn transport_option(site: &Site<'_, '_>, option: &Directive, table: &mut Table) {
    let ledger = &site.translator.ledger;
    let key = match option.name.as_str() {
        "dial_timeout" => "connect_timeout",
        "response_header_timeout" => "first_byte_timeout",
        "read_timeout" => "read_idle_timeout",
        "keepalive" => "idle_timeout",
        "tls" => return ledger.translated(option, "origin.url"),
        "tls_insecure_skip_verify" => {
            table.set("tls_verify", "false".to_owned(), Some(&option.at));
            return ledger.translated(option, "origin.tls_verify");
        }
        "tls_server_name" => {
            table.set(
                "tls_server_name",
                toml::text(option.arg(0)),
                Some(&option.at),
            );
            return ledger.translated(option, "origin.tls_server_name");
        }
        "tls_trusted_ca_certs" => {
            table.set("tls_roots", toml::text(option.arg(0)), Some(&option.at));
            return ledger.translated(option, "origin.tls_roots");
        }
        "versions" => {
            let is_http2 = option.args.iter().any(|version| version == "h2c")
                || option.args.iter().all(|version| version == "2");
            if is_http2 {
                table.set("protocol", toml::text("http2"), Some(&option.at));
            }
            return ledger.translated(option, "origin.protocol");
        }
        "proxy_protocol" => {
            table.set(
                "proxy_protocol",
                toml::text(option.arg(0)),
                Some(&option.at),
            );
            return ledger.translated(option, "origin.proxy_protocol");
        }
        "compression"
        | "max_conns_per_host"
        | "keepalive_idle_conns"
        | "keepalive_idle_conns_per_host"
        | "keepalive_interval"
        | "read_buffer"
        | "write_buffer"
        | "write_timeout"
        | "max_response_header"
        | "dial_fallback_delay"
        | "expect_continue_timeout"
        | "tls_timeout"
        | "tls_renegotiation"
        | "local_address" => {
            return ledger.implied(option, "the edge chooses this itself");
        }
        _ => return ledger.left_out(option, Effect::Response, "origins have no such option"),
    };
    match time(option.arg(0)) {
        Some(time) => {
            table.set(key, values::duration(time.clamp(1, DAY)), Some(&option.at));
            ledger.translated(option, &format!("origin.{key}"));
        }
        None if option.arg(0) == "off" => {
            ledger.implied(option, "connections are kept for a short time");
        }
        None => ledger.left_out(option, Effect::Operation, "not a time"),
    }
}

/// States networks of trusted proxies for the whole edge.
pub(super) fn networks(translator: &super::state::Translator, inner: &Directive, args: &[String]) {
    let Some(networks) = of_networks(args) else {
        let text = "forwarding.trusted_proxies has addresses and networks";
        return translator.ledger.left_out(inner, Effect::Access, text);
    };
    translator.fact(
        "forwarding",
        "trusted_proxies",
        toml::array(&networks),
        Some(inner),
    );
}

/// Returns the networks of an option, or `None` for another source of addresses.
pub(super) fn of_networks(args: &[String]) -> Option<Vec<String>> {
    let mut networks: Vec<String> = Vec::new();
    for arg in args {
        match arg.as_str() {
            "static" => {}
            "private_ranges" => networks.extend(super::matchers::PRIVATE_RANGES.map(str::to_owned)),
            network if values::is_network(network) => networks.push(network.to_owned()),
            _ => return None,
        }
    }
    Some(networks)
}

fn header_up<'t>(
    site: &mut Site<'_, '_>,
    inner: &'t Directive,
    path: &Decision<bool>,
    host: &mut (String, Option<&'t Directive>),
) -> Result<(), Reason> {
    let field = inner.arg(0).to_ascii_lowercase();
    if field == "host" {
        let value = match inner.arg(1) {
            "{upstream_hostport}"
            | "{http.reverse_proxy.upstream.hostport}"
            | "{http.reverse_proxy.upstream.host}" => "origin".to_owned(),
            "{host}" | "{hostport}" | "{http.request.host}" | "{http.request.hostport}" => {
                "forward".to_owned()
            }
            text => match template(text, false)? {
                text if text.contains("${") || text.is_empty() => {
                    return Err("origin.host is one host, forward or origin".to_owned());
                }
                text => text,
            },
        };
        *host = (value, Some(inner));
        site.translator.ledger.translated(inner, "origin.host");
        return Ok(());
    }
    if field
        .trim_start_matches(['+', '-'])
        .starts_with("x-forwarded-")
    {
        site.translator
            .ledger
            .implied(inner, "forwarding.x_forwarded: the edge sets it");
        return Ok(());
    }
    change(site, inner, &inner.args, path, "request")
}

/// Translates the change of a field: `-Name`, `+Name value` or `Name value`.
pub(super) fn change(
    site: &mut Site<'_, '_>,
    from: &Directive,
    words: &[String],
    path: &Decision<bool>,
    group: &'static str,
) -> Result<(), Reason> {
    let (name, value) = match words {
        [name] if name.starts_with('-') => (name, ""),
        [name, value] => (name, value.as_str()),
        [_, _, _] => return Err("the edge does not replace parts of fields".to_owned()),
        _ => return Err("a field has one value".to_owned()),
    };
    let (sign, plain) = match name.chars().next() {
        Some(sign @ ('+' | '-' | '?' | '>')) => (sign, &name[1..]),
        _ => ('=', name.as_str()),
    };
    if !is_field_name(plain) || plain.contains('*') {
        return Err(format!("{plain} is not the name of one field"));
    }
    let lower = plain.to_ascii_lowercase();
    if matches!(
        lower.as_str(),
        "connection" | "upgrade" | "transfer-encoding" | "content-length" | "te"
    ) {
        site.translator
            .ledger
            .implied(from, "the edge writes this field itself");
        return Ok(());
    }
    let plain = plain.to_owned();
    let change = match sign {
        '-' => Value::RemoveField(plain),
        '?' => return Err("rules set a field whether it is present or not".to_owned()),
        '+' => Value::AddField(plain, template(value, false)?),
        _ => Value::SetField(plain, template(value, false)?),
    };
    site.change(group, path, change, from)?;
    let verb = match sign {
        '-' => "remove",
        '+' => "add",
        _ => "set",
    };
    site.translator
        .ledger
        .translated(from, &format!("{group}.{verb}"));
    Ok(())
}
