//! A hash map for keys of traces, fast enough for one access per request.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map from keys of objects to values. Keys are ids or hashes, so one multiplication distributes them well.
/// If the author of a trace crafts keys that collide, only an offline analysis is slower.
pub(crate) type KeyMap<V> = HashMap<u64, V, BuildHasherDefault<KeyHasher>>;

#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        // Fibonacci hashing: the factor is the odd number nearest to 2^64 / golden ratio. The XOR mixes the
        // high half into the low half, which selects the bucket. The map compares two keys only if the highest
        // seven bits of their hashes are equal.
        let mixed = (self.0 ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
