//! The sending end: bodies in, frames out.
//!
//! Optimistic: a chunk that was once exchanged with the peer is named instead of sent. Whether the peer still has it
//! only the peer knows; until it acknowledges, the bytes stay here, and if it says no they follow. What
//! stays is bounded, for each stream and altogether: [`Sender::room`] is how much may be written. What is named, and will
//! [stay](ChunkStore::stays) in the store, is let go at once: if it has to follow it is loaded, and a body of which that fails is given up.
//!
//! A body's first bytes, and small bodies as a whole, travel as they are: looking them up would cost more than it saves.
//! Bytes never wait here for a chunk to end: [`Sender::flush`] sends what there is, and if the chunk then turns out to
//! be known, only its rest is left out.

mod ahead;
mod pack;
mod piece;
mod stream;

use std::collections::{BTreeMap, VecDeque};

use thiserror::Error;

use crate::chunker::ChunkerParams;
use crate::codec::{Codec, Effort, Methods};
use crate::knowledge::Knowledge;
use crate::store::ChunkStore;
use crate::wire::{Acked, Frame, FrameSink, NakCause, PIECE_BYTES_MAX, StreamId, StreamState};
use crate::{Tools, Violation, reason};

pub(crate) use piece::TAIL_BYTES_MIN;

use pack::{Lost, Packer};
use piece::{Finder, Keep};
use stream::{Item, Outgoing};

/// How bodies are sent.
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// Where bodies are cut, as agreed.
    pub chunker: ChunkerParams,
    /// What the peer can decompress, as agreed.
    pub methods: Methods,
    /// Whether new chunks are compressed against what followed the last known one.
    pub delta: bool,
    /// Whether the bytes of all new chunks are kept here, too: for a peer that may send them back. Else only what deltas need.
    pub keep_sent: bool,
    /// The beginning of each body that is neither looked up nor kept.
    pub bypass_bytes: u64,
    /// New chunks that are compressed together; of those that are not compressed at most 256 KiB travel together.
    pub batch_bytes: usize,
    /// Streams at the same time, as the peer takes them.
    pub streams_max: usize,
    /// How far each body may be sent before there is more credit, as the peer says.
    pub credit: u64,
    /// Bytes of one body that are kept for the case that they have to be sent again.
    pub stream_unacked_max: usize,
    /// Such bytes of all bodies.
    pub unacked_max: usize,
}

impl SenderConfig {
    /// The defaults for an agreed chunker and methods.
    ///
    /// 4 KiB go by unseen: a request or a small response. 448 KiB are compressed together: 8 KiB alone cost a quarter of
    /// what zstd saves, 256 KiB a tenth, and zstd has less to do where more is like what came before. 16 MiB of a body are 80 ms of 1.6 Gb/s.
    pub fn new(chunker: ChunkerParams, methods: Methods) -> Self {
        Self {
            chunker,
            methods,
            delta: true,
            keep_sent: true,
            bypass_bytes: 4 << 10,
            batch_bytes: 448 << 10,
            streams_max: 1024,
            credit: 256 << 10,
            stream_unacked_max: 16 << 20,
            unacked_max: 64 << 20,
        }
    }
}

/// Which of the frames that wait may go on a connection.
///
/// A question that waits behind a download waits as long as the line takes for what the system has buffered of it. With a
/// connection of their own short frames do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// All: there is one connection.
    Any,
    /// Answers, beginnings, ends, and what is as short as a request.
    Short,
    /// The rest.
    Long,
}

/// What became of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderEvent {
    /// The peer has it, whole and right.
    Complete(StreamId),
    /// It will not be delivered.
    Stopped {
        /// Which.
        stream: StreamId,
        /// One of [`reason`]'s, or the driver's own.
        reason: u32,
    },
}

/// Why a body cannot be begun or continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// As many as the peer takes are under way.
    #[error("{0} streams are under way, which is all the peer takes")]
    TooManyStreams(usize),
    /// The label is longer than a frame may have it.
    #[error("a label of {0} bytes is too long")]
    Label(usize),
    /// It ended, or never began.
    #[error("stream {} is not open", .0.0)]
    NoStream(StreamId),
}

