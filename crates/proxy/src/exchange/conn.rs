//! The state of a client's connection: its requests under way, its timeouts, and what its client has not taken.
//!
//! Timers on the way of a request would cost more than all the rest of the edge's own work. So a
//! connection only notes, in cells, when it last moved, and once a second a sweep over the worker's
//! connections compares those notes with the limits; see [`ConnState::exceeded_limit`].

mod hyper_writes;
mod in_flight;
mod interims;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use edgeward_types::Timestamp;
use http::StatusCode;

use super::pieces::UnsentPieces;
use crate::base::access_log::PendingLine;
use crate::base::clock::Clock;
use crate::base::config::LimitsConfig;
use crate::base::pace::{MinRate, Pace};
use hyper_writes::HyperWrites;
pub(crate) use in_flight::{InFlight, Orphan};
pub(crate) use interims::{INTERIM_BYTES_MAX, InterimSink};

/// What is known of a connection besides its bytes.
#[derive(Debug)]
pub(crate) struct ConnState {
    clock: Arc<Clock>,
    /// Requests whose response has not been handed over whole.
    in_flight: Cell<u32>,
    /// Fetches of requests that the client gave up and that the origin still works on.
    orphans: Cell<u32>,
    /// Decoded bytes of the heads of requests under way.
    head_bytes: Cell<u64>,
    /// Since when the connection waits for the next request.
    idle_since: Cell<Timestamp>,
    /// When the first byte since then arrived: a head has begun.
    head_since: Cell<Option<Timestamp>>,
    /// Since when the client takes no bytes although there are some.
    write_blocked_since: Cell<Option<Timestamp>>,
    /// Since when a body has given all it was asked for and waits for the client to want more. An
    /// HTTP/2 client can hold a stream up without holding the socket up.
    client_turn_since: Cell<Option<Timestamp>>,
    /// Since when an upload waits for the client's next bytes.
    upload_waits_since: Cell<Option<Timestamp>>,
    close_reason: Cell<Option<CloseReason>>,
    draining: Cell<bool>,
    /// A request was refused before its body was read.
    lingers: Cell<bool>,
    /// What hyper was last given has been answered, and the answer flushed.
    answered: Cell<bool>,
    flushed: Cell<bool>,
    /// The fast path has a response that the client has not taken yet.
    fast_path_writes: Cell<bool>,
    is_h2: Cell<bool>,
    /// Bytes the socket has taken since the last sweep.
    written_since_sweep: Cell<u64>,
    pace: Pace,
    /// Bytes that the client has taken so far.
    written_bytes: Cell<u64>,
    /// What was handed over and the client has not taken.
    pieces: UnsentPieces,
    /// Interim responses that the fast path is to write.
    interims: RefCell<Vec<u8>>,
    /// The number of the last request of HTTP/1.1, and the request that waits for its final response.
    requests: Cell<u64>,
    interims_of: Cell<Option<u64>>,
    /// Lines of the access log wait for their response to be flushed: HTTP/1.1 with a log.
    holds_logs: Cell<bool>,
    held_logs: RefCell<Vec<PendingLine>>,
    fast_path_gone: Cell<bool>,
    /// What hyper has written of the response under way; kept where lines are held.
    hyper_writes: Cell<HyperWrites>,
    task: RefCell<Option<Waker>>,
}

/// Why a connection must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// No request for too long.
    Idle,
    /// No request under way, and another client needs the place.
    Crowded,
    /// A request's head did not become complete.
    Head,
    /// The client takes no more of its response.
    Response,
    /// The client takes its response slower than allowed.
    Slow,
    /// The client sends no more of its upload.
    Upload,
    /// Readers of evicted objects pin too much memory, and this client frees it most slowly.
    Pinned,
}

/// See [`ConnState::close_rank`]: whether a request's head has begun, and since when the connection waits.
pub(crate) type CloseRank = (bool, Timestamp);

