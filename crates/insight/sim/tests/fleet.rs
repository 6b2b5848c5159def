//! The laws of a simulated fleet.

use std::collections::HashSet;

use edgeward_policy::PolicySpec;
use edgeward_policy::rng::Rng;
use edgeward_sim::{
    Fleet, FleetConfig, FleetKind, FleetReport, Request, Run, RunConfig, ShieldConfig, Traffic,
};
use edgeward_trace::Record;
use edgeward_types::{Seed, Timestamp, mix64};

/// Requests by a power law over 3000 objects of 1 to 50 bytes, ten per second. In addition, `hot` of 10 requests are
/// for object 0.
fn requests(count: u64, hot: u64) -> Vec<Request> {
    let mut rng = Rng::new(Seed(3), 0);
    let mut traffic = Traffic::default();
    let record = |at: u64| {
        let key = match rng.unit() {
            unit if unit * 10.0 < hot as f64 => 0,
            _ => (3000.0 * rng.unit().powi(3)) as u64,
        };
        traffic.count(&Record {
            time: Timestamp::from_millis(at * 100),
            key,
            size: 1 + mix64(key) % 50,
        })
    };
    (0..count).map(record).collect()
}

fn config(policy: PolicySpec, kind: FleetKind) -> FleetConfig {
    FleetConfig {
        kind,
        node: RunConfig {
            policy,
            capacity_bytes: 2000,
            warmup_requests: 0,
            object_overhead_bytes: 0,
            seed: Seed(1),
            window_requests: None,
            interval_requests: 1000,
        },
        nodes: 4,
        shield: None,
        peer_cost: 0.0,
        lose_at: None,
    }
}

fn report(config: FleetConfig, requests: &[Request]) -> FleetReport {
    let mut fleet = Fleet::new(config);
    fleet.feed_requests(requests);
    fleet.report()
}

/// A fleet of one node makes the decisions of a run with the sum of the memory.
#[test]
fn one_node_is_a_run() {
    let requests = requests(20_000, 0);
    let mut fleet = config(PolicySpec::DENSITY, FleetKind::Fleet).one_node();
    fleet.node.warmup_requests = 5000;
    let mut run = Run::new(fleet.node.clone());
    run.feed_requests(&requests);
    let run = run.report();
    let fleet = report(fleet, &requests);
    assert_eq!(fleet.capacity_bytes, 8000);
    assert_eq!((fleet.requests, fleet.hits), (run.requests, run.hits));
    assert_eq!(fleet.byte_hit_ratio, run.byte_hit_ratio);
    assert_eq!(fleet.series, run.series);
    assert_eq!((fleet.peer_requests, fleet.copy_hits), (0, 0));
}

/// With unlimited memory, a fleet fetches each object once, and again only if the bound of the loads moved a request.
/// Separate caches fetch it once for each node. With shields, the origin sends each object once in both cases.
#[test]
fn an_object_is_fetched_once_by_a_fleet() {
    let requests = requests(20_000, 0);
    let objects: HashSet<u64> = requests.iter().map(|request| request.key).collect();
    let objects = objects.len() as u64;
    let fleet = config(PolicySpec::INFINITE, FleetKind::Fleet);
    let separate = config(PolicySpec::INFINITE, FleetKind::Separate);
    let whole = report(fleet.clone(), &requests);
    assert!(whole.origin_requests >= objects);
    assert!(whole.origin_requests <= objects + whole.moved_by_load_requests);
    assert!(whole.moved_by_load_requests < 100, "the loads are even");
    assert!(report(separate.clone(), &requests).origin_requests > 2 * objects);
    for edges in [fleet, separate] {
        let with_shield = report(
            FleetConfig {
                shield: Some(ShieldConfig {
                    nodes: 1,
                    capacity_bytes: 1,
                }),
                ..edges.clone()
            },
            &requests,
        );
        assert_eq!(with_shield.origin_requests, objects);
        let edges = report(edges, &requests);
        assert_eq!(with_shield.shield_requests, edges.origin_requests);
        assert_eq!(with_shield.shield_bytes, edges.origin_bytes);
    }
}

