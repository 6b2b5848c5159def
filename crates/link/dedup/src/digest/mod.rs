//! The digest of a body: XXH3 of 128 bits over all its bytes, computed incrementally.
//!
//! For more than 240 bytes, XXH3 adds stripes of 64 bytes to eight lanes, each stripe with another part of a
//! secret. This code uses the default secret. After each block of sixteen stripes, XXH3 scrambles the lanes,
//! and at the end it merges them (<https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md>). The last
//! block is stored until more bytes follow, because the last stripe of the body is processed differently.
//!
//! Both endpoints hash every byte of every body, so this code must be fast. It uses AVX2 if the processor has
//! it (`simd`), and the lanes stay in registers for all blocks of an update. Existing crates do not select the
//! instructions at run time.

#[cfg(target_arch = "x86_64")]
pub(crate) mod simd;

use std::fmt;

use edgeward_types::xxh3::xxh3_128;

/// The digest of a body: XXH3 of 128 bits. The receiver compares it with that of the sender.
#[derive(Clone)]
pub struct BodyDigest {
    state: DigestState,
    /// The number of bytes of the body so far, the pending ones included.
    bytes: u64,
    /// Bytes that are not added to `state` yet, at most one block. Empty only before the first byte and
    /// after `update_whole`.
    pending: Box<Block>,
    pending_bytes: usize,
}

/// The state of the digest. It includes a block as soon as at least one byte after the block has arrived.
#[derive(Clone)]
pub(crate) struct DigestState {
    lanes: Lanes,
    /// The last stripe that was added.
    last_stripe: Stripe,
    #[cfg(target_arch = "x86_64")]
    avx2: Option<simd::Avx2>,
}

pub(crate) type Lanes = [u64; 8];
pub(crate) type Stripe = [u8; STRIPE_BYTES];
pub(crate) type Block = [u8; BLOCK_BYTES];

impl Default for BodyDigest {
    fn default() -> Self {
        let state = DigestState {
            lanes: LANES,
            last_stripe: [0; STRIPE_BYTES],
            #[cfg(target_arch = "x86_64")]
            avx2: simd::Avx2::detect(),
        };
        Self {
            state,
            bytes: 0,
            pending: Box::new([0; BLOCK_BYTES]),
            pending_bytes: 0,
        }
    }
}

impl BodyDigest {
    /// Adds the next bytes of the body.
    pub fn update(&mut self, bytes: &[u8]) {
        let added = self.update_whole(bytes);
        let rest = &bytes[added..];
        self.bytes += rest.len() as u64;
        self.add_pending(rest);
    }

    /// Like [`update`](Self::update), but adds only complete blocks and does not copy the remaining bytes (at most one
    /// block). Returns the number of added bytes. The caller must pass the remaining bytes again in the next call.
    /// Before that call, [`value`](Self::value) is undefined.
    pub(crate) fn update_whole(&mut self, bytes: &[u8]) -> usize {
        let mut added = 0;
        if self.pending_bytes > 0 {
            let missing_bytes = BLOCK_BYTES - self.pending_bytes;
            if bytes.len() <= missing_bytes {
                return 0;
            }
            self.add_pending(&bytes[..missing_bytes]);
            self.state.add(std::slice::from_ref(&*self.pending));
            self.pending_bytes = 0;
            added = missing_bytes;
        }
        // All complete blocks after which more bytes follow.
        let rest = &bytes[added..];
        let blocks = &rest.as_chunks().0[..rest.len().saturating_sub(1) / BLOCK_BYTES];
        self.state.add(blocks);
        added += blocks.len() * BLOCK_BYTES;
        self.bytes += added as u64;
        added
    }

