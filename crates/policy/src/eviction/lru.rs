//! Least recently used.
//!
//! The clock is logical: it ticks once a miss, not by the wall, so that the server and the simulator
//! see the same time for the same requests. Hits between two misses are simultaneous, and later than
//! the miss before them. With the clock ticked at every request the order is exactly the textbook's,
//! which the tests show.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Ranking;
use crate::Object;

/// Ranks by the time of the last request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lru;

impl Ranking for Lru {
    type Mark = AtomicU64;
    type Shared = AtomicU64;

    fn tick(clock: &AtomicU64) {
        // Only the holder of the tier ticks, so a load and a store lose nothing. By two: misses are
        // at even times, the hits after them at the odd ones.
        clock.store(clock.load(Relaxed) + 2, Relaxed);
    }

    fn enter(clock: &AtomicU64, mark: &AtomicU64, _object: &Object) {
        mark.store(clock.load(Relaxed), Relaxed);
    }

    #[inline]
    fn touch(clock: &AtomicU64, mark: &AtomicU64) {
        let now = clock.load(Relaxed) + 1;
        // The mark of a hot object is read by every core: write it only when it changes.
        if mark.load(Relaxed) != now {
            mark.store(now, Relaxed);
        }
    }

    fn rank(mark: &AtomicU64) -> u64 {
        mark.load(Relaxed)
    }

    fn was_hit(mark: &AtomicU64) -> bool {
        // Objects enter at even times, hits are at odd ones.
        mark.load(Relaxed) % 2 == 1
    }

    fn evicted(_clock: &AtomicU64, _rank: u64) {}
}
