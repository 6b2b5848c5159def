//! A range of a body that travels in one frame, and how chunks are gathered into such ranges.

use bytes::Bytes;

use crate::buffer::{Buffer, LARGE_BYTES, Pool};
use crate::chunker::Chunker;
use crate::id::{ChunkId, IdKey};
use crate::knowledge::Knowledge;
use crate::noise::is_noise;
use crate::store::{ChunkStore, Entry, Place, bytes_of, load_verified};
use crate::wire::{CHUNKS_MAX, PIECE_BYTES_MAX};

use super::ahead::{Ahead, Foreseen, Look};
use super::stream::Digested;

/// A range of a body, until it is acknowledged.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) length: usize,
    /// Its bytes, unless it was [let go](Self::let_go).
    raw: Option<Bytes>,
    /// The chunks that end in it.
    pub(super) chunks: Vec<Sent>,
    pub(super) form: Form,
    /// It waits to be sent, for the first time or again.
    pub(super) waiting: bool,
}

impl Piece {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.length as u64
    }

    /// Whether it travels by names.
    pub(super) fn is_named(&self) -> bool {
        matches!(self.form, Form::Refs { .. } | Form::Run)
    }

    /// Memory it takes until then.
    pub(super) fn held(&self) -> usize {
        match &self.raw {
            Some(raw) => raw.len(),
            None => size_of::<Self>() + size_of_val(&self.chunks[..]),
        }
    }

    /// Its bytes, if they are here.
    pub(super) fn raw(&self) -> Option<&Bytes> {
        self.raw.as_ref()
    }

    /// What is named, and was digested, need not wait here if the store has it: it can be [loaded](Self::load) should the peer have lost it. The next bytes
    /// are then read into memory that a processor's cache still has, and what a body may have under way is not bounded by memory.
    pub(super) fn let_go(&mut self, store: &mut impl ChunkStore) {
        let mut stays = |(place, row): (Option<Place>, &[Sent])| {
            place.is_some_and(|place| store.stays(place, row.len()))
        };
        if self.is_named() && self.length >= LET_GO_BYTES_MIN && self.rows().all(&mut stays) {
            self.raw = None;
        }
    }

    /// Its bytes, out of the store if they were let go; none where it has lost them meanwhile.
    pub(super) fn load(
        &self,
        store: &mut impl ChunkStore,
        ids: &IdKey,
        pool: &Pool,
    ) -> Option<Bytes> {
        if let Some(raw) = &self.raw {
            return Some(raw.clone());
        }
        let chunks_bytes = self.chunks.iter().map(|sent| sent.length as usize).sum();
        let mut buffer = pool.buffer(chunks_bytes);
        for (place, row) in self.rows() {
            let entries: Vec<_> = row.iter().map(Sent::entry).collect();
            let bytes = bytes_of(&entries);
            let out = &mut buffer.spare()[..bytes];
            let there = load_verified(store, ids, place?, &entries, out);
            there.then(|| buffer.fill(bytes))?;
        }
        // Of its first chunk earlier pieces may have a part.
        Some(buffer.freeze(chunks_bytes - self.length..chunks_bytes))
    }

    /// Chunks that lie one after the other, and where.
    fn rows(&self) -> impl Iterator<Item = (Option<Place>, &[Sent])> {
        let is_next = |one: &Sent, next: &Sent| one.place.map(|place| place.plus(1)) == next.place;
        let rows = self.chunks.chunk_by(is_next);
        rows.map(|row| (row[0].place, row))
    }

    /// Whether the peer is thought to have all it would need to make use of a reference.
    pub(super) fn is_known(&self, knowledge: &Knowledge) -> bool {
        let known = |sent: &Sent| sent.place.is_some_and(|place| knowledge.has(place));
        self.chunks.iter().all(known)
    }

    /// From now on it travels as bytes, without anything from before.
    pub(super) fn spell_out(&mut self) {
        if self.form != Form::Plain {
            self.form = Form::Literal { base: None };
        }
    }
}

/// A chunk of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) id: ChunkId,
    /// Its bytes, with those in earlier pieces.
    pub(super) length: u32,
    /// Where it lies in our store.
    pub(super) place: Option<Place>,
}

impl Sent {
    fn entry(&self) -> Entry {
        let Self { id, length, .. } = *self;
        Entry { id, length }
    }

