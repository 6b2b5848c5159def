//! Hash maps with a fast hash function, for the tables that are used at each cache miss.
//!
//! The standard library's hash function takes about 150 instructions for each operation, and a cache miss makes
//! ten operations. The hash function of this module is a single multiplication. It has a random seed, so that clients
//! cannot choose addresses or keys that collide.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map whose keys are one or two 64-bit words.
pub(crate) type WordMap<K, V> = HashMap<K, V, WordState>;

/// The seed of one map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WordState(u64);

impl Default for WordState {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0_u64))
    }
}

impl BuildHasher for WordState {
    type Hasher = WordHasher;

    fn build_hasher(&self) -> WordHasher {
        WordHasher(self.0)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        // The factor is the odd number next to 2^64 / golden ratio. With the XOR, each bit affects all bits.
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn write_u128(&mut self, words: u128) {
        self.write_u64(words as u64);
        self.write_u64((words >> 64) as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash table takes the bucket from the lowest bits and the tag from the highest.
    #[test]
    fn keys_that_differ_in_few_bits_spread_over_low_and_high_bits() {
        for seed in 0..10_u64 {
            let state = WordState(seed.wrapping_mul(0x1234_5678_9abc_def1));
            for shift in [0, 8, 32, 56, 64, 120] {
                let (mut low, mut high) = ([false; 256], [false; 128]);
                for key in 0..256_u128 {
                    let hash = state.hash_one(key << shift);
                    low[usize::try_from(hash & 255).expect("8 bits")] = true;
                    high[usize::try_from(hash >> 57).expect("7 bits")] = true;
                }
                // Random hashes use 162 of 256 bins and 111 of 128 bins on average.
                let used = |bins: &[bool]| bins.iter().filter(|&&used| used).count();
                assert!(
                    used(&low) > 120,
                    "{} of 256, seed {seed}, shift {shift}",
                    used(&low)
                );
                assert!(
                    used(&high) > 80,
                    "{} of 128, seed {seed}, shift {shift}",
                    used(&high)
                );
            }
        }
    }
}
