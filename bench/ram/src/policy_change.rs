//! Measures the pauses of hits and stores while the policy of a cache with a million objects changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use edgeward_policy::PolicySpec;
use edgeward_store::hot::{HotCache, HotConfig, Offer};
use edgeward_types::{ByteSize, KeyHash, mix64};

/// Changes the policy several times while one thread sends hits and another stores new objects. Prints the longest
/// duration of a hit and of a store before and during each change.
pub fn measure() {
    let mut config = HotConfig::new(ByteSize(2 * OBJECTS * SIZE_BYTES));
    config.policy = PolicySpec::LRU;
    let cache: Arc<HotCache<u64>> = HotCache::new(config);
    (0..OBJECTS).for_each(|key| store(&cache, key));
    for name in ["lru", "density", "gdsf", "sieve", "density"] {
        let policy: PolicySpec = name.parse().expect("a policy");
        let before = during(&cache, || thread::sleep(Duration::from_secs(1)));
        let start = Instant::now();
        let mut kept = 0;
        let [hit, miss] = during(&cache, || {
            let changed = cache.change_policy(policy, |_, _, _| ());
            kept = changed.expect("the policy has a budget").kept_objects;
        });
        println!(
            "to {name:<8} {:>5.2} s, {kept} objects kept; longest hit {:>5.2} ms (before: {:.2}), store {:>5.2} ms (before: {:.2})",
            start.elapsed().as_secs_f64(),
            hit,
            before[0],
            miss,
            before[1],
        );
    }
}

/// Runs `work` beside hits and stores. Returns the longest duration of a hit and of a store, in milliseconds.
fn during(cache: &HotCache<u64>, work: impl FnOnce()) -> [f64; 2] {
    let ended = AtomicBool::new(false);
    let longest = |request: &dyn Fn(u64)| {
        let mut longest = Duration::ZERO;
        for n in 0.. {
            let start = Instant::now();
            request(n);
            longest = longest.max(start.elapsed());
            if ended.load(Relaxed) {
                break;
            }
        }
        longest.as_secs_f64() * 1000.0
    };
    thread::scope(|scope| {
        let hits = scope.spawn(|| {
            longest(&|n| assert!(cache.lookup(KeyHash(mix64(mix64(n) % OBJECTS))).is_some()))
        });
        let stores = scope.spawn(|| {
            longest(&|n| {
                store(cache, OBJECTS + n % 1000);
                thread::sleep(Duration::from_micros(200));
            })
        });
        work();
        ended.store(true, Relaxed);
        [hits, stores].map(|thread| thread.join().expect("the thread does not panic"))
    })
}

fn store(cache: &HotCache<u64>, object: u64) {
    let key = KeyHash(mix64(object));
    let version = cache.version(key);
    if let Offer::Admit(reservation) = cache.offer(key, SIZE_BYTES) {
        reservation.commit(Arc::new(object), version);
    }
}

const OBJECTS: u64 = 1_000_000;
const SIZE_BYTES: u64 = 1000;
