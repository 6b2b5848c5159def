//! Sites: one for each group of hosts for which the subroutines do the same.

use std::collections::BTreeMap;

use super::answers::PURGE_METHODS;
use super::host_names;
use super::lifetimes::{ByStatus, Lifetimes, in_toml};
use super::origins;
use super::state::{Machine, Phase, Setting};
use super::translator::Translator;
use crate::decision::Decision;
use crate::error::{MigrateError, SITE_RULES_MAX};
use crate::hosts::Host;
use crate::rule::{Key, Rule, Settings, Span, Value, When, undo};
use crate::source::Position;
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
        let rules = rules(translator, &host);
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
        let rules = site.rules.len() - 1;
        if rules > SITE_RULES_MAX {
            return Err(MigrateError::TooManyRules {
                host: names[0].clone(),
                server: file.to_owned(),
                rules,
            });
        }
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
    machine.run("vcl_hash", Phase::Hash);
    for name in ["vcl_miss", "vcl_pass", "vcl_backend_fetch"] {
        machine.run(name, Phase::Fetch);
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

/// Settings with one condition.
struct Step {
    when: When,
    settings: BTreeMap<Key, (Value, Option<Position>)>,
}

/// Joins the settings of one condition to rules, in an order in which each key has its values in theirs.
fn grouped(
    translator: &Translator<'_>,
    settings: &BTreeMap<Key, Decision<Option<Setting>>>,
    lifetimes: &Decision<Lifetimes>,
) -> Vec<Rule> {
    let has_purge = translator.purgers.borrow().is_some();
    let mut rules = vec![Step {
        when: When::default(),
        settings: BTreeMap::new(),
    }];
    let mut sequences: Vec<Vec<Step>> = settings
        .iter()
        .filter(|(key, _)| !is_dependent(key))
        .map(|(key, decision)| sequence(key, decision, settings))
        .collect();
    sequences.push(lifetime_steps(lifetimes, "ttl", |lifetimes| &lifetimes.ttl));
    sequences.push(lifetime_steps(lifetimes, "default_ttl", |lifetimes| {
        &lifetimes.default_ttl
    }));
    for sequence in sequences {
        let mut next = 0;
        for step in sequence {
            let is_purge = has_purge
                && !step.when.methods.is_empty()
                && step
                    .when
                    .methods
                    .iter()
                    .all(|method| PURGE_METHODS.contains(&method.as_str()));
            if is_purge {
                continue;
            }
            let found = (next..rules.len()).find(|position| rules[*position].when == step.when);
            match found {
                Some(position) => {
                    rules[position].settings.extend(step.settings);
                    next = position + 1;
                }
                None => {
                    rules.push(step);
                    next = rules.len();
                }
            }
        }
    }
    rules.into_iter().map(rule).collect()
}

/// Keys that mean nothing without another key of the same rule.
fn is_dependent(key: &Key) -> bool {
    matches!(
        key,
        Key::One("redirect_status" | "rate_limit_burst" | "rate_limit_by")
    )
}

/// Returns the values of a key in their order.
fn sequence(
    key: &Key,
    decision: &Decision<Option<Setting>>,
    settings: &BTreeMap<Key, Decision<Option<Setting>>>,
) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut earlier = Settings::default();
    for (when, setting) in decision.layers() {
        let mut of_step = BTreeMap::new();
        match setting {
            Some(Setting { value, from }) => {
                earlier.0.insert(key.clone(), (value.clone(), from.clone()));
                of_step.insert(key.clone(), (value.clone(), from.clone()));
            }
            None if earlier.0.is_empty() => continue,
            None => {
                let (key, value) = undo(key, &earlier, "\"none\"");
                of_step.insert(key, (value, None));
            }
        }
        if setting.is_some() {
            for dependent in dependents(key) {
                let known = settings.get(&Key::One(dependent));
                let layers = known.into_iter().flat_map(|known| known.layers());
                let mut of_layer = layers.filter(|(of_layer, _)| of_layer == when);
                if let Some((_, Some(Setting { value, from }))) = of_layer.next_back() {
                    of_step.insert(Key::One(dependent), (value.clone(), from.clone()));
                }
            }
        }
        steps.push(Step {
            when: when.clone(),
            settings: of_step,
        });
    }
    steps
}

fn dependents(key: &Key) -> &'static [&'static str] {
    match key {
        Key::One("redirect") => &["redirect_status"],
        Key::One("rate_limit") => &["rate_limit_burst", "rate_limit_by"],
        _ => &[],
    }
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
        let times = |values: &Self| -> Vec<(String, u64)> {
            let entries = values.0.iter();
            entries
                .map(|(key, (time, _))| (key.clone(), *time))
                .collect()
        };
        times(self) == times(other)
    }
}

fn rule(step: Step) -> Rule {
    let mut lines: Vec<&Position> = step
        .settings
        .values()
        .filter_map(|(_, from)| from.as_ref())
        .collect();
    lines.sort();
    let comment = match lines.first() {
        Some(line) => format!("from {line}"),
        None => "restores settings of the site".to_owned(),
    };
    Rule {
        comment,
        when: step.when,
        span: Span::Any,
        settings: Settings(step.settings),
        is_whole: false,
    }
}
