//! Opens connections to a server of an origin: TCP, TLS, Unix sockets and dialed streams.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use edgeward_httpd::disable_loopback_pacing;
use edgeward_proxy_protocol::{Addresses, Header, Version, write};
use rustls_pki_types::ServerName;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::health::OriginHealth;
use crate::config::interfaces::{Dial, DialedStream};
use crate::config::{OriginConfig, OriginProtocol, OriginUrl, ReadCredentialsError};
use crate::net::tls;
use crate::observe::causes::KeyExchange;

/// A connection to a server: TCP, TLS, a Unix socket or a dialed stream.
pub(crate) trait OriginStream: AsyncRead + AsyncWrite + Unpin + 'static {
    /// Returns true if a read would wait: no bytes have arrived, and the stream has not ended. After false, the caller
    /// must not use the stream, because a byte may have been read and dropped.
    fn is_quiet(&mut self) -> bool {
        is_quiet(self)
    }

    /// Returns the key exchange of the handshake. `None` without TLS.
    fn key_exchange(&self) -> Option<KeyExchange> {
        None
    }
}

fn is_quiet(stream: &mut (impl AsyncRead + Unpin + ?Sized)) -> bool {
    let mut byte = [0];
    let mut cx = Context::from_waker(Waker::noop());
    Pin::new(stream)
        .poll_read(&mut cx, &mut ReadBuf::new(&mut byte))
        .is_pending()
}

impl OriginStream for TlsStream<TcpStream> {
    fn key_exchange(&self) -> Option<KeyExchange> {
        let group = self.get_ref().1.negotiated_key_exchange_group();
        Some(KeyExchange::of(group.map(|group| group.name())))
    }
}

impl OriginStream for Box<dyn DialedStream> {
    fn is_quiet(&mut self) -> bool {
        self.is_reusable() && is_quiet(self)
    }
}

impl OriginStream for UnixStream {}

