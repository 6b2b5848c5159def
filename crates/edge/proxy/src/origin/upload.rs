//! The body of a request to the origin. Its start is buffered, and the rest is streamed.
//!
//! A request takes a connection to the origin when its body is complete or the buffer is full, so that a small slow
//! upload does not occupy a connection. If the length of a body is unknown, the client may wait for a response before
//! it sends more. Such a body is buffered for `upload_buffer_wait`, and longer while there are too many
//! [unfinished uploads](super::unfinished). If the whole body is buffered by then, its length is known, and the origin
//! gets `Content-Length`: some servers, such as those of CGI and WSGI, cannot read other bodies. The rest of a longer
//! body is read from the client's socket only when the origin's connection accepts more bytes, so an upload of any
//! length needs memory only for its buffer and one piece.
//!
//! A body that the client announced with `Expect: 100-continue` waits for the origin or a timeout: see [`Gate`].

use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use edgeward_types::Timestamp;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::error::{OriginError, UploadLimit};
use super::expect::{Expectation, Gate, GateOpened};
use super::interim::InterimRelay;
use super::unfinished::{UnfinishedUpload, UnfinishedUploads};
use crate::config::{LimitsConfig, OriginConfig};
use crate::exchange::{BodyError, ConnState, RequestBody};
use crate::observe::counters::Counters;
use crate::observe::log::SparseLog;
use crate::rt::budget::{MemoryBudget, MemoryShare};
use crate::rt::clock::Clock;
use crate::rt::pace::{MinRate, Pace};

/// The body of a request to the origin.
pub(crate) enum Upload {
    Empty,
    /// The client's body.
    Stream(Box<UploadStream>),
}

/// The body of a client's request, with its buffer.
pub(crate) struct UploadStream {
    incoming: RequestBody,
    uploads: Rc<Uploads>,
    /// The number of bytes that may still arrive before the body exceeds its limit.
    bytes_left: u64,
    progress: Rc<UploadProgress>,
    /// The buffer: the bytes that are read before the request takes a connection.
    prefix: BytesMut,
    /// A frame that was read while the buffer was filled, but did not fit or contains trailers.
    next_frame: Option<Frame<Bytes>>,
    /// Removes the trailers that the origin must not get.
    filter_trailers: FilterTrailers,
    /// True if the client has sent the whole body.
    is_complete: bool,
    /// The gate of a body with `Expect: 100-continue`, until it opens.
    gate: Option<Gate>,
    /// Counts the upload as unfinished until the end of the body.
    unfinished: Option<UnfinishedUpload>,
    /// The prefix's share of the memory of all uploads.
    _memory: Option<MemoryShare>,
}

/// The progress of an upload. The response's timeout, the connection's lease and [`Uploads::sweep`] read it.
#[derive(Debug)]
pub(crate) struct UploadProgress {
    conn: Rc<ConnState>,
    peer: SocketAddr,
    last_progress: Cell<Instant>,
    ended: Cell<bool>,
    pace: Pace,
    /// True if the client need not send bytes at the moment: the origin has answered, or the body has the messages of a
    /// gRPC call. No limit of slow uploads applies. The origin's timeouts apply as to any response.
    may_pause: Cell<bool>,
    /// True if the client sends slower than the minimum rate. The next read of the body then fails.
    too_slow: Cell<bool>,
    /// The task that waits for the client's next bytes.
    task: RefCell<Option<Waker>>,
    expectation: OnceCell<Arc<Expectation>>,
    interims: Arc<InterimRelay>,
}

impl UploadProgress {
    /// Returns the time at which the last piece arrived or was sent.
    pub(crate) fn last_progress(&self) -> Instant {
        self.last_progress.get()
    }

