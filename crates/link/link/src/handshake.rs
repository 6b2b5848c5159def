//! The handshake of a connection: TLS, then HELLO from both endpoints.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use edgeward_dedup::wire::{Checksum, Disagreement, Frame, Hello, decode};

use crate::certificate_problem::{CertificateHolder, CertificateProblem, RefusedCertificate};
use crate::config::Encryption;
use crate::connection::{ConnectionError, ReadAhead, read_frame};
use crate::deny::DenyList;
use crate::identity::Identity;
use crate::keys::{Presented, RECORD_BYTES, gateway_name};
use crate::local;
use crate::rate_limit::Paced;

/// Why a handshake failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The TCP connection failed.
    #[error("cannot connect to {to}")]
    Connect {
        /// The address of the peer.
        to: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The TLS handshake failed, for example because only one endpoint uses encryption.
    #[error("the TLS handshake with the peer failed; both endpoints need the same `encryption`")]
    Tls(#[source] io::Error),
    /// An endpoint refused the certificate of the other one.
    #[error("{0}")]
    Certificate(RefusedCertificate),
    /// HELLO could not be sent, or no valid HELLO was received.
    #[error("the peer sent no HELLO")]
    Hello(#[source] ConnectionError),
    /// The endpoints have no common version, or different store keys.
    #[error("the two endpoints are not compatible")]
    Disagreement(#[from] Disagreement),
    /// The handshake took too long.
    #[error("the peer sent no HELLO within {0:?}")]
    Timeout(Duration),
    /// The peer sent no byte within this time after the TCP connection was accepted.
    #[error("the peer sent nothing within {0:?}")]
    Silent(Duration),
    /// The gateway closed the connection during the handshake, because too many newer connections had arrived.
    #[error("the connection was closed to make room before its handshake was complete")]
    Displaced,
    /// The limit of peers with the same certificate is reached.
    #[error(
        "{count} peers are connected with the certificate of `{name}`, which is its limit: give each edge a \
         certificate of its own by `edgeward link keygen --add`, or raise --peers-per-certificate"
    )]
    TooManyOfCertificate {
        /// The name of the edge.
        name: String,
        /// The number of peers.
        count: usize,
    },
    /// The limit of connections with the same certificate is reached.
    #[error(
        "{count} connections are open with the certificate of `{name}`, which is its limit: give each edge a \
         certificate of its own by `edgeward link keygen --add`, or raise --connections-per-certificate"
    )]
    TooManyConnections {
        /// The name of the edge.
        name: String,
        /// The number of connections.
        count: usize,
    },
    /// The limit of peers is reached.
    #[error("{0} peers are connected, which is the limit: raise --peers-max of the gateway")]
    TooManyPeers(usize),
    /// The gateway has shut down.
    #[error("the gateway has shut down")]
    ShutDown,
}

impl HandshakeError {
    /// Returns true for an error that usually occurs at every attempt until an operator changes the configuration.
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::Tls(_) | Self::Certificate(_) | Self::Disagreement(_) | Self::Hello(_)
        )
    }

    /// Replaces an error of TLS about a certificate by one that states the problem and an action. `own` and `peer` are
    /// the identities of this endpoint and its peer, if they are known.
    fn explained(self, own: Option<&Identity>, peer: Option<&Identity>) -> Self {
        let (Self::Tls(error) | Self::Hello(ConnectionError::Io(error))) = &self else {
            return self;
        };
        let Some((problem, whose)) = CertificateProblem::of(error) else {
            return self;
        };
        let identity = match whose {
            CertificateHolder::ThisEndpoint => own,
            CertificateHolder::Peer => peer,
        };
        // An edge knows the name of its peer without a certificate.
        let is_gateway =
            whose == CertificateHolder::Peer && own.is_some_and(|own| own.name() != "gateway");
        Self::Certificate(RefusedCertificate {
            problem,
            whose,
            name: identity
                .map(Identity::name)
                .or_else(|| is_gateway.then(|| "gateway".to_owned())),
            fingerprint: identity.map(Identity::fingerprint),
        })
    }
}

/// The byte stream of a connection, with or without encryption.
#[expect(
    clippy::large_enum_variant,
    reason = "there are few values, each with megabytes of buffers"
)]
pub(crate) enum Transport {
    Tcp(Paced),
    Tls(TlsStream<ReadAhead<Paced>>),
}

