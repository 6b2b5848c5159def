//! Accounts for memory that outlives its slot in the cache: evicted values that are still being read.
//!
//! The policy tier is the part of the cache that decides which objects stay. A slot is the entry of an object there.
//! Each admitted value has a guard for the bytes that its slot is charged. The guard is stored with the value's
//! memory and dropped together with it, when the last reader drops the value. The policy tier has the sum of the
//! bytes of all slots. The *pinned* bytes are the sum of all guards minus the sum of all slots. They are computed
//! and not counted, so no code path can count bytes twice or omit them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The sum of all charges: those of values with a slot, and those of values without a slot.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    charged_bytes: AtomicU64,
}

impl Ledger {
    pub(super) fn charge(self: &Arc<Self>, bytes: u64) -> ChargeGuard {
        self.charged_bytes.fetch_add(bytes, Relaxed);
        ChargeGuard {
            ledger: Arc::clone(self),
            bytes,
        }
    }

    /// Returns the charged bytes of values without a slot. `used_bytes` is the sum of the charges of all slots.
    pub(super) fn pinned_bytes(&self, used_bytes: u64) -> u64 {
        self.charged_bytes().saturating_sub(used_bytes)
    }

    pub(super) fn charged_bytes(&self) -> u64 {
        self.charged_bytes.load(Relaxed)
    }
}

/// A charge for memory against the cache's budget. The charge ends when this guard is dropped, so store the guard
/// with the memory.
#[derive(Debug)]
pub struct ChargeGuard {
    ledger: Arc<Ledger>,
    bytes: u64,
}

impl Drop for ChargeGuard {
    fn drop(&mut self) {
        self.ledger.charged_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

/// Returns the number of pinned bytes that do not reduce the space for objects in the cache: 1/32 of the capacity,
/// at least 1 MiB.
///
/// Even a fast client takes some milliseconds to read an evicted body. Without this allowance the cache would
/// decide differently from the simulator, which has no readers.
pub(super) fn pinned_free_bytes(capacity_bytes: u64) -> u64 {
    (capacity_bytes / 32).max(1 << 20)
}

/// Returns the default limit of pinned bytes: an eighth of the capacity, at least 4 MiB. While more
/// bytes are pinned, the cache admits no object.
///
/// Attackers that read a few large objects slowly can take this share of the cache from other clients' objects.
/// If the share were smaller, a few slow but honest readers would pin more bytes than the limit, and so stop the
/// admission of objects. Even with an eighth, a capacity of 128 MiB has a limit of 16 MiB, which two slow readers of
/// evicted objects of 8 MiB reach.
pub(super) fn pinned_max_bytes(capacity_bytes: u64) -> u64 {
    (capacity_bytes / 8).max(4 << 20)
}
