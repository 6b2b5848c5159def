//! The origin: its URL, protocol, timeouts, limits and TLS.

use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use edgeward_balance::AllDown;
pub use edgeward_proxy_protocol::Version as ProxyProtocol;

use super::interfaces::{Dial, Resolve};
use super::origin_url::OriginUrl;
use super::s3::S3Config;

/// An origin of misses.
#[derive(Clone, Debug)]
pub struct OriginConfig {
    /// The name in the configuration, metrics and messages, unique among the origins of an edge. Default `default`.
    pub name: String,
    /// The servers, at least one, all with the same scheme. The first gives `Host`, see [`HostPolicy::Origin`].
    pub servers: Vec<OriginUrl>,
    /// Servers that get requests only if none of `servers` is usable. Default: none.
    pub backup_servers: Vec<OriginUrl>,
    /// The choice of a server for a request. Default: least requests, because a slow server then gets fewer.
    pub balance: Balance,
    /// For [`Balance::Hash`]: the percentage by which the requests under way at a server may exceed the mean. Default
    /// 25: with less, many keys move between servers; with more, a popular key overloads one.
    pub hash_excess_percent: u32,
    /// Addresses of all servers together. Further addresses of a host name are not used. Default 32: more than the
    /// answers of DNS servers in use have, and the memory and the metrics per address stay small.
    pub servers_max: NonZeroUsize,
    /// Interval at which host names are resolved again, if the resolver does not report the time to live of its answer,
    /// or has failed. Default 30 s, a common time to live of records that change.
    pub resolve_interval: Duration,
    /// How host names are resolved. SRV records always come from DNS. Default: by the resolver of the system.
    pub resolution: Resolution,
    /// The DNS servers. Default: none, so that those of `/etc/resolv.conf` are used.
    pub name_servers: Vec<SocketAddr>,
    /// Resolves names in place of `resolution`. Default: none.
    pub resolver: Option<Arc<dyn Resolve>>,
    /// Consecutive failed requests after which a server gets no requests for a time. Default 3: a lost packet or a
    /// restarted process of the server fails one or two requests.
    pub failures_max: NonZeroU32,
    /// The first such time. Each further failure doubles it. Default 5 s: an application restarts in seconds.
    pub ejection_time: Duration,
    /// The longest such time. Default 60 s: a server that was down for long is used again within a minute.
    pub ejection_time_max: Duration,
    /// Time after a recovery in which the share of a server grows to that of the others. Default 10 s: caches and
    /// connection pools of applications fill in seconds.
    pub slow_start: Duration,
    /// The choice if no server is usable. Default: the server that failed least recently is tried.
    pub all_down: AllDown,
    /// Active health checks. Default: none.
    pub checks: ChecksConfig,
    /// Retries at other servers, as a percentage of the requests of the last ten seconds. Default 20: a server that
    /// fails then costs the others at most a fifth more.
    pub retry_percent: u32,
    /// Retries per second that are allowed in addition. Default 10: rare requests are retried too.
    pub retries_per_second: u32,
    /// Adds this edge to `Via` of requests. Default true (RFC 9110 §7.6.3: a gateway MUST add it). nginx as an origin
    /// does not compress responses to requests with `Via`, unless it has `gzip_proxied any`.
    pub via: bool,
    /// Replaces the origin's own address in `Location` by the site's. Default true, as in nginx.
    pub rewrites_location: bool,
    /// The protocol. Default HTTP/1.1, which every origin speaks.
    pub protocol: OriginProtocol,
    /// Longest time to connect, TLS included. Default 5 s: two lost SYNs take 1 + 2 s, and a slow handshake the rest.
    pub connect_timeout: Duration,
    /// Longest time from the end of the request to the head of the response. Default 60 s, as in nginx and Varnish: a
    /// shorter limit would break slow pages.
    pub first_byte_timeout: Duration,
    /// Longest time that the body of a request with `Expect: 100-continue` waits for the origin's `100 Continue`.
    /// Default 1 s: an origin that refuses a head answers sooner, and an upload to an origin that ignores the field
    /// is not delayed by more than this.
    pub expect_timeout: Duration,
    /// Longest time without a byte of a response's body. Default 60 s.
    pub read_idle_timeout: Duration,
    /// Busy and idle connections of each worker. Default 512. Further requests wait for a connection. The edge lowers
    /// the value at start if the limit of open files requires it.
    pub connections_per_worker_max: NonZeroUsize,
    /// The percentage of a worker's connections that one client address (IPv6: one /64) may use while no other
    /// address uses any. Default 80: a fifth remains for other addresses, and a single client such as a load balancer
    /// still gets most connections. The more addresses use connections, the fewer each may use: see `origin::queue`.
    /// 100 disables the limit.
    pub client_share_percent: u32,
    /// The percentage of a worker's connections that two kinds of requests may hold before their body is complete:
    /// those with `Expect: 100-continue`, and those whose body has no known length and is incomplete after
    /// `limits.upload_buffer_wait`. Default 50: other requests keep half of the connections. Further bodies of these
    /// kinds are buffered until they end or the buffer is full.
    pub unfinished_uploads_percent: u32,
    /// Requests of a worker that may wait for a connection. Default 1024, two for each connection. When more wait, a
    /// request of the address with the most waiting requests gets a 503.
    pub queue_max: usize,
    /// Longest time that a request waits for a connection. Default 5 s: clients do not wait longer. The client then
    /// gets 503 with `Retry-After`.
    pub queue_timeout: Duration,
    /// Idle connections of each worker that are kept for later misses. Default 256: enough for the misses of one core.
    pub idle_per_worker_max: usize,
    /// Longest time for which an idle connection is kept. Default 15 s, below the keep-alive time of most origins
    /// (nginx 75 s). Node.js closes connections after 5 s; requests on a connection that it has closed are retried.
    pub idle_timeout: Duration,
    /// How often a request that may be repeated (RFC 9110 §9.2.2) is sent again: to the same server, after a pooled
    /// connection turned out to be closed, and to other servers. Default 2. The last try at a server always uses a new
    /// connection. With 0, a request is still sent again once if the origin had closed the pooled connection. A server
    /// that refuses a connection does not count.
    pub retries_max: u32,
    /// Accepts a response with an unknown transfer coding: its body ends with the connection, and clients get its bytes
    /// without the coding's name. Default false: the bytes may be unusable, and a 502 shows the fault.
    pub accepts_unknown_codings: bool,
    /// Begins each connection with a PROXY header, which states the client of the request. A connection then serves one
    /// request, because it belongs to one client. Only for HTTP/1.1. Default: none.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Verification of an `https` origin.
    pub tls: OriginTls,
    /// The `Host` that the origin gets. Default: [`HostPolicy::default_for`] the URL, and [`HostPolicy::Origin`] for a
    /// bucket.
    pub host: Option<HostPolicy>,
    /// The bucket, if the origin is S3. Default: none.
    pub s3: Option<Arc<S3Config>>,
    /// For HTTP/2: while requests wait, a PING is sent at this interval, and a server that does not answer it within
    /// four intervals has failed. Default none: the timeouts of requests count alone.
    pub ping_interval: Option<Duration>,
    /// Opens connections to the origin in place of TCP to the URL's host. Default: none.
    pub dial: Option<Arc<dyn Dial>>,
}