/// What was saved, and what went wrong; in bytes of bodies where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounters {
    /// Written by who uses the streams.
    pub written: u64,
    /// Of those, known by marks: they were neither cut nor named.
    pub recognised: u64,
    /// Sent as they were, unkept.
    pub plain: u64,
    /// Sent as new chunks.
    pub literal: u64,
    /// Sent as new chunks, compressed against old ones.
    pub delta: u64,
    /// Not sent, but named.
    pub named: u64,
    /// Bytes of frames, all of them.
    pub wire: u64,
    /// Sent again, as bytes.
    pub again: u64,
    /// Frames the peer could not use.
    pub naks: u64,
    /// Bodies given up, since neither end had what was named any more.
    pub lost: u64,
}

/// Sends bodies to one peer.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    streams: BTreeMap<StreamId, Outgoing>,
    next: u32,
    /// Streams with something to send, each once, in turn: those whose next frame is short, and the others.
    short: VecDeque<StreamId>,
    long: VecDeque<StreamId>,
    /// Short ones that went before a long one.
    short_in_a_row: usize,
    /// Given up, and the peer has not said that it knows.
    resets: BTreeMap<StreamId, u32>,
    resets_due: VecDeque<StreamId>,
    unacked: usize,
    /// A body was lost, since the ends' stores have lost the same: until one that was named arrived, bytes wait here.
    wary: bool,
    effort: Effort,
    events: VecDeque<SenderEvent>,
    counters: SenderCounters,
    base: Vec<u8>,
    packed: Vec<u8>,
}

impl Sender {
    /// Nothing is under way.
    pub fn new(config: SenderConfig) -> Self {
        let batch_bytes = config.batch_bytes.clamp(1, PIECE_BYTES_MAX);
        Self {
            config: SenderConfig {
                batch_bytes,
                ..config
            },
            streams: BTreeMap::new(),
            next: 0,
            short: VecDeque::new(),
            long: VecDeque::new(),
            short_in_a_row: 0,
            resets: BTreeMap::new(),
            resets_due: VecDeque::new(),
            unacked: 0,
            wary: false,
            effort: Effort::new(config.methods),
            events: VecDeque::new(),
            counters: SenderCounters::default(),
            base: Vec::new(),
            packed: Vec::new(),
        }
    }

    /// Other terms, agreed with a peer that knows of no stream. Bodies that were begun before are cut by the old ones.
    pub fn configure(&mut self, config: SenderConfig) {
        let batch_bytes = config.batch_bytes.clamp(1, PIECE_BYTES_MAX);
        self.config = SenderConfig {
            batch_bytes,
            ..config
        };
        self.effort = Effort::new(config.methods);
        for outgoing in self.streams.values_mut() {
            outgoing.credit = config.credit;
        }
    }

    /// Begins a body. Without `dedup` it is only compressed: for what is encrypted, or did not arrive whole before.
    pub fn open(&mut self, label: &[u8], dedup: bool) -> Result<StreamId, SendError> {
        let under_way = self.streams.len() + self.resets.len();
        if under_way >= self.config.streams_max {
            return Err(SendError::TooManyStreams(under_way));
        }
        if label.len() > crate::wire::LABEL_BYTES_MAX {
            return Err(SendError::Label(label.len()));
        }
        let stream = StreamId(self.next);
        self.next += 1;
        let bypass = if dedup {
            self.config.bypass_bytes
        } else {
            u64::MAX
        };
        let mut outgoing = Outgoing::new(
            label.to_vec(),
            self.config.chunker,
            bypass,
            self.config.credit,
        );
        outgoing.queue.push_back(Item::Open);
        self.streams.insert(stream, outgoing);
        self.make_ready(stream);
        Ok(stream)
    }

    /// How many bytes of the body may be written now: by credit, and by what may be kept. None while it is [stalled](Self::is_stalled).
    pub fn room(&self, stream: StreamId) -> usize {
        let outgoing = self.streams.get(&stream);
        let Some(outgoing) = outgoing.filter(|outgoing| !outgoing.stalled) else {
            return 0;
        };
        let credit = outgoing.credit.saturating_sub(outgoing.written);
        let credit = usize::try_from(credit).unwrap_or(usize::MAX);
        let of_stream = self
            .config
            .stream_unacked_max
            .saturating_sub(outgoing.held());
        let of_all = self.config.unacked_max.saturating_sub(self.unacked);
        credit.min(of_stream).min(of_all)
    }

