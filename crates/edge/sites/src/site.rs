//! Sites with their rules, and the table that finds the site of a host.

use http::header::HeaderName;

use crate::condition::{Condition, RequestView};
use crate::host::{HostPattern, HostTable, without_port};
use crate::readings::Match;
use crate::settings::Settings;

/// A rule: settings for the requests for which its condition holds.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    /// The requests to which the rule applies.
    pub condition: Condition,
    /// The settings.
    pub settings: Settings,
    /// The line of the configuration file in which the rule begins, for messages.
    pub line: usize,
}

/// A site: the hosts of one operator's service, with its settings and rules.
#[derive(Clone, Debug)]
pub struct Site {
    /// The name in messages and metrics: its first host, or `*`.
    pub name: Box<str>,
    /// The settings that hold for all requests. They count as a rule before all others.
    pub settings: Settings,
    rules: Vec<Rule>,
}

/// A set of rules of one site: those that apply to a request.
///
/// A rule is *disputed* if its condition holds for some [readings](crate::readings::PathReadings) of the request and not for
/// others. Only the origin knows if the request is one of those that the rule means. So
///
/// - the disputed rule restricts the request, and permits nothing ([`Settings::restrict`]);
/// - a request with a disputed rule bypasses the cache: its response is not stored, and no stored one answers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RuleSet {
    /// The rules whose condition holds for the path in the form for matching.
    by_form: Bits,
    disputed: Bits,
}

/// One bit for each rule of a site.
type Bits = [u64; RULES_MAX / 64];

/// The most rules of a site. All rules are compared with each request, so a site with more would be slow.
pub const RULES_MAX: usize = 256;

/// The site has more than [`RULES_MAX`] rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a site has at most {RULES_MAX} rules")]
pub struct TooManyRules;

/// The most sites of an edge. A site without rules takes about a kilobyte, and each start reads all sites.
pub const SITES_MAX: usize = 10_000;

impl RuleSet {
    fn insert(&mut self, rule: usize, found: Match) {
        self.by_form[rule / 64] |= u64::from(found.form) << (rule % 64);
        self.disputed[rule / 64] |= u64::from(found.is_disputed()) << (rule % 64);
    }

    /// Returns true if the rule with this index applies.
    pub fn contains(&self, rule: usize) -> bool {
        has(&self.by_form, rule) && !has(&self.disputed, rule)
    }

    /// Returns true if the rule with this index is disputed.
    pub fn disputes(&self, rule: usize) -> bool {
        has(&self.disputed, rule)
    }

    /// Returns true if a rule is disputed.
    pub fn has_disputed(&self) -> bool {
        self.disputed != Bits::default()
    }
}

fn has(bits: &Bits, rule: usize) -> bool {
    bits[rule / 64] >> (rule % 64) & 1 == 1
}

impl Site {
    /// Returns a site without rules.
    pub fn new(name: &str, settings: Settings) -> Self {
        Self {
            name: name.into(),
            settings,
            rules: Vec::new(),
        }
    }

    /// Sets the rules, in the order of the configuration.
    pub fn with_rules(mut self, rules: Vec<Rule>) -> Result<Self, TooManyRules> {
        if rules.len() > RULES_MAX {
            return Err(TooManyRules);
        }
        self.rules = rules;
        Ok(self)
    }

    /// Returns the rules, in the order of the configuration.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the rules that apply to a request, and those that are disputed.
    pub fn applying(&self, request: &RequestView<'_>) -> RuleSet {
        let mut set = RuleSet::default();
        for (n, rule) in self.rules.iter().enumerate() {
            let found = rule.condition.matches(request);
            if found.any {
                set.insert(n, found);
            }
        }
        set
    }

    /// Returns the combined settings of the site and of a set of its rules.
    pub fn settings_of(&self, set: &RuleSet) -> Settings {
        let mut settings = self.settings.clone();
        for (n, rule) in self.rules.iter().enumerate() {
            if set.contains(n) {
                settings.merge(&rule.settings);
            } else if set.disputes(n) {
                settings.restrict(&rule.settings, has(&set.by_form, n));
            }
        }
        if set.has_disputed() {
            settings.pass = Some(true);
        }
        settings
    }
}

