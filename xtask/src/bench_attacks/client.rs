//! The well-behaved client: hits over persistent connections, one miss after another, and samples of the memory of the
//! server under attack.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Value, json};

use super::test_servers::{Service, TestServers};

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

/// Sends requests for the time `length` and returns the figures. `others_cpu_seconds` returns the CPU time that the
/// attackers have used.
///
/// The client shares its core with the origin and the attackers. The CPU time that they take from the client is no
/// property of the edge. `hits_per_client_second` therefore divides the hits by the time that was left to the client.
pub(super) fn measure(
    test_servers: &TestServers,
    length: Duration,
    others_cpu_seconds: impl Fn() -> f64,
) -> anyhow::Result<Value> {
    let others_cpu_seconds =
        || anyhow::Ok(test_servers.origin_cpu_seconds()? + others_cpu_seconds());
    let others_before = others_cpu_seconds()?;
    let end = Instant::now() + length;
    let errors = AtomicU64::new(0);
    let hits = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let (misses, memory) = thread::scope(|scope| {
        for n in 0..HIT_CONNECTIONS {
            let (hits, errors) = (&hits, &errors);
            scope.spawn(move || request_hits(test_servers, n as u64, end, hits, errors));
        }
        let misses = scope.spawn(|| request_misses(test_servers, end, &errors));
        let memory = scope.spawn(|| {
            let mut samples = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                samples.extend(test_servers.memory_bytes());
                thread::sleep(Duration::from_millis(100));
            }
            samples
        });
        let misses = misses.join();
        is_over.store(true, Ordering::Relaxed);
        (misses, memory.join())
    });
    let others_share = (others_cpu_seconds()? - others_before) / length.as_secs_f64();
    let mut misses = misses.map_err(|_| anyhow!("the thread for misses panicked"))?;
    let mut memory = memory.map_err(|_| anyhow!("the thread that reads the memory panicked"))?;
    misses.sort_unstable_by(f64::total_cmp);
    memory.sort_unstable();
    let percentile = |share: f64| {
        let index = (misses.len() as f64 * share) as usize;
        misses
            .get(index.min(misses.len().saturating_sub(1)))
            .copied()
    };
    let hits_per_second = hits.into_inner() as f64 / length.as_secs_f64();
    Ok(json!({
        "hits_per_second": hits_per_second.round(),
        "others_cpu_share": others_share,
        "hits_per_client_second": (hits_per_second / (1.0 - others_share)).round(),
        "misses": misses.len(),
        "miss_p50_ms": percentile(0.5),
        "miss_p99_ms": percentile(0.99),
        "errors": errors.into_inner(),
        "memory_bytes_median": memory.get(memory.len() / 2),
        "memory_bytes_max": memory.last(),
    }))
}

/// Requests all keys of hits once, so that the edge stores them.
pub(super) fn fill(test_servers: &TestServers) -> anyhow::Result<()> {
    if test_servers.service != Service::Edge {
        return Ok(());
    }
    // The origin takes 20 ms per response, so several connections are used.
    thread::scope(|scope| {
        let parts: Vec<_> = (0..FILL_CONNECTIONS)
            .map(|n| {
                scope.spawn(move || {
                    let mut connection = Connection::open(test_servers.port())?;
                    (n..HIT_KEYS)
                        .step_by(FILL_CONNECTIONS as usize)
                        .try_for_each(|key| connection.get(&hit_path(key)))
                })
            })
            .collect();
        parts
            .into_iter()
            .try_for_each(|part| part.join().map_err(|_| anyhow!("a thread panicked"))?)
    })
}

fn hit_path(key: u64) -> String {
    format!("/o/{}?size=1024", key + 1)
}

/// Returns a key that no request has used yet.
pub(super) fn next_key() -> u64 {
    NEXT_MISS.fetch_add(1, Ordering::Relaxed)
}

