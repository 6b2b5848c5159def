//! The public type of a link stream: an asynchronous reader and writer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::{Buf as _, Bytes};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use edgeward_dedup::reason;

use crate::budget::{BUDGET_BYTES, Budget};
use crate::core::{Core, DuplexId, Read, Written};
use crate::label::{Target, refusal_reason};
use crate::peer::Peer;

/// A stream of bytes to and from a target on the peer's network.
///
/// Written bytes are sent within milliseconds, even without a flush. They are held for this time, because later bytes
/// may complete their chunk. After a flush, up to 2 KiB of held bytes are sent immediately. A shutdown ends the
/// outgoing direction. Dropping a stream without a shutdown resets it, and the peer's reader gets an error instead of
/// the end of the body.
#[derive(Debug)]
pub struct LinkStream {
    peer: Arc<Peer>,
    /// The number of the stream at this endpoint.
    duplex: DuplexId,
    /// The received bytes that are not read yet.
    unread: Bytes,
    /// The bytes that a task may still read or write before it must yield. Without a budget, a task that always finds
    /// bytes to read, or space to write, would never yield.
    read_budget: Budget,
    write_budget: Budget,
}

/// The error if the peer has reset or refused a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{}", refusal_reason::describe(*.reason))]
pub struct StreamError {
    /// A reason of [`refusal_reason`] or of `edgeward_dedup::reason`.
    pub reason: u32,
}

impl StreamError {
    fn into_io(self) -> io::Error {
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

impl LinkStream {
    pub(crate) fn new(peer: Arc<Peer>, duplex: DuplexId) -> Self {
        Self {
            peer,
            duplex,
            unread: Bytes::new(),
            read_budget: Budget::default(),
            write_budget: Budget::default(),
        }
    }

    /// Waits until the peer has connected to the target or has refused the stream.
    ///
    /// This call is optional: bytes that are written before are delivered when the peer has connected to the target.
    pub async fn accepted(&mut self) -> Result<(), StreamError> {
        std::future::poll_fn(|cx| {
            let accepted = self
                .peer
                .with(|core| core.accepted(self.duplex, cx.waker()));
            accepted.map_or(Poll::Pending, Poll::Ready)
        })
        .await
        .map_err(|reason| StreamError { reason })
    }

    /// Returns a handle that can change the stream while another task owns it.
    pub(crate) fn control(&self) -> StreamControl {
        StreamControl {
            peer: Arc::clone(&self.peer),
            duplex: self.duplex,
        }
    }

    /// Returns the next received bytes without a copy, or `None` at the end of the body.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if !self.unread.is_empty() {
            return Poll::Ready(Ok(Some(std::mem::take(&mut self.unread))));
        }
        match self.peer.with(|core| core.read(self.duplex, cx.waker())) {
            Read::Bytes(bytes) => Poll::Ready(Ok(Some(bytes))),
            Read::Wait => Poll::Pending,
            Read::End => Poll::Ready(Ok(None)),
            Read::Failed(reason) => Poll::Ready(Err(StreamError { reason }.into_io())),
        }
    }

    /// Waits for the next bytes. See [`poll_chunk`](Self::poll_chunk).
    pub async fn chunk(&mut self) -> io::Result<Option<Bytes>> {
        std::future::poll_fn(|cx| self.poll_chunk(cx)).await
    }

    /// Like [`poll_write`](AsyncWrite::poll_write), but without a copy: the function `read` gets a part of the
    /// sender's buffer, reads bytes into it and returns their number. It returns 0 if its source has ended, and
    /// the error `WouldBlock` instead of blocking. Errors of `read` are returned unchanged.
    pub(crate) fn poll_write_from(
        &mut self,
        waker: &Waker,
        budget: &mut Budget,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let now = Instant::now();
        let written = self.peer.with(|core| {
            let written = core.write_from(self.duplex, now, waker, budget, read);
            set_write_end(core, self.duplex, written.as_ref().ok());
            written
        });
        into_poll(written?)
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
        let bytes = &bytes[..bytes.len().min(BUDGET_BYTES)];
        let now = Instant::now();
        let Self {
            peer,
            duplex,
            write_budget,
            ..
        } = &mut *self;
        let written = peer.with(|core| {
            let written = core.write(*duplex, bytes, now, cx.waker(), write_budget);
            set_write_end(core, *duplex, Some(&written));
            written
        });
        if !matches!(written, Written::Bytes(_)) {
            self.write_budget = Budget::default();
        }
        into_poll(written)
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.peer.with(|core| core.flush(self.duplex));
        Poll::Ready(Ok(()))
    }

    /// Ends the outgoing direction at once. Written bytes are delivered even if the stream is dropped.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = self.peer.with(|core| core.close(self.duplex));
        Poll::Ready(closed.map_err(|reason| StreamError { reason }.into_io()))
    }
}

/// Sets the time of the last write to the time at which its processing ended. An incomplete chunk is held until
/// [`SEND_DELAY`](crate::send_delay::SEND_DELAY) has passed since the last write. Processing a large write takes
/// longer. If the delay began before the processing, the chunk would be sent before the writer can continue.
fn set_write_end(core: &mut Core, duplex: DuplexId, written: Option<&Written>) {
    if matches!(written, Some(Written::Bytes(1..))) {
        core.set_write_end(duplex, Instant::now());
    }
}

fn into_poll(written: Written) -> Poll<io::Result<usize>> {
    match written {
        Written::Bytes(bytes) => Poll::Ready(Ok(bytes)),
        Written::Full => Poll::Pending,
        Written::Ended(reason) => Poll::Ready(Err(StreamError { reason }.into_io())),
    }
}

impl Drop for LinkStream {
    fn drop(&mut self) {
        self.peer.with(|core| core.detach(self.duplex));
    }
}

/// A handle to a stream that another task owns.
#[derive(Clone, Debug)]
pub(crate) struct StreamControl {
    peer: Arc<Peer>,
    duplex: DuplexId,
}

impl StreamControl {
    /// Sends the bytes that are written after this call without deduplication.
    pub(crate) fn bypass(&self) {
        self.peer.with(|core| core.bypass(self.duplex));
    }
}

/// A stream that the peer has opened.
#[derive(Debug)]
pub(crate) struct IncomingStream {
    stream: LinkStream,
    target: Target,
}

impl IncomingStream {
    /// Waits for the next stream that the peer opens. Returns `None` after the peer was shut down.
    pub(crate) async fn next(peer: &Arc<Peer>) -> Option<Self> {
        std::future::poll_fn(|cx| {
            let (opened, is_shut_down) =
                peer.with(|core| (core.next_opened(cx.waker()), core.is_shut_down()));
            match opened {
                Some((duplex, target)) => Poll::Ready(Some(Self {
                    stream: LinkStream::new(Arc::clone(peer), duplex),
                    target,
                })),
                None if is_shut_down => Poll::Ready(None),
                None => Poll::Pending,
            }
        })
        .await
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Accepts the stream, so that bytes can be written to it.
    pub(crate) fn accept(self) -> Result<LinkStream, StreamError> {
        let accepted = self
            .stream
            .peer
            .with(|core| core.accept(self.stream.duplex));
        accepted.map_err(|reason| StreamError { reason })?;
        Ok(self.stream)
    }

    /// Refuses the stream with a reason of [`refusal_reason`].
    pub(crate) fn refuse(self, reason: u32) {
        self.stream
            .peer
            .with(|core| core.refuse(self.stream.duplex, reason));
    }
}
