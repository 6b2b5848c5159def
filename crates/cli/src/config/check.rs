//! Checks the settings and builds the configuration, or returns all errors.

mod acme;
mod admin;
mod buckets;
mod combinations;
mod fleet;
mod fleet_nats;
mod warnings;

use std::collections::HashMap;

use edgeward_proxy::config::{
    EdgeConfig, FleetConfig, HostAdmission, ListenerConfig, ListenerTls, TracingConfig,
};

use super::draft::{ConfigDraft, DraftHost};
use super::file::{FileSettings, RawSetting};
use super::keys::{self, Key, is_repeated};
use super::setting::{Setting, SettingSource, SettingsFile};
use super::sites::{self, SiteDraft, SiteSummary};
use crate::acme_settings::AcmeGroup;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::fleet_settings::FleetNats;
use crate::link_settings::LinkSettings;
use crate::memory;
use crate::negative::NegativeSettings;
use acme::check_acme;
use admin::check_admin;
use buckets::check_buckets;
use combinations::check_combinations;
use fleet::check_fleet;
use fleet_nats::check_fleet_nats;

/// A valid configuration, and the source of each of its settings.
#[derive(Debug)]
pub(crate) struct CheckedConfig {
    pub(crate) edge: EdgeConfig,
    /// The `[[negative]]` rules. Their filters are started together with the edge.
    pub(crate) negative: Vec<NegativeSettings>,
    /// The `[[acme]]` groups of names. Their certificates are loaded together with the edge.
    pub(crate) acme: Vec<AcmeGroup>,
    /// The names of the origins that have a link, and the settings of their links. The links are started together with
    /// the edge.
    pub(crate) links: Vec<(String, LinkSettings)>,
    /// The stream of purges of the fleet. It is started together with the edge.
    pub(crate) fleet_nats: Option<FleetNats>,
    /// True if the nodes of the fleet announce themselves: the list of members begins with this node alone.
    pub(crate) announces: bool,
    pub(crate) settings: Vec<Setting>,
    /// The `[[site]]`s of the file.
    pub(crate) sites: Vec<SiteSummary>,
    /// Settings that are valid and probably not meant.
    pub(crate) warnings: Vec<Diagnostic>,
}

/// Checks each setting, then the settings together. Returns the configuration or all errors.
pub(super) fn check(
    settings: FileSettings,
    settings_file: &SettingsFile<'_>,
) -> Result<CheckedConfig, Diagnostics> {
    let FileSettings {
        raw_settings,
        sites,
        mut diagnostics,
        lines_with_errors,
    } = settings;
    let mut draft = ConfigDraft::new();
    for setting in &raw_settings {
        let RawSetting {
            key,
            item,
            raw,
            source,
        } = setting;
        let folder = settings_file.folder(source);
        match key.field.set(&mut draft, *item, raw, &folder) {
            Ok(()) => {}
            Err(_) if matches!(source, SettingSource::File { line } if lines_with_errors.contains(line)) =>
                {}
            Err(value_error) => {
                let subject = match source {
                    SettingSource::Flag(flag) => format!("{flag} {raw}"),
                    _ => format!("{} = {raw}", key.path),
                };
                let mut diagnostic = Diagnostic::new(format!("{subject} {}", value_error.reason));
                if let Some(hint) = value_error.hint {
                    diagnostic = diagnostic.hint(hint);
                }
                diagnostics.push((source.clone(), diagnostic));
            }
        }
    }
    check_combinations(&raw_settings, &mut draft, &mut diagnostics, settings_file);
    check_acme(&raw_settings, &draft, &mut diagnostics);
    check_fleet_nats(&raw_settings, &draft, &mut diagnostics);
    check_admin(&raw_settings, &mut draft, &mut diagnostics);
    check_buckets(&raw_settings, &mut draft, &mut diagnostics);
    let fleet = check_fleet(&raw_settings, &draft, &mut diagnostics);
    let summaries = sites.iter().map(SiteDraft::summary).collect();
    sites::build(sites, &mut draft, &lines_with_errors, &mut diagnostics);
    if diagnostics.is_empty() {
        return Ok(CheckedConfig {
            warnings: warnings::warnings(&raw_settings, &mut draft, settings_file),
            settings: final_settings(&raw_settings, &draft),
            sites: summaries,
            negative: draft.negative.clone(),
            acme: draft.acme.clone(),
            links: links(&draft),
            fleet_nats: Some(&draft.fleet_nats)
                .filter(|nats| !nats.servers.is_empty())
                .cloned(),
            announces: fleet.is_some() && draft.fleet_members.is_empty(),
            edge: edge_config(draft, fleet),
        });
    }
    // Errors are printed in this order: lines of the file, flags, missing settings.
    diagnostics.sort_by_key(|(source, _)| match source {
        SettingSource::File { line } => (0, *line),
        SettingSource::Flag(_) => (1, 0),
        SettingSource::Default => (2, 0),
    });
    let located = diagnostics
        .into_iter()
        .map(|(source, diagnostic)| settings_file.locate(diagnostic, &source))
        .collect();
    Err(Diagnostics(located))
}

