//! The resolution of the host names of origins.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// Finds the addresses of a host name.
pub trait Resolve: Send + Sync + fmt::Debug {
    /// Returns the addresses of `host`, each with `port`. The edge calls the method on a thread that may block.
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// The resolver of the system, `getaddrinfo`. It follows the system's configuration, for example `/etc/hosts`.
#[derive(Debug)]
pub(crate) struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok((host, port).to_socket_addrs()?.collect())
    }
}
