//! Collects the chunks of a body into pieces. A piece is a range of the body that is sent in one frame.

use bytes::Bytes;

use crate::buffer::{Buffer, LARGE_BYTES, Pool};
use crate::chunker::Chunker;
use crate::id::{ChunkId, IdKey};
use crate::knowledge::Knowledge;
use crate::noise::is_noise;
use crate::store::{ChunkLocation, ChunkStore, Entry, bytes_of, load_verified};
use crate::wire::{CHUNKS_MAX, PIECE_BYTES_MAX};

use super::predictor::{Prediction, Predictor};
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
    /// [loaded](Self::load) from the store. The caller ensures that the body's digest already covers the bytes. The
    /// released memory is still in a cache of the processor, so the next bytes are read into it quickly.
    pub(super) fn release_bytes(&mut self, store: &mut impl ChunkStore) {
        let mut is_retained = |(location, row): (Option<ChunkLocation>, &[PieceChunk])| {
            location.is_some_and(|location| store.is_retained(location, row.len()))
        };
        if self.is_reference()
            && self.length >= RELEASED_BYTES_MIN
            && self.rows().all(&mut is_retained)
        {
            self.raw = None;
        }
    }

    /// Returns the bytes. If they were released, loads them from the store. Returns `None` if the store has
    /// lost them.
    pub(super) fn load(
        &self,
        store: &mut impl ChunkStore,
        id_key: &IdKey,
        pool: &Pool,
    ) -> Option<Bytes> {
        if let Some(raw) = &self.raw {
            return Some(raw.clone());
        }
        let chunks_bytes = self.chunks.iter().map(|chunk| chunk.length as usize).sum();
        let mut buffer = pool.buffer(chunks_bytes);
        for (location, row) in self.rows() {
            let entries: Vec<_> = row.iter().map(PieceChunk::entry).collect();
            let bytes = bytes_of(&entries);
            let out = &mut buffer.spare()[..bytes];
            let is_loaded = load_verified(store, id_key, location?, &entries, out);
            is_loaded.then(|| buffer.fill(bytes))?;
        }
        // Earlier pieces may contain the start of the first chunk.
        Some(buffer.freeze(chunks_bytes - self.length..chunks_bytes))
    }

    /// Divides the chunks into rows. The chunks of a row are adjacent in the store. Returns each row with the
    /// location of its first chunk.
    fn rows(&self) -> impl Iterator<Item = (Option<ChunkLocation>, &[PieceChunk])> {
        let is_next = |one: &PieceChunk, next: &PieceChunk| {
            one.location.map(|location| location.plus(1)) == next.location
        };
        let rows = self.chunks.chunk_by(is_next);
        rows.map(|row| (row[0].location, row))
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
}

impl PieceChunk {
    fn entry(&self) -> Entry {
        let Self { id, length, .. } = *self;
        Entry { id, length }
    }

    /// Returns true if this chunk lies directly after `other` in the store: in the same container, or as the
    /// first chunk of the next container if `other` is the last chunk of its container.
    fn follows(&self, other: &Self, store: &mut impl ChunkStore) -> bool {
        let (Some(location), Some(before)) = (self.location, other.location) else {
            return false;
        };
        let after = before.plus(1);
        if location.container == before.container {
            return location == after;
        }
        let next = ChunkLocation {
            container: before.container.wrapping_add(1),
            slot: 0,
        };
        location == next && {
            let mut rest_of_container = Vec::new();
            store.entries(after, 1, &mut rest_of_container);
            rest_of_container.is_empty()
        }
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
    pub(super) location: ChunkLocation,
    pub(super) entries: Vec<Entry>,
}

/// The error of a lookup that waits for a pending read of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stalled;

/// The resources for hashing and looking up chunks.
pub(super) struct ChunkFinder<'a, S> {
    pub(super) store: &'a mut S,
    pub(super) knowledge: &'a Knowledge,
    pub(super) id_key: &'a IdKey,
    pub(super) pool: &'a Pool,
    /// True if new chunks may be compressed against a [`Base`].
    pub(super) delta: bool,
    pub(super) stored_bytes: StoredBytes,
    /// True if bytes sent as references may be [released](Piece::release_bytes).
    pub(super) may_release: bool,
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

impl<S: ChunkStore> ChunkFinder<'_, S> {
    /// Stores a chunk, unless it is already stored. Returns its location, and true if it was already stored.
    fn find_or_store(&mut self, id: ChunkId, chunk: &[u8]) -> (Option<ChunkLocation>, bool) {
        let has_bytes = match self.stored_bytes {
            StoredBytes::All => true,
            StoredBytes::AllButNoise => !is_noise(chunk),
            StoredBytes::None => false,
        };
        if has_bytes {
            return self.store.find_or_insert(id, chunk);
        }
        let length = u32::try_from(chunk.len()).expect("the length of a chunk is limited");
        self.store.find_or_list(Entry { id, length })
    }
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
    /// True if these chunks are adjacent in our store and `raw` contains the whole first chunk.
    in_a_row: bool,
    /// The start of the partial chunk, if it was sent in earlier pieces.
    sent_prefix: Vec<u8>,
    /// The number of bytes of the first of `chunks` that were sent in earlier pieces.
    skip: u32,
    /// The location after the last known chunk. New chunks probably resemble the chunks from this location on.
    after_match: Option<ChunkLocation>,
    /// Predicts the chunk after the last known chunk.
    predictor: Predictor,
}

