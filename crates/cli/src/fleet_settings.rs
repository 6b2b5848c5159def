//! The settings of `[fleet.nats]`: the stream of purges that the nodes of a fleet share, and their heartbeats. With the
//! members that a process passes to the one that replaces it.

use std::path::PathBuf;
use std::time::Duration;

use edgeward_proxy::config::WhenCutOff;
use edgeward_types::ByteSize;
use serde_json::{Value, json};

/// `[fleet.nats]` of the configuration. Without servers there is no stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FleetNats {
    pub(crate) servers: Vec<String>,
    pub(crate) stream: String,
    pub(crate) user: Option<String>,
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) token_file: Option<PathBuf>,
    /// The PEM file of the roots that the servers' certificates chain to. `None`: the roots of the system.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) replicas: u32,
    pub(crate) age_max: Duration,
    pub(crate) bytes_max: ByteSize,
    pub(crate) buffer_bytes_max: ByteSize,
    pub(crate) lag_max: Duration,
    pub(crate) member_ttl: Duration,
    pub(crate) slow_start: Duration,
    pub(crate) when_cut_off: WhenCutOff,
    pub(crate) purge_alone: bool,
}

/// The knowledge of a process about the members of the fleet, for the process that replaces it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FleetInheritance {
    /// The time for which the other nodes may not have told the process of changes, in milliseconds. `None` if they may
    /// have removed it from their lists.
    pub(crate) told_ms: Option<u64>,
    /// False if they have never had it in their lists.
    pub(crate) was_told: bool,
    /// The members of its list, as records of nodes.
    pub(crate) members: Vec<Value>,
}

impl FleetInheritance {
    /// Returns the message about the process, without the members.
    pub(crate) fn message(&self) -> Value {
        json!({ "fleet": { "told_ms": self.told_ms, "was_told": self.was_told } })
    }

    /// Reads [`message`](Self::message). A process of an earlier version does not state `was_told`.
    pub(crate) fn read(&mut self, message: &Value) {
        self.told_ms = message["fleet"]["told_ms"].as_u64();
        self.was_told = message["fleet"]["was_told"].as_bool().unwrap_or(true);
    }
}

/// The knowledge of a process whose fleet has a fixed list of members, which all nodes have, or of one without a fleet.
impl Default for FleetInheritance {
    fn default() -> Self {
        Self {
            told_ms: Some(0),
            was_told: true,
            members: Vec::new(),
        }
    }
}

impl Default for FleetNats {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            stream: "edgeward".to_owned(),
            user: None,
            password_file: None,
            token_file: None,
            ca: None,
            certificate: None,
            key: None,
            // A single server has one copy.
            replicas: 1,
            // A node that was down for a week starts with an empty cache.
            age_max: Duration::from_secs(7 * 24 * 3600),
            // Two million purges of a tag.
            bytes_max: ByteSize::mib(512),
            // Thirty messages of the greatest size, or 80,000 purges of a tag.
            buffer_bytes_max: ByteSize::mib(16),
            // The state of the stream is queried every second.
            lag_max: Duration::from_secs(5),
            // With 256 nodes, 102 heartbeats per second. Requests find a failed node earlier.
            member_ttl: Duration::from_secs(10),
            // Ten lists of members, and a tenth of the node's misses in each three seconds.
            slow_start: Duration::from_secs(30),
            when_cut_off: WhenCutOff::default(),
            purge_alone: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::FleetService;

    fn received(message: &Value) -> FleetInheritance {
        let mut received = FleetInheritance::default();
        received.read(message);
        received
    }

    #[test]
    fn a_process_without_a_directory_was_in_the_lists_until_now() {
        let told = FleetService::default().inheritance();
        assert_eq!((told.told_ms, told.was_told), (Some(0), true));
        assert_eq!(received(&told.message()), told);
    }

    #[test]
    fn the_next_process_learns_if_this_one_was_removed_or_was_never_in_a_list() {
        for (told_ms, was_told) in [(Some(7), false), (Some(7), true), (None, true)] {
            let told = FleetInheritance {
                told_ms,
                was_told,
                members: Vec::new(),
            };
            assert_eq!(received(&told.message()), told);
        }
        let of_earlier_version = received(&json!({ "fleet": { "told_ms": 7 } }));
        assert!(of_earlier_version.was_told);
    }
}
