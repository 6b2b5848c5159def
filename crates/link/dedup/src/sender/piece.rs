//! Collects the chunks of a body into pieces. A piece is a range of the body that is sent in one frame.

use bytes::Bytes;

use crate::buffer::{Buffer, LARGE_BYTES, Pool};
use crate::chunker::Chunker;
use crate::id::{ChunkId, IdKey};
use crate::knowledge::Knowledge;
use crate::noise::is_noise;
use crate::store::{ChunkLocation, Entry, LocatedChunk, Request, RequestId, Requests, Row};
use crate::wire::{CHUNKS_MAX, PIECE_BYTES_MAX};

use super::predictor::{Prediction, Predictor, RowCursor};
use super::stream::BodyDigester;

/// A range of a body, kept until it is acknowledged.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) length: usize,
    /// The bytes, unless they were [released](Self::release_bytes).
    raw: Option<Bytes>,
    /// The chunks that end in the piece.
    pub(super) chunks: Vec<PieceChunk>,
    pub(super) encoding: PieceEncoding,
    /// An estimate of the bytes of the chunks that the store had evicted.
    pub(super) evicted_bytes: u64,
    /// True while the piece is queued to be sent, for the first time or again.
    pub(super) waiting: bool,
}

impl Piece {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.length as u64
    }

    /// Returns true if the piece is sent as references.
    pub(super) fn is_reference(&self) -> bool {
        matches!(
            self.encoding,
            PieceEncoding::Refs { .. } | PieceEncoding::Run
        )
    }

    /// Returns the bytes of memory that the piece takes until it is acknowledged.
    pub(super) fn memory_bytes(&self) -> usize {
        match &self.raw {
            Some(raw) => raw.len(),
            None => size_of::<Self>() + size_of_val(&self.chunks[..]),
        }
    }

    /// Returns the bytes, unless they were released.
    pub(super) fn raw(&self) -> Option<&Bytes> {
        self.raw.as_ref()
    }

    /// Releases the bytes from memory if they are sent as references and the store retains them. A body can thus have
    /// more unacknowledged bytes than fit into memory. If the peer has lost the chunks, the bytes are
    /// [loaded](Self::missing) from the store. The caller ensures that the body's digest already covers the bytes. The
    /// released memory is still in a cache of the processor, so the next bytes are read into it quickly.
    pub(super) fn release_bytes(&mut self) {
        if self.is_reference()
            && self.length >= RELEASED_BYTES_MIN
            && self.chunks.iter().all(|chunk| chunk.is_retained)
        {
            self.raw = None;
        }
    }

    /// Returns the chunks that must be loaded before the piece can be encoded: those of its base, or those whose bytes
    /// were released and are sent. Returns `None` if all bytes are in memory. A reference to a chunk that the peer has
    /// lost becomes bytes.
    pub(super) fn missing(&mut self, knowledge: &Knowledge) -> Option<Vec<LocatedChunk>> {
        if self.is_reference() && !self.is_known(knowledge) {
            self.send_as_bytes();
        }
        if self.raw.is_none() && !self.is_reference() {
            // Only chunks with a location are released.
            return Some(self.chunks.iter().filter_map(PieceChunk::located).collect());
        }
        let PieceEncoding::Literal { base: Some(base) } = &mut self.encoding else {
            return None;
        };
        if base
            .chunks
            .iter()
            .any(|chunk| !knowledge.has(chunk.location))
        {
            self.encoding = PieceEncoding::Literal { base: None };
            return None;
        }
        base.bytes.is_none().then(|| base.chunks.clone())
    }

    /// Records the loaded bytes of the [missing](Self::missing) chunks. Returns false if the store has lost bytes that
    /// must be sent.
    pub(super) fn record_loaded(&mut self, loaded: Option<Bytes>) -> bool {
        if self.raw.is_none() {
            // Earlier pieces may contain the start of the first chunk.
            let skipped = loaded
                .as_ref()
                .and_then(|bytes| bytes.len().checked_sub(self.length));
            self.raw = loaded
                .zip(skipped)
                .map(|(bytes, skipped)| bytes.slice(skipped..));
            return self.raw.is_some();
        }
        if let PieceEncoding::Literal { base } = &mut self.encoding {
            match (base, loaded) {
                (Some(base), Some(bytes)) => base.bytes = Some(bytes),
                (base, _) => *base = None,
            }
        }
        true
    }

    /// Returns true if, according to the knowledge, the peer has all chunks.
    pub(super) fn is_known(&self, knowledge: &Knowledge) -> bool {
        let known = |one: &PieceChunk| one.location.is_some_and(|location| knowledge.has(location));
        self.chunks.iter().all(known)
    }

    /// Changes the encoding, so that the piece is sent as bytes, without references or a base.
    pub(super) fn send_as_bytes(&mut self) {
        if self.encoding != PieceEncoding::Plain {
            self.encoding = PieceEncoding::Literal { base: None };
        }
    }
}

