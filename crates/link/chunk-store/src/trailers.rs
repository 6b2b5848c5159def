//! A cache of trailers. A trailer is the list of a container's chunks.
//!
//! A trailer that was read for one chunk also lists the neighbours of the chunk, which are probably requested next.
//! The least recently used trailers are evicted first. When a chunk is read or recognised, its fingerprint is stored
//! beside the cached trailer.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use edgeward_dedup::fingerprint::ChunkFingerprint;
use edgeward_dedup::id::ChunkId;
use edgeward_dedup::store::Entry;

use crate::blocks::{self, Part};
use crate::format::{Block, Trailer, raw_bytes};

/// A decoded trailer of a container. For each chunk it has the id and the length. The bytes of some chunks are not
/// in the container: these chunks are only listed.
#[derive(Debug)]
pub(crate) struct Listing {
    /// The number of the container. A later container at the same position has another number.
    pub(crate) number: u32,
    /// The chunks, in order. The index of a chunk is its slot.
    pub(crate) entries: Vec<Entry>,
    /// The blocks: neighbouring chunks that are compressed together, stored uncompressed, or only listed. The chunks of
    /// a block without a method are only listed. Without blocks, all chunks are stored uncompressed.
    blocks: Vec<Block>,
    /// The slot after the slot of the last requested chunk. The next requested chunk is nearly always in this slot.
    next_slot: AtomicUsize,
    /// The slots in the order of their chunks' ids. Computed at the first lookup of another chunk than the next one.
    slots_by_id: OnceLock<Vec<u16>>,
    /// The number of listed chunks before each slot and at the end, or empty if the bytes of all chunks are stored.
    listed_before: Vec<u16>,
}

impl Listing {
    /// Returns the slot of a chunk. If the chunk has two slots because it was first listed and later stored,
    /// returns the slot with the bytes.
    pub(crate) fn slot(&self, id: &ChunkId) -> Option<u16> {
        let next = self.next_slot.load(Ordering::Relaxed);
        let is_next = self.entries.get(next).is_some_and(|entry| entry.id == *id);
        let slot = if is_next && self.has_bytes(next) {
            u16::try_from(next).ok()?
        } else {
            self.search(id)?
        };
        self.next_slot
            .store(usize::from(slot) + 1, Ordering::Relaxed);
        Some(slot)
    }

    fn search(&self, id: &ChunkId) -> Option<u16> {
        let id_of = |slot: u16| &self.entries[usize::from(slot)].id;
        let by_id = self.slots_by_id.get_or_init(|| {
            let slots = 0..u16::try_from(self.entries.len()).unwrap_or(u16::MAX);
            let mut slots: Vec<u16> = slots.collect();
            slots.sort_unstable_by_key(|&slot| (id_of(slot), slot));
            slots
        });
        let first = by_id.partition_point(|&slot| id_of(slot) < id);
        let found = by_id[first..].iter().copied();
        let mut found = found.take_while(|&slot| id_of(slot) == id);
        let listed = found.next()?;
        if self.has_bytes(usize::from(listed)) {
            return Some(listed);
        }
        let stored = found.find(|&slot| self.has_bytes(usize::from(slot)));
        Some(stored.unwrap_or(listed))
    }

    /// Returns the parts of blocks that contain the chunks, or `None` if the bytes of a chunk are not stored.
    pub(crate) fn parts(&self, slots: Range<usize>) -> Option<Vec<Part>> {
        blocks::parts(&self.entries, &self.blocks, slots)
    }

    /// Returns true if the bytes of the chunk are stored, false if the chunk is only listed.
    pub(crate) fn has_bytes(&self, slot: usize) -> bool {
        self.have_bytes(slot..slot + 1)
    }

    /// Returns true if the bytes of all of these chunks are stored.
    pub(crate) fn have_bytes(&self, slots: Range<usize>) -> bool {
        if slots.end > self.entries.len() {
            return false;
        }
        let listed_before = |slot: usize| self.listed_before.get(slot).copied();
        listed_before(slots.start) == listed_before(slots.end)
    }

    /// Returns the sizes of the container's chunks.
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

/// The sizes of a container's chunks in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// The bytes of the stored chunks before compression.
    pub(crate) raw: u64,
    /// The bytes of the stored chunks on the device, after compression.
    pub(crate) stored: u64,
    /// The bytes of the listed chunks. They are not stored.
    pub(crate) listed: u64,
}

