//! The configuration of an edge, checked and with all defaults filled in.
//!
//! The crate `cli` parses flags and the TOML file into types of its own, and converts them into the types of this
//! module. The comment of each field states its default and the reason. Address and origin URL have no default.

mod admin;
mod compression;
mod forwarding;
pub mod id_filter;
mod listener;
pub(in crate::base) mod log_template;
mod logs;
mod origin;
mod origin_url;
mod overload;
mod purge;
mod ranges;
mod restart;
mod s3;

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use edgeward_httpd::{AdminToken, Roles, Token};
use edgeward_policy::disk_admission::{self, DiskAdmissionSpec};
use edgeward_policy::sketch::RotatingBloomConfig;
use edgeward_semantics::{IgnoredParameters, Rules};
use edgeward_sites::{HostPattern, Settings, Site, Sites};
use edgeward_store::disk::{Device, DiskSettings};
use edgeward_store::hot::HotConfig;
use edgeward_types::ByteSize;

use crate::base::pace::MinRate;
pub use admin::AdminConfig;
pub use compression::{CompressionConfig, OriginAccepts};
pub use forwarding::{ClientField, FieldNames, ForwardingConfig, Networks, ParseListError};
use id_filter::NegativeRule;
pub use listener::{
    InvalidListenAddress, ListenAddress, ListenerConfig, ListenerTls, SiteCertificate,
};
pub use log_template::{LogTemplate, LogTemplateError};
pub use logs::{
    AccessLogConfig, InvalidSyslogServer, JOURNALD_SOCKET, LogDestination, LogFormat, SampledFlag,
    SyslogServer, TracingConfig,
};
pub(crate) use origin::OriginId;
pub use origin::{
    AllDown, Balance, CertificateFiles, ChecksConfig, HostPolicy, ORIGINS_MAX, OriginConfig,
    OriginProtocol, OriginTls, ProxyProtocol, Resolution,
};
pub use origin_url::{OriginUrl, ParseOriginUrlError};
pub use overload::{OverloadConfig, WatchdogConfig};
pub use purge::PurgeConfig;
pub use ranges::RangesConfig;
pub use restart::RestartConfig;
pub use s3::{Credentials, CredentialsError, CredentialsSource, ReadCredentialsError, S3Config};

/// The configuration of one edge.
#[derive(Clone, Debug)]
pub struct EdgeConfig {
    /// Listening addresses, at least one. Each worker listens on all of them by `SO_REUSEPORT`.
    pub listeners: Vec<ListenerConfig>,
    /// The origins of misses, at least one and at most [`ORIGINS_MAX`].
    pub origins: Vec<OriginConfig>,
    /// The sites with their rules. A host of no site gets 421. Default: one site without rules for all hosts.
    pub sites: Arc<Sites>,
    /// Certificates that listeners with TLS choose by the name in SNI, in addition to their own. Default: none.
    pub site_certificates: Vec<SiteCertificate>,
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
    /// Paths with ids. A request for an id that does not exist is answered 404 without the origin. Default: none.
    pub negative: Vec<NegativeRule>,
    /// Purges: the API, the methods PURGE and BAN, and the log.
    pub purge: PurgeConfig,
    /// The fields by which the origin learns about the client.
    pub forwarding: ForwardingConfig,
    /// The server for metrics, status and the admin API.
    pub admin: AdminConfig,
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
    /// The name in `Via` and `Cache-Status`. Default `edgeward`. Each edge of a chain needs a name of its own.
    pub name: String,
}

