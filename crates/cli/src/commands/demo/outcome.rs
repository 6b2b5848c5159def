//! The results of the demo.

use std::path::PathBuf;

use edgeward_replay::ReplayReport;
use edgeward_sim::{RunReport, TraceFacts};
use serde::Serialize;

/// The results of the demo. They are also the JSON document of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) trace: TraceFacts,
    pub(super) preset: &'static str,
    pub(super) seed: u64,
    pub(super) hot_bytes: u64,
    pub(super) window_requests: u32,
    pub(super) warmup_requests: u64,
    pub(super) object_overhead_bytes: u64,
    pub(super) origin_latency_ms: f64,
    pub(super) edges: Vec<EdgeOutcome>,
    pub(super) report: PathBuf,
}

/// The prediction and the measurement of one policy.
#[derive(Debug, Serialize)]
pub(super) struct EdgeOutcome {
    pub(super) policy: String,
    pub(super) predicted: RunReport,
    pub(super) measured: ReplayReport,
    /// The number of requests from the edge to the origin, including the warm-up.
    pub(super) origin_requests: u64,
    /// The body bytes of the responses to these requests.
    pub(super) origin_bytes: u64,
}

/// The number of intervals of the trace for which the plot shows a hit ratio.
pub(super) const INTERVALS: u64 = 60;
