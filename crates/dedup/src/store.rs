//! Where chunks are kept, as the two machines see it.
//!
//! Chunks lie in containers in the order in which they were stored, which is the order of the bodies they come from. So
//! what follows a chunk in its container is what followed it in a body: that is what makes runs worth naming, and
//! neighbours worth compressing against. Whoever keeps them, in files or in memory, implements [`ChunkStore`]; that
//! something is not there, or cannot be read, is the same to the machines.

use crate::id::{ChunkId, IdKey};

/// Where a chunk lies: the container, and how many chunks lie before it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Containers are numbered as they are made. No number is used twice within an epoch.
    pub container: u32,
    /// The chunk's position in it, from 0.
    pub slot: u16,
}

impl Place {
    /// So many chunks further in the container.
    #[must_use]
    pub fn plus(self, chunks: usize) -> Self {
        let chunks = u16::try_from(chunks).unwrap_or(u16::MAX);
        Self {
            slot: self.slot.saturating_add(chunks),
            ..self
        }
    }
}

/// A chunk, as its container lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub id: ChunkId,
    /// Its bytes.
    pub length: u32,
}

/// Keeps chunks by name.
pub trait ChunkStore {
    /// A random number that the store drew when it was made, and draws again when it lost what it had.
    fn epoch(&self) -> u64;

    /// Where a chunk of this name lies.
    fn locate(&mut self, id: &ChunkId) -> Option<Place>;

    /// Appends what lies at `place` and after it in the same container, `most` chunks at most.
    fn entries(&mut self, place: Place, most: usize, out: &mut Vec<Entry>);

    /// Appends the bytes of `entries`, which lie from `place` on. False, with `out` as it was, if they do not. They are as the
    /// store has them: whoever uses them hashes them, as [`load_verified`] does.
    fn load(&mut self, place: Place, entries: &[Entry], out: &mut Vec<u8>) -> bool;

    /// Keeps a chunk; where it lies. A name that is there already is not stored again. `None` if it could not be kept.
    fn insert(&mut self, id: ChunkId, chunk: &[u8]) -> Option<Place>;

    /// What lies here is not what its name says: it shall not be found again.
    fn forget(&mut self, place: Place);
}

/// As [`ChunkStore::load`], and each chunk has the bytes its name was made of. One that has not is forgotten.
pub fn load_verified(
    store: &mut impl ChunkStore,
    ids: &IdKey,
    place: Place,
    entries: &[Entry],
    out: &mut Vec<u8>,
) -> bool {
    let start = out.len();
    if !store.load(place, entries, out) {
        return false;
    }
    let mut at = start;
    for (nth, entry) in entries.iter().enumerate() {
        let end = at + entry.length as usize;
        if out
            .get(at..end)
            .is_none_or(|chunk| ids.id(chunk) != entry.id)
        {
            store.forget(place.plus(nth));
            out.truncate(start);
            return false;
        }
        at = end;
    }
    true
}
