//! Translates a configuration of Varnish.
//!
//! [`parse`] reads the files as one tree. [`sites`] runs the subroutines once for each host that conditions name, for
//! all requests at once: a [`state`] has values as decisions, lists of conditions with values, which are the rules of
//! the edge. [`walk`] runs statements, and the other files translate groups of them. Each of them records what it did
//! in the ledger; a node without a record gets the outcome of its row in [`table`].

mod acl;
mod answers;
mod conditions;
mod cookies;
mod host_names;
mod lexer;
mod lifetimes;
mod lost;
mod origins;
mod parse;
mod request;
mod requests;
mod response;
mod sites;
mod state;
mod table;
mod text;
mod translator;
mod tree;
mod urls;
mod walk;

pub use table::constructs_markdown;

use crate::error::MigrateError;
use crate::report::{Effect, Migration, Outcome};
use crate::source::Sources;
use crate::toml::{self, Setting, Table};
use translator::Translator;
use tree::{Kind, every};

/// Translates the files with all that they include. Relative paths of `include` start at `prefix`.
pub fn translate(
    sources: &dyn Sources,
    files: &[String],
    prefix: &str,
) -> Result<Migration, MigrateError> {
    let tree = parse::read(sources, files, prefix)?;
    let translator = Translator::new(&tree);
    if translator.backends.is_empty() {
        return Err(MigrateError::Empty);
    }
    declarations(&translator);
    let file = files.first().map(String::as_str).unwrap_or_default();
    let sites = sites::tables(&translator, file)?;
    translator.strip_cookies();
    origins::unused(&translator);
    translator.default_fact("caching", "heuristic", "false");
    let mut listener = Table::new("[[listener]]");
    listener.comment("VCL has no addresses: take those of varnishd -a.");
    listener.set("address", toml::text("0.0.0.0:80"), None);
    let mut tables = vec![listener];
    let origins = translator.origins.take().into_tables();
    if origins.is_empty() {
        return Err(MigrateError::Empty);
    }
    tables.extend(origins);
    let is_unset = |setting: &Setting| setting.from.is_none();
    for mut table in translator.facts.take().into_values() {
        if table.settings.iter().any(is_unset) {
            table.comment("A line without a source is a default of Varnish.");
        }
        tables.push(table);
    }
    tables.extend(translator.purge_table());
    tables.extend(sites);
    let intro = [
        "The configuration of `edgeward serve`, translated from VCL. `edgeward check-config FILE` checks it.".to_owned(),
        "Settings of varnishd -s, -a and -p have no lines here: [hot] capacity, [[listener]] and docs/how-to/from-varnish.md.".to_owned(),
        format!("Sources: {}", files.join(", ")),
    ];
    let toml = toml::write(&intro, &tables);
    rest(&translator);
    let report = translator
        .ledger
        .report(&tree, |node| table::unused(&node.name()));
    Ok(Migration { toml, report })
}

/// Records the outcomes of declarations that are no subroutines.
fn declarations(translator: &Translator<'_>) {
    let ledger = &translator.ledger;
    for node in every(translator.tree) {
        match &node.kind {
            Kind::Version => ledger.implied(node, "read"),
            Kind::Import(name) => match table::is_known_module(name) {
                true => ledger.implied(node, "its functions have entries of their own"),
                false => ledger.differs(
                    node,
                    Effect::Operation,
                    "unknown to this translation; its functions are left out",
                ),
            },
            Kind::Include(None) => ledger.implied(node, "read"),
            Kind::Include(Some(reason)) => {
                ledger.left_out(node, Effect::Response, &format!("not read: {reason}"));
            }
            _ => {}
        }
    }
}

/// Records what no subroutine used.
fn rest(translator: &Translator<'_>) {
    let ledger = &translator.ledger;
    let unused = |nodes: &[tree::Node], text: &str| {
        ledger.rest_of_block(nodes, Outcome::Implied, Effect::Operation, text);
    };
    for (name, subs) in &translator.subs {
        for sub in subs {
            match *name {
                "vcl_init" | "vcl_fini" => {
                    ledger.translated(sub, "origins");
                    for node in &sub.children {
                        if matches!(node.kind, Kind::Return(..)) {
                            ledger.implied(node, "not needed");
                        }
                    }
                }
                "vcl_backend_error" => {
                    let text = "write the page to a file, and error_page = { 5xx = \"FILE\" } in a site; requests are \
                                sent to another server by themselves";
                    let has_page = !sub.children.is_empty();
                    if has_page {
                        ledger.differs(sub, Effect::Response, text);
                    }
                    ledger.rest_of_block(&sub.children, Outcome::Differs, Effect::Response, text);
                }
                "vcl_hit" if translator.restricts("vcl_hit") => {}
                "vcl_hit" => {
                    let text = "fresh hits are used, and stale ones by stale_while_revalidate, stale_if_error and \
                                stale_if_disconnected";
                    ledger.differs(*sub, Effect::Caching, text);
                    ledger.rest_of_block(&sub.children, Outcome::Differs, Effect::Caching, text);
                }
                "vcl_pipe" => {
                    ledger.implied(sub, "WebSocket is forwarded: forwarding.upgrades");
                    unused(&sub.children, "WebSocket is forwarded: forwarding.upgrades");
                }
                "vcl_synth" | "vcl_purge" | "vcl_miss" | "vcl_pass" | "vcl_backend_fetch"
                | "vcl_hash" => {
                    ledger.implied(sub, "no statement that was translated calls it");
                    unused(&sub.children, "no statement that was translated reaches it");
                }
                name if name.starts_with("vcl_") => {}
                _ => {
                    ledger.implied(sub, "no statement that was translated calls it");
                    unused(&sub.children, "no statement that was translated reaches it");
                }
            }
        }
    }
    for (kind, declared) in [("ACL", &translator.acls), ("probe", &translator.probes)] {
        for node in declared.values() {
            if !ledger.has(node) {
                let text = format!("no statement that was translated uses the {kind}");
                ledger.implied(node, &text);
                unused(&node.children, &text);
            }
        }
    }
    for backend in translator.backends.values() {
        unused_backend(translator, backend);
    }
}

/// Records the properties of a backend that no origin has.
fn unused_backend(translator: &Translator<'_>, backend: &tree::Node) {
    let ledger = &translator.ledger;
    let is_used = backend.children.iter().any(|node| ledger.has(node));
    if !is_used {
        let text = "no statement that was translated selects this backend";
        ledger.rest_of_block(&backend.children, Outcome::Implied, Effect::Operation, text);
    }
}
