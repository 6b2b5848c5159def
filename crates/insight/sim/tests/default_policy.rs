//! Compares the default policy of the memory tier with LRU, and GDSF as published with GDSF with bypass. Bypass means
//! that an object is not stored if it is worth less than the objects that would be evicted for it.

use edgeward_policy::PolicySpec;
use edgeward_policy::rng::Rng;
use edgeward_sim::{Run, RunConfig};
use edgeward_store::hot::HotConfig;
use edgeward_trace::Record;
use edgeward_types::{ByteSize, Seed, Timestamp, mix64};

/// If all objects have the same size, as chunks of a large download, a policy based on sizes has no advantage over LRU.
/// It must have no disadvantage either.
#[test]
fn the_default_policy_keeps_up_with_lru_on_objects_of_one_size() {
    const SEED: Seed = Seed(28);
    const CAPACITY: ByteSize = ByteSize::gib(1);
    let requests = chunked_downloads(200_000, SEED);
    let lru = object_hit_ratio(PolicySpec::LRU, CAPACITY, &requests);
    let default = HotConfig::new(CAPACITY).policy;
    let ratio = object_hit_ratio(default, CAPACITY, &requests);
    assert!(
        ratio >= lru,
        "seed {SEED}: the default, {default}, {ratio:.3}, LRU {lru:.3}"
    );
}

/// When the traffic changes from small to large objects, GDSF with bypass evicts the small objects as fast as
/// GDSF without bypass.
///
/// Method: requests for objects of about 1 KiB are followed by as many requests for objects of about 4 MiB.
/// All small objects together fit into the cache, and half of the large ones.
#[test]
fn bypass_does_not_keep_objects_that_are_no_longer_requested() {
    const SEED: Seed = Seed(21);
    const CAPACITY: ByteSize = ByteSize::mib(32);
    let mut rng = Rng::new(SEED, 0);
    let mut requests = |keys: std::ops::Range<u64>, size_bytes| -> Vec<Record> {
        (0..100_000)
            .map(|n| {
                let key = keys.start + ((keys.end - keys.start) as f64 * rng.unit().powi(3)) as u64;
                Record {
                    time: Timestamp::from_secs(n),
                    key,
                    size: size_bytes / 2 + mix64(key) % size_bytes,
                }
            })
            .collect()
    };
    let mut trace = requests(0..30_000, 1 << 10);
    trace.extend(requests(100_000..100_016, 4 << 20));
    let bypass = object_hit_ratio(PolicySpec::GDSF, CAPACITY, &trace);
    let plain = object_hit_ratio(PolicySpec::GDSF_PLAIN, CAPACITY, &trace);
    assert!(
        bypass >= plain - 0.005,
        "seed {SEED}: with bypass {bypass:.3}, as published {plain:.3}"
    );
}

fn object_hit_ratio(policy: PolicySpec, capacity: ByteSize, requests: &[Record]) -> f64 {
    let mut run = Run::new(RunConfig {
        policy,
        capacity_bytes: capacity.bytes(),
        warmup_requests: 0,
        object_overhead_bytes: 0,
        seed: Seed(1),
        window_requests: None,
        interval_requests: u64::MAX,
    });
    run.feed(requests);
    run.report().object_hit_ratio
}

/// Returns requests for chunks of 1 MiB. A new chunk is published every four requests. Each request selects a chunk by
/// its age: 1 to 50,000 chunks before the newest. The logarithm of the age is uniformly distributed, so chunks lose
/// popularity slowly.
fn chunked_downloads(requests: u64, seed: Seed) -> Vec<Record> {
    let mut rng = Rng::new(seed, 0);
    (0..requests)
        .map(|n| {
            let age = 50_000f64.powf(rng.unit());
            Record {
                time: Timestamp::from_secs(n / 100),
                key: 1_000_000 + n / 4 - age as u64,
                size: 1 << 20,
            }
        })
        .collect()
}