/// Returns the links with the names of their origins.
fn links(draft: &ConfigDraft) -> Vec<(String, LinkSettings)> {
    let origins = draft.edge.origins.iter().zip(&draft.links);
    let linked = origins.filter(|(_, link)| link.gateway.is_some());
    linked
        .map(|(origin, link)| (origin.name.clone(), link.clone()))
        .collect()
}

fn edge_config(draft: ConfigDraft, fleet: Option<FleetConfig>) -> EdgeConfig {
    let ConfigDraft {
        mut edge,
        listeners,
        buckets: _,
        mut disk,
        disk_hosts,
        negative: _,
        acme: _,
        links: _,
        fleet: _,
        fleet_members: _,
        fleet_nats: _,
        purge_token_file: _,
        admin_certificates,
        admin_key,
        admin_tokens: _,
        warnings: _,
        overload_memory_given,
        access_log,
        access_log_given,
        tracing,
        tracing_endpoint,
        heuristic,
        heuristic_on,
    } = draft;
    edge.caching.rules.heuristic = heuristic_on.then_some(heuristic);
    let admin_tls = admin_certificates.zip(admin_key);
    edge.admin.tls = admin_tls.map(|(certificates, key)| ListenerTls {
        certificates,
        key,
        ocsp: None,
    });
    edge.listeners = listeners
        .into_iter()
        .filter_map(|listener| {
            let tls = listener
                .certificates
                .zip(listener.key)
                .map(|(certificates, key)| ListenerTls {
                    certificates,
                    key,
                    ocsp: listener.ocsp,
                });
            let (tls_by_name, proxy_protocol_from) = (listener.acme, listener.proxy_protocol_from);
            listener.address.map(|addr| ListenerConfig {
                addr,
                tls,
                tls_by_name,
                proxy_protocol_from,
                node_authorities: None,
                is_for_nodes: false,
                http3: listener.http3,
            })
        })
        .collect();
    disk.hosts = disk_hosts
        .into_iter()
        .filter_map(|DraftHost { host, admission }| {
            let (host, admission) = host.zip(admission)?;
            Some(HostAdmission { host, admission })
        })
        .collect();
    if !overload_memory_given {
        edge.overload.memory_max = memory::bound_of_system();
    }
    edge.disk = (!disk.settings.devices.is_empty()).then_some(disk);
    edge.access_log = access_log_given.then_some(access_log);
    edge.tracing = tracing_endpoint.map(|endpoint| TracingConfig {
        endpoint,
        ..tracing
    });
    if let Some(fleet) = fleet {
        edge.set_fleet(fleet);
    }
    edge
}

/// The table of the link of an origin.
const LINK: &str = "origin.link";

/// All settings with their final values, in the order of `docs/reference/configuration.md`.
fn final_settings(raw_settings: &[RawSetting], draft: &ConfigDraft) -> Vec<Setting> {
    let mut settings = Vec::new();
    // If a setting is given several times, the last one has set the value.
    let given = raw_settings.iter();
    let given = given.map(|setting| ((setting.key.path, setting.item), &setting.source));
    let given: HashMap<_, _> = given.collect();
    let source = |key: &Key, item: usize| {
        let source = given.get(&(key.path, item)).copied();
        source.cloned().unwrap_or(SettingSource::Default)
    };
    let split_path = |key: &Key| key.path.rsplit_once('.').expect("a key is in a table");
    let repeated = [
        ("listener", draft.listeners.len()),
        ("origin", draft.edge.origins.len()),
        (LINK, draft.links.len()),
        ("disk_device", draft.disk.settings.devices.len()),
        ("disk_host", draft.disk_hosts.len()),
        ("negative", draft.negative.len()),
        ("acme", draft.acme.len()),
        ("admin.token", draft.admin_tokens.len()),
        ("fleet.member", draft.fleet_members.len()),
    ];
    for (table, items) in repeated {
        // The keys of a single origin have no index, like the keys of the table `[origin]`.
        let is_of_origin = table == "origin" || table == LINK;
        let has_index = !is_of_origin || draft.edge.origins.len() > 1;
        for item in 0..items {
            // One of several origins has the defaults of a link only if it has a link.
            if table == LINK && has_index && draft.links[item].gateway.is_none() {
                continue;
            }
            for key in keys::all().filter(|key| split_path(key).0 == table) {
                if let Some(value) = key.field.show(draft, item) {
                    let indexed = || match table {
                        LINK => format!("origin[{item}].link.{}", split_path(key).1),
                        _ => format!("{table}[{item}].{}", split_path(key).1),
                    };
                    settings.push(Setting {
                        key: if has_index {
                            indexed()
                        } else {
                            key.path.to_owned()
                        },
                        value,
                        source: source(key, item),
                        is_live: key.is_live,
                    });
                }
            }
        }
    }
    let is_single = |table: &str| !is_repeated(table) && table != LINK;
    for key in keys::all().filter(|key| is_single(split_path(key).0)) {
        if let Some(value) = key.field.show(draft, 0) {
            settings.push(Setting {
                key: key.path.to_owned(),
                value,
                source: source(key, 0),
                is_live: key.is_live,
            });
        }
    }
    settings
}
