//! A socket that gives up on a client that takes nothing, or too little.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::counters::Counters;
use crate::places::Place;

/// A stream whose writes fail when less than [`PROGRESS_BYTES`] were taken in `patience`.
pub(crate) struct Stall<S> {
    stream: S,
    patience: Duration,
    /// Runs while a write is waiting.
    timer: Pin<Box<Sleep>>,
    waiting: bool,
    /// Bytes taken since the timer was set.
    taken: usize,
    place: Arc<Place>,
    counters: Arc<Counters>,
}

impl<S> Stall<S> {
    pub(crate) fn new(
        stream: S,
        patience: Duration,
        place: Arc<Place>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            stream,
            patience,
            timer: Box::pin(tokio::time::sleep(patience)),
            waiting: false,
            taken: 0,
            place,
            counters,
        }
    }

    /// The result of a write of `bytes`, or an error when the time is over.
    fn judge<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        bytes: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.taken += bytes;
            if self.taken >= PROGRESS_BYTES {
                self.place.moved();
                (self.waiting, self.taken) = (false, 0);
            }
            return written;
        }
        self.place.wait_for_client();
        if !self.waiting {
            (self.waiting, self.taken) = (true, 0);
            self.timer.as_mut().reset(Instant::now() + self.patience);
        }
        if self.timer.as_mut().poll(cx).is_ready() {
            self.counters.connections_stalled.one();
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl<S> Stall<S> {
    fn judge_write(
        &mut self,
        written: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let bytes = match &written {
            Poll::Ready(Ok(bytes)) => *bytes,
            _ => 0,
        };
        self.judge(written, bytes, cx)
    }
}

/// Half a kilobyte a second, which is less than any line that is of use.
const PROGRESS_BYTES: usize = 16 << 10;

impl<S: AsyncRead + Unpin> AsyncRead for Stall<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stall<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge_write(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.judge_write(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready() {
            // All is taken, by the socket at least: the client's turn.
            self.place.wait_for_client();
            self.waiting = false;
        }
        self.judge(flushed, 0, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
