//! Tests of the rotating filters, with one thread and with several.

use std::collections::{HashMap, HashSet};
use std::thread;

use proptest::prelude::*;

use super::*;

fn config(keys: u64, false_positive_rate_max: f64) -> RotatingBloomConfig {
    RotatingBloomConfig::new(
        NonZeroU64::new(keys).expect("the number is not zero"),
        false_positive_rate_max,
    )
}

#[test]
fn the_second_request_has_been_seen_and_the_first_has_not() {
    let filter = RotatingBloom::new(config(1000, 1e-4));
    assert!(!filter.contains(KeyHash(7)));
    assert_eq!(filter.check_and_add(KeyHash(7)), KeyStatus::New);
    assert!(filter.contains(KeyHash(7)));
    assert_eq!(filter.check_and_add(KeyHash(7)), KeyStatus::Seen);
}

/// A key is remembered for at least 7/8 of a period and at most two periods, up to the counting error.
///
/// Method: add `before` other keys, the key, and again other keys. The key is found after 0.85 periods of other keys,
/// and no longer after 2.05 periods.
#[test]
fn a_key_is_remembered_for_seven_eighths_to_two_periods() {
    let period = 20_000u64;
    for before in [0, 5_000, 12_000, 19_000] {
        let remembered_after = |others: u64| {
            let filter = RotatingBloom::new(config(period, 1e-5));
            (0..before).for_each(|n| _ = filter.check_and_add(KeyHash(1 << 50 | n)));
            filter.check_and_add(KeyHash(1));
            (0..others).for_each(|n| _ = filter.check_and_add(KeyHash(1 << 51 | n)));
            filter.contains(KeyHash(1))
        };
        assert!(remembered_after(period * 85 / 100), "{before}");
        assert!(!remembered_after(period * 205 / 100), "{before}");
    }
}

/// A period has the configured number of distinct keys. At most 5 % fewer or 15 % more are possible.
#[test]
fn a_period_holds_the_keys_it_was_sized_for() {
    for keys in [2_000u64, 200_000] {
        for false_positive_rate in [0.05, 0.01, 0.001] {
            let filter = RotatingBloom::new(config(keys, false_positive_rate));
            let mut added = 0;
            while filter.stats().rotations < 2 {
                added += 1;
                filter.check_and_add(KeyHash(added));
            }
            let period_ratio = added as f64 / 2.0 / keys as f64;
            // Two causes make a period longer: false positives are not added, and a filter has whole blocks.
            assert!(
                (0.95..1.15).contains(&period_ratio),
                "{keys}, {false_positive_rate}: {period_ratio}"
            );
        }
    }
}

/// The rate of first requests taken for second ones never exceeds its maximum, and the estimate is accurate.
#[test]
fn first_requests_are_taken_for_second_ones_at_the_estimated_rate() {
    let keys = 100_000u64;
    for false_positive_rate_max in [0.05, 0.01] {
        let filter = RotatingBloom::new(config(keys, false_positive_rate_max));
        let (mut wrong, mut estimated) = (0u64, 0.0);
        // Three periods of warm-up, then three to count.
        for n in 0..6 * keys {
            let seen = filter.check_and_add(KeyHash(n)) == KeyStatus::Seen;
            if n >= 3 * keys {
                wrong += u64::from(seen);
                if n % 100 == 0 {
                    estimated += 100.0 * filter.stats().false_positive_rate;
                }
            }
        }
        let rate = wrong as f64 / (3 * keys) as f64;
        assert!(
            rate <= false_positive_rate_max,
            "{rate} of at most {false_positive_rate_max}"
        );
        let error = (wrong as f64 - estimated).abs() / wrong as f64;
        assert!(error < 0.1, "{wrong} counted, {estimated} estimated");
    }
}

/// `forgotten_share` estimates the share of new keys that rotation forgot.
///
/// Method: each key is requested again after 2.25 periods. Both filters have forgotten the key by then, but it may be
/// in the copy of the filter that was cleared last, from which forgotten keys are recognised.
#[test]
fn keys_forgotten_by_rotation_are_counted() {
    let keys = 40_000u64;
    let filter = RotatingBloom::new(config(keys, 1e-3));
    let distance = keys * 9 / 4;
    for n in 0..3 * distance {
        filter.check_and_add(KeyHash(n % distance));
    }
    // All keys are reported as new. Two thirds of them were requested before, so the share is at most about 2/3.
    let lost = filter.stats().forgotten_share;
    assert!((0.3..0.72).contains(&lost), "{lost}");
    let without_repeats = RotatingBloom::new(config(keys, 1e-3));
    (0..4 * keys).for_each(|n| _ = without_repeats.check_and_add(KeyHash(n)));
    assert!(
        without_repeats.stats().forgotten_share < 2e-3,
        "no key was requested again"
    );
}

