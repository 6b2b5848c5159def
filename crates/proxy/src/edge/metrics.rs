//! All metrics in the text format of Prometheus.
//!
//! Families are computed for each scrape: the sums of the workers' counters, and the state of the cache. Requests do not use
//! this module.

use edgeward_policy::adaptsize::Tuning;
use edgeward_store::arena::Arena;
use edgeward_store::hot::HotStats;
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{Encoder, TextEncoder};

use crate::base::counters::{Counters, MetricKind, ROWS};
use crate::base::descriptors;
use crate::base::metric_family::{counter, families, family, gauge, labelled};
use crate::path::worker::Shared;

/// Returns all metrics as text.
pub(crate) fn render(shared: &Shared) -> String {
    let mut families = counters(&shared.counters);
    families.extend(hot(&shared.cache.hot.stats()));
    families.extend(edge(shared));
    families.extend(shared.cache.disk.iter().flat_map(|disk| disk.metrics()));
    families.extend(shared.cache.negative.metrics());
    families.extend(process(shared));
    let mut text = Vec::new();
    // The encoder fails only for families without a name or without metrics, and no family is without.
    if let Err(error) = TextEncoder::new().encode(&families, &mut text) {
        tracing::error!(%error, "metrics cannot be encoded");
    }
    String::from_utf8(text).unwrap_or_default()
}

/// Returns the sum of a counter over all workers.
pub(crate) fn sum(of_workers: &[std::sync::Arc<Counters>], of: fn(&Counters) -> u64) -> u64 {
    // The gauge of one worker may be below zero, but the sum is not.
    of_workers
        .iter()
        .fold(0, |sum, counters| sum.wrapping_add(of(counters)))
}

fn counters(of_workers: &[std::sync::Arc<Counters>]) -> Vec<MetricFamily> {
    let mut families: Vec<MetricFamily> = Vec::new();
    for row in ROWS {
        let value = sum(of_workers, row.value) as f64;
        let metric = match row.kind {
            MetricKind::Counter => counter(value),
            MetricKind::Gauge => gauge(value),
        };
        let metric = labelled(metric, row.label.as_slice());
        match families.last_mut() {
            Some(family) if family.name() == row.metric => family.mut_metric().push(metric),
            _ => {
                let kind = match row.kind {
                    MetricKind::Counter => MetricType::COUNTER,
                    MetricKind::Gauge => MetricType::GAUGE,
                };
                families.push(family(row.metric, row.help, kind, vec![metric]));
            }
        }
    }
    families
}

fn edge(shared: &Shared) -> Vec<MetricFamily> {
    let limits = &shared.config.limits;
    let cache = &shared.cache;
    let arena = |of: fn(&Arena) -> u64| cache.arena.as_deref().map_or(0, of);
    families! {
        Gauge "edgeward_arena_bytes" "Memory of large bodies in whole pages. Part of the resident memory only as far as TLS or HTTP/2 have read it." = arena(Arena::used_bytes);
        Gauge "edgeward_arena_lost_bytes" "Memory of large bodies that could not be returned to the system." = arena(Arena::lost_bytes);
        Gauge "edgeward_origin_up" "1 if the last connection to the origin succeeded, otherwise 0." = u8::from(!shared.origin_health.is_down());
        Gauge "edgeward_fill_bytes" "Memory of the fills under way." = cache.fill_budget.used_bytes();
        Gauge "edgeward_fill_bytes_max" "Bound of the memory of all fills under way." = limits.fill_bytes_max.bytes();
        Gauge "edgeward_upload_buffer_bytes" "Memory of request bodies that are buffered before a request is sent to the origin." = shared.upload_budget.used_bytes();
        Gauge "edgeward_upload_buffer_bytes_max" "Bound of the memory of all upload buffers." = limits.upload_buffers_bytes_max.bytes();
        Gauge "edgeward_heads_bytes" "Decoded heads of the HTTP/2 requests under way." = shared.head_budget.used_bytes();
        Gauge "edgeward_heads_bytes_max" "Bound of the decoded heads of all HTTP/2 requests under way." = limits.heads_bytes_max.bytes();
        Gauge "edgeward_disk_devices_damaged" "Configured devices of the disk cache that are unused because their stores are damaged." = cache.disk_damaged.len();
        Gauge "edgeward_client_connections_max" "Bound of the client connections." = limits.connections_max.get();
    }
}

