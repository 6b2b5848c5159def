//! A conversation as its user sees it: bytes in, bytes out.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::{Buf as _, Bytes};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use edgeward_dedup::reason;

use crate::core::{Core, Read, TalkId, Written};
use crate::label::{Target, refusal};
use crate::peer::Peer;
use crate::turn::{TURN_BYTES, Turn};

/// Bytes to and from a target on the other end's side.
///
/// What was written leaves soon whether it is flushed or not; flushing tells that there is no more for now.
/// Shutting down ends this direction; dropping a stream that was not shut down breaks it off, and the other end sees an error
/// rather than an end.
#[derive(Debug)]
pub struct LinkStream {
    peer: Arc<Peer>,
    talk: TalkId,
    /// Bytes that were taken and not read.
    bytes: Bytes,
    /// For whoever reads or writes as long as there is something.
    reads: Turn,
    writes: Turn,
}

/// The other end broke a conversation off, or did not take it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{}", refusal::describe(*.reason))]
pub struct Refused {
    /// One of [`refusal`]'s, or of `edgeward_dedup::reason`'s.
    pub reason: u32,
}

impl Refused {
    fn into_io(self) -> io::Error {
        let kind = match self.reason {
            refusal::NOT_ALLOWED => io::ErrorKind::PermissionDenied,
            refusal::UNREACHABLE => io::ErrorKind::ConnectionRefused,
            refusal::NO_SUCH_HOST => io::ErrorKind::NotFound,
            refusal::TIMEOUT | refusal::LINK_DOWN => io::ErrorKind::TimedOut,
            reason::DIGEST | reason::LENGTH => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::ConnectionReset,
        };
        io::Error::new(kind, self)
    }
}

impl LinkStream {
    pub(crate) fn new(peer: Arc<Peer>, talk: TalkId) -> Self {
        Self {
            peer,
            talk,
            bytes: Bytes::new(),
            reads: Turn::default(),
            writes: Turn::default(),
        }
    }

    /// Waits until the other end has connected to the target, or says why it has not.
    ///
    /// One need not wait for it: what is written before arrives as soon as there is a connection.
    pub async fn answered(&mut self) -> Result<(), Refused> {
        std::future::poll_fn(|cx| {
            let answered = self.peer.with(|core| core.answered(self.talk, cx.waker()));
            answered.map_or(Poll::Pending, Poll::Ready)
        })
        .await
        .map_err(|reason| Refused { reason })
    }

    /// What is known of the conversation beside its bytes, while somebody else has the stream.
    pub(crate) fn control(&self) -> Control {
        Control {
            peer: Arc::clone(&self.peer),
            talk: self.talk,
        }
    }

    /// The next bytes, without a copy; `None` at the end.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if !self.bytes.is_empty() {
            return Poll::Ready(Ok(Some(std::mem::take(&mut self.bytes))));
        }
        match self.peer.with(|core| core.read(self.talk, cx.waker())) {
            Read::Bytes(bytes) => Poll::Ready(Ok(Some(bytes))),
            Read::Wait => Poll::Pending,
            Read::End => Poll::Ready(Ok(None)),
            Read::Failed(reason) => Poll::Ready(Err(Refused { reason }.into_io())),
        }
    }

    /// As [`poll_chunk`](Self::poll_chunk), waiting.
    pub async fn chunk(&mut self) -> io::Result<Option<Bytes>> {
        std::future::poll_fn(|cx| self.poll_chunk(cx)).await
    }

    /// As [`poll_write`](AsyncWrite::poll_write), of bytes that `read` puts where they belong; 0 is what it says of an end. It shall
    /// not wait: an error of the kind `WouldBlock` comes back as it is.
    pub(crate) fn poll_write_from(
        &mut self,
        waker: &Waker,
        turn: &mut Turn,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let now = Instant::now();
        let written = self.peer.with(|core| {
            let written = core.write_from(self.talk, now, waker, turn, read);
            took_until_now(core, self.talk, written.as_ref().ok());
            written
        });
        polled(written?)
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
        if self.reads.ends(cx) {
            return Poll::Pending;
        }
        if self.bytes.is_empty() {
            match self.poll_chunk(cx)? {
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Ready(Some(bytes)) => self.bytes = bytes,
                Poll::Pending => {
                    self.reads = Turn::default();
                    return Poll::Pending;
                }
            }
        }
        let taken = buffer.remaining().min(self.bytes.len());
        buffer.put_slice(&self.bytes[..taken]);
        self.bytes.advance(taken);
        self.reads.spend(taken);
        // An empty slice would keep its memory as well.
        if self.bytes.is_empty() {
            self.bytes = Bytes::new();
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
        if self.writes.ends(cx) {
            return Poll::Pending;
        }
        let bytes = &bytes[..bytes.len().min(TURN_BYTES)];
        let now = Instant::now();
        let Self {
            peer, talk, writes, ..
        } = &mut *self;
        let written = peer.with(|core| {
            let written = core.write(*talk, bytes, now, cx.waker(), writes);
            took_until_now(core, *talk, Some(&written));
            written
        });
        if !matches!(written, Written::Bytes(_)) {
            self.writes = Turn::default();
        }
        polled(written)
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.peer.with(|core| core.flush(self.talk));
        Poll::Ready(Ok(()))
    }

    /// Ends this direction at once; what was written is delivered whether the stream lives on or not.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = self.peer.with(|core| core.close(self.talk));
        Poll::Ready(closed.map_err(|reason| Refused { reason }.into_io()))
    }
}

/// Cutting and naming half a megabyte takes longer than a pause does.
fn took_until_now(core: &mut Core, talk: TalkId, written: Option<&Written>) {
    if matches!(written, Some(Written::Bytes(1..))) {
        core.wrote_until(talk, Instant::now());
    }
}

fn polled(written: Written) -> Poll<io::Result<usize>> {
    match written {
        Written::Bytes(bytes) => Poll::Ready(Ok(bytes)),
        Written::Full => Poll::Pending,
        Written::Ended(reason) => Poll::Ready(Err(Refused { reason }.into_io())),
    }
}

impl Drop for LinkStream {
    fn drop(&mut self) {
        self.peer.with(|core| core.detach(self.talk));
    }
}

/// A hand on a conversation whose stream somebody else has.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    peer: Arc<Peer>,
    talk: TalkId,
}

impl Control {
    /// What is written from now on is neither looked up nor kept.
    pub(crate) fn bypass(&self) {
        self.peer.with(|core| core.bypass(self.talk));
    }
}

/// A conversation that the peer wants to have.
#[derive(Debug)]
pub(crate) struct Begun {
    stream: LinkStream,
    target: Target,
}

impl Begun {
    /// The next one; `None` when there will be no more.
    pub(crate) async fn next(peer: &Arc<Peer>) -> Option<Self> {
        std::future::poll_fn(|cx| {
            let (begun, shut) = peer.with(|core| (core.accept(cx.waker()), core.is_shut()));
            match begun {
                Some((talk, target)) => Poll::Ready(Some(Self {
                    stream: LinkStream::new(Arc::clone(peer), talk),
                    target,
                })),
                None if shut => Poll::Ready(None),
                None => Poll::Pending,
            }
        })
        .await
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Takes it up.
    pub(crate) fn answer(self) -> Result<LinkStream, Refused> {
        let answered = self.stream.peer.with(|core| core.answer(self.stream.talk));
        answered.map_err(|reason| Refused { reason })?;
        Ok(self.stream)
    }

    /// Takes it not up.
    pub(crate) fn refuse(self, reason: u32) {
        self.stream
            .peer
            .with(|core| core.refuse(self.stream.talk, reason));
    }
}