    /// Whether it lies after that one: in the same container, or as the first of the next after the last of its own.
    fn follows(&self, other: &Self, store: &mut impl ChunkStore) -> bool {
        let (Some(place), Some(before)) = (self.place, other.place) else {
            return false;
        };
        let after = before.plus(1);
        if place.container == before.container {
            return place == after;
        }
        let next = Place {
            container: before.container.wrapping_add(1),
            slot: 0,
        };
        place == next && {
            let mut more = Vec::new();
            store.entries(after, 1, &mut more);
            more.is_empty()
        }
    }
}

/// How a piece travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As bytes nobody keeps.
    Plain,
    /// As bytes, compressed against a base if there is one.
    Literal { base: Option<Base> },
    /// By names; of the first chunk this much is in earlier pieces.
    Refs { skip: u32 },
    /// By the first name and a number.
    Run,
}

/// Chunks that new ones may resemble: those that followed the last match when it was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) place: Place,
    pub(super) entries: Vec<Entry>,
}

/// The store has yet to say whether a chunk is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stalled;

/// Tools for naming and finding chunks.
pub(super) struct Finder<'a, S> {
    pub(super) store: &'a mut S,
    pub(super) knowledge: &'a Knowledge,
    pub(super) ids: &'a IdKey,
    pub(super) pool: &'a Pool,
    pub(super) delta: bool,
    pub(super) keep: Keep,
    /// What is named may be [let go](Piece::let_go).
    pub(super) lets_go: bool,
}

/// Of which new chunks more is kept than their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    All,
    AllButNoise,
    Names,
}

impl<S: ChunkStore> Finder<'_, S> {
    /// Where a chunk lies, and whether it did before.
    fn find_or_keep(&mut self, id: ChunkId, chunk: &[u8]) -> (Option<Place>, bool) {
        let is_kept = match self.keep {
            Keep::All => true,
            Keep::AllButNoise => !is_noise(chunk),
            Keep::Names => false,
        };
        if is_kept {
            return self.store.find_or_insert(id, chunk);
        }
        let length = u32::try_from(chunk.len()).expect("chunks are bounded");
        self.store.find_or_list(Entry { id, length })
    }
}

/// Gathers the chunks of a body into pieces.
#[derive(Debug, Default)]
pub(super) struct Building {
    /// Where `raw` begins in the body.
    offset: u64,
    raw: Buffer,
    /// How much of `raw` was looked at.
    seen: usize,
    /// Whole chunks at the beginning of `raw`, all known to the peer or all new to it.
    chunks: Vec<Sent>,
    /// What they have of `raw`.
    chunks_bytes: usize,
    known: bool,
    /// They lie one after the other in our store, and all of the first is in `raw`.
    in_a_row: bool,
    /// Of the chunk that is not whole yet, what earlier pieces have; and of the first in `chunks`.
    carried: Vec<u8>,
    skip: u32,
    /// New chunks resemble what lies from here on.
    after_match: Option<Place>,
    ahead: Ahead,
    /// Chunks since the last that was known.
    new: usize,
}

impl Building {
    /// Sees to room for about `most` bytes; for how many. Whole chunks leave when there are enough.
    pub(super) fn make_room<S: ChunkStore>(
        &mut self,
        most: usize,
        batch: usize,
        finder: &mut Finder<'_, S>,
        pieces: &mut Vec<Piece>,
    ) -> usize {
        let [short, long] = LARGE_BYTES;
        let is_short = self.known || batch + BEYOND_BATCH_BYTES <= short;
        let full = if is_short { short } else { long };
        let left = full.saturating_sub(self.raw.len());
        if most > left && left < READ_BYTES_MIN {
            self.flush_whole(finder, pieces);
        }
        let left = full.saturating_sub(self.raw.len());
        let most = most.min(left.max(READ_BYTES_MIN));
        // More than half of what it takes in the end: it has its last size at once.
        let is_large = self.raw.len() + most > short / 2;
        let wanted = if is_large { left.max(most) } else { most };
        if self.raw.room() < most {
            self.raw.reserve(wanted, finder.pool);
        }
        most
    }

    /// How many bytes travel together now. What is named is recognised while a second-level cache has it.
    fn batch(&self, batch: usize) -> usize {
        if self.known {
            batch.min(NAMED_BYTES)
        } else {
            batch
        }
    }

