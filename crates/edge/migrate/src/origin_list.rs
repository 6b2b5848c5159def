//! The origins of the result.

use crate::toml::{self, Table};

/// The origins of the result.
#[derive(Debug, Default)]
pub(super) struct Origins {
    tables: Vec<(String, Table)>,
}

impl Origins {
    /// Returns the name of an origin with these settings. Locations with the same settings share one.
    pub(super) fn name_of(&mut self, wanted: &str, table: Table) -> String {
        let values = |table: &Table| -> Vec<(String, String)> {
            let settings = table.settings.iter();
            settings
                .map(|setting| (setting.key.clone(), setting.value.clone()))
                .collect()
        };
        if let Some((name, _)) = self
            .tables
            .iter()
            .find(|(_, known)| values(known) == values(&table))
        {
            return name.clone();
        }
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let base: String = wanted
            .chars()
            .map(|c| if is_allowed(c) { c } else { '-' })
            .collect();
        let mut base: String = base.trim_matches(['-', '.']).chars().take(40).collect();
        if !base.starts_with(|c: char| c.is_ascii_alphabetic()) {
            base = format!("origin-{base}");
        }
        let is_free = |name: &String| !self.tables.iter().any(|(known, _)| known == name);
        let numbered = (2..).map(|number| format!("{base}-{number}"));
        let name = [base.clone()]
            .into_iter()
            .chain(numbered)
            .find(is_free)
            .unwrap_or_default();
        self.tables.push((name.clone(), table));
        name
    }

    /// Returns the tables with their names.
    pub(super) fn into_tables(self) -> Vec<Table> {
        let with_name = |(name, mut table): (String, Table)| {
            let mut settings = std::mem::take(&mut table.settings);
            table.set("name", toml::text(&name), None);
            table.settings.append(&mut settings);
            table
        };
        self.tables.into_iter().map(with_name).collect()
    }
}
