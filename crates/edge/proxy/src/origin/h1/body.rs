//! Reads the body of a response from its connection.

use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Frame;

use super::chunked::{Chunked, Step};
use super::connection::{Connection, READ_BYTES_MAX, READ_BYTES_MIN};
use super::error::H1Error;
use crate::origin::connect::OriginStream;

/// The rule by which the end of a body is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// The number of bytes that remain.
    Length(u64),
    Chunked(Chunked),
    /// The body ends with the connection.
    UntilClose,
}

/// The body of a response.
pub(crate) struct Body {
    connection: Box<Connection>,
    framing: Framing,
    /// True if the connection can serve another request after this body.
    reusable: bool,
    /// True if the connection was closed, which ends a body with [`Framing::UntilClose`].
    closed: bool,
    /// The number of body bytes that were read.
    bytes: usize,
}

impl Body {
    pub(super) fn new(connection: Box<Connection>, framing: Framing, reusable: bool) -> Self {
        Self {
            connection,
            framing,
            reusable,
            closed: false,
            bytes: 0,
        }
    }

    /// Returns true if the whole body was read.
    pub(crate) fn has_ended(&self) -> bool {
        self.remaining_bytes() == Some(0)
    }

    /// Returns the number of bytes that remain, if it is known.
    pub(crate) fn remaining_bytes(&self) -> Option<u64> {
        match &self.framing {
            Framing::Length(left) => Some(*left),
            Framing::Chunked(chunked) => chunked.has_ended().then_some(0),
            Framing::UntilClose => self.closed.then_some(0),
        }
    }

    /// Returns the connection if the body is complete and another request may follow.
    /// A connection with bytes after the response is not reused: no request asked for these bytes (RFC 9112 §9.2).
    pub(crate) fn into_connection(mut self) -> Option<Box<Connection>> {
        let reusable = self.reusable && self.has_ended() && self.connection.inbox.is_empty();
        // The next body often has a similar length, so the first read of the next response has this size.
        self.connection.read_bytes = self.bytes.clamp(READ_BYTES_MIN, READ_BYTES_MAX);
        if self.connection.inbox.capacity() > READ_BYTES_MIN {
            // The buffer is freed, so that an idle connection has no large buffer.
            self.connection.inbox = BytesMut::new();
        }
        reusable.then_some(self.connection)
    }

    /// Returns the connection after a 101, and the bytes of the new protocol that have arrived.
    pub(crate) fn into_switched(self) -> (Box<dyn OriginStream>, BytesMut) {
        (self.connection.stream, self.connection.inbox)
    }

    /// Reads the next piece. Returns `None` only at the end of the body.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, H1Error>>> {
        loop {
            let inbox = &mut self.connection.inbox;
            let wanted = match &mut self.framing {
                Framing::Length(0) => return Poll::Ready(None),
                Framing::Length(left) if !inbox.is_empty() => {
                    let available = usize::try_from(*left)
                        .unwrap_or(usize::MAX)
                        .min(inbox.len());
                    *left -= available as u64;
                    return Poll::Ready(Some(Ok(self.take_frame(available))));
                }
                Framing::Length(left) => usize::try_from(*left).unwrap_or(usize::MAX),
                Framing::Chunked(chunked) => match chunked.step(inbox) {
                    Ok(Step::Data(bytes)) => {
                        self.bytes += bytes.len();
                        return Poll::Ready(Some(Ok(Frame::data(bytes))));
                    }
                    Ok(Step::Trailers(fields)) => {
                        return Poll::Ready(Some(Ok(Frame::trailers(fields))));
                    }
                    Ok(Step::End) => return Poll::Ready(None),
                    Ok(Step::NeedMore) => READ_BYTES_MAX,
                    Err(error) => return Poll::Ready(Some(Err(error))),
                },
                Framing::UntilClose if self.closed => return Poll::Ready(None),
                Framing::UntilClose if !inbox.is_empty() => {
                    let all = inbox.len();
                    return Poll::Ready(Some(Ok(self.take_frame(all))));
                }
                Framing::UntilClose => READ_BYTES_MAX,
            };
            match ready!(self.connection.poll_read(cx, wanted.min(READ_BYTES_MAX))) {
                Ok(0) if self.framing == Framing::UntilClose => self.closed = true,
                Ok(0) => return Poll::Ready(Some(Err(H1Error::Closed))),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
    }

    fn take_frame(&mut self, bytes: usize) -> Frame<Bytes> {
        self.bytes += bytes;
        Frame::data(self.connection.inbox.split_to(bytes).freeze())
    }
}
