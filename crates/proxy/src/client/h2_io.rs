//! The byte stream beneath hyper's HTTP/2: what a client sends goes through a [`FrameGate`].

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::base::clock::Clock;
use crate::base::config::LimitsConfig;
use crate::client::h2_frames::{Excess, FrameGate, FrameLimits};
use crate::client::io::ClientIo;
use crate::client::stream::ClientStream;

/// A client's stream with its gate. Clones share the stream: one is hyper's, and one outlives hyper's connection.
#[derive(Debug)]
pub(crate) struct H2Io<S>(Rc<RefCell<Inner<S>>>);

#[derive(Debug)]
struct Inner<S> {
    io: ClientIo<S>,
    gate: FrameGate,
    clock: Arc<Clock>,
    /// Received bytes that hyper does not have yet.
    held: BytesMut,
    /// Bytes at the front of `held` that hyper may have.
    cleared: usize,
    /// `held` has to grow before more of it can pass.
    starved: bool,
    /// The gate pauses until hyper has accepted what passed.
    paused: bool,
    excess: Option<Excess>,
    /// The last write took all it was given, so that the client has whole frames.
    writes_whole: bool,
}

impl<S> H2Io<S> {
    pub(crate) fn new(io: ClientIo<S>, limits: &LimitsConfig, clock: Arc<Clock>) -> Self {
        Self(Rc::new(RefCell::new(Inner {
            io,
            gate: FrameGate::new(limits_of(limits)),
            clock,
            held: BytesMut::new(),
            cleared: 0,
            starved: true,
            paused: false,
            excess: None,
            writes_whole: true,
        })))
    }

    /// A second handle of the same stream.
    pub(crate) fn share(&self) -> Self {
        Self(Rc::clone(&self.0))
    }

    /// The bound that the client exceeded.
    pub(crate) fn excess(&self) -> Option<Excess> {
        self.0.borrow().excess
    }

    /// The stream, and the GOAWAY frame to send on it. `None` while hyper has its handle, or if a frame was written in part.
    pub(crate) fn into_farewell(self) -> Option<(ClientIo<S>, [u8; 17])> {
        let inner = Rc::into_inner(self.0)?.into_inner();
        let farewell = goaway(inner.gate.last_stream());
        inner.writes_whole.then_some((inner.io, farewell))
    }
}

/// GOAWAY with the code ENHANCE_YOUR_CALM (RFC 9113 §6.8, §7).
fn goaway(last_stream: u32) -> [u8; 17] {
    let mut frame = [0; 17];
    frame[2] = 8;
    frame[3] = 7;
    frame[9..13].copy_from_slice(&last_stream.to_be_bytes());
    frame[16] = 11;
    frame
}

fn limits_of(limits: &LimitsConfig) -> FrameLimits {
    FrameLimits {
        fields_max: limits
            .headers_max
            .get()
            .saturating_mul(HEADERS_BEFORE_CLOSE),
        block_bytes_max: limits.head_len_max().saturating_add(BLOCK_OVERHEAD_BYTES),
        resets_max: u64::from(limits.h2_resets_max.get()),
        control_max: u64::from(limits.h2_control_frames_max.get()),
        window_updates_max: u64::from(limits.h2_window_updates_max.get()),
    }
}

impl<S> Inner<S> {
    /// Has the gate look at what is held.
    fn pass_held(&mut self) -> io::Result<()> {
        let now = self.clock.now().as_millis();
        let passed = self
            .gate
            .pass(&mut self.held, now)
            .map_err(|excess| exceed(&mut self.excess, excess))?;
        self.held.truncate(passed.len);
        self.cleared = passed.cleared;
        self.paused = passed.pause;
        self.starved = !passed.pause;
        Ok(())
    }
}

fn exceed(slot: &mut Option<Excess>, excess: Excess) -> io::Error {
    *slot = Some(excess);
    io::Error::other("the client exceeded a bound of HTTP/2 frames")
}

impl<S: ClientStream> Inner<S> {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(excess) = self.excess {
            return Poll::Ready(Err(exceed(&mut self.excess, excess)));
        }
        loop {
            if self.cleared > 0 {
                let n = self.cleared.min(buffer.remaining());
                buffer.put_slice(&self.held[..n]);
                self.held.advance(n);
                self.cleared -= n;
                if self.held.is_empty() {
                    // An idle connection then has no buffer.
                    self.held = BytesMut::new();
                }
                return Poll::Ready(Ok(()));
            }
            if self.paused {
                self.paused = false;
                self.gate.resume();
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if !self.starved {
                self.pass_held()?;
            } else if self.held.is_empty() {
                if ready!(self.poll_read_through(cx, buffer))? {
                    return Poll::Ready(Ok(()));
                }
            } else {
                let mut space = [std::mem::MaybeUninit::uninit(); READ_BYTES];
                let mut space = ReadBuf::uninit(&mut space);
                ready!(Pin::new(&mut self.io).poll_read(cx, &mut space))?;
                if space.filled().is_empty() {
                    // The client ended in the middle of a frame.
                    return Poll::Ready(Ok(()));
                }
                self.held.extend_from_slice(space.filled());
                self.pass_held()?;
            }
        }
    }

    /// Reads into hyper's buffer and keeps what may not pass yet. False if nothing may.
    fn poll_read_through(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<bool>> {
        let start = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        let now = self.clock.now().as_millis();
        let received = &mut buffer.filled_mut()[start..];
        if received.is_empty() {
            return Poll::Ready(Ok(true));
        }
        let passed = self.gate.pass(received, now);
        let passed = match passed {
            Ok(passed) => passed,
            Err(excess) => {
                buffer.set_filled(start);
                return Poll::Ready(Err(exceed(&mut self.excess, excess)));
            }
        };
        self.held
            .extend_from_slice(&received[passed.cleared..passed.len]);
        self.paused = passed.pause;
        self.starved = !passed.pause;
        buffer.set_filled(start + passed.cleared);
        Poll::Ready(Ok(passed.cleared > 0))
    }

    fn note_write(&mut self, offered: usize, result: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(n)) = result {
            self.gate.sent(*n as u64);
            self.writes_whole = *n == offered;
        }
    }
}

impl<S: ClientStream> AsyncRead for H2Io<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_read(cx, buffer)
    }
}

impl<S: ClientStream> AsyncWrite for H2Io<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut inner = self.0.borrow_mut();
        let result = Pin::new(&mut inner.io).poll_write(cx, bytes);
        inner.note_write(bytes.len(), &result);
        result
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut inner = self.0.borrow_mut();
        let result = Pin::new(&mut inner.io).poll_write_vectored(cx, pieces);
        inner.note_write(pieces.iter().map(|piece| piece.len()).sum(), &result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.0.borrow().io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.borrow_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.borrow_mut().io).poll_shutdown(cx)
    }
}

/// A request with more fields than `headers_max` gets 431. One with so many times as many ends the connection, because
/// hyper would have to decode the fields first.
const HEADERS_BEFORE_CLOSE: usize = 4;

/// Frame headers, padding and a block that Huffman's code made longer.
const BLOCK_OVERHEAD_BYTES: usize = 16 << 10;

/// Bytes of one read while a header block is incomplete.
const READ_BYTES: usize = 4 << 10;
