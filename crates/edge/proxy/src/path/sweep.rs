//! The sweep of a worker. At regular intervals it ends connections, streams, uploads and tunnels that exceed a limit,
//! and connections of slow clients that pin too much memory.

use std::rc::Rc;
use std::time::Duration;

use edgeward_types::Timestamp;

use super::worker::Worker;
use crate::cache::pinned::pinned_bytes;
use crate::exchange::CloseReason;

/// Checks all connections, streams and uploads of the worker (`charge` returns true if a client is too slow). Closes
/// old idle connections to the origin, and sets the time of the disk tier.
pub(crate) fn sweep(worker: &Worker) {
    let now = worker.now();
    let limits = &worker.config().limits;
    sweep_deliveries(worker, now);
    let rate = limits.socket_rate();
    for conn in worker.connections.borrow().iter() {
        if conn.close_reason().is_some() {
            continue;
        }
        if let Some(reason) = conn.exceeded_limit(now, limits) {
            conn.close(reason);
        } else if conn.charge(now, rate) {
            conn.close(CloseReason::Slow);
            record_slow_response(worker, now);
        }
    }
    worker.tunnels.sweep(now, limits);
    sweep_pinned(worker, now);
    worker.relieve_connections();
    worker.relieve_process(now);
    if worker.shared.health.lacks_descriptors() {
        for _ in 0..CLOSED_FOR_DESCRIPTORS {
            worker.close_idle_client();
        }
    }
    if let Some(disk) = worker.cache.disk() {
        disk.cache.tick(now);
    }
    for origin in &worker.origins {
        origin.sweep(now);
    }
}

/// Checks the streams, uploads and tunnels of an earlier generation. The sweep of the current one checks connections.
pub(crate) fn sweep_retired(worker: &Worker) {
    let now = worker.now();
    sweep_deliveries(worker, now);
    worker.tunnels.sweep(now, &worker.config().limits);
    for origin in &worker.origins {
        origin.sweep(now);
    }
}

/// Reads ahead for clients that accept no bytes, and ends streams of HTTP/2 and HTTP/3 that are too slow. While
/// requests wait for a connection to an origin, also closes HTTP/1.1 connections that hold one of its connections and
/// accept no bytes.
fn sweep_deliveries(worker: &Worker, now: Timestamp) {
    let rate = worker.config().limits.stream_rate();
    worker.deliveries.for_each(|delivery| {
        delivery.read_ahead(&worker.deliveries, now);
        if delivery.charge(now, rate) || delivery.close_if_stuck(now, rate.window) {
            record_slow_response(worker, now);
        }
    });
}

/// Counts a response that ends because its client is too slow.
pub(crate) fn record_slow_response(worker: &Worker, now: Timestamp) {
    worker.counters.slow_responses.increment();
    if let Some(unlogged) = worker.warnings.slow.record(now) {
        tracing::warn!(
            unlogged,
            "slow response ended: the client read below limits.response_rate_min, or nothing while requests waited"
        );
    }
}

/// Closes the connections that free pinned bytes most slowly, while the pinned bytes exceed their limit.
///
/// Each worker closes connections for its share of the excess, which is in proportion to the bytes that its own
/// connections pin. The workers therefore need no coordination.
fn sweep_pinned(worker: &Worker, now: Timestamp) {
    let (pinned, pinned_max) = worker.cache.hot.pinned_bytes();
    let excess = pinned.saturating_sub(pinned_max);
    let connections = worker.connections.borrow();
    if excess == 0 {
        for conn in connections.iter() {
            conn.pieces().watch_start.set(None);
        }
        return;
    }
    let mut pinned_here = 0_u64;
    let mut candidates = Vec::new();
    for conn in connections
        .iter()
        .filter(|conn| conn.close_reason().is_none())
    {
        let pinned_by_conn = pinned_bytes(conn.pieces(), &worker.cache.hot);
        let pieces = conn.pieces();
        if pinned_by_conn == 0 {
            pieces.watch_start.set(None);
            continue;
        }
        pinned_here += pinned_by_conn;
        match pieces.watch_start.get() {
            None => pieces.watch_start.set(Some((now, conn.written_bytes()))),
            Some((since, written)) if now.since(since) >= WATCH_TIME => {
                let progress = conn.written_bytes().saturating_sub(written) as f64;
                let secs = now.since(since).as_secs_f64();
                // The share of its pinned bytes that the connection writes per second.
                let release_rate = progress / secs / pinned_by_conn as f64;
                candidates.push((release_rate, pinned_by_conn, Rc::clone(conn)));
            }
            Some(_) => {}
        }
    }
    // If several connections pin the same body, closing one of them frees no bytes. The next sweep then closes more.
    let share = (excess as f64 * (pinned_here as f64 / pinned as f64).min(1.0)).ceil() as u64;
    candidates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut freed = 0;
    let mut closed = 0;
    for (_, pinned_by_conn, conn) in candidates {
        if freed >= share {
            break;
        }
        freed += pinned_by_conn;
        closed += 1;
        conn.close(CloseReason::Pinned);
    }
    if closed > 0
        && let Some(unlogged) = worker.warnings.pinned.record(now)
    {
        tracing::warn!(
            connections = closed,
            unlogged,
            pinned_bytes = pinned,
            pinned_bytes_max = pinned_max,
            "slow readers of evicted objects were disconnected: they pinned more memory than hot.pinned_bytes_max"
        );
    }
}

/// The idle connections that a sweep closes while descriptors are scarce: 256 per second and worker.
const CLOSED_FOR_DESCRIPTORS: usize = 64;

/// The time for which the speed of a connection is measured before it may be closed for pinned bytes.
const WATCH_TIME: Duration = Duration::from_secs(1);
