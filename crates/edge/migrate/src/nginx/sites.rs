//! Sites: one for each group of hosts that get the same rules.

use std::collections::BTreeMap;

use super::answers;
use super::conditions::Env;
use super::locations;
use super::parse::Directive;
use super::selection::{Choice, Layer, Servers};
use super::server::Server;
use super::server_names::ServerName;
use super::translator::Translator;
use crate::error::{MigrateError, SITE_RULES_MAX};
use crate::hosts::{Cond, Host};
use crate::report::{Effect, Outcome};
use crate::rule::{Rule, Settings, Span, When, undo_earlier};
use crate::source::Position;
use crate::toml::{self, Table};

/// A group of hosts with the same rules.
struct Site {
    hosts: Vec<Host>,
    rules: Vec<Rule>,
    certificate: Option<Certificate>,
    /// The servers that the hosts have, for the comment.
    comment: String,
}

/// The certificate of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificate {
    pub(super) chain: String,
    pub(super) key: String,
}

/// Returns the tables of all sites, or the error that one of them has too many rules.
pub(super) fn tables(
    translator: &Translator<'_>,
    servers: &Servers<'_>,
) -> Result<Vec<Table>, MigrateError> {
    let schemes = servers.schemes();
    let mut sites: Vec<Site> = Vec::new();
    let mut is_selected = vec![false; servers.all.len()];
    for host in hosts(servers) {
        let selected: Vec<(&str, Vec<Layer>)> = schemes
            .iter()
            .filter_map(|scheme| Some((*scheme, servers.select(&host, scheme)?)))
            .collect();
        let Some((_, first)) = selected.first() else {
            continue;
        };
        let is_common = selected.iter().all(|(_, layers)| layers == first);
        let mut rules = Vec::new();
        for (scheme, layers) in &selected {
            for layer in layers {
                let mut of_layer = rules_of_layer(translator, servers, layer, &host);
                if let Choice::Server(index) = layer.choice {
                    is_selected[index] = true;
                }
                if !is_common {
                    let of_scheme = When {
                        scheme: Some(if *scheme == "https" { "https" } else { "http" }),
                        ..When::default()
                    };
                    restrict(&mut of_layer, &of_scheme);
                }
                rules.extend(of_layer);
            }
            if is_common {
                break;
            }
        }
        let rules = undo_earlier(rules, &translator.body_max());
        let encrypted = selected.iter().rfind(|(scheme, _)| *scheme == "https");
        let of_host = encrypted.and_then(|(_, layers)| {
            // The last layer is that of the narrowest name.
            layers.iter().rev().find_map(Layer::server)
        });
        let certificate = of_host
            .filter(|_| host != Host::Other)
            .and_then(|index| certificate(translator, &servers.all[index]));
        let known = sites.iter_mut().find(|site| {
            site.rules == rules && (site.certificate == certificate || host == Host::Other)
        });
        match known {
            Some(site) if host != Host::Other || site.certificate.is_none() => {
                site.hosts.push(host);
            }
            _ => sites.push(Site {
                hosts: vec![host],
                rules,
                certificate,
                comment: comment(servers, &selected),
            }),
        }
    }
    for (server, is_selected) in servers.all.iter().zip(is_selected) {
        if !is_selected {
            unselected(translator, server);
        }
    }
    let mut tables = Vec::new();
    for site in sites {
        let (host, server) = (site.hosts[0].text(), site.comment.clone());
        let of_site = write(site);
        // The first table is that of the site itself.
        let rules = of_site.len() - 1;
        if rules > SITE_RULES_MAX {
            return Err(MigrateError::TooManyRules {
                host,
                server,
                rules,
            });
        }
        tables.extend(of_site);
    }
    Ok(tables)
}

/// Adds a condition to each rule. A rule that never holds together with it is removed.
fn restrict(rules: &mut Vec<Rule>, condition: &When) {
    rules.retain_mut(|rule| {
        let both = rule.when.and(condition);
        let applies = both.is_some();
        rule.when = both.unwrap_or_default();
        applies
    });
}

