//! The reasons why an edge does not start.

use std::io;
use std::path::PathBuf;

use crate::cache::disk::DiskError;
use crate::config::{FleetError, ListenAddress, ORIGINS_MAX, ReadCredentialsError};
use crate::net::descriptors::TooFewDescriptors;
use crate::net::tls::TlsError;
use crate::observe::access_log::AccessLogError;
use crate::origin::ConnectorError;

/// The reason why an edge did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No listener is configured.
    #[error("no listener is configured; give at least one address")]
    NoListener,
    /// The edge cannot listen on an address.
    #[error("cannot listen on {addr}")]
    Listen {
        /// The address.
        addr: ListenAddress,
        /// The cause.
        source: io::Error,
    },
    /// The certificate or key of a site is unusable.
    #[error("the certificate of a site cannot be used")]
    SiteTls {
        /// The cause.
        source: Box<TlsError>,
    },
    /// A listener's certificate or key is unusable.
    #[error("TLS on {addr} cannot be set up")]
    Tls {
        /// The listener.
        addr: ListenAddress,
        /// The cause.
        source: Box<TlsError>,
    },
    /// A listener on a Unix socket has a certificate.
    #[error("{addr} is a Unix socket, which cannot have TLS")]
    UnixTls {
        /// The listener.
        addr: ListenAddress,
    },
    /// A listener with HTTP/3 has no certificate, demands a PROXY header, which QUIC does not have, or is for the nodes
    /// of a fleet, which use HTTP/2.
    #[error("HTTP/3 on {addr} needs TLS, no PROXY header, and no nodes of a fleet as clients")]
    Http3 {
        /// The listener.
        addr: ListenAddress,
    },
    /// The socket of HTTP/3 cannot be bound.
    #[error("cannot open the UDP port of {addr} for HTTP/3")]
    ListenUdp {
        /// The listener.
        addr: ListenAddress,
        /// The cause.
        source: io::Error,
    },
    /// A reload opens a listener while a new process starts to replace this one, or before this process has replaced
    /// another one.
    #[error(
        "cannot open {addr} during an upgrade, because its sockets are passed; try again afterwards"
    )]
    SocketsPassed {
        /// The listener.
        addr: ListenAddress,
    },
    /// There is no origin, or more than [`ORIGINS_MAX`].
    #[error("an edge needs 1 to {ORIGINS_MAX} origins")]
    OriginCount,
    /// An origin of HTTP/2, whose connections clients share, has PROXY headers, which state one client.
    #[error("the origin {origin} cannot have PROXY headers, because its protocol is HTTP/2")]
    SharedProxyHeader {
        /// The name of the origin.
        origin: String,
    },
    /// A site or one of its rules has an origin that does not exist.
    #[error("the site {site} has an origin that does not exist")]
    SiteOrigin {
        /// The name of the site.
        site: Box<str>,
    },
    /// The configuration of an origin is unusable.
    #[error("the origin {origin} cannot be set up")]
    Origin {
        /// The URL of the origin.
        origin: String,
        /// The cause.
        source: ConnectorError,
    },
    /// The configuration of the collector of traces is unusable.
    #[error("the collector {collector} cannot be set up")]
    Collector {
        /// The URL of the collector.
        collector: String,
        /// The cause.
        source: ConnectorError,
    },
    /// The credentials of a bucket cannot be used.
    #[error(transparent)]
    Credentials(#[from] ReadCredentialsError),
    /// The folder of a file that the edge writes cannot be used.
    #[error("the folder of {} cannot be used", path.display())]
    Folder {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The access log cannot be opened.
    #[error("the access log cannot be set up")]
    AccessLog(#[from] AccessLogError),
    /// The name is not a token that `Via` and `Cache-Status` can carry.
    #[error(
        "`{name}` cannot be a node's name; use letters, digits, `-`, `_` and `.`, a letter first"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The disk cache cannot be opened.
    #[error("the disk cache cannot be set up")]
    Disk(#[from] DiskError),
    /// The store on disk has another seed of key hashes than the process that was replaced.
    #[error("the disk cache is not the one of the process that was replaced; restart to use it")]
    OtherStore,
    /// The log of purges cannot be opened.
    #[error("the log of purges cannot be set up")]
    Purges(#[from] edgeward_store::purges::OpenError),
    /// The nodes of the fleet cannot ask each other.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// The purges of a fleet need a log, and the disk cache is on a block device without one.
    #[error(
        "the disk cache has no log for the purges of the fleet; set purge.log to a file on a file system"
    )]
    FleetLog,
    /// The process's limit of open files is too low to serve a client.
    #[error("the limit of open files is {limit}, and at least {needed} are needed")]
    OpenFiles {
        /// The soft limit.
        limit: usize,
        /// The smallest limit that is enough for this configuration.
        needed: usize,
    },
    /// A thread or its runtime cannot be started.
    #[error("{what} cannot be started")]
    Thread {
        /// The part of the edge that the thread runs.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
}

impl From<TooFewDescriptors> for StartError {
    fn from(TooFewDescriptors { limit, needed }: TooFewDescriptors) -> Self {
        Self::OpenFiles { limit, needed }
    }
}
