//! The bytes of an object: a pure function of its id and the offset.
//!
//! The origin generates bodies from the pattern and stores none. The load generator compares every received
//! byte with the pattern, from any offset. A body is a sequence of 8-byte little-endian words. The key `k` of an
//! object is a hash of its id. Word `i` is `w ^ (w >> 32)` where `w = k + i * STEP` modulo 2^64. The values `w` are a
//! Weyl sequence, so all words of a body differ. The xor folds the upper half of `w`, which has a long period, into
//! the lower half, which has a short one. A word costs one add, one shift and one xor. SSE2 computes two words at a
//! time, and no memory is read. Generating bytes is therefore as fast as storing them.
//!
//! `STEP` is odd and the fold is a bijection. A word from another position of the body, or from the same
//! position of a body with another key, is therefore never the correct word. A body that was shifted by whole
//! words, or swapped with the body of an id with another key, differs in every word.

use edgeward_types::mix64;

/// The bytes of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    key: u64,
}

impl Pattern {
    /// Returns the pattern of the object with this id, as written in the URL.
    pub fn for_id(id: &str) -> Self {
        // FNV-1a, then the finaliser of splitmix64: ids are short and often consecutive numbers, and their keys must
        // still differ widely.
        let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self { key: mix64(hash) }
    }

    /// Returns 64 bits that identify the object. The entity tag depends on them.
    pub fn key(self) -> u64 {
        self.key
    }

    /// Fills `out` with the object's bytes from `offset`.
    pub fn fill(self, offset: u64, out: &mut [u8]) {
        let (lead, words) = split_at_word(offset, out.len());
        let (head, rest) = out.split_at_mut(lead);
        self.fill_within_word(offset, head);
        let (body, tail) = rest.split_at_mut(words * WORD_BYTES);
        let mut weyl = self.weyl_at(offset + lead as u64);
        for position in body.chunks_exact_mut(WORD_BYTES) {
            position.copy_from_slice(&fold(weyl).to_le_bytes());
            weyl = weyl.wrapping_add(STEP);
        }
        tail.copy_from_slice(&fold(weyl).to_le_bytes()[..tail.len()]);
    }

    /// Appends `len` of the object's bytes from `offset`.
    ///
    /// The bytes are generated in a block on the stack, which stays in the first-level cache, and copied. This is
    /// cheaper than zeroing the memory of `out` first, and needs no unsafe code.
    pub fn append(self, offset: u64, len: usize, out: &mut Vec<u8>) {
        out.reserve(len);
        let mut block = [0; BLOCK_BYTES];
        let mut done = 0;
        while done < len {
            let block = &mut block[..BLOCK_BYTES.min(len - done)];
            self.fill(offset + done as u64, block);
            out.extend_from_slice(block);
            done += block.len();
        }
    }

    /// Compares received bytes with the object's bytes from `offset`. Returns the offset of the first wrong byte.
    pub fn first_wrong(self, offset: u64, received: &[u8]) -> Option<u64> {
        let (lead, words) = split_at_word(offset, received.len());
        let (head, rest) = received.split_at(lead);
        let (body, tail) = rest.split_at(words * WORD_BYTES);
        self.wrong_byte(offset, head).or_else(|| {
            let mut at = offset + lead as u64;
            for block in body.chunks(BLOCK_BYTES) {
                // Compares a whole block without a branch per word, and searches the block only if it differs.
                let mut weyl = self.weyl_at(at);
                let mut difference = 0;
                for word in block.chunks_exact(WORD_BYTES) {
                    difference |= le_word(word) ^ fold(weyl);
                    weyl = weyl.wrapping_add(STEP);
                }
                if difference != 0 {
                    return self.wrong_byte(at, block);
                }
                at += block.len() as u64;
            }
            self.wrong_byte(at, tail)
        })
    }

    /// Returns byte `offset` of the object.
    fn byte(self, offset: u64) -> u8 {
        let within = usize::try_from(offset % WORD_BYTES as u64).expect("the remainder is below 8");
        fold(self.weyl_at(offset)).to_le_bytes()[within]
    }

    fn fill_within_word(self, offset: u64, out: &mut [u8]) {
        for (at, position) in (offset..).zip(out) {
            *position = self.byte(at);
        }
    }

    fn wrong_byte(self, offset: u64, received: &[u8]) -> Option<u64> {
        (offset..)
            .zip(received)
            .find_map(|(at, &byte)| (byte != self.byte(at)).then_some(at))
    }

    /// Returns the state `w` of the word that contains byte `offset`.
    fn weyl_at(self, offset: u64) -> u64 {
        let word = offset / WORD_BYTES as u64;
        self.key.wrapping_add(word.wrapping_mul(STEP))
    }
}