    /// Returns the current state and the complete blocks of `bytes`, the next bytes of the body. The caller can
    /// then add the blocks to the state in one pass with other work, and [accept](Self::accept) the new state.
    /// Returns `None` if earlier bytes are pending.
    pub(crate) fn offer<'b>(&self, bytes: &'b [u8]) -> Option<(DigestState, &'b [Block])> {
        let blocks = bytes.len().saturating_sub(1) / BLOCK_BYTES;
        let is_at_block_start = self.pending_bytes == 0;
        is_at_block_start.then(|| (self.state.clone(), &bytes.as_chunks().0[..blocks]))
    }

    /// Replaces the state by the passed one, to which the caller has added `blocks` blocks. Returns the number
    /// of their bytes.
    pub(crate) fn accept(&mut self, state: DigestState, blocks: usize) -> usize {
        let bytes = blocks * BLOCK_BYTES;
        self.state = state;
        self.bytes += bytes as u64;
        bytes
    }

    /// Returns the digest of the bytes added so far.
    pub fn value(&self) -> u128 {
        let pending = &self.pending[..self.pending_bytes];
        if self.bytes <= SHORT_BYTES_MAX {
            return xxh3_128(pending);
        }
        let mut lanes = self.state.lanes;
        let whole_stripes = (pending.len() - 1) / STRIPE_BYTES;
        for (nth, stripe) in pending.as_chunks().0.iter().take(whole_stripes).enumerate() {
            add_stripe(&mut lanes, stripe, &SECRET[8 * nth..]);
        }
        // The last stripe is the last 64 bytes of the body. It may begin in a block that was already added.
        let mut last = [self.state.last_stripe, [0; STRIPE_BYTES]].concat();
        let tail = &pending[pending.len().saturating_sub(STRIPE_BYTES)..];
        last[STRIPE_BYTES..][..tail.len()].copy_from_slice(tail);
        let last = last[tail.len()..]
            .first_chunk()
            .expect("the buffer has two stripes");
        add_stripe(&mut lanes, last, &SECRET[SCRAMBLE_SECRET - 7..]);
        let low = fold(&lanes, &SECRET[11..], self.bytes.wrapping_mul(PRIME64_1));
        let end = !self.bytes.wrapping_mul(PRIME64_2);
        let high = fold(&lanes, &SECRET[SCRAMBLE_SECRET - 11..], end);
        u128::from(high) << 64 | u128::from(low)
    }

    fn add_pending(&mut self, bytes: &[u8]) {
        self.pending[self.pending_bytes..][..bytes.len()].copy_from_slice(bytes);
        self.pending_bytes += bytes.len();
    }
}

impl DigestState {
    /// Returns the lanes to a caller that adds blocks in one pass with other work. The caller then calls
    /// [`record_last_block`](Self::record_last_block).
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn lanes(&mut self) -> &mut Lanes {
        &mut self.lanes
    }

    /// Records the last block that the caller added to the [lanes](Self::lanes). The last stripe of the body
    /// may begin in this block.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn record_last_block(&mut self, block: &Block) {
        self.last_stripe = *block.last_chunk().expect("a block has sixteen stripes");
    }

    pub(crate) fn add(&mut self, blocks: &[Block]) {
        let Some(last) = blocks.last() else {
            return;
        };
        self.last_stripe = *last.last_chunk().expect("a block has sixteen stripes");
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = self.avx2 {
            avx2.add_blocks(&mut self.lanes, blocks);
            return;
        }
        add_blocks(&mut self.lanes, blocks);
    }
}

impl fmt::Debug for BodyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BodyDigest(of {} bytes)", self.bytes)
    }
}

/// Adds blocks in portable code, which defines the result.
fn add_blocks(lanes: &mut Lanes, blocks: &[Block]) {
    for block in blocks {
        for (nth, stripe) in block.as_chunks().0.iter().enumerate() {
            add_stripe(lanes, stripe, &SECRET[8 * nth..]);
        }
        for (lane, secret) in lanes.iter_mut().zip(words(&SECRET[SCRAMBLE_SECRET..])) {
            *lane = (*lane ^ *lane >> 47 ^ secret).wrapping_mul(u64::from(PRIME32_1));
        }
    }
}

fn add_stripe(lanes: &mut Lanes, stripe: &Stripe, secret: &[u8]) {
    for (nth, (word, secret)) in words(stripe).zip(words(secret)).enumerate() {
        let keyed = word ^ secret;
        lanes[nth ^ 1] = lanes[nth ^ 1].wrapping_add(word);
        lanes[nth] = lanes[nth].wrapping_add((keyed & 0xffff_ffff) * (keyed >> 32));
    }
}

