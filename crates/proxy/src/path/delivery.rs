//! A response on its way to a client that may not take it.
//!
//! A body that comes straight from the origin moves at the speed of its client, and holds a connection to the
//! origin meanwhile. Once the client has taken nothing for a moment, a task reads ahead of it: up to a bound and within
//! the budget of all fills. A body that ends within the bound gives its connection back although nobody reads it.
//!
//! An HTTP/2 client can stop one stream and leave its socket free, so each stream has a [`Pace`] of its own, and one
//! that is too slow is reset while the others go on. For HTTP/1.1 the pace of the connection is enough; see
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

use crate::base::ahead::{AheadRate, CHUNK_BYTES};
use crate::base::budget::{MemoryBudget, MemoryShare};
use crate::base::clock::Clock;
use crate::base::counters::Counters;
use crate::base::pace::{MinRate, Pace};
use crate::base::tasks::{AbortHandle, TaskSet};
use crate::exchange::{CloseReason, ConnState};
use crate::origin::{OriginBody, OriginError};

/// The responses of one worker that its sweep watches, and what it takes to read ahead of their clients.
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
    pub(crate) fn each(&self, visit: impl Fn(&Rc<Delivery>)) {
        self.watched.borrow_mut().retain(|delivery| {
            let delivery = delivery.upgrade();
            delivery.iter().for_each(&visit);
            delivery.is_some()
        });
    }
}

/// One response's body as the sweep sees it.
pub(crate) struct Delivery {
    conn: Rc<ConnState>,
    /// Waits in which the next move is the client's.
    pace: Pace,
    /// Ends the HTTP/2 stream.
    abort_handle: Option<Rc<AbortHandle>>,
    is_reset: Cell<bool>,
    passed: Option<RefCell<Passed>>,
}

/// A body that comes straight from the origin.
struct Passed {
    body: Box<OriginBody>,
    ahead: Option<Ahead>,
}

/// What was read before the client asked for it.
struct Ahead {
    frames: VecDeque<Frame<Bytes>>,
    bytes: usize,
    end: Option<Result<(), OriginError>>,
    /// The client has gone.
    is_abandoned: bool,
    reader: Option<Waker>,
    pump: Option<Waker>,
    _memory: MemoryShare,
}

/// How far the body was read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pumped {
    /// By a chunk, and more may follow at once.
    Chunk,
    /// To its end, or the client is gone.
    All,
}

impl Delivery {
    /// A delivery that the sweep watches from now on.
    pub(crate) fn watched(
        deliveries: &Deliveries,
        conn: &Rc<ConnState>,
        body: Option<Box<OriginBody>>,
    ) -> Rc<Self> {
        let delivery = Rc::new(Self {
            conn: Rc::clone(conn),
            pace: Pace::default(),
            abort_handle: conn
                .is_h2()
                .then(|| deliveries.connection_tasks.abort_handle())
                .flatten(),
            is_reset: Cell::new(false),
            passed: body.map(|body| RefCell::new(Passed { body, ahead: None })),
        });
        // The body of a stream without a window is not even asked for its first bytes.
        delivery.pace.begin_wait(deliveries.clock.now());
        deliveries
            .watched
            .borrow_mut()
            .push(Rc::downgrade(&delivery));
        delivery
    }

    /// The client was given a piece.
    pub(crate) fn gave(&self, bytes: u64, now: Timestamp) {
        self.pace.end_wait(now);
        self.pace.earn(bytes);
        self.pace.begin_wait(now);
    }

    /// There is nothing to give at the moment.
    pub(crate) fn waits_for_origin(&self, now: Timestamp) {
        self.pace.end_wait(now);
    }

