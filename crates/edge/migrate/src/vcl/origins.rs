//! Origins: backends, probes and directors.

use super::translator::Translator;
use super::tree::{Expr, Kind, Node};
use crate::hosts::Reason;
use crate::report::Effect;
use crate::toml::{self, Table};
use crate::values::{self, DAY};

/// The longest chain of directors.
const DIRECTORS_MAX: usize = 16;

/// A backend or director as servers of one origin.
#[derive(Clone, Debug, Default)]
struct Group<'t> {
    servers: Vec<&'t Node>,
    backups: Vec<&'t Node>,
    /// The value of `balance` with the object that states it.
    balance: Option<(&'static str, &'t Node)>,
}

/// Returns the name of the origin for a backend hint such as `a` or `d.backend()`.
pub(super) fn of_hint(translator: &Translator<'_>, hint: &Expr) -> Result<String, Reason> {
    match hint {
        Expr::Name(name) => of_name(translator, name),
        Expr::Call(name, arguments) => match name.strip_suffix(".backend") {
            Some(object) => {
                if let Some((_, host)) = arguments.first()
                    && let Some(text) = of_dynamic(translator, object, host)?
                {
                    return Ok(text);
                }
                of_name(translator, object)
            }
            None => Err(format!("the edge has no origin for {name}")),
        },
        _ => Err("the backend is chosen by an expression".to_owned()),
    }
}

/// Returns the name of the origin for the backend that requests get without a choice.
pub(super) fn of_default(translator: &Translator<'_>) -> Result<String, Reason> {
    let name = translator
        .default_backend
        .ok_or("the configuration has no backend")?;
    of_name(translator, name)
}

/// Makes origins of backends that no statement selects, so that their lines have an outcome.
pub(super) fn unused(translator: &Translator<'_>) {
    for backend in translator.backends.values() {
        if !translator.ledger.has(backend) {
            let text = "no statement that was translated selects this backend";
            translator.ledger.implied(backend, text);
        }
    }
}

fn of_name(translator: &Translator<'_>, name: &str) -> Result<String, Reason> {
    let group = group(translator, name, 0)?;
    let mut table = Table::new("[[origin]]");
    let mut servers = group.servers;
    let mut backups = group.backups;
    if servers.is_empty() {
        std::mem::swap(&mut servers, &mut backups);
    }
    let Some(first) = servers.first().copied() else {
        return Err(format!("{name} has no backend with a host"));
    };
    let urls = |nodes: &[&Node]| -> Result<Vec<String>, Reason> {
        let mut urls: Vec<String> = Vec::new();
        for node in nodes {
            let url = url(translator, node)?;
            if !urls.contains(&url) {
                urls.push(url);
            }
        }
        Ok(urls)
    };
    let addresses = urls(&servers)?;
    match &addresses[..] {
        [one] if backups.is_empty() => table.set("url", toml::text(one), Some(&first.at)),
        all => {
            table.set("servers", toml::array(all), Some(&first.at));
            if let Some((balance, node)) = group.balance {
                table.set("balance", toml::text(balance), Some(&node.at));
            }
        }
    }
    if let Some(backup) = backups.first() {
        let addresses = urls(&backups)?;
        table.set("backup_servers", toml::array(&addresses), Some(&backup.at));
    }
    table.set("host", toml::text("forward"), None);
    properties(translator, first, &mut table);
    for other in servers.iter().skip(1).chain(&backups) {
        let mut of_other = Table::new("[[origin]]");
        properties(translator, other, &mut of_other);
        for setting in &of_other.settings {
            let is_common = table.get(&setting.key) == Some(&setting.value);
            if !is_common && setting.from.is_some() {
                let text = format!("an origin has one {} for all its servers", setting.key);
                translator.ledger.differs(other, Effect::Operation, &text);
            }
        }
    }
    Ok(translator.origins.borrow_mut().name_of(name, table))
}

