//! Translates a Caddyfile.
//!
//! [`parse`] reads the files as one tree. [`sites`] finds the hosts and which site block has them, [`block`] applies
//! the directives of a block in Caddy's [`order`] to decisions, and [`matchers`] are their conditions. Each of them
//! records what it did in the ledger; a directive without a record gets the outcome of its row in [`table`].

mod block;
mod cache;
mod directives;
mod listeners;
mod matchers;
mod order;
mod origins;
mod parse;
mod paths;
mod sites;
mod state;
mod table;
mod text;
mod tree;

pub use table::directives_markdown;

use crate::error::MigrateError;
use crate::report::{Effect, Migration, Outcome};
use crate::source::Sources;
use crate::toml::{self, Setting};
use order::Order;
use sites::Options;
use state::{Proxies, Translator};
use tree::{Directive, each};

/// Translates the files with all that they import. Relative paths of `import` start at `prefix`.
pub fn translate(
    sources: &dyn Sources,
    files: &[String],
    prefix: &str,
) -> Result<Migration, MigrateError> {
    let tree = parse::read(sources, files, prefix)?;
    let globals: Vec<&Directive> = tree
        .directives
        .iter()
        .filter(|directive| directive.name.is_empty())
        .collect();
    let mut order = Order::default();
    let mut unknown_orders = Vec::new();
    for option in globals.iter().flat_map(|global| global.inner()) {
        if option.name == "order" && !order.change(&option.args) {
            unknown_orders.push(option.id);
        }
    }
    let proxies = proxies(&tree.directives, &globals);
    let translator = Translator::new(order, proxies, tree.unread);
    let ledger = &translator.ledger;
    let mut options = Options::default();
    each(
        &tree.directives,
        &mut |directive| match directive.name.as_str() {
            "import" => match translator.unread.get(&directive.id) {
                Some(reason) => {
                    ledger.left_out(directive, Effect::Response, &format!("not read: {reason}"));
                }
                None => ledger.implied(directive, "read"),
            },
            name if name.starts_with('(') => {
                let text = "its directives have entries where it is imported";
                ledger.implied(directive, text);
                ledger.rest_of_block(directive.inner(), Outcome::Implied, Effect::Operation, text);
            }
            "log" => log(&translator, directive),
            _ => {}
        },
    );
    for global in globals {
        ledger.translated(global, "settings of the whole edge");
        for option in global.inner() {
            match unknown_orders.contains(&option.id) {
                true => ledger.left_out(
                    option,
                    Effect::Access,
                    "the order has no such directive, so other directives may answer first",
                ),
                false => global_option(&translator, option, &mut options),
            }
        }
    }
    let sites = sites::sites(&translator, &tree.directives, &options)?;
    if translator.is_exhausted() {
        return Err(MigrateError::TooLarge);
    }
    let origins = translator.origins.take().into_tables();
    if origins.is_empty() {
        return Err(MigrateError::Empty);
    }
    translator.fact("caching", "heuristic", "false".to_owned(), None);
    let mut tables = sites.listeners;
    tables.extend(origins);
    let is_unset = |setting: &Setting| setting.from.is_none();
    for mut table in translator.facts.take().into_values() {
        if table.settings.iter().any(is_unset) {
            table.comment("A line without a source is a default of Caddy.");
        }
        tables.push(table);
    }
    tables.extend(sites.tables);
    let intro = [
        "The configuration of `edgeward serve`, translated from a Caddyfile. `edgeward check-config FILE` checks it.".to_owned(),
        "Caddy compares paths without regard to case, as the expressions with (?i) do.".to_owned(),
        format!("Sources: {}", files.join(", ")),
    ];
    let toml = toml::write(&intro, &tables);
    let lenient = translator.lenient.take();
    translator.ledger.lenient(&tree.directives, &lenient);
    let report = translator.ledger.report(&tree.directives, table::unused);
    Ok(Migration { toml, report })
}

/// Returns the proxies that the configuration trusts.
fn proxies(all: &[Directive], globals: &[&Directive]) -> Proxies {
    let (mut count, mut of_server) = (0, 0);
    each(all, &mut |directive| {
        count += usize::from(directive.name == "trusted_proxies");
    });
    let servers = globals.iter().flat_map(|global| global.inner());
    let servers = servers.filter(|option| option.name == "servers");
    for option in servers.flat_map(|servers| servers.inner()) {
        let is_static = option.arg(0) == "static" && origins::of_networks(&option.args).is_some();
        match option.name.as_str() {
            "trusted_proxies" if is_static => of_server += 1,
            "client_ip_headers" if !is_forwarded_for(option) => return Proxies::Other,
            _ => {}
        }
    }
    match (count, of_server) {
        (0, _) => Proxies::Untrusted,
        (1, 1) => Proxies::Server,
        _ => Proxies::Other,
    }
}

