//! Hashes several chunks at once with BLAKE3, on processors with eight lanes of 32 bits, such as those with AVX2.
//!
//! BLAKE3 is a tree over leaves of 1024 bytes. The `blake3` crate hashes eight leaves of an input at a time,
//! and the remaining leaves in groups of four, two and one. Seven leaves take two and a half times as long as
//! eight, and the partial leaf at the end of a chunk is hashed alone. A chunk has nine leaves on average, so
//! half of the time is spent on the remaining leaves. This module hashes the remaining leaves of several chunks
//! in parallel lanes (`simd`), and then the inner nodes of their trees, level by level.
//!
//! Measured with chunks of 2 to 64 KiB (9.4 KiB on average), in GB/s: 2.5 one by one, 2.8 two at a time, 3.2
//! four at a time, 3.5 eight at a time, 3.65 sixteen at a time. The crate reaches 4.5 if all eight lanes are
//! always full. On processors with more or fewer than eight lanes, the crate hashes all chunks; its
//! speed there was not measured.
//!
//! The functions of the crate that are used here are not part of its stable interface. Its version is pinned in
//! `Cargo.toml`, and tests compare the results with its public functions.

#[cfg(target_arch = "x86_64")]
mod simd;

use blake3::IncrementCounter;
use blake3::platform::{Platform, le_bytes_from_words_32, words_from_le_bytes_32};

/// Passes BLAKE3's keyed hash of each input to `out`, in order.
pub(crate) fn keyed_hashes(key: &[u8; 32], inputs: &[&[u8]], out: impl FnMut(HashBytes)) {
    let lanes = Lanes::new(key);
    if inputs.len() > 1 && lanes.platform.simd_degree() == LANES {
        lanes.hash(inputs).into_iter().for_each(out);
    } else {
        let hash_one = |bytes: &&[u8]| *blake3::keyed_hash(key, bytes).as_bytes();
        inputs.iter().map(hash_one).for_each(out);
    }
}

/// The hash of a leaf or an inner node.
type HashBytes = [u8; 32];
type Block = [u8; BLOCK_BYTES];

/// Blocks that are hashed one after the other: the blocks of a leaf, or the single block of an inner node.
struct Chain<'a, 'l> {
    /// All blocks except the last.
    whole: &'a [Block],
    /// The last block, which may be partial.
    last: &'l [u8],
    /// The index of the leaf in its input; 0 for an inner node.
    counter: u64,
    /// The flags of the first block, in addition to those of all blocks.
    flags_first: u8,
    /// The flags of the last block, in addition to those of all blocks.
    flags_last: u8,
}

/// Up to eight chains that are hashed in parallel, one per lane. Lanes from `filled` on contain old chains,
/// whose hashes are not used.
struct Chains<'a> {
    /// The number of lanes with a chain.
    filled: usize,
    whole: [&'a [Block]; LANES],
    last: [Block; LANES],
    /// The number of blocks, including the last one.
    blocks: [u32; LANES],
    last_bytes: [u32; LANES],
    counter_low: [u32; LANES],
    counter_high: [u32; LANES],
    flags_first: [u32; LANES],
    flags_last: [u32; LANES],
    /// The index in `values` at which the hash of each lane is stored.
    indexes: [usize; LANES],
}

impl<'a> Chains<'a> {
    fn new() -> Self {
        Self {
            filled: 0,
            whole: [&[]; LANES],
            last: [[0; BLOCK_BYTES]; LANES],
            blocks: [0; LANES],
            last_bytes: [0; LANES],
            counter_low: [0; LANES],
            counter_high: [0; LANES],
            flags_first: [0; LANES],
            flags_last: [0; LANES],
            indexes: [0; LANES],
        }
    }

    /// Fills the next lane.
    fn push(&mut self, chain: &Chain<'a, '_>, index: usize) {
        let lane = self.filled;
        self.filled += 1;
        self.whole[lane] = chain.whole;
        let (last, zeroes) = self.last[lane].split_at_mut(chain.last.len());
        last.copy_from_slice(chain.last);
        zeroes.fill(0);
        self.blocks[lane] = chain.whole.len() as u32 + 1;
        self.last_bytes[lane] = last.len() as u32;
        self.counter_low[lane] = chain.counter as u32;
        self.counter_high[lane] = (chain.counter >> 32) as u32;
        self.flags_first[lane] = u32::from(chain.flags_first);
        self.flags_last[lane] = u32::from(chain.flags_last);
        self.indexes[lane] = index;
    }

    /// Returns block `nth` of the lane, or its last block if the lane has fewer blocks.
    fn block(&self, lane: usize, nth: u32) -> &Block {
        self.whole[lane]
            .get(nth as usize)
            .unwrap_or(&self.last[lane])
    }

