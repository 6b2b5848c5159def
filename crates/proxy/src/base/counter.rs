//! A counter of one worker.
//!
//! Only one worker writes each counter, so an increment is a load and a store without the lock prefix of an atomic
//! addition. A scrape reads the counters of all workers with relaxed ordering and adds them.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter or gauge that one thread changes and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }

    pub(crate) fn increment(&self) {
        self.add(1);
    }

    /// Subtracts one, for gauges.
    pub(crate) fn decrement(&self) {
        self.add(u64::MAX);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_goes_up_and_down() {
        let gauge = Counter::default();
        gauge.increment();
        gauge.increment();
        gauge.decrement();
        assert_eq!(gauge.value(), 1);
    }
}
