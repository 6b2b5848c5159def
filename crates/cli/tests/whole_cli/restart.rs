//! Restarts an edge with a disk, by SIGTERM and by SIGKILL, and compares the hit ratios before and after.

use std::path::Path;

use edgeward_testkit::client::{self, Client};
use edgeward_types::{SplitMix64, mix64};
use rustix::process::Signal;

use super::run::{Server, get, until};

/// Requests by a Zipf distribution: object `n` of [`OBJECTS`] has the weight `1 / n`.
struct Trace {
    random: SplitMix64,
    /// The sums of the weights of the objects up to each object.
    sums: Vec<f64>,
}

impl Trace {
    fn new(seed: u64) -> Self {
        let weights = (1..=OBJECTS).map(|n| 1.0 / n as f64);
        let sums = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Self {
            random: SplitMix64(seed),
            sums: sums.collect(),
        }
    }

    /// Returns the next path. The objects have 1 to 20 kB.
    fn next(&mut self) -> String {
        let total = self.sums.last().expect("objects exist");
        let at = self.random.below(1 << 53) as f64 / (1_u64 << 53) as f64 * total;
        let object = self.sums.partition_point(|sum| *sum <= at);
        path_of(object as u64)
    }
}

fn path_of(object: u64) -> String {
    format!("/o/{object}?size={}", 1000 + mix64(object) % 19_000)
}

const OBJECTS: u64 = 3000;

/// Returns true if the response to a GET is stored.
fn is_hit(client: &mut Client, path: &str) -> bool {
    client.get(path, &[]).is_hit()
}

fn hits(client: &mut Client, trace: &mut Trace, requests: u32) -> u32 {
    let hits = (0..requests).filter(|_| is_hit(client, &trace.next()));
    u32::try_from(hits.count()).expect("few requests")
}

fn origin() -> Server {
    Server::start(&["origin", "--json", "--listen=127.0.0.1:0"])
}

fn edge(folder: &Path, origin: &Server, args: &[&str]) -> Server {
    let origin = format!("--origin=http://{}", origin.addr("/listen"));
    let disk = format!("--disk={}", folder.display());
    let common = [
        "serve",
        "--json",
        "--listen=127.0.0.1:0",
        "--admin=127.0.0.1:0",
        "--workers=1",
        "--hot=4MiB",
        "--disk-size=128MiB",
        "--set=disk.segment_bytes=4MiB",
        &origin,
        &disk,
    ];
    Server::start(&[&common, args].concat())
}

/// Sends SIGTERM and returns the log.
fn stop(edge: Server) -> String {
    edge.signal(Signal::TERM);
    let (status, _, log) = edge.wait_for_end();
    assert!(status.success(), "{log}");
    log
}

fn client(edge: &Server) -> Client {
    Client::connect(edge.addr("/listening/0"))
}

fn metric(edge: &Server, series: &str) -> f64 {
    client::metric(&get(edge.addr("/admin"), "/metrics"), series)
}

/// Waits until memory is filled, and returns the number of objects that were read into memory.
fn loaded(edge: &Server) -> f64 {
    until("memory is filled", || {
        let pending = metric(edge, "edgeward_warm_start_pending_objects");
        (pending == 0.0 && metric(edge, LOADED) > 0.0).then_some(())
    });
    metric(edge, LOADED)
}

const LOADED: &str = "edgeward_warm_start_objects_total{result=\"loaded\"}";

/// Method: 6,000 requests by Zipf, and the hits of the last 1,000 are counted. The edge gets SIGTERM and starts again,
/// and the next 1,000 requests are sent at once, while memory is being filled.
#[test]
fn after_sigterm_the_hit_ratio_is_the_one_before() {
    for policy in ["density", "lru", "gdsf"] {
        let policy = format!("--policy={policy}");
        let folder = tempfile::tempdir().expect("a folder");
        let origin = origin();
        let mut trace = Trace::new(1);
        let first = edge(folder.path(), &origin, &[&policy]);
        let mut connection = client(&first);
        hits(&mut connection, &mut trace, 5000);
        let before = hits(&mut connection, &mut trace, 1000);
        let objects = metric(&first, "edgeward_hot_objects");
        drop(connection);
        let log = stop(first);
        assert!(
            log.contains("objects of memory are on disk for the next start"),
            "{log}"
        );
        let second = edge(folder.path(), &origin, &[&policy]);
        let after = hits(&mut client(&second), &mut trace, 1000);
        let loaded = loaded(&second);
        eprintln!(
            "{policy}: {before} hits before, {after} after; {loaded} of {objects} objects loaded"
        );
        assert!(before > 300, "{before}");
        assert!(
            after * 100 >= before * 95,
            "{before} hits before, {after} after"
        );
        // The other objects were stored by requests first.
        assert!(loaded > objects / 4.0, "{loaded} of {objects}");
        let capacity = metric(&second, "edgeward_hot_capacity_bytes");
        assert!(metric(&second, "edgeward_hot_used_bytes") <= capacity);
    }
}

