//! Hashes eight chains of blocks at a time with AVX2. Tests compare the results with the hashes of single chains.
//! A chain is a sequence of blocks that are hashed one after the other: a leaf or an inner node of a BLAKE3 tree.
//!
//! A vector has the same word of all eight chains; the position of a chain in it is the chain's lane. BLAKE3's
//! compression (specification, section 2.2) can therefore be written as for a single chain. This code is a tenth
//! slower than the assembly of the `blake3` crate. But the assembly requires eight chains of equal length, complete
//! blocks, and counters that are equal or consecutive.
//!
//! # Why `unsafe`
//!
//! The compiler cannot check two conditions. First, the processor must have AVX2: a value of [`Avx2`] exists
//! only if AVX2 was detected. Second, a load or store must stay within an array. It gets a reference to an array
//! whose length is exactly the number of bytes read or written. The bounds are checked when this reference is made.
#![expect(
    unsafe_code,
    reason = "vector instructions; the module's doc says what makes them sound"
)]

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm256_add_epi32, _mm256_and_si256, _mm256_blendv_epi8,
    _mm256_castsi128_si256, _mm256_cmpeq_epi32, _mm256_cmpgt_epi32, _mm256_inserti128_si256,
    _mm256_loadu_si256, _mm256_or_si256, _mm256_permute2x128_si256, _mm256_set_epi64x,
    _mm256_set1_epi32, _mm256_shuffle_epi8, _mm256_slli_epi32, _mm256_srli_epi32,
    _mm256_storeu_si256, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi32,
    _mm256_unpacklo_epi64, _mm256_xor_si256,
};
use std::hint::black_box;

use super::{BLOCK_BYTES, Block, Chains, HashBytes, KEYED, LANES};

/// Proof that this processor has AVX2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

impl Avx2 {
    /// Detects AVX2.
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    /// Returns the hashes of the first `filled` lanes, as [`Chains::value`] defines them.
    pub(super) fn values_of(
        self,
        key: &[u32; 8],
        chains: &Chains<'_>,
        filled: usize,
    ) -> [HashBytes; LANES] {
        // SAFETY: the processor has AVX2, because `self` exists.
        unsafe { values_of(key, chains, filled) }
    }
}

#[target_feature(enable = "avx2")]
fn values_of(key: &[u32; 8], chains: &Chains<'_>, filled: usize) -> [HashBytes; LANES] {
    let rotations = Rotations::new();
    let (mut shortest, mut longest) = (u32::MAX, 0);
    for blocks in &chains.blocks[..filled] {
        shortest = shortest.min(*blocks);
        longest = longest.max(*blocks);
    }
    let blocks = load_words(&chains.blocks);
    let counter = [
        load_words(&chains.counter_low),
        load_words(&chains.counter_high),
    ];
    let last_bytes = load_words(&chains.last_bytes);
    let flags_first = load_words(&chains.flags_first);
    let flags_last = load_words(&chains.flags_last);
    let mut value = [splat(0); 8];
    for (value, word) in value.iter_mut().zip(key) {
        *value = splat(*word);
    }
    for nth in 0..longest {
        let mut next = [&chains.last[0]; LANES];
        for (lane, block) in next.iter_mut().enumerate() {
            *block = chains.block(lane, nth);
        }
        let is_last = _mm256_cmpeq_epi32(blocks, splat(nth + 1));
        let mut flags = _mm256_or_si256(
            splat(u32::from(KEYED)),
            _mm256_and_si256(is_last, flags_last),
        );
        if nth == 0 {
            flags = _mm256_or_si256(flags, flags_first);
        }
        let bytes = _mm256_blendv_epi8(splat(BLOCK_BYTES as u32), last_bytes, is_last);
        let before = value;
        let parameters = [counter[0], counter[1], bytes, flags];
        compress(&mut value, &message(&next), parameters, rotations);
        // A chain that has fewer blocks keeps the hash of its last block.
        if nth >= shortest {
            let continues = _mm256_cmpgt_epi32(blocks, splat(nth));
            for (value, before) in value.iter_mut().zip(before) {
                *value = _mm256_blendv_epi8(before, *value, continues);
            }
        }
    }
    transpose_state(&value)
}