impl ConnState {
    pub(crate) fn new(clock: Arc<Clock>) -> Rc<Self> {
        let now = clock.now();
        Rc::new(Self {
            clock,
            in_flight: Cell::new(0),
            orphans: Cell::new(0),
            head_bytes: Cell::new(0),
            idle_since: Cell::new(now),
            head_since: Cell::new(None),
            write_blocked_since: Cell::new(None),
            client_turn_since: Cell::new(None),
            upload_waits_since: Cell::new(None),
            close_reason: Cell::new(None),
            draining: Cell::new(false),
            lingers: Cell::new(false),
            answered: Cell::new(false),
            flushed: Cell::new(false),
            fast_path_writes: Cell::new(false),
            is_h2: Cell::new(false),
            written_since_sweep: Cell::new(0),
            pace: Pace::default(),
            written_bytes: Cell::new(0),
            pieces: UnsentPieces::default(),
            interims: RefCell::default(),
            requests: Cell::new(0),
            interims_of: Cell::new(None),
            holds_logs: Cell::new(false),
            held_logs: RefCell::default(),
            fast_path_gone: Cell::new(false),
            hyper_writes: Cell::default(),
            task: RefCell::new(None),
        })
    }

    /// A request's head is complete. The answer is owed until the returned value is dropped.
    pub(crate) fn begin(self: &Rc<Self>) -> InFlight {
        self.in_flight.set(self.in_flight.get() + 1);
        self.head_since.set(None);
        InFlight::of(self)
    }

    /// A request was given up while its fetch goes on. The fetch counts until the returned value is dropped.
    pub(crate) fn orphan(self: &Rc<Self>) -> Orphan {
        self.orphans.set(self.orphans.get() + 1);
        Orphan::of(self)
    }

    /// Whether orphaned fetches leave no place for another request, of which there are `most`.
    ///
    /// Requests whose streams were reset a moment ago still count as under way, and are tolerated up to another `most`.
    pub(crate) fn is_full_of_orphans(&self, streams_max: u32) -> bool {
        let (orphans, in_flight) = (self.orphans.get(), self.in_flight.get());
        (orphans > 0 && orphans.saturating_add(in_flight) >= streams_max)
            || in_flight >= streams_max.saturating_mul(2)
    }

    pub(crate) fn head_bytes(&self) -> u64 {
        self.head_bytes.get()
    }

    pub(crate) fn set_head_bytes(&self, bytes: u64) {
        self.head_bytes.set(bytes);
    }

    pub(crate) fn begin_upload_wait(&self) {
        if self.upload_waits_since.get().is_none() {
            self.upload_waits_since.set(Some(self.clock.now()));
        }
    }

    pub(crate) fn end_upload_wait(&self) {
        self.upload_waits_since.set(None);
    }

    /// The limit that is passed at `now`, if any.
    pub(crate) fn exceeded_limit(
        &self,
        now: Timestamp,
        limits: &LimitsConfig,
    ) -> Option<CloseReason> {
        let passed = |since: Option<Timestamp>, limit| since.is_some_and(|t| now.since(t) > limit);
        if passed(self.write_blocked_since.get(), limits.body_idle_timeout) {
            return Some(CloseReason::Response);
        }
        if self.in_flight.get() > 0 {
            if passed(self.client_turn_since.get(), limits.body_idle_timeout) {
                return Some(CloseReason::Response);
            }
            return passed(self.upload_waits_since.get(), limits.body_idle_timeout)
                .then_some(CloseReason::Upload);
        }
        if passed(self.head_since.get(), limits.request_head_timeout) {
            return Some(CloseReason::Head);
        }
        let waits_for_first_byte = self.head_since.get().is_none();
        (waits_for_first_byte && passed(Some(self.idle_since.get()), limits.idle_timeout))
            .then_some(CloseReason::Idle)
    }

    /// Charges the client with the time in which its socket took nothing. True if it is too slow.
    pub(crate) fn charge(&self, now: Timestamp, rate: MinRate) -> bool {
        self.pace.earn(self.written_since_sweep.take());
        self.pace.charge(now, rate)
    }

