//! Access to the chunks for callers that must not block on the device.
//!
//! If the bytes that a query needs are in the page cache, the query reads them at once. If a read would block, the
//! query returns no result and records the read as pending. A thread that may block
//! [performs](crate::Chunks::fetch) the pending reads, and then the caller repeats the query. If the device cannot
//! report which bytes are cached, a query blocks.

use std::sync::Arc;

use edgeward_dedup::fingerprint::ChunkFingerprint;
use edgeward_dedup::id::ChunkId;
use edgeward_dedup::store::{ChunkLocation, Entry, Row};

use crate::chunks::Shared;
use crate::query::{ChunkStore, FingerprintedEntry};
use crate::trailers::{Listing, TrailerCache};

/// Reads of the device that queries wait for; [`Chunks::fetch`](crate::Chunks::fetch) performs them.
#[derive(Debug, Default)]
pub struct PendingReads(Vec<PendingRead>);

/// A read of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingRead {
    /// The trailer of the container at this position. It lists the container's chunks.
    Trailer(u32),
    /// The trailer of the container at this position, for which no query waits yet.
    ReadAhead(u32),
    /// This number of bytes at this offset of the device.
    Bytes { offset: u64, bytes: usize },
}

impl PendingReads {
    pub(crate) fn add_pending(&mut self, read: PendingRead) {
        if !self.0.contains(&read) {
            self.0.push(read);
        }
    }

    /// Returns true if no read is pending.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &PendingRead> {
        self.0.iter()
    }
}

/// Selects whether a query may block.
#[derive(Debug)]
pub(crate) enum Access<'a> {
    Blocking,
    /// The query must not block. Reads that would block are added to the list.
    NonBlocking(&'a mut PendingReads),
}

impl Access<'_> {
    /// Returns true if the list of pending reads is not empty. Returns false for a blocking query.
    pub(crate) fn has_pending(&self) -> bool {
        match self {
            Self::Blocking => false,
            Self::NonBlocking(pending) => !pending.is_empty(),
        }
    }

    pub(crate) fn add_pending(&mut self, read: PendingRead) {
        if let Self::NonBlocking(pending) = self {
            pending.add_pending(read);
        }
    }
}

impl Shared {
    /// Performs a read without holding the lock. Ignores an error, because the repeated query fails with the
    /// same error and counts it.
    pub(crate) fn fetch(&self, read: &PendingRead) {
        match *read {
            PendingRead::Trailer(position) => {
                self.fetch_trailer(position, TrailerCache::insert);
            }
            PendingRead::ReadAhead(position) => {
                self.fetch_trailer(position, TrailerCache::insert_read_ahead);
            }
            PendingRead::Bytes { offset, bytes } => {
                // The read loads the bytes into the page cache, where the repeated query finds them. The buffer is
                // dropped.
                _ = self.device.read_at(&mut vec![0; bytes], offset);
            }
        }
    }

    fn fetch_trailer(
        &self,
        position: u32,
        insert: impl FnOnce(&mut TrailerCache, u32, Arc<Listing>),
    ) {
        let state = self.state();
        // The open container is the one that collects new chunks.
        let (epoch, open_before) = (state.superblock.epoch, state.open.number);
        if state.trailers.contains(position) {
            return;
        }
        drop(state);
        let listing = self.read_trailer_unlocked(position, epoch, &Access::Blocking);
        // A blocking read fills the outer `Option`; the inner one is `None` if the trailer is invalid.
        let mut state = self.state();
        // During the read, the container may have been overwritten, or another caller may have cached the trailer.
        let is_missing = state.superblock.epoch == epoch
            && (open_before..=state.open.number).all(|number| self.position(number) != position)
            && !state.trailers.contains(position);
        if let Ok(Some(Some(listing))) = listing
            && is_missing
        {
            state.counters.trailers_read += 1;
            insert(&mut state.trailers, position, Arc::new(listing));
        }
    }
}

/// A [`ChunkStore`] that records pending reads instead of blocking.
#[derive(Debug)]
pub struct NonBlocking<'a> {
    shared: &'a Shared,
    pending: PendingReads,
}

