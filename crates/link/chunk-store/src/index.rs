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
//! All pages are allocated when the index is created. Otherwise the first insertion into each page would cause a page
//! fault, which takes as long as storing a chunk.

use edgeward_dedup::id::ChunkId;
use memmap2::{Advice, MmapMut};

/// The memory of a slot in bytes: 6.4, a tenth of a bucket. This includes the unused bytes of the bucket.
pub const SLOT_BYTES: f64 = BUCKET_BYTES as f64 / SLOTS as f64;

/// The number of slots in a bucket.
const SLOTS: usize = 10;

/// The size of a bucket: a cache line.
const BUCKET_BYTES: usize = 64;

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
}

impl Index {
    /// Creates an index for this number of chunks. A tenth of the slots stays free, so that few entries are dropped.
    ///
    /// # Panics
    ///
    /// Panics if the memory cannot be allocated.
    pub fn for_chunks(chunks: u64) -> Self {
        let buckets = chunks
            .saturating_add(chunks / 9)
            .div_ceil(SLOTS as u64)
            .max(2);
        let buckets = usize::try_from(buckets).expect("the index fits in the address space");
        let bytes = buckets.checked_mul(BUCKET_BYTES);
        let table = bytes.map(MmapMut::map_anon);
        let mut table = table
            .expect("the index fits in the address space")
            .expect("the memory can be allocated");
        // Without huge pages the system uses small ones. If the system cannot allocate all pages by one call, a write
        // to each page allocates it.
        _ = table.advise(Advice::HugePage);
        if table.advise(Advice::PopulateWrite).is_err() {
            table.iter_mut().step_by(4096).for_each(|byte| *byte = 0);
        }
        Self {
            table,
            buckets,
            used: 0,
            dropped: 0,
        }
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
        let free = pair.map(|bucket| free_slots(self.bucket(bucket)));
        let bucket = pair[usize::from(free[1] > free[0])];
        let (bucket, slot) = match first_free(self.bucket(bucket)) {
            Some(slot) => (bucket, slot),
            None => self.move_entry(pair).unwrap_or_else(|| {
                self.dropped += 1;
                self.used -= 1;
                // Overwrites a slot that is chosen by the tag.
                (bucket, usize::from(tag) % SLOTS)
            }),
        };
        set_slot(self.bucket_mut(bucket), slot, position + 1, tag);
        self.used += 1;
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
                if let Some(free) = first_free(self.bucket(other)) {
                    set_slot(self.bucket_mut(other), free, moved, moved_tag);
                    set_slot(self.bucket_mut(bucket), slot, 0, 0);
                    return Some((bucket, slot));
                }
            }
        }
        None
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
        let mut index = Index::for_chunks(100_000);
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
        let mut index = Index::for_chunks(1000);
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

    #[test]
    fn removed_chunks_are_not_found() {
        let mut index = Index::for_chunks(100);
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
        let mut index = Index::for_chunks(1);
        index.insert(&id(1), u32::MAX - 1);
        assert_eq!(index.candidates(&id(1)).collect::<Vec<_>>(), [u32::MAX - 1]);
    }
}
