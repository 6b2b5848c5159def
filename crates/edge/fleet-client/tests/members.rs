//! Nodes that announce themselves in a bucket of a real NATS server. Their edges are lists in memory.
//!
//! If `nats-server` is not installed, the tests are skipped, or fail with `EDGEWARD_REQUIRE_TOOLS=1`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::{ConnectOptions, jetstream};
use edgeward_balance::NodeGroup;
use edgeward_fleet::{
    AnnouncedState, DirectoryFacts, FleetDirectory as _, FollowingCache, Member, MemberList,
    NodeProfile, PublishDone, PurgeStream, StreamFacts,
};
use edgeward_fleet_client::{
    AnnouncedNode, MemberSettings, MembersClient, NatsCredentials, NatsSettings,
};
use edgeward_purge::Scope;
use edgeward_testkit::client::{TIMEOUT, until};
use edgeward_testkit::nats::NatsServer;

/// An edge that knows the lists that it has used.
#[derive(Default)]
struct UsedList(Mutex<Vec<Vec<Member>>>);

impl UsedList {
    fn last(&self) -> Vec<Member> {
        let lists = self.0.lock().expect("no panic");
        lists.last().cloned().unwrap_or_default()
    }

    /// Returns true if each list since the first one with all these names has all of them.
    fn keeps(&self, names: &[&str]) -> bool {
        let lists = self.0.lock().expect("no panic");
        let has_all = |list: &Vec<Member>| {
            let has = |name: &&str| list.iter().any(|member| *member.profile.name == **name);
            names.iter().all(has)
        };
        lists.iter().skip_while(|list| !has_all(list)).all(has_all)
    }
}

impl MemberList for UsedList {
    fn check(&self, profile: &NodeProfile) -> Result<(), String> {
        match profile.url.starts_with("http://") {
            true => Ok(()),
            false => Err("another scheme".to_owned()),
        }
    }

    fn apply(&self, members: Vec<Member>) -> Result<(), String> {
        self.0.lock().expect("no panic").push(members);
        Ok(())
    }
}

/// A stream whose purges a node has, or not.
#[derive(Debug)]
struct FixedStream {
    is_current: bool,
}

impl PurgeStream for FixedStream {
    fn follow(&self, _: Arc<dyn FollowingCache>) {}

    fn publish(&self, _: Vec<Scope>, _: bool, _: &str, done: PublishDone) {
        done(Ok(()));
    }

    fn purge_own(&self) {}

    fn is_current(&self) -> bool {
        self.is_current
    }

    fn facts(&self) -> StreamFacts {
        StreamFacts::default()
    }
}

struct Node {
    client: MembersClient,
    list: Arc<UsedList>,
}

impl Node {
    /// Starts a node that accepts requests.
    fn join(nats: &NatsServer, name: &str, port: u16, is_current: bool) -> Self {
        let node = Self::start(nats, name, port, is_current);
        node.client.announce();
        node
    }

    /// Starts a node that has the list of members and does not accept requests yet.
    fn start(nats: &NatsServer, name: &str, port: u16, is_current: bool) -> Self {
        let settings = NatsSettings {
            servers: vec![nats.url()],
            node: name.to_owned(),
            credentials: NatsCredentials::None,
            tls: None,
            stream: "test".to_owned(),
            replicas: 1,
            age_max: Duration::from_secs(3600),
            bytes_max: 100 << 20,
            lag_max: Duration::from_secs(30),
            buffer_bytes_max: 1 << 20,
        };
        let members = MemberSettings {
            lasts: LASTS,
            slow_start: Duration::ZERO,
        };
        let client = MembersClient::start(settings, members);
        let client = client.expect("the thread starts");
        let list = Arc::<UsedList>::default();
        let node = AnnouncedNode {
            profile: NodeProfile {
                name: name.into(),
                url: format!("http://127.0.0.1:{port}").into(),
                group: NodeGroup::Edge,
                weight: 100,
            },
            is_draining: false,
            is_ready: false,
            list: Arc::clone(&list) as _,
            purges: Arc::new(FixedStream { is_current }),
            inherited: None,
        };
        client.join(node, TIMEOUT);
        Self { client, list }
    }

    fn facts(&self) -> DirectoryFacts {
        self.client.facts()
    }

    /// Waits until the edge uses a list with these names and states, such as `a b(draining)`.
    fn wait_for(&self, expected: &str) {
        until(expected, || {
            let list = self.list.last();
            let texts = list.iter().map(|member| {
                let name = &member.profile.name;
                match member.state {
                    AnnouncedState::Joining => format!("{name}(joining)"),
                    AnnouncedState::Serving => name.to_string(),
                    AnnouncedState::Draining => format!("{name}(draining)"),
                }
            });
            (texts.collect::<Vec<_>>().join(" ") == expected).then_some(())
        });
    }
}

/// Runs requests to the server as an operator would.
fn operate<F: Future<Output = ()>>(
    nats: &NatsServer,
    request: impl FnOnce(jetstream::Context) -> F,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let url = nats.url();
    runtime.block_on(async {
        let options = ConnectOptions::new().connection_timeout(TIMEOUT);
        let client = options.connect(url).await.expect("connected");
        let mut context = jetstream::new(client);
        context.set_timeout(TIMEOUT);
        request(context).await;
    });
}

