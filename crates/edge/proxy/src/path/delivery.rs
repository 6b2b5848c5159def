//! Deliveries: bodies on their way to clients that may stop reading.
//!
//! A body that comes directly from the origin moves at the speed of its client, and occupies a connection to the origin
//! until its end. If the client has accepted no bytes for [`STALLED_AFTER`], a task reads ahead of the client, up to
//! `limits.read_ahead_bytes` and within the memory budget of all fills. If the body ends within this limit, the
//! connection to the origin becomes free before the client has read the body. [`AheadRate`] limits the worker's speed.
//!
//! A client of HTTP/2 or HTTP/3 can stall one stream while its connection accepts bytes. Each of these streams
//! therefore has its own [`Pace`], and is reset alone if its client is too slow. HTTP/1.1 needs only the pace of its
//! [`ConnState`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use edgeward_types::Timestamp;
use http_body::{Body, Frame, SizeHint};

use super::ahead::{AheadRate, CHUNK_BYTES};
use crate::exchange::{CloseReason, ConnState};
use crate::observe::counters::Counters;
use crate::origin::{OriginBody, OriginError};
use crate::rt::budget::{MemoryBudget, MemoryShare};
use crate::rt::clock::Clock;
use crate::rt::pace::{MinRate, Pace};
use crate::rt::tasks::{AbortHandle, TaskSet};

/// The deliveries of one worker that its periodic sweep checks, and the settings for reading ahead.
pub(crate) struct Deliveries {
    pub(super) watched: RefCell<Vec<Weak<Delivery>>>,
    pub(super) clock: Arc<Clock>,
    pub(super) counters: Arc<Counters>,
    pub(super) budget: Arc<MemoryBudget>,
    pub(super) read_ahead_bytes: u64,
    pub(super) ahead_rate: Rc<AheadRate>,
    pub(super) connection_tasks: TaskSet,
    pub(super) fetch_tasks: TaskSet,
}

impl Deliveries {
    /// Calls `visit` with each delivery that is under way.
    pub(crate) fn for_each(&self, visit: impl Fn(&Rc<Delivery>)) {
        self.watched.borrow_mut().retain(|delivery| {
            let delivery = delivery.upgrade();
            delivery.iter().for_each(&visit);
            delivery.is_some()
        });
    }
}

/// The body of one response on its way to the client.
pub(crate) struct Delivery {
    conn: Rc<ConnState>,
    /// The pace at which the client accepts bytes while the edge waits for it.
    pace: Pace,
    /// Resets the stream of HTTP/2 or HTTP/3. `None` for HTTP/1.1, or if the delivery was created outside of the
    /// stream's task.
    abort_handle: Option<Rc<AbortHandle>>,
    is_reset: Cell<bool>,
    /// The body, if it comes directly from the origin.
    origin: Option<RefCell<OriginSource>>,
}

/// A body that comes directly from the origin.
struct OriginSource {
    body: Box<OriginBody>,
    ahead: Option<ReadAhead>,
}

/// Frames that were read before the client could accept them.
struct ReadAhead {
    frames: VecDeque<Frame<Bytes>>,
    bytes: usize,
    end: Option<Result<(), OriginError>>,
    is_abandoned: bool,
    /// Wakes the response's body, which waits for frames.
    reader: Option<Waker>,
    /// Wakes the task that reads ahead.
    pump: Option<Waker>,
    _memory: MemoryShare,
}

/// The result of one step of the task that reads ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadAheadStep {
    /// A chunk was read, and more bytes may follow at once.
    Chunk,
    /// The body has ended or was abandoned.
    End,
}

impl Delivery {
    /// Creates a delivery that the sweep watches.
    pub(crate) fn new_watched(
        deliveries: &Deliveries,
        conn: &Rc<ConnState>,
        body: Option<Box<OriginBody>>,
    ) -> Rc<Self> {
        let delivery = Rc::new(Self {
            conn: Rc::clone(conn),
            pace: Pace::default(),
            abort_handle: conn
                .is_multiplexed()
                .then(|| deliveries.connection_tasks.abort_handle())
                .flatten(),
            is_reset: Cell::new(false),
            origin: body.map(|body| RefCell::new(OriginSource { body, ahead: None })),
        });
        // The first wait begins now, because hyper never polls the body of a stream without a send window.
        delivery.pace.begin_wait(deliveries.clock.now());
        deliveries
            .watched
            .borrow_mut()
            .push(Rc::downgrade(&delivery));
        delivery
    }

