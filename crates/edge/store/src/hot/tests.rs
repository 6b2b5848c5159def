use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use edgeward_policy::PolicySpec;
use edgeward_types::{ByteSize, KeyHash};

use super::*;

fn cache(capacity_bytes: u64, policy: PolicySpec) -> Arc<HotCache<u64>> {
    HotCache::new(HotConfig {
        policy,
        ..HotConfig::new(ByteSize(capacity_bytes))
    })
}

/// Stores the value `key` under the same key. Returns false if the cache refuses it.
fn fill(cache: &HotCache<u64>, key: u64, charge_bytes: u64) -> bool {
    match cache.offer(KeyHash(key), charge_bytes) {
        Offer::Admit(reservation) => commit(cache, reservation, key),
        Offer::Refuse(_) | Offer::Pinned => false,
    }
}

fn commit(cache: &HotCache<u64>, reservation: Reservation<u64>, value: u64) -> bool {
    let version = cache.version(reservation.key);
    matches!(
        reservation.commit(Arc::new(value), version),
        Commit::Done(_)
    )
}

fn refresh(cache: &HotCache<u64>, key: u64, value: u64) -> bool {
    let version = cache.version(KeyHash(key));
    let before = cache.peek(KeyHash(key)).unwrap_or_default();
    cache.refresh(version, &before, Arc::new(value)) == Some(true)
}

fn remove(cache: &HotCache<u64>, key: u64) -> bool {
    let was_present = cache.peek(KeyHash(key)).is_some();
    cache.remove(cache.version(KeyHash(key))).is_some() && was_present
}

/// Inserts a value and keeps its charge, as a reader of its memory does.
fn fill_and_read(cache: &HotCache<u64>, key: u64, charge_bytes: u64) -> Option<ChargeGuard> {
    let Offer::Admit(mut reservation) = cache.offer(KeyHash(key), charge_bytes) else {
        return None;
    };
    let charge = reservation.take_charge();
    assert!(commit(cache, reservation, key));
    charge
}

/// Tests both sides of the bounds of pinned bytes: up to 1 MiB has no effect, up to 4 MiB reduces the
/// residents' space, and above 4 MiB no object is admitted.
#[test]
fn evicted_bytes_are_charged_until_their_last_reader_has_ended() {
    const MIB: u64 = 1 << 20;
    let cache = cache(16 * MIB, PolicySpec::LRU);
    let mut read: Vec<ChargeGuard> = (0..16)
        .map(|key| fill_and_read(&cache, key, MIB).expect("the object fits"))
        .collect();
    assert_eq!(cache.pinned_bytes(), (0, 4 * MIB), "all values have a slot");
    assert_eq!(cache.charged_bytes(), 16 * MIB);
    for key in 16..18 {
        read.push(fill_and_read(&cache, key, MIB).expect("the object is admitted"));
    }
    // Each of the two new objects has evicted one object, which is still being read. The second eviction exceeds
    // the free allowance of 1 MiB.
    assert_eq!(cache.pinned_bytes().0, 2 * MIB);
    assert_eq!(cache.charged_bytes(), 18 * MIB);
    let mut keys = 100..1000;
    while let Some(charge) = fill_and_read(
        &cache,
        keys.next().expect("an object is refused before key 1000"),
        MIB,
    ) {
        read.push(charge);
    }
    let stats = cache.stats();
    assert_eq!(stats.refused_pinned, 1);
    // The guards in `read` keep every admitted object charged, as a resident or as pinned. A sum of 18 MiB therefore
    // means that no object was admitted after the first 18.
    assert!(
        stats.used_bytes + stats.pinned_bytes <= 18 * MIB,
        "{stats:?}"
    );
    assert_eq!(stats.capacity_bytes, 16 * MIB, "as configured");
    assert!(
        stats.used_bytes >= 12 * MIB,
        "pinned bytes take at most 4 MiB from the residents: {stats:?}"
    );
    read.clear();
    // In this test the charges of the residents are dropped too. In the server a value is charged at least as
    // long as it has a slot.
    assert_eq!(cache.pinned_bytes().0, 0);
    assert!(fill(&cache, 1001, MIB));
}

