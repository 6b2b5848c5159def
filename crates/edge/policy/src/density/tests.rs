use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::objective::RoundedBenefit;

fn object(key: u64, size_bytes: u64) -> Object {
    Object {
        key: KeyHash(key),
        size_bytes,
    }
}

fn size_of_key(key: u64) -> u64 {
    1 + edgeward_types::mix64(key) % 40
}

/// Returns a benefit from 0.25 to 4.
fn benefit_of_key(key: u64) -> Benefit {
    Benefit::new((1 + edgeward_types::mix64(key ^ 1) % 16) as f64 / 4.0)
}

/// A tier and an index from key to slot. Together they answer requests, as a cache does.
struct Driver {
    tier: DensityTier,
    index: HashMap<u64, Slot>,
}

impl Driver {
    fn new(capacity_bytes: u64, admission: Admission) -> Self {
        Self {
            tier: DensityTier::new(capacity_bytes, admission, Seed(1)),
            index: HashMap::new(),
        }
    }

    fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        self.request_with_benefit(key, size_bytes, Benefit::ONE)
    }

    fn request_with_benefit(&mut self, key: u64, size_bytes: u64, benefit: Benefit) -> bool {
        if let Some(&slot) = self.index.get(&key) {
            self.tier.hit_recorder().hit(slot);
            return true;
        }
        let mut evicted = Vec::new();
        let offered = object(key, size_bytes);
        let verdict = self.tier.offer(&offered, benefit, &mut evicted);
        self.forget(&evicted);
        if let Verdict::Admit(slot) = verdict {
            self.index.insert(key, slot);
        }
        false
    }

    fn forget(&mut self, evicted: &[Evicted]) {
        for victim in evicted {
            assert_eq!(self.index.remove(&victim.object.key.0), Some(victim.slot));
        }
    }

    fn history(&self, key: u64) -> History {
        self.tier.entries.0[self.index[&key].index as usize].history
    }

    fn check(&self) {
        let tier = &self.tier;
        assert!(tier.used_bytes() <= tier.capacity_bytes());
        assert_eq!(tier.residents(), self.index.len());
        assert!(self.index.values().all(|&slot| tier.holds(slot)));
        let bytes = |slot: &Slot| tier.entries.0[slot.index as usize].object.size_bytes;
        assert_eq!(
            self.index.values().map(bytes).sum::<u64>(),
            tier.used_bytes()
        );
    }

    /// Returns the highest score that a victim may have, found by a search of all objects.
    ///
    /// This is the lowest score of the objects that are the oldest of their queues. If several objects of a queue have
    /// the highest age, the highest of their scores counts, because the search does not know their order.
    fn victim_score_max(&self) -> f32 {
        let tier = &self.tier;
        let mut oldest: HashMap<QueueId, (u32, f32)> = HashMap::new();
        for slot in self.index.values() {
            let entry = &tier.entries.0[slot.index as usize];
            let age = tier.now.offers_since(entry.history.last);
            let score = tier.entry_score(entry);
            let queue = entry.queue_to_join();
            assert_eq!(
                entry.queue,
                Some(queue),
                "an object is in the queue of its history"
            );
            let candidate = oldest.entry(queue).or_insert((age, score));
            if (age, score) > *candidate {
                *candidate = (age, score);
            }
        }
        let scores = oldest.values().map(|candidate| candidate.1);
        scores.fold(f32::INFINITY, f32::min)
    }
}