    /// Takes the next bytes of a body, as many as there is [`room`](Self::room) for; how many that were.
    pub fn write<S: ChunkStore, C: Codec>(
        &mut self,
        stream: StreamId,
        bytes: &[u8],
        tools: &mut Tools<'_, S, C>,
    ) -> Result<usize, SendError> {
        let bytes = &bytes[..bytes.len().min(self.room(stream))];
        let written = self.work(stream, tools, |outgoing, finder, batch_bytes| {
            let is_open = !outgoing.closed;
            is_open.then(|| outgoing.write(bytes, finder, batch_bytes))
        });
        written.flatten().ok_or(SendError::NoStream(stream))?;
        self.counters.written += bytes.len() as u64;
        Ok(bytes.len())
    }

    /// Where the next bytes of a body belong, for who can put them there instead of handing them in; [`filled`](Self::filled) says
    /// how many that were. None where there is no [`room`](Self::room).
    pub fn spare<S: ChunkStore, C: Codec>(
        &mut self,
        stream: StreamId,
        tools: &mut Tools<'_, S, C>,
    ) -> Result<Option<&mut [u8]>, SendError> {
        let room = self.room(stream);
        let is_open = self.streams.get(&stream).is_some_and(|it| !it.closed);
        if is_open && room == 0 {
            return Ok(None);
        }
        if is_open {
            self.work(stream, tools, |outgoing, finder, batch_bytes| {
                outgoing.make_room(finder, batch_bytes);
            });
        }
        let outgoing = self.streams.get_mut(&stream).filter(|_| is_open);
        let spare = outgoing.ok_or(SendError::NoStream(stream))?.spare();
        let most = spare.len().min(room);
        Ok(Some(&mut spare[..most]))
    }

    /// So many bytes were put where [`spare`](Self::spare) said just before.
    pub fn filled<S: ChunkStore, C: Codec>(
        &mut self,
        stream: StreamId,
        bytes: usize,
        tools: &mut Tools<'_, S, C>,
    ) {
        let filled = self.work(stream, tools, |outgoing, finder, batch_bytes| {
            outgoing.filled(bytes, finder, batch_bytes);
        });
        self.counters.written += filled.map_or(0, |()| bytes as u64);
    }

    /// Whether the store [owes](ChunkStore::has_pending_reads) the body an answer: what was written is looked at, and what was asked for done, once it is
    /// [resumed](Self::resume).
    pub fn is_stalled(&self, stream: StreamId) -> bool {
        let outgoing = self.streams.get(&stream);
        outgoing.is_some_and(|outgoing| outgoing.stalled)
    }

    /// What the store owes a body has been seen to. It may turn out that it owes more.
    pub fn resume<S: ChunkStore, C: Codec>(
        &mut self,
        stream: StreamId,
        tools: &mut Tools<'_, S, C>,
    ) {
        self.work(stream, tools, Outgoing::resume);
    }

    /// Whole chunks that were written wait no longer for a batch to become full; the last, unfinished one does.
    pub fn flush_whole<S: ChunkStore, C: Codec>(
        &mut self,
        stream: StreamId,
        tools: &mut Tools<'_, S, C>,
    ) {
        self.work(stream, tools, |outgoing, finder, _| {
            outgoing.flush_whole(finder);
        });
    }

    /// What is written from now on is neither looked up nor kept, if the body is not beyond its first bytes yet: they showed that it
    /// will not be seen again, or that nothing will be saved on it. Whether it was in time.
    pub fn bypass(&mut self, stream: StreamId) -> bool {
        let outgoing = self.streams.get_mut(&stream);
        outgoing.is_some_and(Outgoing::bypass)
    }

    /// Bytes of a body that were written and wait for a chunk or a batch to become full.
    pub fn unsealed(&self, stream: StreamId) -> usize {
        let outgoing = self.streams.get(&stream);
        outgoing.map_or(0, |outgoing| {
            usize::try_from(outgoing.written - outgoing.sealed()).expect("it is in memory")
        })
    }

