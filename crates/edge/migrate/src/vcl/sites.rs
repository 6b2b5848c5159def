//! Sites: one for each group of hosts for which the subroutines do the same.

use std::collections::BTreeMap;

use super::host_names;
use super::lifetimes::{ByStatus, Lifetimes, in_toml, is_equal};
use super::origins;
use super::state::{Machine, Phase};
use super::translator::Translator;
use crate::decision::Decision;
use crate::error::{MigrateError, SITE_RULES_MAX};
use crate::grouping::{self, Setting, Step};
use crate::hosts::Host;
use crate::rule::{Key, Rule, Value};
use crate::toml::{self, Table};

/// A group of hosts with the same rules.
struct Site {
    hosts: Vec<Host>,
    /// The first rule has no condition and belongs to the site itself.
    rules: Vec<Rule>,
}

/// Returns the tables of all sites.
pub(super) fn tables(translator: &Translator<'_>, file: &str) -> Result<Vec<Table>, MigrateError> {
    let mut sites: Vec<Site> = Vec::new();
    for host in host_names::hosts(translator.tree) {
        let is_left = translator.spend_walk();
        let rules = rules(translator, &host);
        if !is_left || translator.is_exhausted() {
            return Err(MigrateError::TooComplex {
                host: host.text(),
                server: file.to_owned(),
            });
        }
        // The first rule belongs to the site itself.
        let count = rules.len() - 1;
        if count > SITE_RULES_MAX {
            return Err(MigrateError::TooManyRules {
                host: host.text(),
                server: file.to_owned(),
                rules: count,
            });
        }
        match sites.iter_mut().find(|site| site.rules == rules) {
            Some(site) => site.hosts.push(host),
            None => sites.push(Site {
                hosts: vec![host],
                rules,
            }),
        }
    }
    let mut tables = Vec::new();
    for site in sites {
        let names: Vec<String> = site.hosts.iter().map(Host::text).collect();
        let mut table = Table::new("[[site]]");
        table.set("hosts", toml::array(&names), None);
        let (own, rest) = site.rules.split_at(1);
        own.iter().for_each(|rule| rule.write_into_site(&mut table));
        tables.push(table);
        tables.extend(rest.iter().map(Rule::table));
    }
    Ok(tables)
}

/// Runs all subroutines for a host, and returns the rules.
fn rules(translator: &Translator<'_>, host: &Host) -> Vec<Rule> {
    let mut machine = Machine::new(translator, host);
    machine.run("vcl_recv", Phase::Request);
    machine.builtin_recv();
    machine.hash();
    for name in ["vcl_hit", "vcl_miss", "vcl_pass", "vcl_backend_fetch"] {
        if name != "vcl_hit" || translator.restricts(name) {
            machine.run(name, Phase::Fetch);
        }
    }
    let lifetimes = machine.responses();
    machine.field_settings();
    machine.run("vcl_deliver", Phase::Deliver);
    let mut settings = std::mem::take(&mut machine.settings);
    let origin = settings
        .entry(Key::One("origin"))
        .or_insert_with(|| Decision::always(None));
    let is_chosen = origin.layers().iter().all(|(_, setting)| setting.is_some());
    if !is_chosen && let Ok(name) = origins::of_default(translator) {
        let value = Value::Toml(toml::text(&name));
        let default = Setting { value, from: None };
        *origin = origin.map(|setting| setting.clone().or_else(|| Some(default.clone())));
    }
    for (key, list) in std::mem::take(&mut machine.lists) {
        let from = list.from;
        let stated = list.members.map(|members| match members.is_empty() {
            true => None,
            false => Some(Setting {
                value: Value::Toml(toml::array(members)),
                from: Some(from.clone()),
            }),
        });
        settings.insert(Key::One(key), stated);
    }
    grouped(translator, &settings, &lifetimes)
}

/// Joins the settings of one condition to rules.
fn grouped(
    translator: &Translator<'_>,
    settings: &BTreeMap<Key, Decision<Option<Setting>>>,
    lifetimes: &Decision<Lifetimes>,
) -> Vec<Rule> {
    let lenient = grouping::lenient_answers(settings);
    translator.ledger.lenient(translator.tree, &lenient);
    let mut sequences = grouping::sequences(settings);
    sequences.push(lifetime_steps(lifetimes, "ttl", |lifetimes| &lifetimes.ttl));
    sequences.push(lifetime_steps(lifetimes, "default_ttl", |lifetimes| {
        &lifetimes.default_ttl
    }));
    if translator.purgers.borrow().is_some() {
        // The edge answers requests that purge before it applies rules.
        for sequence in &mut sequences {
            sequence.retain(|step| !translator.is_purge(&step.when.methods));
        }
    }
    grouping::rules(sequences)
}

/// Returns the lifetimes in their order. A rule keeps statuses of earlier rules, so it undoes those that it does not
/// state.
fn lifetime_steps(
    lifetimes: &Decision<Lifetimes>,
    key: &'static str,
    map: fn(&Lifetimes) -> &ByStatus,
) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut earlier: Vec<String> = Vec::new();
    let decision = lifetimes.map(|lifetimes| Values(map(lifetimes).clone()));
    for (when, Values(values)) in decision.layers() {
        if earlier.iter().any(|status| !values.contains_key(status)) {
            let off = (Value::Toml("false".to_owned()), None);
            steps.push(Step {
                when: when.clone(),
                settings: [(Key::One(key), off)].into(),
            });
        }
        if values.is_empty() {
            continue;
        }
        let stated = values.iter().map(|(status, (time, from))| {
            let value = Value::Toml(in_toml(*time));
            (Key::Status(key, status.clone()), (value, from.clone()))
        });
        steps.push(Step {
            when: when.clone(),
            settings: stated.collect(),
        });
        earlier.extend(
            values
                .keys()
                .filter(|status| !earlier.contains(status))
                .cloned()
                .collect::<Vec<_>>(),
        );
    }
    steps
}

/// Lifetimes that are equal without their lines.
#[derive(Clone, Debug)]
struct Values(ByStatus);

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        is_equal(&self.0, &other.0)
    }
}
