//! A response on its way from the origin to disk, beside its way to the client. It never waits.

use std::sync::Arc;

use bytes::Bytes;
use edgeward_store::disk::DiskWrite;
use edgeward_types::KeyHash;

use super::DiskTier;
use crate::base::counters::Counters;

/// One write, for as long as all goes well.
pub(crate) struct DiskFill {
    tier: Arc<DiskTier>,
    counters: Arc<Counters>,
    hash: KeyHash,
    write: Option<DiskWrite>,
}

impl DiskFill {
    /// Begins to write, or gives it up at once, which the store counts. Nothing if another fetch of the same is
    /// being written.
    pub(crate) fn begin(
        tier: &Arc<DiskTier>,
        counters: &Arc<Counters>,
        hash: KeyHash,
        key: &[u8],
        head: Bytes,
        length: Option<u64>,
    ) -> Option<Self> {
        if !tier.writing.insert(hash) {
            return None;
        }
        match tier.cache.begin(hash, key, head, length) {
            Ok(write) => Some(Self {
                tier: Arc::clone(tier),
                counters: Arc::clone(counters),
                hash,
                write: Some(write),
            }),
            Err(refused) => {
                tracing::debug!(%refused, "a response is not written to disk");
                counters.disk_fills_refused.increment();
                tier.writing.remove(hash);
                None
            }
        }
    }

    /// Whether it is still being written.
    pub(crate) fn is_alive(&self) -> bool {
        self.write.is_some()
    }

    /// Hands over the next piece.
    pub(crate) fn push(&mut self, bytes: &Bytes) {
        let Some(write) = &mut self.write else {
            return;
        };
        // A small piece is often a slice of a large buffer, which would wait in the queue with it.
        let bytes = if bytes.len() < COPIED_BYTES_MAX {
            Bytes::copy_from_slice(bytes)
        } else {
            bytes.clone()
        };
        if let Err(dropped) = write.push(bytes) {
            tracing::debug!(%dropped, "a write to disk was given up");
            self.give_up();
        }
    }

    /// The body is whole. True if it will be found on disk.
    pub(crate) fn finish(mut self) -> bool {
        let Some(write) = self.write.take() else {
            return false;
        };
        match write.finish() {
            Ok(()) => {
                self.counters.disk_fills_written.increment();
                true
            }
            Err(dropped) => {
                tracing::debug!(%dropped, "a write to disk was given up");
                self.give_up();
                false
            }
        }
    }

    fn give_up(&mut self) {
        self.write = None;
        self.counters.disk_fills_dropped.increment();
    }
}

impl Drop for DiskFill {
    fn drop(&mut self) {
        self.tier.writing.remove(self.hash);
        // The body ended early, or what it shows was invalidated: the store drops the write.
        if self.write.is_some() {
            self.counters.disk_fills_aborted.increment();
        }
    }
}

/// Pieces below this are copied: cheaper than to keep the buffer they came in.
const COPIED_BYTES_MAX: usize = 16 << 10;
