//! Tests that a tier has the same hits and evictions as simple reference implementations of its policies.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::eviction::{Gds, Gdsf, GdsfGhosts, GdsfPlain, LfuDa, Size};
use crate::test_driver::{Driver, object, size_of_key};

/// Compares a tier with a table of all residents that is sorted at each miss.
///
/// `value` computes an object's rank minus the inflation, from its number of requests and its benefit per byte. The
/// inflation is the highest rank of a victim so far; a rejection may raise it further. With `bypass`, the policy may
/// reject an object. If the ranking keeps the number of requests of evicted objects, the table does so too, in
/// [`Ghosts`], which have a test of their own.
///
/// Objects of equal rank are evicted in the order of their slots, so the table reads the slots of the tier.
fn compare_greedy_dual<R: Ranking>(
    keys: &[u64],
    capacity: u64,
    bypass: bool,
    benefit: fn(u64) -> f64,
    value: fn(f64, f64) -> f64,
) {
    let mut ours = Driver::new(RankedTier::<R>::new(capacity, Admission::Always, Seed(1)));
    // Maps a key to its rank `h` and its number of requests `f`.
    let mut table: BTreeMap<u64, (f64, u32)> = BTreeMap::new();
    let mut inflation = 0f64;
    let mut ghosts: Ghosts<u32> = Ghosts::default();
    for &key in keys {
        let size = size_of_key(key);
        let benefit = Benefit::new(benefit(key));
        // The benefit per byte, rounded as in the tier.
        let per_byte = f64::from((f64::from(benefit.value()) / size as f64) as f32);
        let slots = ours.index.clone();
        let hit = ours.request_with_benefit(key, size, benefit);
        assert_eq!(hit, table.contains_key(&key));
        if let Some((h, f)) = table.get_mut(&key) {
            *f += 1;
            *h = inflation + value(f64::from(*f), per_byte);
            continue;
        }
        let requests = ghosts.take(KeyHash(key)).unwrap_or(0) + 1;
        // With `bypass`, the object is rejected if a victim has a rank above `rank_max`. This is the object's own rank,
        // computed with at least four requests.
        let rank_max = inflation + value(f64::from(requests.max(4)), per_byte);
        let mut used: u64 = table.keys().map(|&key| size_of_key(key)).sum();
        let mut order: VecDeque<(f64, u64)> =
            table.iter().map(|(&key, &(h, _))| (h, key)).collect();
        order.make_contiguous().sort_by(|a, b| {
            (a.0, slots[&a.1].index)
                .partial_cmp(&(b.0, slots[&b.1].index))
                .expect("no rank is NaN")
        });
        let mut admitted = true;
        while admitted && used + size > capacity {
            // The victims of a complete batch are evicted, even if the object is rejected at a later batch.
            let mut batch = Vec::new();
            while admitted && used + size > capacity && batch.len() < BATCH_VICTIMS {
                let victim = order
                    .pop_front()
                    .expect("the object fits into an empty tier");
                used -= size_of_key(victim.1);
                admitted = !bypass || victim.0 <= rank_max;
                batch.push(victim);
            }
            if admitted {
                for (h, victim) in batch {
                    inflation = inflation.max(h);
                    let (_, requests) = table.remove(&victim).expect("it was resident");
                    ghosts.insert(KeyHash(victim), requests);
                }
            } else {
                inflation = inflation.max(rank_max);
            }
        }
        if admitted {
            table.insert(
                key,
                (inflation + value(f64::from(requests), per_byte), requests),
            );
            if R::KEEPS_REQUESTS {
                ghosts.grow_to(2 * table.len());
            }
        } else {
            ghosts.insert(KeyHash(key), requests);
        }
        assert!(
            table.keys().eq(ours.index.keys().collect::<BTreeSet<_>>()),
            "other residents after key {key}"
        );
    }
}

/// Compares a tier with a list of `(key, size, slot index)` in order of admission. `victim` returns the position of
/// the object to evict.
fn compare_list<R: Ranking>(
    keys: &[u64],
    capacity: u64,
    victim: impl Fn(&[(u64, u64, u32)]) -> usize,
) {
    let mut ours = Driver::new(RankedTier::<R>::new(capacity, Admission::Always, Seed(1)));
    let mut list: Vec<(u64, u64, u32)> = Vec::new();
    for &key in keys {
        let size = size_of_key(key);
        let hit = list.iter().any(|entry| entry.0 == key);
        assert_eq!(ours.request(key, size), hit);
        if hit {
            continue;
        }
        while list.iter().map(|entry| entry.1).sum::<u64>() + size > capacity {
            list.remove(victim(&list));
        }
        list.push((key, size, ours.index[&key].index));
    }
}