/// Method: like the test above, with SIGKILL. The edge keeps what the disk has: objects with two requests. The list of
/// the objects in memory is written every 20 ms, so memory is filled too.
#[test]
fn after_sigkill_the_objects_on_disk_are_hits_and_memory_is_filled_from_the_last_list() {
    let folder = tempfile::tempdir().expect("a folder");
    let origin = origin();
    let mut trace = Trace::new(2);
    let args = [
        "--policy=lru",
        "--set=disk.hot_list_interval=20ms",
        "--set=disk.flush_interval=10ms",
        "--set=disk.sync_interval=20ms",
    ];
    let first = edge(folder.path(), &origin, &args);
    let mut connection = client(&first);
    for path in ["/o/twice?size=1000", "/o/once?size=1000"] {
        is_hit(&mut connection, path);
    }
    // 6 MB of other objects evict both from memory of 4 MiB.
    for n in 0..300 {
        is_hit(&mut connection, &format!("/o/other-{n}?size=20000"));
    }
    assert!(
        !is_hit(&mut connection, "/o/twice?size=1000"),
        "the second request is written to disk"
    );
    hits(&mut connection, &mut trace, 5000);
    let list = folder.path().join("hot.list");
    until("the objects are on disk and the list is written", || {
        let is_idle = |metric_of: &str| {
            let device = format!("{{device=\"{}/edgeward.store\"}}", folder.path().display());
            metric(&first, &format!("{metric_of}{device}")) == 0.0
        };
        (is_idle("edgeward_disk_queue_messages") && list.exists()).then_some(())
    });
    let modified = || {
        std::fs::metadata(&list)
            .and_then(|it| it.modified())
            .expect("exists")
    };
    for _ in 0..2 {
        let before = modified();
        until("the list is written again", || {
            (modified() > before).then_some(())
        });
    }
    first.signal(Signal::KILL);
    first.wait_for_end();
    let second = edge(folder.path(), &origin, &args);
    assert!(loaded(&second) > 10.0);
    let mut connection = client(&second);
    assert!(is_hit(&mut connection, "/o/twice?size=1000"));
    assert!(
        !is_hit(&mut connection, "/o/once?size=1000"),
        "memory was lost, and the disk lacks the object"
    );
}

/// Method: two variants and a plain response, each requested once, so that only memory has them. After the restart each
/// is a hit, except a response that was purged and one that has a newer version at the origin.
#[test]
fn variants_survive_and_an_invalidated_response_does_not_return() {
    let folder = tempfile::tempdir().expect("a folder");
    let origin = Server::start(&[
        "origin",
        "--json",
        "--listen=127.0.0.1:0",
        "--header=Vary: Accept-Language",
    ]);
    let first = edge(folder.path(), &origin, &[]);
    let mut connection = client(&first);
    let (german, french) = ([("accept-language", "de")], [("accept-language", "fr")]);
    for fields in [german, french] {
        connection.get("/o/1?size=1000", &fields);
    }
    connection.get("/o/2?size=1000", &german);
    // RFC 9111 §4.4: a successful unsafe request invalidates the response.
    client(&first).request("POST", "/o/2?size=1000", &[("content-length", "0")], b"");
    drop(connection);
    stop(first);
    let second = edge(folder.path(), &origin, &[]);
    let mut connection = client(&second);
    assert!(connection.get("/o/1?size=1000", &german).is_hit());
    assert!(connection.get("/o/1?size=1000", &french).is_hit());
    let italian = [("accept-language", "it")];
    assert!(!connection.get("/o/1?size=1000", &italian).is_hit());
    assert!(!connection.get("/o/2?size=1000", &german).is_hit());
}

/// Method: the list is replaced by other bytes, by the list of another store, and by nothing.
#[test]
fn a_corrupt_or_foreign_list_is_logged_and_memory_starts_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let other_folder = tempfile::tempdir().expect("a folder");
    let origin = origin();
    for folder in [&folder, &other_folder] {
        let first = edge(folder.path(), &origin, &[]);
        is_hit(&mut client(&first), &path_of(1));
        stop(first);
    }
    let list = folder.path().join("hot.list");
    let foreign = std::fs::read(other_folder.path().join("hot.list")).expect("written");
    for (content, message) in [
        (
            &b"not a list"[..],
            "it does not start as a list of hot objects",
        ),
        (&foreign[..foreign.len() - 1], "its length is"),
        (&foreign, "belongs to another store"),
    ] {
        std::fs::write(&list, content).expect("written");
        let second = edge(folder.path(), &origin, &[]);
        assert!(
            is_hit(&mut client(&second), &path_of(1)),
            "the disk has the object"
        );
        let log = stop(second);
        assert!(
            log.contains(message) && log.contains("memory starts empty"),
            "{log}"
        );
    }
}

/// Method: 20 objects of 20 kB that were requested once, and limits of no time, of no bytes and of 100 kB.
#[test]
fn a_stopping_edge_writes_objects_only_within_its_limits() {
    for (limit, expected) in [
        ("disk.shutdown_write_time=0s", 0..1),
        ("disk.shutdown_write_bytes=0", 0..1),
        ("disk.shutdown_write_bytes=100000", 5..6),
        ("disk.warm_restart=false", 0..1),
        ("disk.admission=never", 0..1),
        ("disk.warm_restart=true", 20..21),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let origin = origin();
        let set = format!("--set={limit}");
        let first = edge(folder.path(), &origin, &[&set]);
        let mut connection = client(&first);
        let path = |n: u32| format!("/o/{n}?size=20000");
        (0..20).for_each(|n| _ = is_hit(&mut connection, &path(n)));
        drop(connection);
        stop(first);
        let second = edge(folder.path(), &origin, &[]);
        let mut connection = client(&second);
        let hits = (0..20)
            .filter(|n| is_hit(&mut connection, &path(*n)))
            .count();
        assert!(expected.contains(&hits), "{limit}: {hits} hits");
    }
}
