//! The metrics of an edge: the sums of the workers' counters, and the state of the cache.
//! This module reads the state of the cache at each scrape. Counters of requests are in `observe/counters.rs`.

use std::sync::atomic::Ordering::Relaxed;

use edgeward_metrics::{Definition, Family, encode, encode_open_metrics, metrics};
use edgeward_overload::Resource;
use edgeward_policy::adaptsize::{CurvePoint, Tuning};
use edgeward_store::arena::Arena;
use edgeward_store::hot::{HotStats, TuningStatus};

use super::acme_metrics;
use super::fleet_purge_metrics;
use super::fleet_report;
use super::measured::{self, Memory};
use super::site_metrics;
use super::watch_metrics;
use crate::cache::disk::report as disk;
use crate::cache::negative;
use crate::net::tls_expiry::TlsExpiry;
use crate::observe::counters;
use crate::origin::{ServerReport, Servers};
use crate::path::worker::Shared;

metrics! {
    const EDGE: Shared = |shared| {
        Gauge "edgeward_arena_bytes"
            "Memory of large bodies; only pages that TLS or HTTP/2 have read are part of the resident memory."
            { arena(shared, Arena::used_bytes) }
        Gauge "edgeward_arena_lost_bytes"
            "Memory of large bodies that could not be returned to the system." { arena(shared, Arena::lost_bytes) }
        Gauge "edgeward_fill_bytes" "Memory of the fills in progress." { shared.cache.fill_budget.used_bytes() }
        Gauge "edgeward_fill_bytes_max"
            "Bound of the memory of all fills in progress." { shared.config.limits.fill_bytes_max.bytes() }
        Gauge "edgeward_upload_buffer_bytes"
            "Memory of request bodies that are buffered before a request is sent to the origin."
            { shared.budgets.uploads.used_bytes() }
        Gauge "edgeward_upload_buffer_bytes_max"
            "Bound of the memory of all upload buffers." { shared.config.limits.upload_buffers_bytes_max.bytes() }
        Gauge "edgeward_heads_bytes"
            "Decoded heads of the HTTP/2 requests in progress." { shared.budgets.heads.used_bytes() }
        Gauge "edgeward_heads_bytes_max"
            "Bound of the decoded heads of all HTTP/2 requests in progress."
            { shared.config.limits.heads_bytes_max.bytes() }
        Gauge "edgeward_connections_bytes"
            "Memory of the state of all client connections: buffers, tasks, incomplete heads, streams and requests."
            { shared.budgets.connections.used_bytes() }
        Gauge "edgeward_connections_bytes_max"
            "Bound of this memory; at 7/8 of it the heaviest connections are closed."
            { shared.config.limits.connections_bytes_max.bytes() }
        Counter "edgeward_purges_total" "Accepted purges, by scope." ["scope":
            "url" = shared.cache.accepted_purges.count("url"),
            "host" = shared.cache.accepted_purges.count("host"),
            "tag" = shared.cache.accepted_purges.count("tag"),
            "group" = shared.cache.accepted_purges.count("group"),
            "prefix" = shared.cache.accepted_purges.count("prefix"),
            "pattern" = shared.cache.accepted_purges.count("pattern"),
        ]
        Counter "edgeward_purge_failures_total"
            "Requests to purge that were refused, or that are not durable, because of the log of purges."
            { shared.cache.purges.failures() }
        Gauge "edgeward_purge_log_damaged"
            "1 if the log of purges was damaged when it was opened, so that all objects on disk count as purged."
            { u64::from(shared.cache.purges.damage().is_some()) }
        Gauge "edgeward_purge_entries" "Purged tags, hosts and URLs that are remembered."
            { shared.cache.purges.size().entries }
        Gauge "edgeward_purge_entries_max"
            "Bound of the purged tags, hosts and URLs that are remembered." { shared.config.purge.entries_max.get() }
        Gauge "edgeward_purge_patterns" "Purged prefixes and patterns that are remembered."
            { shared.cache.purges.size().patterns }
        Gauge "edgeward_purge_patterns_max"
            "Bound of the purged prefixes and patterns that are remembered." { shared.config.purge.patterns_max.get() }
        Counter "edgeward_purge_floor_raises_total"
            "Times that a bound of remembered purges was reached, so that older objects count as purged."
            { shared.cache.purges.size().floor_raises }
        Counter "edgeward_encoding_seconds_total" "Processor time of the threads that compress bodies."
            { shared.encoders.busy_seconds() }
        Gauge "edgeward_encoding_pending_bytes"
            "Memory of compressed bodies that are being made, or sent without being stored."
            { shared.encoders.pending_bytes() }
        Gauge "edgeward_encoding_pending_bytes_max"
            "Bound of the memory of these bodies." { shared.config.compression.pending_bytes_max.bytes() }
        Gauge "edgeward_dictionaries" "Dictionaries that clients may have." { shared.cache.dictionaries.count() }
        Gauge "edgeward_dictionary_bytes" "Memory of dictionaries." { shared.cache.dictionaries.bytes() }
        Gauge "edgeward_dictionary_bytes_max" "Bound of the memory of dictionaries."
            { shared.config.compression.dictionary_bytes_max.bytes() }
        Gauge "edgeward_encodings_waiting" "Bodies that wait for a thread that compresses."
            { shared.encoders.waiting() }
        Gauge "edgeward_disk_devices_damaged"
            "Configured devices of the disk cache that are unused because their stores are damaged."
            { shared.cache.disk_damaged.len() }
        Gauge "edgeward_warm_start_pending_objects"
            "Objects of the previous process that are still to be read from disk into memory."
            { shared.cache.warm_progress.pending.load(Relaxed) }
        Counter "edgeward_warm_start_objects_total"
            "Objects of the previous process, by result: read into memory, or skipped, for example because a request \
             stored the object first." ["result":
            "loaded" = shared.cache.warm_progress.loaded.load(Relaxed),
            "skipped" = shared.cache.warm_progress.skipped.load(Relaxed),
        ]
        Counter "edgeward_warm_start_bytes_total"
            "Bytes of bodies that were read from disk into memory after the start."
            { shared.cache.warm_progress.loaded_bytes.load(Relaxed) }
        Counter "edgeward_traces_total"
            "Sampled requests whose spans were exported, by result." ["result":
            "sent" = shared.trace_exports.sent.load(Relaxed),
            "failed" = shared.trace_exports.failed.load(Relaxed),
        ]
        Counter "edgeward_access_log_lost_total"
            "Lines that the destination of the access log did not accept: a full disk, or a daemon that does not listen."
            { shared.lost_log_lines.as_ref().map_or(0, |lost| lost.load(Relaxed)) }
        Gauge "edgeward_overload_level"
            "Level of overload: 0 sheds nothing, 1 new connections, 2 also requests that bypass the cache, 3 also \
             misses, 4 all requests."
            { shared.health.level() as u8 }
        Counter "edgeward_overload_raised_total" "Times that the level of overload has risen."
            { shared.health.raised.load(Relaxed) }
        Gauge "edgeward_overload_used_ratio" "Used share of each bound; above 1 the level rises." ["resource":
            "memory" = used_share(shared, Resource::Memory),
            "lag" = used_share(shared, Resource::Lag),
            "descriptors" = used_share(shared, Resource::Descriptors),
        ]
        Gauge "edgeward_worker_lag_seconds" "Smoothed delay of the slowest worker's event loop."
            { shared.health.sample().lag.as_secs_f64() }
        Gauge "edgeward_workers_stuck" "Workers that have not reported within the deadline of the watchdog."
            { shared.health.stuck.load(Relaxed) }
        Counter "edgeward_workers_stuck_total" "Times that a worker was found stuck."
            { shared.health.stuck_total.load(Relaxed) }
        Gauge "edgeward_client_connections_max"
            "Bound of the client connections." { shared.config.limits.connections_max.get() }
    }

    const ORIGIN: Servers ["origin"] = |servers| {
        Gauge "edgeward_origin_up"
            "0 if the last connection to each server of the origin, or its health checks, failed; otherwise 1."
            { u8::from(!servers.is_down()) }
    }

    const SERVER: ServerReport ["origin", "server"] = |report| {
        Gauge "edgeward_origin_server_up"
            "1 if the server gets requests, 0 if it failed requests or health checks."
            { u8::from(report.state.is_usable()) }
        Gauge "edgeward_origin_server_under_way" "Requests under way at the server." { report.under_way }
        Counter "edgeward_origin_server_requests_total" "Requests for which the server was chosen."
            { report.server.requests.load(Relaxed) }
        Counter "edgeward_origin_server_failures_total" "Requests that the server did not answer."
            { report.server.failures.load(Relaxed) }
        Counter "edgeward_origin_server_ejections_total"
            "Times that the server got no more requests because it failed several in succession."
            { report.server.ejections.load(Relaxed) }
        Counter "edgeward_origin_server_failed_checks_total" "Failed health checks of the server."
            { report.server.failed_checks.load(Relaxed) }
    }

    const HOT: HotStats = |stats| {
        Gauge "edgeward_hot_capacity_bytes"
            "Budget of the cache in memory: heads, bodies, keys and index." { stats.capacity_bytes }
        Gauge "edgeward_hot_used_bytes" "Bytes of the budget in use, including fills in progress." { stats.used_bytes }
        Gauge "edgeward_hot_pinned_bytes"
            "Bytes of the budget that clients pin: evicted objects still being sent, and unsent pieces of uncached bodies."
            { stats.pinned_bytes }
        Gauge "edgeward_hot_pinned_bytes_max"
            "Bound of the pinned bytes, above which no object is admitted and slow readers are disconnected."
            { stats.pinned_bytes_max }
        Gauge "edgeward_hot_objects" "Objects in memory, including fills in progress." { stats.objects }
        Gauge "edgeward_hot_bookkeeping_bytes"
            "Memory of the policy's own data structures, part of the budget." { stats.bookkeeping_bytes }
        Counter "edgeward_hot_admitted_total" "Objects admitted to memory." { stats.admitted }
        Counter "edgeward_hot_evicted_total" "Objects evicted from memory." { stats.evicted }
        Counter "edgeward_hot_evicted_bytes_total" "Bytes of objects evicted from memory." { stats.evicted_bytes }
        Counter "edgeward_hot_abandoned_total"
            "Reservations released because the body did not arrive completely." { stats.abandoned }
        Counter "edgeward_hot_freed_given_back_total"
            "Times that pages of freed objects exceeded `hot.freed_bytes_max` and were returned to the system."
            { stats.freed_pages_returns }
        Counter "edgeward_hot_policy_changes_total" "Changes of the policy of memory." { stats.policy_changes }
        Counter "edgeward_hot_policy_moved_total"
            "Objects that changes of the policy moved to the tier of the new policy, or that did not fit there."
            ["result":
                "kept" = stats.policy_kept,
                "lost" = stats.policy_lost,
            ]
        Gauge "edgeward_hot_fragmentation_bytes"
            "Bytes by which the budget is reduced because memory of freed objects cannot be returned to the system."
            { stats.fragmentation_bytes }
        Counter "edgeward_hot_refused_total" "Objects that were not admitted to memory, by reason." ["reason":
            "admission" = stats.refused_by_admission,
            "larger-than-cache" = stats.refused_too_large,
            "object-limit" = stats.refused_object_limit,
            "pinned-memory" = stats.refused_pinned,
        ]
    }

    const TUNER: TuningStatus = |tuner| {
        Gauge "edgeward_adaptsize_c_bytes"
            "AdaptSize's current size parameter c: an object of s bytes is admitted with probability e^(-s/c)."
            { tuner.c }
        Counter "edgeward_adaptsize_windows_total" "Windows of requests that AdaptSize has evaluated." { tuner.steps }
        Counter "edgeward_adaptsize_requests_dropped_total"
            "Requests that the tuner missed because a worker's ring was full." { tuner.requests_dropped }
    }

    /// These metrics exist after the tuner's first window.
    const WINDOW: Tuning = |window| {
        Gauge "edgeward_adaptsize_predicted_ohr"
            "Object hit ratio that the model predicts for the current window." { window.predicted_ohr }
        Gauge "edgeward_adaptsize_measured_ohr" "Object hit ratio of the last window." { window.measured_ohr }
        Gauge "edgeward_adaptsize_tracked_objects" "Objects whose request rates the tuner tracks." { window.objects }
        Gauge "edgeward_adaptsize_untracked_requests"
            "Requests of the last window for objects that the tuner could not track." { window.untracked_requests }
    }

    /// This metric exists after the second window, because the model predicts no hit ratio for the first window.
    const WINDOW_ERROR: f64 = |error| {
        Gauge "edgeward_adaptsize_model_error"
            "Predicted minus measured object hit ratio of the last window." { *error }
    }

    const CURVE: CurvePoint ["c_bytes"] = |point| {
        Gauge "edgeward_adaptsize_curve_ohr"
            "Object hit ratio that the model predicts, by size parameter." { point.ohr }
    }

    /// This metric exists if a listener has TLS.
    const CERTIFICATE_END: u64 = |end| {
        Gauge "edgeward_certificate_expiry_timestamp_seconds"
            "The earliest end of a certificate of listeners, sites and the admin server, in seconds since 1970." { *end }
    }

    /// This metric exists if a certificate has an OCSP response that expires.
    const OCSP_END: u64 = |end| {
        Gauge "edgeward_ocsp_expiry_timestamp_seconds"
            "The earliest end of an OCSP response, after which it is not sent, in seconds since 1970." { *end }
    }

    const MEMORY: Memory = |memory| {
        Gauge "edgeward_memory_bytes"
            "All memory of the process: its resident memory, and the memory of large bodies that is not part of it."
            { memory.all_bytes }
    }
}

