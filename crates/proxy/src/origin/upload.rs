//! The body of a request on its way to the origin: buffered up to a bound, then streamed.
//!
//! A request asks for a connection to the origin when its body is whole or when the buffer is full, so that a
//! small upload holds no connection while it trickles in. A body of unknown length may belong to a client that waits for
//! an answer before it sends more; such a body is waited for `upload_buffer_wait`, and then as long as too many requests
//! hold a connection without their whole body. From then on
//! the origin's connection asks for the next piece only when it has room, and only then is the client's socket read, so an
//! upload holds its buffer and one piece in memory however long it is.
//!
//! A body that the client announced with `Expect: 100-continue` is not read before the origin asks for it: see [`Gate`].

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
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::error::{OriginError, UploadTooLarge, UploadTooSlow};
use super::expect::{Expectation, Gate, Opened};
use super::interim::InterimRelay;
use super::unfinished::{Unfinished, UnfinishedUploads};
use crate::base::budget::{MemoryBudget, MemoryShare};
use crate::base::clock::Clock;
use crate::base::config::{LimitsConfig, OriginConfig};
use crate::base::counters::Counters;
use crate::base::pace::{MinRate, Pace};
use crate::base::sparse_log::SparseLog;
use crate::exchange::ConnState;

/// What goes to the origin after a request's head.
pub(crate) enum Upload {
    /// Nothing.
    Empty,
    /// What the client sends.
    Stream(Box<Stream>),
}

pub(crate) struct Stream {
    incoming: Incoming,
    uploads: Rc<Uploads>,
    conn: Rc<ConnState>,
    bytes_left: u64,
    progress: Rc<UploadProgress>,
    /// What was read before the origin was asked.
    front: BytesMut,
    /// A frame that came while the front was read and does not belong into it.
    next: Option<Frame<Bytes>>,
    /// Nothing more comes from the client.
    is_whole: bool,
    /// Closed while the origin has not asked for the body.
    gate: Option<Gate>,
    /// Held from the time when a connection is asked for to the end of the body.
    unfinished: Option<Unfinished>,
    /// The front's share of the budget of all uploads.
    _memory: Option<MemoryShare>,
}

/// How far an upload is, for its answer and for the sweep.
#[derive(Debug)]
pub(crate) struct UploadProgress {
    peer: SocketAddr,
    moved: Cell<Instant>,
    ended: Cell<bool>,
    pace: Pace,
    /// The origin has answered: what the client still sends, and when, is between the two of them.
    answered: Cell<bool>,
    too_slow: Cell<bool>,
    task: RefCell<Option<Waker>>,
    expectation: OnceCell<Arc<Expectation>>,
    interims: Arc<InterimRelay>,
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

    /// Interim responses of the origin that the client has not got.
    pub(crate) fn interims(&self) -> &InterimRelay {
        &self.interims
    }

    /// The origin has begun to answer.
    pub(crate) fn record_answer(&self) {
        self.answered.set(true);
        if let Some(expectation) = self.expectation.get() {
            expectation.answer();
        }
    }

    /// The origin answered a request with `Expect: 100-continue` without asking for its body.
    pub(crate) fn is_refused(&self) -> bool {
        let expectation = self.expectation.get();
        expectation.is_some_and(|expectation| expectation.is_refused())
    }

    /// The response was read, or nobody reads it: a refused body ends its connection to the origin.
    pub(crate) fn end_if_refused(&self) {
        if let Some(expectation) = self.expectation.get() {
            expectation.end();
        }
    }

    /// Charges the client with the time in which the edge waited for it. True if it has just become too slow.
    pub(crate) fn charge(&self, now: Timestamp, rate: MinRate) -> bool {
        if self.answered.get() || self.too_slow.get() {
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

/// What the uploads of one worker share, and the list of those under way.
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

    /// Bounds the uploads that hold a connection to the origin before their body has arrived.
    pub(crate) fn unfinished(&self) -> &UnfinishedUploads {
        &self.unfinished
    }

    /// Ends uploads that are slower than `rate`.
    pub(super) fn sweep(&self, now: Timestamp, rate: MinRate) {
        self.under_way.borrow_mut().retain(|upload| {
            let Some(upload) = upload.upgrade() else {
                return false;
            };
            if upload.charge(now, rate) {
                self.counters.slow_uploads.increment();
                if let Some(unlogged) = self.slow_log.record(now) {
                    let client = upload.peer.ip();
                    tracing::warn!(%client, unlogged, "a request body came slower than limits.upload_rate_min");
                }
            }
            true
        });
    }
}

type UploadError = Box<dyn std::error::Error + Send + Sync>;

impl Upload {
    /// Streams a client's body, and tells how far it is.
    pub(crate) fn stream(
        incoming: Incoming,
        uploads: &Rc<Uploads>,
        conn: Rc<ConnState>,
        peer: SocketAddr,
    ) -> (Box<Stream>, Rc<UploadProgress>) {
        let progress = Rc::new(UploadProgress {
            peer,
            moved: Cell::new(Instant::now()),
            ended: Cell::new(false),
            pace: Pace::default(),
            answered: Cell::new(false),
            too_slow: Cell::new(false),
            task: RefCell::new(None),
            expectation: OnceCell::new(),
            interims: Arc::default(),
        });
        uploads
            .under_way
            .borrow_mut()
            .push(Rc::downgrade(&progress));
        let bytes_max = uploads.limits.request_body_bytes_max;
        let stream = Box::new(Stream {
            incoming,
            uploads: Rc::clone(uploads),
            conn,
            bytes_left: bytes_max.map_or(u64::MAX, edgeward_types::ByteSize::bytes),
            progress: Rc::clone(&progress),
            front: BytesMut::new(),
            next: None,
            is_whole: false,
            gate: None,
            unfinished: None,
            _memory: None,
        });
        (stream, progress)
    }
}

impl Stream {
    /// Holds the body back until the origin asks for it.
    pub(crate) fn expect_continue(&mut self, unfinished: Unfinished) {
        self.unfinished = Some(unfinished);
        let gate = Gate::new(self.uploads.expect_timeout);
        let expectation = Arc::clone(gate.expectation());
        self.progress.expectation.get_or_init(|| expectation);
        self.gate = Some(gate);
    }

    /// Reads the front of the body: all of it, or as much as the bounds allow.
    pub(crate) async fn buffer(&mut self) -> Result<(), OriginError> {
        let limits = &self.uploads.limits;
        let wait_max = limits.upload_buffer_wait;
        // A body with a length is one piece of work for its client; any other may be one half of a conversation.
        let has_length = self.incoming.size_hint().exact().is_some();
        let budget = Arc::clone(&self.uploads.budget);
        let Some(mut memory) = budget.reserve(0) else {
            return Ok(());
        };
        let uploads = Rc::clone(&self.uploads);
        let client = self.progress.peer.ip();
        let mut unfinished = None;
        let buffered = {
            let mut reading = pin!(poll_fn(|cx| self.poll_front(cx, &mut memory)));
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
                    wait = wait_max + ASK_AGAIN_AFTER;
                }
            }
        };
        self.unfinished = unfinished;
        self._memory = Some(memory);
        buffered.map_err(OriginError::from_upload)
    }