    /// Records that the client's connection got a piece of the body.
    pub(crate) fn record_piece(&self, bytes: u64, now: Timestamp) {
        self.pace.end_wait(now);
        self.pace.earn(bytes);
        self.pace.begin_wait(now);
    }

    /// Records that the delivery waits for the origin.
    pub(crate) fn record_origin_wait(&self, now: Timestamp) {
        self.pace.end_wait(now);
    }

    /// Takes tokens from the stream's [`Pace`] for the time in which the edge waited for the client. If too few remain,
    /// the client is too slow: resets its stream (or closes the connection if it has no handle), and returns true.
    pub(crate) fn charge(&self, now: Timestamp, rate: MinRate) -> bool {
        // While the socket accepts no bytes, all streams of the connection wait, and only the connection's pace counts.
        if !self.conn.is_multiplexed() || self.conn.is_write_blocked() || self.is_reset.get() {
            self.pace.discard_waits(now);
            return false;
        }
        let exhausted = self.pace.charge(now, rate);
        if exhausted {
            self.is_reset.set(true);
            match &self.abort_handle {
                Some(handle) => handle.abort(),
                None => self.conn.close(CloseReason::Slow),
            }
        }
        exhausted
    }

    /// Closes an HTTP/1.1 connection whose client has accepted no bytes for `window`, if the response uses a connection
    /// to an origin that requests wait for. Returns true if it closed.
    pub(crate) fn close_if_stuck(&self, now: Timestamp, window: Duration) -> bool {
        let is_stuck = !self.conn.is_multiplexed()
            && self.conn.close_reason().is_none()
            && self.conn.is_write_blocked_for(now, window)
            && self.delays_requests();
        if is_stuck {
            self.conn.close(CloseReason::Slow);
        }
        is_stuck
    }

    /// Returns true if the response occupies a connection to an origin that other requests wait for.
    fn delays_requests(&self) -> bool {
        let origin = self.origin.as_ref();
        origin.is_some_and(|origin| origin.borrow().body.delays_requests())
    }