/// Returns the rules of a layer for a host.
fn rules_of_layer<'t>(
    translator: &Translator<'t>,
    servers: &Servers<'t>,
    layer: &Layer,
    host: &Host,
) -> Vec<Rule> {
    let closed = |status: &str, comment: String, from: &Position| {
        let mut settings = Settings::default();
        settings.set("deny", status, from);
        Rule {
            comment,
            when: When::default(),
            span: Span::Any,
            settings,
            is_whole: true,
        }
    };
    let mut rules = match layer.choice {
        Choice::Server(index) => {
            let server = &servers.all[index];
            rules_of(translator, server, host, layer.host_regex.is_some())
        }
        Choice::Denied(index) => {
            let directive = servers.all[index].directive;
            let at = directive.map_or_else(Position::unknown, |directive| directive.at.clone());
            let ledger = &translator.ledger;
            if let Some(directive) = directive {
                let text = "the edge cannot select this server as nginx does, by the address or by an expression; it \
                            denies requests that other servers would get, until you write a site for them";
                ledger.left_out(directive, Effect::Access, text);
            }
            vec![closed("true", format!("the server {at} was left out"), &at)]
        }
        Choice::Elsewhere => {
            let comment = "hosts that no server of this file names".to_owned();
            vec![closed("421", comment, &Position::unknown())]
        }
    };
    if let Some(regex) = &layer.host_regex {
        let of_host = When {
            host_regexes: vec![regex.clone()],
            ..When::default()
        };
        restrict(&mut rules, &of_host);
    }
    rules
}

/// Records the outcome of a server that gets no host.
fn unselected(translator: &Translator<'_>, server: &Server<'_>) {
    let Some(directive) = server.directive else {
        return;
    };
    let ledger = &translator.ledger;
    let effect = match server.limits_access() {
        true => Effect::Access,
        false => Effect::Response,
    };
    let text = "this server is selected by its address, or is not the first one of its name; sites differ by host and \
                scheme only";
    ledger.left_out(directive, effect, text);
    let text = "belongs to a server that was left out";
    ledger.rest_of_block(
        directive.children(),
        Outcome::LeftOut,
        Effect::Operation,
        text,
    );
}

fn comment(servers: &Servers<'_>, selected: &[(&str, Vec<Layer>)]) -> String {
    let mut positions: Vec<String> = Vec::new();
    let layers = selected.iter().flat_map(|(_, layers)| layers);
    for index in layers.filter_map(Layer::server) {
        let position = servers.all[index].directive.map(|d| d.at.to_string());
        positions.extend(position.filter(|position| !positions.contains(position)));
    }
    format!("server {}", positions.join(" and "))
}

/// Returns all hosts that are distinguished: names, literals in conditions, and others.
fn hosts(servers: &Servers<'_>) -> Vec<Host> {
    let mut hosts: Vec<Host> = Vec::new();
    let mut add = |host: Host| {
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    };
    for server in &servers.all {
        let hosts = server.names.iter().flat_map(ServerName::hosts);
        hosts.for_each(&mut add);
    }
    let mut rest: Vec<&Directive> = servers
        .all
        .iter()
        .flat_map(|server| server.scope.here())
        .collect();
    while let Some(directive) = rest.pop() {
        rest.extend(directive.children());
        let is_host = matches!(
            directive.arg(0).trim_start_matches('('),
            "$host" | "$http_host"
        );
        if directive.name == "if" && is_host && directive.arg(1) == "=" {
            let name = directive.arg(2).trim_end_matches(')').to_ascii_lowercase();
            if !name.is_empty() && !name.contains(['$', '*', ':', '/']) {
                add(Host::Exact(name));
            }
        }
    }
    add(Host::Other);
    hosts
}

