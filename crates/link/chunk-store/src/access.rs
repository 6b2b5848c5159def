//! Reads of trailers without the lock of the store.
//!
//! A query holds the lock and needs the trailers of some containers. If one of them is not in memory, the query ends
//! with [`Unread`] and has changed nothing. [`Shared::query`] then reads the trailer without the lock and repeats the
//! query, or fails if the caller must not wait for the device.

use std::sync::Arc;

use crate::chunks::{Shared, State};
use crate::requests::WouldBlock;
use crate::trailers::Listing;

/// Selects whether a query may wait for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The query reads from the device, and waits.
    Device,
    /// The query reads only bytes that the system has in memory. If the device cannot report which bytes these are,
    /// the query waits.
    Never,
}

/// A query needs the trailer at a position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unread {
    pub(crate) position: u32,
    /// True if the trailer at the next position will probably be needed soon.
    pub(crate) reads_next: bool,
}

/// The trailers that were read for one query. Another query may have evicted them from the cache since then.
#[derive(Debug, Default)]
pub(crate) struct Reads(Vec<ReadTrailer>);

#[derive(Debug)]
struct ReadTrailer {
    position: u32,
    /// `None` if the position has no valid trailer.
    listing: Option<Arc<Listing>>,
    /// The epoch and the open container before the read.
    epoch: u64,
    open_before: u32,
}

impl Reads {
    /// Returns the listing that was read at a position, unless the container was overwritten since then.
    pub(crate) fn get(
        &self,
        position: u32,
        shared: &Shared,
        state: &State,
    ) -> Option<Option<Arc<Listing>>> {
        let read = self.0.iter().find(|read| read.position == position)?;
        shared
            .is_current(read, state)
            .then(|| read.listing.as_ref().map(Arc::clone))
    }
}

impl Shared {
    /// Performs a query under the lock, and reads the trailers that it needs without the lock.
    pub(crate) fn query<T>(
        &self,
        wait: Wait,
        mut query: impl FnMut(&mut State, &Reads) -> Result<T, Unread>,
    ) -> Result<T, WouldBlock> {
        let mut reads = Reads::default();
        loop {
            let unread = match query(&mut self.state(), &reads) {
                Ok(result) => return Ok(result),
                Err(unread) => unread,
            };
            if wait == Wait::Never {
                return Err(WouldBlock);
            }
            let read = self.read_for(unread.position);
            reads.0.retain(|read| read.position != unread.position);
            reads.0.push(read);
            let next = (unread.position + 1) % self.containers;
            if unread.reads_next && !self.state().trailers.contains(next) {
                self.cache(self.read_for(next));
            }
        }
    }

    fn read_for(&self, position: u32) -> ReadTrailer {
        let state = self.state();
        let (epoch, open_before) = (state.superblock.epoch, state.open.number);
        drop(state);
        let listing = self.read_trailer(position, epoch);
        if listing.is_err() {
            self.state().counters.errors += 1;
        }
        ReadTrailer {
            position,
            listing: listing.ok().flatten().map(Arc::new),
            epoch,
            open_before,
        }
    }

    fn cache(&self, read: ReadTrailer) {
        let state = &mut *self.state();
        if let Some(listing) = &read.listing
            && self.is_current(&read, state)
            && !state.trailers.contains(read.position)
        {
            state.counters.trailers_read += 1;
            state.trailers.insert(read.position, Arc::clone(listing));
        }
    }

    /// Returns true if the container was not overwritten since before the read.
    fn is_current(&self, read: &ReadTrailer, state: &State) -> bool {
        let mut opened = read.open_before..=state.open.number;
        state.superblock.epoch == read.epoch
            && opened.all(|number| self.position(number) != read.position)
    }
}
