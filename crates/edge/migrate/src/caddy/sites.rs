//! Sites: addresses, TLS, and the rules of each host.

use core::net::SocketAddr;
use std::collections::BTreeSet;

use super::listeners::{self, Listeners};
use super::matchers::scheme;
use super::paths;
use super::state::{Site, Translator};
use super::tree::Directive;
use crate::decision::Decision;
use crate::error::{MigrateError, SITE_RULES_MAX};
use crate::grouping;
use crate::hosts::Host;
use crate::report::{Effect, Outcome};
use crate::rule::{Key, Rule, Value, When};
use crate::toml::{self, Table};
use crate::values;

/// An address of a site block.
#[derive(Clone, Debug)]
struct Address<'t> {
    host: Host,
    is_https: bool,
    port: u16,
    /// The path, and empty for an address of all paths.
    path: String,
    site: &'t Directive,
}

/// The sites of a configuration with their listeners.
pub(super) struct Sites {
    pub(super) listeners: Vec<Table>,
    pub(super) tables: Vec<Table>,
}

/// Options of the whole server that the sites need.
#[derive(Clone, Debug)]
pub(super) struct Options<'t> {
    /// Caddy obtains certificates by itself.
    pub(super) has_certificates: bool,
    /// The directives of `cache` in the global options.
    pub(super) cache: &'t [Directive],
    pub(super) contact: Option<(String, &'t Directive)>,
    pub(super) directory: Option<(String, &'t Directive)>,
    /// The option `default_bind`.
    pub(super) bind: Option<&'t Directive>,
    pub(super) http_port: u16,
    pub(super) https_port: u16,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            has_certificates: true,
            cache: &[],
            contact: None,
            directory: None,
            bind: None,
            http_port: 80,
            https_port: 443,
        }
    }
}

/// The blocks of a host, and where Caddy answers them.
struct Served<'a, 't> {
    host: Host,
    encrypted: Option<&'a Address<'t>>,
    plain: Option<&'a Address<'t>>,
    at: Listeners,
    /// The blocks whose addresses are unknown.
    is_unknown: bool,
    /// Caddy answers names that are some labels below the domain by another site.
    is_shared: bool,
    /// The addresses with a path that may have the host.
    partial: Vec<&'a Address<'t>>,
}

/// A group of hosts with the same rules.
struct Group {
    hosts: Vec<Host>,
    certificate: Option<(String, String)>,
    rules: Vec<Rule>,
}

