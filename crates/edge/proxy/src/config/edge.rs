//! The configuration of one edge: its sites and origins, and the settings of each part.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use edgeward_fleet::FleetDirectory;
use edgeward_sites::{Settings, Site, Sites};
use edgeward_store::hot::HotConfig;
use edgeward_types::ByteSize;

use super::admin::{AdminConfig, PurgeConfig};
use super::caching::{CachingConfig, RangesConfig};
use super::certificates::CertificateSource;
use super::compression::CompressionConfig;
use super::disk::DiskConfig;
use super::fleet::{FleetConfig, is_of_fleet};
use super::fleet_purges::FleetPurges;
use super::forwarding::ForwardingConfig;
use super::id_filter::NegativeRule;
use super::insight::InsightConfig;
use super::limits::LimitsConfig;
use super::listener::{ListenerConfig, SiteCertificate};
use super::logs::{AccessLogConfig, TracingConfig};
use super::origin::OriginConfig;
use super::origin_url::OriginUrl;
use super::overload::{OverloadConfig, WatchdogConfig};
use super::watch::Watcher;

/// The configuration of one edge.
#[derive(Clone, Debug)]
pub struct EdgeConfig {
    /// Listening addresses, at least one. Each worker listens on all of them by `SO_REUSEPORT`.
    pub listeners: Vec<ListenerConfig>,
    /// The origins of misses, at least one and at most [`ORIGINS_MAX`](super::ORIGINS_MAX).
    pub origins: Vec<OriginConfig>,
    /// The sites with their rules. A host of no site gets 421. Default: one site without rules for all hosts.
    pub sites: Arc<Sites>,
    /// Certificates that listeners with TLS choose by the name in SNI, in addition to their own. Default: none.
    pub site_certificates: Vec<SiteCertificate>,
    /// Certificates that are renewed while the edge runs. Listeners with TLS choose them by the name in SNI. Default:
    /// none.
    pub certificates: Option<Arc<dyn CertificateSource>>,
    /// The cache in memory: capacity, admission and eviction.
    pub hot: HotConfig,
    /// The cache on disk. Default: none.
    pub disk: Option<DiskConfig>,
    /// The settings of HTTP caching, for example of heuristic lifetimes and collapsing.
    pub caching: CachingConfig,
    /// Requests for ranges without a stored response.
    pub ranges: RangesConfig,
    /// Compression of responses that the origin sends without a coding.
    pub compression: CompressionConfig,
    /// The fleet to which the edge belongs. Set by [`set_fleet`](Self::set_fleet). Default: none.
    pub fleet: Option<FleetConfig>,
    /// The members of the fleet by their heartbeats, if the nodes announce themselves. The program makes it, and
    /// changes the list of `fleet` by reloads. Default: none.
    pub fleet_directory: Option<Arc<dyn FleetDirectory>>,
    /// Paths with ids. A request for an id that does not exist is answered 404 without the origin. Default: none.
    pub negative: Vec<NegativeRule>,
    /// Purges: the API, the methods PURGE and BAN, and the log.
    pub purge: PurgeConfig,
    /// The purges that the edge shares with the nodes of its fleet. Default: none.
    pub fleet_purges: Option<FleetPurges>,
    /// The fields by which the origin learns about the client.
    pub forwarding: ForwardingConfig,
    /// The server for metrics, status and the admin API.
    pub admin: AdminConfig,
    /// The analysis of the requests, which the program makes from these settings.
    pub insight: InsightConfig,
    /// The watcher of the requests. Default: none.
    pub watcher: Option<Arc<dyn Watcher>>,
    /// The most sites, and the most origins, with a label of their own in metrics. Default 100.
    pub metric_labels_max: usize,
    /// Lets a second edge listen on the same addresses. Default false: it would get half of the connections.
    pub share_ports: bool,
    /// The access log. Default: none.
    pub access_log: Option<AccessLogConfig>,
    /// Traces of sampled requests, if they are exported.
    pub tracing: Option<TracingConfig>,
    /// Limits of the memory, connections and time that clients and origins can use.
    pub limits: LimitsConfig,
    /// The bounds above which the edge sheds load.
    pub overload: OverloadConfig,
    /// The watchdog of the workers.
    pub watchdog: WatchdogConfig,
    /// Threads, each with its own runtime, listeners and connections to the origin. Default: one per core.
    pub workers: NonZeroUsize,
    /// Longest time that a shutdown waits for requests under way. Default 30 s: the time that orchestrators leave
    /// between SIGTERM and SIGKILL.
    pub drain_timeout: Duration,
    /// Longest time that an upgrade waits until the new process accepts connections. Default 60 s: a start reads files
    /// and certificates, and the disk store is opened later.
    pub upgrade_timeout: Duration,
    /// Time between two checks if a file of a certificate has changed. Default 10 s; zero: no checks.
    pub certificate_interval: Duration,
    /// The file with the id of the process. Default: none.
    pub pid_file: Option<PathBuf>,
    /// The user as whom the process serves, if root starts it. The program changes its user, not this crate.
    pub user: Option<String>,
    /// The settings as they were given, for the admin page. Default: none.
    pub stated: Arc<Vec<StatedSetting>>,
    /// The name in `Via` and `Cache-Status`. Default `edgeward`. Each edge of a chain needs a name of its own.
    pub name: String,
}

