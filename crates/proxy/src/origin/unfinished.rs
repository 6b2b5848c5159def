//! Limits the number of unfinished uploads, per client and in total. An unfinished upload is a request that uses a
//! connection to the origin before its body has arrived completely.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use super::queue::{ClientNet, Shares};
use crate::base::clock::Clock;
use crate::base::config::{OriginConfig, OriginProtocol};
use crate::base::counters::Counters;
use crate::base::sparse_log::SparseLog;

/// The unfinished uploads of a worker.
pub(crate) struct UnfinishedUploads {
    counts: Rc<UploadCounts>,
    log: SparseLog,
    counters: Arc<Counters>,
    clock: Arc<Clock>,
}

struct UploadCounts {
    count: Cell<usize>,
    count_max: usize,
    shares: Shares,
}

/// Counts one unfinished upload until dropped.
pub(crate) struct UnfinishedUpload {
    counts: Rc<UploadCounts>,
    client: ClientNet,
}

impl UnfinishedUploads {
    pub(super) fn new(origin: &OriginConfig, counters: Arc<Counters>, clock: Arc<Clock>) -> Self {
        Self {
            counts: Rc::new(UploadCounts {
                count: Cell::new(0),
                count_max: unfinished_max(origin),
                shares: Shares::new(origin.client_share_percent),
            }),
            log: SparseLog::default(),
            counters,
            clock,
        }
    }

    /// Allows a request of this client to take a connection before its body has arrived. Returns `None` if this client,
    /// or all clients together, have too many unfinished uploads.
    pub(crate) fn begin(&self, client: IpAddr) -> Option<UnfinishedUpload> {
        let client = ClientNet::of(client);
        let counts = &self.counts;
        let count = counts.count.get();
        let free = counts.count_max.saturating_sub(count);
        counts.shares.allows(client, free).then(|| {
            counts.count.set(count + 1);
            counts.shares.acquire(client);
            UnfinishedUpload {
                counts: Rc::clone(counts),
                client,
            }
        })
    }

    /// Counts and logs an upload that stays buffered because there are too many unfinished uploads.
    pub(crate) fn record_kept_upload(&self) {
        self.counters.uploads_kept.increment();
        if let Some(unlogged) = self.log.record(self.clock.now()) {
            tracing::warn!(
                unlogged,
                unfinished_max = self.counts.count_max,
                "an upload stays buffered: origin.unfinished_uploads_percent or origin.client_share_percent is reached"
            );
        }
    }
}

impl Drop for UnfinishedUpload {
    fn drop(&mut self) {
        self.counts.count.set(self.counts.count.get() - 1);
        self.counts.shares.release(self.client);
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