/// Merges the lanes into 64 bits, one half of the digest.
fn fold(lanes: &Lanes, secret: &[u8], start: u64) -> u64 {
    let secret: Vec<u64> = words(secret).take(lanes.len()).collect();
    let mut sum = start;
    for (lanes, secret) in lanes.chunks_exact(2).zip(secret.chunks_exact(2)) {
        let [one, other] = [lanes[0] ^ secret[0], lanes[1] ^ secret[1]];
        let product = u128::from(one) * u128::from(other);
        sum = sum.wrapping_add(product as u64 ^ (product >> 64) as u64);
    }
    sum ^= sum >> 37;
    sum = sum.wrapping_mul(0x1656_6791_9e37_79f9);
    sum ^ sum >> 32
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word))
}

pub(crate) const STRIPE_BYTES: usize = 64;

/// The number of bytes of a block. The secret of each stripe begins eight bytes after that of the previous
/// stripe, so the length of the secret limits the number of stripes.
pub(crate) const BLOCK_BYTES: usize = STRIPE_BYTES * ((SECRET.len() - STRIPE_BYTES) / 8);

/// The offset of the part of the secret that scrambles the lanes: the last 64 bytes.
const SCRAMBLE_SECRET: usize = SECRET.len() - STRIPE_BYTES;

/// The largest length that XXH3 hashes in another way, without lanes and stripes.
const SHORT_BYTES_MAX: u64 = 240;

const PRIME32_1: u32 = 0x9e37_79b1;
const PRIME32_2: u64 = 0x85eb_ca77;
const PRIME32_3: u64 = 0xc2b2_ae3d;
const PRIME64_1: u64 = 0x9e37_79b1_85eb_ca87;
const PRIME64_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const PRIME64_3: u64 = 0x1656_67b1_9e37_79f9;
const PRIME64_4: u64 = 0x85eb_ca77_c2b2_ae63;
const PRIME64_5: u64 = 0x27d4_eb2f_1656_67c5;

/// The initial lanes.
const LANES: Lanes = [
    PRIME32_3,
    PRIME64_1,
    PRIME64_2,
    PRIME64_3,
    PRIME64_4,
    PRIME32_2,
    PRIME64_5,
    PRIME32_1 as u64,
];

/// The default secret of the specification.
#[rustfmt::skip]
const SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
];

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::{any, prop_assert_eq, proptest};

    /// The digest equals that of another implementation, for every length up to more than three blocks, with
    /// one update or two.
    #[test]
    fn every_length_is_digested() {
        let bytes: Vec<u8> = (0..3 * BLOCK_BYTES + 200)
            .map(|n| (n * n * 31) as u8 ^ (n >> 5) as u8)
            .collect();
        for length in 0..bytes.len() {
            let whole = &bytes[..length];
            let expected = xxh3_128(whole);
            for split in [
                0,
                length / 3,
                length.saturating_sub(1),
                length / 2 / 64 * 64,
            ] {
                let mut digest = BodyDigest::default();
                digest.update(&whole[..split]);
                digest.update(&whole[split..]);
                assert_eq!(digest.value(), expected, "{length} bytes, split at {split}");
                // `update_whole` adds some bytes. Only the other bytes are passed again.
                let mut digest = BodyDigest::default();
                digest.update(&whole[..split / 2]);
                let mut taken = split / 2;
                for early in [split, length] {
                    taken += digest.update_whole(&whole[taken..early]);
                }
                digest.update(&whole[taken..]);
                assert_eq!(digest.value(), expected, "{length} bytes, {split} early");
            }
        }
    }

    proptest! {
        /// Portable code and AVX2 code compute the same lanes.
        #[test]
        fn portable_and_avx2_code_give_the_same_lanes(
            seed in any::<u64>(),
            blocks in 0_usize..5,
            lanes in any::<[u64; 8]>(),
        ) {
            #[cfg(target_arch = "x86_64")]
            if let Some(avx2) = simd::Avx2::detect() {
                let mut word = seed;
                let mut block = || std::array::from_fn(|_| {
                    word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    (word >> 56) as u8
                });
                let blocks: Vec<Block> = (0..blocks).map(|_| block()).collect();
                let (mut plain, mut fast) = (lanes, lanes);
                add_blocks(&mut plain, &blocks);
                avx2.add_blocks(&mut fast, &blocks);
                prop_assert_eq!(plain, fast);
            }
        }
    }
}
