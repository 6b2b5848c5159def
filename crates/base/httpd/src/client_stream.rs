//! A stream that fails when its client reads too slowly.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::server::ConnectionCounters;
use crate::slots::Slot;

/// A stream whose writes fail when the client reads less than [`PROGRESS_BYTES`] in `timeout`.
///
/// The stream notifies the [`Slot`] of its connection when the connection waits for the client. The server may then
/// close the connection to accept a new one.
pub(crate) struct ClientStream<S> {
    stream: S,
    timeout: Duration,
    /// The timer of `timeout`. A pending write or flush starts it. [`PROGRESS_BYTES`] of writes or a complete flush
    /// stop it. If it expires, the pending write or flush fails.
    timer: Pin<Box<Sleep>>,
    timer_runs: bool,
    /// The number of bytes written since the timer started.
    bytes_written: usize,
    slot: Arc<Slot>,
    counters: Arc<ConnectionCounters>,
}

impl<S> ClientStream<S> {
    pub(crate) fn new(
        stream: S,
        timeout: Duration,
        slot: Arc<Slot>,
        counters: Arc<ConnectionCounters>,
    ) -> Self {
        Self {
            stream,
            timeout,
            timer: Box::pin(tokio::time::sleep(timeout)),
            timer_runs: false,
            bytes_written: 0,
            slot,
            counters,
        }
    }

    /// Returns the result of a write or flush. If the operation is pending, starts the timer, and returns an
    /// error when the timer has expired.
    fn check<T>(
        &mut self,
        result: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            return result;
        }
        self.slot.wait_for_client();
        if !self.timer_runs {
            (self.timer_runs, self.bytes_written) = (true, 0);
            self.timer.as_mut().reset(Instant::now() + self.timeout);
        }
        if self.timer.as_mut().poll(cx).is_ready() {
            self.counters.stalled.increment();
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }

    fn check_write(
        &mut self,
        written: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.bytes_written += bytes;
            if self.bytes_written >= PROGRESS_BYTES {
                self.slot.resume();
                (self.timer_runs, self.bytes_written) = (false, 0);
            }
        }
        self.check(written, cx)
    }
}

/// The number of bytes that the client must read in `timeout`. With the publisher's timeout of 30 s this is
/// about 500 B/s, less than the bandwidth of any useful path.
pub(crate) const PROGRESS_BYTES: usize = 16 << 10;

impl<S: AsyncRead + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check_write(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.check_write(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready() {
            self.slot.record_flush();
            self.timer_runs = false;
        }
        self.check(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