impl EdgeConfig {
    /// Returns the configuration of an edge that listens on `listen` and caches responses of `origin` in `hot` bytes
    /// of memory. All other settings have their defaults.
    pub fn new(listen: SocketAddr, origin: OriginUrl, hot: ByteSize) -> Self {
        Self {
            listeners: vec![ListenerConfig::plain(listen)],
            origins: vec![OriginConfig::new(origin)],
            sites: Arc::new(default_sites()),
            site_certificates: Vec::new(),
            hot: HotConfig::new(hot),
            disk: None,
            caching: CachingConfig::default(),
            ranges: RangesConfig::default(),
            compression: CompressionConfig::default(),
            negative: Vec::new(),
            purge: PurgeConfig::default(),
            forwarding: ForwardingConfig::default(),
            admin: AdminConfig::default(),
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
            name: "edgeward".to_owned(),
        }
    }
}

/// Returns the sites of an edge whose configuration has none: one site without rules for all hosts.
pub fn default_sites() -> Sites {
    let mut sites = Sites::default();
    let site = Site::new("*", Settings::default());
    sites.add(site, &[], true).expect("the only site");
    sites
}

/// The cache on disk.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// Devices, segments, queues and intervals of the store.
    pub settings: DiskSettings,
    /// The rule that decides which responses are written to disk. Default: a response is written at its second
    /// request, because most objects are requested once.
    pub admission: DiskAdmissionSpec,
    /// Hosts with admission rules of their own. The most specific pattern that matches a host applies. Default: none.
    pub hosts: Vec<HostAdmission>,
    /// Distinct keys that each admission rule remembers at a time. Default: one key per 32 KiB of disk, so that a key
    /// is remembered for about as long as an object stays on disk.
    pub expected_keys: Option<NonZeroU64>,
    /// Largest share of first requests that admission mistakes for second ones. Default 1 %: each mistake is one
    /// needless write.
    pub false_positive_rate: f64,
    /// File to which admission saves the remembered keys at shutdown, for the next start. Default: in the first
    /// device's directory or beside its file, and none for a block device.
    pub memory_file: Option<PathBuf>,
    /// Threads that read from the devices. Default 16: enough to keep several disks busy. Workers read from the page
    /// cache without these threads.
    pub read_threads: NonZeroUsize,
    /// Lookups that may wait for a read thread. Default 1024. Further lookups are misses: the origin answers sooner.
    pub reads_waiting_max: NonZeroUsize,
    /// Longest time that a response to an unsafe method waits until its invalidation is durable. Default 5 s: a sync
    /// takes milliseconds. After this time the response is sent, and the invalidation is counted as not durable.
    pub invalidation_wait_max: Duration,
    /// How objects in memory survive a restart.
    pub restart: RestartConfig,
    /// Opened devices that replace those of `settings`. Tests pass devices here that fail on purpose.
    pub opened: Vec<Arc<dyn Device>>,
}

/// The rule of admission to disk for a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAdmission {
    /// The hosts to which the rule applies.
    pub host: HostPattern,
    /// The rule that decides which responses are written.
    pub admission: DiskAdmissionSpec,
}

impl DiskConfig {
    /// Returns a cache of `capacity` at `path`. All other settings have their defaults.
    pub fn new(path: impl Into<PathBuf>, capacity: ByteSize) -> Self {
        Self::with(DiskSettings::new(path, capacity))
    }

    /// Returns a cache with these settings of the store. All other settings have their defaults.
    pub fn with(settings: DiskSettings) -> Self {
        Self {
            settings,
            admission: DiskAdmissionSpec::default(),
            hosts: Vec::new(),
            expected_keys: None,
            false_positive_rate: disk_admission::FALSE_POSITIVE_RATE_MAX,
            memory_file: None,
            read_threads: NonZeroUsize::new(16).expect("16 is not zero"),
            reads_waiting_max: NonZeroUsize::new(1024).expect("1024 is not zero"),
            invalidation_wait_max: Duration::from_secs(5),
            restart: RestartConfig::default(),
            opened: Vec::new(),
        }
    }

    /// Returns the size of the Bloom filters by which admission remembers keys, for a disk of this capacity.
    pub(crate) fn memory(&self, capacity_bytes: u64) -> RotatingBloomConfig {
        let keys = self
            .expected_keys
            .unwrap_or_else(|| disk_admission::memory_for_disk(capacity_bytes).expected_keys);
        RotatingBloomConfig::new(keys, self.false_positive_rate)
    }
}