impl PieceBuilder {
    /// Makes space for about `bytes_max` bytes and returns the size of this space. If too little space is left in the
    /// buffer, first makes a piece of the complete chunks. `batch` is the length at which a piece of new chunks ends.
    pub(super) fn make_space<S: ChunkStore>(
        &mut self,
        bytes_max: usize,
        batch: usize,
        finder: &mut ChunkFinder<'_, S>,
        pieces: &mut Vec<Piece>,
    ) -> usize {
        let [short, long] = LARGE_BYTES;
        let is_short = self.chunks_known || batch + BEYOND_BATCH_BYTES <= short;
        let capacity = if is_short { short } else { long };
        let free_bytes = capacity.saturating_sub(self.raw.len());
        if bytes_max > free_bytes && free_bytes < READ_BYTES_MIN {
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
    pub(super) fn after_processing<S: ChunkStore>(
        &mut self,
        finder: &mut ChunkFinder<'_, S>,
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

    /// Ends the partial chunk after the processed bytes. Returns false if the lookup waits for a pending read; the
    /// chunk is then unchanged, and the caller must end it again after the read.
    #[must_use]
    pub(super) fn end_chunk<S: ChunkStore>(
        &mut self,
        finder: &mut ChunkFinder<'_, S>,
        batch: usize,
        pieces: &mut Vec<Piece>,
    ) -> bool {
        let skip = self.sent_prefix.len();
        let tail = &self.raw[self.chunks_bytes..self.processed];
        let chunk = if skip == 0 {
            tail
        } else {
            self.sent_prefix.extend_from_slice(tail);
            &self.sent_prefix
        };
        let id = finder.id_key.id(chunk);
        let (location, found) = finder.find_or_store(id, chunk);
        if location.is_none() && finder.store.has_pending_reads() {
            self.sent_prefix.truncate(skip);
            return false;
        }
        let known = found && location.is_some_and(|location| finder.knowledge.has(location));
        let length = u32::try_from(chunk.len()).expect("the length of a chunk is limited");
        match location.filter(|_| known) {
            Some(location) => {
                finder
                    .store
                    .set_fingerprint(location, &id, || finder.id_key.fingerprint(chunk));
                self.predictor.record_match(location);
            }
            None => self.predictor.clear(),
        }
        let piece_chunk = PieceChunk {
            id,
            length,
            location,
        };
        self.add(piece_chunk, skip, known, finder, batch, pieces);
        true
    }

    /// Compares the unprocessed bytes with the predicted chunk. If they match, adds the chunk. If more bytes
    /// are needed, the bytes remain unprocessed.
    pub(super) fn match_prediction<S: ChunkStore>(
        &mut self,
        chunker: &Chunker,
        digest: &mut BodyDigester,
        finder: &mut ChunkFinder<'_, S>,
        batch: usize,
        pieces: &mut Vec<Piece>,
    ) -> Prediction {
        let unprocessed = &self.raw[self.processed..];
        let prediction = self.predictor.compare(unprocessed, chunker, finder);
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
            self.add(chunk, 0, known, finder, batch, pieces);
        }
        prediction
    }

    /// Adds a complete chunk. Its first `skip` bytes are in earlier pieces.
    fn add<S: ChunkStore>(
        &mut self,
        chunk: PieceChunk,
        skip: usize,
        known: bool,
        finder: &mut ChunkFinder<'_, S>,
        batch: usize,
        pieces: &mut Vec<Piece>,
    ) {
        let tail_bytes = chunk.length as usize - skip;
        let last = self.chunks.last();
        let mut follows = last.is_some_and(|last| chunk.follows(last, finder.store));
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
            self.after_match = chunk.location.map(|location| location.plus(1));
        }
        if self.chunks_bytes >= self.batch(batch) {
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
    pub(super) fn flush_whole<S: ChunkStore>(
        &mut self,
        finder: &mut ChunkFinder<'_, S>,
        pieces: &mut Vec<Piece>,
    ) {
        if !self.chunks.is_empty() {
            self.seal_chunks(finder, pieces);
        }
    }

    /// Makes pieces of all bytes, including the partial chunk.
    pub(super) fn flush<S: ChunkStore>(
        &mut self,
        finder: &mut ChunkFinder<'_, S>,
        pieces: &mut Vec<Piece>,
    ) {
        self.seal_chunks(finder, pieces);
        self.sent_prefix
            .extend_from_slice(&self.raw[..self.processed]);
        let encoding = PieceEncoding::Literal { base: None };
        self.seal(self.processed, encoding, Vec::new(), finder.pool, pieces);
    }

    /// Ends the body. If the partial chunk has at least [`TAIL_BYTES_MIN`] bytes, it becomes the last chunk; the
    /// receiver does the same. If all bytes of this chunk are in earlier pieces, no piece lists the chunk, and its
    /// location is returned. Fails if the lookup of the chunk waits for a pending read; the caller must call the
    /// function again after the read.
    pub(super) fn finish<S: ChunkStore>(
        &mut self,
        finder: &mut ChunkFinder<'_, S>,
        batch: usize,
        pieces: &mut Vec<Piece>,
    ) -> Result<Option<ChunkLocation>, Stalled> {
        let mut sent_tail = None;
        if self.partial_bytes() >= TAIL_BYTES_MIN {
            if self.processed > self.chunks_bytes {
                if !self.end_chunk(finder, batch, pieces) {
                    return Err(Stalled);
                }
            } else {
                let id = finder.id_key.id(&self.sent_prefix);
                (sent_tail, _) = finder.find_or_store(id, &self.sent_prefix);
                if sent_tail.is_none() && finder.store.has_pending_reads() {
                    return Err(Stalled);
                }
            }
        }
        self.flush(finder, pieces);
        Ok(sent_tail)
    }

    fn seal_chunks<S: ChunkStore>(
        &mut self,
        finder: &mut ChunkFinder<'_, S>,
        pieces: &mut Vec<Piece>,
    ) {
        let encoding = if !self.chunks_known {
            let base = self.after_match.filter(|_| finder.delta);
            let base = base.and_then(|location| base_for(finder, location, self.chunks_bytes));
            // The next new chunks probably resemble the chunks after this base.
            if let Some(base) = &base {
                self.after_match = Some(base.location.plus(base.entries.len()));
            }
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
            waiting: true,
        };
        self.offset = piece.end();
        pieces.push(piece);
    }
}

/// Returns a base for `bytes` new bytes, if there is one. The base begins with the first chunk from `location` on that
/// is stored with its bytes. It ends before a chunk without bytes, before a chunk that the peer lacks, and at the end
/// of the container. Otherwise it ends at one and a half times the length of the new bytes, but not below 32 KiB. It is
/// longer than the new bytes, because these may lack text that the base has.
fn base_for<S: ChunkStore>(
    finder: &mut ChunkFinder<'_, S>,
    location: ChunkLocation,
    bytes: usize,
) -> Option<Base> {
    let wanted = (bytes + bytes / 2).clamp(32 << 10, PIECE_BYTES_MAX);
    let mut entries = Vec::new();
    finder.store.entries(location, CHUNKS_MAX, &mut entries);
    let mut has_bytes = |nth: usize| finder.store.has_bytes(location.plus(nth));
    let without_bytes = (0..entries.len())
        .take_while(|&nth| !has_bytes(nth))
        .count();
    entries.drain(..without_bytes);
    let location = location.plus(without_bytes);
    let mut base_bytes = 0;
    let usable = entries.iter().enumerate().take_while(|(nth, entry)| {
        let is_needed = base_bytes < wanted && finder.knowledge.has(location.plus(*nth));
        base_bytes += entry.length as usize;
        is_needed && base_bytes <= PIECE_BYTES_MAX && finder.store.has_bytes(location.plus(*nth))
    });
    let usable = usable.count();
    entries.truncate(usable);
    (usable > 0).then_some(Base { location, entries })
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