proptest! {
    /// Each published policy of the GreedyDual family evicts the object with the lowest rank in a complete table. The
    /// rank is `L + value`, where `L` is the inflation at the object's last request.
    #[test]
    fn the_greedy_dual_family_equals_a_search_for_the_lowest_rank(
        keys in prop::collection::vec(0u64..40, 0..300),
        capacity in 40u64..300,
    ) {
        for benefit in [|_| 1.0, benefit_of_key] {
            compare_greedy_dual::<GdsfPlain>(&keys, capacity, false, benefit, |f, per_byte| f * per_byte);
            compare_greedy_dual::<Gds>(&keys, capacity, false, benefit, |_, per_byte| per_byte);
            compare_greedy_dual::<LfuDa>(&keys, capacity, false, benefit, |f, _| f);
        }
    }

    /// GDSF with bypass evicts the objects of the lowest rank `L + f·b/s`: inflation, number of requests, benefit and
    /// size. It rejects a new object if one of its victims has a rank above `L + max(f, 4)·b/s`.
    #[test]
    fn gdsf_equals_a_search_for_the_lowest_rank_with_rejection(
        keys in prop::collection::vec(0u64..80, 0..400),
        capacity in 40u64..600,
    ) {
        for benefit in [|_| 1.0, benefit_of_key] {
            compare_greedy_dual::<Gdsf>(&keys, capacity, true, benefit, |f, per_byte| f * per_byte);
            compare_greedy_dual::<GdsfGhosts>(&keys, capacity, true, benefit, |f, per_byte| f * per_byte);
        }
    }

    /// If the benefit of a hit is the object's size, GDSF evicts the objects with the fewest requests, as LFU-DA does.
    #[test]
    fn gdsf_for_bytes_equals_lfu_da(
        keys in prop::collection::vec(0u64..40, 0..300),
        capacity in 40u64..300,
    ) {
        let mut gdsf = Driver::new(RankedTier::<GdsfPlain>::new(capacity, Admission::Always, Seed(1)));
        let mut lfu_da = Driver::new(RankedTier::<LfuDa>::new(capacity, Admission::Always, Seed(1)));
        for key in keys {
            let size = size_of_key(key);
            let hit = gdsf.request_with_benefit(key, size, Benefit::new(size as f64));
            prop_assert_eq!(hit, lfu_da.request(key, size));
        }
        prop_assert_eq!(gdsf.tier.digest(), lfu_da.tier.digest());
    }

    /// SIZE evicts the largest object.
    #[test]
    fn size_equals_a_search_of_a_list(
        keys in prop::collection::vec(0u64..40, 0..400),
        capacity in 40u64..300,
    ) {
        compare_list::<Size>(&keys, capacity, |list| {
            let largest = list.iter().max_by_key(|entry| (entry.1, Reverse(entry.2)));
            let largest = largest.expect("an object is resident");
            list.iter().position(|entry| entry == largest).expect("it is in the list")
        });
    }

    /// Any sequence of offers, hits, removals and resizes keeps the tier within its budget and its counts correct.
    #[test]
    fn the_budget_is_never_exceeded(
        steps in prop::collection::vec((0u8..10, 0u64..60, 1u64..100), 0..500),
    ) {
        exercise::<Gdsf>(&steps);
        exercise::<GdsfGhosts>(&steps);
    }
}

/// Returns a benefit from 0.25 to 4.
fn benefit_of_key(key: u64) -> f64 {
    (1 + edgeward_types::mix64(key) % 16) as f64 / 4.0
}

fn exercise<R: Ranking>(steps: &[(u8, u64, u64)]) {
    let tier = RankedTier::<R>::new(500, Admission::Exponential { c: 60.0 }, Seed(1));
    let mut driver = Driver::new(tier);
    for &(step, key, number) in steps {
        driver.step(step, key, number);
    }
}

