//! BLAKE3 of chunks on a processor that hashes eight of its leaves side by side, as one with AVX2 does.
//!
//! BLAKE3 is a tree over leaves of 1024 bytes. The crate takes eight leaves of a chunk at a time, and what remains by fours, twos and ones: seven
//! leaves take two and a half times as long as eight do, and a leaf that is not whole, as each chunk's last is, has all lanes to itself. A chunk has nine leaves
//! on average, so that is half of the time. Here the rests of many chunks share lanes (`simd`), and so do the inner nodes of their trees, level by
//! level. Chunks of 2 to 64 KiB, 9.4 KiB on average, in GB/s: one by one 2.5, two 2.8, four 3.2, eight 3.5, sixteen 3.65; the crate's eight lanes, if all are full, 4.5.
//! Where lanes are more or fewer than eight nothing of this was measured, and the crate does it all.
//!
//! What it calls of the crate has no promise of staying as it is: the crate's version is held in `Cargo.toml`, and the tests hold the results against the
//! crate's own.

#[cfg(target_arch = "x86_64")]
mod simd;

use blake3::IncrementCounter;
use blake3::platform::{Platform, le_bytes_from_words_32, words_from_le_bytes_32};

/// BLAKE3's keyed hash of each, in their order.
pub(crate) fn keyed_hashes(key: &[u8; 32], inputs: &[&[u8]], out: impl FnMut(Value)) {
    let lanes = Lanes::new(key);
    if inputs.len() > 1 && lanes.platform.simd_degree() == LANES {
        lanes.hash(inputs).into_iter().for_each(out);
    } else {
        let alone = |bytes: &&[u8]| *blake3::keyed_hash(key, bytes).as_bytes();
        inputs.iter().map(alone).for_each(out);
    }
}

/// Of a leaf or an inner node.
type Value = [u8; 32];
type Block = [u8; BLOCK_BYTES];

/// Blocks that are hashed one after the other: a leaf's, or the one of an inner node.
struct Chain<'a, 'l> {
    /// All but the last.
    whole: &'a [Block],
    /// A block at most.
    last: &'l [u8],
    counter: u64,
    /// Beside those that all blocks have.
    flags_first: u8,
    flags_last: u8,
}

