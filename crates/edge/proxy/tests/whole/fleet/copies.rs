//! Copies of hot objects at nodes that do not own them.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use edgeward_proxy::config::{DiskConfig, FleetConfig};
use edgeward_proxy::{Edge, EdgeConfig};
use edgeward_purge::Scope;
use edgeward_semantics::Heuristic;
use edgeward_store::disk::{Device, DiskSettings};
use edgeward_testkit::disk::SimulatedDisk;
use edgeward_testkit::{Answer, ScriptedOrigin};

use super::purges::{Stream, start_with_stream};
use super::{FleetNode, Plan, origin, paths};
use crate::support::{Client, TIMEOUT, config_for};

/// The nodes `a` and `b`. For both, a fetch from the other costs as much as one from the origin.
struct Pair {
    a: FleetNode,
    b: FleetNode,
    stream_of_a: Arc<Stream>,
    stream_of_b: Arc<Stream>,
}

impl Pair {
    /// `change` changes the configuration of `a`.
    fn start(
        plan: &Plan,
        origin: &ScriptedOrigin,
        change: impl FnOnce(&mut EdgeConfig, &mut FleetConfig),
    ) -> Self {
        let (b, stream_of_b) =
            start_with_stream(plan, "b", origin, |_, fleet| fleet.replicate = 1.0);
        let (a, stream_of_a) = start_with_stream(plan, "a", origin, |config, fleet| {
            fleet.replicate = 1.0;
            change(config, fleet);
        });
        Self {
            a,
            b,
            stream_of_a,
            stream_of_b,
        }
    }

    /// Returns a path that `b` owns. It was requested once, at `a`, which has stored an object of its own before: a
    /// memory without objects keeps no copy.
    fn path_of_b(&self) -> String {
        let path = paths(1000).find(|path| {
            let before = self.b.received("accepted");
            assert_eq!(self.a.get(path).status, 200);
            let is_of_b = self.b.received("accepted") > before;
            is_of_b && self.a.objects() > 0.0
        });
        path.expect("one of the objects is of b")
    }

    /// Returns true if `a` answers without `b` and without the origin.
    fn is_hit_at_a(&self, path: &str, origin: &ScriptedOrigin) -> bool {
        let before = (self.b.received("accepted"), origin.requests(path));
        assert_eq!(self.a.get(path).status, 200);
        before == (self.b.received("accepted"), origin.requests(path))
    }
}

fn copies(node: &FleetNode, result: &str) -> f64 {
    node.metric(&format!(
        "edgeward_fleet_copies_total{{result=\"{result}\"}}"
    ))
}

fn copy_hits(node: &FleetNode) -> f64 {
    node.metric("edgeward_fleet_copy_hits_total")
}

/// The first request shows no rate. A purge that reaches the node covers its copy, as any object.
#[test]
fn a_node_keeps_a_copy_of_an_object_that_is_requested_again_until_it_is_purged() {
    let origin = origin();
    let pair = Pair::start(&Plan::new(&["a", "b"], &[]), &origin, |_, _| {});
    let path = pair.path_of_b();
    assert_eq!((copies(&pair.a, "stored"), copy_hits(&pair.a)), (0.0, 0.0));
    assert!(!pair.is_hit_at_a(&path, &origin));
    assert_eq!(copies(&pair.a, "stored"), 1.0);
    for hits in 1..=3 {
        assert!(pair.is_hit_at_a(&path, &origin));
        assert_eq!(copy_hits(&pair.a), f64::from(hits));
    }
    assert_eq!(origin.requests(&path), 1);
    assert_eq!(copy_hits(&pair.b), 0.0, "the owner has no copy");
    let url = Scope::url(&format!("http://test.example{path}")).expect("a URL");
    // The owner still has the purged object, which becomes no copy.
    pair.stream_of_a.deliver(2, url.clone());
    assert!(pair.a.is_refreshed_by(&path, &origin));
    assert_eq!(copies(&pair.a, "stored"), 1.0);
    pair.stream_of_b.deliver(2, url);
    assert!(pair.a.is_refreshed_by(&path, &origin));
}

/// Method: the requests for the own objects of `a` are hits, so its memory works harder than a copy would.
#[test]
fn an_object_with_fewer_requests_than_those_in_memory_is_not_copied() {
    let origin = origin();
    let plan = Plan::new(&["a", "b"], &[]);
    let pair = Pair::start(&plan, &origin, |_, fleet| fleet.replicate = 0.01);
    let path = pair.path_of_b();
    let own = paths(1000)
        .find(|path| pair.is_hit_at_a(path, &origin))
        .expect("a has an object");
    (0..20).for_each(|_| assert!(pair.is_hit_at_a(&own, &origin)));
    let results = || ["stored", "cold"].map(|result| copies(&pair.a, result));
    let before = results();
    assert!(!pair.is_hit_at_a(&path, &origin));
    assert_eq!(results(), [before[0], before[1] + 1.0]);
}

