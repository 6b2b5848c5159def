//! Copies bytes between a link stream and a TCP connection, in both directions.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::budget::{Budget, yield_now};
use crate::core_stream::CoreStream;
use crate::stream::StreamError;

/// Copies bytes until both directions have ended or one direction has failed. After a failure the TCP connection is
/// reset, so that its remote host does not treat a truncated body as complete.
pub(crate) async fn pump(link: CoreStream, tcp: TcpStream) -> io::Result<()> {
    let keep_alive = TcpKeepalive::new().with_time(Duration::from_secs(60));
    _ = SockRef::from(&tcp).set_tcp_keepalive(&keep_alive);
    let mut pump = Pump {
        link,
        tcp,
        out_unflushed: false,
        out_state: DirectionState::Open,
        incoming: Bytes::new(),
        in_state: DirectionState::Open,
    };
    let pumped = std::future::poll_fn(|cx| pump.poll(cx)).await;
    if pumped.is_err() {
        _ = SockRef::from(&pump.tcp).set_linger(Some(Duration::ZERO));
    }
    pumped
}

/// A link stream and a TCP connection, with the state of both directions. "Out" is the direction from TCP to
/// the link.
struct Pump {
    link: CoreStream,
    tcp: TcpStream,
    /// True if bytes were copied to the link since the last flush.
    out_unflushed: bool,
    out_state: DirectionState,
    /// Bytes from the link that are not written to TCP yet.
    incoming: Bytes,
    in_state: DirectionState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DirectionState {
    Open,
    Done,
}

impl Pump {
    /// Copies bytes until neither direction can continue or the [`Budget`] of one poll (256 KiB) is spent. When it is
    /// spent, other tasks run before the next poll.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut budget = Budget::default();
        while !budget.is_spent() {
            let has_copied_out = self.copy_to_link(cx, &mut budget)?;
            let has_copied_in = self.copy_to_tcp(cx, &mut budget)?;
            if self.out_state == DirectionState::Done && self.in_state == DirectionState::Done {
                return Poll::Ready(Ok(()));
            }
            if !has_copied_out && !has_copied_in {
                return Poll::Pending;
            }
        }
        yield_now(cx);
        Poll::Pending
    }

    /// Copies bytes from TCP to the link. Returns true if this call copied bytes or ended the direction.
    fn copy_to_link(&mut self, cx: &mut Context<'_>, budget: &mut Budget) -> io::Result<bool> {
        if self.out_state == DirectionState::Done {
            return Ok(false);
        }
        let Self { link, tcp, .. } = self;
        let waker = cx.waker().clone();
        let copied = link.poll_write_from(&waker, budget, |spare| {
            let mut buffer = ReadBuf::new(spare);
            match Pin::new(tcp).poll_read(cx, &mut buffer) {
                Poll::Ready(read) => read.map(|()| buffer.filled().len()),
                Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            }
        });
        match copied {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(0)) => {
                self.out_state = DirectionState::Done;
                self.link.close().map_err(StreamError::into_io)?;
                Ok(true)
            }
            Poll::Ready(Ok(_)) => {
                self.out_unflushed = true;
                Ok(true)
            }
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                // The socket has no more bytes for now.
                if std::mem::take(&mut self.out_unflushed) {
                    self.link.flush();
                }
                Ok(false)
            }
            Poll::Ready(Err(error)) => Err(error),
        }
    }

    /// Copies bytes from the link to TCP. Returns true if this call received or wrote bytes, or ended the direction.
    fn copy_to_tcp(&mut self, cx: &mut Context<'_>, budget: &mut Budget) -> io::Result<bool> {
        if self.in_state == DirectionState::Done {
            return Ok(false);
        }
        if self.incoming.is_empty() {
            match self.link.poll_chunk(cx).map_err(StreamError::into_io)? {
                Poll::Pending => return Ok(false),
                Poll::Ready(Some(bytes)) => self.incoming = bytes,
                Poll::Ready(None) => {
                    self.in_state = DirectionState::Done;
                    // An error means that the remote host has already closed the connection. All bytes were
                    // written, so the error is ignored.
                    _ = Pin::new(&mut self.tcp).poll_shutdown(cx);
                    return Ok(true);
                }
            }
        }
        match Pin::new(&mut self.tcp).poll_write(cx, &self.incoming)? {
            Poll::Pending => Ok(false),
            Poll::Ready(bytes) => {
                budget.spend(bytes);
                self.incoming.advance(bytes);
                // An empty slice would keep the memory of the whole buffer allocated.
                if self.incoming.is_empty() {
                    self.incoming = Bytes::new();
                }
                Ok(true)
            }
        }
    }
}
