//! The index: it returns the positions of the containers that may have a chunk. The first container of the device has
//! position 0, the next has position 1. The index takes about seven bytes of memory for each chunk, including free
//! slots.
//!
//! The index is a hash table of buckets. A bucket is a cache line with ten slots: ten positions of four bytes,
//! and ten tags of two bytes. A tag is 16 bits of a chunk id. Each id has two possible buckets, and is inserted
//! into the bucket with more free slots. If both are full, one of their entries moves to its alternate bucket,
//! which is computed from the entry's bucket and tag, as in cuckoo filters (Fan et al., CoNEXT 2014, section
//! 3.1). Because entries can move, nearly all slots can be used. If no entry can move, an older entry is
//! dropped; its chunk is not found any more and is sent again when it is needed. Different ids may have the
//! same buckets and tag, so a result can be wrong. The caller compares the full id in the trailer of the
//! container.
//!
//! A lookup reads two random cache lines of a table of gigabytes. With pages of 4 KiB, such reads miss the TLB, and
//! address translation takes most of the time. The table therefore uses huge pages if the system provides them.
//! The thread that recovers the index [allocates](Index::allocate) all pages. Otherwise the first insertion into each
//! page would cause a page fault, which takes as long as storing a chunk.
//!
//! A checkpoint saves the table block by block, while chunks are inserted and removed. The [frontier](Index::save_block)
//! is the border between saved and unsaved buckets. No entry moves across it, so that the checkpoint has each entry
//! once. In a full index, one of 2,000 insertions during a save then finds no entry that can move.

use std::io;
use std::ops::Range;

use edgeward_dedup::id::ChunkId;
use memmap2::{Advice, MmapMut};

/// The memory of a slot in bytes: 6.4, a tenth of a bucket. This includes the unused bytes of the bucket.
pub const SLOT_BYTES: f64 = BUCKET_BYTES as f64 / SLOTS as f64;

/// The number of slots in a bucket.
const SLOTS: usize = 10;

/// The size of a bucket: a cache line.
pub(crate) const BUCKET_BYTES: usize = 64;

/// The number of buckets that are saved or loaded under one acquisition of the store's lock: 64 KiB, which are
/// copied in about 10 µs.
pub const BLOCK_BUCKETS: u64 = 1024;

/// A bucket: ten positions, ten tags, and four unused bytes. A position is stored plus one, so that zero is an empty
/// slot.
type Bucket = [u8; BUCKET_BYTES];

/// The offset of the tags in a bucket.
const TAGS_AT: usize = 4 * SLOTS;

const _: () = assert!(TAGS_AT + 2 * SLOTS <= BUCKET_BYTES);

/// A map from chunk ids to the positions of containers that may have them.
#[derive(Debug)]
pub struct Index {
    /// The buckets. The mapping is aligned to pages, so each bucket is one cache line.
    table: MmapMut,
    buckets: usize,
    used: u64,
    dropped: u64,
    /// During a save, the number of the first bucket that is not saved yet.
    frontier: Option<usize>,
}

impl Index {
    /// Creates an index for this number of chunks. A tenth of the slots stays free, so that few entries are dropped.
    ///
    /// # Errors
    ///
    /// Fails if the system does not give the memory.
    pub fn for_chunks(chunks: u64) -> io::Result<Self> {
        Self::with_buckets(Self::buckets_for(chunks))
    }

    /// Creates an index with this number of buckets, but at least two. The pages of the table are allocated by
    /// [`allocate`](Self::allocate), or when they are first used.
    ///
    /// # Errors
    ///
    /// Fails if the system does not give the memory.
    pub fn with_buckets(buckets: u64) -> io::Result<Self> {
        let buckets = usize::try_from(buckets.max(2)).ok();
        let bytes = buckets.and_then(|buckets| buckets.checked_mul(BUCKET_BYTES));
        let (Some(buckets), Some(bytes)) = (buckets, bytes) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        let table = MmapMut::map_anon(bytes)?;
        // Without huge pages the system uses small ones.
        _ = table.advise(Advice::HugePage);
        Ok(Self {
            table,
            buckets,
            used: 0,
            dropped: 0,
            frontier: None,
        })
    }