/// Method: `a` starts without a fleet, and a reload adds it.
#[test]
fn hits_before_a_reload_that_adds_the_fleet_do_not_count_against_copies() {
    let origin = origin();
    let plan = Plan::new(&["a", "b"], &[]);
    let (b, stream_of_b) = start_with_stream(&plan, "b", &origin, |_, _| {});
    let stream_of_a = Arc::new(Stream::default());
    let in_fleet = plan.config("a", &origin, |_, fleet| fleet.replicate = 1.0);
    let mut alone = config_for(origin.addr());
    alone.fleet_purges = Some(stream_of_a.purges());
    let pair = Pair {
        a: FleetNode(Edge::start(alone).expect("the node starts")),
        b,
        stream_of_a,
        stream_of_b,
    };
    pair.stream_of_a.deliver(1, Scope::all());
    (0..200).for_each(|_| _ = pair.a.get("/own"));
    let reloaded = pair.a.0.reloader().reload(&in_fleet);
    reloaded.expect("the configuration is valid");
    let path = pair.path_of_b();
    assert!(!pair.is_hit_at_a(&path, &origin));
    assert_eq!(copies(&pair.a, "stored"), 1.0);
}

/// The owner may have the old object for a moment after the other node has invalidated it. Method: if the pause has
/// ended before the test looks, it shows nothing.
#[test]
fn an_unsafe_request_removes_copies_and_pauses_them() {
    let origin = origin();
    let pair = Pair::start(&Plan::new(&["a", "b"], &[]), &origin, |_, _| {});
    let path = pair.path_of_b();
    _ = pair.a.get(&path);
    assert!(pair.is_hit_at_a(&path, &origin));
    let begun = Instant::now();
    pair.b.post(&path);
    assert!(
        pair.a.is_refreshed_by(&path, &origin),
        "the POST has removed the copy"
    );
    let is_hit = pair.is_hit_at_a(&path, &origin);
    if begun.elapsed() < Duration::from_secs(5) {
        assert!(!is_hit);
        assert_eq!(copies(&pair.a, "paused"), 2.0);
    }
}

/// Returns a change that adds a disk to a node.
fn with_disk(
    disk: &Arc<SimulatedDisk>,
    folder: &Path,
) -> impl Fn(&mut EdgeConfig, &mut FleetConfig) + use<> {
    let device: Arc<dyn Device> = Arc::<SimulatedDisk>::clone(disk);
    let log = folder.join("purges.log");
    move |config, _| {
        let mut disk = DiskConfig::with(DiskSettings::default());
        disk.opened = vec![Arc::clone(&device)];
        disk.admission = "always".parse().expect("the rule is valid");
        config.disk = Some(disk);
        config.purge.log = Some(log.clone());
    }
}