/// Returns the certificate of a server.
pub(super) fn certificate(translator: &Translator<'_>, server: &Server<'_>) -> Option<Certificate> {
    let ledger = &translator.ledger;
    let chains = server.scope.nearest(&["ssl_certificate"], ledger);
    let keys = server.scope.nearest(&["ssl_certificate_key"], ledger);
    for further in chains.iter().chain(&keys) {
        ledger.translated(further, "tls_certificates, tls_key");
    }
    for further in chains.iter().skip(1) {
        let text = "the edge has one certificate for each site; further ones, of another kind of key, are not needed";
        ledger.differs(further, Effect::Operation, text);
    }
    let (chain, key) = (chains.first()?, keys.first()?);
    if chain.arg(0).contains('$') || chain.arg(0).starts_with("data:") {
        let text =
            "the path of a certificate has no variables; write one site for each certificate";
        ledger.left_out(chain, Effect::Access, text);
        return None;
    }
    Some(Certificate {
        chain: translator.path(chain.arg(0)),
        key: translator.path(key.arg(0)),
    })
}

/// Returns the rules of a server for a host.
fn rules_of<'t>(
    translator: &Translator<'t>,
    server: &Server<'t>,
    host: &Host,
    has_host_regex: bool,
) -> Vec<Rule> {
    let env = Env {
        translator,
        scope: &server.scope,
        host,
        has_host_regex,
    };
    if let Some(directive) = server.directive {
        translator.ledger.translated(directive, "site");
    }
    let (phase, is_closed) = phase(&env);
    let mut rules = match is_closed {
        Some(rule) => {
            let text = "never used: the server answers before it selects a location";
            let locations = env.scope.here().iter().filter(|d| d.name == "location");
            for location in locations {
                let ledger = &translator.ledger;
                ledger.implied(location, text);
                ledger.rest_of_block(
                    location.children(),
                    Outcome::Implied,
                    Effect::Operation,
                    text,
                );
            }
            vec![rule]
        }
        None => locations::rules(&env),
    };
    rules.extend(phase);
    rules
}

/// Translates the `return`, `rewrite` and `if` of a server. Returns the rules, the last one with the highest
/// precedence, and the rule of a `return` without condition.
fn phase(env: &Env<'_, '_>) -> (Vec<Rule>, Option<Rule>) {
    let ledger = &env.translator.ledger;
    let mut rules: Vec<Rule> = Vec::new();
    let rule = |directive: &Directive, when: When, settings: Settings| Rule {
        comment: format!("from {}", directive.at),
        when,
        span: Span::Any,
        settings,
        is_whole: false,
    };
    for directive in env.scope.here() {
        match directive.name.as_str() {
            "return" => {
                let mut rule = rule(
                    directive,
                    When::default(),
                    answers::of_return(env, directive, false, ""),
                );
                rule.is_whole = true;
                rules.reverse();
                return (rules, Some(rule));
            }
            "rewrite" => match answers::of_rewrite(env, directive) {
                Ok(rewrite) if rewrite.is_redirect => {
                    ledger.translated(directive, "redirect");
                    rules.push(rule(directive, rewrite.when, rewrite.settings));
                }
                Ok(rewrite) => {
                    let text = "the origin gets the new path, by the rules of the client's path; nginx applies the \
                                location of the new path";
                    ledger.left_out(directive, Effect::Response, text);
                    rules.push(rule(directive, rewrite.when, rewrite.settings));
                }
                Err(reason) => ledger.left_out(directive, Effect::Response, &reason),
            },
            "if" => {
                let Some((cond, settings)) = branch(env, directive) else {
                    continue;
                };
                match cond {
                    Cond::Never => {}
                    Cond::Always => {
                        let mut rule = rule(directive, When::default(), settings);
                        rule.is_whole = true;
                        rules.reverse();
                        return (rules, Some(rule));
                    }
                    Cond::Any(all) => {
                        for when in all {
                            rules.push(rule(directive, when, settings.clone()));
                        }
                    }
                    Cond::Not(_) => {
                        let text = "a rule has no negated condition; deny these requests in the rules of each \
                                    location";
                        left_out(env, directive, text);
                    }
                }
            }
            _ => {}
        }
    }
    rules.reverse();
    (rules, None)
}

