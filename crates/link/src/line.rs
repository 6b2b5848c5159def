//! One connection to a peer, after the handshake.
//!
//! Each iteration reads from the socket, passes the received frames to the peer's state machines under one lock,
//! takes frames from them until a write is large enough, and writes. No iteration blocks. An event elsewhere, such
//! as a frame for a stream of another connection or bytes written by a user, finds this connection either idle or
//! busy, and the state machines need to know no more than that.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Interval;

use edgeward_dedup::Violation;
use edgeward_dedup::wire::{Checksum, FrameSink as _, WireError, decode_with};

use crate::alarm::Alarm;
use crate::aside::{Aside, Late, LateFrame};
use crate::config::LinkConfig;
use crate::core::LineId;
use crate::inbox::{Framed, Inbox};
use crate::outbox::Outbox;
use crate::peer::Peer;
use crate::turn::{Turn, step_aside};

/// Why a connection ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LineError {
    /// Reading or writing failed.
    #[error("the connection failed")]
    Io(#[from] io::Error),
    /// The peer closed it.
    #[error("the peer closed the connection")]
    Closed,
    /// The bytes received are not a frame.
    #[error("the bytes received are not a frame")]
    Wire(#[from] WireError),
    /// The peer violated the protocol.
    #[error("the peer violated the protocol")]
    Violation(#[from] Violation),
    /// The peer sent nothing for this long.
    #[error("the peer sent nothing for {0:?}")]
    Silent(Duration),
    /// The peer restarted and connected again, or the link is shutting down.
    #[error("the connection was superseded")]
    Superseded,
}

/// A connection after the handshake.
pub(crate) struct Line<S> {
    io: S,
    peer: Arc<Peer>,
    id: LineId,
    inbox: Inbox,
    /// True if `inbox` may hold whole frames that were not handled because the budget was spent.
    unhandled: bool,
    aside: Aside,
    out: Outbox,
    /// True if the socket has accepted only a part of the frames that were last given to it.
    busy: bool,
    alarm: Alarm,
    /// The time of the next poll if no other event occurs.
    due: Option<Instant>,
    /// True if the task has yielded since bytes last moved.
    stepped_aside: bool,
    ticks: Interval,
    keep_alive: Duration,
    heard: Instant,
    said: Instant,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Line<S> {
    pub(crate) fn new(
        io: S,
        peer: Arc<Peer>,
        id: LineId,
        checksum: Checksum,
        config: &LinkConfig,
    ) -> io::Result<Self> {
        let now = Instant::now();
        let keep_alive = config.times.keep_alive;
        Ok(Self {
            io,
            peer,
            id,
            inbox: Inbox::new(config.pool.clone()),
            unhandled: false,
            aside: Aside::new(config.store.clone(), config.late_frames_max),
            out: Outbox::new(checksum),
            busy: false,
            alarm: Alarm::new()?,
            due: None,
            stepped_aside: false,
            ticks: tokio::time::interval(keep_alive / 2),
            keep_alive,
            heard: now,
            said: now,
        })
    }

    /// Runs the connection until it ends, and returns the reason.
    pub(crate) async fn run(mut self) -> LineError {
        let error = std::future::poll_fn(|cx| self.poll(cx)).await;
        self.peer.with(|core| core.line_down(self.id));
        error
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<LineError> {
        match self.turns(cx) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(error),
        }
    }

    /// Reads and writes until neither direction makes progress or the budget is spent.
    fn turns(&mut self, cx: &mut Context<'_>) -> Result<(), LineError> {
        let mut turn = Turn::default();
        while !turn.is_over() {
            let read = self.read(cx, &mut turn)?;
            let written = self.write(cx, &mut turn)?;
            if !read && !written {
                return self.watch(cx);
            }
            self.stepped_aside = false;
        }
        step_aside(cx);
        Ok(())
    }

    /// Reads once and handles all complete frames, as long as the budget lasts. Returns true if there was work.
    fn read(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Result<bool, LineError> {
        let came_again = !self.aside.is_empty() && self.handle_late(cx, turn)?;
        let room = self.aside.room();
        if room == 0 {
            // The peer's bytes are not read now, so its silence means nothing.
            self.heard = Instant::now();
            return Ok(came_again);
        }
        if !self.unhandled && !self.receive(cx)? {
            return Ok(came_again);
        }
        let checksum = self.out.checksum();
        let Self {
            peer, inbox, id, ..
        } = self;
        let mut late = Vec::new();
        self.unhandled = peer.with(|core| {
            // A frame of a few bytes can reference half a megabyte of chunks that have to be loaded.
            while !turn.is_over() {
                if late.len() == room {
                    core.tallies.held_up += 1;
                    break;
                }
                let Some(framed) = inbox.frame()? else {
                    return Ok::<_, LineError>(false);
                };
                let (bytes, memory) = match &framed {
                    Framed::Short(bytes) => (*bytes, None),
                    Framed::Long(bytes) => (&bytes[..], Some(bytes)),
                };
                let frame = decode_with(checksum, bytes)?;
                let handled = core.handle(*id, frame, memory, bytes.len(), 0, turn);
                if let Some(wanted) = handled.map_err(|_| LineError::Superseded)?? {
                    late.push((framed.into_bytes(), wanted));
                }
            }
            Ok(true)
        })?;
        for (frame, wanted) in late {
            let late = LateFrame { frame, times: 1 };
            self.aside.put(Late::Frame(late), wanted);
        }
        Ok(true)
    }

    /// Handles parked frames and resumes stalled streams whose chunks are loaded, as long as the budget lasts.
    /// Returns true if there were any.
    fn handle_late(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Result<bool, LineError> {
        let checksum = self.out.checksum();
        let mut any = false;
        while !turn.is_over()
            && let Poll::Ready(late) = self.aside.poll(cx)
            && let Some(late) = late?
        {
            any = true;
            let LateFrame { frame, times } = match late {
                Late::Frame(late) => late,
                Late::Body(stream, times) => {
                    self.peer.with(|core| core.resume(self.id, stream, times));
                    continue;
                }
            };
            let decoded = decode_with(checksum, &frame)?;
            let handled = self
                .peer
                .with(|core| core.handle(self.id, decoded, Some(&frame), frame.len(), times, turn));
            if let Some(wanted) = handled.map_err(|_| LineError::Superseded)?? {
                let times = times + 1;
                self.aside
                    .put(Late::Frame(LateFrame { frame, times }), wanted);
            }
        }
        Ok(any)
    }

    /// Reads once. Returns true if bytes were received.
    fn receive(&mut self, cx: &mut Context<'_>) -> Result<bool, LineError> {
        let mut room = ReadBuf::new(self.inbox.room());
        match Pin::new(&mut self.io).poll_read(cx, &mut room) {
            Poll::Pending => return Ok(false),
            Poll::Ready(read) => read?,
        }
        let bytes = room.filled().len();
        if bytes == 0 {
            return Err(LineError::Closed);
        }
        self.inbox.filled(bytes);
        self.heard = Instant::now();
        Ok(true)
    }

    /// Fills the outbox if it is empty, and writes as much as the socket accepts. Returns true if the socket
    /// accepted bytes or a read of the store was started.
    fn write(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Result<bool, LineError> {
        let mut reads = false;
        if self.out.is_written() {
            self.out.clear();
            let now = Instant::now();
            let (id, busy, out) = (self.id, self.busy, &mut self.out);
            let room = self.aside.room_for_bodies();
            let (filled, stalls) = self.peer.with(|core| {
                let filled = core.fill(id, busy, now, cx.waker(), out, turn);
                let stalls: Vec<_> = std::iter::from_fn(|| core.stall(id)).take(room).collect();
                (filled, stalls)
            });
            for stall in stalls {
                let late = Late::Body(stall.stream, stall.times);
                self.aside.put(late, stall.wanted);
                // A read was started, so its completion has to be polled, or the task is never woken.
                reads = true;
            }
            reads |= self.aside.look_ahead();
            let due = filled.map_err(|_| LineError::Superseded)?;
            self.busy = false;
            self.due = due;
            if self.out.is_written() {
                // The last bytes may still be in the TLS buffer.
                if Pin::new(&mut self.io).poll_flush(cx)?.is_pending() {
                    self.busy = true;
                }
                return Ok(reads);
            }
        }
        let mut moved = false;
        while !self.out.is_written() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.out.slices(&mut slices);
            match Pin::new(&mut self.io).poll_write_vectored(cx, &slices[..count])? {
                Poll::Ready(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Poll::Ready(bytes) => {
                    self.out.advance(bytes);
                    turn.spend(bytes);
                    moved = true;
                }
                Poll::Pending => {
                    self.busy = true;
                    break;
                }
            }
        }
        // TLS may have accepted all bytes while the socket did not.
        if moved && !self.busy && Pin::new(&mut self.io).poll_flush(cx)?.is_pending() {
            self.busy = true;
        }
        if moved {
            self.said = Instant::now();
        }
        Ok(moved || reads)
    }

    /// Called when neither direction makes progress: checks the timers.
    fn watch(&mut self, cx: &mut Context<'_>) -> Result<(), LineError> {
        while self.ticks.poll_tick(cx).is_ready() {
            let now = Instant::now();
            let silence = self.keep_alive * 3;
            if now - self.heard > silence {
                return Err(LineError::Silent(silence));
            }
            if now - self.said >= self.keep_alive / 2 && self.out.is_written() {
                self.out.clear();
                self.peer.with(|core| core.keep_alive(&mut self.out));
                // The frame is short, so an idle socket accepts it; otherwise the next poll writes it.
                cx.waker().wake_by_ref();
            }
        }
        if self.due.is_some() {
            // Yielding once is cheaper than setting the timer. While a body is being received, bytes have moved by
            // the time the task is polled again.
            if std::mem::replace(&mut self.stepped_aside, true) {
                // `due` is taken: while the socket accepts nothing, no later time is worth a poll.
                self.alarm.set(self.due.take())?;
            } else {
                step_aside(cx);
            }
        }
        if self.alarm.poll(cx)?.is_ready() {
            cx.waker().wake_by_ref();
        }
        Ok(())
    }
}

/// Reads one frame of at most `bytes_max` bytes: the HELLO, before the connection is trusted.
pub(crate) async fn read_frame_of(
    io: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
) -> Result<Vec<u8>, LineError> {
    use tokio::io::AsyncReadExt as _;

    let mut frame = vec![0; edgeward_dedup::wire::HEADER_BYTES];
    io.read_exact(&mut frame).await?;
    let length = edgeward_dedup::wire::frame_length(&frame)?.unwrap_or(0);
    if length > bytes_max {
        return Err(WireError::TooLong(u32::try_from(length).unwrap_or(u32::MAX)).into());
    }
    let header = frame.len();
    frame.resize(length, 0);
    io.read_exact(&mut frame[header..]).await?;
    Ok(frame)
}

/// Slices of one vectored write: head and payload of four frames. The system is given no more at once.
const SLICES: usize = 8;

/// Reads ahead in large blocks, because rustls reads only 4 KiB at a time.
pub(crate) struct ReadAhead<S> {
    io: S,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl<S> ReadAhead<S> {
    pub(crate) fn new(io: S) -> Self {
        Self {
            io,
            bytes: vec![0; AHEAD_BYTES],
            start: 0,
            end: 0,
        }
    }
}

/// A good part of the socket buffer, and less than a second-level cache.
const AHEAD_BYTES: usize = 128 << 10;

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.start == this.end {
            let mut room = ReadBuf::new(&mut this.bytes);
            ready!(Pin::new(&mut this.io).poll_read(cx, &mut room))?;
            (this.start, this.end) = (0, room.filled().len());
        }
        let taken = buffer.remaining().min(this.end - this.start);
        buffer.put_slice(&this.bytes[this.start..this.start + taken]);
        this.start += taken;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadAhead<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
