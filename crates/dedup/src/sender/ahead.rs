//! Predicts the next chunk of a body that was stored before: the chunk that followed the last one in its container.
//!
//! If the bytes match the [fingerprint](crate::mark) of the predicted chunk, the chunk need not be cut, hashed or
//! looked up. If they do not match, all three steps are done as usual; only the comparison was in vain.

use crate::chunker::Chunker;
use crate::store::{ChunkStore, Familiar, Place};
use crate::wire::CHUNKS_MAX;

use super::piece::{Finder, Sent};
use super::stream::Digested;

/// Predicts consecutive chunks of one container.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// The location of the predicted chunk; `None` without a prediction.
    place: Option<Place>,
    /// The entries from that location on, once the store was read; the first `passed` are behind it.
    familiar: Vec<Familiar>,
    passed: usize,
}

/// Bytes of a body, and where the next chunk starts in them.
pub(super) struct Look<'a> {
    pub(super) raw: &'a [u8],
    pub(super) at: usize,
    /// The offset of `raw` in the body, if all these bytes are sent as references.
    pub(super) offset: Option<u64>,
}

/// The result of comparing bytes with the predicted chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreseen {
    /// The bytes start with this chunk.
    Chunk(Sent),
    /// More bytes are needed to compare.
    Later,
    /// No chunk was predicted, or the bytes differ.
    Nothing,
}

impl Ahead {
    /// Records a chunk that was found in the body: the next one is predicted.
    pub(super) fn saw(&mut self, place: Place) {
        if self.place == Some(place) {
            self.passed += 1;
        } else {
            self.familiar.clear();
            self.passed = 0;
        }
        self.place = Some(place.plus(1));
    }

    /// Discards the prediction, because another chunk was found.
    pub(super) fn lost(&mut self) {
        self.place = None;
        self.familiar.clear();
    }

    /// Returns true if a chunk is predicted.
    pub(super) fn awaits(&self) -> bool {
        self.place.is_some()
    }

    /// Compares the bytes with the predicted chunk.
    pub(super) fn look<S: ChunkStore>(
        &mut self,
        here: &Look<'_>,
        digest: &mut Digested,
        chunker: &Chunker,
        finder: &mut Finder<'_, S>,
    ) -> Foreseen {
        let Some((place, known)) = self.next(finder) else {
            self.lost();
            return Foreseen::Nothing;
        };
        let Familiar { entry, mark } = known;
        let length = entry.length as usize;
        if mark.is_none() || length > chunker.params().max() {
            return Foreseen::Nothing;
        }
        let Some(bytes) = here.raw.get(..here.at + length) else {
            return Foreseen::Later;
        };
        let chunk = &bytes[here.at..];
        let named = here.offset.filter(|_| finder.knowledge.has(place));
        let named = named.map(|offset| (offset, bytes));
        let recognised = digest.recognises(finder.ids, mark, chunk, named);
        let Some(along) = recognised.filter(|_| chunker.may_end(chunk)) else {
            self.lost();
            return Foreseen::Nothing;
        };
        digest.take(along);
        self.saw(place);
        Foreseen::Chunk(Sent {
            id: entry.id,
            length: entry.length,
            place: Some(place),
        })
    }

    /// Returns the predicted chunk and its location.
    fn next<S: ChunkStore>(&mut self, finder: &mut Finder<'_, S>) -> Option<(Place, Familiar)> {
        let place = self.place?;
        if let Some(&known) = self.familiar.get(self.passed) {
            return Some((place, known));
        }
        // At the end of a container the body continues in the next one.
        let after = Place {
            container: place.container.wrapping_add(1),
            slot: 0,
        };
        for place in [place, after] {
            (self.place, self.passed) = (Some(place), 0);
            self.familiar.clear();
            finder.store.familiar(place, CHUNKS_MAX, &mut self.familiar);
            if let Some(&known) = self.familiar.first() {
                return Some((place, known));
            }
        }
        None
    }
}
