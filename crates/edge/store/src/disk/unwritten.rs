//! Objects whose record is still in the writer's buffer. Lookups find them, and their bodies are read from
//! memory.
//!
//! The buffer is written when it has `write_bytes` bytes, or when its first record has waited for `flush_interval`.
//! If lookups did not find the objects in the buffer, the edge would fetch and write them again. An object of one
//! record is therefore visible as soon as its record is in the buffer. An object in pieces is not visible before its
//! last record is written, because some of its pieces may be on the device and others in the buffer. The delay is
//! short: by default a full piece fills the buffer, and a full buffer is written at once.
//!
//! All objects are removed from this table together when the buffer is written or dropped.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use bytes::Bytes;
use edgeward_policy::log::HITS_MAX;
use edgeward_types::KeyHash;

use super::location::Location;
use super::write_state::WriteState;
use crate::sync::Mutex;

/// The objects in the write buffer of one device.
#[derive(Debug)]
pub(crate) struct UnwrittenTable {
    objects: Mutex<HashMap<u64, Arc<UnwrittenObject>>>,
    /// A Bloom filter with one bit per hash, so that most lookups of other objects take no lock.
    hash_bits: [AtomicU64; HASH_BITS_WORDS],
}

/// The number of words of the Bloom filter, 4096 bits. A buffer of one mebibyte has some dozens of objects, and
/// at most two thousand.
const HASH_BITS_WORDS: usize = 64;

/// An object that is not written yet.
#[derive(Debug)]
pub(crate) struct UnwrittenObject {
    /// The hash, key and head of the object, and the state of its write.
    write: Arc<WriteState>,
    /// The location at which the record will be written.
    pub(crate) location: Location,
    body: Body,
    /// The number of hits, at most [`HITS_MAX`].
    hits: AtomicU8,
}

/// A body, as the sequence of chunks that the caller pushed.
#[derive(Clone, Debug)]
pub(crate) struct Body(Vec<Bytes>);

impl UnwrittenTable {
    pub(crate) fn new() -> Self {
        Self {
            objects: Mutex::default(),
            hash_bits: [const { AtomicU64::new(0) }; HASH_BITS_WORDS],
        }
    }

    /// Makes an object visible to lookups. The object replaces an older one with the same hash.
    pub(crate) fn insert(&self, write: &Arc<WriteState>, location: Location, body: &[Bytes]) {
        let object = UnwrittenObject {
            write: Arc::clone(write),
            location,
            body: Body(body.to_vec()),
            hits: AtomicU8::new(0),
        };
        let mut objects = self.objects.lock();
        objects.insert(write.hash.0, Arc::new(object));
        let (word, bit) = bit_of(write.hash);
        self.hash_bits[word].fetch_or(bit, Ordering::Release);
        write.set_visible();
    }

    /// Returns the object under `hash`, unless its write was dropped, for example by a purge. The caller compares the
    /// key.
    pub(crate) fn find(&self, hash: KeyHash) -> Option<Arc<UnwrittenObject>> {
        let (word, bit) = bit_of(hash);
        if self.hash_bits[word].load(Ordering::Acquire) & bit == 0 {
            return None;
        }
        let found = self.objects.lock().get(&hash.0).cloned();
        found.filter(|object| object.write.dropped().is_none())
    }

    /// Returns the number of hits on the unwritten object at this location, or 0 if the key has no unwritten
    /// object at this location.
    pub(crate) fn hits(&self, hash: KeyHash, location: Location) -> u8 {
        let objects = self.objects.lock();
        let object = objects.get(&hash.0);
        object
            .filter(|object| object.location == location)
            .map_or(0, |object| object.hits.load(Ordering::Relaxed))
    }

    /// Removes all objects, because the buffer is empty.
    pub(crate) fn clear(&self) {
        let mut objects = self.objects.lock();
        if objects.is_empty() {
            return;
        }
        objects.clear();
        for word in &self.hash_bits {
            word.store(0, Ordering::Release);
        }
    }
}

