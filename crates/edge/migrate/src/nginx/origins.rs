//! Origins: `proxy_pass`, `upstream`, timeouts and TLS to servers.

use super::draft::Draft;
use super::parse::Directive;
use crate::report::Effect;
use crate::source::Position;
use crate::toml::{self, Table};
use crate::values::{self, Part, parts};

/// The most failures in succession that the edge counts.
const FAILURES_MAX: u32 = 1000;

/// The most idle connections of a worker.
const IDLE_MAX: u32 = 65_536;

/// The server behind a location.
pub(super) struct Target {
    /// The name of the `[[origin]]`.
    pub(super) origin: String,
    /// The path in `proxy_pass`, which replaces the path of the location.
    pub(super) path: Option<String>,
    /// The whole path and query that the origin gets, if the path in `proxy_pass` has variables.
    pub(super) template: Option<String>,
}

/// A URL of `proxy_pass`.
struct Upstream {
    scheme: String,
    /// Host and port, the name of an `upstream`, or `unix:` and a path.
    authority: String,
    path: Option<String>,
    template: Option<String>,
}

/// Returns the origin of a location, or the reason why the edge cannot have it.
pub(super) fn target(draft: &Draft<'_, '_>, pass: &Directive) -> Result<Target, String> {
    let translator = draft.env.translator;
    let upstream = upstream(draft, pass)?;
    let mut table = Table::new("[[origin]]");
    let group = translator
        .upstreams
        .get(upstream.authority.as_str())
        .copied();
    let mut name = upstream.authority.clone();
    match group {
        Some(group) => {
            translator.ledger.translated(group, "origin.servers");
            servers(draft, group, &upstream.scheme, &mut table)?;
        }
        None => {
            let url = url(&upstream.scheme, &upstream.authority);
            table.set("url", toml::text(&url), Some(&pass.at));
            if let Some(socket) = upstream.authority.strip_prefix("unix:") {
                name = socket.rsplit('/').next().unwrap_or("app").to_owned();
            }
        }
    }
    if pass.name == "grpc_pass" {
        table.set("protocol", toml::text("http2"), Some(&pass.at));
    }
    host(draft, &upstream, &mut table)?;
    timeouts(draft, &mut table);
    if upstream.scheme == "https" {
        tls(draft, &mut table);
    }
    if let Some(redirect) = draft.all(&["proxy_redirect"]).first() {
        match redirect.arg(0) {
            "off" => table.set("rewrite_location", "false".to_owned(), Some(&redirect.at)),
            "default" => {}
            _ => draft.left_out(
                redirect,
                Effect::Response,
                "the edge replaces scheme, host and port of a Location that names the origin, and nothing else; let the \
                 application write the right Location",
            ),
        }
        draft.translated(redirect, "origin.rewrite_location");
    }
    table.set("via", "false".to_owned(), None);
    draft.translated(pass, "origin.url, origin.servers");
    let origin = translator.origins.borrow_mut().name_of(&name, table);
    Ok(Target {
        origin,
        path: upstream.path,
        template: upstream.template,
    })
}

/// Reads the URL. Variables must have one value.
fn upstream(draft: &Draft<'_, '_>, pass: &Directive) -> Result<Upstream, String> {
    let mut text = String::new();
    let mut all = parts(pass.arg(0));
    // The URI of the request behind the URL is what the edge sends anyway.
    let tails: [&[&str]; 4] = [
        &["request_uri"],
        &["uri", "is_args", "args"],
        &["document_uri", "is_args", "args"],
        &["uri"],
    ];
    let ends_with = |tail: &&[&str]| {
        let names = |part: &Part| match part {
            Part::Variable(name) => name.clone(),
            Part::Text(_) => String::new(),
        };
        let found: Vec<String> = all.iter().rev().take(tail.len()).rev().map(names).collect();
        all.len() > tail.len() && found == **tail
    };
    let tail = tails.iter().copied().find(|tail| ends_with(tail));
    if let Some(tail) = tail {
        all.truncate(all.len() - tail.len());
    }
    let mut template = None;
    let mut rest = all.into_iter();
    while let Some(part) = rest.next() {
        match part {
            Part::Text(literal) => text.push_str(&literal),
            Part::Variable(name) => {
                let authority = text.split_once("://").map(|(_, rest)| rest);
                match authority.and_then(|rest| Some(&rest[rest.find('/')?..])) {
                    // Behind the host, the path may have variables: it replaces that of the request as it is.
                    Some(path) => {
                        let variables = [Part::Variable(name)].into_iter().chain(rest.by_ref());
                        let written: String = variables
                            .map(|part| match part {
                                Part::Text(literal) => literal,
                                Part::Variable(name) => format!("${{{name}}}"),
                            })
                            .collect();
                        let groups = draft.when.regexes.len() == 1;
                        template = Some(draft.env.template(&format!("{path}{written}"), groups)?);
                    }
                    None => text.push_str(&draft.env.constant(&name)?),
                }
            }
        }
    }
    if text.contains('$') {
        return Err("the URL has variables whose value the request decides".to_owned());
    }
    let (scheme, rest) = text
        .split_once("://")
        .ok_or_else(|| "the target is not a URL with http or https".to_owned())?;
    let scheme = match scheme {
        "grpc" => "http",
        "grpcs" => "https",
        "http" | "https" => scheme,
        _ => return Err(format!("the edge does not speak {scheme}")),
    };
    let (authority, path) = if let Some(socket) = rest.strip_prefix("unix:") {
        match socket.split_once(':') {
            Some((socket, path)) => (format!("unix:{socket}"), Some(path.to_owned())),
            None => (rest.to_owned(), None),
        }
    } else {
        match rest.find('/') {
            Some(at) => (rest[..at].to_owned(), Some(rest[at..].to_owned())),
            None => (rest.to_owned(), None),
        }
    };
    if authority.is_empty() {
        return Err("the URL has no host".to_owned());
    }
    Ok(Upstream {
        scheme: scheme.to_owned(),
        authority,
        path: path.filter(|_| tail.is_none()),
        template,
    })
}

