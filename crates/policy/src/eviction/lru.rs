//! Least recently used.
//!
//! The clock is logical. It ticks once per miss, so the server and the simulator have the same time for the
//! same requests. All hits between two misses have the same time, which lies between the times of these misses, so
//! their order is lost. The tests show that a tick at every request would give exactly the order of textbook LRU.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Ranking;
use crate::Object;

/// Ranks by the time of the last request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lru;

impl Ranking for Lru {
    type AccessState = AtomicU64;
    type Shared = AtomicU64;

    fn tick(clock: &AtomicU64) {
        // Only the thread with exclusive access to the tier ticks, so a load and a store suffice. The clock
        // advances by two: misses have even times, and the hits after them have odd times.
        clock.store(clock.load(Relaxed) + 2, Relaxed);
    }

    fn victim_rank_max(_: &AtomicU64, _: &Object) -> Option<u64> {
        None
    }

    fn rejected(_: &AtomicU64, _: u64) {}

    fn enter(clock: &AtomicU64, state: &AtomicU64, _object: &Object) {
        state.store(clock.load(Relaxed), Relaxed);
    }

    #[inline]
    fn touch(clock: &AtomicU64, state: &AtomicU64) {
        let now = clock.load(Relaxed) + 1;
        // Several cores hit a popular object. A write would remove the state from their caches, so the state is written
        // only if it changes.
        if state.load(Relaxed) != now {
            state.store(now, Relaxed);
        }
    }

    fn rank(state: &AtomicU64) -> u64 {
        state.load(Relaxed)
    }

    fn was_hit(state: &AtomicU64) -> bool {
        // Objects are admitted at even times, and hits have odd times.
        state.load(Relaxed) % 2 == 1
    }

    fn evicted(_clock: &AtomicU64, _rank: u64) {}
}
