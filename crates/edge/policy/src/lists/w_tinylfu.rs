//! W-TinyLFU: a small LRU window, and a segmented LRU. If the segmented LRU is full, an object enters it only if the
//! object was requested more often than the next victim.
//!
//! A new object enters the window, which has 1 % of the budget. The oldest object of the window is the candidate for
//! the main segments: probation with 20 % of the rest, and the protected segment with 80 %. If the main segments are
//! full, the candidate is compared with the oldest object of probation. The object with fewer recent requests is
//! evicted. If both have the same number, the candidate is evicted.
//!
//! The segments of the paper have limits in objects; here the limits are bytes, as in libCacheSim. An object larger
//! than the window is admitted only while there is free space. A candidate that wins may evict several objects; only
//! the first is compared. If demotions from the protected segment make probation exceed its share, the oldest objects
//! of probation are evicted first. If only the protected segment has space for a candidate, the candidate enters the
//! protected segment.
//!
//! libCacheSim differs in three points: its counts are exact and never halved, which takes up to 8 GiB of memory; it
//! does not count hits in the window; and it always rejects an object larger than the window.
//!
//! Source: Einziger, Friedman and Manes, "TinyLFU: A Highly Efficient Cache Admission Policy", ACM TOS 2017. Cost:
//! amortised O(1). Memory: 57 bytes per object, and 8 to 16 for the [sketch](crate::sketch::frequency).

use edgeward_types::Seed;

use super::links::Index;
use super::order::{HitLog, Hits, ListOrder};
use super::tiny_lfu::{PROBATION, PROTECTED, Segments, WINDOW};
use crate::object::Object;

/// The policy `w-tinylfu`. It compares the oldest object of the window with the next victim of the main segments, and
/// evicts the object with fewer requests.
#[derive(Debug)]
pub struct WTinyLfu {
    segments: Segments,
    /// True after a demotion, until probation has at most its share.
    evicts_demoted: bool,
}

impl ListOrder for WTinyLfu {
    const HITS: Hits = Hits::InOrder;

    fn new(capacity_bytes: u64, _seed: Seed) -> Self {
        Self {
            segments: Segments::new(capacity_bytes),
            evicts_demoted: false,
        }
    }

    fn offered(&mut self, object: &Object) {
        self.segments.sketch.record(object.key);
    }

    fn enter(&mut self, index: Index, object: &Object) {
        let segment = match self.segments.is_large(object) {
            true => self.main_segment(object.size_bytes),
            false => WINDOW,
        };
        self.segments.add(segment, index, object);
    }

    fn hit(&mut self, index: Index) {
        self.evicts_demoted |= self.segments.hit(index);
    }

    fn victim(&mut self, incoming: Option<&Object>, _hits: &HitLog<Self>) -> Option<Index> {
        if incoming.is_some_and(|object| self.segments.is_large(object)) {
            return None;
        }
        loop {
            self.evicts_demoted &= self.segments.bytes(PROBATION) > self.probation_bytes_max();
            let victim = self.segments.main_victims().next();
            if self.evicts_demoted || self.segments.main_bytes() > self.segments.main_bytes_max {
                return victim;
            }
            let Some(candidate) = self.segments.oldest(WINDOW) else {
                return victim;
            };
            let size_bytes = self.segments.size_bytes(candidate);
            let is_full = self.segments.main_bytes() + size_bytes > self.segments.main_bytes_max;
            let requests = self.segments.estimate(candidate);
            let wins = victim.is_some_and(|victim| requests > self.segments.estimate(victim));
            if is_full && !wins {
                return Some(candidate);
            }
            self.segments
                .move_to(self.main_segment(size_bytes), candidate);
            if is_full {
                return victim;
            }
        }
    }

    fn remove(&mut self, index: Index) {
        self.segments.remove(index);
    }

    fn resize(&mut self, capacity_bytes: u64) {
        self.evicts_demoted |= self.segments.resize(capacity_bytes);
    }

    fn bookkeeping_bytes(&self) -> usize {
        self.segments.bookkeeping_bytes()
    }
}

impl WTinyLfu {
    fn probation_bytes_max(&self) -> u64 {
        self.segments.main_bytes_max - self.segments.protected_bytes_max
    }

    /// Returns the lowest main segment that has space for an object, or probation if both are full.
    fn main_segment(&self, size_bytes: u64) -> usize {
        let has_space = |segment, bytes_max| self.segments.bytes(segment) + size_bytes <= bytes_max;
        match has_space(PROBATION, self.probation_bytes_max())
            || !has_space(PROTECTED, self.segments.protected_bytes_max)
        {
            true => PROBATION,
            false => PROTECTED,
        }
    }
}
