//! Local listeners that carry TCP connections over the link: to one fixed target, to the original destinations of
//! intercepted connections, or as a SOCKS5 and CONNECT proxy.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::SetupError;
use crate::client::{Client, OpenError};
use crate::label::{Target, refusal_reason};
use crate::local;
use crate::socks::{HEAD_BYTES_MAX, Phase, ProxyProtocol, ProxyUsers, Step, read, reply};
use crate::stream::LinkStream;
use crate::transparent;

/// The target of a listener's connections.
#[derive(Clone, Debug)]
pub enum ListenerTarget {
    /// One fixed target.
    Fixed(Target),
    /// The address to which the client connected, before a rule of the firewall diverted the connection to the
    /// listener. Only on Linux.
    Intercepted,
    /// The target that each client requests by SOCKS5 or CONNECT. If users are given, each client must be one of them.
    Proxy(Option<Arc<ProxyUsers>>),
}

/// A listener whose connections are carried over the link. Dropping it closes the listener and its connections.
#[derive(Debug)]
pub struct LocalListener {
    addr: SocketAddr,
    _tasks: JoinSet<()>,
}

impl LocalListener {
    /// Starts the listener. Its tasks run on the current Tokio runtime. At most `connections_max` connections are
    /// served at the same time. Further connections wait until one of them is closed.
    pub async fn bind(
        client: Client,
        listen: SocketAddr,
        target: ListenerTarget,
        connections_max: usize,
    ) -> Result<Self, SetupError> {
        let listen_error = |source| SetupError::Listen {
            addr: listen,
            source,
        };
        let listener = match &target {
            ListenerTarget::Intercepted => transparent::listen(listen),
            _ => local::listen(listen),
        };
        let listener = listener.map_err(listen_error)?;
        let addr = listener.local_addr().map_err(listen_error)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(
            (listener, addr),
            client,
            target,
            connections_max.max(1),
        ));
        Ok(Self {
            addr,
            _tasks: tasks,
        })
    }

    /// Returns the address of the listener.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}

async fn accept(
    (listener, addr): (TcpListener, SocketAddr),
    client: Client,
    target: ListenerTarget,
    connections_max: usize,
) {
    let slots = Arc::new(Semaphore::new(connections_max));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let slot = Arc::clone(&slots).acquire_owned().await;
        match listener.accept().await {
            Ok((tcp, from)) => {
                _ = tcp.set_nodelay(true);
                let (client, target) = (client.clone(), target.clone());
                connections.spawn(async move {
                    let result = match target {
                        ListenerTarget::Fixed(target) => forward(&client, target, tcp).await,
                        ListenerTarget::Intercepted => intercept(&client, tcp, addr).await,
                        ListenerTarget::Proxy(users) => {
                            serve_proxy(&client, tcp, users.as_deref()).await
                        }
                    };
                    if let Err(error) = result {
                        tracing::info!(%from, %error, "connection aborted");
                    }
                    drop(slot);
                });
            }
            Err(error) => {
                // The usual cause is the limit of open files. After a pause, other connections may have been closed.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Carries a connection to the target. If the link is down or has no free stream, the connection is reset.
async fn forward(client: &Client, target: Target, tcp: TcpStream) -> io::Result<()> {
    match client.open(target) {
        Ok(stream) => stream.pump(tcp).await,
        Err(error) => {
            _ = socket2::SockRef::from(&tcp).set_linger(Some(Duration::ZERO));
            Err(io::Error::other(error))
        }
    }
}

/// Carries an intercepted connection to its original destination.
async fn intercept(client: &Client, tcp: TcpStream, listener: SocketAddr) -> io::Result<()> {
    match transparent::target_of(&tcp, listener) {
        Ok(target) => forward(client, target, tcp).await,
        Err(error) => {
            _ = socket2::SockRef::from(&tcp).set_linger(Some(Duration::ZERO));
            Err(io::Error::other(error))
        }
    }
}

/// Reads the request of a SOCKS5 or CONNECT client, and carries the connection to the requested target.
async fn serve_proxy(
    client: &Client,
    mut tcp: TcpStream,
    users: Option<&ProxyUsers>,
) -> io::Result<()> {
    let request = tokio::time::timeout(REQUEST_TIMEOUT, read_request(&mut tcp, users)).await;
    let Some((target, protocol, rest)) =
        request.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?
    else {
        return Ok(());
    };
    let opened = open_stream(client, target).await;
    let outcome = opened.as_ref().map(|_| ()).map_err(|reason| *reason);
    tcp.write_all(&reply(protocol, outcome)).await?;
    match opened {
        Ok(mut stream) => {
            // A client that does not wait for the reply may have sent its first bytes together with the request.
            stream.write_all(&rest).await?;
            stream.pump(tcp).await
        }
        Err(_) => tcp.shutdown().await,
    }
}

/// Opens a stream and waits until the gateway has connected to the target. The error is a
/// reason code: one of the constants in [`refusal_reason`] or `edgeward_dedup::reason`.
async fn open_stream(client: &Client, target: Target) -> Result<LinkStream, u32> {
    let opened = client.open(target).map_err(|error| match error {
        OpenError::Down => refusal_reason::LINK_DOWN,
        OpenError::Streams(_) => edgeward_dedup::reason::TOO_MANY,
    });
    let mut stream = opened?;
    stream.accepted().await.map_err(|error| error.reason)?;
    Ok(stream)
}

/// Reads the target that a client requests, the protocol that it uses, and the bytes after the request. Returns
/// `None` if the request was refused, or if the client closed the connection before its request was complete.
async fn read_request(
    tcp: &mut TcpStream,
    users: Option<&ProxyUsers>,
) -> io::Result<Option<(Target, ProxyProtocol, Vec<u8>)>> {
    let (mut received, mut phase) = (Vec::new(), Phase::First);
    loop {
        match read(&received, phase, users) {
            Step::ReadMore => {
                let mut more = [0; 1024];
                let bytes = tcp.read(&mut more).await?;
                if bytes == 0 {
                    return Ok(None);
                }
                received.extend_from_slice(&more[..bytes]);
                if received.len() > 2 * HEAD_BYTES_MAX {
                    return Err(io::ErrorKind::InvalidData.into());
                }
            }
            Step::Reply { reply, used, next } => {
                received.drain(..used);
                phase = next;
                tcp.write_all(&reply).await?;
            }
            Step::Connect {
                target,
                protocol,
                used,
            } => {
                received.drain(..used);
                return Ok(Some((Target::Tcp(target), protocol, received)));
            }
            Step::Refuse { reply, why } => {
                let from = tcp.peer_addr().ok();
                tracing::info!(
                    from = from.map(tracing::field::display),
                    why,
                    "proxy request refused"
                );
                tcp.write_all(&reply).await?;
                tcp.shutdown().await?;
                return Ok(None);
            }
        }
    }
}

/// The timeout of a client's SOCKS5 or CONNECT request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause after a failed `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
