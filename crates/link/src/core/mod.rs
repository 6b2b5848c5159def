//! The state of one peer, behind its lock: the state machines of sender and receiver, the streams that use
//! them, and the wakers of waiting tasks.
//!
//! No function here blocks or touches a socket. Streams and connections call in with the current time. The waker of
//! a task that has to wait is stored here. After it releases the lock, [`Peer::with`](crate::peer::Peer::with) wakes
//! the tasks that can continue.

mod duplex;
mod events;
mod stalled;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::task::Waker;
use std::time::Instant;

use bytes::Bytes;

use edgeward_chunk_store::codec::Compressors;
use edgeward_chunk_store::{Chunks, PendingReads};
use edgeward_dedup::endpoint::Endpoint;
use edgeward_dedup::knowledge::Knowledge;
use edgeward_dedup::receiver::AnswerUrgency;
use edgeward_dedup::sender::{Lane, SenderCounters};
use edgeward_dedup::store::ChunkStore as _;
use edgeward_dedup::wire::{Disagreement, Frame, FrameSink as _, Hello, Role, StreamId};
use edgeward_dedup::{FrameOutcome, Violation, reason};

use crate::budget::Budget;
use crate::hold::{HOLD_ACKS, Verdict};
use crate::outbox::Outbox;
use crate::traffic::TrafficCounters;

use duplex::Duplex;
pub(crate) use duplex::{Read, Written};
use stalled::Stalls;

/// Identifies one duplex stream of the peer.
pub(crate) type DuplexId = u64;

/// Identifies one connection to the peer.
pub(crate) type ConnectionId = u64;

/// The settings of a core, apart from those of the state machines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreConfig {
    /// True if the peer may open streams.
    pub(crate) accepts: bool,
    pub(crate) dedup: bool,
    pub(crate) probe: bool,
    pub(crate) unacked_max: usize,
}

pub(crate) struct Core {
    config: CoreConfig,
    endpoint: Endpoint,
    store: Chunks,
    codec: Compressors,
    peer_session: Option<u64>,
    duplexes: HashMap<DuplexId, Duplex>,
    next_duplex: DuplexId,
    /// The duplex stream and the host counters of each outgoing stream. An outgoing stream stays here until it is
    /// delivered, even if its duplex stream is dropped.
    by_out: HashMap<StreamId, (DuplexId, usize)>,
    by_in: HashMap<StreamId, (DuplexId, usize)>,
    /// Streams that the peer opened and no task has accepted yet. At most as many as the peer may open.
    unaccepted: VecDeque<DuplexId>,
    accept_waker: Option<Waker>,
    /// For each stream that holds back the bytes of an incomplete chunk: the time of the next decision about sending
    /// them.
    due: BTreeSet<(Instant, DuplexId)>,
    /// Until when acknowledgements wait for other frames.
    acks_due: Option<Instant>,
    /// Writers that wait because the limit of unacknowledged bytes of all streams is reached.
    waiting_for_limit: VecDeque<DuplexId>,
    /// Outgoing streams that wait for a disk read.
    stalls: Stalls,
    connections: Vec<ConnectionState>,
    next_connection: ConnectionId,
    to_wake: Vec<Waker>,
    pub(crate) traffic: TrafficCounters,
    /// True after shutdown: new streams are refused.
    closed: bool,
}

struct ConnectionState {
    id: ConnectionId,
    waker: Option<Waker>,
    /// True if it found nothing to send at its last poll.
    idle: bool,
}

/// The connection no longer belongs to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superseded;

impl Core {
    pub(crate) fn new(config: CoreConfig, endpoint: Endpoint, store: Chunks) -> Self {
        Self {
            config,
            endpoint,
            store,
            codec: Compressors::new(),
            peer_session: None,
            duplexes: HashMap::new(),
            next_duplex: 0,
            by_out: HashMap::new(),
            by_in: HashMap::new(),
            unaccepted: VecDeque::new(),
            accept_waker: None,
            due: BTreeSet::new(),
            acks_due: None,
            waiting_for_limit: VecDeque::new(),
            stalls: Stalls::default(),
            connections: Vec::new(),
            next_connection: 0,
            to_wake: Vec::new(),
            traffic: TrafficCounters::default(),
            closed: false,
        }
    }

