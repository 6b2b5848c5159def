//! An accepted connection until its protocol is known: the PROXY header and TLS.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use socket2::SockRef;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

use super::connection::{detect, serve};
use super::io::ClientIo;
use super::proxy_header::{HeaderClient, HeaderLimits, HeaderSource, client_of, refuse};
use crate::config::Networks;
use crate::exchange::{Client, CloseReason, ConnState, Holding};
use crate::net::tls::{self, ListenerKeys};
use crate::observe::counters::Counters;
use crate::path::connections::Connections;
use crate::path::worker::CurrentWorker;
use crate::rt::tasks::Member;

/// The protocols below HTTP on a listener's connections.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    pub(crate) tls: Option<TlsTransport>,
    /// The proxies that begin their connections with a PROXY header. `None` if no header is read.
    pub(crate) proxies: Option<Arc<Networks>>,
    /// True if the peers are nodes of the fleet.
    pub(crate) is_for_nodes: bool,
}

/// TLS on a listener's connections.
#[derive(Clone, Debug)]
pub(crate) struct TlsTransport {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) keys: Arc<ListenerKeys>,
}

/// Serves a connection of TCP to its end. `_member` counts the task in the worker's set of connection tasks.
pub(crate) async fn run_tcp(
    workers: Rc<CurrentWorker>,
    mut stream: TcpStream,
    peer: SocketAddr,
    transport: Transport,
    _member: Member,
) {
    let (conn, _registration) = Registration::begin(&workers);
    let Some(header) = read_header(&workers, &mut stream, peer, &transport, &conn).await else {
        return;
    };
    let timeout = workers.get().config().limits.request_head_timeout;
    let tls = transport.tls;
    let peer = header.address;
    let mut client = Client::new(&conn, peer, tls.is_some(), workers.get().config());
    client.set_proxied_tls(header.tls);
    if transport.is_for_nodes {
        client.set_node();
    }
    // Both futures are boxed, so a connection takes only the memory of its own transport.
    match tls {
        None => Box::pin(detect(workers, client, stream)).await,
        Some(tls) => Box::pin(run_tls(workers, client, stream, tls, timeout)).await,
    }
}

/// Makes the TLS handshake, and serves the connection to its end.
async fn run_tls(
    workers: Rc<CurrentWorker>,
    mut client: Client,
    stream: TcpStream,
    tls: TlsTransport,
    timeout: Duration,
) {
    let (conn, peer) = (Rc::clone(&client.conn), client.peer);
    _ = SockRef::from(&stream).set_tcp_notsent_lowat(TLS_UNSENT_BYTES_MAX);
    let _held = conn.holding(TLS_BYTES);
    let mut handshake = Box::pin(accept(stream, tls, timeout));
    let unless_closed = poll_fn(|cx| {
        conn.register_task(cx);
        if conn.must_leave().is_some() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        handshake.as_mut().poll(cx)
    });
    let accepted = unless_closed.await;
    drop(handshake);
    match accepted {
        Ok(stream) => {
            let session = stream.get_ref().1;
            let group = session.negotiated_key_exchange_group();
            client.set_key_exchange(group.map(|group| group.name()), &workers.get().counters);
            let protocol = session.alpn_protocol();
            if protocol == Some(tls::ALPN_CHALLENGE) {
                return; // the issuer has seen the certificate
            }
            let is_h2 = protocol == Some(tls::ALPN_HTTP2);
            let io = ClientIo::new(stream, Rc::clone(&conn), Bytes::new());
            serve(workers, client, io, is_h2).await;
        }
        Err(error) => {
            if let Some(reason) = conn.must_leave() {
                return workers.get().counters.closed[reason].increment();
            }
            workers.get().counters.closed[CloseReason::Tls].increment();
            if error.kind() == io::ErrorKind::TimedOut {
                tracing::debug!(%peer, "TLS handshake not finished in time");
            } else {
                tracing::debug!(%peer, %error, "TLS handshake failed");
            }
        }
    }
}

