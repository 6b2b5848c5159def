//! Sites of a configuration with one site for all hosts.

use std::sync::Arc;

use edgeward_proxy::EdgeConfig;
use edgeward_sites::{Rule, Settings, Site, Sites};

/// Configures one site for all hosts with these settings and rules.
pub(crate) fn set_site(config: &mut EdgeConfig, settings: Settings, rules: Vec<Rule>) {
    let site = Site::new("*", settings).with_rules(rules);
    let mut sites = Sites::default();
    sites
        .add(site.expect("few rules"), &[], true)
        .expect("the only site");
    config.sites = Arc::new(sites);
}
