//! The metrics of an endpoint of a link.

use edgeward_chunk_store::ChunkCounters;
use edgeward_metrics::{Definition, encode, metrics};

use crate::certificate_problem::CertificateProblem;
use crate::gateway::{GatewayCounters, IdentityStatus};
use crate::status::{EndpointStatus, PeerStatus, RateLimitStatus};
use crate::traffic::BodyCounters;

metrics! {
    const PEER: PeerStatus ["peer"] = |peer| {
        Counter "edgeward_link_body_bytes_total" "Body bytes, before deduplication and compression." ["direction":
            "sent" = peer.sent.plain + peer.sent.literal + peer.sent.delta + peer.sent.referenced,
            "received" = peer.received.delivered,
        ]
        Counter "edgeward_link_wire_bytes_total" "Bytes of the frames that carry bodies." ["direction":
            "sent" = peer.sent.wire,
            "received" = peer.received_wire(),
        ]
        Counter "edgeward_link_referenced_bytes_total" "Body bytes that were replaced by references to chunks."
            ["direction":
            "sent" = peer.sent.referenced,
            "received" = peer.received.from_store,
        ]
        Counter "edgeward_link_delta_bytes_total" "Body bytes sent as deltas of earlier chunks." { peer.sent.delta }
        Counter "edgeward_link_plain_bytes_total" "Body bytes sent without deduplication." { peer.sent.plain }
        Counter "edgeward_link_resent_bytes_total"
            "Body bytes that were sent again after a NAK or a lost connection." { peer.sent.resent }
        // The peer answers a frame that it cannot decode with a NAK. `sent.naks` counts the NAKs that the peer sent
        // about frames of this endpoint.
        Counter "edgeward_link_naks_total" "Frames that the peer could not decode." { peer.sent.naks }
        Counter "edgeward_link_lost_bodies_total"
            "Bodies that were reset because both endpoints had lost a referenced chunk." { peer.sent.lost }
        Counter "edgeward_link_missing_total"
            "Frames refused because a referenced chunk is missing or corrupt." { peer.received.missing }
        Counter "edgeward_link_foreign_total"
            "Frames refused because they refer to a chunk that was never exchanged with the peer."
            { peer.received.foreign }
        // A frame may refer to a run of consecutive chunks by the first hash, the number of chunks and a check of all
        // hashes. It is refused if the chunks that follow the first one in this endpoint's store are not the same.
        Counter "edgeward_link_disordered_total"
            "Frames refused because the referenced chunks have another order in this endpoint's store."
            { peer.received.disordered }
        Counter "edgeward_link_late_frames_total"
            "Frames that were parked until their chunks were read from disk." { peer.parked_frames }
        Counter "edgeward_link_late_bodies_total"
            "Times that a body waited for a chunk lookup on disk." { peer.stalled_bodies }
        Counter "edgeward_link_late_frames_limit_hits_total"
            "Times that a connection waited for the disk because the limit of parked frames was reached."
            { peer.parking_limit_hits }
        Counter "edgeward_link_digest_failures_total"
            "Bodies whose digest did not match." { peer.received.digest_failures }
        Counter "edgeward_link_bypassed_total"
            "Bodies sent without deduplication because their first bytes or headers show compressed or encrypted data."
            { peer.bypassed }
        Counter "edgeward_link_unlisted_streams_total"
            "Streams whose host or content type is counted under `(others)`, because its table is full."
            { peer.unlisted_streams }
        Gauge "edgeward_link_connections" "Established connections." { peer.connections }
        Gauge "edgeward_link_streams" "Open streams." { peer.streams }
        Gauge "edgeward_link_unacked_bytes"
            "Memory of bodies that the peer has not acknowledged." { peer.unacked_bytes }
        Gauge "edgeward_link_granted_bytes"
            "Credit of the peer in bytes, plus received bytes that are not read yet." { peer.granted_bytes }
        Gauge "edgeward_link_pipe_bytes"
            "Memory of bytes between the link and the users of its streams." { peer.pipe_bytes }
    }

    const HOST: BodyCounters ["peer", "host"] = |host| {
        Counter "edgeward_link_host_body_bytes_total"
            "Body bytes, by target host." ["direction": "sent" = host.sent.bytes, "received" = host.received.bytes]
        Counter "edgeward_link_host_wire_bytes_total"
            "Bytes of the frames that carry bodies, by target host."
            ["direction": "sent" = host.sent.wire, "received" = host.received.wire]
        // `new` are chunks that are sent for the first time, and `opaque` those that look encrypted or compressed.
        // `bypassed` are bodies that are not deduplicated because their first bytes or headers show encrypted or
        // compressed data, and `start` the first bytes of other bodies.
        Counter "edgeward_link_host_sent_bytes_total" "Body bytes sent, by target host and by their form on the link."
            ["form":
            "referenced" = host.sent.referenced,
            "delta" = host.sent.delta,
            "new" = host.sent.literal - host.sent.incompressible,
            "opaque" = host.sent.incompressible,
            "bypassed" = host.sent.bypassed,
            "start" = host.sent.plain - host.sent.bypassed,
        ]
        Counter "edgeward_link_host_received_bytes_total"
            "Body bytes received, by target host and by their form on the link." ["form":
            "referenced" = host.received.referenced,
            "delta" = host.received.delta,
            "new" = host.received.literal - host.received.incompressible,
            "opaque" = host.received.incompressible,
            "bypassed" = host.received.bypassed,
            "start" = host.received.plain - host.received.bypassed,
        ]
        Counter "edgeward_link_host_evicted_bytes_total"
            "Body bytes sent in chunks that the store had evicted, by target host; an estimate from a sample."
            { host.sent.evicted }
    }

    const CONTENT_TYPE: BodyCounters ["peer", "content_type"] = |body| {
        Counter "edgeward_link_content_type_body_bytes_total" "Body bytes, by content type."
            ["direction": "sent" = body.sent.bytes, "received" = body.received.bytes]
        Counter "edgeward_link_content_type_wire_bytes_total"
            "Bytes of the frames that carry bodies, by content type."
            ["direction": "sent" = body.sent.wire, "received" = body.received.wire]
        Counter "edgeward_link_content_type_sent_bytes_total"
            "Body bytes sent, by content type and by their form on the link." ["form":
            "referenced" = body.sent.referenced,
            "delta" = body.sent.delta,
            "new" = body.sent.literal - body.sent.incompressible,
            "opaque" = body.sent.incompressible,
            "bypassed" = body.sent.bypassed,
            "start" = body.sent.plain - body.sent.bypassed,
        ]
    }

    const ENDPOINT: EndpointStatus = |endpoint| {
        Gauge "edgeward_link_encrypted" "1 if connections are encrypted, otherwise 0." { u8::from(endpoint.encrypted) }
        Gauge "edgeward_link_store_bytes_max" "Capacity of the chunk store." { endpoint.store_bytes_max }
        // Their other metrics are missing in this response.
        Gauge "edgeward_link_busy_peers" "Peers that did not report their metrics within a second."
            { endpoint.busy_peers.len() }
        // Equal parts of the records of several peers count once.
        Gauge "edgeward_link_knowledge_bytes"
            "Memory of the record of the chunks that the peers have." { endpoint.knowledge.bytes }
        Gauge "edgeward_link_knowledge_bytes_max"
            "Limit of the memory of the record of the chunks that the peers have." { endpoint.knowledge.bytes_max }
        Counter "edgeward_link_knowledge_forgotten_pages_total"
            "Parts of this record, each for 64 containers of the store, that were forgotten because of the limit."
            { endpoint.knowledge.forgotten_pages }
    }

    const RATE_LIMIT: RateLimitStatus = |limit| {
        Gauge "edgeward_link_rate_limit_bits_per_second"
            "Limit of the bytes that this endpoint sends, at this time of day; 0 if unlimited."
            { limit.bits_per_second.unwrap_or(0) }
        Counter "edgeward_link_rate_limit_waits_total" "Writes that waited because of the limit." { limit.waits }
    }

    const CERTIFICATE: i64 ["endpoint"] = |days_left| {
        // At a gateway also for each edge that is connected. A certificate that does not expire has no value.
        Gauge "edgeward_link_certificate_days_left"
            "Days until the certificate of an endpoint expires; negative if it has expired." { *days_left }
    }

    const EDGE: IdentityStatus ["edge"] = |edge| {
        Gauge "edgeward_link_edge_stores"
            "Stores that are connected with the certificate of an edge; above 1, several edges share it."
            { edge.stores }
        Gauge "edgeward_link_edge_connections" "Connections with the certificate of an edge." { edge.connections }
        Gauge "edgeward_link_edge_streams" "Open streams with the certificate of an edge." { edge.streams }
        Counter "edgeward_link_edge_refused_streams_total"
            "Streams refused because the certificate of an edge had reached a limit, since it connected."
            { edge.refused_streams }
    }

    const STORE: ChunkCounters = |store| {
        Gauge "edgeward_link_store_bytes" "Bytes of the chunks in the store, after compression." { store.stored_bytes }
        Gauge "edgeward_link_store_raw_bytes"
            "Bytes of the chunks in the store, before compression." { store.raw_bytes }
        // The store has the hash and the length of a listed chunk, but not its bytes. Its length is subtracted from the
        // capacity. Otherwise the store could list more chunks than its index has slots.
        Gauge "edgeward_link_store_listed_bytes"
            "Total size of the chunks whose hash alone is stored; the capacity counts these chunks as if they were stored."
            { store.listed_bytes }
        Gauge "edgeward_link_store_chunks" "Chunks in the index." { store.indexed }
        Gauge "edgeward_link_store_index_bytes" "Memory of the index." { store.index_bytes }
        Counter "edgeward_link_store_corrupt_chunks_total"
            "Chunks that were removed because they did not match their hash." { store.forgotten }
        Counter "edgeward_link_store_errors_total" "Failed reads and writes of the store." { store.errors }
        Counter "edgeward_link_store_skipped_chunks_total"
            "Chunks that were not stored because too many bytes waited for the disk." { store.skipped }
        // A sample of the chunks is recorded, so the bytes are estimates.
        Counter "edgeward_link_store_new_bytes_total"
            "Bytes of new chunks, by the size of the store that would have had them, as a multiple of this store."
            ["multiple":
            "none" = store.reuse.first_bytes,
            "2" = store.reuse.returned_bytes[0],
            "4" = store.reuse.returned_bytes[1],
            "8" = store.reuse.returned_bytes[2],
        ]
        Gauge "edgeward_link_store_recovering"
            "1 until the index is complete after the start; until then, stored chunks may not be found."
            { u8::from(store.recovering) }
        Gauge "edgeward_link_store_unread_trailers"
            "Containers whose list of chunks must be read until the index is complete." { store.unread_trailers }
        Counter "edgeward_link_store_absent_while_recovering_total"
            "Lookups without a result before the index was complete." { store.absent_while_recovering }
        Counter "edgeward_link_store_checkpoints_total" "Times that the index was saved." { store.checkpoints }
        Counter "edgeward_link_store_checkpoint_errors_total"
            "Times that the index could not be saved; the next start then reads more of the store."
            { store.checkpoint_errors }
    }

    const GATEWAY: GatewayCounters = |gateway| {
        Counter "edgeward_link_accepted_total" "Connections accepted." { gateway.connections }
        Counter "edgeward_link_ended_total" "Connections closed by the gateway, by cause." ["cause":
            "refused" = gateway.refused, // in the handshake: wrong key or version, or no HELLO
            "displaced" = gateway.displaced, // before the end of the handshake, to make room for newer connections
            "denied" = gateway.denied, // the certificate is on the deny list
            "malformed" = gateway.malformed, // received bytes were not a valid frame
            "violation" = gateway.violations, // the peer violated the protocol
        ]
        Counter "edgeward_link_cloned_stores_total"
            "Edges that had the store identity of another connected edge." { gateway.clones }
        Counter "edgeward_link_shared_certificates_total"
            "Times that a second store connected with the certificate of a connected edge."
            { gateway.shared_certificates }
        Counter "edgeward_link_refused_certificates_total"
            "Connections refused by the gateway, by the problem of the certificate." ["problem":
            "missing" = gateway.refused_certificates[CertificateProblem::Missing as usize],
            "unknown" = gateway.refused_certificates[CertificateProblem::Unknown as usize], // signed by another CA
            "expired" = gateway.refused_certificates[CertificateProblem::Expired as usize],
            "revoked" = gateway.refused_certificates[CertificateProblem::Revoked as usize], // on the deny list
            "wrong_role" = gateway.refused_certificates[CertificateProblem::WrongRole as usize],
        ]
        Counter "edgeward_link_refused_streams_total" "Streams refused, by cause." ["cause":
            "not_allowed" = gateway.not_allowed,
            "unreachable" = gateway.unreachable,
            "over_limit" = gateway.over_limit, // the edge's certificate has reached a limit
        ]
    }
}

