//! What Prometheus is told, in its text format.

use std::fmt::Write as _;

use crate::status::{EndStatus, PeerStatus};

/// Rows of one metric: labels and value.
type Rows = Vec<(String, u64)>;

/// All metrics of an end.
pub(crate) fn render(status: &EndStatus) -> String {
    let mut text = String::new();
    let peer = |value: fn(&PeerStatus) -> u64| -> Rows {
        let peers = status.peers.iter();
        peers
            .map(|peer| (label("peer", &peer.name), value(peer)))
            .collect()
    };
    let both = |sent: fn(&PeerStatus) -> u64, received: fn(&PeerStatus) -> u64| -> Rows {
        let rows = |direction: &'static str, value: fn(&PeerStatus) -> u64| {
            status.peers.iter().map(move |peer| {
                let labels = format!(
                    "{},{}",
                    label("peer", &peer.name),
                    label("direction", direction)
                );
                (labels, value(peer))
            })
        };
        rows("sent", sent)
            .chain(rows("received", received))
            .collect()
    };
    let one = |value: u64| vec![(String::new(), value)];

    family(
        &mut text,
        "body_bytes_total",
        "counter",
        "Bytes of bodies, as their users see them.",
        both(
            |peer| peer.sent.plain + peer.sent.literal + peer.sent.delta + peer.sent.named,
            |peer| peer.received.delivered,
        ),
    );
    family(
        &mut text,
        "wire_bytes_total",
        "counter",
        "Bytes of the frames that carried them.",
        both(|peer| peer.sent.wire, PeerStatus::received_wire),
    );
    family(
        &mut text,
        "named_bytes_total",
        "counter",
        "Bytes of bodies that were named instead of sent.",
        both(|peer| peer.sent.named, |peer| peer.received.from_store),
    );
    family(
        &mut text,
        "delta_bytes_total",
        "counter",
        "Bytes of bodies that were sent compressed against earlier ones.",
        peer(|peer| peer.sent.delta),
    );
    family(
        &mut text,
        "plain_bytes_total",
        "counter",
        "Bytes of bodies that were neither looked up nor kept.",
        peer(|peer| peer.sent.plain),
    );
    family(
        &mut text,
        "again_bytes_total",
        "counter",
        "Bytes of bodies that were sent again.",
        peer(|peer| peer.sent.again),
    );
    family(
        &mut text,
        "naks_total",
        "counter",
        "Frames that the peer could not use.",
        peer(|peer| peer.sent.naks),
    );
    family(
        &mut text,
        "lost_bodies_total",
        "counter",
        "Bodies given up since neither end had any more what was named.",
        peer(|peer| peer.sent.lost),
    );
    family(
        &mut text,
        "missing_total",
        "counter",
        "Frames refused because a chunk was not here, or harmed.",
        peer(|peer| peer.received.missing),
    );
    family(
        &mut text,
        "foreign_total",
        "counter",
        "Frames refused because the peer named what it never had.",
        peer(|peer| peer.received.foreign),
    );
    family(
        &mut text,
        "disordered_total",
        "counter",
        "Frames refused because chunks lie in another order here.",
        peer(|peer| peer.received.disordered),
    );
    family(
        &mut text,
        "late_frames_total",
        "counter",
        "Frames whose chunks had to be read from the disk, while others went on.",
        peer(|peer| peer.late),
    );
    family(
        &mut text,
        "late_bodies_total",
        "counter",
        "Times a body waited for whether the disk has a chunk of it, while others went on.",
        peer(|peer| peer.late_bodies),
    );
    family(
        &mut text,
        "held_up_total",
        "counter",
        "Times a connection waited for the disk, since as many frames as may did.",
        peer(|peer| peer.held_up),
    );
    family(
        &mut text,
        "digest_failures_total",
        "counter",
        "Bodies that were not as they had been sent.",
        peer(|peer| peer.received.digest_failures),
    );
    family(
        &mut text,
        "bypassed_total",
        "counter",
        "Bodies left alone because of how they begin.",
        peer(|peer| peer.bypassed),
    );
    family(
        &mut text,
        "connections",
        "gauge",
        "Connections that are up.",
        peer(|peer| peer.connections as u64),
    );
    family(
        &mut text,
        "conversations",
        "gauge",
        "Conversations under way.",
        peer(|peer| peer.conversations as u64),
    );
    family(
        &mut text,
        "unacked_bytes",
        "gauge",
        "Bytes of memory kept until the peer has what they stand for.",
        peer(|peer| peer.unacked as u64),
    );
    family(
        &mut text,
        "granted_bytes",
        "gauge",
        "Bytes that may come, or were not taken yet.",
        peer(|peer| peer.granted),
    );

    let host = |value: [fn(&crate::Tally) -> u64; 2]| -> Rows {
        let mut rows = Rows::new();
        for peer in &status.peers {
            for (name, tally) in &peer.hosts {
                for (direction, value) in ["sent", "received"].into_iter().zip(value) {
                    let labels = [
                        label("peer", &peer.name),
                        label("host", name),
                        label("direction", direction),
                    ];
                    rows.push((labels.join(","), value(tally)));
                }
            }
        }
        rows
    };
    family(
        &mut text,
        "host_body_bytes_total",
        "counter",
        "Bytes of bodies, by target.",
        host([|tally| tally.sent, |tally| tally.received]),
    );
    family(
        &mut text,
        "host_wire_bytes_total",
        "counter",
        "Bytes of their frames, by target.",
        host([|tally| tally.sent_wire, |tally| tally.received_wire]),
    );

    family(
        &mut text,
        "encrypted",
        "gauge",
        "Whether connections are encrypted.",
        one(status.encrypted.into()),
    );
    family(
        &mut text,
        "store_bytes",
        "gauge",
        "Bytes that chunks take, compressed if they are.",
        one(status.store.stored_bytes),
    );
    family(
        &mut text,
        "store_raw_bytes",
        "gauge",
        "Bytes of the chunks that are kept, before compression.",
        one(status.store.raw_bytes),
    );
    family(
        &mut text,
        "store_listed_bytes",
        "gauge",
        "Bytes of chunks of which only the names are kept; they take as much room.",
        one(status.store.listed_bytes),
    );
    family(
        &mut text,
        "store_bytes_max",
        "gauge",
        "Bytes there are for chunks.",
        one(status.store_bytes_max),
    );
    family(
        &mut text,
        "store_chunks",
        "gauge",
        "Chunks the index knows.",
        one(status.store.indexed),
    );
    family(
        &mut text,
        "store_index_bytes",
        "gauge",
        "Bytes of the index in memory.",
        one(status.store.index_bytes),
    );
    family(
        &mut text,
        "store_harmed_chunks_total",
        "counter",
        "Chunks that were not what their names say.",
        one(status.store.forgotten),
    );
    family(
        &mut text,
        "store_errors_total",
        "counter",
        "Reads and writes of the store that failed.",
        one(status.store.errors),
    );

    if let Some(door) = status.door {
        family(
            &mut text,
            "accepted_total",
            "counter",
            "Connections that came.",
            one(door.connections),
        );
        let ended = [
            ("refused", door.refused),
            ("displaced", door.displaced),
            ("denied", door.denied),
            ("malformed", door.malformed),
            ("violation", door.violations),
        ];
        family(
            &mut text,
            "ended_total",
            "counter",
            "Connections that were ended, and why.",
            causes(ended),
        );
        family(
            &mut text,
            "cloned_stores_total",
            "counter",
            "Edges that were found to have the store identity of another live edge.",
            one(door.clones),
        );
        let refused = [
            ("not_allowed", door.not_allowed),
            ("unreachable", door.unreachable),
        ];
        family(
            &mut text,
            "refused_conversations_total",
            "counter",
            "Conversations that were refused, and why.",
            causes(refused),
        );
    }
    text
}

fn causes<const N: usize>(causes: [(&str, u64); N]) -> Rows {
    let causes = causes.into_iter();
    causes
        .map(|(cause, count)| (label("cause", cause), count))
        .collect()
}

fn family(text: &mut String, name: &str, kind: &str, help: &str, rows: Rows) {
    _ = writeln!(
        text,
        "# HELP edgeward_link_{name} {help}\n# TYPE edgeward_link_{name} {kind}"
    );
    for (labels, value) in rows {
        _ = if labels.is_empty() {
            writeln!(text, "edgeward_link_{name} {value}")
        } else {
            writeln!(text, "edgeward_link_{name}{{{labels}}} {value}")
        };
    }
}

/// Values are names of hosts and addresses, in which nothing needs escaping, but one never knows.
fn label(name: &str, value: &str) -> String {
    let value = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}
