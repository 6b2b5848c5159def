//! The receiver: turns frames into bodies.
//!
//! The receiver verifies all references against its own store. A referenced chunk is looked up, loaded and hashed.
//! A chunk that is missing, corrupt, or was never exchanged with this peer is refused with a NAK; the peer then
//! sends its bytes, one round trip later. At the end of a body its digest must equal the one of the sender.
//!
//! Memory is limited by credit: the sender may send the bytes that were read from the stream plus a window. Each
//! stream has a small reserved window. Larger windows come from one budget, so that a fast stream can have nearly
//! all of it while it is alone.

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
    /// The maximum number of open streams.
    pub streams_max: usize,
    /// The number of bytes that the sender may send at the start of each stream.
    pub credit: u64,
    /// The largest window: the number of bytes that may be sent beyond those read from the stream, while the budget
    /// allows.
    pub window_max: u64,
    /// The maximum number of bytes of all bodies that are received or may be sent. At least `streams_max` times
    /// `credit`.
    pub budget: u64,
    /// The chunks that the peer may refer to.
    pub sharing: Sharing,
}

impl Default for ReceiverConfig {
    /// 1024 streams with 256 KiB each are 256 MiB; another 256 MiB are for fast streams. A window of 16 MiB allows
    /// 1.6 Gb/s at a round-trip time of 80 ms.
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

/// The chunks that a peer may refer to. Other chunks are refused as if they were missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Chunks that the peer sent or received, so that it cannot find out which chunks other peers have.
    Exchanged,
    /// All chunks of the store, for endpoints of one owner.
    Everything,
}

/// An event for the program that uses the streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// The peer opened a stream.
    Opened {
        /// The stream.
        stream: StreamId,
        /// The label that the sender gave it.
        label: Vec<u8>,
    },
    /// Bytes of the stream can be [read](Receiver::take), or the stream has ended.
    Ready(StreamId),
}

/// The result of reading from a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The next bytes.
    Bytes(Bytes),
    /// No bytes for now; more may follow.
    Wait,
    /// All bytes were read and the digest is correct. The stream is closed.
    Complete,
    /// The stream failed with this reason and is closed.
    Failed(u32),
    /// No such stream exists.
    Unknown,
}

/// Counters of received bytes and of refused frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounters {
    /// Bytes of bodies.
    pub delivered: u64,
    /// Bytes of bodies that were loaded from the store.
    pub from_store: u64,
    /// Frames refused because a chunk was missing or did not match its hash.
    pub missing: u64,
    /// Frames refused because they refer to a chunk that was never exchanged with the peer.
    pub foreign: u64,
    /// Runs refused because the chunks lie in another order here.
    pub disordered: u64,
    /// Bodies that failed because their digest differs.
    pub digest_failures: u64,
}

/// Receives bodies from one peer.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    streams: BTreeMap<StreamId, Incoming>,
    /// The bytes granted to all streams beyond their reserved windows.
    beyond: u64,
    ended: Ended,
    acks: BTreeSet<StreamId>,
    credits: BTreeSet<StreamId>,
    naks: VecDeque<(StreamId, u64, NakCause)>,
    stops: VecDeque<(StreamId, u32)>,
    events: VecDeque<ReceiverEvent>,
    counters: ReceiverCounters,
    /// The number of delivered bytes when an acknowledgement was last sent.
    told: u64,
    /// True if a sender may be waiting for credit.
    starved: bool,
}

/// How soon acknowledgements, NAKs and credit must be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// No frame is to be sent.
    None,
    /// Little is to be acknowledged, which can wait for other frames.
    Patient,
    /// The frames must be sent at once.
    Urgent,
}

/// The maximum number of queued NAKs. Each takes 29 bytes, so a peer that leaves this many unread does not read at
/// all.
const NAKS_MAX: usize = 1 << 16;

impl Receiver {
    /// Creates a receiver without streams.
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

