//! The simulator and the server make the same decisions.
//!
//! Method: send one request sequence through `store::hot` (with locks, index and values) and through a
//! simulated run. Hits and the digest of all decisions must be equal for each policy. The server hashes the
//! keys and the simulator does not, but the digest contains no keys. Only rules that keep keys in filters or sketches
//! have errors that depend on the hash; for them the simulator gets the hashed keys.

use std::sync::Arc;
use std::time::Duration;

use edgeward_policy::rng::Rng;
use edgeward_policy::{Objective, PolicySpec};
use edgeward_sim::{OriginCost, Run, RunConfig};
use edgeward_store::hot::{Commit, HotCache, HotConfig, Offer, TunerMode};
use edgeward_trace::{Record, hash_key};
use edgeward_types::{ByteSize, KeyHash, Seed, Timestamp, charge_bytes};

const CAPACITY_BYTES: u64 = 4 << 20;
/// The number of requests between two tunings of AdaptSize.
const WINDOW_REQUESTS: u32 = 5_000;
/// A fetch takes 100 ms and 1 µs per byte, which a [`Duration`] represents exactly.
const ORIGIN_COST: OriginCost = OriginCost {
    latency_ms: 100,
    bytes_per_second: 1_000_000,
};

#[test]
fn the_server_and_the_simulator_decide_alike() {
    let requests = traffic(60_000);
    let hashed: Vec<Record> = requests
        .iter()
        .map(|request| Record {
            key: hash_key(&request.key.to_le_bytes()),
            ..*request
        })
        .collect();
    for policy in PolicySpec::examples() {
        let simulated = if policy.depends_on_key_hash() {
            simulated(policy, Objective::Requests, &hashed)
        } else {
            simulated(policy, Objective::Requests, &requests)
        };
        let served = served(policy, Objective::Requests, &requests);
        assert_eq!(simulated, served, "{policy}: (hits, digest)");
        assert!(simulated.0 > 0, "{policy} hits at all");
    }
}

/// The server gets the time of each fetch that the simulator's model computes.
#[test]
fn the_server_and_the_simulator_follow_an_objective_alike() {
    let requests = traffic(6_000);
    for policy in PolicySpec::examples() {
        let run = |objective| {
            let simulated = simulated(policy, objective, &requests);
            let served = served(policy, objective, &requests);
            if !policy.depends_on_key_hash() {
                assert_eq!(simulated, served, "{policy}, {objective}: (hits, digest)");
            }
            served
        };
        let by_requests = run(Objective::Requests);
        for objective in [Objective::Bytes, Objective::OriginCost] {
            let follows = run(objective) != by_requests;
            assert_eq!(follows, policy.weighs_benefits(), "{policy}, {objective}");
        }
    }
}

/// A different sequence gives a different digest, so the equality above is significant.
#[test]
fn the_digest_distinguishes_runs() {
    let requests = traffic(20_000);
    let (all_but_last, last) = requests.split_at(requests.len() - 1);
    let digest = |requests: &[Record]| simulated(PolicySpec::LRU, Objective::Requests, requests).1;
    assert_ne!(
        digest(&requests),
        digest(all_but_last),
        "one request less: {last:?}"
    );
}

fn simulated(policy: PolicySpec, objective: Objective, requests: &[Record]) -> (u64, String) {
    let mut run = Run::new(RunConfig {
        policy,
        capacity_bytes: CAPACITY_BYTES,
        warmup_requests: 0,
        object_overhead_bytes: HotCache::<u64>::OBJECT_OVERHEAD_BYTES,
        seed: Seed(11),
        window_requests: Some(WINDOW_REQUESTS),
        // The test needs no time series, so the run is a single interval.
        interval_requests: u64::MAX,
    })
    .with_objective(objective, ORIGIN_COST);
    run.feed(requests);
    let report = run.report();
    (report.hits, report.digest)
}

fn served(policy: PolicySpec, objective: Objective, requests: &[Record]) -> (u64, String) {
    let cache = HotCache::<u64>::new(HotConfig {
        policy,
        objective,
        seed: Seed(11),
        window_requests: Some(WINDOW_REQUESTS),
        tuner_mode: TunerMode::Inline,
        ..HotConfig::new(ByteSize(CAPACITY_BYTES))
    });
    let mut recorder = cache.recorder();
    let mut hits = 0;
    for request in requests {
        let key = KeyHash(hash_key(&request.key.to_le_bytes()));
        let charge = charge_bytes(request.size, HotCache::<u64>::OBJECT_OVERHEAD_BYTES);
        let fetch_time = Duration::from_secs_f64(ORIGIN_COST.seconds(1, request.size));
        let hit = cache.lookup(key).is_some();
        if hit {
            hits += 1;
        } else if let Offer::Admit(reservation) =
            cache.offer_with(key, charge, (Some(fetch_time), 1.0), |_, _, _| ())
        {
            let commit = reservation.commit(Arc::new(request.key), cache.version(key));
            assert!(matches!(commit, Commit::Done(_)));
        }
        recorder.record(key, charge, hit);
    }
    (hits, format!("{:016x}", cache.stats().digest))
}

/// Power-law popularity, sizes over four orders of magnitude; a quarter of the requests are for one-hit
/// wonders.
fn traffic(requests: u64) -> Vec<Record> {
    let mut rng = Rng::new(Seed(3), 0);
    (0..requests)
        .map(|n| {
            let key = if rng.unit() < 0.25 {
                1_000_000 + n
            } else {
                (10_000.0 * rng.unit().powi(3)) as u64
            };
            let mut key_rng = Rng::new(Seed(key), 1);
            Record {
                time: Timestamp::from_millis(n),
                key,
                size: (100.0 * 10f64.powf(4.0 * key_rng.unit())) as u64,
            }
        })
        .collect()
}