impl EdgeConfig {
    /// Returns true if the settings ask for an analysis of the requests: its results are read at the admin address.
    pub fn watches_requests(&self) -> bool {
        self.insight.enabled && self.admin.address.is_some()
    }

    /// Makes the edge a node of a fleet. Adds the listener for the other nodes after those for clients, and an origin
    /// for each node that this one may ask after those of sites. Replaces an earlier fleet.
    pub fn set_fleet(&mut self, fleet: FleetConfig) {
        self.listeners.retain(|listener| !listener.is_for_nodes);
        self.origins.retain(|origin| !is_of_fleet(&origin.name));
        self.listeners.push(fleet.listener());
        self.origins.extend(fleet.origins());
        self.fleet = Some(fleet);
    }

    /// Returns the configuration of an edge that listens on `listen` and caches responses of `origin` in `hot` bytes
    /// of memory. All other settings have their defaults.
    pub fn new(listen: SocketAddr, origin: OriginUrl, hot: ByteSize) -> Self {
        Self {
            listeners: vec![ListenerConfig::plain(listen)],
            origins: vec![OriginConfig::new(origin)],
            sites: Arc::new(default_sites()),
            site_certificates: Vec::new(),
            certificates: None,
            hot: HotConfig::new(hot),
            disk: None,
            caching: CachingConfig::default(),
            ranges: RangesConfig::default(),
            compression: CompressionConfig::default(),
            fleet: None,
            fleet_directory: None,
            negative: Vec::new(),
            purge: PurgeConfig::default(),
            fleet_purges: None,
            forwarding: ForwardingConfig::default(),
            admin: AdminConfig::default(),
            insight: InsightConfig::default(),
            watcher: None,
            metric_labels_max: 100,
            share_ports: false,
            access_log: None,
            tracing: None,
            limits: LimitsConfig::default(),
            overload: OverloadConfig::default(),
            watchdog: WatchdogConfig::default(),
            workers: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            drain_timeout: Duration::from_secs(30),
            upgrade_timeout: Duration::from_secs(60),
            certificate_interval: Duration::from_secs(10),
            pid_file: None,
            user: None,
            stated: Arc::default(),
            name: "edgeward".to_owned(),
        }
    }
}

/// A setting as it was given, for the admin page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedSetting {
    /// The key, for example `hot.capacity` or `listener[0].address`.
    pub key: String,
    /// The value in the form of the configuration file.
    pub value: String,
    /// The place where it was given: a line of the file, a flag, or `default`.
    pub from: String,
}

/// Returns the sites of an edge whose configuration has none: one site without rules for all hosts.
pub fn default_sites() -> Sites {
    let mut sites = Sites::default();
    let site = Site::new("*", Settings::default());
    sites.add(site, &[], true).expect("the only site");
    sites
}

/// The loopback address with port 0, for which the system picks a free port. For tests and demonstrations.
pub const LOOPBACK_ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
