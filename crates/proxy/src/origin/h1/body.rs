//! A response's body, read from the connection by whoever wants it.

use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Frame;

use super::chunked::{Chunked, Step};
use super::{Connection, H1Error, READ_BYTES_MAX, READ_BYTES_MIN};

/// How a body's end is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// So many bytes are still to come.
    Length(u64),
    Chunked(Chunked),
    /// It ends with the connection.
    UntilClose,
}

/// The rest of a response.
pub(crate) struct Body {
    connection: Connection,
    framing: Framing,
    reusable: bool,
    /// The connection was closed where that is a body's end.
    closed: bool,
    bytes: usize,
}

impl Body {
    pub(super) fn new(connection: Connection, framing: Framing, reusable: bool) -> Self {
        Self {
            connection,
            framing,
            reusable,
            closed: false,
            bytes: 0,
        }
    }

    /// Whether all of it has been taken.
    pub(crate) fn has_ended(&self) -> bool {
        match &self.framing {
            Framing::Length(left) => *left == 0,
            Framing::Chunked(chunked) => chunked.has_ended(),
            Framing::UntilClose => self.closed,
        }
    }

    /// How many bytes are left, if that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        match &self.framing {
            Framing::Length(left) => Some(*left),
            Framing::Chunked(chunked) => chunked.has_ended().then_some(0),
            Framing::UntilClose => self.closed.then_some(0),
        }
    }

    /// The connection, if the body was read whole and another request may follow.
    ///
    /// Bytes behind the response belong to no request (RFC 9112 §9.2): such a connection is not used again.
    pub(crate) fn into_connection(mut self) -> Option<Connection> {
        let reusable = self.reusable && self.has_ended() && self.connection.inbox.is_empty();
        self.connection.read_bytes = self.bytes.clamp(READ_BYTES_MIN, READ_BYTES_MAX);
        if self.connection.inbox.capacity() > READ_BYTES_MIN {
            // An idle connection holds no large buffer.
            self.connection.inbox = BytesMut::new();
        }
        reusable.then_some(self.connection)
    }

    /// The next piece; `None` only where the body ends.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, H1Error>>> {
        loop {
            let inbox = &mut self.connection.inbox;
            let wanted = match &mut self.framing {
                Framing::Length(0) => return Poll::Ready(None),
                Framing::Length(left) if !inbox.is_empty() => {
                    let here = usize::try_from(*left)
                        .unwrap_or(usize::MAX)
                        .min(inbox.len());
                    *left -= here as u64;
                    return Poll::Ready(Some(Ok(self.take(here))));
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
                    Ok(Step::More) => READ_BYTES_MAX,
                    Err(error) => return Poll::Ready(Some(Err(error))),
                },
                Framing::UntilClose if self.closed => return Poll::Ready(None),
                Framing::UntilClose if !inbox.is_empty() => {
                    let all = inbox.len();
                    return Poll::Ready(Some(Ok(self.take(all))));
                }
                Framing::UntilClose => READ_BYTES_MAX,
            };
            match ready!(self.connection.poll_fill(cx, wanted.min(READ_BYTES_MAX))) {
                Ok(0) if self.framing == Framing::UntilClose => self.closed = true,
                Ok(0) => return Poll::Ready(Some(Err(H1Error::Closed))),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
    }

    fn take(&mut self, bytes: usize) -> Frame<Bytes> {
        self.bytes += bytes;
        Frame::data(self.connection.inbox.split_to(bytes).freeze())
    }
}