impl Transport {
    /// Performs the TLS handshake of the connecting endpoint, if encryption is enabled.
    pub(crate) async fn connect(
        tcp: Paced,
        encryption: &Encryption,
    ) -> Result<Self, HandshakeError> {
        match encryption {
            Encryption::Off => Ok(Self::Tcp(tcp)),
            Encryption::Tls(keys) => {
                let keys = keys.current();
                let connector = TlsConnector::from(Arc::clone(&keys.client));
                let stream = connector.connect(gateway_name(), ReadAhead::new(tcp)).await;
                let mut stream = stream.map_err(|error| {
                    HandshakeError::Tls(error).explained(Some(&keys.identity), None)
                })?;
                stream
                    .get_mut()
                    .1
                    .set_buffer_limit(Some(ENCRYPTED_BYTES_MAX));
                Ok(Self::Tls(stream.into()))
            }
        }
    }

    /// Performs the TLS handshake of the listening endpoint, if encryption is enabled. Refuses the certificates of the
    /// deny list.
    pub(crate) async fn accept(
        tcp: Paced,
        encryption: &Encryption,
        deny: Option<DenyList>,
    ) -> Result<Self, HandshakeError> {
        match encryption {
            Encryption::Off => Ok(Self::Tcp(tcp)),
            Encryption::Tls(keys) => {
                let (keys, presented) = (keys.current(), Presented::default());
                let server = keys.server(deny, &presented);
                let server =
                    server.map_err(|error| HandshakeError::Tls(io::Error::other(error)))?;
                let acceptor = TlsAcceptor::from(Arc::new(server));
                let accepted = acceptor.accept(ReadAhead::new(tcp)).into_fallible().await;
                let mut stream = match accepted {
                    Ok(stream) => stream,
                    Err((error, io)) => {
                        close_after_alert(io).await;
                        let peer = presented.identity();
                        return Err(HandshakeError::Tls(error)
                            .explained(Some(&keys.identity), peer.as_ref()));
                    }
                };
                stream
                    .get_mut()
                    .1
                    .set_buffer_limit(Some(ENCRYPTED_BYTES_MAX));
                Ok(Self::Tls(stream.into()))
            }
        }
    }

    /// Returns the identity in the certificate of the peer, or `None` without encryption.
    pub(crate) fn identity(&self) -> Option<Identity> {
        match self {
            Self::Tcp(_) => None,
            Self::Tls(stream) => {
                let (_, session) = stream.get_ref();
                let chain = session.peer_certificates()?;
                chain.first().map(|certificate| Identity::of(certificate))
            }
        }
    }

    /// Replaces an alert of the gateway by an error that states the problem with this edge's certificate. In TLS 1.3 an
    /// edge completes its handshake before the gateway has checked the certificate, so the alert is received instead of
    /// the gateway's HELLO.
    pub(crate) fn explain_alert(error: HandshakeError, encryption: &Encryption) -> HandshakeError {
        match encryption {
            Encryption::Off => error,
            Encryption::Tls(keys) => error.explained(Some(&keys.identity()), None),
        }
    }

    /// Returns which bytes the checksums of frames cover on this connection. With TLS, they do not cover the
    /// bytes of bodies, because TLS already detects changed bytes.
    pub(crate) fn checksum(&self) -> Checksum {
        match self {
            Self::Tcp(_) => Checksum::Whole,
            Self::Tls(_) => Checksum::Fields,
        }
    }

    /// Sends HELLO. The connecting endpoint sends its HELLO first. The gateway checks that HELLO before it sends a
    /// HELLO in response, so an unknown peer gets no information.
    pub(crate) async fn send_hello(&mut self, hello: Hello) -> Result<(), HandshakeError> {
        let mut bytes = Vec::new();
        Frame::Hello(hello).encode(&mut bytes);
        let sent = async {
            self.write_all(&bytes).await?;
            self.flush().await
        };
        sent.await
            .map_err(|error| HandshakeError::Hello(error.into()))
    }

    /// Receives the peer's HELLO. Any other frame is an error.
    pub(crate) async fn receive_hello(&mut self) -> Result<Hello, HandshakeError> {
        let frame = read_frame(self, HELLO_BYTES_MAX).await;
        let frame = frame.map_err(HandshakeError::Hello)?;
        match decode(&frame) {
            Ok(Frame::Hello(hello)) => Ok(hello),
            Ok(_) => {
                let error = edgeward_dedup::Violation::Direction.into();
                Err(HandshakeError::Hello(error))
            }
            Err(error) => Err(HandshakeError::Hello(error.into())),
        }
    }
}

