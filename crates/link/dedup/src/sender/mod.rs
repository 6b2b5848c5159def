//! The sender: turns bodies into frames.
//!
//! The sender sends a reference for every chunk that was once exchanged with the peer, although the peer may
//! have lost the chunk since then. The sender keeps the bytes until the peer acknowledges them, and sends the
//! bytes if the peer answers with a NAK. The number of kept bytes is limited, per stream and in total:
//! [`Sender::writable_bytes`] returns how many more bytes can be written. If the store
//! [retains](crate::store::Row::is_retained) a chunk that is sent as a reference, the sender does not keep its bytes
//! in memory; after a NAK it loads them from the store. If loading fails, the stream is reset.
//!
//! The first bytes of each body, and therefore short bodies as a whole, bypass deduplication: lookups would cost more
//! than they save. [`Sender::flush`] sends bytes before the end of their chunk is known. If the peer has the complete
//! chunk, only the remaining bytes are then replaced by a reference.

mod config;
mod encode;
mod piece;
mod predictor;
mod stream;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use thiserror::Error;

use crate::codec::{Codec, Effort};
use crate::knowledge::Knowledge;
use crate::store::{Answer, Request, RequestId, Requests};
use crate::wire::{Frame, FrameSink, NakCause, PIECE_BYTES_MAX, StreamAck, StreamId, StreamState};
use crate::{Resources, Violation, reason};

pub use config::SenderConfig;
pub(crate) use piece::TAIL_BYTES_MIN;

use encode::FrameEncoder;
use piece::{ChunkFinder, StoredBytes};
use stream::{OutgoingStream, QueueItem};

/// A lane: the kind of frames that may be sent on a connection. A piece is a range of a body that is sent in one frame.
///
/// The operating system buffers the bytes of a connection. On the same connection as a download, a request would wait
/// until the buffered bytes of the download are sent. Short frames therefore have a separate connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// All frames: only one connection exists.
    Any,
    /// Acknowledgements, OPEN, CLOSE, RESET, and pieces of at most 4 KiB, such as a request.
    Short,
    /// Longer pieces. OPEN of their stream is sent on this lane too, before its first piece.
    Long,
}

/// The end of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderEvent {
    /// The peer has received the whole body and verified its digest.
    Complete(StreamId),
    /// The body will not be delivered.
    Stopped {
        /// The stream.
        stream: StreamId,
        /// A number of [`reason`], or a further number that the user of this crate defines.
        reason: u32,
    },
}

/// Why a stream cannot be opened or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The maximum number of streams is open.
    #[error("as many streams are open as the peer accepts")]
    TooManyStreams,
    /// The label is too long for a frame.
    #[error("a label of {0} bytes exceeds the maximum length")]
    Label(usize),
    /// The stream has ended, or was never opened.
    #[error("stream {} is not open", .0.0)]
    NoStream(StreamId),
}

/// Counters of sent and saved bytes and of failures. Bytes are bytes of bodies, unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounters {
    /// Bytes written by the users of streams.
    pub written: u64,
    /// Written bytes that were recognised by fingerprints, so that they were neither cut nor hashed.
    pub recognised: u64,
    /// Bytes sent without deduplication. Neither endpoint stores them.
    pub plain: u64,
    /// The part of `plain` in bodies that were sent without deduplication as a whole.
    pub bypassed: u64,
    /// Bytes sent as new chunks, without those in `delta`.
    pub literal: u64,
    /// The part of `literal` that looks encrypted or compressed, by a sample of the bytes of each frame.
    pub incompressible: u64,
    /// An estimate of the part of `literal` and `delta` in chunks that the store once had and evicted.
    pub evicted: u64,
    /// Bytes sent as new chunks that were compressed against old chunks.
    pub delta: u64,
    /// Bytes replaced by references.
    pub referenced: u64,
    /// Encoded bytes of all frames.
    pub wire: u64,
    /// Bytes that were sent again after a NAK or a lost connection.
    pub resent: u64,
    /// NAKs that the peer sent.
    pub naks: u64,
    /// Bodies that were reset because both endpoints had lost a referenced chunk.
    pub lost: u64,
}

