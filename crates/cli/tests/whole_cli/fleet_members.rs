//! Edges that announce themselves to their fleet by a server of NATS. Each is a process.

use std::path::Path;

use edgeward_testkit::client::{Client, metric};
use edgeward_testkit::nats::NatsServer;
use edgeward_testkit::programs::ReservedPort;
use edgeward_testkit::{Answer, ScriptedOrigin};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::run::{Server, get, output, status, text, until};

/// The server of NATS, the origin, and the files of the nodes.
struct Fleet {
    nats: NatsServer,
    origin: ScriptedOrigin,
    folder: TempDir,
}

/// An edge of the fleet, and the port at which other nodes ask it.
struct Node {
    server: Server,
    _port: ReservedPort,
}

impl Fleet {
    /// Returns `None` if NATS is not installed.
    fn start() -> Option<Self> {
        let nats = NatsServer::start()?;
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), "key", "0123456789abcdef0123456789abcdef");
        let origin = ScriptedOrigin::start();
        origin.otherwise(|_| Answer::ok("body").header("cache-control", "max-age=600"));
        Some(Self {
            nats,
            origin,
            folder,
        })
    }

    /// Starts a node of this name. Its configuration is in the file `FILE.toml`.
    fn node(&self, file: &str, name: &str) -> Node {
        let port = ReservedPort::any();
        let config = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n[origin]\nurl = \"http://{}\"\n\
             [hot]\ncapacity = \"16MiB\"\npolicy = \"lru\"\n[admin]\naddress = \"127.0.0.1:0\"\n\
             [overload]\nlag_max = \"0s\"\n\
             [fleet]\nname = \"{name}\"\naddress = \"{}\"\nkey_file = \"key\"\nwait = \"30s\"\n\
             [fleet.nats]\nservers = [\"{}\"]\nmember_ttl = \"8s\"\nlag_max = \"30s\"\n",
            self.origin.addr(),
            port.addr(),
            self.nats.url(),
        );
        let path = write(self.folder.path(), &format!("{file}.toml"), &config);
        Node {
            server: Server::start(&["serve", "--json", "--config", &path]),
            _port: port,
        }
    }

    fn nodes(&self, names: &[&str]) -> Vec<Node> {
        names.iter().map(|name| self.node(name, name)).collect()
    }
}

impl Node {
    fn fleet(&self) -> Value {
        status(self.server.addr("/admin"))["fleet"].clone()
    }

    /// Returns the members as text, such as `a:up b:draining`.
    fn members(&self) -> String {
        let fleet = self.fleet();
        let members = fleet["members"].as_array().expect("members").iter();
        let word = |member: &Value, key: &str| member[key].as_str().expect("a word").to_owned();
        let texts =
            members.map(|member| format!("{}:{}", word(member, "name"), word(member, "state")));
        let mut texts: Vec<_> = texts.collect();
        texts.sort();
        texts.join(" ")
    }

    fn metric(&self, series: &str) -> f64 {
        metric(&get(self.server.addr("/admin"), "/metrics"), series)
    }

    fn is_current(&self) -> bool {
        self.metric("edgeward_fleet_directory_current") == 1.0
    }
}

fn write(folder: &Path, name: &str, content: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, content).expect("written");
    path.display().to_string()
}

/// Requests objects at each node. All requests succeed.
fn get_all(nodes: &[&Node]) {
    for n in 0..30 {
        for node in nodes {
            let path = format!("/{n}");
            let got = Client::connect(node.server.addr("/listening/0")).get(&path, &[]);
            assert_eq!((got.status, got.text()), (200, "body"), "{path}: {got:?}");
        }
    }
}

/// Waits until all nodes have these members, besides those that drain, while clients request objects.
fn wait_for(nodes: &[&Node], expected: &str) {
    until(expected, || {
        get_all(nodes);
        let owners = |node: &Node| {
            let members = node.members();
            let owners = members
                .split(' ')
                .filter(|member| !member.ends_with(":draining"));
            owners.collect::<Vec<_>>().join(" ")
        };
        let has_all = nodes.iter().all(|node| owners(node) == expected);
        has_all.then_some(())
    });
}

#[test]
fn nodes_that_start_leave_and_are_killed_cost_no_request() {
    let Some(fleet) = Fleet::start() else { return };
    let nodes = fleet.nodes(&["a", "b", "c"]);
    let [a, b, c] = &nodes[..] else {
        unreachable!()
    };
    wait_for(&[a, b, c], "a:up b:up c:up");
    let admin = a.server.addr("/admin").to_string();
    let shown = output(&["fleet", "status", "--admin", &admin]);
    let table = text(&shown.stdout);
    assert!(shown.status.success() && table.contains("a*"), "{table}");
    c.server.signal(Signal::KILL);
    wait_for(&[a, b], "a:up b:up");
    let d = fleet.node("d", "d");
    wait_for(&[a, b, &d], "a:up b:up d:up");
    b.server.signal(Signal::TERM);
    // It has drained, so its requests are finished.
    wait_for(&[a, &d], "a:up d:up");
    let loops = a.metric("edgeward_fleet_received_total{result=\"loop\"}");
    assert_eq!(loops, 0.0);
}

#[test]
fn without_nats_the_list_of_members_stays() {
    let Some(mut fleet) = Fleet::start() else {
        return;
    };
    let nodes = fleet.nodes(&["a", "b"]);
    let [a, b] = &nodes[..] else { unreachable!() };
    wait_for(&[a, b], "a:up b:up");
    fleet.nats.kill();
    for node in [a, b] {
        until("the node notices", || (!node.is_current()).then_some(()));
    }
    wait_for(&[a, b], "a:up b:up");
    // A reload keeps the list, which is not in the file.
    let reloads = || a.metric("edgeward_reloads_total{result=\"applied\"}");
    let before = reloads();
    a.server.signal(Signal::HUP);
    until("the reload", || (reloads() > before).then_some(()));
    assert_eq!(a.members(), "a:up b:up");
    fleet.nats.restart();
    for node in [a, b] {
        until("the node is announced", || node.is_current().then_some(()));
    }
    assert_eq!(a.members(), "a:up b:up");
}

#[test]
fn a_second_node_with_a_name_of_the_fleet_stays_out_until_the_first_one_leaves() {
    let Some(fleet) = Fleet::start() else { return };
    let nodes = fleet.nodes(&["a", "b"]);
    let [a, b] = &nodes[..] else { unreachable!() };
    wait_for(&[a, b], "a:up b:up");
    let second = fleet.node("second", "b");
    until("the second node notices", || {
        (second.metric("edgeward_fleet_duplicate_name") == 1.0).then_some(())
    });
    let first_url = second.fleet()["directory"]["duplicate_of"].clone();
    assert!(
        first_url
            .as_str()
            .is_some_and(|url| url.starts_with("http://")),
        "{first_url}"
    );
    until("it serves alone", || {
        (second.members() == "b:up").then_some(())
    });
    get_all(&[a, b, &second]);
    b.server.signal(Signal::TERM);
    wait_for(&[a, &second], "a:up b:up");
}
