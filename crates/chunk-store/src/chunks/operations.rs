//! The operations of the [`ChunkStore`] trait: they look up, load and add chunks. `Access` selects whether an
//! operation may block on the device.

use edgeward_dedup::fingerprint::ChunkFingerprint;
use edgeward_dedup::id::ChunkId;
use edgeward_dedup::store::{ChunkLocation, ChunkStore, Entry, FingerprintedEntry, bytes_of};

use crate::non_blocking::Access;

use super::{Chunks, Shared, State};

impl Shared {
    pub(crate) fn prefetch(&self, ids: &[ChunkId]) {
        self.state().index.prefetch(ids);
    }

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
            let place = ChunkLocation { container, slot };
            if listing.has_bytes(usize::from(slot)) {
                return Some(place);
            }
            // The chunk is only listed here. Another container may have its bytes.
            listed = Some(place);
        }
        listed
    }

    pub(crate) fn entries(
        &self,
        place: ChunkLocation,
        most: usize,
        out: &mut Vec<Entry>,
        access: &mut Access<'_>,
    ) {
        let mut state = self.state();
        let from = usize::from(place.slot);
        if place.container == state.open.number {
            out.extend(state.open.entries.iter().skip(from).take(most));
        } else if let Some(listing) = self.listing_of(place.container, &mut state, access) {
            out.extend(listing.entries.iter().skip(from).take(most));
        }
    }

    pub(crate) fn load(
        &self,
        place: ChunkLocation,
        entries: &[Entry],
        out: &mut [u8],
        access: &mut Access<'_>,
    ) -> bool {
        let slots = usize::from(place.slot)..usize::from(place.slot) + entries.len();
        let bytes = bytes_of(entries);
        assert_eq!(out.len(), bytes, "the buffer has the size of the chunks");
        let mut state = self.state();
        if place.container == state.open.number {
            let matches = state.open.entries.get(slots.clone()) == Some(entries);
            let bytes = state.open.chunks(slots).filter(|_| matches);
            return bytes.inspect(|bytes| out.copy_from_slice(bytes)).is_some();
        }
        let Some(listing) = self.listing_of(place.container, &mut state, access) else {
            return false;
        };
        drop(state);
        let matches = listing.entries.get(slots.clone()) == Some(entries);
        let parts = listing.parts(slots).filter(|_| matches);
        parts.is_some_and(|parts| self.read(&listing, &parts, out, access))
    }

    /// Returns true if the bytes of these chunks are stored and will not be overwritten soon. Returns false if
    /// their trailer is not in memory, because a read would cost more than the answer saves. The trailer of
    /// chunks that were just recognised is in memory.
    pub(crate) fn is_retained(&self, place: ChunkLocation, chunks: usize) -> bool {
        let mut state = self.state();
        let slots = usize::from(place.slot)..usize::from(place.slot) + chunks;
        if place.container == state.open.number {
            return slots.into_iter().all(|slot| state.open.has_bytes(slot));
        }
        let newer = state.open.number.saturating_sub(place.container);
        let is_overwritten_soon =
            newer >= self.containers - 1 - self.containers / OVERWRITTEN_SOON_SHARE;
        let listing = state.trailers.get(self.position(place.container));
        let listing =
            listing.filter(|listing| listing.number == place.container && !is_overwritten_soon);
        listing.is_some_and(|listing| listing.are_kept(slots))
    }

    /// Appends at most `most` chunks from this location on, with their fingerprints. For the open container,
    /// which has no fingerprints, appends no chunks.
    pub(crate) fn entries_with_fingerprints(
        &self,
        place: ChunkLocation,
        most: usize,
        out: &mut Vec<FingerprintedEntry>,
        access: &mut Access<'_>,
    ) {
        let mut state = self.state();
        if place.container != state.open.number {
            let position = self.position(place.container);
            // Reads the trailer into the cache, if it is not there.
            _ = self.listing(position, &mut state, access);
            let slot = usize::from(place.slot);
            let slots = slot..slot + most;
            state
                .trailers
                .entries_with_fingerprints(position, place.container, slots, out);
        }
    }

    pub(crate) fn set_fingerprint(
        &self,
        place: ChunkLocation,
        id: &ChunkId,
        fingerprint: impl FnOnce() -> Option<ChunkFingerprint>,
    ) {
        let mut state = self.state();
        let position = self.position(place.container);
        let chunk = (usize::from(place.slot), id);
        state
            .trailers
            .set_fingerprint(position, place.container, chunk, fingerprint);
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
        let place = self.locate(&id, state, access);
        if let Some(place) = place
            && self.has_bytes(place, state, access)
        {
            return (Some(place), true);
        }
        if access.has_pending() {
            return (None, false);
        }
        if let Some(place) = place {
            // The chunk is only listed. Its entry is removed, and the chunk is stored below.
            let slot = usize::from(place.slot);
            self.remove_entries(place.container, slot..slot + 1, state);
        }
        if chunk.is_empty() || chunk.len() > self.layout.container_bytes() {
            return (None, false);
        }
        if !state.open.make_room(chunk.len(), &mut state.packer) {
            // If the write fails, `seal` counts the error and removes the written chunks from the index. The
            // new chunk is then added to the next container.
            _ = self.seal(state);
        }
        let slot = state.open.push(id, chunk);
        (Some(self.enter(&id, slot, state)), false)
    }

    /// See [`ChunkStore::find_or_list`]. If a read is pending, does not list the chunk, because the store may already
    /// have it.
    pub(crate) fn find_or_list(
        &self,
        entry: Entry,
        access: &mut Access<'_>,
    ) -> (Option<ChunkLocation>, bool) {
        let state = &mut *self.state();
        if let Some(place) = self.locate(&entry.id, state, access) {
            return (Some(place), true);
        }
        let bytes = entry.length as usize;
        if access.has_pending() || bytes == 0 || bytes > self.layout.container_bytes() {
            return (None, false);
        }
        if !state.open.has_room_to_list(bytes) {
            _ = self.seal(state);
        }
        let slot = state.open.list(entry, &mut state.packer);
        (Some(self.enter(&entry.id, slot, state)), false)
    }
}