    /// Returns the hash of a lane, by portable code that hashes one block after the other.
    fn value(&self, lane: usize, platform: Platform, key: &[u32; 8]) -> HashBytes {
        let mut value = *key;
        let counter = u64::from(self.counter_high[lane]) << 32 | u64::from(self.counter_low[lane]);
        for nth in 0..self.blocks[lane] {
            let (mut flags, mut bytes) = (u32::from(KEYED), BLOCK_BYTES as u32);
            if nth == 0 {
                flags |= self.flags_first[lane];
            }
            if nth + 1 == self.blocks[lane] {
                flags |= self.flags_last[lane];
                bytes = self.last_bytes[lane];
            }
            let block = self.block(lane, nth);
            platform.compress_in_place(&mut value, block, bytes as u8, counter, flags as u8);
        }
        le_bytes_from_words_32(&value)
    }
}

/// The hash function with its key, for the instructions of this processor.
struct Lanes {
    platform: Platform,
    key: [u32; 8],
    #[cfg(target_arch = "x86_64")]
    avx2: Option<simd::Avx2>,
}

/// The tree of one input. One list, `values`, has the hashes of all trees. In this list, the hashes of a tree's current
/// level are adjacent.
#[derive(Clone, Copy)]
struct Tree {
    /// The index of the first hash of the current level.
    first: usize,
    /// The number of hashes of the current level.
    hashes: usize,
}

impl Lanes {
    fn new(key: &[u8; 32]) -> Self {
        Self {
            platform: Platform::detect(),
            key: words_from_le_bytes_32(key),
            #[cfg(target_arch = "x86_64")]
            avx2: simd::Avx2::detect(),
        }
    }

    fn hash(&self, inputs: &[&[u8]]) -> Vec<HashBytes> {
        let mut trees = Vec::with_capacity(inputs.len());
        let mut first = 0;
        for input in inputs {
            let hashes = input.len().div_ceil(LEAF_BYTES).max(1);
            trees.push(Tree { first, hashes });
            first += hashes;
        }
        let mut values = vec![[0; 32]; first];
        self.leaves(inputs, &trees, &mut values);
        // In the tree of the specification (section 2.1), the left child of each node has the largest possible
        // power of two of leaves. Joining neighbours level by level gives the same tree, if a last hash without
        // a neighbour moves to the next level unchanged.
        while trees.iter().any(|tree| tree.hashes > 1) {
            self.join_level(&mut trees, &mut values);
        }
        trees.iter().map(|tree| values[tree.first]).collect()
    }

    /// Hashes all leaves: eight leaves of an input at a time, and the remaining leaves of all inputs together.
    fn leaves<'a>(&self, inputs: &[&'a [u8]], trees: &[Tree], values: &mut [HashBytes]) {
        let mut chains = Chains::new();
        let mut partial: Vec<(Chain<'a, 'a>, usize)> = Vec::with_capacity(inputs.len());
        for (input, tree) in inputs.iter().zip(trees) {
            let (groups, rest) = input.as_chunks::<{ LANES * LEAF_BYTES }>();
            for (nth, group) in groups.iter().enumerate() {
                let values = &mut values[tree.first + nth * LANES..][..LANES];
                self.hash_eight_leaves(group, (nth * LANES) as u64, values);
            }
            let is_root = tree.hashes == 1;
            for counter in groups.len() * LANES..tree.hashes {
                let leaf = &rest[counter % LANES * LEAF_BYTES..];
                let leaf = &leaf[..leaf.len().min(LEAF_BYTES)];
                let whole = leaf.len().saturating_sub(1) / BLOCK_BYTES;
                let (whole, last) = leaf.split_at(whole * BLOCK_BYTES);
                let chain = Chain {
                    whole: whole.as_chunks().0,
                    last,
                    counter: counter as u64,
                    flags_first: CHUNK_START,
                    flags_last: CHUNK_END | if is_root { ROOT } else { 0 },
                };
                let index = tree.first + counter;
                if leaf.len() == LEAF_BYTES {
                    self.push(&mut chains, &chain, index, values);
                } else {
                    partial.push((chain, index));
                }
            }
        }
        // Chains of similar length are hashed together, so that few lanes wait for longer chains.
        partial.sort_unstable_by_key(|(chain, _)| std::cmp::Reverse(chain.whole.len()));
        for (chain, index) in &partial {
            self.push(&mut chains, chain, *index, values);
        }
        self.flush(&mut chains, values);
    }

    /// Hashes eight complete leaves.
    fn hash_eight_leaves(
        &self,
        group: &[u8; LANES * LEAF_BYTES],
        counter: u64,
        values: &mut [HashBytes],
    ) {
        let leaves: &[[u8; LEAF_BYTES]] = group.as_chunks().0;
        let leaves: &[[u8; LEAF_BYTES]; LANES] =
            leaves.try_into().expect("a group has eight leaves");
        self.platform.hash_many(
            &leaves.each_ref(),
            &self.key,
            counter,
            IncrementCounter::Yes,
            KEYED,
            CHUNK_START,
            CHUNK_END,
            values.as_flattened_mut(),
        );
    }

    /// Joins each pair of neighbours, in all trees.
    fn join_level(&self, trees: &mut [Tree], values: &mut [HashBytes]) {
        let mut chains = Chains::new();
        for tree in trees {
            let flags_last = if tree.hashes == 2 { ROOT } else { 0 };
            for nth in 0..tree.hashes / 2 {
                let pair: &[HashBytes; 2] = values[tree.first + 2 * nth..]
                    .first_chunk()
                    .expect("the pair has two hashes");
                let pair = *pair;
                let chain = Chain {
                    whole: &[],
                    last: pair.as_flattened(),
                    counter: 0,
                    flags_first: PARENT,
                    flags_last,
                };
                self.push(&mut chains, &chain, tree.first + nth, values);
            }
            if tree.hashes % 2 == 1 {
                // The overwritten hash was already added to a chain above.
                values[tree.first + tree.hashes / 2] = values[tree.first + tree.hashes - 1];
            }
            tree.hashes = tree.hashes.div_ceil(2);
        }
        self.flush(&mut chains, values);
    }

    /// Adds a chain. When all eight lanes are filled, hashes the chains.
    fn push<'a>(
        &self,
        chains: &mut Chains<'a>,
        chain: &Chain<'a, '_>,
        index: usize,
        values: &mut [HashBytes],
    ) {
        chains.push(chain, index);
        if chains.filled == LANES {
            self.flush(chains, values);
        }
    }

    /// Hashes the filled lanes and stores the hashes at their indexes.
    fn flush(&self, chains: &mut Chains<'_>, values: &mut [HashBytes]) {
        let filled = std::mem::take(&mut chains.filled);
        #[cfg(target_arch = "x86_64")]
        if let (Some(avx2), 2..) = (self.avx2, filled) {
            let hashes = avx2.values_of(&self.key, chains, filled);
            for (index, value) in chains.indexes[..filled].iter().zip(hashes) {
                values[*index] = value;
            }
            return;
        }
        for (lane, index) in chains.indexes[..filled].iter().enumerate() {
            values[*index] = chains.value(lane, self.platform, &self.key);
        }
    }
}

