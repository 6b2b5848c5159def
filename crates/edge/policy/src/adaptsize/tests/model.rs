//! Compares the models of AdaptSize with the Markov chain of the paper (figure 8), with a naive implementation of its
//! Theorem 1, and with a simulated cache.

use edgeward_types::{KeyHash, Seed};
use proptest::prelude::*;

use crate::Object;
use crate::adaptsize::model::stationary;
use crate::adaptsize::{BINS_PER_OCTAVE, ObjectRate, Population, forecast_window};

use super::oracle::{self, ListCache, ModelObject, figure_8, zipf_requests};

/// The closed form of Theorem 1 is the limit of the chain of figure 8.
///
/// Method: iterate the chain with 150 list positions. The closed form holds for infinitely many positions. With 150,
/// the odds that the object is resident differ from the closed form by about the share (rT)²/(2·150).
#[test]
fn the_closed_form_is_the_long_run_of_the_chain() {
    for (rate, admitted, lifetime) in [
        (1.0_f64, 1.0, 1.0),
        (1.0, 0.1, 1.0),
        (0.2, 0.5, 2.0),
        (3.0, 0.01, 1.0),
        (2.0, 0.9, 0.05),
        (5.0, 0.003, 0.5),
    ] {
        let chain = figure_8(rate, admitted, lifetime, 150);
        let closed = stationary((-rate * lifetime).exp(), admitted);
        assert!(
            (chain - closed).abs() < 0.01,
            "r {rate}, p {admitted}, T {lifetime}: chain {chain}, closed form {closed}"
        );
    }
}

#[test]
fn the_closed_form_does_not_overflow() {
    assert_eq!(stationary((-1e9_f64).exp(), 1e-3), 1.0);
    assert_eq!(stationary(1.0, 1.0), 0.0);
    assert_eq!(stationary(0.5, 0.0), 0.0);
    // The first argument is `q = e^(-rT)`. If `q` is 0, the object is always requested within its lifetime, but it is
    // never admitted, so it is not resident.
    assert_eq!(stationary(0.0, 0.0), 0.0);
}

fn population(objects: &[ModelObject], capacity: f64, bins_per_octave: u32) -> Population {
    let rates = objects.iter().map(|object| ObjectRate {
        rate: object.rate,
        size_bytes: object.size,
    });
    Population::new(rates, capacity, bins_per_octave)
}

