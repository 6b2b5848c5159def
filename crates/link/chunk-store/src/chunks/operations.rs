//! The queries of the store: they look up, load and add chunks. [`Wait`] selects whether a query may wait for the
//! device. The functions of [`Chunks`] always may.
//!
//! The trailer of a container has an entry for each chunk: its hash and length. A chunk is only *listed* if the
//! container has the entry without the chunk's bytes. A `listing` is a trailer in memory.

use edgeward_dedup::fingerprint::ChunkFingerprint;
use edgeward_dedup::id::{ChunkId, IdKey};
use edgeward_dedup::store::{ChunkLocation, Entry, Row, RowChunk, bytes_of};

use crate::access::{Reads, Unread, Wait};
use crate::requests::WouldBlock;

use super::{Chunks, Shared, State};

impl Shared {
    /// Returns the location of a chunk. If the chunk has several locations, prefers a location with its bytes.
    pub(crate) fn locate(
        &self,
        id: &ChunkId,
        wait: Wait,
    ) -> Result<Option<ChunkLocation>, WouldBlock> {
        self.query(wait, |state, reads| Ok(self.find(id, state, reads)?))
    }

    fn find(
        &self,
        id: &ChunkId,
        state: &mut State,
        reads: &Reads,
    ) -> Result<Option<ChunkLocation>, Unread> {
        if let Some(&slot) = state.open.slots_by_id.get(id) {
            return Ok(Some(ChunkLocation {
                container: state.open.number,
                slot,
            }));
        }
        let open = self.position(state.open.number);
        let mut listed = None;
        for position in state.index.candidates(id) {
            // The open container was searched above.
            if position == open {
                continue;
            }
            let Some(listing) = self.listing(position, state, reads)? else {
                continue;
            };
            let Some(slot) = listing.slot(id) else {
                state.counters.false_tags += 1;
                continue;
            };
            let container = listing.number;
            let location = ChunkLocation { container, slot };
            if listing.has_bytes(usize::from(slot)) {
                return Ok(Some(location));
            }
            // The chunk is only listed here. Another container may have its bytes.
            listed = Some(location);
        }
        if listed.is_none() && state.recovery.is_some() {
            state.counters.absent_while_recovering += 1;
        }
        Ok(listed)
    }

    /// Returns the entries from a location on in the same container, at most `chunks_max` entries.
    pub(crate) fn entries(
        &self,
        location: ChunkLocation,
        chunks_max: usize,
        wait: Wait,
    ) -> Result<Vec<Entry>, WouldBlock> {
        let first = usize::from(location.slot);
        let slots = |entries: &[Entry]| {
            let entries = entries.iter().skip(first).take(chunks_max);
            entries.copied().collect()
        };
        self.query(wait, |state, reads| {
            if location.container == state.open.number {
                return Ok(slots(&state.open.entries));
            }
            let listing = self.listing_of(location.container, state, reads)?;
            Ok(listing.map_or_else(Vec::new, |listing| slots(&listing.entries)))
        })
    }

    /// Reads the bytes of `entries` into `out`. The chunks lie one after another from `location` on, and `out` has
    /// their total length. Returns false if the chunks are not there; the content of `out` is then undefined.
    fn load(
        &self,
        location: ChunkLocation,
        entries: &[Entry],
        out: &mut [u8],
        wait: Wait,
    ) -> Result<bool, WouldBlock> {
        let slots = usize::from(location.slot)..usize::from(location.slot) + entries.len();
        let bytes = bytes_of(entries);
        assert_eq!(out.len(), bytes, "the buffer has the size of the chunks");
        let (mut is_copied, mut unwritten) = (false, None);
        let listing = self.query(wait, |state, reads| {
            if location.container != state.open.number {
                let full = state.unwritten.clone();
                unwritten = full.filter(|full| full.listing.number == location.container);
                return Ok(self.listing_of(location.container, state, reads)?);
            }
            let matches = state.open.entries.get(slots.clone()) == Some(entries);
            let bytes = state.open.chunks(slots.clone()).filter(|_| matches);
            is_copied = bytes.inspect(|bytes| out.copy_from_slice(bytes)).is_some();
            Ok(None)
        })?;
        let Some(listing) = listing else {
            return Ok(is_copied);
        };
        let matches = listing.entries.get(slots.clone()) == Some(entries);
        match listing.parts(slots).filter(|_| matches) {
            Some(parts) => self.read(&listing, unwritten.as_deref(), &parts, out, wait),
            None => Ok(false),
        }
    }