    /// Handles a frame of a body. `memory` is the buffer from which the frame was decoded, if it may be kept
    /// instead of a copy. A frame that must be passed again had no effect, except that its stream may be
    /// acknowledged up to the delivered offset.
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
                // A payload that does not decompress with a verified base was compressed with another base.
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

    /// Returns how soon acknowledgements, NAKs and credit must be sent.
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

    /// Appends the next of these frames to `out`, or returns false if there is no frame.
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

    /// Returns the next bytes of a body. This frees credit for more.
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
        // A complete stream is acknowledged only after all its bytes are read. Otherwise a sender that opens a
        // stream for each complete one could fill the memory.
        self.end(stream, true);
        self.acks.insert(stream);
        Taken::Complete
    }

    /// Stops a body whose remaining bytes are not needed.
    pub fn stop(&mut self, stream: StreamId, reason: u32) {
        if self.remove(stream) && self.ended.state(stream).is_none() {
            self.end(stream, false);
            self.stops.push_back((stream, reason));
        }
    }

    /// Handles a new connection to the same session: frames sent on the old one may be lost.
    pub fn reconnected(&mut self) {
        let under_way = self
            .streams
            .iter()
            .filter(|(_, incoming)| incoming.end.is_none());
        let under_way: Vec<_> = under_way.map(|(&stream, _)| stream).collect();
        // Refused pieces are sent as bytes, even if the NAK was lost.
        self.naks.clear();
        self.acks.extend(&under_way);
        self.credits.extend(&under_way);
    }

    /// Handles a restart of the peer: all its streams end.
    pub fn restarted(&mut self) {
        self.ended = Ended::new(self.config.streams_max);
        self.acks.clear();
        self.credits.clear();
        self.naks.clear();
        self.stops.clear();
        // Stream numbers start again, so old streams cannot be distinguished from new ones. Bytes that were not
        // read are lost.
        self.streams.clear();
        self.beyond = 0;
        self.starved = false;
        self.events.clear();
    }

    /// Returns the next event.
    pub fn event(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front()
    }

    /// Returns the counters.
    pub fn counters(&self) -> ReceiverCounters {
        self.counters
    }

    /// Returns the bytes of bodies that are received and unread, or may be sent without further credit.
    pub fn granted(&self) -> u64 {
        self.streams.values().map(Incoming::granted).sum()
    }

    fn open(&mut self, stream: StreamId, label: &[u8]) -> Result<(), Violation> {
        if self.streams.contains_key(&stream) || self.ended.state(stream).is_some() {
            self.acks.insert(stream);
            return Ok(());
        }
        // Between two ranges of ended streams lies a stream that is open or late.
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
        // The acknowledgement confirms OPEN, so that it is not repeated.
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

    /// Handles a range of a body. `resolve` returns its bytes.
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
        let incoming = self
            .streams
            .get_mut(&stream)
            .expect("the stream was found above");
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

    /// Raises the limit of a stream as far as the budget allows. The caller has subtracted the stream's share from
    /// `beyond`.
    fn give_credit(&mut self, stream: StreamId) {
        let aside = self.config.credit;
        let pool = self
            .config
            .budget
            .saturating_sub(aside * self.config.streams_max as u64);
        let incoming = self
            .streams
            .get_mut(&stream)
            .expect("the caller has just read from the stream");
        let window = self
            .config
            .window_max
            .max(aside)
            .min(aside + pool.saturating_sub(self.beyond));
        let limit = incoming.taken + window;
        // Small steps are not worth a frame. Large steps would stall the sender and then make it send in bursts.
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

/// How much is acknowledged late: a few frames of a fast body, because each acknowledgement wakes the sender. More
/// would keep memory of the sender in use.
const PATIENT_BYTES_MAX: u64 = 1 << 20;
const PATIENT_ACKS_MAX: usize = 64;

/// A sender with at most this much credit may be waiting for more.
const STARVED_BYTES_MAX: u64 = 64 << 10;

/// Two batches, which take the sender a millisecond.
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

/// Removes as many streams as fit into a frame.
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
