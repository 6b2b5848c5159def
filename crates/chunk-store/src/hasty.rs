//! Access to the chunks for callers that must not block on the device.
//!
//! Bytes in the page cache are read as usual, in one call. If a read would block, the query returns no result and
//! records the read as pending. A caller that may block [fetches](crate::Chunks::fetch) the pending reads, and the
//! query is repeated. Reads of a device that cannot report cached bytes do block.

use std::sync::Arc;

use edgeward_dedup::id::ChunkId;
use edgeward_dedup::mark::Mark;
use edgeward_dedup::store::{ChunkStore, Entry, Familiar, Place};

use crate::chunks::Shared;
use crate::trailers::{Listing, Trailers};

/// Reads of the device that queries wait for; [`Chunks::fetch`](crate::Chunks::fetch) performs them.
#[derive(Debug, Default)]
pub struct Wanted(Vec<Want>);

/// A read of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// The trailer of the container at this position.
    Trailer(u32),
    /// The same as read-ahead: no query waits for it yet.
    Ahead(u32),
    Bytes {
        offset: u64,
        bytes: usize,
    },
}

impl Wanted {
    pub(crate) fn want(&mut self, want: Want) {
        if !self.0.contains(&want) {
            self.0.push(want);
        }
    }

    /// Returns true if no read is pending.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Want> {
        self.0.iter()
    }
}

/// Says whether a query may block.
#[derive(Debug)]
pub(crate) enum Patience<'a> {
    Waits,
    /// It must not block; pending reads are added here.
    Hasty(&'a mut Wanted),
}

impl Patience<'_> {
    /// Returns true if a read is pending for a query so far. A blocking query always returns false.
    pub(crate) fn owes(&self) -> bool {
        match self {
            Self::Waits => false,
            Self::Hasty(wanted) => !wanted.is_empty(),
        }
    }

    pub(crate) fn want(&mut self, want: Want) {
        if let Self::Hasty(wanted) = self {
            wanted.want(want);
        }
    }
}

impl Shared {
    /// Performs a read without holding the lock. An error is found again, and counted, by the repeated query.
    pub(crate) fn fetch(&self, want: &Want) {
        match *want {
            Want::Trailer(position) => self.fetch_trailer(position, Trailers::insert),
            Want::Ahead(position) => self.fetch_trailer(position, Trailers::insert_ahead),
            Want::Bytes { offset, bytes } => {
                // The purpose is to bring the bytes into the page cache.
                _ = self.device.read_at(&mut vec![0; bytes], offset);
            }
        }
    }

    fn fetch_trailer(&self, position: u32, keep: impl FnOnce(&mut Trailers, u32, Arc<Listing>)) {
        let state = self.state();
        let (epoch, before) = (state.superblock.epoch, state.open.number);
        if state.trailers.has(position) {
            return;
        }
        drop(state);
        let listing = self.trailer(position, epoch, &Patience::Waits);
        let mut state = self.state();
        // Meanwhile the container may have been overwritten, or another caller may have read the trailer.
        let is_news = state.superblock.epoch == epoch
            && (before..=state.open.number).all(|number| self.position(number) != position)
            && !state.trailers.has(position);
        if let Ok(Some(Some(listing))) = listing
            && is_news
        {
            state.counters.trailers_read += 1;
            keep(&mut state.trailers, position, Arc::new(listing));
        }
    }
}

/// A [`ChunkStore`] that records pending reads instead of blocking.
#[derive(Debug)]
pub struct Hasty<'a> {
    shared: &'a Shared,
    wanted: Wanted,
}

impl<'a> Hasty<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Self {
        let wanted = Wanted::default();
        Self { shared, wanted }
    }

    /// Returns the reads that its queries wait for.
    pub fn into_wanted(self) -> Wanted {
        self.wanted
    }

    /// Runs a query that depends only on its own pending reads, not on those of earlier queries.
    fn alone(
        &mut self,
        ask: impl FnOnce(&Shared, &mut Patience<'_>) -> (Option<Place>, bool),
    ) -> (Option<Place>, bool) {
        let mut wanted = Wanted::default();
        let (place, found) = ask(self.shared, &mut Patience::Hasty(&mut wanted));
        if place.is_none() {
            wanted.0.into_iter().for_each(|want| self.wanted.want(want));
        }
        (place, found)
    }
}

impl ChunkStore for Hasty<'_> {
    fn epoch(&self) -> u64 {
        self.shared.epoch()
    }

    fn owes(&self) -> bool {
        !self.wanted.is_empty()
    }

    fn expect(&mut self, ids: &[ChunkId]) {
        self.shared.expect(ids);
    }

    fn locate(&mut self, id: &ChunkId) -> Option<Place> {
        let patience = &mut Patience::Hasty(&mut self.wanted);
        self.shared.locate(id, &mut self.shared.state(), patience)
    }

    fn entries(&mut self, place: Place, most: usize, out: &mut Vec<Entry>) {
        let patience = &mut Patience::Hasty(&mut self.wanted);
        self.shared.entries(place, most, out, patience);
    }

    fn load(&mut self, place: Place, entries: &[Entry], out: &mut [u8]) -> bool {
        let patience = &mut Patience::Hasty(&mut self.wanted);
        self.shared.load(place, entries, out, patience)
    }

    /// Blocks: the index has to be searched, or a chunk might be stored twice.
    fn insert(&mut self, id: ChunkId, chunk: &[u8]) -> Option<Place> {
        let patience = &mut Patience::Waits;
        self.shared.find_or_insert(id, chunk, patience).0
    }

    fn find_or_insert(&mut self, id: ChunkId, chunk: &[u8]) -> (Option<Place>, bool) {
        self.alone(|shared, patience| shared.find_or_insert(id, chunk, patience))
    }

    fn find_or_list(&mut self, entry: Entry) -> (Option<Place>, bool) {
        self.alone(|shared, patience| shared.find_or_list(entry, patience))
    }

    fn is_kept(&mut self, place: Place) -> bool {
        let patience = &mut Patience::Hasty(&mut self.wanted);
        let state = &mut self.shared.state();
        self.shared.is_kept(place, state, patience)
    }

    fn stays(&mut self, place: Place, chunks: usize) -> bool {
        self.shared.stays(place, chunks)
    }

    fn familiar(&mut self, place: Place, most: usize, out: &mut Vec<Familiar>) {
        let patience = &mut Patience::Hasty(&mut self.wanted);
        self.shared.familiar(place, most, out, patience);
    }

    fn note(&mut self, place: Place, id: &ChunkId, mark: impl FnOnce() -> Option<Mark>) {
        self.shared.note(place, id, mark);
    }

    fn forget(&mut self, place: Place) {
        let slot = usize::from(place.slot);
        let mut state = self.shared.state();
        let slots = slot..slot + 1;
        self.shared.forget(place.container, slots, &mut state);
    }
}
