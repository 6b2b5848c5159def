//! The operations of the [`ChunkStore`] trait: they look up, load and add chunks. `Access` selects whether an
//! operation may block on the device.
//!
//! The trailer of a container has an entry for each chunk: its hash and length. A chunk is only *listed* if the
//! container has the entry without the chunk's bytes. A `listing` is a trailer in memory.

use edgeward_dedup::fingerprint::ChunkFingerprint;
use edgeward_dedup::id::ChunkId;
use edgeward_dedup::store::{ChunkLocation, Entry, Row, RowChunk, bytes_of};

use crate::non_blocking::Access;
use crate::query::{ChunkStore, FingerprintedEntry};

use super::{Chunks, Shared, State};

impl Shared {
    /// Returns the location of a chunk. If the chunk has several locations, prefers a location with its bytes.
    pub(crate) fn locate(
        &self,
        id: &ChunkId,
        state: &mut State,
        access: &mut Access<'_>,
    ) -> Option<ChunkLocation> {
        if let Some(&slot) = state.open.slots_by_id.get(id) {
            return Some(ChunkLocation {
                container: state.open.number,
                slot,
            });
        }
        let open = self.position(state.open.number);
        let mut listed = None;
        for position in state.index.candidates(id) {
            // The open container was searched above.
            if position == open {
                continue;
            }
            let Some(listing) = self.listing(position, state, access) else {
                continue;
            };
            let Some(slot) = listing.slot(id) else {
                state.counters.false_tags += 1;
                continue;
            };
            let container = listing.number;
            let location = ChunkLocation { container, slot };
            if listing.has_bytes(usize::from(slot)) {
                return Some(location);
            }
            // The chunk is only listed here. Another container may have its bytes.
            listed = Some(location);
        }
        if listed.is_none() && state.recovery.is_some() {
            state.counters.absent_while_recovering += 1;
        }
        listed
    }

    pub(crate) fn entries(
        &self,
        location: ChunkLocation,
        chunks_max: usize,
        out: &mut Vec<Entry>,
        access: &mut Access<'_>,
    ) {
        let mut state = self.state();
        let first = usize::from(location.slot);
        if location.container == state.open.number {
            out.extend(state.open.entries.iter().skip(first).take(chunks_max));
        } else if let Some(listing) = self.listing_of(location.container, &mut state, access) {
            out.extend(listing.entries.iter().skip(first).take(chunks_max));
        }
    }

    pub(crate) fn load(
        &self,
        location: ChunkLocation,
        entries: &[Entry],
        out: &mut [u8],
        access: &mut Access<'_>,
    ) -> bool {
        let slots = usize::from(location.slot)..usize::from(location.slot) + entries.len();
        let bytes = bytes_of(entries);
        assert_eq!(out.len(), bytes, "the buffer has the size of the chunks");
        let mut state = self.state();
        if location.container == state.open.number {
            let matches = state.open.entries.get(slots.clone()) == Some(entries);
            let bytes = state.open.chunks(slots).filter(|_| matches);
            return bytes.inspect(|bytes| out.copy_from_slice(bytes)).is_some();
        }
        let Some(listing) = self.listing_of(location.container, &mut state, access) else {
            return false;
        };
        drop(state);
        let matches = listing.entries.get(slots.clone()) == Some(entries);
        let parts = listing.parts(slots).filter(|_| matches);
        parts.is_some_and(|parts| self.read(&listing, &parts, out, access))
    }

    /// Returns true if the bytes of these chunks are stored and will not be overwritten soon. The caller then need
    /// not keep its own copy of the bytes. Returns false if the trailer of the container is not in memory, because a
    /// read from the device would cost more than the copy. The trailer of chunks that were just recognised is in
    /// memory.
    pub(crate) fn is_retained(&self, location: ChunkLocation, chunks: usize) -> bool {
        let mut state = self.state();
        let slots = usize::from(location.slot)..usize::from(location.slot) + chunks;
        if location.container == state.open.number {
            return slots.into_iter().all(|slot| state.open.has_bytes(slot));
        }
        let newer = state.open.number.saturating_sub(location.container);
        let is_overwritten_soon =
            newer >= self.containers - 1 - self.containers / OVERWRITTEN_SOON_SHARE;
        let listing = state.trailers.get(self.position(location.container));
        let listing =
            listing.filter(|listing| listing.number == location.container && !is_overwritten_soon);
        listing.is_some_and(|listing| listing.have_bytes(slots))
    }