/// A chunk of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PieceChunk {
    pub(super) id: ChunkId,
    /// The length of the chunk, including bytes in earlier pieces.
    pub(super) length: u32,
    /// The location in our store.
    pub(super) location: Option<ChunkLocation>,
    /// True if this is the last chunk of its container in our store.
    pub(super) is_last: bool,
    /// True if the store has the bytes and will keep them for a while.
    pub(super) is_retained: bool,
}

impl PieceChunk {
    fn located(&self) -> Option<LocatedChunk> {
        let Self { id, length, .. } = *self;
        let entry = Entry { id, length };
        self.location
            .map(|location| LocatedChunk { location, entry })
    }

    /// Returns true if this chunk lies directly after `other` in the store: in the same container, or as the
    /// first chunk of the next container if `other` is the last chunk of its container.
    fn follows(&self, other: &Self) -> bool {
        let (Some(location), Some(before)) = (self.location, other.location) else {
            return false;
        };
        location == before.plus(1) || (other.is_last && location == before.next_container())
    }
}

/// How a piece is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PieceEncoding {
    /// As bytes that are not stored.
    Plain,
    /// As bytes of new chunks, compressed against a base if there is one.
    Literal { base: Option<Base> },
    /// As references; the first `skip` bytes of the first chunk are in earlier pieces.
    Refs { skip: u32 },
    /// As a run: the hash of the first chunk and a number of chunks.
    Run,
}

/// Stored chunks that new chunks may resemble: the chunks that followed the last known chunk when it was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) chunks: Vec<LocatedChunk>,
    /// The bytes, once they are loaded.
    pub(super) bytes: Option<Bytes>,
}

/// The resources for hashing and looking up chunks.
pub(super) struct ChunkFinder<'a> {
    pub(super) requests: &'a mut Requests,
    pub(super) knowledge: &'a Knowledge,
    pub(super) id_key: &'a IdKey,
    pub(super) pool: &'a Pool,
    /// True if new chunks may be compressed against a [`Base`].
    pub(super) delta: bool,
    pub(super) stored_bytes: StoredBytes,
    /// True if bytes sent as references may be [released](Piece::release_bytes).
    pub(super) may_release: bool,
    /// The length in bytes at which a piece of new chunks ends.
    pub(super) batch: usize,
}

/// Which new chunks are stored with their bytes, and not only as entries (hash and length).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredBytes {
    /// All new chunks.
    All,
    /// All new chunks that are compressible.
    AllButNoise,
    /// No chunks: only their entries are stored.
    None,
}

impl ChunkFinder<'_> {
    /// Requests the location of a chunk. If the store does not have the chunk, it stores it.
    fn find(&mut self, chunk: &[u8], expected: Option<ChunkLocation>) -> (ChunkId, RequestId) {
        let has_bytes = match self.stored_bytes {
            StoredBytes::All => true,
            StoredBytes::AllButNoise => !is_noise(chunk),
            StoredBytes::None => false,
        };
        let id = self.id_key.id(chunk);
        let length = u32::try_from(chunk.len()).expect("the length of a chunk is limited");
        let request = self.requests.push(Request::Find {
            entry: Entry { id, length },
            chunk: has_bytes.then(|| Bytes::copy_from_slice(chunk)),
            expected,
        });
        (id, request)
    }
}

/// The result of a lookup.
#[derive(Debug)]
pub(super) struct FoundChunk {
    pub(super) location: Option<ChunkLocation>,
    pub(super) was_stored: bool,
    pub(super) evicted_bytes: u64,
    /// The row that begins with the chunk, unless the chunk was found where it was predicted.
    pub(super) row: Option<Row>,
}

