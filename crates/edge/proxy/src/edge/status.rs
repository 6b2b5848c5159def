//! The edge's state as JSON, for operators, dashboards and tests. Metrics with similar names explain most keys.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use edgeward_policy::adaptsize::CurvePoint;
use edgeward_store::hot::TuningStatus;
use serde_json::{Value, json};

use super::acme_metrics;
use super::counts::by_label;
use super::fleet_purge_metrics;
use super::fleet_report;
use super::measured::{self, Memory};
use crate::cache::stored::Hot;
use crate::config::OriginConfig;
use crate::observe::counters::{self, Counters, sum};
use crate::observe::labels::Label as _;
use crate::observe::outcome::RequestOutcome;
use crate::observe::recent::{LONGEST_WINDOW, Totals};
use crate::observe::site_counters::OutcomeClass;
use crate::origin::{ServerReport, Servers};
use crate::path::worker::Shared;

/// Returns the edge's state. URLs are left out, because reading it may need no token.
pub(crate) fn render(shared: &Shared) -> Value {
    let mut status = of_edge(shared);
    if let (Some(watcher), Some(status)) = (&shared.config.watcher, status.as_object_mut())
        && let Some(what_if) = watcher.report().get_mut("what_if")
    {
        status.insert("what_if".to_owned(), what_if.take());
    }
    status
}

/// Returns the edge's state without the report of its watcher.
pub(super) fn of_edge(shared: &Shared) -> Value {
    let config = &shared.config;
    let stats = shared.cache.hot.stats();
    let memory = Memory::of(shared);
    let total = |of: fn(&Counters) -> u64| sum(&shared.counters, of);
    let now = Instant::now();
    json!({
        "name": config.name,
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": shared.recent.uptime(now).as_secs(),
        "workers": config.workers.get(),
        // `edgeward replay --status` and other programs use the pid to measure this process from outside.
        "pid": std::process::id(),
        "resident_bytes": memory.as_ref().map(|memory| memory.resident_bytes),
        // `resident_bytes`, and the part of `arena_bytes` that is not resident.
        "memory_bytes": memory.as_ref().map(|memory| memory.all_bytes),
        "hot": {
            "policy": stats.policy.to_string(),
            "objective": config.hot.objective.to_string(),
            "capacity_bytes": stats.capacity_bytes,
            "used_bytes": stats.used_bytes,
            // Evicted objects that are still sent, and unsent pieces that were read for one client.
            "pinned_bytes": stats.pinned_bytes,
            "pinned_bytes_max": stats.pinned_bytes_max,
            "objects": stats.objects,
            "object_overhead_bytes": Hot::OBJECT_OVERHEAD_BYTES,
            "bookkeeping_bytes": stats.bookkeeping_bytes,
            // The memory of large bodies. A page is part of `resident_bytes` only after TLS or HTTP/2 has read it.
            "arena_bytes": shared.cache.arena.as_ref().map(|arena| arena.used_bytes()),
            "admitted": stats.admitted,
            "refused": {
                "admission": stats.refused_by_admission,
                "larger_than_cache": stats.refused_too_large,
                "object_limit": stats.refused_object_limit,
                "pinned": stats.refused_pinned,
            },
            "evicted": stats.evicted,
            "evicted_bytes": stats.evicted_bytes,
            "abandoned": stats.abandoned,
            "freed_given_back": stats.freed_pages_returns,
            "fragmentation_bytes": stats.fragmentation_bytes,
            // A fingerprint of the policy's decisions, as text: a JSON number keeps only 53 of the 64 bits.
            "decision_digest": format!("{:016x}", stats.digest),
            "tuning": stats.tuning.as_ref().map(tuning),
        },
        // `null` without a disk cache.
        "disk": shared.cache.disk().map(|disk| disk.status()),
        // Configured devices that are unused because their stores are damaged.
        "disk_damaged": shared.cache.disk_damaged,
        "disk_lookups": by_label("edgeward_disk_lookups_total", shared),
        "disk_fills": by_label("edgeward_disk_fills_total", shared),
        "requests": by_label("edgeward_requests_total", shared),
        // `null` without requests or bytes.
        "hit_ratio": hit_ratios(shared, now, |within| (within.hits, within.requests)),
        "byte_hit_ratio": hit_ratios(shared, now, |within| (within.hit_bytes, within.bytes)),
        "not_stored": by_label("edgeward_not_stored_total", shared),
        "negative": shared.negative.status(),
        // `null` without certificates that are renewed.
        "acme": acme_metrics::status(shared),
        // `null` without a fleet.
        "fleet": fleet_report::status(shared),
        // `null` without a stream of purges.
        "fleet_purges": fleet_purge_metrics::status(shared),
        // `null` if no listener has HTTP/3.
        "http3": http3(shared),
        "origins": origins(shared),
        "origin_errors": by_label("edgeward_origin_errors_total", shared),
        "connections": {
            "clients": total(|c| c.connections.value()),
            "clients_max": config.limits.connections_max.get(),
            "bytes": shared.budgets.connections.used_bytes(),
            "bytes_max": config.limits.connections_bytes_max.bytes(),
            "origin": total(|c| c.origin_connections.value()),
        },
        "overload": overload(shared),
        "fills": {
            "under_way": total(|c| c.fills.value()),
            "collapsible_keys": shared.cache.collapse.len(),
            "bytes": shared.cache.fill_budget.used_bytes(),
            "bytes_max": config.limits.fill_bytes_max.bytes(),
        },
    })
}