/// Returns the servers behind a backend or an object of a director.
fn group<'t>(translator: &Translator<'t>, name: &str, depth: usize) -> Result<Group<'t>, Reason> {
    if depth > DIRECTORS_MAX {
        return Err(format!("{name} contains itself"));
    }
    let ledger = &translator.ledger;
    if let Some(backend) = translator.backends.get(name) {
        return Ok(Group {
            servers: vec![backend],
            ..Group::default()
        });
    }
    let object = translator
        .objects
        .get(name)
        .copied()
        .ok_or_else(|| format!("there is no backend {name}"))?;
    let Kind::New(_, constructor) = &object.kind else {
        return Err(format!("{name} is no director"));
    };
    let (constructor, _) = constructor.as_call().unwrap_or_default();
    let members = members(translator, name);
    let mut group_of = Group::default();
    let balance = match constructor {
        "directors.round_robin" => "round-robin",
        "directors.random" => "least-requests",
        "directors.fallback" => "",
        "directors.hash" | "directors.shard" => "hash",
        _ => return Err(format!("the edge has no origin for {constructor}")),
    };
    if !balance.is_empty() {
        group_of.balance = Some((balance, object));
    }
    let weights: Vec<Option<&Expr>> = members.iter().map(|(_, weight, _)| *weight).collect();
    let is_weighted = weights.windows(2).any(|pair| pair[0] != pair[1]);
    for (position, (member, _, node)) in members.iter().enumerate() {
        let inner = group(translator, member, depth + 1)?;
        ledger.translated(*node, "origin.servers");
        if is_weighted && !balance.is_empty() {
            let text = "servers of the edge have equal shares; least-requests gives a slow server fewer requests";
            ledger.differs(*node, Effect::Operation, text);
        }
        let is_backup = constructor == "directors.fallback" && position > 0;
        match is_backup {
            true => {
                group_of.backups.extend(inner.servers);
                group_of.backups.extend(inner.backups);
            }
            false => {
                group_of.servers.extend(inner.servers);
                group_of.backups.extend(inner.backups);
                group_of.balance = group_of.balance.or(inner.balance);
            }
        }
        if is_backup && position > 1 {
            let text = "origin.backup_servers get requests together while no other server is usable, in no order";
            ledger.differs(*node, Effect::Operation, text);
        }
    }
    match constructor {
        "directors.random" => ledger.differs(
            object,
            Effect::Operation,
            "origin.balance: of two servers at random, the one with fewer requests",
        ),
        "directors.hash" | "directors.shard" => ledger.differs(
            object,
            Effect::Response,
            "origin.balance = \"hash\": the same URL goes to the same server; other keys than the URL are not available",
        ),
        _ => ledger.translated(object, "origin.servers, origin.balance"),
    }
    Ok(group_of)
}

/// Returns the members of a director: their names, weights and lines.
fn members<'t>(
    translator: &Translator<'t>,
    name: &str,
) -> Vec<(&'t str, Option<&'t Expr>, &'t Node)> {
    let mut members = Vec::new();
    for node in translator.sub("vcl_init") {
        let Kind::Action(action) = &node.kind else {
            continue;
        };
        let Some((function, arguments)) = action.as_call() else {
            continue;
        };
        let of_object = function
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('.'));
        match of_object {
            Some("add_backend") => {
                let member = arguments.first().and_then(|(_, value)| match value {
                    Expr::Name(member) => Some(member.as_str()),
                    Expr::Call(function, _) => function.strip_suffix(".backend"),
                    _ => None,
                });
                let weight = arguments.get(1).map(|(_, value)| value);
                members.extend(member.map(|member| (member, weight, node)));
            }
            Some("reconfigure" | "set_warmup" | "set_rampup" | "associate" | "sticky") => {
                translator.ledger.implied(node, "not needed");
            }
            _ => {}
        }
    }
    members
}

