//! The state of one peer: the state machines of sender and receiver, and the streams that use them.
//!
//! No function here blocks, uses a socket, or wakes a task. The task of the peer ([`crate::driver`]) calls these
//! functions with the current time, and asks which streams can be read or written
//! ([`take_ready`](Core::take_ready)). After each call it offers the connections to send frames.

mod duplex;
mod events;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;

use edgeward_chunk_store::codec::Compressors;
use edgeward_chunk_store::{Chunks, StorePanicked, WouldBlock};
use edgeward_dedup::buffer::Pool;
use edgeward_dedup::endpoint::{Continued, Endpoint};
use edgeward_dedup::id::IdKey;
use edgeward_dedup::knowledge::Knowledge;
use edgeward_dedup::receiver::{AnswerUrgency, ReceiverCounters};
use edgeward_dedup::sender::{Lane, SenderCounters};
use edgeward_dedup::store::{Answer, Request, RequestId};
use edgeward_dedup::wire::{Disagreement, Frame, FrameSink as _, Hello, Role, StreamId};
use edgeward_dedup::{Violation, reason};

use crate::budget::Budget;
use crate::knowledge_pages::KnowledgePages;
use crate::outbox::Outbox;
use crate::send_delay::{ACK_DELAY, SendAction};
use crate::traffic::{StreamRows, TrafficCounters};

use duplex::Duplex;
pub(crate) use duplex::{Read, Written};

/// Identifies one duplex stream of the peer.
pub(crate) type DuplexId = u64;

/// Identifies one connection to the peer.
pub(crate) type ConnectionId = u64;

/// The settings of a core, apart from those of the state machines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreConfig {
    /// True if the peer may open streams.
    pub(crate) accepts: bool,
    /// True if bodies are cut into chunks and the chunks are looked up in the store.
    pub(crate) dedup: bool,
    /// True if bodies that begin like encrypted or compressed data bypass deduplication.
    pub(crate) probe: bool,
    /// The highest number of unacknowledged bytes of all streams.
    pub(crate) unacked_max: usize,
}

/// The state of one peer: sender, receiver, streams and connections.
pub(crate) struct Core {
    config: CoreConfig,
    endpoint: Endpoint,
    store: Chunks,
    knowledge_pages: KnowledgePages,
    id_key: IdKey,
    pool: Pool,
    codec: Compressors,
    /// The session number in the peer's last HELLO. The peer chooses a new random number when it starts.
    peer_session: Option<u64>,
    duplexes: HashMap<DuplexId, Duplex>,
    next_duplex: DuplexId,
    /// For each outgoing one-way stream: its duplex stream, and the rows of its counters in `traffic`. An outgoing
    /// stream stays here until it is delivered, even if its duplex stream is dropped.
    outgoing_streams: HashMap<StreamId, (DuplexId, StreamRows)>,
    /// For each incoming one-way stream: its duplex stream, and the rows of its counters in `traffic`.
    incoming_streams: HashMap<StreamId, (DuplexId, StreamRows)>,
    /// Streams that the peer opened and no task has accepted yet. The limit of the peer's streams limits this queue.
    unaccepted: VecDeque<DuplexId>,
    /// The times at which the core decides whether to send held bytes, and their streams. Written bytes are held back
    /// for a short time until their last chunk is complete, see [`SendDelay`](crate::send_delay::SendDelay).
    send_decisions: BTreeSet<(Instant, DuplexId)>,
    /// The time until which acknowledgements are delayed, so that they can be sent together with other frames.
    acks_deadline: Option<Instant>,
    /// Writers that wait because the limit of unacknowledged bytes of all streams is reached.
    writers_at_limit: VecDeque<DuplexId>,
    /// The requests to the store that need its device. The task of the peer submits them to the threads of the store.
    slow_requests: Vec<SlowRequest>,
    /// The number of such requests that a frame or a body waits for.
    slow_count: usize,
    /// True while the requests that follow the answer of such a thread are performed.
    is_completing: bool,
    /// The connections to the peer, in the order in which they were made.
    connections: Vec<AttachedConnection>,
    /// The violation because of which all connections were detached, until one of them has reported it.
    violation: Option<Violation>,
    next_connection: ConnectionId,
    /// The streams whose users wait and can continue. A stream may be listed twice.
    ready: Vec<DuplexId>,
    pub(crate) traffic: TrafficCounters,
    /// True after shutdown: new streams are refused.
    is_shut_down: bool,
}