/// Translates all sites.
pub(super) fn sites(
    translator: &Translator,
    directives: &[Directive],
    options: &Options<'_>,
) -> Result<Sites, MigrateError> {
    let blocks = directives.iter().filter(|site| site.block.is_some());
    let blocks = blocks.filter(|site| !site.name.is_empty() && !site.name.starts_with(['(', '&']));
    let mut addresses: Vec<Address<'_>> = Vec::new();
    let mut partial: Vec<Address<'_>> = Vec::new();
    let mut known: BTreeSet<(Host, bool)> = BTreeSet::new();
    for site in blocks {
        translator.ledger.translated(site, "site");
        let words = [&site.name].into_iter().chain(&site.args);
        for word in words
            .flat_map(|word| word.split(','))
            .filter(|word| !word.is_empty())
        {
            match address(word, site, options) {
                Ok(address) if !address.path.is_empty() => {
                    translator.ledger.left_out(
                        site,
                        Effect::Access,
                        "sites have no paths, use handle; requests of its path are denied until you decide",
                    );
                    partial.push(address);
                }
                Ok(address) => {
                    let is_new = known.insert((address.host.clone(), address.is_https));
                    match is_new {
                        false => translator.ledger.left_out(
                            site,
                            Effect::Response,
                            "sites differ by host and scheme, and not by port",
                        ),
                        true => addresses.push(address),
                    }
                }
                // Other sites would answer the requests of an address that is unknown.
                Err(reason) => {
                    return Err(MigrateError::UnknownAddress {
                        at: site.at.to_string(),
                        reason,
                    });
                }
            }
        }
    }
    let mut hosts: Vec<Host> = Vec::new();
    let mut known: BTreeSet<Host> = BTreeSet::new();
    for address in &addresses {
        let named = matched_hosts(address.site.inner());
        let all = [address.host.clone()].into_iter().chain(named);
        hosts.extend(all.filter(|host| known.insert(host.clone())));
    }
    let of_paths = partial.iter().map(|address| address.host.clone());
    hosts.extend(of_paths.filter(|host| known.insert(host.clone())));
    let count = addresses.len() + partial.len();
    if translator
        .spend(hosts.len().saturating_mul(count) / 4)
        .is_err()
    {
        return Err(MigrateError::TooLarge);
    }
    // The most specific site has a host.
    hosts.retain(|host| addresses.iter().any(|address| address.host.covers(host)));
    let served: Vec<Served<'_, '_>> = hosts
        .into_iter()
        .map(|host| served(host, &addresses, &partial, options))
        .collect();
    let mut all = Listeners::default();
    for host in &served {
        listeners::add(&mut all.plain, &host.at.plain);
        listeners::add(&mut all.encrypted, &host.at.encrypted);
    }
    let mut groups: Vec<Group> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    let mut has_acme = false;
    for served in served {
        let encrypted = served.encrypted;
        let certificate = encrypted.and_then(|address| certificate(translator, address.site));
        if encrypted.is_some() && certificate.is_none() {
            has_acme = true;
            names.push(served.host.text());
        }
        let rules = rules(translator, &served, &all, options);
        if translator.spend(groups.len() + rules.len()).is_err() {
            return Err(MigrateError::TooLarge);
        }
        if rules.len() - 1 > SITE_RULES_MAX {
            return Err(MigrateError::TooManyRules {
                host: served.host.text(),
                server: addresses[0].site.at.to_string(),
                rules: rules.len() - 1,
            });
        }
        match groups
            .iter_mut()
            .find(|group| group.rules == rules && group.certificate == certificate)
        {
            Some(group) => group.hosts.push(served.host),
            None => groups.push(Group {
                hosts: vec![served.host],
                certificate,
                rules,
            }),
        }
    }
    let mut sites = Sites {
        listeners: all.tables(has_acme),
        tables: Vec::new(),
    };
    if has_acme {
        sites.listeners.push(acme(&names, options));
    }
    for group in groups {
        let hosts: Vec<String> = group.hosts.iter().map(Host::text).collect();
        let mut table = Table::new("[[site]]");
        table.set("hosts", toml::array(&hosts), None);
        if let Some((chain, key)) = &group.certificate {
            table.set("tls_certificates", toml::text(chain), None);
            table.set("tls_key", toml::text(key), None);
        }
        let (own, rest) = group.rules.split_at(1);
        own.iter().for_each(|rule| rule.write_into_site(&mut table));
        sites.tables.push(table);
        sites.tables.extend(rest.iter().map(Rule::table));
    }
    Ok(sites)
}

