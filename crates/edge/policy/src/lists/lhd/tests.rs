use proptest::prelude::*;

use super::*;
use crate::Admission;
use crate::lists::ListTier;
use crate::test_driver::{Driver, size_of_key};
use crate::tier::Tier;

/// Parameters for short tests: densities are computed every 64 requests, evictions compare all objects, and the ages
/// are few.
const SMALL: Parameters = Parameters {
    reconfiguration_requests: 64,
    ages: 200,
    samples: [1000, 1000],
    requests_per_explorer: 8,
};

fn small_tier(capacity_bytes: u64) -> ListTier<Lhd> {
    let mut tier = ListTier::<Lhd>::new(capacity_bytes, Admission::Always, Seed(1));
    tier.order = Lhd::with_parameters(SMALL, capacity_bytes, Seed(1));
    tier.order.age_shift = 0;
    tier
}

/// Returns the density by its definition: the hits from `age` on, divided by the sum of the times from `age` to each
/// hit or eviction.
fn expected_density(class: &Class, age: usize) -> f64 {
    let from = |counts: &[f32], weight: fn(usize) -> f64| {
        let counts = counts[age..].iter().enumerate();
        counts
            .map(|(after, &count)| f64::from(count) * weight(after))
            .sum::<f64>()
    };
    let time = |after: usize| after as f64 + 1.0;
    let hits = from(&class.hits, |_| 1.0);
    match from(&class.hits, time) + from(&class.evictions, time) {
        0.0 => 0.0,
        time => hits / time,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The densities equal those of the definition.
    #[test]
    fn densities_are_hits_per_time_in_the_cache(
        counts in prop::collection::vec((0u8..4, 0u8..4), 1..40),
    ) {
        let mut class = Class::new(0, counts.len());
        for (age, &(hits, evictions)) in counts.iter().enumerate() {
            class.hits[age] = f32::from(hits);
            class.evictions[age] = f32::from(evictions);
        }
        class.model();
        for age in 0..counts.len() {
            let expected = expected_density(&class, age);
            prop_assert!((f64::from(class.densities[age]) - expected).abs() < 1e-6 * (1.0 + expected));
        }
    }

    /// The victim has the lowest density of all residents, and each hit and eviction is counted once.
    ///
    /// Method: each eviction compares all objects. Counts lose weight only when densities are computed.
    #[test]
    fn the_victim_has_the_lowest_density_of_a_search(
        keys in prop::collection::vec(0u64..60, 0..400),
        capacity in 40u64..600,
    ) {
        let mut driver = Driver::new(small_tier(capacity));
        let mut expected_events = 0.0;
        for key in keys {
            let order = &driver.tier.order;
            let now = order.now;
            let residents = driver.tier.residents();
            let is_hit = driver.request(key, size_of_key(key));
            if is_hit {
                // Hits are processed now, so that the state before the next eviction is known.
                driver.tier.process_hits();
                expected_events += 1.0;
            } else {
                expected_events += (residents + 1 - driver.tier.residents()) as f64;
            }
            let order = &mut driver.tier.order;
            prop_assert_eq!(order.now, now + 1);
            if order.now.is_multiple_of(SMALL.reconfiguration_requests) {
                expected_events *= DECAY;
            }
            let counts = order.classes.iter().flat_map(|class| class.hits.iter().chain(&class.evictions));
            let events: f64 = counts.map(|&count| f64::from(count)).sum();
            prop_assert!((events - expected_events).abs() < 1e-3 * (1.0 + expected_events));
            let density = |index| driver.tier.order.density(index);
            let lowest = driver.index.values().map(|slot| density(slot.index)).fold(f64::INFINITY, f64::min);
            let hits = std::sync::Arc::clone(&driver.tier.hits);
            if let Some(victim) = driver.tier.order.victim(None, &hits) {
                prop_assert_eq!(driver.tier.order.density(victim), lowest);
            }
        }
    }

    /// A change of the unit of ages keeps the sum of the counts.
    #[test]
    fn rescaled_counts_keep_their_sum(
        counts in prop::collection::vec(0u8..100, 2..60),
        old_shift in 0u32..6,
        new_shift in 0u32..6,
    ) {
        let mut counts: Vec<f32> = counts.into_iter().map(f32::from).collect();
        let before: f32 = counts.iter().sum();
        rescale(&mut counts, old_shift, new_shift);
        let after: f32 = counts.iter().sum();
        prop_assert!((before - after).abs() <= 1e-4 * (1.0 + before));
    }
}

/// Objects that are requested again and again replace objects that are requested once.
///
/// Method: ten objects are requested in turn, between objects of equal size that are requested once. LRU has no
/// hit.
#[test]
fn the_order_learns_which_objects_return() {
    let mut driver = Driver::new(small_tier(2000));
    let mut hits = [0u32; 2];
    for round in 0..400u64 {
        for key in 0..10 {
            hits[usize::from(round >= 200)] += u32::from(driver.request(key, 100));
            for n in 0..4 {
                driver.request(1_000 + (round * 10 + key) * 4 + n, 100);
            }
        }
    }
    assert!(hits[1] > 2000 * 3 / 10, "{hits:?} of 2000 each");
}

/// Explorers take at most one percent of the capacity, and their bytes are available again when they end.
#[test]
fn explorers_take_a_small_part_of_the_capacity() {
    let mut driver = Driver::new(small_tier(10_000));
    let mut explored = 0;
    for n in 0..5_000u64 {
        driver.request(edgeward_types::mix64(n) % 2_000, 10);
        let order = &driver.tier.order;
        let residents = driver
            .index
            .values()
            .map(|slot| &order.states[slot.index as usize]);
        let explorers = residents.filter(|state| state.is_explorer).count();
        assert!(explorers <= 10, "{explorers}");
        assert_eq!(order.explorer_bytes_left, 100 - 10 * explorers as i64);
        explored = explored.max(explorers);
    }
    assert_eq!(explored, 10);
}
