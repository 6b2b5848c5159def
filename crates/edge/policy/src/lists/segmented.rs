//! Segmented LRU: objects rise by one segment at each hit.
//!
//! A new object enters the lowest segment. A hit makes an object the newest of the next higher segment. If a segment
//! exceeds its share of the budget, its oldest objects become the newest of the next lower segment. The oldest object
//! of the lowest segment is evicted.
//!
//! Sources: Karedla, Love and Wherry, "Caching Strategies to Improve Disk System Performance", IEEE Computer 1994
//! ([`Slru`]); Huang, Birman, van Renesse, Lloyd, Kumar and Li, "An Analysis of Facebook Photo Caching", SOSP 2013
//! ([`S4Lru`]). Cost: amortised O(1); for objects of equal size, a hit causes at most one demotion per segment.

use edgeward_types::Seed;

use super::links::{Index, Lists};
use super::order::{HitLog, Hits, ListOrder};
use crate::object::Object;

/// Segmented LRU with two segments; the higher has at most 80 % of the budget.
pub type Slru = SegmentedLru<2, 80>;

/// Segmented LRU with four segments; each of the upper three has at most 25 % of the budget.
pub type S4Lru = SegmentedLru<4, 75>;

/// Segmented LRU with `N` segments. Those above the lowest have `UPPER_PERCENT` of the budget, in equal shares.
#[derive(Debug)]
pub struct SegmentedLru<const N: usize, const UPPER_PERCENT: u64> {
    segments: Lists<N>,
    /// The maximum bytes of each segment above the lowest.
    segment_bytes_max: u64,
}

impl<const N: usize, const UPPER_PERCENT: u64> ListOrder for SegmentedLru<N, UPPER_PERCENT> {
    const HITS: Hits = Hits::InOrder;

    fn new(capacity_bytes: u64, _seed: Seed) -> Self {
        let mut order = Self {
            segments: Lists::new(),
            segment_bytes_max: 0,
        };
        order.resize(capacity_bytes);
        order
    }

    fn enter(&mut self, index: Index, object: &Object) {
        self.segments.push(0, index, object.size_bytes);
    }

    fn hit(&mut self, index: Index) {
        let segment = self
            .segments
            .list_of(index)
            .expect("the object is resident");
        let higher = (segment + 1).min(N - 1);
        self.segments.move_to(higher, index);
        self.demote(higher);
    }

    fn victim(&mut self, _incoming: Option<&Object>, _hits: &HitLog<Self>) -> Option<Index> {
        (0..N).find_map(|segment| self.segments.oldest(segment))
    }

    fn remove(&mut self, index: Index) {
        self.segments.remove(index);
    }

    fn resize(&mut self, capacity_bytes: u64) {
        let upper_bytes = u128::from(capacity_bytes) * u128::from(UPPER_PERCENT) / 100;
        self.segment_bytes_max = upper_bytes as u64 / (N as u64 - 1);
        self.demote(N - 1);
    }

    fn bookkeeping_bytes(&self) -> usize {
        self.segments.bookkeeping_bytes()
    }
}

impl<const N: usize, const UPPER_PERCENT: u64> SegmentedLru<N, UPPER_PERCENT> {
    /// Demotes the oldest objects of segment `highest` and of those below it, until each has at most its maximum bytes.
    fn demote(&mut self, highest: usize) {
        for segment in (1..=highest).rev() {
            while self.segments.bytes(segment) > self.segment_bytes_max {
                let oldest = self.segments.oldest(segment).expect("bytes are used");
                self.segments.move_to(segment - 1, oldest);
            }
        }
    }
}
