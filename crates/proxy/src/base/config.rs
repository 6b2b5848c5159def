//! What an edge is told, checked and with every default filled in.
//!
//! What an operator types (flags, a TOML file) is another type, in `cli`; only these travel. Each
//! `Default` gives what an edge does when nobody said otherwise, and each field says why that is
//! the default. Two things have no default: where to listen and where the origin is.

mod forwarding;
mod host_pattern;
pub mod id_filter;
mod origin;

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use edgeward_policy::disk_admission::{self, DiskAdmissionSpec};
use edgeward_policy::sketch::RotatingBloomConfig;
use edgeward_semantics::Rules;
use edgeward_store::disk::{Device, DiskSettings};
use edgeward_store::hot::HotConfig;
use edgeward_types::ByteSize;

use crate::base::pace::MinRate;
pub use forwarding::{FieldNames, ForwardingConfig, Network, Networks, ParseListError};
pub use host_pattern::{HostAdmission, HostPattern, ParseHostPatternError};
use id_filter::NegativeRule;
pub use origin::{
    HostPolicy, OriginConfig, OriginProtocol, OriginTls, OriginUrl, ParseOriginUrlError,
};

/// One edge: where it listens, whom it asks, what it keeps and what it bears.
#[derive(Clone, Debug)]
pub struct EdgeConfig {
    /// Addresses answered on; at least one. Every worker listens on each by `SO_REUSEPORT`.
    pub listeners: Vec<ListenerConfig>,
    /// The origin all misses go to.
    pub origin: OriginConfig,
    /// The cache in memory: how much, what enters, what leaves.
    pub hot: HotConfig,
    /// The cache on disk behind it. Default: none.
    pub disk: Option<DiskConfig>,
    /// What of HTTP caching the operator may choose.
    pub caching: CachingConfig,
    /// Paths whose absent ids are answered 404 here. Default: none.
    pub negative: Vec<NegativeRule>,
    /// What an origin learns of the client.
    pub forwarding: ForwardingConfig,
    /// Where metrics and status are served. Default: nowhere, since whoever can reach it can read
    /// which policy runs and how full the cache is.
    pub admin: Option<SocketAddr>,
    /// Names by which the admin server may be asked, besides addresses, `localhost` and [`name`](Self::name). Default: none.
    pub admin_hosts: Vec<String>,
    /// Allows another edge of the same user on the same addresses. Default false: by mistake it would take half of the
    /// connections.
    pub share_ports: bool,
    /// Where requests are written down. Default: nowhere, and then it costs nothing.
    pub access_log: Option<AccessLogConfig>,
    /// Bounds on everything a stranger can make grow.
    pub limits: LimitsConfig,
    /// Threads, each with its own runtime, listeners and origin connections. Default: one a core.
    pub workers: NonZeroUsize,
    /// How long a shutdown waits for requests under way. Default 30 s: what orchestrators grant
    /// between the polite signal and the other one.
    pub drain_timeout: Duration,
    /// The name in `Via` and `Cache-Status`. Default `edgeward`; give each edge of a chain its own.
    pub name: String,
}

impl EdgeConfig {
    /// An edge on `listen` before `origin` with `hot` of memory and all else by default.
    pub fn new(listen: SocketAddr, origin: OriginUrl, hot: ByteSize) -> Self {
        Self {
            listeners: vec![ListenerConfig::plain(listen)],
            origin: OriginConfig::new(origin),
            hot: HotConfig::new(hot),
            disk: None,
            caching: CachingConfig::default(),
            negative: Vec::new(),
            forwarding: ForwardingConfig::default(),
            admin: None,
            admin_hosts: Vec::new(),
            share_ports: false,
            access_log: None,
            limits: LimitsConfig::default(),
            workers: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            drain_timeout: Duration::from_secs(30),
            name: "edgeward".to_owned(),
        }
    }
}

/// One address to answer on.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// Port 0 takes a free one; see [`RunningEdge::addrs`](crate::RunningEdge::addrs).
    pub addr: SocketAddr,
    /// TLS with HTTP/2 or HTTP/1.1 by ALPN. Without it: HTTP/1.1, or HTTP/2 when the client starts
    /// with its preface (prior knowledge, RFC 9113 §3.3).
    pub tls: Option<ListenerTls>,
}

impl ListenerConfig {
    /// Without TLS.
    pub const fn plain(addr: SocketAddr) -> Self {
        Self { addr, tls: None }
    }
}

