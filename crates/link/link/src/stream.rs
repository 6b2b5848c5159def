//! Streams as their users see them: asynchronous readers and writers.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use edgeward_dedup::reason;

use crate::budget::Budget;
use crate::label::{Target, refusal_reason};
use crate::pipe::{Item, PipeMemory, PipeReader, PipeWriter, pipe};
use crate::user::PassedSocket;

/// A stream of bytes to and from a target on the peer's network. It may be used on any thread: it exchanges bytes with
/// the task of the peer through two bounded queues, and never waits for the work of that task.
///
/// Written bytes are sent within milliseconds, even without a flush. They are held for this time, because later bytes
/// may complete their chunk. After a flush, up to 2 KiB of held bytes are sent immediately. A shutdown ends the
/// outgoing direction. Dropping a stream without a shutdown resets it, and the peer's reader gets an error instead of
/// the end of the body.
#[derive(Debug)]
pub struct LinkStream {
    outgoing: Arc<PipeWriter>,
    incoming: PipeReader,
    /// The received bytes that are not read yet.
    unread: Bytes,
    /// The bytes that a task may still read or write before it must yield. Without a budget, a task that always finds
    /// bytes to read, or space to write, would never yield.
    read_budget: Budget,
    write_budget: Budget,
}

/// The ends of a stream's pipes that the link uses.
#[derive(Debug)]
pub(crate) struct Pipes {
    /// The bytes that the user has written.
    pub(crate) outgoing: PipeReader,
    /// The bytes for the user.
    pub(crate) incoming: PipeWriter,
}

impl Pipes {
    /// Ends both directions for this reason.
    pub(crate) fn fail(self, reason: u32) {
        self.outgoing.refuse(reason);
        self.incoming.end(Err(reason));
    }
}

/// The error if the peer has reset or refused a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{}", refusal_reason::describe(*.reason))]
pub struct StreamError {
    /// A reason of [`refusal_reason`] or of `edgeward_dedup::reason`.
    pub reason: u32,
}

impl StreamError {
    pub(crate) fn into_io(self) -> io::Error {
        let kind = match self.reason {
            refusal_reason::NOT_ALLOWED => io::ErrorKind::PermissionDenied,
            refusal_reason::UNREACHABLE => io::ErrorKind::ConnectionRefused,
            refusal_reason::NO_SUCH_HOST => io::ErrorKind::NotFound,
            refusal_reason::TIMEOUT | refusal_reason::LINK_DOWN => io::ErrorKind::TimedOut,
            reason::DIGEST | reason::LENGTH => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::ConnectionReset,
        };
        io::Error::new(kind, self)
    }
}

fn error(reason: u32) -> io::Error {
    StreamError { reason }.into_io()
}

impl LinkStream {
    /// Creates a stream, and the ends of its pipes for the link. The memory of the pipes is counted in `memory`.
    pub(crate) fn new(memory: &PipeMemory) -> (Self, Pipes) {
        let (outgoing, written) = pipe(OUTGOING_BYTES_MAX, memory);
        let (received, incoming) = pipe(INCOMING_BYTES_MAX, memory);
        let stream = Self {
            outgoing: Arc::new(outgoing),
            incoming,
            unread: Bytes::new(),
            read_budget: Budget::default(),
            write_budget: Budget::default(),
        };
        let pipes = Pipes {
            outgoing: written,
            incoming: received,
        };
        (stream, pipes)
    }

    /// Waits until the peer has connected to the target or has refused the stream.
    ///
    /// This call is optional: bytes that are written before are delivered when the peer has connected to the target.
    pub async fn accepted(&mut self) -> Result<(), StreamError> {
        std::future::poll_fn(|cx| self.incoming.poll_open(cx))
            .await
            .map_err(|reason| StreamError { reason })
    }

