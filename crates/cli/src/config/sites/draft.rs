//! Sites under construction, and their form for lists.

use std::path::PathBuf;

use edgeward_sites::{Condition, HostPattern, Settings};

/// One `[[site]]`, possibly incomplete.
#[derive(Debug, Default)]
pub(in crate::config) struct SiteDraft {
    /// The line in which the site begins.
    pub(super) line: usize,
    /// The hosts, and their lines.
    pub(super) hosts: Vec<(HostPattern, usize)>,
    /// The line in which the site gets all other hosts.
    pub(super) serves_others: Option<usize>,
    pub(super) certificates: Option<(PathBuf, usize)>,
    pub(super) key: Option<(PathBuf, usize)>,
    pub(super) ocsp: Option<(PathBuf, usize)>,
    /// The settings of the site itself, as a rule without conditions.
    pub(super) own: RuleDraft,
    pub(super) rules: Vec<RuleDraft>,
}

/// One `[[site.rule]]`, possibly incomplete.
#[derive(Debug, Default)]
pub(in crate::config) struct RuleDraft {
    /// The line in which the rule begins.
    pub(super) line: usize,
    pub(super) condition: Condition,
    pub(super) settings: Settings,
    /// The name of the origin, and its line.
    pub(super) origin: Option<(String, usize)>,
    /// The line of `id_filter`.
    pub(super) id_filter_line: Option<usize>,
    /// The paths of the keys that are given, also of those with invalid values.
    pub(super) given: Vec<&'static str>,
    /// The keys and values as in the file, for the list of a reload's changes.
    pub(super) texts: Vec<(String, String)>,
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
    pub(super) fn name(&self) -> String {
        match self.hosts.first() {
            Some((host, _)) => host.to_string(),
            None => OTHER_HOSTS.to_owned(),
        }
    }

    pub(in crate::config) fn summary(&self) -> SiteSummary {
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
    pub(super) fn is_given(&self, path: &str) -> bool {
        self.given.contains(&path)
    }
}

/// The entry in `hosts` for all hosts that belong to no other site.
pub(super) const OTHER_HOSTS: &str = "*";
