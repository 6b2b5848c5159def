//! The sites of the configuration file: `[[site]]`, and its rules `[[site.rule]]`.
//!
//! The tables of other settings have one value for each key. A site has lists, maps with names that the operator
//! chooses, and rules, so it has a list of keys of its own ([`keys`]). Each [`SiteKey`](row::SiteKey) reads its value
//! into a draft. When the whole file is read, [`build`](build::build) checks the sites together and makes the [`Sites`]
//! of the edge.
//!
//! [`Sites`]: edgeward_sites::Sites

mod answers;
mod build;
mod caching;
mod conditions;
mod draft;
mod fields;
mod hosts;
mod keys;
mod loops;
mod placement;
mod query;
mod reader;
mod reference;
mod replace;
mod row;
mod values;

use std::collections::HashSet;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::setting::SettingSource;
use super::source::SourceText;
use crate::diagnostic::Diagnostic;
pub(super) use build::build;
use draft::RuleDraft;
pub(super) use draft::SiteDraft;
pub(crate) use draft::{SiteSummary, TableText};
use keys::{Level, RULE};
use reader::{Entry, Reader};
pub(super) use reference::{markdown as reference_markdown, wrap};
use row::Read;

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