proptest! {
    /// The victim has the lowest score of all objects that are the oldest of their queue.
    ///
    /// Method: compare the victim with a search of all resident objects. The comparison is made only while each offer
    /// refreshes all queues, because all scores are then current.
    #[test]
    fn the_victim_has_the_lowest_score_of_a_search(
        keys in prop::collection::vec(0u64..60, 0..400),
        capacity in 40u64..600,
    ) {
        let mut driver = Driver::new(capacity, Admission::Always);
        for key in keys {
            driver.request_with_benefit(key, size_of_key(key), benefit_of_key(key));
            driver.check();
            if driver.tier.residents() > 0 && driver.tier.queues.occupied() <= CHECKS {
                driver.tier.process_hits();
                let (victim, score) = driver.tier.victim();
                prop_assert!(score <= driver.victim_score_max());
                let entry = driver.tier.entries.0[victim as usize];
                prop_assert_eq!(score, driver.tier.entry_score(&entry));
            }
        }
    }

    /// The budget holds and the counts agree for any sequence of offers, hits, removals and resizes.
    #[test]
    fn the_budget_is_never_exceeded(
        steps in prop::collection::vec((0u8..10, 0u64..60, 1u64..100), 0..500),
    ) {
        let mut driver = Driver::new(500, Admission::Exponential { c: 60.0 });
        for (step, key, number) in steps {
            match step {
                0..=7 => { driver.request_with_benefit(key, number, benefit_of_key(key)); }
                8 => if let Some(slot) = driver.index.remove(&key) {
                    prop_assert!(driver.tier.remove(slot));
                    prop_assert!(!driver.tier.remove(slot), "removed twice");
                },
                _ => {
                    let mut evicted = Vec::new();
                    driver.tier.resize(number * 10, &mut evicted);
                    driver.forget(&evicted);
                }
            }
            driver.check();
        }
    }
}

/// The measured exposure is the number of known objects, summed over all offers.
///
/// Method: a tier that holds all objects is offered a new one each time, until the first update reduces the sums.
#[test]
fn the_sweep_measures_how_long_objects_are_known() {
    let offers = 63;
    let mut driver = Driver::new(u64::MAX, Admission::Always);
    (0..offers).for_each(|key| _ = driver.request(key, 10));
    let expected = (0..offers).sum::<u64>() as f64;
    let measured = driver.tier.learner.exposure_sum();
    let error = (measured / expected - 1.0).abs();
    assert!(error < 0.1, "{measured} instead of {expected}");
}

/// A rejected object evicts nothing.
///
/// Method: ten small objects fill a tier, and five of them are requested again. The offered object needs the space of
/// six. Its score is between those of the two halves.
#[test]
fn a_rejected_object_evicts_nothing() {
    let mut driver = Driver::new(100, Admission::Always);
    (0..10).for_each(|key| _ = driver.request(key, 10));
    (10..1000).for_each(|key| _ = driver.request(key, 200));
    for _ in 0..3 {
        (0..5).for_each(|key| assert!(driver.request(key, 10), "{key} is resident"));
        driver.request(1000, 200);
    }
    let score = |key| driver.tier.score(driver.history(key), 10, Benefit::ONE);
    let first = History::first(driver.tier.now, RoundedBenefit::default());
    let newcomer = driver.tier.score(first, 60, Benefit::ONE);
    assert!(score(9) < newcomer && newcomer < score(0));
    driver.request(2000, 60);
    assert_eq!(driver.tier.residents(), 10);
}

/// Several hits between two offers count as one request.
#[test]
fn hits_between_two_offers_count_once() {
    let mut driver = Driver::new(100, Admission::Always);
    driver.request(1, 10);
    driver.request(2, 10);
    let once = driver.history(1).request(Time(driver.tier.now.0 + 1));
    for _ in 0..5 {
        assert!(driver.request(1, 10));
    }
    driver.request(3, 10);
    assert_eq!(driver.history(1), once);
}

/// An object that was removed and is offered again keeps its history.
#[test]
fn a_returning_object_is_not_new() {
    let mut driver = Driver::new(100, Admission::Always);
    driver.request(1, 100);
    assert!(
        driver
            .tier
            .remove(driver.index.remove(&1).expect("admitted"))
    );
    driver.request(1, 100);
    let history = driver.history(1);
    assert_eq!(
        history.class(),
        History::first(Time(0), RoundedBenefit::default())
            .request(Time(2))
            .class()
    );
}

