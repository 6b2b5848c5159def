//! The counters of the origin, shared by all workers.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// The counters of a running origin.
#[derive(Debug, Default)]
pub struct OriginStats {
    requests: AtomicU64,
    body_bytes: AtomicU64,
    not_modified: AtomicU64,
    partial: AtomicU64,
    errors: AtomicU64,
    refused: AtomicU64,
    connections: AtomicU64,
    open_connections: AtomicU64,
}

/// The values of the counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OriginCounts {
    /// Requests whose head was read, for any path.
    pub requests: u64,
    /// Object bytes passed to hyper for sending. An interrupted body counts up to the interruption.
    pub body_bytes: u64,
    /// Responses with status 304.
    pub not_modified: u64,
    /// Responses with status 206.
    pub partial: u64,
    /// Errors injected at the configured rate.
    pub errors: u64,
    /// Requests rejected because of their path, their parameters or their range: status 404, 400 or 416.
    /// Statuses that the request itself asks for are not counted.
    pub refused: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Connections open now.
    pub open_connections: u64,
}

impl OriginStats {
    /// Returns the counters. They are read one after the other, so a request in between may be in some of them only.
    pub fn counts(&self) -> OriginCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        OriginCounts {
            requests: read(&self.requests),
            body_bytes: read(&self.body_bytes),
            not_modified: read(&self.not_modified),
            partial: read(&self.partial),
            errors: read(&self.errors),
            refused: read(&self.refused),
            connections: read(&self.connections),
            open_connections: read(&self.open_connections),
        }
    }

    /// Counts a request and returns its number, from 0.
    pub(super) fn next_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn add_body_bytes(&self, bytes: u64) {
        self.body_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn count_status(&self, status: u16) {
        let counter = match status {
            206 => &self.partial,
            304 => &self.not_modified,
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn connection_opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.open_connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn connection_closed(&self) {
        self.open_connections.fetch_sub(1, Ordering::Relaxed);
    }
}