/// Chains to hash side by side, and where their values belong. Those lanes that are not filled have what was there before.
struct Chains<'a> {
    filled: usize,
    whole: [&'a [Block]; LANES],
    last: [Block; LANES],
    /// The last one, too.
    blocks: [u32; LANES],
    last_bytes: [u32; LANES],
    counter_low: [u32; LANES],
    counter_high: [u32; LANES],
    flags_first: [u32; LANES],
    flags_last: [u32; LANES],
    places: [usize; LANES],
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
            places: [0; LANES],
        }
    }

    /// Fills the next lane.
    fn push(&mut self, chain: &Chain<'a, '_>, place: usize) {
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
        self.places[lane] = place;
    }

    /// A lane's block; the last one if there are not so many.
    fn block(&self, lane: usize, nth: u32) -> &Block {
        self.whole[lane]
            .get(nth as usize)
            .unwrap_or(&self.last[lane])
    }

    /// What defines a lane's value, in plain code: one block after the other.
    fn value(&self, lane: usize, platform: Platform, key: &[u32; 8]) -> Value {
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

struct Lanes {
    platform: Platform,
    key: [u32; 8],
    #[cfg(target_arch = "x86_64")]
    avx2: Option<simd::Avx2>,
}

/// The values of one input, on their way to the tree's root.
#[derive(Clone, Copy)]
struct Tree {
    /// Where they lie among those of all inputs.
    first: usize,
    values: usize,
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

    fn hash(&self, inputs: &[&[u8]]) -> Vec<Value> {
        let mut trees = Vec::with_capacity(inputs.len());
        let mut first = 0;
        for input in inputs {
            let values = input.len().div_ceil(LEAF_BYTES).max(1);
            trees.push(Tree { first, values });
            first += values;
        }
        let mut values = vec![[0; 32]; first];
        self.leaves(inputs, &trees, &mut values);
        // The specification's tree (section 2.1) has the largest power of two of leaves on the left of each node: pairs of neighbours, level by
        // level, with an odd one at the end going up as it is.
        while trees.iter().any(|tree| tree.values > 1) {
            self.level(&mut trees, &mut values);
        }
        trees.iter().map(|tree| values[tree.first]).collect()
    }

    /// The values of all leaves: eight of an input at a time, and what remains of all inputs together.
    fn leaves<'a>(&self, inputs: &[&'a [u8]], trees: &[Tree], values: &mut [Value]) {
        let mut chains = Chains::new();
        let mut partial: Vec<(Chain<'a, 'a>, usize)> = Vec::with_capacity(inputs.len());
        for (input, tree) in inputs.iter().zip(trees) {
            let (octets, rest) = input.as_chunks::<{ LANES * LEAF_BYTES }>();
            for (nth, octet) in octets.iter().enumerate() {
                let values = &mut values[tree.first + nth * LANES..][..LANES];
                self.octet(octet, (nth * LANES) as u64, values);
            }
            let is_root = tree.values == 1;
            for counter in octets.len() * LANES..tree.values {
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
                let place = tree.first + counter;
                if leaf.len() == LEAF_BYTES {
                    self.push(&mut chains, &chain, place, values);
                } else {
                    partial.push((chain, place));
                }
            }
        }
        // Those that end together share lanes.
        partial.sort_unstable_by_key(|(chain, _)| std::cmp::Reverse(chain.whole.len()));
        for (chain, place) in &partial {
            self.push(&mut chains, chain, *place, values);
        }
        self.flush(&mut chains, values);
    }

    /// Eight whole leaves.
    fn octet(&self, octet: &[u8; LANES * LEAF_BYTES], counter: u64, values: &mut [Value]) {
        let leaves: &[[u8; LEAF_BYTES]] = octet.as_chunks().0;
        let leaves: &[[u8; LEAF_BYTES]; LANES] = leaves.try_into().expect("eight");
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

    /// Each pair of neighbours becomes one, in all trees.
    fn level(&self, trees: &mut [Tree], values: &mut [Value]) {
        let mut chains = Chains::new();
        for tree in trees {
            let flags_last = if tree.values == 2 { ROOT } else { 0 };
            for nth in 0..tree.values / 2 {
                let pair: &[Value; 2] = values[tree.first + 2 * nth..].first_chunk().expect("two");
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
            if tree.values % 2 == 1 {
                // What it takes the place of was read.
                values[tree.first + tree.values / 2] = values[tree.first + tree.values - 1];
            }
            tree.values = tree.values.div_ceil(2);
        }
        self.flush(&mut chains, values);
    }

    /// One more, and all of them once there are eight.
    fn push<'a>(
        &self,
        chains: &mut Chains<'a>,
        chain: &Chain<'a, '_>,
        place: usize,
        values: &mut [Value],
    ) {
        chains.push(chain, place);
        if chains.filled == LANES {
            self.flush(chains, values);
        }
    }

    /// Their values go where they belong.
    fn flush(&self, chains: &mut Chains<'_>, values: &mut [Value]) {
        let filled = std::mem::take(&mut chains.filled);
        #[cfg(target_arch = "x86_64")]
        if let (Some(avx2), 2..) = (self.avx2, filled) {
            let of_lanes = avx2.values_of(&self.key, chains, filled);
            for (place, value) in chains.places[..filled].iter().zip(of_lanes) {
                values[*place] = value;
            }
            return;
        }
        for (lane, place) in chains.places[..filled].iter().enumerate() {
            values[*place] = chains.value(lane, self.platform, &self.key);
        }
    }
}

const LANES: usize = 8;

/// Bytes of what BLAKE3 calls a chunk.
const LEAF_BYTES: usize = 1024;

/// Also of a node's two values.
const BLOCK_BYTES: usize = 64;

/// BLAKE3's specification, table 3.
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

    /// Bytes that are not the same in any two leaves.
    fn bytes(length: usize, seed: u8) -> Vec<u8> {
        let mut word = u32::from(seed) | 1;
        let mut next = || {
            word = word.wrapping_mul(0x915f_77f5).wrapping_add(1);
            (word >> 24) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    /// The hash is the crate's on both sides of every border: of blocks, leaves and lanes.
    ///
    /// Method: whatever the processor's lanes are, the crate hashes eight in some way, so the code here runs anywhere.
    #[test]
    fn it_is_blake3_on_both_sides_of_each_border() {
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
        /// Whatever is hashed together, each has the hash it has alone; with vectors and in plain code.
        #[test]
        fn it_is_blake3(
            key in any::<[u8; 32]>(),
            lengths in vec((0_usize..=20_000, 0_usize..=64), 0..20),
            seed in any::<u8>(),
        ) {
            // Half of them near a border.
            let length = |(any, blocks): (usize, usize)| if any % 2 == 0 { any } else { blocks * 64 + any % 3 };
            let all = bytes(20_000, seed);
            let inputs: Vec<&[u8]> = lengths.into_iter().map(|one| &all[all.len() - length(one)..]).collect();
            let expected: Vec<Value> = inputs.iter().map(|one| *blake3::keyed_hash(&key, one).as_bytes()).collect();
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