    /// Loads chunks, and verifies the bytes of each chunk by its fingerprint. If the chunk has no matching fingerprint,
    /// its hash decides. Returns false if a chunk is not valid. The store forgets all invalid chunks, not only the
    /// first one: if one location is corrupt, the next locations often are too.
    pub(crate) fn load_verified(
        &self,
        id_key: &IdKey,
        location: ChunkLocation,
        entries: &[Entry],
        out: &mut [u8],
        wait: Wait,
    ) -> Result<bool, WouldBlock> {
        if !self.load(location, entries, out, wait)? {
            return Ok(false);
        }
        let position = self.position(location.container);
        let slot = usize::from(location.slot);
        let fingerprints: Vec<_> = {
            let state = self.state();
            let all = state.trailers.fingerprints(position, location.container);
            all.iter().skip(slot).take(entries.len()).copied().collect()
        };
        let mut all_valid = true;
        let mut rest = &*out;
        for (nth, entry) in entries.iter().enumerate() {
            let (chunk, later) = rest.split_at(entry.length as usize);
            let fingerprint = fingerprints.get(nth).copied().flatten();
            if !id_key.matches_fingerprint(fingerprint, chunk) {
                if id_key.id(chunk) == entry.id {
                    let location = location.plus(nth);
                    self.set_fingerprint(location, &entry.id, || id_key.fingerprint(chunk));
                } else {
                    self.forget(location.container, slot + nth..slot + nth + 1, wait)?;
                    all_valid = false;
                }
            }
            rest = later;
        }
        Ok(all_valid)
    }

    /// Returns the chunks from a location to the end of its container, or `None` if there is no chunk. The chunks of
    /// the open container have no fingerprints.
    pub(crate) fn row(
        &self,
        location: ChunkLocation,
        wait: Wait,
    ) -> Result<Option<Row>, WouldBlock> {
        let first = usize::from(location.slot);
        self.query(wait, |state, reads| {
            let is_open = location.container == state.open.number;
            let newer = state.open.number.saturating_sub(location.container);
            let is_overwritten_soon =
                newer >= self.containers - 1 - self.containers / OVERWRITTEN_SOON_SHARE;
            let chunks: Vec<RowChunk> = if is_open {
                let open = &state.open;
                let entries = open.entries.iter().enumerate().skip(first);
                let chunks = entries.map(|(slot, entry)| RowChunk {
                    entry: *entry,
                    fingerprint: None,
                    has_bytes: open.has_bytes(slot),
                });
                chunks.collect()
            } else {
                let Some(listing) = self.listing_of(location.container, state, reads)? else {
                    return Ok(None);
                };
                let position = self.position(location.container);
                let fingerprints = state.trailers.fingerprints(position, location.container);
                let entries = listing.entries.iter().enumerate().skip(first);
                let chunks = entries.map(|(slot, entry)| RowChunk {
                    entry: *entry,
                    fingerprint: fingerprints.get(slot).copied().flatten(),
                    has_bytes: listing.has_bytes(slot),
                });
                chunks.collect()
            };
            Ok((!chunks.is_empty()).then(|| Row {
                location,
                chunks: chunks.into(),
                is_retained: is_open || !is_overwritten_soon,
            }))
        })
    }

    /// Stores the fingerprint of the chunk with this hash at this location. `fingerprint` is not called if the chunk
    /// already has one, or if it cannot be stored. The store may lose fingerprints at any time.
    pub(crate) fn set_fingerprint(
        &self,
        location: ChunkLocation,
        id: &ChunkId,
        fingerprint: impl FnOnce() -> Option<ChunkFingerprint>,
    ) {
        let mut state = self.state();
        let position = self.position(location.container);
        let chunk = (usize::from(location.slot), id);
        state
            .trailers
            .set_fingerprint(position, location.container, chunk, fingerprint);
    }

