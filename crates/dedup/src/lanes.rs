//! BLAKE3 of a chunk on a processor that hashes eight kilobytes of it side by side, as one with AVX2 does.
//!
//! BLAKE3 is a tree over leaves of 1024 bytes. The crate takes eight leaves at a time, and what remains of a chunk by fours, twos and ones: seven
//! leaves take two and a half times as long as eight do. A chunk has nine leaves on average, so most of them have such a rest. Here the lanes of what would be
//! three, or five and more, are filled up with a leaf whose result nobody reads, and so are those of the tree's inner nodes: an eighth
//! less time for the chunks there are. Where lanes are more or fewer than eight nothing of this was measured, and the crate does it all.
//!
//! What it calls of the crate has no promise of staying as it is: the crate's version is held in `Cargo.toml`, and the test holds the results against the
//! crate's own.

use blake3::IncrementCounter;
use blake3::platform::{Platform, le_bytes_from_words_32, words_from_le_bytes_32};

/// BLAKE3's keyed hash.
pub(crate) fn keyed_hash(key: &[u8; 32], bytes: &[u8]) -> [u8; 32] {
    let platform = Platform::detect();
    let leaves = bytes.len().div_ceil(LEAF_BYTES);
    if platform.simd_degree() == LANES && (2..=LEAVES_MAX).contains(&leaves) {
        let key = words_from_le_bytes_32(key);
        Lanes { platform, key }.hash(bytes)
    } else {
        *blake3::keyed_hash(key, bytes).as_bytes()
    }
}

struct Lanes {
    platform: Platform,
    key: [u32; 8],
}

/// Values of leaves or nodes side by side, with room for lanes that are filled up.
type Row = [u8; (LEAVES_MAX + LANES) * VALUE_BYTES];

impl Lanes {
    /// Of two leaves at least, and of no more than there is room for.
    fn hash(&self, bytes: &[u8]) -> [u8; 32] {
        let (whole, rest) = bytes.split_at(bytes.len() - bytes.len() % LEAF_BYTES);
        let (mut row, mut next): (Row, Row) = ([0; _], [0; _]);
        let (mut row, mut next) = (&mut row, &mut next);
        let mut values = whole.len() / LEAF_BYTES;
        let flags = [KEYED, CHUNK_START, CHUNK_END];
        self.side_by_side::<LEAF_BYTES>(whole, IncrementCounter::Yes, flags, row);
        if !rest.is_empty() {
            let value = self.last_leaf(rest, values as u64);
            row[values * VALUE_BYTES..][..VALUE_BYTES].copy_from_slice(&value);
            values += 1;
        }
        // The specification's tree (section 2.1) has the largest power of two of leaves on the left of each node: pairs of neighbours, level by
        // level, with an odd one at the end going up as it is.
        while values > 2 {
            let (pairs, odd) = row[..values * VALUE_BYTES].split_at(values / 2 * NODE_BYTES);
            let flags = [KEYED | PARENT, 0, 0];
            self.side_by_side::<NODE_BYTES>(pairs, IncrementCounter::No, flags, next);
            next[pairs.len() / 2..][..odd.len()].copy_from_slice(odd);
            values = values.div_ceil(2);
            std::mem::swap(&mut row, &mut next);
        }
        let mut value = self.key;
        let children: &[u8; NODE_BYTES] = row.first_chunk().expect("two values");
        let flags = KEYED | PARENT | ROOT;
        self.platform
            .compress_in_place(&mut value, children, BLOCK_LEN, 0, flags);
        le_bytes_from_words_32(&value)
    }