/// An eviction finds hits that exceeded the list of pending hits.
///
/// Method: more objects than the list has entries are hit between two offers. The objects whose hits are not in the
/// list have the lowest scores. The eviction corrects these scores. The offered object then has the lowest score and is
/// rejected.
#[test]
fn hits_beyond_the_list_are_found_at_eviction() {
    let objects = PENDING_HITS_MAX as u64 + 100;
    let mut driver = Driver::new(objects, Admission::Always);
    (0..objects).for_each(|key| _ = driver.request(key, 1));
    (0..objects).for_each(|key| assert!(driver.request(key, 1)));
    driver.request(objects, 1);
    let first_class = History::first(Time(0), RoundedBenefit::default()).class();
    let mut new: Vec<u64> = driver.index.keys().copied().collect();
    new.retain(|&key| driver.history(key).class() == first_class);
    new.sort_unstable();
    // The hit on this object came before the next offer and therefore counts as part of its first request.
    assert_eq!(new, [objects - 1]);
}

/// Objects that are requested repeatedly replace objects that are requested once, even if these are smaller.
///
/// Method: 200 objects of 4 KiB are requested in turn, between objects of 1 KiB that are requested once. LRU and GDSF
/// prefer the objects of 1 KiB, because these are newer and smaller.
#[test]
fn the_tier_learns_which_objects_return() {
    let mut driver = Driver::new(210 * 4096, Admission::Always);
    let mut hits = [0u32; 2];
    for round in 0..400u64 {
        for key in 0..200 {
            let hit = driver.request(key, 4096);
            hits[usize::from(round >= 200)] += u32::from(hit);
            for n in 0..8 {
                driver.request(1_000_000 + (round * 200 + key) * 8 + n, 1024);
            }
        }
    }
    assert!(hits[1] > 200 * 200 * 9 / 10, "{hits:?} of 40 000 each");
}

/// If two objects have the same size and similar requests, the object with the lower benefit is evicted first, even if
/// it was requested later.
#[test]
fn an_object_with_a_lower_benefit_is_evicted_first() {
    for (benefit, victim) in [(1.0, 1), (4.0, 1), (0.25, 2)] {
        let mut driver = Driver::new(100, Admission::Always);
        driver.request(1, 50);
        driver.request_with_benefit(2, 50, Benefit::new(benefit));
        let mut evicted = Vec::new();
        driver.tier.resize(50, &mut evicted);
        assert_eq!(evicted[0].object.key, KeyHash(victim), "{benefit}");
    }
}

/// A rejected object evicts nothing, and the next victim is the same as before.
///
/// Method: three objects are worth less per byte than the offered object, two are worth more. It needs the space of
/// four.
#[test]
fn an_object_that_one_victim_outranks_evicts_none() {
    let mut driver = Driver::new(100, Admission::Always);
    for (key, benefit) in [(1, 0.5), (2, 0.5), (3, 0.5), (4, 8.0), (5, 8.0)] {
        driver.request_with_benefit(key, 20, Benefit::new(benefit));
    }
    let mut evicted = Vec::new();
    let verdict = driver
        .tier
        .offer(&object(6, 80), Benefit::new(8.0), &mut evicted);
    assert_eq!(verdict, Verdict::Reject(RejectReason::LowRank));
    assert!(evicted.is_empty());
    driver.check();
    driver.tier.resize(40, &mut evicted);
    let keys: Vec<u64> = evicted.iter().map(|victim| victim.object.key.0).collect();
    assert_eq!(keys, [1, 2, 3]);
}

#[test]
fn was_hit_is_true_for_a_hit_right_after_the_admission() {
    let mut driver = Driver::new(100, Admission::Always);
    driver.request(1, 50);
    driver.request(1, 50);
    driver.request(2, 50);
    let mut evicted = Vec::new();
    driver.tier.resize(0, &mut evicted);
    let was_hit: HashMap<u64, bool> = evicted
        .iter()
        .map(|victim| (victim.object.key.0, victim.was_hit))
        .collect();
    assert_eq!(was_hit, HashMap::from([(1, true), (2, false)]));
}

#[test]
fn equal_seeds_give_equal_digests() {
    let run = |seed| {
        let mut tier = DensityTier::new(2000, Admission::Exponential { c: 30.0 }, Seed(seed));
        let mut evicted = Vec::new();
        for n in 0..5000u64 {
            let key = edgeward_types::mix64(n) % 300;
            tier.offer(&object(n, size_of_key(key)), Benefit::ONE, &mut evicted);
        }
        tier.digest()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
