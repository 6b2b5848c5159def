//! The receiving end: frames in, bodies out.
//!
//! The store here is the authority. A chunk that is named is looked up, loaded and hashed; what is missing, harmed or was
//! never exchanged with this peer is refused, and comes as bytes one round trip later. Nothing is taken on trust at
//! the end either: a body whose digest is not its sender's has failed.
//!
//! Memory is bounded by credit: a body is sent no further than what was taken of it plus a window. Every stream
//! begins with a small window that is set aside for it; the larger ones come out of one budget, so a fast stream may have
//! nearly all of it while it is alone.

mod ended;
mod lookup;
mod stream;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use crate::codec::Codec;
use crate::store::ChunkStore;
use crate::wire::{Acked, Frame, NakCause, STREAMS_PER_FRAME, Span, StreamId, StreamState};
use crate::{Handled, Tools, Violation, reason};

use ended::Ended;
use lookup::{Unresolved, unpack};
use stream::{Arrived, Incoming, Keeper, Kind};

/// How bodies are received.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    /// Streams at the same time.
    pub streams_max: usize,
    /// How far each body may be sent at once.
    pub credit: u64,
    /// How far it may be sent beyond what was taken of it, while the budget allows.
    pub window_max: u64,
    /// Bytes of all bodies that are here, or may come. At least `streams_max` times `credit`.
    pub budget: u64,
    /// Which chunks a peer may name.
    pub sharing: Sharing,
}

impl Default for ReceiverConfig {
    /// 1024 streams begin with 256 KiB, which makes 256 MiB; another 256 MiB are for those that are fast. A window of 16 MiB is
    /// 1.6 Gb/s over 80 ms.
    fn default() -> Self {
        Self {
            streams_max: 1024,
            credit: 256 << 10,
            window_max: 16 << 20,
            budget: 512 << 20,
            sharing: Sharing::Exchanged,
        }
    }
}

/// Which chunks a peer may name. What it may not is refused as if it were not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Those that it sent, or was sent: it cannot find out what others have.
    Exchanged,
    /// Any in the store: for ends of one owner.
    Everything,
}

/// Something to do for who uses the streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// A body begins.
    Opened {
        /// Which.
        stream: StreamId,
        /// What its sender calls it.
        label: Vec<u8>,
    },
    /// There is something to [`take`](Receiver::take).
    Ready(StreamId),
}

/// What there is of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Its next bytes.
    Bytes(Bytes),
    /// More will come.
    Wait,
    /// That was all, and it is as it was sent. The stream is forgotten.
    Complete,
    /// It will not be whole. The stream is forgotten.
    Failed(u32),
    /// There is no such stream.
    Unknown,
}

/// What came, and what was wrong with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounters {
    /// Bytes of bodies.
    pub delivered: u64,
    /// Of those, out of the store.
    pub from_store: u64,
    /// Frames refused because a chunk was missing or not what its name says.
    pub missing: u64,
    /// Because the peer never had a chunk it named.
    pub foreign: u64,
    /// Because chunks lie in another order here.
    pub disordered: u64,
    /// Bodies that were not as they had been sent.
    pub digest_failures: u64,
}

/// Receives bodies from one peer.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    streams: BTreeMap<StreamId, Incoming>,
    /// What streams were granted beyond what is set aside for each.
    beyond: u64,
    ended: Ended,
    acks: BTreeSet<StreamId>,
    credits: BTreeSet<StreamId>,
    naks: VecDeque<(StreamId, u64, NakCause)>,
    stops: VecDeque<(StreamId, u32)>,
    events: VecDeque<ReceiverEvent>,
    counters: ReceiverCounters,
    /// What had been delivered when something was last acknowledged.
    told: u64,
    /// A sender may wait for credit.
    starved: bool,
}

/// How soon the peer should hear something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// There is nothing to say.
    None,
    /// Little was delivered, which may be said along with something else.
    Patient,
    /// At once.
    Urgent,
}

/// Refusals that wait to be sent. Each is 29 bytes, so a peer that does not read this much does not read at all.
const NAKS_MAX: usize = 1 << 16;

impl Receiver {
    /// Nothing came yet.
    pub fn new(config: ReceiverConfig) -> Self {
        Self {
            config,
            streams: BTreeMap::new(),
            beyond: 0,
            ended: Ended::new(config.streams_max),
            acks: BTreeSet::new(),
            credits: BTreeSet::new(),
            naks: VecDeque::new(),
            stops: VecDeque::new(),
            events: VecDeque::new(),
            counters: ReceiverCounters::default(),
            told: 0,
            starved: false,
        }
    }

