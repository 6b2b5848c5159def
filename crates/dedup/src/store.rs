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

    /// The bytes of `entries`, which lie from `place` on, into `out`, which is as long as they are. False if they do not, and then
    /// what is in `out` means nothing. They are as the store has them: whoever uses them hashes them, as [`load_verified`] does.
    fn load(&mut self, place: Place, entries: &[Entry], out: &mut [u8]) -> bool;

    /// Keeps a chunk; where it lies. A name that is there already is not stored again. `None` if it could not be kept.
    fn insert(&mut self, id: ChunkId, chunk: &[u8]) -> Option<Place>;

    /// As [`insert`](Self::insert), and whether it was there before.
    fn find_or_insert(&mut self, id: ChunkId, chunk: &[u8]) -> (Option<Place>, bool) {
        match self.locate(&id) {
            Some(place) => (Some(place), true),
            None => (self.insert(id, chunk), false),
        }
    }

    /// What lies here is not what its name says: it shall not be found again.
    fn forget(&mut self, place: Place);
}

/// As [`ChunkStore::load`], and each chunk has the bytes its name was made of. One that has not is forgotten.
pub fn load_verified(
    store: &mut impl ChunkStore,
    ids: &IdKey,
    place: Place,
    entries: &[Entry],
    out: &mut [u8],
) -> bool {
    if !store.load(place, entries, out) {
        return false;
    }
    let mut rest = &*out;
    for (nth, entry) in entries.iter().enumerate() {
        let chunk = rest.split_at_checked(entry.length as usize);
        let Some((_, later)) = chunk.filter(|(chunk, _)| ids.id(chunk) == entry.id) else {
            store.forget(place.plus(nth));
            return false;
        };
        rest = later;
    }
    rest.is_empty()
}

/// Bytes of these together.
pub fn bytes_of(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.length as usize).sum()
}
