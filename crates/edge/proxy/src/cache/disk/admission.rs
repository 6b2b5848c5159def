//! The rules of admission to disk, by host.
//!
//! Each rule has its own history: Bloom filters of recently requested keys. Hosts with the same rule share its history.
//! The most specific pattern that matches a host applies: the host itself, or the longest parent domain.

use std::path::{Path, PathBuf};

use edgeward_policy::disk_admission::{AnyDiskAdmission, DiskAdmissionSpec};
use edgeward_policy::hierarchy::{Hierarchy, HierarchyRules};
use edgeward_policy::sketch::RotatingBloomConfig;
use edgeward_sites::{HostPattern, HostTable};

use super::memory;
use crate::config::HostAdmission;

/// All rules of the disk tier.
#[derive(Debug)]
pub(crate) struct Admissions {
    /// The first rule is the default, for hosts that no pattern matches.
    rules: Vec<Rule>,
    /// Indices of `rules`.
    by_host: HostTable<usize>,
}

/// One rule with its history.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) spec: DiskAdmissionSpec,
    /// Decides in which tiers an object is stored. Contains the history.
    pub(crate) hierarchy: Hierarchy,
    /// The patterns of the hosts that are configured with this rule.
    pub(crate) hosts: Vec<HostPattern>,
    /// The file that keeps the history while the edge is down.
    file: Option<PathBuf>,
}

/// The settings that all rules share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleSettings<'a> {
    /// The size of the Bloom filters of each rule's history.
    pub(crate) memory: RotatingBloomConfig,
    /// The other settings of each rule's [`Hierarchy`], such as size limits.
    pub(crate) rules: HierarchyRules,
    /// The file of the default rule. The files of other rules are in the same directory.
    pub(crate) file: Option<&'a Path>,
    /// The seed of key hashes. A history that was saved with another seed is ignored.
    pub(crate) tag: u64,
}

impl Admissions {
    /// Creates the rules and restores the history of each rule from its file.
    pub(crate) fn restore(
        default_spec: DiskAdmissionSpec,
        hosts: &[HostAdmission],
        common: RuleSettings<'_>,
    ) -> Self {
        let mut admissions = Self {
            rules: Vec::new(),
            by_host: HostTable::new(),
        };
        admissions.index_or_add(default_spec, common);
        for HostAdmission { host, admission } in hosts {
            let index = admissions.index_or_add(*admission, common);
            admissions.rules[index].hosts.push(host.clone());
            admissions.by_host.insert(host, index);
        }
        admissions
    }

    fn index_or_add(&mut self, spec: DiskAdmissionSpec, common: RuleSettings<'_>) -> usize {
        if let Some(index) = self.rules.iter().position(|rule| rule.spec == spec) {
            return index;
        }
        let file = common.file.map(|file| match self.rules.is_empty() {
            true => file.to_owned(),
            false => file_of_rule(file, spec),
        });
        let admission: AnyDiskAdmission =
            memory::restore(file.as_deref(), spec, common.memory, common.tag);
        self.rules.push(Rule {
            spec,
            hierarchy: Hierarchy::new(admission, common.rules),
            hosts: Vec::new(),
            file,
        });
        self.rules.len() - 1
    }

    /// Returns the rule for a cache key, `http://host[:port]/path`.
    pub(crate) fn rule_for(&self, key: &[u8]) -> &Hierarchy {
        &self.rules[self.index_for(key)].hierarchy
    }

    /// Returns the rule for a cache key as it is configured.
    pub(crate) fn spec_for(&self, key: &[u8]) -> DiskAdmissionSpec {
        self.rules[self.index_for(key)].spec
    }

    fn index_for(&self, key: &[u8]) -> usize {
        if self.by_host.is_empty() {
            return 0;
        }
        self.by_host.get(host_of(key)).copied().unwrap_or(0)
    }

    pub(crate) fn default_rule(&self) -> &Hierarchy {
        &self.rules[0].hierarchy
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        let bytes = |rule: &Rule| rule.hierarchy.admission().memory_bytes();
        self.rules.iter().map(bytes).sum()
    }

