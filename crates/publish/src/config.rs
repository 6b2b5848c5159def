//! What a publisher is told, checked and with every default filled in.

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
use crate::token::Token;

/// One set of ids and how it is published.
#[derive(Clone)]
pub struct PublishConfig {
    /// The set's name: part of every path and of every signed statement.
    pub set: String,
    /// Where clients are answered. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where metrics and status are served. Default: nowhere.
    pub admin: Option<SocketAddr>,
    /// A folder for the journal, the newest snapshot and what must not be forgotten. It belongs to this
    /// publisher alone.
    pub state: PathBuf,
    /// Signs manifests and proofs. Without it clients can only believe the transport.
    pub signer: Option<Signer>,
    /// Who knows it may post ids. Without it nobody may.
    pub token: Option<Token>,
    /// The share of absent ids that may pass for present.
    pub rate: Rate,
    /// How ids are spelled and hashed. Fixed for the life of a state folder.
    pub hasher: IdHasher,
    /// More ids than this are refused: each takes 8 bytes while building. Default 2³⁰.
    pub ids_max: u64,
    /// What is no id of the form is left out and counted, instead of ending the scan.
    pub skip_malformed: bool,
    /// From the beginning of one scan to the next. Default 1 h: removed ids cost nothing but false
    /// positives until then, and added ones come by journal.
    pub interval: Duration,
    /// For how long the first scan waits for a feed to begin, since one that began before it would have
    /// to be done again. Default: not at all.
    pub feed_wait: Duration,
    /// What tells that nothing is missing.
    pub coverage: Coverage,
    /// A writer that posts an id commits it within this time, or posts it again. Default 5 min.
    ///
    /// A scan cannot see what is committed after it, so ids journaled so shortly before a scan are
    /// united with what it found.
    pub commit_within: Duration,
    /// A scan that finds less than this share of the last one's ids is not published: rather a source
    /// gone wrong than half of all ids deleted. Default a half.
    pub least_share: f64,
    /// For how long a cache may keep a manifest. Default 1 s.
    pub manifest_max_age: Duration,
    /// Scans make a second filter, in the form that Guava on the JVM reads. It takes 16 bytes an id
    /// while building. Default: none.
    pub guava: Option<Funnel>,
    /// Which web pages may read what is published. Default: none.
    pub allowed_origins: AllowedOrigins,
    /// Bounds on all that a stranger can make grow.
    pub limits: PublishLimits,
    /// Reads the clocks. The monotonic one must go on while the machine sleeps.
    pub clock: ClockFn,
}

impl PublishConfig {
    /// A publisher of `set` with its state in `state`, listening on `listen`, all else by default.
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
            allowed_origins: AllowedOrigins::Nobody,
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

/// Bounds on all that a stranger can make grow.
#[derive(Clone, Debug)]
pub struct PublishLimits {
    /// Connections at once. Default 4096: each client that waits for news holds one. Beyond it the connection that has
    /// waited longest for its client is closed; if the publisher works for all of them, more wait in the kernel's queue.
    pub connections_max: usize,
    /// Of those, connections that have not sent a whole request yet. Default 1024: silent connections close each other
    /// and not those of clients that are served.
    pub unserved_max: usize,
    /// Of those, connections of one IPv4 address or IPv6 network of 64 bits. `None` for half of them: behind a proxy
    /// all clients have one address.
    pub per_client_max: Option<usize>,
    /// For the first byte of a connection to arrive. Default 5 s: a client sends at once.
    pub first_byte_timeout: Duration,
    /// Of a request's head. Default 16 KiB.
    pub head_bytes_max: usize,
    /// For a head to arrive, and for the next request on an idle connection. Default 60 s.
    pub head_timeout: Duration,
    /// A client that takes less than 16 KiB of an answer in this time is given up. Default 30 s.
    pub stall_timeout: Duration,
    /// How long a request may ask to wait for news. Default 30 s.
    pub wait_max: Duration,
    /// Of a posted list of ids. Default 1 MiB.
    pub post_bytes_max: usize,
    /// Lists waiting to be journaled; more are answered 503. Default 256.
    pub posts_max: usize,
    /// Ids in the journal since the snapshots that are still in use; more are answered 503 until the
    /// next build, which is then begun at once. Default 2²⁰, as many as clients take by default.
    pub journal_ids_max: usize,
    /// Deltas kept for a client that heard of them just before they were merged. Default 256 …
    pub superseded_files_max: usize,
    /// … and 64 MiB.
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
            // What a snapshot of a few MB takes at low bandwidth; a larger one is resumed by range.
            drain_timeout: Duration::from_secs(5),
        }
    }
}

/// Whether a name can be a set's: it stands in paths, and in fields of HTTP.
pub(crate) fn is_set_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('.')
}
