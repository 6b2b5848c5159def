//! A map from keys to whatever is known of them, cheap enough to touch once a request.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Keys are ids or hashes already, so one multiplication spreads them; a trace is read
/// offline and its author gains nothing by crafting collisions.
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
        // Fibonacci hashing: 2^64 / golden ratio, odd. Folding brings the well-mixed high half
        // down to where the table takes its bucket from, and leaves high bits for its tags.
        let mixed = (self.0 ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
