//! The list of the keys of `[[site]]` and `[[site.rule]]`: path, type, default, example and description.
//!
//! The reader of the file, the hints for misspelt keys and docs/reference/configuration.md use this list. A rule's
//! settings can also be written in `[[site]]`.

use strsim::osa_distance;
use toml::de::{DeTable, DeValue};

use super::reader::{Entry, Reader};
use super::row::{Read, SiteKey};
use super::{answers, caching, conditions, fields, hosts, placement, query, replace};
use crate::config::nearest::tolerance;
use crate::diagnostic::Diagnostic;

/// The two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Site,
    Rule,
}

impl Level {
    pub(super) const fn table(self) -> &'static str {
        match self {
            Self::Site => "[[site]]",
            Self::Rule => "[[site.rule]]",
        }
    }

    fn accepts(self, key: &SiteKey) -> bool {
        match key.read {
            Read::Site(_) => self == Self::Site,
            Read::Condition(_) => self == Self::Rule,
            Read::Setting(_) => true,
        }
    }
}

/// All keys, in the order of the reference. Values are read in this order, so that a key can use those before it: a
/// template uses the regular expression of its rule.
pub(super) fn all() -> impl Iterator<Item = &'static SiteKey> {
    [
        hosts::KEYS,
        conditions::KEYS,
        answers::KEYS,
        caching::KEYS,
        placement::KEYS,
        query::KEYS,
        fields::KEYS,
        replace::KEYS,
    ]
    .into_iter()
    .flatten()
}

/// Returns the keys of a table with their values, in the order of the list. Reports unknown keys.
pub(super) fn entries<'t>(
    table: &'t DeTable<'t>,
    level: Level,
    reader: &mut Reader<'_>,
) -> Vec<(&'static SiteKey, Entry<'t>)> {
    let mut found = Vec::new();
    collect(table, "", level, reader, &mut found);
    found.sort_by_key(|(position, _, _)| *position);
    found
        .into_iter()
        .map(|(_, key, entry)| (key, entry))
        .collect()
}

/// Adds the keys of a table that begins with `prefix`, such as `query.`.
fn collect<'t>(
    table: &'t DeTable<'t>,
    prefix: &str,
    level: Level,
    reader: &mut Reader<'_>,
    found: &mut Vec<(usize, &'static SiteKey, Entry<'t>)>,
) {
    for (name, value) in table {
        if level == Level::Site && prefix.is_empty() && name.get_ref() == RULE {
            continue;
        }
        let path = format!("{prefix}{}", name.get_ref());
        let known = all().enumerate().find(|(_, key)| key.path == path);
        if let Some((position, key)) = known.filter(|(_, key)| level.accepts(key)) {
            let entry = Entry::new(path, value, &name.span(), reader);
            found.push((position, key, entry));
            continue;
        }
        let group = format!("{path}.");
        if let Some(member) = all().find(|key| key.path.starts_with(&group)) {
            match value.get_ref() {
                DeValue::Table(inner) => collect(inner, &group, level, reader, found),
                _ => {
                    let entry = Entry::new(path, value, &name.span(), reader);
                    let example = format!("a key such as {}", member.path);
                    reader.reject_type(&entry, "a table", &example);
                }
            }
            continue;
        }
        let hint = match known {
            Some(_) if level == Level::Site => {
                "write it in a [[site.rule]]: a site applies to all requests of its hosts"
                    .to_owned()
            }
            Some(_) => "write it in [[site]]: it concerns all requests of a site".to_owned(),
            None => hint(&path, level),
        };
        let message = format!("unknown key {path} in {}", level.table());
        let line = reader.line(&name.span());
        reader.report(line, Diagnostic::new(message).hint(hint));
    }
}

/// A hint for a key that does not exist. Keys of the other table count as well: the next message says where they
/// belong.
fn hint(unknown: &str, level: Level) -> String {
    let leaf_of = |path: &str| path.rsplit('.').next().map(str::to_owned);
    let group_of = |path: &'static str| path.split('.').next().unwrap_or(path);
    let nearest = all()
        .flat_map(|key| [key.path, group_of(key.path)])
        .map(|known| {
            // A known name without its group has the distance of one wrong letter.
            let distance = if leaf_of(known) == leaf_of(unknown) {
                1
            } else {
                osa_distance(unknown, known)
            };
            (distance, known)
        })
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= tolerance(unknown));
    match nearest {
        Some((_, known)) => format!("did you mean {known}?"),
        None => format!(
            "`edgeward check-config --reference` lists the keys of {}",
            level.table()
        ),
    }
}

/// The key of a site that has its rules.
pub(super) const RULE: &str = "rule";
