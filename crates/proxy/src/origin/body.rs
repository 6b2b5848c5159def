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
use super::h1;
use super::lease::{Lease, Reusable};
use crate::base::counters::Counters;

/// Ends in `None` only if it came whole; a connection that closes early is an error.
pub(crate) struct OriginBody {
    coming: Coming,
    lease: Option<Lease>,
    silence_max: Duration,
    /// Made at the first silence: most bodies arrive without one.
    silence: Option<Pin<Box<Sleep>>>,
    is_silent: bool,
    counters: Arc<Counters>,
}

/// Whose connection it comes by.
enum Coming {
    Hyper(Incoming),
    Own(h1::Body),
    /// Read whole, and its connection given back.
    Ended,
}

impl Coming {
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Hyper(incoming) => incoming.is_end_stream(),
            Self::Own(body) => body.has_ended(),
            Self::Ended => true,
        }
    }

    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OriginError>>> {
        match self {
            Self::Hyper(incoming) => Pin::new(incoming)
                .poll_frame(cx)
                .map(|next| next.map(|frame| frame.map_err(OriginError::from_hyper))),
            Self::Own(body) => body
                .poll_frame(cx)
                .map(|next| next.map(|frame| frame.map_err(OriginError::from_h1))),
            Self::Ended => Poll::Ready(None),
        }
    }
}

impl OriginBody {
    /// The rest of a response that came through hyper. An HTTP/2 stream leases no connection.
    pub(super) fn of_hyper(
        incoming: Incoming,
        lease: Option<Lease>,
        silence_max: Duration,
        counters: Arc<Counters>,
    ) -> Self {
        Self::new(Coming::Hyper(incoming), lease, silence_max, counters)
    }

    /// The rest of a response on a connection of our own.
    pub(super) fn own(
        body: h1::Body,
        lease: Lease,
        silence_max: Duration,
        counters: Arc<Counters>,
    ) -> Self {
        Self::new(Coming::Own(body), Some(lease), silence_max, counters)
    }

    fn new(
        coming: Coming,
        lease: Option<Lease>,
        silence_max: Duration,
        counters: Arc<Counters>,
    ) -> Self {
        let mut body = Self {
            coming,
            lease,
            silence_max,
            silence: None,
            is_silent: false,
            counters,
        };
        if body.coming.is_end_stream() {
            body.ended();
        }
        body
    }

    fn ended(&mut self) {
        let coming = std::mem::replace(&mut self.coming, Coming::Ended);
        let Some(lease) = self.lease.take() else {
            return;
        };
        match coming {
            Coming::Own(body) => {
                if let Some(connection) = body.into_connection() {
                    lease.give_back(Reusable::Own(connection));
                }
            }
            Coming::Hyper(_) | Coming::Ended => lease.give_back_sender(),
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
        let error = match self.coming.poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.is_silent = false;
                if let Some(bytes) = frame.data_ref() {
                    self.counters.origin_bytes.add(bytes.len() as u64);
                }
                if self.coming.is_end_stream() {
                    self.ended();
                }
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(None) => {
                self.ended();
                return Poll::Ready(None);
            }
            Poll::Ready(Some(Err(error))) => error,
            Poll::Pending => {
                std::task::ready!(self.poll_silence(cx));
                OriginError::ReadTimeout
            }
        };
        self.lease = None;
        if let Some(counter) = error.counter(&self.counters) {
            counter.increment();
        }
        Poll::Ready(Some(Err(error)))
    }

    fn is_end_stream(&self) -> bool {
        self.coming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.coming {
            Coming::Hyper(incoming) => incoming.size_hint(),
            Coming::Own(body) => body
                .left()
                .map_or_else(SizeHint::default, SizeHint::with_exact),
            Coming::Ended => SizeHint::with_exact(0),
        }
    }
}
