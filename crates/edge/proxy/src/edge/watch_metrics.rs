//! The metrics of the watcher of requests.

use edgeward_metrics::{Definition, Family, metrics};

use crate::config::watch::{WatcherFacts, WhatIfPoint};
use crate::path::worker::Shared;

metrics! {
    /// These metrics exist if requests are watched.
    const WATCHER: WatcherFacts = |facts| {
        Counter "edgeward_whatif_samples_total" "Requests that simulated caches have followed." { facts.samples }
        Counter "edgeward_whatif_lost_total"
            "Samples of requests that were dropped because the ring of a worker was full." { facts.lost }
        Gauge "edgeward_whatif_sampled_ratio" "Part of all objects whose requests the simulated caches follow."
            { facts.sampled_share }
        Gauge "edgeward_insight_memory_bytes" "Memory of the analysis of requests." { facts.memory_bytes }
        Gauge "edgeward_insight_memory_bytes_max" "Bound of the memory of the analysis of requests."
            { facts.memory_max_bytes }
    }
}

metrics! {
    /// One policy with one size of memory. The size is a multiple of the present one.
    const POINTS: WhatIfPoint ["policy", "size"] = |point| {
        Gauge "edgeward_whatif_hit_ratio"
            "Hits per request that another policy and size of memory would have, by simulation of a sample of objects."
            { point.hit_ratio }
        Gauge "edgeward_whatif_byte_hit_ratio"
            "Bytes of hits per byte of all responses that another policy and size of memory would have."
            { point.byte_hit_ratio }
    }
}

/// Returns the definitions of the metrics.
pub(super) fn definitions() -> Vec<Definition> {
    let mut definitions = WATCHER.definitions();
    definitions.extend(POINTS.definitions());
    definitions
}

/// Returns the metrics. None without a watcher.
pub(super) fn families(shared: &Shared) -> Vec<Family> {
    let Some(watcher) = &shared.config.watcher else {
        return Vec::new();
    };
    let facts = watcher.facts();
    let mut families = WATCHER.of(&facts);
    let rows = facts
        .points
        .iter()
        .map(|point| (vec![point.policy.as_str(), point.size], point));
    families.extend(POINTS.families(&rows.collect::<Vec<_>>()));
    families
}
