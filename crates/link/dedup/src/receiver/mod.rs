//! The receiver: turns frames into bodies. Most frames carry a piece, a range of a body.
//!
//! The receiver verifies all references with its own store: it looks a referenced chunk up, loads it and hashes
//! it. If the chunk is missing, corrupt, or was never exchanged with this peer, the receiver sends a NAK. The
//! peer then sends the bytes, one round trip later. At the end of a body, its digest must equal that of the
//! sender.
//!
//! Credit limits the memory: the sender may send at most a window of bytes that the user (the program that calls
//! [`Receiver::take`]) has not read. Each stream has a small reserved window. Larger windows come from one budget
//! of all streams, so that a single fast stream can have nearly the whole budget.

mod assembler;
mod ended;
mod lookup;
mod stream;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use crate::codec::Codec;
use crate::noise::is_noise;
use crate::store::{Answer, Request, RequestId, Requests};
use crate::wire::{Frame, NakCause, STREAMS_PER_FRAME, Span, StreamAck, StreamId, StreamState};
use crate::{Resources, Violation, reason};

use ended::EndedStreams;
use lookup::{PendingFrame, payload_bytes, unpack};
use stream::{IncomingStream, PieceContent, ReceivedPiece};

/// How bodies are received.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    /// The maximum number of open streams.
    pub streams_max: usize,
    /// The reserved window of each stream, in bytes. The sender may use it as soon as the stream is open.
    pub credit: u64,
    /// The largest window, in bytes, if the budget allows it. The sender may send this many bytes beyond the
    /// offset that the user has read.
    pub window_max: u64,
    /// The maximum of the sum of all windows, in bytes: received bytes that are unread, and bytes that the
    /// sender may still send. Must be at least `streams_max` times `credit`. Pieces that wait for earlier bytes may
    /// take one and a half times the memory of their bytes. Incomplete chunks may take another quarter of the budget,
    /// and 64 KiB for each stream.
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
    /// Only chunks that the peer sent or received. The peer then cannot find out which chunks other peers have.
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
        /// The label of the stream, which the sender chose.
        label: Vec<u8>,
    },
    /// Bytes of the stream can be [read](Receiver::take), or the stream has ended.
    Ready(StreamId),
}

/// The result of reading from a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeResult {
    /// The next bytes.
    Bytes(Bytes),
    /// No bytes are available now. More bytes may follow.
    Wait,
    /// All bytes were read and the digest is correct. The stream is closed.
    Complete,
    /// The stream failed and is closed. The number is a [`reason`].
    Failed(u32),
    /// No such stream exists.
    Unknown,
}

/// Counters of received bytes and of refused frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounters {
    /// Bytes of bodies that were delivered to their streams.
    pub delivered: u64,
    /// Bytes of bodies that were loaded from the store.
    pub from_store: u64,
    /// Bytes that were received without deduplication.
    pub plain: u64,
    /// The part of `plain` after the first 4 KiB of a body: the sender did not deduplicate the body as a whole.
    pub bypassed: u64,
    /// Bytes that were received as new chunks, without those in `delta`.
    pub literal: u64,
    /// The part of `literal` that looks encrypted or compressed, by a sample of the bytes of each frame.
    pub incompressible: u64,
    /// Bytes that were received as new chunks that were compressed against old chunks.
    pub delta: u64,
    /// Bytes that were loaded from the store to decompress deltas.
    pub bases: u64,
    /// Frames refused because a chunk was missing or did not match its hash.
    pub missing: u64,
    /// Frames refused because they refer to a chunk that was never exchanged with the peer.
    pub foreign: u64,
    /// Runs (references to consecutive chunks) refused because the receiver's store has another order.
    pub disordered: u64,
    /// Bodies that failed because their digest differs.
    pub digest_failures: u64,
}

