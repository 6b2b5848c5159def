//! Trailers that were read, as many as are worth their memory.
//!
//! A trailer read for one chunk answers for its neighbours, which are asked for next. The one that was asked for longest ago
//! leaves first.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use edgeward_dedup::id::ChunkId;
use edgeward_dedup::store::Entry;

use crate::blocks::{self, Part};
use crate::format::{Block, Trailer, raw_bytes};

/// A container's trailer.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) number: u32,
    pub(crate) entries: Vec<Entry>,
    blocks: Vec<Block>,
    /// What follows the chunk that was found last: nearly always the next that is asked for.
    next: AtomicUsize,
}

impl Listing {
    /// Which chunk has this name.
    pub(crate) fn slot(&self, id: &ChunkId) -> Option<u16> {
        let is_it = |entry: &Entry| entry.id == *id;
        let next = self.next.load(Ordering::Relaxed);
        let slot = if self.entries.get(next).is_some_and(is_it) {
            next
        } else {
            self.entries.iter().position(is_it)?
        };
        self.next.store(slot + 1, Ordering::Relaxed);
        u16::try_from(slot).ok()
    }

    /// Where chunks lie.
    pub(crate) fn parts(&self, slots: Range<usize>) -> Vec<Part> {
        blocks::parts(&self.entries, &self.blocks, slots)
    }

    /// Bytes of its chunks, and bytes they take.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let raw = raw_bytes(&self.entries);
        let stored = self.blocks.iter().map(|block| u64::from(block.stored));
        let stored = if self.blocks.is_empty() {
            raw
        } else {
            stored.sum()
        };
        (raw, stored)
    }
}

impl From<Trailer> for Listing {
    fn from(trailer: Trailer) -> Self {
        Self {
            number: trailer.number,
            entries: trailer.entries,
            blocks: trailer.blocks,
            next: AtomicUsize::new(0),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Trailers {
    /// By position, with when each was asked for.
    listings: HashMap<u32, (u64, Arc<Listing>)>,
    most: usize,
    clock: u64,
}

impl Trailers {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            listings: HashMap::new(),
            most: most.max(2),
            clock: 0,
        }
    }

    pub(crate) fn of(&mut self, position: u32) -> Option<Arc<Listing>> {
        self.clock += 1;
        let (asked, listing) = self.listings.get_mut(&position)?;
        *asked = self.clock;
        Some(Arc::clone(listing))
    }

    pub(crate) fn insert(&mut self, position: u32, listing: Arc<Listing>) {
        if self.listings.len() >= self.most {
            // Half at once: looking for the oldest each time would cost as much as reading.
            let mut asked: Vec<u64> = self.listings.values().map(|(asked, _)| *asked).collect();
            let middle = asked.len() / 2;
            let (_, median, _) = asked.select_nth_unstable(middle);
            let median = *median;
            self.listings.retain(|_, (asked, _)| *asked >= median);
        }
        self.clock += 1;
        self.listings.insert(position, (self.clock, listing));
    }

    pub(crate) fn clear(&mut self) {
        self.listings.clear();
    }

    pub(crate) fn remove(&mut self, position: u32) {
        self.listings.remove(&position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of many, those asked for last are there, and never more than were allowed.
    #[test]
    fn trailers_are_bounded() {
        let mut trailers = Trailers::new(10);
        for number in 0..100 {
            let trailer = Trailer {
                number,
                entries: Vec::new(),
                blocks: Vec::new(),
            };
            trailers.insert(number, Arc::new(trailer.into()));
            assert!(trailers.listings.len() <= 10);
            assert!(trailers.of(number).is_some());
            assert!(
                number == 0 || trailers.of(0).is_some(),
                "{number}: it is asked for all the time"
            );
        }
        assert!(trailers.of(50).is_none());
        trailers.remove(0);
        assert!(trailers.of(0).is_none());
    }
}