/// Returns the blocks of a host: those of the most specific address for each scheme.
fn served<'a, 't>(
    host: Host,
    addresses: &'a [Address<'t>],
    partial: &'a [Address<'t>],
    options: &Options<'t>,
) -> Served<'a, 't> {
    let covering = addresses.iter().filter(|address| has(&address.host, &host));
    let is_of_all = |address: &Address<'_>| address.host == Host::Other;
    let is_shared = matches!(host, Host::Below(_)) && addresses.iter().any(is_of_all);
    let partial = partial.iter().filter(|address| address.host.covers(&host));
    let partial = partial.collect();
    let best = covering
        .clone()
        .map(|address| specificity(&address.host))
        .max();
    let own: Vec<&Address<'_>> = covering
        .filter(|address| Some(specificity(&address.host)) == best)
        .collect();
    let mut served = Served {
        host,
        encrypted: own.iter().find(|address| address.is_https).copied(),
        plain: own.iter().find(|address| !address.is_https).copied(),
        at: Listeners::default(),
        is_unknown: false,
        is_shared,
        partial,
    };
    let mut bound = |address: &Address<'t>, port: u16| -> Vec<SocketAddr> {
        listeners::bound(bind(address.site, options), port).unwrap_or_else(|_| {
            served.is_unknown = true;
            listeners::bound(None, port).unwrap_or_default()
        })
    };
    if let Some(plain) = served.plain {
        served.at.plain = bound(plain, plain.port);
    }
    if let Some(encrypted) = served.encrypted {
        served.at.encrypted = bound(encrypted, encrypted.port);
        // Caddy redirects to HTTPS by itself.
        if served.plain.is_none() {
            served.at.plain = bound(encrypted, options.http_port);
        }
    }
    served
}

/// Returns true if an address of Caddy has a host: its `*` is one label, and that of the edge any number of them.
fn has(address: &Host, host: &Host) -> bool {
    match (address, host) {
        (Host::Below(domain), Host::Exact(name)) => name
            .split_once('.')
            .is_some_and(|(_, rest)| rest == domain.as_str()),
        (Host::Below(domain), Host::Below(other)) => domain == other,
        _ => address.covers(host),
    }
}

/// Returns the line with the addresses of a site.
fn bind<'t>(site: &'t Directive, options: &Options<'t>) -> Option<&'t Directive> {
    let own = site.inner().iter().find(|inner| inner.name == "bind");
    own.or(options.bind)
}

fn specificity(host: &Host) -> usize {
    match host {
        Host::Exact(_) => usize::MAX,
        Host::Below(domain) => domain.len(),
        Host::Other => 0,
    }
}

/// Reads an address such as `https://example.org:8443`.
fn address<'t>(
    text: &str,
    site: &'t Directive,
    options: &Options<'_>,
) -> Result<Address<'t>, String> {
    if text.contains(['{', '}']) {
        return Err(format!(
            "the address {text} depends on the environment; write its value"
        ));
    }
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => (Some(scheme), rest),
        Some(_) => {
            return Err(format!(
                "the address {text} has another scheme than http and https"
            ));
        }
        None => (None, text),
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (name, port) = match authority.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => (name, Some(port)),
        _ => (authority, None),
    };
    let name = name.to_ascii_lowercase();
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
    };
    let host = match name.strip_prefix("*.") {
        _ if matches!(name.as_str(), "" | "*" | "0.0.0.0") => Host::Other,
        Some(domain) if is_name(domain) => Host::Below(domain.to_owned()),
        None if is_name(&name) => Host::Exact(name),
        _ => return Err(format!("{text} is not a host or a domain")),
    };
    let port = port.and_then(|port| port.parse::<u16>().ok());
    let is_https = match (scheme, port) {
        (Some(scheme), _) => scheme == "https",
        (None, Some(port)) if port == options.http_port => false,
        (None, Some(port)) if port == options.https_port => true,
        (None, _) => host != Host::Other && options.has_certificates,
    };
    Ok(Address {
        host,
        is_https,
        port: port.unwrap_or(match is_https {
            true => options.https_port,
            false => options.http_port,
        }),
        path: path.to_owned(),
        site,
    })
}

/// Returns the hosts that matchers name.
fn matched_hosts(directives: &[Directive]) -> Vec<Host> {
    let mut hosts = Vec::new();
    for directive in directives {
        let args: &[String] = match (directive.name.as_str(), directive.arg(0)) {
            ("host", _) => &directive.args,
            (name, _) if name == "not" || name.starts_with('@') => {
                let host = directive.args.iter().position(|arg| arg == "host");
                host.map_or(&[], |at| &directive.args[at + 1..])
            }
            _ => &[],
        };
        for name in args {
            if let Ok(address) = address(name, directive, &Options::default())
                && address.path.is_empty()
            {
                hosts.push(address.host);
            }
        }
        hosts.extend(matched_hosts(directive.inner()));
    }
    hosts
}

