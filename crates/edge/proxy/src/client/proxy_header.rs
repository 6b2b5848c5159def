//! Reads the PROXY header at the start of a connection, on listeners that demand one.
//!
//! The header names the client of the proxy, so only the configured proxies may connect. A connection without a valid
//! header is closed without a response: its bytes may belong to any protocol, and the address of its client is unknown.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use edgeward_proxy_protocol::{Header, HeaderError, Progress, client_uses_tls, read};
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncReadExt as _, Interest};
use tokio::net::{TcpStream, UnixStream};

use crate::config::Networks;
use crate::exchange::{CloseReason, ConnState};
use crate::observe::counters::Counters;

/// The limits of a header.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderLimits {
    pub(super) timeout: Duration,
    pub(super) len_max: usize,
}

/// The client of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderClient {
    pub(super) address: SocketAddr,
    /// True if the header states that the client has connected to the proxy over TLS.
    pub(super) tls: bool,
}

impl HeaderClient {
    /// Returns the client of a connection without a header, or with one that states no client.
    pub(super) const fn peer(address: SocketAddr) -> Self {
        Self {
            address,
            tls: false,
        }
    }
}

/// The reason why a connection is closed before its header was read.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoHeader {
    #[error("the client is not in listener.proxy_protocol_from")]
    Untrusted,
    #[error(transparent)]
    Invalid(#[from] HeaderError),
    #[error("the PROXY header did not arrive in time")]
    Late,
    /// The proxy has disconnected, or the connection drains.
    #[error("the connection ended before its PROXY header")]
    Ended,
    #[error("the connection was closed for others ({0:?})")]
    Closed(CloseReason),
}

/// A stream whose next bytes can be read without being taken.
pub(super) trait HeaderSource: AsyncRead + Unpin {
    /// Waits for bytes, and copies them into `piece`. Returns their number, 0 at the end of the stream.
    async fn peek(&self, piece: &mut [u8]) -> io::Result<usize>;
}

impl HeaderSource for TcpStream {
    async fn peek(&self, piece: &mut [u8]) -> io::Result<usize> {
        Self::peek(self, piece).await
    }
}

impl HeaderSource for UnixStream {
    async fn peek(&self, piece: &mut [u8]) -> io::Result<usize> {
        self.async_io(Interest::READABLE, || {
            Ok(recv(self, &mut *piece, RecvFlags::PEEK)?.0)
        })
        .await
    }
}

/// Reads the header that `peer` sends, and returns the client. No byte after the header is read.
pub(super) async fn client_of(
    stream: &mut impl HeaderSource,
    peer: SocketAddr,
    proxies: &Networks,
    limits: HeaderLimits,
    conn: &ConnState,
) -> Result<HeaderClient, NoHeader> {
    if !proxies.contains(peer.ip()) {
        return Err(NoHeader::Untrusted);
    }
    let mut reading = pin!(read_header(stream, limits.len_max));
    let unless_closed = poll_fn(|cx| {
        conn.register_task(cx);
        if conn.is_draining() {
            return Poll::Ready(Err(NoHeader::Ended));
        }
        if let Some(reason) = conn.must_leave() {
            return Poll::Ready(Err(NoHeader::Closed(reason)));
        }
        reading.as_mut().poll(cx)
    });
    match tokio::time::timeout(limits.timeout, unless_closed).await {
        Ok(Ok((Header::Proxied(addresses), tls))) => Ok(HeaderClient {
            address: addresses.source,
            tls,
        }),
        // Health checks of the proxy come from the proxy itself.
        Ok(Ok((Header::Local, _))) => Ok(HeaderClient::peer(peer)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(NoHeader::Late),
    }
}

/// The bytes of an incomplete header belong to it, so they can be taken from the socket. The last bytes are peeked
/// before they are taken, because those after the header belong to TLS or HTTP.
///
/// Returns the header, and true if it states that the client uses TLS.
async fn read_header(
    stream: &mut impl HeaderSource,
    len_max: usize,
) -> Result<(Header, bool), NoHeader> {
    let ended = |_: io::Error| NoHeader::Ended;
    let mut header = Vec::new();
    loop {
        let mut piece = [0; PIECE_BYTES];
        let arrived = stream.peek(&mut piece).await.map_err(ended)?;
        if arrived == 0 {
            return Err(NoHeader::Ended);
        }
        let taken_before = header.len();
        header.extend_from_slice(&piece[..arrived]);
        let progress = read(&header, len_max)?;
        let taken = match progress {
            Progress::Incomplete => arrived,
            Progress::Complete { len, .. } => len - taken_before,
        };
        // The bytes have arrived, so this does not wait.
        stream
            .read_exact(&mut piece[..taken])
            .await
            .map_err(ended)?;
        if let Progress::Complete { header: read, len } = progress {
            return Ok((read, client_uses_tls(&header[..len])));
        }
    }
}

/// Counts a connection that is closed for this reason.
pub(super) fn refuse(peer: SocketAddr, reason: &NoHeader, counters: &Counters) {
    tracing::debug!(%peer, %reason, "a connection was closed");
    let counter = match reason {
        NoHeader::Untrusted => &counters.proxy_header_untrusted,
        NoHeader::Late => &counters.proxy_header_late,
        NoHeader::Invalid(HeaderError::Missing) => &counters.proxy_header_missing,
        NoHeader::Invalid(HeaderError::TooLong) => &counters.proxy_header_too_long,
        NoHeader::Invalid(_) => &counters.proxy_header_malformed,
        NoHeader::Closed(reason) => return counters.closed[*reason].increment(),
        NoHeader::Ended => return,
    };
    counter.increment();
    counters.closed[CloseReason::ProxyHeader].increment();
}

/// The bytes that are peeked at once. Headers without many extensions are shorter.
const PIECE_BYTES: usize = 256;
