//! The body of an origin's response: timed, counted, and its connection kept for the next request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use super::error::OriginError;
use super::pool::Lease;
use crate::counters::Counters;

/// Ends in `None` only if it came whole; a connection that closes early is an error.
pub(crate) struct OriginBody {
    incoming: Incoming,
    lease: Option<Lease>,
    silence_max: Duration,
    /// Made at the first silence: most bodies arrive without one.
    silence: Option<Pin<Box<Sleep>>>,
    is_silent: bool,
    counters: Arc<Counters>,
}

impl OriginBody {
    pub(super) fn new(
        incoming: Incoming,
        lease: Option<Lease>,
        silence_max: Duration,
        counters: Arc<Counters>,
    ) -> Self {
        let mut body = Self {
            incoming,
            lease,
            silence_max,
            silence: None,
            is_silent: false,
            counters,
        };
        if body.incoming.is_end_stream() {
            body.ended();
        }
        body
    }

    fn ended(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.give_back();
        }
    }

    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_silent {
            self.is_silent = true;
            let until = Instant::now() + self.silence_max;
            match &mut self.silence {
                Some(sleep) => sleep.as_mut().reset(until),
                None => self.silence = Some(Box::pin(tokio::time::sleep_until(until))),
            }
        }
        match &mut self.silence {
            Some(sleep) => sleep.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

impl Body for OriginBody {
    type Data = Bytes;
    type Error = OriginError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OriginError>>> {
        let error = match Pin::new(&mut self.incoming).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.is_silent = false;
                if let Some(bytes) = frame.data_ref() {
                    self.counters.origin_bytes.add(bytes.len() as u64);
                }
                if self.incoming.is_end_stream() {
                    self.ended();
                }
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(None) => {
                self.ended();
                return Poll::Ready(None);
            }
            Poll::Ready(Some(Err(error))) => OriginError::from_hyper(error),
            Poll::Pending => {
                std::task::ready!(self.poll_silence(cx));
                OriginError::ReadTimeout
            }
        };
        self.lease = None;
        if let Some(counter) = error.counter(&self.counters) {
            counter.one();
        }
        Poll::Ready(Some(Err(error)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
