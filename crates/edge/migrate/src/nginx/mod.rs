//! Translates a configuration of nginx.
//!
//! [`mod@include`] reads the files as one tree. [`sites`] finds the hosts and which server has them, [`locations`]
//! makes rules in the order of [`precedence`], and the other files translate groups of directives. Each of them records
//! what it did in the [`crate::ledger`]; a directive without a record gets the outcome of its row in [`table`].

mod access;
mod answers;
mod caching;
mod conditions;
mod draft;
mod fields;
mod globals;
mod include;
mod locations;
mod origins;
mod parse;
mod precedence;
mod scope;
mod selection;
mod server;
mod server_names;
mod sites;
mod table;
mod translator;

pub use table::directives_markdown;

use crate::error::MigrateError;
use crate::report::{Effect, Migration, Outcome};
use crate::source::Sources;
use crate::toml::{self, Setting, Table};
use crate::values;
use parse::Directive;
use selection::Servers;
use server::Server;
use translator::{Translator, every, find};

/// Where a configuration is, and where its translation will be.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    /// The folder at which relative paths of the configuration start.
    pub prefix: String,
    /// The file or folder of the disk cache of the edge.
    pub disk: String,
}

/// Translates the files with all that they include.
pub fn translate(
    sources: &dyn Sources,
    files: &[String],
    paths: &Paths,
) -> Result<Migration, MigrateError> {
    let prefix = paths.prefix.as_str();
    let tree = include::read(sources, files, prefix)?;
    let has = |name: &str| tree.directives.iter().any(|d| d.name == name);
    let is_whole = has("http");
    // A file for conf.d has parts of the block `http`, and a snippet has parts of a server.
    let level: Vec<Directive> = match is_whole {
        true => {
            let is_inner =
                |d: &&Directive| matches!(d.name.as_str(), "server" | "upstream" | "map" | "geo");
            let blocks = tree.directives.iter().filter(|d| d.name == "http");
            let inner = blocks.flat_map(|block| block.children().to_vec());
            inner
                .chain(tree.directives.iter().filter(is_inner).cloned())
                .collect()
        }
        false => tree.directives.clone(),
    };
    let is_server_level = !has("server") && !is_whole && (has("location") || has("proxy_pass"));
    let translator = Translator::new(&level, &tree.directives, is_server_level, prefix, sources);
    let servers = servers(&translator, is_whole);
    for (include, reason) in tree
        .directives_of("include")
        .into_iter()
        .map(|d| (d, tree.unread.get(&d.id)))
    {
        match reason {
            Some(reason) => translator.unread(include, reason),
            None => translator.ledger.implied(include, "read"),
        }
    }
    globals::other_blocks(&translator, &tree.directives);
    globals::read(&translator);
    let sites = sites::tables(&translator, &servers)?;
    if !translator.has_origin.get() {
        return Err(MigrateError::Empty);
    }
    let tables = translator.tables(&servers, sites, &paths.disk);
    let intro = [
        "The configuration of `edgeward serve`, translated from nginx. `edgeward check-config FILE` checks it.".to_owned(),
        format!("Sources: {}", files.join(", ")),
    ];
    let toml = toml::write(&intro, &tables);
    translator.unused_variables();
    translator.unused_blocks();
    let report = translator
        .ledger
        .report(&tree.directives, |directive| table::unused(&directive.name));
    Ok(Migration { toml, report })
}

impl include::Tree {
    /// Returns all directives with a name.
    fn directives_of(&self, name: &str) -> Vec<&Directive> {
        find(&self.directives, name)
    }
}

fn servers<'t>(translator: &Translator<'t>, is_whole: bool) -> Servers<'t> {
    let http = &translator.http;
    let blocks = http
        .here()
        .iter()
        .filter(|d| d.name == "server" && d.block.is_some());
    let mut all: Vec<Server<'t>> = blocks
        .map(|block| {
            Server::new(
                Some(block),
                http.within(block.children()),
                &translator.ledger,
            )
        })
        .collect();
    if translator.is_server_level {
        all.push(Server::new(None, http.clone(), &translator.ledger));
    }
    Servers { all, is_whole }
}

impl Translator<'_> {
    /// Records named locations that no `try_files` selects, and folders that no location with files uses.
    fn unused_blocks(&self) {
        for directive in every(self.tree) {
            if self.ledger.has(directive) {
                continue;
            }
            match directive.name.as_str() {
                "location" if directive.arg(0).starts_with('@') => {
                    let text = "only errors and internal redirects select this location; the edge has neither";
                    self.ledger.left_out(directive, Effect::Response, text);
                    let text = "belongs to a location that was left out";
                    self.ledger.rest_of_block(
                        directive.children(),
                        Outcome::LeftOut,
                        Effect::Operation,
                        text,
                    );
                }
                "root" | "index" | "autoindex" => {
                    self.ledger
                        .implied(directive, "no location serves files from it");
                }
                _ => {}
            }
        }
    }

    /// Records variables and zones that no directive reads, or that only directives read which need no setting.
    fn unused_variables(&self) {
        let all = every(self.tree);
        for directive in &all {
            if self.ledger.has(directive) {
                continue;
            }
            let name = match directive.name.as_str() {
                "map" | "geo" => directive.args.last().map(String::as_str),
                "set" => Some(directive.arg(0)),
                "if" if directive.children().iter().all(|d| d.name == "set") => Some(""),
                "limit_req_zone" => {
                    let zone = directive.args.iter().find(|arg| arg.starts_with("zone="));
                    zone.and_then(|zone| zone.split(':').next())
                }
                _ => continue,
            };
            let Some(name) = name else {
                continue;
            };
            let reads = |d: &&&Directive| {
                d.id != directive.id
                    && !(d.name == "set" && d.arg(0) == name)
                    && d.args.iter().any(|arg| match name.strip_prefix('$') {
                        Some(plain) => {
                            values::parts(arg).contains(&values::Part::Variable(plain.to_owned()))
                        }
                        None => arg == name,
                    })
            };
            let is_lost = all.iter().filter(reads).any(|d| self.ledger.is_left_out(d));
            let rest = |outcome, text: &str| {
                self.ledger.rest_of_block(
                    std::slice::from_ref(*directive),
                    outcome,
                    Effect::Operation,
                    text,
                );
            };
            match is_lost {
                true => rest(
                    Outcome::LeftOut,
                    "only a directive reads it that was left out",
                ),
                false => rest(Outcome::Implied, "no directive needs it"),
            }
        }
    }

    /// Returns all tables in their order.
    fn tables(&self, servers: &Servers<'_>, sites: Vec<Table>, disk: &str) -> Vec<Table> {
        self.default_fact("caching", "heuristic", "false");
        self.default_fact("caching", "stale_if_disconnected", "\"0ms\"");
        if !self.sets_forwarded.get() {
            self.default_fact("forwarding", "x_forwarded", "false");
        }
        if self.has_status.get() {
            self.default_fact("admin", "address", "\"127.0.0.1:9900\"");
        }
        let mut tables = globals::listeners(self, servers);
        tables.extend(self.origins.take().into_tables());
        tables.extend(globals::device(self, disk));
        let is_unset = |setting: &Setting| setting.from.is_none();
        for mut table in self.facts.take().into_values() {
            if table.settings.iter().any(is_unset) {
                table.comment("A line without a source is a default of nginx.");
            }
            tables.push(table);
        }
        tables.extend(sites);
        tables
    }
}
