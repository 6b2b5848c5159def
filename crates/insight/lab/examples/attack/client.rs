//! The well-behaved client: hits over persistent connections, and one miss after another.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The number of connections for hits.
const HIT_CONNECTIONS: usize = 4;

/// The niceness of the threads for hits. They use the CPU time that the misses, the origin and the attackers leave on
/// the core.
const HITS_NICE: i32 = 5;

/// The number of keys for hits. Their objects of 1 KiB fit in the edge's memory tier.
const HIT_KEYS: u64 = 1000;

/// The number of connections that fill the cache.
const FILL_CONNECTIONS: u64 = 8;

/// The timeout of connecting, of each read and of each write.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The next key that no request has used yet.
static NEXT_MISS: AtomicU64 = AtomicU64::new(1 << 40);

/// The servers that the client uses.
#[derive(Clone, Copy)]
pub(super) struct Servers<'a> {
    pub(super) port: u16,
    /// The path of a page that the client requests instead of objects. Each request for a miss then gets a new
    /// connection.
    pub(super) page: Option<&'a str>,
    /// Processes on the client's core.
    pub(super) others: &'a [u32],
}

/// Sends requests for the time `length` and returns the figures. `attack_seconds` returns the CPU time that the attack
/// has used.
///
/// The client shares its core with the origin and the attackers. The CPU time that they take from the client is no
/// property of the edge. `hits_per_client_second` therefore divides the hits by the time that was left to the client.
pub(super) fn measure(
    servers: Servers<'_>,
    length: Duration,
    attack_seconds: impl Fn() -> f64,
) -> Value {
    let others_seconds = || {
        let others = servers.others.iter().map(|pid| process_seconds(*pid));
        others.sum::<f64>() + attack_seconds()
    };
    let others_before = others_seconds();
    let end = Instant::now() + length;
    let errors = AtomicU64::new(0);
    let hits = AtomicU64::new(0);
    let mut misses = thread::scope(|scope| {
        for n in 0..HIT_CONNECTIONS {
            let (hits, errors) = (&hits, &errors);
            scope.spawn(move || request_hits(servers, n as u64, end, hits, errors));
        }
        request_misses(servers, end, &errors)
    });
    let others_share = (others_seconds() - others_before) / length.as_secs_f64();
    misses.sort_unstable_by(f64::total_cmp);
    let percentile = |share: f64| {
        let index = (misses.len() as f64 * share) as usize;
        misses
            .get(index.min(misses.len().saturating_sub(1)))
            .copied()
    };
    let hits_per_second = hits.into_inner() as f64 / length.as_secs_f64();
    json!({
        "hits_per_second": hits_per_second,
        "others_cpu_share": others_share,
        "hits_per_client_second": hits_per_second / (1.0 - others_share),
        "misses": misses.len(),
        "miss_p50_ms": percentile(0.5),
        "miss_p99_ms": percentile(0.99),
        "errors": errors.into_inner(),
    })
}

/// Requests all keys of hits once, so that the edge stores them.
pub(super) fn fill(servers: Servers<'_>) -> io::Result<()> {
    if servers.page.is_some() {
        return Ok(());
    }
    // The origin takes 20 ms per response, so several connections are used.
    thread::scope(|scope| {
        let part = |n| {
            let mut connection = Connection::open(servers.port)?;
            let mut keys = (n..HIT_KEYS).step_by(FILL_CONNECTIONS as usize);
            keys.try_for_each(|key| connection.get(&hit_path(key)))
        };
        let parts: Vec<_> = (0..FILL_CONNECTIONS)
            .map(|n| scope.spawn(move || part(n)))
            .collect();
        let mut parts = parts.into_iter();
        parts.try_for_each(|part| part.join().expect("the thread does not panic"))
    })
}

/// Returns the CPU time of a process, or 0 if it has ended (`utime` and `stime` of proc(5), in ticks of 10 ms).
fn process_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}

fn hit_path(key: u64) -> String {
    format!("/o/{}?size=1024", key + 1)
}

