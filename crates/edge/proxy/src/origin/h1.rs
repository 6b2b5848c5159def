//! The HTTP/1.1 client for requests without a body. Uploads and HTTP/2 use hyper's client.
//!
//! hyper's client needs a task per connection and a channel for requests and responses, because either peer may send
//! at any time. For a GET, the edge sends a head, reads one response, and then does not read until the next request.
//! The task of the fetch can therefore write and read the connection itself.
//!
//! The parser is stricter than the grammar: a response whose end is ambiguous is an error (RFC 9112 §6.3), and a
//! connection with unexpected bytes is not reused.

mod body;
mod chunked;
mod connection;
mod error;
mod head;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use http::Method;
use http::header::HeaderValue;
use http::response::Parts;
use tokio::io::AsyncWrite as _;
use tokio::time::Instant;

use crate::exchange::InterimSink;

pub(super) use body::Body;
use body::Framing;
pub(super) use connection::Connection;
use connection::INTERIM_MAX;
pub(super) use error::ExchangeError;
pub(crate) use error::H1Error;
use head::Head;
pub(super) use head::HeadLimits;

impl Connection {
    /// Sends a request and reads the head of its response, all within `timeout`. `interims` gets the interim responses.
    pub(super) async fn exchange(
        mut self: Box<Self>,
        request: &[u8],
        method: &Method,
        limits: HeadLimits,
        timeout: Duration,
        interims: Option<&InterimSink>,
    ) -> Result<(Box<Parts>, Body), ExchangeError> {
        let mut outgoing = OutgoingRequest {
            unsent: request,
            flushed: false,
        };
        self.timer.as_mut().reset(Instant::now() + timeout);
        let exchanged = poll_fn(|cx| {
            let polled = match self.poll_send(cx, &mut outgoing) {
                Poll::Ready(Ok(())) => self.poll_head(cx, limits, method, interims),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            };
            if polled.is_pending() {
                ready!(self.timer.as_mut().poll(cx));
                return Poll::Ready(Err(H1Error::Timeout));
            }
            polled
        })
        .await;
        match exchanged {
            Ok((parts, framing, reusable)) => Ok((parts, Body::new(self, framing, reusable))),
            Err(error) => Err(ExchangeError {
                error,
                response_began: !self.inbox.is_empty(),
            }),
        }
    }

    /// Writes the rest of a request and flushes it.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        outgoing: &mut OutgoingRequest<'_>,
    ) -> Poll<Result<(), H1Error>> {
        let stream = &mut self.stream;
        while !outgoing.unsent.is_empty() {
            match ready!(Pin::new(&mut *stream).poll_write(cx, outgoing.unsent))? {
                0 => return Poll::Ready(Err(H1Error::Closed)),
                n => outgoing.unsent = &outgoing.unsent[n..],
            }
        }
        if !outgoing.flushed {
            // TLS buffers bytes until it is flushed.
            ready!(Pin::new(stream).poll_flush(cx))?;
            outgoing.flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        limits: HeadLimits,
        method: &Method,
        interims: Option<&InterimSink>,
    ) -> Poll<Result<ReadHead, H1Error>> {
        loop {
            let is_incomplete =
                self.inbox.len() < limits.bytes_max && !self.partial.may_be_complete(&self.inbox);
            let head = if is_incomplete {
                None
            } else {
                head::parse(&mut self.inbox, limits, method)?
            };
            match &head {
                Some(_) => self.partial.reset(),
                None => self.partial.mark_incomplete(self.inbox.len()),
            }
            match head {
                Some(Head::Final {
                    mut parts,
                    framing,
                    reusable,
                }) => {
                    self.interims_left = INTERIM_MAX;
                    if !self.early_links.is_empty() {
                        let links = std::mem::take(&mut self.early_links);
                        parts.extensions.insert(EarlyLinks(links));
                    }
                    return Poll::Ready(Ok((parts, framing, reusable)));
                }
                Some(Head::Interim(..)) if self.interims_left == 0 => {
                    return Poll::Ready(Err(H1Error::Framing("too many interim responses")));
                }
                Some(Head::Interim(lines, links)) => {
                    self.interims_left -= 1;
                    self.early_links.extend(links);
                    if let (Some(interims), Some(lines)) = (interims, lines) {
                        interims.push(&lines);
                    }
                }
                None => {
                    if ready!(self.poll_read(cx, self.read_bytes))? == 0 {
                        return Poll::Ready(Err(H1Error::Closed));
                    }
                }
            }
        }
    }
}

/// The values of `Link` of the 103 responses (RFC 8297) that came before a response. At most [`INTERIM_MAX`] heads have
/// them.
#[derive(Clone, Debug)]
pub(crate) struct EarlyLinks(pub(crate) Vec<HeaderValue>);

/// A head, the framing of its body, and true if the connection can be reused after the body.
type ReadHead = (Box<Parts>, Framing, bool);

/// A request that is being sent: the bytes that are not sent yet, and true after all bytes were flushed.
struct OutgoingRequest<'a> {
    unsent: &'a [u8],
    flushed: bool,
}

/// Parses a response's head, for [`hostile`](crate::hostile). Panics if the result depends on bytes after the head.
pub fn check_response_head(bytes: &[u8]) {
    let limits = HeadLimits {
        bytes_max: 64 << 10,
        fields_max: 100,
        accepts_unknown_codings: true,
        accepts_switch: true,
    };
    let read = |bytes: &[u8]| {
        let mut inbox = BytesMut::from(bytes);
        let head = head::parse(&mut inbox, limits, &Method::GET);
        let Ok(Some(Head::Final {
            parts,
            framing,
            reusable,
        })) = head
        else {
            return None;
        };
        let head_len = bytes.len() - inbox.len();
        Some((head_len, parts.status, parts.headers, framing, reusable))
    };
    let whole = read(bytes);
    if let Some((head_len, ..)) = whole {
        assert_eq!(read(&bytes[..head_len]), whole);
    }
}

/// Reads a chunked body that arrives in pieces of `piece` bytes. Returns the body and the number of bytes after the
/// body, or `None` if the body is invalid or incomplete.
pub(crate) fn read_chunked(wire: &mut BytesMut, piece: usize) -> Option<(Vec<u8>, usize)> {
    let mut chunked = chunked::Chunked::default();
    let (mut inbox, mut body) = (BytesMut::new(), Vec::new());
    loop {
        match chunked.step(&mut inbox).ok()? {
            chunked::Step::Data(bytes) => body.extend_from_slice(&bytes),
            chunked::Step::Trailers(_) => {}
            chunked::Step::End => return Some((body, inbox.len() + wire.len())),
            chunked::Step::NeedMore if wire.is_empty() => return None,
            chunked::Step::NeedMore => {
                let bytes = piece.clamp(1, wire.len());
                inbox.extend_from_slice(&wire.split_to(bytes));
            }
        }
    }
}