/// Makes the TLS handshake within `timeout`. The time in which the handshake waits for a certificate on demand does not
/// count, and has a bound of its own.
async fn accept(
    stream: TcpStream,
    tls: TlsTransport,
    timeout: Duration,
) -> io::Result<TlsStream<TcpStream>> {
    let TlsTransport { config, keys } = tls;
    if !keys.is_on_demand() {
        return within(timeout, TlsAcceptor::from(config).accept(stream)).await;
    }
    // Boxed, so that other handshakes take no memory for this one.
    Box::pin(async move {
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream);
        let start = within(timeout, hello).await?;
        let demanded = keys.demand(&start.client_hello());
        if let Some(demanded) = demanded {
            demanded.await;
        }
        within(timeout, start.into_stream(config)).await
    })
    .await
}

async fn within<T>(timeout: Duration, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(timeout, step).await?
}

/// Serves a connection of a Unix socket to its end, like [`run_tcp`]. Unix sockets have no TLS.
pub(crate) async fn run_unix(
    workers: Rc<CurrentWorker>,
    mut stream: UnixStream,
    peer: SocketAddr,
    transport: Transport,
    _member: Member,
) {
    let (conn, _registration) = Registration::begin(&workers);
    let Some(header) = read_header(&workers, &mut stream, peer, &transport, &conn).await else {
        return;
    };
    let mut client = Client::new(&conn, header.address, false, workers.get().config());
    client.set_proxied_tls(header.tls);
    Box::pin(detect(workers, client, stream)).await;
}

/// Returns the client of a connection: `peer`, or the one that the PROXY header names if the listener demands a header.
/// `None` if the connection has none and is closed.
async fn read_header(
    workers: &CurrentWorker,
    stream: &mut impl HeaderSource,
    peer: SocketAddr,
    transport: &Transport,
    conn: &ConnState,
) -> Option<HeaderClient> {
    let Some(proxies) = &transport.proxies else {
        return Some(HeaderClient::peer(peer));
    };
    let limits = {
        let worker = workers.get(); // a connection does not keep a generation
        let limits = &worker.config().limits;
        let len_max = usize::try_from(limits.proxy_header_bytes_max.bytes());
        HeaderLimits {
            timeout: limits.request_head_timeout,
            len_max: len_max.unwrap_or(usize::MAX),
        }
    };
    match Box::pin(client_of(stream, peer, proxies, limits, conn)).await {
        Ok(client) => Some(client),
        Err(reason) => {
            refuse(peer, &reason, &workers.get().counters);
            None
        }
    }
}

/// Registers a connection with its worker until dropped: counts it, and lets the worker's sweep check its timeouts.
pub(super) struct Registration {
    counters: Arc<Counters>,
    connections: Rc<RefCell<Connections>>,
    slot: usize,
    _held: Holding,
}

impl Registration {
    pub(super) fn begin(workers: &CurrentWorker) -> (Rc<ConnState>, Self) {
        let worker = workers.get(); // a connection does not keep a generation
        let shared = &worker.shared;
        let memory = Arc::clone(&shared.budgets.connections);
        let conn = ConnState::new(Arc::clone(&shared.clock), memory);
        let held = conn.holding(CONNECTION_BYTES);
        worker.counters.connections.increment();
        let slot = worker.connections.borrow_mut().insert(Rc::clone(&conn));
        let registration = Self {
            counters: Arc::clone(&worker.counters),
            connections: Rc::clone(&worker.connections),
            slot,
            _held: held,
        };
        (conn, registration)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.counters.connections.decrement();
        self.connections.borrow_mut().remove(self.slot);
    }
}

/// The memory of a connection: its task, its socket in the runtime, its state and the HTTP/1.1 codec.
const CONNECTION_BYTES: u64 = 4 << 10;

/// The memory of a TLS session: its keys and its buffers.
const TLS_BYTES: u64 = 16 << 10;

/// The bytes that the kernel buffers for a client with TLS in addition to the bytes in flight. With 256 KiB, the value
/// of connections without TLS, a body of 1 MiB costs a tenth more CPU time.
const TLS_UNSENT_BYTES_MAX: u32 = 1 << 20;
