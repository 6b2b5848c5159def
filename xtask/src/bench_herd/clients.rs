//! The clients of the benchmark: thousands of connections in one thread, with epoll.
//!
//! Most clients discard the bytes in the kernel (`MSG_TRUNC`), so that the load generator takes little of the CPU time
//! that it shares with the edge. One client in a hundred compares each byte.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::net::{AddressFamily, RecvFlags, SocketType};

use super::origin::{PERIOD, body_byte};

/// Idle connections to the edge, for one burst of requests.
pub(super) struct Clients {
    clients: Vec<Client>,
}

/// The responses to one burst.
pub(super) struct Burst {
    /// The time at which the first request was sent.
    pub(super) start: Instant,
    /// The time until all requests were sent.
    pub(super) sending: Duration,
    /// The time of each client's first byte, in order.
    pub(super) first_bytes: Vec<Instant>,
    /// The time until the last byte of all bodies.
    pub(super) whole: Duration,
    /// The clients that got a 503.
    pub(super) refused: usize,
    /// The clients that got another status than 200 and 503.
    pub(super) errors: usize,
    pub(super) body_bytes: u64,
}

/// Seconds from an event to the first bytes of clients.
pub(super) struct FirstBytes {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) last: f64,
}

impl Burst {
    pub(super) fn first_byte_seconds(&self, from: Instant) -> FirstBytes {
        let after = |share: f64| {
            let index = (self.first_bytes.len() as f64 * share) as usize;
            let time = self.first_bytes[index.min(self.first_bytes.len() - 1)];
            time.saturating_duration_since(from).as_secs_f64()
        };
        FirstBytes {
            p50: after(0.5),
            p99: after(0.99),
            last: after(1.0),
        }
    }
}

struct Client {
    stream: TcpStream,
    compares: bool,
    first_byte: Option<Instant>,
    /// The head of the response, until it is complete.
    head: Vec<u8>,
    /// The bytes of the body that have arrived, and its length. `None` before the end of the head.
    body: Option<(u64, u64)>,
    /// The status of the response, or 0 before its head has arrived.
    status: u16,
}

/// The most bytes of one read.
const READ_BYTES: usize = 256 << 10;

/// One client in this number compares each byte of its body.
const COMPARED: usize = 100;

/// The number of loopback addresses of the clients. The edge limits the origin connections of one address.
const ADDRESSES: usize = 200;

/// The longest time without any byte for all clients.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Clients {
    pub(super) fn connect(count: usize, port: u16) -> anyhow::Result<Self> {
        let clients = (0..count).map(|number| Client::connect(number, port));
        let clients = clients.collect::<anyhow::Result<_>>()?;
        Ok(Self { clients })
    }

    /// Sends a GET over each connection, and reads the whole responses.
    pub(super) fn request(mut self, target: &str) -> anyhow::Result<Burst> {
        let poll = epoll::create(CreateFlags::CLOEXEC)?;
        for (index, client) in self.clients.iter().enumerate() {
            let data = EventData::new_u64(index as u64);
            epoll::add(&poll, &client.stream, data, EventFlags::IN)?;
        }
        let request = format!("GET {target} HTTP/1.1\r\nHost: bench\r\n\r\n");
        let start = Instant::now();
        for client in &mut self.clients {
            client.stream.write_all(request.as_bytes())?;
        }
        let sending = start.elapsed();
        let mut buffer = vec![0; READ_BYTES];
        let pattern: Vec<u8> = (0..(READ_BYTES + PERIOD) as u64).map(body_byte).collect();
        let mut open = self.clients.len();
        let mut events = [Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }; 512];
        let timeout = rustix::event::Timespec {
            tv_sec: i64::try_from(TIMEOUT.as_secs())?,
            tv_nsec: 0,
        };
        while open > 0 {
            let ready = epoll::wait(&poll, &mut events, Some(&timeout))?;
            ensure!(ready > 0, "{open} clients got no byte for {TIMEOUT:?}");
            for event in &events[..ready] {
                let client = &mut self.clients[event.data.u64() as usize];
                if client.read(&mut buffer, &pattern)? {
                    epoll::delete(&poll, &client.stream)?;
                    client.stream.shutdown(std::net::Shutdown::Both).ok();
                    open -= 1;
                }
            }
        }
        let whole = start.elapsed();
        let first_bytes = self.clients.iter().map(|client| client.first_byte);
        let mut first_bytes: Vec<_> = first_bytes.collect::<Option<_>>().context("a response")?;
        first_bytes.sort_unstable();
        let body_bytes = self.clients.iter().filter_map(|client| client.body);
        let count =
            |is_it: fn(u16) -> bool| self.clients.iter().filter(|c| is_it(c.status)).count();
        Ok(Burst {
            start,
            sending,
            first_bytes,
            whole,
            refused: count(|status| status == 503),
            errors: count(|status| status != 200 && status != 503),
            body_bytes: body_bytes.map(|(arrived, _)| arrived).sum(),
        })
    }
}

impl Client {
    fn connect(number: usize, port: u16) -> anyhow::Result<Self> {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        let last = 2 + u8::try_from(number % ADDRESSES)?;
        rustix::net::bind(
            &socket,
            &SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, last), 0),
        )?;
        rustix::net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
        let stream = TcpStream::from(socket);
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            compares: number.is_multiple_of(COMPARED),
            first_byte: None,
            head: Vec::new(),
            body: None,
            status: 0,
        })
    }

    /// Reads once, and compares the bytes with `pattern`, the repeated period of a body. Returns true if the client has
    /// its whole response.
    fn read(&mut self, buffer: &mut [u8], pattern: &[u8]) -> anyhow::Result<bool> {
        let read = match self.body {
            Some(_) if !self.compares => {
                let read = rustix::net::recv(&self.stream, &mut *buffer, RecvFlags::TRUNC);
                read.map(|(_, read)| read).map_err(Into::into)
            }
            _ => self.stream.read(buffer),
        };
        let read = match read {
            Ok(0) => bail!("the edge closed a connection: {:?}", self.body),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error).context("a client"),
        };
        self.first_byte.get_or_insert_with(Instant::now);
        let mut bytes = &buffer[..read];
        let (arrived, length) = match self.body {
            Some(body) => body,
            None => {
                let before = self.head.len();
                self.head.extend_from_slice(bytes);
                let end = self
                    .head
                    .windows(4)
                    .position(|window| window == b"\r\n\r\n");
                let Some(end) = end else {
                    return Ok(false);
                };
                bytes = &bytes[end + 4 - before..];
                let text = String::from_utf8_lossy(&self.head[..end]).to_ascii_lowercase();
                let status = text.split(' ').nth(1).context("a status")?;
                self.status = status.parse()?;
                let length = text.split("\r\ncontent-length: ").nth(1);
                let length = length.and_then(|rest| rest.split("\r\n").next());
                self.head = Vec::new();
                (0, length.context("a length")?.parse()?)
            }
        };
        if self.compares && self.status == 200 {
            let start = usize::try_from(arrived % PERIOD as u64)?;
            ensure!(
                bytes == &pattern[start..start + bytes.len()],
                "a wrong byte in the {} bytes after byte {arrived}",
                bytes.len()
            );
        }
        let arrived = arrived + bytes.len() as u64;
        self.body = Some((arrived, length));
        Ok(arrived >= length)
    }
}