/// Collects the chunks of a body into pieces.
#[derive(Debug, Default)]
pub(super) struct PieceBuilder {
    /// The offset of `raw` in the body.
    offset: u64,
    raw: Buffer,
    /// The number of bytes of `raw` that were processed.
    processed: usize,
    /// The complete chunks at the start of `raw`. Either the peer has all of them, or all are new to the peer.
    chunks: Vec<PieceChunk>,
    /// The number of bytes of these chunks in `raw`.
    chunks_bytes: usize,
    /// True if the peer has these chunks.
    chunks_known: bool,
    /// An estimate of the bytes of these chunks that the store had evicted.
    evicted_bytes: u64,
    /// True if these chunks are adjacent in our store and `raw` contains the whole first chunk.
    in_a_row: bool,
    /// The start of the partial chunk, if it was sent in earlier pieces.
    sent_prefix: Vec<u8>,
    /// The number of bytes of the first of `chunks` that were sent in earlier pieces.
    skip: u32,
    /// The place after the last known chunk. New chunks probably resemble the chunks from this place on.
    after_match: Option<RowCursor>,
    /// The hash of the partial chunk, while it is looked up.
    pending_id: Option<ChunkId>,
    /// Predicts the chunk after the last known chunk.
    predictor: Predictor,
}

impl PieceBuilder {
    /// Makes space for about `bytes_max` bytes and returns the size of this space. If too little space is left in the
    /// buffer, first makes a piece of the complete chunks.
    pub(super) fn make_space(
        &mut self,
        bytes_max: usize,
        finder: &mut ChunkFinder<'_>,
        pieces: &mut Vec<Piece>,
    ) -> usize {
        let [short, long] = LARGE_BYTES;
        let is_short = self.chunks_known || finder.batch + BEYOND_BATCH_BYTES <= short;
        let capacity = if is_short { short } else { long };
        let free_bytes = capacity.saturating_sub(self.raw.len());
        // Unprocessed bytes will complete a longer piece.
        let is_full = bytes_max > free_bytes && free_bytes < READ_BYTES_MIN;
        if is_full && self.unprocessed().is_empty() {
            self.flush_whole(finder, pieces);
        }
        let free_bytes = capacity.saturating_sub(self.raw.len());
        let bytes_max = bytes_max.min(free_bytes.max(READ_BYTES_MIN));
        // A buffer that will be more than half full gets its final size at once.
        let is_large = self.raw.len() + bytes_max > short / 2;
        let reserved_bytes = bytes_max.max(if is_large { free_bytes } else { 0 });
        if self.raw.free_bytes() < bytes_max {
            self.raw.reserve(reserved_bytes, finder.pool);
        }
        bytes_max
    }

    /// Returns the number of bytes after which a piece ends. A piece of known chunks is shorter, so that its buffer
    /// stays in a second-level cache until the buffer is reused.
    fn batch(&self, batch: usize) -> usize {
        if self.chunks_known {
            batch.min(REFERENCE_BYTES)
        } else {
            batch
        }
    }

    /// Makes a piece of known chunks if they have at least half of [`REFERENCE_BYTES`]. The bytes after the piece are
    /// copied into the next buffer. The caller has just processed all bytes, so only a part of one chunk is copied.
    pub(super) fn after_processing(
        &mut self,
        finder: &mut ChunkFinder<'_>,
        pieces: &mut Vec<Piece>,
    ) {
        if self.chunks_known && self.chunks_bytes >= REFERENCE_BYTES / 2 {
            self.seal_chunks(finder, pieces);
        }
    }

    /// Returns the buffer for the next bytes of the body.
    pub(super) fn spare(&mut self) -> &mut [u8] {
        self.raw.spare()
    }

    /// Records the number of bytes written into the buffer of [`spare`](Self::spare).
    pub(super) fn filled(&mut self, bytes: usize) {
        self.raw.fill(bytes);
        self.raw.release();
    }

    /// Returns the unprocessed bytes.
    pub(super) fn unprocessed(&self) -> &[u8] {
        &self.raw[self.processed..]
    }

    /// Processes the next bytes without deduplication. Makes pieces of full batches.
    pub(super) fn advance_plain(
        &mut self,
        bytes: usize,
        batch: usize,
        pool: &Pool,
        pieces: &mut Vec<Piece>,
    ) {
        self.processed += bytes;
        while self.processed >= batch {
            self.seal(batch, PieceEncoding::Plain, Vec::new(), pool, pieces);
        }
    }

    /// Makes a piece of the bytes that were processed without deduplication.
    pub(super) fn end_plain(&mut self, pool: &Pool, pieces: &mut Vec<Piece>) {
        self.seal(
            self.processed,
            PieceEncoding::Plain,
            Vec::new(),
            pool,
            pieces,
        );
    }