/// Sends bodies to one peer.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    /// Boxed, because an empty map keeps a node with the space of eleven streams.
    streams: BTreeMap<StreamId, Box<OutgoingStream>>,
    /// The number of the next stream to open.
    next_number: u64,
    /// Streams whose next frame to send is short, each once, in round-robin order.
    short_ready: VecDeque<StreamId>,
    /// Streams whose next frame to send is long, each once, in round-robin order.
    long_ready: VecDeque<StreamId>,
    /// The number of short frames sent since the last long frame.
    short_in_a_row: usize,
    /// Streams that were reset, with the reason, until the peer acknowledges the reset.
    resets: BTreeMap<StreamId, u32>,
    /// Streams for which a RESET frame must be sent.
    resets_due: VecDeque<StreamId>,
    /// The number of bytes of all streams that are kept in memory until they are acknowledged.
    unacked: usize,
    /// True after a body was reset because both stores had lost the same chunk. The sender then keeps all bytes until
    /// they are acknowledged. This ends when a body with references is delivered.
    keeps_unacked: bool,
    /// Chooses the compression method.
    effort: Effort,
    events: VecDeque<SenderEvent>,
    counters: SenderCounters,
    /// A buffer for the compressed bytes of a piece.
    packed: Vec<u8>,
    requests: Requests,
    /// The streams of the requests that are not answered.
    unanswered: BTreeMap<RequestId, StreamId>,
    /// The unanswered requests for bytes of pieces, and the bytes that will be kept until they are acknowledged.
    loads: BTreeMap<RequestId, usize>,
    /// The streams that need bytes of their next piece, and wait because there are [`LOADS_MAX`] such requests, or
    /// because the limit of unacknowledged bytes is reached.
    waiting_for_load: BTreeSet<StreamId>,
}

impl Sender {
    /// Creates a sender without streams.
    pub fn new(config: SenderConfig) -> Self {
        let batch_bytes = config.batch_bytes.clamp(1, PIECE_BYTES_MAX);
        Self {
            config: SenderConfig {
                batch_bytes,
                ..config
            },
            streams: BTreeMap::new(),
            next_number: 0,
            short_ready: VecDeque::new(),
            long_ready: VecDeque::new(),
            short_in_a_row: 0,
            resets: BTreeMap::new(),
            resets_due: VecDeque::new(),
            unacked: 0,
            keeps_unacked: false,
            effort: Effort::new(config.methods),
            events: VecDeque::new(),
            counters: SenderCounters::default(),
            packed: Vec::new(),
            requests: Requests::of_sender(),
            unanswered: BTreeMap::new(),
            loads: BTreeMap::new(),
            waiting_for_load: BTreeSet::new(),
        }
    }

    /// Sets the terms of the handshake with a new session of the peer. Bodies that were opened before this call
    /// are cut by the old parameters.
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

    /// Opens a stream. `label` states the purpose of the stream to the peer. If `dedup` is false, the bytes are
    /// compressed but not deduplicated. This is for encrypted bytes, and for a body that failed before because its
    /// digest was wrong.
    pub fn open(&mut self, label: &[u8], dedup: bool) -> Result<StreamId, SendError> {
        if self.free_streams() == 0 {
            return Err(SendError::TooManyStreams);
        }
        if label.len() > crate::wire::LABEL_BYTES_MAX {
            return Err(SendError::Label(label.len()));
        }
        let stream = StreamId(self.next_number);
        self.next_number += 1;
        let bypass = if dedup {
            self.config.bypass_bytes
        } else {
            u64::MAX
        };
        let mut outgoing = OutgoingStream::new(
            label.to_vec(),
            self.config.chunker,
            bypass,
            self.config.credit,
        );
        outgoing.queue.push_back(QueueItem::Open);
        self.streams.insert(stream, Box::new(outgoing));
        self.make_ready(stream);
        Ok(stream)
    }

    /// Returns the number of streams that can be opened. A stream that was reset counts until the peer acknowledges it.
    pub fn free_streams(&self) -> usize {
        let open_streams = self.streams.len() + self.resets.len();
        self.config.streams_max.saturating_sub(open_streams)
    }

