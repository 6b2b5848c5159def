//! The configuration of a publisher.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use edgeward_filter::client::ClockFn;
pub use edgeward_filter::complete::Coverage;
use edgeward_filter::guava::Funnel;
use edgeward_filter::{IdHasher, Rate, Signer};
use edgeward_httpd::ServerConfig;
use edgeward_types::ConnectionLimits;

use crate::origins::AllowedOrigins;
use edgeward_httpd::Token;

/// The configuration of a publisher of one set.
#[derive(Clone)]
pub struct PublishConfig {
    /// The name of the set: a part of every path, every manifest and every proof.
    pub set: String,
    /// The address for clients. Port 0 selects a free port.
    pub listen: SocketAddr,
    /// The address for metrics and status. Default: not served.
    pub admin: Option<SocketAddr>,
    /// The folder of the journal, the newest snapshot and other state. Only one publisher may use it.
    pub state: PathBuf,
    /// The key that signs manifests and proofs (answers to challenges of clients). Without a key, only TLS can protect
    /// them from changes.
    pub signer: Option<Signer>,
    /// The token that clients send to post ids. Without a token no client may post.
    pub token: Option<Token>,
    /// The false-positive rate of the filter.
    pub rate: Rate,
    /// The form of the ids and the seed of their hash. Fixed for the lifetime of a state folder.
    pub hasher: IdHasher,
    /// A scan with more ids fails. Each id takes 8 bytes during a build. Default 2³⁰.
    pub ids_max: u64,
    /// If true, values that are not ids of the configured form are skipped and counted. Otherwise they end the scan.
    pub skip_malformed: bool,
    /// The time from the start of one scan to the start of the next. Default 1 h. Between scans, added ids are
    /// published through the journal, and removed ids only cause false positives.
    pub interval: Duration,
    /// The longest time that the first scan waits for a feed to begin. A scan that began before the feed would
    /// have to be repeated. Default: no wait.
    pub feed_wait: Duration,
    /// States which source reports all new ids: see [`Coverage`].
    pub coverage: Coverage,
    /// A writer must commit an id within this time after it posted the id, or post it again. Default 5 min.
    ///
    /// A scan may miss ids that are committed after its start. Ids that were journaled less than this time before
    /// the start are therefore added to the result of the scan.
    pub commit_within: Duration,
    /// A scan that finds less than this share of the previous scan's ids is not published, because a faulty
    /// source is more likely than the deletion of so many ids. Default 0.5.
    pub least_share: f64,
    /// How long a cache may keep a manifest. Default 1 s.
    pub manifest_max_age: Duration,
    /// If set, the publisher also builds a filter in Guava's format, which takes 16 bytes per id during the build.
    /// Default: no Guava filter.
    pub guava: Option<Funnel>,
    /// The origins (CORS) of the web pages that may read responses. Default: none.
    pub allowed_origins: AllowedOrigins,
    /// Limits on resources that clients can consume.
    pub limits: PublishLimits,
    /// Reads the clocks. The monotonic clock must run while the machine sleeps.
    pub clock: ClockFn,
}

impl PublishConfig {
    /// Returns the configuration of a publisher of `set`, with its state in `state` and defaults otherwise.
    pub fn new(
        set: impl Into<String>,
        listen: SocketAddr,
        state: impl Into<PathBuf>,
        clock: ClockFn,
    ) -> Self {
        Self {
            set: set.into(),
            listen,
            admin: None,
            state: state.into(),
            signer: None,
            token: None,
            rate: Rate::new(0.01).expect("one in a hundred is a rate"),
            hasher: IdHasher::default(),
            ids_max: 1 << 30,
            skip_malformed: false,
            interval: Duration::from_secs(3600),
            feed_wait: Duration::ZERO,
            coverage: Coverage::Scans,
            commit_within: Duration::from_secs(300),
            least_share: 0.5,
            manifest_max_age: Duration::from_secs(1),
            guava: None,
            allowed_origins: AllowedOrigins::None,
            limits: PublishLimits::default(),
            clock,
        }
    }
}

impl fmt::Debug for PublishConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishConfig")
            .field("set", &self.set)
            .field("listen", &self.listen)
            .field("state", &self.state)
            .field("coverage", &self.coverage)
            .finish_non_exhaustive()
    }
}

/// Limits on resources that clients can consume.
#[derive(Clone, Debug)]
pub struct PublishLimits {
    /// The largest number of connections. Default 4096: each client that waits for a newer manifest occupies a
    /// connection. Beyond the limit, the publisher closes the connection that has waited longest for its client. If
    /// requests are in progress on all connections, further connections wait in the kernel's queue.
    pub connections_max: usize,
    /// The largest number of connections that have not sent a complete request yet. Default 1024. Beyond the limit, a
    /// new silent connection displaces another silent connection, not the connection of an active client.
    pub unserved_max: usize,
    /// The largest number of connections of one IPv4 address or IPv6 /64 network. Default (`None`): half of
    /// `connections_max`, because all clients behind a proxy have one address.
    pub per_client_max: Option<usize>,
    /// The timeout for the first byte of a connection. Default 5 s: a client sends immediately.
    pub first_byte_timeout: Duration,
    /// The largest size of a request's head. Default 16 KiB.
    pub head_bytes_max: usize,
    /// The timeout for a request's head, and for the next request on an idle connection. Default 60 s.
    pub head_timeout: Duration,
    /// A connection is closed if its client reads less than 16 KiB of a response within this time. Default 30 s.
    pub stall_timeout: Duration,
    /// The longest time that a request may wait for a newer manifest. Default 30 s.
    pub wait_max: Duration,
    /// The largest size of a posted list of ids. Default 1 MiB.
    pub post_bytes_max: usize,
    /// The largest number of lists that wait to be journaled; further lists get 503. Default 256.
    pub posts_max: usize,
    /// The largest number of ids in the stored deltas. Further ids get 503 until the next snapshot, whose scan
    /// then begins early. Default 2²⁰, which is also the default limit of filter clients.
    pub journal_ids_max: usize,
    /// The largest number of superseded deltas that are still served. Clients may have fetched a manifest that lists
    /// these deltas just before the publisher merged the deltas. Default 256.
    pub superseded_files_max: usize,
    /// The largest total size of superseded deltas. Default 64 MiB.
    pub superseded_bytes_max: usize,
}

impl Default for PublishLimits {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            unserved_max: 1024,
            per_client_max: None,
            first_byte_timeout: Duration::from_secs(5),
            head_bytes_max: 16 << 10,
            head_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(30),
            wait_max: Duration::from_secs(30),
            post_bytes_max: 1 << 20,
            posts_max: 256,
            journal_ids_max: 1 << 20,
            superseded_files_max: 256,
            superseded_bytes_max: 64 << 20,
        }
    }
}

impl PublishLimits {
    pub(crate) fn server(&self) -> ServerConfig {
        let half = self.connections_max.div_ceil(2);
        ServerConfig {
            connections: ConnectionLimits {
                connections_max: self.connections_max,
                unserved_max: self.unserved_max,
                per_client_max: self.per_client_max.unwrap_or(half),
            },
            first_byte_timeout: self.first_byte_timeout,
            head_bytes_max: self.head_bytes_max,
            head_timeout: self.head_timeout,
            stall_timeout: self.stall_timeout,
            // At a stop, a client can complete the download of a few MB at low bandwidth within this time. The client
            // resumes a larger download by a range request.
            drain_timeout: Duration::from_secs(5),
        }
    }
}

/// Returns true if a name is valid for a set. The name is a part of paths and of HTTP fields.
pub(crate) fn is_set_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('.')
}
