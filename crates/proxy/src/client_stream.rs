//! What a client's connection lies on, and whether the kernel can send files on it as they are.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use edgeward_store::disk::{Span, Unsent};
use rustix::fs::sendfile;
use rustix::io::retry_on_intr;
use rustix::net::SendFlags;
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::disk::body::BrokenRead;

/// A part of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilePart<'a> {
    pub(crate) file: BorrowedFd<'a>,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

/// A stream of bytes to and from a client. What is encrypted on the way has to be copied, and implements none of this.
pub(crate) trait ClientStream: AsyncRead + AsyncWrite + Unpin {
    /// Whether the methods below are to be used.
    const SENDS_FILES: bool = false;

    /// Writes `head`, then the part of the file, without copying the latter. How many bytes of the two together
    /// were taken.
    fn poll_send_file(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        _head: &[u8],
        _part: FilePart<'_>,
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    /// Writes `head`, then what lies in the disk's page cache, `copied_max` at a time of what the kernel has to copy.
    /// How many bytes of the two together were taken. What the disk has lost is a [`BrokenRead`] in the error.
    fn poll_send_span(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        _head: &[u8],
        _span: &Span,
        _copied_max: u64,
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientStream for TlsStream<S> {}

impl ClientStream for TcpStream {
    const SENDS_FILES: bool = true;

    fn poll_send_file(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        head: &[u8],
        part: FilePart<'_>,
    ) -> Poll<io::Result<usize>> {
        let wanted = head.len() + part.bytes;
        poll_take(&self, cx, wanted, || send(&self, head, part))
    }

    fn poll_send_span(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        head: &[u8],
        span: &Span,
        copied_max: u64,
    ) -> Poll<io::Result<usize>> {
        let of_span = usize::try_from(span.offered(copied_max)).unwrap_or(usize::MAX);
        let wanted = head.len().saturating_add(of_span);
        poll_take(&self, cx, wanted, || {
            span.send(self.as_fd(), head, copied_max)
                .map_err(|unsent| match unsent {
                    Unsent::Receiver(error) => error,
                    Unsent::Lost(miss) => io::Error::other(BrokenRead::Miss(miss)),
                })
        })
    }
}

/// Has the socket take bytes when it has room.
fn poll_take(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    wanted: usize,
    mut send: impl FnMut() -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(cx))?;
        let mut taken = 0;
        let tried = stream.try_io(Interest::WRITABLE, || {
            taken = send()?;
            // Full: whoever asks again waits for room instead of trying.
            if taken < wanted {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(())
        });
        match tried {
            _ if taken > 0 => return Poll::Ready(Ok(taken)),
            Ok(()) => return Poll::Ready(Ok(0)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

fn send(stream: &TcpStream, head: &[u8], part: FilePart<'_>) -> io::Result<usize> {
    let mut taken = 0;
    if !head.is_empty() {
        // More follows at once: one packet for both.
        let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
        taken = retry_on_intr(|| rustix::net::send(stream, head, flags))?;
        if taken < head.len() {
            return Ok(taken);
        }
    }
    let mut offset = part.offset;
    match retry_on_intr(|| sendfile(stream, part.file, Some(&mut offset), part.bytes)) {
        Ok(of_file) => Ok(taken + of_file),
        // What was taken must be told, whatever happened then.
        Err(_) if taken > 0 => Ok(taken),
        Err(error) => Err(error.into()),
    }
}
