//! Where chunks are kept, as the two machines see it.
//!
//! Chunks lie in containers in the order in which they were stored, which is the order of the bodies they come from. So
//! what follows a chunk in its container is what followed it in a body: that is what makes runs worth naming, and
//! neighbours worth compressing against. Whoever keeps them, in files or in memory, implements [`ChunkStore`]; that
//! something is not there, or cannot be read, is the same to the machines.

use crate::id::{ChunkId, IdKey};
use crate::mark::Mark;

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

/// A chunk, and what it is known by in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Familiar {
    /// As its container lists it.
    pub entry: Entry,
    /// None: it has to be named to be known.
    pub mark: Option<Mark>,
}

/// Keeps chunks by name.
pub trait ChunkStore {
    /// A random number that the store drew when it was made, and draws again when it lost what it had.
    fn epoch(&self) -> u64;

    /// Chunks of these names come next: what tells where they lie may be on its way out of memory by then.
    fn expect(&mut self, ids: &[ChunkId]) {
        _ = ids;
    }

    /// Where a chunk of this name lies.
    fn locate(&mut self, id: &ChunkId) -> Option<Place>;

    /// Appends what lies at `place` and after it in the same container, `most` chunks at most.
    fn entries(&mut self, place: Place, most: usize, out: &mut Vec<Entry>);

    /// The bytes of `entries`, which lie from `place` on, into `out`, which is as long as they are. False if they do not, and then
    /// what is in `out` means nothing. They are as the store has them: whoever uses them hashes them, as [`load_verified`] does.
    fn load(&mut self, place: Place, entries: &[Entry], out: &mut [u8]) -> bool;

    /// Keeps a chunk; where it lies. One that is kept already is not stored again. `None` if it could not be kept.
    fn insert(&mut self, id: ChunkId, chunk: &[u8]) -> Option<Place>;

    /// Whether an answer is owed: where a device would have to be waited for, a store may say that it finds nothing, and then says so
    /// here until whoever uses it has seen to that. It never owes the answer to [`insert`](Self::insert). One that waits owes none.
    fn has_pending_reads(&self) -> bool {
        false
    }

    /// As [`insert`](Self::insert), and whether it was kept before. An answer may be owed, and then nothing is kept; so with the next.
    fn find_or_insert(&mut self, id: ChunkId, chunk: &[u8]) -> (Option<Place>, bool);

    /// As [`find_or_insert`](Self::find_or_insert), of a chunk whose bytes nobody will ask for: that it was here, and what came before and after
    /// it, is all a sender has to know to name it. It may be loaded no more than if it were lost, until it is inserted.
    fn find_or_list(&mut self, entry: Entry) -> (Option<Place>, bool);

    /// Whether the chunk that lies here is kept, and not only listed.
    fn is_kept(&mut self, place: Place) -> bool;

    /// Whether the bytes of so many chunks from here on are kept, and will be for long after the peer has answered what is sent now: then
    /// nobody else has to hold them until then. Never owed: what takes a look at the device is no.
    fn stays(&mut self, place: Place, chunks: usize) -> bool {
        _ = (place, chunks);
        false
    }

    /// Appends what lies at `place` and after it in the same container, `most` chunks at most, each with the mark that was
    /// [noted](Self::note) for it. A store that keeps no marks appends nothing.
    fn familiar(&mut self, place: Place, most: usize, out: &mut Vec<Familiar>) {
        _ = (place, most, out);
    }

    /// The chunk of this name, which lies here, is known by what `mark` says, if anything, from now on. Not asked where a mark is known already or none can be
    /// kept; they may be lost at any time.
    fn note(&mut self, place: Place, id: &ChunkId, mark: impl FnOnce() -> Option<Mark>) {
        _ = (place, id, mark);
    }

    /// What lies here is not what its name says: it shall not be found again.
    fn forget(&mut self, place: Place);
}

/// As [`ChunkStore::load`], and each chunk has the bytes its name was made of, by the name or by a mark that was noted when the name was
/// made last. Those that have not are forgotten, all of them: a store that is harmed in one place is often harmed in the next.
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
    let mut familiar = Vec::new();
    store.familiar(place, entries.len(), &mut familiar);
    // What no mark tells of is named, all of it together.
    let (mut unmarked, mut chunks) = (Vec::new(), Vec::new());
    let mut rest = &*out;
    for (nth, entry) in entries.iter().enumerate() {
        let Some((chunk, later)) = rest.split_at_checked(entry.length as usize) else {
            return false;
        };
        let mark = familiar.get(nth).filter(|known| known.entry == *entry);
        let mark = mark.and_then(|known| known.mark);
        if !ids.recognises(mark, chunk) {
            unmarked.push((place.plus(nth), entry.id));
            chunks.push(chunk);
        }
        rest = later;
    }
    let mut are_right = rest.is_empty();
    for ((place, id), (found, chunk)) in unmarked.iter().zip(ids.each_id(&chunks)) {
        if found == *id {
            store.note(*place, id, || ids.mark(chunk));
        } else {
            store.forget(*place);
            are_right = false;
        }
    }
    are_right
}

/// Bytes of these together.
pub fn bytes_of(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.length as usize).sum()
}
