//! The body of an origin's response, with a read timeout. After the body, its connection returns to the pool.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use edgeward_sites::Replacer;
use edgeward_store::hot::ChargeGuard;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use super::error::OriginError;
use super::h1;
use super::lease::{Lease, PooledConnection};
use super::servers::Chosen;
use super::share_limit::ShareSlot;
use crate::observe::counters::Counters;

/// The body of a response. `poll_frame` returns `None` after a complete body, or an error if the body ended early.
pub(crate) struct OriginBody {
    source: BodySource,
    lease: Option<Lease>,
    /// The longest time without a byte of the body.
    silence_max: Duration,
    /// The timer of `silence_max`, allocated when the body is first pending. Most bodies are never pending.
    silence_timer: Option<Pin<Box<Sleep>>>,
    timer_runs: bool,
    counters: Arc<Counters>,
    /// Counts the request as under way at its server until the end of the body.
    server: Option<Chosen>,
    /// The slot of a connection outside of the pool.
    slot: Option<ShareSlot>,
    /// Replaces strings in the body, until its end.
    replacing: Option<Box<Replacing>>,
    /// Called if the body ends early.
    on_failure: Option<OnFailure>,
}

/// A body in which strings are replaced. Its pieces are as long as those of other bodies, so that the reader of the
/// body charges them as such. They are made from a piece of the origin, which is charged here.
struct Replacing {
    replacer: Replacer,
    charge: Box<dyn Fn(u64) -> ChargeGuard>,
    held: Option<ChargeGuard>,
}

/// A function that learns that a body ended early.
type OnFailure = Box<dyn FnOnce(&OriginError)>;

/// The reader of a body.
pub(super) enum BodySource {
    /// hyper's client reads the connection.
    Hyper(Incoming),
    /// The parser of this crate reads the connection.
    Direct(h1::Body),
    /// The body is complete, and its connection was released.
    Ended,
}

impl BodySource {
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Hyper(incoming) => incoming.is_end_stream(),
            Self::Direct(body) => body.has_ended(),
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
                .map_err(OriginError::from_hyper),
            Self::Direct(body) => body.poll_frame(cx).map_err(OriginError::from_h1),
            Self::Ended => Poll::Ready(None),
        }
    }
}

impl OriginBody {
    /// Returns the body of a response. `lease` is the slot of its connection in the pool; an HTTP/2 stream has none.
    pub(super) fn new(
        source: BodySource,
        lease: Option<Lease>,
        silence_max: Duration,
        counters: Arc<Counters>,
    ) -> Self {
        let mut body = Self {
            source,
            lease,
            silence_max,
            silence_timer: None,
            timer_runs: false,
            counters,
            server: None,
            slot: None,
            replacing: None,
            on_failure: None,
        };
        if body.source.is_end_stream() {
            body.release_connection();
        }
        body
    }

    /// Sets the server that sends the body.
    pub(super) fn set_server(&mut self, server: Chosen) {
        self.server = (!self.source.is_end_stream()).then_some(server);
    }

    /// Replaces strings in the body. Its trailers are dropped, because they may describe the body of the origin.
    /// `charge` charges bytes to the cache.
    pub(crate) fn set_replacer(
        &mut self,
        replacer: Replacer,
        charge: impl Fn(u64) -> ChargeGuard + 'static,
    ) {
        self.replacing = (!self.source.is_end_stream()).then(|| {
            Box::new(Replacing {
                replacer,
                charge: Box::new(charge),
                held: None,
            })
        });
    }

    /// Calls a function if the body ends early, with each kind of reader.
    pub(crate) fn on_failure(&mut self, call: impl FnOnce(&OriginError) + 'static) {
        self.on_failure = (!self.source.is_end_stream()).then(|| Box::new(call) as OnFailure);
    }

    /// Returns true if the body occupies a connection and other requests wait for one.
    pub(crate) fn delays_requests(&self) -> bool {
        self.lease.as_ref().is_some_and(Lease::is_contended)
    }

    /// Keeps the slot until the connection is closed after the body.
    pub(super) fn with_slot(mut self, slot: ShareSlot) -> Self {
        if !self.source.is_end_stream() {
            self.slot = Some(slot);
        }
        self
    }

    fn release_connection(&mut self) {
        self.server = None;
        let source = std::mem::replace(&mut self.source, BodySource::Ended);
        self.slot = None;
        let Some(lease) = self.lease.take() else {
            return;
        };
        match source {
            BodySource::Direct(body) => {
                if let Some(connection) = body.into_connection() {
                    lease.release(PooledConnection::Direct(connection));
                }
            }
            BodySource::Hyper(_) | BodySource::Ended => lease.release_sender(),
        }
    }

    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.timer_runs {
            self.timer_runs = true;
            let until = Instant::now() + self.silence_max;
            match &mut self.silence_timer {
                Some(sleep) => sleep.as_mut().reset(until),
                None => self.silence_timer = Some(Box::pin(tokio::time::sleep_until(until))),
            }
        }
        match &mut self.silence_timer {
            Some(sleep) => sleep.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }

    /// Reads the next frame as the origin sent it.
    fn poll_source(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OriginError>>> {
        let error = match self.source.poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.timer_runs = false;
                if let Some(bytes) = frame.data_ref() {
                    self.counters.origin_bytes.add(bytes.len() as u64);
                }
                if self.source.is_end_stream() {
                    self.release_connection();
                }
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(None) => {
                self.release_connection();
                return Poll::Ready(None);
            }
            Poll::Ready(Some(Err(error))) => error,
            Poll::Pending => {
                std::task::ready!(self.poll_silence(cx));
                OriginError::ReadTimeout
            }
        };
        (self.lease, self.server) = (None, None);
        error.count(&self.counters);
        if let Some(call) = self.on_failure.take() {
            call(&error);
        }
        Poll::Ready(Some(Err(error)))
    }
}

impl Body for OriginBody {
    type Data = Bytes;
    type Error = OriginError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OriginError>>> {
        let this = &mut *self;
        loop {
            if let Some(replacing) = &mut this.replacing {
                let bytes = replacing.replacer.pull(REPLACED_PIECE_BYTES);
                if !bytes.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::data(bytes.into()))));
                }
                replacing.held = None;
                if replacing.replacer.has_ended() {
                    this.replacing = None;
                    return Poll::Ready(None);
                }
            }
            let polled = std::task::ready!(this.poll_source(cx));
            let Some(replacing) = &mut this.replacing else {
                return Poll::Ready(polled);
            };
            match polled {
                Some(Ok(frame)) => {
                    // Trailers are dropped.
                    if let Ok(bytes) = frame.into_data() {
                        replacing.replacer.push(&bytes);
                        let held_bytes = replacing.replacer.held_bytes() as u64;
                        replacing.held = Some((replacing.charge)(held_bytes));
                    }
                }
                None => replacing.replacer.end(),
                Some(Err(error)) => {
                    // The body is incomplete, so the bytes that are held back are of no use.
                    this.replacing = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.replacing.is_none() && self.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.replacing.is_some() {
            return SizeHint::default();
        }
        match &self.source {
            BodySource::Hyper(incoming) => incoming.size_hint(),
            BodySource::Direct(body) => body
                .remaining_bytes()
                .map_or_else(SizeHint::default, SizeHint::with_exact),
            BodySource::Ended => SizeHint::with_exact(0),
        }
    }
}

/// The longest piece of a body in which strings are replaced, as long as the longest piece that hyper gets at once.
const REPLACED_PIECE_BYTES: usize = 128 << 10;
