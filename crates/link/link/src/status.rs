//! The status of an endpoint for operators, with its JSON form.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde_json::{Value, json};

use edgeward_chunk_store::{ChunkCounters, STORE_MULTIPLES};
use edgeward_dedup::knowledge::SharedPagesStatus;
use edgeward_dedup::receiver::ReceiverCounters;
use edgeward_dedup::sender::SenderCounters;

use crate::certificate_problem::CertificateProblem;
use crate::client::Client;
use crate::core::Core;
use crate::gateway::{Gateway, GatewayCounters, IdentityStatus};
use crate::identity::Identity;
use crate::rate_limit::RateLimiter;
use crate::traffic::{BodyCounters, DirectionCounters};

/// The status of one peer.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// The name of the peer. At an edge it is the address of the gateway; at a gateway, the address of the edge and
    /// four hexadecimal digits of its store's epoch.
    pub name: String,
    /// The name in the certificate of the edge. At an edge, and without encryption, it is `None`.
    pub edge: Option<String>,
    /// True if the connections to the peer are encrypted.
    pub encrypted: bool,
    /// The reason why this endpoint could not connect to the peer, or `None` if its last attempt succeeded. A gateway
    /// does not connect, so it has none.
    pub last_error: Option<String>,
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
    /// The sum of the windows of all streams from the peer, in bytes. A window has the bytes that the peer may still
    /// send without further credit, and the received bytes that this endpoint has not read yet.
    pub granted_bytes: u64,
    /// The memory of bytes between the link and the users of its streams, in bytes.
    pub pipe_bytes: u64,
    /// Bodies that bypassed deduplication because their first bytes or headers show compressed or encrypted data.
    pub bypassed: u64,
    /// The number of frames from the peer that were parked until a disk read ended.
    pub parked_frames: u64,
    /// The number of times that a body for the peer waited for a disk read.
    pub stalled_bodies: u64,
    /// The number of times that a connection waited because the limit of parked frames was reached.
    pub parking_limit_hits: u64,
    /// The name and the counters of each target host.
    pub hosts: Vec<(String, BodyCounters)>,
    /// The name and the counters of each content type. Only an endpoint that reads HTTP or detects the format of a body
    /// knows its type.
    pub content_types: Vec<(String, BodyCounters)>,
    /// The number of streams whose host or content type has no counters of its own, because its table is full.
    pub unlisted_streams: u64,
}

impl PeerStatus {
    pub(crate) fn of(core: &Core, name: String, encrypted: bool) -> Self {
        Self {
            name,
            edge: None,
            encrypted,
            last_error: None,
            connections: core.connection_count(),
            streams: core.open_streams(),
            sent: core.endpoint().sender().counters(),
            received: core.endpoint().receiver().counters(),
            unacked_bytes: core.endpoint().sender().unacked(),
            granted_bytes: core.endpoint().receiver().granted(),
            pipe_bytes: 0,
            bypassed: core.traffic.bypassed,
            parked_frames: core.traffic.parked_frames,
            stalled_bodies: core.traffic.stalled_bodies,
            parking_limit_hits: core.traffic.parking_limit_hits,
            hosts: core.traffic.hosts().to_vec(),
            content_types: core.traffic.content_types().to_vec(),
            unlisted_streams: core.traffic.unlisted_streams,
        }
    }
}

/// The status of a gateway with all its peers.
#[derive(Clone, Debug)]
pub struct GatewayStatus {
    /// True if connections are encrypted.
    pub encrypted: bool,
    /// The identity of the gateway, or `None` without encryption.
    pub identity: Option<Identity>,
    /// The identities of the edges that are connected.
    pub identities: Vec<IdentityStatus>,
    /// Counters of connections and streams.
    pub counters: GatewayCounters,
    /// The memory of the record of the chunks that the peers have.
    pub knowledge: SharedPagesStatus,
    /// The peers that the gateway knows, connected or not.
    pub peers: Vec<PeerStatus>,
    /// The names of the peers whose tasks did not answer in time.
    pub busy_peers: Vec<String>,
}