/// A metric that was renamed. It is also reported under its old name, which the next version removes.
struct Renamed {
    name: &'static str,
    old: &'static str,
    old_help: &'static str,
}

/// Declares a renamed metric.
macro_rules! renamed {
    ($name:literal was $old:literal) => {
        Renamed {
            name: $name,
            old: $old,
            old_help: concat!(
                "Deprecated name of `",
                $name,
                "`, removed in the next version."
            ),
        }
    };
}

const RENAMED: [Renamed; 6] = [
    renamed!("edgeward_link_referenced_bytes_total" was "edgeward_link_named_bytes_total"),
    renamed!("edgeward_link_resent_bytes_total" was "edgeward_link_again_bytes_total"),
    renamed!("edgeward_link_late_frames_limit_hits_total" was "edgeward_link_held_up_total"),
    renamed!("edgeward_link_streams" was "edgeward_link_conversations"),
    renamed!("edgeward_link_store_corrupt_chunks_total" was "edgeward_link_store_harmed_chunks_total"),
    renamed!("edgeward_link_refused_streams_total" was "edgeward_link_refused_conversations_total"),
];

/// Returns the definitions of all metrics that an endpoint can have.
pub fn metric_definitions() -> Vec<Definition> {
    let mut definitions = PEER.definitions();
    definitions.extend(HOST.definitions());
    definitions.extend(CONTENT_TYPE.definitions());
    definitions.extend(ENDPOINT.definitions());
    definitions.extend(STORE.definitions());
    definitions.extend(RATE_LIMIT.definitions());
    definitions.extend(GATEWAY.definitions());
    definitions.extend(CERTIFICATE.definitions());
    definitions.extend(EDGE.definitions());
    for renamed in RENAMED {
        let definition = definitions.iter().find(|found| found.name == renamed.name);
        let definition = definition.expect("the new name is in a table").clone();
        definitions.push(Definition {
            name: renamed.old,
            help: renamed.old_help,
            ..definition
        });
    }
    definitions
}

