//! The body of a request, whose connection counts as waiting for its client until the last byte.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::client_stream::PROGRESS_BYTES;
use crate::slots::Slot;

/// The body of a request.
///
/// Until it has arrived completely, the connection waits for its client and gives up its place if a full server accepts
/// a new connection. Otherwise a client with slow bodies could use all places that its address may have. The wait
/// begins again after each 16 KiB, so that an upload that makes progress goes after those that
/// make none.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Incoming,
    /// `None` after the end of the body.
    slot: Option<Arc<Slot>>,
    /// The number of bytes since the wait began.
    bytes: usize,
}

impl RequestBody {
    pub(crate) fn new(incoming: Incoming, slot: &Arc<Slot>) -> Self {
        let slot = (!incoming.is_end_stream()).then(|| Arc::clone(slot));
        if let Some(slot) = &slot {
            slot.wait_for_body();
        }
        Self {
            incoming,
            slot,
            bytes: 0,
        }
    }

    fn end(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.resume();
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let polled = Pin::new(&mut self.incoming).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) if !self.incoming.is_end_stream() => {
                self.bytes += frame.data_ref().map_or(0, Bytes::len);
                if self.bytes >= PROGRESS_BYTES
                    && let Some(slot) = &self.slot
                {
                    slot.resume();
                    slot.wait_for_body();
                    self.bytes = 0;
                }
            }
            Poll::Ready(_) => self.end(),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.end();
    }
}