/// Returns the sums of the counters of hits. A revalidation is no hit, because the request waited for the origin.
pub(super) fn totals(shared: &Shared) -> Totals {
    let workers = &shared.counters;
    let requests_by = |outcome| sum(workers, |c| c.requests[outcome].value());
    let sites = shared.labels.sites.all();
    let bytes = |outcome: usize| -> u64 {
        let sites = sites.iter().flat_map(|(_, counters)| counters);
        let counters = sites.flat_map(|counters| counters.iter());
        counters.map(|of| of.body_bytes[outcome].value()).sum()
    };
    Totals {
        hits: requests_by(RequestOutcome::Hit) + requests_by(RequestOutcome::HitStale),
        requests: sum(workers, |c| c.requests.total()),
        hit_bytes: bytes(OutcomeClass::Hit as usize) + bytes(OutcomeClass::HitStale as usize),
        bytes: (0..OutcomeClass::LABELS.len()).map(bytes).sum(),
    }
}

/// Returns the number of requests that origins did not answer completely.
pub(super) fn origin_errors(shared: &Shared) -> u64 {
    let metric = counters::METRICS.metric("edgeward_origin_errors_total");
    let series = metric.iter().flat_map(|metric| metric.series);
    series
        .map(|series| series.value_of(&shared.counters) as u64)
        .sum()
}

/// Returns the ratio of two numbers over the windows of `/status`.
fn hit_ratios(shared: &Shared, now: Instant, parts: fn(Totals) -> (u64, u64)) -> Value {
    let totals = totals(shared);
    let ratio = |within: Totals| {
        let (part, whole) = parts(within);
        (whole > 0).then(|| part as f64 / whole as f64)
    };
    let recent = |window| ratio(shared.recent.within(window, now, totals));
    json!({
        "minute": recent(Duration::from_secs(60)),
        "five_minutes": recent(LONGEST_WINDOW),
        "since_start": ratio(totals),
    })
}

fn http3(shared: &Shared) -> Option<Value> {
    let is_on = shared
        .config
        .listeners
        .iter()
        .any(|listener| listener.http3);
    is_on.then(|| {
        json!({
            "requests": by_label("edgeward_client_requests_total", shared),
            "connections": by_label("edgeward_client_connections_total", shared),
            "handshakes": sum(&shared.counters, |c| c.quic_handshakes.value()),
            "attempts": by_label("edgeward_quic_attempts_total", shared),
            "refused": by_label("edgeward_h3_requests_refused_total", shared),
        })
    })
}

fn overload(shared: &Shared) -> Value {
    let (health, bounds) = (&shared.health, measured::bounds(&shared.config));
    let sample = health.sample();
    let last_rise = health.last_rise().map(|rise| {
        json!({
            "level": rise.level.word(),
            "resource": rise.resource.word(),
            "used": rise.usage.used,
            "bound": rise.usage.bound,
            "unit": rise.usage.unit,
            "seconds_ago": health.now().saturating_sub(rise.at).as_secs(),
        })
    });
    json!({
        // The work that is shed: normal (none), connections, passes, misses, hits.
        "level": health.level().word(),
        "sheds": health.shed_work(),
        "memory_bytes": sample.memory_bytes,
        "memory_bytes_max": bounds.memory_bytes,
        "lag_seconds": sample.lag.as_secs_f64(),
        "lag_seconds_max": bounds.lag.map(|lag| lag.as_secs_f64()),
        "descriptors": sample.descriptors,
        "descriptors_max": bounds.descriptors,
        "shed": by_label("edgeward_shed_total", shared),
        // The last time that a resource exceeded its bound so long that the level rose.
        "last_rise": last_rise,
        "workers_stuck": health.stuck.load(Relaxed),
    })
}

fn origins(shared: &Shared) -> Value {
    let origins = shared.config.origins.iter().zip(&shared.origins);
    let state = |(origin, servers): (&OriginConfig, &Arc<Servers>)| {
        json!({
            "name": origin.name,
            "url": origin.url().to_string(),
            // False if the last connections to all servers failed.
            "up": !servers.is_down(),
            "servers": servers.reports().iter().map(server).collect::<Value>(),
        })
    };
    origins.map(state).collect()
}

pub(super) fn server(report: &ServerReport) -> Value {
    json!({
        "server": report.server.name,
        "backup": report.is_backup,
        "state": report.state.word(),
        "under_way": report.under_way,
        "requests": report.server.requests.load(Relaxed),
        "failures": report.server.failures.load(Relaxed),
    })
}

fn tuning(status: &TuningStatus) -> Value {
    // JSON has no infinity: `null` means that every object is admitted.
    let finite = |c: f64| c.is_finite().then_some(c);
    let last = status.last.as_ref();
    let point = |point: &CurvePoint| json!({ "c_bytes": finite(point.c), "ohr": point.ohr });
    let curve = last.iter().flat_map(|last| &last.curve).map(point);
    json!({
        "c_bytes": finite(status.c),
        "windows": status.steps,
        "requests_dropped": status.requests_dropped,
        "predicted_ohr": last.map(|last| last.predicted_ohr),
        "measured_ohr": last.map(|last| last.measured_ohr),
        "model_error": last.and_then(|last| last.model_error),
        "curve": curve.collect::<Vec<_>>(),
    })
}
