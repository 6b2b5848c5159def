//! The state of a client's connection: its requests under way, its timeouts, and its unsent bytes.
//!
//! A timer for each request would cost more than all other work of the edge. A connection therefore only records the
//! time of its last progress. Four times a second, the worker's sweep compares the times of all its connections with
//! the limits: see [`ConnState::exceeded_limit`].

mod close_reason;
mod holding;
mod hyper_writes;
mod in_flight;
mod interims;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use edgeward_types::{ClientNet, Timestamp};
use http::StatusCode;

use super::pieces::UnsentPieces;
use crate::config::LimitsConfig;
use crate::observe::causes::CloseReason;
use crate::observe::observation::Observation;
use crate::rt::budget::MemoryBudget;
use crate::rt::clock::Clock;
use crate::rt::pace::{MinRate, Pace};
pub(crate) use close_reason::CloseRank;
use holding::HeldMemory;
pub(crate) use holding::Holding;
use hyper_writes::HyperWrites;
pub(crate) use in_flight::InFlight;
pub(crate) use interims::{INTERIM_BYTES_MAX, InterimSink};

/// The state of a client's connection, without its socket and buffers.
#[derive(Debug)]
pub(crate) struct ConnState {
    clock: Arc<Clock>,
    memory: HeldMemory,
    /// The client, once its address is known.
    net: Cell<Option<ClientNet>>,
    /// The number of requests whose response was not completely passed to the codec.
    in_flight: Cell<u32>,
    /// The number of fetches under way whose request the client has cancelled.
    orphans: Cell<u32>,
    /// The bytes of the decoded heads of all requests under way.
    pub(super) head_bytes: Cell<u64>,
    /// The time since which the connection waits for the next request.
    idle_since: Cell<Timestamp>,
    /// The time at which the first byte of an incomplete head arrived.
    head_since: Cell<Option<Timestamp>>,
    /// The time since which the socket accepts no bytes although some are available.
    write_blocked_since: Cell<Option<Timestamp>>,
    /// The time since which the body of a response waits for the client to read. Needed in addition to
    /// `write_blocked_since`, because an HTTP/2 client can block a stream without blocking the socket.
    client_turn_since: Cell<Option<Timestamp>>,
    /// The time since which the client has closed its sending direction. It may still read (RFC 9112 §9.6).
    half_closed_since: Cell<Option<Timestamp>>,
    /// The time since which an upload waits for the client's bytes.
    upload_waits_since: Cell<Option<Timestamp>>,
    close_reason: Cell<Option<CloseReason>>,
    draining: Cell<bool>,
    /// True if the next request is the last one of the connection.
    leaving: Cell<bool>,
    /// True if a request was refused before its body was read.
    lingers: Cell<bool>,
    /// True if hyper has the complete response to the last request that it got.
    response_ended: Cell<bool>,
    /// True if hyper has also flushed that response.
    response_flushed: Cell<bool>,
    /// True while the fast path, which answers simple HTTP/1.1 requests without hyper, has unsent bytes of a response.
    fast_path_writes: Cell<bool>,
    is_h2: Cell<bool>,
    /// Bytes that the socket has accepted since the last sweep.
    written_since_sweep: Cell<u64>,
    /// The token bucket for the minimum rate at which the client must read.
    pace: Pace,
    /// Bytes that the socket has accepted since the connection began.
    written_bytes: Cell<u64>,
    /// The pieces of response bodies that the socket has not accepted yet.
    pieces: UnsentPieces,
    /// Interim responses for the fast path to write.
    interims: RefCell<Vec<u8>>,
    /// The number of HTTP/1.1 requests so far.
    requests: Cell<u64>,
    /// The number of the HTTP/1.1 request that waits for its final response, and may get interim responses.
    interim_request: Cell<Option<u64>>,
    /// True if the record of a request waits until its response is flushed: for HTTP/1.1.
    holds_observations: Cell<bool>,
    held_observations: RefCell<Vec<Observation>>,
    fast_path_gone: Cell<bool>,
    /// The progress of hyper's current response, if records are held.
    hyper_writes: Cell<HyperWrites>,
    /// The body bytes of this response that hyper got, and those of them that were counted as sent.
    hyper_given_bytes: Cell<u64>,
    hyper_counted_bytes: Cell<u64>,
    task: RefCell<Option<Waker>>,
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
            response_ended: Cell::new(false),
            response_flushed: Cell::new(false),
            fast_path_writes: Cell::new(false),
            is_h2: Cell::new(false),
            written_since_sweep: Cell::new(0),
            pace: Pace::default(),
            written_bytes: Cell::new(0),
            pieces: UnsentPieces::default(),
            interims: RefCell::default(),
            requests: Cell::new(0),
            interim_request: Cell::new(None),
            holds_observations: Cell::new(false),
            held_observations: RefCell::default(),
            fast_path_gone: Cell::new(false),
            hyper_writes: Cell::default(),
            hyper_given_bytes: Cell::new(0),
            hyper_counted_bytes: Cell::new(0),
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

