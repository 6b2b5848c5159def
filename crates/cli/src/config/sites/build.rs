//! Checks all sites together, and writes them into the draft of the configuration.

use std::collections::{HashMap, HashSet};

use edgeward_proxy::config::{ListenerTls, SiteCertificate};
use edgeward_sites::{HostPattern, IdFilters, RULES_MAX, Rule, SITES_MAX, Site, Sites};

use super::draft::{OTHER_HOSTS, RuleDraft, SiteDraft};
use super::loops::self_redirect;
use crate::config::draft::ConfigDraft;
use crate::config::setting::SettingSource;
use crate::diagnostic::Diagnostic;

/// Returns the names of the origins. A site without `origin` uses the first one.
fn origin_names(draft: &ConfigDraft) -> Vec<String> {
    let origins = draft.edge.origins.iter();
    origins.map(|origin| origin.name.clone()).collect()
}

/// Returns the schemes by which clients can send requests. A trusted proxy may state either.
fn schemes(draft: &ConfigDraft) -> Vec<&'static str> {
    let any = |has_tls: bool| {
        let mut listeners = draft.listeners.iter();
        listeners.any(|listener| listener.certificates.is_some() == has_tls)
    };
    let is_behind_proxy = !draft.edge.forwarding.trusted_proxies.0.is_empty();
    let schemes = [("http", any(false)), ("https", any(true))];
    let used = schemes
        .into_iter()
        .filter(|(_, listens)| *listens || is_behind_proxy);
    used.map(|(scheme, _)| scheme).collect()
}

/// Checks all sites together and writes them into the draft. Without `[[site]]` the draft keeps its default site.
pub(in crate::config) fn build(
    sites: Vec<SiteDraft>,
    draft: &mut ConfigDraft,
    lines_with_errors: &HashSet<usize>,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    if sites.is_empty() {
        return;
    }
    let mut builder = Builder {
        origins: origin_names(draft),
        id_filters: draft
            .negative
            .iter()
            .filter_map(|rule| rule.name.clone())
            .collect(),
        listens_by_tls: draft
            .listeners
            .iter()
            .any(|listener| listener.certificates.is_some()),
        schemes: schemes(draft),
        owners: HashMap::new(),
        lines_with_errors,
        diagnostics,
        warnings: Vec::new(),
    };
    if let Some(first_excess) = sites.get(SITES_MAX) {
        let message = format!(
            "{} sites are given, but at most {SITES_MAX} are possible",
            sites.len()
        );
        let hint = "combine sites that differ only in their hosts";
        builder.report(first_excess.line, &message, hint);
    }
    let mut built = Sites::default();
    let mut certificates = Vec::new();
    for site in sites {
        let hosts: Vec<HostPattern> = site.hosts.iter().map(|(host, _)| host.clone()).collect();
        builder.check_hosts(&site);
        certificates.extend(builder.certificate(&site, &hosts));
        let name = site.name();
        let own = builder.rule(site.own).settings;
        if let Some(first_excess) = site.rules.get(RULES_MAX) {
            let message = format!("the site {name} has more than {RULES_MAX} rules");
            let hint = "combine rules: `path` and the other conditions accept lists";
            builder.report(first_excess.line, &message, hint);
            continue;
        }
        let rules = site
            .rules
            .into_iter()
            .map(|rule| builder.rule(rule))
            .collect();
        let ready = Site::new(&name, own)
            .with_rules(rules)
            .expect("the number of rules was checked");
        if let Some((line, location)) = self_redirect(&ready, &hosts, &builder.schemes) {
            let message = format!("a redirect to {location} leads to itself");
            let hint = "add a condition, such as scheme = \"http\" or a path, that the location does not match";
            builder.warn(line.unwrap_or(site.line), &message, hint);
        }
        // A host that is given twice was reported by `check_hosts`.
        _ = built.add(ready, &hosts, site.serves_others.is_some());
    }
    draft.warnings = builder.warnings;
    draft.edge.sites = built.into();
    draft.edge.site_certificates = certificates;
}

struct Builder<'a> {
    origins: Vec<String>,
    /// The names of the id filters.
    id_filters: Vec<String>,
    /// True if a listener accepts TLS.
    listens_by_tls: bool,
    /// The schemes by which clients can send requests.
    schemes: Vec<&'static str>,
    /// The name and the line of the site of each host.
    owners: HashMap<String, (String, usize)>,
    lines_with_errors: &'a HashSet<usize>,
    diagnostics: &'a mut Vec<(SettingSource, Diagnostic)>,
    /// Settings that are valid and probably not meant.
    warnings: Vec<(SettingSource, Diagnostic)>,
}

