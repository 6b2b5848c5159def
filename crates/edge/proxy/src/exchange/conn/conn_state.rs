//! The state of a client's connection, and its timeouts.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use edgeward_types::{ClientNet, Timestamp};

use super::http1_state::Http1State;
use crate::config::LimitsConfig;
use crate::exchange::pieces::UnsentPieces;
use crate::observe::causes::CloseReason;
use crate::rt::budget::MemoryBudget;
use crate::rt::clock::Clock;
use crate::rt::pace::{MinRate, Pace};

/// See [`ConnState::close_rank`]: true if a head is incomplete, and the start of the wait for bytes of the client.
pub(crate) type CloseRank = (bool, Timestamp);

/// The state of a client's connection, without its socket and buffers.
#[derive(Debug)]
pub(crate) struct ConnState {
    pub(super) clock: Arc<Clock>,
    pub(super) memory: HeldMemory,
    /// The client, once its address is known.
    net: Cell<Option<ClientNet>>,
    /// The number of requests whose response was not completely passed to the codec.
    pub(super) in_flight: Cell<u32>,
    /// The number of fetches under way whose request the client has cancelled.
    pub(super) orphans: Cell<u32>,
    /// The bytes of the decoded heads of all requests under way.
    pub(in crate::exchange) head_bytes: Cell<u64>,
    /// The time since which the connection waits for the next request.
    pub(super) idle_since: Cell<Timestamp>,
    /// The time at which the first byte of an incomplete head arrived.
    pub(super) head_since: Cell<Option<Timestamp>>,
    /// The time since which the socket accepts no bytes although some are available.
    write_blocked_since: Cell<Option<Timestamp>>,
    /// The time since which the body of a response waits for the client to read. Needed in addition to
    /// `write_blocked_since`, because an HTTP/2 client can block a stream without blocking the socket.
    pub(super) client_turn_since: Cell<Option<Timestamp>>,
    /// The time since which the client has closed its sending direction. It may still read (RFC 9112 §9.6).
    half_closed_since: Cell<Option<Timestamp>>,
    /// The time since which an upload waits for the client's bytes.
    pub(super) upload_waits_since: Cell<Option<Timestamp>>,
    close_reason: Cell<Option<CloseReason>>,
    draining: Cell<bool>,
    /// True if the next request is the last one of the connection.
    leaving: Cell<bool>,
    /// True if a request was refused before its body was read.
    lingers: Cell<bool>,
    /// True if requests have streams of their own, as in HTTP/2 and HTTP/3.
    is_multiplexed: Cell<bool>,
    /// Bytes that the socket has accepted since the last sweep.
    written_since_sweep: Cell<u64>,
    /// The token bucket for the minimum rate at which the client must read.
    pace: Pace,
    /// Bytes that the socket has accepted since the connection began.
    written_bytes: Cell<u64>,
    /// The pieces of response bodies that the socket has not accepted yet.
    pub(super) pieces: UnsentPieces,
    /// The state of HTTP/1.1, unused by other protocols.
    pub(super) http1: Http1State,
    pub(super) task: RefCell<Option<Waker>>,
}

impl ConnState {
    pub(crate) fn new(clock: Arc<Clock>, memory: Arc<MemoryBudget>) -> Rc<Self> {
        let now = clock.now();
        Rc::new(Self {
            clock,
            memory: HeldMemory::new(memory),
            net: Cell::new(None),
            in_flight: Cell::new(0),
            orphans: Cell::new(0),
            head_bytes: Cell::new(0),
            idle_since: Cell::new(now),
            head_since: Cell::new(None),
            write_blocked_since: Cell::new(None),
            client_turn_since: Cell::new(None),
            half_closed_since: Cell::new(None),
            upload_waits_since: Cell::new(None),
            close_reason: Cell::new(None),
            draining: Cell::new(false),
            leaving: Cell::new(false),
            lingers: Cell::new(false),
            is_multiplexed: Cell::new(false),
            written_since_sweep: Cell::new(0),
            pace: Pace::default(),
            written_bytes: Cell::new(0),
            pieces: UnsentPieces::default(),
            http1: Http1State::default(),
            task: RefCell::new(None),
        })
    }

    pub(crate) fn set_net(&self, net: ClientNet) {
        self.net.set(Some(net));
    }

    /// Returns the client, or `None` before a PROXY header has named it.
    pub(crate) fn net(&self) -> Option<ClientNet> {
        self.net.get()
    }

    /// Returns the time of the last progress: bytes that the client has read, the end of a request, or the start.
    pub(crate) fn last_progress(&self) -> Timestamp {
        self.idle_since.get()
    }

    pub(crate) fn begin_upload_wait(&self) {
        if self.upload_waits_since.get().is_none() {
            self.upload_waits_since.set(Some(self.clock.now()));
        }
    }

    pub(crate) fn end_upload_wait(&self) {
        self.upload_waits_since.set(None);
    }

    /// Records that the client has closed its sending direction. A client that has closed its connection looks the same
    /// until the edge sends a byte.
    pub(crate) fn record_half_closed(&self) {
        self.half_closed_since.set(Some(self.clock.now()));
    }

    /// Returns true if a request waits for its response, and the edge waits for no byte of the client.
    pub(crate) fn waits_for_origin(&self) -> bool {
        self.in_flight.get() > 0 && self.upload_waits_since.get().is_none()
    }

