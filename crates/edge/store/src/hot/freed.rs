//! Limits the memory pages of freed values that the process keeps before it returns them to the system, and measures
//! the memory that freed values occupy in pages that are still in use.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::fragmentation::{Slabs, next_reduction_bytes};

/// The state of the allocator after it was called to return freed pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorState {
    /// True if pages were returned to the system.
    pub were_returned: bool,
    /// The slabs, or `None` if they were not measured.
    pub slabs: Option<Slabs>,
}

/// Limits the freed pages that the allocator keeps.
#[derive(Debug)]
pub struct FreedPages {
    /// Returns freed pages to the system if they take more than the given number of bytes.
    return_freed_pages: fn(u64) -> AllocatorState,
    bytes_max: u64,
    /// The bytes counted since the last call of `return_freed_pages`.
    counted: AtomicU64,
    /// The number of times that pages were returned to the system.
    freed_pages_returns: AtomicU64,
    capacity_bytes: u64,
    /// The number of bytes by which fragmentation reduces the capacity.
    reduction_bytes: AtomicU64,
}

impl FreedPages {
    pub(super) fn new(
        return_freed_pages: fn(u64) -> AllocatorState,
        bytes_max: u64,
        capacity_bytes: u64,
    ) -> Self {
        Self {
            return_freed_pages,
            bytes_max,
            counted: AtomicU64::new(0),
            freed_pages_returns: AtomicU64::new(0),
            capacity_bytes,
            reduction_bytes: AtomicU64::new(0),
        }
    }

    /// Counts bytes of values that are offered to the cache, or that were freed outside the cache. Offered
    /// bytes are counted because an offered value evicts about the same number of bytes. Calls
    /// `return_freed_pages` each time the count reaches a quarter of the limit.
    ///
    /// The cache calls this function before it evicts. At this time the newest bodies have reused the pages that
    /// the previous evictions freed, so only unused pages are returned.
    pub fn count(&self, bytes: u64) {
        let counted = self.counted.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if counted >= self.bytes_max / 4 {
            self.counted.store(0, Relaxed);
            let state = (self.return_freed_pages)(self.bytes_max);
            self.freed_pages_returns
                .fetch_add(u64::from(state.were_returned), Relaxed);
            if let Some(slabs) = state.slabs {
                let previous = self.reduction_bytes.load(Relaxed);
                let next = next_reduction_bytes(previous, slabs, self.capacity_bytes);
                self.reduction_bytes.store(next, Relaxed);
            }
        }
    }

    pub(super) fn freed_pages_returns(&self) -> u64 {
        self.freed_pages_returns.load(Relaxed)
    }

    pub(super) fn reduction_bytes(&self) -> u64 {
        self.reduction_bytes.load(Relaxed)
    }
}

/// Returns the default limit: 1/32 of the capacity, at least 2 MiB.
///
/// The limit is not 0, because the process must request returned pages from the system again. With a limit of
/// 0, a stored miss of 64 KiB or more takes twice the CPU time.
pub(super) fn freed_max_bytes(capacity_bytes: u64) -> u64 {
    (capacity_bytes / 32).max(2 << 20)
}