impl From<Trailer> for Listing {
    fn from(trailer: Trailer) -> Self {
        let mut listed_before = Vec::new();
        if trailer.blocks.iter().any(|block| block.method.is_none()) {
            let mut listed = 0;
            listed_before.push(listed);
            for block in &trailer.blocks {
                for _ in 0..block.chunks {
                    listed += u16::from(block.method.is_none());
                    listed_before.push(listed);
                }
            }
        }
        Self {
            number: trailer.number,
            entries: trailer.entries,
            blocks: trailer.blocks,
            next_slot: AtomicUsize::new(0),
            slots_by_id: OnceLock::new(),
            listed_before,
        }
    }
}

/// The trailers in memory.
#[derive(Debug)]
pub(crate) struct TrailerCache {
    /// The cached trailers by their container's position.
    listings: HashMap<u32, CachedTrailer>,
    /// The highest number of cached trailers.
    trailers_max: usize,
    /// A counter of requests and insertions, by which the least recently used trailer is found.
    clock: u64,
}

#[derive(Debug)]
struct CachedTrailer {
    /// The value of the clock at the last request.
    last_use: u64,
    listing: Arc<Listing>,
    /// The fingerprints: one element for each chunk, or empty if no chunk has a fingerprint.
    fingerprints: Vec<Option<ChunkFingerprint>>,
}

impl TrailerCache {
    pub(crate) fn new(trailers_max: usize) -> Self {
        Self {
            listings: HashMap::new(),
            trailers_max: trailers_max.max(2),
            clock: 0,
        }
    }

    pub(crate) fn get(&mut self, position: u32) -> Option<Arc<Listing>> {
        self.clock += 1;
        let cached = self.listings.get_mut(&position)?;
        cached.last_use = self.clock;
        Some(Arc::clone(&cached.listing))
    }

    /// Returns true if the trailer is cached. This does not count as a request.
    pub(crate) fn contains(&self, position: u32) -> bool {
        self.listings.contains_key(&position)
    }

    /// Returns the fingerprints of the chunks of the container with this number, by slot. The list may be shorter than
    /// that of the chunks.
    pub(crate) fn fingerprints(&self, position: u32, number: u32) -> &[Option<ChunkFingerprint>] {
        let cached = self.listings.get(&position);
        let cached = cached.filter(|cached| cached.listing.number == number);
        cached.map_or(&[], |cached| &cached.fingerprints)
    }

    /// Records the fingerprint of a chunk if the trailer is cached, lists the chunk in this slot, and has no
    /// fingerprint of the chunk yet. Otherwise the function `fingerprint` is not called.
    pub(crate) fn set_fingerprint(
        &mut self,
        position: u32,
        number: u32,
        (slot, id): (usize, &ChunkId),
        fingerprint: impl FnOnce() -> Option<ChunkFingerprint>,
    ) {
        let cached = self.listings.get_mut(&position);
        let Some(cached) = cached.filter(|cached| cached.listing.number == number) else {
            return;
        };
        let entries = &cached.listing.entries;
        let has_fingerprint = cached.fingerprints.get(slot).is_some_and(Option::is_some);
        if has_fingerprint || entries.get(slot).is_none_or(|entry| entry.id != *id) {
            return;
        }
        let Some(fingerprint) = fingerprint() else {
            return;
        };
        cached.fingerprints.resize(entries.len(), None);
        cached.fingerprints[slot] = Some(fingerprint);
    }