    /// Up to where a body was made into frames.
    pub fn sealed(&self, stream: StreamId) -> u64 {
        self.streams.get(&stream).map_or(0, Outgoing::sealed)
    }

    /// Whether frames of a body were not acknowledged, so that news of it will come.
    pub fn under_way(&self, stream: StreamId) -> bool {
        let outgoing = self.streams.get(&stream);
        outgoing.is_some_and(Outgoing::under_way)
    }

    /// Whether there is a frame for this lane. What was just sent on one may leave something for the other.
    pub fn is_ready(&self, lane: Lane) -> bool {
        let short = lane != Lane::Long && !(self.short.is_empty() && self.resets_due.is_empty());
        short || (lane != Lane::Short && !self.long.is_empty())
    }

    /// Whether frames of a body wait for the line.
    pub fn backlog(&self, stream: StreamId) -> bool {
        let outgoing = self.streams.get(&stream);
        outgoing.is_some_and(|outgoing| !outgoing.queue.is_empty())
    }

    /// Nothing that was written waits any longer for a chunk or a batch to become full.
    pub fn flush<S: ChunkStore, C: Codec>(
        &mut self,
        stream: StreamId,
        tools: &mut Tools<'_, S, C>,
    ) {
        self.work(stream, tools, Outgoing::flush);
    }

    /// The body is whole.
    pub fn close<S: ChunkStore, C: Codec>(
        &mut self,
        stream: StreamId,
        tools: &mut Tools<'_, S, C>,
    ) -> Result<(), SendError> {
        let closed = self.work(stream, tools, |outgoing, finder, batch_bytes| {
            let is_open = !outgoing.closed;
            is_open.then(|| outgoing.close(finder, batch_bytes))
        });
        closed.flatten().ok_or(SendError::NoStream(stream))
    }