impl Builder<'_> {
    fn report(&mut self, line: usize, message: &str, hint: impl Into<String>) {
        if !self.lines_with_errors.contains(&line) {
            let diagnostic = Diagnostic::new(message).hint(hint);
            self.diagnostics
                .push((SettingSource::File { line }, diagnostic));
        }
    }

    fn warn(&mut self, line: usize, message: &str, hint: &str) {
        let diagnostic = Diagnostic::new(message).hint(hint);
        self.warnings
            .push((SettingSource::File { line }, diagnostic));
    }

    /// Checks that the site has hosts, and that no other site has the same one.
    fn check_hosts(&mut self, site: &SiteDraft) {
        if !site.own.is_given("hosts") {
            let hint = r#"add hosts = ["www.example.org"], or hosts = "*" for all other hosts"#;
            self.report(site.line, "this [[site]] has no hosts", hint);
        }
        let hosts = site
            .hosts
            .iter()
            .map(|(host, line)| (host.to_string(), *line));
        let others = site
            .serves_others
            .map(|line| (OTHER_HOSTS.to_owned(), line));
        for (host, line) in hosts.chain(others) {
            let owner = (site.name(), site.line);
            match self.owners.get(&host).cloned() {
                None => _ = self.owners.insert(host, owner),
                Some(other) if other == owner => {
                    let message = format!("the site {} has the host {host} twice", owner.0);
                    self.report(line, &message, "remove one of the two");
                }
                Some((other, other_line)) => {
                    let message = format!(
                        "the site {} has the host {host}, which belongs to the site {other} in line {other_line}",
                        owner.0
                    );
                    self.report(line, &message, "remove it from one of the two sites");
                }
            }
        }
    }

    /// Returns the certificate of a site. Reports an incomplete or a useless one.
    fn certificate(&mut self, site: &SiteDraft, hosts: &[HostPattern]) -> Option<SiteCertificate> {
        let other_key = match (
            site.own.is_given("tls_certificates"),
            site.own.is_given("tls_key"),
        ) {
            (true, false) => Some(("tls_certificates", "tls_key")),
            (false, true) => Some(("tls_key", "tls_certificates")),
            _ => None,
        };
        if let (None, Some((_, line))) = (&site.certificates, &site.ocsp) {
            self.report(
                *line,
                "tls_ocsp is set without tls_certificates",
                "an OCSP response is sent with a certificate",
            );
        }
        let (_, line) = site.certificates.as_ref().or(site.key.as_ref())?;
        let message = if let Some((given, missing)) = other_key {
            Some((
                format!("{given} is set without {missing}"),
                "give both: TLS needs a certificate and its key",
            ))
        } else if hosts.is_empty() && site.serves_others.is_some() {
            Some((
                "tls_certificates of a site for all other hosts: no host has this certificate"
                    .to_owned(),
                "set tls_certificates of the [[listener]] instead",
            ))
        } else if !self.listens_by_tls {
            Some((
                "tls_certificates is set, but no listener accepts TLS".to_owned(),
                "set tls_certificates and tls_key of a [[listener]], for clients without SNI",
            ))
        } else {
            None
        };
        if let Some((message, hint)) = message {
            self.report(*line, &message, hint);
            return None;
        }
        let ((certificates, _), (key, _)) = site.certificates.clone().zip(site.key.clone())?;
        Some(SiteCertificate {
            hosts: hosts.to_vec(),
            tls: ListenerTls {
                certificates,
                key,
                ocsp: site.ocsp.as_ref().map(|(path, _)| path.clone()),
            },
        })
    }

    /// Finds the origin of a rule.
    fn rule(&mut self, rule: RuleDraft) -> Rule {
        let mut settings = rule.settings;
        if let Some((name, line)) = &rule.origin {
            settings.origin = self.origins.iter().position(|known| known == name);
            if settings.origin.is_none() {
                let message = format!("origin = {name:?} is not the name of an origin");
                let hint = format!("the origins are {}", self.origins.join(", "));
                self.report(*line, &message, hint);
            }
        }
        if let (Some(IdFilters::Named(name)), Some(line)) =
            (&settings.id_filters, rule.id_filter_line)
            && !self.id_filters.iter().any(|known| **known == **name)
        {
            let message = format!("id_filter = \"{name}\" is not the name of a [[negative]]");
            let hint = match self.id_filters.is_empty() {
                true => "add a name to the [[negative]], or write \"off\" or \"all\"".to_owned(),
                false => format!("the names are {}", self.id_filters.join(", ")),
            };
            self.report(line, &message, hint);
        }
        let stale = ["stale_while_revalidate", "stale_if_error"];
        if let Some(key) = stale.into_iter().find(|key| rule.given.contains(key))
            && settings.pass == Some(true)
        {
            let message = format!("{key} has no effect together with pass = true");
            self.warn(
                rule.line,
                &message,
                "remove one of the two: a passed response is not stored",
            );
        }
        Rule {
            condition: rule.condition,
            settings,
            line: rule.line,
        }
    }
}