    /// All that came was looked at. Chunks that are named leave if they are half a batch: what stays is copied, and that is a part of one chunk now.
    pub(super) fn looked<S: ChunkStore>(
        &mut self,
        finder: &mut Finder<'_, S>,
        pieces: &mut Vec<Piece>,
    ) {
        if self.known && self.chunks_bytes >= NAMED_BYTES / 2 {
            self.seal_chunks(finder, pieces);
        }
    }

    /// Where the next bytes of the body belong.
    pub(super) fn spare(&mut self) -> &mut [u8] {
        self.raw.spare()
    }

    /// So many bytes were put there.
    pub(super) fn filled(&mut self, bytes: usize) {
        self.raw.fill(bytes);
        self.raw.release();
    }

    /// Bytes that were not looked at.
    pub(super) fn unseen(&self) -> &[u8] {
        &self.raw[self.seen..]
    }

    /// The next ones are not to be kept.
    pub(super) fn see_plain(
        &mut self,
        bytes: usize,
        batch: usize,
        pool: &Pool,
        pieces: &mut Vec<Piece>,
    ) {
        self.seen += bytes;
        while self.seen >= batch {
            self.seal(batch, Form::Plain, Vec::new(), pool, pieces);
        }
    }

    /// No more plain bytes for now.
    pub(super) fn end_plain(&mut self, pool: &Pool, pieces: &mut Vec<Piece>) {
        self.seal(self.seen, Form::Plain, Vec::new(), pool, pieces);
    }

    /// The next ones are of the chunk.
    pub(super) fn see(&mut self, bytes: usize) {
        self.seen += bytes;
    }

    /// What there is of the unfinished chunk.
    pub(super) fn unfinished(&self) -> usize {
        self.carried.len() + self.seen - self.chunks_bytes
    }

    /// Whether what was looked at ends with something of a chunk that is in no piece.
    pub(super) fn has_unsaid(&self) -> bool {
        self.seen > self.chunks_bytes
    }

    /// Bytes that are in no piece yet.
    pub(super) fn bytes(&self) -> usize {
        self.raw.len()
    }

    /// How many chunks may be named before the first of them is looked up. After as many new ones the next are likely to be new; if they are not,
    /// less is done in vain than was of use.
    pub(super) fn named_together(&self) -> usize {
        // Of a chunk that begins in earlier pieces the bytes do not lie in a row.
        let alone = self.ahead.awaits() || !self.carried.is_empty();
        if alone { 1 } else { self.new.max(1) }
    }

    /// The names of the next chunks, each of which ends so many bytes after what was seen, or after the one before.
    pub(super) fn names(&self, ends: &[usize], ids: &IdKey) -> Vec<ChunkId> {
        let mut rest = &self.raw[self.chunks_bytes..];
        let mut begun = self.seen - self.chunks_bytes;
        let mut chunks = Vec::with_capacity(ends.len());
        for end in ends {
            let (chunk, later) = rest.split_at(begun + end);
            chunks.push(chunk);
            (rest, begun) = (later, 0);
        }
        ids.ids(&chunks)
    }

    /// The chunk ends here; it may have been named. False if the store has yet to say whether it is there: then nothing was done, and it is to be
    /// ended again.
    #[must_use]
    pub(super) fn end_chunk<S: ChunkStore>(
        &mut self,
        id: Option<ChunkId>,
        finder: &mut Finder<'_, S>,
        batch: usize,
        pieces: &mut Vec<Piece>,
    ) -> bool {
        let skip = self.carried.len();
        let tail = &self.raw[self.chunks_bytes..self.seen];
        let chunk = if skip == 0 {
            tail
        } else {
            self.carried.extend_from_slice(tail);
            &self.carried
        };
        let id = id.unwrap_or_else(|| finder.ids.id(chunk));
        let (place, found) = finder.find_or_keep(id, chunk);
        if place.is_none() && finder.store.has_pending_reads() {
            self.carried.truncate(skip);
            return false;
        }
        let known = found && place.is_some_and(|place| finder.knowledge.has(place));
        let length = u32::try_from(chunk.len()).expect("chunks are bounded");
        match place.filter(|_| known) {
            Some(place) => {
                finder.store.note(place, &id, || finder.ids.mark(chunk));
                self.ahead.saw(place);
            }
            None => self.ahead.lost(),
        }
        let sent = Sent { id, length, place };
        self.add(sent, skip, known, finder, batch, pieces);
        true
    }