    /// Returns the wakers of the tasks that can continue, to be woken once the lock is released.
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.to_wake)
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// See [`Endpoint::restore_knowledge`].
    pub(crate) fn set_knowledge(&mut self, knowledge: Knowledge) {
        self.endpoint.restore_knowledge(knowledge);
    }

    /// Returns true if a stream is open, sent bytes are not acknowledged, or an acknowledgement has to be sent.
    pub(crate) fn is_busy(&self) -> bool {
        let must_acknowledge = self.endpoint.receiver().answer_urgency() != AnswerUrgency::None
            && !self.connections.is_empty();
        must_acknowledge || !self.duplexes.is_empty() || self.endpoint.sender().unacked() > 0
    }

    pub(crate) fn duplexes(&self) -> usize {
        self.duplexes.len()
    }

    /// Returns the HELLO for a new connection.
    pub(crate) fn hello(&mut self) -> Hello {
        self.endpoint.hello(&self.store)
    }

    /// Adds a connection after both peers have sent HELLO.
    pub(crate) fn add_connection(
        &mut self,
        role: Role,
        ours: &Hello,
        theirs: &Hello,
    ) -> Result<ConnectionId, Disagreement> {
        let before = self.peer_session;
        if before == Some(theirs.session) && !self.connections.is_empty() {
            ours.agree(role, theirs)?;
        } else {
            self.endpoint.connected(role, ours, theirs)?;
            self.peer_session = Some(theirs.session);
            // No stream could be written before the peer announced its credit.
            for (id, duplex) in &mut self.duplexes {
                self.to_wake.extend(duplex.wake_writer());
                self.due
                    .extend(duplex.schedule_check().map(|due| (due, *id)));
            }
            if before.is_some_and(|before| before != theirs.session) {
                self.detach_connections();
                self.fail_all(reason::RESTARTED);
                while self.endpoint.event().is_some() {}
            }
        }
        if self.connections.len() >= CONNECTIONS_MAX {
            // The oldest is usually a connection that broke without notice.
            let oldest = self.connections.remove(0);
            self.to_wake.extend(oldest.waker);
            self.endpoint.connection_lost();
        }
        let id = self.next_connection;
        self.next_connection += 1;
        self.connections.push(ConnectionState {
            id,
            waker: None,
            idle: false,
        });
        // The other connections may have another lane now.
        self.wake_idle();
        Ok(id)
    }

    /// Removes a connection and returns how many are left.
    pub(crate) fn remove_connection(&mut self, connection: ConnectionId) -> usize {
        if let Some(at) = self.connections.iter().position(|up| up.id == connection) {
            self.connections.remove(at);
            if !self.connections.is_empty() {
                self.endpoint.connection_lost();
                self.wake_idle();
            }
        }
        self.connections.len()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Returns the session of the peer's last HELLO.
    pub(crate) fn peer_session(&self) -> Option<u64> {
        self.peer_session
    }

    /// Returns the number of connections made so far.
    pub(crate) fn connections_made(&self) -> ConnectionId {
        self.next_connection
    }

    /// Detaches all connections: frames that they receive are no longer accepted.
    pub(crate) fn detach_connections(&mut self) {
        let connections = self.connections.drain(..);
        self.to_wake
            .extend(connections.filter_map(|connection| connection.waker));
    }

    /// Handles a frame received on a connection. `Ok(Err(_))` is a violation of the protocol, after which the
    /// connection has to be closed. If pending reads are returned, the frame had no effect; the caller performs the
    /// reads and passes the frame again. `attempts` is the number of earlier attempts.
    pub(crate) fn handle(
        &mut self,
        connection: ConnectionId,
        frame: Frame<'_>,
        memory: Option<&Bytes>,
        wire_bytes: usize,
        attempts: u32,
        budget: &mut Budget,
    ) -> Result<Result<Option<PendingReads>, Violation>, Superseded> {
        let up = self.connections.iter_mut().find(|up| up.id == connection);
        // The caller polls the connection for frames to send after this call, so no wake-up is needed.
        up.ok_or(Superseded)?.idle = false;
        let (stream, bytes) = incoming_stream(&frame);
        budget.spend(bytes);
        let before = self.endpoint.receiver().counters();
        let news = match &frame {
            Frame::Ack(acks) => acks.iter().map(|acked| acked.stream).collect(),
            Frame::Credit(credits) => credits.iter().map(|(stream, _)| *stream).collect(),
            _ => Vec::new(),
        };
        let (endpoint, codec) = (&mut self.endpoint, &mut self.codec);
        let handled = if attempts < NON_BLOCKING_ATTEMPTS_MAX {
            let mut store = self.store.non_blocking();
            let handled = endpoint.handle_in(frame, memory, &mut store, codec);
            handled.map(|handled| (handled == FrameOutcome::Retry).then(|| store.into_pending()))
        } else {
            let handled = endpoint.handle_in(frame, memory, &mut self.store, codec);
            handled.map(|_| None)
        };
        self.traffic.late_frames += u64::from(attempts == 0 && matches!(handled, Ok(Some(_))));
        self.handle_events();
        self.wake_writers(news);
        if let Some(stream) = stream.filter(|_| !matches!(handled, Ok(Some(_)))) {
            let host = self.by_in.get(&stream).map(|(_, host)| *host);
            let after = self.endpoint.receiver().counters();
            self.traffic.received(host, wire_bytes, &before, &after);
        }
        Ok(handled)
    }

    /// Appends frames for a connection. Returns when to call again if no other event occurs.
    pub(crate) fn fill(
        &mut self,
        connection: ConnectionId,
        busy: bool,
        now: Instant,
        waker: &Waker,
        out: &mut Outbox,
        budget: &mut Budget,
    ) -> Result<Option<Instant>, Superseded> {
        let at = self.connections.iter().position(|up| up.id == connection);
        let at = at.ok_or(Superseded)?;
        self.connections[at].idle = false;
        let lane = match (at, self.connections.len()) {
            (_, 1) => Lane::Any,
            (0, _) => Lane::Short,
            _ => Lane::Long,
        };
        self.flush_due(now);
        let waits = lane != Lane::Long && self.hold_acks(lane, now);
        let lost = self.endpoint.sender().counters().lost;
        // At least one frame is encoded even if the budget is spent, because no event would cause another call.
        while !waits && (out.bytes() == 0 || (out.bytes() < FILL_BYTES && !budget.is_spent())) {
            let (start, head) = (out.bytes(), out.heads_bytes());
            let before = self.endpoint.sender().counters();
            if !self
                .endpoint
                .transmit(lane, busy, &mut self.store, &mut self.codec, out)
            {
                break;
            }
            let after = self.endpoint.sender().counters();
            let packed = |of: &SenderCounters| of.plain + of.literal + of.delta;
            budget.spend((packed(&after) - packed(&before)) as usize);
            self.count_sent(out.heads(head), out.bytes() - start, &before);
        }
        if self.endpoint.sender().counters().lost > lost {
            self.handle_events();
        }
        // This connection may have sent the short first piece of a body: wakes the connection of the other lane for
        // the rest.
        let other = match lane {
            Lane::Any => None,
            Lane::Short => Some(Lane::Long),
            Lane::Long => Some(Lane::Short),
        };
        if other.is_some_and(|lane| self.endpoint.sender().is_ready(lane)) {
            self.wake_idle();
        }
        let connection = &mut self.connections[at];
        connection.idle = out.bytes() == 0;
        if connection
            .waker
            .as_ref()
            .is_none_or(|old| !old.will_wake(waker))
        {
            connection.waker = Some(waker.clone());
        }
        // One connection watches the time for all.
        let first = self.due.first().map(|(due, _)| *due);
        let first = first.into_iter().chain(self.acks_due).min();
        Ok(first.filter(|_| at == 0))
    }

    /// Returns true if only acknowledgements of short frames are to be sent, and they can still wait. A request is
    /// usually answered at once, so the acknowledgement leaves in the same write as the response.
    fn hold_acks(&mut self, lane: Lane, now: Instant) -> bool {
        let due = match self.endpoint.receiver().answer_urgency() {
            AnswerUrgency::Deferrable if !self.endpoint.sender().is_ready(lane) => {
                let due = *self.acks_due.get_or_insert(now + HOLD_ACKS);
                (now < due).then_some(due)
            }
            _ => None,
        };
        self.acks_due = due;
        due.is_some()
    }

    /// Encodes a frame that changes nothing, so that an idle connection is not considered dead.
    pub(crate) fn keep_alive(&self, out: &mut Outbox) {
        Frame::Epoch(self.store.epoch()).encode(out.head());
    }

    /// Wakes the connections that found nothing to send.
    fn wake_idle(&mut self) {
        for connection in &mut self.connections {
            if std::mem::take(&mut connection.idle) {
                self.to_wake.extend(connection.waker.clone());
            }
        }
    }

    /// Counts a frame that was encoded, for the host of its stream.
    fn count_sent(&mut self, head: &[u8], bytes: usize, before: &SenderCounters) {
        let Some(stream) = outgoing_stream(head) else {
            return;
        };
        let Some(&(id, host)) = self.by_out.get(&stream) else {
            return;
        };
        let after = self.endpoint.sender().counters();
        self.traffic.sent(Some(host), bytes, before, &after);
        // No frame of this stream is queued before the held bytes any more, so their holding time applies from
        // now on.
        if let Some(duplex) = self.duplexes.get_mut(&id)
            && duplex.due.is_none()
            && let Some(hold) = &duplex.hold
            && !self.endpoint.sender().backlog(stream)
        {
            duplex.due = Some(hold.due());
            self.due.insert((hold.due(), id));
        }
    }

    /// Sends held bytes whose holding time has passed.
    fn flush_due(&mut self, now: Instant) {
        let mut flushed = false;
        while let Some(&(due, id)) = self.due.first()
            && due <= now
        {
            self.due.pop_first();
            let Some(duplex) = self.duplexes.get_mut(&id) else {
                continue;
            };
            duplex.due = None;
            let (Some(hold), Some(stream)) = (&mut duplex.hold, duplex.out) else {
                continue;
            };
            // Earlier frames of the stream are not written yet. The connection checks again after its next write.
            if self.endpoint.sender().backlog(stream) {
                continue;
            }
            hold.sealed_up_to(self.endpoint.sender().sealed(stream), now);
            let again = match hold.verdict(now) {
                Verdict::Wait(again) => Some(again),
                Verdict::Whole(again) => {
                    self.endpoint
                        .flush_whole(stream, &mut self.store, &mut self.codec);
                    flushed = true;
                    Some(again)
                }
                // The rest of the chunk follows when there is room for it. Sending its beginning gains nothing
                // until then, and most of these chunks turn out to be known. The wake-up of the writer schedules
                // the next check.
                Verdict::All
                    if duplex.writer.is_some() && self.endpoint.sender().has_unacked(stream) =>
                {
                    self.endpoint
                        .flush_whole(stream, &mut self.store, &mut self.codec);
                    flushed = true;
                    None
                }
                Verdict::All => {
                    let mut store = self.store.non_blocking();
                    self.endpoint.flush(stream, &mut store, &mut self.codec);
                    let (sender, pending) = (self.endpoint.sender(), store.into_pending());
                    self.stalls.add(sender, stream, pending, 1);
                    flushed = true;
                    duplex.hold = None;
                    None
                }
            };
            if let Some(again) = again {
                duplex.due = Some(again);
                self.due.insert((again, id));
            }
        }
        if flushed {
            self.wake_idle();
        }
    }
}

