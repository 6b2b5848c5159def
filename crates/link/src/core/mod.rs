//! One peer behind its lock: the two machines, the conversations that use them, and who waits for what.
//!
//! Nothing here waits or touches a socket. Streams and connections call in with the time in hand, and what they wait for is a waker that
//! is kept here; [`Peer::with`](crate::peer::Peer::with) wakes those that are due when the lock is free again.

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
use edgeward_chunk_store::{Chunks, Wanted};
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

/// One conversation with the peer.
pub(crate) type TalkId = u64;

/// One connection to the peer.
pub(crate) type LineId = u64;

/// What a core is made of beside the machines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreConfig {
    /// Whether the peer may begin conversations.
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
    /// Whose streams these are, with the tallies of their hosts. What is sent outlives its conversation until it is delivered.
    by_out: HashMap<StreamId, (TalkId, usize)>,
    by_in: HashMap<StreamId, (TalkId, usize)>,
    /// Begun by the peer and not picked up yet; as many as it may have streams.
    begun: VecDeque<TalkId>,
    begun_waker: Option<Waker>,
    /// When what waits of a body has to be looked at.
    due: BTreeSet<(Instant, TalkId)>,
    /// Until when answers wait for company.
    answers_due: Option<Instant>,
    /// Writers that wait because of all bodies together.
    crowded: VecDeque<TalkId>,
    /// Bodies that wait for the disk.
    stalls: Stalls,
    lines: Vec<Line>,
    line_next: LineId,
    wake: Vec<Waker>,
    pub(crate) tallies: Tallies,
    /// Everybody who comes after this is refused.
    closed: bool,
}

struct Line {
    id: LineId,
    waker: Option<Waker>,
    /// It found nothing to send when it last asked.
    idle: bool,
}

