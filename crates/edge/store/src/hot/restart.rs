//! The end of one process and the start of the next: takes all objects out of the cache in the order of eviction, and
//! reserves space for the objects that the earlier process had.
//!
//! Before a restart, [`HotCache::drain`] evicts every object, so the order is the one of the policy. After the restart,
//! [`HotCache::reserve`] enters the same objects into the tier in this order, without their values. The tier then has
//! the order that it had before. The caller reads the values in any order, and commits each to its reservation.
//! Meanwhile requests are served. An object that a request offers competes with the reserved objects as if they were
//! stored, and the policy may evict a reservation.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use edgeward_policy::Evicted;

use super::cache::HotCache;
use super::policy_change::SLICE_OBJECTS;
use super::reservation::Reservation;
use super::shared::report_evicted;
use crate::hot_list::HotObject;
use crate::versions::Version;

/// An object that [`HotCache::drain`] has taken out of the cache.
#[derive(Debug)]
pub struct DrainedObject<V> {
    /// The hash of its key, its charge, and whether it was hit.
    pub object: HotObject,
    /// The version of the key at the eviction.
    pub version: Version,
    /// The value.
    pub value: Arc<V>,
}

impl<V: Send + Sync + 'static> HotCache<V> {
    /// Evicts all objects and returns them, the most valuable first. Call it when no request uses the cache any more.
    pub fn drain(&self) -> Vec<DrainedObject<V>> {
        let shared = &self.shared;
        let mut drained = Vec::new();
        loop {
            let mut removed = Vec::new();
            let mut tiers = shared.tier.lock();
            let mut evicted = tiers.evict(SLICE_OBJECTS);
            shared.unlink(&evicted, &mut removed);
            drop(tiers);
            if evicted.is_empty() {
                break;
            }
            report_evicted(
                &mut evicted,
                &mut removed,
                &mut |evicted, version, value| {
                    drained.push(DrainedObject {
                        object: HotObject {
                            object: evicted.object,
                            was_hit: evicted.was_hit,
                        },
                        version,
                        value,
                    });
                },
            );
        }
        drained.reverse();
        drained
    }

    /// Reserves space for objects of an earlier process. `objects` has the most valuable object first, as
    /// [`drain`](Self::drain) returns them. Returns a reservation for each object, in the order of `objects`, or `None`
    /// if the cache has the object already or the object does not fit. A reservation is lost as soon as the policy
    /// evicts it.
    ///
    /// Only the first objects that fit into the free part of the budget get a reservation. Calls `on_evicted` as
    /// [`offer_with`](Self::offer_with) does, for objects that requests have stored meanwhile.
    pub fn reserve(
        &self,
        objects: &[HotObject],
        mut on_evicted: impl FnMut(&Evicted, Version, Arc<V>),
    ) -> Vec<Option<Reservation<V>>> {
        let shared = &self.shared;
        let mut free_bytes = {
            let tiers = shared.tier.lock();
            let capacity_bytes = shared.capacity_bytes.load(Relaxed);
            capacity_bytes.saturating_sub(tiers.used_bytes())
        };
        let fits = |hot: &HotObject| match free_bytes.checked_sub(hot.object.size_bytes) {
            Some(rest) => {
                free_bytes = rest;
                true
            }
            None => false,
        };
        // The objects are entered in the order of eviction. The last entered object is the most valuable.
        let mut fitting: Vec<bool> = objects.iter().map(fits).collect();
        let mut reservations = Vec::with_capacity(objects.len());
        for slice in objects.rchunks(SLICE_OBJECTS) {
            let (mut evicted, mut removed) = (Vec::new(), Vec::new());
            let mut tiers = shared.tier.lock();
            shared.adjust_capacity(&mut tiers, &mut evicted);
            for HotObject { object, was_hit } in slice.iter().rev() {
                let is_offered = fitting.pop().unwrap_or(false);
                let reservation = (is_offered && !shared.index.contains(object.key)).then(|| {
                    let benefit = shared.benefits.of(object.size_bytes, None);
                    let slot = tiers.adopt(object, *was_hit, benefit, &mut evicted)?;
                    Some(Reservation {
                        shared: Arc::clone(shared),
                        key: object.key,
                        fill: tiers.adopted_fill(slot),
                        charge_bytes: object.size_bytes,
                        charge: Some(shared.ledger.charge(object.size_bytes)),
                        committed: false,
                    })
                });
                reservations.push(reservation.flatten());
            }
            shared.unlink(&evicted, &mut removed);
            drop(tiers);
            report_evicted(&mut evicted, &mut removed, &mut on_evicted);
        }
        reservations.reverse();
        reservations
    }
}

#[cfg(test)]
mod tests {
    use edgeward_policy::PolicySpec;
    use edgeward_types::{ByteSize, KeyHash, SplitMix64};

    use super::*;
    use crate::hot::{Commit, HotConfig, Offer, TunerMode};

    const CAPACITY: u64 = 1 << 20;

    fn cache(policy: PolicySpec) -> Arc<HotCache<u64>> {
        HotCache::new(HotConfig {
            policy,
            tuner_mode: TunerMode::Inline,
            ..HotConfig::new(ByteSize(CAPACITY))
        })
    }

