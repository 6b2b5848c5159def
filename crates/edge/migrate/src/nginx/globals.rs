//! Settings of the whole edge: listeners, disk, logs, limits, compression, trusted proxies.

use super::parse::Directive;
use super::selection::Servers;
use super::sites;
use super::translator::Translator;
use crate::report::Effect;
use crate::toml::{self, Table};
use crate::values::{self, Part, parts};

/// The variables of the edge's log. Others of nginx are unknown to it.
const LOG_VARIABLES: [&str; 17] = [
    "remote_addr",
    "remote_user",
    "time_local",
    "time_iso8601",
    "msec",
    "request",
    "request_method",
    "request_uri",
    "scheme",
    "ssl_curve",
    "host",
    "server_protocol",
    "status",
    "body_bytes_sent",
    "request_time",
    "upstream_cache_status",
    "http_host",
];

/// Returns the tables of the listeners.
pub(super) fn listeners(translator: &Translator<'_>, servers: &Servers<'_>) -> Vec<Table> {
    let mut tables = Vec::new();
    let proxies = trusted(translator);
    for (address, indexes) in servers.addresses() {
        let (is_tls, has_proxy_header) = servers.options(address);
        let listens = servers.all.iter().flat_map(|server| &server.listens);
        let from = listens
            .filter(|listen| listen.address == address)
            .find_map(|listen| listen.directive);
        let mut table = Table::new("[[listener]]");
        table.set("address", toml::text(address), from.map(|d| &d.at));
        if is_tls {
            let found = indexes
                .iter()
                .find_map(|index| sites::certificate(translator, &servers.all[*index]));
            match found {
                Some(certificate) => {
                    table.set("tls_certificates", toml::text(&certificate.chain), None);
                    table.set("tls_key", toml::text(&certificate.key), None);
                }
                None => {
                    table.comment("This address accepts TLS: add tls_certificates and tls_key.");
                }
            }
        }
        if has_proxy_header {
            let states_proxies = !translator.everywhere("set_real_ip_from").is_empty();
            let networks = match (proxies.is_empty(), states_proxies) {
                (true, false) => vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()],
                // Names and sockets cannot be stated, and others must not choose the client's address.
                (true, true) => vec!["127.0.0.1".to_owned()],
                _ => proxies.clone(),
            };
            table.set("proxy_protocol_from", toml::array(&networks), None);
        }
        tables.push(table);
    }
    tables
}

/// Returns the networks of `set_real_ip_from`, without names of hosts and Unix sockets.
fn trusted(translator: &Translator<'_>) -> Vec<String> {
    let mut networks: Vec<String> = Vec::new();
    for directive in translator.everywhere("set_real_ip_from") {
        let network = directive.arg(0).to_owned();
        if values::is_network(&network) && !networks.contains(&network) {
            networks.push(network);
        }
    }
    networks
}

/// Reads the directives that are settings of the whole edge.
pub(super) fn read(translator: &Translator<'_>) {
    real_ip(translator);
    log(translator);
    compression(translator);
    limits(translator);
    for slice in translator.everywhere("slice") {
        match values::size(slice.arg(0)) {
            Some((bytes, size)) if (64 << 10..=64 << 20).contains(&bytes) => {
                translator.fact("ranges", "slice_bytes", size, slice);
            }
            Some((0, _)) => translator.ledger.implied(slice, "off"),
            _ => translator.ledger.differs(
                slice,
                Effect::Caching,
                "slices have 64 KiB to 64 MiB: ranges.slice_bytes",
            ),
        }
    }
}

fn real_ip(translator: &Translator<'_>) {
    let networks = trusted(translator);
    let headers = translator.everywhere("real_ip_header");
    let is_protocol = headers.iter().any(|d| d.arg(0) == "proxy_protocol");
    for header in &headers {
        match header.arg(0).to_ascii_lowercase().as_str() {
            "x-forwarded-for" => translator
                .ledger
                .translated(header, "forwarding.client_field"),
            "proxy_protocol" => translator
                .ledger
                .translated(header, "listener.proxy_protocol_from"),
            _ => {
                let text =
                    "the edge reads the client from X-Forwarded-For, Forwarded or the PROXY header";
                translator.ledger.left_out(header, Effect::Access, text);
            }
        }
    }
    for recursive in translator.everywhere("real_ip_recursive") {
        match recursive.arg(0) {
            "on" => translator.ledger.implied(
                recursive,
                "the rightmost address that is not a trusted proxy",
            ),
            _ => {
                let text = "the edge takes the rightmost address that is not a trusted proxy";
                translator.ledger.differs(recursive, Effect::Access, text);
            }
        }
    }
    for directive in translator.everywhere("set_real_ip_from") {
        if directive.arg(0).starts_with("unix") {
            let text = "connections of Unix sockets count as those of 127.0.0.1";
            translator.ledger.differs(directive, Effect::Access, text);
        } else if !values::is_network(directive.arg(0)) {
            let text =
                "forwarding.trusted_proxies and proxy_protocol_from have addresses and networks";
            translator.ledger.left_out(directive, Effect::Access, text);
        } else if is_protocol {
            translator
                .ledger
                .translated(directive, "listener.proxy_protocol_from");
        } else {
            let value = toml::array(&networks);
            translator.fact("forwarding", "trusted_proxies", value, directive);
        }
    }
}

