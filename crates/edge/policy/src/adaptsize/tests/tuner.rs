//! Tests of the whole tuner: comparison with brute force, and properties on which callers rely.
//!
//! The tuner chooses `c` after each window of requests: an object of `s` bytes is admitted with probability `e^(-s/c)`.
//! The paper mode predicts the long run of the cache, and the horizon mode the next window.

use edgeward_types::{KeyHash, Seed, mix64};
use proptest::prelude::*;

use crate::adaptsize::{Mode, Tuner, TunerConfig, Tuning};

use super::oracle::{ListCache, best_c, zipf_requests};

fn config(mode: Mode, capacity_bytes: u64, window_requests: u32) -> TunerConfig {
    TunerConfig {
        window_requests,
        ..TunerConfig::new(mode, capacity_bytes)
    }
}

/// Drives a cache and its tuner. `rename` maps the keys that the tuner gets.
fn drive(config: TunerConfig, requests: &[(u64, u64)], rename: fn(u64) -> u64) -> Vec<Tuning> {
    let mut tuner = Tuner::new(config);
    let mut cache = ListCache::new(
        config.capacity_bytes,
        Tuner::initial_c(config.mode),
        Seed(4),
    );
    let mut tunings = Vec::new();
    for &(key, size) in requests {
        let hit = cache.request(key, size);
        if tuner.record(KeyHash(rename(key)), size, hit) {
            // The resident keys under their new names.
            let resident: std::collections::BTreeSet<u64> = cache.keys().map(rename).collect();
            let tuning = tuner.step(&|key| resident.contains(&key.0));
            cache.admit_by(tuning.c);
            tunings.push(tuning);
        }
    }
    tunings
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// The result of a step is valid even for extreme sizes and inconsistent hits and residency.
    #[test]
    fn the_result_of_a_step_is_valid_for_any_traffic(
        capacity in prop_oneof![Just(1), Just(1 << 20), Just(u64::MAX), any::<u64>().prop_map(|c| c.max(1))],
        requests in prop::collection::vec(
            (0..40_u64, prop_oneof![Just(0), Just(u64::MAX), 0..1_u64 << 24], any::<bool>()),
            1..400,
        ),
    ) {
        for mode in [Mode::Paper, Mode::Horizon] {
            let mut tuner = Tuner::new(config(mode, capacity, 50));
            for &(key, size, hit) in &requests {
                if tuner.record(KeyHash(key), size, hit) {
                    let tuning = tuner.step(&|key| key.0 % 2 == 0);
                    prop_assert!(tuning.c > 0.0, "{tuning:?}");
                    prop_assert!((0.0..=1.0 + 1e-9).contains(&tuning.predicted_ohr), "{tuning:?}");
                    let sound = |ohr: f64| (0.0..=1.0 + 1e-9).contains(&ohr);
                    prop_assert!(tuning.curve.iter().all(|point| sound(point.ohr)), "{tuning:?}");
                }
            }
        }
    }

    /// Brute force tries twenty values of `c` per octave. After one to three windows, the hit ratio that the paper mode
    /// predicts differs by less than 0.01 from the best that brute force finds.
    #[test]
    fn the_papers_mode_agrees_with_brute_force(seed in any::<u64>(), share in 0.02..0.5_f64, windows in 1..4_usize) {
        let requests = zipf_requests(120, 1000 * windows, 9.0, Seed(seed));
        let footprint: u64 = requests
            .iter()
            .copied()
            .collect::<std::collections::BTreeMap<_, _>>()
            .values()
            .sum();
        let capacity = (footprint as f64 * share) as u64;
        let config = config(Mode::Paper, capacity, 1000);
        let tuning = drive(config, &requests, |key| key).pop().expect("a window ended");
        let windows: Vec<_> = requests.chunks(1000).map(<[_]>::to_vec).collect();
        let (best_ohr, best_c) = best_c(&windows, capacity as f64, config.c_min, config.fill_windows_max);
        prop_assert!(
            (tuning.predicted_ohr - best_ohr).abs() < 0.01,
            "predicted {} at c {}, brute force {best_ohr} at c {best_c}", tuning.predicted_ohr, tuning.c
        );
    }
}

/// Server and simulator hash keys differently and must get exactly equal tunings.
#[test]
fn tunings_do_not_depend_on_key_hashes() {
    let requests = zipf_requests(2_000, 12_000, 10.0, Seed(21));
    for mode in [Mode::Paper, Mode::Horizon] {
        let config = config(mode, 20_000_000, 3_000);
        let plain = drive(config, &requests, |key| key);
        assert_eq!(plain.len(), 4);
        assert_eq!(plain, drive(config, &requests, |key| mix64(key ^ 0x5eed)));
        assert_eq!(plain, drive(config, &requests, |key| !key));
    }
}

/// The size of an object does not depend on its popularity. The cache has space for all small objects or for ten large
/// ones, so rejecting large objects raises the hit ratio. Both modes find this.
#[test]
fn large_objects_are_kept_out_where_they_displace_small_ones() {
    let requests: Vec<(u64, u64)> = zipf_requests(3_000, 25_000, 0.0, Seed(22))
        .into_iter()
        .map(|(key, _)| {
            (
                key,
                if mix64(key).is_multiple_of(4) {
                    1_000_000
                } else {
                    1_000
                },
            )
        })
        .collect();
    for mode in [Mode::Paper, Mode::Horizon] {
        let tunings = drive(config(mode, 10_000_000, 5_000), &requests, |key| key);
        let (first, last) = (&tunings[0], tunings.last().expect("windows ended"));
        assert!(last.c < 1_000_000.0, "{mode:?} admits by c {}", last.c);
        assert!(
            last.measured_ohr > first.measured_ohr + 0.1,
            "{mode:?}: {} after {}",
            last.measured_ohr,
            first.measured_ohr
        );
    }
}