#[test]
fn nodes_learn_of_each_other_and_a_node_that_leaves_is_removed() {
    let Some(nats) = NatsServer::start() else {
        return;
    };
    let a = Node::join(&nats, "a", 1, true);
    let b = Node::join(&nats, "b.example", 2, true);
    a.wait_for("a b.example");
    b.wait_for("a b.example");
    b.client.drain(TIMEOUT);
    a.wait_for("a b.example(draining)");
    b.wait_for("a b.example(draining)");
    b.client.leave(TIMEOUT);
    a.wait_for("a");
}

#[test]
fn a_node_has_the_list_before_it_accepts_requests_and_is_announced() {
    let Some(nats) = NatsServer::start() else {
        return;
    };
    let a = Node::join(&nats, "a", 1, true);
    until("the node is announced", || {
        a.facts().is_current.then_some(())
    });
    let b = Node::start(&nats, "b", 2, true);
    b.wait_for("a b");
    assert_eq!(a.facts().members.len(), 1);
    b.client.announce();
    a.wait_for("a b");
}

#[test]
fn a_node_without_all_purges_joins_and_a_node_that_is_killed_is_removed() {
    let Some(nats) = NatsServer::start() else {
        return;
    };
    let a = Node::join(&nats, "a", 1, true);
    let b = Node::join(&nats, "b", 2, false);
    a.wait_for("a b(joining)");
    b.wait_for("a b");
    // As a killed process, it deletes no record. It stays in the list for a while.
    b.client.stop();
    a.wait_for("a b(draining)");
}

/// Method: a node that joins afterwards is seen by the others, so they watch the bucket again.
#[test]
fn a_server_that_is_killed_or_loses_the_bucket_removes_no_member() {
    let Some(mut nats) = NatsServer::start() else {
        return;
    };
    let nodes = [("a", 1), ("b", 2)].map(|(name, port)| Node::join(&nats, name, port, true));
    nodes.iter().for_each(|node| node.wait_for("a b"));
    nats.kill();
    for node in &nodes {
        until("the node notices", || {
            (!node.facts().is_current).then_some(())
        });
    }
    nats.restart();
    let c = Node::join(&nats, "c", 3, true);
    nodes.iter().for_each(|node| node.wait_for("a b c"));
    operate(&nats, |context| async move {
        context
            .delete_key_value("test-members")
            .await
            .expect("deleted");
    });
    let d = Node::join(&nats, "d", 4, true);
    let all = nodes.iter().chain([&c, &d]);
    all.for_each(|node| node.wait_for("a b c d"));
    assert!(nodes.iter().all(|node| node.list.keeps(&["a", "b"])));
}

#[test]
fn records_that_cannot_be_used_are_counted_and_ignored() {
    let Some(nats) = NatsServer::start() else {
        return;
    };
    let a = Node::join(&nats, "a", 1, true);
    until("the bucket exists", || a.facts().is_current.then_some(()));
    let record = |name: &str, url: &str| {
        format!(
            "{{\"version\":1,\"name\":\"{name}\",\"url\":\"{url}\",\"group\":\"edge\",\"weight\":100,\
             \"state\":\"serving\",\"instance\":1,\"beat\":0,\"lasts_ms\":60000}}"
        )
    };
    let put = |key: &str, value: String| {
        operate(&nats, |context| async move {
            let bucket = context.get_key_value("test-members").await;
            let bucket = bucket.expect("the bucket");
            bucket.put(key, value.into()).await.expect("stored");
        });
    };
    // A node that watches the bucket again counts its records again.
    let wait_for = |cause: usize| {
        until("the record is counted", || {
            (a.facts().refused[cause] > 0).then_some(())
        });
    };
    let counted = || a.facts().refused.map(|count| count > 0);
    put("x", "no record".to_owned());
    wait_for(0);
    assert_eq!(counted(), [true, false, false, false, false]);
    put("y", "{\"version\":2}".to_owned());
    wait_for(1);
    put("z", record("z", "https://127.0.0.1:1"));
    wait_for(2);
    assert_eq!(counted(), [true, true, true, false, false]);
    // A heartbeat of the node may replace the record before the node receives it.
    until("the record with its name is counted", || {
        put("a", record("a", "http://127.0.0.1:9"));
        (a.facts().refused[3] > 0).then_some(())
    });
    put("b", record("b", "http://127.0.0.1:2"));
    a.wait_for("a b");
    assert_eq!(a.facts().rival, None, "the node was there first");
}

#[test]
fn a_node_with_the_name_of_another_one_joins_when_that_one_leaves() {
    let Some(nats) = NatsServer::start() else {
        return;
    };
    let first = Node::join(&nats, "a", 1, true);
    until("the first node is a member", || {
        first.facts().is_current.then_some(())
    });
    let b = Node::join(&nats, "b", 2, true);
    b.wait_for("a b");
    let second = Node::join(&nats, "a", 3, true);
    let rival = until("the second node notices", || second.facts().rival);
    assert_eq!(&*rival, "http://127.0.0.1:1");
    assert_eq!(second.facts().members.len(), 1);
    first.client.leave(TIMEOUT);
    second.wait_for("a b");
    until("the facts say so", || {
        second.facts().rival.is_none().then_some(())
    });
    until("the other nodes use its address", || {
        let list = b.list.last();
        (&*list[0].profile.url == "http://127.0.0.1:3").then_some(())
    });
}

/// The time after which a killed node is removed. On a busy machine a thread may stop for seconds.
const LASTS: Duration = Duration::from_secs(12);
