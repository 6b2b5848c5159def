//! The state of a translation: the parts of the configuration by name, and settings of the whole edge.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use edgeward_sites::PAGE_BYTES_MAX;

use super::parse::Directive;
use super::scope::Scope;
use crate::ledger::Ledger;
use crate::origin_list::Origins;
use crate::report::Effect;
use crate::source::Sources;
use crate::toml::Table;
use crate::values;

/// The state of a translation.
pub(super) struct Translator<'t> {
    pub(super) ledger: Ledger,
    /// The block `http`, or the input itself if it is a part of this block.
    pub(super) http: Scope<'t>,
    /// All directives of the input.
    pub(super) tree: &'t [Directive],
    /// True if the input is a part of a server.
    pub(super) is_server_level: bool,
    pub(super) prefix: &'t str,
    sources: &'t dyn Sources,
    pub(super) maps: BTreeMap<&'t str, &'t Directive>,
    pub(super) geos: BTreeMap<&'t str, &'t Directive>,
    pub(super) upstreams: BTreeMap<&'t str, &'t Directive>,
    pub(super) cache_paths: BTreeMap<&'t str, &'t Directive>,
    pub(super) rates: BTreeMap<&'t str, &'t Directive>,
    pub(super) origins: RefCell<Origins>,
    /// Settings of the whole edge, by table.
    pub(super) facts: RefCell<BTreeMap<&'static str, Table>>,
    /// True if a location sets a field `X-Forwarded-…`.
    pub(super) sets_forwarded: Cell<bool>,
    pub(super) has_origin: Cell<bool>,
    pub(super) has_status: Cell<bool>,
}

impl<'t> Translator<'t> {
    pub(super) fn new(
        level: &'t [Directive],
        tree: &'t [Directive],
        is_server_level: bool,
        prefix: &'t str,
        sources: &'t dyn Sources,
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
            sources,
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
    pub(super) fn everywhere(&self, name: &str) -> Vec<&'t Directive> {
        find(self.tree, name)
    }

    /// Returns a path of the configuration, which starts at the prefix of nginx.
    pub(super) fn path(&self, path: &str) -> String {
        match path.starts_with('/') || self.prefix.is_empty() {
            true => path.to_owned(),
            false => format!("{}/{path}", self.prefix.trim_end_matches('/')),
        }
    }

    /// Returns the path of a file below a folder, if the edge can answer with the file.
    pub(super) fn page(&self, folder: &str, path: &str) -> Option<String> {
        let path = self.path(&format!("{}{path}", folder.trim_end_matches('/')));
        let is_page = values::is_page(&path) && !path.contains('$');
        let read = is_page.then(|| self.sources.read(&path).ok()).flatten();
        read.filter(|text| text.len() <= PAGE_BYTES_MAX)
            .map(|_| path)
    }

    /// Returns the limit of request bodies of the whole edge.
    pub(super) fn body_max(&self) -> String {
        let facts = self.facts.borrow();
        let limit = facts
            .get("limits")
            .and_then(|table| table.get("request_body_bytes_max"));
        limit.unwrap_or("\"none\"").to_owned()
    }

    /// States a setting of the whole edge. The first line of the input counts.
    pub(super) fn fact(
        &self,
        table: &'static str,
        key: &'static str,
        value: String,
        from: &Directive,
    ) {
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
    pub(super) fn default_fact(&self, table: &'static str, key: &'static str, value: &str) {
        let mut facts = self.facts.borrow_mut();
        let facts = facts
            .entry(table)
            .or_insert_with(|| Table::new(&format!("[{table}]")));
        facts.set(key, value.to_owned(), None);
    }

    /// Records a file that was not read. Those of Debian that only state types and parameters are not needed.
    pub(super) fn unread(&self, include: &Directive, reason: &str) {
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
}

/// Returns all directives with a name, in the order of the input.
pub(super) fn find<'t>(tree: &'t [Directive], name: &str) -> Vec<&'t Directive> {
    let mut found = every(tree);
    found.retain(|directive| directive.name == name);
    found
}

/// Returns all directives, in the order of the input.
pub(super) fn every(tree: &[Directive]) -> Vec<&Directive> {
    let mut all = Vec::new();
    let mut rest: Vec<&Directive> = tree.iter().rev().collect();
    while let Some(directive) = rest.pop() {
        all.push(directive);
        rest.extend(directive.children().iter().rev());
    }
    all
}

impl std::fmt::Debug for Translator<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Translator")
            .field("ledger", &self.ledger)
            .finish_non_exhaustive()
    }
}
