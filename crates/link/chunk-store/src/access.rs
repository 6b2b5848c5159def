//! Reads of trailers and writes of containers without the lock of the store.
//!
//! A query holds the lock and needs the trailers of some containers. If one of them is not in memory, the query ends
//! with [`Unread`] and has changed nothing. [`Shared::query`] then reads the trailer without the lock and repeats the
//! query, or fails if the caller must not wait for the device.
//!
//! A query that fills the open container begins the next one. [`Shared::query`] then writes the full container without
//! the lock. Until it is written, other queries read its chunks in memory, and the next full container waits.

use std::io;
use std::sync::{Arc, PoisonError};

use crate::chunks::{FullContainer, Shared, State};
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

/// Why a query cannot end yet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Blocked {
    /// The query needs a trailer.
    Unread(Unread),
    /// The query must write a container, and the last one is not written yet.
    Unwritten,
}

impl From<Unread> for Blocked {
    fn from(unread: Unread) -> Self {
        Self::Unread(unread)
    }
}

/// The trailers that were read for one query. Another query may have evicted them from the cache since then.
#[derive(Debug, Default)]
pub(crate) struct Reads(Vec<ReadTrailer>);

#[derive(Debug)]
struct ReadTrailer {
    position: u32,
    /// `None` if the position has no valid trailer.
    listing: Option<Arc<Listing>>,
    /// The epoch before the read, and the number of the first container that was not written.
    epoch: u64,
    unwritten_before: u32,
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

/// The write of the full container. Dropping this value ends the write, also if the device has panicked: later queries
/// would otherwise wait for it for ever.
struct Write<'a> {
    shared: &'a Shared,
    is_written: bool,
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        self.shared
            .end_write(self.is_written, &mut self.shared.state());
        self.shared.written.notify_all();
    }
}

impl Shared {
    /// Performs a query under the lock. Reads the trailers that it needs, and writes the container that it has filled,
    /// without the lock. A failed write is counted, and the chunks of the container are removed from the index.
    pub(crate) fn query<T>(
        &self,
        wait: Wait,
        query: impl FnMut(&mut State, &Reads) -> Result<T, Blocked>,
    ) -> Result<T, WouldBlock> {
        self.query_and_write(wait, query).map(|(result, _)| result)
    }

    /// Like [`query`](Self::query). Also returns the result of the write, if there was one.
    pub(crate) fn query_and_write<T>(
        &self,
        wait: Wait,
        mut query: impl FnMut(&mut State, &Reads) -> Result<T, Blocked>,
    ) -> Result<(T, io::Result<()>), WouldBlock> {
        let mut reads = Reads::default();
        loop {
            let mut state = self.state();
            let result = query(&mut state, &reads);
            let full = state.full.take();
            drop(state);
            let written = full.map_or(Ok(()), |full| self.write_full(full));
            let blocked = match result {
                Ok(result) => return Ok((result, written)),
                Err(blocked) => blocked,
            };
            if wait == Wait::Never {
                return Err(WouldBlock);
            }
            let unread = match blocked {
                Blocked::Unread(unread) => unread,
                Blocked::Unwritten => {
                    self.wait_written(u32::MAX);
                    continue;
                }
            };
            let read = self.read_for(unread.position);
            reads.0.retain(|read| read.position != unread.position);
            reads.0.push(read);
            let next = (unread.position + 1) % self.containers;
            if unread.reads_next && !self.state().trailers.contains(next) {
                self.cache(self.read_for(next));
            }
        }
    }

    /// Writes a full container. The caller does not hold the lock.
    fn write_full(&self, full: Arc<FullContainer>) -> io::Result<()> {
        let mut write = Write {
            shared: self,
            is_written: false,
        };
        let offset = self.layout.offset(self.position(full.listing.number));
        let container_bytes = self.layout.container_bytes();
        let (blocks, trailer) = full.bytes.split_at(full.trailer_at);
        let written = if full.trailer_at == container_bytes {
            self.device.write_at(&full.bytes, offset)
        } else {
            let blocks = (!blocks.is_empty()).then(|| self.device.write_at(blocks, offset));
            let trailer = || {
                let offset = offset + container_bytes as u64;
                self.device.write_at(trailer, offset)
            };
            blocks.unwrap_or(Ok(())).and_then(|()| trailer())
        };
        drop(full);
        write.is_written = written.is_ok();
        written
    }

    /// Waits until the full container is written, if there is one with a number below `end`.
    pub(crate) fn wait_written(&self, end: u32) {
        let is_unwritten = |state: &State| {
            let full = state.unwritten.as_ref();
            full.is_some_and(|full| full.listing.number < end)
        };
        let mut state = self.state();
        while is_unwritten(&state) {
            // `wait_while` would return at once after a panic of another thread.
            let waited = self.written.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn read_for(&self, position: u32) -> ReadTrailer {
        let state = self.state();
        let unwritten = state.unwritten.as_ref().map(|full| full.listing.number);
        let unwritten_before = unwritten.unwrap_or(state.open.number);
        let epoch = state.superblock.epoch;
        drop(state);
        let listing = self.read_trailer(position, epoch);
        if listing.is_err() {
            self.state().counters.errors += 1;
        }
        ReadTrailer {
            position,
            listing: listing.ok().flatten().map(Arc::new),
            epoch,
            unwritten_before,
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
        let mut written = read.unwritten_before..=state.open.number;
        state.superblock.epoch == read.epoch
            && written.all(|number| self.position(number) != read.position)
    }
}
