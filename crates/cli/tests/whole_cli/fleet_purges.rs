//! Edges that share their purges by a server of NATS. Each edge is a process with a disk.
//!
//! A response of the origin has the tag `all`, and objects of 100 kB are stored on disk only.

use std::path::Path;
use std::process::Output;

use edgeward_testkit::client::{Client, metric};
use edgeward_testkit::nats::NatsServer;
use rustix::process::Signal;
use tempfile::TempDir;

use super::run::{Server, get, output, text, until};

/// The server of NATS, the origin, and the files of the nodes.
struct Fleet {
    nats: NatsServer,
    origin: Server,
    folder: TempDir,
}

/// An edge of the fleet.
struct Node {
    server: Server,
    config: String,
    token: String,
}

impl Fleet {
    /// Returns `None` if NATS is not installed.
    fn start() -> Option<Self> {
        let nats = NatsServer::start()?;
        let folder = tempfile::tempdir().expect("a folder");
        let token = format!("{TOKEN}\n");
        std::fs::write(folder.path().join("token"), token).expect("written");
        let header = "--header=Surrogate-Key: all";
        let origin = Server::start(&["origin", "--listen=127.0.0.1:0", "--json", header]);
        Some(Self {
            nats,
            origin,
            folder,
        })
    }

    /// Configures and starts a node, and waits until it has all purges. `more` are settings of `[fleet.nats]`.
    fn node(&self, name: &str, more: &str) -> Node {
        let config = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n[server]\nname = \"{name}\"\n\
             [admin]\naddress = \"127.0.0.1:0\"\n[origin]\nurl = \"http://{}\"\n\
             [hot]\ncapacity = \"1MiB\"\npolicy = \"lru\"\n\
             [[disk_device]]\npath = \"disk-{name}\"\ncapacity = \"64MiB\"\n[disk]\nadmission = \"always\"\n\
             [purge]\ntoken_file = \"token\"\n\
             [fleet.nats]\nservers = [\"{}\"]\n{more}\n",
            self.origin.addr("/listen"),
            self.nats.url(),
        );
        let file = self.path(&format!("{name}.toml"));
        std::fs::write(&file, config).expect("written");
        let node = Node::start(file, self.path("token"));
        node.wait_until_current();
        node
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

impl Node {
    fn start(config: String, token: String) -> Self {
        assert!(Path::new(&config).exists());
        let server = Server::start(&["serve", "--json", "--log=off", "--config", &config]);
        Self {
            server,
            config,
            token,
        }
    }

    fn metric(&self, series: &str) -> f64 {
        metric(&get(self.server.addr("/admin"), "/metrics"), series)
    }

    fn wait_until_current(&self) {
        until("the node has all purges", || {
            let page = get(self.server.addr("/admin"), "/metrics");
            let value = |series| metric(&page, series);
            let has_all = value("edgeward_fleet_cut_off") == 0.0
                && value("edgeward_fleet_stream_connected") == 1.0
                && value("edgeward_fleet_lag_messages") == 0.0;
            has_all.then_some(())
        });
    }

    /// Waits until the node has applied all purges that another node has applied.
    fn wait_for(&self, other: &Self) {
        let position = other.metric(POSITION);
        until("the node has the purges of the other one", || {
            (self.metric(POSITION) >= position).then_some(())
        });
    }

    fn get(&self, path: &str) -> String {
        get(self.server.addr("/listening/0"), path)
    }

    fn is_hit(&self, path: &str) -> bool {
        self.has_hit(&self.get(path))
    }

    /// Returns true if an answer of this node states a hit.
    fn has_hit(&self, answer: &str) -> bool {
        let name = Path::new(&self.config).file_stem().expect("a name");
        answer.contains(&format!("cache-status: {}; hit", name.display()))
    }

    /// Requests an object until it is served from the cache.
    fn store(&self, path: &str) {
        until("the object is stored", || self.is_hit(path).then_some(()));
    }

    /// Purges. A purge that is not acknowledged in time, on a busy machine, is sent again.
    fn purge_in_time(&self, args: &[&str]) {
        let purged = until("an acknowledgement", || {
            let purged = self.purge(args);
            purged.status.success().then_some(purged)
        });
        assert_eq!(text(&purged.stdout), "purged\n", "{purged:?}");
    }

    fn purge(&self, args: &[&str]) -> Output {
        let admin = self.server.addr("/admin").to_string();
        let api = ["purge", "--admin", &admin, "--token-file", &self.token];
        output(&[&api[..], args].concat())
    }

    /// Kills the node. Returns its configuration and the file of the token, with which it can start again.
    fn kill(self) -> (String, String) {
        self.server.signal(Signal::KILL);
        self.server.wait_for_end();
        (self.config, self.token)
    }