impl OriginStream for TcpStream {
    fn is_quiet(&mut self) -> bool {
        // Unlike `poll_read`, `try_read` keeps the registered waker of the task that waits for bytes.
        let read = self.try_read(&mut [0]);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Opens connections to one server.
#[derive(Clone)]
pub(crate) struct Connector {
    route: Route,
    tls: Option<(OriginTlsConnectors, ServerName<'static>)>,
    proxy_protocol: Option<Version>,
    health: Arc<OriginHealth>,
}

/// An error of the TLS handshake that is not one of rustls.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    /// The server closed the connection. A server without TLS does so, because it cannot read the first message.
    #[error("the server closed the connection during the TLS handshake")]
    Ended(#[source] io::Error),
    /// The server of an origin with HTTP/2 did not choose it, which RFC 9113 §3.2 requires.
    #[error(
        "the server does not offer HTTP/2 in the TLS handshake; set origin.protocol = \"http1\""
    )]
    NoHttp2,
}

impl HandshakeError {
    /// Marks the error of a handshake if the connection ended.
    fn mark(error: io::Error) -> io::Error {
        use io::ErrorKind as K;
        match error.kind() {
            K::UnexpectedEof | K::ConnectionReset | K::ConnectionAborted | K::BrokenPipe => {
                io::Error::new(error.kind(), Self::Ended(error))
            }
            _ => error,
        }
    }
}

/// The settings of TLS for connections to an origin.
#[derive(Clone)]
pub(super) struct OriginTlsConnectors {
    /// For requests, by the protocol of the origin.
    requests: TlsConnector,
    /// True if the protocol of the origin is HTTP/2.
    is_h2: bool,
    /// For requests with `Upgrade`, by HTTP/1.1.
    upgrades: TlsConnector,
}

/// Opens connections to a URL that is no origin, such as the collector of traces. The name is resolved for each
/// connection.
pub(crate) struct Endpoint {
    url: OriginUrl,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Endpoint {
    /// Returns the endpoint at the URL of `config`, with its settings of TLS.
    pub(crate) fn new(config: &OriginConfig) -> Result<Self, ConnectorError> {
        let url = config.url().clone();
        let name = Connector::server_name(config, &url)?;
        Ok(Self {
            tls: Connector::tls(config)?.map(|tls| tls.requests).zip(name),
            url,
        })
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> io::Result<Box<dyn OriginStream>> {
        let tcp = TcpStream::connect((&*self.url.host, self.url.port)).await?;
        tcp.set_nodelay(true)?;
        match &self.tls {
            Some((tls, name)) => Ok(Box::new(tls.connect(name.clone(), tcp).await?)),
            None => Ok(Box::new(tcp)),
        }
    }
}

/// The way to a server.
#[derive(Clone, Debug)]
pub(super) enum Route {
    Tcp(SocketAddr),
    Unix(PathBuf),
    /// Opens connections in place of TCP and TLS: see [`OriginConfig::dial`].
    Dial(Arc<dyn Dial>),
}

/// The reason why the configuration of connections to the origin is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectorError {
    /// The name that the origin's certificate must have is invalid.
    #[error("`{name}` is neither a host name nor an address; set origin.tls.server_name")]
    ServerName {
        /// The configured name.
        name: String,
    },
    /// The trusted roots, or the certificate of the edge, cannot be used.
    #[error("the certificates for the origin cannot be used")]
    Tls(#[source] Box<tls::TlsError>),
    /// The credentials of the bucket cannot be used.
    #[error("the credentials of the bucket cannot be used")]
    Credentials(#[from] ReadCredentialsError),
}

impl Connector {
    pub(super) const fn new(
        route: Route,
        tls: Option<(OriginTlsConnectors, ServerName<'static>)>,
        proxy_protocol: Option<Version>,
        health: Arc<OriginHealth>,
    ) -> Self {
        Self {
            route,
            tls,
            proxy_protocol,
            health,
        }
    }

    /// Returns the TLS settings of an `https` origin.
    pub(super) fn tls(
        config: &OriginConfig,
    ) -> Result<Option<OriginTlsConnectors>, ConnectorError> {
        if !config.url().tls {
            return Ok(None);
        }
        let of = |alpn: &[u8]| match tls::client_config(&config.tls, &[alpn]) {
            Ok(client) => Ok(TlsConnector::from(Arc::new(client))),
            Err(error) => Err(ConnectorError::Tls(Box::new(error))),
        };
        let upgrades = of(tls::ALPN_HTTP1)?;
        let requests = match config.protocol {
            OriginProtocol::Http1 => upgrades.clone(),
            OriginProtocol::Http2 => of(tls::ALPN_HTTP2)?,
        };
        Ok(Some(OriginTlsConnectors {
            requests,
            is_h2: config.protocol == OriginProtocol::Http2,
            upgrades,
        }))
    }

    /// Returns the name that the certificate of a server must have, or `None` for a server without TLS.
    pub(super) fn server_name(
        config: &OriginConfig,
        url: &OriginUrl,
    ) -> Result<Option<ServerName<'static>>, ConnectorError> {
        if !url.tls {
            return Ok(None);
        }
        let name = config.tls.server_name.as_ref().unwrap_or(&url.host);
        let name = ServerName::try_from(name.clone())
            .map_err(|_| ConnectorError::ServerName { name: name.clone() })?;
        Ok(Some(name))
    }

    /// Returns the server's health, which all workers share.
    pub(super) const fn health(&self) -> &Arc<OriginHealth> {
        &self.health
    }

    /// Opens a connection for requests of a client, or for requests of the edge itself.
    pub(super) async fn connect(
        &self,
        client: Option<SocketAddr>,
    ) -> io::Result<Box<dyn OriginStream>> {
        self.connect_by(client, |tls| (&tls.requests, tls.is_h2))
            .await
    }

    /// Opens a connection for a request with `Upgrade`, which HTTP/2 does not have (RFC 9113 §8.6).
    pub(super) async fn connect_for_upgrade(
        &self,
        client: SocketAddr,
    ) -> io::Result<Box<dyn OriginStream>> {
        self.connect_by(Some(client), |tls| (&tls.upgrades, false))
            .await
    }

    /// Returns the PROXY header of a connection: empty if the origin gets none.
    fn proxy_header(&self, client: Option<SocketAddr>, server: SocketAddr) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(version) = self.proxy_protocol {
            let header = client.map_or(Header::Local, |source| {
                Header::Proxied(Addresses {
                    source,
                    destination: server,
                })
            });
            write(version, header, &mut bytes);
        }
        bytes
    }

    async fn connect_by(
        &self,
        client: Option<SocketAddr>,
        choose: fn(&OriginTlsConnectors) -> (&TlsConnector, bool),
    ) -> io::Result<Box<dyn OriginStream>> {
        let addr = match &self.route {
            Route::Dial(dial) => return Ok(Box::new(dial.dial()?)),
            Route::Unix(path) => {
                let mut unix = UnixStream::connect(path).await?;
                unix.write_all(&self.proxy_header(client, UNKNOWN_SERVER))
                    .await?;
                return Ok(Box::new(unix));
            }
            Route::Tcp(addr) => *addr,
        };
        let mut tcp = connect_tcp(addr).await?;
        // Before TLS. Without a header, nothing is written.
        tcp.write_all(&self.proxy_header(client, addr)).await?;
        match &self.tls {
            None => Ok(Box::new(tcp)),
            Some((connectors, name)) => {
                let (connector, needs_h2) = choose(connectors);
                let tls = connector.connect(name.clone(), tcp).await;
                let tls = tls.map_err(HandshakeError::mark)?;
                if needs_h2 && tls.get_ref().1.alpn_protocol() != Some(tls::ALPN_HTTP2) {
                    return Err(io::Error::other(HandshakeError::NoHttp2));
                }
                Ok(Box::new(tls))
            }
        }
    }
}

/// Opens a TCP connection to a server. On loopback it is not paced.
async fn connect_tcp(addr: SocketAddr) -> io::Result<TcpStream> {
    let socket = match addr {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    connect_socket(socket, addr).await
}

async fn connect_socket(socket: TcpSocket, addr: SocketAddr) -> io::Result<TcpStream> {
    disable_loopback_pacing(&SockRef::from(&socket), addr.ip());
    socket.set_nodelay(true)?;
    socket.connect(addr).await
}

/// The destination in PROXY headers to a Unix socket, which has no address.
const UNKNOWN_SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

#[cfg(test)]
mod tests {
    use super::*;

    fn congestion(socket: &SockRef<'_>) -> String {
        let name = socket.tcp_congestion().expect("the socket uses TCP");
        String::from_utf8_lossy(&name).trim_matches('\0').to_owned()
    }

    /// A connection to a server of the same machine is not paced, whatever the system's default is. Kernels without BBR
    /// skip the test: no socket is paced there.
    #[tokio::test]
    async fn connections_on_loopback_are_not_paced() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("the port is bound");
        let addr = listener.local_addr().expect("the socket is bound");
        let socket = TcpSocket::new_v4().expect("the socket is created");
        if SockRef::from(&socket).set_tcp_congestion(b"bbr").is_err() {
            eprintln!("skipped: the kernel has no BBR");
            return;
        }
        let connected = connect_socket(socket, addr).await;
        let tcp = connected.expect("the port is open");
        assert!(tcp.nodelay().expect("the socket uses TCP"));
        assert_eq!(congestion(&SockRef::from(&tcp)), "reno");
    }
}
