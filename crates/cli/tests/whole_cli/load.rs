//! Load for tests of changes without restart: clients that keep their connections and count each failed request.
//!
//! A client never repeats a request that the edge may have received. It opens a new connection only if the edge has
//! announced the end of the old one (`Connection: close`, GOAWAY), or has refused a request before it was sent.

mod http1;
mod http2;
mod origin;
mod websocket;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) use origin::LoadOrigin;

/// The results of all clients.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) http1: AtomicU64,
    pub(crate) http2: AtomicU64,
    pub(crate) websocket: AtomicU64,
    /// WebSocket connections that the edge has closed.
    pub(crate) websockets_closed: AtomicU64,
    is_over: AtomicBool,
    failures: Mutex<Vec<String>>,
}

impl Counts {
    fn fail(&self, failure: String) {
        let mut failures = self.failures.lock().expect("no client panics here");
        if failures.len() < 20 {
            failures.push(failure);
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }
}

/// Running clients. Dropping this value stops them.
pub(crate) struct Load {
    pub(crate) counts: Arc<Counts>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts clients of each protocol. Each has a connection of its own.
    pub(crate) fn start(addr: SocketAddr) -> Self {
        let counts = Arc::new(Counts::default());
        let mut clients = Vec::new();
        for n in 0..6 {
            let counts = Arc::clone(&counts);
            clients.push(std::thread::spawn(move || http1::run(addr, n, &counts)));
        }
        for n in 0..2 {
            let counts = Arc::clone(&counts);
            clients.push(std::thread::spawn(move || http2::run(addr, n, &counts)));
        }
        for _ in 0..2 {
            let counts = Arc::clone(&counts);
            clients.push(std::thread::spawn(move || websocket::run(addr, &counts)));
        }
        Self { counts, clients }
    }

    /// Waits until each kind of client has had `more` further responses.
    pub(crate) fn wait_for_responses(&self, more: u64) {
        let of = |counts: &Counts| {
            [&counts.http1, &counts.http2, &counts.websocket].map(|count| count.load(Relaxed))
        };
        let before = of(&self.counts);
        let deadline = Instant::now() + Duration::from_secs(60);
        while of(&self.counts)
            .iter()
            .zip(before)
            .any(|(now, before)| now - before < more)
        {
            assert!(Instant::now() < deadline, "{:?}", self.counts);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops the clients. Panics if a request has failed.
    pub(crate) fn finish(mut self) -> Arc<Counts> {
        self.counts.is_over.store(true, Relaxed);
        for client in self.clients.drain(..) {
            client.join().expect("a client counts its failures");
        }
        let failures = self.counts.failures.lock().expect("the clients have ended");
        assert!(failures.is_empty(), "{failures:#?}\n{:?}", self.counts);
        drop(failures);
        Arc::clone(&self.counts)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.counts.is_over.store(true, Relaxed);
    }
}

/// The path of a request: most are hits, and some are responses that are not stored.
fn path(n: u64) -> String {
    let (kind, name) = if n.is_multiple_of(5) {
        ("pass", n)
    } else {
        ("page", n % 37)
    };
    format!("/{kind}/{name}")
}

/// The body of a path.
fn body_of(path: &str) -> String {
    path.repeat(1 + path.len() % 50)
}
