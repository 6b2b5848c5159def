//! The peers of a gateway: identifies edges, limits their number, and evicts peers that are not connected.
//!
//! A peer is an edge, identified by its certificate and the epoch of its store. Two edges that were copied from
//! one disk image have the same certificate and epoch. Their session numbers differ, because each edge chooses
//! a random one when it starts. A new session with a known epoch usually means that the edge has restarted. If
//! the earlier session then connects again, two edges have the same identity. From then on each of them has a
//! separate peer, and a connection of one edge does not end the streams of the other.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::Instant;

use edgeward_dedup::wire::Hello;

use crate::handshake::HandshakeError;
use crate::peer::Peer;

/// The peers of a gateway.
#[derive(Debug, Default)]
pub(super) struct Peers {
    pub(super) known: HashMap<PeerKey, PeerEntry>,
    /// True after shutdown. A handshake that is still in progress must not add a peer, because the tasks of its
    /// streams would keep the gateway's memory allocated.
    pub(super) ended: bool,
}

/// Identifies a peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PeerKey {
    pub(super) certificate: Option<Vec<u8>>,
    pub(super) epoch: u64,
    /// The session of the edge, if another connected edge has the same certificate and epoch. Otherwise `None`.
    pub(super) session: Option<u64>,
}

/// A peer and the data by which it is identified and evicted.
#[derive(Debug)]
pub(super) struct PeerEntry {
    pub(super) peer: Arc<Peer>,
    /// The remote address of the last connection.
    pub(super) from: SocketAddr,
    /// The time of the last handshake.
    pub(super) seen: Instant,
    /// Earlier sessions with this certificate and epoch that a later session has replaced, the newest last.
    pub(super) replaced: VecDeque<u64>,
    /// True if several edges are known to have this certificate and epoch.
    pub(super) cloned: bool,
    pub(super) _streams: JoinSet<()>,
}

/// The result of looking up the peer that sent a HELLO.
pub(super) enum PeerLookup {
    /// The peer is known.
    Known(Arc<Peer>),
    /// The peer is new and has this key. `clone` is true if another connected edge has the same certificate and
    /// epoch.
    New { key: PeerKey, clone: bool },
}

impl Peers {
    /// Finds the peer that sent the HELLO `theirs`.
    pub(super) fn look_up(
        &mut self,
        certificate: Option<Vec<u8>>,
        theirs: &Hello,
        from: SocketAddr,
    ) -> PeerLookup {
        let mut key = PeerKey {
            certificate,
            epoch: theirs.epoch,
            session: Some(theirs.session),
        };
        if let Some(entry) = self.known.get_mut(&key) {
            return entry.known(from);
        }
        key.session = None;
        let Some(entry) = self.known.get_mut(&key) else {
            return PeerLookup::New { key, clone: false };
        };
        let (session, connections) = entry
            .peer
            .with(|core| (core.peer_session(), core.connections()));
        if session == Some(theirs.session) {
            return entry.known(from);
        }
        let has_returned = entry.replaced.contains(&theirs.session);
        if connections > 0 && (has_returned || entry.cloned) {
            entry.cloned = true;
            key.session = Some(theirs.session);
            return PeerLookup::New { key, clone: true };
        }
        // The session is new, so the edge has probably restarted. Its last session is recorded as replaced.
        if let Some(session) = session {
            entry.replaced.retain(|before| *before != session);
            entry.replaced.push_back(session);
            if entry.replaced.len() > REPLACED_MAX {
                entry.replaced.pop_front();
            }
        }
        entry.known(from)
    }

    /// If a limit is reached, evicts a peer that is not connected, so that a peer with `key` can be added.
    ///
    /// If the certificate of `key` has reached `per_certificate_max`, a peer with this certificate is evicted.
    /// Otherwise a peer of the certificate with the most peers is evicted, the one with the oldest handshake
    /// first.
    pub(super) fn make_room(
        &mut self,
        key: &PeerKey,
        peers_max: usize,
        per_certificate_max: usize,
    ) -> Result<(), HandshakeError> {
        let mut peer_count: HashMap<Option<&[u8]>, usize> = HashMap::new();
        for known in self.known.keys() {
            *peer_count.entry(known.certificate.as_deref()).or_default() += 1;
        }
        let certificate = key.certificate.as_deref();
        let own = peer_count.get(&certificate).copied().unwrap_or(0);
        // Without encryption peers have no certificates, and only `peers_max` applies.
        let is_at_share = certificate.is_some() && own >= per_certificate_max;
        if !is_at_share && self.known.len() < peers_max {
            return Ok(());
        }
        let evicted = self
            .known
            .iter()
            .filter(|(known, _)| !is_at_share || known.certificate.as_deref() == certificate)
            .filter(|(_, entry)| entry.peer.with(|core| core.connections() == 0))
            .min_by_key(|(known, entry)| {
                let peer_count = peer_count.get(&known.certificate.as_deref()).copied();
                (std::cmp::Reverse(peer_count), entry.seen)
            })
            .map(|(known, _)| known.clone());
        let evicted = evicted.ok_or(if is_at_share {
            HandshakeError::TooManyOfCertificate(own)
        } else {
            HandshakeError::TooManyPeers(self.known.len())
        })?;
        self.known.remove(&evicted);
        Ok(())
    }
}

impl PeerEntry {
    fn known(&mut self, from: SocketAddr) -> PeerLookup {
        (self.from, self.seen) = (from, Instant::now());
        PeerLookup::Known(Arc::clone(&self.peer))
    }
}

/// The number of replaced sessions that are recorded for a peer. A clone reconnects within the longest delay between
/// two attempts. It is not recognised only if the other edge restarts 16 times within this delay.
const REPLACED_MAX: usize = 16;