fn log(translator: &Translator<'_>) {
    let formats = translator.everywhere("log_format");
    let mut is_set = false;
    for log in translator.everywhere("access_log") {
        let ledger = &translator.ledger;
        let path = log.arg(0);
        if path == "off" {
            ledger.left_out(
                log,
                Effect::Operation,
                "the edge has one log for all requests",
            );
            continue;
        }
        if is_set {
            ledger.left_out(log, Effect::Operation, "the edge has one log for all sites");
            continue;
        }
        if path.contains('$') {
            ledger.left_out(
                log,
                Effect::Operation,
                "the path of the log has no variables",
            );
            continue;
        }
        is_set = true;
        match path.strip_prefix("syslog:server=") {
            Some(server) => {
                let server = server.split(',').next().unwrap_or_default();
                let address = match (server.starts_with("unix:"), server.contains(':')) {
                    (true, _) => server.to_owned(),
                    (false, true) => format!("udp:{server}"),
                    (false, false) => format!("udp:{server}:514"),
                };
                translator.fact("access_log", "syslog", toml::text(&address), log);
            }
            None => translator.fact(
                "access_log",
                "path",
                toml::text(&translator.path(path)),
                log,
            ),
        }
        let name = log
            .args
            .get(1)
            .filter(|name| !name.contains('='))
            .map_or("combined", String::as_str);
        let Some(format) = formats.iter().find(|format| format.arg(0) == name) else {
            translator.fact("access_log", "format", toml::text("combined"), log);
            continue;
        };
        let is_option = |word: &&String| !word.starts_with("escape=");
        let text: String = format
            .args
            .iter()
            .skip(1)
            .filter(is_option)
            .cloned()
            .collect();
        let unknown = parts(&text).into_iter().find_map(|part| match part {
            Part::Variable(name)
                if !LOG_VARIABLES.contains(&name.as_str()) && !name.starts_with("http_") =>
            {
                Some(name)
            }
            _ => None,
        });
        match unknown {
            Some(name) => {
                translator.fact("access_log", "format", toml::text("combined"), log);
                let text =
                    format!("the edge's log has no variable ${name}; the format is combined");
                ledger.left_out(format, Effect::Operation, &text);
            }
            None => translator.fact("access_log", "format", toml::text(&text), format),
        }
    }
    for format in formats {
        if !translator.ledger.has(format) {
            translator
                .ledger
                .implied(format, "no log that was translated has this format");
        }
    }
}

fn compression(translator: &Translator<'_>) {
    let ledger = &translator.ledger;
    for name in ["gzip", "brotli"] {
        for directive in translator.everywhere(name) {
            ledger.implied(
                directive,
                "on by default for stored responses: compression.enabled",
            );
        }
    }
    for (name, key, max) in [
        ("gzip_comp_level", "gzip_level", 9),
        ("brotli_comp_level", "brotli_level", 11),
    ] {
        for directive in translator.everywhere(name) {
            match directive.arg(0).parse::<u32>() {
                Ok(level) => {
                    translator.fact("compression", key, level.min(max).to_string(), directive);
                }
                Err(_) => ledger.left_out(directive, Effect::Operation, "not a level"),
            }
        }
    }
    for name in ["gzip_min_length", "brotli_min_length"] {
        for directive in translator.everywhere(name) {
            match values::size(directive.arg(0)) {
                Some((bytes, size)) if (1..=8 << 20).contains(&bytes) => {
                    translator.fact("compression", "length_min", size, directive);
                }
                _ => ledger.left_out(
                    directive,
                    Effect::Operation,
                    "compression.length_min is at least 1 byte",
                ),
            }
        }
    }
    for name in ["gzip_types", "brotli_types"] {
        for directive in translator.everywhere(name) {
            let mut types = vec!["text/html".to_owned()];
            let is_type = |word: &&String| word.contains('/') && !types.contains(word);
            let further: Vec<String> = directive.args.iter().filter(is_type).cloned().collect();
            types.extend(further);
            match directive.arg(0) {
                "*" => ledger.implied(
                    directive,
                    "the edge has a list of types that become shorter",
                ),
                _ => translator.fact(
                    "compression",
                    "types",
                    toml::text(&types.join(", ")),
                    directive,
                ),
            }
        }
    }
}