    /// The chunk that begins here may be the one that is awaited. Then it is ended, and if that cannot be told yet it is left alone.
    pub(super) fn foresee<S: ChunkStore>(
        &mut self,
        chunker: &Chunker,
        digest: &mut Digested,
        finder: &mut Finder<'_, S>,
        batch: usize,
        pieces: &mut Vec<Piece>,
    ) -> Foreseen {
        let (raw, at) = (&self.raw[..], self.seen);
        // Of what is not named a digest is made along with its frame.
        let all_named = self.known || self.chunks.is_empty();
        let offset = all_named.then_some(self.offset);
        let look = Look { raw, at, offset };
        let foreseen = self.ahead.look(&look, digest, chunker, finder);
        if let Foreseen::Chunk(sent) = foreseen {
            let known = sent.place.is_some_and(|place| finder.knowledge.has(place));
            self.seen += sent.length as usize;
            self.add(sent, 0, known, finder, batch, pieces);
            // While a first-level cache has them.
            if known {
                digest.foresee(self.offset, &self.raw[..self.chunks_bytes]);
            }
        }
        foreseen
    }

    /// A chunk that ends here, of which `skip` bytes are in earlier pieces.
    fn add<S: ChunkStore>(
        &mut self,
        sent: Sent,
        skip: usize,
        known: bool,
        finder: &mut Finder<'_, S>,
        batch: usize,
        pieces: &mut Vec<Piece>,
    ) {
        let tail_bytes = sent.length as usize - skip;
        let last = self.chunks.last();
        let mut follows = last.is_some_and(|last| sent.follows(last, finder.store));
        if !self.chunks.is_empty() && !self.may_join(follows, tail_bytes, known) {
            self.seal_chunks(finder, pieces);
            follows = false;
        }
        match self.chunks.last() {
            Some(_) => self.in_a_row &= follows,
            None => {
                self.skip = u32::try_from(skip).expect("chunks are bounded");
                self.in_a_row = skip == 0;
            }
        }
        self.known = known;
        self.new = if known { 0 } else { self.new + 1 };
        self.chunks.push(sent);
        self.chunks_bytes += tail_bytes;
        self.carried.clear();
        if known {
            self.after_match = sent.place.map(|place| place.plus(1));
        }
        if self.chunks_bytes >= self.batch(batch) {
            self.seal_chunks(finder, pieces);
        }
    }

    /// Whether a chunk may travel with those before it.
    fn may_join(&self, follows: bool, bytes: usize, known: bool) -> bool {
        let full = self.chunks_bytes + bytes > PIECE_BYTES_MAX || self.chunks.len() == CHUNKS_MAX;
        // A run is worth keeping apart: it takes 26 bytes, however long it is.
        let breaks_run = known && self.chunks.len() >= RUN_CHUNKS_MIN && self.in_a_row && !follows;
        self.known == known && !full && !breaks_run
    }

    /// Whole chunks become a piece.
    pub(super) fn flush_whole<S: ChunkStore>(
        &mut self,
        finder: &mut Finder<'_, S>,
        pieces: &mut Vec<Piece>,
    ) {
        if !self.chunks.is_empty() {
            self.seal_chunks(finder, pieces);
        }
    }

    /// All there is becomes pieces, the unfinished chunk too: nothing waits here.
    pub(super) fn flush<S: ChunkStore>(
        &mut self,
        finder: &mut Finder<'_, S>,
        pieces: &mut Vec<Piece>,
    ) {
        self.seal_chunks(finder, pieces);
        self.carried.extend_from_slice(&self.raw[..self.seen]);
        let form = Form::Literal { base: None };
        self.seal(self.seen, form, Vec::new(), finder.pool, pieces);
    }

    /// The body ends, and what is unfinished is a chunk if it is long enough. The receiver does the same: where the chunk lies
    /// of which no piece says so, since all its bytes had been sent. As [`end_chunk`](Self::end_chunk) says, this may have to be asked again.
    pub(super) fn finish<S: ChunkStore>(
        &mut self,
        finder: &mut Finder<'_, S>,
        batch: usize,
        pieces: &mut Vec<Piece>,
    ) -> Result<Option<Place>, Stalled> {
        let mut unsaid = None;
        if self.unfinished() >= TAIL_BYTES_MIN {
            if self.seen > self.chunks_bytes {
                if !self.end_chunk(None, finder, batch, pieces) {
                    return Err(Stalled);
                }
            } else {
                let id = finder.ids.id(&self.carried);
                (unsaid, _) = finder.find_or_keep(id, &self.carried);
                if unsaid.is_none() && finder.store.has_pending_reads() {
                    return Err(Stalled);
                }
            }
        }
        self.flush(finder, pieces);
        Ok(unsaid)
    }

