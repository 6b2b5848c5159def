//! The state of a translation, and of the rules of one host.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use super::order::Order;
use super::paths::statable;
use super::tree::Directive;
use crate::decision::Decision;
use crate::grouping::Setting;
use crate::hosts::{Host, Reason};
use crate::ledger::Ledger;
use crate::origin_list::Origins;
use crate::rule::{Key, Value};
use crate::source::Position;
use crate::toml::Table;

/// The steps of a translation: comparisons of two conditions. A configuration of a thousand sites takes some millions.
const STEPS_MAX: u64 = 150_000_000;

/// The method of a request, among the names of fields that directives have changed. No field has this name.
pub(super) const METHOD: &str = ":method";

/// The state of a translation.
#[derive(Debug)]
pub(super) struct Translator {
    pub(super) ledger: Ledger,
    pub(super) origins: RefCell<Origins>,
    /// Settings of the whole edge, by table.
    pub(super) facts: RefCell<BTreeMap<&'static str, Table>>,
    pub(super) order: Order,
    pub(super) proxies: Proxies,
    /// Why the files of an `import` were not read, by the number of the directive.
    pub(super) unread: BTreeMap<usize, String>,
    /// The lines of denials and redirects with exceptions for names.
    pub(super) lenient: RefCell<Vec<Position>>,
    steps: Cell<u64>,
    proxies_seen: Cell<usize>,
}

/// The proxies in front of the server that the configuration trusts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proxies {
    /// None: the client is the peer of the connection.
    Untrusted,
    /// Those of the global option, from which the edge takes the address of the client as Caddy does.
    Server,
    /// Others, so that Caddy and the edge take different addresses for that of the client.
    Other,
}

impl Translator {
    pub(super) fn new(order: Order, proxies: Proxies, unread: BTreeMap<usize, String>) -> Self {
        Self {
            ledger: Ledger::default(),
            origins: RefCell::default(),
            facts: RefCell::default(),
            order,
            proxies,
            unread,
            lenient: RefCell::default(),
            steps: Cell::new(STEPS_MAX),
            proxies_seen: Cell::new(0),
        }
    }

    /// Takes steps from those that are left. After the last one each translation of a directive fails at once.
    pub(super) fn spend(&self, steps: usize) -> Result<(), Reason> {
        self.steps
            .set(self.steps.get().saturating_sub(steps as u64));
        match self.is_exhausted() {
            true => Err("the configuration is too large".to_owned()),
            false => Ok(()),
        }
    }

    /// Returns true if no step is left.
    pub(super) fn is_exhausted(&self) -> bool {
        self.steps.get() == 0
    }

    /// Takes the steps for the search of an origin, whose table is compared with those of all others.
    pub(super) fn spend_for_origin(&self) -> Result<(), Reason> {
        let seen = self.proxies_seen.get() + 1;
        self.proxies_seen.set(seen);
        self.spend(seen.saturating_mul(seen) / 8)
    }

    fn spend_for<A: Clone + PartialEq, B: Clone + PartialEq>(
        &self,
        a: &Decision<A>,
        b: &Decision<B>,
    ) -> Result<(), Reason> {
        let both = size(a) + size(b);
        self.spend(both.saturating_mul(both))
    }

    /// Returns the requests of two decisions.
    pub(super) fn both(
        &self,
        a: &Decision<bool>,
        b: &Decision<bool>,
    ) -> Result<Decision<bool>, Reason> {
        self.spend_for(a, b)?;
        statable(a.and(b)?)
    }

    /// Returns the requests of the second decision without those of the first one.
    pub(super) fn without(
        &self,
        a: &Decision<bool>,
        b: &Decision<bool>,
    ) -> Result<Decision<bool>, Reason> {
        self.both(&a.not(), b)
    }

    /// Returns the requests of one of two decisions.
    pub(super) fn either(
        &self,
        a: &Decision<bool>,
        b: &Decision<bool>,
    ) -> Result<Decision<bool>, Reason> {
        self.spend_for(a, b)?;
        statable(a.or(b)?)
    }

    /// States a setting of the whole edge. The first line of the input counts.
    pub(super) fn fact(
        &self,
        table: &'static str,
        key: &'static str,
        value: String,
        from: Option<&Directive>,
    ) {
        let mut facts = self.facts.borrow_mut();
        let facts = facts
            .entry(table)
            .or_insert_with(|| Table::new(&format!("[{table}]")));
        facts.set(key, value, from.map(|from| &from.at));
        if let Some(from) = from {
            self.ledger.translated(from, &format!("{table}.{key}"));
        }
    }
}

/// Returns the number of texts and conditions of a decision.
fn size<T: Clone + PartialEq>(decision: &Decision<T>) -> usize {
    let layers = decision.layers().iter().map(|(when, _)| {
        let lists = [
            &when.paths,
            &when.regexes,
            &when.methods,
            &when.cookies,
            &when.parameters,
            &when.clients,
        ];
        let lists = lists.into_iter().chain(when.headers.values());
        1 + lists.map(Vec::len).sum::<usize>()
    });
    layers.sum()
}