/// Reads an `if` of a server. Returns `None` if it only sets variables, or was left out.
fn branch(env: &Env<'_, '_>, directive: &Directive) -> Option<(Cond, Settings)> {
    let body: Vec<&Directive> = directive
        .children()
        .iter()
        .filter(|d| d.name != "set")
        .collect();
    if body.is_empty() {
        return None;
    }
    let found = find_condition(env, directive);
    let condition = match found {
        Ok(condition) => condition,
        Err(reason) => {
            left_out(env, directive, &reason);
            return None;
        }
    };
    if let Some(difference) = answers::exact_enough(&condition) {
        left_out(env, directive, &difference);
        return None;
    }
    let mut settings = Settings::default();
    let mut when: Option<When> = None;
    for inner in body {
        match inner.name.as_str() {
            "return" => settings
                .0
                .extend(answers::of_return(env, inner, false, "").0),
            "rewrite" => match answers::of_rewrite(env, inner) {
                Ok(rewrite) if rewrite.is_redirect => {
                    env.translator.ledger.translated(inner, "redirect");
                    settings.0.extend(rewrite.settings.0);
                    when = Some(rewrite.when);
                }
                Ok(_) => {
                    left_out(
                        env,
                        directive,
                        "nginx applies the location of the new path; the edge does not",
                    );
                    return None;
                }
                Err(reason) => {
                    left_out(env, directive, &reason);
                    return None;
                }
            },
            "break" => env.translator.ledger.implied(inner, "not needed"),
            _ => {
                left_out(
                    env,
                    directive,
                    "a rule for these requests is not made from this block",
                );
                return None;
            }
        }
    }
    env.translator
        .ledger
        .translated(directive, "a rule with conditions");
    let cond = match (condition.cond, when) {
        (cond, None) => cond,
        (Cond::Always, Some(when)) => Cond::Any(vec![when]),
        (Cond::Any(all), Some(when)) => {
            let both: Option<Vec<When>> = all.iter().map(|one| one.and(&when)).collect();
            match both {
                Some(both) => Cond::Any(both),
                None => {
                    left_out(env, directive, "one rule cannot state both conditions");
                    return None;
                }
            }
        }
        (Cond::Never, Some(_)) => Cond::Never,
        (cond @ Cond::Not(_), Some(_)) => cond,
    };
    Some((cond, settings))
}

/// Returns the condition of an `if` of the server that an environment describes.
fn find_condition(
    env: &Env<'_, '_>,
    directive: &Directive,
) -> Result<super::conditions::Condition, String> {
    let here = env.scope.here().iter().find(|d| d.id == directive.id);
    here.map_or_else(
        || Err("not found".to_owned()),
        |directive| env.condition(directive),
    )
}

fn left_out(env: &Env<'_, '_>, directive: &Directive, text: &str) {
    let ledger = &env.translator.ledger;
    ledger.left_out(directive, Effect::Access, text);
    let text = "belongs to an `if` that was left out";
    ledger.rest_of_block(
        directive.children(),
        Outcome::LeftOut,
        Effect::Operation,
        text,
    );
}

/// Returns the tables of a site: its own, then its rules.
fn write(site: Site) -> Vec<Table> {
    let mut table = Table::new("[[site]]");
    table.comment(&site.comment);
    let hosts: Vec<String> = site.hosts.iter().map(Host::text).collect();
    table.set("hosts", toml::list(&hosts), None);
    if let Some(certificate) = &site.certificate {
        table.set("tls_certificates", toml::text(&certificate.chain), None);
        table.set("tls_key", toml::text(&certificate.key), None);
    }
    let mut rest = &site.rules[..];
    // A rule without conditions at the start is that of the site itself.
    if let Some((first, others)) = rest.split_first()
        && first.when == When::default()
    {
        first.write_into_site(&mut table);
        rest = others;
    }
    let empty: BTreeMap<_, _> = BTreeMap::new();
    let rules = rest.iter().filter(|rule| rule.settings.0 != empty);
    std::iter::once(table)
        .chain(rules.map(Rule::table))
        .collect()
}
