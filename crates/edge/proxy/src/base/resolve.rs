//! The resolution of the host names of origins.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZeroU32;
use std::time::Duration;

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

/// The resolver of the system, `getaddrinfo`. It follows the system's configuration, for example `/etc/hosts`, and does
/// not report the time to live of an answer.
#[derive(Debug)]
pub(crate) struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: &UrlName<'_>) -> io::Result<Resolved> {
        match *name {
            UrlName::Host { host, port } => Ok((host, port).to_socket_addrs()?.collect()),
            UrlName::Service(_) => Err(io::Error::other(
                "the resolver of the system has no SRV records",
            )),
        }
    }
}
