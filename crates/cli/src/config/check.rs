//! Checks the settings and builds the configuration, or returns all errors.

mod admin;
mod buckets;
mod combinations;
mod warnings;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use edgeward_policy::DiskAdmissionSpec;
use edgeward_proxy::config::{
    AccessLogConfig, DiskConfig, EdgeConfig, HostAdmission, ListenAddress, ListenerConfig,
    ListenerTls, LogDestination, LogFormat, Networks, OriginConfig, OriginUrl, Roles,
    TracingConfig,
};
use edgeward_semantics::Heuristic;
use edgeward_sites::HostPattern;
use edgeward_store::disk::{DeviceSettings, DiskSettings};
use edgeward_types::ByteSize;

use super::file::FileSettings;
use super::keys::{KEYS, Key, is_repeated};
use super::sites::{self, SiteDraft};
use super::{CheckedConfig, RawSetting, Setting, SettingSource, SettingsFile};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::link_settings::LinkSettings;
use crate::memory;
use crate::negative::NegativeSettings;
use admin::check_admin;
pub(super) use buckets::DraftBucket;
use buckets::check_buckets;
use combinations::check_combinations;

/// A configuration under construction: each setting writes one field. [`check`] combines the fields that depend on
/// several settings.
#[derive(Debug)]
pub(super) struct ConfigDraft {
    pub(super) edge: EdgeConfig,
    pub(super) listeners: Vec<DraftListener>,
    /// The settings `s3_…` of each `[[origin]]`.
    pub(super) buckets: Vec<DraftBucket>,
    pub(super) disk: DiskConfig,
    pub(super) disk_hosts: Vec<DraftHost>,
    pub(super) negative: Vec<NegativeSettings>,
    pub(super) link: LinkSettings,
    pub(super) purge_token_file: Option<PathBuf>,
    pub(super) admin_certificates: Option<PathBuf>,
    pub(super) admin_key: Option<PathBuf>,
    pub(super) admin_tokens: Vec<DraftToken>,
    /// Settings of sites that are valid and probably not meant.
    pub(super) warnings: Vec<(SettingSource, Diagnostic)>,
    /// True if the user has set the bound of memory.
    pub(super) overload_memory_given: bool,
    pub(super) access_log: AccessLogConfig,
    /// True if the user has set the path of the access log.
    pub(super) access_log_given: bool,
    /// The settings of `[tracing]`. Their endpoint is a placeholder.
    pub(super) tracing: TracingConfig,
    pub(super) tracing_endpoint: Option<OriginUrl>,
    /// How the lifetime of a response without an explicit lifetime is computed, if `heuristic_on` is true.
    pub(super) heuristic: Heuristic,
    pub(super) heuristic_on: bool,
}

/// One `[[listener]]`, possibly incomplete.
#[derive(Clone, Debug, Default)]
pub(super) struct DraftListener {
    pub(super) address: Option<ListenAddress>,
    pub(super) certificates: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) ocsp: Option<PathBuf>,
    pub(super) proxy_protocol_from: Option<Networks>,
}

/// One `[[admin.token]]`, possibly incomplete.
#[derive(Clone, Debug, Default)]
pub(super) struct DraftToken {
    pub(super) name: Option<String>,
    pub(super) file: Option<PathBuf>,
    pub(super) roles: Option<Roles>,
}

/// One `[[disk_host]]`, possibly incomplete.
#[derive(Clone, Debug, Default)]
pub(super) struct DraftHost {
    pub(super) host: Option<HostPattern>,
    pub(super) admission: Option<DiskAdmissionSpec>,
}

impl ConfigDraft {
    /// Returns a draft in which each setting has its default. It has no listener, and the URL of its one origin is
    /// a placeholder.
    pub(super) fn new() -> Self {
        let edge = EdgeConfig::new(
            edgeward_proxy::config::LOOPBACK_ANY_PORT,
            placeholder(),
            DEFAULT_HOT_CAPACITY,
        );
        Self {
            edge,
            listeners: Vec::new(),
            buckets: Vec::new(),
            disk: DiskConfig::with(DiskSettings::default()),
            disk_hosts: Vec::new(),
            negative: Vec::new(),
            link: LinkSettings::default(),
            purge_token_file: None,
            admin_certificates: None,
            admin_key: None,
            admin_tokens: Vec::new(),
            warnings: Vec::new(),
            overload_memory_given: false,
            access_log: AccessLogConfig::new(LogDestination::Stdout, LogFormat::default()),
            access_log_given: false,
            tracing: TracingConfig::new(placeholder()),
            tracing_endpoint: None,
            heuristic: Heuristic::default(),
            heuristic_on: true,
        }
    }

    /// Returns the listener of the `[[listener]]` with the index `item`, and creates it if necessary.
    pub(super) fn listener(&mut self, item: usize) -> &mut DraftListener {
        if self.listeners.len() <= item {
            self.listeners.resize_with(item + 1, DraftListener::default);
        }
        &mut self.listeners[item]
    }