/// Returns the files of `tls CERTIFICATE KEY`.
fn certificate(translator: &Translator, site: &Directive) -> Option<(String, String)> {
    let ledger = &translator.ledger;
    let mut found = None;
    for tls in site.inner().iter().filter(|inner| inner.name == "tls") {
        match &tls.args[..] {
            [chain, key] => {
                found = Some((chain.clone(), key.clone()));
                ledger.translated(tls, "tls_certificates, tls_key");
            }
            [only] if only == "internal" => ledger.left_out(
                tls,
                Effect::Access,
                "the edge has no certificate authority of its own; write tls_certificates and tls_key",
            ),
            [contact] if contact.contains('@') => ledger.translated(tls, "acme.contact"),
            [] => ledger.translated(tls, "acme"),
            _ => ledger.left_out(tls, Effect::Access, "tls has a certificate and its key"),
        }
        for inner in tls.inner() {
            match inner.name.as_str() {
                "protocols" | "ciphers" | "curves" | "alpn" | "key_type" | "renewal_window_ratio" => {
                    ledger.implied(inner, "TLS 1.2 and 1.3, with the ciphers of the edge");
                }
                "client_auth" => ledger.left_out(
                    inner,
                    Effect::Access,
                    "clients do not authenticate by certificates; these requests are denied until you decide",
                ),
                "on_demand" => ledger.left_out(inner, Effect::Access, "acme.on_demand has the URL that decides"),
                _ => ledger.left_out(
                    inner,
                    Effect::Operation,
                    "[[acme]] has the challenges: dns_hook for dns-01, directory for another issuer",
                ),
            }
            let text = "belongs to an option of TLS";
            let outcome = match ledger.is_left_out(inner) {
                true => Outcome::LeftOut,
                false => Outcome::Implied,
            };
            ledger.rest_of_block(inner.inner(), outcome, Effect::Operation, text);
        }
    }
    found
}

/// Returns the names whose certificates the edge obtains, as Caddy does.
fn acme(names: &[String], options: &Options<'_>) -> Table {
    let mut table = Table::new("[[acme]]");
    let is_wildcard = |name: &&String| name.starts_with('*');
    let plain: Vec<String> = names
        .iter()
        .filter(|name| !is_wildcard(name))
        .cloned()
        .collect();
    if names.iter().any(|name| name.starts_with('*')) {
        table.comment(
            "Names with * need challenge = \"dns-01\" and dns_hook in an [[acme]] of their own.",
        );
    }
    table.set("names", toml::array(&plain), None);
    if let Some((contact, from)) = &options.contact {
        let contact = toml::array(&[format!("mailto:{contact}")]);
        table.set("contact", contact, Some(&from.at));
    }
    if let Some((directory, from)) = &options.directory {
        table.set("directory", toml::text(directory), Some(&from.at));
    }
    table
}