fn limits(translator: &Translator<'_>) {
    for (name, key) in [
        ("client_header_timeout", "request_head_timeout"),
        ("client_body_timeout", "body_idle_timeout"),
        ("send_timeout", "body_idle_timeout"),
        ("keepalive_timeout", "idle_timeout"),
    ] {
        for directive in translator.everywhere(name) {
            if translator.ledger.has(directive) {
                continue;
            }
            match values::milliseconds(directive.arg(0)) {
                Some(time) if time > 0 => {
                    let time = values::duration(time.min(values::DAY));
                    translator.fact("limits", key, time, directive);
                }
                _ => {
                    let text = "limits.idle_timeout is at least 1 ms";
                    translator
                        .ledger
                        .differs(directive, Effect::Operation, text);
                }
            }
        }
    }
    let of_http = translator
        .http
        .here()
        .iter()
        .find(|d| d.name == "client_max_body_size");
    let of_http = of_http.filter(|_| !translator.is_server_level);
    match of_http.map(|d| (d, values::size(d.arg(0)))) {
        Some((directive, Some((0, _)))) => {
            translator.fact(
                "limits",
                "request_body_bytes_max",
                "\"none\"".to_owned(),
                directive,
            );
        }
        Some((directive, Some((_, size)))) => {
            translator.fact("limits", "request_body_bytes_max", size, directive);
        }
        Some((directive, None)) => {
            translator
                .ledger
                .left_out(directive, Effect::Access, "the size is not valid");
        }
        None => translator.default_fact("limits", "request_body_bytes_max", "\"1MiB\""),
    }
}

/// Returns the table of the disk cache: one device for all zones.
pub(super) fn device(translator: &Translator<'_>, disk: &str) -> Option<Table> {
    let first = translator.cache_paths.values().next()?;
    let mut table = Table::new("[[disk_device]]");
    table.set("path", toml::text(disk), None);
    let mut total: u64 = 0;
    for path in translator.cache_paths.values() {
        let size = path
            .args
            .iter()
            .find_map(|arg| arg.strip_prefix("max_size="));
        total = total.saturating_add(size.and_then(values::size).map_or(0, |(bytes, _)| bytes));
        let text =
            "objects are evicted for space, and not after `inactive`; all zones share one store";
        translator.ledger.differs(path, Effect::Caching, text);
    }
    let capacity = match total {
        0..0x100_0000 => {
            table.comment("No zone of nginx has a limit of at least 16 MiB; choose the size.");
            "\"1GiB\"".to_owned()
        }
        _ => format!("\"{}MiB\"", (total >> 20).min(32 << 20)),
    };
    table.set("capacity", capacity, Some(&first.at));
    Some(table)
}

/// Records the blocks whose directives the edge does not need, and those of other protocols.
pub(super) fn other_blocks(translator: &Translator<'_>, tree: &[Directive]) {
    use crate::report::Outcome;
    for directive in tree {
        let ledger = &translator.ledger;
        match directive.name.as_str() {
            "events" | "types" | "charset_map" => {
                ledger.implied(directive, "not needed");
                let text = "not needed";
                ledger.rest_of_block(
                    directive.children(),
                    Outcome::Implied,
                    Effect::Operation,
                    text,
                );
            }
            "stream" | "mail" => {
                let text = "the edge proxies HTTP only; keep nginx for this block";
                ledger.left_out(directive, Effect::Response, text);
                ledger.rest_of_block(
                    directive.children(),
                    Outcome::LeftOut,
                    Effect::Operation,
                    text,
                );
            }
            "http" => {
                ledger.translated(directive, "the configuration of the edge");
                other_blocks(translator, directive.children());
            }
            "server" | "location" => other_blocks(translator, directive.children()),
            _ => {}
        }
    }
}
