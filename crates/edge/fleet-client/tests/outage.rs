//! The logs of a node's two clients while their server of NATS cannot be used. The tests have a process of their own,
//! because they read all events of the process.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use edgeward_balance::NodeGroup;
use edgeward_fleet::{
    FleetDirectory as _, FollowingCache, Member, MemberList, NodeProfile, PublishDone, PurgeStream,
    StreamFacts,
};
use edgeward_fleet_client::{
    AnnouncedNode, FleetClient, MemberSettings, MembersClient, NatsCredentials, NatsSettings,
};
use edgeward_purge::Scope;
use edgeward_testkit::client::{TIMEOUT, until};
use edgeward_testkit::nats::NatsServer;
use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

/// The events of the crate, from `warn` on, each with the name of its thread.
static LINES: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Returns the events of a thread.
fn lines_of(thread: &str) -> Vec<String> {
    let lines = LINES.lock().expect("no panic");
    let lines = lines.iter().filter(|(of, _)| of == thread);
    lines.map(|(_, line)| line.clone()).collect()
}

struct Lines;

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with("edgeward_fleet_client")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        LINES.lock().expect("no panic").push((thread, text.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The edge of a node that is a member alone.
struct IgnoredList;

impl MemberList for IgnoredList {
    fn check(&self, _: &NodeProfile) -> Result<(), String> {
        Ok(())
    }

    fn apply(&self, _: Vec<Member>) -> Result<(), String> {
        Ok(())
    }
}

/// A stream without purges. A real one would log its errors beside those of the other test.
#[derive(Debug)]
struct EmptyStream;

impl PurgeStream for EmptyStream {
    fn follow(&self, _: Arc<dyn FollowingCache>) {}

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

fn settings(url: String) -> NatsSettings {
    // The tests of a process may run at the same time, and the first one sets the subscriber.
    _ = tracing::subscriber::set_global_default(Lines);
    NatsSettings {
        servers: vec![url],
        node: "a".to_owned(),
        credentials: NatsCredentials::None,
        tls: None,
        stream: "test".to_owned(),
        replicas: 1,
        age_max: Duration::from_secs(3600),
        bytes_max: 1 << 20,
        buffer_bytes_max: 16 << 20,
        lag_max: Duration::from_secs(5),
    }
}

/// A server that closes each connection at once, and ends after [`ATTEMPTS`] connections.
struct BrokenServer {
    accepted: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl BrokenServer {
    fn start(listener: TcpListener) -> Self {
        let accepted = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&accepted);
        let thread = std::thread::spawn(move || {
            for connection in listener.incoming().take(ATTEMPTS) {
                drop(connection.expect("accepted"));
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { accepted, thread }
    }

    fn wait(self) {
        until("the node has tried again and again", || {
            (self.accepted.load(Ordering::SeqCst) == ATTEMPTS).then_some(())
        });
        self.thread.join().expect("no panic");
    }
}

#[test]
fn an_outage_logs_its_error_once_and_not_at_each_attempt() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("nats://{}", listener.local_addr().expect("an address"));
    let server = BrokenServer::start(listener);
    let node = FleetClient::start(settings(url)).expect("the thread starts");
    server.wait();
    until("the error is logged", || {
        (!lines_of("edgeward-fleet").is_empty()).then_some(())
    });
    node.stop();
    let lines = lines_of("edgeward-fleet");
    // The end of a connection and a reset are two errors, and so is the refusal after the last attempt.
    assert!(lines.len() <= 4, "{lines:#?}");
    assert!(lines[0].contains("NATS cannot be reached"), "{lines:#?}");
}

/// Method: NATS is killed while the node is announced. Then its heartbeats fail, and so do the attempts to open the
/// bucket, each with an error of its own.
#[test]
fn an_outage_logs_each_error_of_an_announced_node_once() {
    let Some(mut nats) = NatsServer::start() else {
        return;
    };
    let settings = settings(nats.url());
    let lasts = Duration::from_secs(2);
    let slow_start = Duration::ZERO;
    let client = MembersClient::start(settings, MemberSettings { lasts, slow_start });
    let client = client.expect("the thread starts");
    let node = AnnouncedNode {
        profile: NodeProfile {
            name: "a".into(),
            url: "http://127.0.0.1:1".into(),
            group: NodeGroup::Edge,
            weight: 100,
        },
        is_draining: false,
        is_ready: true,
        list: Arc::new(IgnoredList),
        purges: Arc::new(EmptyStream),
        inherited: None,
    };
    client.join(node, TIMEOUT);
    client.announce();
    until("the node is announced", || {
        client.facts().is_current.then_some(())
    });
    let before = lines_of("edgeward-members").len();
    nats.kill();
    let errors = || {
        let lines = lines_of("edgeward-members").split_off(before);
        let errors = lines.into_iter().filter(|line| line.contains("error="));
        errors.collect::<Vec<_>>()
    };
    until("both errors are logged", || {
        (errors().len() >= 2).then_some(())
    });
    let listener = until("the port is free", || {
        TcpListener::bind(nats.url().trim_start_matches("nats://")).ok()
    });
    BrokenServer::start(listener).wait();
    client.stop();
    let errors = errors();
    let different: BTreeSet<_> = errors.iter().collect();
    assert_eq!(different.len(), errors.len(), "{errors:#?}");
}

/// The connections that a broken server closes. The pauses of a client between them take seconds.
const ATTEMPTS: usize = 12;
