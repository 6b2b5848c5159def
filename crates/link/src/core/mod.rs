//! The state of one peer, behind its lock: the two state machines, the streams that use them, and the tasks that
//! wait.
//!
//! No function here blocks or touches a socket. Streams and connections call in with the current time. The waker of
//! a task that has to wait is kept here; [`Peer::with`](crate::peer::Peer::with) wakes the tasks that can continue
//! once the lock is released.

mod events;
mod stalled;
mod talk;
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
use edgeward_dedup::receiver::Answers;
use edgeward_dedup::sender::{Lane, SenderCounters};
use edgeward_dedup::store::ChunkStore as _;
use edgeward_dedup::wire::{Disagreement, Frame, FrameSink as _, Hello, Role, StreamId};
use edgeward_dedup::{Handled, Violation, reason};

use crate::hold::{HOLD_ANSWERS, Verdict};
use crate::outbox::Outbox;
use crate::tally::Tallies;
use crate::turn::Turn;

use stalled::Stalls;
use talk::Talk;
pub(crate) use talk::{Read, Written};

/// Identifies one duplex stream of the peer.
pub(crate) type TalkId = u64;

/// Identifies one connection to the peer.
pub(crate) type LineId = u64;

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
    talks: HashMap<TalkId, Talk>,
    talk_next: TalkId,
    /// The duplex stream and the host counters of each outgoing stream. An outgoing stream stays here until it is
    /// delivered, even if its duplex stream is dropped.
    by_out: HashMap<StreamId, (TalkId, usize)>,
    by_in: HashMap<StreamId, (TalkId, usize)>,
    /// Streams that the peer opened and no task has accepted yet. At most as many as the peer may open.
    begun: VecDeque<TalkId>,
    begun_waker: Option<Waker>,
    /// When the held bytes of each stream have to be checked.
    due: BTreeSet<(Instant, TalkId)>,
    /// Until when acknowledgements wait for other frames.
    answers_due: Option<Instant>,
    /// Writers that wait because the limit of unacknowledged bytes of all streams is reached.
    crowded: VecDeque<TalkId>,
    /// Outgoing streams that wait for a disk read.
    stalls: Stalls,
    lines: Vec<Line>,
    line_next: LineId,
    wake: Vec<Waker>,
    pub(crate) tallies: Tallies,
    /// True after shutdown: new streams are refused.
    closed: bool,
}

