//! Copies bytes between a link stream and a TCP connection, in both directions.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::stream::LinkStream;
use crate::turn::{Turn, step_aside};

/// Copies bytes until both directions have ended or one has failed. After a failure the TCP connection is reset, so
/// that its peer does not take a partial body for a complete one.
pub async fn pump(link: LinkStream, tcp: TcpStream) -> io::Result<()> {
    let keep_alive = TcpKeepalive::new().with_time(Duration::from_secs(60));
    _ = SockRef::from(&tcp).set_tcp_keepalive(&keep_alive);
    let mut pump = Pump {
        link,
        tcp,
        out_unflushed: false,
        out_state: Direction::Open,
        incoming: Bytes::new(),
        in_state: Direction::Open,
    };
    let pumped = std::future::poll_fn(|cx| pump.poll(cx)).await;
    if pumped.is_err() {
        _ = SockRef::from(&pump.tcp).set_linger(Some(Duration::ZERO));
    }
    pumped
}

struct Pump {
    link: LinkStream,
    tcp: TcpStream,
    /// True if bytes were copied to the link since the last flush.
    out_unflushed: bool,
    out_state: Direction,
    /// Bytes from the link that are not written to TCP yet.
    incoming: Bytes,
    in_state: Direction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Open,
    Done,
}

impl Pump {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut turn = Turn::default();
        while !turn.is_over() {
            let moved_out = self.outwards(cx, &mut turn)?;
            let moved_in = self.inwards(cx, &mut turn)?;
            if self.out_state == Direction::Done && self.in_state == Direction::Done {
                return Poll::Ready(Ok(()));
            }
            if !moved_out && !moved_in {
                return Poll::Pending;
            }
        }
        step_aside(cx);
        Poll::Pending
    }

    /// Copies from TCP to the link. Returns true if anything moved.
    fn outwards(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> io::Result<bool> {
        if self.out_state == Direction::Done {
            return Ok(false);
        }
        let Self { link, tcp, .. } = self;
        let waker = cx.waker().clone();
        let moved = link.poll_write_from(&waker, turn, |spare| {
            let mut room = ReadBuf::new(spare);
            match Pin::new(tcp).poll_read(cx, &mut room) {
                Poll::Ready(read) => read.map(|()| room.filled().len()),
                Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            }
        });
        match moved {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(0)) => {
                self.out_state = Direction::Done;
                _ = Pin::new(&mut self.link).poll_shutdown(cx)?;
                Ok(true)
            }
            Poll::Ready(Ok(_)) => {
                self.out_unflushed = true;
                Ok(true)
            }
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                // The socket has no more bytes for now.
                if std::mem::take(&mut self.out_unflushed) {
                    _ = Pin::new(&mut self.link).poll_flush(cx)?;
                }
                Ok(false)
            }
            Poll::Ready(Err(error)) => Err(error),
        }
    }

    /// Copies from the link to TCP. Returns true if anything moved.
    fn inwards(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> io::Result<bool> {
        if self.in_state == Direction::Done {
            return Ok(false);
        }
        if self.incoming.is_empty() {
            match self.link.poll_chunk(cx)? {
                Poll::Pending => return Ok(false),
                Poll::Ready(Some(bytes)) => self.incoming = bytes,
                Poll::Ready(None) => {
                    self.in_state = Direction::Done;
                    // An error means that the peer has closed the connection, which is no loss.
                    _ = Pin::new(&mut self.tcp).poll_shutdown(cx);
                    return Ok(true);
                }
            }
        }
        match Pin::new(&mut self.tcp).poll_write(cx, &self.incoming)? {
            Poll::Pending => Ok(false),
            Poll::Ready(bytes) => {
                turn.spend(bytes);
                self.incoming.advance(bytes);
                // An empty slice would keep its memory allocated.
                if self.incoming.is_empty() {
                    self.incoming = Bytes::new();
                }
                Ok(true)
            }
        }
    }
}