    fn restart(self) -> Self {
        let (config, token) = self.kill();
        Self::start(config, token)
    }
}

fn url(path: &str) -> String {
    format!("http://localhost{path}")
}

#[test]
fn a_purge_at_one_node_is_a_purge_at_all_nodes() {
    let Some(fleet) = Fleet::start() else { return };
    let nodes = ["a", "b", "c"].map(|name| fleet.node(name, ""));
    let [a, b, c] = &nodes;
    nodes.iter().for_each(|node| {
        node.store("/o/1?size=1000");
        node.store("/o/2?size=1000");
    });
    a.purge_in_time(&[&url("/o/1?size=1000")]);
    assert!(
        !a.is_hit("/o/1?size=1000"),
        "the node has acknowledged the purge"
    );
    for other in [b, c] {
        other.wait_for(a);
        assert!(!other.is_hit("/o/1?size=1000") && other.is_hit("/o/2?size=1000"));
    }
    c.purge_in_time(&["--tag", "all", "--soft"]);
    b.wait_for(c);
    assert!(
        b.is_hit("/o/2?size=1000"),
        "a soft purge serves while it validates"
    );
    assert!(b.metric("edgeward_purges_total{scope=\"tag\"}") >= 1.0);
}

/// Method: the node that was down validates stored responses until it has all purges, so that its first response shows
/// if it knows that it lacks some.
#[test]
fn a_node_that_was_killed_serves_no_object_that_was_purged_meanwhile() {
    let Some(fleet) = Fleet::start() else { return };
    let a = fleet.node("a", "");
    let b = fleet.node("b", "when_cut_off = \"validate\"\nlag_max = \"60s\"");
    let (purged, kept) = ("/o/1?size=100000", "/o/2?size=100000");
    b.store(purged);
    b.store(kept);
    until("the objects are on disk", || {
        let page = get(b.server.addr("/admin"), "/metrics");
        let is_count =
            |line: &str| line.starts_with("edgeward_disk_objects{") && line.ends_with(" 2");
        page.lines().any(is_count).then_some(())
    });
    let (config, token) = b.kill();
    let mut admin = Client::connect(a.server.addr("/admin"));
    for n in 0..1000 {
        let scope = match n {
            500 => format!("\"urls\": [\"{}\"]", url(purged)),
            n => format!("\"tags\": [\"tag-{n}\"]"),
        };
        let body = format!("{{{scope}}}");
        // A purge that is not acknowledged in time, on a busy machine, is sent again.
        until("an acknowledgement", || {
            admin.send(format!(
                "POST /purge HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\
                 content-length: {}\r\n\r\n{body}",
                body.len()
            ));
            (admin.answer("POST").status == 200).then_some(())
        });
    }
    let b = Node::start(config, token);
    assert!(!b.is_hit(purged), "purged while the node was down");
    b.wait_for(&a);
    b.wait_until_current();
    assert!(b.is_hit(kept));
    assert_eq!(b.metric("edgeward_fleet_purged_all_total"), 0.0);
    assert!(b.metric("edgeward_fleet_applied_total") >= 1000.0);
}

#[test]
fn without_nats_requests_are_served_and_purges_refused_and_afterwards_the_nodes_agree() {
    let Some(mut fleet) = Fleet::start() else {
        return;
    };
    let a = fleet.node("a", "");
    let b = fleet.node("b", "purge_alone = true");
    let before = "/o/1?size=100000";
    b.store(before);
    a.purge_in_time(&[&url(before)]);
    fleet.nats.kill();
    for node in [&a, &b] {
        until("the node notices", || {
            (node.metric("edgeward_fleet_stream_connected") == 0.0).then_some(())
        });
        node.store("/o/3?size=1000");
    }
    let refused = a.purge(&[&url("/o/3?size=1000")]);
    assert!(!refused.status.success(), "{refused:?}");
    let why = text(&refused.stderr);
    assert!(
        why.contains("the stream of the fleet cannot be reached"),
        "{why}"
    );
    assert_eq!(
        a.metric("edgeward_fleet_purges_refused_total{cause=\"disconnected\"}"),
        1.0
    );
    assert!(a.is_hit("/o/3?size=1000"));
    let alone = b.purge(&[&url("/o/3?size=1000")]);
    assert!(alone.status.success(), "{alone:?}");
    assert!(!b.is_hit("/o/3?size=1000"));
    // The purge before the outage was acknowledged, so it applies after a kill of the node and of NATS.
    let b = b.restart();
    fleet.nats.restart();
    b.wait_until_current();
    assert!(!b.is_hit(before));
    a.purge_in_time(&[&url("/o/3?size=1000")]);
    assert!(!a.is_hit("/o/3?size=1000"));
    until("equal positions", || {
        (a.metric(POSITION) == b.metric(POSITION)).then_some(())
    });
    assert_eq!(b.metric("edgeward_fleet_purged_all_total"), 0.0);
}

#[test]
fn a_node_that_is_cut_off_refuses_stored_responses_if_it_is_configured_so() {
    let Some(mut fleet) = Fleet::start() else {
        return;
    };
    let node = fleet.node("a", "when_cut_off = \"refuse\"\nlag_max = \"2s\"");
    node.store("/o/1?size=1000");
    fleet.nats.kill();
    until("the node is cut off", || {
        (node.metric("edgeward_fleet_cut_off") == 1.0).then_some(())
    });
    let refused = node.get("/o/1?size=1000");
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.contains("detail=cut-off"), "{refused}");
    assert!(node.get("/o/2?size=1000").starts_with("HTTP/1.1 200"));
    fleet.nats.restart();
    // On a busy machine a query of the stream may take longer than `lag_max`, so that the node is cut off again.
    let answer = until("the node is not cut off", || {
        let answer = node.get("/o/1?size=1000");
        (!answer.starts_with("HTTP/1.1 503")).then_some(answer)
    });
    assert!(node.has_hit(&answer), "{answer}");
}

/// The token of the admin API.
const TOKEN: &str = "sixteen-or-more-characters";

/// The position of a node in the stream.
const POSITION: &str = "edgeward_fleet_position";