impl ChunkStore for Chunks {
    fn epoch(&self) -> u64 {
        self.0.epoch()
    }

    fn prefetch(&mut self, ids: &[ChunkId]) {
        self.0.prefetch(ids);
    }

    fn locate(&mut self, id: &ChunkId) -> Option<ChunkLocation> {
        self.0
            .locate(id, &mut self.0.state(), &mut Access::Blocking)
    }

    fn entries(&mut self, place: ChunkLocation, most: usize, out: &mut Vec<Entry>) {
        self.0.entries(place, most, out, &mut Access::Blocking);
    }

    fn load(&mut self, place: ChunkLocation, entries: &[Entry], out: &mut [u8]) -> bool {
        self.0.load(place, entries, out, &mut Access::Blocking)
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

    fn has_bytes(&mut self, place: ChunkLocation) -> bool {
        let state = &mut self.0.state();
        self.0.has_bytes(place, state, &mut Access::Blocking)
    }

    fn is_retained(&mut self, place: ChunkLocation, chunks: usize) -> bool {
        self.0.is_retained(place, chunks)
    }

    fn entries_with_fingerprints(
        &mut self,
        place: ChunkLocation,
        most: usize,
        out: &mut Vec<FingerprintedEntry>,
    ) {
        self.0
            .entries_with_fingerprints(place, most, out, &mut Access::Blocking);
    }

    fn set_fingerprint(
        &mut self,
        place: ChunkLocation,
        id: &ChunkId,
        fingerprint: impl FnOnce() -> Option<ChunkFingerprint>,
    ) {
        self.0.set_fingerprint(place, id, fingerprint);
    }

    fn forget(&mut self, place: ChunkLocation) {
        let slot = usize::from(place.slot);
        let mut state = self.0.state();
        self.0.forget(place.container, slot..slot + 1, &mut state);
    }
}

/// The chunks in the oldest eighth of the containers may be overwritten soon by chunks of other streams.
const OVERWRITTEN_SOON_SHARE: u32 = 8;
