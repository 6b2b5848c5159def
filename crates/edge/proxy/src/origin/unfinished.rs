//! Limits the number of unfinished uploads, per client and in total. An unfinished upload is a request that uses a
//! connection to the origin before its body has arrived completely.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use super::share_limit::{ShareLimit, ShareSlot};
use crate::config::{OriginConfig, OriginProtocol};
use crate::observe::counters::Counters;
use crate::observe::log::SparseLog;
use crate::rt::clock::Clock;

/// The unfinished uploads of a worker.
pub(crate) struct UnfinishedUploads {
    limit: Rc<ShareLimit>,
    log: SparseLog,
    counters: Arc<Counters>,
    clock: Arc<Clock>,
}

/// Counts one unfinished upload until dropped.
pub(crate) type UnfinishedUpload = ShareSlot;

impl UnfinishedUploads {
    pub(super) fn new(origin: &OriginConfig, counters: Arc<Counters>, clock: Arc<Clock>) -> Self {
        Self {
            limit: ShareLimit::new(unfinished_max(origin), origin.client_share_percent),
            log: SparseLog::default(),
            counters,
            clock,
        }
    }

    /// Allows a request of this client to take a connection before its body has arrived. Returns `None` if this client,
    /// or all clients together, have too many unfinished uploads.
    pub(crate) fn begin(&self, client: IpAddr) -> Option<UnfinishedUpload> {
        self.limit.take(client)
    }

    /// Counts and logs an upload that stays buffered because there are too many unfinished uploads.
    pub(crate) fn record_kept_upload(&self) {
        self.counters.uploads_kept.increment();
        if let Some(unlogged) = self.log.record(self.clock.now()) {
            tracing::warn!(
                unlogged,
                unfinished_max = self.limit.max(),
                "an upload stays buffered: origin.unfinished_uploads_percent or origin.client_share_percent is reached"
            );
        }
    }
}

/// Returns a worker's highest number of unfinished uploads. HTTP/2 needs no limit: all requests share one connection.
fn unfinished_max(config: &OriginConfig) -> usize {
    match config.protocol {
        OriginProtocol::Http1 => {
            let percent = config.unfinished_uploads_percent as usize;
            (config.connections_per_worker_max.get() * percent / 100).max(1)
        }
        // More uploads than a worker can have, but so few that the product in `Shares::allows` does not overflow.
        OriginProtocol::Http2 => usize::MAX >> 16,
    }
}