    /// Returns true if the whole body was handed to the origin's connection.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.get()
    }

    pub(crate) fn interims(&self) -> &InterimRelay {
        &self.interims
    }

    fn allow_pauses(&self) {
        self.may_pause.set(true);
        self.conn.end_upload_wait();
    }

    /// Records that the final response has begun.
    pub(crate) fn record_answer(&self) {
        self.allow_pauses();
        if let Some(expectation) = self.expectation.get() {
            expectation.refuse();
        }
    }

    /// Returns true if the origin answered a request with `Expect: 100-continue` without requesting its body.
    pub(crate) fn is_refused(&self) -> bool {
        let expectation = self.expectation.get();
        expectation.is_some_and(|expectation| expectation.is_refused())
    }

    /// Ends a refused body after the response was read or dropped. hyper then closes the connection.
    pub(crate) fn end_if_refused(&self) {
        if let Some(expectation) = self.expectation.get() {
            expectation.end();
        }
    }

    /// Counts the time of waiting for the client. Returns true once, when the client becomes too slow for `rate`.
    pub(crate) fn charge(&self, now: Timestamp, rate: MinRate) -> bool {
        if self.may_pause.get() || self.too_slow.get() {
            return false;
        }
        let exhausted = self.pace.charge(now, rate);
        if exhausted {
            self.too_slow.set(true);
            if let Some(task) = self.task.take() {
                task.wake();
            }
        }
        exhausted
    }
}

/// The uploads of one worker and their common settings.
pub(crate) struct Uploads {
    limits: LimitsConfig,
    expect_timeout: Duration,
    budget: Arc<MemoryBudget>,
    under_way: RefCell<Vec<Weak<UploadProgress>>>,
    unfinished: UnfinishedUploads,
    slow_log: SparseLog,
    counters: Arc<Counters>,
    clock: Arc<Clock>,
}

impl Uploads {
    pub(super) fn new(
        origin: &OriginConfig,
        limits: LimitsConfig,
        budget: Arc<MemoryBudget>,
        counters: Arc<Counters>,
        clock: Arc<Clock>,
    ) -> Rc<Self> {
        Rc::new(Self {
            limits,
            expect_timeout: origin.expect_timeout,
            budget,
            under_way: RefCell::default(),
            unfinished: UnfinishedUploads::new(origin, Arc::clone(&counters), Arc::clone(&clock)),
            slow_log: SparseLog::default(),
            counters,
            clock,
        })
    }

    /// Returns the limiter of uploads that use a connection to the origin before their body has arrived.
    pub(crate) fn unfinished(&self) -> &UnfinishedUploads {
        &self.unfinished
    }

    /// Aborts uploads that are slower than `rate`.
    pub(super) fn sweep(&self, now: Timestamp, rate: MinRate) {
        self.under_way.borrow_mut().retain(|upload| {
            let Some(upload) = upload.upgrade() else {
                return false;
            };
            if upload.charge(now, rate) {
                self.counters.slow_uploads.increment();
                if let Some(unlogged) = self.slow_log.record(now) {
                    let client = upload.peer.ip();
                    tracing::warn!(%client, unlogged, "a request body arrived slower than limits.upload_rate_min");
                }
            }
            true
        });
    }
}

/// Removes trailers of a request.
pub(crate) type FilterTrailers = Box<dyn Fn(&mut HeaderMap)>;

impl Upload {
    /// Returns the length of the body, or `None` if it is known only at its end.
    pub(crate) fn length(&self) -> Option<u64> {
        self.size_hint().exact()
    }