    /// Returns the reason to close the connection at `now`, if it exceeds a limit.
    pub(crate) fn exceeded_limit(
        &self,
        now: Timestamp,
        limits: &LimitsConfig,
    ) -> Option<CloseReason> {
        let exceeds = |since: Option<Timestamp>, limit| since.is_some_and(|t| now.since(t) > limit);
        if exceeds(self.write_blocked_since.get(), limits.body_idle_timeout) {
            return Some(CloseReason::Body);
        }
        if self.in_flight.get() > 0 {
            if exceeds(self.client_turn_since.get(), limits.body_idle_timeout) {
                return Some(CloseReason::Body);
            }
            if exceeds(self.upload_waits_since.get(), limits.body_idle_timeout) {
                return Some(CloseReason::Body);
            }
            let waits_for_origin = self.client_turn_since.get().is_none();
            return (waits_for_origin
                && exceeds(self.half_closed_since.get(), limits.abandoned_wait)
                && exceeds(Some(self.idle_since.get()), limits.abandoned_wait))
            .then_some(CloseReason::Left);
        }
        if exceeds(self.head_since.get(), limits.request_head_timeout) {
            return Some(CloseReason::Head);
        }
        let waits_for_first_byte = self.head_since.get().is_none();
        (waits_for_first_byte && exceeds(Some(self.idle_since.get()), limits.idle_timeout))
            .then_some(CloseReason::Idle)
    }

    /// Returns the rank in which connections are closed for new ones, lowest first. `None` if the connection is busy or
    /// closing. Idle connections come before connections with an incomplete head, and long waits before short ones.
    pub(crate) fn close_rank(&self) -> Option<CloseRank> {
        let is_busy = self.in_flight.get() > 0
            || self.http1.fast_path_writes.get()
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

    /// Returns the reason to close the connection at once, if there is one.
    pub(crate) fn must_leave(&self) -> Option<CloseReason> {
        self.close_reason.get().filter(|reason| reason.is_urgent())
    }

    /// Updates the token bucket by the bytes and the wait since the last sweep. Returns true if the client is too slow.
    pub(crate) fn charge(&self, now: Timestamp, rate: MinRate) -> bool {
        self.pace.earn(self.written_since_sweep.take());
        self.pace.charge(now, rate)
    }

    pub(crate) fn is_write_blocked(&self) -> bool {
        self.write_blocked_since.get().is_some()
    }

    /// Returns true if the socket has accepted no bytes for longer than `time` although bytes are available.
    pub(crate) fn is_write_blocked_for(&self, now: Timestamp, time: Duration) -> bool {
        let since = self.write_blocked_since.get();
        since.is_some_and(|since| now.since(since) > time)
    }

    pub(crate) fn set_multiplexed(&self) {
        self.is_multiplexed.set(true);
    }

    pub(crate) fn is_multiplexed(&self) -> bool {
        self.is_multiplexed.get()
    }

    /// Tells the connection's task to end.
    pub(crate) fn close(&self, reason: CloseReason) {
        self.close_reason.set(Some(reason));
        self.wake();
    }

    /// Tells the connection's task to accept no further request.
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

    /// Tells the connection's task that the next request is the last one. Closing an idle HTTP/1.1 connection could
    /// meet a request that is under way to the edge, and the client would get no response to it. The response to the
    /// next request has `Connection: close` instead. HTTP/2 and HTTP/3 have GOAWAY, which states the requests that are
    /// answered.
    pub(crate) fn leave(&self) {
        if self.is_multiplexed() {
            self.drain();
        } else {
            self.leaving.set(true);
        }
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.get()
    }

    /// Keeps the closed connection readable, because the client may still send the body of a refused request.
    pub(crate) fn set_lingers(&self) {
        self.lingers.set(true);
    }

    pub(crate) fn lingers(&self) -> bool {
        self.lingers.get()
    }

    /// Registers the task to wake when the connection must close. The task calls this at each poll.
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

    /// Records that the fast path has answered a request.
    pub(crate) fn record_fast_path_response(&self) {
        self.head_since.set(None);
        self.idle_since.set(self.clock.now());
    }

    #[cfg(test)]
    pub(crate) fn set_idle_since(&self, since: Timestamp) {
        self.idle_since.set(since);
    }

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
                // A client that reads bytes is not idle, even if hyper got the complete response long ago.
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

    /// Records that a body has given a piece to the codec, and waits for the client to read the piece.
    pub(crate) fn begin_client_turn(&self) {
        self.client_turn_since.set(Some(self.clock.now()));
    }

    /// Records that a body has no piece to give, and waits for the origin.
    pub(crate) fn end_client_turn(&self) {
        self.client_turn_since.set(None);
    }

    /// Records that bytes arrived, which begin a head if no request is under way.
    pub(crate) fn record_received(&self) {
        if self.in_flight.get() == 0 && self.head_since.get().is_none() {
            self.head_since.set(Some(self.clock.now()));
        }
    }
}

/// The memory that a connection holds.
#[derive(Debug)]
pub(super) struct HeldMemory {
    /// The budget of all connections.
    pub(super) budget: Arc<MemoryBudget>,
    /// The bytes of the budget that this connection holds.
    pub(super) held_bytes: Cell<u64>,
    /// True if the held bytes have grown since the last [`ConnState::take_growth`].
    pub(super) has_grown: Cell<bool>,
    /// The bytes of HTTP/2 content (DATA) that requests and tunnels have read.
    pub(super) content_read: Cell<u64>,
}

impl HeldMemory {
    pub(super) fn new(budget: Arc<MemoryBudget>) -> Self {
        Self {
            budget,
            held_bytes: Cell::new(0),
            has_grown: Cell::new(false),
            content_read: Cell::new(0),
        }
    }
}