struct Line {
    id: LineId,
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
            talks: HashMap::new(),
            talk_next: 0,
            by_out: HashMap::new(),
            by_in: HashMap::new(),
            begun: VecDeque::new(),
            begun_waker: None,
            due: BTreeSet::new(),
            answers_due: None,
            crowded: VecDeque::new(),
            stalls: Stalls::default(),
            lines: Vec::new(),
            line_next: 0,
            wake: Vec::new(),
            tallies: Tallies::default(),
            closed: false,
        }
    }

    /// Returns the wakers of the tasks that can continue, to be woken once the lock is released.
    pub(crate) fn due_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wake)
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// See [`Endpoint::recall`].
    pub(crate) fn recall(&mut self, knowledge: Knowledge) {
        self.endpoint.recall(knowledge);
    }

    /// Returns true if a stream is open, sent bytes are not acknowledged, or an acknowledgement has to be sent.
    pub(crate) fn is_busy(&self) -> bool {
        let owes = self.endpoint.receiver().answers() != Answers::None && !self.lines.is_empty();
        owes || !self.talks.is_empty() || self.endpoint.sender().unacked() > 0
    }

    pub(crate) fn talks(&self) -> usize {
        self.talks.len()
    }

    /// Returns the HELLO for a new connection.
    pub(crate) fn hello(&mut self) -> Hello {
        self.endpoint.hello(&self.store)
    }

    /// Adds a connection after both peers have sent HELLO.
    pub(crate) fn line_up(
        &mut self,
        role: Role,
        ours: &Hello,
        theirs: &Hello,
    ) -> Result<LineId, Disagreement> {
        let before = self.peer_session;
        if before == Some(theirs.session) && !self.lines.is_empty() {
            ours.agree(role, theirs)?;
        } else {
            self.endpoint.connected(role, ours, theirs)?;
            self.peer_session = Some(theirs.session);
            // No stream could be written before the peer announced its credit.
            for (id, talk) in &mut self.talks {
                self.wake.extend(talk.wake_writer());
                self.due.extend(talk.ask_again().map(|due| (due, *id)));
            }
            if before.is_some_and(|before| before != theirs.session) {
                self.drop_lines();
                self.end_all(reason::RESTARTED);
                while self.endpoint.event().is_some() {}
            }
        }
        if self.lines.len() >= LINES_MAX {
            // The oldest is usually a connection that broke without notice.
            let oldest = self.lines.remove(0);
            self.wake.extend(oldest.waker);
            self.endpoint.connection_lost();
        }
        let id = self.line_next;
        self.line_next += 1;
        self.lines.push(Line {
            id,
            waker: None,
            idle: false,
        });
        // The other connections may have another lane now.
        self.kick();
        Ok(id)
    }

    /// Removes a connection and returns how many are left.
    pub(crate) fn line_down(&mut self, line: LineId) -> usize {
        if let Some(at) = self.lines.iter().position(|up| up.id == line) {
            self.lines.remove(at);
            if !self.lines.is_empty() {
                self.endpoint.connection_lost();
                self.kick();
            }
        }
        self.lines.len()
    }

    pub(crate) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Returns the session of the peer's last HELLO.
    pub(crate) fn peer_session(&self) -> Option<u64> {
        self.peer_session
    }

    /// Returns the number of connections made so far.
    pub(crate) fn lines_made(&self) -> LineId {
        self.line_next
    }

    /// Detaches all connections: frames that they receive are no longer accepted.
    pub(crate) fn drop_lines(&mut self) {
        let lines = self.lines.drain(..);
        self.wake.extend(lines.filter_map(|line| line.waker));
    }

    /// Handles a frame received on a connection. `Ok(Err(_))` is a violation of the protocol, after which the
    /// connection has to be closed. If pending reads are returned, the frame had no effect; the caller performs the
    /// reads and passes the frame again. `times` is the number of earlier attempts.
    pub(crate) fn handle(
        &mut self,
        line: LineId,
        frame: Frame<'_>,
        memory: Option<&Bytes>,
        wire_bytes: usize,
        times: u32,
        turn: &mut Turn,
    ) -> Result<Result<Option<PendingReads>, Violation>, Superseded> {
        let up = self.lines.iter_mut().find(|up| up.id == line);
        // The connection is polled for frames to send after this in any case.
        up.ok_or(Superseded)?.idle = false;
        let (stream, bytes) = incoming_stream(&frame);
        turn.spend(bytes);
        let before = self.endpoint.receiver().counters();
        let news = match &frame {
            Frame::Ack(acks) => acks.iter().map(|acked| acked.stream).collect(),
            Frame::Credit(credits) => credits.iter().map(|(stream, _)| *stream).collect(),
            _ => Vec::new(),
        };
        let (endpoint, codec) = (&mut self.endpoint, &mut self.codec);
        let handled = if times < HASTY_TIMES_MAX {
            let mut store = self.store.non_blocking();
            let handled = endpoint.handle_in(frame, memory, &mut store, codec);
            handled.map(|handled| (handled == Handled::Again).then(|| store.into_pending()))
        } else {
            let handled = endpoint.handle_in(frame, memory, &mut self.store, codec);
            handled.map(|_| None)
        };
        self.tallies.late += u64::from(times == 0 && matches!(handled, Ok(Some(_))));
        self.events();
        self.wake_writers(news);
        if let Some(stream) = stream.filter(|_| !matches!(handled, Ok(Some(_)))) {
            let host = self.by_in.get(&stream).map(|(_, host)| *host);
            let after = self.endpoint.receiver().counters();
            self.tallies.received(host, wire_bytes, &before, &after);
        }
        Ok(handled)
    }

    /// Appends frames for a connection. Returns when to call again if no other event occurs.
    pub(crate) fn fill(
        &mut self,
        line: LineId,
        busy: bool,
        now: Instant,
        waker: &Waker,
        out: &mut Outbox,
        turn: &mut Turn,
    ) -> Result<Option<Instant>, Superseded> {
        let at = self.lines.iter().position(|up| up.id == line);
        let at = at.ok_or(Superseded)?;
        self.lines[at].idle = false;
        let lane = match (at, self.lines.len()) {
            (_, 1) => Lane::Any,
            (0, _) => Lane::Short,
            _ => Lane::Long,
        };
        self.flush_due(now);
        let waits = lane != Lane::Long && self.answers_wait(lane, now);
        let lost = self.endpoint.sender().counters().lost;
        // At least one frame is encoded even if the budget is spent, because no event would cause another call.
        while !waits && (out.bytes() == 0 || (out.bytes() < FILL_BYTES && !turn.is_over())) {
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
            turn.spend((packed(&after) - packed(&before)) as usize);
            self.sent(out.heads(head), out.bytes() - start, &before);
        }
        if self.endpoint.sender().counters().lost > lost {
            self.events();
        }
        // The beginning of a body was sent here; the other connection sends the rest.
        let other = match lane {
            Lane::Any => None,
            Lane::Short => Some(Lane::Long),
            Lane::Long => Some(Lane::Short),
        };
        if other.is_some_and(|lane| self.endpoint.sender().is_ready(lane)) {
            self.kick();
        }
        let line = &mut self.lines[at];
        line.idle = out.bytes() == 0;
        if line.waker.as_ref().is_none_or(|old| !old.will_wake(waker)) {
            line.waker = Some(waker.clone());
        }
        // One connection watches the time for all.
        let first = self.due.first().map(|(due, _)| *due);
        let first = first.into_iter().chain(self.answers_due).min();
        Ok(first.filter(|_| at == 0))
    }

    /// Returns true if only acknowledgements of short frames are to be sent, and they can still wait. A request is
    /// usually answered at once, so the acknowledgement leaves in the same write as the response.
    fn answers_wait(&mut self, lane: Lane, now: Instant) -> bool {
        let due = match self.endpoint.receiver().answers() {
            Answers::Patient if !self.endpoint.sender().is_ready(lane) => {
                let due = *self.answers_due.get_or_insert(now + HOLD_ANSWERS);
                (now < due).then_some(due)
            }
            _ => None,
        };
        self.answers_due = due;
        due.is_some()
    }

    /// Encodes a frame that changes nothing, so that an idle connection is not considered dead.
    pub(crate) fn keep_alive(&self, out: &mut Outbox) {
        Frame::Epoch(self.store.epoch()).encode(out.head());
    }

    /// Wakes the connections that found nothing to send.
    fn kick(&mut self) {
        for line in &mut self.lines {
            if std::mem::take(&mut line.idle) {
                self.wake.extend(line.waker.clone());
            }
        }
    }

    /// Counts a frame that was encoded, for the host of its stream.
    fn sent(&mut self, head: &[u8], bytes: usize, before: &SenderCounters) {
        let Some(stream) = outgoing_stream(head) else {
            return;
        };
        let Some(&(id, host)) = self.by_out.get(&stream) else {
            return;
        };
        let after = self.endpoint.sender().counters();
        self.tallies.sent(Some(host), bytes, before, &after);
        // The held bytes are no longer behind this frame, so their holding time counts.
        if let Some(talk) = self.talks.get_mut(&id)
            && talk.due.is_none()
            && let Some(hold) = &talk.hold
            && !self.endpoint.sender().backlog(stream)
        {
            talk.due = Some(hold.due());
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
            let Some(talk) = self.talks.get_mut(&id) else {
                continue;
            };
            talk.due = None;
            let (Some(hold), Some(stream)) = (&mut talk.hold, talk.out) else {
                continue;
            };
            // The stream waits for the connection, which calls again after its next write.
            if self.endpoint.sender().backlog(stream) {
                continue;
            }
            hold.saw(self.endpoint.sender().sealed(stream), now);
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
                    if talk.writer.is_some() && self.endpoint.sender().under_way(stream) =>
                {
                    self.endpoint
                        .flush_whole(stream, &mut self.store, &mut self.codec);
                    flushed = true;
                    None
                }
                Verdict::All => {
                    let mut store = self.store.non_blocking();
                    self.endpoint.flush(stream, &mut store, &mut self.codec);
                    let (sender, wanted) = (self.endpoint.sender(), store.into_pending());
                    self.stalls.add(sender, stream, wanted, 1);
                    flushed = true;
                    talk.hold = None;
                    None
                }
            };
            if let Some(again) = again {
                talk.due = Some(again);
                self.due.insert((again, id));
            }
        }
        if flushed {
            self.kick();
        }
    }
}

/// A frame may need trailers, then the containers in which a run continues, then the chunks. If the frame still
/// cannot be handled after that, because the system evicted the pages again or cannot read them, the read blocks.
const HASTY_TIMES_MAX: u32 = 6;

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
const LINES_MAX: usize = 16;