impl UnwrittenObject {
    pub(crate) fn key(&self) -> &[u8] {
        &self.write.key
    }

    pub(crate) fn head(&self) -> &Bytes {
        &self.write.head
    }

    pub(crate) fn body(&self) -> &Body {
        &self.body
    }

    /// Counts a hit. The count is added to the index when the object is written.
    pub(crate) fn touch(&self) {
        let more = |hits: u8| (hits < HITS_MAX).then_some(hits + 1);
        _ = self
            .hits
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
}

impl Body {
    pub(crate) fn len(&self) -> u64 {
        self.0.iter().map(|chunk| chunk.len() as u64).sum()
    }

    /// Returns the first bytes of a range, up to the end of the chunk in which the range starts.
    pub(crate) fn read(&self, range: Range<u64>) -> Bytes {
        let mut start = 0;
        for chunk in &self.0 {
            let end = start + chunk.len() as u64;
            if range.start < end {
                let within =
                    |at: u64| usize::try_from(at - start).expect("the offset is within the chunk");
                return chunk.slice(within(range.start)..within(range.end.min(end)));
            }
            start = end;
        }
        Bytes::new()
    }
}

fn bit_of(hash: KeyHash) -> (usize, u64) {
    let number = (hash.0 >> 32) as usize % (HASH_BITS_WORDS * 64);
    (number / 64, 1 << (number % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::error::WriteError;

    fn write(hash: u64) -> Arc<WriteState> {
        WriteState::new(KeyHash(hash), hash, b"key", Bytes::new())
    }

    #[test]
    fn an_unwritten_object_is_found_until_it_is_purged_or_the_buffer_is_empty() {
        let unwritten = UnwrittenTable::new();
        let (first, second) = (write(1 << 32), write(2 << 32));
        unwritten.insert(&first, Location::from_offset(512), &[]);
        unwritten.insert(&second, Location::from_offset(1024), &[]);
        assert!(unwritten.find(first.hash).is_some());
        assert!(unwritten.find(KeyHash(3 << 32)).is_none());
        // This hash has the same bit in the Bloom filter as the first object.
        assert!(unwritten.find(KeyHash((1 << 32) + 1)).is_none());
        first.drop_as(WriteError::Purged);
        assert!(unwritten.find(first.hash).is_none());
        assert!(unwritten.find(second.hash).is_some());
        unwritten.clear();
        assert!(unwritten.find(second.hash).is_none());
    }

    #[test]
    fn the_newest_object_of_a_key_is_found_and_has_its_own_hits() {
        let unwritten = UnwrittenTable::new();
        let (old, new) = (Location::from_offset(512), Location::from_offset(1024));
        unwritten.insert(&write(7), old, &[]);
        unwritten
            .find(KeyHash(7))
            .expect("the object is in the buffer")
            .touch();
        assert_eq!(unwritten.hits(KeyHash(7), old), 1);
        unwritten.insert(&write(7), new, &[]);
        let found = unwritten
            .find(KeyHash(7))
            .expect("the object is in the buffer");
        assert_eq!(found.location, new);
        (0..9).for_each(|_| found.touch());
        assert_eq!(unwritten.hits(KeyHash(7), old), 0);
        assert_eq!(unwritten.hits(KeyHash(7), new), HITS_MAX);
    }

    /// Tests both sides of each boundary between chunks.
    #[test]
    fn a_body_in_chunks_is_read_by_any_range() {
        let body = Body(vec!["ab".into(), "".into(), "cde".into()]);
        assert_eq!(body.len(), 5);
        for start in 0..=5 {
            for end in start..=6 {
                let mut read = Vec::new();
                while start + (read.len() as u64) < end.min(5) {
                    let more = body.read(start + read.len() as u64..end);
                    assert!(!more.is_empty());
                    read.extend_from_slice(&more);
                }
                let expected = &b"abcde"[start as usize..end.min(5) as usize];
                assert_eq!(read, expected, "{start}..{end}");
            }
        }
        assert!(body.read(5..9).is_empty());
    }
}
