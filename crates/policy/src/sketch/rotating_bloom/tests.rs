//! What the rotating pair promises, alone and between threads.

use std::collections::{HashMap, HashSet};
use std::thread;

use proptest::prelude::*;

use super::*;

fn config(keys: u64, false_seen_max: f64) -> RotatingBloomConfig {
    RotatingBloomConfig::new(NonZeroU64::new(keys).expect("not zero"), false_seen_max)
}

#[test]
fn the_second_request_has_been_seen_and_the_first_has_not() {
    let filter = RotatingBloom::new(config(1000, 1e-4));
    assert!(!filter.contains(KeyHash(7)));
    assert_eq!(filter.check_and_add(KeyHash(7)), Seen::New);
    assert!(filter.contains(KeyHash(7)));
    assert_eq!(filter.check_and_add(KeyHash(7)), Seen::Before);
}

/// A key outlives seven eighths of a period at the least and two periods at the most, give or take the counting.
///
/// Method: a key, then others past it; look before and after the bounds, from several places of the first period.
#[test]
fn a_key_is_remembered_for_one_to_two_periods() {
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

/// A period is as many distinct keys as the filter was sized for, to a few percent.
#[test]
fn a_period_holds_the_keys_it_was_sized_for() {
    for keys in [2_000u64, 200_000] {
        for false_seen in [0.05, 0.01, 0.001] {
            let filter = RotatingBloom::new(config(keys, false_seen));
            let mut added = 0;
            while filter.stats().rotations < 2 {
                added += 1;
                filter.check_and_add(KeyHash(added));
            }
            let period = added as f64 / 2.0 / keys as f64;
            // False positives are not added, and a filter has whole blocks.
            assert!(
                (0.95..1.15).contains(&period),
                "{keys}, {false_seen}: {period}"
            );
        }
    }
}

/// At no time are more first requests taken for second ones than was asked for, and the estimate says how many.
#[test]
fn first_requests_pass_wrongly_at_the_rate_that_is_told() {
    let keys = 100_000u64;
    for false_seen_max in [0.05, 0.01] {
        let filter = RotatingBloom::new(config(keys, false_seen_max));
        let (mut wrong, mut estimated) = (0u64, 0.0);
        // Three periods to get going, then three to count.
        for n in 0..6 * keys {
            let seen = filter.check_and_add(KeyHash(n)) == Seen::Before;
            if n >= 3 * keys {
                wrong += u64::from(seen);
                if n % 100 == 0 {
                    estimated += 100.0 * filter.stats().false_seen;
                }
            }
        }
        let rate = wrong as f64 / (3 * keys) as f64;
        assert!(rate <= false_seen_max, "{rate} of at most {false_seen_max}");
        let error = (wrong as f64 - estimated).abs() / wrong as f64;
        assert!(error < 0.1, "{wrong} counted, {estimated} estimated");
    }
}

/// Requests for what was forgotten by rotation are counted as such, at the true rate.
///
/// Method: each key comes back after two and a quarter periods, when it is forgotten and the generation that knew it
/// is the one cleared last.
#[test]
fn what_rotation_forgot_is_counted_as_lost() {
    let keys = 40_000u64;
    let filter = RotatingBloom::new(config(keys, 1e-3));
    let distance = keys * 9 / 4;
    for n in 0..3 * distance {
        filter.check_and_add(KeyHash(n % distance));
    }
    // Two thirds of the new keys are returning ones.
    let lost = filter.stats().lost_seen;
    assert!((0.3..0.72).contains(&lost), "{lost}");
    let calm = RotatingBloom::new(config(keys, 1e-3));
    (0..4 * keys).for_each(|n| _ = calm.check_and_add(KeyHash(n)));
    assert!(calm.stats().lost_seen < 2e-3, "nobody came back");
}

#[test]
fn a_smaller_rate_costs_more_memory_and_says_so() {
    let bits = |rate| config(1_000_000, rate).memory_bytes() as f64 * 8.0 / 1e6;
    let (loose, usual, strict) = (bits(0.05), bits(0.01), bits(0.001));
    assert!(loose < usual && usual < strict);
    // Two filters of about 11 bits a key and one sixty-fourth of a third.
    assert!((20.0..28.0).contains(&usual), "{usual}");
    for rate in [0.05, 0.01, 0.001] {
        let told = config(1000, rate).false_seen_max();
        assert!((told - rate).abs() < rate * 1e-3, "{told}");
    }
}

/// Between threads, what was added is found as long as no rotation comes between, whoever rotates meanwhile.
///
/// Method: four threads, each adding keys of its own and looking for those it added a moment ago, through dozens of
/// rotations. A thread may sleep through two rotations between its add and its look, so only looks under the
/// epoch of the add are held to the law.
#[test]
fn threads_find_their_recent_keys_through_rotations() {
    let filter = RotatingBloom::new(config(8_000, 1e-3));
    let looks = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let (filter, looks) = (&filter, &looks);
            scope.spawn(move || {
                for n in 0..60_000u64 {
                    let key = KeyHash(thread << 40 | n);
                    let epoch = filter.saved_epoch();
                    filter.check_and_add(key);
                    let found = filter.contains(key);
                    if filter.saved_epoch() == epoch {
                        assert!(found, "just added: {n} of thread {thread}");
                        looks.fetch_add(1, Relaxed);
                    }
                }
            });
        }
    });
    assert!(looks.into_inner() > 200_000, "nearly all looks count");
    let rotations = filter.stats().rotations;
    // 240 000 keys, 8000 a period; a thread that was put to sleep in the midst of clearing holds a rotation up.
    assert!((5..=32).contains(&rotations), "{rotations}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Beside an exact memory: nothing younger than seven eighths of a period is denied.
    #[test]
    fn no_young_key_is_ever_denied(
        seed in any::<u64>(), keys in 200u64..3000, spread in 1u64..6, fill in 0.2f64..0.8,
    ) {
        let period = NonZeroU64::new(keys).expect("not zero");
        let filter = RotatingBloom::new(RotatingBloomConfig::with_fill_max(period, fill));
        let mut rng = crate::rng::Rng::new(edgeward_types::Seed(seed), 0);
        // key -> how many distinct keys had been new when it was last asked for
        let mut last: HashMap<u64, u64> = HashMap::new();
        let mut added = 0u64;
        for _ in 0..8 * keys {
            let key = rng.bits() % (spread * keys);
            let seen = filter.check_and_add(KeyHash(key)) == Seen::Before;
            // Every add that a lookup in the primary did not spare is at most one distinct key more.
            if let Some(&then) = last.get(&key)
                && added - then <= keys * 3 / 4
            {
                prop_assert!(seen, "{key} was asked for {} adds ago of {keys}", added - then);
            }
            added += 1;
            last.insert(key, added);
        }
        prop_assert!(filter.stats().primary_fill <= fill + 0.05);
    }

    /// The same requests lead to the same answers.
    #[test]
    fn one_thread_decides_repeatably(requests in prop::collection::vec(0u64..500, 0..2000)) {
        let answers = || {
            let filter = RotatingBloom::new(config(100, 0.01));
            requests.iter().map(|&key| filter.check_and_add(KeyHash(key)) == Seen::New).collect::<Vec<_>>()
        };
        prop_assert_eq!(answers(), answers());
    }
}

/// Not only distinct keys: under skewed traffic the primary holds about as many keys as it says.
#[test]
fn the_number_of_keys_is_estimated_from_the_fill() {
    let filter = RotatingBloom::new(config(50_000, 0.01));
    let mut distinct = HashSet::new();
    for n in 0..60_000u64 {
        let key = n * n % 30_011;
        filter.check_and_add(KeyHash(key));
        distinct.insert(key);
    }
    let told = filter.stats().primary_keys as f64;
    let error = (told / distinct.len() as f64 - 1.0).abs();
    assert!(error < 0.03, "{told} of {}", distinct.len());
}