    /// Returns the stream of a client's body, and its progress. The body fails when it exceeds `bytes_max`.
    /// `filter_trailers` removes trailers that the origin must not get.
    pub(crate) fn stream(
        incoming: RequestBody,
        uploads: &Rc<Uploads>,
        conn: Rc<ConnState>,
        peer: SocketAddr,
        bytes_max: Option<u64>,
        filter_trailers: FilterTrailers,
    ) -> (Box<UploadStream>, Rc<UploadProgress>) {
        let progress = Rc::new(UploadProgress {
            conn,
            peer,
            last_progress: Cell::new(Instant::now()),
            ended: Cell::new(false),
            pace: Pace::default(),
            may_pause: Cell::new(false),
            too_slow: Cell::new(false),
            task: RefCell::new(None),
            expectation: OnceCell::new(),
            interims: Arc::default(),
        });
        uploads
            .under_way
            .borrow_mut()
            .push(Rc::downgrade(&progress));
        let stream = Box::new(UploadStream {
            incoming,
            uploads: Rc::clone(uploads),
            bytes_left: bytes_max.unwrap_or(u64::MAX),
            progress: Rc::clone(&progress),
            prefix: BytesMut::new(),
            next_frame: None,
            filter_trailers,
            is_complete: false,
            gate: None,
            unfinished: None,
            _memory: None,
        });
        (stream, progress)
    }
}

impl UploadStream {
    /// Records that the body has the messages of a gRPC call, between which the client may pause.
    pub(crate) fn set_paced_by_calls(&mut self) {
        self.progress.allow_pauses();
    }

    /// Delays the read of the body until the origin requests the body or `origin.expect_timeout` has passed.
    pub(crate) fn expect_continue(&mut self, unfinished: UnfinishedUpload) {
        self.unfinished = Some(unfinished);
        let gate = Gate::new(self.uploads.expect_timeout);
        let expectation = Arc::clone(gate.expectation());
        self.progress.expectation.get_or_init(|| expectation);
        self.gate = Some(gate);
    }

    /// Reads the start of the body into the buffer, up to the limits of bytes and time, or the whole body.
    pub(crate) async fn buffer(&mut self) -> Result<(), OriginError> {
        let limits = &self.uploads.limits;
        let wait_max = limits.upload_buffer_wait;
        // A client that announces a length does not wait for the response before it sends the whole body.
        let has_length = self.incoming.size_hint().exact().is_some();
        let budget = Arc::clone(&self.uploads.budget);
        let Some(mut memory) = budget.reserve(0) else {
            return Ok(());
        };
        let uploads = Rc::clone(&self.uploads);
        let client = self.progress.peer.ip();
        let mut unfinished = None;
        let buffered = {
            let mut reading = pin!(poll_fn(|cx| self.poll_prefix(cx, &mut memory)));
            if has_length {
                reading.await
            } else {
                let mut wait = wait_max;
                loop {
                    if let Ok(read) = tokio::time::timeout(wait, &mut reading).await {
                        break read;
                    }
                    unfinished = uploads.unfinished.begin(client);
                    if unfinished.is_some() {
                        break Ok(());
                    }
                    if wait == wait_max {
                        uploads.unfinished.record_kept_upload();
                    }
                    wait = wait_max + RETRY_INTERVAL;
                }
            }
        };
        self.unfinished = unfinished;
        self._memory = Some(memory);
        buffered.map_err(OriginError::from_upload)
    }

