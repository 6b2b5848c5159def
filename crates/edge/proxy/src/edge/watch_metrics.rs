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
        Gauge "edgeward_faults_withheld_ratio"
            "Part of the caching faults that is not reported because the memory of excluded rules is full."
            { facts.faults_withheld_ratio }
    }
}

metrics! {
    /// One policy with one size of memory, or one admission rule with one size of disk. The size is a multiple of the
    /// present one of this tier.
    const POINTS: WhatIfPoint ["policy", "size", "tier"] = |point| {
        Gauge "edgeward_whatif_hit_ratio"
            "Hits per request that another policy and size of memory, or of disk, would have, by simulation of a sample of \
             objects."
            { point.hit_ratio }
        Gauge "edgeward_whatif_byte_hit_ratio"
            "Bytes of hits per byte of all responses that another policy and size of memory, or of disk, would have."
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
        .map(|point| (vec![point.policy.as_str(), point.size, point.tier], point));
    families.extend(POINTS.families(&rows.collect::<Vec<_>>()));
    families
}
