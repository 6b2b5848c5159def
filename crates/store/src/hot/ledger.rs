//! Accounts for memory that outlives its slot in the cache: evicted values that are still being read.
//!
//! Each admitted value has a guard for as many bytes as its slot is charged. The guard is stored with the
//! value's memory and is dropped with it, whichever reader is the last. The tier knows the bytes of all slots.
//! The *pinned* bytes are the charged bytes without a slot: a difference of two sums, so no path can count them
//! twice or forget them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The sum of all charges, with and without a slot.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    held_bytes: AtomicU64,
}

impl Ledger {
    pub(super) fn hold(self: &Arc<Self>, bytes: u64) -> ChargeGuard {
        self.held_bytes.fetch_add(bytes, Relaxed);
        ChargeGuard {
            ledger: Arc::clone(self),
            bytes,
        }
    }

    /// Returns the charged bytes without a slot, given that all slots together have `used_bytes`.
    pub(super) fn pinned_bytes(&self, used_bytes: u64) -> u64 {
        self.held_bytes.load(Relaxed).saturating_sub(used_bytes)
    }
}

/// A charge for memory against the cache's budget, until this value is dropped. Keep it with the memory.
#[derive(Debug)]
pub struct ChargeGuard {
    ledger: Arc<Ledger>,
    bytes: u64,
}

impl Drop for ChargeGuard {
    fn drop(&mut self) {
        self.ledger.held_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

/// The pinned bytes that influence no decision: 1/32 of the capacity, at least 1 MiB.
///
/// Even a fast client reads an evicted body for some milliseconds. Without this allowance the cache would
/// decide differently from the simulator, which has no readers.
pub(super) fn pinned_free_bytes(capacity_bytes: u64) -> u64 {
    (capacity_bytes / 32).max(1 << 20)
}

/// The default bound of pinned bytes: an eighth of the capacity, at least 4 MiB.
///
/// Attackers can take this share of the cache from other clients' objects by reading a few large objects
/// slowly. A smaller share would refuse objects because of readers that are merely slow: the 16 MiB of a
/// capacity of 128 MiB are two readers of 8 MiB objects.
pub(super) fn pinned_max_bytes(capacity_bytes: u64) -> u64 {
    (capacity_bytes / 8).max(4 << 20)
}