/// Receives bodies from one peer.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    /// Boxed, because an empty map keeps a node with the space of eleven streams.
    streams: BTreeMap<StreamId, Box<IncomingStream>>,
    /// The bytes granted to all streams beyond their reserved windows.
    granted_extra: u64,
    /// The streams that have ended.
    ended: EndedStreams,
    /// Streams for which an ACK must be sent.
    acks: BTreeSet<StreamId>,
    /// Streams for which a CREDIT must be sent.
    credits: BTreeSet<StreamId>,
    /// The NAKs to send: stream, offset of the refused piece (`u64::MAX` for CLOSE), cause.
    naks: VecDeque<(StreamId, u64, NakCause)>,
    /// The refused frames that have not arrived in a usable form since: stream and offset as in `naks`, and the cause.
    /// Their NAKs are sent again when a connection is lost.
    refused: BTreeMap<(StreamId, u64), NakCause>,
    /// The STOPs to send, with their reasons.
    stops: VecDeque<(StreamId, u32)>,
    events: VecDeque<ReceiverEvent>,
    counters: ReceiverCounters,
    /// The value of `counters.delivered` when an acknowledgement was last sent.
    acked_delivered: u64,
    /// True if a sender may be waiting for credit.
    sender_may_wait: bool,
    requests: Requests,
    /// The frames that wait for answers of the store.
    pending: BTreeMap<RequestId, PendingFrame>,
}

/// How soon acknowledgements, NAKs and credit must be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerUrgency {
    /// No frame must be sent.
    None,
    /// The frames can wait until other frames are sent, because little must be acknowledged.
    Deferrable,
    /// The frames must be sent at once.
    Urgent,
}

/// The maximum number of queued acknowledgements, NAKs and STOPs. A correct peer has at most `streams_max` streams
/// whose end is not acknowledged. If this many answers wait, the peer does not read from the connection.
const ANSWERS_MAX: usize = 1 << 16;

impl Receiver {
    /// Creates a receiver without streams.
    pub fn new(config: ReceiverConfig) -> Self {
        Self {
            config,
            streams: BTreeMap::new(),
            granted_extra: 0,
            ended: EndedStreams::new(config.streams_max),
            acks: BTreeSet::new(),
            credits: BTreeSet::new(),
            naks: VecDeque::new(),
            refused: BTreeMap::new(),
            stops: VecDeque::new(),
            events: VecDeque::new(),
            counters: ReceiverCounters::default(),
            acked_delivered: 0,
            sender_may_wait: false,
            requests: Requests::of_receiver(),
            pending: BTreeMap::new(),
        }
    }

    /// Handles a frame of a body. `memory` is the buffer from which the frame was decoded; if it is given, the
    /// body may keep this buffer instead of a copy of the payload.
    pub fn handle<C: Codec>(
        &mut self,
        frame: Frame<'_>,
        memory: Option<&Bytes>,
        codec: &mut C,
        resources: &mut Resources<'_>,
    ) -> Result<(), Violation> {
        // A frame adds at most three answers.
        let answers = self.acks.len() + self.naks.len() + self.stops.len();
        if answers >= ANSWERS_MAX {
            return Err(Violation::Flood(answers));
        }
        match frame {
            Frame::Open { stream, label } => self.open(stream, label),
            Frame::Close {
                stream,
                length,
                digest,
            } => {
                self.close(stream, (length, digest), resources);
                Ok(())
            }
            Frame::Reset { stream, reason } => self.reset(stream, reason),
            Frame::Plain {
                span,
                method,
                payload,
            } => {
                if !self.expects(span)? {
                    return Ok(());
                }
                let bytes = unpack(span, method, &[], payload, memory, codec)?;
                self.counters.plain += u64::from(span.length);
                self.counters.bypassed += span
                    .end()
                    .saturating_sub(span.offset.max(PLAIN_START_BYTES));
                let kind = PieceContent::Plain;
                self.add_piece(span, ReceivedPiece { bytes, kind }, resources)
            }
            Frame::Literal {
                span,
                method,
                cuts,
                payload,
            } => {
                if !self.expects(span)? {
                    return Ok(());
                }
                let bytes = unpack(span, method, &[], payload, memory, codec)?;
                self.counters.literal += bytes.len() as u64;
                self.counters.incompressible += if is_noise(&bytes) {
                    bytes.len() as u64
                } else {
                    0
                };
                let kind = PieceContent::Chunks { cuts };
                self.add_piece(span, ReceivedPiece { bytes, kind }, resources)
            }
            Frame::Delta {
                span,
                method,
                base,
                cuts,
                payload,
            } => {
                if self.expects(span)? {
                    let payload = payload_bytes(payload, memory);
                    self.look_up_base(span, base, (method, cuts, payload));
                }
                Ok(())
            }
            Frame::Ref { span, skip, ids } => {
                if self.expects(span)? {
                    self.look_up_chunks(span, skip, ids);
                }
                Ok(())
            }
            Frame::RefRun { span, run } => {
                if self.expects(span)? {
                    self.look_up_run(span, run);
                }
                Ok(())
            }
            _ => Err(Violation::Direction),
        }
    }

