//! Two eviction orders that hits do not change: by age and by size. The object with the lowest rank is evicted first.
//!
//! First in, first out is the simplest order and serves as the baseline. SIZE evicts the largest object first.
//!
//! Source of SIZE: Williams, Abrams, Standridge, Abdulla and Fox, "Removal Policies in Network Caches for World-Wide
//! Web Documents", SIGCOMM 1996.
//!
//! Cost: O(log n) per eviction, at most one relaxed store per hit, 16 bytes per object beside the queue.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::Ranking;
use crate::Object;

/// First in, first out: evicts the object that was admitted first.
pub type Fifo = Fixed<ByAge>;

/// Evicts the largest object; among objects of equal size, the one with the lowest slot number in the tier.
pub type Size = Fixed<BySize>;

/// Ranks by an order that is known at the admission.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fixed<O>(PhantomData<O>);

/// The rank of an object at its admission.
pub trait Order: std::fmt::Debug + Send + 'static {
    /// Returns the rank of an object. `offer` is the number of objects that were offered for admission so far.
    fn rank(offer: u64, object: &Object) -> u64;
}

/// The oldest object has the lowest rank.
#[derive(Debug)]
pub struct ByAge;

/// The largest object has the lowest rank.
#[derive(Debug)]
pub struct BySize;

impl Order for ByAge {
    fn rank(offer: u64, _object: &Object) -> u64 {
        offer
    }
}

impl Order for BySize {
    fn rank(_offer: u64, object: &Object) -> u64 {
        u64::MAX - object.size_bytes
    }
}

/// The rank of one object, and a flag that is true if the object was hit.
#[derive(Debug, Default)]
pub struct AccessState {
    rank: AtomicU64,
    was_hit: AtomicBool,
}

impl<O: Order> Ranking for Fixed<O> {
    type AccessState = AccessState;
    /// The number of objects that were offered for admission.
    type Shared = AtomicU64;

    fn tick(offers: &AtomicU64) {
        // Only the thread with exclusive access to the tier ticks, so a load and a store suffice.
        offers.store(offers.load(Relaxed) + 1, Relaxed);
    }

    fn victim_rank_max(_: &AtomicU64, _: &Object) -> Option<u64> {
        None
    }

    fn rejected(_: &AtomicU64, _: u64) {}

    fn enter(offers: &AtomicU64, state: &AccessState, object: &Object) {
        state
            .rank
            .store(O::rank(offers.load(Relaxed), object), Relaxed);
        state.was_hit.store(false, Relaxed);
    }

    #[inline]
    fn touch(_offers: &AtomicU64, state: &AccessState) {
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

    fn evicted(_offers: &AtomicU64, _rank: u64) {}
}
