//! The sites of the configuration file: `[[site]]`, and its rules `[[site.rule]]`.
//!
//! The tables of other settings have one value for each key. A site has lists, maps with names that the operator
//! chooses, and rules, so it has a list of keys of its own ([`keys`]). Each [`SiteKey`](keys::SiteKey) reads its value
//! into a draft. When the whole file is read, [`build`](build::build) checks the sites together and makes the [`Sites`]
//! of the edge.
//!
//! [`Sites`]: edgeward_sites::Sites

mod answers;
mod build;
mod caching;
mod conditions;
mod fields;
mod keys;
mod loops;
mod placement;
mod query;
mod reader;
mod reference;
mod replace;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use edgeward_sites::{Condition, HostPattern, Settings};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::setting::SettingSource;
use super::source::SourceText;
use crate::diagnostic::Diagnostic;
pub(super) use build::build;
use keys::{Level, Read};
use reader::{Entry, Reader};
pub(super) use reference::{markdown as reference_markdown, wrap};

/// One `[[site]]`, possibly incomplete.
#[derive(Debug, Default)]
pub(super) struct SiteDraft {
    /// The line in which the site begins.
    line: usize,
    /// The hosts, and their lines.
    hosts: Vec<(HostPattern, usize)>,
    /// The line in which the site gets all other hosts.
    serves_others: Option<usize>,
    certificates: Option<(PathBuf, usize)>,
    key: Option<(PathBuf, usize)>,
    ocsp: Option<(PathBuf, usize)>,
    /// The settings of the site itself, as a rule without conditions.
    own: RuleDraft,
    rules: Vec<RuleDraft>,
}

/// One `[[site.rule]]`, possibly incomplete.
#[derive(Debug, Default)]
pub(super) struct RuleDraft {
    /// The line in which the rule begins.
    line: usize,
    condition: Condition,
    settings: Settings,
    /// The name of the origin, and its line.
    origin: Option<(String, usize)>,
    /// The line of `id_filter`.
    id_filter_line: Option<usize>,
    /// The paths of the keys that are given, also of those with invalid values.
    given: Vec<&'static str>,
    /// The keys and values as in the file, for the list of a reload's changes.
    texts: Vec<(String, String)>,
}

/// A site for the list of `check-config`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct SiteSummary {
    /// The hosts as in the file, in the canonical form.
    pub(crate) hosts: Vec<String>,
    /// The number of rules.
    pub(crate) rules: usize,
    /// The line in which the site begins.
    pub(crate) line: usize,
    /// The keys of the site and then of each rule, for the list of a reload's changes.
    #[serde(skip)]
    pub(crate) tables: Vec<TableText>,
}

/// The keys of a `[[site]]` or `[[site.rule]]` as in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableText {
    /// The line in which the table begins.
    pub(crate) line: usize,
    /// The keys with their values.
    pub(crate) keys: Vec<(String, String)>,
}

impl SiteDraft {
    /// The name of the site: its first host.
    fn name(&self) -> String {
        match self.hosts.first() {
            Some((host, _)) => host.to_string(),
            None => OTHER_HOSTS.to_owned(),
        }
    }

    pub(super) fn summary(&self) -> SiteSummary {
        let others = self.serves_others.map(|_| OTHER_HOSTS.to_owned());
        let hosts = self.hosts.iter().map(|(host, _)| host.to_string());
        SiteSummary {
            hosts: hosts.chain(others).collect(),
            rules: self.rules.len(),
            line: self.line,
            tables: std::iter::once((self.line, &self.own))
                .chain(self.rules.iter().map(|rule| (rule.line, rule)))
                .map(|(line, rule)| TableText {
                    line,
                    keys: rule.texts.clone(),
                })
                .collect(),
        }
    }
}

impl RuleDraft {
    fn is_given(&self, path: &str) -> bool {
        self.given.contains(&path)
    }
}

/// The entry in `hosts` for all hosts that belong to no other site.
const OTHER_HOSTS: &str = "*";

/// Reads the value of the key `site`: an array of tables, or one table. Errors of lines in `lines_with_errors` are not
/// reported, because the TOML parser has guessed the values of these lines.
pub(super) fn read(
    value: &Spanned<DeValue<'_>>,
    source: &SourceText<'_>,
    folder: &Path,
    lines_with_errors: &HashSet<usize>,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) -> Vec<SiteDraft> {
    let mut reader = Reader::new(source, folder, lines_with_errors, diagnostics);
    tables(value, "site", &mut reader)
        .into_iter()
        .map(|(table, line)| read_site(table, line, &mut reader))
        .collect()
}

/// Returns the tables of an array of tables and the lines in which they begin. One table counts as an array.
fn tables<'t>(
    value: &'t Spanned<DeValue<'t>>,
    name: &str,
    reader: &mut Reader<'_>,
) -> Vec<(&'t DeTable<'t>, usize)> {
    let mut tables = Vec::new();
    let items = match value.get_ref() {
        DeValue::Array(items) => items.iter().collect(),
        _ => vec![value],
    };
    for item in items {
        match item.get_ref() {
            DeValue::Table(table) => tables.push((table, reader.line(&item.span()))),
            _ => {
                let entry = Entry::new(name, item, &item.span(), reader);
                let hint = format!("write [[{name}]] on a line, and its keys below");
                reader.reject(&entry, "is not a table", hint);
            }
        }
    }
    tables
}

fn read_site(table: &DeTable<'_>, line: usize, reader: &mut Reader<'_>) -> SiteDraft {
    let mut site = SiteDraft {
        line,
        ..SiteDraft::default()
    };
    for (key, entry) in keys::entries(table, Level::Site, reader) {
        site.own.given.push(key.path);
        site.own.texts.push(reader.text_of(&entry));
        match key.read {
            Read::Site(read) => read(reader, &entry, &mut site),
            Read::Condition(read) | Read::Setting(read) => read(reader, &entry, &mut site.own),
        }
    }
    if let Some(value) = table.get(RULE) {
        site.rules = tables(value, "site.rule", reader)
            .into_iter()
            .map(|(table, line)| read_rule(table, line, reader))
            .collect();
    }
    site
}

/// The key of a site that has its rules.
const RULE: &str = "rule";

fn read_rule(table: &DeTable<'_>, line: usize, reader: &mut Reader<'_>) -> RuleDraft {
    let mut rule = RuleDraft {
        line,
        ..RuleDraft::default()
    };
    for (key, entry) in keys::entries(table, Level::Rule, reader) {
        rule.given.push(key.path);
        rule.texts.push(reader.text_of(&entry));
        if let Read::Condition(read) | Read::Setting(read) = key.read {
            read(reader, &entry, &mut rule);
        }
    }
    rule
}

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