    /// Takes a frame of a body. `memory` is what the frame was decoded from, if that may be kept instead of a copy. What is to come
    /// again did nothing, but that its stream may be acknowledged as far as it came.
    pub fn handle<S: ChunkStore, C: Codec>(
        &mut self,
        frame: Frame<'_>,
        memory: Option<&Bytes>,
        tools: &mut Tools<'_, S, C>,
    ) -> Result<Handled, Violation> {
        match frame {
            Frame::Open { stream, label } => self.open(stream, label).map(Handled::from),
            Frame::Close {
                stream,
                length,
                digest,
            } => self
                .close(stream, (length, digest), tools)
                .map(Handled::from),
            Frame::Reset { stream, reason } => self.reset(stream, reason).map(Handled::from),
            Frame::Plain {
                span,
                method,
                payload,
            } => self.piece(span, tools, |_, tools| {
                let bytes = unpack(span, method, &[], payload, memory, tools.codec)?;
                Ok(Ok(Arrived {
                    bytes,
                    kind: Kind::Plain,
                }))
            }),
            Frame::Literal {
                span,
                method,
                cuts,
                payload,
            } => self.piece(span, tools, |_, tools| {
                let bytes = unpack(span, method, &[], payload, memory, tools.codec)?;
                Ok(Ok(Arrived {
                    bytes,
                    kind: Kind::Chunks { cuts },
                }))
            }),
            Frame::Delta {
                span,
                method,
                base,
                cuts,
                payload,
            } => self.piece(span, tools, |this, tools| {
                let past = match this.load_base(&base, tools) {
                    Ok(past) => past,
                    Err(cause) => return Ok(Err(cause)),
                };
                // A payload that does not fit a base we verified was made with another.
                let bytes = unpack(span, method, &past, payload, memory, tools.codec);
                let kind = Kind::Chunks { cuts };
                let bytes = bytes.map_err(|_| Unresolved::Refused(NakCause::Missing));
                Ok(bytes.map(|bytes| Arrived { bytes, kind }))
            }),
            Frame::Ref { span, skip, ids } => self.piece(span, tools, |this, tools| {
                Ok(this.load_named(span, skip, &ids, tools))
            }),
            Frame::RefRun { span, run } => self.piece(span, tools, |this, tools| {
                let bytes = this.load_run(&run, span.length, tools);
                let kind = Kind::Kept { prefix: Vec::new() };
                Ok(bytes.map(|bytes| Arrived { bytes, kind }))
            }),
            _ => Err(Violation::Direction),
        }
    }

    /// Whether there is an answer, and how soon it should be sent.
    pub fn answers(&self) -> Answers {
        let urgent = !self.stops.is_empty()
            || !self.naks.is_empty()
            || (self.starved && !self.credits.is_empty())
            || self.acks.len() > PATIENT_ACKS_MAX
            || self.counters.delivered - self.told > PATIENT_BYTES_MAX;
        match (urgent, self.acks.is_empty() && self.credits.is_empty()) {
            (true, _) => Answers::Urgent,
            (false, false) => Answers::Patient,
            (false, true) => Answers::None,
        }
    }

    /// Appends the next answer to `out`; false if there is none.
    pub fn transmit(&mut self, out: &mut Vec<u8>) -> bool {
        if let Some((stream, reason)) = self.stops.pop_front() {
            Frame::Stop { stream, reason }.encode(out);
        } else if let Some((stream, offset, cause)) = self.naks.pop_front() {
            Frame::Nak {
                stream,
                offset,
                cause,
            }
            .encode(out);
        } else if !self.acks.is_empty() {
            self.told = self.counters.delivered;
            let streams = drain(&mut self.acks);
            let acks: Vec<_> = streams
                .filter_map(|stream| ack(&self.ended, &self.streams, stream))
                .collect();
            if acks.is_empty() {
                return self.transmit(out);
            }
            Frame::Ack(acks).encode(out);
        } else if !self.credits.is_empty() {
            self.starved = false;
            let limit = |stream| Some((stream, self.streams.get(&stream)?.limit));
            let credits: Vec<_> = drain(&mut self.credits).filter_map(limit).collect();
            if credits.is_empty() {
                return self.transmit(out);
            }
            Frame::Credit(credits).encode(out);
        } else {
            return false;
        }
        true
    }

    /// The next bytes of a body. Taking makes room for more.
    pub fn take(&mut self, stream: StreamId) -> Taken {
        let Some(incoming) = self.streams.get_mut(&stream) else {
            return Taken::Unknown;
        };
        if let Some(bytes) = incoming.ready.pop_front() {
            self.beyond -= incoming.granted().saturating_sub(self.config.credit);
            incoming.taken += bytes.len() as u64;
            self.give_credit(stream);
            return Taken::Bytes(bytes);
        }
        incoming.told = false;
        let Some(end) = incoming.end else {
            return Taken::Wait;
        };
        self.remove(stream);
        if let Err(reason) = end {
            return Taken::Failed(reason);
        }
        // Only now: a sender that begins another body for each that is complete would fill the memory of one who does
        // not take them.
        self.end(stream, true);
        self.acks.insert(stream);
        Taken::Complete
    }

