//! The peers of a gateway: identifies edges, limits their number, and evicts peers that are not connected.
//!
//! A peer is an edge, identified by its identity ([`Identity`]) and the epoch of its store. Two edges that were copied
//! from one disk image have the same identity and epoch. Their session numbers differ, because each edge chooses
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
use crate::identity::{Identity, IdentityKey};
use crate::peer::{Peer, PeerState};

/// The peers of a gateway.
#[derive(Debug, Default)]
pub(super) struct Peers {
    pub(super) by_key: HashMap<PeerKey, PeerEntry>,
    /// True after shutdown. A handshake that is still in progress must not add a peer, because the tasks of its
    /// streams would keep the gateway's memory allocated.
    pub(super) is_shut_down: bool,
}

/// Identifies a peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PeerKey {
    /// The identity of the edge, or `None` without encryption.
    pub(super) identity: Option<IdentityKey>,
    pub(super) epoch: u64,
    /// The session of the edge, if another connected edge has the same identity and epoch. Otherwise `None`.
    pub(super) session: Option<u64>,
}

/// A peer and the data by which it is identified and evicted.
#[derive(Debug)]
pub(super) struct PeerEntry {
    pub(super) peer: Arc<Peer>,
    /// The identity of the last connection. The edge may have renewed its certificate since the first one.
    pub(super) identity: Option<Identity>,
    /// The remote address of the last connection.
    pub(super) remote_addr: SocketAddr,
    /// The time of the last handshake.
    pub(super) last_handshake: Instant,
    /// Earlier sessions with this identity and epoch that a later session has replaced, the newest last.
    pub(super) replaced_sessions: VecDeque<u64>,
    /// True if several edges are known to have this identity and epoch.
    pub(super) is_cloned: bool,
    /// The task of the peer. Dropping this entry aborts it.
    pub(super) task: JoinSet<()>,
    /// The task that serves the streams that the peer opens. Dropping this entry aborts it.
    pub(super) serving: JoinSet<()>,
}

/// The result of looking up the peer that sent a HELLO, the first frame of a connection.
pub(super) enum PeerLookup {
    /// The peer is known.
    Known(Arc<Peer>),
    /// The peer is new and has this key. `is_clone` is true if another connected edge has the same certificate and
    /// epoch.
    New { key: PeerKey, is_clone: bool },
}

impl Peers {
    /// Finds the peer that sent the HELLO `peer_hello`.
    pub(super) fn look_up(
        &mut self,
        identity: Option<&Identity>,
        peer_hello: &Hello,
        remote_addr: SocketAddr,
    ) -> PeerLookup {
        let mut key = PeerKey {
            identity: identity.map(|identity| Arc::clone(identity.key())),
            epoch: peer_hello.epoch,
            session: Some(peer_hello.session),
        };
        if let Some(entry) = self.by_key.get_mut(&key) {
            return entry.record_handshake(identity, remote_addr);
        }
        key.session = None;
        let Some(entry) = self.by_key.get_mut(&key) else {
            return PeerLookup::New {
                key,
                is_clone: false,
            };
        };
        let PeerState {
            session,
            connections,
            ..
        } = entry.peer.state();
        if session == Some(peer_hello.session) {
            return entry.record_handshake(identity, remote_addr);
        }
        let was_replaced = entry.replaced_sessions.contains(&peer_hello.session);
        if connections > 0 && (was_replaced || entry.is_cloned) {
            entry.is_cloned = true;
            key.session = Some(peer_hello.session);
            return PeerLookup::New {
                key,
                is_clone: true,
            };
        }
        // The session is new, so the edge has probably restarted. Its last session is recorded as replaced.
        if let Some(session) = session {
            entry.replaced_sessions.retain(|before| *before != session);
            entry.replaced_sessions.push_back(session);
            if entry.replaced_sessions.len() > REPLACED_SESSIONS_MAX {
                entry.replaced_sessions.pop_front();
            }
        }
        entry.record_handshake(identity, remote_addr)
    }

    /// If a limit is reached, evicts a peer that is not connected, so that a peer with `key` can be added.
    ///
    /// If the identity of `key` has reached `per_identity_max`, a peer with this identity is evicted.
    /// If only `peers_max` is reached, a peer of the identity with the most peers is evicted. In both cases,
    /// the peer with the oldest handshake is chosen. Fails if all peers in question are connected.
    pub(super) fn evict_if_full(
        &mut self,
        key: &PeerKey,
        identity: Option<&Identity>,
        peers_max: usize,
        per_identity_max: usize,
    ) -> Result<(), HandshakeError> {
        let mut peer_count: HashMap<Option<&[u8]>, usize> = HashMap::new();
        for key in self.by_key.keys() {
            *peer_count.entry(key.identity.as_deref()).or_default() += 1;
        }
        let identity_key = key.identity.as_deref();
        let identity_peers = peer_count.get(&identity_key).copied().unwrap_or(0);
        // Without encryption peers have no identities, and only `peers_max` applies.
        let full_identity = identity.filter(|_| identity_peers >= per_identity_max);
        let is_identity_full = full_identity.is_some();
        if !is_identity_full && self.by_key.len() < peers_max {
            return Ok(());
        }
        let evicted = self
            .by_key
            .iter()
            .filter(|(known, _)| !is_identity_full || known.identity.as_deref() == identity_key)
            .filter(|(_, entry)| entry.peer.state().connections == 0)
            .min_by_key(|(known, entry)| {
                let peer_count = peer_count.get(&known.identity.as_deref()).copied();
                (std::cmp::Reverse(peer_count), entry.last_handshake)
            })
            .map(|(known, _)| known.clone());
        let evicted = evicted.ok_or_else(|| match full_identity {
            Some(identity) => HandshakeError::TooManyOfCertificate {
                name: identity.name(),
                count: identity_peers,
            },
            None => HandshakeError::TooManyPeers(self.by_key.len()),
        })?;
        self.by_key.remove(&evicted);
        Ok(())
    }
}

impl PeerEntry {
    fn record_handshake(
        &mut self,
        identity: Option<&Identity>,
        remote_addr: SocketAddr,
    ) -> PeerLookup {
        self.identity = identity.cloned();
        (self.remote_addr, self.last_handshake) = (remote_addr, Instant::now());
        PeerLookup::Known(Arc::clone(&self.peer))
    }
}

/// The number of replaced sessions that are recorded for a peer. A clone reconnects within the longest delay between
/// two attempts. It is recognised unless the other edge restarts 16 times within this delay.
const REPLACED_SESSIONS_MAX: usize = 16;
