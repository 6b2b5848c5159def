//! Trailers that were read, as many as are worth their memory.
//!
//! A trailer read for one chunk answers for its neighbours, which are asked for next. The one that was asked for longest ago
//! leaves first. With a trailer goes what its chunks are known by in this process, once they were read or seen again.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use edgeward_dedup::id::ChunkId;
use edgeward_dedup::mark::Mark;
use edgeward_dedup::store::{Entry, Familiar};

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
    /// Which chunk has this name; if it was listed and then kept, the one that was kept.
    pub(crate) fn slot(&self, id: &ChunkId) -> Option<u16> {
        let is_it = |entry: &Entry| entry.id == *id;
        let next = self.next.load(Ordering::Relaxed);
        let slot = if self.entries.get(next).is_some_and(is_it) {
            next
        } else {
            self.entries.iter().position(is_it)?
        };
        let mut later = slot..self.entries.len();
        let kept = later.find(|&later| self.is_kept(later) && is_it(&self.entries[later]));
        let slot = kept.unwrap_or(slot);
        self.next.store(slot + 1, Ordering::Relaxed);
        u16::try_from(slot).ok()
    }

    /// Where chunks lie, if all of them do.
    pub(crate) fn parts(&self, slots: Range<usize>) -> Option<Vec<Part>> {
        blocks::parts(&self.entries, &self.blocks, slots)
    }

    /// Whether there is more of a chunk than its name.
    pub(crate) fn is_kept(&self, slot: usize) -> bool {
        self.are_kept(slot..slot + 1)
    }

    /// As [`is_kept`](Self::is_kept), of each of these.
    pub(crate) fn are_kept(&self, slots: Range<usize>) -> bool {
        let mut end = 0;
        let mut listed = self.blocks.iter().filter(|block| {
            let start = end;
            end += usize::from(block.chunks);
            block.method.is_none() && start < slots.end && slots.start < end
        });
        listed.next().is_none() && slots.end <= self.entries.len()
    }

    pub(crate) fn sizes(&self) -> Sizes {
        let mut sizes = Sizes::default();
        if self.blocks.is_empty() {
            sizes.raw = raw_bytes(&self.entries);
            sizes.stored = sizes.raw;
        }
        let mut rest = &self.entries[..];
        for block in &self.blocks {
            let (chunks, others) = rest.split_at(usize::from(block.chunks));
            rest = others;
            sizes.stored += u64::from(block.stored);
            match block.method {
                Some(_) => sizes.raw += raw_bytes(chunks),
                None => sizes.listed += raw_bytes(chunks),
            }
        }
        sizes
    }
}

/// Bytes of a container's chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Of those that are kept.
    pub(crate) raw: u64,
    /// What they take.
    pub(crate) stored: u64,
    /// Of those of which there are only the names.
    pub(crate) listed: u64,
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
    /// By position.
    listings: HashMap<u32, Kept>,
    most: usize,
    clock: u64,
    /// The last one that had been read ahead and was asked for.
    foreseen: Option<u32>,
}

#[derive(Debug)]
struct Kept {
    /// When it was asked for.
    asked: u64,
    /// It was read ahead, and nobody has asked for it.
    is_ahead: bool,
    listing: Arc<Listing>,
    /// As many as there are chunks, or none at all.
    marks: Vec<Option<Mark>>,
}