/// The compression function of the specification. Computes only the half of the result that is needed for
/// hashes of 32 bytes. `parameters` has the counter (two words), the number of bytes, and the flags.
#[target_feature(enable = "avx2")]
#[inline]
fn compress(
    value: &mut [__m256i; 8],
    message: &[__m256i; 16],
    parameters: [__m256i; 4],
    rotations: Rotations,
) {
    let mut state = [splat(0); 16];
    state[..8].copy_from_slice(value);
    for (word, iv) in state[8..].iter_mut().zip(IV) {
        *word = splat(iv);
    }
    state[12..].copy_from_slice(&parameters);
    // Each round uses the message words in another order, which is known at compile time.
    round::<0>(&mut state, message, rotations);
    round::<1>(&mut state, message, rotations);
    round::<2>(&mut state, message, rotations);
    round::<3>(&mut state, message, rotations);
    round::<4>(&mut state, message, rotations);
    round::<5>(&mut state, message, rotations);
    round::<6>(&mut state, message, rotations);
    for (nth, value) in value.iter_mut().enumerate() {
        *value = _mm256_xor_si256(state[nth], state[nth + 8]);
    }
}

/// A round: mixes the columns of the state, then its diagonals.
#[target_feature(enable = "avx2")]
#[inline]
fn round<const N: usize>(state: &mut [__m256i; 16], message: &[__m256i; 16], rotations: Rotations) {
    let (columns, diagonals) = ORDERS[N].split_at(8);
    mix::<4, 8, 12>(state, message, columns, rotations);
    mix::<5, 10, 15>(state, message, diagonals, rotations);
}

/// The function `G` of the specification, for four columns or diagonals at once. `B`, `C` and `D` are the
/// indexes of the state words that the first column or diagonal has in the second, third and fourth row.
#[target_feature(enable = "avx2")]
#[inline]
fn mix<const B: usize, const C: usize, const D: usize>(
    state: &mut [__m256i; 16],
    message: &[__m256i; 16],
    order: &[usize],
    rotations: Rotations,
) {
    for half in 0..2 {
        for n in 0..4 {
            state[n] = _mm256_add_epi32(state[n], message[order[2 * n + half]]);
        }
        for n in 0..4 {
            state[n] = _mm256_add_epi32(state[n], state[word_index::<B>(n)]);
        }
        for n in 0..4 {
            state[word_index::<D>(n)] = _mm256_xor_si256(state[word_index::<D>(n)], state[n]);
        }
        for n in 0..4 {
            state[word_index::<D>(n)] = rotations.rotate(half, state[word_index::<D>(n)]);
        }
        for n in 0..4 {
            state[word_index::<C>(n)] =
                _mm256_add_epi32(state[word_index::<C>(n)], state[word_index::<D>(n)]);
        }
        for n in 0..4 {
            state[word_index::<B>(n)] =
                _mm256_xor_si256(state[word_index::<B>(n)], state[word_index::<C>(n)]);
        }
        for n in 0..4 {
            let word = state[word_index::<B>(n)];
            state[word_index::<B>(n)] = if half == 0 {
                _mm256_or_si256(_mm256_srli_epi32::<12>(word), _mm256_slli_epi32::<20>(word))
            } else {
                _mm256_or_si256(_mm256_srli_epi32::<7>(word), _mm256_slli_epi32::<25>(word))
            };
        }
    }
}

/// Returns the index of the word that is `n` words after `WORD` in its row of four words. After the last word
/// of a row, the first one follows.
const fn word_index<const WORD: usize>(n: usize) -> usize {
    WORD / 4 * 4 + (WORD + n) % 4
}

/// Rotates words to the right by 16 or by 8 bits. Rotations by whole bytes need only one instruction.
#[derive(Clone, Copy)]
struct Rotations([__m256i; 2]);