impl<'a> NonBlocking<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Self {
        let pending = PendingReads::default();
        Self { shared, pending }
    }

    /// Returns the reads that the queries of this store wait for.
    pub fn into_pending(self) -> PendingReads {
        self.pending
    }

    /// Runs a query with an empty list of pending reads, because the result of the query must not depend on
    /// pending reads of earlier queries. If the query returns no location, adds its pending reads to the list
    /// of this store. The second result is true if the chunk was already stored.
    fn query_separately(
        &mut self,
        query: impl FnOnce(&Shared, &mut Access<'_>) -> (Option<ChunkLocation>, bool),
    ) -> (Option<ChunkLocation>, bool) {
        let mut pending = PendingReads::default();
        let (location, found) = query(self.shared, &mut Access::NonBlocking(&mut pending));
        if location.is_none() {
            pending
                .0
                .into_iter()
                .for_each(|read| self.pending.add_pending(read));
        }
        (location, found)
    }
}

impl ChunkStore for NonBlocking<'_> {
    fn epoch(&self) -> u64 {
        self.shared.epoch()
    }

    fn has_pending_reads(&self) -> bool {
        !self.pending.is_empty()
    }

    fn locate(&mut self, id: &ChunkId) -> Option<ChunkLocation> {
        let access = &mut Access::NonBlocking(&mut self.pending);
        self.shared.locate(id, &mut self.shared.state(), access)
    }

    fn entries(&mut self, location: ChunkLocation, chunks_max: usize, out: &mut Vec<Entry>) {
        let access = &mut Access::NonBlocking(&mut self.pending);
        self.shared.entries(location, chunks_max, out, access);
    }

    fn load(&mut self, location: ChunkLocation, entries: &[Entry], out: &mut [u8]) -> bool {
        let access = &mut Access::NonBlocking(&mut self.pending);
        self.shared.load(location, entries, out, access)
    }

    /// Stores a chunk. Blocks on the device if necessary: without the reads, the store could not find out whether it
    /// already has the chunk.
    fn insert(&mut self, id: ChunkId, chunk: &[u8]) -> Option<ChunkLocation> {
        let access = &mut Access::Blocking;
        self.shared.find_or_insert(id, chunk, access).0
    }

    fn find_or_insert(&mut self, id: ChunkId, chunk: &[u8]) -> (Option<ChunkLocation>, bool) {
        self.query_separately(|shared, access| shared.find_or_insert(id, chunk, access))
    }

    /// Finds a chunk, or stores its entry without its bytes.
    fn find_or_list(&mut self, entry: Entry) -> (Option<ChunkLocation>, bool) {
        self.query_separately(|shared, access| shared.find_or_list(entry, access))
    }

    fn row(&mut self, location: ChunkLocation) -> Option<Row> {
        let access = &mut Access::NonBlocking(&mut self.pending);
        self.shared.row(location, access)
    }

    /// Returns true if the chunk's bytes are stored. A chunk of which only the entry is stored also has a location.
    fn has_bytes(&mut self, location: ChunkLocation) -> bool {
        let access = &mut Access::NonBlocking(&mut self.pending);
        let state = &mut self.shared.state();
        self.shared.has_bytes(location, state, access)
    }

    /// Returns true if the store has the bytes of `chunks` chunks from `location` on, and will keep them until long
    /// after the peer has acknowledged the current frames.
    fn is_retained(&mut self, location: ChunkLocation, chunks: usize) -> bool {
        self.shared.is_retained(location, chunks)
    }

    fn entries_with_fingerprints(
        &mut self,
        location: ChunkLocation,
        chunks_max: usize,
        out: &mut Vec<FingerprintedEntry>,
    ) {
        let access = &mut Access::NonBlocking(&mut self.pending);
        self.shared
            .entries_with_fingerprints(location, chunks_max, out, access);
    }

    fn set_fingerprint(
        &mut self,
        location: ChunkLocation,
        id: &ChunkId,
        fingerprint: impl FnOnce() -> Option<ChunkFingerprint>,
    ) {
        self.shared.set_fingerprint(location, id, fingerprint);
    }

    fn forget(&mut self, location: ChunkLocation) {
        let slot = usize::from(location.slot);
        let mut state = self.shared.state();
        let slots = slot..slot + 1;
        self.shared.forget(location.container, slots, &mut state);
    }
}