/// Returns the origin of the vmod `dynamic`, whose backends are found by the names of hosts.
fn of_dynamic(
    translator: &Translator<'_>,
    object: &str,
    host: &Expr,
) -> Result<Option<String>, Reason> {
    let Some(node) = translator.objects.get(object) else {
        return Ok(None);
    };
    let Kind::New(_, Expr::Call(constructor, arguments)) = &node.kind else {
        return Ok(None);
    };
    if !constructor.starts_with("dynamic.") {
        return Ok(None);
    }
    let host = host
        .as_text()
        .ok_or("the host of the backend is a variable")?;
    let port = arguments
        .iter()
        .find(|(name, _)| name.as_deref() == Some("port"))
        .and_then(|(_, value)| value.as_text());
    let authority = format!("{host}:{}", port.unwrap_or_else(|| "80".to_owned()));
    let mut table = Table::new("[[origin]]");
    table.set(
        "url",
        toml::text(&format!("http://{authority}")),
        Some(&node.at),
    );
    table.set("host", toml::text("forward"), None);
    translator
        .ledger
        .translated(*node, "origin.url; names are resolved again by themselves");
    Ok(Some(translator.origins.borrow_mut().name_of(&host, table)))
}

fn property<'t>(backend: &'t Node, name: &str) -> Option<(&'t Node, Option<&'t Expr>)> {
    backend.children.iter().find_map(|node| match &node.kind {
        Kind::Property(known, value) if known == name => Some((node, value.as_ref())),
        _ => None,
    })
}

/// Returns the URL of a backend.
fn url(translator: &Translator<'_>, backend: &Node) -> Result<String, Reason> {
    let ledger = &translator.ledger;
    let text = |name: &str| {
        let (node, value) = property(backend, name)?;
        ledger.translated(node, "origin.url, origin.servers");
        Some(match value? {
            Expr::Number(number) => number.to_string(),
            value => value.as_text()?,
        })
    };
    ledger.translated(backend, "origin");
    if let Some(path) = text("path") {
        return Ok(format!("unix:{path}"));
    }
    let host = text("host").ok_or("a backend without .host")?;
    let (host, of_host) = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() && !name.contains(':') => {
            (name.to_owned(), Some(port.to_owned()))
        }
        _ => (host, None),
    };
    let port = match text("port").or(of_host).as_deref() {
        None | Some("http") => "80".to_owned(),
        Some(port) if port.parse::<u16>().is_ok_and(|port| port > 0) => port.to_owned(),
        Some(port) => return Err(format!("the port {port} is not a number")),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
    if host.is_empty() || !host.chars().all(is_host) {
        return Err(format!("{host} is not the name of a host"));
    }
    Ok(match host.contains(':') {
        true => format!("http://[{host}]:{port}"),
        false => format!("http://{host}:{port}"),
    })
}

fn milliseconds(value: &Expr) -> Option<u64> {
    match value {
        Expr::Duration(time) if (0.0..1e15).contains(time) => Some(time.round() as u64),
        _ => None,
    }
}

fn number(value: &Expr) -> Option<u64> {
    match value {
        Expr::Number(number) if (0.0..1e15).contains(number) => Some(number.round() as u64),
        _ => None,
    }
}

/// Translates timeouts, limits and the probe of a backend.
fn properties(translator: &Translator<'_>, backend: &Node, table: &mut Table) {
    let ledger = &translator.ledger;
    for node in &backend.children {
        let Kind::Property(name, value) = &node.kind else {
            continue;
        };
        let time = value.as_ref().and_then(milliseconds);
        let count = value.as_ref().and_then(number);
        let keys: &[&str] = match name.as_str() {
            "connect_timeout" => &["connect_timeout"],
            "first_byte_timeout" => &["first_byte_timeout"],
            "between_bytes_timeout" => &["read_idle_timeout"],
            "max_connections" => match count {
                Some(count) => {
                    let count = count.clamp(1, 65_536).to_string();
                    table.set("connections_per_worker_max", count, Some(&node.at));
                    let text = "origin.connections_per_worker_max counts for each worker, and not for the process";
                    ledger.differs(node, Effect::Operation, text);
                    continue;
                }
                None => &[],
            },
            "proxy_header" => match count {
                Some(version @ (1 | 2)) => {
                    table.set(
                        "proxy_protocol",
                        toml::text(&format!("v{version}")),
                        Some(&node.at),
                    );
                    ledger.translated(node, "origin.proxy_protocol");
                    continue;
                }
                _ => &[],
            },
            "probe" => {
                match value {
                    None => probe(translator, node, table),
                    Some(Expr::Name(name)) => match translator.probes.get(name.as_str()) {
                        Some(declared) => {
                            ledger.translated(node, "origin.health_path");
                            probe(translator, declared, table);
                        }
                        None => ledger.left_out(node, Effect::Operation, "there is no such probe"),
                    },
                    Some(_) => {}
                }
                continue;
            }
            "host_header" => {
                let text = "not needed: requests have the host of the client, and health checks that of the origin";
                ledger.implied(node, text);
                continue;
            }
            "preamble" | "wait_limit" | "wait_timeout" | "authority" => {
                ledger.implied(node, "not needed");
                continue;
            }
            _ => continue,
        };
        match time {
            Some(time) if !keys.is_empty() => {
                for key in keys {
                    let value = values::duration(time.clamp(1, DAY));
                    table.set(key, value, Some(&node.at));
                }
                ledger.translated(node, &format!("origin.{}", keys.join(", origin.")));
            }
            _ => ledger.left_out(node, Effect::Operation, "the value has another type"),
        }
    }
}