/// The rules of a host while they are made.
pub(super) struct Site<'e, 't> {
    pub(super) translator: &'e Translator,
    pub(super) host: &'e Host,
    /// The named matchers of the block and of those around it.
    pub(super) matchers: BTreeMap<&'t str, &'t Directive>,
    /// Requests that no directive has proxied.
    pub(super) running: Decision<bool>,
    /// Requests that the edge answers itself. The other settings do not matter to them.
    pub(super) answered: Decision<bool>,
    pub(super) settings: BTreeMap<Key, Decision<Option<Setting>>>,
    /// The options of the global `cache`, which those of a site override.
    pub(super) global_cache: &'t [Directive],
    /// Requests that bypass the cache, whatever other directives state.
    pub(super) uncached: Vec<(Decision<bool>, Option<Position>)>,
    /// The start of the path that `handle_path` removes, in lower case.
    pub(super) prefix: String,
    /// Requests whose path a directive has replaced.
    pub(super) rewritten: Decision<bool>,
    /// The names of request fields that a directive has changed, in lower case, and [`METHOD`].
    pub(super) changed_fields: BTreeSet<String>,
}

impl<'e, 't> Site<'e, 't> {
    /// Returns a host without rules.
    pub(super) fn new(translator: &'e Translator, host: &'e Host) -> Self {
        Self {
            translator,
            host,
            matchers: BTreeMap::new(),
            running: Decision::always(true),
            answered: Decision::always(false),
            settings: BTreeMap::new(),
            global_cache: &[],
            uncached: Vec::new(),
            prefix: String::new(),
            rewritten: Decision::always(false),
            changed_fields: BTreeSet::new(),
        }
    }

    /// States a key for some requests.
    pub(super) fn set(
        &mut self,
        key: Key,
        path: &Decision<bool>,
        value: Value,
        from: Option<&Position>,
    ) -> Result<(), Reason> {
        let from = from.cloned();
        let stated = Decision::always(Some(Setting { value, from }));
        let known = self.settings.get(&key).cloned();
        let known = known.unwrap_or_else(|| Decision::always(None));
        self.translator.spend_for(path, &known)?;
        let stated = statable(Decision::select(path, &stated, &known)?)?;
        self.settings.insert(key, stated);
        Ok(())
    }

    /// States a key for some requests, or for all if no rule can state these.
    fn set_at_least(
        &mut self,
        key: Key,
        path: &Decision<bool>,
        value: &str,
        from: Option<&Position>,
    ) {
        let toml = Value::Toml(value.to_owned());
        if self.set(key.clone(), path, toml.clone(), from).is_err() {
            let from = from.cloned();
            let all = Decision::always(Some(Setting { value: toml, from }));
            self.settings.insert(key, all);
        }
    }

    /// Denies requests, whatever other directives state: a denial precedes all other answers of the edge.
    pub(super) fn close(&mut self, requests: &Decision<bool>, from: &Position) {
        self.set_at_least(Key::One("deny"), requests, "403", Some(from));
    }

    /// Lets the requests of [`uncached`](Self::uncached) bypass the cache.
    pub(super) fn state_uncached(&mut self) {
        for (requests, from) in std::mem::take(&mut self.uncached) {
            self.set_at_least(Key::One("pass"), &requests, "true", from.as_ref());
        }
    }

    /// States a key with a value in TOML.
    pub(super) fn state(
        &mut self,
        key: &'static str,
        path: &Decision<bool>,
        value: impl Into<String>,
        from: &Directive,
    ) -> Result<(), Reason> {
        let value = Value::Toml(value.into());
        self.set(Key::One(key), path, value, Some(&from.at))
    }

    /// States the change of a field.
    pub(super) fn change(
        &mut self,
        group: &'static str,
        path: &Decision<bool>,
        value: Value,
        from: &Directive,
    ) -> Result<(), Reason> {
        let (Value::SetField(name, _)
        | Value::AddField(name, _)
        | Value::RemoveField(name)
        | Value::KeepField(name)) = &value
        else {
            return Ok(());
        };
        let key = Key::Field(group, name.to_ascii_lowercase());
        self.set(key, path, value, Some(&from.at))
    }

    /// Returns the requests that no earlier directive answers, and records that this one does.
    pub(super) fn answer(&mut self, path: &Decision<bool>) -> Result<Decision<bool>, Reason> {
        let reached = self.translator.without(&self.answered, path)?;
        self.answered = self.translator.either(&self.answered, &reached)?;
        Ok(reached)
    }

    /// Ends the handling of requests.
    pub(super) fn end(&mut self, path: &Decision<bool>) -> Result<(), Reason> {
        self.running = self.translator.without(path, &self.running)?;
        Ok(())
    }

    /// Records that the path of requests differs from the one that the client sent.
    pub(super) fn replace_path(&mut self, requests: &Decision<bool>) {
        let both = self.translator.either(&self.rewritten, requests);
        self.rewritten = both.unwrap_or_else(|_| Decision::always(true));
    }

    /// Returns an error if the path of some of these requests is not the one that the client sent.
    pub(super) fn has_sent_path(&self, requests: &Decision<bool>) -> Result<(), Reason> {
        if self.rewritten.is_never() {
            return Ok(());
        }
        let translator = self.translator;
        let left = translator.both(&self.rewritten, &self.running);
        let left = left.and_then(|left| translator.both(&left, requests));
        match left {
            Ok(left) if left.is_never() => Ok(()),
            _ => Err(
                "a directive in front of it changes the path, and rules compare that of the client"
                    .to_owned(),
            ),
        }
    }
}

impl std::fmt::Debug for Site<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Site")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}