/// Requests paths that the server answers from memory: stored objects from an edge, or a page from the admin server or
/// the publisher. The gateway stores no objects and forwards these requests.
fn request_hits(
    test_servers: &TestServers,
    n: u64,
    end: Instant,
    hits: &AtomicU64,
    errors: &AtomicU64,
) {
    // On Linux, nice applies to the calling thread. Without it, the latency of a miss would include the time
    // for which the threads of hits occupy the core.
    _ = rustix::process::nice(HITS_NICE);
    let mut connection = None;
    // 7919 is prime, so a connection requests all keys before it repeats one.
    let mut key = n * 7919;
    while Instant::now() < end {
        key = (key + 7919) % HIT_KEYS;
        let path = match test_servers.service {
            Service::Edge => hit_path(key),
            Service::Gateway => hit_path(key),
            Service::Admin => "/status".to_owned(),
            Service::Publisher => "/sets/bench".to_owned(),
        };
        match request(&mut connection, test_servers.client_port(), &path) {
            Ok(()) => _ = hits.fetch_add(1, Ordering::Relaxed),
            Err(_) => _ = errors.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// Requests objects with new keys from the edge, and returns the latencies in milliseconds. The admin server and the
/// publisher have no misses: each request gets a new connection. For the gateway, each request comes from a new
/// edge over a new link.
fn request_misses(test_servers: &TestServers, end: Instant, errors: &AtomicU64) -> Vec<f64> {
    let mut latencies = Vec::new();
    let mut connection = None;
    while Instant::now() < end {
        let path = match test_servers.service {
            Service::Edge => {
                format!("/o/{}?size=4096", next_key())
            }
            Service::Gateway => "/o/1?size=1024".to_owned(),
            Service::Admin => "/metrics".to_owned(),
            Service::Publisher => "/sets/bench".to_owned(),
        };
        if test_servers.service != Service::Edge {
            connection = None;
        }
        let begun = Instant::now();
        let result = match test_servers.service {
            Service::Gateway => test_servers.request_through_new_link(&path),
            _ => request(&mut connection, test_servers.client_port(), &path),
        };
        match result {
            Ok(()) => latencies.push(begun.elapsed().as_secs_f64() * 1e3),
            Err(_) => _ = errors.fetch_add(1, Ordering::Relaxed),
        }
        if test_servers.service != Service::Edge {
            // The admin server renders its page for each request. The pause limits these requests to less than 200 per
            // second.
            thread::sleep(Duration::from_millis(5));
        }
    }
    latencies
}

/// Sends one request over the kept connection, if there is one. A server may close a kept connection at any time; the
/// request is then repeated on a new connection (RFC 9112 §9.3.1).
pub(super) fn request(
    connection: &mut Option<Connection>,
    port: u16,
    path: &str,
) -> anyhow::Result<()> {
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
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(port: u16) -> anyhow::Result<Self> {
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

    pub(crate) fn get(&mut self, path: &str) -> anyhow::Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        self.stream.write_all(request.as_bytes())?;
        let mut filled = 0;
        loop {
            let read = self.stream.read(&mut self.buffer[filled..])?;
            if read == 0 {
                bail!("the server closed the connection within a response");
            }
            filled += read;
            let Some(end) = self.buffer[..filled]
                .windows(4)
                .position(|at| at == b"\r\n\r\n")
            else {
                continue;
            };
            let head = std::str::from_utf8(&self.buffer[..end])?.to_ascii_lowercase();
            if !head.starts_with("http/1.1 200") {
                bail!("{path}: {}", head.lines().next().unwrap_or_default());
            }
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length
                .context("the response has no Content-Length")?
                .trim()
                .parse()?;
            let mut missing = (end + 4 + length).saturating_sub(filled);
            while missing > 0 {
                let most = missing.min(self.buffer.len());
                let read = self.stream.read(&mut self.buffer[..most])?;
                if read == 0 {
                    bail!("the server closed the connection within a body");
                }
                missing -= read;
            }
            return Ok(());
        }
    }
}