/// Requests paths that the server answers from memory: stored objects from an edge, or a page from the admin server or
/// the publisher. The gateway stores no objects and forwards these requests.
fn request_hits(servers: Servers<'_>, n: u64, end: Instant, hits: &AtomicU64, errors: &AtomicU64) {
    // On Linux, nice applies to the calling thread. Without it, the latency of a miss would include the time
    // for which the threads of hits occupy the core.
    _ = rustix::process::nice(HITS_NICE);
    let mut connection = None;
    // 7919 is prime, so a connection requests all keys before it repeats one.
    let mut key = n * 7919;
    while Instant::now() < end {
        key = (key + 7919) % HIT_KEYS;
        let path = servers
            .page
            .map_or_else(|| hit_path(key), ToOwned::to_owned);
        match request(&mut connection, servers.port, &path) {
            Ok(()) => _ = hits.fetch_add(1, Ordering::Relaxed),
            Err(_) => _ = errors.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// Requests objects with new keys from the edge, and returns the latencies in milliseconds. The admin server and the
/// publisher have no misses: each request gets a new connection. For the gateway, each request comes from a new
/// edge over a new link.
fn request_misses(servers: Servers<'_>, end: Instant, errors: &AtomicU64) -> Vec<f64> {
    let mut latencies = Vec::new();
    let mut connection = None;
    while Instant::now() < end {
        let path = match servers.page {
            Some(page) => page.to_owned(),
            None => {
                let key = NEXT_MISS.fetch_add(1, Ordering::Relaxed);
                format!("/o/{key}?size=4096")
            }
        };
        if servers.page.is_some() {
            connection = None;
        }
        let begun = Instant::now();
        match request(&mut connection, servers.port, &path) {
            Ok(()) => latencies.push(begun.elapsed().as_secs_f64() * 1e3),
            Err(_) => _ = errors.fetch_add(1, Ordering::Relaxed),
        }
        if servers.page.is_some() {
            // The admin server renders its page for each request. The pause limits these requests to less than 200 per
            // second.
            thread::sleep(Duration::from_millis(5));
        }
    }
    latencies
}

/// Sends one request over the kept connection, if there is one. A server may close a kept connection at any time; the
/// request is then repeated on a new connection (RFC 9112 §9.3.1).
fn request(connection: &mut Option<Connection>, port: u16, path: &str) -> io::Result<()> {
    if let Some(mut kept) = connection.take()
        && kept.get(path).is_ok()
    {
        *connection = Some(kept);
        return Ok(());
    }
    let mut open = Connection::open(port)?;
    open.get(path)?;
    *connection = Some(open);
    Ok(())
}

/// A kept connection for responses with `Content-Length`.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    fn open(port: u16) -> io::Result<Self> {
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: vec![0; 64 * 1024],
        })
    }

    fn get(&mut self, path: &str) -> io::Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        self.stream.write_all(request.as_bytes())?;
        let mut filled = 0;
        loop {
            let read = self.stream.read(&mut self.buffer[filled..])?;
            if read == 0 {
                return Err(broken("the server closed the connection within a response"));
            }
            filled += read;
            let Some(end) = self.buffer[..filled]
                .windows(4)
                .position(|at| at == b"\r\n\r\n")
            else {
                continue;
            };
            let head = String::from_utf8_lossy(&self.buffer[..end]).to_ascii_lowercase();
            if !head.starts_with("http/1.1 200") {
                return Err(broken(head.lines().next().unwrap_or_default()));
            }
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:"));
            let length = length.and_then(|length| length.trim().parse::<usize>().ok());
            let length = length.ok_or_else(|| broken("the response has no Content-Length"))?;
            let mut missing = (end + 4 + length).saturating_sub(filled);
            while missing > 0 {
                let most = missing.min(self.buffer.len());
                let read = self.stream.read(&mut self.buffer[..most])?;
                if read == 0 {
                    return Err(broken("the server closed the connection within a body"));
                }
                missing -= read;
            }
            return Ok(());
        }
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}
