//! Reads the configuration of a running edge again, and applies it as a whole or not at all.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use edgeward_proxy::Reloader;
use edgeward_types::with_causes;

use crate::acme::AcmeService;
use crate::acme_settings::AcmeGroup;
use crate::config::{self, FlagSetting, Setting, SiteSummary, TableText};
use crate::diagnostic;
use crate::fleet::FleetService;
use crate::negative::{self, NegativeSettings};
use crate::service;
use crate::stated::stated;

/// The source of the configuration of a running edge, and the settings that it has now.
pub(crate) struct ReloadableConfig {
    file: PathBuf,
    flags: Vec<FlagSetting>,
    reloader: Reloader,
    acme: Arc<AcmeService>,
    fleet: Arc<FleetService>,
    /// The configuration of the last reload. Locked during a reload, so that two reloads follow each other.
    applied: Mutex<Applied>,
}

/// The parts of a configuration with which the next one is compared.
pub(crate) struct Applied {
    pub(crate) settings: Vec<Setting>,
    pub(crate) sites: Vec<SiteSummary>,
    /// The rules of id filters whose filters are followed.
    pub(crate) negative: Vec<NegativeSettings>,
    /// The names whose certificates are renewed.
    pub(crate) acme: Vec<AcmeGroup>,
}

impl ReloadableConfig {
    pub(crate) fn new(
        file: PathBuf,
        flags: Vec<FlagSetting>,
        applied: Applied,
        acme: Arc<AcmeService>,
        fleet: Arc<FleetService>,
        reloader: Reloader,
    ) -> Self {
        Self {
            file,
            flags,
            reloader,
            acme,
            fleet,
            applied: Mutex::new(applied),
        }
    }

    /// Reads the file, checks it, applies it and logs the differences. Returns the differences, or the reason why
    /// nothing has changed: each error with its file and line.
    pub(crate) fn reload(&self) -> Result<Vec<String>, String> {
        service::reloading();
        let reloaded = self.try_reload();
        service::ready(match &reloaded {
            Ok(_) => "serving",
            Err(_) => "serving; the last reload was refused",
        });
        match &reloaded {
            Ok(changes) => {
                for change in changes {
                    tracing::info!("reload: {change}");
                }
                tracing::info!(changes = changes.len(), "the configuration was reloaded");
            }
            Err(error) => {
                self.reloader.count_refused();
                tracing::error!(
                    "the configuration was not reloaded, and nothing has changed: {error}"
                );
            }
        }
        reloaded
    }

    fn try_reload(&self) -> Result<Vec<String>, String> {
        let mut applied = self
            .applied
            .lock()
            .map_err(|_| "an earlier reload panicked".to_owned())?;
        let checked = config::load(Some(&self.file), &self.flags)
            .map_err(|error| diagnostic::on_one_line(&anyhow::Error::from(error)))?;
        let mut edge = checked.edge;
        let running = self.reloader.config();
        edge.stated = stated(
            &checked.settings,
            &checked.sites,
            Some(&self.file),
            &running.stated,
        );
        // The filters of unchanged rules stay loaded. The links are those of the start.
        edge.negative = match format!("{:?}", applied.negative) == format!("{:?}", checked.negative)
        {
            true => running.negative,
            false => negative::start(&checked.negative).map_err(|error| format!("{:#}", error))?,
        };
        for origin in &mut edge.origins {
            let started = running.origins.iter();
            let mut started = started.filter(|started| started.name == origin.name);
            origin.dial = started.next().and_then(|started| started.dial.clone());
        }
        // Without its link, the edge would send the requests for the origin to the host of its URL.
        let unlinked = checked.links.iter().find(|(name, _)| {
            let origin = edge.origins.iter().find(|origin| origin.name == *name);
            origin.is_some_and(|origin| origin.dial.is_none())
        });
        if let Some((name, _)) = unlinked {
            return Err(format!(
                "the link of the origin {name} is new: a link starts with the edge, so restart or upgrade it"
            ));
        }
        if checked.announces != self.fleet.announces() {
            let text = "the members of the fleet were listed before and now announce themselves, or the reverse: \
                        restart or upgrade the edge";
            return Err(text.to_owned());
        }
        edge.certificates = match applied.acme == checked.acme {
            true => running.certificates,
            false => {
                let source = self.acme.apply(&checked.acme);
                source.map_err(|error| format!("{error:#}"))?
            }
        };
        if let Err(error) = self.fleet.reload(&self.reloader, &mut edge) {
            if applied.acme != checked.acme {
                _ = self.acme.apply(&applied.acme);
            }
            return Err(with_causes(&error));
        }
        let mut changes = differences(&applied.settings, &checked.settings);
        changes.extend(site_differences(&applied.sites, &checked.sites));
        *applied = Applied {
            settings: checked.settings,
            sites: checked.sites,
            negative: checked.negative,
            acme: checked.acme,
        };
        Ok(changes)
    }
}