#[derive(Debug)]
struct AttachedConnection {
    id: ConnectionId,
    /// True if the socket did not accept all bytes since the connection was last [filled](Core::fill).
    is_blocked: bool,
}

/// A request to the store that needs its device.
#[derive(Debug)]
pub(crate) struct SlowRequest {
    pub(crate) id: RequestId,
    pub(crate) request: Request,
    /// True if a frame or a body waits for the answer.
    pub(crate) is_awaited: bool,
}

/// The answer to a slow request, as [`Chunks::submit`] passes it on.
pub(crate) type SlowAnswer = Result<Option<Answer>, StorePanicked>;

/// Returned to a connection that was removed from the peer, because the peer restarted or has newer connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superseded;

impl Core {
    pub(crate) fn new(
        config: CoreConfig,
        mut endpoint: Endpoint,
        store: Chunks,
        knowledge_pages: KnowledgePages,
    ) -> Self {
        endpoint.set_own_epoch(store.epoch());
        Self {
            config,
            id_key: endpoint.id_key().clone(),
            pool: endpoint.pool().clone(),
            endpoint,
            store,
            knowledge_pages,
            codec: Compressors::new(),
            peer_session: None,
            duplexes: HashMap::new(),
            next_duplex: 0,
            outgoing_streams: HashMap::new(),
            incoming_streams: HashMap::new(),
            unaccepted: VecDeque::new(),
            send_decisions: BTreeSet::new(),
            acks_deadline: None,
            writers_at_limit: VecDeque::new(),
            slow_requests: Vec::new(),
            slow_count: 0,
            is_completing: false,
            connections: Vec::new(),
            violation: None,
            next_connection: 0,
            ready: Vec::new(),
            traffic: TrafficCounters::default(),
            is_shut_down: false,
        }
    }

    /// Returns the streams whose users have waited and can continue.
    pub(crate) fn take_ready(&mut self) -> Vec<DuplexId> {
        std::mem::take(&mut self.ready)
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Sets which chunks the peer has, as saved before the last shutdown. See [`Endpoint::restore_knowledge`].
    pub(crate) fn set_knowledge(&mut self, knowledge: Knowledge) {
        self.endpoint.restore_knowledge(knowledge);
    }

    /// Shares the memory of the record of the peer's chunks with other peers.
    pub(crate) fn share_knowledge(&mut self) {
        self.knowledge_pages.share(self.endpoint.knowledge_mut());
    }

    /// Returns a copy of the record of the peer's chunks. Returns `None` if the record has not changed in the
    /// containers with numbers below `end` since the last call. The copy for a full store takes less than a
    /// millisecond.
    pub(crate) fn take_unsaved_knowledge(&mut self, end: u32) -> Option<Knowledge> {
        self.endpoint.knowledge_mut().take_unsaved(end)
    }

    /// Records that the last copy could not be saved.
    pub(crate) fn set_knowledge_unsaved(&mut self) {
        self.endpoint.knowledge_mut().set_unsaved();
    }

    /// Ends all streams and connections after a task has panicked while it changed the state machines.
    pub(crate) fn restart(&mut self) {
        self.endpoint.restart();
        self.codec = Compressors::new();
        self.is_completing = false;
        self.peer_session = None;
        self.endpoint.set_own_epoch(self.store.epoch());
        self.detach_connections();
        self.fail_all(reason::RESTARTED);
    }

    /// Returns true if a stream is open, sent bytes are not acknowledged, or an acknowledgement has to be sent.
    pub(crate) fn is_busy(&self) -> bool {
        let must_acknowledge = self.endpoint.receiver().answer_urgency() != AnswerUrgency::None
            && !self.connections.is_empty();
        must_acknowledge || !self.duplexes.is_empty() || self.endpoint.sender().unacked() > 0
    }

    /// Returns the number of open duplex streams.
    pub(crate) fn open_streams(&self) -> usize {
        self.duplexes.len()
    }

    /// Returns the number of streams that can be opened now.
    pub(crate) fn free_streams(&self) -> usize {
        self.endpoint.sender().free_streams()
    }

    /// Returns the number of unacknowledged and unread bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.endpoint.sender().unacked() as u64 + self.endpoint.receiver().granted()
    }