/// Ends a connection whose peer was refused. If a socket is closed before all received bytes were read, TCP resets the
/// connection, and the peer may lose the alert that states the reason. Reads until the peer has closed the
/// connection, within a second.
async fn close_after_alert(mut io: ReadAhead<Paced>) {
    let close = async {
        io.shutdown().await?;
        let mut rest = [0; 1024];
        while io.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    _ = tokio::time::timeout(Duration::from_secs(1), close).await;
}

/// The highest number of encrypted bytes that rustls buffers until the socket accepts them: nine full records.
const ENCRYPTED_BYTES_MAX: usize = 9 * RECORD_BYTES;

/// Sets the options of a socket of the link.
///
/// An urgent frame cannot overtake bytes that are already in the socket buffer. The unsent part of the buffer is
/// therefore kept small. If the peer acknowledges no bytes for ten seconds, the connection fails.
pub(crate) fn set_socket_options(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let socket = SockRef::from(tcp);
    socket.set_tcp_user_timeout(Some(Duration::from_secs(10)))?;
    let keep_alive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5));
    socket.set_tcp_keepalive(&keep_alive)?;
    if let Some(bytes) = *SEND_BUFFER {
        socket.set_send_buffer_size(bytes)?;
    }
    socket.set_tcp_notsent_lowat(UNSENT_BYTES)
}

/// The size to request for the send buffers of connections, if the system permits a useful one.
static SEND_BUFFER: LazyLock<Option<usize>> = LazyLock::new(|| {
    let read = |name| std::fs::read_to_string(format!("/proc/sys/net/{name}")).ok();
    send_buffer(&read("core/wmem_max")?, &read("ipv4/tcp_wmem")?)
});

/// Returns the size to request for a send buffer, from two settings of the system: the largest size that may be
/// requested, and the sizes between which the system adapts a buffer (the last number is the largest one). The system
/// doubles the requested size, and then no longer adapts it. Returns `None` if it would not exceed the largest adapted
/// size.
fn send_buffer(wmem_max: &str, tcp_wmem: &str) -> Option<usize> {
    let requested_max: usize = wmem_max.trim().parse().ok()?;
    let adapted_max: usize = tcp_wmem.split_whitespace().last()?.parse().ok()?;
    let requested = requested_max.min(SEND_BUFFER_BYTES / 2);
    (requested * 2 > adapted_max).then_some(requested)
}

/// The largest send buffer. About two thirds of it are bytes in flight, the rest is overhead of the system: 10 MB in
/// flight are 500 Mb/s at a round-trip time of 150 ms. A buffer takes memory only for bytes in flight and
/// [`UNSENT_BYTES`].
const SEND_BUFFER_BYTES: usize = 16 << 20;

/// The highest number of unsent bytes in a socket buffer, above which the socket is not writable.
const UNSENT_BYTES: u32 = 128 << 10;

/// The longest HELLO frame that is accepted. Version 1 has 84 bytes; later versions may add fields.
const HELLO_BYTES_MAX: usize = 512;

/// Resolves the host of `HOST:PORT`, tries its addresses in order, and returns the first connection that succeeds.
pub(crate) async fn connect(address: &str) -> io::Result<(TcpStream, SocketAddr)> {
    let mut last_error =
        io::Error::new(io::ErrorKind::NotFound, format!("{address} has no address"));
    for addr in tokio::net::lookup_host(address).await? {
        match local::connect(addr).await {
            Ok(tcp) => return Ok((tcp, addr)),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            Self::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A send buffer is requested only if it becomes larger than the one that the system would make.
    #[test]
    fn no_send_buffer_becomes_smaller_than_the_system_makes_it() {
        const MIB: usize = 1 << 20;
        let of = |wmem_max: usize, adapted_max: usize| {
            send_buffer(
                &format!("{wmem_max}\n"),
                &format!("4096\t16384\t{adapted_max}\n"),
            )
        };
        assert_eq!(of(212_992, 4 * MIB), None);
        assert_eq!(of(2 * MIB, 4 * MIB), None);
        assert_eq!(of(2 * MIB + 1, 4 * MIB), Some(2 * MIB + 1));
        assert_eq!(of(4 * MIB, 4 * MIB), Some(4 * MIB));
        assert_eq!(of(64 * MIB, 4 * MIB), Some(8 * MIB));
        assert_eq!(of(64 * MIB, 16 * MIB), None);
        assert_eq!(send_buffer("", "4096 16384 4194304"), None);
        assert_eq!(send_buffer("4194304", ""), None);
    }

    /// The system grants the size that [`send_buffer`] has computed.
    #[tokio::test]
    async fn a_connection_gets_the_computed_send_buffer() {
        let listener = local::listen("127.0.0.1:0".parse().expect("the address is valid"));
        let listener = listener.expect("a port is free");
        let addr = listener.local_addr().expect("the address is known");
        let tcp = local::connect(addr).await.expect("the port is open");
        set_socket_options(&tcp).expect("the options can be set");
        let bytes = SockRef::from(&tcp).send_buffer_size();
        let bytes = bytes.expect("the size can be read");
        assert!(
            SEND_BUFFER.is_none_or(|requested| bytes == requested * 2),
            "{bytes}"
        );
    }
}