    /// Returns the number of bytes of the body that can be written now. It is limited by credit and by the limits of
    /// unacknowledged bytes, and 0 while the stream waits for an answer of the store.
    pub fn writable_bytes(&self, stream: StreamId) -> usize {
        let outgoing = self.streams.get(&stream);
        let Some(outgoing) = outgoing.filter(|outgoing| !outgoing.waits()) else {
            return 0;
        };
        let credit = outgoing.credit.saturating_sub(outgoing.written);
        let credit = usize::try_from(credit).unwrap_or(usize::MAX);
        let stream_limit = self
            .config
            .stream_unacked_max
            .saturating_sub(outgoing.memory_bytes());
        let total_limit = self.config.unacked_max.saturating_sub(self.unacked());
        credit.min(stream_limit).min(total_limit)
    }

    /// Writes the next bytes of a body, at most [`writable_bytes`](Self::writable_bytes), and returns their number.
    pub fn write(
        &mut self,
        stream: StreamId,
        bytes: &[u8],
        resources: &mut Resources<'_>,
    ) -> Result<usize, SendError> {
        let bytes = &bytes[..bytes.len().min(self.writable_bytes(stream))];
        let written = self.with_stream(stream, resources, |outgoing, finder| {
            let is_open = !outgoing.closed;
            is_open.then(|| outgoing.write(bytes, finder))
        });
        written.flatten().ok_or(SendError::NoStream(stream))?;
        self.counters.written += bytes.len() as u64;
        Ok(bytes.len())
    }

    /// Returns a buffer for the next bytes of a body. The caller writes bytes into the buffer and then calls
    /// [`filled`](Self::filled) with their number. Returns `None` if [`writable_bytes`](Self::writable_bytes) is 0.
    pub fn spare(
        &mut self,
        stream: StreamId,
        resources: &mut Resources<'_>,
    ) -> Result<Option<&mut [u8]>, SendError> {
        let writable_bytes = self.writable_bytes(stream);
        let is_open = self
            .streams
            .get(&stream)
            .is_some_and(|outgoing| !outgoing.closed);
        if is_open && writable_bytes == 0 {
            return Ok(None);
        }
        if is_open {
            self.with_stream(stream, resources, |outgoing, finder| {
                outgoing.make_space(finder);
            });
        }
        let outgoing = self.streams.get_mut(&stream).filter(|_| is_open);
        let spare = outgoing.ok_or(SendError::NoStream(stream))?.spare();
        let most = spare.len().min(writable_bytes);
        Ok(Some(&mut spare[..most]))
    }

    /// Records the number of bytes written into the buffer that [`spare`](Self::spare) just returned.
    pub fn filled(&mut self, stream: StreamId, bytes: usize, resources: &mut Resources<'_>) {
        let filled = self.with_stream(stream, resources, |outgoing, finder| {
            outgoing.filled(bytes, finder);
        });
        self.counters.written += filled.map_or(0, |()| bytes as u64);
    }

    /// Returns the next request to the store.
    pub fn request(&mut self) -> Option<(RequestId, Request)> {
        self.requests.pop()
    }

    /// Numbers the requests after those of the sender of an endpoint that was restarted.
    pub(crate) fn number_requests_after(&mut self, before: &Self) {
        self.requests.number_after(&before.requests);
    }

    /// Handles the answer to a request. Returns the stream that can now continue.
    pub fn complete(
        &mut self,
        request: RequestId,
        answer: Answer,
        resources: &mut Resources<'_>,
    ) -> Option<StreamId> {
        let stream = self.unanswered.remove(&request)?;
        if self.loads.remove(&request).is_some() {
            self.try_loads_again();
        }
        let completed = self.with_stream(stream, resources, |outgoing, finder| {
            outgoing.complete(request, answer, finder)
        });
        if completed == Some(false) {
            self.reset_lost_body(stream);
        }
        Some(stream)
    }

    /// Queues the complete chunks for sending, without waiting for a full batch. The last, partial chunk still waits.
    pub fn flush_whole(&mut self, stream: StreamId, resources: &mut Resources<'_>) {
        self.with_stream(stream, resources, |outgoing, finder| {
            outgoing.flush_whole(finder);
        });
    }