/// Splits `len` bytes from `offset`: returns the number of bytes before the first whole word, and the number of whole
/// words after them.
fn split_at_word(offset: u64, len: usize) -> (usize, usize) {
    let within = usize::try_from(offset % WORD_BYTES as u64).expect("the remainder is below 8");
    let lead = ((WORD_BYTES - within) % WORD_BYTES).min(len);
    (lead, (len - lead) / WORD_BYTES)
}

const fn fold(weyl: u64) -> u64 {
    weyl ^ (weyl >> 32)
}

fn le_word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("the slice has 8 bytes"))
}

const WORD_BYTES: usize = 8;

/// The size of a block: half of a first-level cache of 32 KiB, and a whole number of words.
const BLOCK_BYTES: usize = 16 << 10;
const _: () = assert!(BLOCK_BYTES.is_multiple_of(WORD_BYTES));

/// 2^64 divided by the golden ratio, made odd. With this step, the values `w` of neighbouring words differ in every
/// byte.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const _: () = assert!(STEP % 2 == 1);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Computes one byte by the definition in the module documentation, without splitting or blocks.
    fn naive(pattern: Pattern, offset: u64) -> u8 {
        let word = u128::from(offset / 8);
        let weyl = u128::from(pattern.key()) + word * 0x9e37_79b9_7f4a_7c15;
        let weyl = weyl % (1 << 64);
        let folded = weyl ^ (weyl >> 32);
        u8::try_from((folded >> (8 * (offset % 8))) & 0xff).expect("the value is masked to a byte")
    }

    fn naive_bytes(pattern: Pattern, offset: u64, len: usize) -> Vec<u8> {
        (offset..).take(len).map(|at| naive(pattern, at)).collect()
    }

    fn lengths() -> impl Strategy<Value = usize> {
        prop_oneof![0..40_usize, BLOCK_BYTES - 20..BLOCK_BYTES + 20]
    }

    fn offsets() -> impl Strategy<Value = u64> {
        prop_oneof![0..40_u64, 0..1_u64 << 40]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..Default::default() })]

        #[test]
        fn the_bytes_match_the_definition(
            id in "[0-9a-z]{1,12}", offset in offsets(), len in lengths(),
        ) {
            let pattern = Pattern::for_id(&id);
            let expected = naive_bytes(pattern, offset, len);
            let mut filled = vec![0; len];
            pattern.fill(offset, &mut filled);
            prop_assert_eq!(&filled, &expected);
            let mut appended = vec![1, 2, 3];
            pattern.append(offset, len, &mut appended);
            prop_assert_eq!(&appended[3..], &expected[..]);
            prop_assert_eq!(pattern.first_wrong(offset, &expected), None);
        }

        /// If any single bit is flipped, `first_wrong` returns the exact offset of its byte.
        #[test]
        fn a_flipped_bit_is_found_at_its_offset(
            id in 0..1_000_000_u64, offset in offsets(), len in lengths(),
            position in any::<prop::sample::Index>(), bit in 0..8_u32,
        ) {
            prop_assume!(len > 0);
            let pattern = Pattern::for_id(&id.to_string());
            let mut bytes = vec![0; len];
            pattern.fill(offset, &mut bytes);
            let position = position.index(len);
            bytes[position] ^= 1 << bit;
            prop_assert_eq!(pattern.first_wrong(offset, &bytes), Some(offset + position as u64));
        }
    }

    /// Tests every position of a short body, because most bodies are short.
    #[test]
    fn a_wrong_byte_is_found_at_every_position_of_a_short_body() {
        let pattern = Pattern::for_id("7");
        for offset in 0..9 {
            for position in 0..67 {
                let mut bytes = naive_bytes(pattern, offset, 67);
                bytes[position] = !bytes[position];
                let found = pattern.first_wrong(offset, &bytes);
                assert_eq!(found, Some(offset + position as u64), "offset {offset}");
            }
        }
    }

    #[test]
    fn bytes_of_another_object_or_offset_are_wrong_from_the_first_word() {
        let pattern = Pattern::for_id("1000");
        let others = (0..1000).map(|id| Pattern::for_id(&id.to_string()));
        for (id, other) in others.enumerate() {
            let bytes = naive_bytes(other, 0, 8);
            assert!(pattern.first_wrong(0, &bytes).is_some(), "id {id}");
        }
        for shift in 1..=4096 {
            let bytes = naive_bytes(pattern, shift, 16);
            assert!(pattern.first_wrong(0, &bytes).is_some(), "shift {shift}");
        }
    }

    /// The bytes are part of the interface: clients in other languages verify them too.
    #[test]
    fn the_first_bytes_of_an_object_never_change() {
        let mut bytes = [0; 12];
        Pattern::for_id("42").fill(0, &mut bytes);
        assert_eq!(format!("{bytes:02x?}"), GOLDEN);
    }

    const GOLDEN: &str = "[56, f5, 3e, d5, 54, ce, 28, a4, 1a, ff, 00, b2]";
}
