//! The stream of a tunnel, such as the WebSocket that an extended CONNECT opens (RFC 9220). Its bytes are the content
//! of DATA frames in both directions (RFC 9114 §4.4).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use edgeward_h3::{ErrorCode, FrameType, push_frame_head};
use http_body::Body as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::request_reader::RequestReader;
use super::responder::{FRAME_HEAD_BYTES, Responder};
use crate::exchange::InFlight;

/// The client's side of a tunnel, after the head of the response.
pub(super) struct TunnelStream {
    reader: RequestReader,
    /// Content that has arrived and that the tunnel has not read.
    received: Bytes,
    responder: Responder,
    /// A frame that the transport has not accepted. The next one waits for it.
    unsent: Bytes,
}

impl TunnelStream {
    pub(super) fn new(reader: RequestReader, mut responder: Responder) -> Self {
        responder.set_code(ErrorCode::H3_CONNECT_ERROR);
        Self {
            reader,
            received: Bytes::new(),
            responder,
            unsent: Bytes::new(),
        }
    }

    /// Ends the request after the tunnel. `in_flight` counts it as under way until the client has acknowledged all
    /// bytes. The stream is reset if the tunnel has not closed it.
    pub(super) async fn end(mut self, in_flight: InFlight) {
        drop(self.reader);
        if self.responder.is_finished() {
            self.responder.end(Ok(in_flight)).await;
        }
    }

    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = ready!(self.responder.poll_write(&mut self.unsent, cx));
        Poll::Ready(sent.map_err(|_| io::ErrorKind::ConnectionReset.into()))
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.received.is_empty() {
            match ready!(Pin::new(&mut self.reader).poll_frame(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(Ok(frame)) => self.received = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => {
                    if self.reader.fault().get() == Some(ErrorCode::H3_REQUEST_CANCELLED) {
                        self.responder.set_cancelled();
                    }
                    return Poll::Ready(Err(io::Error::other(error)));
                }
            }
        }
        let length = self.received.len().min(buf.remaining());
        buf.put_slice(&self.received[..length]);
        self.received.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelStream {
    /// Takes the bytes as one frame, of which the transport may accept a part now.
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_unsent(cx))?;
        let mut frame = Vec::with_capacity(FRAME_HEAD_BYTES + bytes.len());
        push_frame_head(&mut frame, FrameType::DATA, bytes.len() as u64);
        frame.extend_from_slice(bytes);
        self.unsent = frame.into();
        match self.poll_unsent(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(bytes.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_unsent(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_unsent(cx))?;
        self.responder.finish();
        Poll::Ready(Ok(()))
    }
}
