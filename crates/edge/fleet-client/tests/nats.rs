//! Nodes that follow a stream of a real NATS server. The caches of the nodes are lists in memory.
//!
//! If `nats-server` is not installed, the tests are skipped, or fail with `EDGEWARD_REQUIRE_TOOLS=1`.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use async_nats::{ConnectOptions, jetstream};
use edgeward_fleet::{
    Applied, ApplyDone, FollowingCache, PublishError, PurgeStream as _, StreamFacts,
};
use edgeward_fleet_client::{FleetClient, NatsCredentials, NatsSettings};
use edgeward_purge::{Purge, Scope, Stamp};
use edgeward_testkit::client::{TIMEOUT, until};
use edgeward_testkit::nats::NatsServer;

/// A cache that only lists the purges.
#[derive(Default)]
struct ListCache {
    /// The texts of the purges that the cache has applied, and its position.
    state: Mutex<(Vec<String>, Option<Stamp>)>,
    /// True if the cache does not report that it has applied purges.
    holds: Mutex<bool>,
    held: Mutex<Vec<ApplyDone>>,
}

impl ListCache {
    fn texts(&self) -> Vec<String> {
        self.state.lock().expect("no panic").0.clone()
    }

    fn has(&self, text: &str) -> bool {
        self.texts().iter().any(|known| known == text)
    }

    /// Reports all purges that the cache has applied.
    fn release(&self) {
        *self.holds.lock().expect("no panic") = false;
        let held = std::mem::take(&mut *self.held.lock().expect("no panic"));
        held.into_iter().for_each(|done| done(Applied::Persisted));
    }
}

impl FollowingCache for ListCache {
    fn position(&self) -> Option<Stamp> {
        self.state.lock().expect("no panic").1
    }

    fn apply(&self, purges: Vec<Purge>, position: Stamp, _: bool, done: ApplyDone) {
        let mut state = self.state.lock().expect("no panic");
        for purge in purges {
            let text = purge.scope.to_string();
            // A purge that takes too long on a busy machine is sent again, and changes nothing then.
            if text == "*" || !state.0.contains(&text) {
                state.0.push(text);
            }
        }
        state.1 = Some(position);
        drop(state);
        let holds = self.holds.lock().expect("no panic");
        match *holds {
            true => self.held.lock().expect("no panic").push(done),
            false => done(Applied::Persisted),
        }
    }
}

/// A node of the fleet.
struct Node {
    client: FleetClient,
    cache: Arc<ListCache>,
}

impl Node {
    /// Starts a node with the content of a cache, and waits until it has all purges.
    fn start(nats: &NatsServer, name: &str, cache: Arc<ListCache>) -> Self {
        Self::with(settings(nats, name), cache)
    }

    fn with(settings: NatsSettings, cache: Arc<ListCache>) -> Self {
        let client = FleetClient::start(settings).expect("the thread starts");
        client.follow(Arc::clone(&cache) as _);
        let node = Self { client, cache };
        node.wait_until_current();
        node
    }

    fn new(nats: &NatsServer, name: &str) -> Self {
        Self::start(nats, name, Arc::default())
    }

    fn wait_until_current(&self) {
        until("the node has all purges", || {
            let facts = self.client.facts();
            (facts.is_connected && facts.is_current && facts.behind == Some(0)).then_some(())
        });
    }

    /// Purges tags. A purge that is not acknowledged in time is sent again.
    fn purge(&self, tags: &[&str]) -> Result<(), PublishError> {
        use PublishError::{NotApplied, Unanswered};
        until("a result in time", || {
            let result = self.purge_once(tags);
            (!matches!(result, Err(NotApplied | Unanswered))).then_some(result)
        })
    }

    fn purge_once(&self, tags: &[&str]) -> Result<(), PublishError> {
        let (send, done) = mpsc::channel();
        let scopes = tags.iter().map(|tag| Scope::tag(tag).expect("a tag"));
        let done_by_node = Box::new(move |result| send.send(result).expect("the test waits"));
        self.client
            .publish(scopes.collect(), false, "a test", done_by_node);
        done.recv().expect("each purge has a result")
    }