    /// Returns the next request to the store.
    pub fn request(&mut self) -> Option<(RequestId, Request)> {
        self.requests.pop()
    }

    /// Numbers the requests after those of the receiver of an endpoint that was restarted.
    pub(crate) fn number_requests_after(&mut self, before: &Self) {
        self.requests.number_after(&before.requests);
    }

    /// Handles the answer to a request. Returns the stream of the frame that waited for it.
    pub fn complete<C: Codec>(
        &mut self,
        request: RequestId,
        answer: Answer,
        codec: &mut C,
        resources: &mut Resources<'_>,
    ) -> Result<Option<StreamId>, Violation> {
        if let Answer::Stored(location) = answer {
            location.inspect(|&location| resources.knowledge.add(location));
            return Ok(None);
        }
        // Without a frame, the peer has restarted since the request.
        let Some(frame) = self.take_pending(request) else {
            return Ok(None);
        };
        let stream = frame.span.stream;
        self.complete_frame(frame, answer, codec, resources)?;
        Ok(Some(stream))
    }

    /// Returns how soon acknowledgements, NAKs and credit must be sent.
    pub fn answer_urgency(&self) -> AnswerUrgency {
        let urgent = !self.stops.is_empty()
            || !self.naks.is_empty()
            || (self.sender_may_wait && !self.credits.is_empty())
            || self.acks.len() > DEFERRED_ACKS_MAX
            || self.counters.delivered - self.acked_delivered > DEFERRED_BYTES_MAX;
        match (urgent, self.acks.is_empty() && self.credits.is_empty()) {
            (true, _) => AnswerUrgency::Urgent,
            (false, false) => AnswerUrgency::Deferrable,
            (false, true) => AnswerUrgency::None,
        }
    }