impl Trailers {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            listings: HashMap::new(),
            most: most.max(2),
            clock: 0,
            foreseen: None,
        }
    }

    pub(crate) fn of(&mut self, position: u32) -> Option<Arc<Listing>> {
        self.clock += 1;
        let kept = self.listings.get_mut(&position)?;
        kept.asked = self.clock;
        if std::mem::take(&mut kept.is_ahead) {
            self.foreseen = Some(position);
        }
        Some(Arc::clone(&kept.listing))
    }

    /// Whether it is there; that is not to ask for it.
    pub(crate) fn has(&self, position: u32) -> bool {
        self.listings.contains_key(&position)
    }

    /// The last one that had been read ahead and was then asked for, if that is news.
    pub(crate) fn foreseen(&mut self) -> Option<u32> {
        self.foreseen.take()
    }

    /// Appends chunks from a slot on with their marks, if the trailer is there and of this container.
    pub(crate) fn familiar(
        &self,
        position: u32,
        number: u32,
        slots: Range<usize>,
        out: &mut Vec<Familiar>,
    ) {
        let kept = self.listings.get(&position);
        let Some(kept) = kept.filter(|kept| kept.listing.number == number) else {
            return;
        };
        let entries = kept.listing.entries.iter().enumerate();
        out.extend(
            entries
                .skip(slots.start)
                .take(slots.len())
                .map(|(slot, &entry)| {
                    let mark = kept.marks.get(slot).copied().flatten();
                    Familiar { entry, mark }
                }),
        );
    }

    /// Keeps the mark of a chunk, if the trailer is there, has it, and it has none.
    pub(crate) fn note(
        &mut self,
        position: u32,
        number: u32,
        (slot, id): (usize, &ChunkId),
        mark: impl FnOnce() -> Option<Mark>,
    ) {
        let kept = self.listings.get_mut(&position);
        let Some(kept) = kept.filter(|kept| kept.listing.number == number) else {
            return;
        };
        let entries = &kept.listing.entries;
        let is_marked = kept.marks.get(slot).is_some_and(Option::is_some);
        if is_marked || entries.get(slot).is_none_or(|entry| entry.id != *id) {
            return;
        }
        let Some(mark) = mark() else {
            return;
        };
        kept.marks.resize(entries.len(), None);
        kept.marks[slot] = Some(mark);
    }

    pub(crate) fn insert(&mut self, position: u32, listing: Arc<Listing>) {
        self.keep(position, listing, false);
    }

    /// As [`insert`](Self::insert), of one for which nobody has asked yet.
    pub(crate) fn insert_ahead(&mut self, position: u32, listing: Arc<Listing>) {
        self.keep(position, listing, true);
    }

    fn keep(&mut self, position: u32, listing: Arc<Listing>, is_ahead: bool) {
        if self.listings.len() >= self.most {
            // Half at once: looking for the oldest each time would cost as much as reading.
            let mut asked: Vec<u64> = self.listings.values().map(|kept| kept.asked).collect();
            let middle = asked.len() / 2;
            let (_, median, _) = asked.select_nth_unstable(middle);
            let median = *median;
            self.listings.retain(|_, kept| kept.asked >= median);
        }
        self.clock += 1;
        let kept = Kept {
            asked: self.clock,
            is_ahead,
            listing,
            marks: Vec::new(),
        };
        self.listings.insert(position, kept);
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

    use edgeward_dedup::mark::MarkKey;

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

    /// A mark is of one chunk of one container: another container in its place, or another name, knows nothing of it.
    #[test]
    fn marks_stay_with_their_chunk() {
        let key = MarkKey::new(&[1; 32]);
        let entries = [7, 8, 9].map(|byte| Entry {
            id: ChunkId([byte; 16]),
            length: 10,
        });
        let trailer = |number| {
            let entries = entries.to_vec();
            Arc::new(Listing::from(Trailer {
                number,
                entries,
                blocks: Vec::new(),
            }))
        };
        let marks = |trailers: &Trailers, number| {
            let mut out = Vec::new();
            trailers.familiar(5, number, 1..10, &mut out);
            out.iter().map(|known| known.mark).collect::<Vec<_>>()
        };
        let mark = key.mark(b"a chunk").expect("it is short");
        let mut trailers = Trailers::new(10);
        trailers.insert(5, trailer(105));
        assert_eq!(marks(&trailers, 105), [None, None]);
        let (this, other) = (entries[2].id, entries[1].id);
        for (number, slot, id) in [(205, 2, this), (105, 2, other), (105, 3, this)] {
            trailers.note(5, number, (slot, &id), || {
                unreachable!("there is no such chunk")
            });
        }
        trailers.note(5, 105, (2, &this), || Some(mark));
        assert_eq!(marks(&trailers, 105), [None, Some(mark)]);
        assert_eq!(marks(&trailers, 205), []);
        trailers.note(5, 105, (2, &this), || unreachable!("it has one"));
        trailers.insert(5, trailer(205));
        assert_eq!(marks(&trailers, 205), [None, None]);
    }
}
