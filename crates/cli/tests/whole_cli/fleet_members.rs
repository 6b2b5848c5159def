//! Edges that announce themselves to their fleet by a server of NATS. Each is a process.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use edgeward_testkit::client::{Client, metric};
use edgeward_testkit::nats::NatsServer;
use edgeward_testkit::programs::ReservedPort;
use edgeward_testkit::{Answer, Gate, ScriptedOrigin};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::descriptors::with_limits;
use super::run::{Server, get, output, status, text, until};
use super::upgrade::UpgradableEdge;

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

    /// Returns the settings of a node of this name, which other nodes ask at this port.
    fn settings(&self, name: &str, port: &ReservedPort) -> String {
        format!(
            "[overload]\nlag_max = \"0s\"\n\
             [fleet]\nname = \"{name}\"\naddress = \"{}\"\nkey_file = \"{}\"\nwait = \"30s\"\n\
             [fleet.nats]\nservers = [\"{}\"]\nmember_ttl = \"12s\"\nslow_start = \"0s\"\nlag_max = \"30s\"\n",
            port.addr(),
            self.folder.path().join("key").display(),
            self.nats.url(),
        )
    }

    /// Starts a node of this name. Its configuration is in the file `FILE.toml`.
    fn node(&self, file: &str, name: &str) -> Node {
        self.node_by(file, name, Server::start)
    }

    /// Starts a node whose weight grows within this time.
    fn slow_node(&self, name: &str, slow_start: &str) -> Node {
        let argument = format!("--set=fleet.nats.slow_start={slow_start}");
        self.node_by(name, name, |args| {
            Server::start(&[args, &[&*argument]].concat())
        })
    }

    /// Starts a node by a function that gets the arguments of its process.
    fn node_by(&self, file: &str, name: &str, start: impl FnOnce(&[&str]) -> Server) -> Node {
        let port = ReservedPort::any();
        let config = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n[origin]\nurl = \"{}\"\n\
             [hot]\ncapacity = \"16MiB\"\npolicy = \"lru\"\n[admin]\naddress = \"127.0.0.1:0\"\n{}",
            self.origin_url(),
            self.settings(name, &port),
        );
        let path = write(self.folder.path(), &format!("{file}.toml"), &config);
        Node {
            server: start(&["serve", "--json", "--config", &path]),
            _port: port,
        }
    }

    /// Starts a node that can be upgraded.
    fn upgradable_node(&self, name: &str, port: &ReservedPort) -> UpgradableEdge {
        UpgradableEdge::start_with(&self.origin_url(), &self.settings(name, port), |command| {
            command.arg("--set=server.drain_timeout=120s");
        })
    }

    fn origin_url(&self) -> String {
        format!("http://{}", self.origin.addr())
    }

    /// Writes records to the bucket, or deletes them, by the protocol of NATS.
    fn write_records(&self, names: &[String], record: impl Fn(&str) -> Option<String>) {
        let url = self.nats.url();
        let addr = url.strip_prefix("nats://").expect("a URL of NATS");
        let mut stream = TcpStream::connect(addr).expect("connected");
        let mut messages = "CONNECT {\"verbose\":false,\"headers\":true}\r\n".to_owned();
        for name in names {
            let subject = format!("$KV.edgeward-members.{name}");
            let deletion = "NATS/1.0\r\nKV-Operation: DEL\r\n\r\n";
            messages += &match record(name) {
                Some(record) => format!("PUB {subject} {}\r\n{record}\r\n", record.len()),
                None => format!("HPUB {subject} {0} {0}\r\n{deletion}\r\n", deletion.len()),
            };
        }
        messages += "PING\r\n";
        stream.write_all(messages.as_bytes()).expect("written");
        let mut lines = BufReader::new(stream).lines();
        let answered = lines.any(|line| line.expect("a line") == "PONG");
        assert!(answered, "NATS has read all messages");
    }

    fn nodes(&self, names: &[&str]) -> Vec<Node> {
        names.iter().map(|name| self.node(name, name)).collect()
    }
}

impl Node {
    fn fleet(&self) -> Value {
        status(self.server.addr("/admin"))["fleet"].clone()
    }

    fn members(&self) -> String {
        members_at(self.server.addr("/admin"))
    }

    fn metric(&self, series: &str) -> f64 {
        metric(&get(self.server.addr("/admin"), "/metrics"), series)
    }

    fn is_current(&self) -> bool {
        self.metric("edgeward_fleet_directory_current") == 1.0
    }
}

