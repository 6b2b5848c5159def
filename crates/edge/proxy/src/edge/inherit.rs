//! The parts of another process that an edge takes over: listening sockets, and in an upgrade also the store on disk.

use std::os::fd::OwnedFd;

use edgeward_purge::Stamp;

use crate::client::h3::connection_id::EndpointName;
pub use crate::client::h3::quic_keys::QuicIdentity;
use crate::config::ListenAddress;

/// The parts of another process that an edge takes over when it starts. The default is empty.
#[derive(Debug, Default)]
pub struct Inheritance {
    /// Sockets that already listen: from systemd, or from the process that this one replaces.
    pub sockets: InheritedSockets,
    /// The process that this one replaces. It closes the store on disk later: see
    /// [`RunningEdge::disk_take_over`](crate::RunningEdge::disk_take_over).
    pub predecessor: Option<CacheIdentity>,
    /// The identity of that process for connections of HTTP/3. The new process reads their sockets later: see
    /// [`RunningEdge::quic_take_over`](crate::RunningEdge::quic_take_over).
    pub quic: Option<QuicIdentity>,
}

/// The values by which two processes identify the objects of one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheIdentity {
    /// The seed of key hashes.
    pub hash_seed: u64,
    /// The stamp of the newest purge.
    pub purges: u64,
}

impl CacheIdentity {
    pub(super) fn stamp(self) -> Stamp {
        Stamp(self.purges)
    }
}

/// Listening sockets of another process, each with the address of its listener.
#[derive(Debug, Default)]
pub struct InheritedSockets(Vec<(String, OwnedFd)>);

impl InheritedSockets {
    /// Adds a socket. `address` is the address of the configuration, for example `127.0.0.1:0`, or the address to which
    /// the socket is bound.
    pub fn push(&mut self, address: String, socket: OwnedFd) {
        self.0.push((address, socket));
    }

    /// Removes and returns the sockets of one listener.
    pub(super) fn take(&mut self, address: &str) -> Vec<OwnedFd> {
        let (taken, left) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|(of, _)| of == address);
        self.0 = left;
        Vec::into_iter(taken).map(|(_, socket)| socket).collect()
    }

    /// Removes and returns the inboxes of the endpoints of earlier processes.
    pub(super) fn take_inboxes(&mut self) -> Vec<(EndpointName, OwnedFd)> {
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for (name, socket) in std::mem::take(&mut self.0) {
            match endpoint_of(&name) {
                Some(endpoint) => taken.push((endpoint, socket)),
                None => left.push((name, socket)),
            }
        }
        self.0 = left;
        taken
    }

    /// Returns the addresses of the sockets that no listener has taken.
    pub(super) fn left(&self) -> Vec<&str> {
        let mut left: Vec<&str> = self.0.iter().map(|(address, _)| address.as_str()).collect();
        left.dedup();
        left
    }
}

/// Returns the name of the sockets of UDP of a listener among [`InheritedSockets`].
pub(super) fn udp_name(listener: &ListenAddress) -> String {
    format!("udp {listener}")
}

/// Returns the name of the inbox of an endpoint among [`InheritedSockets`].
pub(super) fn inbox_name(endpoint: EndpointName) -> String {
    let EndpointName { generation, number } = endpoint;
    format!("{INBOX} {generation} {number}")
}

/// Returns the endpoint whose inbox has this name.
fn endpoint_of(name: &str) -> Option<EndpointName> {
    let (generation, number) = name.strip_prefix(INBOX)?.trim_start().split_once(' ')?;
    Some(EndpointName {
        generation: generation.parse().ok()?,
        number: number.parse().ok()?,
    })
}

const INBOX: &str = "quic-inbox";

/// The name of the sockets of the admin server among [`InheritedSockets`].
pub(super) const ADMIN: &str = "admin";