/// Returns the settings that differ, one line each. A setting that a reload does not change says so.
fn differences<'s>(old: &'s [Setting], new: &'s [Setting]) -> Vec<String> {
    let find = |settings: &'s [Setting], key: &str| settings.iter().find(|s| s.key == key);
    let text = |setting: Option<&Setting>| {
        setting.map_or_else(|| "not set".to_owned(), |setting| setting.value.clone())
    };
    let mut keys: Vec<&str> = old.iter().chain(new).map(|setting| &*setting.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let changed = keys.into_iter().filter_map(|key| {
        let (before, after) = (find(old, key), find(new, key));
        let when = match after.or(before).is_some_and(|setting| setting.is_live) {
            true => "",
            false => ", from the next start on",
        };
        let (before, after) = (text(before), text(after));
        (before != after).then(|| format!("{key}: {before} -> {after}{when}"))
    });
    changed.collect()
}

/// Returns the differences of sites and rules, one line each. Sites are compared by their hosts, and the rules of a
/// site in their order: equal rules at both ends are left out, and the others are changed, added or removed.
fn site_differences(old: &[SiteSummary], new: &[SiteSummary]) -> Vec<String> {
    let mut lines = Vec::new();
    let name = |site: &SiteSummary| site.hosts.join(", ");
    for site in old {
        if !new.iter().any(|other| other.hosts == site.hosts) {
            lines.push(format!("site {}: removed", name(site)));
        }
    }
    for site in new {
        let Some(before) = old.iter().find(|other| other.hosts == site.hosts) else {
            let rules = site.rules;
            lines.push(format!("site {}: added with {rules} rules", name(site)));
            continue;
        };
        let name = format!("site {}", name(site));
        let (own, rules) = (&site.tables[0], &site.tables[1..]);
        lines.extend(table_differences(&name, &before.tables[0], own));
        let mut before = &before.tables[1..];
        let mut after = rules;
        while let ([first, old_rest @ ..], [other, new_rest @ ..]) = (before, after)
            && first.keys == other.keys
        {
            (before, after) = (old_rest, new_rest);
        }
        while let ([old_rest @ .., last], [new_rest @ .., other]) = (before, after)
            && last.keys == other.keys
        {
            (before, after) = (old_rest, new_rest);
        }
        let both = before.len().min(after.len());
        for (first, other) in before.iter().zip(after) {
            let name = format!("{name}, rule in line {}", other.line);
            lines.extend(table_differences(&name, first, other));
        }
        for rule in &before[both..] {
            lines.push(format!("{name}: rule removed: {}", text_of(rule)));
        }
        for rule in &after[both..] {
            let line = rule.line;
            lines.push(format!(
                "{name}, rule in line {line}: added: {}",
                text_of(rule)
            ));
        }
    }
    lines
}

