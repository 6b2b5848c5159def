//! What an operator wants to know.

use serde_json::{Value, json};

use edgeward_chunk_store::ChunkCounters;
use edgeward_dedup::receiver::ReceiverCounters;
use edgeward_dedup::sender::SenderCounters;

use crate::client::Client;
use crate::gateway::{Gateway, GatewayCounters};
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
    /// Frames from it that waited for the disk while others went on.
    pub late: u64,
    /// How often a body on its way to it did.
    pub late_bodies: u64,
    /// How often a connection waited, since as many frames as may did.
    pub held_up: u64,
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
            late: core.tallies.late,
            late_bodies: core.late_bodies(),
            held_up: core.tallies.held_up,
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

/// One end with all there is to tell: what `/status` and `/metrics` are made of.
#[derive(Clone, Debug)]
pub struct EndStatus {
    /// Whether connections are encrypted.
    pub encrypted: bool,
    /// What happened at the door, if it is a gateway.
    pub door: Option<GatewayCounters>,
    /// Who is at the other end.
    pub peers: Vec<PeerStatus>,
    /// What is kept.
    pub store: ChunkCounters,
    /// Bytes there are for chunks, compressed or not.
    pub store_bytes_max: u64,
}

impl EndStatus {
    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({
            "pid": std::process::id(),
            "encrypted": self.encrypted,
            "door": self.door.map(|door| json!({
                "connections": door.connections,
                "refused": door.refused,
                "displaced": door.displaced,
                "denied": door.denied,
                "clones": door.clones,
                "malformed": door.malformed,
                "violations": door.violations,
                "conversations": door.conversations,
                "not_allowed": door.not_allowed,
                "unreachable": door.unreachable,
            })),
            "store": {
                "bytes": self.store.stored_bytes,
                "bytes_max": self.store_bytes_max,
                "raw_bytes": self.store.raw_bytes,
                "listed_bytes": self.store.listed_bytes,
                "chunks": self.store.indexed,
                "index_bytes": self.store.index_bytes,
                "containers_written": self.store.written,
                "containers_evicted": self.store.evicted,
                "trailers_read": self.store.trailers_read,
                "index_dropped": self.store.dropped,
                "harmed_chunks": self.store.forgotten,
                "errors": self.store.errors,
            },
            "peers": self.peers.iter().map(PeerStatus::to_json).collect::<Vec<_>>(),
        })
    }
}

impl From<&Gateway> for EndStatus {
    fn from(gateway: &Gateway) -> Self {
        let status = gateway.status();
        Self {
            encrypted: status.encrypted,
            door: Some(status.counters),
            peers: status.peers,
            store: gateway.store().counters(),
            store_bytes_max: gateway.store().capacity_bytes(),
        }
    }
}

impl From<&Client> for EndStatus {
    fn from(client: &Client) -> Self {
        let peer = client.status();
        Self {
            encrypted: peer.encrypted,
            door: None,
            peers: vec![peer],
            store: client.store().counters(),
            store_bytes_max: client.store().capacity_bytes(),
        }
    }
}

impl PeerStatus {
    fn to_json(&self) -> Value {
        let (sent, received) = (&self.sent, &self.received);
        json!({
            "peer": self.name,
            "encrypted": self.encrypted,
            "connections": self.connections,
            "conversations": self.conversations,
            "unacked_bytes": self.unacked,
            "granted_bytes": self.granted,
            "bypassed": self.bypassed,
            "sent": {
                "bytes": sent.plain + sent.literal + sent.delta + sent.named,
                "wire_bytes": sent.wire,
                "named_bytes": sent.named,
                "delta_bytes": sent.delta,
                "literal_bytes": sent.literal,
                "plain_bytes": sent.plain,
                "again_bytes": sent.again,
                "naks": sent.naks,
                "lost_bodies": sent.lost,
                "late_bodies": self.late_bodies,
            },
            "received": {
                "bytes": received.delivered,
                "wire_bytes": self.received_wire(),
                "named_bytes": received.from_store,
                "missing": received.missing,
                "foreign": received.foreign,
                "disordered": received.disordered,
                "late_frames": self.late,
                "late_frames_held_up": self.held_up,
                "digest_failures": received.digest_failures,
            },
            "hosts": self.hosts.iter().map(|(host, tally)| json!({
                "host": host,
                "conversations": tally.streams,
                "sent_bytes": tally.sent,
                "sent_wire_bytes": tally.sent_wire,
                "sent_named_bytes": tally.sent_named,
                "sent_delta_bytes": tally.sent_delta,
                "received_bytes": tally.received,
                "received_wire_bytes": tally.received_wire,
                "received_named_bytes": tally.received_named,
            })).collect::<Vec<_>>(),
        })
    }

    /// Bytes of the frames that brought bodies.
    pub fn received_wire(&self) -> u64 {
        let hosts = self.hosts.iter();
        hosts.map(|(_, tally)| tally.received_wire).sum()
    }
}
