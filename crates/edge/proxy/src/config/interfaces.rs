//! Interfaces to origins that other crates implement: how their names are resolved, and how connections open.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

/// Finds the servers of a host name.
pub trait Resolve: Send + Sync + fmt::Debug {
    /// Returns the servers of `name`. The edge calls the method on a thread that may block.
    fn resolve(&self, name: &UrlName<'_>) -> io::Result<Resolved>;
}

/// A name in the URL of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlName<'a> {
    /// A host, whose addresses are servers at this port.
    Host {
        /// The name.
        host: &'a str,
        /// The port of the URL.
        port: u16,
    },
    /// The owner of SRV records (RFC 2782), such as `_http._tcp.example.com`.
    Service(&'a str),
}

/// The servers of a host name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The servers.
    pub targets: Vec<Target>,
    /// The time for which the answer may be used, if the resolver knows it. The name is then resolved again.
    pub ttl: Option<Duration>,
}

/// A server of a host name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The address and port.
    pub addr: SocketAddr,
    /// True if another target of the name has a smaller number as its SRV priority.
    pub is_backup: bool,
    /// The share of requests, in relation to the weights of the other targets.
    pub weight: NonZeroU32,
}

impl From<SocketAddr> for Target {
    /// Returns a target with weight 1.
    fn from(addr: SocketAddr) -> Self {
        Self {
            addr,
            is_backup: false,
            weight: NonZeroU32::MIN,
        }
    }
}

impl FromIterator<SocketAddr> for Resolved {
    /// Returns an answer without a time to live.
    fn from_iter<I: IntoIterator<Item = SocketAddr>>(addresses: I) -> Self {
        Self {
            targets: addresses.into_iter().map(Target::from).collect(),
            ttl: None,
        }
    }
}

/// Opens connections to the origin for HTTP/1.1. All workers call `dial`, so the method must not block.
pub trait Dial: Send + Sync + fmt::Debug {
    /// Opens a connection. An error of the kind `NotConnected` states that the link to the origin's gateway is down.
    fn dial(&self) -> io::Result<Box<dyn DialedStream>>;
}

/// A connection opened by [`Dial`].
pub trait DialedStream: AsyncRead + AsyncWrite + Send + Unpin {
    /// Returns false if no further request should use the connection.
    fn is_reusable(&self) -> bool {
        true
    }
}
