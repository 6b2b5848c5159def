//! One body on its way in: pieces are put in order, delivered, and cut into chunks.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::Violation;
use crate::id::{BodyDigest, IdKey, together};
use crate::knowledge::Knowledge;
use crate::sender::TAIL_BYTES_MIN;
use crate::store::ChunkStore;
use crate::wire::{PIECE_BYTES_MAX, StreamId};

/// A piece whose bytes are there.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) bytes: Bytes,
    pub(super) kind: Kind,
}

/// What becomes of a piece's bytes beside being delivered.
#[derive(Debug)]
pub(super) enum Kind {
    /// Nothing.
    Plain,
    /// They are cut into chunks, and kept.
    Chunks { cuts: Vec<u32> },
    /// They are of chunks that are kept already. `prefix` is what the first has of earlier pieces.
    Kept { prefix: Vec<u8> },
}

#[derive(Debug)]
pub(super) struct Incoming {
    /// Delivered up to here.
    pub(super) next: u64,
    /// It may be sent up to here.
    pub(super) limit: u64,
    /// Taken by who uses it up to here.
    pub(super) taken: u64,
    /// Length and digest, once CLOSE came.
    pub(super) close: Option<(u64, u128)>,
    /// Delivered and not taken.
    pub(super) ready: VecDeque<Bytes>,
    /// How it ended: well, or with a reason.
    pub(super) end: Option<Result<(), u32>>,
    /// Who uses it was told that there is something to take.
    pub(super) told: bool,
    early: BTreeMap<u64, Arrived>,
    early_bytes: u64,
    /// The chunk that no cut has ended yet.
    open: Vec<u8>,
    digest: BodyDigest,
}

impl Incoming {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            next: 0,
            limit,
            taken: 0,
            close: None,
            ready: VecDeque::new(),
            end: None,
            told: false,
            early: BTreeMap::new(),
            early_bytes: 0,
            open: Vec::new(),
            digest: BodyDigest::default(),
        }
    }

    /// What the sender may still have here without anybody taking anything.
    pub(super) fn granted(&self) -> u64 {
        self.limit - self.taken
    }

    /// Whether a piece like this is here already.
    pub(super) fn has(&self, offset: u64, end: u64) -> bool {
        let early = self.early.get(&offset);
        end <= self.next || early.is_some_and(|early| offset + early.bytes.len() as u64 == end)
    }

    /// Takes a piece. `Err(Some(offset))`: that piece cannot be used after all, and must come as bytes.
    pub(super) fn arrive<S: ChunkStore>(
        &mut self,
        stream: StreamId,
        offset: u64,
        piece: Arrived,
        keeper: &mut Keeper<'_, S>,
    ) -> Result<Option<u64>, Violation> {
        if offset > self.next {
            self.early_bytes += piece.bytes.len() as u64;
            if let Some(before) = self.early.insert(offset, piece) {
                self.early_bytes -= before.bytes.len() as u64;
            }
            // Pieces that do not overlap fit between what was delivered and the credit's end.
            let overlap = self.early_bytes > self.limit - self.next;
            return if overlap {
                Err(Violation::Overlap(stream))
            } else {
                Ok(None)
            };
        }
        if let Some(refused) = self.deliver(stream, offset, piece, keeper)? {
            return Ok(Some(refused));
        }
        while let Some(early) = self.early.first_entry()
            && *early.key() <= self.next
        {
            let (offset, piece) = early.remove_entry();
            self.early_bytes -= piece.bytes.len() as u64;
            if let Some(refused) = self.deliver(stream, offset, piece, keeper)? {
                return Ok(Some(refused));
            }
        }
        Ok(None)
    }

    /// The next bytes of the body, of which some may have been delivered before.
    fn deliver<S: ChunkStore>(
        &mut self,
        stream: StreamId,
        offset: u64,
        piece: Arrived,
        keeper: &mut Keeper<'_, S>,
    ) -> Result<Option<u64>, Violation> {
        let end = offset + piece.bytes.len() as u64;
        if end <= self.next {
            return Ok(None);
        }
        if offset < self.next {
            // Senders cut a body into pieces once and for all.
            return Err(Violation::Overlap(stream));
        }
        match &piece.kind {
            Kind::Plain => self.open.clear(),
            // The chunk named is not the one that began here: two chunks of one name.
            Kind::Kept { prefix } if *prefix != self.open => return Ok(Some(offset)),
            Kind::Kept { .. } => self.open.clear(),
            Kind::Chunks { cuts } => self.keep(stream, &piece.bytes, cuts, keeper)?,
        }
        self.digest.update(&piece.bytes);
        self.next = end;
        self.ready.push_back(piece.bytes);
        Ok(None)
    }

    fn keep<S: ChunkStore>(
        &mut self,
        stream: StreamId,
        bytes: &[u8],
        cuts: &[u32],
        keeper: &mut Keeper<'_, S>,
    ) -> Result<(), Violation> {
        let mut chunks = Vec::with_capacity(cuts.len());
        let (mut rest, mut begun) = (bytes, self.open.len());
        for &cut in cuts {
            let missing = (cut as usize).checked_sub(begun);
            let split = missing.and_then(|missing| rest.split_at_checked(missing));
            let (chunk, later) = split.ok_or(Violation::Cut(stream))?;
            chunks.push(chunk);
            (rest, begun) = (later, 0);
        }
        if begun + rest.len() > PIECE_BYTES_MAX {
            return Err(Violation::Cut(stream));
        }
        if let Some(first) = chunks.first_mut() {
            if !self.open.is_empty() {
                self.open.extend_from_slice(first);
                *first = &self.open;
            }
            keeper.keep(&chunks);
            self.open.clear();
        }
        self.open.extend_from_slice(rest);
        Ok(())
    }

    /// Whether the body is whole, and if so how it ended.
    pub(super) fn settle<S: ChunkStore>(&mut self, keeper: &mut Keeper<'_, S>) {
        let Some((length, digest)) = self.close else {
            return;
        };
        if self.end.is_some() || self.next < length {
            return;
        }
        let outcome = if self.next > length {
            Err(crate::reason::LENGTH)
        } else if self.digest.value() != digest {
            Err(crate::reason::DIGEST)
        } else {
            if self.open.len() >= TAIL_BYTES_MIN {
                keeper.keep(&[&self.open]);
            }
            Ok(())
        };
        self.finish(outcome);
    }

    /// It ended; what is of no use any more is freed.
    pub(super) fn finish(&mut self, outcome: Result<(), u32>) {
        self.end = Some(outcome);
        self.early.clear();
        self.open = Vec::new();
        if outcome.is_err() {
            self.ready.clear();
        }
    }
}

/// Keeps chunks that came from the peer.
pub(super) struct Keeper<'a, S> {
    pub(super) store: &'a mut S,
    pub(super) knowledge: &'a mut Knowledge,
    pub(super) ids: &'a IdKey,
}

impl<S: ChunkStore> Keeper<'_, S> {
    fn keep(&mut self, chunks: &[&[u8]]) {
        for group in together(chunks) {
            let ids = self.ids.ids(group);
            self.store.expect(&ids);
            for (id, chunk) in ids.into_iter().zip(group) {
                if let Some(place) = self.store.insert(id, chunk) {
                    self.knowledge.add(place);
                }
            }
        }
    }
}
