//! A configuration under construction: the fields that settings write.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use edgeward_policy::DiskAdmissionSpec;
use edgeward_proxy::config::{
    AccessLogConfig, DiskConfig, EdgeConfig, ListenAddress, LogDestination, LogFormat, Networks,
    NodeGroup, OriginConfig, OriginUrl, Roles, TracingConfig,
};
use edgeward_semantics::Heuristic;
use edgeward_sites::HostPattern;
use edgeward_store::disk::{DeviceSettings, DiskSettings};
use edgeward_types::ByteSize;

use super::choice::BucketStyle;
use super::setting::SettingSource;
use crate::acme_settings::AcmeGroup;
use crate::diagnostic::Diagnostic;
use crate::fleet_settings::FleetNats;
use crate::link_settings::LinkSettings;
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
    pub(super) acme: Vec<AcmeGroup>,
    /// The settings `[origin.link]` of each `[[origin]]`.
    pub(super) links: Vec<LinkSettings>,
    pub(super) fleet: DraftFleet,
    pub(super) fleet_members: Vec<DraftMember>,
    pub(super) fleet_nats: FleetNats,
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
    /// True if the listener has the certificates of `[[acme]]`.
    pub(super) acme: bool,
    pub(super) http3: bool,
    pub(super) proxy_protocol_from: Option<Networks>,
}

/// The settings of `[fleet]`, possibly incomplete.
#[derive(Clone, Debug)]
pub(super) struct DraftFleet {
    pub(super) name: Option<String>,
    pub(super) address: Option<SocketAddr>,
    pub(super) certificates: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) authorities: Option<PathBuf>,
    pub(super) key_file: Option<PathBuf>,
    pub(super) wait: Duration,
    pub(super) fallback_percent: u32,
    pub(super) fallbacks_per_second: u32,
    pub(super) replicate: f64,
    /// The entry of this node, if the nodes announce themselves.
    pub(super) url: Option<OriginUrl>,
    pub(super) group: NodeGroup,
    pub(super) weight: u32,
    pub(super) is_draining: bool,
}

impl Default for DraftFleet {
    /// The defaults have their reasons at the fields of [`FleetConfig`](edgeward_proxy::config::FleetConfig).
    fn default() -> Self {
        Self {
            name: None,
            address: None,
            certificates: None,
            key: None,
            authorities: None,
            key_file: None,
            wait: Duration::from_millis(50),
            fallback_percent: 20,
            fallbacks_per_second: 100,
            replicate: 0.01,
            url: None,
            group: NodeGroup::Edge,
            weight: DEFAULT_WEIGHT,
            is_draining: false,
        }
    }
}

/// One `[[fleet.member]]`, possibly incomplete.
#[derive(Clone, Debug)]
pub(super) struct DraftMember {
    pub(super) name: Option<String>,
    pub(super) url: Option<OriginUrl>,
    pub(super) group: NodeGroup,
    pub(super) weight: u32,
    pub(super) is_draining: bool,
}

impl Default for DraftMember {
    fn default() -> Self {
        Self {
            name: None,
            url: None,
            group: NodeGroup::Edge,
            weight: DEFAULT_WEIGHT,
            is_draining: false,
        }
    }
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
            acme: Vec::new(),
            links: vec![LinkSettings::default()],
            fleet: DraftFleet::default(),
            fleet_members: Vec::new(),
            fleet_nats: FleetNats::default(),
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
}

/// A part of the draft, in which settings write their fields. `item` is the index in an array of tables such as
/// `[[listener]]`; other parts ignore it.
pub(super) trait Part: Sized {
    /// Returns the part, unless it is an item that does not exist.
    fn of(draft: &ConfigDraft, item: usize) -> Option<&Self>;

    /// Returns the part, and creates an item if necessary.
    fn of_mut(draft: &mut ConfigDraft, item: usize) -> &mut Self;
}

