//! Purges of a fleet that has a stream. A test delivers the purges to each node.

use std::fmt;
use std::sync::{Arc, Mutex, mpsc};

use edgeward_fleet::{Applied, FollowingCache, PublishDone, PurgeStream, StreamFacts};
use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::{DiskConfig, FleetConfig, FleetPurges, WhenCutOff};
use edgeward_purge::{Purge, Scope, Stamp};
use edgeward_store::disk::{Device, DiskSettings};
use edgeward_testkit::client::until;
use edgeward_testkit::disk::{Errno, Fault, SimulatedDisk};
use edgeward_testkit::{Answer, ScriptedOrigin};
use edgeward_types::ByteSize;
use tokio::runtime::Builder;

use super::{FleetNode, Plan, origin};
use crate::support::{Client, TIMEOUT};

/// A stream whose purges a test delivers to each node.
#[derive(Default)]
pub(super) struct Stream(Mutex<Option<Arc<dyn FollowingCache>>>);

impl Stream {
    /// Delivers a purge with this number in the stream. Returns when the node has applied it.
    pub(super) fn deliver(&self, number: u64, scope: Scope) {
        let cache = self.0.lock().expect("no test has failed").clone();
        let purges = vec![Purge { scope, soft: false }];
        let (applied, waiting) = mpsc::channel();
        let done = Box::new(move |outcome| _ = applied.send(outcome));
        cache
            .expect("the node follows the stream")
            .apply(purges, Stamp::at(5, number), true, done);
        assert_eq!(waiting.recv(), Ok(Applied::Persisted));
    }

    /// Returns the purges of a node that follows this stream.
    pub(super) fn purges(self: &Arc<Self>) -> FleetPurges {
        FleetPurges {
            stream: Arc::<Self>::clone(self),
            when_cut_off: WhenCutOff::Serve,
            purges_alone: false,
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream")
    }
}

impl PurgeStream for Stream {
    fn follow(&self, cache: Arc<dyn FollowingCache>) {
        *self.0.lock().expect("no test has failed") = Some(cache);
    }

    fn publish(&self, _: Vec<Scope>, _: bool, _: &str, done: PublishDone) {
        done(Ok(()));
    }

    fn purge_own(&self) {}

    fn is_current(&self) -> bool {
        true
    }