    /// Counts a request whose head is complete as under way until the returned value is dropped.
    pub(crate) fn begin_request(self: &Rc<Self>) -> InFlight {
        self.in_flight.set(self.in_flight.get() + 1);
        self.head_since.set(None);
        InFlight(Rc::clone(self))
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

    pub(crate) fn set_h2(&self) {
        self.is_h2.set(true);
    }

    pub(crate) fn is_h2(&self) -> bool {
        self.is_h2.get()
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
    /// next request has `Connection: close` instead. HTTP/2 has GOAWAY, which states the requests that are answered.
    pub(crate) fn leave(&self) {
        if self.is_h2() {
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

    /// Records that hyper gets a request.
    pub(crate) fn record_hyper_request(&self) {
        self.response_ended.set(false);
        self.response_flushed.set(false);
    }

    /// Records that hyper has flushed its output. If its response was complete, hyper is done with the request.
    pub(crate) fn record_hyper_flush(&self) {
        self.response_flushed.set(self.response_ended.get());
    }

    /// Returns true if hyper has answered the last request that it got, and has flushed the response.
    pub(crate) fn hyper_is_done(&self) -> bool {
        self.response_flushed.get()
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

    pub(crate) fn set_fast_path_writes(&self, writes: bool) {
        self.fast_path_writes.set(writes);
    }

    pub(crate) fn fast_path_writes(&self) -> bool {
        self.fast_path_writes.get()
    }

    /// Begins a request. Its interim responses are accepted until [`end_interims`](Self::end_interims).
    pub(crate) fn begin_interims(self: &Rc<Self>) -> InterimSink {
        let request = self.requests.get() + 1;
        self.requests.set(request);
        // Interim responses that remain belong to an older request.
        self.interims.borrow_mut().clear();
        self.interim_request.set(Some(request));
        InterimSink {
            conn: Rc::clone(self),
            request,
        }
    }

    /// Records that the final response begins.
    pub(crate) fn end_interims(&self) {
        self.interim_request.set(None);
    }

    /// Takes the interim responses that have arrived, if any.
    pub(crate) fn take_interims(&self) -> Option<Vec<u8>> {
        let mut interims = self.interims.borrow_mut();
        (!interims.is_empty()).then(|| std::mem::take(&mut *interims))
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

    /// Makes the records of requests wait until their response is sent.
    pub(crate) fn hold_observations(&self) {
        self.holds_observations.set(true);
    }

    /// Resets the progress of hyper's writes, because the record of the next response counts its own bytes.
    /// Returns the body bytes of the previous response that hyper still has: they are counted as sent now.
    pub(crate) fn begin_response(&self) -> u64 {
        self.hyper_writes.set(HyperWrites::default());
        self.hyper_given_bytes.take() - self.hyper_counted_bytes.take()
    }

    /// Keeps the record of a request whose response body has ended until the response is sent. Returns the record if it
    /// is not kept.
    pub(crate) fn hold(&self, mut observation: Observation) -> Option<Observation> {
        if self.fast_path_gone.get() {
            // hyper drops the socket before the body, so the written bytes are final.
            observation.truncate(|_| self.body_bytes_written());
            return Some(observation);
        }
        if !self.holds_observations.get() {
            return Some(observation);
        }
        let mut held = self.held_observations.borrow_mut();
        // Usually one record is held, and its memory is used again.
        held.reserve_exact(1);
        held.push(observation);
        None
    }

    /// Takes the oldest record that [`hold`](Self::hold) has kept.
    pub(crate) fn take_held(&self) -> Option<Observation> {
        let mut held = self.held_observations.borrow_mut();
        (!held.is_empty()).then(|| held.remove(0))
    }

    /// Records that the fast path was dropped with the socket, if records are held. No more bytes can be written.
    pub(crate) fn set_fast_path_gone(&self) {
        self.fast_path_gone.set(self.holds_observations.get());
    }

    /// Returns the number of body bytes that hyper has written after the last head.
    pub(crate) fn body_bytes_written(&self) -> u64 {
        self.hyper_writes.get().body_bytes
    }

    /// Returns the status of the last head that hyper wrote, if records are held.
    pub(crate) fn status_written(&self) -> Option<StatusCode> {
        StatusCode::from_u16(self.hyper_writes.get().status).ok()
    }

    /// Records that hyper gets bytes of a body. Returns true if they are counted when the socket accepts them.
    pub(crate) fn counts_written(&self, bytes: u64) -> bool {
        if !self.holds_observations.get() {
            return false;
        }
        let given = self.hyper_given_bytes.get() + bytes;
        self.hyper_given_bytes.set(given);
        true
    }

    /// Records how many bytes of hyper's `pieces` the socket accepted. Returns how many body bytes these are. The bytes
    /// after a head include the lines of chunks, so no more bytes are counted than hyper got.
    pub(crate) fn record_hyper_write<'a>(
        &self,
        written: &Poll<io::Result<usize>>,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> u64 {
        let Poll::Ready(Ok(written)) = written else {
            return 0;
        };
        let mut left = *written;
        let mut writes = self.hyper_writes.get();
        for piece in pieces {
            let part = &piece[..piece.len().min(left)];
            left -= part.len();
            writes.record(part);
        }
        self.hyper_writes.set(writes);
        let counted = writes.body_bytes.min(self.hyper_given_bytes.get());
        counted - self.hyper_counted_bytes.replace(counted)
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