/// Translates a probe.
fn probe(translator: &Translator<'_>, probe: &Node, table: &mut Table) {
    let ledger = &translator.ledger;
    ledger.translated(probe, "origin.health_path");
    let (mut window, mut threshold) = (8, 3);
    let mut of_window = None;
    let mut path = ("/".to_owned(), probe);
    for node in &probe.children {
        let Kind::Property(name, Some(value)) = &node.kind else {
            continue;
        };
        let mut time = |key: &str, range: (u64, u64)| match milliseconds(value) {
            Some(time) => {
                let time = values::duration(time.clamp(range.0, range.1));
                table.set(key, time, Some(&node.at));
                ledger.translated(node, &format!("origin.{key}"));
            }
            None => ledger.left_out(node, Effect::Operation, "the value has another type"),
        };
        match name.as_str() {
            "url" => {
                path = (value.as_text().unwrap_or_default(), node);
                ledger.translated(node, "origin.health_path");
            }
            "request" => {
                let text = match value {
                    Expr::Sum(parts) => parts.first().and_then(Expr::as_text),
                    value => value.as_text(),
                };
                let text = text.unwrap_or_default();
                path = (text.split(' ').nth(1).unwrap_or("/").to_owned(), node);
                let text =
                    "health checks are GET requests with the origin's own Host and no other fields";
                ledger.differs(node, Effect::Operation, text);
            }
            "interval" => time("health_interval", (100, DAY)),
            "timeout" => time("health_timeout", (1, DAY)),
            "expected_response" => match number(value) {
                Some(status @ 100..=599) => {
                    table.set("health_status", status.to_string(), Some(&node.at));
                    ledger.translated(node, "origin.health_status");
                }
                _ => ledger.left_out(node, Effect::Operation, "not a status"),
            },
            "window" | "threshold" => match number(value) {
                Some(count) => {
                    let count = count.clamp(1, 64);
                    match name.as_str() {
                        "window" => window = count,
                        _ => threshold = count,
                    }
                    of_window = Some(node);
                    let text = "origin.health_successes and origin.health_failures count checks in succession";
                    ledger.differs(node, Effect::Operation, text);
                }
                None => ledger.left_out(node, Effect::Operation, "not a number"),
            },
            "initial" => ledger.implied(node, "servers get requests before their first check"),
            "expect_close" => ledger.implied(node, "not needed"),
            _ => {}
        }
    }
    if let Some(node) = of_window {
        let failures = (window + 1).saturating_sub(threshold).max(1);
        table.set("health_successes", threshold.to_string(), Some(&node.at));
        table.set("health_failures", failures.to_string(), Some(&node.at));
    }
    let (path, node) = path;
    match path.starts_with('/') && !path.chars().any(|c| c.is_control() || c == ' ') {
        true => table.set("health_path", toml::text(&path), Some(&node.at)),
        false => ledger.left_out(
            node,
            Effect::Operation,
            "the URL of a health check is a path",
        ),
    }
}