/// Returns true for the field that the edge reads, too.
fn is_forwarded_for(option: &Directive) -> bool {
    matches!(&option.args[..], [field] if field.eq_ignore_ascii_case("x-forwarded-for"))
}

/// Translates the log of a site or of the whole server.
fn log(translator: &Translator, log: &Directive) {
    let ledger = &translator.ledger;
    let output = log.inner().iter().find(|inner| inner.name == "output");
    let text = "belongs to the log: the edge has one log for all sites, in a format of its own";
    match output {
        Some(output)
            if output.arg(0) == "file"
                && !output.arg(1).contains('{')
                && !output.arg(1).is_empty() =>
        {
            translator.fact(
                "access_log",
                "path",
                toml::text(output.arg(1)),
                Some(output),
            );
            translator.fact("access_log", "format", toml::text("json"), None);
            ledger.differs(
                log,
                Effect::Operation,
                "access_log: one log for all sites, in a format of its own",
            );
        }
        _ => ledger.left_out(
            log,
            Effect::Operation,
            "the edge writes its access log to a file: access_log.path",
        ),
    }
    let outcome = match ledger.is_left_out(log) {
        true => Outcome::LeftOut,
        false => Outcome::Implied,
    };
    ledger.rest_of_block(log.inner(), outcome, Effect::Operation, text);
}

fn global_option<'t>(translator: &Translator, option: &'t Directive, options: &mut Options<'t>) {
    let ledger = &translator.ledger;
    let value = option.arg(0).to_owned();
    match option.name.as_str() {
        "email" => {
            options.contact = Some((value, option));
            ledger.translated(option, "acme.contact");
        }
        "acme_ca" => {
            options.directory = Some((value, option));
            ledger.translated(option, "acme.directory");
        }
        "auto_https" => {
            options.has_certificates = value != "off";
            match value.as_str() {
                "off" => ledger.translated(option, "no [[acme]]"),
                _ => ledger.differs(
                    option,
                    Effect::Operation,
                    "the edge redirects to https by a rule; remove it",
                ),
            }
        }
        "cache" => {
            options.cache = option.inner();
            ledger.translated(option, "caching of sites with cache");
        }
        "servers" => {
            ledger.translated(option, "forwarding, limits");
            for inner in option.inner() {
                match inner.name.as_str() {
                    "trusted_proxies" => origins::networks(translator, inner, &inner.args),
                    "client_ip_headers" if !is_forwarded_for(inner) => ledger.left_out(
                        inner,
                        Effect::Access,
                        "trusted proxies state the client in X-Forwarded-For: forwarding.client_field",
                    ),
                    "protocols"
                    | "client_ip_headers"
                    | "strict_sni_host"
                    | "name"
                    | "metrics"
                    | "log_credentials"
                    | "keepalive_interval"
                    | "trusted_proxies_strict"
                    | "enable_full_duplex" => {
                        ledger.implied(
                            inner,
                            "the edge chooses this itself; HTTP/3 is off until a listener has http3 = true",
                        );
                    }
                    _ => ledger.left_out(
                        inner,
                        Effect::Operation,
                        "see [limits], and proxy_protocol_from of a listener",
                    ),
                }
                let text = "belongs to an option of the server";
                let outcome = match ledger.is_left_out(inner) {
                    true => Outcome::LeftOut,
                    false => Outcome::Implied,
                };
                ledger.rest_of_block(inner.inner(), outcome, Effect::Operation, text);
            }
        }
        "default_bind" => {
            options.bind = Some(option);
            ledger.translated(option, "listener.address");
        }
        "http_port" | "https_port" => match value.parse::<u16>() {
            Ok(port) => {
                match option.name.as_str() {
                    "http_port" => options.http_port = port,
                    _ => options.https_port = port,
                }
                ledger.translated(option, "listener.address");
            }
            Err(_) => ledger.left_out(option, Effect::Access, "not a port"),
        },
        "admin" | "order" | "debug" | "grace_period" | "shutdown_delay" | "storage"
        | "persist_config" | "default_sni" | "fallback_sni" | "local_certs"
        | "skip_install_trust" | "metrics" | "key_type" | "ocsp_stapling" | "renew_interval"
        | "cert_lifetime" | "preferred_chains" => {
            let text = "not needed, or an address of [[listener]]";
            ledger.implied(option, text);
            ledger.rest_of_block(option.inner(), Outcome::Implied, Effect::Operation, text);
        }
        "log" => {}
        _ => {
            let text = "unknown to this translation; look for it in docs/how-to/from-caddy.md";
            ledger.left_out(option, Effect::Operation, text);
            ledger.rest_of_block(option.inner(), Outcome::LeftOut, Effect::Operation, text);
        }
    }
}
