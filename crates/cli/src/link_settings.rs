//! The settings of `[origin.link]`. Each build reads them, also one without the feature `link`, whose check of the
//! configuration refuses them with a reason.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

#[cfg(feature = "link")]
pub(crate) use edgeward_link::{HostPort, RateLimit};
use edgeward_types::ByteSize;

/// A value that a build without the link does not parse, because it refuses each key of `[origin.link]`.
#[cfg(not(feature = "link"))]
#[derive(Clone, Debug)]
pub(crate) struct Unparsed(String);

/// The address of a gateway.
#[cfg(not(feature = "link"))]
pub(crate) type HostPort = Unparsed;

/// The limit of sent bytes.
#[cfg(not(feature = "link"))]
pub(crate) type RateLimit = Unparsed;

#[cfg(not(feature = "link"))]
impl std::str::FromStr for Unparsed {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

#[cfg(not(feature = "link"))]
impl std::fmt::Display for Unparsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The parsed `[origin.link]` section of the configuration. Its fields are the keys of that section, which
/// docs/reference/configuration.md describes.
#[derive(Clone, Debug)]
pub(crate) struct LinkSettings {
    pub(crate) gateway: Option<HostPort>,
    /// The gateways that are used, in this order, if `gateway` cannot be reached.
    pub(crate) more_gateways: Vec<HostPort>,
    /// The folder of the TLS keys and of the store key.
    pub(crate) keys: Option<PathBuf>,
    /// The folder, file or device of the chunk store.
    pub(crate) store: Option<PathBuf>,
    pub(crate) store_size: ByteSize,
    pub(crate) store_compression: Compression,
    pub(crate) encryption: bool,
    /// The compression of bodies on the link.
    pub(crate) compression: Compression,
    pub(crate) dedup: bool,
    pub(crate) delta: bool,
    /// The number of connections to the gateway.
    pub(crate) connections: usize,
    /// The limit of the bytes that the edge sends, by time of day.
    pub(crate) rate_limit: Option<RateLimit>,
    /// When the link has been down for this time, its streams are reset.
    pub(crate) timeout: Duration,
    pub(crate) admin: Option<SocketAddr>,
}

impl Default for LinkSettings {
    /// The default size of the chunk store, 4 GiB, holds a small working set. The index of this store takes
    /// about 3 MB of memory.
    fn default() -> Self {
        Self {
            gateway: None,
            more_gateways: Vec::new(),
            keys: None,
            store: None,
            store_size: ByteSize::gib(4),
            store_compression: Compression::None,
            encryption: true,
            compression: Compression::Zstd,
            dedup: true,
            delta: true,
            connections: 2,
            rate_limit: None,
            timeout: Duration::from_secs(15),
            admin: None,
        }
    }
}

/// The compression of bodies on the link or of chunks in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compression {
    /// zstd at level 1; on the link LZ4 or none if the network is faster
    Zstd,
    /// LZ4
    Lz4,
    /// No compression
    None,
}