    /// Adds the next unprocessed bytes to the partial chunk.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.processed += bytes;
    }

    /// Returns the length of the partial chunk.
    pub(super) fn partial_bytes(&self) -> usize {
        self.sent_prefix.len() + self.processed - self.chunks_bytes
    }

    /// Returns true if the partial chunk has bytes that are not in a piece yet.
    pub(super) fn has_unsent_tail(&self) -> bool {
        self.processed > self.chunks_bytes
    }

    /// Returns the number of bytes that are not in a piece yet.
    pub(super) fn bytes(&self) -> usize {
        self.raw.len()
    }

    /// Looks up the chunk that ends after the processed bytes. The caller calls [`end_chunk`](Self::end_chunk) with the
    /// answer.
    pub(super) fn find_chunk(&mut self, finder: &mut ChunkFinder<'_>) -> RequestId {
        let skip = self.sent_prefix.len();
        let tail = &self.raw[self.chunks_bytes..self.processed];
        let chunk = if skip == 0 {
            tail
        } else {
            self.sent_prefix.extend_from_slice(tail);
            &self.sent_prefix
        };
        let (id, request) = finder.find(chunk, self.predictor.location());
        self.pending_id = Some(id);
        self.sent_prefix.truncate(skip);
        request
    }

    /// Ends the chunk that was looked up.
    pub(super) fn end_chunk(
        &mut self,
        found: FoundChunk,
        finder: &mut ChunkFinder<'_>,
        pieces: &mut Vec<Piece>,
    ) {
        let id = self.pending_id.take().expect("a chunk is being looked up");
        let skip = self.sent_prefix.len();
        let length = self.partial_bytes();
        let FoundChunk {
            location,
            was_stored,
            evicted_bytes,
            row,
        } = found;
        let known_at = location.filter(|&location| was_stored && finder.knowledge.has(location));
        let mut chunk = PieceChunk {
            id,
            length: u32::try_from(length).expect("the length of a chunk is limited"),
            location,
            is_last: false,
            is_retained: false,
        };
        if let Some(row) = row {
            self.predictor.set(Some(RowCursor::new(row)));
        }
        // The row lists the chunk, unless the store has changed since the answer or the chunk is new.
        let cursor = self.predictor.cursor();
        let cursor = cursor.filter(|cursor| known_at == Some(cursor.location()));
        let listed = cursor.and_then(|cursor| cursor.piece_chunk().zip(cursor.next().copied()));
        match (known_at, listed) {
            (Some(location), Some((listed, row_chunk))) => {
                (chunk.is_last, chunk.is_retained) = (listed.is_last, listed.is_retained);
                if row_chunk.fingerprint.is_none() {
                    self.set_fingerprint(location, id, finder);
                }
                self.predictor.record_match();
            }
            _ => self.predictor.set(None),
        }
        self.add(chunk, skip, known_at.is_some(), finder, pieces);
        // The chunk is either in the piece that was just completed, or in the next one. The difference does not matter
        // for an estimate.
        self.evicted_bytes += evicted_bytes;
    }

    /// Records the fingerprint of the partial chunk, which the store has at this location.
    fn set_fingerprint(
        &mut self,
        location: ChunkLocation,
        id: ChunkId,
        finder: &mut ChunkFinder<'_>,
    ) {
        let skip = self.sent_prefix.len();
        let tail = &self.raw[self.chunks_bytes..self.processed];
        let fingerprint = if skip == 0 {
            finder.id_key.fingerprint(tail)
        } else {
            finder
                .id_key
                .fingerprint(&[&self.sent_prefix, tail].concat())
        };
        if let Some(fingerprint) = fingerprint {
            finder.requests.push(Request::SetFingerprint {
                location,
                id,
                fingerprint,
            });
        }
    }

    /// Continues the prediction with a listed row; without a row, no chunk is predicted.
    pub(super) fn predict(&mut self, row: Option<Row>) {
        self.predictor.set(row.map(RowCursor::new));
    }

    /// Compares the unprocessed bytes with the predicted chunk. If they match, adds the chunk. If more bytes
    /// are needed, the bytes remain unprocessed.
    pub(super) fn match_prediction(
        &mut self,
        chunker: &Chunker,
        digest: &mut BodyDigester,
        finder: &mut ChunkFinder<'_>,
        pieces: &mut Vec<Piece>,
    ) -> Prediction {
        let unprocessed = &self.raw[self.processed..];
        let prediction = self.predictor.compare(unprocessed, chunker, finder.id_key);
        if let Prediction::Chunk(chunk) = prediction {
            let known = chunk
                .location
                .is_some_and(|location| finder.knowledge.has(location));
            let is_reference = known && (self.chunks_known || self.chunks.is_empty());
            self.processed += chunk.length as usize;
            // The digest reads the bytes now, because they are still in a first-level cache. Bytes that are not sent as
            // references are added to the digest when their frame is encoded.
            if is_reference {
                digest.add(self.offset, &self.raw[..self.processed]);
            }
            self.add(chunk, 0, known, finder, pieces);
        }
        prediction
    }

    /// Adds a complete chunk. Its first `skip` bytes are in earlier pieces.
    fn add(
        &mut self,
        chunk: PieceChunk,
        skip: usize,
        known: bool,
        finder: &mut ChunkFinder<'_>,
        pieces: &mut Vec<Piece>,
    ) {
        let tail_bytes = chunk.length as usize - skip;
        let last = self.chunks.last();
        let mut follows = last.is_some_and(|last| chunk.follows(last));
        if !self.chunks.is_empty() && !self.may_join(follows, tail_bytes, known) {
            self.seal_chunks(finder, pieces);
            follows = false;
        }
        match self.chunks.last() {
            Some(_) => self.in_a_row &= follows,
            None => {
                self.skip = u32::try_from(skip).expect("the length of a chunk is limited");
                self.in_a_row = skip == 0;
            }
        }
        self.chunks_known = known;
        self.chunks.push(chunk);
        self.chunks_bytes += tail_bytes;
        self.sent_prefix.clear();
        if known {
            self.after_match = self.predictor.cursor().cloned();
        }
        if self.chunks_bytes >= self.batch(finder.batch) {
            self.seal_chunks(finder, pieces);
        }
    }

    /// Returns true if a chunk of `bytes` bytes can be sent in one piece with the previous chunks. `follows` is
    /// true if it follows them in the store, and `known` if the peer has it.
    fn may_join(&self, follows: bool, bytes: usize, known: bool) -> bool {
        let full = self.chunks_bytes + bytes > PIECE_BYTES_MAX || self.chunks.len() == CHUNKS_MAX;
        // A run of chunks gets a separate frame, because a run takes 26 bytes, whatever its length.
        let breaks_run = known && self.chunks.len() >= RUN_CHUNKS_MIN && self.in_a_row && !follows;
        self.chunks_known == known && !full && !breaks_run
    }

    /// Makes a piece of the complete chunks, if there are any.
    pub(super) fn flush_whole(&mut self, finder: &mut ChunkFinder<'_>, pieces: &mut Vec<Piece>) {
        if !self.chunks.is_empty() {
            self.seal_chunks(finder, pieces);
        }
    }

    /// Makes pieces of all bytes, including the partial chunk.
    pub(super) fn flush(&mut self, finder: &mut ChunkFinder<'_>, pieces: &mut Vec<Piece>) {
        self.flush_whole(finder, pieces);
        self.sent_prefix
            .extend_from_slice(&self.raw[..self.processed]);
        let encoding = PieceEncoding::Literal { base: None };
        self.seal(self.processed, encoding, Vec::new(), finder.pool, pieces);
    }

    /// Looks up the last chunk of the body, if all of its bytes are in earlier pieces. No piece lists such a chunk.
    pub(super) fn find_sent_tail(&self, finder: &mut ChunkFinder<'_>) -> RequestId {
        finder.find(&self.sent_prefix, None).1
    }

    fn seal_chunks(&mut self, finder: &mut ChunkFinder<'_>, pieces: &mut Vec<Piece>) {
        let encoding = if !self.chunks_known {
            // The next new chunks probably resemble the chunks after this base.
            let place = self.after_match.as_mut().filter(|_| finder.delta);
            let base =
                place.and_then(|place| take_base(place, finder.knowledge, self.chunks_bytes));
            PieceEncoding::Literal { base }
        } else if self.in_a_row && self.chunks.len() >= 2 && self.are_in_order(finder.knowledge) {
            PieceEncoding::Run
        } else {
            PieceEncoding::Refs { skip: self.skip }
        };
        // The next piece will have about as many chunks.
        let next = Vec::with_capacity(self.chunks.len().min(CHUNKS_EXPECTED_MAX));
        let chunks = std::mem::replace(&mut self.chunks, next);
        self.seal(self.chunks_bytes, encoding, chunks, finder.pool, pieces);
        (self.chunks_bytes, self.skip) = (0, 0);
    }

    /// Returns true if, according to the knowledge, the chunks have the same order in the peer's store.
    fn are_in_order(&self, knowledge: &Knowledge) -> bool {
        // Only the first and the last container are checked, because a piece rarely spans more than two. If a
        // container between them is in another order, the peer sends a NAK.
        let ends = [self.chunks.first(), self.chunks.last()];
        ends.into_iter().all(|chunk| {
            let location = chunk.and_then(|chunk| chunk.location);
            location.is_some_and(|location| knowledge.in_order(location.container))
        })
    }

    /// Makes a piece of the first `bytes` of `raw`, unless there are no bytes.
    fn seal(
        &mut self,
        bytes: usize,
        encoding: PieceEncoding,
        chunks: Vec<PieceChunk>,
        pool: &Pool,
        pieces: &mut Vec<Piece>,
    ) {
        if bytes == 0 {
            return;
        }
        let raw = self.raw.split_off_front(bytes, pool);
        self.processed -= bytes;
        let piece = Piece {
            offset: self.offset,
            length: bytes,
            raw: Some(raw),
            chunks,
            encoding,
            evicted_bytes: std::mem::take(&mut self.evicted_bytes),
            waiting: true,
        };
        self.offset = piece.end();
        pieces.push(piece);
    }
}

