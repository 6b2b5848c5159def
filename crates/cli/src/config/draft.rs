//! A configuration under construction: the fields that settings write.

use std::path::{Path, PathBuf};

use edgeward_policy::DiskAdmissionSpec;
use edgeward_proxy::config::{
    AccessLogConfig, DiskConfig, EdgeConfig, ListenAddress, LogDestination, LogFormat, Networks,
    OriginConfig, OriginUrl, Roles, TracingConfig,
};
use edgeward_semantics::Heuristic;
use edgeward_sites::HostPattern;
use edgeward_store::disk::{DeviceSettings, DiskSettings};
use edgeward_types::ByteSize;

use super::choice::BucketStyle;
use super::setting::SettingSource;
use crate::diagnostic::Diagnostic;
use crate::link_edge::LinkSettings;
use crate::negative::NegativeSettings;

/// A configuration under construction: each setting writes one field. [`check`](super::check::check) combines the fields that depend on
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

/// The settings `s3_…` of one `[[origin]]`, possibly incomplete.
#[derive(Clone, Debug)]
pub(super) struct DraftBucket {
    /// True if any of the settings is given.
    pub(super) is_given: bool,
    pub(super) bucket: Option<String>,
    pub(super) region: Option<String>,
    pub(super) style: BucketStyle,
    pub(super) serves_list: bool,
    pub(super) credentials_file: Option<PathBuf>,
    pub(super) profile: String,
}

impl Default for DraftBucket {
    fn default() -> Self {
        Self {
            is_given: false,
            bucket: None,
            region: None,
            style: BucketStyle::Auto,
            serves_list: false,
            credentials_file: None,
            // The profile that the AWS tools use without `AWS_PROFILE`.
            profile: "default".to_owned(),
        }
    }
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