/// Returns the definitions of all metrics that an edge can have.
pub fn metric_definitions() -> Vec<Definition> {
    let mut definitions = counters::METRICS.definitions();
    definitions.extend(site_metrics::definitions());
    definitions.extend(HOT.definitions());
    definitions.extend(TUNER.definitions());
    definitions.extend(WINDOW.definitions());
    definitions.extend(WINDOW_ERROR.definitions());
    definitions.extend(CURVE.definitions());
    definitions.extend(EDGE.definitions());
    definitions.extend(ORIGIN.definitions());
    definitions.extend(SERVER.definitions());
    definitions.extend(disk::metric_definitions());
    definitions.extend(negative::METRICS.definitions());
    definitions.extend(acme_metrics::definitions());
    definitions.extend(fleet_purge_metrics::definitions());
    definitions.extend(fleet_report::definitions());
    definitions.extend(watch_metrics::definitions());
    definitions.extend(CERTIFICATE_END.definitions());
    definitions.extend(OCSP_END.definitions());
    definitions.extend(MEMORY.definitions());
    definitions
}

/// Returns all metrics as text.
pub(crate) fn render(shared: &Shared, expiry: TlsExpiry) -> String {
    encode(families(shared, expiry))
}

/// Returns all metrics in the format of OpenMetrics, with the traces of requests.
pub(crate) fn render_open_metrics(shared: &Shared, expiry: TlsExpiry) -> String {
    encode_open_metrics(families(shared, expiry), &site_metrics::exemplars(shared))
}

