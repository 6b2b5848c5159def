//! The HTTP/1.1 server: accepts connections, enforces the limits and timeouts of [`ServerConfig`], and shuts down
//! gracefully.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use edgeward_types::ConnectionLimits;

use crate::client_stream::ClientStream;
use crate::listener::{Accepted, Listener, UNIX_CLIENT};
use crate::request_body::RequestBody;
use crate::slots::{AcceptedConnection, Slot, Slots};

/// The extension of a request that states if its client runs on the machine of the server.
#[derive(Clone, Copy, Debug)]
pub struct LocalClient(pub bool);

impl LocalClient {
    /// A local client has a loopback address, or the address that it connected to. Clients of a Unix socket are local,
    /// too.
    fn of(client: SocketAddr, server: Option<SocketAddr>) -> Self {
        let client = client.ip().to_canonical();
        let is_own = server.is_some_and(|server| server.ip().to_canonical() == client);
        Self(client.is_loopback() || is_own)
    }
}

/// Answers requests. Each connection has a clone, so cloning must be cheap. A request has the extension
/// [`LocalClient`].
pub trait Handler: Clone + Send + Sync + 'static {
    /// The body of a response.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// Returns the response to a request.
    fn handle(
        &self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// The limits and timeouts of a [`Server`].
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The maximum numbers of connections: in total, before their first request, and of one client.
    pub connections: ConnectionLimits,
    /// The time in which the first byte of a connection must arrive.
    pub first_byte_timeout: Duration,
    /// The maximum length of a request head in bytes. Values below 8 KiB count as 8 KiB, because hyper needs
    /// this buffer.
    pub head_bytes_max: usize,
    /// The time in which a request head must arrive, and the time after which an idle connection is closed.
    pub head_timeout: Duration,
    /// A client that reads less than 16 KiB of a response in this time is disconnected.
    pub stall_timeout: Duration,
    /// The time in which pending responses may finish after the server was stopped.
    pub drain_timeout: Duration,
}

impl ServerConfig {
    /// The limits of an admin server, which has a few scrapers and operators as clients.
    pub const ADMIN: Self = Self {
        connections: ConnectionLimits {
            connections_max: 32,
            unserved_max: 32,
            // A client may use half of the connections. A further connection of this client replaces one of its
            // connections.
            per_client_max: 16,
        },
        // A scraper sends its request immediately.
        first_byte_timeout: Duration::from_secs(5),
        head_bytes_max: 16 << 10,
        head_timeout: Duration::from_secs(5),
        // A client must read 16 KiB in this time, about 1 kB/s. A slow client with 16 KiB/s needs 1 s for it.
        stall_timeout: Duration::from_secs(15),
        // For responses to requests under way, such as a reload while the processors are busy.
        drain_timeout: Duration::from_secs(10),
    };
}

/// Counters of a server's connections.
#[derive(Debug, Default)]
pub struct ConnectionCounters {
    /// The number of accepted connections.
    pub accepted: Counter,
    /// The number of connections that were closed for a new one while they waited for their client.
    pub displaced: Counter,
    /// The number of connections that were rejected because their client had too many, and none could be closed: the
    /// server was working on a response for each of the client's connections.
    pub refused: Counter,
    /// The number of connections that were closed because the client sent no first byte in time.
    pub silent: Counter,
    /// The number of connections that were closed because the client read too little of a response in time.
    pub stalled: Counter,
}

