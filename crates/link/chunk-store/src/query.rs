//! The queries that requests consist of. [`Chunks`](crate::Chunks) answers them and may block on its device;
//! [`NonBlocking`](crate::NonBlocking) answers them only from memory.

use edgeward_dedup::fingerprint::ChunkFingerprint;
use edgeward_dedup::id::{ChunkId, IdKey};
use edgeward_dedup::store::{ChunkLocation, Entry, Row};

/// A chunk with its fingerprint. Fingerprints are valid only within one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FingerprintedEntry {
    /// The chunk as its container lists it.
    pub entry: Entry,
    /// The fingerprint, or `None` if the chunk can only be recognised by its hash.
    pub fingerprint: Option<ChunkFingerprint>,
}

/// Stores chunks by hash.
pub trait ChunkStore {
    /// Returns a random number, which the store draws when it is created and again whenever it has lost its chunks.
    fn epoch(&self) -> u64;

    /// Returns the location of the chunk with this hash, or `None` if the chunk is not found.
    fn locate(&mut self, id: &ChunkId) -> Option<ChunkLocation>;

    /// Appends the entries at `location` and after it in the same container, at most `chunks_max` entries.
    fn entries(&mut self, location: ChunkLocation, chunks_max: usize, out: &mut Vec<Entry>);

    /// Reads the bytes of `entries` into `out`. The chunks lie one after another from `location` on, and `out`
    /// has their total length. Returns false if the chunks are not there; the content of `out` is then
    /// undefined. The function does not verify the bytes: the caller must hash them, as [`load_verified`] does.
    fn load(&mut self, location: ChunkLocation, entries: &[Entry], out: &mut [u8]) -> bool;

    /// Stores a chunk and returns its location, or `None` if it could not be stored. A chunk that is already stored
    /// is not stored again.
    fn insert(&mut self, id: ChunkId, chunk: &[u8]) -> Option<ChunkLocation>;

    /// Returns true if a lookup needs a read from the device. A non-blocking store does not wait for its device: it
    /// reports the chunk as not found, adds the read to a list, and returns true here while the list is not empty.
    /// The caller lets a thread perform the reads and then repeats the lookup. [`insert`](Self::insert) never adds a
    /// read. A blocking store always returns `false`.
    fn has_pending_reads(&self) -> bool {
        false
    }

    /// Like [`insert`](Self::insert), and also returns true if the chunk was already stored. If the lookup
    /// needs a read from the device, the chunk is not stored and the location is `None`.
    fn find_or_insert(&mut self, id: ChunkId, chunk: &[u8]) -> (Option<ChunkLocation>, bool);

    /// Like [`find_or_insert`](Self::find_or_insert), but stores only the entry of the chunk, not its bytes. A
    /// sender needs only entries to send references. The chunk cannot be loaded until [`insert`](Self::insert)
    /// has stored its bytes.
    fn find_or_list(&mut self, entry: Entry) -> (Option<ChunkLocation>, bool);

    /// Returns the chunks from a location to the end of its container, or `None` if there is no chunk.
    fn row(&mut self, location: ChunkLocation) -> Option<Row>;

    /// Returns true if the store has the bytes of this chunk, and not only its entry.
    fn has_bytes(&mut self, location: ChunkLocation) -> bool;

    /// Returns true if the store has the bytes of `chunks` chunks from `location` on, and will not overwrite them
    /// soon. The sender then need not keep these bytes in memory until the peer has acknowledged them. The function
    /// never reads from the device: if it does not have the information in memory, it returns false.
    fn is_retained(&mut self, location: ChunkLocation, chunks: usize) -> bool {
        _ = (location, chunks);
        false
    }

    /// Appends the entries at `location` and after it in the same container, at most `chunks_max` entries, each
    /// with the fingerprint that was [set](Self::set_fingerprint) for it. A store that keeps no fingerprints
    /// appends no entries.
    fn entries_with_fingerprints(
        &mut self,
        location: ChunkLocation,
        chunks_max: usize,
        out: &mut Vec<FingerprintedEntry>,
    ) {
        _ = (location, chunks_max, out);
    }

    /// Stores the fingerprint of the chunk with this hash at this location. The function `fingerprint` computes the
    /// fingerprint; it is not called if the chunk already has one, or if fingerprints cannot be stored. The store may
    /// lose fingerprints at any time.
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

/// Like [`ChunkStore::load`], and verifies the bytes of each chunk by its fingerprint. If the chunk has no
/// matching fingerprint, its hash decides. Returns false if a chunk is not valid. The store
/// [forgets](ChunkStore::forget) all invalid chunks, not only the first one: if one location is corrupt, the next
/// locations often are too.
pub fn load_verified(
    store: &mut impl ChunkStore,
    id_key: &IdKey,
    location: ChunkLocation,
    entries: &[Entry],
    out: &mut [u8],
) -> bool {
    if !store.load(location, entries, out) {
        return false;
    }
    let mut fingerprinted = Vec::new();
    store.entries_with_fingerprints(location, entries.len(), &mut fingerprinted);
    let mut all_valid = true;
    let mut rest = &*out;
    for (nth, entry) in entries.iter().enumerate() {
        let Some((chunk, later)) = rest.split_at_checked(entry.length as usize) else {
            return false;
        };
        let fingerprint = fingerprinted
            .get(nth)
            .filter(|listed| listed.entry == *entry);
        let fingerprint = fingerprint.and_then(|listed| listed.fingerprint);
        if !id_key.matches_fingerprint(fingerprint, chunk) {
            let location = location.plus(nth);
            if id_key.id(chunk) == entry.id {
                store.set_fingerprint(location, &entry.id, || id_key.fingerprint(chunk));
            } else {
                store.forget(location);
                all_valid = false;
            }
        }
        rest = later;
    }
    all_valid && rest.is_empty()
}
