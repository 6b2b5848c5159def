//! What an operator wants to know.

use edgeward_dedup::receiver::ReceiverCounters;
use edgeward_dedup::sender::SenderCounters;

use crate::gateway::GatewayCounters;
use crate::peer::Peer;
use crate::tally::Tally;

/// One peer.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// Where it is.
    pub name: String,
    /// Whether connections to it are encrypted.
    pub encrypted: bool,
    /// Connections that are up.
    pub connections: usize,
    /// Conversations.
    pub conversations: usize,
    /// What was sent to it.
    pub sent: SenderCounters,
    /// What came from it.
    pub received: ReceiverCounters,
    /// Bytes that it did not acknowledge.
    pub unacked: usize,
    /// Bytes that it may send, or that nobody took yet.
    pub granted: u64,
    /// Bodies that were left alone because of how they began.
    pub bypassed: u64,
    /// For whom.
    pub hosts: Vec<(String, Tally)>,
}

impl PeerStatus {
    pub(crate) fn of(peer: &Peer, name: &str, encrypted: bool) -> Self {
        peer.with(|core| Self {
            name: name.to_owned(),
            encrypted,
            connections: core.lines(),
            conversations: core.talks(),
            sent: core.endpoint().sender().counters(),
            received: core.endpoint().receiver().counters(),
            unacked: core.endpoint().sender().unacked(),
            granted: core.endpoint().receiver().granted(),
            bypassed: core.tallies.bypassed,
            hosts: core.tallies.hosts().to_vec(),
        })
    }
}

/// A gateway with all its peers.
#[derive(Clone, Debug)]
pub struct GatewayStatus {
    /// Whether connections are encrypted.
    pub encrypted: bool,
    /// What happened at its door.
    pub counters: GatewayCounters,
    /// Who was there.
    pub peers: Vec<PeerStatus>,
}