prop_compose! {
    fn objects()(list in prop::collection::vec((-3.0..9.0_f64, 3.0..24.0_f64), 2..60)) -> Vec<ModelObject> {
        list.into_iter().map(|(rate, size)| ModelObject { rate: rate.exp2(), size: size.exp2() }).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// With 1024 bins per octave, the solver agrees with the oracle, which bisects the naive formula.
    #[test]
    fn the_solver_agrees_with_brute_force(objects in objects(), share in 0.02..0.9_f64, log2_c in 16.0..26.0_f64) {
        let capacity = share * objects.iter().map(|object| object.size).sum::<f64>();
        let c = log2_c.exp2();
        let solver = population(&objects, capacity, 1 << 10).solve(c, capacity).object_hit_ratio;
        let oracle_ratio = oracle::hit_ratio(&objects, c, capacity);
        prop_assert!((solver - oracle_ratio).abs() < 0.005, "{solver} against {oracle_ratio}");
    }

    /// Bins of 1/8 octave have a small error even if a few objects determine the result.
    ///
    /// c is at least 1/256 of the size of each object, so the admission probability is at least e^-256.
    /// Probabilities below e^-745 would be zero in floating point.
    #[test]
    fn coarse_bins_hardly_change_the_hit_ratio(objects in objects(), share in 0.02..0.9_f64, log2_c in 16.0..26.0_f64) {
        let capacity = share * objects.iter().map(|object| object.size).sum::<f64>();
        let c = log2_c.exp2();
        let exact = population(&objects, capacity, 1 << 10).solve(c, capacity).object_hit_ratio;
        let coarse = population(&objects, capacity, BINS_PER_OCTAVE).solve(c, capacity).object_hit_ratio;
        prop_assert!((exact - coarse).abs() < 0.03, "{exact} against {coarse}");
    }
}

#[test]
fn objects_that_all_fit_are_always_hit_in_the_long_run() {
    let objects = [
        ModelObject {
            rate: 3.0,
            size: 100.0,
        },
        ModelObject {
            rate: 0.5,
            size: 900.0,
        },
    ];
    let solution = population(&objects, 1001.0, BINS_PER_OCTAVE).solve(f64::INFINITY, 1001.0);
    assert_eq!(solution.lifetime_windows, f64::INFINITY);
    assert_eq!(solution.object_hit_ratio, 1.0);
}

#[test]
fn an_object_larger_than_the_cache_only_misses() {
    let objects = [
        ModelObject {
            rate: 1.0,
            size: 10.0,
        },
        ModelObject {
            rate: 3.0,
            size: 5000.0,
        },
    ];
    let solution = population(&objects, 1000.0, BINS_PER_OCTAVE).solve(f64::INFINITY, 1000.0);
    assert_eq!(solution.object_hit_ratio, 0.25);
}

#[test]
fn a_smaller_c_takes_longer_to_fill_the_cache() {
    let objects = [
        ModelObject {
            rate: 2.0,
            size: 1000.0,
        },
        ModelObject {
            rate: 1.0,
            size: 1000.0,
        },
    ];
    let population = population(&objects, 3000.0, BINS_PER_OCTAVE);
    // The requests of one window have 3000 bytes. They fill the cache of 3000 bytes in one window if every object is
    // admitted, and in e windows at c = 1000.
    assert!((population.fill_windows(f64::INFINITY, 3000.0) - 1.0).abs() < 1e-12);
    assert!((population.fill_windows(1000.0, 3000.0) - 1f64.exp()).abs() < 1e-12);
}

/// The long run of the model equals the long run of a cache under independent requests.
///
/// Method: independent Zipf requests, an LRU list with admission, 40 000 requests of warm-up and 40 000
/// counted.
#[test]
fn the_stationary_curve_matches_a_simulated_cache_under_independent_requests() {
    let seed = Seed(11);
    let requests = zipf_requests(400, 80_000, 6.0, seed);
    let capacity = 600_000;
    let mut rates = vec![(0.0, 0.0); 400];
    for &(key, size) in &requests {
        rates[key as usize].0 += 1.0;
        rates[key as usize].1 = size as f64;
    }
    let objects: Vec<ModelObject> = rates
        .iter()
        .map(|&(rate, size)| ModelObject { rate, size })
        .collect();
    let mut population = population(&objects, capacity as f64, BINS_PER_OCTAVE);
    for c in [8e3, 32e3, 128e3, f64::INFINITY] {
        let mut cache = ListCache::new(capacity, c, seed);
        let hits = requests
            .iter()
            .enumerate()
            .filter(|&(at, &(key, size))| cache.request(key, size) && at >= 40_000)
            .count();
        let simulated = hits as f64 / 40_000.0;
        let predicted = population.solve(c, capacity as f64).object_hit_ratio;
        assert!(
            (simulated - predicted).abs() < 0.02,
            "c {c}: simulated {simulated}, predicted {predicted}, {seed}"
        );
    }
}

/// The finite-horizon model predicts the hit ratio of one window, from a cold and from a warm cache.
///
/// Method: the predicted curve of a window, compared with an LRU list with the same requests. The list is empty
/// at the start, or has processed 20 000 earlier requests.
#[test]
fn the_horizon_curve_matches_a_simulated_window_from_cold_and_from_warm() {
    let seed = Seed(12);
    let all = zipf_requests(3_000, 40_000, 8.0, seed);
    let (before, window) = all.split_at(20_000);
    let objects: Vec<Object> = window
        .iter()
        .map(|&(key, size_bytes)| Object {
            key: KeyHash(key),
            size_bytes,
        })
        .collect();
    let capacity = 8_000_000;
    for warm in [false, true] {
        for c in [4e3, 16e3, 64e3, 256e3, f64::INFINITY] {
            let mut cache = ListCache::new(capacity, c, seed);
            if warm {
                for &(key, size) in before {
                    cache.request(key, size);
                }
            }
            let requested: std::collections::BTreeMap<u64, u64> = window.iter().copied().collect();
            // The bytes of resident objects that the window does not request.
            let idle_bytes = cache.bytes()
                - requested
                    .iter()
                    .filter(|&(&key, _)| cache.holds(key))
                    .map(|(_, size)| size)
                    .sum::<u64>();
            let predicted =
                forecast_window(&objects, capacity, &|key| cache.holds(key.0), idle_bytes)
                    .solve(c)
                    .object_hit_ratio;
            let hits = window
                .iter()
                .filter(|&&(key, size)| cache.request(key, size))
                .count();
            let simulated = hits as f64 / window.len() as f64;
            assert!(
                (simulated - predicted).abs() < 0.015,
                "c {c}, warm {warm}: simulated {simulated}, predicted {predicted}, {seed}"
            );
        }
    }
}

/// The measured gaps between the requests of an object predict bursts. An exponential distribution of the gaps, as in
/// the paper, cannot.
///
/// Method: 5000 objects, each requested four times in a row. A cache for 2 % of them hits three of four
/// requests.
#[test]
fn bursts_are_predicted_as_bursts() {
    let objects: Vec<Object> = (0..5_000_u64)
        .flat_map(|key| {
            [Object {
                key: KeyHash(key),
                size_bytes: 1000,
            }; 4]
        })
        .collect();
    let mut model = forecast_window(&objects, 100_000, &|_| false, 0);
    let predicted = model.solve(f64::INFINITY).object_hit_ratio;
    assert!((predicted - 0.75).abs() < 0.01, "{predicted}");
}