impl Rotations {
    #[target_feature(enable = "avx2")]
    #[inline]
    fn new() -> Self {
        let by = |low: u64| {
            let (low, high) = (low as i64, (low + 0x0808_0808_0808_0808) as i64);
            // If the compiler knew this constant, it would replace the single shuffle by two shifts.
            black_box(_mm256_set_epi64x(high, low, high, low))
        };
        Self([by(0x0504_0706_0100_0302), by(0x0407_0605_0003_0201)])
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn rotate(self, nth: usize, words: __m256i) -> __m256i {
        _mm256_shuffle_epi8(words, self.0[nth])
    }
}

/// Returns the sixteen message words of eight blocks. Each vector has one word of all blocks.
#[target_feature(enable = "avx2")]
#[inline]
fn message(blocks: &[&Block; LANES]) -> [__m256i; 16] {
    let mut message = [splat(0); 16];
    for (nth, words) in message.as_chunks_mut().0.iter_mut().enumerate() {
        *words = transpose([
            load_quarters(blocks[0], blocks[4], nth),
            load_quarters(blocks[1], blocks[5], nth),
            load_quarters(blocks[2], blocks[6], nth),
            load_quarters(blocks[3], blocks[7], nth),
        ]);
    }
    message
}

/// Returns quarter `nth` of two blocks in one vector.
#[target_feature(enable = "avx2")]
#[inline]
fn load_quarters(low: &Block, high: &Block, nth: usize) -> __m256i {
    let low: &[u8; 16] = &low.as_chunks().0[nth];
    let high: &[u8; 16] = &high.as_chunks().0[nth];
    // SAFETY: each load reads the 16 bytes of an array, at any alignment.
    let (low, high) = unsafe {
        let low = _mm_loadu_si128(low.as_ptr().cast());
        (low, _mm_loadu_si128(high.as_ptr().cast()))
    };
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high)
}

/// Transposes the state: returns the hash of each lane, which has eight words.
#[target_feature(enable = "avx2")]
#[inline]
fn transpose_state(rows: &[__m256i; 8]) -> [HashBytes; LANES] {
    let [a, b, c, d, e, f, g, h] = *rows;
    let (low, high) = (transpose([a, b, c, d]), transpose([e, f, g, h]));
    let mut out = [[0; 32]; LANES];
    let (front, back) = out.split_at_mut(4);
    for nth in 0..4 {
        let wholes = [
            (
                &mut front[nth],
                _mm256_permute2x128_si256::<0x20>(low[nth], high[nth]),
            ),
            (
                &mut back[nth],
                _mm256_permute2x128_si256::<0x31>(low[nth], high[nth]),
            ),
        ];
        for (value, whole) in wholes {
            // SAFETY: writes the 32 bytes of the array, at any alignment.
            unsafe { _mm256_storeu_si256(value.as_mut_ptr().cast(), whole) };
        }
    }
    out
}

/// Transposes four rows of four words, separately in the lower and the upper half of the vectors.
#[target_feature(enable = "avx2")]
#[inline]
fn transpose([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
    let (ab_high, cd_high) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
    [
        _mm256_unpacklo_epi64(ab, cd),
        _mm256_unpackhi_epi64(ab, cd),
        _mm256_unpacklo_epi64(ab_high, cd_high),
        _mm256_unpackhi_epi64(ab_high, cd_high),
    ]
}

#[target_feature(enable = "avx2")]
#[inline]
fn splat(word: u32) -> __m256i {
    _mm256_set1_epi32(word.cast_signed())
}

#[target_feature(enable = "avx2")]
#[inline]
fn load_words(words: &[u32; LANES]) -> __m256i {
    // SAFETY: reads the 32 bytes of the array, at any alignment.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

/// The first four initial values (specification, table 1).
const IV: [u32; 4] = [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a];

/// The order in which each round uses the words of a block. Each order is table 2 of the specification, applied
/// to the previous order.
const ORDERS: [[usize; 16]; 7] = {
    const NEXT: [usize; 16] = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
    let mut orders = [[0; 16]; 7];
    let mut nth = 0;
    while nth < 7 * 16 {
        let (round, word) = (nth / 16, nth % 16);
        orders[round][word] = if round == 0 {
            word
        } else {
            orders[round - 1][NEXT[word]]
        };
        nth += 1;
    }
    orders
};