/// The state of the limit of sent bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitStatus {
    /// The current limit in bits per second, or `None` if bytes are unlimited at this time of day.
    pub bits_per_second: Option<u64>,
    /// The number of writes that waited.
    pub waits: u64,
}

impl From<&RateLimiter> for RateLimitStatus {
    fn from(limiter: &RateLimiter) -> Self {
        Self {
            bits_per_second: limiter.bits_per_second(),
            waits: limiter.waits(),
        }
    }
}

/// The status of one endpoint, from which `/status` and `/metrics` are rendered.
#[derive(Clone, Debug)]
pub struct EndpointStatus {
    /// True if connections are encrypted.
    pub encrypted: bool,
    /// The identity of the endpoint, or `None` without encryption.
    pub identity: Option<Identity>,
    /// The identities of the edges that are connected to a gateway.
    pub identities: Vec<IdentityStatus>,
    /// Counters of connections and streams, if the endpoint is a gateway.
    pub gateway: Option<GatewayCounters>,
    /// The peers.
    pub peers: Vec<PeerStatus>,
    /// The names of the peers whose tasks did not answer in time. They are not in `peers`.
    pub busy_peers: Vec<String>,
    /// The memory of the record of the chunks that the peers have.
    pub knowledge: SharedPagesStatus,
    /// The limit of sent bytes, or `None` if none is configured.
    pub rate_limit: Option<RateLimitStatus>,
    /// Counters of the chunk store.
    pub store: ChunkCounters,
    /// The capacity of the chunk store in bytes.
    pub store_bytes_max: u64,
}

impl EndpointStatus {
    /// Returns the JSON of `/status`. Renamed keys are also there under their old names.
    pub fn to_json(&self) -> Value {
        let mut status = json!({
            "pid": std::process::id(),
            "encrypted": self.encrypted,
            // The certificate of this endpoint.
            "certificate": self.identity.as_ref().map(|identity| json!({
                "name": identity.name(),
                "fingerprint": identity.fingerprint(),
                // `null` if the certificate does not expire.
                "days_left": self.days_left(),
            })),
            // The certificates of the edges that are connected to this gateway.
            "edges": self.identities.iter().map(|edge| json!({
                "name": edge.name,
                "fingerprint": edge.fingerprint,
                "days_left": edge.days_left,
                // The number of stores. Above 1, several edges have this certificate.
                "stores": edge.stores,
                "connections": edge.connections,
                "streams": edge.streams,
                "refused_streams": edge.refused_streams,
            })).collect::<Vec<_>>(),
            "gateway": self.gateway.map(|gateway| json!({
                "connections": gateway.connections,
                // Connections refused in the handshake: wrong key or version, or no HELLO.
                "refused": gateway.refused,
                // Connections closed before their handshake was complete, to make room for newer ones.
                "displaced": gateway.displaced,
                // Connections refused because their certificate is on the deny list.
                "denied": gateway.denied,
                // Edges that had the store identity of another connected edge, as after a copy of a disk.
                "clones": gateway.clones,
                // Times that a second store connected with the certificate of a connected edge.
                "shared_certificates": gateway.shared_certificates,
                "refused_certificates": CertificateProblem::ALL.map(|problem| {
                    (problem.as_str(), gateway.refused_certificates[problem as usize])
                }).into_iter().collect::<BTreeMap<_, _>>(),
                // Streams refused because a limit of the edge's certificate was reached.
                "over_limit": gateway.over_limit,
                "malformed": gateway.malformed,
                "violations": gateway.violations,
                "streams": gateway.streams,
                // Streams refused because their target is not permitted.
                "not_allowed": gateway.not_allowed,
                "unreachable": gateway.unreachable,
            })),
            "rate_limit": self.rate_limit.map(|limit| json!({
                // `null` if bytes are unlimited at this time of day.
                "bits_per_second": limit.bits_per_second,
                // Writes that waited.
                "waits": limit.waits,
            })),
            // The record of the chunks that the peers have. Equal parts of the records of several peers count once.
            "knowledge": {
                "bytes": self.knowledge.bytes,
                "bytes_max": self.knowledge.bytes_max,
                // Parts for 64 containers each that were forgotten because of the limit.
                "forgotten_pages": self.knowledge.forgotten_pages,
            },
            "store": {
                // Bytes that the stored chunks take on the device, after compression.
                "bytes": self.store.stored_bytes,
                "bytes_max": self.store_bytes_max,
                // The bytes of the stored chunks before compression.
                "raw_bytes": self.store.raw_bytes,
                // The total length of the chunks without stored bytes: the store has only their ids.
                "listed_bytes": self.store.listed_bytes,
                "chunks": self.store.indexed,
                "index_bytes": self.store.index_bytes,
                "containers_written": self.store.written,
                "containers_evicted": self.store.evicted,
                // Tables of a container's chunks (trailers) that were read from the device.
                "trailers_read": self.store.trailers_read,
                "index_dropped": self.store.dropped,
                "corrupt_chunks": self.store.forgotten,
                "errors": self.store.errors,
                // Chunks that were not stored because too many bytes waited for the device.
                "skipped_chunks": self.store.skipped,
                // Estimates from a sample of the new chunks: their bytes, and of these the bytes of chunks that were
                // evicted before they were sent again. A store of `store_bytes` would have kept the latter.
                "new_bytes": self.store.reuse.first_bytes + self.store.reuse.returned_bytes.iter().sum::<u64>(),
                "evicted_too_early": self.evicted_too_early(),
                // True until the index is complete after the start. Until then, lookups may miss stored chunks.
                "recovering": self.store.recovering,
                "unread_trailers": self.store.unread_trailers,
                "absent_while_recovering": self.store.absent_while_recovering,
                // The saved index, from which the next start recovers.
                "checkpoints": self.store.checkpoints,
                "checkpoint_errors": self.store.checkpoint_errors,
            },
            "peers": self.peers.iter().map(PeerStatus::to_json).collect::<Vec<_>>(),
            // Peers that are missing above because they did not answer within a second.
            "busy_peers": self.busy_peers,
        });
        add_old_keys(&mut status);
        status
    }
}