    /// Nobody wants the rest of a body.
    pub fn stop(&mut self, stream: StreamId, reason: u32) {
        if self.remove(stream) && self.ended.state(stream).is_none() {
            self.end(stream, false);
            self.stops.push_back((stream, reason));
        }
    }

    /// There is a new connection to the same session: what was said on the old one may not have arrived.
    pub fn reconnected(&mut self) {
        let under_way = self
            .streams
            .iter()
            .filter(|(_, incoming)| incoming.end.is_none());
        let under_way: Vec<_> = under_way.map(|(&stream, _)| stream).collect();
        // What was refused will come as bytes, whatever became of the refusal.
        self.naks.clear();
        self.acks.extend(&under_way);
        self.credits.extend(&under_way);
    }

    /// The peer began anew: none of its streams will go on.
    pub fn restarted(&mut self) {
        self.ended = Ended::new(self.config.streams_max);
        self.acks.clear();
        self.credits.clear();
        self.naks.clear();
        self.stops.clear();
        // Numbers begin anew, so nobody could tell old from new: what is not taken is lost.
        self.streams.clear();
        self.beyond = 0;
        self.starved = false;
        self.events.clear();
    }

    /// What there is to do.
    pub fn event(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front()
    }

    /// What came so far.
    pub fn counters(&self) -> ReceiverCounters {
        self.counters
    }

    /// Bytes of bodies that are here, or may come without further credit.
    pub fn granted(&self) -> u64 {
        self.streams.values().map(Incoming::granted).sum()
    }

    fn open(&mut self, stream: StreamId, label: &[u8]) -> Result<(), Violation> {
        if self.streams.contains_key(&stream) || self.ended.state(stream).is_some() {
            self.acks.insert(stream);
            return Ok(());
        }
        // Between two ranges of ended streams lies one that is open, or one that is late.
        if self.ended.ranges() > 2 * self.config.streams_max + 16 {
            return Err(Violation::Numbering(stream));
        }
        if self.streams.len() >= self.config.streams_max {
            self.end(stream, false);
            self.stops.push_back((stream, reason::TOO_MANY));
            return Ok(());
        }
        self.streams
            .insert(stream, Incoming::new(self.config.credit));
        // Says that OPEN arrived, and need not be repeated.
        self.acks.insert(stream);
        let label = label.to_vec();
        self.events
            .push_back(ReceiverEvent::Opened { stream, label });
        Ok(())
    }

    fn close<S: ChunkStore, C: Codec>(
        &mut self,
        stream: StreamId,
        close: (u64, u128),
        tools: &mut Tools<'_, S, C>,
    ) -> Result<(), Violation> {
        match self.streams.get_mut(&stream) {
            Some(incoming) if incoming.end.is_none() => {
                incoming.close = Some(close);
                self.settle(stream, tools);
            }
            None if self.ended.state(stream).is_none() => {
                self.refuse(stream, u64::MAX, NakCause::Unopened)?;
            }
            _ => _ = self.acks.insert(stream),
        }
        Ok(())
    }

    fn reset(&mut self, stream: StreamId, reason: u32) -> Result<(), Violation> {
        if self.ended.state(stream).is_none() {
            if let Some(incoming) = self.streams.get_mut(&stream) {
                incoming.finish(Err(reason));
                self.tell(stream);
            }
            self.end(stream, false);
        }
        if self.ended.ranges() > 2 * self.config.streams_max + 16 {
            return Err(Violation::Numbering(stream));
        }
        self.acks.insert(stream);
        Ok(())
    }

    /// A range of a body, whose bytes `resolve` finds.
    fn piece<S: ChunkStore, C: Codec>(
        &mut self,
        span: Span,
        tools: &mut Tools<'_, S, C>,
        resolve: impl FnOnce(
            &mut Self,
            &mut Tools<'_, S, C>,
        ) -> Result<Result<Arrived, Unresolved>, Violation>,
    ) -> Result<Handled, Violation> {
        let Span { stream, offset, .. } = span;
        let Some(incoming) = self.streams.get(&stream) else {
            return match self.ended.state(stream) {
                Some(_) => {
                    self.acks.insert(stream);
                    Ok(Handled::Done)
                }
                None => self
                    .refuse(stream, offset, NakCause::Unopened)
                    .map(Handled::from),
            };
        };
        if span.end() > incoming.limit {
            let (end, limit) = (span.end(), incoming.limit);
            return Err(Violation::Credit { stream, end, limit });
        }
        self.acks.insert(stream);
        if incoming.end.is_some() || incoming.has(offset, span.end()) {
            return Ok(Handled::Done);
        }
        let piece = match resolve(self, tools)? {
            Ok(piece) => piece,
            Err(Unresolved::Owed) => return Ok(Handled::Again),
            Err(Unresolved::Refused(cause)) => {
                return self.refuse(stream, offset, cause).map(Handled::from);
            }
        };
        let incoming = self.streams.get_mut(&stream).expect("it was there above");
        let before = incoming.next;
        let refused = incoming.arrive(stream, offset, piece, &mut keeper(tools))?;
        let news = incoming.next - before;
        self.counters.delivered += news;
        if news > 0 {
            self.tell(stream);
        }
        if let Some(offset) = refused {
            self.counters.missing += 1;
            self.refuse(stream, offset, NakCause::Missing)?;
        }
        self.settle(stream, tools);
        Ok(Handled::Done)
    }