fn families(shared: &Shared, expiry: TlsExpiry) -> Vec<Family> {
    let mut families = counters::METRICS.of(&shared.counters);
    families.extend(site_metrics::families(shared));
    families.extend(hot(&shared.cache.hot.stats()));
    families.extend(EDGE.of(shared));
    families.extend(origins(shared));
    families.extend(shared.cache.disk().iter().flat_map(|disk| disk.metrics()));
    families.extend(shared.negative.metrics());
    families.extend(acme_metrics::families(shared));
    families.extend(fleet_purge_metrics::families(shared));
    families.extend(fleet_report::families(shared));
    families.extend(watch_metrics::families(shared));
    let ends = expiry.certificate_at.iter();
    families.extend(ends.flat_map(|end| CERTIFICATE_END.of(end)));
    let ends = expiry.ocsp_at.iter();
    families.extend(ends.flat_map(|end| OCSP_END.of(end)));
    families.extend(
        Memory::of(shared)
            .iter()
            .flat_map(|memory| MEMORY.of(memory)),
    );
    families
}

/// Returns the metrics of each origin and server. Each origin has at most `origin.servers_max` servers.
fn origins(shared: &Shared) -> Vec<Family> {
    let names = shared
        .config
        .origins
        .iter()
        .map(|origin| origin.name.as_str());
    let origins: Vec<_> = names.zip(&shared.origins).collect();
    let rows = origins
        .iter()
        .map(|(name, servers)| (vec![*name], &***servers));
    let mut families = ORIGIN.families(&rows.collect::<Vec<_>>());
    let reports = origins.iter().flat_map(|(name, servers)| {
        let reports = servers.reports().into_iter();
        reports.map(|report| (*name, report))
    });
    let reports: Vec<_> = reports.collect();
    let rows = reports
        .iter()
        .map(|(origin, report)| (vec![*origin, report.server.name.as_str()], report));
    families.extend(SERVER.families(&rows.collect::<Vec<_>>()));
    families
}

