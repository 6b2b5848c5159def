//! The settings of purges.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use edgeward_httpd::Token;

use super::Networks;

/// The settings of purges.
#[derive(Clone, Debug)]
pub struct PurgeConfig {
    /// The token of the purge API of the admin server. Default: none, and the API answers 403.
    pub token: Option<Token>,
    /// Clients that may send PURGE and BAN. Default: none, and the edge forwards these methods as all others.
    pub allow: Networks,
    /// The file with the log of purges. Default: in the first device's directory or beside its file. A disk cache on a
    /// block device has no default, and refuses purges other than of single URLs.
    pub log: Option<PathBuf>,
    /// The most purged tags, hosts and URLs that are remembered. Default 1 million, at most 56 MB. If more are purged,
    /// objects that were fetched before the oldest half of them count as purged.
    pub entries_max: NonZeroUsize,
    /// The most prefixes and patterns that are remembered. Default 1024: a response that a lookup finds for the first
    /// time after a purge is compared with the newer ones, at about 0.1 µs each.
    pub patterns_max: NonZeroUsize,
}

impl Default for PurgeConfig {
    fn default() -> Self {
        Self {
            token: None,
            allow: Networks::default(),
            log: None,
            entries_max: NonZeroUsize::new(1_000_000).expect("1 000 000 is not zero"),
            patterns_max: NonZeroUsize::new(1024).expect("1024 is not zero"),
        }
    }
}