/// A fleet has nearly the hits of one node with the sum of the memory, and separate caches have fewer.
#[test]
fn a_fleet_has_the_hits_of_one_large_node() {
    let requests = requests(60_000, 0);
    for policy in [PolicySpec::LRU, PolicySpec::DENSITY] {
        let fleet = config(policy, FleetKind::Fleet);
        let one = report(fleet.clone().one_node(), &requests).object_hit_ratio;
        let fleet = report(fleet, &requests).object_hit_ratio;
        let separate = report(config(policy, FleetKind::Separate), &requests).object_hit_ratio;
        assert!(fleet > one - 0.01, "{policy}: {fleet}, {one}");
        assert!(separate < one - 0.05, "{policy}: {separate}, {one}");
    }
}

/// One object has six of ten requests, so its owner alone would have more than twice the mean load. The bound moves
/// the excess to other nodes, and copies answer it where it arrives.
#[test]
fn a_hot_object_overloads_no_node() {
    let requests = requests(60_000, 6);
    let mut bounded = config(PolicySpec::LRU, FleetKind::Fleet);
    bounded.node.warmup_requests = 10_000;
    let copies = FleetConfig {
        peer_cost: 0.1,
        ..bounded.clone()
    };
    let (bounded, copies) = (report(bounded, &requests), report(copies, &requests));
    // Requests that arrive at the owner itself never move, so the load may exceed the bound by some of these.
    let load = bounded.request_load_max_ratio;
    assert!((1.1..1.3).contains(&load), "{load}");
    assert!(bounded.moved_by_load_requests > 1000);
    assert!(copies.request_load_max_ratio < 1.1, "{copies:?}");
    assert!(copies.copy_hits > 20_000);
    assert!(copies.peer_requests < bounded.peer_requests / 4 * 3);
}

/// The failure of a node moves its share of the keys. The hit ratio drops and recovers.
#[test]
fn a_lost_node_moves_its_keys_and_its_objects_are_fetched_again() {
    let requests = requests(60_000, 0);
    let mut fleet = config(PolicySpec::LRU, FleetKind::Fleet);
    fleet.node.capacity_bytes = 100_000;
    let whole = report(fleet.clone(), &requests);
    fleet.lose_at = Some(40_000);
    let mut lost = report(fleet.clone(), &requests);
    let before: Vec<Request> = requests[..40_000].to_vec();
    let (same, early) = (report(fleet, &before), &lost.series[..40]);
    assert_eq!(same.series, early, "the failure has no effect before");
    assert_eq!(lost.node_requests[3], same.node_requests[3]);
    lost.compare_loss(&whole);
    let loss = lost.loss.expect("a node was lost");
    assert_eq!(loss.at_request, 40_000);
    assert!(
        (loss.moved_keys_ratio - 0.25).abs() < 0.03,
        "{}",
        loss.moved_keys_ratio
    );
    assert!(loss.object_hit_ratio_drop_max > 0.02, "{loss:?}");
    assert!(loss.recovered_after_requests.is_some());
    // All objects of the lost node that are requested later are fetched again.
    let objects: HashSet<u64> = requests.iter().map(|request| request.key).collect();
    let most = objects.len() as u64 / 4 + 100;
    assert!(
        (100..most).contains(&loss.additional_origin_requests),
        "{loss:?}"
    );
}

/// Equal settings give equal reports, whatever the batches are.
#[test]
fn batches_change_nothing() {
    let requests = requests(10_000, 2);
    let fleet = FleetConfig {
        peer_cost: 0.1,
        lose_at: Some(5000),
        ..config(PolicySpec::DENSITY, FleetKind::Fleet)
    };
    let whole = report(fleet.clone(), &requests);
    let mut parts = Fleet::new(fleet.clone());
    requests
        .chunks(7)
        .for_each(|part| parts.feed_requests(part));
    assert_eq!(whole, parts.report());
    let mut other = fleet;
    other.node.seed = Seed(2);
    assert_ne!(whole.peer_bytes, report(other, &requests).peer_bytes);
}