/// Returns the labels and the counters of the rows of all peers.
fn by_peer(
    status: &EndpointStatus,
    rows: fn(&PeerStatus) -> &[(String, BodyCounters)],
) -> Vec<(Vec<&str>, &BodyCounters)> {
    let rows = status.peers.iter().flat_map(|peer| {
        let rows = rows(peer).iter();
        rows.map(|(name, counters)| (vec![peer.name.as_str(), name], counters))
    });
    rows.collect()
}

/// Returns all metrics of an endpoint as text.
pub(crate) fn render(status: &EndpointStatus) -> String {
    let peers: Vec<_> = status
        .peers
        .iter()
        .map(|peer| (vec![peer.name.as_str()], peer))
        .collect();
    let hosts = by_peer(status, |peer| &peer.hosts);
    let content_types = by_peer(status, |peer| &peer.content_types);
    let mut families = PEER.families(&peers);
    families.extend(HOST.families(&hosts));
    families.extend(CONTENT_TYPE.families(&content_types));
    families.extend(ENDPOINT.of(status));
    families.extend(STORE.of(&status.store));
    families.extend(
        status
            .rate_limit
            .iter()
            .flat_map(|limit| RATE_LIMIT.of(limit)),
    );
    families.extend(
        status
            .gateway
            .iter()
            .flat_map(|gateway| GATEWAY.of(gateway)),
    );
    let own = status.identity.as_ref().map(|own| own.name());
    let own = own.zip(status.days_left());
    let edges = status
        .identities
        .iter()
        .filter_map(|edge| Some((edge.name.clone(), edge.days_left?)));
    let ends: Vec<_> = own.into_iter().chain(edges).collect();
    let ends: Vec<_> = ends
        .iter()
        .map(|(name, days)| (vec![name.as_str()], days))
        .collect();
    families.extend(CERTIFICATE.families(&ends));
    let edges: Vec<_> = status
        .identities
        .iter()
        .map(|edge| (vec![edge.name.as_str()], edge))
        .collect();
    families.extend(EDGE.families(&edges));
    for renamed in RENAMED {
        // An edge has no metrics of a gateway.
        let family = families.iter().find(|found| found.name() == renamed.name);
        if let Some(mut family) = family.cloned() {
            family.set_name(renamed.old.to_owned());
            family.set_help(renamed.old_help.to_owned());
            families.push(family);
        }
    }
    encode(families)
}
