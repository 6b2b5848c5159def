//! Translates a configuration of nginx.
//!
//! [`mod@include`] reads the files as one tree. [`sites`] finds the hosts and which server has them, [`locations`] makes
//! rules in the order of [`precedence`], and the other files translate groups of directives. Each of them records what
//! it did in the [`ledger`]; a directive without a record gets the outcome of its row in [`table`].

mod access;
mod answers;
mod caching;
mod conditions;
mod draft;
mod fields;
mod globals;
mod include;
mod ledger;
mod locations;
mod origins;
mod parse;
mod precedence;
mod scope;
mod server;
mod sites;
mod table;
mod values;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

pub use parse::{FILE_BYTES_MAX, ParseError, ParseErrorReason};
pub use table::directives_markdown;

use crate::report::{Effect, Outcome};
use crate::source::Sources;
use crate::toml::{self, Setting, Table};
use crate::{MigrateError, Migration};
use ledger::Ledger;
use origins::Origins;
use parse::Directive;
use scope::Scope;
use server::{Server, Servers};

/// What a translation knows of the whole configuration, and what it collects for the whole edge.
pub(super) struct Translator<'t> {
    ledger: Ledger,
    /// The block `http`, or the input itself if it is a part of this block.
    http: Scope<'t>,
    /// All directives of the input.
    tree: &'t [Directive],
    /// True if the input is a part of a server.
    is_server_level: bool,
    prefix: &'t str,
    maps: BTreeMap<&'t str, &'t Directive>,
    geos: BTreeMap<&'t str, &'t Directive>,
    upstreams: BTreeMap<&'t str, &'t Directive>,
    cache_paths: BTreeMap<&'t str, &'t Directive>,
    rates: BTreeMap<&'t str, &'t Directive>,
    origins: RefCell<Origins>,
    /// Settings of the whole edge, by table.
    facts: RefCell<BTreeMap<&'static str, Table>>,
    /// True if a location sets a field `X-Forwarded-…`.
    sets_forwarded: Cell<bool>,
    has_origin: Cell<bool>,
    has_status: Cell<bool>,
}

/// Checks that a text can be read as a configuration of nginx.
pub fn check_syntax(text: &str) -> Result<(), ParseError> {
    parse::parse(&"input".into(), text, &mut 0).map(|_| ())
}

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
    let translator = Translator::new(&level, &tree.directives, is_server_level, prefix);
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
    let sites = sites::tables(&translator, &servers);
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

/// Returns all directives with a name, in the order of the input.
fn find<'t>(tree: &'t [Directive], name: &str) -> Vec<&'t Directive> {
    let mut found = every(tree);
    found.retain(|directive| directive.name == name);
    found
}

/// Returns all directives, in the order of the input.
fn every(tree: &[Directive]) -> Vec<&Directive> {
    let mut all = Vec::new();
    let mut rest: Vec<&Directive> = tree.iter().rev().collect();
    while let Some(directive) = rest.pop() {
        all.push(directive);
        rest.extend(directive.children().iter().rev());
    }
    all
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

impl<'t> Translator<'t> {
    fn new(
        level: &'t [Directive],
        tree: &'t [Directive],
        is_server_level: bool,
        prefix: &'t str,
    ) -> Self {
        let by = |name: &str,
                  key: fn(&'t Directive) -> Option<&'t str>|
         -> BTreeMap<&'t str, &'t Directive> {
            let named = level.iter().filter(|d| d.name == name);
            named.filter_map(|d| Some((key(d)?, d))).collect()
        };
        let variable = |d: &'t Directive| d.args.last()?.strip_prefix('$');
        let zone = |d: &'t Directive| {
            let zones = d.args.iter().find_map(|arg| {
                arg.strip_prefix("zone=")
                    .or_else(|| arg.strip_prefix("keys_zone="))
            });
            zones.and_then(|zone| zone.split(':').next())
        };
        Self {
            ledger: Ledger::default(),
            http: Scope::new(level),
            tree,
            is_server_level,
            prefix,
            maps: by("map", variable),
            geos: by("geo", variable),
            upstreams: by("upstream", |d| d.args.first().map(String::as_str)),
            cache_paths: by("proxy_cache_path", zone),
            rates: by("limit_req_zone", zone),
            origins: RefCell::default(),
            facts: RefCell::default(),
            sets_forwarded: Cell::new(false),
            has_origin: Cell::new(false),
            has_status: Cell::new(false),
        }
    }

    /// Returns all directives with a name.
    fn everywhere(&self, name: &str) -> Vec<&'t Directive> {
        find(self.tree, name)
    }

    /// Returns a path of the configuration, which starts at the prefix of nginx.
    fn path(&self, path: &str) -> String {
        match path.starts_with('/') || self.prefix.is_empty() {
            true => path.to_owned(),
            false => format!("{}/{path}", self.prefix.trim_end_matches('/')),
        }
    }

    /// Returns the limit of request bodies of the whole edge.
    fn body_max(&self) -> String {
        let facts = self.facts.borrow();
        let limit = facts
            .get("limits")
            .and_then(|table| table.get("request_body_bytes_max"));
        limit.unwrap_or("\"none\"").to_owned()
    }

    /// States a setting of the whole edge. The first line of the input counts.
    fn fact(&self, table: &'static str, key: &'static str, value: String, from: &Directive) {
        let mut facts = self.facts.borrow_mut();
        let facts = facts
            .entry(table)
            .or_insert_with(|| Table::new(&format!("[{table}]")));
        match facts.get(key) {
            Some(known) if known != value => {
                let text = format!(
                    "{table}.{key} is one setting for all sites, and an earlier line states it"
                );
                self.ledger.differs(from, Effect::Operation, &text);
            }
            _ => self.ledger.translated(from, &format!("{table}.{key}")),
        }
        facts.set(key, value, Some(&from.at));
    }

    /// States a setting of the whole edge that follows from a default of nginx.
    fn default_fact(&self, table: &'static str, key: &'static str, value: &str) {
        let mut facts = self.facts.borrow_mut();
        let facts = facts
            .entry(table)
            .or_insert_with(|| Table::new(&format!("[{table}]")));
        facts.set(key, value.to_owned(), None);
    }

    /// Records a file that was not read. Those of Debian that only state types and parameters are not needed.
    fn unread(&self, include: &Directive, reason: &str) {
        let name = include.arg(0).rsplit('/').next().unwrap_or_default();
        let is_known = matches!(
            name,
            "mime.types"
                | "fastcgi_params"
                | "fastcgi.conf"
                | "uwsgi_params"
                | "scgi_params"
                | "options-ssl-nginx.conf"
        );
        match is_known || include.arg(0).contains("/modules-enabled/") {
            true => self.ledger.implied(include, "not read, and not needed"),
            false => {
                self.ledger
                    .left_out(include, Effect::Response, &format!("not read: {reason}"));
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

impl std::fmt::Debug for Translator<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Translator")
            .field("ledger", &self.ledger)
            .finish_non_exhaustive()
    }
}