/// The index of a site in [`Sites`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(pub usize);

/// All sites of an edge.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    by_host: HostTable<SiteId>,
    /// The site of all other hosts.
    default: Option<SiteId>,
    sites: Vec<Site>,
}

/// Two sites have the same host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{host} already belongs to the site {site}")]
pub struct HostTaken {
    /// The host, or `*`.
    pub host: Box<str>,
    /// The name of the site to which the host belongs.
    pub site: Box<str>,
}

impl Sites {
    /// Adds a site with its hosts. `serves_others` makes it the site of all hosts that belong to no site.
    pub fn add(
        &mut self,
        site: Site,
        hosts: &[HostPattern],
        serves_others: bool,
    ) -> Result<SiteId, HostTaken> {
        let id = SiteId(self.sites.len());
        let taken = |host: String, other: SiteId| HostTaken {
            host: host.into(),
            site: self
                .sites
                .get(other.0)
                .map_or(&site.name, |site| &site.name)
                .clone(),
        };
        for host in hosts {
            if let Some(other) = self.by_host.insert(host, id) {
                return Err(taken(host.to_string(), other));
            }
        }
        if serves_others && let Some(other) = self.default.replace(id) {
            return Err(taken("*".to_owned(), other));
        }
        self.sites.push(site);
        Ok(id)
    }

    /// Returns the site of a host, which must be in lower case. A port is ignored. `None` if the host belongs to no
    /// site.
    pub fn find(&self, authority: &str) -> Option<SiteId> {
        if self.by_host.is_empty() {
            return self.default;
        }
        self.by_host
            .get(without_port(authority).as_bytes())
            .copied()
            .or(self.default)
    }

    /// Returns the site with this index.
    pub fn site(&self, id: SiteId) -> &Site {
        &self.sites[id.0]
    }

