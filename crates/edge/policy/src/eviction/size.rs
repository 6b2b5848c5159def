//! SIZE: evicts the largest object first. Hits do not change the order.
//!
//! Source: Williams, Abrams, Standridge, Abdulla and Fox, "Removal Policies in Network Caches for World-Wide
//! Web Documents", SIGCOMM 1996.
//!
//! Cost: O(log n) per eviction, at most one relaxed store per hit, 16 bytes per object beside the queue.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::ranking::Ranking;
use crate::object::Object;
use crate::objective::Benefit;

/// Evicts the largest object; among objects of equal size, the one with the lowest slot number in the tier.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size;

/// The rank of one object, and a flag that is true if the object was hit.
#[derive(Debug, Default)]
pub struct AccessState {
    rank: AtomicU64,
    was_hit: AtomicBool,
}

impl Ranking for Size {
    type AccessState = AccessState;
    type Shared = ();

    fn tick((): &()) {}

    fn victim_rank_max((): &(), _: &Object, _: Benefit, _requests: u32) -> Option<u64> {
        None
    }

    fn rejected((): &(), _: u64) {}

    fn enter((): &(), state: &AccessState, object: &Object, _: Benefit, _requests: u32) {
        // The largest object has the lowest rank.
        state.rank.store(u64::MAX - object.size_bytes, Relaxed);
        state.was_hit.store(false, Relaxed);
    }

    #[inline]
    fn touch((): &(), state: &AccessState) {
        // Every core reads the state of a popular object, so the flag is written only once.
        if !state.was_hit.load(Relaxed) {
            state.was_hit.store(true, Relaxed);
        }
    }

    fn rank(state: &AccessState) -> u64 {
        state.rank.load(Relaxed)
    }

    fn was_hit(state: &AccessState) -> bool {
        state.was_hit.load(Relaxed)
    }

    fn evicted((): &(), _rank: u64) {}
}