/// The connection is one of the peer's no more.
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

    /// Whoever is to be woken, once the lock is free.
    pub(crate) fn due_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wake)
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// As [`Endpoint::recall`].
    pub(crate) fn recall(&mut self, knowledge: Knowledge) {
        self.endpoint.recall(knowledge);
    }

    /// Whether a conversation goes on, something is not delivered, or the peer waits to hear that it is.
    pub(crate) fn is_busy(&self) -> bool {
        let owes = self.endpoint.receiver().answers() != Answers::None && !self.lines.is_empty();
        owes || !self.talks.is_empty() || self.endpoint.sender().unacked() > 0
    }

    pub(crate) fn talks(&self) -> usize {
        self.talks.len()
    }

    /// What to say first on a connection.
    pub(crate) fn hello(&mut self) -> Hello {
        self.endpoint.hello(&self.store)
    }

    /// Both have said HELLO: the connection is one of the peer's.
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
            // Nobody could write before the peer said how much.
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
            // Usually one that broke without a word.
            let oldest = self.lines.remove(0);
            self.wake.extend(oldest.waker);
            self.endpoint.line_lost();
        }
        let id = self.line_next;
        self.line_next += 1;
        self.lines.push(Line {
            id,
            waker: None,
            idle: false,
        });
        // The others may have another lane now.
        self.kick();
        Ok(id)
    }

    /// The connection is gone; how many are left.
    pub(crate) fn line_down(&mut self, line: LineId) -> usize {
        if let Some(at) = self.lines.iter().position(|up| up.id == line) {
            self.lines.remove(at);
            if !self.lines.is_empty() {
                self.endpoint.line_lost();
                self.kick();
            }
        }
        self.lines.len()
    }

    pub(crate) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// The session of the peer's last HELLO.
    pub(crate) fn peer_session(&self) -> Option<u64> {
        self.peer_session
    }

    /// Connections there ever were.
    pub(crate) fn lines_made(&self) -> LineId {
        self.line_next
    }

    /// Takes frames no more from any connection there is.
    pub(crate) fn drop_lines(&mut self) {
        let lines = self.lines.drain(..);
        self.wake.extend(lines.filter_map(|line| line.waker));
    }

    /// Takes what came on a connection: `Ok(Err(_))` is a violation, after which the connection has to go. If something is wanted, the frame
    /// did nothing, and is to come again when that was read; `times` is how often it was handed in before.
    pub(crate) fn handle(
        &mut self,
        line: LineId,
        frame: Frame<'_>,
        memory: Option<&Bytes>,
        wire_bytes: usize,
        times: u32,
        turn: &mut Turn,
    ) -> Result<Result<Option<Wanted>, Violation>, Superseded> {
        let up = self.lines.iter_mut().find(|up| up.id == line);
        // It looks for something to send after this anyway.
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
            let mut store = self.store.hasty();
            let handled = endpoint.handle_in(frame, memory, &mut store, codec);
            handled.map(|handled| (handled == Handled::Again).then(|| store.into_wanted()))
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

    /// Appends frames for a connection; when to ask again if nothing else happens.
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
        // However little time there is, one frame is made: else nobody would ask again.
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
        // A body whose short beginning went here goes on elsewhere.
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
        // Only one has to watch the time.
        let first = self.due.first().map(|(due, _)| *due);
        let first = first.into_iter().chain(self.answers_due).min();
        Ok(first.filter(|_| at == 0))
    }

    /// Whether all there is to say is that little arrived, and there is still time for it: whoever asked is usually answered, in one write
    /// instead of two.
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

    /// Something that changes nothing, so that an idle connection is not taken for a dead one.
    pub(crate) fn keep_alive(&self, out: &mut Outbox) {
        Frame::Epoch(self.store.epoch()).encode(out.head());
    }

    /// Connections that found nothing to send look again.
    fn kick(&mut self) {
        for line in &mut self.lines {
            if std::mem::take(&mut line.idle) {
                self.wake.extend(line.waker.clone());
            }
        }
    }

    /// A frame was made: whose it is, and what it saved.
    fn sent(&mut self, head: &[u8], bytes: usize, before: &SenderCounters) {
        let Some(stream) = outgoing_stream(head) else {
            return;
        };
        let Some(&(id, host)) = self.by_out.get(&stream) else {
            return;
        };
        let after = self.endpoint.sender().counters();
        self.tallies.sent(Some(host), bytes, before, &after);
        // What waited behind this frame waits for time now.
        if let Some(talk) = self.talks.get_mut(&id)
            && talk.due.is_none()
            && let Some(hold) = &talk.hold
            && !self.endpoint.sender().backlog(stream)
        {
            talk.due = Some(hold.due());
            self.due.insert((hold.due(), id));
        }
    }

    /// What waited long enough leaves.
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
            // The line is what it waits for; when it has had its turn we are asked again.
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
                // The rest of the chunk will come when there is room for it. Until then nothing is gained by what there is, and most
                // of such chunks turn out to be known. Whoever wakes the writer has us asked again.
                Verdict::All
                    if talk.writer.is_some() && self.endpoint.sender().under_way(stream) =>
                {
                    self.endpoint
                        .flush_whole(stream, &mut self.store, &mut self.codec);
                    flushed = true;
                    None
                }
                Verdict::All => {
                    let mut store = self.store.hasty();
                    self.endpoint.flush(stream, &mut store, &mut self.codec);
                    let (sender, wanted) = (self.endpoint.sender(), store.into_wanted());
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

/// Trailers, those of the containers a run goes on in, the chunks: a frame that then still has no answer, since the system has
/// forgotten them again or cannot read them, has to wait for the device where it is.
const HASTY_TIMES_MAX: u32 = 6;

/// Whose body a frame is of, and how many bytes of it.
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

/// As [`incoming_stream`], of one that was just made: all that are about a body begin with its number.
fn outgoing_stream(frame: &[u8]) -> Option<StreamId> {
    const OPEN: u8 = 2;
    const RESET: u8 = 9;
    let kind = *frame.get(4)?;
    let stream = frame.get(16..20)?.try_into().ok()?;
    (OPEN..=RESET)
        .contains(&kind)
        .then(|| StreamId(u32::from_le_bytes(stream)))
}

/// A connection is given so much at once, and the last frame may go beyond it.
const FILL_BYTES: usize = 128 << 10;

/// Connections of one peer.
const LINES_MAX: usize = 16;