    /// Returns the HELLO for a new connection.
    pub(crate) fn hello(&mut self) -> Hello {
        self.endpoint.set_own_epoch(self.store.epoch());
        self.endpoint.hello()
    }

    /// Adds a connection after both peers have sent HELLO.
    pub(crate) fn add_connection(
        &mut self,
        role: Role,
        our_hello: &Hello,
        peer_hello: &Hello,
    ) -> Result<ConnectionId, Disagreement> {
        let before = self.peer_session;
        if before == Some(peer_hello.session) && !self.connections.is_empty() {
            our_hello.agree(role, peer_hello)?;
        } else {
            self.endpoint.handle_hello(role, our_hello, peer_hello)?;
            self.peer_session = Some(peer_hello.session);
            // The peer's HELLO has announced its credit, so the writers of all streams can continue.
            for (id, duplex) in &mut self.duplexes {
                self.ready.extend(duplex.resume_writer().then_some(*id));
                self.send_decisions
                    .extend(duplex.schedule_decision().map(|due| (due, *id)));
            }
            if before.is_some_and(|before| before != peer_hello.session) {
                self.detach_connections();
                self.fail_all(reason::RESTARTED);
                while self.endpoint.event().is_some() {}
            }
        }
        if self.connections.len() >= CONNECTIONS_MAX {
            // The oldest connection has usually failed without a notice to this host.
            self.connections.remove(0);
            self.endpoint.handle_connection_loss();
        }
        let id = self.next_connection;
        self.next_connection += 1;
        self.connections.push(AttachedConnection {
            id,
            is_blocked: false,
        });
        Ok(id)
    }

    /// Removes a connection and returns the number of remaining connections.
    pub(crate) fn remove_connection(&mut self, connection: ConnectionId) -> usize {
        if let Some(at) = self.position(connection) {
            self.connections.remove(at);
            if !self.connections.is_empty() {
                self.endpoint.handle_connection_loss();
            }
        }
        self.connections.len()
    }

    /// Returns the number of current connections.
    pub(crate) fn connection_count(&self) -> usize {
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
        self.connections.clear();
    }

    /// Detaches all connections, because a frame that waited for the store violates the protocol. The connection that
    /// has received the frame is not known any more.
    pub(crate) fn end_by_violation(&mut self, violation: Violation) {
        self.violation = (!self.connections.is_empty()).then_some(violation);
        self.detach_connections();
    }

    /// Returns the violation because of which the connections were detached, once.
    pub(crate) fn take_violation(&mut self) -> Option<Violation> {
        self.violation.take()
    }

    /// Returns true if the connection was neither removed nor detached.
    pub(crate) fn has_connection(&self, connection: ConnectionId) -> bool {
        self.position(connection).is_some()
    }

    fn position(&self, connection: ConnectionId) -> Option<usize> {
        self.connections.iter().position(|of| of.id == connection)
    }

    /// Records that the socket of a connection has not accepted all bytes. The next connection can now be filled.
    pub(crate) fn set_blocked(&mut self, connection: ConnectionId) {
        if let Some(at) = self.position(connection) {
            self.connections[at].is_blocked = true;
        }
    }