/// The settings of HTTP caching.
#[derive(Clone, Debug)]
pub struct CachingConfig {
    /// The choices that RFC 9111 leaves to a cache: heuristic lifetimes, cookies, the client's directives.
    pub rules: Rules,
    /// Longest time after the end of its freshness for which a response is served while the origin cannot be reached
    /// (RFC 9111 §4.2.4). Default 1 d: most outages are shorter, and an old page is more useful than an error.
    pub stale_if_disconnected: Duration,
    /// Time after a failed validation for which a stale response is served without another attempt, if it may be served
    /// instead of the error. Default 2 s: an origin that fails gets at most one request per second and object.
    pub validation_backoff: Duration,
    /// Time for which requests for a URL are not collapsed after the URL had a response that clients must not share.
    /// Default 2 min, as in Varnish.
    pub hit_for_miss: Duration,
    /// Longest time from the start of a shared fetch to the head of its response for which followers wait. At this time
    /// all followers send requests of their own, and until the head arrives further requests do not wait. Default 10 s:
    /// with a longer wait, one slow connection could delay many followers.
    pub collapse_wait_max: Duration,
    /// Followers of one fetch. Default 16 384: a follower takes 40 bytes in the fetch's list, and the list wakes them
    /// one after the other. The next request leads another fetch, which further requests follow.
    pub collapse_followers_max: NonZeroUsize,
    /// Largest response that followers share although admission does not store it. Default 64 MiB, a quarter of
    /// `limits.fill_bytes_max`. A larger response is fetched again for each follower. If no follower waits when the
    /// head arrives, the limit is at most 8 MiB, because one client alone does not need the buffer.
    pub collapse_bytes_max: ByteSize,
    /// True if a storable 5xx replaces a stored response that may still be used by its lifetime,
    /// `stale-while-revalidate` or `stale-if-error`. Default false: a page that is a little old is of more use than an
    /// error, and the next validation tries again.
    pub errors_replace_stale: bool,
    /// True if a variant also answers requests with another `Accept-Encoding` or `Accept`, if the origin would answer
    /// them with the same coding or image format. Default true: without it, each browser version has its own copies.
    pub share_variants: bool,
    /// Most variants that are stored for one URL through one marker. Beyond it the URL begins with a new marker, and
    /// the older variants are no longer found. Default 1000: no negotiation of codings, types and languages makes so
    /// many, and a URL that varies by cookies or browsers does not fill the cache with copies that hardly any request
    /// hits.
    pub variants_max: NonZeroU32,
    /// Largest lines of `Link` from 103 Early Hints that are stored with a response. Default 4 KiB: forty links of 100
    /// bytes, and as much as many servers accept in a whole head. 0 stores none.
    pub early_links_bytes_max: ByteSize,
    /// Largest body that is fetched with GET for a HEAD. The first HEAD of a URL is forwarded as HEAD. If its response
    /// may be stored and is not known to be longer, the next HEAD is fetched with GET, and later ones are hits. Default
    /// 8 MiB: manifests, packages and images, which one client downloads in a second. 0 forwards every HEAD.
    pub head_fetch_bytes_max: ByteSize,
    /// Query parameters that do not change a response, for an origin that does not send `No-Vary-Search`. URLs that
    /// differ only in them share one response. The origin gets the URL of the first request. Default: none.
    pub ignored_parameters: IgnoredParameters,
    /// Seed of [`KeyHash`](edgeward_types::KeyHash). Default: random at each start, so that clients cannot search for
    /// collisions. A fixed seed makes measurements comparable.
    pub hash_seed: Option<u64>,
}