    fn wait_for(&self, text: &str) {
        until(text, || self.cache.has(text).then_some(()));
    }

    /// The client publishes its facts after the cache has applied a purge.
    fn wait_for_facts(&self, are_expected: impl Fn(&StreamFacts) -> bool) {
        until("the facts", || {
            are_expected(&self.client.facts()).then_some(())
        });
    }
}

/// Starts the nodes `a` and `b`, and stops `b` after the purge `first`. Returns `a` and the cache of `b`.
fn start_and_stop_one(nats: &NatsServer) -> (Node, Arc<ListCache>) {
    let [a, b] = ["a", "b"].map(|name| Node::new(nats, name));
    assert_eq!(a.purge(&["first"]), Ok(()));
    b.wait_for("first");
    (a, b.cache)
}

fn settings(nats: &NatsServer, name: &str) -> NatsSettings {
    NatsSettings {
        servers: vec![nats.url()],
        node: name.to_owned(),
        credentials: NatsCredentials::None,
        tls: None,
        stream: "test".to_owned(),
        replicas: 1,
        age_max: Duration::from_secs(3600),
        bytes_max: 100 << 20,
        buffer_bytes_max: 16 << 20,
        // The tests do not depend on it: a busy machine may stop a thread for seconds.
        lag_max: Duration::from_secs(30),
    }
}

/// Runs a request to the server as an operator would.
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
fn a_purge_at_one_node_is_applied_by_all_and_acknowledged_after_it_is_applied_here() {
    let Some(nats) = NatsServer::start() else {
        return;
    };
    let nodes = ["a", "b", "c"].map(|name| Node::new(&nats, name));
    let [a, b, c] = &nodes;
    // A node that joins purges all its objects.
    assert!(nodes.iter().all(|node| node.cache.texts() == ["*"]));
    assert_eq!(a.purge(&["x", "y"]), Ok(()));
    assert_eq!(a.cache.texts(), ["*", "x", "y"]);
    b.wait_for("y");
    c.wait_for("y");
    assert_eq!(c.purge(&["z"]), Ok(()));
    a.wait_for("z");
    assert_eq!(a.cache.texts(), ["*", "x", "y", "z"]);
    until("equal positions", || {
        let positions = [&a.cache, &c.cache].map(|cache| cache.position());
        (positions[0] == positions[1]).then_some(())
    });
    a.wait_for_facts(|facts| facts.position >= Some(2));
}

/// The texts of a request that exceeds one message become several messages.
#[test]
fn a_large_request_is_acknowledged_as_a_whole() {
    let Some(nats) = NatsServer::start() else {
        return;
    };
    let node = Node::new(&nats, "a");
    let tags: Vec<_> = (0..1000).map(|n| format!("{n:x<1000}")).collect();
    let tags: Vec<_> = tags.iter().map(String::as_str).collect();
    assert_eq!(node.purge(&tags), Ok(()));
    assert_eq!(node.cache.texts()[1..], tags);
    node.wait_for_facts(|facts| facts.position > Some(1));
}

#[test]
fn a_node_that_was_down_applies_the_purges_that_it_has_missed() {
    let Some(nats) = NatsServer::start() else {
        return;
    };
    let (a, cache) = start_and_stop_one(&nats);
    let before = cache.texts().len();
    let expected: Vec<_> = (0..1000).map(|n| format!("tag-{n}")).collect();
    expected
        .iter()
        .for_each(|tag| assert_eq!(a.purge(&[tag]), Ok(())));
    let b = Node::start(&nats, "b", cache);
    assert_eq!(b.cache.texts()[before..], expected);
    assert_eq!(b.client.facts().counts.purged_all, 0);
}

