//! The slow service of `edgeward demo-filter`: it waits a fixed time, and then responds 200 if the requested id
//! exists, or else 404. The demo requests one existing id and many absent ids, so nearly all responses are 404.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// A running service with its own thread. Dropping the value stops the service.
pub(super) struct Service {
    addr: SocketAddr,
    requests: Arc<AtomicU64>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The data that all connections share.
struct Shared {
    ids: HashSet<String>,
    latency: Duration,
    requests: Arc<AtomicU64>,
}

impl Service {
    pub(super) fn start(
        ids: impl Iterator<Item = String>,
        latency: Duration,
    ) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime of the service")?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let addr = listener.local_addr()?;
        let requests = Arc::new(AtomicU64::new(0));
        let shared = Arc::new(Shared {
            ids: ids.collect(),
            latency,
            requests: Arc::clone(&requests),
        });
        let (stop, stopped) = oneshot::channel();
        let serve = async move {
            // If `accept` fails, the service ends. The requests of the clients then fail, and so does the demo.
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve_connection(stream, Arc::clone(&shared)));
            }
        };
        let thread = std::thread::Builder::new().name("service".to_owned());
        let thread = thread.spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self {
            addr,
            requests,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The number of requests answered so far.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Serves the requests `GET /resource/ID` of one connection, until the client closes it.
async fn serve_connection(mut stream: TcpStream, shared: Arc<Shared>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut inbox = Vec::new();
    loop {
        let end = loop {
            if let Some(position) = inbox.windows(4).position(|four| four == b"\r\n\r\n") {
                break position + 4;
            }
            if inbox.len() > HEAD_BYTES_MAX || stream.read_buf(&mut inbox).await.ok()? == 0 {
                return None;
            }
        };
        let head = std::str::from_utf8(&inbox[..end]).ok()?;
        let id = head.split(' ').nth(1)?.rsplit('/').next()?;
        let exists = shared.ids.contains(id);
        inbox.drain(..end);
        tokio::time::sleep(shared.latency).await;
        shared.requests.fetch_add(1, Ordering::Relaxed);
        let (status, body) = if exists {
            ("200 OK", "{\"found\":true}")
        } else {
            ("404 Not Found", "{\"found\":false}")
        };
        // With `no-store`, the cache of the edge does not help: only the filter can save requests.
        let response = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncache-control: no-store\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(response.as_bytes()).await.ok()?;
    }
}

const HEAD_BYTES_MAX: usize = 64 << 10;