const LANES: usize = 8;

/// The length of a leaf in bytes. The specification of BLAKE3 calls a leaf a chunk.
const LEAF_BYTES: usize = 1024;

/// The length of a block in bytes. An inner node has one block, the hashes of its two children.
const BLOCK_BYTES: usize = 64;

/// Flags from the specification of BLAKE3, table 3.
const CHUNK_START: u8 = 1;
const CHUNK_END: u8 = 2;
const PARENT: u8 = 4;
const ROOT: u8 = 8;
const KEYED: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    /// Returns bytes such that all leaves are different.
    fn bytes(length: usize, seed: u8) -> Vec<u8> {
        let mut word = u32::from(seed) | 1;
        let mut next = || {
            word = word.wrapping_mul(0x915f_77f5).wrapping_add(1);
            (word >> 24) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    /// The hashes equal those of the crate for lengths near boundaries of blocks, leaves and lanes.
    ///
    /// Method: call `Lanes::hash` directly, because `keyed_hashes` does not use it for a single input.
    #[test]
    fn hashes_of_lengths_near_boundaries_are_blake3() {
        let key = [7; 32];
        let lanes = Lanes::new(&key);
        let all = bytes(67 * LEAF_BYTES, 3);
        for leaves in 0..=66 {
            for more in [0, 1, 63, 64, 65, 512, 960, 961, 1023] {
                let bytes = &all[..leaves * LEAF_BYTES + more];
                let expected = *blake3::keyed_hash(&key, bytes).as_bytes();
                assert_eq!(lanes.hash(&[bytes]), [expected], "{} bytes", bytes.len());
            }
        }
    }

    proptest! {
        /// Inputs that are hashed together have the hashes that the crate computes one by one, with AVX2 and in
        /// portable code.
        #[test]
        fn hashes_are_blake3_in_any_combination(
            key in any::<[u8; 32]>(),
            lengths in vec((0_usize..=20_000, 0_usize..=64), 0..20),
            seed in any::<u8>(),
        ) {
            // Half of the lengths are near a boundary.
            let length = |(any, blocks): (usize, usize)| if any % 2 == 0 { any } else { blocks * 64 + any % 3 };
            let all = bytes(20_000, seed);
            let inputs: Vec<&[u8]> = lengths.into_iter().map(|one| &all[all.len() - length(one)..]).collect();
            let expected: Vec<HashBytes> = inputs.iter().map(|one| *blake3::keyed_hash(&key, one).as_bytes()).collect();
            let mut hashes = Vec::new();
            keyed_hashes(&key, &inputs, |hash| hashes.push(hash));
            prop_assert_eq!(&hashes, &expected);
            let lanes = Lanes::new(&key);
            prop_assert_eq!(&lanes.hash(&inputs), &expected);
            #[cfg(target_arch = "x86_64")]
            prop_assert_eq!(&Lanes { avx2: None, ..lanes }.hash(&inputs), &expected);
        }
    }
}