impl Part for ConfigDraft {
    fn of(draft: &ConfigDraft, _item: usize) -> Option<&Self> {
        Some(draft)
    }

    fn of_mut(draft: &mut ConfigDraft, _item: usize) -> &mut Self {
        draft
    }
}

impl Part for EdgeConfig {
    fn of(draft: &ConfigDraft, _item: usize) -> Option<&Self> {
        Some(&draft.edge)
    }

    fn of_mut(draft: &mut ConfigDraft, _item: usize) -> &mut Self {
        &mut draft.edge
    }
}

impl Part for DraftFleet {
    fn of(draft: &ConfigDraft, _item: usize) -> Option<&Self> {
        Some(&draft.fleet)
    }

    fn of_mut(draft: &mut ConfigDraft, _item: usize) -> &mut Self {
        &mut draft.fleet
    }
}

impl Part for FleetNats {
    fn of(draft: &ConfigDraft, _item: usize) -> Option<&Self> {
        Some(&draft.fleet_nats)
    }

    fn of_mut(draft: &mut ConfigDraft, _item: usize) -> &mut Self {
        &mut draft.fleet_nats
    }
}

impl Part for DraftBucket {
    fn of(draft: &ConfigDraft, item: usize) -> Option<&Self> {
        draft.buckets.get(item).filter(|bucket| bucket.is_given)
    }

    fn of_mut(draft: &mut ConfigDraft, item: usize) -> &mut Self {
        OriginConfig::of_mut(draft, item);
        let bucket = item_mut(&mut draft.buckets, item, Self::default);
        bucket.is_given = true;
        bucket
    }
}

impl Part for LinkSettings {
    fn of(draft: &ConfigDraft, item: usize) -> Option<&Self> {
        draft.links.get(item)
    }

    fn of_mut(draft: &mut ConfigDraft, item: usize) -> &mut Self {
        OriginConfig::of_mut(draft, item);
        item_mut(&mut draft.links, item, Self::default)
    }
}

/// Implements [`Part`] for the items of lists.
macro_rules! items {
    ($($part:ty: $($list:ident).+, $blank:expr;)+) => {$(
        impl Part for $part {
            fn of(draft: &ConfigDraft, item: usize) -> Option<&Self> {
                draft.$($list).+.get(item)
            }

            fn of_mut(draft: &mut ConfigDraft, item: usize) -> &mut Self {
                item_mut(&mut draft.$($list).+, item, $blank)
            }
        }
    )+};
}

items! {
    DraftListener: listeners, Self::default;
    OriginConfig: edge.origins, || Self::new(placeholder());
    NegativeSettings: negative, Self::default;
    AcmeGroup: acme, Self::default;
    DraftMember: fleet_members, Self::default;
    DraftToken: admin_tokens, Self::default;
    DraftHost: disk_hosts, Self::default;
    DeviceSettings: disk.settings.devices, || Self { path: PathBuf::new(), capacity: None };
}

/// Returns an item of a list, which gets blank items before it if it is shorter.
fn item_mut<T>(list: &mut Vec<T>, item: usize, blank: impl FnMut() -> T) -> &mut T {
    if list.len() <= item {
        list.resize_with(item + 1, blank);
    }
    &mut list[item]
}

/// Returns true for the URL of an origin without a configured URL.
pub(super) fn is_placeholder(url: &OriginUrl) -> bool {
    *url == placeholder()
}

/// Returns the URL of an origin without a configured URL.
fn placeholder() -> OriginUrl {
    "http://origin.invalid"
        .parse()
        .expect("the placeholder is a URL")
}

/// The default weight of a node. A half or a tenth of it is a whole number.
const DEFAULT_WEIGHT: u32 = 100;

/// The default capacity of the memory tier: half of 512 MiB, the memory of the smallest common rented machine.
const DEFAULT_HOT_CAPACITY: ByteSize = ByteSize::mib(256);