#[test]
fn without_nats_purges_are_refused_and_after_a_kill_of_nats_no_acknowledged_purge_is_lost() {
    let Some(mut nats) = NatsServer::start() else {
        return;
    };
    let a = Node::new(&nats, "a");
    let b = Node::new(&nats, "b");
    assert_eq!(a.purge(&["before"]), Ok(()));
    nats.kill();
    until("the nodes notice", || {
        let nodes = [&a, &b];
        let is_connected = |node: &&Node| node.client.facts().is_connected;
        (!nodes.iter().any(is_connected)).then_some(())
    });
    assert_eq!(a.purge(&["refused"]), Err(PublishError::Disconnected));
    let refused = a.client.facts().refused;
    assert!(refused[0].0 == "disconnected" && refused[0].1 > 0);
    nats.restart();
    a.wait_until_current();
    b.wait_until_current();
    b.wait_for("before");
    // The server may be connected before it has loaded the stream.
    until("a purge is accepted", || b.purge(&["after"]).ok());
    a.wait_for("after");
    let nodes = [&a, &b];
    assert!(nodes.iter().all(|node| !node.cache.has("refused")));
    assert!(
        nodes
            .iter()
            .all(|node| node.client.facts().counts.purged_all == 1)
    );
}

#[test]
fn a_node_purges_all_if_the_stream_has_dropped_purges_that_it_lacks_or_is_another_one() {
    let Some(nats) = NatsServer::start() else {
        return;
    };
    let (a, cache) = start_and_stop_one(&nats);
    assert_eq!(a.purge(&["missed"]), Ok(()));
    operate(&nats, |context| async move {
        let stream = context.get_stream("test").await.expect("the stream");
        stream.purge().await.expect("purged");
    });
    let b = Node::start(&nats, "b", cache);
    assert_eq!(b.cache.texts(), ["*", "first", "*"]);
    b.wait_for_facts(|facts| facts.counts.purged_all == 1);
    operate(&nats, |context| async move {
        context.delete_stream("test").await.expect("deleted");
    });
    for node in [&a, &b] {
        node.wait_for_facts(|facts| facts.counts.purged_all == 2);
    }
    until("a purge is accepted", || a.purge(&["last"]).ok());
    b.wait_for("last");
}

/// Method: the cache of the node applies nothing, so its requests wait, until the outbox refuses them after seconds.
/// Two of them fill the buffer.
#[test]
fn requests_with_too_many_bytes_are_refused_while_they_wait() {
    let Some(nats) = NatsServer::start() else {
        return;
    };
    let settings = NatsSettings {
        buffer_bytes_max: 1 << 20,
        ..settings(&nats, "a")
    };
    let node = Node::with(settings, Arc::default());
    *node.cache.holds.lock().expect("no panic") = true;
    let (send, results) = mpsc::channel();
    let tags: Vec<_> = (0..60).map(|n| format!("{n:x<8000}")).collect();
    until("a request is refused", || {
        let scopes = tags.iter().map(|tag| Scope::tag(tag).expect("a tag"));
        let send = send.clone();
        let done = Box::new(move |result| send.send(result).expect("the test waits"));
        node.client.publish(scopes.collect(), false, "a test", done);
        let facts = node.client.facts();
        assert!(facts.pending_bytes <= facts.buffer_bytes_max);
        let refused = results.try_iter().find(|result| result.is_err())?;
        (refused == Err(PublishError::Busy)).then_some(())
    });
    node.cache.release();
    drop(send);
    results.iter().for_each(drop); // until all requests are done
    node.wait_for_facts(|facts| facts.pending_bytes == 0);
    until("a purge is accepted", || node.purge(&["small"]).ok());
}

/// A message that a node cannot read may cover any object.
#[test]
fn a_message_that_cannot_be_read_purges_all() {
    let Some(nats) = NatsServer::start() else {
        return;
    };
    let node = Node::new(&nats, "a");
    operate(&nats, |context| async move {
        let sent = context.publish("test.purges", "{}".into()).await;
        sent.expect("sent").await.expect("stored");
    });
    until("the message is applied", || {
        (node.cache.texts() == ["*", "*"]).then_some(())
    });
    node.wait_for_facts(|facts| facts.unreadable == 1);
}
