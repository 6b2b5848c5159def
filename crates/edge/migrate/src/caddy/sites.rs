//! Sites: addresses, TLS, and the rules of each host.

use std::collections::BTreeMap;

use super::matchers::scheme;
use super::state::{Site, Translator};
use super::tree::Directive;
use crate::decision::Decision;
use crate::error::{MigrateError, SITE_RULES_MAX};
use crate::grouping;
use crate::hosts::Host;
use crate::report::{Effect, Outcome};
use crate::rule::{Key, Rule, Value};
use crate::toml::{self, Table};

/// An address of a site block.
#[derive(Clone, Debug)]
struct Address<'t> {
    host: Host,
    /// `None` if the site answers both schemes.
    is_https: bool,
    site: &'t Directive,
}

/// The sites of a configuration with their listeners.
pub(super) struct Sites {
    pub(super) listeners: Vec<Table>,
    pub(super) tables: Vec<Table>,
}

/// Options of the whole server that the sites need.
#[derive(Clone, Debug, Default)]
pub(super) struct Options<'t> {
    /// Caddy obtains certificates by itself.
    pub(super) has_certificates: bool,
    /// The directives of `cache` in the global options.
    pub(super) cache: &'t [Directive],
    pub(super) contact: Option<(String, &'t Directive)>,
    pub(super) directory: Option<(String, &'t Directive)>,
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
    for site in blocks {
        translator.ledger.translated(site, "site");
        let words = [&site.name].into_iter().chain(&site.args);
        for word in words
            .flat_map(|word| word.split(','))
            .filter(|word| !word.is_empty())
        {
            match address(word, site, options.has_certificates) {
                Ok(address) => {
                    let is_known = addresses.iter().any(|known| {
                        known.host == address.host && known.is_https == address.is_https
                    });
                    match is_known {
                        true => translator.ledger.left_out(
                            site,
                            Effect::Response,
                            "sites differ by host and scheme, and not by port",
                        ),
                        false => addresses.push(address),
                    }
                }
                Err(reason) => translator.ledger.left_out(site, Effect::Response, &reason),
            }
        }
    }
    let mut hosts: Vec<Host> = Vec::new();
    for address in &addresses {
        if !hosts.contains(&address.host) {
            hosts.push(address.host.clone());
        }
        for name in matched_hosts(address.site.inner()) {
            if !hosts.contains(&name) {
                hosts.push(name);
            }
        }
    }
    // The most specific site has a host.
    hosts.retain(|host| addresses.iter().any(|address| address.host.covers(host)));
    let mut groups: Vec<Group> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    let (mut has_http, mut has_https) = (false, false);
    let mut has_acme = false;
    for host in hosts {
        let covering = addresses
            .iter()
            .filter(|address| address.host.covers(&host));
        let best = covering
            .clone()
            .map(|address| specificity(&address.host))
            .max();
        let own: Vec<&Address<'_>> = covering
            .filter(|address| Some(specificity(&address.host)) == best)
            .collect();
        let encrypted = own.iter().find(|address| address.is_https);
        let plain = own.iter().find(|address| !address.is_https);
        let certificate = encrypted.and_then(|address| certificate(translator, address.site));
        has_http = true;
        if encrypted.is_some() {
            has_https = true;
            if certificate.is_none() {
                has_acme = true;
                names.push(host.text());
            }
        }
        let rules = rules(
            translator,
            &host,
            encrypted.copied(),
            plain.copied(),
            options,
        );
        match groups
            .iter_mut()
            .find(|group| group.rules == rules && group.certificate == certificate)
        {
            Some(group) => group.hosts.push(host),
            None => groups.push(Group {
                hosts: vec![host],
                certificate,
                rules,
            }),
        }
    }
    let mut sites = Sites {
        listeners: listeners(has_http, has_https, has_acme),
        tables: Vec::new(),
    };
    if has_acme {
        sites.listeners.push(acme(&names, options));
    }
    for group in groups {
        let hosts: Vec<String> = group.hosts.iter().map(Host::text).collect();
        let rules = group.rules.len() - 1;
        if rules > SITE_RULES_MAX {
            return Err(MigrateError::TooManyRules {
                host: hosts[0].clone(),
                server: addresses[0].site.at.to_string(),
                rules,
            });
        }
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
    has_certificates: bool,
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
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if !path.is_empty() {
        return Err("sites have no paths; use handle".to_owned());
    }
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
    let is_https = match (scheme, port) {
        (Some(scheme), _) => scheme == "https",
        (None, Some("80" | "8080")) => false,
        (None, Some("443")) => true,
        (None, _) => host != Host::Other && has_certificates,
    };
    Ok(Address {
        host,
        is_https,
        site,
    })
}

/// Returns the hosts that matchers name.
fn matched_hosts(directives: &[Directive]) -> Vec<Host> {
    let mut hosts = Vec::new();
    for directive in directives {
        let args: &[String] = match (directive.name.as_str(), directive.arg(0)) {
            ("host", _) => &directive.args,
            (name, "host") if name.starts_with('@') => &directive.args[1..],
            _ => &[],
        };
        for name in args {
            if let Ok(address) = address(name, directive, false) {
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
                "client_auth" => ledger.left_out(inner, Effect::Access, "clients do not authenticate by certificates"),
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

fn listeners(has_http: bool, has_https: bool, has_acme: bool) -> Vec<Table> {
    let mut listeners = Vec::new();
    if has_http {
        let mut table = Table::new("[[listener]]");
        table.set("address", toml::text("0.0.0.0:80"), None);
        listeners.push(table);
    }
    if has_https {
        let mut table = Table::new("[[listener]]");
        table.set("address", toml::text("0.0.0.0:443"), None);
        match has_acme {
            true => table.set("acme", "true".to_owned(), None),
            false => table.comment(
                "The certificates are those of the sites; a listener needs one for other names.",
            ),
        }
        listeners.push(table);
    }
    listeners
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
    host: &Host,
    encrypted: Option<&Address<'t>>,
    plain: Option<&Address<'t>>,
    options: &Options<'t>,
) -> Vec<Rule> {
    let mut site = Site {
        translator,
        host,
        matchers: BTreeMap::new(),
        running: Decision::always(true),
        answered: Decision::always(false),
        settings: BTreeMap::new(),
        cache: None,
        prefix: None,
    };
    let always = Decision::always(true);
    let base = |site: &mut Site<'_, 't>, key: &'static str, value: &str| {
        let value = Value::Toml(value.to_owned());
        // Nothing is stated before, so the condition is the only one.
        _ = site.set(Key::One(key), &always, value, None);
    };
    base(&mut site, "pass", "true");
    base(&mut site, "compression", "false");
    let parts: Vec<(&'t Directive, Decision<bool>)> = match (encrypted, plain) {
        (Some(encrypted), Some(plain)) => vec![
            (encrypted.site, scheme("https")),
            (plain.site, scheme("http")),
        ],
        (Some(encrypted), None) => {
            // Caddy redirects to HTTPS by itself.
            let http = scheme("http");
            let text = |text: &str| Value::Toml(text.to_owned());
            let target = toml::text("https://${host}${uri}");
            _ = site.set(Key::One("redirect"), &http, text(&target), None);
            _ = site.set(Key::One("redirect_status"), &http, text("308"), None);
            site.answered = http;
            vec![(encrypted.site, always.clone())]
        }
        (None, Some(plain)) => vec![(plain.site, always.clone())],
        (None, None) => Vec::new(),
    };
    for (block, path) in parts {
        site.matchers.clear();
        matchers(block.inner(), &mut site.matchers);
        let uses_cache = block.inner().iter().any(|inner| inner.name == "cache");
        if uses_cache {
            for option in options.cache {
                if let Err(reason) = site.cache_option(option, &path) {
                    let ledger = &translator.ledger;
                    ledger.left_out(option, Effect::Caching, &reason);
                    ledger.rest_of_block(
                        option.inner(),
                        Outcome::LeftOut,
                        Effect::Operation,
                        &reason,
                    );
                }
            }
        }
        site.block(block.inner(), &path, false, 0);
    }
    // Caddy answers 200 without a body to requests that no directive handles.
    if let Ok(rest) = site.answered.not().and(&site.running)
        && !rest.is_never()
    {
        let value = Value::Toml("404".to_owned());
        _ = site.set(Key::One("deny"), &rest, value, None);
    }
    grouping::rules(grouping::sequences(&site.settings))
}

/// Finds the named matchers of a site.
fn matchers<'t>(directives: &'t [Directive], found: &mut BTreeMap<&'t str, &'t Directive>) {
    for directive in directives {
        if directive.name.starts_with('@') {
            found.insert(&directive.name, directive);
        } else {
            matchers(directive.inner(), found);
        }
    }
}