impl Default for CachingConfig {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            stale_if_disconnected: Duration::from_secs(24 * 60 * 60),
            validation_backoff: Duration::from_secs(2),
            hit_for_miss: Duration::from_secs(120),
            collapse_wait_max: Duration::from_secs(10),
            collapse_followers_max: NonZeroUsize::new(16_384).expect("16 384 is not zero"),
            collapse_bytes_max: ByteSize::mib(64),
            errors_replace_stale: false,
            share_variants: true,
            variants_max: NonZeroU32::new(1000).expect("1000 is not zero"),
            early_links_bytes_max: ByteSize::kib(4),
            head_fetch_bytes_max: ByteSize::mib(8),
            ignored_parameters: IgnoredParameters::default(),
            hash_seed: None,
        }
    }
}

/// Limits of the memory, connections and time that clients and origins can use.
#[derive(Clone, Debug)]
pub struct LimitsConfig {
    /// Clients that the rate limits of rules remember. Default 65 536, which takes 1 MiB: many more than exceed a limit
    /// at
    /// the same time. A further client replaces one that is far below its limit.
    pub rate_limit_clients_max: NonZeroUsize,
    /// The number of keys whose rates one client address may use together, if a rule limits the rate by a request
    /// field. Default 4: a client can invent keys, and few addresses have more clients with keys that use their whole
    /// rate.
    pub rate_limit_keys_per_address: NonZeroU32,
    /// Client connections of all workers. Default 65 536: about 1 GiB of buffers and kernel state if all are
    /// busy. The edge lowers the value at start if the limit of open files requires it. A further connection
    /// replaces the one that has been idle for the longest time, and is refused if no connection is idle.
    pub connections_max: NonZeroUsize,
    /// Bytes of a message's head, from clients and from the origin. Default 64 KiB: cookies of 16 KiB occur, and more
    /// is an attack or a mistake. A client gets 431 for a larger request, and 502 for a larger response.
    pub head_bytes_max: ByteSize,
    /// Bytes of a request's target. Default 32 KiB: browsers and servers in use stay below 8 to 16 KiB, and RFC 9110
    /// §4.1 asks for at least 8000 octets. A client gets 414 for a longer target.
    pub target_bytes_max: ByteSize,
    /// Header fields of a message. Default 100, the number that hyper parses without an allocation.
    pub headers_max: NonZeroUsize,
    /// Longest time from the first byte of a request to the end of its head. Default 10 s. The client then gets 408.
    pub request_head_timeout: Duration,
    /// Longest PROXY header, with its extensions. Default 4 KiB. A longer header closes the connection.
    pub proxy_header_bytes_max: ByteSize,
    /// Longest idle time of a connection between two requests, or before the first. Default 75 s.
    pub idle_timeout: Duration,
    /// Longest time in which a client reads no byte of its response, or sends no byte of its upload. Default 60 s.
    pub body_idle_timeout: Duration,
    /// Largest body of a request. Default: none, because uploads are streamed. A client gets 413 for a larger body.
    pub request_body_bytes_max: Option<ByteSize>,
    /// Bytes of a request's body that are read before a connection to the origin is requested. Default 64 KiB: forms
    /// and API calls are smaller, so a slow client holds no connection to the origin.
    pub upload_buffer_bytes: ByteSize,
    /// Memory of all upload buffers. Default 64 MiB: a thousand full buffers. While they are used up, bodies are sent
    /// to the origin without a buffer.
    pub upload_buffers_bytes_max: ByteSize,
    /// Longest time that the edge buffers a body of unknown length before it contacts the origin. Default 1 s: the
    /// client may wait for the origin's response before it sends more. A body with a length is buffered to its end or
    /// until the buffer is full.
    pub upload_buffer_wait: Duration,
    /// Time for which the edge works for a client that has left. Default 1 s: most forms and API calls are answered by
    /// then, and the edge can remove the stored responses that they change after the origin has changed them.
    pub abandoned_wait: Duration,
    /// Minimum rate of an upload in bytes per second. Default 256 B: the slowest mobile networks are ten times as
    /// fast. Only time in which the edge waits for the client counts. 0 disables the limit. A slower upload gets 408.
    pub upload_rate_min: ByteSize,
    /// Minimum rate at which a client reads its response, in bytes per second. Default 256 B. Only time in which the
    /// client does not read available bytes counts, not a slow origin or an event stream. 0 disables the limit.
    pub response_rate_min: ByteSize,
    /// Window of both minimum rates: a client may transfer no byte for this time. Default 30 s: a train in a tunnel.
    /// For a response over HTTP/1.1 the window is at least `body_idle_timeout`, because a full socket empties in large
    /// steps; but not if the response occupies an origin connection that other requests wait for.
    pub rate_window: Duration,
    /// Bytes of a response that the edge reads from the origin and buffers while the client reads none. Default
    /// 512 KiB: the origin's connection becomes free at once after a smaller body. `fill_bytes_max` includes them.
    pub read_ahead_bytes: ByteSize,
    /// Bytes per second that a worker reads from all bodies that are more than 128 KiB ahead of their clients. Up to
    /// 64 of these bodies may be 1 MiB ahead before the limit applies to them. Default 16 MiB, 134 Mbit/s, which takes
    /// about 2 % of a worker's time. 0 disables the limit.
    pub read_ahead_rate_max: ByteSize,
    /// Largest body that may enter the cache. Default 1 TiB, so that the policy decides: size-aware policies reject
    /// large objects, and the simulator has no other limit.
    pub object_bytes_max: ByteSize,
    /// Memory of fills that is not part of the cache's capacity: responses that only followers share, and responses
    /// of unknown length. Default 256 MiB. While it is used up, responses of misses are not stored.
    pub fill_bytes_max: ByteSize,
    /// Tunnels of all workers to one origin: connections that have switched to another protocol, such as WebSocket, and
    /// requests that ask for it. Default 16 384: a quarter of `connections_max`, so that tunnels leave connections to
    /// requests. A
    /// tunnel has a connection to the origin of its own, which `connections_per_worker_max` does not include: idle
    /// tunnels must not take the connections of requests. A further request for a tunnel gets 503. One client address
    /// may use the share of `client_share_percent`.
    pub tunnels_max: NonZeroUsize,
    /// Longest time without a byte in either direction of a tunnel. Default 10 min: WebSocket libraries send a ping
    /// every 15 to 60 s, and load balancers and address translation drop connections that are silent for longer. 10
    /// minutes are enough for an application without pings too, and free the memory of clients that have disappeared.
    pub tunnel_idle_timeout: Duration,
    /// Concurrent streams of one HTTP/2 connection. Default 100: RFC 9113 §6.5.2 advises no less.
    pub h2_streams_max: NonZeroU32,
    /// RST_STREAM frames of one HTTP/2 connection in ten seconds. Default 400: a browser that leaves pages or pans a
    /// map cancels a hundred streams at once. More frames close the connection with ENHANCE_YOUR_CALM.
    pub h2_resets_max: NonZeroU32,
    /// PING, SETTINGS, PRIORITY and unknown frames of one HTTP/2 connection in ten seconds. Default 2000; gRPC
    /// clients that estimate bandwidth send the most. More frames close the connection with ENHANCE_YOUR_CALM.
    pub h2_control_frames_max: NonZeroU32,
    /// WINDOW_UPDATE frames of one HTTP/2 connection in ten seconds, in addition to one per 32 bytes of responses.
    /// Default 20 000. More frames close the connection with ENHANCE_YOUR_CALM.
    pub h2_window_updates_max: NonZeroU32,
    /// Bytes of the decoded heads of all requests under way in one HTTP/2 connection. Default 4 MiB: a hundred
    /// streams with cookies of 40 KiB. A request that would exceed the limit gets 503.
    pub h2_heads_bytes_max: ByteSize,
    /// Bytes of the decoded heads of all HTTP/2 requests under way. Default 64 MiB: 16 000 requests with 4 KiB
    /// each. A request that would exceed the limit gets 503.
    pub heads_bytes_max: ByteSize,
    /// Memory of the state of all client connections: their buffers and tasks, incomplete heads, streams, and requests
    /// under way. Default 64 MiB: 14 000 idle connections of HTTP/1.1, or 1600 of HTTP/2 with TLS. At 7/8 of the limit
    /// the edge closes the connections that hold most, of the addresses that hold most.
    pub connections_bytes_max: ByteSize,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            connections_max: NonZeroUsize::new(65_536).expect("65 536 is not zero"),
            head_bytes_max: ByteSize::kib(64),
            target_bytes_max: ByteSize::kib(32),
            rate_limit_keys_per_address: NonZeroU32::new(4).expect("4 is not zero"),
            rate_limit_clients_max: NonZeroUsize::new(65_536).expect("65 536 is not zero"),
            headers_max: NonZeroUsize::new(100).expect("100 is not zero"),
            request_head_timeout: Duration::from_secs(10),
            proxy_header_bytes_max: ByteSize::kib(4),
            idle_timeout: Duration::from_secs(75),
            body_idle_timeout: Duration::from_secs(60),
            request_body_bytes_max: None,
            upload_buffer_bytes: ByteSize::kib(64),
            upload_buffers_bytes_max: ByteSize::mib(64),
            upload_buffer_wait: Duration::from_secs(1),
            abandoned_wait: Duration::from_secs(1),
            upload_rate_min: ByteSize(256),
            response_rate_min: ByteSize(256),
            rate_window: Duration::from_secs(30),
            read_ahead_bytes: ByteSize::kib(512),
            read_ahead_rate_max: ByteSize::mib(16),
            object_bytes_max: ByteSize::gib(1 << 10),
            fill_bytes_max: ByteSize::mib(256),
            tunnels_max: NonZeroUsize::new(16_384).expect("16 384 is not zero"),
            tunnel_idle_timeout: Duration::from_secs(600),
            h2_streams_max: NonZeroU32::new(100).expect("100 is not zero"),
            h2_resets_max: NonZeroU32::new(400).expect("400 is not zero"),
            h2_control_frames_max: NonZeroU32::new(2000).expect("2000 is not zero"),
            h2_window_updates_max: NonZeroU32::new(20_000).expect("20 000 is not zero"),
            h2_heads_bytes_max: ByteSize::mib(4),
            heads_bytes_max: ByteSize::mib(64),
            connections_bytes_max: ByteSize::mib(64),
        }
    }
}

impl LimitsConfig {
    /// Returns `head_bytes_max` as `usize`.
    pub(crate) fn head_len_max(&self) -> usize {
        usize::try_from(self.head_bytes_max.bytes()).unwrap_or(usize::MAX)
    }

    pub(crate) fn upload_rate(&self) -> MinRate {
        MinRate {
            bytes_per_second: self.upload_rate_min.bytes(),
            window: self.rate_window,
        }
    }

    /// Returns the minimum rate of an HTTP/2 stream, which has flow control of its own.
    pub(crate) fn stream_rate(&self) -> MinRate {
        MinRate {
            bytes_per_second: self.response_rate_min.bytes(),
            window: self.rate_window,
        }
    }

    /// Returns the minimum rate of a connection whose socket accepts no more bytes.
    pub(crate) fn socket_rate(&self) -> MinRate {
        MinRate {
            bytes_per_second: self.response_rate_min.bytes(),
            window: self.rate_window.max(self.body_idle_timeout),
        }
    }
}

/// The number of header fields that hyper and httparse parse without an allocation.
pub(crate) const HEADERS_ON_STACK: usize = 100;

/// The loopback address with port 0, for which the system picks a free port. For tests and demonstrations.
pub const LOOPBACK_ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
