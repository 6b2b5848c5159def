//! HTTP/1.1 towards the origin for requests without a body, carried out by whoever waits for the answer.
//!
//! hyper's client runs a task a connection and passes every request and response through a channel: it must,
//! since either side may speak at any time. A GET is simpler. One piece goes out, one response comes in, and until
//! the next request nobody has to listen. So the fetch itself writes, reads and counts bytes here, and a miss needs one
//! task less and no channel. Uploads and HTTP/2 stay with hyper.
//!
//! What is understood is less than the grammar allows, on purpose: a response whose end could be seen in two ways is
//! an error (RFC 9112 §6.3), and a connection on which anything odd happened is not used again.

mod body;
mod chunked;
mod head;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use http::Method;
use http::response::Parts;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, Sleep};

use super::connect::OriginStream;
use crate::base::config::LimitsConfig;
use crate::base::partial_head::PartialHead;
use crate::exchange::InterimSink;

pub(super) use body::Body;
use body::Framing;
use head::Head;

/// Bounds of a response's head.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadLimits {
    pub(super) bytes_max: usize,
    pub(super) fields_max: usize,
}

impl HeadLimits {
    pub(super) fn of(limits: &LimitsConfig) -> Self {
        Self {
            bytes_max: limits.head_len_max(),
            fields_max: limits.headers_max.get(),
        }
    }
}

/// Why a response could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum H1Error {
    /// The connection failed.
    #[error("the connection failed")]
    Io(#[from] io::Error),
    /// It was closed before the response was whole.
    #[error("the connection was closed early")]
    Closed,
    /// The head is no head.
    #[error("its head: {0}")]
    Head(httparse::Error),
    /// The head is beyond its limits.
    #[error("its head is too large")]
    HeadTooLarge,
    /// Where the response ends, or what it is, cannot be told for certain.
    #[error("{0}")]
    Framing(&'static str),
    /// Nothing came for too long.
    #[error("nothing came in time")]
    Silent,
}

/// A failed exchange, and whether the origin had begun to answer.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: H1Error,
    pub(super) answered: bool,
}

/// A connection between two responses, or in the middle of one.
pub(super) struct Connection {
    stream: Box<dyn OriginStream>,
    /// What has arrived and nobody has taken yet.
    inbox: BytesMut,
    /// How far the head at the front of the inbox was parsed.
    partial: PartialHead,
    /// As much as the last response had: the next is likely to be of its kind.
    read_bytes: usize,
    /// Putting an alarm off costs less than setting a new one, so it is kept from request to request.
    alarm: Pin<Box<Sleep>>,
}

impl Connection {
    pub(super) fn new(stream: Box<dyn OriginStream>) -> Self {
        Self {
            stream,
            inbox: BytesMut::new(),
            partial: PartialHead::default(),
            read_bytes: READ_BYTES_MIN,
            alarm: Box::pin(tokio::time::sleep_until(Instant::now())),
        }
    }

    /// For hyper, of a connection that [is quiet](Self::is_quiet).
    pub(super) fn into_stream(self) -> Box<dyn OriginStream> {
        self.stream
    }