    /// Handles a frame received on a connection. `Ok(Err(_))` is a violation of the protocol, after which the
    /// caller closes the connection. `frame_buffer` is the buffer from which the frame was decoded, if a payload may be
    /// delivered from it without a copy. `wire_bytes` is the length of the encoded frame. `budget` is what remains
    /// of the caller's time slice.
    pub(crate) fn handle(
        &mut self,
        connection: ConnectionId,
        frame: Frame<'_>,
        frame_buffer: Option<&Bytes>,
        wire_bytes: usize,
        budget: &mut Budget,
    ) -> Result<Result<(), Violation>, Superseded> {
        if !self.has_connection(connection) {
            return Err(Superseded);
        }
        let (stream, bytes) = incoming_stream(&frame);
        budget.spend(bytes);
        let before = self.endpoint.receiver().counters();
        let progressed = match &frame {
            Frame::Ack(acks) => acks.iter().map(|acked| acked.stream).collect(),
            Frame::Credit(credits) => credits.iter().map(|(stream, _)| *stream).collect(),
            _ => Vec::new(),
        };
        let handled = self.endpoint.handle(frame, frame_buffer, &mut self.codec);
        let handled = handled.and_then(|()| self.answer_requests().map(|_| ()));
        self.handle_events();
        self.resume_writers(progressed);
        if let Some(stream) = stream {
            self.count_received(stream, wire_bytes, &before, budget);
        }
        Ok(handled)
    }

    /// Adds received bytes to the counters of their stream's host, and charges bytes that were loaded for deltas: a
    /// delta of a few bytes makes the receiver load half a megabyte.
    fn count_received(
        &mut self,
        stream: StreamId,
        wire_bytes: usize,
        before: &ReceiverCounters,
        budget: &mut Budget,
    ) {
        let rows = self.incoming_streams.get(&stream).map(|(_, rows)| *rows);
        let after = self.endpoint.receiver().counters();
        self.traffic
            .count_received(rows, wire_bytes, before, &after);
        budget.spend((after.bases - before.bases) as usize);
    }

    /// Answers the requests of the state machines to the store. Those that need a read from the device wait for a
    /// thread that may block. Returns true if a request was answered.
    fn answer_requests(&mut self) -> Result<bool, Violation> {
        let mut has_answered = false;
        while let Some((id, request)) = self.endpoint.request() {
            match self.store.try_answer(&request, &self.id_key, &self.pool) {
                Ok(None) => {}
                Ok(Some(answer)) => {
                    has_answered = true;
                    self.endpoint.complete(id, answer, &mut self.codec)?;
                }
                Err(WouldBlock) => {
                    // A frame or body that has waited before is not counted again.
                    let count = u64::from(!self.is_completing);
                    let is_awaited = !matches!(request, Request::Store { .. });
                    match id.is_incoming() {
                        _ if !is_awaited => {}
                        true => self.traffic.parked_frames += count,
                        false => self.traffic.stalled_bodies += count,
                    }
                    self.slow_count += usize::from(is_awaited);
                    self.slow_requests.push(SlowRequest {
                        id,
                        request,
                        is_awaited,
                    });
                }
            }
        }
        Ok(has_answered)
    }

    /// Lets the threads of the store perform the requests that need its device. `on_answer` is called for each answer,
    /// on any thread, and passes its arguments to [`complete`](Self::complete).
    pub(crate) fn submit_slow_requests(
        &mut self,
        on_answer: impl Fn(RequestId, bool, SlowAnswer) + Clone + Send + 'static,
    ) {
        for slow in self.slow_requests.drain(..) {
            let (id, is_awaited, on_answer) = (slow.id, slow.is_awaited, on_answer.clone());
            let on_answer = move |answer| on_answer(id, is_awaited, answer);
            self.store
                .submit(slow.request, &self.id_key, &self.pool, on_answer);
        }
    }

