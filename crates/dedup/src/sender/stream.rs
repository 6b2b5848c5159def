//! One body on its way out.

use std::collections::VecDeque;

use crate::chunker::{Chunker, ChunkerParams};
use crate::digest::Sums;
use crate::id::{BodyDigest, IdKey, TOGETHER_BYTES};
use crate::knowledge::Knowledge;
use crate::mark::Mark;
use crate::store::{ChunkStore, Place};
use crate::wire::NakCause;

use super::ahead::Foreseen;
use super::piece::{Building, Finder, Form, Piece, Stalled};

/// Something of a stream that waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Open,
    /// The piece that begins here.
    Piece(u64),
    Close,
}

#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) label: Vec<u8>,
    /// Up to where it may be written.
    pub(super) credit: u64,
    pub(super) written: u64,
    /// It is whole.
    pub(super) closed: bool,
    /// A chunk has ended of which the store has yet to say whether it is there; nothing behind it was looked at.
    pub(super) stalled: bool,
    /// What was asked for meanwhile.
    asked: Asked,
    pub(super) queue: VecDeque<Item>,
    /// It stands in the row of streams with something to send.
    pub(super) ready: bool,
    /// Something was acknowledged, so the peer knows of the stream.
    is_open: bool,
    /// OPEN went along with its long frames.
    opened_long_lane: bool,
    /// A chunk the peer makes of the body's last bytes when it is told that they are the last.
    pub(super) tail: Option<Place>,
    bypass: u64,
    /// How many bytes it is asked for at once, and how many it was asked for last.
    appetite: usize,
    offered: usize,
    digest: Digested,
    chunker: Chunker,
    building: Building,
    /// Not acknowledged, by offset and without gaps.
    pieces: VecDeque<Piece>,
    acked: u64,
    /// Bytes in memory until they are acknowledged.
    held: usize,
    /// Bytes that were known by their marks.
    pub(super) recognised: u64,
    /// Something of it was named.
    pub(super) has_named: bool,
}

impl Outgoing {
    pub(super) fn new(label: Vec<u8>, chunker: ChunkerParams, bypass: u64, credit: u64) -> Self {
        Self {
            label,
            credit,
            written: 0,
            closed: false,
            stalled: false,
            asked: Asked::Nothing,
            queue: VecDeque::new(),
            ready: false,
            is_open: false,
            opened_long_lane: false,
            tail: None,
            bypass,
            appetite: APPETITE_MIN,
            offered: 0,
            digest: Digested::default(),
            chunker: Chunker::new(chunker),
            building: Building::default(),
            pieces: VecDeque::new(),
            acked: 0,
            held: 0,
            recognised: 0,
            has_named: false,
        }
    }

    /// Memory that the body takes until more of it is acknowledged.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Up to where the body was made into pieces.
    pub(super) fn sealed(&self) -> u64 {
        self.pieces.back().map_or(self.acked, Piece::end)
    }

