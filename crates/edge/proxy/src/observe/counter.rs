//! A counter of one worker, or of all threads that are no workers.
//!
//! Only one worker writes each of its counters, so an increment is a load and a store without the lock prefix of an
//! atomic addition. Threads that are no workers (admin server, reloads, warm start, …) share one block of counters,
//! whose increments are atomic additions. They never write the counters of a worker, because a count of either thread
//! could be lost. A scrape reads all counters with relaxed ordering and adds them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter or gauge that any thread reads. One thread changes it, unless it is [`shared`](Self::shared).
#[derive(Debug, Default)]
pub(crate) struct Counter {
    value: AtomicU64,
    /// True if several threads change the counter.
    is_shared: bool,
}

impl Counter {
    /// Returns a counter that several threads may change at the same time.
    pub(crate) const fn shared() -> Self {
        Self {
            value: AtomicU64::new(0),
            is_shared: true,
        }
    }

    #[inline]
    pub(crate) fn add(&self, n: u64) {
        if self.is_shared {
            self.value.fetch_add(n, Relaxed);
        } else {
            let sum = self.value.load(Relaxed).wrapping_add(n);
            self.value.store(sum, Relaxed);
        }
    }

    pub(crate) fn increment(&self) {
        self.add(1);
    }

    /// Subtracts one, for gauges.
    pub(crate) fn decrement(&self) {
        self.add(u64::MAX);
    }

    pub(crate) fn value(&self) -> u64 {
        self.value.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_goes_up_and_down() {
        for gauge in [Counter::default(), Counter::shared()] {
            gauge.increment();
            gauge.increment();
            gauge.decrement();
            assert_eq!(gauge.value(), 1);
        }
    }

    #[test]
    fn no_count_of_a_shared_counter_is_lost() {
        let counter = Counter::shared();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20_000).for_each(|_| counter.increment()));
            }
        });
        assert_eq!(counter.value(), 80_000);
    }
}