    /// Handles the answer to a request that a thread of the store has performed.
    pub(crate) fn complete(&mut self, id: RequestId, is_awaited: bool, answer: SlowAnswer) {
        self.slow_count -= usize::from(is_awaited);
        let before = self.endpoint.receiver().counters();
        let completed = match answer {
            Ok(Some(answer)) => self.endpoint.complete(id, answer, &mut self.codec),
            Ok(None) => Ok(None),
            Err(StorePanicked) => {
                // Without an answer, the stream and at last all connections of the peer would wait for ever.
                tracing::error!(
                    "a thread of the chunk store has panicked: all streams of its peer end"
                );
                return self.restart();
            }
        };
        self.is_completing = true;
        let continued = completed.and_then(|continued| {
            self.answer_requests()?;
            Ok(continued)
        });
        self.is_completing = false;
        match continued {
            Ok(Some(Continued::Incoming(stream))) => {
                self.count_received(stream, 0, &before, &mut Budget::default());
            }
            Ok(Some(Continued::Outgoing(stream))) => self.resume_writers(vec![stream]),
            Ok(None) => {}
            Err(violation) => self.end_by_violation(violation),
        }
        self.handle_events();
    }

    /// Returns the number of requests to the store for which a frame or a body waits.
    pub(crate) fn slow_count(&self) -> usize {
        self.slow_count
    }

    /// Appends frames for a connection to `out`. Returns the time at which the caller must call again if no
    /// event wakes it earlier.
    pub(crate) fn fill(
        &mut self,
        connection: ConnectionId,
        now: Instant,
        out: &mut Outbox,
        budget: &mut Budget,
    ) -> Result<Option<Instant>, Superseded> {
        let at = self.position(connection).ok_or(Superseded)?;
        let was_blocked = std::mem::take(&mut self.connections[at].is_blocked);
        // With several connections, the first one sends short frames and the others send long frames.
        let lane = match (at, self.connections.len()) {
            (_, 1) => Lane::Any,
            (0, _) => Lane::Short,
            _ => Lane::Long,
        };
        // A connection sends long frames only while those before it are blocked. If the sockets of several connections
        // took bytes at the same time, the link would look idle, and frames would be shorter and less compressed.
        let before = self.connections.get(1..at).unwrap_or_default();
        if !before.iter().all(|before| before.is_blocked) {
            return Ok(None);
        }
        let link_busy = was_blocked || !before.is_empty();
        self.decide_about_held_bytes(now);
        let delays_acks = lane != Lane::Long && self.delay_acks(lane, now);
        let lost_before = self.endpoint.sender().counters().lost;
        // At least one frame is encoded even if the budget is spent. Otherwise this call would send no frame,
        // and no later event would wake the connection.
        while !delays_acks && (out.bytes() == 0 || (out.bytes() < FILL_BYTES && !budget.is_spent()))
        {
            let (start, head) = (out.bytes(), out.heads_bytes());
            let before = self.endpoint.sender().counters();
            if !self
                .endpoint
                .transmit(lane, link_busy, &mut self.codec, out)
            {
                // Frames may wait for bytes that are loaded from the store.
                if self.answer_own_requests() {
                    continue;
                }
                break;
            }
            let after = self.endpoint.sender().counters();
            let encoded = |of: &SenderCounters| of.plain + of.literal + of.delta;
            budget.spend((encoded(&after) - encoded(&before)) as usize);
            self.count_sent(out.heads(head), out.bytes() - start, &before);
        }
        if self.endpoint.sender().counters().lost > lost_before {
            self.handle_events();
        }
        // Only the first connection sets a timer. It acts for all connections.
        let first = self.send_decisions.first().map(|(due, _)| *due);
        let first = first.into_iter().chain(self.acks_deadline).min();
        Ok(first.filter(|_| at == 0))
    }

    /// Returns true if only acknowledgements are ready to be sent, and they can be delayed longer. Most
    /// requests are answered within [`ACK_DELAY`], so the acknowledgement is sent in the same write as the response.
    fn delay_acks(&mut self, lane: Lane, now: Instant) -> bool {
        let due = match self.endpoint.receiver().answer_urgency() {
            AnswerUrgency::Deferrable if !self.endpoint.sender().is_ready(lane) => {
                let due = *self.acks_deadline.get_or_insert(now + ACK_DELAY);
                (now < due).then_some(due)
            }
            _ => None,
        };
        self.acks_deadline = due;
        due.is_some()
    }

    /// Encodes an EPOCH frame with the current epoch of the store. The frame changes no state of the peer. It shows the
    /// peer that an idle connection still works.
    pub(crate) fn keep_alive(&self, out: &mut Outbox) {
        Frame::Epoch(self.store.epoch()).encode(out.head());
    }