    fn facts(&self) -> StreamFacts {
        StreamFacts::default()
    }
}

/// Starts a node with a stream that it has joined. `change` changes its configuration and that of its fleet.
pub(super) fn start_with_stream(
    plan: &Plan,
    name: &str,
    origin: &ScriptedOrigin,
    change: impl FnOnce(&mut EdgeConfig, &mut FleetConfig),
) -> (FleetNode, Arc<Stream>) {
    let stream = Arc::new(Stream::default());
    let node = plan.start(name, origin, |config, fleet| {
        config.fleet_purges = Some(stream.purges());
        change(config, fleet);
    });
    // A node that joins purges all its objects.
    stream.deliver(1, Scope::all());
    (node, stream)
}

/// Starts the two nodes of a plan, each with a stream that it has joined.
fn start_with_streams(plan: &Plan, origin: &ScriptedOrigin) -> [(FleetNode, Arc<Stream>); 2] {
    let names = [plan.nodes[0].name, plan.nodes[1].name];
    names.map(|name| start_with_stream(plan, name, origin, |_, _| {}))
}

/// Method: the bound of the objects that are counted one by one is 0.
#[test]
fn a_purge_of_one_url_is_counted_by_a_lookup() {
    let origin = origin();
    let plan = Plan::new(&["a"], &[]);
    let stream = Arc::new(Stream::default());
    let node = plan.start("a", &origin, |config, _| {
        config.purge.allow = "127.0.0.0/8".parse().expect("a network");
        config.purge.count_objects_max = 0;
        config.fleet_purges = Some(stream.purges());
    });
    let varied = Answer::ok("variant").header("cache-control", "max-age=600");
    origin.on("/varied", varied.header("vary", "accept-language"));
    let mut client = Client::connect(node.0.addrs()[0]);
    let mut purge = |path: &str, fields: &[(&str, &str)]| {
        let answer = client.request("PURGE", path, fields, b"");
        assert_eq!(answer.status, 200);
        answer.text().to_owned()
    };
    for (number, path) in [(1, "/a"), (2, "/varied")] {
        assert_eq!(purge(path, &[]), "purged: 0\n");
        assert_eq!(node.get(path).status, 200);
        assert_eq!(purge(path, &[("soft-purge", "1")]), "purged: 1\n");
        assert_eq!(purge(path, &[]), "purged: 1\n");
        let url = Scope::url(&format!("http://test.example{path}")).expect("a URL");
        stream.deliver(number, url);
        assert_eq!(purge(path, &[]), "purged: 0\n", "{path} is purged");
        assert_eq!(node.get(path).status, 200);
        assert_eq!(purge(path, &[]), "purged: 1\n", "{path} is stored again");
    }
    assert!(purge("/a", &[("surrogate-key", "x")]).contains("not counted"));
}

/// Method: the disk has the marker of a path's rule, memory refuses it, and the disk cannot sync.
#[test]
fn a_purge_whose_removal_the_disk_does_not_confirm_purges_all_objects() {
    let origin = ScriptedOrigin::start();
    let large = Answer::pattern(20_000).header("cache-control", "max-age=600");
    let (ruled, other) = ("/ruled?u=1", "/other");
    origin.on(
        "/ruled",
        large.clone().header("no-vary-search", "params=(\"u\")"),
    );
    origin.on(other, large);
    let folder = tempfile::tempdir().expect("a folder");
    let plan = Plan::new(&["a"], &[]);
    let stream = Arc::new(Stream::default());
    let start = |disk: &Arc<SimulatedDisk>, memory| {
        let device: Arc<dyn Device> = Arc::<SimulatedDisk>::clone(disk);
        plan.start("a", &origin, |config, _| {
            let mut disk = DiskConfig::with(DiskSettings::default());
            disk.opened = vec![device];
            disk.admission = "always".parse().expect("the rule is valid");
            config.disk = Some(disk);
            config.hot.capacity = memory;
            config.purge.log = Some(folder.path().join("purges.log"));
            config.fleet_purges = Some(FleetPurges {
                stream: Arc::<Stream>::clone(&stream),
                when_cut_off: WhenCutOff::Serve,
                purges_alone: false,
            });
        })
    };
    let disk = SimulatedDisk::new(64 << 20);
    let node = start(&disk, ByteSize::kib(4));
    for path in [ruled, other] {
        assert_eq!(node.get(path).status, 200);
    }
    until("two objects and a marker are on disk", || {
        let status: serde_json::Value = serde_json::from_str(&node.page("/status")).expect("JSON");
        (status["disk"]["devices"][0]["stored_objects"] == 3).then_some(())
    });
    node.0.shutdown(TIMEOUT);
    let disk = SimulatedDisk::with_content(disk.content());
    let node = start(&disk, ByteSize(1));
    assert!(!node.is_refreshed_by(other, &origin), "it is on disk");
    disk.inject(Fault::Syncs(Errno::Io));
    // The client of a stream calls from its runtime.
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("the runtime can be built");
    let _entered = runtime.enter();
    stream.deliver(
        1,
        Scope::url("http://test.example/ruled?u=5").expect("a URL"),
    );
    assert!(node.is_refreshed_by(other, &origin), "it is purged");
}

/// Method: the node that is asked gets a purge later than the node that asks.
fn check_that_no_purged_object_is_served(plan: &Plan) {
    let origin = ScriptedOrigin::start();
    let answer = |text: &'static str| {
        Answer::ok(text)
            .header("cache-control", "max-age=600")
            .header("surrogate-key", "goods")
    };
    origin.otherwise(move |_| answer("old"));
    let [(asking, early), (asked, late)] = start_with_streams(plan, &origin);
    let (by_tag, other) = ("/object/by-tag", "/object/other");
    origin.on(
        other,
        Answer::ok("kept").header("cache-control", "max-age=600"),
    );
    for path in [by_tag, other] {
        assert_eq!(asking.get(path).status, 200);
        assert!(!asking.is_refreshed_by(path, &origin), "{path} is stored");
    }
    origin.otherwise(move |_| answer("new"));
    early.deliver(2, Scope::Tag("goods".into()));
    assert_eq!(asking.get(by_tag).text(), "new");
    assert_eq!(asking.asked("purged"), 1.0);
    assert_eq!(origin.requests(by_tag), 2);
    assert!(!asking.is_refreshed_by(other, &origin), "not purged");
    late.deliver(2, Scope::Tag("goods".into()));
    assert_eq!(asking.get(by_tag).text(), "new");
    assert_eq!(asked.get(by_tag).text(), "new");
    // Responses that the other node only passes on are no objects.
    let passed = "/object/passed";
    origin.on(
        passed,
        Answer::ok("own").header("cache-control", "no-store"),
    );
    assert_eq!(asking.get(passed).text(), "own");
    assert_eq!(origin.requests(passed), 1);
    assert_eq!(asking.asked("purged"), 1.0);
}

#[test]
fn a_node_serves_no_object_of_an_owner_that_lacks_its_purge() {
    let mut plan = Plan::new(&["a", "b"], &[]);
    plan.member("a").is_draining = true;
    check_that_no_purged_object_is_served(&plan);
}

#[test]
fn an_edge_serves_no_object_of_a_shield_that_lacks_its_purge() {
    check_that_no_purged_object_is_served(&Plan::new(&["a"], &["s"]));
}
