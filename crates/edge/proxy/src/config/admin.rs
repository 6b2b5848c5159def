//! The settings of the admin server, and of purges.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use edgeward_httpd::{AdminToken, Token};
use edgeward_purge::PurgeMethods;

use super::forwarding::Networks;
use super::listener::{ListenAddress, ListenerTls};

/// The settings of the server of metrics, status and the admin API.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// The address. Default: none, because the pages reveal how the cache is used.
    pub address: Option<ListenAddress>,
    /// The certificate, for TLS. Default: none.
    pub tls: Option<ListenerTls>,
    /// Values of `Host` that the server accepts, besides addresses, `localhost` and
    /// [`EdgeConfig::name`](crate::EdgeConfig::name). Default: none.
    pub hosts: Vec<String>,
    /// Tokens with their roles, besides [`PurgeConfig::token`], which has all roles. Default:
    /// none.
    pub tokens: Vec<AdminToken>,
    /// True if metrics, status and policy need a token too. Default false: scrapers of metrics seldom have tokens, and
    /// the address can be one that only they reach.
    pub requires_token: bool,
    /// The most viewers of the page at `/` that get its events at the same time. Default 16: half of the connections of
    /// the server, so that scrapers find a free one.
    pub event_streams_max: usize,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            address: None,
            tls: None,
            hosts: Vec::new(),
            tokens: Vec::new(),
            requires_token: false,
            event_streams_max: 16,
        }
    }
}

impl AdminConfig {
    /// Returns true if only programs of this machine reach the server: its address is a Unix socket or of loopback.
    pub fn is_local(&self) -> bool {
        match &self.address {
            Some(ListenAddress::Tcp(addr)) => addr.ip().to_canonical().is_loopback(),
            Some(ListenAddress::Unix(_)) | None => true,
        }
    }
}

/// The settings of purges.
#[derive(Clone, Debug)]
pub struct PurgeConfig {
    /// A token of the admin server that has all roles. Default: none. Without any token, the API answers 401.
    pub token: Option<Token>,
    /// Clients that may send PURGE, BAN and PURGEKEYS. The peer must be in these networks, and each client for which it
    /// forwards. Default: none, and the edge forwards these methods like all others.
    pub allow: Networks,
    /// The methods with which these clients may purge. Default: all of them.
    pub methods: PurgeMethods,
    /// The file with the log of purges. Default: in the directory of the first device, or beside the file of this
    /// device. A disk cache on a block device has no default; without a log, it accepts only hard purges of single
    /// URLs.
    pub log: Option<PathBuf>,
    /// The most purged tags, hosts and soft-purged URLs that are remembered. Default: 1 million, at most 56 MB. If more
    /// are purged, the edge forgets the oldest half, and objects that were fetched before then count as purged.
    pub entries_max: NonZeroUsize,
    /// The most stored objects among which a PURGE or BAN of tags or patterns counts those that it covers. Default:
    /// 100,000, which takes about a tenth of a second on another thread. With more objects, the answer has no count.
    pub count_objects_max: u64,
    /// The most purged prefixes and patterns that are remembered. Default: 1024. The first lookup of a response after a
    /// purge compares the response with all newer prefixes and patterns, which takes about 0.1 µs each.
    pub patterns_max: NonZeroUsize,
}

impl Default for PurgeConfig {
    fn default() -> Self {
        Self {
            token: None,
            allow: Networks::default(),
            methods: PurgeMethods::ALL,
            log: None,
            count_objects_max: 100_000,
            entries_max: NonZeroUsize::new(1_000_000).expect("1 000 000 is not zero"),
            patterns_max: NonZeroUsize::new(1024).expect("1024 is not zero"),
        }
    }
}
