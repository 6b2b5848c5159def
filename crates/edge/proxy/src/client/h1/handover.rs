//! Gives hyper the bytes of requests that the fast path, this crate's HTTP/1.1 server, does not serve itself.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::ReadBuf;

use super::fast_path::{FastPath, INBOX_BYTES_MAX, Mode};
use super::request_end::{EndUncertain, RequestEndScan};
use crate::client::stream::ClientStream;

impl FastPath {
    /// Takes the bytes that have arrived after the last request.
    pub(crate) fn take_inbox(&mut self) -> BytesMut {
        std::mem::take(&mut self.inbox)
    }

    /// Reads bytes for hyper.
    pub(crate) fn poll_read<S: ClientStream>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_serve(stream, cx))?;
            match self.mode {
                Mode::HandedOver(scan) if scan.is_at_end() => {
                    // hyper has the whole request, and reads only to notice that the client has disconnected. It gets
                    // no end of the bytes, because it would drop a request whose client may still read.
                    if self.inbox.len() >= INBOX_BYTES_MAX || self.read_ended {
                        return Poll::Pending;
                    }
                    ready!(self.poll_inbox(stream, cx))?;
                }
                Mode::HandedOver(scan) => return self.give_until(scan, stream, cx, buffer),
                _ => return self.give(stream, cx, buffer),
            }
        }
    }

    /// Gives hyper bytes of one request. `scan` finds the end of the request. Later bytes wait in the inbox.
    fn give_until<S: ClientStream>(
        &mut self,
        mut scan: RequestEndScan,
        stream: &mut S,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.give(stream, cx, buffer))?;
        let given = &buffer.filled()[before..];
        let taken = match scan.advance(given) {
            Ok(taken) => taken,
            Err(EndUncertain { valid_bytes }) => {
                // Servers disagree about the end of such a body, so one may read the bytes after it as a request. hyper
                // sees an incomplete body. The client gets 400, and the connection closes.
                buffer.set_filled(before + valid_bytes);
                self.inbox.clear();
                self.read_ended = true;
                self.mode = Mode::Passthrough;
                return Poll::Ready(Ok(()));
            }
        };
        self.mode = Mode::HandedOver(scan);
        if taken < given.len() {
            let mut inbox = BytesMut::from(&given[taken..]);
            inbox.extend_from_slice(&self.inbox);
            self.inbox = inbox;
            buffer.set_filled(before + taken);
        }
        Poll::Ready(Ok(()))
    }

    /// Gives hyper the bytes of the inbox or, if it is empty, bytes from the client's stream.
    fn give<S: ClientStream>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.inbox.is_empty() {
            let before = buffer.filled().len();
            if !self.read_ended {
                ready!(Pin::new(stream).poll_read(cx, buffer))?;
            }
            if buffer.filled().len() > before {
                self.client.conn.record_received();
                self.charge_given(buffer.filled().len() - before);
            } else if self.mode == Mode::Passthrough && self.client.conn.waits_for_origin() {
                // As above: the client may still read.
                if !self.read_ended {
                    self.read_ended = true;
                    self.client.conn.record_half_closed();
                }
                return Poll::Pending;
            }
            return Poll::Ready(Ok(()));
        }
        let n = self.inbox.len().min(buffer.remaining());
        buffer.put_slice(&self.inbox[..n]);
        self.charge_given(n);
        self.inbox.advance(n);
        if self.inbox.is_empty() {
            self.inbox = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}
