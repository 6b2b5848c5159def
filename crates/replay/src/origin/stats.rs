//! What the origin did, counted by all workers.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// Counters of a running origin.
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

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OriginCounts {
    /// Requests whose head was read, for whatever path.
    pub requests: u64,
    /// Bytes of objects handed over for sending. A body that broke off counts as far as it got.
    pub body_bytes: u64,
    /// Answers of status 304.
    pub not_modified: u64,
    /// Answers of status 206.
    pub partial: u64,
    /// Errors drawn at the configured rate.
    pub errors: u64,
    /// Requests that asked for no object: 400, 404, 416.
    pub refused: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Connections open now.
    pub open_connections: u64,
}

impl OriginStats {
    /// The counters now. Each is exact; they are read one after the other.
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

    /// Counts a request and says which one it is, from 0.
    pub(super) fn request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn sent(&self, bytes: u64) {
        self.body_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn answered(&self, status: u16) {
        let counter = match status {
            206 => &self.partial,
            304 => &self.not_modified,
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.open_connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn closed(&self) {
        self.open_connections.fetch_sub(1, Ordering::Relaxed);
    }
}
