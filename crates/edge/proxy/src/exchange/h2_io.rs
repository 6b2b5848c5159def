//! The stream between the socket of a peer and hyper's HTTP/2. It checks received frames, and gathers small sent
//! frames.
//!
//! The crate h2 writes and flushes each DATA frame by itself: ten responses of 1 KiB at the same time take ten TLS
//! records and ten calls of `writev`. [`H2Io`] collects the frames and writes them after each poll of hyper.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::conn::ConnState;
use super::h2_frames::{Excess, FrameGate, FrameLimits, Passed};
use super::h2_streams::StreamCharge;
use crate::config::LimitsConfig;
use crate::rt::clock::Clock;

/// A handle of a client's stream and of its gate (`h2_frames`), which limits the frames that reach hyper. hyper has one
/// handle. The connection's task has another one, and needs it after hyper's connection has ended.
#[derive(Debug)]
pub(crate) struct H2Io<S>(Rc<RefCell<Inner<S>>>);

#[derive(Debug)]
struct Inner<S> {
    io: S,
    gate: FrameGate,
    clock: Arc<Clock>,
    /// Received bytes that hyper has not read.
    inbound: BytesMut,
    /// Bytes at the front of `inbound` that hyper may read.
    ready_bytes: usize,
    /// True if the gate needs more bytes from the client before further bytes can pass.
    needs_bytes: bool,
    /// True while the gate pauses: after the bytes that passed, a read returns `Pending`, so hyper accepts requests.
    is_paused: bool,
    excess: Option<Excess>,
    /// The number of frames that hyper has read since its answers were last written to the peer.
    unanswered_frames: usize,
    /// True if hyper waits for frames that it gets after its answers were written.
    reading_waits: bool,
    /// Complete frames that hyper has written and that wait until they are written to the client.
    gathered: BytesMut,
    /// True if hyper's last write was accepted completely, so that the written bytes end with a complete frame.
    ends_with_frame: bool,
    /// True if hyper's flush writes the gathered frames. Otherwise [`H2Io::poll_out`] does.
    flushes: bool,
    /// The charge for the streams and the buffers of a client.
    charge: Option<StreamCharge>,
}

impl<S> H2Io<S> {
    /// Returns the stream of a client.
    pub(crate) fn new(
        io: S,
        limits: &LimitsConfig,
        clock: Arc<Clock>,
        conn: &Rc<ConnState>,
    ) -> Self {
        let charge = Some(StreamCharge::new(conn));
        Self::with_gate(io, FrameGate::new(frame_limits(limits)), clock, charge)
    }

    /// Returns the stream of an origin's server. hyper polls the connection in a task of its own, and flushes frames.
    pub(crate) fn of_server(io: S, clock: Arc<Clock>) -> Self {
        Self::with_gate(io, FrameGate::of_server(), clock, None)
    }

    fn with_gate(io: S, gate: FrameGate, clock: Arc<Clock>, charge: Option<StreamCharge>) -> Self {
        Self(Rc::new(RefCell::new(Inner {
            io,
            gate,
            clock,
            inbound: BytesMut::new(),
            ready_bytes: 0,
            needs_bytes: true,
            is_paused: false,
            excess: None,
            unanswered_frames: 0,
            reading_waits: false,
            gathered: BytesMut::new(),
            ends_with_frame: true,
            flushes: charge.is_none(),
            charge,
        })))
    }

    /// Returns a second handle of the stream.
    pub(crate) fn share(&self) -> Self {
        Self(Rc::clone(&self.0))
    }

    /// Returns the limit that the client exceeded.
    pub(crate) fn excess(&self) -> Option<Excess> {
        self.0.borrow().excess
    }