    /// Returns the location of a chunk, or stores it and returns its location. The location is `None` if the chunk
    /// could not be stored. The second result is true if the chunk was already stored.
    pub(crate) fn find_or_insert(
        &self,
        id: ChunkId,
        chunk: &[u8],
        wait: Wait,
    ) -> Result<(Option<ChunkLocation>, bool), WouldBlock> {
        self.query(wait, |state, reads| {
            let location = self.find(&id, state, reads)?;
            if let Some(location) = location
                && self.has_bytes(location, state, reads)?
            {
                return Ok((Some(location), true));
            }
            if chunk.is_empty() || chunk.len() > self.layout.container_bytes() {
                return Ok((None, false));
            }
            if !state.open.make_room(chunk.len(), &mut state.packer) {
                // If the write fails, `seal` counts the error and removes the container's chunks from the index. The
                // new chunk is added to the next container in any case.
                _ = self.seal(state, reads)?;
            }
            if let Some(location) = location {
                // The chunk is only listed. Its entry is removed last: if this query must be repeated for a read, the
                // chunk stays listed.
                let slot = usize::from(location.slot);
                self.remove_entries(location.container, slot..slot + 1, state, reads)?;
            }
            let slot = state.open.push(id, chunk);
            Ok((Some(self.index_chunk(&id, slot, state)), false))
        })
    }

    /// Like [`find_or_insert`](Self::find_or_insert), but stores only the entry of the chunk, not its bytes. A sender
    /// needs only entries to send references. The chunk cannot be loaded until its bytes are stored.
    pub(crate) fn find_or_list(
        &self,
        entry: Entry,
        wait: Wait,
    ) -> Result<(Option<ChunkLocation>, bool), WouldBlock> {
        self.query(wait, |state, reads| {
            if let Some(location) = self.find(&entry.id, state, reads)? {
                return Ok((Some(location), true));
            }
            let bytes = entry.length as usize;
            if bytes == 0 || bytes > self.layout.container_bytes() {
                return Ok((None, false));
            }
            if !state.open.has_room_to_list(bytes) {
                _ = self.seal(state, reads)?;
            }
            let slot = state.open.list(entry, &mut state.packer);
            Ok((Some(self.index_chunk(&entry.id, slot, state)), false))
        })
    }
}

/// Queries that wait for the device.
impl Chunks {
    /// Returns a random number, which the store draws when it is created and again whenever it has lost its chunks.
    pub fn epoch(&self) -> u64 {
        self.0.epoch()
    }

    /// Returns the location of the chunk with this hash, or `None` if the chunk is not found.
    pub fn locate(&self, id: &ChunkId) -> Option<ChunkLocation> {
        self.0.locate(id, Wait::Device).unwrap_or_default()
    }

    /// Returns the entries at `location` and after it in the same container, at most `chunks_max` entries.
    pub fn entries(&self, location: ChunkLocation, chunks_max: usize) -> Vec<Entry> {
        let entries = self.0.entries(location, chunks_max, Wait::Device);
        entries.unwrap_or_default()
    }

    /// Loads the bytes of `entries`, which lie one after another from `location` on, into `out`, which has their total
    /// length. Returns false if a chunk is missing or corrupt; the store forgets corrupt chunks.
    pub fn load(
        &self,
        id_key: &IdKey,
        location: ChunkLocation,
        entries: &[Entry],
        out: &mut [u8],
    ) -> bool {
        let loaded = self
            .0
            .load_verified(id_key, location, entries, out, Wait::Device);
        loaded.unwrap_or_default()
    }

    /// Stores a chunk and returns its location, or `None` if it could not be stored. A chunk that is already stored is
    /// not stored again.
    pub fn insert(&self, id: ChunkId, chunk: &[u8]) -> Option<ChunkLocation> {
        self.find_or_insert(id, chunk).0
    }

    /// Like [`insert`](Self::insert). The second result is true if the chunk was already stored.
    pub fn find_or_insert(&self, id: ChunkId, chunk: &[u8]) -> (Option<ChunkLocation>, bool) {
        let found = self.0.find_or_insert(id, chunk, Wait::Device);
        found.unwrap_or_default()
    }

    /// Returns the location of a chunk, or stores its entry without its bytes. The second result is true if the chunk
    /// was already stored.
    pub fn find_or_list(&self, entry: Entry) -> (Option<ChunkLocation>, bool) {
        let listed = self.0.find_or_list(entry, Wait::Device);
        listed.unwrap_or_default()
    }

    /// Returns the chunks from a location to the end of its container, or `None` if there is no chunk.
    pub fn row(&self, location: ChunkLocation) -> Option<Row> {
        self.0.row(location, Wait::Device).unwrap_or_default()
    }

    /// Removes a chunk whose bytes do not match its hash, so that it is not found again.
    pub fn forget(&self, location: ChunkLocation) {
        let slot = usize::from(location.slot);
        _ = self
            .0
            .forget(location.container, slot..slot + 1, Wait::Device);
    }
}

/// The chunks in the oldest eighth of the containers may be overwritten soon by chunks of other streams.
const OVERWRITTEN_SOON_SHARE: u32 = 8;