impl OriginConfig {
    /// Returns an origin with defaults for everything but the URL.
    pub fn new(url: OriginUrl) -> Self {
        Self {
            name: DEFAULT_NAME.to_owned(),
            servers: vec![url],
            backup_servers: Vec::new(),
            balance: Balance::default(),
            hash_excess_percent: 25,
            servers_max: NonZeroUsize::new(32).expect("32 is not zero"),
            resolve_interval: Duration::from_secs(30),
            resolution: Resolution::default(),
            name_servers: Vec::new(),
            resolver: None,
            failures_max: NonZeroU32::new(3).expect("3 is not zero"),
            ejection_time: Duration::from_secs(5),
            ejection_time_max: Duration::from_secs(60),
            slow_start: Duration::from_secs(10),
            all_down: AllDown::Try,
            checks: ChecksConfig::default(),
            retry_percent: 20,
            retries_per_second: 10,
            via: true,
            rewrites_location: true,
            protocol: OriginProtocol::Http1,
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(60),
            expect_timeout: Duration::from_secs(1),
            read_idle_timeout: Duration::from_secs(60),
            connections_per_worker_max: NonZeroUsize::new(512).expect("512 is not zero"),
            client_share_percent: 80,
            unfinished_uploads_percent: 50,
            queue_max: 1024,
            queue_timeout: Duration::from_secs(5),
            idle_per_worker_max: 256,
            idle_timeout: Duration::from_secs(15),
            retries_max: 2,
            accepts_unknown_codings: false,
            proxy_protocol: None,
            tls: OriginTls::default(),
            host: None,
            s3: None,
            ping_interval: None,
            dial: None,
        }
    }

    /// Returns the rule for `Host`.
    pub fn host_policy(&self) -> &HostPolicy {
        let default = || match &self.s3 {
            Some(_) => &HostPolicy::Origin,
            None => HostPolicy::default_for(self.url()),
        };
        self.host.as_ref().unwrap_or_else(default)
    }

