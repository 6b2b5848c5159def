//! Memory pages of freed values: how many the process keeps before it returns them to the system.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Limits the freed pages that the allocator keeps.
#[derive(Debug)]
pub struct FreedPages {
    give_back: fn(u64) -> bool,
    bytes_max: u64,
    /// Bytes counted since the last check.
    counted: AtomicU64,
    /// How often pages were returned to the system.
    given_back: AtomicU64,
}

impl FreedPages {
    pub(super) fn new(give_back: fn(u64) -> bool, bytes_max: u64) -> Self {
        Self {
            give_back,
            bytes_max,
            counted: AtomicU64::new(0),
            given_back: AtomicU64::new(0),
        }
    }

    /// Counts bytes of values that are offered, or that were freed outside the cache. Checks the allocator at
    /// each quarter of the bound. An offered value evicts about as many bytes.
    ///
    /// Call it before the next eviction: by then the newest bodies have reused the pages of the last evictions.
    pub fn count(&self, bytes: u64) {
        let counted = self.counted.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if counted >= self.bytes_max / 4 {
            self.counted.store(0, Relaxed);
            let given_back = (self.give_back)(self.bytes_max);
            self.given_back.fetch_add(u64::from(given_back), Relaxed);
        }
    }

    pub(super) fn given_back(&self) -> u64 {
        self.given_back.load(Relaxed)
    }
}

/// The default bound: 1/32 of the capacity, at least 2 MiB.
///
/// Pages that are returned must be requested from the system again: with a bound of 0 a stored miss of 64 KiB
/// or more takes twice the processor time.
pub(super) fn freed_max_bytes(capacity_bytes: u64) -> u64 {
    (capacity_bytes / 32).max(2 << 20)
}
