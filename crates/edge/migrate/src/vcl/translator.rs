//! The state of a translation: the declarations by name, and settings of the whole edge.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::requests::Requests;
use super::tree::{Kind, Node, every};
use crate::ledger::Ledger;
use crate::origin_list::Origins;
use crate::report::Effect;
use crate::source::Position;
use crate::toml::{self, Table};

/// The most steps of a translation. The largest published configurations need a tenth; in a release build on one core
/// of 2026 all of them take some seconds.
pub(super) const STEPS_MAX: u64 = 500_000;

/// The methods by which the edge purges.
pub(super) const KNOWN_METHODS: [&str; 3] = ["PURGE", "BAN", "PURGEKEYS"];

/// The state of a translation.
pub(super) struct Translator<'t> {
    pub(super) ledger: Ledger,
    pub(super) tree: &'t [Node],
    /// The number of nodes in the tree.
    nodes: u64,
    /// The steps that are left.
    steps: Cell<u64>,
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
    /// For each host and status, the statement that removes `Set-Cookie` from all responses that are stored.
    pub(super) strips: RefCell<Vec<Option<usize>>>,
    /// By subroutine, and in responses: the part of the behaviour that its statements change.
    pub(super) effects: RefCell<BTreeMap<(String, bool), Effect>>,
    /// Networks that may purge, with the line that states it.
    pub(super) purgers: RefCell<Option<(Vec<String>, Position)>>,
    /// The methods with which these may purge.
    purge_methods: RefCell<Vec<String>>,
}

impl<'t> Translator<'t> {
    pub(super) fn new(tree: &'t [Node]) -> Self {
        let mut translator = Self {
            ledger: Ledger::default(),
            tree,
            nodes: 0,
            steps: Cell::new(STEPS_MAX),
            subs: BTreeMap::new(),
            backends: BTreeMap::new(),
            default_backend: None,
            probes: BTreeMap::new(),
            acls: BTreeMap::new(),
            objects: BTreeMap::new(),
            origins: RefCell::default(),
            facts: RefCell::default(),
            strips: RefCell::default(),
            purge_methods: RefCell::default(),
            effects: RefCell::default(),
            purgers: RefCell::default(),
        };
        for node in every(tree) {
            translator.nodes += 1;
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

    /// Takes one step, and further ones for a set of requests with many layers: operations compare each layer with all
    /// others. Returns false if no steps are left.
    pub(super) fn spend(&self, layers: usize) -> bool {
        let layers = layers as u64;
        self.spend_steps(1 + layers * layers / 8)
    }

    /// Takes the steps of a walk through all nodes.
    pub(super) fn spend_walk(&self) -> bool {
        self.spend_steps(1 + self.nodes / 32)
    }

    fn spend_steps(&self, steps: u64) -> bool {
        self.steps.set(self.steps.get().saturating_sub(steps));
        !self.is_exhausted()
    }

    /// Returns true if no steps are left.
    pub(super) fn is_exhausted(&self) -> bool {
        self.steps.get() == 0
    }

    /// Returns the statements of a subroutine.
    pub(super) fn sub(&self, name: &str) -> impl Iterator<Item = &'t Node> + use<'t> {
        let parts = self.subs.get(name).cloned().unwrap_or_default();
        parts.into_iter().flat_map(|part| part.children.iter())
    }

    /// Returns true if a subroutine, or one that it calls, passes or denies requests.
    pub(super) fn restricts(&self, name: &'t str) -> bool {
        let mut names = vec![name];
        let mut at = 0;
        while let Some(name) = names.get(at).copied() {
            at += 1;
            for sub in self.subs.get(name).into_iter().flatten() {
                for node in every(&sub.children) {
                    match &node.kind {
                        Kind::Return(action, _) => {
                            if matches!(action.as_str(), "pass" | "pipe" | "synth" | "fail") {
                                return true;
                            }
                        }
                        Kind::Call(called) if !names.contains(&called.as_str()) => {
                            names.push(called);
                        }
                        _ => {}
                    }
                }
            }
        }
        false
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

    /// States that cookies are removed from stored responses, if this holds for all hosts and statuses.
    pub(super) fn strip_cookies(&self) {
        let strips = self.strips.take();
        let is_for_all = strips.iter().all(Option::is_some);
        for node in every(self.tree) {
            if !strips.contains(&Some(node.id)) {
                continue;
            }
            match is_for_all {
                true => self.fact("caching", "set_cookie", toml::text("strip"), node),
                false => {
                    let text = "caching.set_cookie is for all responses, so responses with cookies are not stored";
                    self.ledger.left_out(node, Effect::Response, text);
                }
            }
        }
    }

    /// States a setting of the whole edge that follows from a default of Varnish.
    pub(super) fn default_fact(&self, table: &'static str, key: &'static str, value: &str) {
        let mut facts = self.facts.borrow_mut();
        let facts = facts
            .entry(table)
            .or_insert_with(|| Table::new(&format!("[{table}]")));
        facts.set(key, value.to_owned(), None);
    }

    /// States the networks that may purge by these methods. Returns false if fewer networks than these may do so.
    pub(super) fn allow_purges(&self, networks: &[String], methods: &[&str], from: &Node) -> bool {
        let mut known = self.purge_methods.borrow_mut();
        known.extend(methods.iter().map(|&method| method.to_owned()));
        let mut purgers = self.purgers.borrow_mut();
        match &mut *purgers {
            None => *purgers = Some((networks.to_vec(), from.at.clone())),
            Some((known, _)) => known.retain(|network| networks.contains(network)),
        }
        let known = purgers.as_ref().map_or(&[][..], |(known, _)| known);
        networks.iter().all(|network| known.contains(network))
    }

    /// Returns true if `purge.allow` decides about requests with these methods.
    pub(super) fn is_purge(&self, methods: &[String]) -> bool {
        let known = self.purge_methods.borrow();
        !methods.is_empty() && methods.iter().all(|method| known.contains(method))
    }

    /// Returns true if `purge.allow` decides about all requests of a set.
    pub(super) fn purges(&self, requests: &Requests) -> bool {
        let mut holds = requests.may().layers().iter().filter(|(_, holds)| *holds);
        holds.all(|(when, _)| self.is_purge(&when.methods))
    }

    /// Returns the table with the networks and methods that may purge.
    pub(super) fn purge_table(&self) -> Option<Table> {
        let purgers = self.purgers.borrow();
        let (networks, from) = purgers.as_ref()?;
        let mut table = Table::new("[purge]");
        table.set("allow", toml::array(networks), Some(from));
        let known = self.purge_methods.borrow();
        let methods = KNOWN_METHODS.map(str::to_owned);
        let methods: Vec<String> = methods.into_iter().filter(|m| known.contains(m)).collect();
        table.set("methods", toml::array(&methods), Some(from));
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