    /// Returns the URL of the first server.
    ///
    /// # Panics
    ///
    /// Panics if there is no server.
    pub fn url(&self) -> &OriginUrl {
        self.servers.first().expect("an origin has a server")
    }

    /// Returns the `Host` of requests that the edge sends on its own account.
    pub(crate) fn own_host(&self) -> String {
        match self.host_policy() {
            HostPolicy::Fixed(host) => host.clone(),
            HostPolicy::Forward | HostPolicy::Origin => self.url().authority(),
        }
    }
}

/// The choice of a server for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// The servers get requests in turn.
    RoundRobin,
    /// The server with fewer requests under way of two that are chosen at random.
    #[default]
    LeastRequests,
    /// The same server for the same URL, unless it has too many requests under way.
    Hash,
}

/// How host names are resolved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resolution {
    /// By the system (`getaddrinfo`), which also reads `/etc/hosts`. The time to live of an answer is unknown.
    #[default]
    System,
    /// By queries to DNS servers. A name is resolved again after the time to live of its answer.
    Dns,
}

/// Active health checks of the servers of an origin.
#[derive(Clone, Debug)]
pub struct ChecksConfig {
    /// The path of the checks, with a query if wanted. Default: none, so that no checks are sent.
    pub path: Option<String>,
    /// Time between two checks of a server. Default 5 s.
    pub interval: Duration,
    /// Longest time of a check. Default 2 s.
    pub timeout: Duration,
    /// The expected status. Default: any status of 200 to 399.
    pub status: Option<u16>,
    /// Consecutive failures after which a server gets no requests. Default 3.
    pub failures: NonZeroU32,
    /// Consecutive successes after which it gets requests again. Default 2.
    pub successes: NonZeroU32,
}

impl Default for ChecksConfig {
    fn default() -> Self {
        Self {
            path: None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            status: None,
            failures: NonZeroU32::new(3).expect("3 is not zero"),
            successes: NonZeroU32::new(2).expect("2 is not zero"),
        }
    }
}

/// The position of an origin in [`EdgeConfig::origins`](super::EdgeConfig::origins). Default: the first origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OriginId(pub(crate) u16);

impl OriginId {
    /// Returns the origin with this index, which the start of the edge has checked.
    pub(crate) fn new(index: usize) -> Self {
        Self(u16::try_from(index).expect("an edge has at most ORIGINS_MAX origins"))
    }

    /// Returns the index of the origin.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The largest number of origins, so that an `OriginId` takes two bytes of a request.
pub const ORIGINS_MAX: usize = 1 << 16;

/// The protocol of the origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OriginProtocol {
    /// Persistent connections with one request at a time.
    #[default]
    Http1,
    /// One connection per worker with many streams: by ALPN over TLS, by prior knowledge without TLS.
    Http2,
}

/// PEM files of a certificate chain and its private key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate first, then the intermediate certificates.
    pub certificates: PathBuf,
    /// The private key: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// Verification of an `https` origin.
#[derive(Clone, Debug)]
pub struct OriginTls {
    /// Verifies the certificate. Default true. False accepts any certificate: only passive attacks are prevented.
    pub verify: bool,
    /// PEM file of trusted root certificates. Default: the root certificates of the system.
    pub roots: Option<PathBuf>,
    /// The certificate with which the edge authenticates to the origin. Default: none.
    pub client: Option<CertificateFiles>,
    /// The name in SNI that the certificate must have. Default: the host of the URL.
    pub server_name: Option<String>,
}

impl Default for OriginTls {
    fn default() -> Self {
        Self {
            verify: true,
            roots: None,
            client: None,
            server_name: None,
        }
    }
}

/// The rule for the `Host` that the origin gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPolicy {
    /// The client's `Host`. Origins that serve several names need it, and their redirects then point to the edge.
    Forward,
    /// Host and port of the origin's first server.
    Origin,
    /// A fixed value.
    Fixed(String),
}

impl HostPolicy {
    /// Returns the default for an origin at `url`.
    ///
    /// An `https` origin with a host name usually selects its site by `Host`, and answers 421 to names that its
    /// certificate lacks. It therefore gets the name of its URL. An origin with `http` or an IP address usually belongs
    /// to the operator and serves the names that clients use.
    pub fn default_for(url: &OriginUrl) -> &'static Self {
        if url.tls && url.host.parse::<IpAddr>().is_err() {
            &Self::Origin
        } else {
            &Self::Forward
        }
    }
}

/// The name of an origin without a configured name.
const DEFAULT_NAME: &str = "default";
