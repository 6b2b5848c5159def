//! Bytes that outlive their place in the cache: values that left while somebody still reads them.
//!
//! Each admitted value has a [`Hold`] of as many bytes as its place is charged. The hold belongs to the value's memory and is
//! dropped with it, by whichever path its last reader goes. The tier knows what its places are charged. What is held and
//! has no place any more is *pinned*: the difference of two sums, so no path can count it twice or forget it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The bytes that are held, with and without a place.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    held_bytes: AtomicU64,
}

impl Ledger {
    pub(super) fn hold(self: &Arc<Self>, bytes: u64) -> Hold {
        self.held_bytes.fetch_add(bytes, Relaxed);
        Hold {
            ledger: Arc::clone(self),
            bytes,
        }
    }

    /// The bytes without a place, where places of `used_bytes` are taken.
    pub(super) fn pinned_bytes(&self, used_bytes: u64) -> u64 {
        self.held_bytes.load(Relaxed).saturating_sub(used_bytes)
    }
}

/// Memory that counts against the cache's budget until this is dropped. Keep it with the memory.
#[derive(Debug)]
pub struct Hold {
    ledger: Arc<Ledger>,
    bytes: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.ledger.held_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

/// The pinned bytes that change no decision: 1/32 of the capacity, at least 1 MiB.
///
/// A client that is as fast as others still reads an evicted body for some milliseconds. Without this allowance the cache would
/// decide otherwise than the simulator, which knows no readers.
pub(super) fn pinned_free_bytes(capacity_bytes: u64) -> u64 {
    (capacity_bytes / 32).max(1 << 20)
}

/// The default bound of pinned bytes: an eighth of the capacity, at least 4 MiB.
///
/// Attackers may take this share of the cache from other clients' objects, and have it filled with a few large objects. A
/// smaller share would close readers that are merely slow: 16 MiB of a capacity of 128 MiB are two readers of 8 MiB objects.
pub(super) fn pinned_max_bytes(capacity_bytes: u64) -> u64 {
    (capacity_bytes / 8).max(4 << 20)
}