/// A counter that several threads increment.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds 1.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the current value.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A server for one listener.
#[derive(Debug)]
pub struct Server<H> {
    /// The handler of requests.
    pub handler: H,
    /// The limits and timeouts.
    pub config: ServerConfig,
    /// The counters of connections. Several servers may share one set of counters.
    pub counters: Arc<ConnectionCounters>,
    /// A signal that stops the server: the value becomes true, or the sender is dropped.
    pub stopping: watch::Receiver<bool>,
    /// TLS of all connections. `None`: plain HTTP.
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

impl<H: Handler> Server<H> {
    /// Serves the clients of a non-blocking listening socket until the server is stopped, then waits for pending
    /// responses.
    pub async fn run(mut self, listener: impl Into<OwnedFd>) {
        let listener = match Listener::new(listener.into()) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(%error, "cannot register the listener with the runtime");
                return;
            }
        };
        let slots = Slots::new(self.config.connections);
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let accepted = async {
                slots.wait_for_space().await;
                listener.accept().await
            };
            let accepted = tokio::select! {
                accepted = accepted => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        // The usual cause is too many open files. The server tries again after a pause, when
                        // some files may be closed.
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                },
                () = wait_for_stop(&mut self.stopping) => break,
            };
            self.counters.accepted.increment();
            let from = match &accepted {
                Accepted::Tcp(_, from) => *from,
                Accepted::Unix(_) => UNIX_CLIENT,
            };
            let Ok(entered) = slots.enter(from.ip()) else {
                self.counters.refused.increment();
                continue;
            };
            if entered.has_replaced_another {
                self.counters.displaced.increment();
            }
            match accepted {
                Accepted::Tcp(stream, _) => {
                    let local = LocalClient::of(from, stream.local_addr().ok());
                    _ = stream.set_nodelay(true);
                    _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
                    connections.spawn(self.connection(stream, (from, local), entered));
                }
                Accepted::Unix(stream) => {
                    let local = LocalClient(true);
                    connections.spawn(self.connection(stream, (from, local), entered));
                }
            }
            // Yielding lets the new connection read a request that its client has already sent. Without the
            // yield, further new connections could displace this one before its request is read.
            tokio::task::yield_now().await;
        }
        drop(listener);
        let all = async { while connections.join_next().await.is_some() {} };
        let drained = tokio::time::timeout(self.config.drain_timeout, all).await;
        if drained.is_err() {
            connections.shutdown().await;
        }
    }

    fn connection(
        &self,
        stream: impl Socket,
        (from, local): (SocketAddr, LocalClient),
        entered: AcceptedConnection,
    ) -> impl Future<Output = ()> + Send + 'static {
        let AcceptedConnection {
            slot,
            mut displaced,
            ..
        } = entered;
        let tls = self.tls.clone().map(TlsAcceptor::from);
        let (config, counters) = (self.config.clone(), Arc::clone(&self.counters));
        let (handler, mut stopping) = (self.handler.clone(), self.stopping.clone());
        async move {
            let first = tokio::time::timeout(config.first_byte_timeout, stream.first_byte());
            let has_first_byte = tokio::select! {
                first = first => first.is_ok(),
                _ = &mut displaced => {
                    tracing::debug!(%from, "connection closed: displaced before its first request");
                    return;
                }
                () = wait_for_stop(&mut stopping) => {
                    // A request that is on its way is answered. To close the connection now would reset it.
                    let first = tokio::time::timeout(STOP_WAIT, stream.first_byte());
                    if first.await.is_err() {
                        return;
                    }
                    true
                }
            };
            if !has_first_byte {
                counters.silent.increment();
                return;
            }
            let handler = (handler, local);
            let (stall_timeout, of_client) = (config.stall_timeout, Arc::clone(&slot));
            let served = match tls {
                None => {
                    let stream = ClientStream::new(stream, stall_timeout, of_client, counters);
                    serve(stream, &config, handler, slot, displaced, stopping).await
                }
                Some(tls) => {
                    let handshake = tokio::time::timeout(config.head_timeout, tls.accept(stream));
                    let stream = tokio::select! {
                        stream = handshake => stream,
                        _ = &mut displaced => return,
                        () = wait_for_stop(&mut stopping) => return,
                    };
                    let Ok(Ok(stream)) = stream else {
                        tracing::debug!(%from, "connection closed: no TLS handshake");
                        return;
                    };
                    let stream = ClientStream::new(stream, stall_timeout, of_client, counters);
                    serve(stream, &config, handler, slot, displaced, stopping).await
                }
            };
            match served {
                ConnectionEnd::Closed(Ok(())) => {}
                ConnectionEnd::Closed(Err(error)) => {
                    tracing::debug!(%from, %error, "connection ended with an error");
                }
                ConnectionEnd::Displaced => {
                    tracing::debug!(%from, "connection closed: displaced while waiting for its client");
                }
            }
        }
    }
}

/// A connection's socket.
trait Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Waits for the first byte, and leaves it in the socket.
    fn first_byte(&self) -> impl Future<Output = ()> + Send;
}

impl Socket for TcpStream {
    async fn first_byte(&self) {
        _ = self.peek(&mut [0]).await;
    }
}

impl Socket for UnixStream {
    async fn first_byte(&self) {
        _ = self.readable().await;
    }
}

enum ConnectionEnd {
    Closed(hyper::Result<()>),
    Displaced,
}