    fn poll_prefix(
        &mut self,
        cx: &mut Context<'_>,
        memory: &mut MemoryShare,
    ) -> Poll<Result<(), BodyError>> {
        let prefix_max = self.uploads.limits.upload_buffer_bytes.bytes();
        let prefix_max = usize::try_from(prefix_max).unwrap_or(usize::MAX);
        while self.prefix.len() < prefix_max && self.next_frame.is_none() && !self.is_complete {
            let frame = match ready!(self.poll_incoming(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => break,
            };
            let Some(data) = frame.data_ref() else {
                self.next_frame = Some(frame);
                break;
            };
            // The share grows to powers of two, so that the budget is charged rarely and not for each piece. The
            // pieces are copied, because each piece may pin a read buffer of many kilobytes.
            let needed = self.prefix.len() + data.len();
            if needed > prefix_max || !memory.grow_to(needed.next_power_of_two().max(1024) as u64) {
                self.next_frame = Some(frame);
                break;
            }
            self.prefix.extend_from_slice(data);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads the next frame from the client.
    fn poll_incoming(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let progress = &self.progress;
        if progress.too_slow.get() {
            return Poll::Ready(Some(Err(Box::new(UploadLimit::Rate))));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
            if !progress.may_pause.get() {
                progress.conn.begin_upload_wait();
            }
            progress.pace.begin_wait(self.uploads.clock.now());
            progress.task.replace(Some(cx.waker().clone()));
            return Poll::Pending;
        };
        progress.conn.end_upload_wait();
        progress.pace.end_wait(self.uploads.clock.now());
        progress.last_progress.set(Instant::now());
        if frame.is_none() || self.incoming.is_end_stream() {
            self.is_complete = true;
        }
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                progress.pace.earn(bytes);
                progress.conn.record_content_read(bytes);
                self.uploads.counters.request_bytes.add(bytes);
                match self.bytes_left.checked_sub(bytes) {
                    Some(left) => {
                        self.bytes_left = left;
                        Some(Ok(match frame.into_trailers() {
                            Ok(mut trailers) => {
                                (self.filter_trailers)(&mut trailers);
                                Frame::trailers(trailers)
                            }
                            Err(data) => data,
                        }))
                    }
                    None => {
                        self.uploads.counters.bodies_streamed_too_large.increment();
                        Some(Err(Box::new(UploadLimit::Size)))
                    }
                }
            }
            Some(Err(error)) => Some(Err(error)),
            None => None,
        })
    }

    fn is_sent(&self) -> bool {
        self.prefix.is_empty() && self.next_frame.is_none() && self.is_complete
    }
}

impl Upload {
    /// Returns the expectation of `100 Continue`, if the body is sent only after the origin requests it.
    pub(super) fn expectation(&self) -> Option<&Arc<Expectation>> {
        match self {
            Self::Stream(stream) => stream.gate.as_ref().map(Gate::expectation),
            Self::Empty => None,
        }
    }

    /// Returns the relay of interim responses, unless the body is empty.
    pub(super) fn interim_relay(&self) -> Option<Arc<InterimRelay>> {
        match self {
            Self::Stream(stream) => Some(Arc::clone(&stream.progress.interims)),
            Self::Empty => None,
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let stream = match &mut *self {
            Self::Empty => return Poll::Ready(None),
            Self::Stream(stream) => stream,
        };
        if let Some(gate) = &mut stream.gate {
            let counters = &stream.uploads.counters;
            match ready!(gate.poll(cx))? {
                GateOpened::Continue => counters.expectations_continued.increment(),
                GateOpened::TimedOut => counters.expectations_timeout.increment(),
            }
            stream.gate = None;
        }
        let frame = if !stream.prefix.is_empty() {
            Some(Ok(Frame::data(stream.prefix.split().freeze())))
        } else if let Some(frame) = stream.next_frame.take() {
            Some(Ok(frame))
        } else if stream.is_complete {
            None
        } else {
            ready!(stream.poll_incoming(cx))
        };
        if stream.is_sent() {
            stream.progress.last_progress.set(Instant::now());
            stream.progress.ended.set(true);
            stream.unfinished = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Stream(stream) => {
                stream.is_sent()
                    || (stream.prefix.is_empty()
                        && stream.next_frame.is_none()
                        && stream.incoming.is_end_stream())
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Stream(stream) => {
                let next = stream.next_frame.as_ref().and_then(Frame::data_ref);
                let buffered = (stream.prefix.len() + next.map_or(0, Bytes::len)) as u64;
                let has_trailers = stream.next_frame.is_some() && next.is_none();
                match stream.incoming.size_hint().exact() {
                    Some(left) => SizeHint::with_exact(buffered + left),
                    // The whole body is in the buffer. Trailers need the chunked coding (RFC 9112 §7.1.2).
                    None if stream.is_complete && !has_trailers => SizeHint::with_exact(buffered),
                    None => SizeHint::default(),
                }
            }
        }
    }
}

/// An upload that stays buffered tries again to take a connection after `upload_buffer_wait` plus this time.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