    /// Whether the peer will say something about it.
    pub(super) fn under_way(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Bytes of the body in its next frame; `None` if there is none.
    pub(super) fn next_bytes(&mut self) -> Option<usize> {
        match *self.queue.front()? {
            Item::Open | Item::Close => Some(0),
            Item::Piece(offset) => Some(self.piece(offset).map_or(0, |piece| piece.length)),
        }
    }

    /// Sees to room for the next bytes of the body: few of a short body, many of one that fills what it is given. Some there is always.
    pub(super) fn make_room<S: ChunkStore>(&mut self, finder: &mut Finder<'_, S>, batch: usize) {
        let mut most = self.appetite;
        if self.bypass == u64::MAX {
            // These pieces end where they are full.
            most = most.min(batch.saturating_sub(self.building.bytes()).max(1));
        }
        let mut pieces = Vec::new();
        let most = self.building.make_room(most, batch, finder, &mut pieces);
        self.enqueue(pieces, finder);
        self.offered = most.min(self.building.spare().len());
    }

    /// The room that was seen to.
    pub(super) fn spare(&mut self) -> &mut [u8] {
        &mut self.building.spare()[..self.offered]
    }

    /// So many bytes were put there.
    pub(super) fn filled<S: ChunkStore>(
        &mut self,
        bytes: usize,
        finder: &mut Finder<'_, S>,
        batch: usize,
    ) {
        self.building.filled(bytes);
        if bytes == 0 {
            return;
        }
        if bytes >= self.offered {
            self.appetite = (self.appetite * 2).min(APPETITE_MAX);
        } else if bytes < self.appetite / 8 {
            self.appetite = (self.appetite / 2).max(APPETITE_MIN);
        }
        let mut pieces = Vec::new();
        let plain = self.bypass.saturating_sub(self.written);
        let plain = usize::try_from(plain).unwrap_or(usize::MAX).min(bytes);
        self.written += bytes as u64;
        self.held += bytes;
        if plain > 0 {
            self.building
                .see_plain(plain, batch, finder.pool, &mut pieces);
            if self.written > self.bypass {
                self.building.end_plain(finder.pool, &mut pieces);
            }
        } else if self.written - bytes as u64 == self.bypass {
            self.building.end_plain(finder.pool, &mut pieces);
        }
        self.cut(Patience::Awaits, finder, batch, &mut pieces);
        self.building.looked(finder, &mut pieces);
        self.enqueue(pieces, finder);
    }

    /// The store may have an answer by now.
    pub(super) fn resume<S: ChunkStore>(&mut self, finder: &mut Finder<'_, S>, batch: usize) {
        if !self.stalled {
            return;
        }
        let mut pieces = Vec::new();
        // A last chunk of which all bytes were sent before is seen to by who closes the body.
        self.stalled = self.building.has_unsaid()
            && !self.building.end_chunk(None, finder, batch, &mut pieces);
        self.cut(Patience::Awaits, finder, batch, &mut pieces);
        self.enqueue(pieces, finder);
        if !self.stalled {
            match std::mem::replace(&mut self.asked, Asked::Nothing) {
                Asked::Nothing => {}
                Asked::Flush => self.flush(finder, batch),
                Asked::Close => self.close(finder, batch),
            }
        }
    }

    /// Whether the peer may be told that the body is whole.
    pub(super) fn is_ended(&self) -> bool {
        self.closed && self.asked != Asked::Close
    }

    /// Looks at what was not looked at, unless it is stalled, or until it is.
    fn cut<S: ChunkStore>(
        &mut self,
        patience: Patience,
        finder: &mut Finder<'_, S>,
        batch: usize,
        pieces: &mut Vec<Piece>,
    ) {
        while !self.stalled && !self.building.unseen().is_empty() {
            if self.chunker.length() == 0 {
                let Self {
                    building,
                    chunker,
                    digest,
                    ..
                } = self;
                match building.foresee(chunker, digest, finder, batch, pieces) {
                    Foreseen::Chunk(sent) => {
                        self.recognised += u64::from(sent.length);
                        continue;
                    }
                    Foreseen::Later if patience == Patience::Awaits => return,
                    Foreseen::Later | Foreseen::Nothing => {}
                }
            }
            if self.building.named_together() > 1 {
                self.cut_together(finder, batch, pieces);
                continue;
            }
            match self.chunker.next_cut(self.building.unseen()) {
                Some(end) => {
                    self.building.see(end);
                    self.stalled = !self.building.end_chunk(None, finder, batch, pieces);
                }
                None => self.building.see(self.building.unseen().len()),
            }
        }
    }

    /// As [`cut`](Self::cut) does for one chunk after the other, as long as all are new: they are named together.
    fn cut_together<S: ChunkStore>(
        &mut self,
        finder: &mut Finder<'_, S>,
        batch: usize,
        pieces: &mut Vec<Piece>,
    ) {
        let (mut ends, most) = (Vec::new(), self.building.named_together());
        let unseen = self.building.unseen();
        let mut rest = &unseen[..unseen.len().min(TOGETHER_BYTES)];
        while ends.len() < most
            && !rest.is_empty()
            && let Some(end) = self.chunker.next_cut(rest)
        {
            ends.push(end);
            rest = &rest[end..];
        }
        let unfinished = if self.chunker.length() > 0 {
            rest.len()
        } else {
            0
        };
        let ids = self.building.names(&ends, finder.ids);
        finder.store.expect(&ids);
        for (end, id) in ends.iter().zip(ids) {
            self.building.see(*end);
            self.stalled = !self.building.end_chunk(Some(id), finder, batch, pieces);
            if self.stalled || self.building.named_together() == 1 {
                // The next may be awaited now, and be known by its mark; or this one has to be ended again.
                self.chunker.restart();
                return;
            }
        }
        self.building.see(unfinished);
    }

    /// As [`make_room`](Self::make_room) and [`filled`](Self::filled), with bytes from elsewhere.
    pub(super) fn write<S: ChunkStore>(
        &mut self,
        mut bytes: &[u8],
        finder: &mut Finder<'_, S>,
        batch: usize,
    ) {
        while !bytes.is_empty() {
            self.make_room(finder, batch);
            let spare = self.spare();
            let (now, later) = bytes.split_at(bytes.len().min(spare.len()));
            spare[..now.len()].copy_from_slice(now);
            self.filled(now.len(), finder, batch);
            bytes = later;
        }
    }

    pub(super) fn flush<S: ChunkStore>(&mut self, finder: &mut Finder<'_, S>, batch: usize) {
        let mut pieces = Vec::new();
        if self.written <= self.bypass {
            self.building.end_plain(finder.pool, &mut pieces);
        } else {
            self.cut(Patience::Ended, finder, batch, &mut pieces);
            if self.stalled {
                self.asked = self.asked.max(Asked::Flush);
            } else {
                self.building.flush(finder, &mut pieces);
            }
        }
        self.enqueue(pieces, finder);
    }

    pub(super) fn flush_whole<S: ChunkStore>(&mut self, finder: &mut Finder<'_, S>) {
        if self.written > self.bypass {
            let mut pieces = Vec::new();
            self.building.flush_whole(finder, &mut pieces);
            self.enqueue(pieces, finder);
        }
    }

    /// The whole body goes by unseen, if it is not too late for that.
    pub(super) fn bypass(&mut self) -> bool {
        let in_time = self.written <= self.bypass;
        if in_time {
            self.bypass = u64::MAX;
        }
        in_time
    }

    /// Whether OPEN has to go before a long frame: the peer may not know of the stream, and the connection for long ones did
    /// not bring OPEN yet.
    pub(super) fn opens_long_lane(&mut self) -> bool {
        !self.is_open && !std::mem::replace(&mut self.opened_long_lane, true)
    }

    pub(super) fn close<S: ChunkStore>(&mut self, finder: &mut Finder<'_, S>, batch: usize) {
        self.closed = true;
        let mut pieces = Vec::new();
        if self.written <= self.bypass {
            self.building.end_plain(finder.pool, &mut pieces);
        } else {
            self.cut(Patience::Ended, finder, batch, &mut pieces);
            if !self.stalled {
                match self.building.finish(finder, batch, &mut pieces) {
                    Ok(tail) => self.tail = tail,
                    Err(Stalled) => self.stalled = true,
                }
            }
        }
        self.enqueue(pieces, finder);
        if self.stalled {
            self.asked = Asked::Close;
        } else {
            self.queue.push_back(Item::Close);
        }
    }

    fn enqueue<S: ChunkStore>(&mut self, mut pieces: Vec<Piece>, finder: &mut Finder<'_, S>) {
        for piece in &mut pieces {
            // Of what is named no frame's checksum is made.
            if let Some(raw) = piece.raw().filter(|_| piece.is_named()) {
                self.digest.see(piece.offset, raw);
            }
            self.has_named |= piece.is_named();
            if finder.lets_go && self.digest.end >= piece.end() {
                let before = piece.held();
                piece.let_go(finder.store);
                self.held = self.held - before + piece.held();
            }
        }
        let items = pieces.iter().map(|piece| Item::Piece(piece.offset));
        self.queue.extend(items);
        self.pieces.extend(pieces);
    }

    /// The piece that begins at `offset`.
    pub(super) fn piece(&mut self, offset: u64) -> Option<&mut Piece> {
        let at = self
            .pieces
            .binary_search_by_key(&offset, |piece| piece.offset);
        self.pieces.get_mut(at.ok()?)
    }

    /// As [`piece`](Self::piece), to make a frame of, with the body's digest if that has come so far.
    pub(super) fn piece_to_send(
        &mut self,
        offset: u64,
    ) -> Option<(&mut Piece, Option<&mut BodyDigest>)> {
        let at = self
            .pieces
            .binary_search_by_key(&offset, |piece| piece.offset);
        let piece = self.pieces.get_mut(at.ok()?)?;
        let is_next = piece.offset == self.digest.end;
        if is_next {
            self.digest.end = piece.end();
        }
        let digest = Some(&mut self.digest.body);
        Some((piece, digest.filter(|_| is_next)))
    }

    /// The digest of the body, of which all pieces were made into frames.
    pub(super) fn digest(&self) -> u128 {
        self.digest.body.value()
    }

    /// The peer has everything before `offset`.
    pub(super) fn acked(&mut self, offset: u64) {
        self.is_open = true;
        while let Some(piece) = self.pieces.pop_front_if(|piece| piece.end() <= offset) {
            self.acked = piece.end();
            self.held -= piece.held();
        }
    }

    /// The peer cannot use the piece at `offset`: it goes first, in a form that asks for less. How many bytes are sent again.
    pub(super) fn refused(
        &mut self,
        offset: u64,
        cause: NakCause,
        knowledge: &mut Knowledge,
    ) -> u64 {
        if cause == NakCause::Unopened {
            if offset == u64::MAX {
                if self.is_ended() && !self.queue.contains(&Item::Close) {
                    self.queue.push_back(Item::Close);
                }
            } else {
                self.requeue(offset);
            }
            if self.queue.front() != Some(&Item::Open) {
                self.queue.push_front(Item::Open);
            }
            return 0;
        }
        let Some(piece) = self.piece(offset) else {
            return 0;
        };
        match (&piece.form, cause) {
            (Form::Plain, _) => return 0,
            (Form::Run, NakCause::Order) => {
                let places = piece.chunks.iter().filter_map(|sent| sent.place);
                places.for_each(|place| knowledge.disorder(place.container));
                piece.form = Form::Refs { skip: 0 };
                self.requeue(offset);
                return 0;
            }
            (Form::Literal { base: Some(base) }, _) => {
                (0..base.entries.len()).for_each(|nth| knowledge.remove(base.place.plus(nth)));
            }
            (Form::Refs { .. } | Form::Run, _) => {
                let places = piece.chunks.iter().filter_map(|sent| sent.place);
                places.for_each(|place| knowledge.remove(place));
            }
            // It is on its way as bytes already: the refusal was of an earlier form.
            (Form::Literal { base: None }, _) => return 0,
        }
        piece.spell_out();
        let bytes = piece.length as u64;
        self.requeue(offset);
        bytes
    }

    fn requeue(&mut self, offset: u64) {
        if let Some(piece) = self.piece(offset)
            && !std::mem::replace(&mut piece.waiting, true)
        {
            self.queue.push_front(Item::Piece(offset));
        }
    }

    /// All that was not acknowledged goes again, as bytes; how many.
    pub(super) fn send_again(&mut self) -> u64 {
        self.queue.clear();
        self.opened_long_lane = false;
        if !self.is_open {
            self.queue.push_back(Item::Open);
        }
        let mut again = 0;
        for piece in &mut self.pieces {
            // What was let go is named again: its names are nothing beside its bytes.
            if piece.raw().is_some() {
                again += if piece.waiting {
                    0
                } else {
                    piece.length as u64
                };
                piece.spell_out();
            }
            piece.waiting = true;
            self.queue.push_back(Item::Piece(piece.offset));
        }
        self.queue.extend(self.is_ended().then_some(Item::Close));
        again
    }
}

/// The body's digest, made as its bytes are at hand.
#[derive(Debug, Default)]
pub(super) struct Digested {
    body: BodyDigest,
    /// Up to where it was made.
    end: u64,
}

impl Digested {
    /// Bytes of which no frame's checksum is made, at this place in the body. What lies before them may have to wait for its frame.
    pub(super) fn see(&mut self, offset: u64, bytes: &[u8]) {
        if let Some(rest) = self.new_of(offset, bytes) {
            self.body.update(rest);
            self.end += rest.len() as u64;
        }
    }