    /// Returns the stream, and the last bytes to write to the client: the gathered frames and GOAWAY. `None` if hyper
    /// still has its handle, or if a frame was written in part.
    pub(crate) fn into_stream_and_goaway(self) -> Option<(S, BytesMut)> {
        let inner = Rc::into_inner(self.0)?.into_inner();
        let mut last_bytes = inner.gathered;
        last_bytes.extend_from_slice(&goaway(inner.gate.last_stream()));
        inner.ends_with_frame.then_some((inner.io, last_bytes))
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

fn frame_limits(limits: &LimitsConfig) -> FrameLimits {
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
    /// Passes the inbound bytes through the gate.
    fn pass_inbound(&mut self) -> io::Result<()> {
        let now = self.clock.now().as_millis();
        let passed = self
            .gate
            .pass(&mut self.inbound, now)
            .map_err(|excess| record_excess(&mut self.excess, excess))?;
        self.inbound.truncate(passed.buffer_bytes);
        let rest = self.inbound.split_off(passed.ready_bytes);
        self.set_passed(&passed, &rest);
        Ok(())
    }

    /// Appends the replaced frame, and the bytes that may not pass yet, to the ready bytes of `inbound`.
    fn set_passed(&mut self, passed: &Passed, rest: &[u8]) {
        self.inbound.extend_from_slice(&passed.replacement);
        self.ready_bytes = self.inbound.len();
        self.inbound.extend_from_slice(rest);
        self.is_paused = passed.pause;
        self.needs_bytes = !passed.pause && passed.replacement.is_empty();
        self.unanswered_frames += passed.frames;
    }
}

fn record_excess(slot: &mut Option<Excess>, excess: Excess) -> io::Error {
    *slot = Some(excess);
    io::Error::other("the client exceeded a limit of HTTP/2 frames")
}

impl<S> Inner<S> {
    /// Updates the charge for the streams and the buffers of a client.
    fn update_charge(&mut self) {
        if let Some(charge) = &mut self.charge {
            let buffers = self.inbound.capacity() + self.gathered.capacity();
            charge.update(buffers + self.gate.text_bytes());
        }
    }

    fn record_sent(&mut self, bytes: &[u8]) {
        if let Some(charge) = &mut self.charge {
            charge.streams.record_sent(bytes);
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Inner<S> {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(excess) = self.excess {
            return Poll::Ready(Err(record_excess(&mut self.excess, excess)));
        }
        if self.unanswered_frames > UNANSWERED_FRAMES_MAX {
            self.reading_waits = true;
            return Poll::Pending;
        }
        loop {
            if self.ready_bytes > 0 {
                let n = self.ready_bytes.min(buffer.remaining());
                buffer.put_slice(&self.inbound[..n]);
                if let Some(charge) = &mut self.charge {
                    charge.streams.record_received(&self.inbound[..n]);
                }
                self.inbound.advance(n);
                self.ready_bytes -= n;
                if self.inbound.is_empty() {
                    // The buffer is freed, so that an idle connection has none.
                    self.inbound = BytesMut::new();
                }
                self.update_charge();
                return Poll::Ready(Ok(()));
            }
            if self.is_paused {
                self.is_paused = false;
                self.gate.resume();
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if !self.needs_bytes {
                self.pass_inbound()?;
            } else if self.inbound.is_empty() {
                if ready!(self.poll_read_through(cx, buffer))? {
                    return Poll::Ready(Ok(()));
                }
            } else {
                let mut space = [std::mem::MaybeUninit::uninit(); READ_BYTES];
                let mut space = ReadBuf::uninit(&mut space);
                ready!(Pin::new(&mut self.io).poll_read(cx, &mut space))?;
                if space.filled().is_empty() {
                    // The client has disconnected in the middle of a frame.
                    return Poll::Ready(Ok(()));
                }
                self.inbound.extend_from_slice(space.filled());
                self.update_charge();
                self.pass_inbound()?;
            }
        }
    }

    /// Reads into hyper's buffer, and moves bytes that may not pass yet to `inbound`. Returns false if hyper gets no
    /// bytes although the client is connected.
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
                return Poll::Ready(Err(record_excess(&mut self.excess, excess)));
            }
        };
        if let Some(charge) = &mut self.charge {
            charge
                .streams
                .record_received(&received[..passed.ready_bytes]);
        }
        self.set_passed(&passed, &received[passed.ready_bytes..passed.buffer_bytes]);
        buffer.set_filled(start + passed.ready_bytes);
        self.update_charge();
        Poll::Ready(Ok(passed.ready_bytes > 0))
    }

    /// Gathers small frames. Writes a large frame at once, together with the frames gathered before it.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let offered = pieces.iter().map(|piece| piece.len()).sum();
        loop {
            if self.gathered.len() + offered <= GATHERED_BYTES_MAX {
                for piece in pieces {
                    self.gathered.extend_from_slice(piece);
                    self.record_sent(piece);
                }
                self.ends_with_frame = true;
                return Poll::Ready(Ok(offered));
            }
            if offered <= GATHERED_BYTES_MAX {
                ready!(self.poll_gathered(cx))?;
                continue;
            }
            let mut all = [io::IoSlice::new(&self.gathered); PIECES_MAX];
            let count = pieces.len().min(PIECES_MAX - 1);
            all[1..=count].copy_from_slice(&pieces[..count]);
            let written = Pin::new(&mut self.io).poll_write_vectored(cx, &all[..=count]);
            let written = ready!(written)?;
            self.gate.record_sent(written as u64);
            let gathered_bytes = written.min(self.gathered.len());
            self.gathered.advance(gathered_bytes);
            let rest = written - gathered_bytes;
            if rest > 0 || written == 0 {
                self.gathered = BytesMut::new();
                self.ends_with_frame = rest == offered;
                let mut left = rest;
                for piece in pieces {
                    let part = &piece[..piece.len().min(left)];
                    self.record_sent(part);
                    left -= part.len();
                }
                return Poll::Ready(Ok(rest));
            }
        }
    }

    /// Writes the gathered frames.
    fn poll_gathered(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.gathered.is_empty() {
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, &self.gathered))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.gate.record_sent(written as u64);
            self.gathered.advance(written);
        }
        // The buffer is freed, so that an idle connection has none.
        self.gathered = BytesMut::new();
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> H2Io<S> {
    /// Writes the frames that hyper has flushed. For clients, it must be called after each poll of hyper.
    pub(crate) fn poll_out(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.borrow_mut();
        let inner = &mut *inner;
        if inner.ends_with_frame {
            inner.gate.take_window_updates(&mut inner.gathered);
        }
        let written = inner.poll_gathered(cx);
        inner.update_charge();
        ready!(written)?;
        inner.unanswered_frames = 0;
        if std::mem::take(&mut inner.reading_waits) {
            cx.waker().wake_by_ref();
        }
        Pin::new(&mut inner.io).poll_flush(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for H2Io<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for H2Io<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0
            .borrow_mut()
            .poll_write(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_write(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.borrow().io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushes = self.0.borrow().flushes;
        if flushes {
            self.poll_out(cx)
        } else {
            Poll::Ready(Ok(()))
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_out(cx))?;
        Pin::new(&mut self.0.borrow_mut().io).poll_shutdown(cx)
    }
}

/// A request with more fields than `headers_max` gets 431. Above this multiple of `headers_max` the connection is
/// closed, because hyper would have to decode all fields before the edge can answer 431.
const HEADERS_BEFORE_CLOSE: usize = 4;

/// The bytes that a header block may have in addition to `head_bytes_max`: for frame headers, for padding, and for
/// text that the Huffman code makes longer.
const BLOCK_OVERHEAD_BYTES: usize = 16 << 10;

/// The most frames that hyper reads before its answers to them are written. Each frame may make hyper queue an answer
/// of its own, such as RST_STREAM, and a peer that does not read could let the queue grow without limit.
const UNANSWERED_FRAMES_MAX: usize = 1000;

/// The most bytes of gathered frames: the size of one TLS record (RFC 8446 §5.1).
const GATHERED_BYTES_MAX: usize = 16 << 10;

/// The most slices of one write. The crate h2 writes two.
const PIECES_MAX: usize = 8;

/// Bytes of one read while a header block is incomplete.
const READ_BYTES: usize = 4 << 10;

#[cfg(test)]
mod tests;
