//! Everything counted, as Prometheus reads it.
//!
//! Families are put together when somebody asks: workers' counters added up, the cache's state as
//! it is. Nothing here is touched by a request.

use edgeward_policy::adaptsize::Tuning;
use edgeward_store::arena::Arena;
use edgeward_store::hot::HotStats;
use prometheus::proto::{Metric, MetricFamily, MetricType};
use prometheus::{Encoder, TextEncoder};

use crate::base::counters::{Counters, MetricKind, ROWS};
use crate::base::descriptors;
use crate::base::metric_family::{counter, family, gauge, labelled};
use crate::path::worker::Shared;

/// All metrics as text.
pub(crate) fn render(shared: &Shared) -> String {
    let mut families = counters(&shared.counters);
    families.extend(hot(&shared.cache.hot.stats()));
    families.extend(edge(shared));
    families.extend(shared.cache.disk.iter().flat_map(|disk| disk.metrics()));
    families.extend(shared.cache.negative.metrics());
    families.extend(process(shared));
    let mut text = Vec::new();
    // The encoder fails for families without metrics or names alone, and there are none.
    if let Err(error) = TextEncoder::new().encode(&families, &mut text) {
        tracing::error!(%error, "metrics cannot be encoded");
    }
    String::from_utf8(text).unwrap_or_default()
}

