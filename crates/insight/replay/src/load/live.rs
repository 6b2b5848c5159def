//! Counters that other threads can read while a replay runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::latencies::{Latencies, LatencyCounts};

/// The progress of a replay, including the warm-up. Each run resets the counters to zero.
#[derive(Debug, Default)]
pub struct LiveCounts {
    requests: AtomicU64,
    hits: AtomicU64,
    body_bytes: AtomicU64,
    hit_bytes: AtomicU64,
    errors: AtomicU64,
    failures_in_a_row: AtomicU64,
    latencies: LatencyCounts,
    /// The latencies of the requests after the warm-up.
    after_warmup: LatencyCounts,
}

/// The values of the counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveSnapshot {
    pub(crate) requests: u64,
    pub(crate) hits: u64,
    pub(crate) body_bytes: u64,
    pub(crate) hit_bytes: u64,
    pub(crate) errors: u64,
}

impl LiveCounts {
    /// Returns the number of requests that were answered or that failed.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that failed.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes of correct bodies.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of requests answered from the cache.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes of correct bodies from the cache.
    pub fn hit_bytes(&self) -> u64 {
        self.hit_bytes.load(Ordering::Relaxed)
    }

    /// Returns the latencies of correct responses so far.
    pub fn latencies(&self) -> Latencies {
        self.latencies.snapshot()
    }

    /// Returns the latencies of correct responses since the end of the warm-up.
    pub fn latencies_after_warmup(&self) -> Latencies {
        self.after_warmup.snapshot()
    }

    /// Resets the counters for another run of the plan.
    pub(super) fn reset(&self) {
        let Self {
            requests,
            hits,
            body_bytes,
            hit_bytes,
            errors,
            failures_in_a_row,
            latencies,
            after_warmup,
        } = self;
        latencies.reset();
        after_warmup.reset();
        for counter in [
            requests,
            hits,
            body_bytes,
            hit_bytes,
            errors,
            failures_in_a_row,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn snapshot(&self) -> LiveSnapshot {
        LiveSnapshot {
            requests: self.requests(),
            hits: self.hits(),
            body_bytes: self.body_bytes(),
            hit_bytes: self.hit_bytes(),
            errors: self.errors(),
        }
    }

    /// Counts a correct response. `is_counted` is true for requests after the warm-up.
    pub(super) fn count_response(&self, bytes: u64, hit: bool, took: Duration, is_counted: bool) {
        self.latencies.count(took);
        if is_counted {
            self.after_warmup.count(took);
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.body_bytes.fetch_add(bytes, Ordering::Relaxed);
        if hit {
            self.hits.fetch_add(1, Ordering::Relaxed);
            self.hit_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        // The counter is usually zero already. An unconditional store would take its cache line from the other
        // workers.
        if self.failures_in_a_row.load(Ordering::Relaxed) != 0 {
            self.failures_in_a_row.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a failure. Returns the number of failures since the last success.
    pub(super) fn count_failure(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.errors.fetch_add(1, Ordering::Relaxed);
        self.failures_in_a_row.fetch_add(1, Ordering::Relaxed) + 1
    }
}
