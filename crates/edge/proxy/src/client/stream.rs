//! The streams of client connections: TCP, TLS and Unix sockets. On TCP streams the kernel can send bytes from files.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use edgeward_store::disk::{SendError, Span};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::sendfile;
use rustix::io::retry_on_intr;
use rustix::net::SendFlags;
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

use crate::cache::disk_body::BrokenRead;

/// A range of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilePart<'a> {
    pub(crate) file: BorrowedFd<'a>,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

/// A stream of bytes to and from a client. TLS has to encrypt a copy of the bytes, so TLS streams cannot send files.
pub(crate) trait ClientStream: AsyncRead + AsyncWrite + Unpin {
    /// True if the stream implements `poll_send_file` and `poll_send_span`.
    const SENDS_FILES: bool = false;

    /// The most bytes that the stream itself keeps while the socket accepts none.
    const UNSENT_BYTES_MAX: u64 = 0;

    /// Writes `head`, then the part of the file. The kernel sends the file's pages without a copy. Returns how many
    /// bytes of head and file the socket accepted.
    fn poll_send_file(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        _head: &[u8],
        _part: FilePart<'_>,
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    /// Writes `head`, then `span`: a part of a stored body in the page cache. If the kernel has to copy the part, a
    /// call writes at most `copied_max` bytes of it. Returns how many bytes of head and span the socket accepted. If
    /// the span is unreadable, the error contains a [`BrokenRead`].
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

impl<S: AsyncRead + AsyncWrite + Unpin> ClientStream for TlsStream<S> {
    /// The bound of rustls for encrypted records, `DEFAULT_BUFFER_LIMIT`.
    const UNSENT_BYTES_MAX: u64 = 64 << 10;
}

impl ClientStream for UnixStream {}

impl ClientStream for TcpStream {
    const SENDS_FILES: bool = true;

    fn poll_send_file(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        head: &[u8],
        part: FilePart<'_>,
    ) -> Poll<io::Result<usize>> {
        let wanted = head.len() + part.bytes;
        poll_send(&self, cx, wanted, || send(&self, head, part))
    }

    fn poll_send_span(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        head: &[u8],
        span: &Span,
        copied_max: u64,
    ) -> Poll<io::Result<usize>> {
        let span_bytes = usize::try_from(span.offered(copied_max)).unwrap_or(usize::MAX);
        let wanted = head.len().saturating_add(span_bytes);
        poll_send(&self, cx, wanted, || {
            span.send(self.as_fd(), head, copied_max)
                .map_err(|unsent| match unsent {
                    SendError::Receiver(error) => error,
                    SendError::Lost(miss) => io::Error::other(BrokenRead::Miss(miss)),
                })
        })
    }
}

/// Calls `send` when the socket has space. Returns how many of the `wanted` bytes the socket accepted.
fn poll_send(
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
            // The socket is full. The next poll waits for space.
            if taken < wanted && !has_space(stream) {
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

/// Returns true if the socket has space. If it has space after a short write, the file has ended or is unreadable. A
/// wait for space could then last forever, so [`poll_send`] does not wait. The next write returns 0 or the read error.
fn has_space(stream: &TcpStream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::OUT)];
    poll(&mut polled, Some(&Timespec::default())) != Ok(0)
}

fn send(stream: &TcpStream, head: &[u8], part: FilePart<'_>) -> io::Result<usize> {
    let mut taken = 0;
    if !head.is_empty() {
        // The file follows at once, so the kernel may put head and file in one packet.
        let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
        taken = retry_on_intr(|| rustix::net::send(stream, head, flags))?;
        if taken < head.len() {
            return Ok(taken);
        }
    }
    let mut offset = part.offset;
    match retry_on_intr(|| sendfile(stream, part.file, Some(&mut offset), part.bytes)) {
        Ok(file_bytes) => Ok(taken + file_bytes),
        // The caller must learn how many bytes of the head were sent. The next call fails too and returns the error.
        Err(_) if taken > 0 => Ok(taken),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs::File;
    use std::io::Write as _;

    use tokio::net::TcpListener;

    /// Returns both ends of a connection.
    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("the address is valid");
        let stream = TcpStream::connect(addr).await.expect("the server listens");
        let (peer, _) = listener.accept().await.expect("the client connects");
        (stream, peer)
    }

    /// Method: send a range that is longer than the file. The first call sends the whole file, the next returns 0.
    #[tokio::test]
    async fn a_part_beyond_the_end_of_its_file_does_not_wait() {
        let (mut stream, _peer) = connection().await;
        stream.writable().await.expect("the socket is open");
        let mut file: File = tempfile::tempfile().expect("the file is created");
        file.write_all(&[7; 10_000]).expect("the file is writable");
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut part = FilePart {
            file: file.as_fd(),
            offset: 0,
            bytes: 30_000,
        };
        let mut send = |part| match Pin::new(&mut stream).poll_send_file(&mut cx, b"", part) {
            Poll::Ready(sent) => sent.expect("the socket is open"),
            Poll::Pending => panic!("the socket is full"),
        };
        assert_eq!(send(part), 10_000);
        (part.offset, part.bytes) = (10_000, 20_000);
        assert_eq!(send(part), 0);
    }

    /// A task that found the socket full is woken when the socket has space.
    #[tokio::test]
    async fn a_full_socket_wakes_its_task_when_it_has_space() {
        let (mut stream, mut peer) = connection().await;
        let bytes = 32 << 20;
        let mut file: File = tempfile::tempfile().expect("the file is created");
        file.write_all(&vec![7; bytes])
            .expect("the file is writable");
        let mut sent = 0;
        let mut waited = 0;
        let sending = std::future::poll_fn(|cx| {
            while sent < bytes {
                let part = FilePart {
                    file: file.as_fd(),
                    offset: sent as u64,
                    bytes: bytes - sent,
                };
                match Pin::new(&mut stream).poll_send_file(cx, b"", part) {
                    Poll::Ready(taken) => sent += taken.expect("the socket is open"),
                    Poll::Pending => {
                        waited += 1;
                        return Poll::Pending;
                    }
                }
            }
            Poll::Ready(())
        });
        let reading = async {
            let mut left = bytes;
            let mut buffer = vec![0; 1 << 20];
            while left > 0 {
                let read = tokio::io::AsyncReadExt::read(&mut peer, &mut buffer).await;
                left -= read.expect("the socket is open");
            }
        };
        let both = async { tokio::join!(sending, reading) };
        let both = tokio::time::timeout(std::time::Duration::from_secs(60), both).await;
        both.expect("all bytes arrive in time");
        assert!(waited > 0, "32 MiB are more than sockets hold");
    }
}
