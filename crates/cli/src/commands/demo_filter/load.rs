//! The clients of the demo: each connection sends one lookup after the other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use edgeward_filter_client::FilterClient;

/// The lookups to send, and the settings of the connections.
#[derive(Clone)]
pub(super) struct Load {
    /// The address of the edge, or of the service if the run has no edge.
    pub(super) addr: SocketAddr,
    pub(super) connections: usize,
    /// The ids to look up.
    pub(super) lookups: Arc<Vec<String>>,
    /// The filter that a client queries before each request. `None`: the client sends a request for each lookup.
    pub(super) client: Option<Arc<FilterClient>>,
}

/// The results of all connections together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// The number of lookups that a filter answered, at the edge or at the client.
    pub(super) skipped: u64,
    /// The number of lookups with status 200.
    pub(super) found: u64,
    /// The number of lookups with a status other than 200 and 404.
    pub(super) wrong: u64,
    /// The time from the start of the clients until the last one has its last response.
    pub(super) time: Duration,
}

/// The state that all connections share.
#[derive(Default)]
struct Counts {
    /// The index of the next lookup.
    next: AtomicUsize,
    skipped: AtomicU64,
    found: AtomicU64,
    wrong: AtomicU64,
}

impl Load {
    pub(super) fn run(&self) -> anyhow::Result<Outcome> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime of the clients")?;
        let started = Instant::now();
        let counts = Arc::new(Counts::default());
        runtime.block_on(async {
            let mut clients = JoinSet::new();
            for _ in 0..self.connections {
                clients.spawn(self.clone().connection(Arc::clone(&counts)));
            }
            while let Some(ended) = clients.join_next().await {
                ended??;
            }
            anyhow::Ok(())
        })?;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Ok(Outcome {
            skipped: read(&counts.skipped),
            found: read(&counts.found),
            wrong: read(&counts.wrong),
            time: started.elapsed(),
        })
    }

    async fn connection(self, counts: Arc<Counts>) -> anyhow::Result<()> {
        let mut stream = TcpStream::connect(self.addr).await?;
        stream.set_nodelay(true)?;
        let count = |counter: &AtomicU64| _ = counter.fetch_add(1, Ordering::Relaxed);
        while let Some(id) = self
            .lookups
            .get(counts.next.fetch_add(1, Ordering::Relaxed))
        {
            if self
                .client
                .as_ref()
                .is_some_and(|client| !client.may_exist(id))
            {
                count(&counts.skipped);
                continue;
            }
            let (status, by_filter) = lookup(&mut stream, id).await?;
            match status {
                200 => count(&counts.found),
                404 if by_filter => count(&counts.skipped),
                404 => {}
                _ => count(&counts.wrong),
            }
        }
        Ok(())
    }
}

/// Sends one lookup. Returns the status of the response, and true if the filter of the edge answered.
async fn lookup(stream: &mut TcpStream, id: &str) -> anyhow::Result<(u16, bool)> {
    let request = format!("GET /resource/{id} HTTP/1.1\r\nhost: service\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::with_capacity(512);
    loop {
        if let Some(end) = response.windows(4).position(|four| four == b"\r\n\r\n") {
            let head =
                std::str::from_utf8(&response[..end]).context("the response head is not text")?;
            let field = |name: &str| {
                head.lines().find_map(|line| {
                    let (field, value) = line.split_once(": ")?;
                    field.eq_ignore_ascii_case(name).then_some(value)
                })
            };
            let length: usize = field("content-length")
                .context("the response has no Content-Length")?
                .parse()?;
            if response.len() >= end + 4 + length {
                let status = head
                    .split(' ')
                    .nth(1)
                    .context("the response has no status")?
                    .parse()?;
                let by_filter =
                    field("cache-status").is_some_and(|value| value.contains("detail=id-filter"));
                return Ok((status, by_filter));
            }
        }
        if stream.read_buf(&mut response).await? == 0 {
            bail!("a connection was closed in the middle of a response");
        }
    }
}

/// Waits until the edge has downloaded its filter: sends lookups of absent ids until the filter answers one.
pub(super) fn wait_until_skipped(addr: SocketAddr, time_max: Duration) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let deadline = Instant::now() + time_max;
    let mut n = 0u64;
    runtime.block_on(async {
        let mut stream = TcpStream::connect(addr).await?;
        while Instant::now() < deadline {
            n += 1;
            let absent = format!("00000000-0000-4000-8000-{n:012x}");
            if lookup(&mut stream, &absent).await?.1 {
                return Ok(());
            }
        }
        bail!("the filter of the edge did not arrive")
    })
}
