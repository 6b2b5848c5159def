//! A hash map for keys of traces, fast enough for one access per request.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Keys are ids or hashes, so one multiplication distributes them. Collisions crafted by the author
/// of a trace only slow down an offline analysis.
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
        // Fibonacci hashing: 2^64 / golden ratio, odd. XOR copies the well-mixed high half to the low
        // half, which selects the bucket; the table's tags use the high bits.
        let mixed = (self.0 ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
