//! The state of one outgoing stream. It divides the body into pieces, one per frame, and handles the peer's answers.

use std::collections::VecDeque;

use crate::chunker::{Chunker, ChunkerParams};
use crate::id::BodyDigest;
use crate::knowledge::Knowledge;
use crate::store::{Answer, ChunkLocation, LocatedChunk, Request, RequestId};
use crate::wire::NakCause;

use super::piece::{ChunkFinder, FoundChunk, Piece, PieceBuilder, PieceEncoding, TAIL_BYTES_MIN};
use super::predictor::Prediction;

/// A frame that the stream has queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueItem {
    Open,
    /// The piece at this offset.
    Piece(u64),
    Close,
}

/// An outgoing stream: the body that its user writes, and the frames that are queued for it.
#[derive(Debug)]
pub(super) struct OutgoingStream {
    /// The bytes that OPEN carries to the peer's user.
    pub(super) label: Vec<u8>,
    /// The body may be written up to this offset.
    pub(super) credit: u64,
    /// The number of bytes written by the user of the stream.
    pub(super) written: u64,
    /// True once the user has closed the body.
    pub(super) closed: bool,
    /// True until the bytes that were written before a flush are processed.
    flushes: bool,
    /// True once all bytes of a closed body are in pieces.
    is_ended: bool,
    /// The request without which no more bytes can be processed.
    lookup: Option<(RequestId, LookupPurpose)>,
    /// The request for bytes of the piece at this offset, without which no more frames can be sent.
    load: Option<(RequestId, u64)>,
    pub(super) queue: VecDeque<QueueItem>,
    /// True while the stream is in a queue of streams with a frame to send.
    pub(super) ready: bool,
    /// True once the peer has acknowledged OPEN.
    is_open: bool,
    /// True once OPEN was sent on the connection for long frames, see [`Lane`](super::Lane).
    opened_long_lane: bool,
    /// The location of the last chunk of the body, if no piece contains its end. The peer stores this chunk when it
    /// receives CLOSE.
    pub(super) tail: Option<ChunkLocation>,
    /// The number of bytes at the start of the body that are not deduplicated. `u64::MAX`: no byte is deduplicated.
    bypass: u64,
    /// The intended size of the next buffer.
    buffer_bytes: usize,
    /// The size of the buffer that was last returned to the user.
    offered_bytes: usize,
    digest: BodyDigester,
    chunker: Chunker,
    builder: PieceBuilder,
    /// The unacknowledged pieces, in order and without gaps.
    pieces: VecDeque<Piece>,
    /// The offset up to which the peer has acknowledged the body.
    acked: u64,
    /// The memory for unacknowledged parts of the body, in bytes.
    memory_bytes: usize,
    /// The number of body bytes in chunks that were recognised by their fingerprints.
    pub(super) recognised: u64,
    /// True if at least one piece was queued as references.
    pub(super) has_references: bool,
}

impl OutgoingStream {
    pub(super) fn new(label: Vec<u8>, chunker: ChunkerParams, bypass: u64, credit: u64) -> Self {
        Self {
            label,
            credit,
            written: 0,
            closed: false,
            flushes: false,
            is_ended: false,
            lookup: None,
            load: None,
            queue: VecDeque::new(),
            ready: false,
            is_open: false,
            opened_long_lane: false,
            tail: None,
            bypass,
            buffer_bytes: BUFFER_BYTES_MIN,
            offered_bytes: 0,
            digest: BodyDigester::default(),
            chunker: Chunker::new(chunker),
            builder: PieceBuilder::default(),
            pieces: VecDeque::new(),
            acked: 0,
            memory_bytes: 0,
            recognised: 0,
            has_references: false,
        }
    }

    /// Returns the memory for unacknowledged parts of the body, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Returns the offset up to which the body is divided into pieces.
    pub(super) fn framed_up_to(&self) -> u64 {
        self.pieces.back().map_or(self.acked, Piece::end)
    }