/// What a listener proves its name with.
#[derive(Clone, Debug)]
pub struct ListenerTls {
    /// PEM file: the certificate first, then the chain to the root, without the root.
    pub certificates: PathBuf,
    /// PEM file with the private key: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// The cache on disk.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// Devices, segments, queues and intervals of the store.
    pub settings: DiskSettings,
    /// What is written. Default: a response at its second request, since most are never asked for again.
    pub admission: DiskAdmissionSpec,
    /// Hosts with a rule of their own; of several names that fit the most specific counts. Default: none.
    pub hosts: Vec<HostAdmission>,
    /// Distinct keys that admission remembers for a period, each rule on its own. Default: one for each 32 KiB of disk, so that a key is
    /// remembered for about as long as an object would stay.
    pub expected_keys: Option<NonZeroU64>,
    /// Most first requests that admission may take for later ones. Default 1 %: each is one needless write.
    pub false_positive_rate: f64,
    /// Where admission's memory is kept while the edge is down. Default: in the first device's directory or beside
    /// its file; nowhere for a block device.
    pub memory_file: Option<PathBuf>,
    /// Threads that wait for the devices. Default 16: enough to keep several disks busy; what lies in the page cache
    /// needs none of them.
    pub read_threads: NonZeroUsize,
    /// Lookups that may wait for a thread. Default 1024. Beyond it a lookup is a miss: the origin would be quicker.
    pub reads_waiting_max: NonZeroUsize,
    /// Longest a response to an unsafe method waits until the invalidation it caused is durable. Default 5 s: a sync takes
    /// milliseconds, and a disk that needs longer is broken. After it the response is released and the invalidation is counted as not durable.
    pub invalidation_wait_max: Duration,
    /// Devices that are open already, in the place of those that `settings` name: how tests bring disks that fail.
    pub opened: Vec<Arc<dyn Device>>,
}

impl DiskConfig {
    /// Everything by default but where it lies.
    pub fn new(path: impl Into<PathBuf>, capacity: ByteSize) -> Self {
        Self::with(DiskSettings::new(path, capacity))
    }

    /// Everything by default but the store's own settings.
    pub fn with(settings: DiskSettings) -> Self {
        Self {
            settings,
            admission: DiskAdmissionSpec::default(),
            hosts: Vec::new(),
            expected_keys: None,
            false_positive_rate: disk_admission::FALSE_SEEN_MAX,
            memory_file: None,
            read_threads: NonZeroUsize::new(16).expect("16 is not zero"),
            reads_waiting_max: NonZeroUsize::new(1024).expect("1024 is not zero"),
            invalidation_wait_max: Duration::from_secs(5),
            opened: Vec::new(),
        }
    }

    /// How much admission remembers before a disk of this capacity.
    pub(crate) fn memory(&self, capacity_bytes: u64) -> RotatingBloomConfig {
        let keys = self
            .expected_keys
            .unwrap_or_else(|| disk_admission::memory_for_disk(capacity_bytes).expected_keys);
        RotatingBloomConfig::new(keys, self.false_positive_rate)
    }
}

/// What of HTTP caching the operator may choose. What RFC 9111 settles is not here.
#[derive(Clone, Debug)]
pub struct CachingConfig {
    /// The choices RFC 9111 leaves to a cache: guessed lifetimes, cookies, the client's say.
    pub rules: Rules,
    /// How long a URL whose response could not be shared keeps its requests from waiting for each
    /// other. Default 2 min, as in Varnish.
    pub hit_for_miss: Duration,
    /// Longest a follower waits for the head of a response another request asked for; then it asks
    /// on its own. Default 10 s: longer and one slow origin connection slows everyone.
    pub collapse_wait_max: Duration,
    /// Largest response shared among followers when admission keeps it out of the cache. Default
    /// 8 MiB; of larger ones each follower gets its own.
    pub collapse_bytes_max: ByteSize,
    /// Key of the hash behind [`KeyHash`](edgeward_types::KeyHash). Default: drawn at start, so that
    /// strangers cannot search for collisions. A fixed one makes runs comparable.
    pub hash_seed: Option<u64>,
}

impl Default for CachingConfig {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            hit_for_miss: Duration::from_secs(120),
            collapse_wait_max: Duration::from_secs(10),
            collapse_bytes_max: ByteSize::mib(8),
            hash_seed: None,
        }
    }
}

