//! One connection to a peer, after the handshake.
//!
//! The task of the peer ([`crate::driver`]) gives turns to its connections. A turn reads from the socket, passes the
//! received frames to the core ([`crate::core`]), takes frames from the core until a write is large enough, and writes
//! them. No turn blocks.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Interval;

use edgeward_dedup::Violation;
use edgeward_dedup::wire::{Checksum, FrameSink as _, WireError, decode_with};

use crate::budget::{Budget, yield_now};
use crate::config::LinkConfig;
use crate::core::{ConnectionId, Core};
use crate::inbox::{Framed, Inbox};
use crate::lent_buffers::{lend, take_back};
use crate::outbox::Outbox;
use crate::timer::Timer;

/// Why a connection ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// Reading or writing failed.
    #[error("the connection failed")]
    Io(#[source] io::Error),
    /// The peer closed the connection.
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

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // rustls returns this error if the connection ends without the alert `close_notify`, as at the end of a
            // process. Each frame has its length, so an end between two frames loses nothing that the alert would show.
            io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// A socket, possibly with TLS.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Io for S {}

/// A connection after the handshake.
pub(crate) struct Connection {
    io: Box<dyn Io>,
    /// The number of the connection at the core, 0 until it is [set](Self::set_id).
    id: ConnectionId,
    inbox: Inbox,
    /// True if `inbox` may have complete frames that were not handled yet, because the budget was spent or too many
    /// requests to the store are in progress.
    has_unhandled: bool,
    /// The highest number of requests to the store that are in progress before a frame is handled.
    slow_requests_max: usize,
    /// True since this limit was found to be reached.
    is_waiting: bool,
    out: Outbox,
    /// True if the socket did not accept all bytes of the last write or flush.
    is_blocked: bool,
    timer: Timer,
    /// The time of the next poll if no other event occurs.
    next_poll: Option<Instant>,
    /// True if the task has yielded since this connection last made progress.
    has_yielded: bool,
    /// A tick every half keep-alive interval, for the checks of silence and keep-alive.
    ticks: Interval,
    keep_alive: Duration,
    /// The times at which bytes were last received and last sent.
    received_at: Instant,
    sent_at: Instant,
}

impl Connection {
    pub(crate) fn new(
        io: impl Io + 'static,
        checksum: Checksum,
        config: &LinkConfig,
    ) -> io::Result<Self> {
        let now = Instant::now();
        let keep_alive = config.times.keep_alive;
        Ok(Self {
            io: Box::new(io),
            id: 0,
            inbox: Inbox::new(config.pool.clone()),
            has_unhandled: false,
            slow_requests_max: config.slow_requests_max.max(1),
            is_waiting: false,
            out: Outbox::new(checksum),
            is_blocked: false,
            timer: Timer::new()?,
            next_poll: None,
            has_yielded: false,
            ticks: tokio::time::interval(keep_alive / 2),
            keep_alive,
            received_at: now,
            sent_at: now,
        })
    }

    /// Sets the number of the connection, after it was added to the core and before its first turn.
    pub(crate) fn set_id(&mut self, id: ConnectionId) {
        self.id = id;
    }

    /// Returns the number of the connection at the core.
    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    /// Reads and writes once. Returns true if one of them made progress. `now` is the time at which the poll of the
    /// task began. Held bytes that were written during this poll are not sent, because their writer could not continue
    /// yet.
    pub(crate) fn turn(
        &mut self,
        cx: &mut Context<'_>,
        core: &mut Core,
        now: Instant,
        budget: &mut Budget,
    ) -> Result<bool, ConnectionError> {
        let has_read = self.read(cx, core, budget)?;
        let has_written = self.write(cx, core, now, budget)?;
        if has_read || has_written {
            self.has_yielded = false;
        }
        Ok(has_read || has_written)
    }

    /// Reads from the socket once and handles all complete frames until the budget is spent. Returns true if frames
    /// were handled or bytes were received.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        core: &mut Core,
        budget: &mut Budget,
    ) -> Result<bool, ConnectionError> {
        if !self.has_unhandled && !self.receive(cx)? {
            return Ok(false);
        }
        let (checksum, slow_max) = (self.out.checksum(), self.slow_requests_max);
        let was_waiting = std::mem::take(&mut self.is_waiting);
        let (mut has_handled, mut is_waiting) = (false, false);
        self.has_unhandled = false;
        // The budget is checked for each frame, because a frame of a few bytes can reference chunks of half a megabyte,
        // which must be loaded.
        loop {
            if budget.is_spent() {
                self.has_unhandled = true;
                break;
            }
            if core.slow_count() >= slow_max {
                core.traffic.parking_limit_hits += u64::from(!was_waiting);
                (is_waiting, self.has_unhandled) = (true, true);
                break;
            }
            let Some(framed) = self.inbox.frame()? else {
                break;
            };
            let (bytes, frame_buffer) = match &framed {
                Framed::Short(bytes) => (*bytes, None),
                Framed::Long(bytes) => (&bytes[..], Some(bytes)),
            };
            let frame = decode_with(checksum, bytes)?;
            let handled = core.handle(self.id, frame, frame_buffer, bytes.len(), budget);
            handled.map_err(|_| ConnectionError::Superseded)??;
            has_handled = true;
        }
        if is_waiting {
            // Bytes of the peer are not read until a request to the store has ended. This time must not count as
            // silence of the peer.
            self.received_at = Instant::now();
            self.is_waiting = true;
            return Ok(has_handled);
        }
        Ok(true)
    }

    /// Reads from the socket once. Returns true if bytes were received.
    fn receive(&mut self, cx: &mut Context<'_>) -> Result<bool, ConnectionError> {
        let mut buffer = ReadBuf::new(self.inbox.free_bytes());
        match Pin::new(&mut self.io).poll_read(cx, &mut buffer) {
            Poll::Pending => {
                self.inbox.return_buffer();
                return Ok(false);
            }
            Poll::Ready(read) => read?,
        }
        let bytes = buffer.filled().len();
        if bytes == 0 {
            return Err(ConnectionError::Closed);
        }
        self.inbox.record_read(bytes);
        self.received_at = Instant::now();
        Ok(true)
    }

    /// Fills the outbox if it is empty, and writes as much as the socket accepts. Returns true if the socket
    /// accepted bytes, or has become blocked.
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        core: &mut Core,
        now: Instant,
        budget: &mut Budget,
    ) -> Result<bool, ConnectionError> {
        if self.out.is_written() {
            self.out.clear();
            let filled = core.fill(self.id, now, &mut self.out, budget);
            let next_poll = filled.map_err(|_| ConnectionError::Superseded)?;
            self.is_blocked = false;
            self.next_poll = next_poll;
            if self.out.is_written() {
                self.out.release();
                // The last bytes may still be in the TLS buffer.
                if Pin::new(&mut self.io).poll_flush(cx)?.is_pending() {
                    self.block(core);
                }
                return Ok(false);
            }
        }
        let (was_blocked, mut has_written) = (self.is_blocked, false);
        while !self.out.is_written() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.out.slices(&mut slices);
            match Pin::new(&mut self.io).poll_write_vectored(cx, &slices[..count])? {
                Poll::Ready(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Poll::Ready(bytes) => {
                    self.out.advance(bytes);
                    budget.spend(bytes);
                    has_written = true;
                }
                Poll::Pending => {
                    self.block(core);
                    break;
                }
            }
        }
        // TLS may have buffered bytes that the socket has not accepted.
        if has_written && !self.is_blocked && Pin::new(&mut self.io).poll_flush(cx)?.is_pending() {
            self.block(core);
        }
        if has_written {
            self.sent_at = Instant::now();
        }
        // When this connection becomes blocked, the next one gets a turn.
        Ok(has_written || self.is_blocked != was_blocked)
    }

    fn block(&mut self, core: &mut Core) {
        self.is_blocked = true;
        core.set_blocked(self.id);
    }

    /// Called when neither direction makes progress: checks the timers.
    pub(crate) fn check_timers(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
    ) -> Result<(), ConnectionError> {
        self.check_ticks(cx, core)?;
        self.set_timer(cx)
    }

    /// Checks whether the peer is silent, and sends a keep-alive frame if one is due.
    pub(crate) fn check_ticks(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
    ) -> Result<(), ConnectionError> {
        while self.ticks.poll_tick(cx).is_ready() {
            let now = Instant::now();
            let silence = self.keep_alive * 3;
            if now - self.received_at > silence {
                return Err(ConnectionError::Silent(silence));
            }
            if now - self.sent_at >= self.keep_alive / 2 && self.out.is_written() {
                self.out.clear();
                core.keep_alive(&mut self.out);
                // The next poll writes the frame.
                cx.waker().wake_by_ref();
            }
        }
        Ok(())
    }

    fn set_timer(&mut self, cx: &mut Context<'_>) -> Result<(), ConnectionError> {
        if self.next_poll.is_some() {
            // A yield is cheaper than setting the timer. While a body is being received, new bytes have usually
            // arrived when the task is polled again, and then no timer is needed.
            if std::mem::replace(&mut self.has_yielded, true) {
                // `next_poll` is taken, so the timer wakes the task only once. While the socket is not
                // writable, further polls would send no bytes.
                self.timer.set(self.next_poll.take())?;
            } else {
                yield_now(cx);
            }
        }
        if self.timer.poll(cx)?.is_ready() {
            cx.waker().wake_by_ref();
        }
        Ok(())
    }
}