/// The sum of a counter over all workers.
pub(crate) fn sum(of_workers: &[std::sync::Arc<Counters>], of: fn(&Counters) -> u64) -> u64 {
    // A gauge may be below zero for one worker and is right in the sum.
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

/// Families of one value each, a line a family.
macro_rules! families {
    ($( $kind:ident $name:literal $help:literal = $value:expr; )*) => {
        vec![$( family($name, $help, families!(@type $kind), vec![families!(@metric $kind $value)]), )*]
    };
    (@type Gauge) => { MetricType::GAUGE };
    (@type Counter) => { MetricType::COUNTER };
    (@metric Gauge $value:expr) => { gauge($value as f64) };
    (@metric Counter $value:expr) => { counter($value as f64) };
}

fn edge(shared: &Shared) -> Vec<MetricFamily> {
    let limits = &shared.config.limits;
    let cache = &shared.cache;
    let arena = |of: fn(&Arena) -> u64| cache.arena.as_deref().map_or(0, of);
    families! {
        Gauge "edgeward_arena_bytes" "Memory of large bodies, whole pages. Not part of the resident memory unless they were read by TLS or HTTP/2." = arena(Arena::used_bytes);
        Gauge "edgeward_arena_lost_bytes" "Memory of large bodies that the system did not take back." = arena(Arena::lost_bytes);
        Gauge "edgeward_origin_up" "Whether the last connection to the origin succeeded: 1 or 0." = u8::from(!shared.origin_health.is_down());
        Gauge "edgeward_fill_bytes" "Memory of the fills under way." = cache.fill_budget.used_bytes();
        Gauge "edgeward_fill_bytes_max" "Bound of the memory of all fills under way." = limits.fill_bytes_max.bytes();
        Gauge "edgeward_upload_buffer_bytes" "Memory of request bodies that are read before the origin is asked." = shared.upload_budget.used_bytes();
        Gauge "edgeward_upload_buffer_bytes_max" "Bound of the memory of all upload buffers." = limits.upload_buffers_bytes_max.bytes();
        Gauge "edgeward_heads_bytes" "Decoded heads of the HTTP/2 requests under way." = shared.head_budget.used_bytes();
        Gauge "edgeward_heads_bytes_max" "Bound of the decoded heads of all HTTP/2 requests under way." = limits.heads_bytes_max.bytes();
        Gauge "edgeward_disk_devices_damaged" "Configured devices of the disk cache that are not used, because they are damaged stores." = cache.disk_damaged.len();
        Gauge "edgeward_client_connections_max" "Bound of the client connections." = limits.connections_max.get();
    }
}

fn hot(stats: &HotStats) -> Vec<MetricFamily> {
    let mut families = families! {
        Gauge "edgeward_hot_capacity_bytes" "Budget of the cache in memory: heads, bodies, keys and index." = stats.capacity_bytes;
        Gauge "edgeward_hot_used_bytes" "Bytes of the budget that are taken, fills on their way included." = stats.used_bytes;
        Gauge "edgeward_hot_pinned_bytes" "Bytes of the budget that clients keep from being freed: of evicted objects, and read for slow clients." = stats.pinned_bytes;
        Gauge "edgeward_hot_pinned_bytes_max" "Bound of the pinned bytes above which nothing is admitted and slow readers are disconnected." = stats.pinned_bytes_max;
        Gauge "edgeward_hot_objects" "Objects in memory, fills on their way included." = stats.objects;
        Gauge "edgeward_hot_bookkeeping_bytes" "Bytes of the policy's own bookkeeping, part of the budget." = stats.bookkeeping_bytes;
        Counter "edgeward_hot_admitted_total" "Objects let in." = stats.admitted;
        Counter "edgeward_hot_evicted_total" "Objects that had to leave." = stats.evicted;
        Counter "edgeward_hot_evicted_bytes_total" "Bytes that came free with them." = stats.evicted_bytes;
        Counter "edgeward_hot_abandoned_total" "Places given back because the body never came whole." = stats.abandoned;
        Counter "edgeward_hot_freed_given_back_total" "Times that pages of freed objects exceeded hot.freed_bytes_max and were given back to the system." = stats.given_back;
    };
    let refused = [
        ("admission", stats.refused_by_admission),
        ("larger-than-cache", stats.refused_too_large),
        ("object-limit", stats.refused_object_limit),
        ("pinned-memory", stats.refused_pinned),
    ];
    families.push(family(
        "edgeward_hot_refused_total",
        "Objects not let in, by reason.",
        MetricType::COUNTER,
        refused
            .map(|(reason, n)| labelled(counter(n as f64), &[("reason", reason)]))
            .into(),
    ));
    if let Some(tuning) = &stats.tuning {
        families.extend(families! {
            Gauge "edgeward_adaptsize_c_bytes" "AdaptSize's size parameter in force: an object of s bytes enters with probability e^(-s/c)." = tuning.c;
            Counter "edgeward_adaptsize_windows_total" "Windows of requests AdaptSize has evaluated." = tuning.steps;
            Counter "edgeward_adaptsize_requests_dropped_total" "Requests the tuner never heard of because a worker's ring was full." = tuning.requests_dropped;
        });
        families.extend(tuning.last.iter().flat_map(tuned));
    }
    families
}

fn tuned(last: &Tuning) -> Vec<MetricFamily> {
    let mut families = families! {
        Gauge "edgeward_adaptsize_predicted_ohr" "Object hit ratio the model expects of the window under way." = last.predicted_ohr;
        Gauge "edgeward_adaptsize_measured_ohr" "Object hit ratio of the last window." = last.measured_ohr;
        Gauge "edgeward_adaptsize_tracked_objects" "Objects whose request rates the tuner remembers." = last.objects;
        Gauge "edgeward_adaptsize_untracked_requests" "Requests of the last window beyond what the tuner can remember." = last.untracked_requests;
    };
    if let Some(error) = last.model_error {
        families.extend(families! {
            Gauge "edgeward_adaptsize_model_error" "What was predicted for the last window minus what was measured in it." = error;
        });
    }
    let curve: Vec<Metric> = last
        .curve
        .iter()
        .map(|point| {
            let c = if point.c.is_finite() {
                format!("{:.0}", point.c)
            } else {
                "+Inf".to_owned()
            };
            labelled(gauge(point.ohr), &[("c_bytes", &c)])
        })
        .collect();
    if !curve.is_empty() {
        families.push(family(
            "edgeward_adaptsize_curve_ohr",
            "Object hit ratio the model predicts for each size parameter it looked at.",
            MetricType::GAUGE,
            curve,
        ));
    }
    families
}

fn process(shared: &Shared) -> Vec<MetricFamily> {
    let mut families = Vec::new();
    if let Some(limit) = descriptors::limit() {
        families.extend(families! {
            Gauge "edgeward_open_files_max" "The process's limit of open files; connections of clients and to the origin take one each." = limit;
        });
    }
    if let Some(memory) = Memory::of(shared) {
        families.extend(families! {
            Gauge "process_resident_memory_bytes" "Resident memory of the process." = memory.resident_bytes;
            Gauge "edgeward_memory_bytes" "All memory of the process: what is resident, and the arena's pages that are not mapped." = memory.all_bytes;
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
    /// Where the system tells.
    pub(crate) fn of(shared: &Shared) -> Option<Self> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            Some(kib * 1024)
        };
        let resident_bytes = kib("VmRSS:")?;
        let mapped = kib("RssShmem:").unwrap_or(0);
        let arena = shared
            .cache
            .arena
            .as_ref()
            .map_or(0, |arena| arena.used_bytes());
        Some(Self {
            resident_bytes,
            all_bytes: resident_bytes + arena.saturating_sub(mapped),
        })
    }
}