    pub(crate) fn save(&self, tag: u64) {
        for rule in &self.rules {
            if let Some(file) = &rule.file {
                memory::save(file, rule.hierarchy.admission(), tag);
            }
        }
    }
}

/// Returns the file of a rule, such as `admission.state.nth-hit-3`.
fn file_of_rule(file: &Path, spec: DiskAdmissionSpec) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(spec.to_string().replace(':', "-"));
    name.into()
}

/// Returns the host of a cache key. The key's host is in lower case.
fn host_of(key: &[u8]) -> &[u8] {
    let after_scheme = memchr::memmem::find(key, b"://").map_or(key, |at| &key[at + 3..]);
    let end = memchr::memchr(b'/', after_scheme).unwrap_or(after_scheme.len());
    let authority = &after_scheme[..end];
    // The colons of an IPv6 address are inside brackets.
    let port = memchr::memrchr(b':', authority).filter(|&at| !authority[at..].contains(&b']'));
    &authority[..port.unwrap_or(authority.len())]
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use edgeward_policy::{DiskVerdict, Object};
    use edgeward_types::KeyHash;

    use super::*;

    fn common(file: Option<&Path>) -> RuleSettings<'_> {
        let keys = NonZeroU64::new(1000).expect("not zero");
        RuleSettings {
            memory: RotatingBloomConfig::new(keys, 1e-6),
            rules: HierarchyRules::default(),
            file,
            tag: 7,
        }
    }

    fn host_rules(hosts: &[(&str, &str)]) -> Vec<HostAdmission> {
        let parsed = hosts.iter().map(|(host, rule)| HostAdmission {
            host: host.parse().expect("a host"),
            admission: rule.parse().expect("a rule"),
        });
        parsed.collect()
    }

    #[test]
    fn the_most_specific_pattern_applies_and_ports_are_ignored() {
        let hosts = host_rules(&[
            ("img.example.com", "never"),
            ("*.example.com", "always"),
            ("*.a.example.com", "nth-hit:3"),
            ("[::1]", "nth-hit:4"),
            ("IMG.Example.NET", "always"),
        ]);
        let admissions = Admissions::restore(DiskAdmissionSpec::SecondHit, &hosts, common(None));
        for (key, rule) in [
            ("http://img.example.com/a", "never"),
            ("https://img.example.com:8443/a.b/", "never"),
            ("http://x.img.example.com/", "always"),
            ("http://a.example.com/", "always"),
            ("http://b.a.example.com/", "nth-hit:3"),
            ("http://example.com/", "second-hit"),
            ("http://notexample.com/", "second-hit"),
            ("http://other/img.example.com", "second-hit"),
            ("http://[::1]:80/", "nth-hit:4"),
            ("http://[::1]/", "nth-hit:4"),
            ("http://img.example.net/", "always"),
        ] {
            let found = &admissions.rules()[admissions.index_for(key.as_bytes())];
            assert_eq!(found.spec.to_string(), rule, "{key}");
        }
        // The default rule, and four different rules of the five patterns.
        assert_eq!(admissions.rules().len(), 5);
    }

    #[test]
    fn each_rule_restores_its_history() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("admission.state");
        let hosts = host_rules(&[("slow.example", "nth-hit:3")]);
        let restore =
            || Admissions::restore(DiskAdmissionSpec::SecondHit, &hosts, common(Some(&file)));
        let request_is_admitted = |admissions: &Admissions, key: &str| {
            let object = Object {
                key: KeyHash(1),
                size_bytes: 1,
            };
            admissions.rule_for(key.as_bytes()).miss(&object).disk == DiskVerdict::Write
        };
        let (usual, slow) = ("http://usual.example/", "http://slow.example/");
        let before = restore();
        assert!(!request_is_admitted(&before, usual) && !request_is_admitted(&before, slow));
        before.save(7);
        let after = restore();
        assert!(request_is_admitted(&after, usual), "the second request");
        assert!(
            !request_is_admitted(&after, slow) && request_is_admitted(&after, slow),
            "the second, then the third"
        );
        assert!(after.memory_bytes() > before.rules()[0].hierarchy.admission().memory_bytes());
    }
}
