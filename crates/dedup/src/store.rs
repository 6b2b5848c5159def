//! The interface to a chunk store, as the sender and the receiver see it.
//!
//! Chunks lie in containers in the order in which they were stored, which is the order in the bodies they come
//! from. The chunks after a chunk in its container are therefore those that followed it in a body. This makes runs
//! worth a reference of their own, and makes neighbours good dictionaries for compression. A store in files or in
//! memory implements [`ChunkStore`]. A missing chunk and an unreadable one are the same to the sender and the
//! receiver.

use crate::fingerprint::ChunkFingerprint;
use crate::id::{ChunkId, IdKey};

/// The location of a chunk: its container, and the number of chunks before it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkLocation {
    /// The number of the container. Containers are numbered in order of creation; no number is used twice within an
    /// epoch.
    pub container: u32,
    /// The index of the chunk in the container, from 0.
    pub slot: u16,
}

impl ChunkLocation {
    /// Returns the location this many chunks further in the container.
    #[must_use]
    pub fn plus(self, chunks: usize) -> Self {
        let chunks = u16::try_from(chunks).unwrap_or(u16::MAX);
        Self {
            slot: self.slot.saturating_add(chunks),
            ..self
        }
    }
}

/// A chunk as its container lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The hash of the chunk.
    pub id: ChunkId,
    /// The length of the chunk in bytes.
    pub length: u32,
}

/// A chunk with its fingerprint in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FingerprintedEntry {
    /// The chunk as its container lists it.
    pub entry: Entry,
    /// The fingerprint, or `None` if the chunk can only be recognised by its hash.
    pub fingerprint: Option<ChunkFingerprint>,
}

/// Stores chunks by hash.
pub trait ChunkStore {
    /// Returns a random number drawn when the store was created, and again whenever it lost its chunks.
    fn epoch(&self) -> u64;

    /// Announces that these chunks will be looked up next, so that the store can prefetch their index entries into
    /// the processor's cache.
    fn prefetch(&mut self, ids: &[ChunkId]) {
        _ = ids;
    }

    /// Returns the location of the chunk with this hash.
    fn locate(&mut self, id: &ChunkId) -> Option<ChunkLocation>;

    /// Appends the entries at `location` and after it in the same container, at most `most`.
    fn entries(&mut self, location: ChunkLocation, most: usize, out: &mut Vec<Entry>);

    /// Reads the bytes of `entries`, which lie from `location` on, into `out`, which has exactly their length.
    /// Returns false if the chunks are not there; the content of `out` is then undefined. The bytes are not
    /// verified: the caller hashes them, as [`load_verified`] does.
    fn load(&mut self, location: ChunkLocation, entries: &[Entry], out: &mut [u8]) -> bool;

    /// Stores a chunk and returns its location, or `None` if it could not be stored. A chunk that is already stored
    /// is not stored again.
    fn insert(&mut self, id: ChunkId, chunk: &[u8]) -> Option<ChunkLocation>;

    /// Returns true if an answer needs a read from the device. A non-blocking store answers "not found" instead of
    /// waiting for its device, and returns true here until the caller has performed the read.
    /// [`insert`](Self::insert) never needs a read. A blocking store always returns `false`.
    fn has_pending_reads(&self) -> bool {
        false
    }

    /// Like [`insert`](Self::insert), and returns whether the chunk was already stored. If a read is pending, the
    /// chunk is not stored. The same holds for the next function.
    fn find_or_insert(&mut self, id: ChunkId, chunk: &[u8]) -> (Option<ChunkLocation>, bool);

    /// Like [`find_or_insert`](Self::find_or_insert), for a chunk whose bytes will not be requested: its entry is
    /// stored without them. The entry and its neighbours are all a sender needs to send references. Until the chunk
    /// is inserted, it can no more be loaded than a lost chunk.
    fn find_or_list(&mut self, entry: Entry) -> (Option<ChunkLocation>, bool);

    /// Returns true if the store has the bytes of this chunk, and not only its entry.
    fn has_bytes(&mut self, location: ChunkLocation) -> bool;

    /// Returns true if the store has the bytes of this many chunks from here on, and will keep them long after the
    /// peer has answered the current frames. The sender then does not have to keep them in memory. If the answer
    /// needs a read from the device, it is false; no read becomes pending.
    fn is_retained(&mut self, location: ChunkLocation, chunks: usize) -> bool {
        _ = (location, chunks);
        false
    }

    /// Appends the entries at `location` and after it in the same container, at most `most`, each with the
    /// fingerprint that was [set](Self::set_fingerprint) for it. A store that keeps no fingerprints appends
    /// nothing.
    fn entries_with_fingerprints(
        &mut self,
        location: ChunkLocation,
        most: usize,
        out: &mut Vec<FingerprintedEntry>,
    ) {
        _ = (location, most, out);
    }

    /// Stores the fingerprint that `fingerprint` computes for the chunk with this hash at this location.
    /// `fingerprint` is not called if the chunk already has a fingerprint, or if fingerprints cannot be stored.
    /// Fingerprints may be lost at any time.
    fn set_fingerprint(
        &mut self,
        location: ChunkLocation,
        id: &ChunkId,
        fingerprint: impl FnOnce() -> Option<ChunkFingerprint>,
    ) {
        _ = (location, id, fingerprint);
    }

    /// Removes a chunk whose bytes do not match its hash, so that it is not found again.
    fn forget(&mut self, location: ChunkLocation);
}

/// Like [`ChunkStore::load`], and verifies the bytes of each chunk by its fingerprint, or by its hash if it has
/// none. All chunks that do not match are forgotten, because a store that is corrupt in one location is often
/// corrupt in the next.
pub fn load_verified(
    store: &mut impl ChunkStore,
    ids: &IdKey,
    location: ChunkLocation,
    entries: &[Entry],
    out: &mut [u8],
) -> bool {
    if !store.load(location, entries, out) {
        return false;
    }
    let mut familiar = Vec::new();
    store.entries_with_fingerprints(location, entries.len(), &mut familiar);
    // Chunks without a matching fingerprint are hashed together.
    let (mut unverified, mut chunks) = (Vec::new(), Vec::new());
    let mut rest = &*out;
    for (nth, entry) in entries.iter().enumerate() {
        let Some((chunk, later)) = rest.split_at_checked(entry.length as usize) else {
            return false;
        };
        let fingerprint = familiar.get(nth).filter(|known| known.entry == *entry);
        let fingerprint = fingerprint.and_then(|known| known.fingerprint);
        if !ids.matches_fingerprint(fingerprint, chunk) {
            unverified.push((location.plus(nth), entry.id));
            chunks.push(chunk);
        }
        rest = later;
    }
    let mut are_right = rest.is_empty();
    for ((location, id), (found, chunk)) in unverified.iter().zip(ids.each_id(&chunks)) {
        if found == *id {
            store.set_fingerprint(*location, id, || ids.fingerprint(chunk));
        } else {
            store.forget(*location);
            are_right = false;
        }
    }
    are_right
}

/// Returns the total length of these chunks.
pub fn bytes_of(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.length as usize).sum()
}