#[test]
fn a_fill_that_lost_its_slot_is_charged_until_its_buffer_is_freed() {
    let cache = cache(100, PolicySpec::LRU);
    let Offer::Admit(mut slow) = cache.offer(KeyHash(1), 60) else {
        panic!("the object fits");
    };
    let buffer = slow.take_charge();
    let _other = fill_and_read(&cache, 2, 60);
    assert_eq!(cache.pinned_bytes().0, 60);
    assert!(!commit(&cache, slow, 1));
    assert_eq!(cache.pinned_bytes().0, 60);
    drop(buffer);
    assert_eq!(cache.pinned_bytes().0, 0);
}

#[test]
fn a_value_that_was_replaced_or_removed_is_charged_while_it_is_read() {
    let cache = cache(100, PolicySpec::LRU);
    let old = fill_and_read(&cache, 1, 40);
    let new = fill_and_read(&cache, 1, 30);
    assert_eq!(cache.pinned_bytes().0, 40);
    drop(old);
    assert_eq!(cache.pinned_bytes().0, 0);
    assert!(remove(&cache, 1));
    assert_eq!(cache.pinned_bytes().0, 30);
    drop(new);
    assert_eq!(cache.pinned_bytes().0, 0);
}

#[test]
fn a_value_is_found_after_its_commit_and_not_before() {
    let cache = cache(100, PolicySpec::LRU);
    let Offer::Admit(reservation) = cache.offer(KeyHash(1), 10) else {
        panic!("the object fits");
    };
    assert_eq!(cache.lookup(KeyHash(1)), None);
    assert!(commit(&cache, reservation, 1));
    assert_eq!(cache.lookup(KeyHash(1)).as_deref(), Some(&1));
}

#[test]
fn a_dropped_reservation_releases_its_space() {
    let cache = cache(100, PolicySpec::LRU);
    drop(cache.offer(KeyHash(1), 60));
    let stats = cache.stats();
    assert_eq!((stats.used_bytes, stats.abandoned), (0, 1));
}

#[test]
fn a_fill_whose_slot_was_evicted_is_not_published() {
    let cache = cache(100, PolicySpec::LRU);
    let Offer::Admit(slow) = cache.offer(KeyHash(1), 60) else {
        panic!("the object fits");
    };
    assert!(fill(&cache, 2, 60), "evicts the slot of the slow fill");
    assert!(!commit(&cache, slow, 1));
    assert_eq!(cache.lookup(KeyHash(1)), None);
    assert_eq!(cache.stats().used_bytes, 60);
}

#[test]
fn an_old_value_is_served_until_the_new_one_is_complete() {
    let cache = cache(100, PolicySpec::LRU);
    assert!(fill(&cache, 1, 40));
    let Offer::Admit(newer) = cache.offer(KeyHash(1), 50) else {
        panic!("the object fits");
    };
    assert_eq!(cache.lookup(KeyHash(1)).as_deref(), Some(&1));
    assert!(commit(&cache, newer, 2));
    assert_eq!(cache.lookup(KeyHash(1)).as_deref(), Some(&2));
    assert_eq!(
        cache.stats().used_bytes,
        50,
        "the old value's bytes are free"
    );
}

#[test]
fn removal_and_replacement_keep_the_charges_exact() {
    let cache = cache(100, PolicySpec::LRU);
    assert!(!refresh(&cache, 1, 9));
    assert!(fill(&cache, 1, 40));
    assert!(refresh(&cache, 1, 9));
    assert_eq!(cache.lookup(KeyHash(1)).as_deref(), Some(&9));
    assert!(remove(&cache, 1));
    assert!(!remove(&cache, 1));
    let stats = cache.stats();
    assert_eq!((stats.used_bytes, stats.objects), (0, 0));
}

/// Method: the number of visited values, divided by the share, is near the number of objects.
#[test]
fn a_sample_of_the_values_has_its_share_of_the_keys() {
    let cache = cache(1_000_000, PolicySpec::LRU);
    (0..20_000).for_each(|key| assert!(fill(&cache, key, 10)));
    for (values_max, visited_max) in [(0, 0), (1000, 1000), (100_000, 20_000)] {
        let mut visited = 0;
        let share = cache.sample(values_max, |_| visited += 1);
        assert!(
            visited >= values_max.min(20_000) && visited <= visited_max,
            "{visited}"
        );
        let estimated = visited as f64 / share.max(1e-9);
        assert!(
            values_max == 0 || (estimated - 20_000.0).abs() < 2000.0,
            "{estimated}"
        );
    }
}