/// A frame may need up to three rounds of reads: container trailers, further containers of a run of references, and
/// the chunks. If the frame still
/// cannot be handled after that, because the system evicted the pages again or cannot read them, the read blocks.
const NON_BLOCKING_ATTEMPTS_MAX: u32 = 6;

/// Returns the stream of a frame and the number of body bytes that the frame covers.
fn incoming_stream(frame: &Frame<'_>) -> (Option<StreamId>, usize) {
    match frame {
        Frame::Open { stream, .. } | Frame::Close { stream, .. } => (Some(*stream), 0),
        Frame::Plain { span, .. }
        | Frame::Literal { span, .. }
        | Frame::Ref { span, .. }
        | Frame::RefRun { span, .. }
        | Frame::Delta { span, .. } => (Some(span.stream), span.length as usize),
        _ => (None, 0),
    }
}

/// Returns the stream of an encoded frame. The body of every frame about a stream begins with the stream's number.
fn outgoing_stream(frame: &[u8]) -> Option<StreamId> {
    const OPEN: u8 = 2;
    const RESET: u8 = 9;
    let kind = *frame.get(4)?;
    let stream = frame.get(16..20)?.try_into().ok()?;
    (OPEN..=RESET)
        .contains(&kind)
        .then(|| StreamId(u32::from_le_bytes(stream)))
}

/// A connection is given this many bytes of frames at once. The last frame may exceed it.
const FILL_BYTES: usize = 128 << 10;

/// The limit of connections of one peer.
const CONNECTIONS_MAX: usize = 16;
