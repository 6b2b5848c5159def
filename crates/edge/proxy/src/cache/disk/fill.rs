//! Writes a response to disk while the client gets it. No call waits; if the device's queue is full, the write ends.

use std::sync::Arc;

use bytes::Bytes;
use edgeward_store::disk::{BeginError, DiskWrite, WriteError};
use edgeward_types::KeyHash;

use super::key_set::Claim;
use super::tier::DiskTier;
use crate::observe::counters::Counters;

/// The reason why a write does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FillRefusal {
    /// The device's queue is full.
    QueueFull,
    /// The store refuses the object, or another fetch is writing the key.
    Other,
}

/// The write of one response to disk. The first error ends the write.
pub(crate) struct DiskFill {
    counters: Arc<Counters>,
    write: Option<DiskWrite>,
    /// True if the write was dropped because the device's queue was full.
    has_met_full_queue: bool,
    /// Keeps the key in the set of keys being written, until the write has ended.
    _claim: Claim,
}

impl DiskFill {
    /// Begins a write.
    ///
    /// # Errors
    ///
    /// Fails if the store refuses the write, or if another fetch is writing the same key.
    pub(crate) fn begin(
        tier: &DiskTier,
        counters: &Arc<Counters>,
        hash: KeyHash,
        key: &[u8],
        head: Bytes,
        length: Option<u64>,
    ) -> Result<Self, FillRefusal> {
        let claim = tier.writing.claim(hash).ok_or(FillRefusal::Other)?;
        match tier.cache.begin(hash, key, head, length) {
            Ok(write) => Ok(Self {
                counters: Arc::clone(counters),
                write: Some(write),
                has_met_full_queue: false,
                _claim: claim,
            }),
            Err(refused) => {
                tracing::debug!(%refused, "a response is not written to disk");
                counters.disk_fills_refused.increment();
                Err(match refused {
                    BeginError::QueueFull => FillRefusal::QueueFull,
                    _ => FillRefusal::Other,
                })
            }
        }
    }

    /// Returns true if the write was dropped because the device's queue was full.
    pub(crate) fn has_met_full_queue(&self) -> bool {
        self.has_met_full_queue
    }

    /// Returns true while the response is being written.
    pub(crate) fn is_alive(&self) -> bool {
        self.write.is_some()
    }

    /// Writes the next piece.
    pub(crate) fn push(&mut self, bytes: &Bytes) {
        let Some(write) = &mut self.write else {
            return;
        };
        // A small piece is copied, because it is often a slice of a large buffer that the queue would pin.
        let bytes = if bytes.len() < COPIED_BYTES_MAX {
            Bytes::copy_from_slice(bytes)
        } else {
            bytes.clone()
        };
        if let Err(dropped) = write.push(bytes) {
            self.drop_write(&dropped);
        }
    }

    /// Ends the write of a complete body. Returns true if the store will contain it.
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
                self.drop_write(&dropped);
                false
            }
        }
    }

    fn drop_write(&mut self, dropped: &WriteError) {
        tracing::debug!(%dropped, "a write to disk was dropped");
        self.write = None;
        self.has_met_full_queue = *dropped == WriteError::QueueFull;
        self.counters.disk_fills_dropped.increment();
    }
}

impl Drop for DiskFill {
    fn drop(&mut self) {
        // The body ended early or was invalidated. The store discards a write that was not finished.
        if self.write.is_some() {
            self.counters.disk_fills_aborted.increment();
        }
    }
}

/// Pieces below this size are copied: a copy takes less memory than the large buffer that the piece would pin.
const COPIED_BYTES_MAX: usize = 16 << 10;