    pub(crate) fn is_write_blocked(&self) -> bool {
        self.write_blocked_since.get().is_some()
    }

    /// The socket has taken nothing for longer than `time` although there are bytes.
    pub(crate) fn is_write_blocked_for(&self, now: Timestamp, time: Duration) -> bool {
        let since = self.write_blocked_since.get();
        since.is_some_and(|since| now.since(since) > time)
    }

    /// The client speaks HTTP/2.
    pub(crate) fn set_h2(&self) {
        self.is_h2.set(true);
    }

    pub(crate) fn is_h2(&self) -> bool {
        self.is_h2.get()
    }

    /// How well this connection can be closed to make room for another; the least value is closed first. `None` while a
    /// request is under way.
    ///
    /// An idle connection before one whose request's head is incomplete, and in each group the one that waits longest.
    pub(crate) fn close_rank(&self) -> Option<CloseRank> {
        let is_busy = self.in_flight.get() > 0
            || self.fast_path_writes.get()
            || self.write_blocked_since.get().is_some()
            || self.close_reason.get().is_some();
        if is_busy {
            return None;
        }
        Some(match self.head_since.get() {
            None => (false, self.idle_since.get()),
            Some(since) => (true, since),
        })
    }

    /// Tells the connection's task to end.
    pub(crate) fn close(&self, reason: CloseReason) {
        self.close_reason.set(Some(reason));
        self.wake();
    }