fn used_share(shared: &Shared, resource: Resource) -> f64 {
    measured::bounds(&shared.config).used_share(resource, &shared.health.sample())
}

fn arena(shared: &Shared, bytes: fn(&Arena) -> u64) -> u64 {
    shared.cache.arena.as_deref().map_or(0, bytes)
}

fn hot(stats: &HotStats) -> Vec<Family> {
    let mut families = HOT.of(stats);
    let Some(tuner) = &stats.tuning else {
        return families;
    };
    families.extend(TUNER.of(tuner));
    if let Some(window) = &tuner.last {
        families.extend(WINDOW.of(window));
        families.extend(
            window
                .model_error
                .iter()
                .flat_map(|error| WINDOW_ERROR.of(error)),
        );
        families.extend(curve(&window.curve));
    }
    families
}

fn curve(points: &[CurvePoint]) -> Vec<Family> {
    let labels: Vec<String> = points.iter().map(|point| c_label(point.c)).collect();
    let labels = labels.iter().map(|label| vec![label.as_str()]);
    CURVE.families(&labels.zip(points).collect::<Vec<_>>())
}

fn c_label(c: f64) -> String {
    match c.is_finite() {
        true => format!("{c:.0}"),
        false => "+Inf".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use edgeward_metrics::{Histogram, HistogramValues, Kind, Metric, Series, Table};

    use super::*;

    /// Method: each metric that an edge can have, with one value. The name of a counter loses its suffix, so that a
    /// gauge may have the same name.
    #[test]
    fn each_family_of_open_metrics_has_a_name_of_its_own() {
        const VALUE: &[Series<()>] = &[Series {
            label: None,
            index: 0,
            value: |(), _| 0.0,
        }];
        let family = |of: Definition| {
            let (name, help, kind) = (of.name, of.help, of.kind);
            if kind == Kind::Histogram {
                let values = HistogramValues {
                    counts: vec![0],
                    sum: 0.0,
                };
                let histogram = Histogram {
                    name,
                    help,
                    labels: &[],
                    bounds: &[],
                };
                return vec![histogram.family(&[(vec![], values)])];
            }
            let metric = Metric {
                name,
                kind,
                help,
                label: None,
                series: VALUE,
            };
            let table = Table {
                labels: &[],
                metrics: vec![metric].leak(),
            };
            table.of(&())
        };
        let definitions = metric_definitions();
        let count = definitions.len();
        let families = definitions.into_iter().flat_map(family).collect();
        let text = encode_open_metrics(families, &edgeward_metrics::Exemplars::default());
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let names: Vec<_> = types
            .filter_map(|about| about.split_once(' '))
            .map(|(name, _)| name)
            .collect();
        assert!(names.len() > count, "with those of every server");
        let mut seen = HashSet::new();
        let twice: Vec<_> = names.iter().filter(|name| !seen.insert(**name)).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }
}