impl EndpointStatus {
    /// Returns the bytes of chunks that would not have been evicted before they were sent again, for stores of several
    /// sizes. Each size includes the chunks of the smaller ones.
    fn evicted_too_early(&self) -> Vec<Value> {
        let mut bytes = 0;
        let returned = STORE_MULTIPLES.iter().zip(self.store.reuse.returned_bytes);
        let sizes = returned.map(|(multiple, returned)| {
            bytes += returned;
            json!({ "store_bytes": u64::from(*multiple) * self.store_bytes_max, "bytes": bytes })
        });
        sizes.collect()
    }
}

/// The keys that were renamed, with their old names. The next version removes the old names.
const OLD_KEYS: [(&str, &str); 8] = [
    ("gateway", "door"),
    ("streams", "conversations"),
    ("referenced_bytes", "named_bytes"),
    ("sent_referenced_bytes", "sent_named_bytes"),
    ("received_referenced_bytes", "received_named_bytes"),
    ("resent_bytes", "again_bytes"),
    ("late_frames_limit_hits", "late_frames_held_up"),
    ("corrupt_chunks", "harmed_chunks"),
];

/// Adds the values of renamed keys under their old names.
fn add_old_keys(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(add_old_keys);
            for (key, old) in OLD_KEYS {
                if let Some(field) = fields.get(key).cloned() {
                    fields.insert(old.to_owned(), field);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(add_old_keys),
        _ => {}
    }
}

impl EndpointStatus {
    /// Returns the days until the certificate of this endpoint expires, or `None` if it does not.
    pub(crate) fn days_left(&self) -> Option<i64> {
        self.identity.as_ref()?.days_left(SystemTime::now())
    }
}

impl EndpointStatus {
    pub(crate) async fn of_gateway(gateway: &Gateway) -> Self {
        let status = gateway.status().await;
        Self {
            encrypted: status.encrypted,
            identity: status.identity,
            identities: status.identities,
            gateway: Some(status.counters),
            peers: status.peers,
            busy_peers: status.busy_peers,
            knowledge: status.knowledge,
            rate_limit: gateway.rate_limiter().map(RateLimitStatus::from),
            store: gateway.store().counters(),
            store_bytes_max: gateway.store().capacity_bytes(),
        }
    }

    pub(crate) async fn of_client(client: &Client) -> Self {
        let peer = client.status().await;
        Self {
            encrypted: peer.encrypted,
            identity: client.identity(),
            identities: Vec::new(),
            gateway: None,
            peers: vec![peer],
            busy_peers: Vec::new(),
            knowledge: client.knowledge(),
            rate_limit: client.rate_limiter().map(RateLimitStatus::from),
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
            // The name in the certificate of an edge, `null` at an edge and without encryption.
            "edge": self.edge,
            "encrypted": self.encrypted,
            // The reason why the last attempt to connect failed.
            "last_error": self.last_error,
            "connections": self.connections,
            "streams": self.streams,
            "unacked_bytes": self.unacked_bytes,
            "granted_bytes": self.granted_bytes,
            // The memory of bytes between the link and the users of its streams.
            "pipe_bytes": self.pipe_bytes,
            "bypassed": self.bypassed,
            "sent": {
                "bytes": sent.plain + sent.literal + sent.delta + sent.referenced,
                "wire_bytes": sent.wire,
                "referenced_bytes": sent.referenced,
                "delta_bytes": sent.delta,
                // Bytes sent as new chunks, without `delta_bytes` (chunks compressed against old chunks).
                "literal_bytes": sent.literal,
                // Bytes sent without deduplication. Neither endpoint stores them.
                "plain_bytes": sent.plain,
                "resent_bytes": sent.resent,
                "naks": sent.naks,
                "lost_bodies": sent.lost,
                "late_bodies": self.stalled_bodies,
            },
            "received": {
                "bytes": received.delivered,
                "wire_bytes": self.received_wire(),
                "referenced_bytes": received.from_store,
                "delta_bytes": received.delta,
                // Frames refused because a referenced chunk is missing or corrupt.
                "missing": received.missing,
                // Frames refused because they refer to a chunk that was never exchanged with the peer.
                "foreign": received.foreign,
                // References to consecutive chunks, refused because this store has another order.
                "disordered": received.disordered,
                "late_frames": self.parked_frames,
                // Waits of a connection because the limit of parked frames was reached.
                "late_frames_limit_hits": self.parking_limit_hits,
                "digest_failures": received.digest_failures,
            },
            "hosts": rows_json("host", &self.hosts),
            "content_types": rows_json("content_type", &self.content_types),
            // Streams whose host or content type is counted in the row `(others)`.
            "unlisted_streams": self.unlisted_streams,
        })
    }

    /// Returns the number of bytes of the received frames that carried bodies.
    pub fn received_wire(&self) -> u64 {
        let hosts = self.hosts.iter();
        hosts.map(|(_, counters)| counters.received.wire).sum()
    }
}

