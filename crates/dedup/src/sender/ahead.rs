//! What will probably come next in a body that was seen before: what followed its last chunk when that was stored.
//!
//! Where the bytes bear it out, by the [mark](crate::mark) of the chunk that is awaited, the chunk need not be cut, named or looked up. Where
//! they do not, all of that is done, and nothing was lost but a look at the place where the chunk would end.

use crate::chunker::Chunker;
use crate::store::{ChunkStore, Familiar, Place};
use crate::wire::CHUNKS_MAX;

use super::piece::{Finder, Sent};
use super::stream::Digested;

/// Chunks of one container that are awaited one after the other.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Where the next one lies; none if nothing is awaited.
    place: Option<Place>,
    /// From that place on, once the store was asked; the first `passed` lie behind.
    familiar: Vec<Familiar>,
    passed: usize,
}

/// Bytes of a body, some way into which a chunk begins.
pub(super) struct Look<'a> {
    pub(super) raw: &'a [u8],
    pub(super) at: usize,
    /// Where they begin in the body, if they are all to be named.
    pub(super) offset: Option<u64>,
}

/// Whether bytes begin with what was awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreseen {
    /// They do, with this chunk.
    Chunk(Sent),
    /// That cannot be told before there are more.
    Later,
    /// Nothing was, or it is something else.
    Nothing,
}

impl Ahead {
    /// The chunk here was seen.
    pub(super) fn saw(&mut self, place: Place) {
        if self.place == Some(place) {
            self.passed += 1;
        } else {
            self.familiar.clear();
            self.passed = 0;
        }
        self.place = Some(place.plus(1));
    }

    /// Something else came.
    pub(super) fn lost(&mut self) {
        self.place = None;
        self.familiar.clear();
    }

    /// Whether something is awaited.
    pub(super) fn awaits(&self) -> bool {
        self.place.is_some()
    }

    /// Whether the chunk that begins here is the one that is awaited.
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

    /// What is awaited, and where it lies.
    fn next<S: ChunkStore>(&mut self, finder: &mut Finder<'_, S>) -> Option<(Place, Familiar)> {
        let place = self.place?;
        if let Some(&known) = self.familiar.get(self.passed) {
            return Some((place, known));
        }
        // A body goes on in the next container.
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
