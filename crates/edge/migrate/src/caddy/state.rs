//! The state of a translation, and of the rules of one host.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::tree::Directive;
use crate::decision::Decision;
use crate::grouping::Setting;
use crate::hosts::{Host, Reason};
use crate::ledger::Ledger;
use crate::origin_list::Origins;
use crate::rule::{Key, Value};
use crate::toml::Table;

/// The state of a translation.
#[derive(Debug, Default)]
pub(super) struct Translator {
    pub(super) ledger: Ledger,
    pub(super) origins: RefCell<Origins>,
    /// Settings of the whole edge, by table.
    pub(super) facts: RefCell<BTreeMap<&'static str, Table>>,
}

impl Translator {
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

/// The rules of a host while they are made.
pub(super) struct Site<'e, 't> {
    pub(super) translator: &'e Translator,
    pub(super) host: &'e Host,
    /// The named matchers of the site.
    pub(super) matchers: BTreeMap<&'t str, &'t Directive>,
    /// Requests that no directive has proxied.
    pub(super) running: Decision<bool>,
    /// Requests that the edge answers itself. The other settings do not matter to them.
    pub(super) answered: Decision<bool>,
    pub(super) settings: BTreeMap<Key, Decision<Option<Setting>>>,
    /// The line of the directive `cache`, if the site stores responses.
    pub(super) cache: Option<&'t Directive>,
    /// The start of the path that `handle_path` removes.
    pub(super) prefix: Option<String>,
}

impl Site<'_, '_> {
    /// States a key for some requests.
    pub(super) fn set(
        &mut self,
        key: Key,
        path: &Decision<bool>,
        value: Value,
        from: Option<&Directive>,
    ) -> Result<(), Reason> {
        let from = from.map(|from| from.at.clone());
        let stated = Decision::always(Some(Setting { value, from }));
        let known = self.settings.get(&key).cloned();
        let known = known.unwrap_or_else(|| Decision::always(None));
        let stated = Decision::select(path, &stated, &known)?;
        self.settings.insert(key, stated);
        Ok(())
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
        self.set(Key::One(key), path, value, Some(from))
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
        self.set(key, path, value, Some(from))
    }

    /// Returns the requests that no earlier directive answers, and records that this one does.
    pub(super) fn answer(&mut self, path: &Decision<bool>) -> Result<Decision<bool>, Reason> {
        let reached = self.answered.not().and(path)?;
        self.answered = self.answered.or(&reached)?;
        Ok(reached)
    }

    /// Ends the handling of requests.
    pub(super) fn end(&mut self, path: &Decision<bool>) -> Result<(), Reason> {
        self.running = path.not().and(&self.running)?;
        Ok(())
    }
}

impl std::fmt::Debug for Site<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Site")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}