/// Where requests are written down.
#[derive(Clone, Debug)]
pub struct AccessLogConfig {
    /// A file that is appended to, or standard output.
    pub destination: LogDestination,
    /// One JSON object a line, or NCSA combined.
    pub format: LogFormat,
    /// Lines waiting for the writer, per worker. Default 8192: a third of a second at full speed. A
    /// full ring drops lines and counts them, for a slow disk must not slow requests.
    pub queue_lines_max: NonZeroUsize,
}

impl AccessLogConfig {
    /// With the queue's default bound.
    pub fn new(destination: LogDestination, format: LogFormat) -> Self {
        Self {
            destination,
            format,
            queue_lines_max: NonZeroUsize::new(8192).expect("8192 is not zero"),
        }
    }
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogDestination {
    /// `-` at the prompt.
    Stdout,
    /// Created if it is not there.
    File(PathBuf),
}

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Every field by name; what log pipelines take without a pattern.
    #[default]
    Json,
    /// What every log analyser of the last thirty years reads.
    Combined,
    /// The same with one word behind it: what the cache did, as `cache` of the JSON form.
    CombinedCache,
}

/// Bounds on everything a stranger can make grow.
#[derive(Clone, Debug)]
pub struct LimitsConfig {
    /// Client connections of all workers. Default 65 536, about 1 GiB of buffers and kernel state
    /// when all are busy. Lowered at the start to what the limit of open files leaves. A further connection
    /// takes the place of the one that is idle longest; it is refused if none is idle.
    pub connections_max: NonZeroUsize,
    /// Bytes of a message's head, request line and headers, from clients and from the origin.
    /// Default 64 KiB: cookies of 16 KiB happen, more is an attack or a mistake. A client gets 431,
    /// an origin's response becomes 502.
    pub head_bytes_max: ByteSize,
    /// Bytes of a request's target. Default 32 KiB: browsers and servers in use stay below 8 to 16 KiB, and RFC 9110
    /// §4.1 asks for at least 8000 octets. A client gets 414.
    pub target_bytes_max: ByteSize,
    /// Header fields of a message. Default 100: as many as are parsed without an allocation.
    pub headers_max: NonZeroUsize,
    /// From the first byte of a request to the end of its head; then 408. Default 10 s.
    pub request_head_timeout: Duration,
    /// Silence between two requests of a connection, or before the first. Default 75 s.
    pub idle_timeout: Duration,
    /// Longest a client may take no byte of its response, or send none of its upload. Default 60 s.
    pub body_idle_timeout: Duration,
    /// Largest body of a request. Default: none, since uploads are streamed and never kept. Beyond
    /// it, 413.
    pub request_body_bytes_max: Option<ByteSize>,
    /// Bytes of a request's body that are read before a connection to the origin is asked for. Default 64 KiB: forms and
    /// calls of an API are smaller, and then a slow client holds no connection to the origin.
    pub upload_buffer_bytes: ByteSize,
    /// Memory of all such buffers. Default 64 MiB: a thousand full ones. Beyond it bodies are streamed at once.
    pub upload_buffers_bytes_max: ByteSize,
    /// Longest wait for the end of a body of unknown length. Default 1 s: its client may wait for
    /// the origin's answer before it sends more. A body with a length is waited for until the buffer is full.
    pub upload_buffer_wait: Duration,
    /// Least rate of an upload in bytes a second. Default 256 B: the slowest mobile links bring ten times as much. Only time in which
    /// the edge waits for the client counts. 0 is no bound. Slower uploads get a 408.
    pub upload_rate_min: ByteSize,
    /// Least rate at which a client takes its response, in bytes a second. Default 256 B. Only time counts in
    /// which the edge has bytes that the client does not take: slow origins and streams of events cost nothing. 0 is no bound.
    pub response_rate_min: ByteSize,
    /// How long a client may move nothing, before what it moved within that time has to reach the rate. Default 30 s: a train's
    /// tunnel. A client over HTTP/1.1 has `body_idle_timeout` for its response, since a full socket empties in large steps,
    /// unless requests wait for the connection to the origin that the response holds.
    pub rate_window: Duration,
    /// Bytes of a response that are read from the origin and kept while its client takes nothing. Default 512 KiB: with a
    /// smaller body the origin's connection comes free at once. They are part of `fill_bytes_max`.
    pub read_ahead_bytes: ByteSize,
    /// Bytes a second that a worker reads of bodies whose clients are all behind by more than 128 KiB (1 MiB for up to 64 bodies). Default 16 MiB, 134 Mbit/s:
    /// it takes about 2 % of a worker's time. Clients that keep up do not wait for it. 0 is no bound.
    pub read_ahead_rate_max: ByteSize,
    /// Largest body that may enter the cache. Default 1 TiB, which is to say that the policy decides:
    /// one that minds sizes keeps large objects out, and the simulator knows no other limit.
    pub object_bytes_max: ByteSize,
    /// Memory of fills under way that have no place in the cache (yet): shared among followers, or
    /// of unknown length. Default 256 MiB. It is not part of the cache's capacity, which those with
    /// a place are charged to. When it is used up, misses pass through uncached.
    pub fill_bytes_max: ByteSize,
    /// Streams open at once in one HTTP/2 connection. Default 100, RFC 9113 §6.5.2's least.
    pub h2_streams_max: NonZeroU32,
    /// RST_STREAM frames of one HTTP/2 connection in ten seconds. Default 400: a browser that leaves pages or pans a map
    /// cancels a hundred at once. Beyond it, GOAWAY with ENHANCE_YOUR_CALM.
    pub h2_resets_max: NonZeroU32,
    /// PING, SETTINGS, PRIORITY and unknown frames of one HTTP/2 connection in ten seconds. Default 2000; gRPC clients
    /// that estimate bandwidth send the most. Beyond it, GOAWAY with ENHANCE_YOUR_CALM.
    pub h2_control_frames_max: NonZeroU32,
    /// WINDOW_UPDATE frames of one HTTP/2 connection in ten seconds, beside those that response bytes justify. Default
    /// 20 000. Beyond it, GOAWAY with ENHANCE_YOUR_CALM.
    pub h2_window_updates_max: NonZeroU32,
    /// Decoded heads of the requests under way in one HTTP/2 connection. Default 4 MiB: a hundred streams with cookies of
    /// 40 KiB. A request beyond it gets 503.
    pub h2_heads_bytes_max: ByteSize,
    /// Decoded heads of all HTTP/2 requests under way. Default 64 MiB, which is 16 000 requests with 4 KiB each. A request
    /// beyond it gets 503.
    pub heads_bytes_max: ByteSize,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            connections_max: NonZeroUsize::new(65_536).expect("65 536 is not zero"),
            head_bytes_max: ByteSize::kib(64),
            target_bytes_max: ByteSize::kib(32),
            headers_max: NonZeroUsize::new(100).expect("100 is not zero"),
            request_head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            body_idle_timeout: Duration::from_secs(60),
            request_body_bytes_max: None,
            upload_buffer_bytes: ByteSize::kib(64),
            upload_buffers_bytes_max: ByteSize::mib(64),
            upload_buffer_wait: Duration::from_secs(1),
            upload_rate_min: ByteSize(256),
            response_rate_min: ByteSize(256),
            rate_window: Duration::from_secs(30),
            read_ahead_bytes: ByteSize::kib(512),
            read_ahead_rate_max: ByteSize::mib(16),
            object_bytes_max: ByteSize::gib(1 << 10),
            fill_bytes_max: ByteSize::mib(256),
            h2_streams_max: NonZeroU32::new(100).expect("100 is not zero"),
            h2_resets_max: NonZeroU32::new(400).expect("400 is not zero"),
            h2_control_frames_max: NonZeroU32::new(2000).expect("2000 is not zero"),
            h2_window_updates_max: NonZeroU32::new(20_000).expect("20 000 is not zero"),
            h2_heads_bytes_max: ByteSize::mib(4),
            heads_bytes_max: ByteSize::mib(64),
        }
    }
}

impl LimitsConfig {
    /// The bound of a head as a length in memory.
    pub(crate) fn head_len_max(&self) -> usize {
        usize::try_from(self.head_bytes_max.bytes()).unwrap_or(usize::MAX)
    }

    pub(crate) fn upload_rate(&self) -> MinRate {
        MinRate {
            bytes_per_second: self.upload_rate_min.bytes(),
            window: self.rate_window,
        }
    }

    /// For one of several streams, whose client says how much it takes.
    pub(crate) fn stream_rate(&self) -> MinRate {
        MinRate {
            bytes_per_second: self.response_rate_min.bytes(),
            window: self.rate_window,
        }
    }

    /// For a connection whose socket takes no more.
    pub(crate) fn socket_rate(&self) -> MinRate {
        MinRate {
            bytes_per_second: self.response_rate_min.bytes(),
            window: self.rate_window.max(self.body_idle_timeout),
        }
    }
}

/// As many header fields as hyper and httparse read without an allocation.
pub(crate) const HEADERS_ON_STACK: usize = 100;

/// Loopback with a free port: where tests and demonstrations listen.
pub const LOOPBACK_ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