    /// As [`see`](Self::see), of bytes that are seen again with more after them: as many as that takes no copy of.
    pub(super) fn foresee(&mut self, offset: u64, bytes: &[u8]) {
        if let Some(rest) = self.new_of(offset, bytes) {
            self.end += self.body.update_whole(rest) as u64;
        }
    }

    /// Whether the chunk is the one that was marked. `bytes`, at their place in the body, end with it; none where the digest is to wait for a frame.
    /// What is digested along with it is to be [taken](Self::take), unless the chunk turns out to be none for another reason.
    pub(super) fn recognises(
        &self,
        ids: &IdKey,
        mark: Option<Mark>,
        chunk: &[u8],
        bytes: Option<(u64, &[u8])>,
    ) -> Option<Along> {
        let unseen = bytes.and_then(|(offset, bytes)| self.new_of(offset, bytes));
        match unseen.and_then(|unseen| self.body.offer(unseen)) {
            Some((sums, blocks)) => {
                let sums = ids.recognises_along(mark, chunk, sums, blocks)?;
                Some(Along(Some((sums, blocks.len()))))
            }
            None => ids.recognises(mark, chunk).then_some(Along(None)),
        }
    }

    /// What was digested along with a chunk counts.
    pub(super) fn take(&mut self, along: Along) {
        if let Some((sums, blocks)) = along.0 {
            self.end += self.body.accept(sums, blocks) as u64;
        }
    }

    /// Those that were not seen.
    fn new_of<'b>(&self, offset: u64, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let behind = self.end.checked_sub(offset)?;
        bytes.get(usize::try_from(behind).ok()?..)
    }
}

/// What was digested along with a chunk: sums with so many blocks more.
pub(super) struct Along(Option<(Sums, usize)>);

/// What is done once a body that is stalled goes on; the last includes those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    Nothing,
    Flush,
    Close,
}

/// Whether a chunk that is awaited may be given time to become whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// There may be more.
    Awaits,
    /// What there is shall leave.
    Ended,
}

/// A request or a short response; and as much as is looked at while a second-level cache has it.
const APPETITE_MIN: usize = 16 << 10;
const APPETITE_MAX: usize = 256 << 10;