#[test]
fn a_smaller_false_positive_rate_costs_more_memory() {
    let bits = |rate| config(1_000_000, rate).memory_bytes() as f64 * 8.0 / 1e6;
    let (loose, usual, strict) = (bits(0.05), bits(0.01), bits(0.001));
    assert!(loose < usual && usual < strict);
    // Two filters of about 11 bits per key, and a copy of 1/64 of a filter, from which forgotten keys are recognised.
    assert!((20.0..28.0).contains(&usual), "{usual}");
    for rate in [0.05, 0.01, 0.001] {
        let rate_max = config(1000, rate).false_positive_rate_max();
        assert!((rate_max - rate).abs() < rate * 1e-3, "{rate_max}");
    }
}

/// If several threads add keys, each thread finds a key that it has just added, unless the filters rotate in between.
///
/// Method: four threads add keys and look them up at once, through dozens of rotations. A thread may be
/// suspended for two rotations between its add and its lookup. Therefore a lookup is checked only if the filters did
/// not rotate after the add.
#[test]
fn threads_find_their_recent_keys_through_rotations() {
    let filter = RotatingBloom::new(config(8_000, 1e-3));
    let lookups = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let (filter, lookups) = (&filter, &lookups);
            scope.spawn(move || {
                for n in 0..60_000u64 {
                    let key = KeyHash(thread << 40 | n);
                    let epoch = filter.saved_epoch();
                    filter.check_and_add(key);
                    let found = filter.contains(key);
                    if filter.saved_epoch() == epoch {
                        assert!(found, "just added: {n} of thread {thread}");
                        lookups.fetch_add(1, Relaxed);
                    }
                }
            });
        }
    });
    assert!(lookups.into_inner() > 200_000, "nearly all lookups count");
    let rotations = filter.stats().rotations;
    // 240 000 keys at 8000 per period are 30 rotations. A thread that is suspended while it clears delays a rotation.
    assert!((5..=32).contains(&rotations), "{rotations}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A key that was requested less than 3/4 of a period ago is always found. Method: compare with an exact memory.
    #[test]
    fn a_recently_requested_key_is_always_found(
        seed in any::<u64>(), keys in 200u64..3000, spread in 1u64..6, fill in 0.2f64..0.8,
    ) {
        let period = NonZeroU64::new(keys).expect("the number is not zero");
        let filter = RotatingBloom::new(RotatingBloomConfig::with_fill_max(period, fill));
        let mut rng = crate::rng::Rng::new(edgeward_types::Seed(seed), 0);
        // key -> number of adds at its last request
        let mut last: HashMap<u64, u64> = HashMap::new();
        let mut added = 0u64;
        for _ in 0..8 * keys {
            let key = rng.bits() % (spread * keys);
            let seen = filter.check_and_add(KeyHash(key)) == KeyStatus::Seen;
            // Each request adds at most one distinct key: at most `added - then` since the last request for `key`.
            if let Some(&then) = last.get(&key)
                && added - then <= keys * 3 / 4
            {
                prop_assert!(seen, "{key} was requested {} adds ago of {keys}", added - then);
            }
            added += 1;
            last.insert(key, added);
        }
        prop_assert!(filter.stats().primary_fill <= fill + 0.05);
    }

    /// The same requests give the same answers.
    #[test]
    fn one_thread_gives_repeatable_answers(requests in prop::collection::vec(0u64..500, 0..2000)) {
        let answers = || {
            let filter = RotatingBloom::new(config(100, 0.01));
            requests.iter().map(|&key| filter.check_and_add(KeyHash(key)) == KeyStatus::New).collect::<Vec<_>>()
        };
        prop_assert_eq!(answers(), answers());
    }
}

/// The estimated number of distinct keys in the primary (the filter to which new keys are added) is accurate even if
/// keys are requested repeatedly.
#[test]
fn the_number_of_keys_is_estimated_from_the_fill() {
    let filter = RotatingBloom::new(config(50_000, 0.01));
    let mut distinct = HashSet::new();
    for n in 0..60_000u64 {
        let key = n * n % 30_011;
        filter.check_and_add(KeyHash(key));
        distinct.insert(key);
    }
    let estimated_keys = filter.stats().primary_keys as f64;
    let error = (estimated_keys / distinct.len() as f64 - 1.0).abs();
    assert!(error < 0.03, "{estimated_keys} of {}", distinct.len());
}