#[test]
fn a_smaller_budget_evicts_at_once() {
    let cache = cache(100, PolicySpec::LRU);
    (0..10).for_each(|key| assert!(fill(&cache, key, 10)));
    cache.resize(ByteSize(35));
    assert_eq!(cache.stats().objects, 3);
    assert_eq!(
        (0..10)
            .filter(|&k| cache.lookup(KeyHash(k)).is_some())
            .count(),
        3
    );
}

/// The cache is consistent after threads filled, hit, replaced and removed the same keys.
///
/// Method: each thread walks the keys in its own order. Then every value must belong to its key, and the
/// charged bytes must be the sum over all stored values.
#[test]
fn the_charges_are_exact_after_threads_changed_the_same_keys() {
    const KEYS: u64 = 500;
    let charge_of = |key: u64| 1 + key % 37;
    let cache = cache(2000, PolicySpec::GDSF);
    let barrier = Barrier::new(4);
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let (cache, barrier) = (&cache, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for n in 0..20_000u64 {
                    let key = (n * (2 * thread + 1) + n / 7) % KEYS;
                    match cache.lookup(KeyHash(key)) {
                        Some(value) => assert_eq!(*value, key),
                        None => _ = fill(cache, key, charge_of(key)),
                    }
                    match n % 50 {
                        3 => _ = remove(cache, key),
                        5 => _ = refresh(cache, key, key),
                        7 => drop(cache.offer(KeyHash(key), charge_of(key))),
                        _ => {}
                    }
                }
            });
        }
    });
    let found: Vec<u64> = (0..KEYS)
        .filter(|&key| cache.peek(KeyHash(key)).is_some())
        .collect();
    let stats = cache.stats();
    assert_eq!(stats.objects, found.len() as u64);
    assert_eq!(
        stats.used_bytes,
        found.iter().map(|&k| charge_of(k)).sum::<u64>()
    );
    assert!(stats.used_bytes <= stats.capacity_bytes);
}

#[test]
fn an_inline_tuner_steps_when_its_window_is_full() {
    let cache: Arc<HotCache<u64>> = HotCache::new(HotConfig {
        policy: PolicySpec::ADAPTSIZE,
        window_requests: Some(1000),
        tuner_mode: TunerMode::Inline,
        ..HotConfig::new(ByteSize(10_000))
    });
    let mut recorder = cache.recorder();
    for n in 0..999u64 {
        recorder.record(KeyHash(n % 50), 100 + n % 50, false);
    }
    let steps = || cache.stats().tuning.expect("AdaptSize is tuned").steps;
    assert_eq!(steps(), 0);
    recorder.record(KeyHash(7), 107, false);
    assert_eq!(steps(), 1);
}

/// Requests that a full ring cannot take are counted; all others reach the tuner.
///
/// Method: record more requests than the ring and the windows can take, then wait for the tuner's thread, up to a
/// deadline.
#[test]
fn a_tuner_thread_receives_requests_and_counts_dropped_ones() {
    let cache: Arc<HotCache<u64>> = HotCache::new(HotConfig {
        policy: PolicySpec::ADAPTSIZE,
        window_requests: Some(1000),
        ..HotConfig::new(ByteSize(10_000))
    });
    let mut recorder = cache.recorder();
    let sent = 40 * sink::RING_REQUESTS as u64;
    for n in 0..sent {
        recorder.record(KeyHash(n % 50), 100 + n % 50, false);
    }
    let status = || cache.stats().tuning.expect("AdaptSize is tuned");
    let accounted_for = |status: TuningStatus| status.steps * 1000 + status.requests_dropped;
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while accounted_for(status()) + 1000 <= sent {
        assert!(std::time::Instant::now() < deadline, "{:?}", status().steps);
        thread::yield_now();
    }
    assert!(status().steps > 0);
}

