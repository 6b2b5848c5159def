//! The peers of a gateway: how an edge is identified, how many there may be, and which one is evicted.
//!
//! A peer is an edge, identified by its certificate and the epoch of its store. Two edges that were copied from one
//! disk image have the same certificate and epoch. Their sessions distinguish them, because each edge draws a new
//! session at its start. If a session that was replaced by another one returns, its edge is still alive, so there
//! are two edges. From then on each has its own peer, and neither ends the streams of the other.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::Instant;

use edgeward_dedup::wire::Hello;

use crate::handshake::HandshakeError;
use crate::peer::Peer;

/// The peers.
#[derive(Debug, Default)]
pub(super) struct Peers {
    pub(super) known: HashMap<PeerKey, PeerEntry>,
    /// True after shutdown. A handshake in progress must not create a peer, whose streams would keep the gateway
    /// alive.
    pub(super) ended: bool,
}

/// Identifies a peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PeerKey {
    pub(super) certificate: Option<Vec<u8>>,
    pub(super) epoch: u64,
    /// The session, if another live edge has the same certificate and epoch.
    pub(super) session: Option<u64>,
}

#[derive(Debug)]
pub(super) struct PeerEntry {
    pub(super) peer: Arc<Peer>,
    pub(super) from: SocketAddr,
    pub(super) seen: Instant,
    /// Sessions that were replaced by another one, the newest last.
    pub(super) replaced: VecDeque<u64>,
    /// True if more than one live edge has this certificate and epoch.
    pub(super) cloned: bool,
    pub(super) _streams: JoinSet<()>,
}

/// The peer that sent a HELLO.
pub(super) enum PeerLookup {
    /// A known peer.
    Known(Arc<Peer>),
    /// A new peer with this key. `clone` is true if this HELLO revealed that another live edge has the same store
    /// identity.
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
        // As far as is known, the edge has restarted.
        if let Some(session) = session {
            entry.replaced.retain(|before| *before != session);
            entry.replaced.push_back(session);
            if entry.replaced.len() > REPLACED_MAX {
                entry.replaced.pop_front();
            }
        }
        entry.known(from)
    }

    /// Makes room for another peer with `key`: forgets a peer that is not connected, if necessary.
    ///
    /// A certificate that has reached its share replaces its own peers only. Otherwise the certificate with the
    /// most peers loses one.
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
        // Without encryption there are no certificates.
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

/// The number of a peer's replaced sessions that are remembered. A clone reconnects within the longest delay
/// between two attempts, and its session is forgotten only if the other edge restarts this often meanwhile.
const REPLACED_MAX: usize = 16;
