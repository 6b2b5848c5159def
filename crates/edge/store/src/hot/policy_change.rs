//! Replaces the policy while the cache serves.
//!
//! The objects move from the tier of the previous policy to a new tier in slices. A slice takes the objects that the
//! previous tier would evict first, so the order of the objects is preserved: the most useful object is adopted last.
//! Between slices the lock of the tiers is free. Hits never wait for this lock. New objects are offered to the new
//! tier.
//!
//! At every moment both tiers together have at most the budget. An object that moves frees exactly the bytes that it
//! takes in the new tier. Objects are lost only for two reasons: newly offered objects need their space, or the budget
//! becomes smaller, because readers pin bytes or because the new policy needs more bookkeeping.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use edgeward_policy::{Evicted, EvictionSpec, Objective, PolicySpec};

use super::cache::HotCache;
use super::shared::{Shared, report_evicted};
use super::tiers::Tiers;
use super::tuning::Tuning;
use crate::versions::Version;

/// The result of [`HotCache::change_policy`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyChange {
    /// The previous policy.
    pub before: PolicySpec,
    /// The number of objects that moved to the tier of the new policy.
    pub kept_objects: u64,
    /// The number of objects that the tier of the new policy did not take.
    pub lost_objects: u64,
}

/// The reason why a policy was not changed.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum PolicyChangeError {
    /// The previous or the new policy never evicts an object, so the cache has no budget.
    NoBudget,
    /// The new policy does not follow the objective.
    IgnoresObjective(PolicySpec, Objective),
}

impl fmt::Display for PolicyChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBudget => f.write_str(
                "`infinite` has no budget, so it cannot be changed to or from while the cache serves",
            ),
            Self::IgnoresObjective(policy, objective) => write!(
                f,
                "the policy `{policy}` does not follow the objective `{objective}`; \
                 use density, gds or a form of gdsf"
            ),
        }
    }
}

impl std::error::Error for PolicyChangeError {}

impl<V: Send + Sync + 'static> HotCache<V> {
    /// Replaces the policy and keeps the objects. Returns after all objects have moved. A second change waits for the
    /// first.
    ///
    /// Calls `on_evicted` as [`offer_with`](Self::offer_with) does, for objects that are evicted by the change.
    pub fn change_policy(
        &self,
        policy: PolicySpec,
        mut on_evicted: impl FnMut(&Evicted, Version, Arc<V>),
    ) -> Result<PolicyChange, PolicyChangeError> {
        let shared = &self.shared;
        let _one_at_a_time = self.policy_change.lock();
        let before = shared.tier.lock().policy();
        if [before, policy]
            .iter()
            .any(|it| it.eviction == EvictionSpec::Never)
        {
            return Err(PolicyChangeError::NoBudget);
        }
        let objective = shared.benefits.objective();
        if objective != Objective::Requests && !policy.weighs_benefits() {
            return Err(PolicyChangeError::IgnoresObjective(policy, objective));
        }
        // The old tuner must not set a parameter of the new policy.
        self.tuning.replace(None);
        let capacity_bytes = shared.capacity_bytes.load(Relaxed);
        let tier = policy.tier(capacity_bytes, self.seed);
        let recorder = tier.hit_recorder();
        let mut tiers = shared.tier.lock();
        tiers.begin_change(policy, tier);
        shared.index.set_recorder(tiers.mark(), &recorder);
        drop(tiers);
        let mut outcome = MovedObjects::default();
        loop {
            let (mut evicted, mut removed) = (Vec::new(), Vec::new());
            let mut tiers = shared.tier.lock();
            outcome.add(shared.move_objects(&mut tiers, &mut evicted));
            let previous = tiers.end_change();
            if previous.is_some() {
                shared.adjust_capacity(&mut tiers, &mut evicted);
            }
            shared.unlink(&evicted, &mut removed);
            drop(tiers);
            report_evicted(&mut evicted, &mut removed, &mut on_evicted);
            if previous.is_some() {
                break;
            }
            // Without a pause, this thread could take the lock again before a waiting thread has woken up.
            thread::sleep(SLICE_PAUSE);
        }
        let tuner = policy.tuner(capacity_bytes, self.window_requests);
        self.tuning
            .replace(tuner.map(|tuner| Tuning::start(tuner, self.tuner_mode, Arc::clone(shared))));
        shared.counters.policy_changes.fetch_add(1, Relaxed);
        Ok(PolicyChange {
            before,
            kept_objects: outcome.kept,
            lost_objects: outcome.lost,
        })
    }

    /// Returns the current policy.
    pub fn policy(&self) -> PolicySpec {
        self.shared.tier.lock().policy()
    }
}

/// The numbers of objects that a change, or one slice of it, kept and lost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MovedObjects {
    kept: u64,
    lost: u64,
}

impl MovedObjects {
    fn add(&mut self, other: Self) {
        self.kept += other.kept;
        self.lost += other.lost;
    }
}

impl<V> Shared<V> {
    /// Moves a slice of objects from the previous tier to the current one. Adds lost objects to `evicted`.
    pub(super) fn move_objects(
        &self,
        tiers: &mut Tiers,
        evicted: &mut Vec<Evicted>,
    ) -> MovedObjects {
        let taken = tiers.take_previous(SLICE_OBJECTS);
        self.adjust_capacity(tiers, evicted);
        let mut outcome = MovedObjects::default();
        for object in taken {
            let benefit = self.benefits.of(object.object.size_bytes, None);
            match tiers.adopt(&object.object, object.was_hit, benefit, evicted) {
                Some(slot) => {
                    outcome.kept += 1;
                    if !self.index.relocate(object.object.key, object.slot, slot) {
                        tiers.record_moved_fill(object.slot, slot);
                    }
                }
                None => {
                    outcome.lost += 1;
                    evicted.push(object);
                }
            }
        }
        let counters = &self.counters;
        counters.policy_kept.fetch_add(outcome.kept, Relaxed);
        counters.policy_lost.fetch_add(outcome.lost, Relaxed);
        outcome
    }

    /// Moves objects until the current tier has the capacity for `charge_bytes`, or until all objects have moved.
    pub(super) fn move_until_capacity(
        &self,
        tiers: &mut Tiers,
        charge_bytes: u64,
        evicted: &mut Vec<Evicted>,
    ) {
        while tiers.is_changing() && tiers.capacity_bytes() < charge_bytes {
            let moved = self.move_objects(tiers, evicted);
            if moved.kept + moved.lost == 0 {
                break;
            }
        }
    }
}

/// The number of objects that move each time the lock is held. A miss usually waits for one slice at most.
pub(super) const SLICE_OBJECTS: usize = 256;

/// The pause between two slices.
const SLICE_PAUSE: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests;