/// Returns the members that a node has, as text such as `a:up b:draining`.
fn members_at(admin: SocketAddr) -> String {
    let fleet = &status(admin)["fleet"];
    let members = fleet["members"].as_array().expect("members").iter();
    let word = |member: &Value, key: &str| member[key].as_str().expect("a word").to_owned();
    let texts = members.map(|member| format!("{}:{}", word(member, "name"), word(member, "state")));
    let mut texts: Vec<_> = texts.collect();
    texts.sort();
    texts.join(" ")
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
    // On a busy machine, a member may seem to be down for a moment.
    let table = until("a status without failures", || {
        let shown = output(&["fleet", "status", "--admin", &admin]);
        shown.status.success().then(|| text(&shown.stdout))
    });
    assert!(table.contains("a*"), "{table}");
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

/// Method: a slow start takes an hour, or ends while the test waits.
#[test]
fn all_nodes_use_the_weight_that_a_node_announces_after_its_start() {
    let Some(fleet) = Fleet::start() else { return };
    let (a, b, c) = (
        fleet.node("a", "a"),
        fleet.slow_node("b", "1h"),
        fleet.slow_node("c", "3s"),
    );
    let weights = |node: &Node| {
        let fleet = node.fleet();
        let members = fleet["members"].as_array().expect("members").iter();
        let mut weights: Vec<_> = members
            .filter(|member| member["state"] != "joining")
            .map(|member| format!("{}:{}", member["name"], member["weight"]))
            .collect();
        weights.sort();
        weights.join(" ")
    };
    let wait = || {
        for node in [&a, &b, &c] {
            until("a:100 b:10 c:100", || {
                (weights(node) == r#""a":100 "b":10 "c":100"#).then_some(())
            });
        }
    };
    wait();
    // A reload keeps the share of the weight.
    let reloads = || b.metric("edgeward_reloads_total{result=\"applied\"}");
    let before = reloads();
    b.server.signal(Signal::HUP);
    until("the reload", || (reloads() > before).then_some(()));
    assert_eq!(weights(&b), r#""a":100 "b":10 "c":100"#);
    get_all(&[&a, &b, &c]);
    wait();
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
    wait_for(&[a, b], "a:up b:up");
    fleet.nats.restart();
    for node in [a, b] {
        until("the node is announced", || node.is_current().then_some(()));
    }
    wait_for(&[a, b], "a:up b:up");
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
    until("the status has the URL of the first node", || {
        let first_url = &second.fleet()["directory"]["duplicate_of"];
        let url = first_url.as_str()?;
        url.starts_with("http://").then_some(())
    });
    until("it serves alone", || {
        (second.members() == "b:up").then_some(())
    });
    get_all(&[a, b, &second]);
    b.server.signal(Signal::TERM);
    wait_for(&[a, &second], "a:up b:up");
}

#[test]
fn a_process_that_replaces_another_one_without_nats_keeps_the_list_of_members() {
    let Some(mut fleet) = Fleet::start() else {
        return;
    };
    let _a = fleet.node("a", "a");
    let port = ReservedPort::any();
    let b = fleet.upgradable_node("b", &port);
    let has_both = || (members_at(b.admin) == "a:up b:up").then_some(());
    until("both nodes are members", has_both);
    fleet.nats.kill();
    until("the node notices", || {
        (b.metric("edgeward_fleet_directory_current") == 0.0).then_some(())
    });
    b.upgrade();
    until("the new process has the list", || {
        let upgrades = b.metric("edgeward_process_upgrades_total{result=\"applied\"}");
        (upgrades == 1.0).then(has_both).flatten()
    });
}

/// Method: a request whose answer the origin holds back keeps the drain from ending.
#[test]
fn a_reload_during_a_drain_does_not_undo_it() {
    let Some(fleet) = Fleet::start() else { return };
    let gate = Gate::new();
    fleet
        .origin
        .on("/held", Answer::ok("body").wait_before_head(&gate));
    let a = fleet.node("a", "a");
    let port = ReservedPort::any();
    let b = fleet.upgradable_node("b", &port);
    let admin = a.server.addr("/admin");
    until("both nodes are members", || {
        (members_at(admin) == "a:up b:up").then_some(())
    });
    let mut client = Client::connect(b.addr);
    client.send_head("GET", "/held", &[]);
    gate.wait_reached(1);
    b.signal(Signal::TERM);
    until("the node drains", || {
        (members_at(admin) == "a:up b:draining").then_some(())
    });
    let reloaded = b.command(&["reload"]);
    assert!(reloaded.status.success(), "{reloaded:?}");
    assert!(members_at(b.admin).contains("b:draining"));
    // Its next heartbeats say the same.
    let heartbeats = || b.metric("edgeward_fleet_heartbeats_total");
    let before = heartbeats();
    until("two heartbeats", || {
        (heartbeats() >= before + 2.0).then_some(())
    });
    assert!(members_at(admin).contains("b:draining"));
    gate.open();
    assert_eq!(client.answer("GET").status, 200);
}

/// Method: the limit of open files of the node is too low for connections to the nodes of 200 records.
#[test]
fn a_node_starts_alone_if_it_cannot_start_with_the_records_of_others_and_uses_a_later_list() {
    let Some(fleet) = Fleet::start() else { return };
    let _a = fleet.node_by("a", "a", |args| {
        // Records stay for this time in the bucket that this node creates.
        let args = [args, &["--set=fleet.nats.member_ttl=300s"]].concat();
        let server = Server::start(&args);
        until("the bucket exists", || {
            let metrics = get(server.addr("/admin"), "/metrics");
            (metric(&metrics, "edgeward_fleet_directory_current") == 1.0).then_some(())
        });
        server
    });
    let names: Vec<_> = (0..200).map(|n| format!("x{n}")).collect();
    fleet.write_records(&names, |name| {
        Some(format!(
            "{{\"version\":1,\"name\":\"{name}\",\"url\":\"http://127.0.0.1:1\",\"group\":\"edge\",\"weight\":100,\
             \"state\":\"serving\",\"instance\":1,\"beat\":1,\"lasts_ms\":300000}}"
        ))
    });
    let b = fleet.node_by("b", "b", |args| {
        let args = [args, &["--workers=1"]].concat();
        Server::from_command(with_limits(256, 256, &args))
    });
    assert_eq!(b.members(), "b:up");
    get_all(&[&b]);
    fleet.write_records(&names, |_| None);
    wait_for(&[&b], "a:up b:up");
    b.server.signal(Signal::TERM);
    let (_, _, printed) = b.server.wait_for_end();
    let refused = "the list of the fleet's members cannot be used";
    assert!(printed.contains(refused), "{printed}");
}