/// Returns the rules of a host, of the sites for both schemes.
fn rules<'t>(
    translator: &Translator,
    served: &Served<'_, 't>,
    listeners: &Listeners,
    options: &Options<'t>,
) -> Vec<Rule> {
    let mut site = Site::new(translator, &served.host);
    site.global_cache = options.cache;
    let always = Decision::always(true);
    let base = |site: &mut Site<'_, 't>, key: &'static str, value: &str| {
        let value = Value::Toml(value.to_owned());
        // Nothing is stated before, so the condition is the only one.
        _ = site.set(Key::One(key), &always, value, None);
    };
    base(&mut site, "pass", "true");
    base(&mut site, "compression", "false");
    let parts: Vec<(&Address<'t>, Decision<bool>)> = match (served.encrypted, served.plain) {
        (Some(encrypted), Some(plain)) => {
            vec![(encrypted, scheme("https")), (plain, scheme("http"))]
        }
        (Some(encrypted), None) => {
            let http = scheme("http");
            let text = |text: &str| Value::Toml(text.to_owned());
            let port = match encrypted.port {
                443 => String::new(),
                port => format!(":{port}"),
            };
            let target = toml::text(&format!("https://${{host}}{port}${{uri}}"));
            _ = site.set(Key::One("redirect"), &http, text(&target), None);
            _ = site.set(Key::One("redirect_status"), &http, text("308"), None);
            site.answered = http;
            vec![(encrypted, always.clone())]
        }
        (None, Some(plain)) => vec![(plain, always.clone())],
        (None, None) => Vec::new(),
    };
    for (address, path) in parts {
        let block = address.site;
        let before = std::mem::take(&mut site.changed_fields);
        site.block(block.inner(), &path, false, 0);
        site.changed_fields = before;
        let (of_site, all) = match address.is_https {
            true => (&served.at.encrypted, &listeners.encrypted),
            false => (&served.at.plain, &listeners.plain),
        };
        let line = bind(block, options).unwrap_or(block);
        if served.is_unknown || listeners::exposes(all, of_site) {
            site.close(&path, &line.at);
            translator.ledger.left_out(
                line,
                Effect::Access,
                "the edge answers a site at all listeners, and Caddy at fewer addresses or ports; it is denied until \
                 you decide, for example by a second edge with the other listeners",
            );
        } else if line.name == "bind" {
            translator.ledger.translated(line, "listener.address");
        }
        let tls = block.inner().iter().filter(|inner| inner.name == "tls");
        for line in tls.flat_map(|tls| tls.inner()) {
            if line.name == "client_auth" {
                site.close(&path, &line.at);
            }
        }
    }
    // Caddy answers 200 without a body to requests that no directive handles.
    let rest = translator.without(&site.answered, &site.running);
    let is_stated = rest.and_then(|rest| match rest.is_never() {
        true => Ok(()),
        false => {
            let value = Value::Toml("404".to_owned());
            // A denial that is stated before stays one.
            site.set(Key::One("deny"), &rest, value, None)
        }
    });
    if let Err(reason) = is_stated {
        let block = served.encrypted.or(served.plain);
        if let Some(block) = block.map(|address| address.site) {
            site.close(&always, &block.at);
            let text = format!("{reason}; the site is denied until you decide");
            translator.ledger.left_out(block, Effect::Access, &text);
        }
    }
    close_wider(&mut site, served);
    site.state_uncached();
    let lenient = grouping::lenient_answers(&site.settings);
    site.translator.lenient.borrow_mut().extend(lenient);
    let mut rules = grouping::rules(grouping::sequences(&site.settings));
    for rule in &mut rules {
        rule.when = paths::written(std::mem::take(&mut rule.when));
    }
    rules
}

/// Denies requests of a host that Caddy answers by another site than the edge.
fn close_wider(site: &mut Site<'_, '_>, served: &Served<'_, '_>) {
    let always = Decision::always(true);
    for address in &served.partial {
        let requests = paths::condition(std::slice::from_ref(&address.path), "");
        site.close(requests.as_ref().unwrap_or(&always), &address.site.at);
    }
    let block = served.encrypted.or(served.plain);
    if let (Host::Below(domain), Some(block)) = (&served.host, block) {
        let one_label = Decision::when(When {
            host_regexes: vec![format!("^[^.]+\\.{}$", values::literal_regex(domain))],
            ..When::default()
        });
        site.close(&one_label.not(), &block.site.at);
        if served.is_shared {
            let text = format!(
                "`*` is one label for Caddy and any number of labels for the edge; hosts such as x.y.{domain}, which \
                 another site answers, are denied until you decide"
            );
            let ledger = &site.translator.ledger;
            ledger.left_out(block.site, Effect::Access, &text);
        }
    }
}