    /// Adds an encoded frame to the counters of its stream's host. If it was the last queued frame of the stream,
    /// schedules the decision about the stream's held bytes.
    fn count_sent(&mut self, head: &[u8], bytes: usize, before: &SenderCounters) {
        let Some(stream) = outgoing_stream(head) else {
            return;
        };
        let Some(&(id, rows)) = self.outgoing_streams.get(&stream) else {
            return;
        };
        let after = self.endpoint.sender().counters();
        self.traffic.count_sent(Some(rows), bytes, before, &after);
        // All earlier frames of the stream have been encoded. From now on, the held bytes are sent when their holding
        // time has passed.
        if let Some(duplex) = self.duplexes.get_mut(&id)
            && duplex.next_decision.is_none()
            && let Some(send_delay) = &duplex.send_delay
            && !self.endpoint.sender().has_backlog(stream)
        {
            duplex.next_decision = Some(send_delay.first_decision());
            self.send_decisions
                .insert((send_delay.first_decision(), id));
        }
    }

    /// Decides about the held bytes of each stream whose decision is scheduled at `now` or earlier, and sends them
    /// or schedules the next decision.
    fn decide_about_held_bytes(&mut self, now: Instant) {
        let mut has_flushed = false;
        while let Some(&(due, id)) = self.send_decisions.first()
            && due <= now
        {
            self.send_decisions.pop_first();
            let Some(duplex) = self.duplexes.get_mut(&id) else {
                continue;
            };
            duplex.next_decision = None;
            let (Some(send_delay), Some(stream)) = (&mut duplex.send_delay, duplex.outgoing) else {
                continue;
            };
            // Earlier frames of the stream are still queued. `count_sent` schedules the next decision when the
            // last of them is encoded.
            if self.endpoint.sender().has_backlog(stream) {
                continue;
            }
            send_delay.set_framed_offset(self.endpoint.sender().framed_up_to(stream), now);
            let again = match send_delay.action(now) {
                SendAction::Wait(again) => Some(again),
                SendAction::SendCompleteChunks(again) => {
                    self.endpoint.flush_whole(stream);
                    has_flushed = true;
                    Some(again)
                }
                // The writer waits for credit, so the last chunk is incomplete. Its beginning is not sent yet: most
                // chunks are known to the peer, and the complete chunk can then be sent as a reference. When the
                // writer can continue, the next decision is scheduled.
                SendAction::SendAll
                    if duplex.writer_waits && self.endpoint.sender().has_unacked(stream) =>
                {
                    self.endpoint.flush_whole(stream);
                    has_flushed = true;
                    None
                }
                SendAction::SendAll => {
                    self.endpoint.flush(stream);
                    has_flushed = true;
                    duplex.send_delay = None;
                    None
                }
            };
            if let Some(again) = again {
                duplex.next_decision = Some(again);
                self.send_decisions.insert((again, id));
            }
        }
        if has_flushed {
            self.answer_own_requests();
        }
    }

    /// Answers requests after an operation of this endpoint, in which the peer has no part.
    fn answer_own_requests(&mut self) -> bool {
        self.answer_requests().unwrap_or_else(|violation| {
            self.end_by_violation(violation);
            false
        })
    }
}

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

/// Returns the stream of an encoded frame. The body of every frame that concerns one stream begins with the number of
/// this stream.
fn outgoing_stream(frame: &[u8]) -> Option<StreamId> {
    const OPEN: u8 = 2;
    const RESET: u8 = 9;
    let kind = *frame.get(4)?;
    let stream = frame.get(16..24)?.try_into().ok()?;
    (OPEN..=RESET)
        .contains(&kind)
        .then(|| StreamId(u64::from_le_bytes(stream)))
}

/// `fill` appends frames until they have this many bytes. The last frame may exceed this number.
const FILL_BYTES: usize = 128 << 10;

/// The highest number of connections of one peer.
const CONNECTIONS_MAX: usize = 16;
