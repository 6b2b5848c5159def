//! Between a conversation and a TCP connection: bytes both ways until both are done.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::stream::LinkStream;

/// Carries bytes until both directions have ended, or one has failed: then the TCP connection is reset, so that nobody takes
/// what came for all there was.
pub async fn pump(link: LinkStream, tcp: TcpStream) -> io::Result<()> {
    let keep_alive = TcpKeepalive::new().with_time(Duration::from_secs(60));
    _ = SockRef::from(&tcp).set_tcp_keepalive(&keep_alive);
    let mut pump = Pump {
        link,
        tcp,
        out: vec![0; READ_BYTES],
        out_range: 0..0,
        out_unflushed: false,
        out_state: Direction::Open,
        incoming: Vec::new(),
        incoming_at: 0,
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
    /// From TCP to the link.
    out: Vec<u8>,
    out_range: std::ops::Range<usize>,
    out_unflushed: bool,
    out_state: Direction,
    /// From the link to TCP.
    incoming: Vec<u8>,
    incoming_at: usize,
    in_state: Direction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Open,
    Done,
}

impl Pump {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        for _ in 0..TURNS {
            let moved_out = self.outwards(cx)?;
            let moved_in = self.inwards(cx)?;
            if self.out_state == Direction::Done && self.in_state == Direction::Done {
                return Poll::Ready(Ok(()));
            }
            if !moved_out && !moved_in {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// From TCP to the link; whether anything moved.
    fn outwards(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if self.out_state == Direction::Done {
            return Ok(false);
        }
        if self.out_range.is_empty() {
            let mut room = ReadBuf::new(&mut self.out);
            match Pin::new(&mut self.tcp).poll_read(cx, &mut room)? {
                Poll::Pending => {
                    // That was all for now.
                    if std::mem::take(&mut self.out_unflushed) {
                        _ = Pin::new(&mut self.link).poll_flush(cx)?;
                    }
                    return Ok(false);
                }
                Poll::Ready(()) => {}
            }
            self.out_range = 0..room.filled().len();
            if self.out_range.is_empty() {
                self.out_state = Direction::Done;
                _ = Pin::new(&mut self.link).poll_shutdown(cx)?;
                return Ok(true);
            }
        }
        let bytes = &self.out[self.out_range.clone()];
        match Pin::new(&mut self.link).poll_write(cx, bytes)? {
            Poll::Pending => Ok(false),
            Poll::Ready(bytes) => {
                self.out_range.start += bytes;
                self.out_unflushed = true;
                Ok(true)
            }
        }
    }

    /// From the link to TCP; whether anything moved.
    fn inwards(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if self.in_state == Direction::Done {
            return Ok(false);
        }
        if self.incoming_at == self.incoming.len() {
            match self.link.poll_chunk(cx)? {
                Poll::Pending => return Ok(false),
                Poll::Ready(Some(bytes)) => (self.incoming, self.incoming_at) = (bytes, 0),
                Poll::Ready(None) => {
                    self.in_state = Direction::Done;
                    self.incoming = Vec::new();
                    self.incoming_at = 0;
                    // It may be gone already, which is no loss.
                    _ = Pin::new(&mut self.tcp).poll_shutdown(cx);
                    return Ok(true);
                }
            }
        }
        let bytes = &self.incoming[self.incoming_at..];
        match Pin::new(&mut self.tcp).poll_write(cx, bytes)? {
            Poll::Pending => Ok(false),
            Poll::Ready(bytes) => {
                self.incoming_at += bytes;
                Ok(true)
            }
        }
    }
}

const READ_BYTES: usize = 64 << 10;

/// Turns before other tasks have theirs: a few MiB.
const TURNS: usize = 32;