    /// Charges the client with the time in which the edge waited for it. True if it has just become too slow.
    pub(crate) fn charge(&self, now: Timestamp, rate: MinRate) -> bool {
        // While the socket takes nothing, the pace of the connection counts, which all its streams share.
        if !self.conn.is_h2() || self.conn.is_write_blocked() || self.is_reset.get() {
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

    /// Ends a connection of HTTP/1.1 whose client has taken nothing for `window`, if the response holds a connection to the
    /// origin. Called while other requests wait for one. True if the connection ends.
    pub(crate) fn make_way(&self, now: Timestamp, window: Duration) -> bool {
        let is_stuck = !self.conn.is_h2()
            && self.conn.close_reason().is_none()
            && self.conn.is_write_blocked_for(now, window)
            && self.reads_origin();
        if is_stuck {
            self.conn.close(CloseReason::Slow);
        }
        is_stuck
    }

    /// A part of the body is still to come from the origin.
    fn reads_origin(&self) -> bool {
        let Some(passed) = &self.passed else {
            return false;
        };
        let passed = passed.borrow();
        match &passed.ahead {
            Some(ahead) => ahead.end.is_none(),
            None => !passed.body.is_end_stream(),
        }
    }

    /// Starts to read ahead if the client has taken nothing for a moment.
    pub(crate) fn read_ahead(self: &Rc<Self>, deliveries: &Deliveries, now: Timestamp) {
        let Some(passed) = &self.passed else { return };
        let is_stalled = |since| now.since(since) >= STALLED_AFTER;
        if !self.pace.waiting_since().is_some_and(is_stalled) {
            return;
        }
        let mut passed = passed.borrow_mut();
        let most = deliveries.read_ahead_bytes;
        if passed.ahead.is_some() || most == 0 || passed.body.is_end_stream() {
            return;
        }
        let left = passed.body.size_hint().exact();
        let share = left.map_or(most, |left| left.min(most));
        let Some(memory) = deliveries.budget.reserve(share) else {
            return;
        };
        passed.ahead = Some(Ahead {
            frames: VecDeque::new(),
            bytes: 0,
            end: None,
            is_abandoned: false,
            reader: None,
            pump: None,
            _memory: memory,
        });
        drop(passed);
        deliveries.counters.read_ahead.increment();
        let delivery = Rc::clone(self);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let rate = Rc::clone(&deliveries.ahead_rate);
        deliveries.fetch_tasks.spawn(|member| async move {
            loop {
                rate.wait(|cx| delivery.poll_wanted(cx)).await;
                let mut chunk_bytes = 0;
                let pumped = poll_fn(|cx| delivery.poll_pump(most, &mut chunk_bytes, cx));
                if pumped.await == Pumped::All {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(member);
        });
    }

    /// Resolves when the client wants bytes that have not been read, or is gone.
    fn poll_wanted(&self, cx: &Context<'_>) -> Poll<()> {
        let Some(passed) = &self.passed else {
            return Poll::Ready(());
        };
        let Some(ahead) = &mut passed.borrow_mut().ahead else {
            return Poll::Ready(());
        };
        if ahead.is_abandoned || ahead.reader.is_some() {
            return Poll::Ready(());
        }
        ahead.pump = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Moves a chunk of what comes from the origin into memory, until the body ends or its client is gone.
    fn poll_pump(
        &self,
        most: usize,
        chunk_bytes: &mut usize,
        cx: &mut Context<'_>,
    ) -> Poll<Pumped> {
        let Some(passed) = &self.passed else {
            return Poll::Ready(Pumped::All);
        };
        let mut passed = passed.borrow_mut();
        let Passed { body, ahead } = &mut *passed;
        let Some(ahead) = ahead else {
            return Poll::Ready(Pumped::All);
        };
        ahead.pump = Some(cx.waker().clone());
        while !ahead.is_abandoned {
            if *chunk_bytes >= CHUNK_BYTES {
                return Poll::Ready(Pumped::Chunk);
            }
            if ahead.bytes >= most {
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
        Poll::Ready(Pumped::All)
    }

    /// The next frame for the client, of a body that comes straight from the origin.
    pub(crate) fn poll_frame(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OriginError>>> {
        let Some(passed) = &self.passed else {
            return Poll::Ready(None);
        };
        let mut passed = passed.borrow_mut();
        let Passed { body, ahead } = &mut *passed;
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
        let Some(passed) = &self.passed else {
            return true;
        };
        let passed = passed.borrow();
        match &passed.ahead {
            None => passed.body.is_end_stream(),
            Some(ahead) => ahead.frames.is_empty() && matches!(ahead.end, Some(Ok(()))),
        }
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let Some(passed) = &self.passed else {
            return SizeHint::with_exact(0);
        };
        let passed = passed.borrow();
        let ahead = passed.ahead.as_ref().map_or(0, |ahead| ahead.bytes as u64);
        match passed.body.size_hint().exact() {
            Some(left) => SizeHint::with_exact(ahead + left),
            None => SizeHint::default(),
        }
    }

    /// Nobody will ask for more.
    pub(crate) fn abandon(&self) {
        let Some(passed) = &self.passed else { return };
        if let Some(ahead) = &mut passed.borrow_mut().ahead {
            ahead.is_abandoned = true;
            if let Some(pump) = ahead.pump.take() {
                pump.wake();
            }
        }
    }
}

/// A client that takes something in each interval of the sweep is never read ahead of.
const STALLED_AFTER: Duration = Duration::from_millis(250);