fn url(scheme: &str, authority: &str) -> String {
    match authority.starts_with("unix:") {
        true => authority.to_owned(),
        false => format!("{scheme}://{authority}"),
    }
}

/// Translates the block `upstream`.
fn servers(
    draft: &Draft<'_, '_>,
    group: &Directive,
    scheme: &str,
    table: &mut Table,
) -> Result<(), String> {
    let (mut servers, mut backups) = (Vec::new(), Vec::new());
    let mut balance = "round-robin";
    let mut balance_from: Option<&Position> = None;
    let mut weights = Vec::new();
    for directive in group.children() {
        let name = directive.name.as_str();
        match name {
            "server" => {
                let address = directive.arg(0);
                let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
                let authority = match address.starts_with("unix:") || has_port {
                    true => address.to_owned(),
                    false => format!("{address}:80"),
                };
                let url = url(scheme, &authority);
                let mut is_used = true;
                let mut text = "origin.servers";
                for option in directive.args.iter().skip(1) {
                    let (key, value) = option.split_once('=').unwrap_or((option, ""));
                    match key {
                        "backup" => text = "origin.backup_servers",
                        "down" => is_used = false,
                        "weight" => weights.push((directive, value)),
                        "max_fails" if value != "0" => {
                            if let Ok(stated) = value.parse::<u32>() {
                                let failures = stated.clamp(1, FAILURES_MAX).to_string();
                                table.set("failures_max", failures, Some(&directive.at));
                            }
                        }
                        "fail_timeout" => {
                            if let Some(time) = values::milliseconds(value) {
                                let time = values::duration(time.clamp(1, values::DAY));
                                table.set("ejection_time", time, Some(&directive.at));
                            }
                        }
                        "slow_start" => {
                            if let Some(time) = values::milliseconds(value) {
                                table.set("slow_start", values::duration(time), Some(&directive.at));
                            }
                        }
                        "max_fails" => draft.differs(
                            directive,
                            Effect::Operation,
                            "the edge always takes servers out that fail: origin.failures_max",
                        ),
                        "max_conns" => draft.differs(
                            directive,
                            Effect::Operation,
                            "origin.connections_per_worker_max limits the connections to all servers",
                        ),
                        _ => {}
                    }
                }
                draft.translated(directive, text);
                let list = match text {
                    "origin.servers" => &mut servers,
                    _ => &mut backups,
                };
                if is_used && !list.contains(&url) {
                    list.push(url);
                }
            }
            "least_conn" | "random" | "least_time" => {
                balance = "least-requests";
                balance_from = Some(&directive.at);
                draft.translated(directive, "origin.balance");
            }
            "hash" => {
                balance = "hash";
                balance_from = Some(&directive.at);
                let key = directive.arg(0);
                match key.contains("uri") || key.contains("cache_key") {
                    true => draft.translated(directive, "origin.balance"),
                    false => draft.differs(
                        directive,
                        Effect::Response,
                        "the edge hashes the URL: the same URL goes to the same server",
                    ),
                }
            }
            "keepalive" => {
                if let Ok(connections) = directive.arg(0).parse::<u32>() {
                    let most = connections.min(IDLE_MAX).to_string();
                    table.set("idle_per_worker_max", most, Some(&directive.at));
                }
                draft.translated(directive, "origin.idle_per_worker_max");
            }
            "keepalive_timeout" => {
                if let Some(time) = values::milliseconds(directive.arg(0)) {
                    table.set("idle_timeout", values::duration(time.clamp(1, values::DAY)), Some(&directive.at));
                }
                draft.translated(directive, "origin.idle_timeout");
            }
            "ip_hash" | "sticky" | "sticky_cookie_insert" => draft.left_out(
                directive,
                Effect::Response,
                "the edge does not keep a client at one server; store sessions where all servers find them",
            ),
            _ => {}
        }
    }
    if weights.iter().any(|(_, value)| *value != weights[0].1) || weights.len() < servers.len() {
        for (directive, _) in weights {
            let text = "servers of the edge have equal shares; least-requests gives a slow server fewer requests";
            draft.differs(directive, Effect::Operation, text);
        }
    }
    if servers.is_empty() {
        std::mem::swap(&mut servers, &mut backups);
    }
    match &servers[..] {
        [] => return Err(format!("upstream {} has no usable server", group.arg(0))),
        [server] => table.set("url", toml::text(server), Some(&group.at)),
        _ => {
            table.set("servers", toml::array(&servers), Some(&group.at));
            table.set("balance", toml::text(balance), balance_from);
        }
    }
    if !backups.is_empty() {
        if let [server] = &servers[..] {
            let server = toml::array(std::slice::from_ref(server));
            table.settings.retain(|setting| setting.key != "url");
            table.set("servers", server, Some(&group.at));
        }
        table.set("backup_servers", toml::array(&backups), Some(&group.at));
    }
    Ok(())
}