    /// Stops deduplicating a body, if at most its first `bypass_bytes` were written. The caller does this if
    /// the first bytes show that the body is encrypted. Returns false if more bytes were written (deduplication then
    /// continues), or if the stream does not exist.
    pub fn bypass(&mut self, stream: StreamId) -> bool {
        let outgoing = self.streams.get_mut(&stream);
        outgoing.is_some_and(|outgoing| outgoing.bypass())
    }

    /// Returns the number of written bytes of a body that wait for the end of a chunk or for a full batch.
    pub fn unframed_bytes(&self, stream: StreamId) -> usize {
        let outgoing = self.streams.get(&stream);
        outgoing.map_or(0, |outgoing| {
            usize::try_from(outgoing.written - outgoing.framed_up_to())
                .expect("the bytes are in memory")
        })
    }

    /// Returns the offset up to which a body is divided into frames.
    pub fn framed_up_to(&self, stream: StreamId) -> u64 {
        self.streams
            .get(&stream)
            .map_or(0, |outgoing| outgoing.framed_up_to())
    }

    /// Returns true if frames of a body are unacknowledged, so that the peer will answer.
    pub fn has_unacked(&self, stream: StreamId) -> bool {
        let outgoing = self.streams.get(&stream);
        outgoing.is_some_and(|outgoing| outgoing.has_unacked())
    }

    /// Returns true if a frame is queued for this lane. Sending a frame on one lane may queue a frame for the
    /// other lane.
    pub fn is_ready(&self, lane: Lane) -> bool {
        let short_is_ready =
            lane != Lane::Long && !(self.short_ready.is_empty() && self.resets_due.is_empty());
        short_is_ready || (lane != Lane::Short && !self.long_ready.is_empty())
    }

    /// Returns true if frames of a body wait for the link.
    pub fn has_backlog(&self, stream: StreamId) -> bool {
        let outgoing = self.streams.get(&stream);
        outgoing.is_some_and(|outgoing| !outgoing.queue.is_empty())
    }

    /// Queues all written bytes for sending, without waiting for the end of a chunk or for a full batch.
    pub fn flush(&mut self, stream: StreamId, resources: &mut Resources<'_>) {
        self.with_stream(stream, resources, OutgoingStream::flush);
    }

    /// Ends a body.
    pub fn close(
        &mut self,
        stream: StreamId,
        resources: &mut Resources<'_>,
    ) -> Result<(), SendError> {
        let closed = self.with_stream(stream, resources, |outgoing, finder| {
            let is_open = !outgoing.closed;
            is_open.then(|| outgoing.close(finder))
        });
        closed.flatten().ok_or(SendError::NoStream(stream))
    }

