//! The stream between a client's socket and hyper. The fast path reads the client's bytes before hyper does.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::client::h1::FastPath;
use crate::client::stream::ClientStream;
use crate::exchange::{Client, ConnState, Holding};
use crate::path::worker::CurrentWorker;

/// A stream that records its reads and writes in a [`ConnState`]. It first returns the bytes of `read_ahead`.
#[derive(Debug)]
pub(crate) struct ClientIo<S> {
    stream: S,
    state: Rc<ConnState>,
    /// The bytes that were read to detect the protocol and not returned yet.
    read_ahead: Bytes,
    fast_path: Option<Box<FastPath>>,
    /// True if the socket has accepted only a part of hyper's last write.
    partly_written: bool,
    /// The charge for the records of TLS that the socket has not accepted.
    unsent_tls: Option<Holding>,
}

impl<S> ClientIo<S> {
    pub(crate) fn new(stream: S, state: Rc<ConnState>, read_ahead: Bytes) -> Self {
        Self {
            stream,
            state,
            read_ahead,
            fast_path: None,
            partly_written: false,
            unsent_tls: None,
        }
    }

    /// Adds the fast path, which serves simple requests without hyper (see [`crate::client::h1`]).
    pub(crate) fn with_fast_path(mut self, workers: Rc<CurrentWorker>, client: Client) -> Self {
        let read_ahead = std::mem::take(&mut self.read_ahead);
        if !read_ahead.is_empty() {
            self.state.record_received(); // The bytes begin a request's head.
        }
        self.state.hold_observations();
        let fast_path = FastPath::new(workers, client, read_ahead);
        self.fast_path = Some(Box::new(fast_path));
        self
    }
}

impl<S: ClientStream> ClientIo<S> {
    /// Writes interim (1xx) responses before hyper's next message.
    fn poll_interims(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.fast_path {
            // An interim response cannot be written inside another message, so it is dropped.
            _ if self.partly_written => {
                self.state.take_interims();
                Poll::Ready(Ok(()))
            }
            Some(fast_path) => fast_path.poll_interims(&mut self.stream, cx),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Lets the fast path serve simple requests. Resolves when hyper has to read the next bytes, or at an error.
    pub(crate) fn poll_fast_path(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.fast_path {
            Some(fast_path) => fast_path.poll_serve(&mut self.stream, cx),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Returns the stream without the bytes that were read ahead.
    pub(crate) fn into_stream(self) -> S {
        self.stream
    }

    /// Returns the stream, and the bytes that were read from it and belong to no request.
    pub(crate) fn into_tunnel(self) -> (S, BytesMut) {
        let early = match self.fast_path {
            Some(mut fast_path) => fast_path.take_inbox(),
            None => self.read_ahead.into(),
        };
        (self.stream, early)
    }

    /// Returns the fast path. HTTP/2 connections have none.
    pub(crate) fn fast_path(&self) -> Option<&FastPath> {
        self.fast_path.as_deref()
    }
}

impl<S: ClientStream> AsyncRead for ClientIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(fast_path) = &mut this.fast_path {
            return fast_path.poll_read(&mut this.stream, cx, buffer);
        }
        if !self.read_ahead.is_empty() {
            let n = self.read_ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.read_ahead[..n]);
            self.read_ahead.advance(n);
            self.state.record_received();
            return Poll::Ready(Ok(()));
        }
        let filled_before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if result.is_ready() && buffer.filled().len() > filled_before {
            self.state.record_received();
        }
        result
    }
}

impl<S: ClientStream> AsyncWrite for ClientIo<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_interims(cx))?;
        // One piece is written by `send`, which is slightly faster than `writev`.
        let stream = Pin::new(&mut self.stream);
        let result = match pieces {
            [piece] => stream.poll_write(cx, piece),
            _ => stream.poll_write_vectored(cx, pieces),
        };
        if let Poll::Ready(Ok(written)) = &result {
            self.partly_written = *written < pieces.iter().map(|piece| piece.len()).sum();
        }
        self.state.record_write(&result);
        match result {
            Poll::Pending if self.unsent_tls.is_none() => {
                self.unsent_tls = Some(self.state.holding(S::UNSENT_BYTES_MAX));
            }
            Poll::Pending => {}
            Poll::Ready(_) => self.unsent_tls = None,
        }
        if let Some(fast_path) = &self.fast_path {
            let pieces = pieces.iter().map(|piece| &**piece);
            let body_bytes = self.state.record_hyper_write(&result, pieces);
            fast_path.count_response_bytes(body_bytes);
        }
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes after it has written all of its output.
        self.partly_written = false;
        ready!(self.poll_interims(cx))?;
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        if let Some(fast_path) = &mut self.fast_path {
            fast_path.flushed(cx);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