/// Translates the field `Host`.
fn host(draft: &Draft<'_, '_>, upstream: &Upstream, table: &mut Table) -> Result<(), String> {
    let fields = draft.all(&["proxy_set_header", "grpc_set_header"]);
    let set = fields
        .iter()
        .find(|d| d.arg(0).eq_ignore_ascii_case("host"));
    // nginx sends the name in `proxy_pass`, without the usual port.
    let port = if upstream.scheme == "https" {
        ":443"
    } else {
        ":80"
    };
    let own = match upstream.authority.starts_with("unix:") {
        true => "localhost",
        false => upstream
            .authority
            .strip_suffix(port)
            .unwrap_or(&upstream.authority),
    };
    let Some(set) = set else {
        table.set("host", toml::text(own), None);
        return Ok(());
    };
    let value = match set.arg(1) {
        "$host" | "$http_host" | "$host:$server_port" | "$server_name" => "forward".to_owned(),
        "$proxy_host" | "$proxy_host:$proxy_port" => own.to_owned(),
        text => match draft.env.template(text, false) {
            Ok(text) if !text.contains("${") && !text.is_empty() => text,
            _ => {
                draft.left_out(
                    set,
                    Effect::Response,
                    "origin.host is one host, forward or origin",
                );
                return Ok(());
            }
        },
    };
    table.set("host", toml::text(&value), Some(&set.at));
    draft.translated(set, "origin.host");
    Ok(())
}

fn timeouts(draft: &Draft<'_, '_>, table: &mut Table) {
    for (directive, keys) in [
        ("proxy_connect_timeout", &["connect_timeout"][..]),
        (
            "proxy_read_timeout",
            &["first_byte_timeout", "read_idle_timeout"][..],
        ),
    ] {
        let Some(directive) = draft.one(directive) else {
            continue;
        };
        let Some(time) = values::milliseconds(directive.arg(0)) else {
            draft.left_out(
                directive,
                Effect::Operation,
                "the time has a variable or is not valid",
            );
            continue;
        };
        for key in keys {
            table.set(
                key,
                values::duration(time.clamp(1, values::DAY)),
                Some(&directive.at),
            );
        }
        draft.translated(directive, &format!("origin.{}", keys.join(", origin.")));
    }
    if let Some(next) = draft.one("proxy_next_upstream") {
        if next.arg(0) == "off" {
            table.set("retries_max", "0".to_owned(), Some(&next.at));
        }
        match next.args.iter().any(|word| word.starts_with("http_")) {
            true => {
                let text = "the edge does not repeat a request that got an error status";
                draft.differs(next, Effect::Response, text);
            }
            false => draft.translated(next, "origin.retries_max"),
        }
    }
    if let Some(tries) = draft.one("proxy_next_upstream_tries") {
        if let Ok(number) = tries.arg(0).parse::<u32>()
            && number > 0
        {
            table.set(
                "retries_max",
                (number - 1).min(10).to_string(),
                Some(&tries.at),
            );
        }
        draft.translated(tries, "origin.retries_max");
    }
}

fn tls(draft: &Draft<'_, '_>, table: &mut Table) {
    let verify = draft.one("proxy_ssl_verify");
    if verify.is_none_or(|d| d.arg(0) != "on") {
        table.set("tls_verify", "false".to_owned(), verify.map(|d| &d.at));
        table.comment(
            "nginx does not verify the certificate of this origin. Better: tls_verify = true.",
        );
    }
    if let Some(verify) = verify {
        draft.translated(verify, "origin.tls_verify");
    }
    for (directive, key) in [
        ("proxy_ssl_trusted_certificate", "tls_roots"),
        ("proxy_ssl_certificate", "tls_certificate"),
        ("proxy_ssl_certificate_key", "tls_key"),
        ("proxy_ssl_name", "tls_server_name"),
    ] {
        let Some(directive) = draft.one(directive) else {
            continue;
        };
        match draft.env.template(directive.arg(0), false) {
            Ok(value) if !value.contains("${") => {
                table.set(key, toml::text(&value), Some(&directive.at));
                draft.translated(directive, &format!("origin.{key}"));
            }
            _ => draft.left_out(
                directive,
                Effect::Access,
                "the value has a variable; an origin has one value",
            ),
        }
    }
}
