//! The log of a node whose server of NATS cannot be used. The test has a process of its own, because it reads all
//! events of the process.

use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use edgeward_fleet_client::{FleetClient, NatsCredentials, NatsSettings};
use edgeward_testkit::client::until;
use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

/// The events of the crate, from `warn` on.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

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
        LINES.lock().expect("no panic").push(text.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Method: a server closes each connection at once, until the node has tried eight times.
#[test]
fn an_outage_logs_its_error_once_and_not_at_each_attempt() {
    const ATTEMPTS: usize = 8;
    static ACCEPTED: AtomicUsize = AtomicUsize::new(0);
    tracing::subscriber::set_global_default(Lines).expect("the only subscriber");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("nats://{}", listener.local_addr().expect("an address"));
    let server = std::thread::spawn(move || {
        for connection in listener.incoming().take(ATTEMPTS) {
            drop(connection.expect("accepted"));
            ACCEPTED.fetch_add(1, Ordering::SeqCst);
        }
    });
    let node = FleetClient::start(NatsSettings {
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
    })
    .expect("the thread starts");
    until("the node has tried again and again", || {
        (ACCEPTED.load(Ordering::SeqCst) == ATTEMPTS).then_some(())
    });
    server.join().expect("no panic");
    until("the error is logged", || {
        (!LINES.lock().expect("no panic").is_empty()).then_some(())
    });
    node.stop();
    let lines = LINES.lock().expect("no panic");
    // The end of a connection and a reset are two errors, and so is the refusal after the last attempt.
    assert!(lines.len() <= 4, "{lines:#?}");
    assert!(lines[0].contains("NATS cannot be reached"), "{lines:#?}");
}