    /// Returns the chunks from a location to the end of its container. The chunks of the open container have no
    /// fingerprints.
    pub(crate) fn row(&self, location: ChunkLocation, access: &mut Access<'_>) -> Option<Row> {
        let mut state = self.state();
        let first = usize::from(location.slot);
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
            let listing = self.listing_of(location.container, &mut state, access)?;
            let position = self.position(location.container);
            let fingerprints = state.trailers.fingerprints(position);
            let entries = listing.entries.iter().enumerate().skip(first);
            let chunks = entries.map(|(slot, entry)| RowChunk {
                entry: *entry,
                fingerprint: fingerprints.get(slot).copied().flatten(),
                has_bytes: listing.has_bytes(slot),
            });
            chunks.collect()
        };
        (!chunks.is_empty()).then(|| Row {
            location,
            chunks: chunks.into(),
            is_retained: is_open || !is_overwritten_soon,
        })
    }

    /// Appends at most `chunks_max` chunks from this location on, with their fingerprints. For the open container,
    /// which has no fingerprints, appends no chunks.
    pub(crate) fn entries_with_fingerprints(
        &self,
        location: ChunkLocation,
        chunks_max: usize,
        out: &mut Vec<FingerprintedEntry>,
        access: &mut Access<'_>,
    ) {
        let mut state = self.state();
        if location.container != state.open.number {
            let position = self.position(location.container);
            // Reads the trailer into the cache, if it is not there.
            _ = self.listing(position, &mut state, access);
            let slot = usize::from(location.slot);
            let slots = slot..slot + chunks_max;
            state
                .trailers
                .entries_with_fingerprints(position, location.container, slots, out);
        }
    }

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

    /// See [`ChunkStore::find_or_insert`]. If a read is pending, does not store the chunk, because the store
    /// may already have it.
    pub(crate) fn find_or_insert(
        &self,
        id: ChunkId,
        chunk: &[u8],
        access: &mut Access<'_>,
    ) -> (Option<ChunkLocation>, bool) {
        let state = &mut *self.state();
        let location = self.locate(&id, state, access);
        if let Some(location) = location
            && self.has_bytes(location, state, access)
        {
            return (Some(location), true);
        }
        if access.has_pending() {
            return (None, false);
        }
        if let Some(location) = location {
            // The chunk is only listed. Its entry is removed, and the chunk is stored below.
            let slot = usize::from(location.slot);
            self.remove_entries(location.container, slot..slot + 1, state);
        }
        if chunk.is_empty() || chunk.len() > self.layout.container_bytes() {
            return (None, false);
        }
        if !state.open.make_room(chunk.len(), &mut state.packer) {
            // If the write fails, `seal` counts the error and removes the container's chunks from the index. The
            // new chunk is added to the next container in any case.
            _ = self.seal(state);
        }
        let slot = state.open.push(id, chunk);
        (Some(self.index_chunk(&id, slot, state)), false)
    }

    /// See [`ChunkStore::find_or_list`]. If a read is pending, does not list the chunk, because the store may already
    /// have it.
    pub(crate) fn find_or_list(
        &self,
        entry: Entry,
        access: &mut Access<'_>,
    ) -> (Option<ChunkLocation>, bool) {
        let state = &mut *self.state();
        if let Some(location) = self.locate(&entry.id, state, access) {
            return (Some(location), true);
        }
        let bytes = entry.length as usize;
        if access.has_pending() || bytes == 0 || bytes > self.layout.container_bytes() {
            return (None, false);
        }
        if !state.open.has_room_to_list(bytes) {
            _ = self.seal(state);
        }
        let slot = state.open.list(entry, &mut state.packer);
        (Some(self.index_chunk(&entry.id, slot, state)), false)
    }
}

impl ChunkStore for Chunks {
    fn epoch(&self) -> u64 {
        self.0.epoch()
    }

    fn locate(&mut self, id: &ChunkId) -> Option<ChunkLocation> {
        self.0
            .locate(id, &mut self.0.state(), &mut Access::Blocking)
    }

    fn entries(&mut self, location: ChunkLocation, chunks_max: usize, out: &mut Vec<Entry>) {
        self.0
            .entries(location, chunks_max, out, &mut Access::Blocking);
    }

    fn load(&mut self, location: ChunkLocation, entries: &[Entry], out: &mut [u8]) -> bool {
        self.0.load(location, entries, out, &mut Access::Blocking)
    }

    fn insert(&mut self, id: ChunkId, chunk: &[u8]) -> Option<ChunkLocation> {
        self.find_or_insert(id, chunk).0
    }

    fn find_or_insert(&mut self, id: ChunkId, chunk: &[u8]) -> (Option<ChunkLocation>, bool) {
        self.0.find_or_insert(id, chunk, &mut Access::Blocking)
    }

    fn find_or_list(&mut self, entry: Entry) -> (Option<ChunkLocation>, bool) {
        self.0.find_or_list(entry, &mut Access::Blocking)
    }

    fn row(&mut self, location: ChunkLocation) -> Option<Row> {
        self.0.row(location, &mut Access::Blocking)
    }

    fn has_bytes(&mut self, location: ChunkLocation) -> bool {
        let state = &mut self.0.state();
        self.0.has_bytes(location, state, &mut Access::Blocking)
    }

    fn is_retained(&mut self, location: ChunkLocation, chunks: usize) -> bool {
        self.0.is_retained(location, chunks)
    }

    fn entries_with_fingerprints(
        &mut self,
        location: ChunkLocation,
        chunks_max: usize,
        out: &mut Vec<FingerprintedEntry>,
    ) {
        self.0
            .entries_with_fingerprints(location, chunks_max, out, &mut Access::Blocking);
    }

    fn set_fingerprint(
        &mut self,
        location: ChunkLocation,
        id: &ChunkId,
        fingerprint: impl FnOnce() -> Option<ChunkFingerprint>,
    ) {
        self.0.set_fingerprint(location, id, fingerprint);
    }

    fn forget(&mut self, location: ChunkLocation) {
        let slot = usize::from(location.slot);
        let mut state = self.0.state();
        self.0
            .forget(location.container, slot..slot + 1, &mut state);
    }
}

/// The chunks in the oldest eighth of the containers may be overwritten soon by chunks of other streams.
const OVERWRITTEN_SOON_SHARE: u32 = 8;
