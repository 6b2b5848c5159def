use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use edgeward_types::{ByteSize, KeyHash, mix64};
use proptest::prelude::*;

use super::*;
use crate::hot::{Commit, HotConfig, HotStats, Offer, Reservation, TunerMode};

const KIB: u64 = 1024;
const CAPACITY: u64 = 8 << 20;

fn cache(policy: PolicySpec) -> Arc<HotCache<u64>> {
    HotCache::new(HotConfig {
        policy,
        tuner_mode: TunerMode::Inline,
        ..HotConfig::new(ByteSize(CAPACITY))
    })
}

fn policies() -> Vec<PolicySpec> {
    let mut policies = PolicySpec::examples();
    policies.retain(|policy| policy.eviction != EvictionSpec::Never);
    policies
}

fn reserve(cache: &HotCache<u64>, key: u64, charge_bytes: u64) -> Option<Reservation<u64>> {
    match cache.offer(KeyHash(key), charge_bytes) {
        Offer::Admit(reservation) => Some(reservation),
        Offer::Refuse(_) | Offer::Pinned => None,
    }
}

fn commit(cache: &HotCache<u64>, reservation: Reservation<u64>, key: u64) -> bool {
    let version = cache.version(KeyHash(key));
    matches!(reservation.commit(Arc::new(key), version), Commit::Done(_))
}

fn fill(cache: &HotCache<u64>, key: u64, charge_bytes: u64) -> bool {
    reserve(cache, key, charge_bytes).is_some_and(|reservation| commit(cache, reservation, key))
}

fn change(cache: &HotCache<u64>, policy: PolicySpec) -> PolicyChange {
    let changed = cache.change_policy(policy, |_, _, _| ());
    changed.expect("the policy has a budget")
}

/// Returns the charge of the object under a key: about 50 to 150 KiB.
fn charge_of(key: u64) -> u64 {
    50 * KIB + mix64(key) % (100 * KIB)
}

fn present(cache: &HotCache<u64>, keys: std::ops::Range<u64>) -> Vec<u64> {
    keys.filter(|&key| cache.peek(KeyHash(key)).is_some())
        .collect()
}

/// Checks that the bytes and objects in the statistics equal those of the stored values and the fills in progress.
fn check_charges(cache: &HotCache<u64>, keys: std::ops::Range<u64>, fills: &[u64]) -> HotStats {
    let stats = cache.stats();
    let stored = present(cache, keys);
    let bytes: u64 = stored.iter().chain(fills).map(|&key| charge_of(key)).sum();
    assert_eq!(stats.used_bytes, bytes, "{stats:?}");
    assert_eq!(stats.objects, (stored.len() + fills.len()) as u64);
    assert!(stats.used_bytes <= stats.capacity_bytes);
    stats
}