    fn seal_chunks<S: ChunkStore>(&mut self, finder: &mut Finder<'_, S>, pieces: &mut Vec<Piece>) {
        let form = if !self.known {
            let base = self.after_match.filter(|_| finder.delta);
            let base = base.and_then(|place| base_for(finder, place, self.chunks_bytes));
            // What follows will resemble what follows this base.
            if let Some(base) = &base {
                self.after_match = Some(base.place.plus(base.entries.len()));
            }
            Form::Literal { base }
        } else if self.in_a_row && self.chunks.len() >= 2 && self.are_in_order(finder.knowledge) {
            Form::Run
        } else {
            Form::Refs { skip: self.skip }
        };
        // The next piece will have about as many.
        let next = Vec::with_capacity(self.chunks.len().min(CHUNKS_EXPECTED_MAX));
        let chunks = std::mem::replace(&mut self.chunks, next);
        self.seal(self.chunks_bytes, form, chunks, finder.pool, pieces);
        (self.chunks_bytes, self.skip) = (0, 0);
    }

    /// Whether the peer has all of them in our order, as far as is known.
    fn are_in_order(&self, knowledge: &Knowledge) -> bool {
        // A piece hardly spans more containers than two; if one between is in another order, the peer says so.
        let ends = [self.chunks.first(), self.chunks.last()];
        ends.into_iter().all(|sent| {
            let place = sent.and_then(|sent| sent.place);
            place.is_some_and(|place| knowledge.in_order(place.container))
        })
    }

    /// The first `bytes` of `raw` become a piece, if there are any.
    fn seal(
        &mut self,
        bytes: usize,
        form: Form,
        chunks: Vec<Sent>,
        pool: &Pool,
        pieces: &mut Vec<Piece>,
    ) {
        if bytes == 0 {
            return;
        }
        let raw = self.raw.split_off_front(bytes, pool);
        self.seen -= bytes;
        let piece = Piece {
            offset: self.offset,
            length: bytes,
            raw: Some(raw),
            chunks,
            form,
            waiting: true,
        };
        self.offset = piece.end();
        pieces.push(piece);
    }
}

/// As much of a base as is of use for `bytes` new ones: the same again and a half, for what was removed, and at least 32
/// KiB. Only chunks the peer has, from `place` on in the same container.
fn base_for<S: ChunkStore>(finder: &mut Finder<'_, S>, place: Place, bytes: usize) -> Option<Base> {
    let wanted = (bytes + bytes / 2).clamp(32 << 10, PIECE_BYTES_MAX);
    let mut entries = Vec::new();
    finder.store.entries(place, CHUNKS_MAX, &mut entries);
    // Chunks that are only listed resemble nothing.
    let mut is_kept = |nth: usize| finder.store.is_kept(place.plus(nth));
    let listed = (0..entries.len()).take_while(|&nth| !is_kept(nth)).count();
    entries.drain(..listed);
    let place = place.plus(listed);
    let mut base_bytes = 0;
    let enough = entries.iter().enumerate().take_while(|(nth, entry)| {
        let is_of_use = base_bytes < wanted && finder.knowledge.has(place.plus(*nth));
        base_bytes += entry.length as usize;
        is_of_use && base_bytes <= PIECE_BYTES_MAX && finder.store.is_kept(place.plus(*nth))
    });
    let enough = enough.count();
    entries.truncate(enough);
    (enough > 0).then_some(Base { place, entries })
}

/// As many as are compressed together are too many: the next ones would find the buffer cold.
const NAMED_BYTES: usize = LARGE_BYTES[0];

/// A batch ends with the chunk that fills it.
const BEYOND_BATCH_BYTES: usize = 64 << 10;

/// Less room is not worth a read where more is wanted.
const READ_BYTES_MIN: usize = 64 << 10;

/// Less memory is not worth a look at the store.
const LET_GO_BYTES_MIN: usize = 16 << 10;

/// What a list of chunks is given room for in advance: a full buffer has about forty of 8 KiB.
const CHUNKS_EXPECTED_MAX: usize = 64;

/// Shorter runs are not kept apart from other references.
const RUN_CHUNKS_MIN: usize = 4;

/// What is left at a body's end is kept from this length on: below, its name takes more than a tenth of it in all places
/// that name it.
pub(crate) const TAIL_BYTES_MIN: usize = 512;