#[test]
fn a_cache_that_holds_everything_admits_everything() {
    let requests = zipf_requests(500, 6_000, 6.0, Seed(23));
    for mode in [Mode::Paper, Mode::Horizon] {
        for tuning in drive(config(mode, 1 << 40, 2_000), &requests, |key| key) {
            assert_eq!(tuning.c, f64::INFINITY, "{mode:?}");
        }
    }
}

/// The reported error is the prediction of the previous step minus the hit ratio of this window.
#[test]
fn the_model_error_compares_a_prediction_with_the_window_it_was_for() {
    for mode in [Mode::Paper, Mode::Horizon] {
        let requests = zipf_requests(2_000, 9_000, 8.0, Seed(24));
        let tunings = drive(config(mode, 3_000_000, 3_000), &requests, |key| key);
        assert_eq!(tunings[0].model_error, None);
        for pair in tunings.windows(2) {
            let error = pair[1].model_error.expect("a prediction preceded");
            assert_eq!(error, pair[0].predicted_ohr - pair[1].measured_ohr);
        }
    }
}

#[test]
fn a_window_is_due_at_its_last_request_and_not_before() {
    let mut tuner = Tuner::new(config(Mode::Paper, 1000, 3));
    let mut record = |key| tuner.record(KeyHash(key), 10, false);
    assert!(!record(1));
    assert!(!record(1));
    assert!(record(2));
}

/// The error is reported only if a prediction was made.
#[test]
fn a_step_before_any_request_predicts_nothing() {
    for mode in [Mode::Paper, Mode::Horizon] {
        let mut tuner = Tuner::new(config(mode, 2_000_000, 10));
        assert_eq!(tuner.step(&|_| false).c, f64::INFINITY);
        tuner.record(KeyHash(1), 10, false);
        assert_eq!(tuner.step(&|_| false).model_error, None);
    }
}

#[test]
fn a_step_without_requests_keeps_c_and_claims_no_error() {
    let requests = zipf_requests(2_000, 10_000, 9.0, Seed(25));
    for mode in [Mode::Paper, Mode::Horizon] {
        let mut tuner = Tuner::new(config(mode, 2_000_000, 10_000));
        for &(key, size) in &requests {
            tuner.record(KeyHash(key), size, false);
        }
        let tuned = tuner.step(&|_| false);
        let idle = tuner.step(&|_| false);
        assert_eq!(
            (idle.c, idle.model_error, idle.requests),
            (tuned.c, None, 0)
        );
    }
}

/// A new cache is tuned early: after 2,000 requests, then after twice as many each time, up to
/// `window_requests`.
#[test]
fn the_first_windows_are_short_and_each_is_twice_the_one_before() {
    for mode in [Mode::Paper, Mode::Horizon] {
        let requests = zipf_requests(1_000, 60_000, 4.0, Seed(8));
        let lengths = |config| -> Vec<u64> {
            let tunings = drive(config, &requests, |key| key);
            tunings.iter().map(|tuning| tuning.requests).collect()
        };
        assert_eq!(
            lengths(config(mode, 1 << 20, 12_000)),
            [2_000, 4_000, 8_000, 12_000, 12_000, 12_000]
        );
        // The first window is not longer than `window_requests`.
        assert_eq!(lengths(config(mode, 1 << 20, 1_500))[..2], [1_500, 1_500]);
    }
}

/// A full table of objects ends the window early. A step keeps at most half of the objects, and the memory of the table
/// stays within its bound.
#[test]
fn a_full_table_ends_the_window_and_never_grows_beyond_its_bound() {
    for mode in [Mode::Paper, Mode::Horizon] {
        let objects_max = 20_000;
        let mut tuner = Tuner::new(TunerConfig {
            objects_max,
            first_window_requests: 1_000_000,
            ..config(mode, 1 << 20, 1_000_000)
        });
        let mut fed = 0_u64;
        for _ in 0..4 {
            let before = fed;
            while {
                fed += 1;
                !tuner.record(KeyHash(fed), 100, false)
            } {}
            assert!(fed - before <= objects_max as u64);
            // 40 bytes per object, or twice as many because vectors grow by doubling. In horizon mode the sampled
            // caches take further memory, so only paper mode is checked.
            let per_object = tuner.memory_bytes() as f64 / objects_max as f64;
            assert!(
                mode == Mode::Horizon || per_object <= 2.0 * 40.0,
                "{per_object}"
            );
            // If recording continues after a step is due, new objects are lost and counted as untracked.
            tuner.record(KeyHash(u64::MAX - fed), 100, false);
            let tuning = tuner.step(&|_| true);
            assert!(tuning.objects <= objects_max / 2, "{}", tuning.objects);
            assert_eq!(tuning.untracked_requests, 1);
        }
    }
}

#[test]
#[should_panic(expected = "sample_one_in_max 3 is not a power of two")]
fn an_invalid_configuration_panics_with_the_field_name() {
    let mut config = TunerConfig::new(Mode::Horizon, 1 << 30);
    config.sample_one_in_max = 3;
    Tuner::new(config);
}
