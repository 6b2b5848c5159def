//! The settings of `[fleet.nats]`: the stream of purges that the nodes of a fleet share, and their heartbeats. With the
//! members that a process passes to the one that replaces it.

use std::path::PathBuf;
use std::time::Duration;

use edgeward_proxy::config::WhenCutOff;
use edgeward_types::ByteSize;
use serde_json::Value;

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
    pub(crate) when_cut_off: WhenCutOff,
    pub(crate) purge_alone: bool,
}

/// The knowledge of a process about the members of the fleet, for the process that replaces it.
#[derive(Clone, Debug, Default)]
pub(crate) struct FleetInheritance {
    /// The time since the other nodes had the process in their lists, in milliseconds. `None` if they may have removed
    /// it.
    pub(crate) told_ms: Option<u64>,
    /// The members of its list, as records of nodes.
    pub(crate) members: Vec<Value>,
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
            when_cut_off: WhenCutOff::default(),
            purge_alone: false,
        }
    }
}