    /// Tells the connection's task to take no further request.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        self.wake();
    }

    pub(crate) fn close_reason(&self) -> Option<CloseReason> {
        self.close_reason.get()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// The refusal just made must be readable although the request was not read to its end.
    pub(crate) fn linger(&self) {
        self.lingers.set(true);
    }

    pub(crate) fn lingers(&self) -> bool {
        self.lingers.get()
    }

    /// The task that must hear of a verdict; called at each of its turns.
    pub(crate) fn register_task(&self, cx: &Context<'_>) {
        let mut task = self.task.borrow_mut();
        match &mut *task {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            slot => *slot = Some(cx.waker().clone()),
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.task.borrow() {
            waker.wake_by_ref();
        }
    }

    /// hyper is about to be given a request.
    pub(crate) fn hyper_begins(&self) {
        self.answered.set(false);
        self.flushed.set(false);
    }

    /// hyper has flushed what it had; if that was the end of its answer, it owes nothing more.
    pub(crate) fn hyper_flushed(&self) {
        self.flushed.set(self.answered.get());
    }

    /// Whether hyper owes nothing of what it was given.
    pub(crate) fn hyper_is_done(&self) -> bool {
        self.flushed.get()
    }

    /// A request was answered before hyper heard of it.
    pub(crate) fn fast_path_answered(&self) {
        self.head_since.set(None);
        self.idle_since.set(self.clock.now());
    }

    #[cfg(test)]
    pub(crate) fn set_idle_since(&self, since: Timestamp) {
        self.idle_since.set(since);
    }

    pub(crate) fn set_fast_path_writes(&self, writes: bool) {
        self.fast_path_writes.set(writes);
    }

    pub(crate) fn fast_path_writes(&self) -> bool {
        self.fast_path_writes.get()
    }

    /// A request begins: until [`end_interims`](Self::end_interims) its interim responses are written.
    pub(crate) fn begin_interims(self: &Rc<Self>) -> InterimSink {
        let request = self.requests.get() + 1;
        self.requests.set(request);
        // What is left is of an older request.
        self.interims.borrow_mut().clear();
        self.interims_of.set(Some(request));
        InterimSink::of(self, request)
    }

    /// The final response begins.
    pub(crate) fn end_interims(&self) {
        self.interims_of.set(None);
    }

    /// The interim responses that have come, if any.
    pub(crate) fn take_interims(&self) -> Option<Vec<u8>> {
        let mut interims = self.interims.borrow_mut();
        (!interims.is_empty()).then(|| std::mem::take(&mut *interims))
    }

    /// A write was tried.
    pub(crate) fn record_write(&self, result: &Poll<io::Result<usize>>) {
        match result {
            Poll::Pending => {
                if self.write_blocked_since.get().is_none() {
                    let now = self.clock.now();
                    self.write_blocked_since.set(Some(now));
                    self.pace.begin_wait(now);
                }
            }
            Poll::Ready(written) => {
                if let Ok(bytes) = written {
                    self.written_since_sweep
                        .set(self.written_since_sweep.get() + *bytes as u64);
                    self.written_bytes
                        .set(self.written_bytes.get() + *bytes as u64);
                }
                if self.write_blocked_since.get().is_some() {
                    self.pace.end_wait(self.clock.now());
                }
                self.write_blocked_since.set(None);
                // Bytes go out: a slow client, not an idle one, though its request may be long
                // answered as far as hyper knows.
                let now = self.clock.now();
                self.idle_since.set(now);
                if self.client_turn_since.get().is_some() {
                    self.client_turn_since.set(Some(now));
                }
            }
        }
    }

    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes.get()
    }

    pub(crate) fn pieces(&self) -> &UnsentPieces {
        &self.pieces
    }

    /// Sets whether lines of the access log wait until their response has left.
    pub(crate) fn set_holds_logs(&self, holds: bool) {
        self.holds_logs.set(holds);
    }

    pub(crate) fn holds_logs(&self) -> bool {
        self.holds_logs.get()
    }

    /// A response with a line in the access log begins.
    pub(crate) fn begin_response(&self) {
        self.hyper_writes.set(HyperWrites::default());
    }

    /// Keeps the line of a response whose body has ended until the response has left. Returns it if that cannot be known here.
    pub(crate) fn hold_log(&self, mut log: Box<PendingLine>) -> Option<Box<PendingLine>> {
        if self.fast_path_gone.get() {
            // hyper lets go of the socket before it does of the body.
            log.truncate(|_| self.body_bytes_written());
            return Some(log);
        }
        if !self.holds_logs.get() {
            return Some(log);
        }
        self.held_logs.borrow_mut().push(*log);
        None
    }

    /// Lines of responses that have ended.
    pub(crate) fn take_logs(&self) -> Vec<PendingLine> {
        self.held_logs.take()
    }

    /// The socket is closed: responses that are not whole by now never will be.
    pub(crate) fn set_fast_path_gone(&self) {
        self.fast_path_gone.set(self.holds_logs.get());
    }

    pub(crate) fn has_logs(&self) -> bool {
        self.holds_logs.get() && !self.held_logs.borrow().is_empty()
    }

    /// Bytes of the body that hyper's writes had behind the last head.
    pub(crate) fn body_bytes_written(&self) -> u64 {
        self.hyper_writes.get().body_bytes
    }

    /// The status of the last head that hyper wrote, if any and if lines are held.
    pub(crate) fn status_written(&self) -> Option<StatusCode> {
        StatusCode::from_u16(self.hyper_writes.get().status).ok()
    }

    /// hyper's bytes were written.
    pub(crate) fn record_hyper_write<'a>(
        &self,
        written: &Poll<io::Result<usize>>,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) {
        let Poll::Ready(Ok(written)) = written else {
            return;
        };
        let mut left = *written;
        let mut writes = self.hyper_writes.get();
        for piece in pieces {
            let part = &piece[..piece.len().min(left)];
            left -= part.len();
            writes.record(part);
        }
        self.hyper_writes.set(writes);
    }

    /// A body gave a piece: the next move is the client's.
    pub(crate) fn begin_client_turn(&self) {
        self.client_turn_since.set(Some(self.clock.now()));
    }

    /// A body has nothing to give at the moment: the next move is the origin's.
    pub(crate) fn end_client_turn(&self) {
        self.client_turn_since.set(None);
    }

    pub(crate) fn received(&self) {
        if self.in_flight.get() == 0 && self.head_since.get().is_none() {
            self.head_since.set(Some(self.clock.now()));
        }
    }
}