/// Serves one connection until it ends.
async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: ClientStream<S>,
    config: &ServerConfig,
    (handler, local): (impl Handler, LocalClient),
    slot: Arc<Slot>,
    mut displaced: oneshot::Receiver<()>,
    mut stopping: watch::Receiver<bool>,
) -> ConnectionEnd {
    let first_request = Arc::new(Notify::new());
    let has_request = Arc::clone(&first_request);
    let service = service_fn(move |mut request: Request<Incoming>| {
        has_request.notify_one();
        request.extensions_mut().insert(local);
        let (handler, slot) = (handler.clone(), Arc::clone(&slot));
        async move {
            // Waits until the previous response is written. Otherwise hyper would call the handler for pipelined
            // requests until hyper's output buffer of a few hundred KB is full.
            slot.written().await;
            slot.begin_answer();
            let request = request.map(|incoming| RequestBody::new(incoming, &slot));
            let response = handler.handle(request).await;
            slot.end_answer();
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(config.head_timeout)
        .max_headers(HEADERS_MAX)
        .max_buf_size(config.head_bytes_max.max(HYPER_BUFFER_MIN))
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        served = connection.as_mut() => return ConnectionEnd::Closed(served),
        () = wait_for_stop(&mut stopping) => {}
        _ = &mut displaced => return ConnectionEnd::Displaced,
    }
    // hyper would close a connection whose first request it has not read yet.
    tokio::select! {
        served = connection.as_mut() => return ConnectionEnd::Closed(served),
        () = first_request.notified() => {}
        _ = &mut displaced => return ConnectionEnd::Displaced,
    }
    connection.as_mut().graceful_shutdown();
    ConnectionEnd::Closed(connection.await)
}

/// Waits for the signal that stops the server.
async fn wait_for_stop(stopping: &mut watch::Receiver<bool>) {
    _ = stopping.wait_for(|stop| *stop).await;
}

/// The maximum number of header lines of a request.
const HEADERS_MAX: usize = 64;

/// The limit of unsent bytes that the kernel buffers for a connection. The kernel may exceed it by the client's
/// window and one segment of up to 64 KiB. Without this limit, the kernel buffers 2 to 3 MB for a client that
/// reads no byte: if this client pipelined requests, the server would make more than a hundred pages of 16 KiB.
const UNSENT_BYTES_MAX: u32 = 16 << 10;

/// The minimum buffer size of hyper in bytes. hyper panics if it is set to less.
const HYPER_BUFFER_MIN: usize = 8192;

/// The time in which a client that has connected before the stop may send its request.
const STOP_WAIT: Duration = Duration::from_millis(500);

/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use http_body_util::Full;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpSocket;

    use super::*;

    /// A handler that returns `page` and counts its responses in `response_count`.
    #[derive(Clone)]
    struct CountingHandler {
        response_count: Arc<AtomicUsize>,
        page: &'static [u8],
    }

    impl Handler for CountingHandler {
        type Body = Full<Bytes>;

        async fn handle(&self, _: Request<RequestBody>) -> Response<Full<Bytes>> {
            self.response_count.fetch_add(1, Ordering::Relaxed);
            Response::new(Full::new(Bytes::from_static(self.page)))
        }
    }

    #[test]
    fn a_client_of_the_same_machine_is_local() {
        let addr = |text: &str| -> SocketAddr { text.parse().expect("a socket address") };
        for (client, server, expected) in [
            ("127.0.0.2:1000", "127.0.0.1:80", true),
            ("[::1]:1000", "[::1]:80", true),
            ("[::ffff:127.0.0.1]:1000", "[::ffff:127.0.0.1]:80", true),
            ("10.0.0.5:1000", "10.0.0.5:80", true),
            ("10.0.0.6:1000", "10.0.0.5:80", false),
            ("[::ffff:10.0.0.6]:1000", "[::ffff:10.0.0.5]:80", false),
        ] {
            let local = LocalClient::of(addr(client), Some(addr(server)));
            assert_eq!(local.0, expected, "{client} to {server}");
        }
        assert!(!LocalClient::of(addr("10.0.0.6:1000"), None).0);
    }

    /// If a client pipelines requests and reads no response, the handler is called once. Each response that the
    /// client reads allows one more call.
    ///
    /// Method: connect client and server by a pipe of 1 KiB instead of a socket. Time is paused: the clock
    /// advances only when all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn a_response_is_made_after_the_previous_one_was_written() {
        let config = ServerConfig::ADMIN;
        let counters = Arc::new(ConnectionCounters::default());
        let response_count = Arc::new(AtomicUsize::new(0));
        let (mut client, server) = tokio::io::duplex(1024);
        let entered = Slots::new(config.connections).enter([127, 0, 0, 1].into());
        let AcceptedConnection {
            slot, displaced, ..
        } = entered.expect("the table accepts the first connection");
        let (_stop, stopping) = watch::channel(false);
        let pages = CountingHandler {
            response_count: Arc::clone(&response_count),
            page: &[b'x'; 4096],
        };
        let served = tokio::spawn({
            let config = config.clone();
            let (stall_timeout, of_client) = (config.stall_timeout, Arc::clone(&slot));
            let server = ClientStream::new(server, stall_timeout, of_client, Arc::clone(&counters));
            async move {
                let pages = (pages, LocalClient(true));
                _ = serve(server, &config, pages, slot, displaced, stopping).await;
            }
        });
        let requests = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".repeat(20);
        client
            .write_all(&requests)
            .await
            .expect("the pipe has space for the requests");
        for responses in 1..=5 {
            tokio::time::sleep(config.stall_timeout / 10).await;
            assert_eq!(response_count.load(Ordering::Relaxed), responses);
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(client.read_u8().await.expect("a head arrives"));
            }
            let mut body = [0; 4096];
            client
                .read_exact(&mut body)
                .await
                .expect("the body arrives");
        }
        served.await.expect("the task does not panic");
        assert_eq!(counters.stalled.value(), 1);
    }

    /// The handler is called only a few times for a client that reads no response, although the kernel could
    /// buffer many responses.
    ///
    /// Method: send 200 pipelined requests for pages of 16 KiB. Without a limit, the kernel would buffer more
    /// than a hundred of the pages. Count the pages when the server has closed the stalled connection.
    #[tokio::test]
    async fn the_kernel_takes_few_responses_for_a_client_that_reads_nothing() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener
            .set_nonblocking(true)
            .expect("the socket option can be set");
        let addr = listener.local_addr().expect("the address is valid");
        let counters = Arc::new(ConnectionCounters::default());
        let response_count = Arc::new(AtomicUsize::new(0));
        let (_stop, stopping) = watch::channel(false);
        let server = Server {
            handler: CountingHandler {
                response_count: Arc::clone(&response_count),
                page: &[b'x'; 16 << 10],
            },
            config: ServerConfig {
                stall_timeout: Duration::from_secs(1),
                ..ServerConfig::ADMIN
            },
            counters: Arc::clone(&counters),
            stopping,
            tls: None,
        };
        let served = tokio::spawn(server.run(listener));
        let socket = TcpSocket::new_v4().expect("the socket can be created");
        socket
            .set_recv_buffer_size(4096)
            .expect("the buffer size can be set");
        let mut client = socket.connect(addr).await.expect("the server listens");
        let requests = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".repeat(200);
        client
            .write_all(&requests)
            .await
            .expect("the requests can be sent");
        let stalled = async {
            while counters.stalled.value() == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let stalled = tokio::time::timeout(Duration::from_secs(30), stalled).await;
        stalled.expect("the connection stalls");
        let response_count = response_count.load(Ordering::Relaxed);
        assert!(response_count <= 16, "{response_count} pages were made");
        served.abort();
    }

    /// An upgrade stops the admin server of the old process, to which clients may just have connected.
    ///
    /// Method: send the requests and the stop before the server's tasks run again.
    #[tokio::test]
    async fn requests_that_arrive_with_the_stop_are_answered() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener
            .set_nonblocking(true)
            .expect("the socket option can be set");
        let addr = listener.local_addr().expect("the address is valid");
        let counters = Arc::new(ConnectionCounters::default());
        let (stop, stopping) = watch::channel(false);
        let server = Server {
            handler: CountingHandler {
                response_count: Arc::default(),
                page: b"page",
            },
            config: ServerConfig::ADMIN,
            counters: Arc::clone(&counters),
            stopping,
            tls: None,
        };
        let served = tokio::spawn(server.run(listener));
        let mut clients = Vec::new();
        for nth in 1..=12 {
            clients.push(TcpStream::connect(addr).await.expect("the server listens"));
            while counters.accepted.value() < nth {
                tokio::task::yield_now().await;
            }
        }
        for client in &clients {
            let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            let sent = client.try_write(request).expect("the socket has space");
            assert_eq!(sent, request.len());
        }
        stop.send(true).expect("the server runs");
        for mut client in clients {
            let mut response = Vec::new();
            let read = client.read_to_end(&mut response).await;
            read.expect("the connection is not reset");
            assert!(response.ends_with(b"page"), "{response:?}");
        }
        served.await.expect("the task does not panic");
    }
}