    /// Whether nothing has come since its last response: neither an end nor bytes nobody asked for.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.inbox.is_empty() && self.stream.is_quiet()
    }

    /// Sends a request and reads the head of its response, all within `timeout`.
    pub(super) async fn exchange(
        mut self,
        request: &[u8],
        method: &Method,
        limits: HeadLimits,
        timeout: Duration,
        interims: Option<&InterimSink>,
    ) -> Result<(Box<Parts>, Body), Failed> {
        let mut outbox = Outbox {
            left: request,
            flushed: false,
        };
        self.alarm.as_mut().reset(Instant::now() + timeout);
        let exchanged = poll_fn(|cx| {
            let polled = match self.poll_send(cx, &mut outbox) {
                Poll::Ready(Ok(())) => self.poll_head(cx, limits, method, interims),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            };
            if polled.is_pending() {
                ready!(self.alarm.as_mut().poll(cx));
                return Poll::Ready(Err(H1Error::Silent));
            }
            polled
        })
        .await;
        match exchanged {
            Ok((parts, framing, reusable)) => Ok((parts, Body::new(self, framing, reusable))),
            Err(error) => Err(Failed {
                error,
                answered: !self.inbox.is_empty(),
            }),
        }
    }

    /// Writes what is left of a request and sees it out.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        outbox: &mut Outbox<'_>,
    ) -> Poll<Result<(), H1Error>> {
        let stream = &mut self.stream;
        while !outbox.left.is_empty() {
            match ready!(Pin::new(&mut *stream).poll_write(cx, outbox.left))? {
                0 => return Poll::Ready(Err(H1Error::Closed)),
                n => outbox.left = &outbox.left[n..],
            }
        }
        if !outbox.flushed {
            // TLS keeps what it has until it is told to let go.
            ready!(Pin::new(stream).poll_flush(cx))?;
            outbox.flushed = true;
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
        let mut left = INTERIM_MAX;
        loop {
            let is_open =
                self.inbox.len() < limits.bytes_max && !self.partial.may_be_complete(&self.inbox);
            let head = if is_open {
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
                    parts,
                    framing,
                    reusable,
                }) => return Poll::Ready(Ok((parts, framing, reusable))),
                Some(Head::Interim(_)) if left == 0 => {
                    return Poll::Ready(Err(H1Error::Framing("more interim responses than any")));
                }
                Some(Head::Interim(lines)) => {
                    left -= 1;
                    if let (Some(interims), Some(lines)) = (interims, lines) {
                        interims.push(&lines);
                    }
                }
                None => {
                    if ready!(self.poll_fill(cx, self.read_bytes))? == 0 {
                        return Poll::Ready(Err(H1Error::Closed));
                    }
                }
            }
        }
    }

    /// Reads what there is, at most about `most` bytes.
    fn poll_fill(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<usize>> {
        self.inbox.reserve(most);
        // Nothing is lost by giving this future up: it reads at once or not at all.
        pin!(self.stream.read_buf(&mut self.inbox)).poll(cx)
    }
}

/// A head, where its body ends, and whether the connection can serve on behind that.
type ReadHead = (Box<Parts>, Framing, bool);

/// A request on its way out.
struct Outbox<'a> {
    left: &'a [u8],
    flushed: bool,
}

/// Bytes of one read: a small response with its head fits, and a large one is not cut too small.
const READ_BYTES_MIN: usize = 8 << 10;
const READ_BYTES_MAX: usize = 64 << 10;

/// RFC 9110 §15.2 lets an origin send any number of interim responses; this many come with one final response.
const INTERIM_MAX: u32 = 16;

/// Reads a response's head, for [`hostile`](crate::hostile). What is read of it must not depend on what follows it.
pub(crate) fn check_response_head(bytes: &[u8]) {
    let limits = HeadLimits {
        bytes_max: 64 << 10,
        fields_max: 100,
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

/// Reads a chunked body that arrives in pieces: its bytes, and how many bytes lie behind it. `None` for one that is
/// refused or does not end.
pub(crate) fn read_chunked(wire: &mut BytesMut, piece: usize) -> Option<(Vec<u8>, usize)> {
    let mut chunked = chunked::Chunked::default();
    let (mut inbox, mut body) = (BytesMut::new(), Vec::new());
    loop {
        match chunked.step(&mut inbox).ok()? {
            chunked::Step::Data(bytes) => body.extend_from_slice(&bytes),
            chunked::Step::Trailers(_) => {}
            chunked::Step::End => return Some((body, inbox.len() + wire.len())),
            chunked::Step::More if wire.is_empty() => return None,
            chunked::Step::More => {
                let bytes = piece.clamp(1, wire.len());
                inbox.extend_from_slice(&wire.split_to(bytes));
            }
        }
    }
}