    /// Returns the number of buckets of an index for this number of chunks.
    pub(crate) fn buckets_for(chunks: u64) -> u64 {
        let slots = chunks.saturating_add(chunks / 9);
        slots.div_ceil(SLOTS as u64).max(2)
    }

    /// Returns the memory of an index with this number of buckets, in bytes.
    pub(crate) fn bytes_for(buckets: u64) -> u64 {
        buckets.saturating_mul(BUCKET_BYTES as u64)
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> u64 {
        self.buckets as u64
    }

    /// Allocates the pages of some buckets. Their content stays unchanged.
    pub fn allocate(&mut self, buckets: Range<u64>) {
        let Range { start, end } = self.byte_range(buckets);
        let advised = self
            .table
            .advise_range(Advice::PopulateWrite, start, end - start);
        // Linux before 5.14 cannot allocate pages by one call. A write to each page allocates it.
        if advised.is_err() {
            let pages = self.table[start..end].iter_mut().step_by(4096);
            pages.for_each(|byte| *byte = std::hint::black_box(*byte));
        }
    }

    /// Appends a block of the table, [`BLOCK_BUCKETS`] buckets from `start` on, to `out`. Moves the frontier to the end
    /// of the block. Returns false if `start` is behind the last bucket.
    ///
    /// The first block begins a save. [`end_save`](Self::end_save) ends it.
    pub fn save_block(&mut self, start: u64, out: &mut Vec<u8>) -> bool {
        let end = self.buckets().min(start.saturating_add(BLOCK_BUCKETS));
        if start >= end {
            return false;
        }
        self.frontier = usize::try_from(end).ok();
        out.extend_from_slice(&self.table[self.byte_range(start..end)]);
        true
    }

    /// Ends a save: entries may move between all buckets again.
    pub fn end_save(&mut self) {
        self.frontier = None;
    }

    /// Adds the entries of a saved block to the buckets from `start` on. `is_valid` selects the positions whose entries
    /// are added. The buckets may have newer entries already; a saved entry that finds no free slot is dropped.
    pub fn load_block(&mut self, start: u64, block: &[u8], is_valid: impl Fn(u32) -> bool) {
        let first = usize::try_from(start).unwrap_or(usize::MAX);
        for (number, saved) in (first..self.buckets).zip(block.as_chunks::<BUCKET_BYTES>().0) {
            for slot in 0..SLOTS {
                let Some(at) = position(saved, slot).checked_sub(1) else {
                    continue;
                };
                if !is_valid(at) {
                    continue;
                }
                if let Some(free) = first_free(self.bucket(number)) {
                    set_slot(self.bucket_mut(number), free, at + 1, tag(saved, slot));
                    self.used += 1;
                } else {
                    self.dropped += 1;
                }
            }
        }
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.table.fill(0);
        self.used = 0;
        self.frontier = None;
    }

    fn byte_range(&self, buckets: Range<u64>) -> Range<usize> {
        let at = |bucket: u64| {
            let bucket = usize::try_from(bucket).unwrap_or(usize::MAX);
            bucket.min(self.buckets) * BUCKET_BYTES
        };
        at(buckets.start)..at(buckets.end)
    }

    /// Loads the buckets of these ids into the processor's cache in parallel, before they are read or changed.
    pub fn prefetch<'a>(&self, ids: impl IntoIterator<Item = &'a ChunkId>) {
        let mut loaded = 0;
        for id in ids {
            let (pair, _) = self.buckets_and_tag(id);
            loaded |= self.bucket(pair[0])[0] | self.bucket(pair[1])[0];
        }
        // The loads do not depend on each other, so the processor performs them in parallel. `black_box` prevents the
        // compiler from removing them.
        std::hint::black_box(loaded);
    }

