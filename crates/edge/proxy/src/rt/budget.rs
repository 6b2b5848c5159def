//! Memory budgets for bodies and heads in transit, and the shares that each body or head reserves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use edgeward_store::hot::{ChargeGuard, FreedPages};

/// Returns bytes that own `charge`. The charge is dropped with the last reference to the bytes.
pub(crate) fn charged<B, C>(bytes: B, charge: C) -> Bytes
where
    B: AsRef<[u8]> + Send + 'static,
    C: Send + 'static,
{
    Bytes::from_owner(Charged {
        bytes,
        _charge: charge,
    })
}

struct Charged<B, C> {
    bytes: B,
    _charge: C,
}

impl<B: AsRef<[u8]>, C> AsRef<[u8]> for Charged<B, C> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// The memory that one kind of data may use: fills (`limits.fill_bytes_max`), upload buffers
/// (`limits.upload_buffers_bytes_max`), HTTP/2 request heads (`limits.heads_bytes_max`) or the state of client
/// connections (`limits.connections_bytes_max`).
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    used: AtomicU64,
    max: AtomicU64,
    /// Counts the bytes of each released share, and returns free pages to the system from time to time.
    freed: Option<Arc<FreedPages>>,
}

impl MemoryBudget {
    pub(crate) fn new(max: u64, freed: Option<Arc<FreedPages>>) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicU64::new(0),
            max: AtomicU64::new(max),
            freed,
        })
    }

    /// Changes the limit. Shares that exceed it remain until they are released.
    pub(crate) fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
    }

    pub(crate) fn max_bytes(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// Returns true if the limit is reached.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.used_bytes() >= self.max_bytes()
    }

    /// Counts bytes that are used already, also beyond the limit.
    pub(crate) fn add(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Ends the count of bytes of [`add`](Self::add).
    pub(crate) fn subtract(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns a share that uses no bytes of this budget, for a body whose memory is charged to the cache.
    pub(crate) fn charged_to_cache(self: &Arc<Self>, guard: Option<ChargeGuard>) -> MemoryShare {
        MemoryShare {
            budget: Arc::clone(self),
            charge: Charge::Cache(guard),
        }
    }

    /// Returns a share of `bytes`, or `None` if more than half of the budget would be used: for work that no request
    /// awaits.
    pub(crate) fn reserve_of_half(self: &Arc<Self>, bytes: u64) -> Option<MemoryShare> {
        let is_half = self.used_bytes().saturating_add(bytes) <= self.max_bytes() / 2;
        is_half.then(|| self.reserve(bytes)).flatten()
    }

    /// Returns a share of `bytes`, or `None` if the budget is exhausted.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Option<MemoryShare> {
        let mut memory = MemoryShare {
            budget: Arc::clone(self),
            charge: Charge::Budget(0),
        };
        memory.grow_to(bytes).then_some(memory)
    }
}

/// A share of a budget, released when dropped.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    budget: Arc<MemoryBudget>,
    charge: Charge,
}

#[derive(Debug)]
enum Charge {
    /// The cache counts the bytes, even after the object was evicted. `None` if the guard was already taken.
    Cache(Option<ChargeGuard>),
    /// The number of bytes that this share has reserved of the budget.
    Budget(u64),
}

impl MemoryShare {
    /// Returns `bytes` with the charge of this share. The charge ends when the last reference to the bytes is dropped.
    pub(crate) fn charge<B>(mut self, bytes: B) -> Bytes
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        match &mut self.charge {
            Charge::Cache(guard) => charged(bytes, guard.take()),
            Charge::Budget(_) => charged(bytes, self),
        }
    }

    /// Grows the share to at least `bytes`. Returns false and changes nothing if the budget is exhausted.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> bool {
        let Charge::Budget(reserved) = self.charge else {
            return true;
        };
        let Some(added) = bytes.checked_sub(reserved).filter(|&added| added > 0) else {
            return true;
        };
        let max = self.budget.max.load(Ordering::Relaxed);
        let grown = self
            .budget
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(added).filter(|&used| used <= max)
            });
        if grown.is_ok() {
            self.charge = Charge::Budget(bytes);
        }
        grown.is_ok()
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        if let Charge::Budget(reserved) = self.charge {
            self.budget.used.fetch_sub(reserved, Ordering::Relaxed);
            if let Some(freed) = &self.budget.freed {
                freed.count(reserved);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use edgeward_store::hot::{AllocatorState, HotCache, HotConfig};
    use edgeward_types::ByteSize;

    use super::*;

    /// The bytes of dropped shares are counted. After 1000 bytes, a quarter of `freed_bytes_max`, a check runs.
    #[test]
    fn a_share_that_ends_counts_towards_the_next_check_of_freed_pages() {
        let hot: Arc<HotCache<()>> = HotCache::new(HotConfig {
            freed_bytes_max: Some(ByteSize(4000)),
            return_freed_pages: Some(|_| AllocatorState {
                were_returned: true,
                ..AllocatorState::default()
            }),
            ..HotConfig::new(ByteSize(10_000))
        });
        let budget = MemoryBudget::new(5000, hot.freed_pages());
        for (bytes, checks) in [(600, 0), (600, 1), (900, 1), (3000, 2)] {
            drop(budget.reserve(bytes).expect("a share"));
            assert_eq!(hot.stats().freed_pages_returns, checks, "{bytes} bytes");
        }
    }
}