/// Reads one frame of at most `bytes_max` bytes. The handshake reads HELLO with this function before it accepts the
/// peer.
pub(crate) async fn read_frame(
    io: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
) -> Result<Vec<u8>, ConnectionError> {
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

/// The highest number of slices of one vectored write. Eight slices are the heads and payloads of four frames.
const SLICES: usize = 8;

/// Reads from the socket in large blocks, because rustls reads only 4 KiB at a time.
pub(crate) struct ReadAhead<S> {
    io: S,
    /// The buffer, which is lent while it has bytes. Empty if it is not lent.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl<S> ReadAhead<S> {
    pub(crate) fn new(io: S) -> Self {
        Self {
            io,
            bytes: Vec::new(),
            start: 0,
            end: 0,
        }
    }
}

/// The size of one read. One read of 128 KiB empties a large part of the socket buffer, and its bytes fit in the
/// second-level cache of a CPU.
const READ_AHEAD_BYTES: usize = 128 << 10;

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.start == this.end {
            if this.bytes.is_empty() {
                this.bytes = lend(READ_AHEAD_BYTES);
            }
            let mut block = ReadBuf::new(&mut this.bytes);
            let read = Pin::new(&mut this.io).poll_read(cx, &mut block);
            let bytes = block.filled().len();
            if read.is_pending() {
                take_back(std::mem::take(&mut this.bytes));
            }
            ready!(read)?;
            (this.start, this.end) = (0, bytes);
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
pub(crate) mod tests;