    /// Appends the next acknowledgement, NAK, CREDIT or STOP to `out`, or returns false if there is no frame to send.
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
            self.acked_delivered = self.counters.delivered;
            let streams = take_streams(&mut self.acks);
            let acks: Vec<_> = streams
                .filter_map(|stream| stream_ack(&self.ended, &self.streams, stream))
                .collect();
            if acks.is_empty() {
                return self.transmit(out);
            }
            Frame::Ack(acks).encode(out);
        } else if !self.credits.is_empty() {
            self.sender_may_wait = false;
            let limit = |stream| Some((stream, self.streams.get(&stream)?.limit));
            let credits: Vec<_> = take_streams(&mut self.credits).filter_map(limit).collect();
            if credits.is_empty() {
                return self.transmit(out);
            }
            Frame::Credit(credits).encode(out);
        } else {
            return false;
        }
        true
    }

    /// Returns the next bytes of a body. The sender may then get credit for more bytes.
    pub fn take(&mut self, stream: StreamId) -> TakeResult {
        let Some(incoming) = self.streams.get_mut(&stream) else {
            return TakeResult::Unknown;
        };
        if let Some(bytes) = incoming.unread.pop_front() {
            self.granted_extra -= incoming.granted().saturating_sub(self.config.credit);
            incoming.read_up_to += bytes.len() as u64;
            self.give_credit(stream);
            return TakeResult::Bytes(bytes);
        }
        incoming.reported = false;
        let Some(end) = incoming.outcome else {
            return TakeResult::Wait;
        };
        self.remove(stream);
        if let Err(reason) = end {
            return TakeResult::Failed(reason);
        }
        // A complete stream is acknowledged only after the user has read all its bytes. Otherwise the sender
        // could open another stream for each complete stream, and the unread bytes would fill the memory.
        self.record_end(stream, true);
        self.acks.insert(stream);
        TakeResult::Complete
    }

    /// Stops a body whose remaining bytes are not needed.
    pub fn stop(&mut self, stream: StreamId, reason: u32) {
        if self.remove(stream) && self.ended.state(stream).is_none() {
            self.record_end(stream, false);
            self.stops.push_back((stream, reason));
        }
    }

    /// Handles a new connection to the same session of the peer: frames sent on the old connection may be lost.
    pub(crate) fn handle_reconnect(&mut self) {
        let open_streams = self
            .streams
            .iter()
            .filter(|(_, incoming)| incoming.outcome.is_none());
        let open_streams: Vec<_> = open_streams.map(|(&stream, _)| stream).collect();
        // A NAK may be lost with a connection. The sender does not always send the refused piece again after that: it
        // may have noticed the loss, and have sent the piece again, before this endpoint has.
        let refused = self.refused.iter();
        self.naks = refused
            .map(|(&(stream, offset), &cause)| (stream, offset, cause))
            .collect();
        // The same is true of the ends of streams.
        self.acks.extend(self.ended.latest());
        self.acks.extend(&open_streams);
        self.credits.extend(&open_streams);
    }

    /// Handles a restart of the peer: all streams of the peer end.
    pub fn handle_restart(&mut self) {
        self.ended = EndedStreams::new(self.config.streams_max);
        self.acks.clear();
        self.credits.clear();
        self.naks.clear();
        self.refused.clear();
        self.stops.clear();
        // Stream numbers start again, so old streams cannot be distinguished from new ones. Bytes that were not
        // read are lost.
        self.streams.clear();
        self.granted_extra = 0;
        self.sender_may_wait = false;
        self.events.clear();
        self.pending.clear();
    }

    /// Returns the next event.
    pub fn event(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front()
    }

    /// Returns the counters.
    pub fn counters(&self) -> ReceiverCounters {
        self.counters
    }

    /// Returns the sum of all windows: the bytes of bodies that are received and unread, or that the sender may
    /// send without further credit.
    pub fn granted(&self) -> u64 {
        let streams = self.streams.values();
        streams.map(|incoming| incoming.granted()).sum()
    }

    fn open(&mut self, stream: StreamId, label: &[u8]) -> Result<(), Violation> {
        if self.streams.contains_key(&stream) || self.ended.state(stream).is_some() {
            self.acks.insert(stream);
            return Ok(());
        }
        // Between two ranges of ended streams lies a stream that is open, or whose OPEN has not arrived yet.
        // The number of such streams is limited.
        if self.ended.ranges() > 2 * self.config.streams_max + 16 {
            return Err(Violation::Numbering(stream));
        }
        if self.streams.len() >= self.config.streams_max {
            self.record_end(stream, false);
            self.stops.push_back((stream, reason::TOO_MANY));
            return Ok(());
        }
        self.streams
            .insert(stream, Box::new(IncomingStream::new(self.config.credit)));
        // The acknowledgement tells the sender that OPEN has arrived.
        self.acks.insert(stream);
        let label = label.to_vec();
        self.events
            .push_back(ReceiverEvent::Opened { stream, label });
        Ok(())
    }

    fn close(&mut self, stream: StreamId, close: (u64, u128), resources: &mut Resources<'_>) {
        self.refused.remove(&(stream, u64::MAX));
        match self.streams.get_mut(&stream) {
            Some(incoming) if incoming.outcome.is_none() => {
                incoming.expected_end = Some(close);
                self.end_if_complete(stream, resources);
            }
            None if self.ended.state(stream).is_none() => {
                self.refuse(stream, u64::MAX, NakCause::Unopened);
            }
            _ => _ = self.acks.insert(stream),
        }
    }

    fn reset(&mut self, stream: StreamId, reason: u32) -> Result<(), Violation> {
        if self.ended.state(stream).is_none() {
            if let Some(incoming) = self.streams.get_mut(&stream) {
                incoming.finish(Err(reason));
                self.report_ready(stream);
            }
            self.record_end(stream, false);
        }
        if self.ended.ranges() > 2 * self.config.streams_max + 16 {
            return Err(Violation::Numbering(stream));
        }
        self.acks.insert(stream);
        Ok(())
    }

    /// Returns true if a frame with this span is needed. Queues an acknowledgement, or a NAK if the stream is unknown.
    fn expects(&mut self, span: Span) -> Result<bool, Violation> {
        let Span { stream, offset, .. } = span;
        let Some(incoming) = self.streams.get(&stream) else {
            if self.ended.state(stream).is_some() {
                self.acks.insert(stream);
            } else {
                self.refuse(stream, offset, NakCause::Unopened);
            }
            return Ok(false);
        };
        if span.end() > incoming.limit {
            let (end, limit) = (span.end(), incoming.limit);
            return Err(Violation::Credit { stream, end, limit });
        }
        self.acks.insert(stream);
        Ok(incoming.outcome.is_none() && !incoming.has(offset, span.end()))
    }

    /// Adds the bytes of a frame to their stream.
    fn add_piece(
        &mut self,
        span: Span,
        piece: ReceivedPiece,
        resources: &mut Resources<'_>,
    ) -> Result<(), Violation> {
        let Span { stream, offset, .. } = span;
        self.refused.remove(&(stream, offset));
        // While the frame waited for the store, the stream may have ended, or the frame may have arrived again.
        let incoming = self.streams.get_mut(&stream);
        let Some(incoming) = incoming
            .filter(|incoming| incoming.outcome.is_none() && !incoming.has(offset, span.end()))
        else {
            return Ok(());
        };
        let before = incoming.delivered;
        let mut chunks = Vec::new();
        let refused = incoming.add_piece(stream, offset, piece, &mut chunks)?;
        let new_bytes = incoming.delivered - before;
        self.counters.delivered += new_bytes;
        self.store(chunks, resources);
        if new_bytes > 0 {
            self.acks.insert(stream);
            self.report_ready(stream);
        }
        if let Some(offset) = refused {
            self.counters.missing += 1;
            self.refuse(stream, offset, NakCause::Missing);
        }
        self.end_if_complete(stream, resources);
        self.limit_partial_chunks(stream);
        Ok(())
    }

    /// Requests that the store keeps these chunks.
    fn store(&mut self, chunks: Vec<Bytes>, resources: &Resources<'_>) {
        for chunk in chunks {
            let id = resources.id_key.id(&chunk);
            self.requests.push(Request::Store { id, chunk });
        }
    }

    /// Releases the incomplete chunk of this stream if it is long and the incomplete chunks of all streams take too
    /// much memory.
    fn limit_partial_chunks(&mut self, stream: StreamId) {
        let partial = |incoming: &IncomingStream| incoming.partial_chunk_bytes() as u64;
        let of_stream = self.streams.get(&stream).map_or(0, |it| partial(it));
        let of_all = || self.streams.values().map(|it| partial(it)).sum::<u64>();
        if of_stream > PARTIAL_CHUNK_BYTES
            && of_all() > self.config.budget / 4
            && let Some(incoming) = self.streams.get_mut(&stream)
        {
            incoming.release_partial_chunk();
        }
    }

    /// Ends a stream if CLOSE and all bytes were received. Queues STOP if the body is wrong.
    fn end_if_complete(&mut self, stream: StreamId, resources: &mut Resources<'_>) {
        let Some(incoming) = self.streams.get_mut(&stream) else {
            return;
        };
        if incoming.outcome.is_some() {
            return;
        }
        let mut chunks = Vec::new();
        incoming.end_if_complete(&mut chunks);
        let outcome = incoming.outcome;
        self.store(chunks, resources);
        match outcome {
            None => {}
            Some(Ok(())) => self.report_ready(stream),
            Some(Err(reason)) => {
                self.counters.digest_failures += u64::from(reason == reason::DIGEST);
                self.record_end(stream, false);
                self.stops.push_back((stream, reason));
                self.report_ready(stream);
            }
        }
    }

    /// Queues a NAK, and remembers it until the frame arrives in a usable form or the stream ends.
    fn refuse(&mut self, stream: StreamId, offset: u64, cause: NakCause) {
        // A frame that waited for the store may be refused after the end of its stream. A correct peer has far fewer
        // refused frames than the maximum.
        if self.ended.state(stream).is_none() && self.refused.len() < ANSWERS_MAX {
            self.refused.insert((stream, offset), cause);
        }
        self.naks.push_back((stream, offset, cause));
    }

    /// Records that a stream has ended. `complete` is true if its body was delivered completely.
    fn record_end(&mut self, stream: StreamId, complete: bool) {
        self.ended.insert(stream, complete);
        self.credits.remove(&stream);
        let of_stream = (stream, 0)..=(stream, u64::MAX);
        while let Some((&frame, _)) = self.refused.range(of_stream.clone()).next() {
            self.refused.remove(&frame);
        }
    }

    /// Queues an event for a stream that can be read, unless an event is already queued.
    fn report_ready(&mut self, stream: StreamId) {
        if let Some(incoming) = self.streams.get_mut(&stream)
            && !std::mem::replace(&mut incoming.reported, true)
        {
            self.events.push_back(ReceiverEvent::Ready(stream));
        }
    }

    /// Raises the limit of a stream as far as the budget allows, and adds the stream's window to
    /// `granted_extra`. The caller has already subtracted the earlier window of the stream from `granted_extra`.
    fn give_credit(&mut self, stream: StreamId) {
        let reserved = self.config.credit;
        let pool = self
            .config
            .budget
            .saturating_sub(reserved * self.config.streams_max as u64);
        let incoming = self
            .streams
            .get_mut(&stream)
            .expect("the caller has just read from the stream");
        let window = self
            .config
            .window_max
            .max(reserved)
            .min(reserved + pool.saturating_sub(self.granted_extra));
        let limit = incoming.read_up_to + window;
        // A small step does not justify a frame. With large steps, the sender would wait for credit and then
        // send a burst.
        let step = (window / 4).min(CREDIT_STEP_BYTES);
        if incoming.outcome.is_none() && limit >= incoming.limit + step {
            self.sender_may_wait |= incoming.limit < incoming.delivered + STARVED_BYTES_MAX;
            incoming.limit = limit;
            self.credits.insert(stream);
        }
        self.granted_extra += incoming.granted().saturating_sub(reserved);
    }

    /// Removes the state of a stream. Returns false if there is no state.
    fn remove(&mut self, stream: StreamId) -> bool {
        let removed = self.streams.remove(&stream);
        let granted = removed.as_ref().map_or(0, |incoming| incoming.granted());
        self.granted_extra -= granted.saturating_sub(self.config.credit);
        removed.is_some()
    }
}