/// Returns the counters of hosts or content types, with their names under `key`.
fn rows_json(key: &str, rows: &[(String, BodyCounters)]) -> Vec<Value> {
    let row = |(name, counters): &(String, BodyCounters)| {
        let mut row = json!({ key: name, "streams": counters.streams });
        add_direction(&mut row, "sent", &counters.sent);
        add_direction(&mut row, "received", &counters.received);
        row
    };
    rows.iter().map(row).collect()
}

fn add_direction(row: &mut Value, direction: &str, counters: &DirectionCounters) {
    for (field, bytes) in [
        ("bytes", counters.bytes),
        ("wire_bytes", counters.wire),
        ("referenced_bytes", counters.referenced),
        ("delta_bytes", counters.delta),
        // New chunks without `delta_bytes`. The part `incompressible_bytes` looks encrypted or compressed.
        ("literal_bytes", counters.literal),
        ("incompressible_bytes", counters.incompressible),
        // An estimate of the part of `literal_bytes` and `delta_bytes` in chunks that the store of the sender had
        // evicted.
        ("evicted_bytes", counters.evicted),
        // Bytes sent without deduplication. The part `bypassed_bytes` is in bodies that are not deduplicated at all.
        ("plain_bytes", counters.plain),
        ("bypassed_bytes", counters.bypassed),
    ] {
        row[format!("{direction}_{field}")] = bytes.into();
    }
}