    /// Runs `act` on a stream, if it exists. Then updates the counters and queues the stream if it has a frame to
    /// send.
    fn with_stream<T>(
        &mut self,
        stream: StreamId,
        resources: &mut Resources<'_>,
        act: impl FnOnce(&mut OutgoingStream, &mut ChunkFinder<'_>) -> T,
    ) -> Option<T> {
        let (batch, stored_bytes) = (self.batch_bytes(), self.stored_bytes());
        let outgoing = self.streams.get_mut(&stream)?;
        let (recognised, memory_bytes) = (outgoing.recognised, outgoing.memory_bytes());
        let mut finder = ChunkFinder {
            requests: &mut self.requests,
            knowledge: resources.knowledge,
            id_key: resources.id_key,
            pool: resources.pool,
            delta: self.config.delta,
            stored_bytes,
            may_release: !self.keeps_unacked,
            batch,
        };
        let result = act(outgoing, &mut finder);
        self.counters.recognised += outgoing.recognised - recognised;
        self.unacked = self.unacked - memory_bytes + outgoing.memory_bytes();
        if let Some(request) = outgoing.lookup() {
            self.unanswered.insert(request, stream);
        }
        self.make_ready(stream);
        Some(result)
    }

    /// Resets a stream.
    pub fn reset(&mut self, stream: StreamId, reason: u32) {
        if self.remove_stream(stream) {
            self.resets.insert(stream, reason);
            self.resets_due.push_back(stream);
        }
    }

    /// Appends the next frame to `out`, or returns false if no frame is queued. `link_busy` is true while
    /// earlier frames still wait for the link; a stronger compression is then chosen.
    pub fn transmit<C: Codec>(
        &mut self,
        lane: Lane,
        link_busy: bool,
        codec: &mut C,
        resources: &mut Resources<'_>,
        out: &mut impl FrameSink,
    ) -> bool {
        let start = out.bytes();
        let resets = lane != Lane::Long;
        let sent = (resets && self.transmit_reset(out))
            || self.transmit_item(lane, link_busy, codec, resources, out);
        self.counters.wire += (out.bytes() - start) as u64;
        sent
    }

    /// Handles an ACK, NAK, CREDIT or STOP frame.
    pub fn handle(
        &mut self,
        frame: &Frame<'_>,
        knowledge: &mut Knowledge,
    ) -> Result<(), Violation> {
        match frame {
            Frame::Ack(acks) => acks.iter().try_for_each(|acked| self.handle_ack(acked))?,
            Frame::Nak {
                stream,
                offset,
                cause,
            } => self.handle_nak(*stream, *offset, *cause, knowledge),
            Frame::Credit(credits) => {
                for (stream, limit) in credits {
                    if let Some(outgoing) = self.streams.get_mut(stream) {
                        outgoing.credit = outgoing.credit.max(*limit);
                    }
                }
            }
            Frame::Stop { stream, reason } => {
                if self.remove_stream(*stream) {
                    let (stream, reason) = (*stream, *reason);
                    self.events
                        .push_back(SenderEvent::Stopped { stream, reason });
                }
            }
            _ => return Err(Violation::Direction),
        }
        Ok(())
    }

    /// Handles a new connection to the same session of the peer: unacknowledged pieces are sent again as bytes.
    pub(crate) fn handle_reconnect(&mut self) {
        self.resets_due = self.resets.keys().copied().collect();
        let streams: Vec<_> = self.streams.keys().copied().collect();
        for stream in streams {
            let outgoing = self
                .streams
                .get_mut(&stream)
                .expect("the stream was just listed");
            self.counters.resent += outgoing.send_again();
            self.make_ready(stream);
        }
    }

    /// Handles a restart of the peer: all streams end, and stream numbers begin at 0 again.
    pub fn handle_restart(&mut self) {
        let reason = reason::RESTARTED;
        let streams = std::mem::take(&mut self.streams).into_keys();
        self.events
            .extend(streams.map(|stream| SenderEvent::Stopped { stream, reason }));
        (self.next_number, self.unacked) = (0, 0);
        self.packed = Vec::new();
        self.short_ready.clear();
        self.long_ready.clear();
        self.resets.clear();
        self.resets_due.clear();
        self.unanswered.clear();
        self.loads.clear();
        self.waiting_for_load.clear();
    }

    /// Returns the next event.
    pub fn event(&mut self) -> Option<SenderEvent> {
        self.events.pop_front()
    }

    /// Returns the counters.
    pub fn counters(&self) -> SenderCounters {
        self.counters
    }

    /// Returns the number of bytes of all streams that are kept in memory until they are acknowledged, with those that
    /// are being loaded. It may exceed [`SenderConfig::unacked_max`] by one piece.
    pub fn unacked(&self) -> usize {
        self.unacked + self.loads.values().sum::<usize>()
    }

    /// Lets the streams that wait for a load try again.
    fn try_loads_again(&mut self) {
        for waiting in std::mem::take(&mut self.waiting_for_load) {
            self.make_ready(waiting);
        }
    }

    /// Returns the number of bytes of new chunks that are sent in one frame.
    fn batch_bytes(&self) -> usize {
        let compressed = self.config.batch_bytes;
        if self.effort.saves() {
            compressed
        } else {
            compressed.min(UNCOMPRESSED_BYTES)
        }
    }

    /// Returns which new chunks are stored with their bytes: all chunks if the peer may send them back. Otherwise
    /// only deltas use the stored bytes. Incompressible chunks (noise) are then stored only while the link is the
    /// bottleneck and the strongest compression is in use. Storing them is then worth its cost: at each edit of a
    /// body, a delta saves the bytes of one chunk of noise.
    fn stored_bytes(&self) -> StoredBytes {
        let config = &self.config;
        match (config.keep_sent, config.delta, self.effort.is_strongest()) {
            (true, ..) | (false, true, true) => StoredBytes::All,
            (false, true, false) => StoredBytes::AllButNoise,
            (false, false, _) => StoredBytes::None,
        }
    }

    /// Encodes the next RESET frame. Returns false if no RESET must be sent.
    fn transmit_reset(&mut self, out: &mut impl FrameSink) -> bool {
        while let Some(stream) = self.resets_due.pop_front() {
            if let Some(&reason) = self.resets.get(&stream) {
                Frame::Reset { stream, reason }.encode(out.head());
                return true;
            }
        }
        false
    }

    /// Encodes one item of the next stream in round-robin order. Returns false if no stream has an item for this lane.
    fn transmit_item<C: Codec>(
        &mut self,
        lane: Lane,
        link_busy: bool,
        codec: &mut C,
        resources: &mut Resources<'_>,
        out: &mut impl FrameSink,
    ) -> bool {
        while let Some(stream) = self.next_ready(lane) {
            let unacked = self.unacked();
            let Some(outgoing) = self.streams.get_mut(&stream) else {
                continue;
            };
            outgoing.ready = false;
            let is_bypassed = outgoing.is_bypassed();
            let mut sent = false;
            if let Some((missing, bytes)) = outgoing.missing(resources.knowledge) {
                // A peer can refuse references to any number of bytes. The first piece of a stream may exceed the
                // limit, because its acknowledgement needs no other piece.
                let limit = self.config.unacked_max;
                let fits = bytes == 0
                    || unacked + bytes <= limit
                    || (unacked <= limit && outgoing.sends_first_piece());
                if fits && self.loads.len() < LOADS_MAX {
                    let request = self.requests.push(Request::Load(missing));
                    outgoing.set_load(request);
                    self.unanswered.insert(request, stream);
                    self.loads.insert(request, bytes);
                } else if !fits && outgoing.move_first_piece_to_front() {
                    self.make_ready(stream);
                } else {
                    self.waiting_for_load.insert(stream);
                }
                continue;
            }
            // Frames of this lane may arrive before the OPEN of the other lane, so OPEN is sent on this lane too.
            if lane == Lane::Long && outgoing.opens_long_lane() {
                let label = &outgoing.label;
                Frame::Open { stream, label }.encode(out.head());
                self.make_ready(stream);
                return true;
            }
            if let Some(item) = outgoing.queue.pop_front() {
                sent = match item {
                    QueueItem::Open => {
                        let label = &outgoing.label;
                        Frame::Open { stream, label }.encode(out.head());
                        true
                    }
                    QueueItem::Close => {
                        let (length, digest) = (outgoing.written, outgoing.digest());
                        // The peer stores the last chunk of the body when it receives CLOSE, and has it from then on.
                        outgoing
                            .tail
                            .inspect(|&location| resources.knowledge.add(location));
                        Frame::Close {
                            stream,
                            length,
                            digest,
                        }
                        .encode(out.head());
                        true
                    }
                    QueueItem::Piece(offset) => match outgoing.piece_to_send(offset) {
                        Some((piece, digest)) => {
                            let mut encoder = FrameEncoder {
                                stream,
                                is_bypassed,
                                link_busy,
                                codec,
                                effort: &mut self.effort,
                                counters: &mut self.counters,
                                packed: &mut self.packed,
                            };
                            let known = &mut *resources.knowledge;
                            encoder.encode(piece, digest, known, out);
                            true
                        }
                        // The peer has acknowledged the piece since it was queued.
                        None => false,
                    },
                };
            }
            self.make_ready(stream);
            if sent {
                return true;
            }
        }
        false
    }

    /// Handles the acknowledgement of one stream.
    fn handle_ack(&mut self, acked: &StreamAck) -> Result<(), Violation> {
        let stream = acked.stream;
        if acked.state != StreamState::Open {
            self.resets.remove(&stream);
        }
        let Some(outgoing) = self.streams.get_mut(&stream) else {
            return Ok(());
        };
        match acked.state {
            StreamState::Open => {
                if acked.offset > outgoing.framed_up_to() {
                    return Err(Violation::Acknowledged(stream));
                }
                let memory_bytes = outgoing.memory_bytes();
                outgoing.acknowledge(acked.offset);
                self.unacked = self.unacked - memory_bytes + outgoing.memory_bytes();
                self.try_loads_again();
            }
            StreamState::Complete => {
                if !outgoing.is_ended() {
                    return Err(Violation::Acknowledged(stream));
                }
                self.keeps_unacked &= !outgoing.has_references;
                self.remove_stream(stream);
                self.events.push_back(SenderEvent::Complete(stream));
            }
            StreamState::Ended => {
                self.remove_stream(stream);
                let reason = reason::CANCELLED;
                self.events
                    .push_back(SenderEvent::Stopped { stream, reason });
            }
        }
        Ok(())
    }

    /// Handles a NAK for the piece of a stream at `offset`.
    fn handle_nak(
        &mut self,
        stream: StreamId,
        offset: u64,
        cause: NakCause,
        knowledge: &mut Knowledge,
    ) {
        self.counters.naks += 1;
        if let Some(outgoing) = self.streams.get_mut(&stream) {
            self.counters.resent += outgoing.handle_nak(offset, cause, knowledge);
            self.make_ready(stream);
        }
    }

    /// Resets a body whose bytes are lost.
    fn reset_lost_body(&mut self, stream: StreamId) {
        let reason = reason::LOST;
        self.counters.lost += 1;
        self.keeps_unacked = true;
        self.reset(stream, reason);
        self.events
            .push_back(SenderEvent::Stopped { stream, reason });
    }

    /// Adds a stream to a queue of ready streams, if the stream has a frame to send and is in no queue.
    fn make_ready(&mut self, stream: StreamId) {
        if let Some(outgoing) = self.streams.get_mut(&stream)
            && let Some(next) = outgoing.next_bytes()
            && !std::mem::replace(&mut outgoing.ready, true)
        {
            let queue = if next <= SHORT_BYTES_MAX {
                &mut self.short_ready
            } else {
                &mut self.long_ready
            };
            queue.push_back(stream);
        }
    }

    /// Returns the next stream in round-robin order. Short frames have priority, so that a request does not
    /// wait behind a download. After `SHORT_IN_A_ROW_MAX` consecutive short frames, a long frame follows.
    fn next_ready(&mut self, lane: Lane) -> Option<StreamId> {
        match lane {
            Lane::Any => {}
            Lane::Short => return self.short_ready.pop_front(),
            Lane::Long => return self.long_ready.pop_front(),
        }
        if self.short_in_a_row < SHORT_IN_A_ROW_MAX
            && let Some(stream) = self.short_ready.pop_front()
        {
            self.short_in_a_row += 1;
            return Some(stream);
        }
        self.short_in_a_row = 0;
        self.long_ready
            .pop_front()
            .or_else(|| self.short_ready.pop_front())
    }

    /// Removes the state of a stream. Returns false if there is no state.
    fn remove_stream(&mut self, stream: StreamId) -> bool {
        let removed = self.streams.remove(&stream);
        self.unacked -= removed
            .as_ref()
            .map_or(0, |outgoing| outgoing.memory_bytes());
        self.try_loads_again();
        if self.streams.is_empty() {
            // An idle peer needs no buffer.
            self.packed = Vec::new();
        }
        removed.is_some()
    }
}

/// The largest number of body bytes in a short frame, enough for a request or a small response. By default, the same
/// number of bytes at the start of each body bypasses deduplication.
const SHORT_BYTES_MAX: usize = 4 << 10;

/// The largest number of pieces whose bytes are loaded at the same time. They take at most 4 MiB.
const LOADS_MAX: usize = 8;

/// The length of an uncompressed batch. On a single connection, a request may wait until one batch is sent. A batch to
/// compress may be longer: compressed to two thirds of its length, it occupies the link for about the same time.
const UNCOMPRESSED_BYTES: usize = 256 << 10;

/// The largest number of consecutive short frames. A long frame has about 256 KiB. With eight short frames
/// before each long frame, the long frames still get nearly nine tenths of the bandwidth.
const SHORT_IN_A_ROW_MAX: usize = 8;