/// By default, a sender deduplicates a body after these first bytes
/// ([`SenderConfig::bypass_bytes`](crate::sender::SenderConfig)).
const PLAIN_START_BYTES: u64 = 4 << 10;

/// An incomplete chunk of up to this length is always kept. By default, chunks are not longer.
const PARTIAL_CHUNK_BYTES: u64 = 64 << 10;

/// The largest number of delivered bytes whose acknowledgement may wait: a few frames of a fast body. Each
/// acknowledgement wakes the sender, so fewer of them are better. But until the acknowledgement, the sender
/// keeps the bytes in memory.
const DEFERRED_BYTES_MAX: u64 = 1 << 20;
/// The largest number of streams whose acknowledgement may wait.
const DEFERRED_ACKS_MAX: usize = 64;

/// A sender with less credit than this number of bytes may be waiting for more.
const STARVED_BYTES_MAX: u64 = 64 << 10;

/// Credit is raised at the latest when it can grow by these bytes: about a millisecond of sending at 4 Gb/s.
const CREDIT_STEP_BYTES: u64 = 512 << 10;

/// Returns the acknowledgement of a stream, or `None` if the stream is unknown.
fn stream_ack(
    ended: &EndedStreams,
    streams: &BTreeMap<StreamId, Box<IncomingStream>>,
    stream: StreamId,
) -> Option<StreamAck> {
    let state = ended.state(stream).unwrap_or(StreamState::Open);
    let incoming = streams.get(&stream);
    let offset = incoming.map_or(0, |incoming| incoming.delivered);
    (incoming.is_some() || state != StreamState::Open).then_some(StreamAck {
        stream,
        state,
        offset,
    })
}

/// Removes and returns as many streams as fit into a frame.
fn take_streams(streams: &mut BTreeSet<StreamId>) -> impl Iterator<Item = StreamId> {
    std::iter::from_fn(|| streams.pop_first()).take(STREAMS_PER_FRAME)
}
