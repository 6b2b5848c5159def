//! The status of an endpoint for operators, with its JSON form.

use serde_json::{Value, json};

use edgeward_chunk_store::ChunkCounters;
use edgeward_dedup::receiver::ReceiverCounters;
use edgeward_dedup::sender::SenderCounters;

use crate::client::Client;
use crate::gateway::{Gateway, GatewayCounters};
use crate::peer::Peer;
use crate::traffic::HostCounters;

/// The status of one peer.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// The name of the peer. At an edge it is the address of the gateway; at a gateway, the address of the edge and
    /// four hexadecimal digits of its store's epoch.
    pub name: String,
    /// True if the connections to the peer are encrypted.
    pub encrypted: bool,
    /// The number of current connections.
    pub connections: usize,
    /// The number of open streams.
    pub streams: usize,
    /// Counters of the bodies sent to the peer.
    pub sent: SenderCounters,
    /// Counters of the bodies received from the peer.
    pub received: ReceiverCounters,
    /// The number of sent bytes that the peer has not acknowledged.
    pub unacked_bytes: usize,
    /// The credit of the peer in bytes, plus the received bytes that are not read yet.
    pub granted_bytes: u64,
    /// Bodies that bypassed deduplication because their first bytes or headers show compressed or encrypted data.
    pub bypassed: u64,
    /// The number of frames from the peer that were parked until a disk read ended.
    pub parked_frames: u64,
    /// The number of times that a body for the peer waited for a disk read.
    pub stalled_bodies: u64,
    /// The number of times that a connection waited because the limit of parked frames was reached.
    pub parking_limit_hits: u64,
    /// The name and the counters of each target host.
    pub hosts: Vec<(String, HostCounters)>,
}

impl PeerStatus {
    pub(crate) fn of(peer: &Peer, name: &str, encrypted: bool) -> Self {
        peer.with(|core| Self {
            name: name.to_owned(),
            encrypted,
            connections: core.connection_count(),
            streams: core.open_streams(),
            sent: core.endpoint().sender().counters(),
            received: core.endpoint().receiver().counters(),
            unacked_bytes: core.endpoint().sender().unacked(),
            granted_bytes: core.endpoint().receiver().granted(),
            bypassed: core.traffic.bypassed,
            parked_frames: core.traffic.parked_frames,
            stalled_bodies: core.stall_count(),
            parking_limit_hits: core.traffic.parking_limit_hits,
            hosts: core.traffic.hosts().to_vec(),
        })
    }
}

/// The status of a gateway with all its peers.
#[derive(Clone, Debug)]
pub struct GatewayStatus {
    /// True if connections are encrypted.
    pub encrypted: bool,
    /// Counters of connections and streams.
    pub counters: GatewayCounters,
    /// The peers that the gateway knows, connected or not.
    pub peers: Vec<PeerStatus>,
}

/// The status of one endpoint, from which `/status` and `/metrics` are rendered.
#[derive(Clone, Debug)]
pub struct EndpointStatus {
    /// True if connections are encrypted.
    pub encrypted: bool,
    /// Counters of connections and streams, if the endpoint is a gateway.
    pub gateway: Option<GatewayCounters>,
    /// The peers.
    pub peers: Vec<PeerStatus>,
    /// Counters of the chunk store.
    pub store: ChunkCounters,
    /// The capacity of the chunk store in bytes.
    pub store_bytes_max: u64,
}

impl EndpointStatus {
    /// Returns the JSON of `/status`. Its keys are stable, so some have older names: `door` is the gateway,
    /// `conversations` are streams, `named` bytes were sent as references, `again` bytes were sent again, and `late`
    /// frames or bodies waited for a disk read.
    pub fn to_json(&self) -> Value {
        json!({
            "pid": std::process::id(),
            "encrypted": self.encrypted,
            "door": self.gateway.map(|gateway| json!({
                "connections": gateway.connections,
                "refused": gateway.refused,
                "displaced": gateway.displaced,
                "denied": gateway.denied,
                "clones": gateway.clones,
                "malformed": gateway.malformed,
                "violations": gateway.violations,
                "conversations": gateway.streams,
                "not_allowed": gateway.not_allowed,
                "unreachable": gateway.unreachable,
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

impl From<&Gateway> for EndpointStatus {
    fn from(gateway: &Gateway) -> Self {
        let status = gateway.status();
        Self {
            encrypted: status.encrypted,
            gateway: Some(status.counters),
            peers: status.peers,
            store: gateway.store().counters(),
            store_bytes_max: gateway.store().capacity_bytes(),
        }
    }
}

impl From<&Client> for EndpointStatus {
    fn from(client: &Client) -> Self {
        let peer = client.status();
        Self {
            encrypted: peer.encrypted,
            gateway: None,
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
            "conversations": self.streams,
            "unacked_bytes": self.unacked_bytes,
            "granted_bytes": self.granted_bytes,
            "bypassed": self.bypassed,
            "sent": {
                "bytes": sent.plain + sent.literal + sent.delta + sent.referenced,
                "wire_bytes": sent.wire,
                "named_bytes": sent.referenced,
                "delta_bytes": sent.delta,
                "literal_bytes": sent.literal,
                "plain_bytes": sent.plain,
                "again_bytes": sent.resent,
                "naks": sent.naks,
                "lost_bodies": sent.lost,
                "late_bodies": self.stalled_bodies,
            },
            "received": {
                "bytes": received.delivered,
                "wire_bytes": self.received_wire(),
                "named_bytes": received.from_store,
                "missing": received.missing,
                "foreign": received.foreign,
                "disordered": received.disordered,
                "late_frames": self.parked_frames,
                "late_frames_held_up": self.parking_limit_hits,
                "digest_failures": received.digest_failures,
            },
            "hosts": self.hosts.iter().map(|(host, counters)| json!({
                "host": host,
                "conversations": counters.streams,
                "sent_bytes": counters.sent,
                "sent_wire_bytes": counters.sent_wire,
                "sent_named_bytes": counters.sent_referenced,
                "sent_delta_bytes": counters.sent_delta,
                "received_bytes": counters.received,
                "received_wire_bytes": counters.received_wire,
                "received_named_bytes": counters.received_referenced,
            })).collect::<Vec<_>>(),
        })
    }

    /// Returns the number of bytes of the received frames that carried bodies.
    pub fn received_wire(&self) -> u64 {
        let hosts = self.hosts.iter();
        hosts.map(|(_, counters)| counters.received_wire).sum()
    }
}