    /// Returns the positions of containers that may have the chunk.
    pub fn candidates(&self, id: &ChunkId) -> impl Iterator<Item = u32> + use<> {
        let (pair, tag) = self.buckets_and_tag(id);
        let matches = pair.map(|bucket| matching_positions(self.bucket(bucket), tag));
        // The two buckets of an id may be the same bucket. Its matches must not be returned twice.
        let second = if pair[0] == pair[1] {
            [0; SLOTS]
        } else {
            matches[1]
        };
        matches[0]
            .into_iter()
            .chain(second)
            .filter_map(|position| position.checked_sub(1))
    }

    /// Records that the container at `position` has the chunk.
    pub fn insert(&mut self, id: &ChunkId, position: u32) {
        let (pair, tag) = self.buckets_and_tag(id);
        let (bucket, slot) = self.free_slot(pair).unwrap_or_else(|| {
            self.dropped += 1;
            self.used -= 1;
            // Overwrites a slot that is chosen by the tag.
            (pair[0], usize::from(tag) % SLOTS)
        });
        set_slot(self.bucket_mut(bucket), slot, position + 1, tag);
        self.used += 1;
    }

    /// Returns a free slot of one of these buckets. If both are full, moves one of their entries.
    fn free_slot(&mut self, pair: [usize; 2]) -> Option<(usize, usize)> {
        let free = pair.map(|bucket| free_slots(self.bucket(bucket)));
        let bucket = pair[usize::from(free[1] > free[0])];
        let slot = first_free(self.bucket(bucket));
        slot.map_or_else(|| self.move_entry(pair), |slot| Some((bucket, slot)))
    }

    /// Moves an entry of these full buckets to its alternate bucket. Returns the bucket and the slot that is
    /// now free.
    fn move_entry(&mut self, pair: [usize; 2]) -> Option<(usize, usize)> {
        for bucket in pair {
            for slot in 0..SLOTS {
                let bucket_content = self.bucket(bucket);
                let (moved, moved_tag) =
                    (position(bucket_content, slot), tag(bucket_content, slot));
                let other = self.alternate(bucket, moved_tag);
                if self.is_saved(bucket) != self.is_saved(other) {
                    continue;
                }
                if let Some(free) = first_free(self.bucket(other)) {
                    set_slot(self.bucket_mut(other), free, moved, moved_tag);
                    set_slot(self.bucket_mut(bucket), slot, 0, 0);
                    return Some((bucket, slot));
                }
            }
        }
        None
    }

    fn is_saved(&self, bucket: usize) -> bool {
        self.frontier.is_some_and(|frontier| bucket < frontier)
    }

    /// Like [`insert`](Self::insert), for a chunk of an older container: if the index has the entry already or has no
    /// free slot for it, nothing changes.
    pub(crate) fn insert_recovered(&mut self, id: &ChunkId, position: u32) {
        if self.candidates(id).any(|found| found == position) {
            return;
        }
        let (pair, tag) = self.buckets_and_tag(id);
        if let Some((bucket, slot)) = self.free_slot(pair) {
            set_slot(self.bucket_mut(bucket), slot, position + 1, tag);
            self.used += 1;
        } else {
            self.dropped += 1;
        }
    }

    /// Removes the entry of this chunk for the container at `position`.
    pub fn remove(&mut self, id: &ChunkId, position: u32) {
        let (pair, tag) = self.buckets_and_tag(id);
        for bucket in pair {
            let bucket = self.bucket_mut(bucket);
            let found = matching_positions(bucket, tag);
            if let Some(slot) = found.iter().position(|found| *found == position + 1) {
                set_slot(bucket, slot, 0, 0);
                self.used -= 1;
                return;
            }
        }
    }

    /// Returns the number of entries.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Returns the number of entries that were dropped for a new entry: both of its buckets were full, and no entry of
    /// them could move.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the size of the table in bytes.
    pub fn bytes(&self) -> usize {
        self.table.len()
    }

    /// Returns the two buckets and the tag of an id. The bits of the id are used directly, because ids are hashes.
    fn buckets_and_tag(&self, id: &ChunkId) -> ([usize; 2], u16) {
        let [front, back] = [0, 8].map(|at| {
            u64::from_le_bytes(*id.0[at..].first_chunk().expect("the id has sixteen bytes"))
        });
        let tag = (back >> 48) as u16;
        let first = self.bucket_of(front);
        ([first, self.alternate(first, tag)], tag)
    }