    /// Returns the origin of the `[[origin]]` with the index `item`, and creates it if necessary.
    pub(super) fn origin(&mut self, item: usize) -> &mut OriginConfig {
        let origins = &mut self.edge.origins;
        if origins.len() <= item {
            origins.resize_with(item + 1, || OriginConfig::new(placeholder()));
        }
        &mut origins[item]
    }

    /// Returns the bucket of the `[[origin]]` with the index `item`, and creates both if necessary.
    pub(super) fn bucket(&mut self, item: usize) -> &mut DraftBucket {
        self.origin(item);
        if self.buckets.len() <= item {
            self.buckets.resize_with(item + 1, DraftBucket::default);
        }
        let bucket = &mut self.buckets[item];
        bucket.is_given = true;
        bucket
    }

    /// Returns the rule of the `[[negative]]` with the index `item`, and creates it if necessary.
    pub(super) fn negative(&mut self, item: usize) -> &mut NegativeSettings {
        if self.negative.len() <= item {
            self.negative
                .resize_with(item + 1, NegativeSettings::default);
        }
        &mut self.negative[item]
    }

    /// Returns the token of the `[[admin.token]]` with the index `item`, and creates it if necessary.
    pub(super) fn admin_token(&mut self, item: usize) -> &mut DraftToken {
        if self.admin_tokens.len() <= item {
            self.admin_tokens.resize_with(item + 1, DraftToken::default);
        }
        &mut self.admin_tokens[item]
    }

    /// Returns the host of the `[[disk_host]]` with the index `item`, and creates it if necessary.
    pub(super) fn disk_host(&mut self, item: usize) -> &mut DraftHost {
        if self.disk_hosts.len() <= item {
            self.disk_hosts.resize_with(item + 1, DraftHost::default);
        }
        &mut self.disk_hosts[item]
    }

    /// Returns the device of the `[[disk_device]]` with the index `item`, and creates it if necessary.
    pub(super) fn device(&mut self, item: usize) -> &mut DeviceSettings {
        let devices = &mut self.disk.settings.devices;
        let blank = || DeviceSettings {
            path: PathBuf::new(),
            capacity: None,
        };
        if devices.len() <= item {
            devices.resize_with(item + 1, blank);
        }
        &mut devices[item]
    }
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
        match key.kind.read(raw, &settings_file.folder(source)) {
            Ok(value) => (key.set)(&mut draft, *item, value),
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
    check_admin(&raw_settings, &mut draft, &mut diagnostics);
    check_buckets(&raw_settings, &mut draft, &mut diagnostics);
    let summaries = sites.iter().map(SiteDraft::summary).collect();
    sites::build(sites, &mut draft, &lines_with_errors, &mut diagnostics);
    if diagnostics.is_empty() {
        return Ok(CheckedConfig {
            warnings: warnings::warnings(&raw_settings, &mut draft, settings_file),
            settings: final_settings(&raw_settings, &draft),
            sites: summaries,
            negative: draft.negative.clone(),
            link: draft.link.gateway.is_some().then(|| draft.link.clone()),
            edge: edge_config(draft),
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

fn edge_config(draft: ConfigDraft) -> EdgeConfig {
    let ConfigDraft {
        mut edge,
        listeners,
        buckets: _,
        mut disk,
        disk_hosts,
        negative: _,
        link: _,
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
            let proxy_protocol_from = listener.proxy_protocol_from;
            listener.address.map(|addr| ListenerConfig {
                addr,
                tls,
                proxy_protocol_from,
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
    edge
}

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
        ("disk_device", draft.disk.settings.devices.len()),
        ("disk_host", draft.disk_hosts.len()),
        ("negative", draft.negative.len()),
        ("admin.token", draft.admin_tokens.len()),
    ];
    for (table, items) in repeated {
        // The keys of a single origin have no index, like the keys of the table `[origin]`.
        let has_index = table != "origin" || items > 1;
        for item in 0..items {
            for key in KEYS.iter().filter(|key| split_path(key).0 == table) {
                if let Some(value) = (key.show)(draft, item) {
                    let indexed = || format!("{table}[{item}].{}", split_path(key).1);
                    settings.push(Setting {
                        key: if has_index {
                            indexed()
                        } else {
                            key.path.to_owned()
                        },
                        value,
                        source: source(key, item),
                    });
                }
            }
        }
    }
    for key in KEYS.iter().filter(|key| !is_repeated(split_path(key).0)) {
        if let Some(value) = (key.show)(draft, 0) {
            settings.push(Setting {
                key: key.path.to_owned(),
                value,
                source: source(key, 0),
            });
        }
    }
    settings
}

/// Returns the URL of an origin without a configured URL.
fn placeholder() -> OriginUrl {
    "http://origin.invalid"
        .parse()
        .expect("the placeholder is a URL")
}

/// The default capacity of the memory tier: half of 512 MiB, the memory of the smallest common rented machine.
const DEFAULT_HOT_CAPACITY: ByteSize = ByteSize::mib(256);

/// A path as text for the user.
pub(super) fn path_text(path: &Path) -> String {
    path.display().to_string()
}
