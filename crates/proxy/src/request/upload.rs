//! The body of a request on its way to the origin: streamed, bounded, never kept.
//!
//! The origin's connection asks for the next piece only when it has room, and only then is the
//! client's socket read, so an upload holds one piece in memory however long it is.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::client_io::ConnState;
use crate::counters::Counters;

/// What goes to the origin after a request's head.
pub(crate) enum Upload {
    /// Nothing.
    Empty,
    /// What the client sends.
    Stream(Box<Stream>),
}

pub(crate) struct Stream {
    incoming: Incoming,
    conn: Rc<ConnState>,
    counters: Arc<Counters>,
    bytes_left: u64,
    progress: Rc<UploadProgress>,
}

/// How far an upload is, for those who wait for its answer.
#[derive(Debug)]
pub(crate) struct UploadProgress {
    moved: Cell<Instant>,
    ended: Cell<bool>,
}

impl UploadProgress {
    /// When the last piece came.
    pub(crate) fn moved(&self) -> Instant {
        self.moved.get()
    }

    /// Whether all of it was handed over.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.get()
    }
}

/// The client's body is larger than `request_body_bytes_max`.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the request's body is larger than allowed")]
pub(crate) struct UploadTooLarge;

type UploadError = Box<dyn std::error::Error + Send + Sync>;

impl Upload {
    /// Streams a client's body, and tells how far it is.
    pub(crate) fn stream(
        incoming: Incoming,
        conn: Rc<ConnState>,
        counters: Arc<Counters>,
        bytes_max: u64,
    ) -> (Self, Rc<UploadProgress>) {
        let progress = Rc::new(UploadProgress {
            moved: Cell::new(Instant::now()),
            ended: Cell::new(false),
        });
        let stream = Stream {
            incoming,
            conn,
            counters,
            bytes_left: bytes_max,
            progress: Rc::clone(&progress),
        };
        (Self::Stream(Box::new(stream)), progress)
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let stream = match &mut *self {
            Self::Empty => return Poll::Ready(None),
            Self::Stream(stream) => stream,
        };
        let Poll::Ready(frame) = Pin::new(&mut stream.incoming).poll_frame(cx) else {
            stream.conn.upload_waits();
            return Poll::Pending;
        };
        stream.conn.upload_moves();
        stream.progress.moved.set(Instant::now());
        if frame.is_none() || stream.incoming.is_end_stream() {
            stream.progress.ended.set(true);
        }
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                stream.counters.request_bytes.add(bytes);
                match stream.bytes_left.checked_sub(bytes) {
                    Some(left) => {
                        stream.bytes_left = left;
                        Some(Ok(frame))
                    }
                    None => Some(Err(Box::new(UploadTooLarge))),
                }
            }
            Some(Err(error)) => Some(Err(error.into())),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Stream(stream) => stream.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Stream(stream) => stream.incoming.size_hint(),
        }
    }
}