    /// Returns all sites, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = (SiteId, &Site)> {
        self.sites
            .iter()
            .enumerate()
            .map(|(n, site)| (SiteId(n), site))
    }

    /// Returns true if a site or a rule compresses responses.
    pub fn compress(&self) -> bool {
        self.sites.iter().any(|site| {
            let rules = site.rules.iter().map(|rule| &rule.settings);
            let mut settings = rules.chain([&site.settings]);
            settings.any(|settings| settings.compression == Some(true))
        })
    }

    /// Returns the names of the request fields that conditions, keys, limits and templates read. Names may repeat.
    pub fn fields_read(&self) -> Vec<HeaderName> {
        let mut names = Vec::new();
        for site in &self.sites {
            site.settings.add_fields_read(&mut names);
            for rule in &site.rules {
                names.extend(rule.condition.fields.iter().map(|field| field.name.clone()));
                rule.settings.add_fields_read(&mut names);
            }
        }
        names
    }

    /// Returns the number of sites.
    pub fn len(&self) -> usize {
        self.sites.len()
    }

    /// Returns true if there is no site.
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{Method, StatusCode};
    use proptest::prelude::*;

    use super::*;
    use crate::condition::RequestParts;
    use crate::path_pattern::PathPattern;
    use crate::stated::Stated;
    use crate::status_map::StatusSet;

    fn hosts(texts: &[&str]) -> Vec<HostPattern> {
        texts
            .iter()
            .map(|text| text.parse().expect("a pattern"))
            .collect()
    }

    #[test]
    fn a_host_belongs_to_its_site_with_any_port_and_other_hosts_to_the_default() {
        let site = |name| Site::new(name, Settings::default());
        let mut sites = Sites::default();
        let a = sites
            .add(site("a"), &hosts(&["a.example", "[::1]"]), false)
            .expect("free");
        let b = sites
            .add(site("b"), &hosts(&["*.b.example"]), false)
            .expect("free");
        for (authority, id) in [
            ("a.example", Some(a)),
            ("a.example:8080", Some(a)),
            ("[::1]", Some(a)),
            ("[::1]:80", Some(a)),
            ("x.b.example:443", Some(b)),
            ("b.example", None),
            ("other", None),
        ] {
            assert_eq!(sites.find(authority), id, "{authority}");
        }
        let taken = sites
            .add(site("c"), &hosts(&["a.example"]), false)
            .expect_err("taken");
        assert_eq!(taken.to_string(), "a.example already belongs to the site a");
        let other = sites.add(site("d"), &[], true).expect("free");
        assert_eq!(sites.find("other"), Some(other));
    }

    /// A rule of the random configurations: a prefix, a method, and one of the settings.
    #[derive(Clone, Debug)]
    struct DrawnRule {
        prefix: Option<String>,
        method: Option<Method>,
        pass: Option<bool>,
        ttl: Option<(u16, u64)>,
        deny: Option<bool>,
    }

    fn drawn_rule() -> impl Strategy<Value = DrawnRule> {
        (
            proptest::option::of("/[ab]{0,2}"),
            proptest::option::of(prop::sample::select(vec![Method::GET, Method::POST])),
            any::<Option<bool>>(),
            proptest::option::of((prop::sample::select(vec![200u16, 404]), 0u64..9)),
            any::<Option<bool>>(),
        )
            .prop_map(|(prefix, method, pass, ttl, deny)| DrawnRule {
                prefix,
                method,
                pass,
                ttl,
                deny,
            })
    }

    impl DrawnRule {
        fn rule(&self) -> Rule {
            let mut settings = Settings {
                pass: self.pass,
                deny: match self.deny {
                    None => Stated::Unstated,
                    Some(deny) => deny.then_some(StatusCode::FORBIDDEN).into(),
                },
                ..Settings::default()
            };
            if let Some((status, secs)) = self.ttl {
                settings
                    .ttl
                    .insert(StatusSet::One(status), Some(Duration::from_secs(secs)));
            }
            let glob = |prefix: &String| PathPattern::glob(&format!("{prefix}*")).expect("a glob");
            Rule {
                condition: Condition {
                    paths: self.prefix.iter().map(glob).collect(),
                    methods: self.method.iter().cloned().collect(),
                    ..Condition::default()
                },
                settings,
                line: 0,
            }
        }
    }

    proptest! {
        /// Oracle: a loop over the rules that overwrites variables.
        #[test]
        fn all_rules_that_hold_apply_in_order_and_the_later_counts(
            rules in proptest::collection::vec(drawn_rule(), 0..80),
            path in "/[ab]{0,3}",
            posts in any::<bool>(),
        ) {
            let method = if posts { Method::POST } else { Method::GET };
            let (mut pass, mut ttl_200, mut ttl_404, mut deny) = (None, None, None, None);
            for rule in &rules {
                let holds = rule.prefix.as_ref().is_none_or(|prefix| path.starts_with(prefix))
                    && rule.method.as_ref().is_none_or(|m| *m == method);
                if !holds {
                    continue;
                }
                pass = rule.pass.or(pass);
                deny = rule.deny.or(deny);
                match rule.ttl {
                    Some((200, secs)) => ttl_200 = Some(Some(Duration::from_secs(secs))),
                    Some((_, secs)) => ttl_404 = Some(Some(Duration::from_secs(secs))),
                    None => {}
                }
            }
            let site = Site::new("s", Settings::default())
                .with_rules(rules.iter().map(DrawnRule::rule).collect())
                .expect("few rules");
            let request = RequestParts {
                method: &method,
                ..RequestParts::of_url("http", "s", &path)
            };
            let settings = request.view(|view| site.settings_of(&site.applying(view)));
            prop_assert_eq!(settings.pass, pass);
            prop_assert_eq!(settings.ttl.get(StatusCode::OK).copied(), ttl_200);
            prop_assert_eq!(settings.ttl.get(StatusCode::NOT_FOUND).copied(), ttl_404);
            prop_assert_eq!(settings.deny.is_on(), deny == Some(true));
        }
    }

    #[test]
    fn a_site_has_a_limit_of_rules() {
        let rules = |count| vec![Rule::default(); count];
        let site = || Site::new("s", Settings::default());
        assert!(site().with_rules(rules(RULES_MAX)).is_ok());
        assert!(site().with_rules(rules(RULES_MAX + 1)).is_err());
    }
}