    /// Returns true if pieces are unacknowledged, so that the peer will answer.
    pub(super) fn has_unacked(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Returns true if an answer of the store is needed before more bytes can be written.
    pub(super) fn waits(&self) -> bool {
        self.lookup.is_some()
    }

    /// Returns the lookup that the stream waits for.
    pub(super) fn lookup(&self) -> Option<RequestId> {
        self.lookup.map(|(request, _)| request)
    }

    /// Returns the number of bytes of the body in its next frame; `None` if no frame can be sent now.
    pub(super) fn next_bytes(&mut self) -> Option<usize> {
        match *self.queue.front().filter(|_| self.load.is_none())? {
            QueueItem::Open | QueueItem::Close => Some(0),
            QueueItem::Piece(offset) => Some(self.piece(offset).map_or(0, |piece| piece.length)),
        }
    }

    /// Returns the chunks that must be loaded before the next frame can be encoded, and the number of loaded bytes that
    /// are kept until they are acknowledged.
    pub(super) fn missing(&mut self, knowledge: &Knowledge) -> Option<(Vec<LocatedChunk>, usize)> {
        let QueueItem::Piece(offset) = *self.queue.front()? else {
            return None;
        };
        let piece = self.piece(offset)?;
        let missing = piece.missing(knowledge)?;
        let is_kept = piece.raw().is_none();
        Some((missing, if is_kept { piece.length } else { 0 }))
    }

    /// Returns true if the next frame is the first unacknowledged piece.
    pub(super) fn sends_first_piece(&self) -> bool {
        let first = self.pieces.front().map(|piece| piece.offset);
        first.is_some_and(|first| self.queue.front() == Some(&QueueItem::Piece(first)))
    }

    /// Moves the first unacknowledged piece to the front of the queue. Returns false if it is there or is not queued.
    pub(super) fn move_first_piece_to_front(&mut self) -> bool {
        let first = self
            .pieces
            .front()
            .map(|piece| QueueItem::Piece(piece.offset));
        let at = self.queue.iter().position(|item| Some(*item) == first);
        let Some(at) = at.filter(|at| *at > 0) else {
            return false;
        };
        let first = self.queue.remove(at);
        first
            .into_iter()
            .for_each(|first| self.queue.push_front(first));
        true
    }

    /// Records that the [missing](Self::missing) chunks of the next frame were requested.
    pub(super) fn set_load(&mut self, request: RequestId) {
        if let Some(QueueItem::Piece(offset)) = self.queue.front() {
            self.load = Some((request, *offset));
        }
    }

    /// Makes space for the next bytes of the body. The space is small for a short body, and grows if the user fills the
    /// buffers. It is never empty.
    pub(super) fn make_space(&mut self, finder: &mut ChunkFinder<'_>) {
        let mut most = self.buffer_bytes;
        if self.bypass == u64::MAX {
            // A piece without deduplication ends exactly when its batch is full.
            most = most.min(finder.batch.saturating_sub(self.builder.bytes()).max(1));
        }
        let mut pieces = Vec::new();
        let most = self.builder.make_space(most, finder, &mut pieces);
        self.enqueue(pieces, finder);
        self.offered_bytes = most.min(self.builder.spare().len());
    }

    /// Returns the buffer made by [`make_space`](Self::make_space).
    pub(super) fn spare(&mut self) -> &mut [u8] {
        &mut self.builder.spare()[..self.offered_bytes]
    }

    /// Records the number of bytes written into the buffer of [`spare`](Self::spare), and processes the bytes.
    pub(super) fn filled(&mut self, bytes: usize, finder: &mut ChunkFinder<'_>) {
        self.builder.filled(bytes);
        if bytes == 0 {
            return;
        }
        if bytes >= self.offered_bytes {
            self.buffer_bytes = (self.buffer_bytes * 2).min(BUFFER_BYTES_MAX);
        } else if bytes < self.buffer_bytes / 8 {
            self.buffer_bytes = (self.buffer_bytes / 2).max(BUFFER_BYTES_MIN);
        }
        let mut pieces = Vec::new();
        let bypass_bytes = self.bypass.saturating_sub(self.written);
        let bypass_bytes = usize::try_from(bypass_bytes)
            .unwrap_or(usize::MAX)
            .min(bytes);
        self.written += bytes as u64;
        self.memory_bytes += bytes;
        if bypass_bytes > 0 {
            self.builder
                .advance_plain(bypass_bytes, finder.batch, finder.pool, &mut pieces);
            if self.written > self.bypass {
                self.builder.end_plain(finder.pool, &mut pieces);
            }
        } else if self.written - bytes as u64 == self.bypass {
            self.builder.end_plain(finder.pool, &mut pieces);
        }
        self.enqueue(pieces, finder);
        self.process(finder);
    }

    /// Handles the answer to a request of the stream. Returns false if the body cannot be sent, because both endpoints
    /// have lost bytes of it.
    pub(super) fn complete(
        &mut self,
        request: RequestId,
        answer: Answer,
        finder: &mut ChunkFinder<'_>,
    ) -> bool {
        if let Some((_, offset)) = self.load.take_if(|(id, _)| *id == request) {
            let Answer::Loaded(bytes) = answer else {
                return false;
            };
            let Some(piece) = self.piece(offset) else {
                return true;
            };
            let before = piece.memory_bytes();
            let is_loaded = piece.record_loaded(bytes);
            let after = piece.memory_bytes();
            self.memory_bytes = self.memory_bytes - before + after;
            return is_loaded;
        }
        let Some((_, purpose)) = self.lookup.take_if(|(id, _)| *id == request) else {
            return true;
        };
        let mut pieces = Vec::new();
        match (purpose, answer) {
            (LookupPurpose::Row, Answer::Row(row)) => self.builder.predict(row),
            (LookupPurpose::SentTail, Answer::Found { location, .. }) => {
                self.tail = location;
                self.end(finder, &mut pieces);
            }
            (
                _,
                Answer::Found {
                    location,
                    was_stored,
                    evicted_bytes,
                    row,
                },
            ) => {
                let found = FoundChunk {
                    location,
                    was_stored,
                    evicted_bytes,
                    row,
                };
                self.builder.end_chunk(found, finder, &mut pieces);
            }
            _ => return false,
        }
        self.enqueue(pieces, finder);
        self.process(finder);
        true
    }

    /// Returns true if CLOSE may be sent.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Processes the written bytes until none are left or an answer of the store is needed.
    fn process(&mut self, finder: &mut ChunkFinder<'_>) {
        let mut pieces = Vec::new();
        while self.lookup.is_none() && self.process_next(finder, &mut pieces) {}
        if self.lookup.is_none() && self.written > self.bypass {
            self.builder.after_processing(finder, &mut pieces);
        }
        self.enqueue(pieces, finder);
    }

    /// Processes the bytes up to the next chunk boundary. If all bytes are processed, flushes or ends the body. Returns
    /// false if nothing is left to do.
    fn process_next(&mut self, finder: &mut ChunkFinder<'_>, pieces: &mut Vec<Piece>) -> bool {
        if !self.builder.unprocessed().is_empty() {
            return self.process_chunk(finder, pieces);
        }
        if self.closed && !self.is_ended {
            if self.builder.partial_bytes() < TAIL_BYTES_MIN {
                self.end(finder, pieces);
            } else if self.builder.has_unsent_tail() {
                let request = self.builder.find_chunk(finder);
                self.lookup = Some((request, LookupPurpose::Chunk));
            } else {
                let request = self.builder.find_sent_tail(finder);
                self.lookup = Some((request, LookupPurpose::SentTail));
            }
        } else if std::mem::take(&mut self.flushes) {
            self.builder.flush(finder, pieces);
        }
        false
    }

    /// Recognises the next chunk, or finds its end and looks it up. Returns false if more bytes may follow that are
    /// needed to decide.
    fn process_chunk(&mut self, finder: &mut ChunkFinder<'_>, pieces: &mut Vec<Piece>) -> bool {
        if self.chunker.length() == 0 {
            let Self {
                builder,
                chunker,
                digest,
                ..
            } = self;
            match builder.match_prediction(chunker, digest, finder, pieces) {
                Prediction::Chunk(sent) => {
                    self.recognised += u64::from(sent.length);
                    return true;
                }
                Prediction::Unlisted(location) => {
                    let request = finder.requests.push(Request::List(location));
                    self.lookup = Some((request, LookupPurpose::Row));
                    return false;
                }
                // All bytes are sent now if the body is flushed or closed.
                Prediction::Undecided if !self.flushes && !self.closed => return false,
                Prediction::Undecided | Prediction::Miss => {}
            }
        }
        match self.chunker.next_cut(self.builder.unprocessed()) {
            Some(end) => {
                self.builder.advance(end);
                let request = self.builder.find_chunk(finder);
                self.lookup = Some((request, LookupPurpose::Chunk));
            }
            None => self.builder.advance(self.builder.unprocessed().len()),
        }
        true
    }

    /// Makes pieces of the last bytes of the body and queues CLOSE.
    fn end(&mut self, finder: &mut ChunkFinder<'_>, pieces: &mut Vec<Piece>) {
        self.builder.flush(finder, pieces);
        self.enqueue(std::mem::take(pieces), finder);
        self.is_ended = true;
        self.queue.push_back(QueueItem::Close);
    }

    /// Copies bytes into buffers of [`make_space`](Self::make_space) and processes them.
    pub(super) fn write(&mut self, mut bytes: &[u8], finder: &mut ChunkFinder<'_>) {
        while !bytes.is_empty() {
            self.make_space(finder);
            let spare = self.spare();
            let (now, later) = bytes.split_at(bytes.len().min(spare.len()));
            spare[..now.len()].copy_from_slice(now);
            self.filled(now.len(), finder);
            bytes = later;
        }
    }

    /// Makes pieces of all written bytes, as soon as they are processed.
    pub(super) fn flush(&mut self, finder: &mut ChunkFinder<'_>) {
        if self.written <= self.bypass {
            let mut pieces = Vec::new();
            self.builder.end_plain(finder.pool, &mut pieces);
            self.enqueue(pieces, finder);
        } else {
            self.flushes = true;
            self.process(finder);
        }
    }

    /// Makes a piece of the complete chunks.
    pub(super) fn flush_whole(&mut self, finder: &mut ChunkFinder<'_>) {
        if self.written > self.bypass {
            let mut pieces = Vec::new();
            self.builder.flush_whole(finder, &mut pieces);
            self.enqueue(pieces, finder);
        }
    }

    /// Turns off deduplication for the whole body, if only bytes were written that are not deduplicated anyway.
    /// Returns false if more bytes were written: deduplication then continues.
    pub(super) fn bypass(&mut self) -> bool {
        let is_in_time = self.written <= self.bypass;
        if is_in_time {
            self.bypass = u64::MAX;
        }
        is_in_time
    }

    /// Returns true if the whole body is sent without deduplication.
    pub(super) fn is_bypassed(&self) -> bool {
        self.bypass == u64::MAX
    }

    /// Returns true if OPEN must be sent before a long frame: the peer has not acknowledged OPEN, and OPEN was
    /// not sent on the lane of long frames. Records that the caller sends it.
    pub(super) fn opens_long_lane(&mut self) -> bool {
        !self.is_open && !std::mem::replace(&mut self.opened_long_lane, true)
    }

    /// Ends the body: makes pieces of all bytes and queues CLOSE, as soon as the bytes are processed.
    pub(super) fn close(&mut self, finder: &mut ChunkFinder<'_>) {
        self.closed = true;
        if self.written <= self.bypass {
            let mut pieces = Vec::new();
            self.builder.end_plain(finder.pool, &mut pieces);
            self.end(finder, &mut pieces);
        } else {
            self.process(finder);
        }
    }

    /// Queues new pieces. Adds references to the digest, and releases their bytes if possible.
    fn enqueue(&mut self, mut pieces: Vec<Piece>, finder: &mut ChunkFinder<'_>) {
        for piece in &mut pieces {
            // Bytes in a payload are added to the digest when their frame is encoded. A reference has no payload, so
            // the bytes that it stands for are added here.
            if let Some(raw) = piece.raw().filter(|_| piece.is_reference()) {
                self.digest.add(piece.offset, raw);
            }
            self.has_references |= piece.is_reference();
            if finder.may_release && self.digest.end >= piece.end() {
                let before = piece.memory_bytes();
                piece.release_bytes();
                self.memory_bytes = self.memory_bytes - before + piece.memory_bytes();
            }
        }
        let items = pieces.iter().map(|piece| QueueItem::Piece(piece.offset));
        self.queue.extend(items);
        self.pieces.extend(pieces);
    }

    /// Returns the piece at `offset`.
    pub(super) fn piece(&mut self, offset: u64) -> Option<&mut Piece> {
        let index = self
            .pieces
            .binary_search_by_key(&offset, |piece| piece.offset);
        self.pieces.get_mut(index.ok()?)
    }

    /// Like [`piece`](Self::piece), and returns the body's digest if the piece contains the next bytes for it.
    pub(super) fn piece_to_send(
        &mut self,
        offset: u64,
    ) -> Option<(&mut Piece, Option<&mut BodyDigest>)> {
        let index = self
            .pieces
            .binary_search_by_key(&offset, |piece| piece.offset);
        let piece = self.pieces.get_mut(index.ok()?)?;
        let is_next = piece.offset == self.digest.end;
        if is_next {
            self.digest.end = piece.end();
        }
        let digest = Some(&mut self.digest.body);
        Some((piece, digest.filter(|_| is_next)))
    }

    /// Returns the digest of the body. All pieces must have been encoded before.
    pub(super) fn digest(&self) -> u128 {
        self.digest.body.value()
    }

    /// Handles an acknowledgement of all bytes before `offset`.
    pub(super) fn acknowledge(&mut self, offset: u64) {
        self.is_open = true;
        while let Some(piece) = self.pieces.pop_front_if(|piece| piece.end() <= offset) {
            self.acked = piece.end();
            self.memory_bytes -= piece.memory_bytes();
        }
    }

    /// Handles a NAK for the piece at `offset`, or for CLOSE if `offset` is `u64::MAX`. If the peer does not know the
    /// stream, queues OPEN and the refused frame. Otherwise queues the piece before all others: a run whose chunks the
    /// peer stores in another order as a list of references, other references and deltas as bytes. Returns the length
    /// of the piece if it becomes bytes, otherwise 0.
    pub(super) fn handle_nak(
        &mut self,
        offset: u64,
        cause: NakCause,
        knowledge: &mut Knowledge,
    ) -> u64 {
        if cause == NakCause::Unopened {
            if offset == u64::MAX {
                if self.is_ended() && !self.queue.contains(&QueueItem::Close) {
                    self.queue.push_back(QueueItem::Close);
                }
            } else {
                self.requeue(offset);
            }
            if self.queue.front() != Some(&QueueItem::Open) {
                self.queue.push_front(QueueItem::Open);
            }
            return 0;
        }
        let Some(piece) = self.piece(offset) else {
            return 0;
        };
        match (&piece.encoding, cause) {
            (PieceEncoding::Plain, _) => return 0,
            (PieceEncoding::Run, NakCause::Order) => {
                let locations = piece.chunks.iter().filter_map(|sent| sent.location);
                locations.for_each(|location| knowledge.set_disordered(location.container));
                piece.encoding = PieceEncoding::Refs { skip: 0 };
                self.requeue(offset);
                return 0;
            }
            // The NAK refers to the run that the piece was before. It was sent again because a connection was lost.
            (PieceEncoding::Refs { .. }, NakCause::Order) => return 0,
            (PieceEncoding::Literal { base: Some(base) }, _) => {
                let locations = base.chunks.iter().map(|chunk| chunk.location);
                locations.for_each(|location| knowledge.remove(location));
            }
            (PieceEncoding::Refs { .. } | PieceEncoding::Run, _) => {
                let locations = piece.chunks.iter().filter_map(|sent| sent.location);
                locations.for_each(|location| knowledge.remove(location));
            }
            // The piece is already queued or sent as bytes: the NAK refers to an earlier form.
            (PieceEncoding::Literal { base: None }, _) => return 0,
        }
        piece.send_as_bytes();
        let bytes = piece.length as u64;
        self.requeue(offset);
        bytes
    }

    /// Queues a piece before all others, unless it is already queued.
    fn requeue(&mut self, offset: u64) {
        if let Some(piece) = self.piece(offset)
            && !std::mem::replace(&mut piece.waiting, true)
        {
            self.queue.push_front(QueueItem::Piece(offset));
        }
    }

    /// Queues all unacknowledged pieces again, as bytes. Returns the number of these bytes that were sent before.
    pub(super) fn send_again(&mut self) -> u64 {
        self.queue.clear();
        self.load = None;
        self.opened_long_lane = false;
        if !self.is_open {
            self.queue.push_back(QueueItem::Open);
        }
        let mut resent_bytes = 0;
        for piece in &mut self.pieces {
            // A piece whose bytes were released is sent as references again: sending hashes is cheaper than
            // loading the bytes.
            if piece.raw().is_some() {
                resent_bytes += if piece.waiting {
                    0
                } else {
                    piece.length as u64
                };
                piece.send_as_bytes();
            }
            piece.waiting = true;
            self.queue.push_back(QueueItem::Piece(piece.offset));
        }
        self.queue
            .extend(self.is_ended().then_some(QueueItem::Close));
        resent_bytes
    }
}

/// Computes the digest of the body while its bytes are still in the processor's cache.
#[derive(Debug, Default)]
pub(super) struct BodyDigester {
    body: BodyDigest,
    /// The offset up to which the digest is computed.
    end: u64,
}

impl BodyDigester {
    /// Adds bytes at this offset that are sent as references. Adds no bytes if earlier bytes of the body are
    /// not in the digest yet; they are added when their frame is encoded.
    pub(super) fn add(&mut self, offset: u64, bytes: &[u8]) {
        let digested_bytes = self.end.checked_sub(offset).map(usize::try_from);
        if let Some(Ok(digested_bytes)) = digested_bytes
            && let Some(rest) = bytes.get(digested_bytes..)
        {
            self.body.update(rest);
            self.end += rest.len() as u64;
        }
    }
}

/// The purpose of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LookupPurpose {
    /// The chunk that was cut last.
    Chunk,
    /// The last chunk of the body, all bytes of which are in earlier pieces.
    SentTail,
    /// The chunks of the next container, from which the next chunk is predicted.
    Row,
}

/// The size of the smallest buffer. A request or a short response fits into this buffer.
const BUFFER_BYTES_MIN: usize = 16 << 10;
/// The size of the largest buffer. The buffer's bytes are processed while they are still in a second-level cache.
const BUFFER_BYTES_MAX: usize = 256 << 10;
