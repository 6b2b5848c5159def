//! Numbers for the objects of a trace.

use edgeward_trace::{NO_TTL, Record};
use edgeward_types::Timestamp;

use crate::facts::spread;

/// A request whose object has a number.
///
/// The runs index vectors with the number, so one lookup of the key serves all runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The time of the request, on the trace's clock.
    pub time: Timestamp,
    /// The key of the object in the trace.
    pub key: u64,
    /// The object's size in bytes.
    pub size: u64,
    /// The number of the object: 0 for the first object of the trace, 1 for the second.
    pub object: ObjectNumber,
    /// The lifetime of the object in seconds, if this request fetches it; [`NO_TTL`] if the object does not expire.
    pub ttl_seconds: u32,
}

impl Request {
    pub(crate) const fn new(record: &Record, object: ObjectNumber) -> Self {
        Self {
            time: record.time,
            key: record.key,
            size: record.size,
            object,
            ttl_seconds: NO_TTL,
        }
    }

    /// Returns the request without the number.
    pub const fn record(&self) -> Record {
        Record {
            time: self.time,
            key: self.key,
            size: self.size,
        }
    }
}

/// The number of an object, counted from 0 in the order of the first requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectNumber(pub(crate) u32);

impl ObjectNumber {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A table that gives each key a number.
///
/// In many traces, the key of an object equals its number. Such a key has no bucket: a lookup of key `n` first checks
/// if object `n` has this key. All other keys are in a hash table with open addressing. Memory: 16 bytes per object and
/// 8 bytes per bucket; between 3/8 and 3/4 of the buckets are used.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectNumbers {
    /// The object of each number.
    objects: Vec<NumberedObject>,
    buckets: Box<[Bucket]>,
    used_buckets: usize,
}

/// The key and the first size of an object, side by side in memory because a request reads both.
#[derive(Clone, Copy, Debug)]
struct NumberedObject {
    key: u64,
    first_size: u64,
}

/// The high half of the key's hash, and the object's number plus one in the low half. 0 is an empty bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket(u64);

impl Bucket {
    fn new(hash: u64, number: u32) -> Self {
        Self((hash & HASH_BITS) | (u64::from(number) + 1))
    }

    /// Returns the number of the object, or `None` if the bucket is empty.
    fn number(self) -> Option<u32> {
        (self.0 as u32).checked_sub(1)
    }
}

impl ObjectNumbers {
    /// The number of objects.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns the number of a key, or `None` if the table does not have the key.
    #[inline]
    pub(crate) fn find(&self, key: u64) -> Option<ObjectNumber> {
        if self.is_own_number(key) {
            return Some(ObjectNumber(key as u32));
        }
        if self.buckets.is_empty() {
            return None;
        }
        self.bucket_of(key, spread(key)).ok().map(ObjectNumber)
    }

    /// Returns the number of an object. A new object gets the next number, and `size` as its first size.
    #[inline]
    pub(crate) fn number(&mut self, key: u64, size: u64) -> ObjectNumber {
        match self.find(key) {
            Some(number) => number,
            None => self.add(key, size),
        }
    }

    /// Returns the size that the object had when it got its number.
    #[inline]
    pub(crate) fn first_size(&self, object: ObjectNumber) -> u64 {
        self.objects[object.index()].first_size
    }

    /// Returns true if the object with number `key` has this key.
    #[inline]
    fn is_own_number(&self, key: u64) -> bool {
        usize::try_from(key)
            .ok()
            .and_then(|at| self.objects.get(at))
            .is_some_and(|object| object.key == key)
    }

    /// Returns the number of a key that has a bucket, or `Err` with the empty bucket at which the search ended.
    #[inline]
    fn bucket_of(&self, key: u64, hash: u64) -> Result<u32, usize> {
        let mask = self.buckets.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let bucket = self.buckets[at];
            let Some(number) = bucket.number() else {
                return Err(at);
            };
            if (bucket.0 ^ hash) & HASH_BITS == 0 && self.objects[number as usize].key == key {
                return Ok(number);
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn add(&mut self, key: u64, size: u64) -> ObjectNumber {
        let number = u32::try_from(self.objects.len())
            .ok()
            .filter(|&number| number < u32::MAX)
            .expect("a trace with 2^32 objects exceeds the memory of all machines");
        self.objects.push(NumberedObject {
            key,
            first_size: size,
        });
        if key != u64::from(number) {
            if self.used_buckets >= self.buckets.len() / 4 * 3 {
                self.double();
            }
            self.enter(key, number);
        }
        ObjectNumber(number)
    }

    /// Writes a key that has no bucket, with its number, to an empty bucket.
    fn enter(&mut self, key: u64, number: u32) {
        let hash = spread(key);
        let at = self
            .bucket_of(key, hash)
            .expect_err("the key has no bucket yet");
        self.buckets[at] = Bucket::new(hash, number);
        self.used_buckets += 1;
    }

    /// Doubles the number of buckets, and enters all keys that have a bucket again.
    fn double(&mut self) {
        let buckets = (self.buckets.len() * 2).max(BUCKETS_MIN);
        let old = std::mem::replace(&mut self.buckets, vec![Bucket(0); buckets].into());
        self.used_buckets = 0;
        for number in old.iter().filter_map(|bucket| bucket.number()) {
            self.enter(self.objects[number as usize].key, number);
        }
    }
}

/// A set of objects: one bit per object number.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectSet {
    words: Vec<u64>,
}

impl ObjectSet {
    #[inline]
    pub(crate) fn contains(&self, object: ObjectNumber) -> bool {
        let word = self.words.get(object.index() / 64);
        word.is_some_and(|word| word >> (object.0 % 64) & 1 == 1)
    }

    /// Adds an object. Returns false if the set has it already.
    #[inline]
    pub(crate) fn insert(&mut self, object: ObjectNumber) -> bool {
        let at = object.index() / 64;
        if at >= self.words.len() {
            self.words.resize(at + 1, 0);
        }
        let bit = 1 << (object.0 % 64);
        let is_new = self.words[at] & bit == 0;
        self.words[at] |= bit;
        is_new
    }

    /// Removes an object that was added before.
    #[inline]
    pub(crate) fn remove(&mut self, object: ObjectNumber) {
        self.words[object.index() / 64] &= !(1 << (object.0 % 64));
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

/// The bits of a hash that a bucket keeps.
const HASH_BITS: u64 = !(u32::MAX as u64);

const BUCKETS_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The number of a key is the number of distinct keys before it. Keys may be dense, sparse or equal to the
        /// numbers of other objects.
        #[test]
        fn a_key_has_the_number_of_distinct_keys_before_it(
            keys in prop::collection::vec(
                prop_oneof![0u64..300, any::<u64>(), (0u64..50).prop_map(|n| n << 32)],
                0..800,
            ),
        ) {
            let mut numbers = ObjectNumbers::default();
            let mut expected = HashMap::new();
            for key in keys {
                prop_assert_eq!(
                    numbers.find(key).map(ObjectNumber::index),
                    expected.get(&key).copied()
                );
                let next = expected.len();
                let number = *expected.entry(key).or_insert(next);
                prop_assert_eq!(numbers.number(key, 1).index(), number);
                prop_assert_eq!(numbers.len(), expected.len());
            }
        }
    }
}