    /// Returns the alternate bucket of an entry. The sum of both buckets, modulo the number of buckets, is a
    /// hash of the tag, so each bucket is the alternate of the other.
    fn alternate(&self, bucket: usize, tag: u16) -> usize {
        let sum = self.bucket_of(u64::from(tag).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let other = sum + self.buckets - bucket;
        if other < self.buckets {
            other
        } else {
            other - self.buckets
        }
    }

    /// Maps a hash to a bucket, uniformly for any number of buckets.
    fn bucket_of(&self, hash: u64) -> usize {
        let scaled = (u128::from(hash) * self.buckets as u128) >> 64;
        usize::try_from(scaled).expect("below the number of buckets")
    }

    fn bucket(&self, bucket: usize) -> &Bucket {
        &self.table.as_chunks().0[bucket]
    }

    fn bucket_mut(&mut self, bucket: usize) -> &mut Bucket {
        &mut self.table.as_chunks_mut().0[bucket]
    }
}

fn position(bucket: &Bucket, slot: usize) -> u32 {
    let bytes = bucket[4 * slot..].first_chunk();
    u32::from_le_bytes(*bytes.expect("slots lie within the bucket"))
}

fn tag(bucket: &Bucket, slot: usize) -> u16 {
    let bytes = bucket[TAGS_AT + 2 * slot..].first_chunk();
    u16::from_le_bytes(*bytes.expect("slots lie within the bucket"))
}

/// Returns for each slot its position plus one if it has this tag, and zero otherwise.
fn matching_positions(bucket: &Bucket, requested_tag: u16) -> [u32; SLOTS] {
    std::array::from_fn(|slot| {
        if tag(bucket, slot) == requested_tag {
            position(bucket, slot)
        } else {
            0
        }
    })
}

fn free_slots(bucket: &Bucket) -> usize {
    (0..SLOTS)
        .filter(|slot| position(bucket, *slot) == 0)
        .count()
}

fn first_free(bucket: &Bucket) -> Option<usize> {
    (0..SLOTS).find(|slot| position(bucket, *slot) == 0)
}

fn set_slot(bucket: &mut Bucket, slot: usize, position: u32, tag: u16) {
    bucket[4 * slot..][..4].copy_from_slice(&position.to_le_bytes());
    bucket[TAGS_AT + 2 * slot..][..2].copy_from_slice(&tag.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> ChunkId {
        let hash = edgeward_types::xxh3::xxh3_128(&number.to_le_bytes());
        ChunkId(hash.to_le_bytes())
    }

    /// The index drops no entry until it has the number of chunks for which it was created. For an unknown id,
    /// only one of several thousand lookups returns a position.
    #[test]
    fn an_index_keeps_as_many_chunks_as_it_is_sized_for() {
        let mut index = Index::for_chunks(100_000).expect("the memory is available");
        (0..100_000).for_each(|n| index.insert(&id(n), (n / 100) as u32));
        assert_eq!((index.used(), index.dropped()), (100_000, 0));
        let found = |n: u64| {
            index
                .candidates(&id(n))
                .any(|position| u64::from(position) == n / 100)
        };
        assert!((0..100_000).all(found));
        let unknown_ids = 100_000..200_000;
        let false_matches = unknown_ids
            .map(|n| index.candidates(&id(n)).count())
            .sum::<usize>();
        // A lookup compares the tags of 20 slots, and nine tenths of the slots are used. There are 2^16 tags, so 27
        // false matches are expected in 100 000 lookups.
        assert!(
            (10..60).contains(&false_matches),
            "{false_matches} false matches in 100000 lookups"
        );
        // The index takes at most 0.85 GB of memory per TB of chunks. With a configured average of 8 KiB, the mean
        // length of a chunk is 9.3 KB.
        let per_terabyte = index.bytes() as f64 / 100_000.0 * (1e12 / 9300.0);
        assert!(per_terabyte < 0.85e9, "{per_terabyte} bytes");
    }

    /// If more chunks are inserted than the number for which the index was created, old entries are dropped and the
    /// newest entry is found.
    #[test]
    fn a_full_index_finds_the_newest_entry() {
        let mut index = Index::for_chunks(1000).expect("the memory is available");
        for n in 0..5000 {
            index.insert(&id(n), n as u32);
            assert!(
                index
                    .candidates(&id(n))
                    .any(|position| u64::from(position) == n)
            );
        }
        assert_eq!(index.used() + index.dropped(), 5000);
        // The index has 112 buckets of 10 slots.
        assert!(index.used() <= 1120);
    }

    /// A table that is saved while chunks are inserted and removed has each entry once: those that were in the index
    /// during the whole save are all loaded, and no entry is loaded twice.
    ///
    /// Method: fill an index until entries must move. Save it block by block, and replace some chunks after each block.
    #[test]
    fn an_index_that_changes_during_a_save_is_saved_with_each_entry_once() {
        let chunks = 60_000;
        let mut index = Index::for_chunks(chunks).expect("the memory is available");
        (0..chunks).for_each(|n| index.insert(&id(n), n as u32));
        let (mut block, mut start, mut replaced) = (Vec::new(), 0, 0);
        let mut loaded = Index::for_chunks(chunks).expect("the memory is available");
        while index.save_block(start, &mut block) {
            loaded.load_block(start, &block, |position| u64::from(position) < chunks);
            block.clear();
            start += BLOCK_BUCKETS;
            for _ in 0..2000 {
                index.remove(&id(replaced), replaced as u32);
                index.insert(&id(chunks + replaced), (chunks + replaced) as u32);
                replaced += 1;
            }
        }
        index.end_save();
        assert_eq!((replaced, loaded.dropped()), (14_000, 0));
        // Few insertions find no entry that may move, and drop one.
        assert!(index.dropped() <= replaced / 1000);
        let count = |index: &Index, n: u64| {
            let positions = index.candidates(&id(n));
            positions.filter(|found| u64::from(*found) == n).count()
        };
        assert!((replaced..chunks).all(|n| count(&loaded, n) >= count(&index, n)));
        let counts: Vec<_> = (0..chunks).map(|n| count(&loaded, n)).collect();
        assert!(counts.iter().all(|count| *count <= 1));
        assert_eq!(counts.iter().sum::<usize>() as u64, loaded.used());
    }

    /// A recovered chunk is inserted once. If both of its buckets are full, it is dropped, and newer chunks stay.
    #[test]
    fn recovered_chunks_displace_none() {
        let mut index = Index::for_chunks(1000).expect("the memory is available");
        (0..1200).for_each(|n| index.insert_recovered(&id(n), n as u32));
        let (used, dropped) = (index.used(), index.dropped());
        assert!(dropped > 0 && used + dropped == 1200);
        (0..1000).for_each(|n| index.insert_recovered(&id(n), n as u32));
        assert_eq!(index.used(), used);
        let has = |n: u64| {
            index
                .candidates(&id(n))
                .any(|position| u64::from(position) == n)
        };
        assert!((0..1000).all(has));
    }

    #[test]
    fn removed_chunks_are_not_found() {
        let mut index = Index::for_chunks(100).expect("the memory is available");
        index.insert(&id(1), 7);
        index.insert(&id(1), 8);
        index.remove(&id(1), 9);
        assert_eq!(index.used(), 2);
        index.remove(&id(1), 7);
        assert_eq!(index.candidates(&id(1)).collect::<Vec<_>>(), [8]);
    }

    /// The highest position is not mistaken for an empty slot.
    #[test]
    fn the_highest_position_is_stored() {
        let mut index = Index::for_chunks(1).expect("the memory is available");
        index.insert(&id(1), u32::MAX - 1);
        assert_eq!(index.candidates(&id(1)).collect::<Vec<_>>(), [u32::MAX - 1]);
    }
}
