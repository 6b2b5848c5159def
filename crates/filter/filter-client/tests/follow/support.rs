//! Helpers: a publisher, a relay that loses and changes responses, and clocks that tests can set.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use edgeward_filter::Signer;
use edgeward_filter_client::{ClockFn, FilterClient, FilterConfig, Trust, system_clock};
use edgeward_publish::{
    Coverage, IdSource, PublishConfig, Publisher, RunningPublisher, ScanError, Token,
};
use edgeward_types::Timestamp;

pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);
pub(crate) const TOKEN: &str = "a-token-for-tests";

/// A table of ids that tests write to.
#[derive(Clone, Default)]
pub(crate) struct Table(pub(crate) Arc<Mutex<Vec<u64>>>);

impl IdSource for Table {
    fn scan(
        &mut self,
        each: &mut dyn FnMut(&[u8]) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        let ids = self
            .0
            .lock()
            .expect("no thread panics while it has the lock")
            .clone();
        ids.iter()
            .try_for_each(|id| each(id.to_string().as_bytes()))
    }
}

pub(crate) fn table(ids: u64) -> Table {
    Table(Arc::new(Mutex::new((0..ids).collect())))
}

pub(crate) fn signer() -> Signer {
    Signer::from_secret([9; 32])
}

pub(crate) fn publisher(state: &Path, table: &Table) -> RunningPublisher {
    let mut config = PublishConfig::new(
        "resource",
        ([127, 0, 0, 1], 0).into(),
        state,
        system_clock(),
    );
    config.signer = Some(signer());
    config.token = Token::new(TOKEN).ok();
    // Writers post each id before they commit it, so the published ids are complete at any time.
    config.coverage = Coverage::Posts;
    let publisher =
        Publisher::start(config, Box::new(table.clone())).expect("the publisher starts");
    assert!(
        publisher.wait_published(0, WAIT_MAX),
        "no snapshot was made"
    );
    publisher
}

pub(crate) fn config(addr: SocketAddr, max_staleness: Duration) -> FilterConfig {
    let url = format!("http://{addr}/sets/resource")
        .parse()
        .expect("a URL");
    FilterConfig::new(url, Trust::Keys(vec![signer().public()]), max_staleness)
}

pub(crate) fn client(addr: SocketAddr, max_staleness: Duration) -> FilterClient {
    FilterClient::start(config(addr, max_staleness)).expect("the client starts")
}

/// Posts an id. Returns true if it was journaled.
pub(crate) fn post(addr: SocketAddr, id: u64) -> bool {
    let id = id.to_string();
    let request = format!(
        "POST /sets/resource/ids HTTP/1.1\r\nhost: p\r\nconnection: close\r\nauthorization: Bearer {TOKEN}\r\n\
         content-length: {}\r\n\r\n{id}",
        id.len()
    );
    exchange(addr, request.as_bytes()).is_some_and(|answer| answer.starts_with(b"HTTP/1.1 200"))
}

/// Sends one request with `Connection: close` and returns the whole response.
pub(crate) fn exchange(addr: SocketAddr, request: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(addr).ok()?;
    stream.set_read_timeout(Some(WAIT_MAX)).ok()?;
    stream.write_all(request).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    Some(answer)
}

/// Clocks that show the system time plus offsets that tests set: the first for the monotonic clock, the second, in
/// milliseconds, for the wall clock.
#[derive(Clone, Default)]
pub(crate) struct Clocks(Arc<Mutex<(Duration, i64)>>);

impl Clocks {
    pub(crate) fn clock(&self) -> ClockFn {
        let (machine, offset) = (system_clock(), Arc::clone(&self.0));
        Arc::new(move || {
            let mut now = machine();
            let (monotonic, wall_ms) = *offset
                .lock()
                .expect("no thread panics while it has the lock");
            now.monotonic += monotonic;
            let wall = now.wall.as_millis().saturating_add_signed(wall_ms);
            now.wall = Timestamp::from_millis(wall);
            now
        })
    }

    /// Advances both clocks.
    pub(crate) fn pass(&self, time: Duration) {
        let mut offset = self
            .0
            .lock()
            .expect("no thread panics while it has the lock");
        offset.0 += time;
        offset.1 += i64::try_from(time.as_millis()).expect("test times are short");
    }

    pub(crate) fn step_wall(&self, ms: i64) {
        self.0
            .lock()
            .expect("no thread panics while it has the lock")
            .1 += ms;
    }
}

/// Changes a response, given the request's path. `None` drops the response.
pub(crate) type Tamper = Box<dyn FnMut(&str, Vec<u8>) -> Option<Vec<u8>> + Send>;

/// A relay between client and publisher that may change responses. It handles one request per connection. Its requests
/// to the publisher have `Connection: close`.
pub(crate) struct Relay {
    pub(crate) addr: SocketAddr,
    /// The publisher's address, or `None` while the relay is disconnected.
    pub(crate) target: Arc<Mutex<Option<SocketAddr>>>,
    tamper: Arc<Mutex<Option<Tamper>>>,
}

impl Relay {
    pub(crate) fn in_front_of(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let relay = Self {
            addr: listener.local_addr().expect("the listener is bound"),
            target: Arc::new(Mutex::new(Some(target))),
            tamper: Arc::default(),
        };
        let (target, tamper) = (Arc::clone(&relay.target), Arc::clone(&relay.tamper));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (target, tamper) = (Arc::clone(&target), Arc::clone(&tamper));
                std::thread::spawn(move || forward(stream, &target, &tamper));
            }
        });
        relay
    }

    pub(crate) fn tamper(
        &self,
        tamper: impl FnMut(&str, Vec<u8>) -> Option<Vec<u8>> + Send + 'static,
    ) {
        *self
            .tamper
            .lock()
            .expect("no thread panics while it has the lock") = Some(Box::new(tamper));
    }

    pub(crate) fn stop_tampering(&self) {
        *self
            .tamper
            .lock()
            .expect("no thread panics while it has the lock") = None;
    }

    /// Closes each connection without a response, until [`connect`](Self::connect) is called.
    pub(crate) fn disconnect(&self) {
        *self
            .target
            .lock()
            .expect("no thread panics while it has the lock") = None;
    }

    /// Forwards connections to `target` again.
    pub(crate) fn connect(&self, target: SocketAddr) {
        *self
            .target
            .lock()
            .expect("no thread panics while it has the lock") = Some(target);
    }
}

fn forward(
    mut stream: TcpStream,
    target: &Mutex<Option<SocketAddr>>,
    tamper: &Mutex<Option<Tamper>>,
) -> Option<()> {
    stream.set_read_timeout(Some(WAIT_MAX)).ok()?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && head.len() < 1 << 16 {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let text = String::from_utf8(head).ok()?;
    let path = text.split(' ').nth(1)?.to_owned();
    let addr = (*target.lock().ok()?)?;
    let request = text.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    let mut answer = exchange(addr, request.as_bytes())?;
    // If the relay was disconnected in the meantime, the response is lost.
    (*target.lock().ok()?)?;
    if let Some(tamper) = tamper.lock().ok()?.as_mut() {
        answer = tamper(&path, answer)?;
    }
    stream.write_all(&answer).ok()
}

/// Repeats a check until it returns true, within a time limit.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !condition() {
        assert!(Instant::now() < deadline, "waited too long: {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Returns the offset of a response's body, or the length of the response if its head is incomplete.
pub(crate) fn body_at(answer: &[u8]) -> usize {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    end.map_or(answer.len(), |end| end + 4)
}
