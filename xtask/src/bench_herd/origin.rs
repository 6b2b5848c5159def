//! The origin of the benchmark. It records when it sends each first byte, and how many connections and requests it has.
//! It can hold responses back until all requests of a burst have arrived, or until the burst has ended.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::net::{AddressFamily, SocketType};

/// An origin that runs in a thread of this process until the process ends.
pub(super) struct Origin {
    pub(super) port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    latency: Duration,
    /// The time of the first byte of each response, by target.
    first_bytes: Mutex<HashMap<String, Vec<Instant>>>,
    open: AtomicU64,
    open_max: AtomicU64,
    gate: Gate,
}

/// Holds responses back. With a gate, the order of events does not depend on the speed of the machine.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

/// A gate that is open, as at first, holds no response back.
#[derive(Default)]
struct GateState {
    is_closed: bool,
    /// The requests whose responses still pass although the gate is closed.
    passing: usize,
    waiting: usize,
    /// The number of waiting requests that opens the gate.
    opens_at: usize,
    /// True if the gate was opened because a request waited for [`GATE_TIMEOUT`].
    timed_out: bool,
}

/// The longest time for which a response is held back. It is below the edge's timeout for the origin's first byte and
/// below the clients' timeout, so that a client that waits for the origin gets its response, and the burst its row.
const GATE_TIMEOUT: Duration = Duration::from_secs(40);

impl Gate {
    fn close(&self, passing: usize, opens_at: usize) {
        *self.state.lock().expect("no thread panics") = GateState {
            is_closed: true,
            passing,
            opens_at,
            ..GateState::default()
        };
    }

    /// Opens the gate. Returns false if a request waited too long.
    fn open(&self) -> bool {
        let mut state = self.state.lock().expect("no thread panics");
        state.is_closed = false;
        self.changed.notify_all();
        !std::mem::take(&mut state.timed_out)
    }

    fn pass(&self) {
        let mut state = self.state.lock().expect("no thread panics");
        if state.is_closed && state.passing > 0 {
            state.passing -= 1;
            return;
        }
        state.waiting += 1;
        if state.waiting >= state.opens_at {
            state.is_closed = false;
            self.changed.notify_all();
        }
        let waited = self
            .changed
            .wait_timeout_while(state, GATE_TIMEOUT, |state| state.is_closed);
        let (mut state, timeout) = waited.expect("no thread panics");
        if timeout.timed_out() {
            state.is_closed = false;
            state.timed_out = true;
            self.changed.notify_all();
        }
    }
}

/// The period of the bytes of a body.
pub(super) const PERIOD: usize = 251;

/// The bytes of one write, a multiple of the period.
const WRITE_BYTES: usize = PERIOD * 1044;

/// The send buffer of a connection.
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// Returns the byte of a body at this offset.
pub(super) const fn body_byte(offset: u64) -> u8 {
    (offset % PERIOD as u64) as u8
}

impl Origin {
    /// Starts an origin that answers each request after `latency`.
    pub(super) fn start(latency: Duration) -> anyhow::Result<Self> {
        // Many connections begin at once, so the backlog is longer than that of `TcpListener::bind`.
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        // Accepted sockets inherit the size. With the default, the kernel takes megabytes of each body on loopback, for
        // which the first connections would take the CPU time of the last ones.
        rustix::net::sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER_BYTES)?;
        rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        rustix::net::listen(&socket, 4096)?;
        let listener = TcpListener::from(socket);
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            latency,
            ..Shared::default()
        });
        let shared_by_thread = Arc::clone(&shared);
        spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared_by_thread);
                // The process has ended if a thread cannot be created.
                _ = spawn(move || {
                    let open = shared.open.fetch_add(1, Ordering::Relaxed) + 1;
                    shared.open_max.fetch_max(open, Ordering::Relaxed);
                    // The edge closes the connection at any time.
                    _ = serve(stream, &shared);
                    shared.open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        })?;
        Ok(Self { port, shared })
    }

    /// Returns the times at which responses to this target began, in order.
    pub(super) fn first_bytes(&self, target: &str) -> Vec<Instant> {
        let first_bytes = self.shared.first_bytes.lock().expect("no thread panics");
        let mut times = first_bytes.get(target).cloned().unwrap_or_default();
        times.sort_unstable();
        times
    }

    /// Holds all further responses except the next `passing` ones back, until as many requests as `opens_at` wait for
    /// them or [`open_gate`](Self::open_gate) is called.
    pub(super) fn close_gate(&self, passing: usize, opens_at: usize) {
        self.shared.gate.close(passing, opens_at);
    }

    /// Releases all responses. Returns false if one was held back for longer than a timeout.
    pub(super) fn open_gate(&self) -> bool {
        self.shared.gate.open()
    }

    /// Returns the most connections open at one time since the last call.
    pub(super) fn take_connections_max(&self) -> u64 {
        let open = self.shared.open.load(Ordering::Relaxed);
        self.shared.open_max.swap(open, Ordering::Relaxed)
    }
}

/// Starts a thread with a small stack, because there is one for each connection.
fn spawn(work: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let thread = thread::Builder::new().stack_size(64 << 10).spawn(work);
    thread.map(drop).context("a thread of the origin")
}

/// Answers requests for `/KIND/BYTES`. The response to the kind `uncacheable` has `no-store`.
fn serve(mut stream: TcpStream, shared: &Shared) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let pattern: Arc<[u8]> = pattern();
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        head.clear();
        while !head.ends_with(b"\r\n\r\n") {
            let read = stream.read(&mut buffer)?;
            if read == 0 {
                return Ok(());
            }
            head.extend_from_slice(&buffer[..read]);
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        let target = text.split(' ').nth(1).context("a target")?;
        let bytes: u64 = target.rsplit('/').next().unwrap_or_default().parse()?;
        let caching = match target.starts_with("/uncacheable/") {
            true => "no-store",
            false => "max-age=2, stale-while-revalidate=3600",
        };
        let is_validated = text.to_ascii_lowercase().contains("\r\nif-none-match:");
        thread::sleep(shared.latency);
        shared.gate.pass();
        let (status, body_bytes) = match is_validated {
            true => ("304 Not Modified", None),
            false => ("200 OK", Some(bytes)),
        };
        let length = body_bytes.map_or(String::new(), |bytes| {
            format!("Content-Length: {bytes}\r\n")
        });
        let response =
            format!("HTTP/1.1 {status}\r\nCache-Control: {caching}\r\nETag: \"1\"\r\n{length}\r\n");
        let mut first_bytes = shared.first_bytes.lock().expect("no thread panics");
        first_bytes
            .entry(target.to_owned())
            .or_default()
            .push(Instant::now());
        drop(first_bytes);
        stream.write_all(response.as_bytes())?;
        let mut left = body_bytes.unwrap_or(0);
        while left > 0 {
            let piece = WRITE_BYTES.min(usize::try_from(left).unwrap_or(WRITE_BYTES));
            stream.write_all(&pattern[..piece])?;
            left -= piece as u64;
        }
    }
}

/// Returns the bytes of one write. All threads share them.
fn pattern() -> Arc<[u8]> {
    static PATTERN: Mutex<Option<Arc<[u8]>>> = Mutex::new(None);
    let mut pattern = PATTERN.lock().expect("no thread panics");
    let bytes = || (0..WRITE_BYTES as u64).map(body_byte).collect();
    Arc::clone(pattern.get_or_insert_with(bytes))
}