fn hot(stats: &HotStats) -> Vec<MetricFamily> {
    let mut families = families! {
        Gauge "edgeward_hot_capacity_bytes" "Budget of the cache in memory: heads, bodies, keys and index." = stats.capacity_bytes;
        Gauge "edgeward_hot_used_bytes" "Bytes of the budget in use, including fills under way." = stats.used_bytes;
        Gauge "edgeward_hot_pinned_bytes" "Bytes of the budget that clients pin: evicted objects that are still sent, and bytes read for slow clients." = stats.pinned_bytes;
        Gauge "edgeward_hot_pinned_bytes_max" "Bound of the pinned bytes. Above it no object is admitted and slow readers are disconnected." = stats.pinned_bytes_max;
        Gauge "edgeward_hot_objects" "Objects in memory, including fills under way." = stats.objects;
        Gauge "edgeward_hot_bookkeeping_bytes" "Bytes of the policy's own bookkeeping, part of the budget." = stats.bookkeeping_bytes;
        Counter "edgeward_hot_admitted_total" "Objects admitted." = stats.admitted;
        Counter "edgeward_hot_evicted_total" "Objects evicted." = stats.evicted;
        Counter "edgeward_hot_evicted_bytes_total" "Bytes of evicted objects." = stats.evicted_bytes;
        Counter "edgeward_hot_abandoned_total" "Reservations released because the body never arrived completely." = stats.abandoned;
        Counter "edgeward_hot_freed_given_back_total" "Times that pages of freed objects exceeded hot.freed_bytes_max and were returned to the system." = stats.given_back;
    };
    let refused = [
        ("admission", stats.refused_by_admission),
        ("larger-than-cache", stats.refused_too_large),
        ("object-limit", stats.refused_object_limit),
        ("pinned-memory", stats.refused_pinned),
    ];
    families.extend(families! { for row in refused, &[("reason", row.0)];
        Counter "edgeward_hot_refused_total" "Objects that were not admitted, by reason." = row.1;
    });
    if let Some(tuning) = &stats.tuning {
        families.extend(families! {
            Gauge "edgeward_adaptsize_c_bytes" "AdaptSize's current size parameter c: an object of s bytes is admitted with probability e^(-s/c)." = tuning.c;
            Counter "edgeward_adaptsize_windows_total" "Windows of requests that AdaptSize has evaluated." = tuning.steps;
            Counter "edgeward_adaptsize_requests_dropped_total" "Requests that the tuner missed because a worker's ring was full." = tuning.requests_dropped;
        });
        families.extend(tuning.last.iter().flat_map(tuned));
    }
    families
}

fn tuned(last: &Tuning) -> Vec<MetricFamily> {
    let mut families = families! {
        Gauge "edgeward_adaptsize_predicted_ohr" "Object hit ratio that the model predicts for the current window." = last.predicted_ohr;
        Gauge "edgeward_adaptsize_measured_ohr" "Object hit ratio of the last window." = last.measured_ohr;
        Gauge "edgeward_adaptsize_tracked_objects" "Objects whose request rates the tuner tracks." = last.objects;
        Gauge "edgeward_adaptsize_untracked_requests" "Requests of the last window for objects that the tuner could not track." = last.untracked_requests;
    };
    if let Some(error) = last.model_error {
        families.extend(families! {
            Gauge "edgeward_adaptsize_model_error" "Predicted minus measured object hit ratio of the last window." = error;
        });
    }
    if !last.curve.is_empty() {
        let label = |c: f64| match c.is_finite() {
            true => format!("{c:.0}"),
            false => "+Inf".to_owned(),
        };
        families.extend(families! { for point in last.curve, &[("c_bytes", &label(point.c))];
            Gauge "edgeward_adaptsize_curve_ohr" "Object hit ratio that the model predicts for each size parameter." = point.ohr;
        });
    }
    families
}

fn process(shared: &Shared) -> Vec<MetricFamily> {
    let mut families = Vec::new();
    if let Some(limit) = descriptors::limit() {
        families.extend(families! {
            Gauge "edgeward_open_files_max" "The process's limit of open files. Each connection of a client and to the origin uses one." = limit;
        });
    }
    if let Some(memory) = Memory::of(shared) {
        families.extend(families! {
            Gauge "process_resident_memory_bytes" "Resident memory of the process." = memory.resident_bytes;
            Gauge "edgeward_memory_bytes" "All memory of the process: its resident memory, and the arena's pages that are not mapped." = memory.all_bytes;
        });
    }
    families
}

/// Memory of this process.
pub(crate) struct Memory {
    pub(crate) resident_bytes: u64,
    pub(crate) all_bytes: u64,
}

impl Memory {
    /// Reads the process's memory from `/proc`. Returns `None` where this file is unavailable.
    pub(crate) fn of(shared: &Shared) -> Option<Self> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            Some(kib * 1024)
        };
        let resident_bytes = kib("VmRSS:")?;
        let mapped = kib("RssShmem:").unwrap_or(0);
        let arena = shared.cache.arena.as_deref().map_or(0, Arena::used_bytes);
        Some(Self {
            resident_bytes,
            all_bytes: resident_bytes + arena.saturating_sub(mapped),
        })
    }
}