/// With ghosts, an evicted object that is stored again keeps its number of requests. Without ghosts, it starts at one.
///
/// Method: an object with four requests is evicted and stored again. Then two objects of its size are offered once.
/// With ghosts, the first object is still resident.
#[test]
fn a_ghost_keeps_the_number_of_requests() {
    fn survives<R: Ranking>() -> bool {
        let mut driver = Driver::new(RankedTier::<R>::new(100, Admission::Always, Seed(1)));
        for key in [1, 1, 1, 1, 2] {
            driver.request(key, 50);
        }
        let mut evicted = Vec::new();
        driver.tier.resize(0, &mut evicted);
        driver.index.clear();
        driver.tier.resize(100, &mut evicted);
        for key in [1, 3, 4] {
            driver.request(key, 50);
        }
        driver.index.contains_key(&1)
    }
    assert!(survives::<GdsfGhosts>());
    assert!(!survives::<Gdsf>());
}

#[test]
fn an_object_larger_than_the_tier_is_refused_and_evicts_nothing() {
    let mut driver = Driver::new(RankedTier::<Size>::new(100, Admission::Always, Seed(1)));
    driver.request(1, 100);
    driver.request(2, 101);
    assert!(driver.request(1, 100));
    let mut evicted = Vec::new();
    assert_eq!(
        driver
            .tier
            .offer(&object(2, 101), Benefit::ONE, &mut evicted),
        Verdict::Reject(RejectReason::LargerThanTier)
    );
    assert!(evicted.is_empty());
}

/// An object of `s` bytes is rejected while one of its victims has a rank above `L + 4/s`. Each rejection raises the
/// inflation `L` to this limit.
#[test]
fn a_rejected_object_evicts_nothing_and_ages_the_residents() {
    let mut driver = Driver::new(RankedTier::<Gdsf>::new(100, Admission::Always, Seed(1)));
    driver.request(1, 50);
    driver.request(2, 50);
    for _ in 0..4 {
        assert!(driver.request(1, 50));
    }
    let offer = |driver: &mut Driver<RankedTier<Gdsf>>| {
        let mut evicted = Vec::new();
        (
            driver
                .tier
                .offer(&object(3, 100), Benefit::ONE, &mut evicted),
            evicted.len(),
        )
    };
    // The ranks of the residents are 5/50 and 1/50. Each rejection of the object of 100 bytes raises `L` by 4/100.
    for _ in 0..2 {
        assert_eq!(
            offer(&mut driver),
            (Verdict::Reject(RejectReason::LowRank), 0)
        );
    }
    let (verdict, evicted) = offer(&mut driver);
    assert!(matches!(verdict, Verdict::Admit(_)), "{verdict:?}");
    assert_eq!(evicted, 2);
}

#[test]
fn a_reused_slot_does_not_match_its_earlier_use() {
    let mut tier = RankedTier::<Size>::new(10, Admission::Always, Seed(1));
    let mut evicted = Vec::new();
    let Verdict::Admit(first) = tier.offer(&object(1, 10), Benefit::ONE, &mut evicted) else {
        panic!("the object fits");
    };
    let Verdict::Admit(second) = tier.offer(&object(2, 10), Benefit::ONE, &mut evicted) else {
        panic!("the object fits");
    };
    assert_eq!(first.index, second.index, "the slot is reused");
    assert!(!tier.holds(first));
    assert!(!tier.remove(first));
    assert!(tier.holds(second));
}

#[test]
fn removed_objects_leave_the_queue() {
    let mut tier = RankedTier::<Size>::new(u64::MAX, Admission::Always, Seed(1));
    let mut evicted = Vec::new();
    for key in 0..100_000 {
        let Verdict::Admit(slot) = tier.offer(&object(key, 1), Benefit::ONE, &mut evicted) else {
            panic!("the object fits");
        };
        assert!(tier.remove(slot));
    }
    assert!(
        tier.entries.len() <= SWEEP_OBJECTS_MIN + 2,
        "{}",
        tier.entries.len()
    );
}

/// The digest combines all decisions. It identifies an object by its size or by the number of its offer, not by its
/// key. A different seed changes random admissions, and therefore the digest.
#[test]
fn the_digest_does_not_depend_on_key_hashes() {
    let run = |scatter: fn(u64) -> u64, seed| {
        let mut tier =
            RankedTier::<Size>::new(2000, Admission::Exponential { c: 30.0 }, Seed(seed));
        let mut evicted = Vec::new();
        for n in 0..1000u64 {
            let key = edgeward_types::mix64(n) % 300;
            tier.offer(
                &object(scatter(key), size_of_key(key)),
                Benefit::ONE,
                &mut evicted,
            );
        }
        tier.digest()
    };
    assert_eq!(run(|key| key, 1), run(edgeward_types::mix64, 1));
    assert_ne!(run(|key| key, 1), run(|key| key, 2));
}