    /// Values of inputs of `N` bytes each, lying one after the other; flags are those of all blocks, the first and the last.
    fn side_by_side<const N: usize>(
        &self,
        inputs: &[u8],
        counter: IncrementCounter,
        flags: [u8; 3],
        out: &mut Row,
    ) {
        let (inputs, rest) = inputs.as_chunks::<N>();
        debug_assert!(rest.is_empty(), "inputs are whole");
        for (nth, group) in inputs.chunks(LANES).enumerate() {
            let last = &group[group.len() - 1];
            let mut lanes = [last; LANES];
            lanes
                .iter_mut()
                .zip(group)
                .for_each(|(lane, input)| *lane = input);
            let wide = match group.len() {
                3 => 4,
                5.. => LANES,
                few => few,
            };
            let out = &mut out[nth * LANES * VALUE_BYTES..][..wide * VALUE_BYTES];
            let first = match counter {
                IncrementCounter::Yes => (nth * LANES) as u64,
                IncrementCounter::No => 0,
            };
            let [all, start, end] = flags;
            self.platform.hash_many(
                &lanes[..wide],
                &self.key,
                first,
                counter,
                all,
                start,
                end,
                out,
            );
        }
    }

    /// A leaf that is not whole: its blocks one after the other.
    fn last_leaf(&self, bytes: &[u8], counter: u64) -> [u8; VALUE_BYTES] {
        let mut value = self.key;
        let blocks = bytes.len().div_ceil(NODE_BYTES);
        for (nth, bytes) in bytes.chunks(NODE_BYTES).enumerate() {
            let mut block = [0; NODE_BYTES];
            block[..bytes.len()].copy_from_slice(bytes);
            let start = if nth == 0 { CHUNK_START } else { 0 };
            let end = if nth + 1 == blocks { CHUNK_END } else { 0 };
            let length = bytes.len() as u8;
            self.platform.compress_in_place(
                &mut value,
                &block,
                length,
                counter,
                KEYED | start | end,
            );
        }
        le_bytes_from_words_32(&value)
    }
}

const LANES: usize = 8;

/// Bytes of what BLAKE3 calls a chunk.
const LEAF_BYTES: usize = 1024;

/// Of a node's two values, and of a block.
const NODE_BYTES: usize = 2 * VALUE_BYTES;
const BLOCK_LEN: u8 = 64;
const VALUE_BYTES: usize = 32;

const _: () = assert!(NODE_BYTES == BLOCK_LEN as usize);

/// Longer ones, 64 KiB, are nearly all lanes of eight anyway.
const LEAVES_MAX: usize = 64;

/// BLAKE3's specification, table 3.
const CHUNK_START: u8 = 1;
const CHUNK_END: u8 = 2;
const PARENT: u8 = 4;
const ROOT: u8 = 8;
const KEYED: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;

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

    fn lanes(key: &[u8; 32]) -> Lanes {
        let (platform, key) = (Platform::detect(), words_from_le_bytes_32(key));
        Lanes { platform, key }
    }

    /// The hash is the crate's on both sides of every border: of blocks, leaves and lanes, and of what is done here at all.
    ///
    /// Method: whatever the processor's lanes are, the crate hashes eight in some way, so the code here runs anywhere.
    #[test]
    fn it_is_blake3_on_both_sides_of_each_border() {
        let key = [7; 32];
        let all = bytes((LEAVES_MAX + 2) * LEAF_BYTES, 3);
        for leaves in 0..=LEAVES_MAX + 1 {
            for more in [0, 1, 63, 64, 65, 512, 960, 961, 1023] {
                let bytes = &all[..leaves * LEAF_BYTES + more];
                let expected = *blake3::keyed_hash(&key, bytes).as_bytes();
                assert_eq!(keyed_hash(&key, bytes), expected, "{} bytes", bytes.len());
                if (2..=LEAVES_MAX).contains(&bytes.len().div_ceil(LEAF_BYTES)) {
                    assert_eq!(lanes(&key).hash(bytes), expected, "{} bytes", bytes.len());
                }
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_blake3(key in any::<[u8; 32]>(), length in 1025_usize..=65_536, seed in any::<u8>()) {
            let bytes = bytes(length, seed);
            prop_assert_eq!(lanes(&key).hash(&bytes), *blake3::keyed_hash(&key, &bytes).as_bytes());
        }
    }
}