/// Returns the keys of a table that differ, one line each.
fn table_differences(name: &str, old: &TableText, new: &TableText) -> Vec<String> {
    let value = |table: &TableText, key: &str| {
        let found = table.keys.iter().find(|(known, _)| known == key);
        found.map_or_else(|| "not set".to_owned(), |(_, value)| value.clone())
    };
    let mut keys: Vec<&str> = old
        .keys
        .iter()
        .chain(&new.keys)
        .map(|(key, _)| &**key)
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let changed = keys.into_iter().filter_map(|key| {
        let (before, after) = (value(old, key), value(new, key));
        (before != after).then(|| format!("{name}: {key}: {before} -> {after}"))
    });
    changed.collect()
}

fn text_of(rule: &TableText) -> String {
    let keys = rule
        .keys
        .iter()
        .map(|(key, value)| format!("{key} = {value}"));
    keys.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SettingSource;

    fn setting(key: &str, value: &str) -> Setting {
        Setting {
            key: key.to_owned(),
            value: value.to_owned(),
            source: SettingSource::Default,
            is_live: !key.starts_with("hot."),
        }
    }

    #[test]
    fn differences_name_the_key_both_values_and_when_they_count() {
        let old = [
            setting("hot.capacity", "256MiB"),
            setting("caching.set_cookie", "refuse"),
            setting("server.name", "edgeward"),
        ];
        let new = [
            setting("hot.capacity", "1GiB"),
            setting("caching.set_cookie", "strip"),
            setting("server.name", "edgeward"),
            setting("listener[1].address", "127.0.0.1:81"),
        ];
        assert_eq!(
            differences(&old, &new),
            [
                "caching.set_cookie: refuse -> strip",
                "hot.capacity: 256MiB -> 1GiB, from the next start on",
                "listener[1].address: not set -> 127.0.0.1:81",
            ]
        );
    }

    fn table(line: usize, keys: &[(&str, &str)]) -> TableText {
        let keys = keys
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        TableText {
            line,
            keys: keys.collect(),
        }
    }

    fn site(host: &str, tables: &[TableText]) -> SiteSummary {
        SiteSummary {
            hosts: vec![host.to_owned()],
            rules: tables.len() - 1,
            line: tables[0].line,
            tables: tables.to_vec(),
        }
    }

    /// A rule that only moves to another line is no difference.
    #[test]
    fn differences_of_sites_name_the_host_and_the_line_of_the_rule() {
        let images = |line| table(line, &[("path", "\"/img/*\""), ("ttl", "\"7d\"")]);
        let api = |line, ttl| table(line, &[("path", "\"/api/*\""), ("ttl", ttl)]);
        let old = [
            site(
                "a.example",
                &[
                    table(1, &[("origin", "\"web\"")]),
                    images(3),
                    api(6, "\"1s\""),
                ],
            ),
            site("b.example", &[table(9, &[])]),
        ];
        let new = [
            site("a.example", &[table(2, &[]), images(4), api(7, "\"2s\"")]),
            site("c.example", &[table(9, &[]), images(11)]),
        ];
        assert_eq!(
            site_differences(&old, &new),
            [
                "site b.example: removed",
                "site a.example: origin: \"web\" -> not set",
                "site a.example, rule in line 7: ttl: \"1s\" -> \"2s\"",
                "site c.example: added with 1 rules",
            ]
        );
        let fewer = [site("a.example", &[table(2, &[]), api(4, "\"2s\"")])];
        let removed = site_differences(&new[..1], &fewer);
        assert_eq!(
            removed,
            ["site a.example: rule removed: path = \"/img/*\", ttl = \"7d\""]
        );
        let added = site_differences(&fewer, &new[..1]);
        assert_eq!(
            added,
            ["site a.example, rule in line 4: added: path = \"/img/*\", ttl = \"7d\""]
        );
        assert!(site_differences(&new, &new).is_empty());
    }
}
