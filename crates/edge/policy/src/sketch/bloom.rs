//! A Bloom filter that accesses one cache line per key, under shared access without a lock.
//!
//! A key selects a block of 512 bits. In each half of the block it selects one of four 64-bit words, and four
//! bits in each of the two words. A lookup is one memory access and two comparisons. Adding a new key costs two
//! atomic ORs; adding a present key costs none. The eight bits lie in two words instead of eight, because one
//! atomic OR costs about as much as everything else that adding a key does. In a cache-resident filter, eight words
//! with eight ORs take three times as long for a new key. Plain stores would be cheap but can lose bits of another
//! thread. The disadvantage of two words is a slightly higher false-positive rate at equal size;
//! [`rates`](super::rates) computes it exactly.
//!
//! Sources: blocks of a cache line are from Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom
//! Filters", WEA 2007. Words within the line ("sectors") are from Lang, Neumann, Kemper, Boncz,
//! "Performance-Optimal Filtering: Bloom overtakes Cuckoo at High Throughput", VLDB 2019.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use edgeward_types::{KeyHash, mix64};

/// Bits per block: one cache line.
pub const BLOCK_BITS: u64 = 512;

/// 64-bit words per block.
pub const BLOCK_WORDS: usize = 8;

/// Words per half of a block. A key uses one word of each half.
pub const HALF_WORDS: usize = BLOCK_WORDS / 2;

/// Bits that a key sets in each of its two words. Two of these bits may be equal.
pub const WORD_BITS_SET: u32 = 4;

/// A set of keys with false positives and without false negatives.
#[derive(Debug)]
pub struct Bloom {
    blocks: Box<[Block]>,
}

/// The positions of a key's bits, computed once for several filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The high bits select the block for any number of blocks.
    position: u64,
    /// From the lowest bit: ten unused bits, eight fields of six bits that select bits, two fields of two bits that
    /// select the words, and two unused bits.
    bits: u64,
}

impl Probe {
    /// Computes the probe of a key. The key bits need not be random: consecutive ids work as well as hashes.
    #[inline]
    pub fn new(key: KeyHash) -> Self {
        let position = mix64(key.0 ^ SALT);
        // The high bits of a product depend on all lower bits. Keys of one block share the high bits of
        // `position` but still differ in each field of `bits`.
        Self {
            position,
            bits: position.wrapping_mul(SPREAD),
        }
    }

    /// Returns the index of the key's block in a filter with this number of blocks.
    #[inline]
    pub fn block(&self, blocks: usize) -> usize {
        // A fixed-point product instead of a remainder: uniform below `blocks`, without a division.
        ((u128::from(self.position) * blocks as u128) >> 64) as usize
    }

    #[inline]
    fn words(&self) -> [(usize, u64); 2] {
        let bit = |at: u32| 1u64 << ((self.bits >> at) & 63);
        let word = |at: u32| ((self.bits >> at) & 3) as usize;
        [
            (word(58), bit(10) | bit(16) | bit(22) | bit(28)),
            (HALF_WORDS + word(60), bit(34) | bit(40) | bit(46) | bit(52)),
        ]
    }
}

impl Bloom {
    /// Makes an empty filter of this number of 64-byte blocks.
    ///
    /// # Panics
    /// If `blocks` is zero: a filter without bits would contain every key.
    pub fn new(blocks: usize) -> Self {
        assert!(blocks > 0, "a filter needs a block");
        Self {
            blocks: (0..blocks).map(|_| Block::default()).collect(),
        }
    }

    /// Returns true if the key was added, or for a false positive.
    #[inline]
    pub fn contains(&self, probe: &Probe) -> bool {
        self.contains_at(self.block_of(probe), probe)
    }

    /// Adds a key. Returns the number of newly set bits, up to eight.
    ///
    /// If several threads set the same bit, exactly one of them counts it.
    #[inline]
    pub fn add(&self, probe: &Probe) -> u32 {
        let block = &self.blocks[self.block_of(probe)].0;
        let mut new_bits = 0;
        for (word, mask) in probe.words() {
            // A load first: an unchanged word is not written, so that popular cache lines stay shared.
            if block[word].load(Relaxed) & mask != mask {
                let before = block[word].fetch_or(mask, Relaxed);
                new_bits += (mask & !before).count_ones();
            }
        }
        new_bits
    }

    /// Adds a key to its block, after the caller has found that the key is not present. The result of the OR is
    /// not used, so the OR is one instruction instead of a loop. A load first, as in [`add`](Self::add), would
    /// cost more than it saves, because few of these keys find all bits of a word set.
    #[inline]
    pub(super) fn add_at(&self, block: usize, probe: &Probe) {
        let block = &self.blocks[block].0;
        for (word, mask) in probe.words() {
            block[word].fetch_or(mask, Relaxed);
        }
    }

    /// The number of 64-byte blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the index of a key's block.
    #[inline]
    pub(super) fn block_of(&self, probe: &Probe) -> usize {
        probe.block(self.blocks.len())
    }

    /// Like [`contains`](Self::contains), for a block that the caller has already computed.
    #[inline]
    pub(super) fn contains_at(&self, block: usize, probe: &Probe) -> bool {
        // The second word is tested even if the first lacks bits. Both lie in one cache line, so a branch between the
        // tests would save no memory access.
        let [first, second] = self.missing_at(block, probe);
        first | second == 0
    }

    /// Returns the bits of a key that the filter does not have, in each of the two words of the key.
    #[inline]
    pub(super) fn missing_at(&self, block: usize, probe: &Probe) -> [u64; 2] {
        let block = &self.blocks[block].0;
        probe
            .words()
            .map(|(word, mask)| mask & !block[word].load(Relaxed))
    }

