//! A stream as the tasks of the link use it: each operation takes the lock of the peer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use edgeward_dedup::sender::SendError;

use crate::budget::{BUDGET_BYTES, Budget};
use crate::core::{Core, DuplexId, Read, Written};
use crate::label::Target;
use crate::peer::Peer;
use crate::stream::StreamError;

/// A stream of bytes to and from a target on the peer's network. It is used on the runtime of the link only, because it
/// hashes and copies bytes under the lock of the peer, and waits for this lock. Others use a
/// [`LinkStream`](crate::stream::LinkStream), which has the same rules.
#[derive(Debug)]
pub(crate) struct CoreStream {
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

impl CoreStream {
    pub(crate) fn new(peer: Arc<Peer>, duplex: DuplexId) -> Self {
        Self {
            peer,
            duplex,
            unread: Bytes::new(),
            read_budget: Budget::default(),
            write_budget: Budget::default(),
        }
    }

    /// Opens a stream to a target. Fails if as many streams are open as the peer accepts.
    pub(crate) fn open(peer: &Arc<Peer>, target: Target) -> Result<Self, SendError> {
        let duplex = peer.with(|core| core.open(target))?;
        Ok(Self::new(Arc::clone(peer), duplex))
    }

    /// Waits until the peer has connected to the target or has refused the stream.
    pub(crate) fn poll_accepted(&self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        let accepted = self
            .peer
            .with(|core| core.accepted(self.duplex, cx.waker()));
        let accepted = accepted.map_or(Poll::Pending, Poll::Ready);
        accepted.map_err(|reason| StreamError { reason })
    }

    /// Like [`poll_accepted`](Self::poll_accepted).
    pub(crate) async fn accepted(&self) -> Result<(), StreamError> {
        std::future::poll_fn(|cx| self.poll_accepted(cx)).await
    }

    /// Returns a handle that can change the stream while another task owns it.
    pub(crate) fn control(&self) -> StreamControl {
        StreamControl {
            peer: Arc::clone(&self.peer),
            duplex: self.duplex,
        }
    }

    /// Returns the next received bytes without a copy, or `None` at the end of the body.
    pub(crate) fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamError>> {
        if !self.unread.is_empty() {
            return Poll::Ready(Ok(Some(std::mem::take(&mut self.unread))));
        }
        match self.peer.with(|core| core.read(self.duplex, cx.waker())) {
            Read::Bytes(bytes) => Poll::Ready(Ok(Some(bytes))),
            Read::Wait => Poll::Pending,
            Read::End => Poll::Ready(Ok(None)),
            Read::Failed(reason) => Poll::Ready(Err(StreamError { reason })),
        }
    }

    /// Writes bytes, of which the stream may accept only a part.
    pub(crate) fn poll_send(
        &mut self,
        waker: &Waker,
        bytes: &[u8],
        budget: &mut Budget,
    ) -> Poll<Result<usize, StreamError>> {
        let bytes = &bytes[..bytes.len().min(BUDGET_BYTES)];
        let now = Instant::now();
        let written = self.peer.with(|core| {
            let written = core.write(self.duplex, bytes, now, waker, budget);
            set_write_end(core, self.duplex, Some(&written));
            written
        });
        into_poll(written)
    }

    /// Sends held bytes at once if they are few, see [`SMALL_BYTES`](crate::send_delay::SMALL_BYTES).
    pub(crate) fn flush(&self) {
        self.peer.with(|core| core.flush(self.duplex));
    }

    /// Ends the outgoing direction. Written bytes are delivered even if the stream is dropped.
    pub(crate) fn close(&self) -> Result<(), StreamError> {
        let closed = self.peer.with(|core| core.close(self.duplex));
        closed.map_err(|reason| StreamError { reason })
    }

    /// Stops the incoming direction, because its bytes are not needed.
    pub(crate) fn stop_reading(&self) {
        self.peer.with(|core| core.stop_reading(self.duplex));
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
        into_poll(written?).map_err(StreamError::into_io)
    }
}

impl AsyncRead for CoreStream {
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
            match self.poll_chunk(cx).map_err(StreamError::into_io)? {
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

impl AsyncWrite for CoreStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.write_budget.yield_if_spent(cx) {
            return Poll::Pending;
        }
        let mut budget = std::mem::take(&mut self.write_budget);
        let written = self.poll_send(cx.waker(), bytes, &mut budget);
        if matches!(written, Poll::Ready(Ok(_))) {
            self.write_budget = budget;
        }
        written.map_err(StreamError::into_io)
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.flush();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.close().map_err(StreamError::into_io))
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

fn into_poll(written: Written) -> Poll<Result<usize, StreamError>> {
    match written {
        Written::Bytes(bytes) => Poll::Ready(Ok(bytes)),
        Written::Full => Poll::Pending,
        Written::Ended(reason) => Poll::Ready(Err(StreamError { reason })),
    }
}

impl Drop for CoreStream {
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

    /// Counts the bytes that are written after this call with this content type.
    pub(crate) fn set_content_type(&self, content_type: &str) {
        self.peer
            .with(|core| core.set_content_type(self.duplex, content_type));
    }
}

/// A stream that the peer has opened.
#[derive(Debug)]
pub(crate) struct IncomingStream {
    stream: CoreStream,
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
                    stream: CoreStream::new(Arc::clone(peer), duplex),
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
    pub(crate) fn accept(self) -> Result<CoreStream, StreamError> {
        let accepted = self
            .stream
            .peer
            .with(|core| core.accept(self.stream.duplex));
        accepted.map_err(|reason| StreamError { reason })?;
        Ok(self.stream)
    }

    /// Refuses the stream with a reason of [`refusal_reason`](crate::refusal_reason).
    pub(crate) fn refuse(self, reason: u32) {
        self.stream
            .peer
            .with(|core| core.refuse(self.stream.duplex, reason));
    }
}
