//! The peers of a gateway: which edge is which, how many there may be, and which one makes room.
//!
//! A peer is an edge with a certificate and a store, by the store's epoch. Two edges that were copied from one disk
//! image have the same of both. They are distinguished by their sessions, which each draws at its start: a session
//! that another one replaced and that comes back belongs to an edge that is alive, so there are two. From then on each
//! has a peer of its own, and neither ends the streams of the other.

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
    pub(super) known: HashMap<PeerKey, Entry>,
    /// The gateway has ended. A handshake that is under way makes no new peer, whose streams would keep the gateway.
    pub(super) ended: bool,
}

/// What identifies a peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PeerKey {
    pub(super) certificate: Option<Vec<u8>>,
    pub(super) epoch: u64,
    /// The session, if another live edge has the same certificate and epoch.
    pub(super) session: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) peer: Arc<Peer>,
    pub(super) from: SocketAddr,
    pub(super) seen: Instant,
    /// Sessions that another one replaced, the newest last.
    pub(super) replaced: VecDeque<u64>,
    /// There is more than one edge with this certificate and epoch.
    pub(super) cloned: bool,
    pub(super) _conversations: JoinSet<()>,
}

/// The peer that said HELLO.
pub(super) enum Greeted {
    /// It is known.
    Known(Arc<Peer>),
    /// It is new, with this key. `clone` says that another live edge has the same store identity, found out now.
    New { key: PeerKey, clone: bool },
}

impl Peers {
    /// The peer that `theirs` comes from.
    pub(super) fn greet(
        &mut self,
        certificate: Option<Vec<u8>>,
        theirs: &Hello,
        from: SocketAddr,
    ) -> Greeted {
        let mut key = PeerKey {
            certificate,
            epoch: theirs.epoch,
            session: Some(theirs.session),
        };
        if let Some(entry) = self.known.get_mut(&key) {
            return entry.greeted(from);
        }
        key.session = None;
        let Some(entry) = self.known.get_mut(&key) else {
            return Greeted::New { key, clone: false };
        };
        let (session, lines) = entry.peer.with(|core| (core.peer_session(), core.lines()));
        if session == Some(theirs.session) {
            return entry.greeted(from);
        }
        let came_back = entry.replaced.contains(&theirs.session);
        if lines > 0 && (came_back || entry.cloned) {
            entry.cloned = true;
            key.session = Some(theirs.session);
            return Greeted::New { key, clone: true };
        }
        // An edge that was started again, as far as is known.
        if let Some(session) = session {
            entry.replaced.retain(|before| *before != session);
            entry.replaced.push_back(session);
            if entry.replaced.len() > REPLACED_MAX {
                entry.replaced.pop_front();
            }
        }
        entry.greeted(from)
    }

    /// Makes room for one more peer with `key`: a peer that is not connected is forgotten if need be.
    ///
    /// A certificate beyond its share replaces its own peers alone. Else the certificate with the most peers loses one.
    pub(super) fn make_room(
        &mut self,
        key: &PeerKey,
        peers_max: usize,
        per_certificate_max: usize,
    ) -> Result<(), HandshakeError> {
        let mut held: HashMap<Option<&[u8]>, usize> = HashMap::new();
        for known in self.known.keys() {
            *held.entry(known.certificate.as_deref()).or_default() += 1;
        }
        let certificate = key.certificate.as_deref();
        let own = held.get(&certificate).copied().unwrap_or(0);
        // Without encryption nobody has a certificate.
        let is_at_share = certificate.is_some() && own >= per_certificate_max;
        if !is_at_share && self.known.len() < peers_max {
            return Ok(());
        }
        let away = self
            .known
            .iter()
            .filter(|(known, _)| !is_at_share || known.certificate.as_deref() == certificate)
            .filter(|(_, entry)| entry.peer.with(|core| core.lines() == 0))
            .min_by_key(|(known, entry)| {
                let held = held.get(&known.certificate.as_deref()).copied();
                (std::cmp::Reverse(held), entry.seen)
            })
            .map(|(known, _)| known.clone());
        let away = away.ok_or(if is_at_share {
            HandshakeError::TooManyOfCertificate(own)
        } else {
            HandshakeError::TooManyPeers(self.known.len())
        })?;
        self.known.remove(&away);
        Ok(())
    }
}

impl Entry {
    fn greeted(&mut self, from: SocketAddr) -> Greeted {
        (self.from, self.seen) = (from, Instant::now());
        Greeted::Known(Arc::clone(&self.peer))
    }
}

/// Sessions of a peer that are remembered. A clone comes back within the longest wait between two attempts, and only
/// edges that start again in the meantime push its session out.
const REPLACED_MAX: usize = 16;