    fn insert(cache: &HotCache<u64>, key: u64, charge_bytes: u64) -> bool {
        let version = cache.version(KeyHash(key));
        match cache.offer(KeyHash(key), charge_bytes) {
            Offer::Admit(reservation) => {
                matches!(reservation.commit(Arc::new(key), version), Commit::Done(_))
            }
            Offer::Refuse(_) | Offer::Pinned => false,
        }
    }

    /// Returns a cache after 5,000 requests, three of four for one of 200 objects.
    fn warm(policy: PolicySpec, seed: u64) -> Arc<HotCache<u64>> {
        let cache = cache(policy);
        let mut random = SplitMix64(seed);
        for _ in 0..5000 {
            let key = match random.below(4) {
                0 => random.below(20_000),
                _ => random.below(200),
            };
            if cache.lookup(KeyHash(key)).is_none() {
                insert(&cache, key, 1000 + key % 7 * 500);
            }
        }
        cache
    }

    fn listed(drained: &[DrainedObject<u64>]) -> Vec<HotObject> {
        drained.iter().map(|drained| drained.object).collect()
    }

    /// Method: for each policy, drain a cache, reserve its objects in a new cache, and store the values in a random
    /// order. The new cache then has the same objects, and the same bytes are used.
    #[test]
    fn a_new_cache_gets_the_objects_of_the_old_one_within_its_budget() {
        for policy in PolicySpec::examples() {
            let old = warm(policy, 1);
            let (used_bytes, objects) = (old.stats().used_bytes, old.stats().objects);
            let drained = old.drain();
            assert_eq!(
                (old.stats().used_bytes, old.stats().objects),
                (0, 0),
                "{policy}"
            );
            assert_eq!(drained.len() as u64, objects, "{policy}");
            let new = cache(policy);
            let hot = listed(&drained);
            let mut reserved: Vec<_> = new
                .reserve(&hot, |_, _, _| ())
                .into_iter()
                .zip(&hot)
                .collect();
            let mut random = SplitMix64(2);
            while !reserved.is_empty() {
                let n = random.below(reserved.len() as u64) as usize;
                let (reservation, hot) = reserved.swap_remove(n);
                let key = hot.object.key;
                let version = new.version(key);
                let reservation = reservation.expect("all objects fit");
                let promoted = reservation.promote(Arc::new(key.0), version);
                assert_eq!(promoted, Commit::Done(version), "{policy}");
            }
            assert_eq!(new.stats().used_bytes, used_bytes, "{policy}");
            assert!(
                drained
                    .iter()
                    .all(|it| new.peek(it.object.object.key).is_some()),
                "{policy}"
            );
        }
    }

    /// Method: for LRU, the order after the restart is exact, so draining the new cache returns the same list.
    #[test]
    fn lru_has_the_same_order_of_eviction_after_a_restart() {
        let drained = warm(PolicySpec::LRU, 3).drain();
        let new = cache(PolicySpec::LRU);
        let hot = listed(&drained);
        for (reservation, hot) in new.reserve(&hot, |_, _, _| ()).into_iter().zip(&hot) {
            let version = new.version(hot.object.key);
            let reservation = reservation.expect("all objects fit");
            reservation.promote(Arc::new(hot.object.key.0), version);
        }
        assert_eq!(listed(&new.drain()), hot);
    }

    /// Method: half of the capacity, and one object that a request has stored before.
    #[test]
    fn the_most_valuable_objects_get_the_space_of_a_smaller_cache() {
        let hot = listed(&warm(PolicySpec::LRU, 4).drain());
        let new = HotCache::<u64>::new(HotConfig {
            policy: PolicySpec::LRU,
            ..HotConfig::new(ByteSize(CAPACITY / 2))
        });
        let first = hot[0].object.key;
        assert!(insert(&new, first.0, hot[0].object.size_bytes));
        let reservations = new.reserve(&hot, |_, _, _| ());
        assert!(reservations[0].is_none() && new.peek(first).is_some());
        let reserved = reservations.iter().filter(|it| it.is_some()).count();
        assert!(reserved > 20 && reserved < hot.len(), "{reserved}");
        let leading = reservations[1..]
            .iter()
            .take_while(|it| it.is_some())
            .count();
        assert!(leading * 10 > reserved * 9, "{leading} of {reserved}");
        assert!(new.stats().used_bytes <= CAPACITY / 2);
        drop(reservations);
        assert_eq!(new.stats().objects, 1);
    }

    /// Method: reserve an object, let a request store the object, change the key in another case, and then promote.
    #[test]
    fn a_reservation_never_replaces_a_newer_value() {
        let hot = [7, 8].map(|key| HotObject {
            object: edgeward_policy::Object {
                key: KeyHash(key),
                size_bytes: 1000,
            },
            was_hit: true,
        });
        let cache = cache(PolicySpec::LRU);
        let mut reservations = cache.reserve(&hot, |_, _, _| ());
        let version = cache.version(KeyHash(8));
        cache.purge(KeyHash(8), |_| true);
        let purged = reservations.pop().flatten().expect("reserved");
        assert_eq!(purged.promote(Arc::new(0), version), Commit::Outdated);
        assert!(insert(&cache, 7, 1000));
        let version = cache.version(KeyHash(7));
        let replaced = reservations.pop().flatten().expect("reserved");
        assert_eq!(replaced.promote(Arc::new(0), version), Commit::Outdated);
        assert_eq!(cache.peek(KeyHash(7)).as_deref(), Some(&7));
        assert!(cache.peek(KeyHash(8)).is_none());
        assert_eq!(cache.stats().objects, 1);
    }
}