    fn refuse(&mut self, stream: StreamId, offset: u64, cause: NakCause) -> Result<(), Violation> {
        if self.naks.len() >= NAKS_MAX {
            return Err(Violation::Flood(self.naks.len()));
        }
        self.naks.push_back((stream, offset, cause));
        Ok(())
    }

    fn settle<S: ChunkStore, C: Codec>(&mut self, stream: StreamId, tools: &mut Tools<'_, S, C>) {
        let Some(incoming) = self.streams.get_mut(&stream) else {
            return;
        };
        if incoming.end.is_some() {
            return;
        }
        incoming.settle(&mut keeper(tools));
        match incoming.end {
            None => {}
            Some(Ok(())) => self.tell(stream),
            Some(Err(reason)) => {
                self.counters.digest_failures += u64::from(reason == reason::DIGEST);
                self.end(stream, false);
                self.stops.push_back((stream, reason));
                self.tell(stream);
            }
        }
    }

    fn end(&mut self, stream: StreamId, complete: bool) {
        self.ended.insert(stream, complete);
        self.credits.remove(&stream);
    }

    fn tell(&mut self, stream: StreamId) {
        if let Some(incoming) = self.streams.get_mut(&stream)
            && !std::mem::replace(&mut incoming.told, true)
        {
            self.events.push_back(ReceiverEvent::Ready(stream));
        }
    }

    /// Moves a stream's limit, as far as the budget allows. `beyond` is without it.
    fn give_credit(&mut self, stream: StreamId) {
        let aside = self.config.credit;
        let pool = self
            .config
            .budget
            .saturating_sub(aside * self.config.streams_max as u64);
        let incoming = self
            .streams
            .get_mut(&stream)
            .expect("whoever calls has just seen it");
        let window = self
            .config
            .window_max
            .max(aside)
            .min(aside + pool.saturating_sub(self.beyond));
        let limit = incoming.taken + window;
        // Small steps are not worth a frame, and large ones would have the sender do nothing for a while, and then nothing else.
        let step = (window / 4).min(CREDIT_STEP_BYTES);
        if incoming.end.is_none() && limit >= incoming.limit + step {
            self.starved |= incoming.limit < incoming.next + STARVED_BYTES_MAX;
            incoming.limit = limit;
            self.credits.insert(stream);
        }
        self.beyond += incoming.granted().saturating_sub(aside);
    }

    fn remove(&mut self, stream: StreamId) -> bool {
        let removed = self.streams.remove(&stream);
        let granted = removed.as_ref().map_or(0, Incoming::granted);
        self.beyond -= granted.saturating_sub(self.config.credit);
        removed.is_some()
    }
}

/// What is acknowledged with patience: a few frames of a body that comes fast, since each acknowledgement wakes the sender. More is memory that
/// it could use.
const PATIENT_BYTES_MAX: u64 = 1 << 20;
const PATIENT_ACKS_MAX: usize = 64;

/// Who has no more credit left than this may wait for it.
const STARVED_BYTES_MAX: u64 = 64 << 10;

/// Two batches: a millisecond of a sender's work.
const CREDIT_STEP_BYTES: u64 = 512 << 10;

fn ack(ended: &Ended, streams: &BTreeMap<StreamId, Incoming>, stream: StreamId) -> Option<Acked> {
    let state = ended.state(stream).unwrap_or(StreamState::Open);
    let incoming = streams.get(&stream);
    let offset = incoming.map_or(0, |incoming| incoming.next);
    (incoming.is_some() || state != StreamState::Open).then_some(Acked {
        stream,
        state,
        offset,
    })
}

/// As many as a frame takes.
fn drain(streams: &mut BTreeSet<StreamId>) -> impl Iterator<Item = StreamId> {
    std::iter::from_fn(|| streams.pop_first()).take(STREAMS_PER_FRAME)
}

fn keeper<'a, S, C>(tools: &'a mut Tools<'_, S, C>) -> Keeper<'a, S> {
    Keeper {
        store: tools.store,
        knowledge: tools.knowledge,
        ids: tools.ids,
    }
}