    /// Starts to read ahead if the client has accepted no bytes for [`STALLED_AFTER`].
    pub(crate) fn read_ahead(self: &Rc<Self>, deliveries: &Deliveries, now: Timestamp) {
        let Some(origin) = &self.origin else { return };
        let is_stalled = |since| now.since(since) >= STALLED_AFTER;
        if !self.pace.waiting_since().is_some_and(is_stalled) {
            return;
        }
        let mut origin = origin.borrow_mut();
        let ahead_max = deliveries.read_ahead_bytes;
        if origin.ahead.is_some() || ahead_max == 0 || origin.body.is_end_stream() {
            return;
        }
        let left = origin.body.size_hint().exact();
        let share = left.map_or(ahead_max, |left| left.min(ahead_max));
        let Some(memory) = deliveries.budget.reserve(share) else {
            return;
        };
        origin.ahead = Some(ReadAhead {
            frames: VecDeque::new(),
            bytes: 0,
            end: None,
            is_abandoned: false,
            reader: None,
            pump: None,
            _memory: memory,
        });
        drop(origin);
        deliveries.counters.read_ahead.increment();
        let delivery = Rc::clone(self);
        let ahead_max = usize::try_from(ahead_max).unwrap_or(usize::MAX);
        let rate = Rc::clone(&deliveries.ahead_rate);
        deliveries.fetch_tasks.spawn(|member| async move {
            loop {
                // Each chunk waits for the worker's rate of reading ahead, but not if the client waits for bytes.
                rate.wait(|cx| delivery.poll_wanted(cx)).await;
                let mut chunk_bytes = 0;
                let step = poll_fn(|cx| delivery.poll_pump(ahead_max, &mut chunk_bytes, cx));
                if step.await == ReadAheadStep::End {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(member); // `fetch_tasks` counts this task until here.
        });
    }

    /// Resolves when the client waits for bytes that were not read yet, or when the client has disconnected.
    fn poll_wanted(&self, cx: &Context<'_>) -> Poll<()> {
        let Some(origin) = &self.origin else {
            return Poll::Ready(());
        };
        let Some(ahead) = &mut origin.borrow_mut().ahead else {
            return Poll::Ready(());
        };
        if ahead.is_abandoned || ahead.reader.is_some() {
            return Poll::Ready(());
        }
        ahead.pump = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Reads frames from the origin into memory until they have [`CHUNK_BYTES`], or the body ends or is abandoned.
    fn poll_pump(
        &self,
        ahead_max: usize,
        chunk_bytes: &mut usize,
        cx: &mut Context<'_>,
    ) -> Poll<ReadAheadStep> {
        let Some(origin) = &self.origin else {
            return Poll::Ready(ReadAheadStep::End);
        };
        let mut origin = origin.borrow_mut();
        let OriginSource { body, ahead } = &mut *origin;
        let Some(ahead) = ahead else {
            return Poll::Ready(ReadAheadStep::End);
        };
        ahead.pump = Some(cx.waker().clone());
        while !ahead.is_abandoned {
            if *chunk_bytes >= CHUNK_BYTES {
                return Poll::Ready(ReadAheadStep::Chunk);
            }
            if ahead.bytes >= ahead_max {
                return Poll::Pending;
            }
            let Poll::Ready(next) = Pin::new(&mut **body).poll_frame(cx) else {
                return Poll::Pending;
            };
            match next {
                Some(Ok(frame)) => {
                    let bytes = frame.data_ref().map_or(0, Bytes::len);
                    *chunk_bytes += bytes;
                    ahead.bytes += bytes;
                    ahead.frames.push_back(frame);
                    if body.is_end_stream() {
                        ahead.end = Some(Ok(()));
                    }
                }
                Some(Err(error)) => ahead.end = Some(Err(error)),
                None => ahead.end = Some(Ok(())),
            }
            if let Some(reader) = ahead.reader.take() {
                reader.wake();
            }
            if ahead.end.is_some() {
                break;
            }
        }
        Poll::Ready(ReadAheadStep::End)
    }

    /// Returns the next frame of a body that comes directly from the origin.
    pub(crate) fn poll_frame(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OriginError>>> {
        let Some(origin) = &self.origin else {
            return Poll::Ready(None);
        };
        let mut origin = origin.borrow_mut();
        let OriginSource { body, ahead } = &mut *origin;
        let Some(ahead) = ahead else {
            return Pin::new(&mut **body).poll_frame(cx);
        };
        if let Some(frame) = ahead.frames.pop_front() {
            ahead.bytes -= frame.data_ref().map_or(0, Bytes::len);
            if let Some(pump) = &ahead.pump {
                pump.wake_by_ref();
            }
            return Poll::Ready(Some(Ok(frame)));
        }
        match &ahead.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(_)) => match ahead.end.replace(Ok(())) {
                Some(Err(error)) => Poll::Ready(Some(Err(error))),
                _ => Poll::Ready(None),
            },
            None => {
                ahead.reader = Some(cx.waker().clone());
                if let Some(pump) = &ahead.pump {
                    pump.wake_by_ref();
                }
                Poll::Pending
            }
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        let Some(origin) = &self.origin else {
            return true;
        };
        let origin = origin.borrow();
        match &origin.ahead {
            None => origin.body.is_end_stream(),
            Some(ahead) => ahead.frames.is_empty() && matches!(ahead.end, Some(Ok(()))),
        }
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let Some(origin) = &self.origin else {
            return SizeHint::with_exact(0);
        };
        let origin = origin.borrow();
        let ahead = origin.ahead.as_ref().map_or(0, |ahead| ahead.bytes as u64);
        match origin.body.size_hint().exact() {
            Some(left) => SizeHint::with_exact(ahead + left),
            None => SizeHint::default(),
        }
    }

    /// Stops reading ahead, because the client no longer reads the body.
    pub(crate) fn abandon(&self) {
        let Some(origin) = &self.origin else { return };
        if let Some(ahead) = &mut origin.borrow_mut().ahead {
            ahead.is_abandoned = true;
            if let Some(pump) = ahead.pump.take() {
                pump.wake();
            }
        }
    }
}

/// The time without an accepted byte after which the edge reads ahead of a client: one interval of the sweep.
const STALLED_AFTER: Duration = Duration::from_millis(250);
