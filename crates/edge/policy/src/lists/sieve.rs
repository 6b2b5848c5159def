//! SIEVE: a FIFO queue with a hand that skips objects with hits.
//!
//! The hand moves from the oldest object to the newest and then begins again at the oldest. A hit marks an object. The
//! hand clears the mark of each object that it skips, and evicts the first object without a mark. Skipped objects keep
//! their position in the queue, so new objects without hits are evicted soon.
//!
//! Source: Zhang, Yang, Yue, Vigfusson and Rashmi, "SIEVE is Simpler than LRU: an Efficient Turn-Key Eviction Algorithm
//! for Web Caches", NSDI 2024. Cost: amortised O(1) per eviction, because each skipped object was hit; one relaxed
//! store for the first hit after a visit of the hand.

use edgeward_types::Seed;

use super::links::{Index, Lists};
use super::order::{HitLog, Hits, ListOrder};
use crate::object::Object;

/// Evicts the first object, starting at the hand, that was not hit since the last visit of the hand.
#[derive(Debug)]
pub struct Sieve {
    queue: Lists<1>,
    /// The object that is examined next, or `None` for the oldest.
    hand: Option<Index>,
}

impl ListOrder for Sieve {
    const HITS: Hits = Hits::Counted(1);

    fn new(_capacity_bytes: u64, _seed: Seed) -> Self {
        Self {
            queue: Lists::new(),
            hand: None,
        }
    }

    fn enter(&mut self, index: Index, object: &Object) {
        self.queue.push(0, index, object.size_bytes);
    }

    fn victim(&mut self, _incoming: Option<&Object>, hits: &HitLog<Self>) -> Option<Index> {
        // Two rounds suffice, because the first clears all marks. Concurrent hits may set marks again, so the number
        // of visits is limited.
        let mut visits_left = 2 * self.queue.objects(0);
        loop {
            let candidate = self.hand.or_else(|| self.queue.oldest(0))?;
            if hits.count(candidate) == 0 || visits_left == 0 {
                self.hand = Some(candidate);
                return Some(candidate);
            }
            hits.set_count(candidate, 0);
            self.hand = self.queue.newer(candidate);
            visits_left -= 1;
        }
    }

    fn remove(&mut self, index: Index) {
        if self.hand == Some(index) {
            self.hand = self.queue.newer(index);
        }
        self.queue.remove(index);
    }

    fn bookkeeping_bytes(&self) -> usize {
        self.queue.bookkeeping_bytes()
    }
}
