//! The state of a translation: the declarations by name, and settings of the whole edge.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::tree::{Kind, Node, every};
use crate::ledger::Ledger;
use crate::origin_list::Origins;
use crate::source::Position;
use crate::toml::{self, Table};

/// The state of a translation.
pub(super) struct Translator<'t> {
    pub(super) ledger: Ledger,
    pub(super) tree: &'t [Node],
    /// Subroutines: Varnish joins those of one name.
    pub(super) subs: BTreeMap<&'t str, Vec<&'t Node>>,
    pub(super) backends: BTreeMap<&'t str, &'t Node>,
    /// The name of the backend that requests get without a choice.
    pub(super) default_backend: Option<&'t str>,
    pub(super) probes: BTreeMap<&'t str, &'t Node>,
    pub(super) acls: BTreeMap<&'t str, &'t Node>,
    /// Objects that `vcl_init` makes.
    pub(super) objects: BTreeMap<&'t str, &'t Node>,
    pub(super) origins: RefCell<Origins>,
    /// Settings of the whole edge, by table.
    pub(super) facts: RefCell<BTreeMap<&'static str, Table>>,
    /// Networks that may purge, with the line that states it.
    pub(super) purgers: RefCell<Option<(Vec<String>, Position)>>,
}

impl<'t> Translator<'t> {
    pub(super) fn new(tree: &'t [Node]) -> Self {
        let mut translator = Self {
            ledger: Ledger::default(),
            tree,
            subs: BTreeMap::new(),
            backends: BTreeMap::new(),
            default_backend: None,
            probes: BTreeMap::new(),
            acls: BTreeMap::new(),
            objects: BTreeMap::new(),
            origins: RefCell::default(),
            facts: RefCell::default(),
            purgers: RefCell::default(),
        };
        for node in every(tree) {
            match &node.kind {
                Kind::Sub(name) => translator.subs.entry(name).or_default().push(node),
                Kind::Backend(name) => {
                    translator.backends.insert(name, node);
                    if translator.default_backend.is_none() || name == "default" {
                        translator.default_backend = Some(name);
                    }
                }
                Kind::Probe(name) => _ = translator.probes.insert(name, node),
                Kind::Acl(name) => _ = translator.acls.insert(name, node),
                Kind::New(name, _) => _ = translator.objects.insert(name, node),
                _ => {}
            }
        }
        translator
    }

    /// Returns the statements of a subroutine.
    pub(super) fn sub(&self, name: &str) -> impl Iterator<Item = &'t Node> + use<'t> {
        let parts = self.subs.get(name).cloned().unwrap_or_default();
        parts.into_iter().flat_map(|part| part.children.iter())
    }

    /// States a setting of the whole edge. The first line of the input counts.
    pub(super) fn fact(&self, table: &'static str, key: &'static str, value: String, from: &Node) {
        let mut facts = self.facts.borrow_mut();
        let facts = facts
            .entry(table)
            .or_insert_with(|| Table::new(&format!("[{table}]")));
        facts.set(key, value, Some(&from.at));
        self.ledger.translated(from, &format!("{table}.{key}"));
    }

    /// States a setting of the whole edge that follows from a default of Varnish.
    pub(super) fn default_fact(&self, table: &'static str, key: &'static str, value: &str) {
        let mut facts = self.facts.borrow_mut();
        let facts = facts
            .entry(table)
            .or_insert_with(|| Table::new(&format!("[{table}]")));
        facts.set(key, value.to_owned(), None);
    }

    /// Adds networks that may purge.
    pub(super) fn allow_purges(&self, networks: &[String], from: &Node) {
        let mut purgers = self.purgers.borrow_mut();
        let (known, _) = purgers.get_or_insert_with(|| (Vec::new(), from.at.clone()));
        for network in networks {
            if !known.contains(network) {
                known.push(network.clone());
            }
        }
    }

    /// Returns the table with the networks that may purge.
    pub(super) fn purge_table(&self) -> Option<Table> {
        let purgers = self.purgers.borrow();
        let (networks, from) = purgers.as_ref()?;
        let mut table = Table::new("[purge]");
        table.set("allow", toml::array(networks), Some(from));
        Some(table)
    }
}

impl std::fmt::Debug for Translator<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Translator")
            .field("ledger", &self.ledger)
            .finish_non_exhaustive()
    }
}