    /// Returns the next received bytes without a copy, or `None` at the end of the body.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if !self.unread.is_empty() {
            return Poll::Ready(Ok(Some(std::mem::take(&mut self.unread))));
        }
        Poll::Ready(match ready!(self.incoming.poll_item(cx)) {
            Item::Bytes(bytes) => Ok(Some(bytes)),
            Item::End => Ok(None),
            Item::Socket(_) => unreachable!("the task of the peer passes no connection"),
            Item::Failed(reason) => Err(error(reason)),
        })
    }

    /// Waits for the next bytes. See [`poll_chunk`](Self::poll_chunk).
    pub async fn chunk(&mut self) -> io::Result<Option<Bytes>> {
        std::future::poll_fn(|cx| self.poll_chunk(cx)).await
    }

    /// Returns a handle that can change the stream while another task owns it.
    pub(crate) fn control(&self) -> StreamControl {
        StreamControl(Arc::clone(&self.outgoing))
    }

    /// Copies bytes between this stream and a TCP connection, until both directions have ended or one direction has
    /// failed. After a failure the TCP connection is reset, so that its remote host does not treat a truncated body as
    /// complete. The task of the peer copies the bytes, so that it can read them into the buffers of the sender.
    pub(crate) async fn pump(self, tcp: TcpStream) -> io::Result<()> {
        let keep_alive = TcpKeepalive::new().with_time(Duration::from_secs(60));
        _ = SockRef::from(&tcp).set_tcp_keepalive(&keep_alive);
        // The connection is reset if it is dropped before both directions have ended.
        _ = SockRef::from(&tcp).set_linger(Some(Duration::ZERO));
        let (ended, result) = oneshot::channel();
        let socket = PassedSocket {
            tcp,
            unread: self.unread,
            incoming: self.incoming,
            ended,
        };
        if self.outgoing.pass(socket).is_err() {
            return Err(error(self.outgoing.refusal().unwrap_or(reason::CANCELLED)));
        }
        let result = result.await;
        result.unwrap_or_else(|_| Err(error(reason::CANCELLED)))
    }
}

impl AsyncRead for LinkStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if self.read_budget.yield_if_spent(cx) {
            return Poll::Pending;
        }
        if self.unread.is_empty() {
            match self.poll_chunk(cx)? {
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Ready(Some(bytes)) => self.unread = bytes,
                Poll::Pending => {
                    self.read_budget = Budget::default();
                    return Poll::Pending;
                }
            }
        }
        let taken = buffer.remaining().min(self.unread.len());
        buffer.put_slice(&self.unread[..taken]);
        self.unread.advance(taken);
        self.read_budget.spend(taken);
        // An empty slice would keep the memory of the whole buffer allocated.
        if self.unread.is_empty() {
            self.unread = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for LinkStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.write_budget.yield_if_spent(cx) {
            return Poll::Pending;
        }
        match self.outgoing.poll_space(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(reason)) => return Poll::Ready(Err(error(reason))),
            Poll::Pending => {
                self.write_budget = Budget::default();
                return Poll::Pending;
            }
        }
        let bytes = &bytes[..bytes.len().min(PIECE_BYTES)];
        if !bytes.is_empty() {
            self.outgoing.push(Bytes::copy_from_slice(bytes));
            self.write_budget.spend(bytes.len());
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outgoing.flush();
        Poll::Ready(Ok(()))
    }

    /// Ends the outgoing direction at once. Written bytes are delivered even if the stream is dropped.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.outgoing.is_complete() {
            return Poll::Ready(Ok(()));
        }
        if let Some(reason) = self.outgoing.refusal() {
            return Poll::Ready(Err(error(reason)));
        }
        self.outgoing.end(Ok(()));
        Poll::Ready(Ok(()))
    }
}

/// A handle to a stream that another task owns.
#[derive(Clone, Debug)]
pub(crate) struct StreamControl(Arc<PipeWriter>);

impl StreamControl {
    /// Sends the bytes that are written after this call without deduplication.
    pub(crate) fn bypass(&self) {
        self.0.describe(|facts| facts.bypasses = true);
    }

    /// Counts the bytes that are written after this call with this content type.
    pub(crate) fn set_content_type(&self, content_type: &str) {
        self.0
            .describe(|facts| facts.content_type = Some(content_type.into()));
    }
}

/// A stream that the peer has opened. Dropping it without an answer resets it.
#[derive(Debug)]
pub(crate) struct IncomingStream {
    target: Target,
    stream: LinkStream,
}

impl IncomingStream {
    pub(crate) fn new(target: Target, stream: LinkStream) -> Self {
        Self { target, stream }
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Accepts the stream, so that bytes can be written to it. If the peer has left, reads and writes fail.
    pub(crate) fn accept(self) -> LinkStream {
        self.stream.outgoing.open();
        self.stream
    }

    /// Refuses the stream with a reason of [`refusal_reason`].
    pub(crate) fn refuse(self, reason: u32) {
        self.stream.outgoing.end(Err(reason));
    }
}

/// The longest piece of written bytes. Copying it takes a few microseconds.
const PIECE_BYTES: usize = 32 << 10;

/// The memory of written bytes that the link has not taken yet. A writer that is woken when the pipe is half empty can
/// fill it again before the link has taken the rest.
const OUTGOING_BYTES_MAX: usize = 4 * PIECE_BYTES;

/// The memory of received bytes that the user has not taken yet. One long piece, of up to 512 KiB, may exceed it.
/// Further bytes remain at the receiver, which counts them against the credit of the peer.
const INCOMING_BYTES_MAX: usize = 256 << 10;