/// Returns a base for `bytes` new bytes, if there is one, and moves the cursor behind it. The base begins with the
/// first chunk from the cursor on that is stored with its bytes. It ends before a chunk without bytes, before a chunk
/// that the peer lacks, and at the end of the container. Otherwise it ends at one and a half times the length of the
/// new bytes, but not below 32 KiB. It is longer than the new bytes, because these may lack text that the base has.
fn take_base(cursor: &mut RowCursor, knowledge: &Knowledge, bytes: usize) -> Option<Base> {
    let wanted = (bytes + bytes / 2).clamp(32 << 10, PIECE_BYTES_MAX);
    let without_bytes = cursor.rest().iter().take_while(|chunk| !chunk.has_bytes);
    let mut start = cursor.clone();
    start.advance(without_bytes.count());
    let mut base_bytes = 0;
    let chunks = start.rest().iter().take(CHUNKS_MAX).enumerate();
    let chunks = chunks.map_while(|(nth, chunk)| {
        let location = start.location().plus(nth);
        let is_needed = base_bytes < wanted && knowledge.has(location);
        base_bytes += chunk.entry.length as usize;
        let is_usable = is_needed && base_bytes <= PIECE_BYTES_MAX && chunk.has_bytes;
        is_usable.then_some(LocatedChunk {
            location,
            entry: chunk.entry,
        })
    });
    let chunks: Vec<_> = chunks.collect();
    if chunks.is_empty() {
        return None;
    }
    start.advance(chunks.len());
    *cursor = start;
    Some(Base {
        chunks,
        bytes: None,
    })
}

/// A piece of references ends when it has this length or more: the smaller of the two buffer sizes. A larger buffer
/// would not stay in the processor's cache.
const REFERENCE_BYTES: usize = LARGE_BYTES[0];

/// The space in a buffer beyond the batch, for the chunk that exceeds the batch.
const BEYOND_BATCH_BYTES: usize = 64 << 10;

/// The smallest read, if more bytes are available. Smaller reads cost too many system calls.
const READ_BYTES_MIN: usize = 64 << 10;

/// The smallest piece whose bytes are released. Releasing less memory does not justify a query of the store.
const RELEASED_BYTES_MIN: usize = 16 << 10;

/// The maximum initial capacity of a list of chunks. A full buffer of 320 KiB has about forty chunks of 8 KiB.
const CHUNKS_EXPECTED_MAX: usize = 64;

/// The smallest number of chunks of a run that gets a separate piece. Shorter runs share a piece with other
/// references.
const RUN_CHUNKS_MIN: usize = 4;

/// The minimum length of the last chunk of a body. For a shorter chunk, the entries with its hash in the store
/// and in the index would take more than a tenth of the chunk's length.
pub(crate) const TAIL_BYTES_MIN: usize = 512;