#[test]
fn a_change_that_saw_an_older_version_is_dropped() {
    let cache = cache(10_000, PolicySpec::LRU);
    let key = KeyHash(1);
    let offer = || match cache.offer(key, 1000) {
        Offer::Admit(reservation) => reservation,
        Offer::Refuse(refusal) => panic!("{refusal:?}"),
        Offer::Pinned => panic!("no bytes are pinned"),
    };
    let older = cache.version(key);
    let Commit::Done(version) = offer().commit(Arc::new(1), older) else {
        panic!("the key has not changed before");
    };
    let before = cache.peek(key).expect("the value was committed");
    assert_eq!(offer().commit(Arc::new(2), older), Commit::Outdated);
    assert_eq!(cache.refresh(older, &before, Arc::new(2)), None);
    assert_eq!(cache.remove(older), None);
    assert_eq!(cache.peek(key).as_deref(), Some(&1));
    assert_eq!(
        cache.stats().used_bytes,
        1000,
        "the slots of dropped changes are released"
    );
    assert!(cache.is_current(version));
    assert!(
        !cache.purge(key, |_| false),
        "an object with another key of this hash stays"
    );
    assert!(cache.purge(key, |_| true));
    assert_eq!(offer().promote(Arc::new(3), version), Commit::Outdated);
    assert_eq!(cache.stats().used_bytes, 0);
}

#[test]
fn a_promotion_makes_no_new_version_and_replaces_nothing() {
    let cache = cache(10_000, PolicySpec::LRU);
    let version = cache.version(KeyHash(1));
    let promote = |value| match cache.offer(KeyHash(1), 1000) {
        Offer::Admit(reservation) => reservation.promote(Arc::new(value), version),
        Offer::Refuse(_) | Offer::Pinned => panic!("the cache has space"),
    };
    assert_eq!(promote(1), Commit::Done(version));
    assert_eq!(promote(2), Commit::Outdated);
    assert_eq!(cache.peek(KeyHash(1)).as_deref(), Some(&1));
    assert!(cache.is_current(version));
}

/// The objects and the capacity of the policy follow the measured fragmentation, in steps.
///
/// Method: a cache of 64 MiB is filled with values of 1 MiB. Each offer measures the same slabs, whose empty parts
/// exceed their charge and the allowance of 2 MiB by 8 MiB. Then the slabs have no empty parts.
#[test]
fn fragmentation_evicts_objects_until_it_ends() {
    static EMPTY_BYTES: AtomicU64 = AtomicU64::new(10 << 20);
    let cache: Arc<HotCache<u64>> = HotCache::new(HotConfig {
        policy: PolicySpec::LRU,
        return_freed_pages: Some(|_| AllocatorState {
            were_returned: false,
            slabs: Some(Slabs {
                allocated_bytes: 0,
                empty_bytes: EMPTY_BYTES.load(Relaxed),
            }),
        }),
        ..HotConfig::new(ByteSize::mib(64))
    });
    let mut offers = 0..;
    let mut mib_after = |count: usize| {
        for key in offers.by_ref().take(count) {
            fill(&cache, key, 1 << 20);
        }
        let stats = cache.stats();
        (stats.used_bytes >> 20, stats.fragmentation_bytes >> 20)
    };
    assert_eq!(mib_after(64), (56, 8));
    EMPTY_BYTES.store(0, Relaxed);
    assert_eq!(mib_after(3), (59, 5));
    assert_eq!(mib_after(61), (64, 0));
}

/// Five values of 500 bytes are offered. A quarter of the limit is 1000 bytes, so the pages are checked twice.
#[test]
fn freed_pages_are_checked_each_time_a_quarter_of_their_limit_is_offered() {
    static BOUNDS: std::sync::Mutex<Vec<u64>> = std::sync::Mutex::new(Vec::new());
    let cache: Arc<HotCache<u64>> = HotCache::new(HotConfig {
        policy: PolicySpec::LRU,
        freed_bytes_max: Some(ByteSize(4000)),
        return_freed_pages: Some(|bytes_max| {
            let mut bounds = BOUNDS.lock().expect("the lock is not poisoned");
            bounds.push(bytes_max);
            AllocatorState {
                were_returned: bounds.len() > 1,
                slabs: None,
            }
        }),
        ..HotConfig::new(ByteSize(10_000))
    });
    for key in 0..5 {
        fill(&cache, key, 500);
    }
    assert_eq!(
        *BOUNDS.lock().expect("the lock is not poisoned"),
        [4000, 4000]
    );
    assert_eq!(cache.stats().freed_pages_returns, 1);
}