    pub(crate) fn insert(&mut self, position: u32, listing: Arc<Listing>) {
        if self.listings.len() >= self.trailers_max {
            // Evicts the less recently used half. Searching the whole cache for one trailer at each insertion would
            // take as long as reading a trailer.
            let mut uses: Vec<u64> = self
                .listings
                .values()
                .map(|cached| cached.last_use)
                .collect();
            let middle = uses.len() / 2;
            let (_, median, _) = uses.select_nth_unstable(middle);
            let median = *median;
            self.listings.retain(|_, cached| cached.last_use >= median);
        }
        self.clock += 1;
        let cached = CachedTrailer {
            last_use: self.clock,
            listing,
            fingerprints: Vec::new(),
        };
        self.listings.insert(position, cached);
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

    use edgeward_dedup::codec::Method;
    use edgeward_dedup::fingerprint::FingerprintKey;

    /// The cache never has more trailers than its limit. A trailer that is requested again and again stays.
    #[test]
    fn trailers_are_bounded() {
        let mut trailers = TrailerCache::new(10);
        for number in 0..100 {
            let trailer = Trailer {
                number,
                entries: Vec::new(),
                blocks: Vec::new(),
            };
            trailers.insert(number, Arc::new(trailer.into()));
            assert!(trailers.listings.len() <= 10);
            assert!(trailers.get(number).is_some());
            assert!(
                number == 0 || trailers.get(0).is_some(),
                "{number}: trailer 0 is requested each time"
            );
        }
        assert!(trailers.get(50).is_none());
        trailers.remove(0);
        assert!(trailers.get(0).is_none());
    }

    /// A lookup by id finds each chunk of the trailer, and a slot with its bytes if there is one.
    ///
    /// Method: draw trailers with few different ids in blocks that are stored or listed. Look up all ids in every order
    /// of two, and compare with a search of all slots.
    #[test]
    fn a_lookup_finds_a_slot_with_the_bytes_of_the_chunk() {
        let mut random = edgeward_types::SplitMix64(7);
        let id = |number: u64| ChunkId([number as u8; 16]);
        for _ in 0..200 {
            let blocks = (0..random.draw() % 6).map(|_| Block {
                chunks: 1 + (random.draw() % 4) as u16,
                method: random.draw().is_multiple_of(2).then_some(Method::None),
                stored: 0,
            });
            let blocks: Vec<_> = blocks.collect();
            let chunks = blocks.iter().map(|block| usize::from(block.chunks)).sum();
            let entries = (0..chunks).map(|_| Entry {
                id: id(random.draw() % 8),
                length: 10,
            });
            let entries: Vec<_> = entries.collect();
            let each_block = blocks.iter();
            let is_stored: Vec<bool> = each_block
                .flat_map(|block| vec![block.method.is_some(); usize::from(block.chunks)])
                .collect();
            let listing = Listing::from(Trailer {
                number: 0,
                entries: entries.clone(),
                blocks,
            });
            let check = |id: ChunkId| {
                let slots = (0..chunks).filter(|&slot| entries[slot].id == id);
                let found = listing.slot(&id).map(usize::from);
                assert_eq!(
                    found.map(|slot| entries[slot].id),
                    slots.clone().next().map(|_| id)
                );
                let has_bytes = found.is_some_and(|slot| is_stored[slot]);
                assert_eq!(has_bytes, slots.clone().any(|slot| is_stored[slot]));
            };
            for (first, second) in
                (0..8).flat_map(|first| (0..8).map(move |second| (first, second)))
            {
                [first, second]
                    .into_iter()
                    .for_each(|number| check(id(number)));
            }
            for start in 0..=chunks {
                for end in start..=chunks + 1 {
                    let expected =
                        end <= chunks && is_stored[start..end].iter().all(|stored| *stored);
                    assert_eq!(listing.have_bytes(start..end), expected, "{start}..{end}");
                }
            }
        }
    }

    /// A fingerprint belongs to one chunk of one container. It is not returned for another container at the
    /// same position or for another id.
    #[test]
    fn fingerprints_stay_with_their_chunk() {
        let key = FingerprintKey::new(&[1; 32]);
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
        let fingerprint = key
            .fingerprint(b"a chunk")
            .expect("the chunk is short enough");
        let mut trailers = TrailerCache::new(10);
        trailers.insert(5, trailer(105));
        assert_eq!(trailers.fingerprints(5, 105), []);
        let (this, other) = (entries[2].id, entries[1].id);
        for (number, slot, id) in [(205, 2, this), (105, 2, other), (105, 3, this)] {
            trailers.set_fingerprint(5, number, (slot, &id), || {
                unreachable!("the trailer does not list the chunk in this slot")
            });
        }
        trailers.set_fingerprint(5, 105, (2, &this), || Some(fingerprint));
        assert_eq!(
            trailers.fingerprints(5, 105),
            [None, None, Some(fingerprint)]
        );
        assert_eq!(trailers.fingerprints(5, 205), []);
        trailers.set_fingerprint(5, 105, (2, &this), || {
            unreachable!("the chunk has a fingerprint already")
        });
        trailers.insert(5, trailer(205));
        assert_eq!(trailers.fingerprints(5, 205), []);
    }
}