    /// Something is done with a body, if there is one: what becomes of it counts, and it may be sent.
    fn work<S: ChunkStore, C: Codec, T>(
        &mut self,
        stream: StreamId,
        tools: &mut Tools<'_, S, C>,
        act: impl FnOnce(&mut Outgoing, &mut Finder<'_, S>, usize) -> T,
    ) -> Option<T> {
        let (batch_bytes, keep) = (self.batch_bytes(), self.keep());
        let outgoing = self.streams.get_mut(&stream)?;
        let (recognised, held) = (outgoing.recognised, outgoing.held());
        let mut finder = Finder {
            store: tools.store,
            knowledge: tools.knowledge,
            ids: tools.ids,
            pool: tools.pool,
            delta: self.config.delta,
            keep,
            lets_go: !self.wary,
        };
        let done = act(outgoing, &mut finder, batch_bytes);
        self.counters.recognised += outgoing.recognised - recognised;
        self.unacked = self.unacked - held + outgoing.held();
        self.make_ready(stream);
        Some(done)
    }

    /// The body is given up.
    pub fn reset(&mut self, stream: StreamId, reason: u32) {
        if self.forget(stream) {
            self.resets.insert(stream, reason);
            self.resets_due.push_back(stream);
        }
    }

    /// Appends the next frame to `out`; false if there is none. `line_busy` tells whether earlier frames still wait for
    /// the line: compression follows it.
    pub fn transmit<S: ChunkStore, C: Codec>(
        &mut self,
        lane: Lane,
        line_busy: bool,
        tools: &mut Tools<'_, S, C>,
        out: &mut impl FrameSink,
    ) -> bool {
        let start = out.bytes();
        let resets = lane != Lane::Long;
        let sent = (resets && self.transmit_reset(out))
            || self.transmit_item(lane, line_busy, tools, out)
            // A body may have turned out to be lost.
            || (resets && self.transmit_reset(out));
        self.counters.wire += (out.bytes() - start) as u64;
        sent
    }

    /// Takes an ACK, NAK, CREDIT or STOP.
    pub fn handle(
        &mut self,
        frame: &Frame<'_>,
        knowledge: &mut Knowledge,
    ) -> Result<(), Violation> {
        match frame {
            Frame::Ack(acks) => acks.iter().try_for_each(|acked| self.acked(acked))?,
            Frame::Nak {
                stream,
                offset,
                cause,
            } => self.refused(*stream, *offset, *cause, knowledge),
            Frame::Credit(credits) => {
                for (stream, limit) in credits {
                    if let Some(outgoing) = self.streams.get_mut(stream) {
                        outgoing.credit = outgoing.credit.max(*limit);
                    }
                }
            }
            Frame::Stop { stream, reason } => {
                if self.forget(*stream) {
                    let (stream, reason) = (*stream, *reason);
                    self.events
                        .push_back(SenderEvent::Stopped { stream, reason });
                }
            }
            _ => return Err(Violation::Direction),
        }
        Ok(())
    }

    /// There is a new connection to the same session: what was under way is sent again, as bytes.
    pub fn reconnected(&mut self) {
        self.resets_due = self.resets.keys().copied().collect();
        let streams: Vec<_> = self.streams.keys().copied().collect();
        for stream in streams {
            let outgoing = self.streams.get_mut(&stream).expect("it was just listed");
            self.counters.again += outgoing.send_again();
            self.make_ready(stream);
        }
    }

    /// The peer knows of no stream any more: all have ended, and numbers begin anew.
    pub fn restarted(&mut self) {
        let reason = reason::RESTARTED;
        let streams = std::mem::take(&mut self.streams).into_keys();
        self.events
            .extend(streams.map(|stream| SenderEvent::Stopped { stream, reason }));
        (self.next, self.unacked) = (0, 0);
        self.short.clear();
        self.long.clear();
        self.resets.clear();
        self.resets_due.clear();
    }

    /// What became of bodies since this was last asked.
    pub fn event(&mut self) -> Option<SenderEvent> {
        self.events.pop_front()
    }

    /// What was saved so far.
    pub fn counters(&self) -> SenderCounters {
        self.counters
    }

    /// Bytes of memory that are kept until the peer has what they stand for.
    pub fn unacked(&self) -> usize {
        self.unacked
    }

    /// How many new bytes travel together.
    fn batch_bytes(&self) -> usize {
        let compressed = self.config.batch_bytes;
        if self.effort.saves() {
            compressed
        } else {
            compressed.min(UNCOMPRESSED_BYTES)
        }
    }

    /// The peer keeps the bytes of all chunks; if it never sends them back, they serve nothing but deltas here. Unless the line is
    /// what bodies wait for, those of noise are not worth their time: what they save is a chunk where somebody edited one.
    fn keep(&self) -> Keep {
        let config = &self.config;
        match (config.keep_sent, config.delta, self.effort.is_strongest()) {
            (true, ..) | (false, true, true) => Keep::All,
            (false, true, false) => Keep::AllButNoise,
            (false, false, _) => Keep::Names,
        }
    }

    fn transmit_reset(&mut self, out: &mut impl FrameSink) -> bool {
        while let Some(stream) = self.resets_due.pop_front() {
            if let Some(&reason) = self.resets.get(&stream) {
                Frame::Reset { stream, reason }.encode(out.head());
                return true;
            }
        }
        false
    }

    /// One item of the stream whose turn it is.
    fn transmit_item<S: ChunkStore, C: Codec>(
        &mut self,
        lane: Lane,
        line_busy: bool,
        tools: &mut Tools<'_, S, C>,
        out: &mut impl FrameSink,
    ) -> bool {
        while let Some(stream) = self.next_ready(lane) {
            let Some(outgoing) = self.streams.get_mut(&stream) else {
                continue;
            };
            outgoing.ready = false;
            let mut sent = false;
            // What goes on another connection than OPEN may overtake it, so OPEN goes there too.
            if lane == Lane::Long && outgoing.opens_long_lane() {
                let label = &outgoing.label;
                Frame::Open { stream, label }.encode(out.head());
                self.make_ready(stream);
                return true;
            }
            while let Some(item) = outgoing.queue.pop_front() {
                sent = match item {
                    Item::Open => {
                        let label = &outgoing.label;
                        Frame::Open { stream, label }.encode(out.head());
                        true
                    }
                    Item::Close => {
                        let (length, digest) = (outgoing.written, outgoing.digest());
                        outgoing.tail.inspect(|&place| tools.knowledge.add(place));
                        Frame::Close {
                            stream,
                            length,
                            digest,
                        }
                        .encode(out.head());
                        true
                    }
                    Item::Piece(offset) => match outgoing.piece_to_send(offset) {
                        Some((piece, digest)) => {
                            let mut packer = Packer {
                                stream,
                                effort: &mut self.effort,
                                counters: &mut self.counters,
                                base: &mut self.base,
                                packed: &mut self.packed,
                            };
                            match packer.encode(piece, line_busy, digest, tools, out) {
                                Ok(()) => true,
                                Err(Lost) => {
                                    self.lost(stream);
                                    break;
                                }
                            }
                        }
                        // Acknowledged meanwhile.
                        None => false,
                    },
                };
                if sent {
                    break;
                }
            }
            self.make_ready(stream);
            if sent {
                return true;
            }
        }
        false
    }

    fn acked(&mut self, acked: &Acked) -> Result<(), Violation> {
        let stream = acked.stream;
        if acked.state != StreamState::Open {
            self.resets.remove(&stream);
        }
        let Some(outgoing) = self.streams.get_mut(&stream) else {
            return Ok(());
        };
        match acked.state {
            StreamState::Open => {
                if acked.offset > outgoing.sealed() {
                    return Err(Violation::Acknowledged(stream));
                }
                let held = outgoing.held();
                outgoing.acked(acked.offset);
                self.unacked = self.unacked - held + outgoing.held();
            }
            StreamState::Complete => {
                if !outgoing.is_ended() {
                    return Err(Violation::Acknowledged(stream));
                }
                self.wary &= !outgoing.has_named;
                self.forget(stream);
                self.events.push_back(SenderEvent::Complete(stream));
            }
            StreamState::Ended => {
                self.forget(stream);
                let reason = reason::GIVEN_UP;
                self.events
                    .push_back(SenderEvent::Stopped { stream, reason });
            }
        }
        Ok(())
    }

    fn refused(
        &mut self,
        stream: StreamId,
        offset: u64,
        cause: NakCause,
        knowledge: &mut Knowledge,
    ) {
        self.counters.naks += 1;
        if let Some(outgoing) = self.streams.get_mut(&stream) {
            self.counters.again += outgoing.refused(offset, cause, knowledge);
            self.make_ready(stream);
        }
    }

    /// The body cannot be told to the peer any more.
    fn lost(&mut self, stream: StreamId) {
        let reason = reason::LOST;
        self.counters.lost += 1;
        self.wary = true;
        self.reset(stream, reason);
        self.events
            .push_back(SenderEvent::Stopped { stream, reason });
    }

    fn make_ready(&mut self, stream: StreamId) {
        if let Some(outgoing) = self.streams.get_mut(&stream)
            && let Some(next) = outgoing.next_bytes()
            && !std::mem::replace(&mut outgoing.ready, true)
        {
            let row = if next <= SHORT_BYTES_MAX {
                &mut self.short
            } else {
                &mut self.long
            };
            row.push_back(stream);
        }
    }

    /// Whose turn it is. Short frames go first, so that a question does not wait behind a download, but not for ever.
    fn next_ready(&mut self, lane: Lane) -> Option<StreamId> {
        match lane {
            Lane::Any => {}
            Lane::Short => return self.short.pop_front(),
            Lane::Long => return self.long.pop_front(),
        }
        if self.short_in_a_row < SHORT_IN_A_ROW_MAX
            && let Some(stream) = self.short.pop_front()
        {
            self.short_in_a_row += 1;
            return Some(stream);
        }
        self.short_in_a_row = 0;
        self.long.pop_front().or_else(|| self.short.pop_front())
    }

    fn forget(&mut self, stream: StreamId) -> bool {
        let forgotten = self.streams.remove(&stream);
        self.unacked -= forgotten.as_ref().map_or(0, Outgoing::held);
        forgotten.is_some()
    }
}

/// As long as what goes by unseen: a request or a small response.
const SHORT_BYTES_MAX: usize = 4 << 10;

/// What a question waits for where there is one connection: on the line as much as a batch that becomes less than two thirds.
const UNCOMPRESSED_BYTES: usize = 256 << 10;

/// A long frame is 256 KiB or so; eight short ones before each leave it nearly nine tenths of the line.
const SHORT_IN_A_ROW_MAX: usize = 8;