    /// Clears these blocks.
    pub(super) fn clear(&self, blocks: Range<usize>) {
        for block in &self.blocks[blocks] {
            block.0.iter().for_each(|word| word.store(0, Relaxed));
        }
    }

    /// Copies the block `at` of the filter `from` to the block `to` of this filter.
    pub(super) fn copy_block(&self, to: usize, from: &Self, at: usize) {
        for (to, from) in self.blocks[to].0.iter().zip(&from.blocks[at].0) {
            to.store(from.load(Relaxed), Relaxed);
        }
    }

    /// Counts the set bits in every `stride`th block.
    pub(super) fn count_set_bits(&self, stride: usize) -> u64 {
        let blocks = self.blocks.iter().step_by(stride);
        blocks
            .flat_map(|block| &block.0)
            .map(|word| u64::from(word.load(Relaxed).count_ones()))
            .sum()
    }

    /// Returns the words of a block, to save them.
    pub(super) fn block_words(&self, block: usize) -> [u64; BLOCK_WORDS] {
        std::array::from_fn(|word| self.blocks[block].0[word].load(Relaxed))
    }

    /// Restores the words of a block.
    pub(super) fn set_block_words(&self, block: usize, words: [u64; BLOCK_WORDS]) {
        for (word, saved) in self.blocks[block].0.iter().zip(words) {
            word.store(saved, Relaxed);
        }
    }
}

/// One cache line of bits.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Block([AtomicU64; BLOCK_WORDS]);

const _: () = assert!(size_of::<Block>() as u64 * 8 == BLOCK_BITS);

/// An odd random number that makes the probes independent of other uses of the key's hash.
const SALT: u64 = 0x5851_f42d_4c95_7f2d;

/// The multiplier is odd, so that the product is a bijection. It is Marsaglia's multiplicative constant for 64 bits.
const SPREAD: u64 = 0xd134_2543_de82_ef95;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use proptest::prelude::*;

    use super::super::rates;
    use super::*;

    fn filled(blocks: usize, keys: u64) -> Bloom {
        let bloom = Bloom::new(blocks);
        for key in 0..keys {
            bloom.add(&Probe::new(KeyHash(key)));
        }
        bloom
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_key_that_was_added_is_contained(
            keys in prop::collection::vec(any::<u64>(), 1..300), blocks in 1usize..20,
        ) {
            let bloom = Bloom::new(blocks);
            for &key in &keys {
                let probe = Probe::new(KeyHash(key));
                let contained = bloom.contains(&probe);
                let new_bits = bloom.add(&probe);
                prop_assert_eq!(contained, new_bits == 0, "a contained key sets no new bit");
                prop_assert_eq!(bloom.add(&probe), 0);
            }
            prop_assert!(keys.iter().all(|&key| bloom.contains(&Probe::new(KeyHash(key)))));
        }

        #[test]
        fn new_bits_add_up_to_the_bits_that_are_set(
            keys in prop::collection::vec(any::<u64>(), 0..300), blocks in 1usize..20,
        ) {
            let bloom = Bloom::new(blocks);
            let counted: u64 =
                keys.iter().map(|&key| u64::from(bloom.add(&Probe::new(KeyHash(key))))).sum();
            prop_assert_eq!(counted, bloom.count_set_bits(1));
        }
    }

    /// The false-positive rate and the fill agree with the formulas at three loads.
    ///
    /// Method: 4096 blocks with 20 to 70 keys per block, and 400 000 lookups of keys that were not added.
    #[test]
    fn the_rates_are_those_of_the_formulas() {
        for keys_per_block in [20, 45, 70] {
            let bloom = filled(4096, 4096 * keys_per_block);
            let fill = bloom.count_set_bits(1) as f64 / (4096.0 * 512.0);
            let expected_fill = rates::fill(keys_per_block as f64);
            assert!(
                (fill - expected_fill).abs() < 0.004,
                "{keys_per_block}: {fill}"
            );
            let lookups = 400_000u64;
            let wrong = (0..lookups)
                .filter(|key| bloom.contains(&Probe::new(KeyHash(1 << 40 | key))))
                .count();
            let expected = rates::false_positives(keys_per_block as f64) * lookups as f64;
            // Five standard deviations of the count, and 2 % for the difference between this filter and the average.
            let slack = 5.0 * expected.sqrt() + expected * 0.02;
            assert!(
                (wrong as f64 - expected).abs() < slack,
                "{keys_per_block}: {wrong}, {expected}"
            );
        }
    }

    /// No key is lost between threads, and every bit is counted once.
    #[test]
    fn threads_lose_no_key_and_count_each_bit_once() {
        let bloom = Bloom::new(8);
        let counted = AtomicU32::new(0);
        thread::scope(|scope| {
            for thread in 0..4u64 {
                let (bloom, counted) = (&bloom, &counted);
                scope.spawn(move || {
                    for key in 0..100 {
                        let probe = Probe::new(KeyHash(key * 4 + thread));
                        counted.fetch_add(bloom.add(&probe), Relaxed);
                        assert!(bloom.contains(&probe));
                    }
                });
            }
        });
        assert_eq!(u64::from(counted.load(Relaxed)), bloom.count_set_bits(1));
        assert!((0..400).all(|key| bloom.contains(&Probe::new(KeyHash(key)))));
    }

    #[test]
    fn clearing_a_range_clears_only_that_range() {
        let bloom = filled(16, 400);
        bloom.clear(4..16);
        for key in 0..400 {
            let probe = Probe::new(KeyHash(key));
            assert_eq!(bloom.contains(&probe), bloom.block_of(&probe) < 4);
        }
    }
}