    fn poll_front(
        &mut self,
        cx: &mut Context<'_>,
        memory: &mut MemoryShare,
    ) -> Poll<Result<(), UploadError>> {
        let most = self.uploads.limits.upload_buffer_bytes.bytes();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        while self.front.len() < most && self.next.is_none() && !self.is_whole {
            let frame = match ready!(self.poll_incoming(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => break,
            };
            let Some(data) = frame.data_ref() else {
                self.next = Some(frame);
                break;
            };
            // A share of a power of two, so that the budget is asked a few times and not for each byte. The pieces are copied,
            // since each of them may keep a read buffer of many kilobytes alive.
            let needed = self.front.len() + data.len();
            if needed > most || !memory.grow_to(needed.next_power_of_two().max(1024) as u64) {
                self.next = Some(frame);
                break;
            }
            self.front.extend_from_slice(data);
        }
        Poll::Ready(Ok(()))
    }

    /// The next frame from the client.
    fn poll_incoming(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let progress = &self.progress;
        if progress.too_slow.get() {
            return Poll::Ready(Some(Err(Box::new(UploadTooSlow))));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
            self.conn.begin_upload_wait();
            progress.pace.begin_wait(self.uploads.clock.now());
            progress.task.replace(Some(cx.waker().clone()));
            return Poll::Pending;
        };
        self.conn.end_upload_wait();
        progress.pace.end_wait(self.uploads.clock.now());
        progress.moved.set(Instant::now());
        if frame.is_none() || self.incoming.is_end_stream() {
            self.is_whole = true;
        }
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                progress.pace.earn(bytes);
                self.uploads.counters.request_bytes.add(bytes);
                match self.bytes_left.checked_sub(bytes) {
                    Some(left) => {
                        self.bytes_left = left;
                        Some(Ok(frame))
                    }
                    None => Some(Err(Box::new(UploadTooLarge))),
                }
            }
            Some(Err(error)) => Some(Err(error.into())),
            None => None,
        })
    }

    fn is_given(&self) -> bool {
        self.front.is_empty() && self.next.is_none() && self.is_whole
    }
}

impl Upload {
    /// Hears of the origin's `100 Continue`, if the body waits for it.
    pub(super) fn expectation(&self) -> Option<&Arc<Expectation>> {
        match self {
            Self::Stream(stream) => stream.gate.as_ref().map(Gate::expectation),
            Self::Empty => None,
        }
    }

    /// Takes the interim responses, if there is a body.
    pub(super) fn interim_relay(&self) -> Option<Arc<InterimRelay>> {
        match self {
            Self::Stream(stream) => Some(Arc::clone(&stream.progress.interims)),
            Self::Empty => None,
        }
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
        if let Some(gate) = &mut stream.gate {
            let counters = &stream.uploads.counters;
            match ready!(gate.poll(cx))? {
                Opened::Asked => counters.expectations_continued.increment(),
                Opened::TimedOut => counters.expectations_timeout.increment(),
            }
            stream.gate = None;
        }
        let frame = if !stream.front.is_empty() {
            Some(Ok(Frame::data(stream.front.split().freeze())))
        } else if let Some(frame) = stream.next.take() {
            Some(Ok(frame))
        } else if stream.is_whole {
            None
        } else {
            ready!(stream.poll_incoming(cx))
        };
        if stream.is_given() {
            stream.progress.moved.set(Instant::now());
            stream.progress.ended.set(true);
            stream.unfinished = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Stream(stream) => {
                stream.is_given()
                    || (stream.front.is_empty()
                        && stream.next.is_none()
                        && stream.incoming.is_end_stream())
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Stream(stream) => {
                let next = stream.next.as_ref().and_then(Frame::data_ref);
                let held = (stream.front.len() + next.map_or(0, Bytes::len)) as u64;
                match stream.incoming.size_hint().exact() {
                    Some(left) => SizeHint::with_exact(held + left),
                    None => SizeHint::default(),
                }
            }
        }
    }
}

/// After this time, an upload that stays buffered asks again whether it may take a connection.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);