/// Method: `a` writes all objects that it owns to its disk, and starts again with it.
#[test]
fn the_disk_gets_no_copies() {
    let origin = origin();
    let plan = Plan::new(&["a", "b"], &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let with_disk = |disk: &Arc<SimulatedDisk>| with_disk(disk, folder.path());
    let disk = SimulatedDisk::new(64 << 20);
    let pair = Pair::start(&plan, &origin, with_disk(&disk));
    let path = pair.path_of_b();
    _ = pair.a.get(&path);
    assert!(pair.is_hit_at_a(&path, &origin));
    let mut own = paths(1000).filter(|own| *own != path);
    let own = own.find(|path| pair.is_hit_at_a(path, &origin));
    let own = own.expect("a has an object");
    let Pair { a, b, .. } = pair;
    a.0.shutdown(TIMEOUT);
    let disk = SimulatedDisk::with_content(disk.content());
    let a = plan.start("a", &origin, with_disk(&disk));
    let before = b.received("accepted");
    assert!(!a.is_refreshed_by(&own, &origin), "it is on disk");
    assert_eq!(b.received("accepted"), before);
    assert!(!a.is_refreshed_by(&path, &origin));
    assert_eq!(b.received("accepted"), before + 1.0, "the owner is asked");
}

/// Method: after `a` has a copy, `b` drains. `a` writes its objects to its disk, and starts again with it.
#[test]
fn a_copy_whose_node_becomes_the_owner_is_an_object_of_the_node() {
    let origin = origin();
    let mut plan = Plan::new(&["a", "b"], &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let disk = SimulatedDisk::new(64 << 20);
    let pair = Pair::start(&plan, &origin, with_disk(&disk, folder.path()));
    let path = pair.path_of_b();
    _ = pair.a.get(&path);
    assert!(pair.is_hit_at_a(&path, &origin));
    assert_eq!(copy_hits(&pair.a), 1.0);
    plan.member("b").is_draining = true;
    let alone = plan.config("a", &origin, with_disk(&disk, folder.path()));
    let reloaded = pair.a.0.reloader().reload(&alone);
    reloaded.expect("the configuration is valid");
    for _ in 0..2 {
        assert!(pair.is_hit_at_a(&path, &origin));
        assert_eq!(copy_hits(&pair.a), 1.0);
    }
    pair.a.0.shutdown(TIMEOUT);
    let disk = SimulatedDisk::with_content(disk.content());
    let a = plan.start("a", &origin, with_disk(&disk, folder.path()));
    assert!(!a.is_refreshed_by(&path, &origin), "it is on disk");
}

#[test]
fn each_variant_of_a_hot_object_is_a_copy() {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|request| {
        Answer::ok(request.header("x-fruit").unwrap_or("none").to_owned())
            .header("cache-control", "max-age=600")
            .header("vary", "x-fruit")
    });
    let pair = Pair::start(&Plan::new(&["a", "b"], &[]), &origin, |_, _| {});
    let path = pair.path_of_b();
    let mut client = Client::connect(pair.a.0.addrs()[0]);
    for round in 0..3 {
        for fruit in ["apple", "pear"] {
            let before = copy_hits(&pair.a);
            let got = client.get(&path, &[("x-fruit", fruit)]);
            assert_eq!((got.status, got.text()), (200, fruit), "{round}");
            let is_hit = copy_hits(&pair.a) > before;
            assert_eq!(is_hit, round > 0, "{fruit}, {round}");
        }
    }
    assert_eq!(origin.requests(&path), 3, "none, apple, pear");
}

/// A node with other rules would give the copies other lifetimes. Without the stream, the purges of the nodes have no
/// order.
#[test]
fn copies_need_equal_rules_a_stream_and_a_cost() {
    let origin = origin();
    let plan = Plan::new(&["a", "b"], &[]);
    let is_copied = |pair: &Pair| {
        let path = pair.path_of_b();
        (0..3).for_each(|_| _ = pair.a.get(&path));
        let is_hit = pair.is_hit_at_a(&path, &origin);
        assert_eq!(is_hit, copies(&pair.a, "stored") > 0.0);
        is_hit
    };
    assert!(is_copied(&Pair::start(&plan, &origin, |_, _| {})));
    let without_cost = Pair::start(&plan, &origin, |_, fleet| fleet.replicate = 0.0);
    assert!(!is_copied(&without_cost));
    drop(without_cost);
    let (b, stream_of_b) = start_with_stream(&plan, "b", &origin, |_, _| {});
    let without_stream = Pair {
        a: plan.start("a", &origin, |_, fleet| fleet.replicate = 1.0),
        b,
        stream_of_a: Arc::default(),
        stream_of_b,
    };
    assert!(!is_copied(&without_stream));
    drop(without_stream);
    let other_rules = Pair::start(&plan, &origin, |config, _| {
        config.caching.rules.heuristic = Some(Heuristic::default());
    });
    assert!(!is_copied(&other_rules));
}

/// Method: the owner serves the object stale, because the origin fails.
#[test]
fn a_stale_object_of_an_owner_is_no_copy() {
    let origin = origin();
    let pair = Pair::start(&Plan::new(&["a", "b"], &[]), &origin, |_, _| {});
    let known = pair.path_of_b();
    let stored = copies(&pair.a, "stored");
    let path = paths(2000).skip(1000).find(|path| {
        origin.once(
            path,
            Answer::ok("old")
                .header("cache-control", "max-age=600, stale-if-error=6000")
                .header("etag", "\"1\"")
                .header("age", "601"),
        );
        origin.on(path, Answer::status(503));
        let before = pair.b.received("accepted");
        _ = pair.a.get(path);
        pair.b.received("accepted") > before
    });
    let path = path.expect("one of the objects is of b");
    for _ in 0..4 {
        let got = pair.a.get(&path);
        assert_eq!((got.status, got.text()), (200, "old"), "{got:?}");
    }
    assert_eq!(copy_hits(&pair.a), 0.0);
    assert_eq!(copies(&pair.a, "stored"), stored);
    // The node keeps copies of other objects.
    _ = pair.a.get(&known);
    assert!(pair.is_hit_at_a(&known, &origin));
}