/// Every change between two policies keeps all objects of a cache that is half full. Fills in progress are kept too.
///
/// Method: one cache changes its policy along a de Bruijn sequence. It contains each ordered pair of policies exactly
/// once, including pairs of equal policies. Before each change, a random fill ends and another begins.
#[test]
fn all_pairs_of_policies_keep_all_objects() {
    const KEYS: u64 = 40;
    let policies = policies();
    let cache = cache(policies[0]);
    for key in 0..KEYS {
        assert!(fill(&cache, key, charge_of(key)));
    }
    let mut sequence = Vec::new();
    for first in 0..policies.len() {
        sequence.push(first);
        sequence.extend((first + 1..policies.len()).flat_map(|second| [first, second]));
    }
    sequence.push(0);
    let mut fill_in_progress: Option<(u64, Reservation<u64>)> = None;
    for (step, pair) in sequence.windows(2).enumerate() {
        let (before, policy) = (policies[pair[0]], policies[pair[1]]);
        for key in (0..KEYS).filter(|key| mix64(key ^ (step as u64) << 8).is_multiple_of(3)) {
            assert!(cache.lookup(KeyHash(key)).is_some());
        }
        if let Some((key, reservation)) = fill_in_progress.take() {
            assert!(commit(&cache, reservation, key), "{before} to {policy}");
            assert!(cache.purge(KeyHash(key), |_| true));
        }
        let new_key = 1000 + step as u64;
        fill_in_progress = reserve(&cache, new_key, charge_of(new_key)).map(|it| (new_key, it));
        let fills: Vec<u64> = fill_in_progress.iter().map(|it| it.0).collect();
        assert_eq!(
            change(&cache, policy),
            PolicyChange {
                before,
                kept_objects: KEYS + fills.len() as u64,
                lost_objects: 0,
            },
            "{before} to {policy}"
        );
        assert_eq!(cache.policy(), policy);
        check_charges(&cache, 0..KEYS, &fills);
    }
    assert_eq!(present(&cache, 0..KEYS).len() as u64, KEYS);
    let stats = cache.stats();
    assert_eq!(stats.evicted, 0);
    assert_eq!(stats.policy_changes, sequence.len() as u64 - 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A change of a full cache evicts at most one object more than the new policy needs for its tables.
    ///
    /// Method: random requests fill a cache. Further random requests, removals and changes leave the charges exact.
    #[test]
    fn a_change_of_a_full_cache_evicts_at_most_what_the_bookkeeping_needs(
        names in prop::collection::vec(0..policies().len(), 1..4),
        requests in prop::collection::vec((0u64..300, 0u8..20), 200..500),
    ) {
        let policies = policies();
        let cache = cache(PolicySpec::LRU);
        let requests_per_policy = requests.len() / (names.len() + 1);
        for (n, requests) in requests.chunks(requests_per_policy.max(1)).enumerate() {
            for &(key, step) in requests {
                if step == 0 {
                    cache.purge(KeyHash(key), |_| true);
                } else if cache.lookup(KeyHash(key)).is_none() {
                    fill(&cache, key, charge_of(key));
                }
            }
            let before = check_charges(&cache, 0..300, &[]);
            if let Some(&name) = names.get(n) {
                let changed = change(&cache, policies[name]);
                let after = check_charges(&cache, 0..300, &[]);
                let missing_bytes = before.used_bytes - after.used_bytes;
                let missing_bytes_max = after.bookkeeping_bytes + 150 * KIB;
                prop_assert!(missing_bytes <= missing_bytes_max, "{} bytes: {:?}", missing_bytes, changed);
                prop_assert_eq!(after.evicted - before.evicted, before.objects - after.objects);
            }
        }
    }

    /// After a change from LRU or FIFO to the same policy, the cache evicts in the same order as without the change.
    #[test]
    fn a_change_preserves_the_order(
        requests in prop::collection::vec(0u64..150, 100..300),
        change_at in 0usize..100,
        fifo in any::<bool>(),
    ) {
        let policy = match fifo {
            true => PolicySpec::evicting(EvictionSpec::Fifo),
            false => PolicySpec::LRU,
        };
        let (changed, unchanged) = (cache(policy), cache(policy));
        for (n, key) in requests.into_iter().enumerate() {
            if n == change_at {
                change(&changed, policy);
            }
            for cache in [&changed, &unchanged] {
                if cache.lookup(KeyHash(key)).is_none() {
                    fill(cache, key, charge_of(key));
                }
            }
        }
        prop_assert_eq!(present(&changed, 0..150), present(&unchanged, 0..150));
    }
}

/// An object that is larger than the part of the budget that has moved is admitted during a change.
///
/// Method: begin a change of a full cache without moving objects, offer a large object, then end the change.
#[test]
fn an_object_offered_during_a_change_is_admitted() {
    let cache = cache(PolicySpec::LRU);
    for key in 0..100 {
        fill(&cache, key, charge_of(key));
    }
    let policy = PolicySpec::LRU;
    let tier = policy.tier(CAPACITY, edgeward_types::Seed(0));
    let recorder = tier.hit_recorder();
    let mut tiers = cache.shared.tier.lock();
    tiers.begin_change(policy, tier);
    cache.shared.index.set_recorder(tiers.mark(), &recorder);
    drop(tiers);
    let stored = present(&cache, 0..100);
    assert!(
        stored
            .iter()
            .all(|&key| cache.lookup(KeyHash(key)).is_some())
    );
    assert!(fill(&cache, 1000, 2 << 20));
    let mut tiers = cache.shared.tier.lock();
    assert!(tiers.used_bytes() <= CAPACITY);
    cache
        .shared
        .move_until_capacity(&mut tiers, u64::MAX, &mut Vec::new());
    assert!(tiers.end_change().is_some());
    drop(tiers);
    assert!(cache.lookup(KeyHash(1000)).is_some());
    assert!(
        cache.lookup(KeyHash(stored[stored.len() - 1])).is_some(),
        "the objects requested last stay"
    );
}

/// A fill whose slot was evicted is not committed to an object that has a slot of the same number two tiers later.
#[test]
fn a_slot_of_an_earlier_tier_is_not_confused_with_a_current_one() {
    let cache = cache(PolicySpec::LRU);
    let lost = reserve(&cache, 1, 1 << 20).expect("the object fits");
    assert!(fill(&cache, 2, CAPACITY - (512 << 10)));
    change(&cache, PolicySpec::GDSF);
    change(&cache, PolicySpec::LRU);
    assert!(!commit(&cache, lost, 1));
    assert_eq!(cache.stats().objects, 1);
    let abandoned = reserve(&cache, 3, KIB).expect("the object fits");
    change(&cache, PolicySpec::GDSF);
    drop(abandoned);
    assert_eq!(cache.stats().objects, 1);
}

/// No lookup misses while the policy changes, and the charges stay exact while other threads store and remove objects.
#[test]
fn hits_continue_while_the_policy_changes() {
    const RESIDENT: u64 = 30;
    let cache = cache(PolicySpec::LRU);
    for key in 0..RESIDENT {
        assert!(fill(&cache, key, charge_of(key)));
    }
    let ended = AtomicBool::new(false);
    let others = RESIDENT..RESIDENT + 10;
    thread::scope(|scope| {
        let (cache, ended, others) = (&cache, &ended, &others);
        for thread in 0..2u64 {
            scope.spawn(move || {
                let mut n = thread;
                while !ended.load(Relaxed) {
                    n = n.wrapping_add(1);
                    let resident = cache.lookup(KeyHash(mix64(n) % RESIDENT));
                    assert!(resident.is_some());
                    let other = others.start + mix64(n) % 10;
                    match n % 3 {
                        0 => _ = fill(cache, other, charge_of(other)),
                        1 => _ = cache.purge(KeyHash(other), |_| true),
                        _ => drop(reserve(cache, other, charge_of(other))),
                    }
                }
            });
        }
        for policy in policies().iter().cycle().take(100) {
            change(cache, *policy);
        }
        ended.store(true, Relaxed);
    });
    let stats = check_charges(&cache, 0..others.end, &[]);
    assert_eq!(stats.evicted, 0);
}

/// A change starts the tuner of the new policy, and recorders that were made before report to it.
#[test]
fn a_recorder_follows_the_tuner() {
    let cache: Arc<HotCache<u64>> = HotCache::new(HotConfig {
        policy: PolicySpec::LRU,
        window_requests: Some(100),
        tuner_mode: TunerMode::Inline,
        ..HotConfig::new(ByteSize(CAPACITY))
    });
    let mut recorder = cache.recorder();
    let mut record = || (0..100).for_each(|n| recorder.record(KeyHash(n % 7), 100 + n % 7, false));
    record();
    assert!(cache.stats().tuning.is_none());
    change(&cache, PolicySpec::ADAPTSIZE);
    record();
    let tuning = cache.stats().tuning.expect("AdaptSize is tuned");
    assert_eq!(tuning.steps, 1);
    change(&cache, PolicySpec::DENSITY);
    record();
    assert!(cache.stats().tuning.is_none());
}

#[test]
fn a_policy_without_a_budget_is_refused() {
    let cache = cache(PolicySpec::LRU);
    assert!(fill(&cache, 1, charge_of(1)));
    let refused = cache.change_policy(PolicySpec::INFINITE, |_, _, _| ());
    assert_eq!(refused, Err(PolicyChangeError::NoBudget));
    assert_eq!(cache.policy(), PolicySpec::LRU);
    assert!(cache.lookup(KeyHash(1)).is_some());
}

#[test]
fn a_policy_that_ignores_the_objective_is_refused() {
    let cache: Arc<HotCache<u64>> = HotCache::new(HotConfig {
        objective: Objective::Bytes,
        ..HotConfig::new(ByteSize(CAPACITY))
    });
    let refused = cache.change_policy(PolicySpec::LRU, |_, _, _| ());
    let expected = PolicyChangeError::IgnoresObjective(PolicySpec::LRU, Objective::Bytes);
    assert_eq!(refused, Err(expected));
    let kept = cache.change_policy(PolicySpec::GDSF, |_, _, _| ());
    assert!(kept.is_ok());
}

/// A change reports the objects that it evicts, as an offer does.
///
/// Method: change from `gdsf-plain` to `density`, whose tables need more memory.
#[test]
fn evicted_objects_are_reported() {
    let cache = cache(PolicySpec::GDSF_PLAIN);
    for key in 0..120 {
        fill(&cache, key, charge_of(key));
    }
    let before: HashMap<u64, ()> = present(&cache, 0..120)
        .into_iter()
        .map(|it| (it, ()))
        .collect();
    let mut reported = Vec::new();
    let changed = cache.change_policy(PolicySpec::DENSITY, |evicted, _, value| {
        assert_eq!(evicted.object.key, KeyHash(*value));
        reported.push(*value);
    });
    assert!(changed.is_ok());
    assert!(
        !reported.is_empty(),
        "the tables of density take more than an object"
    );
    let after = present(&cache, 0..120);
    assert_eq!(after.len() + reported.len(), before.len());
    assert!(
        reported
            .iter()
            .all(|key| before.contains_key(key) && !after.contains(key))
    );
}
