//! Knowing a chunk again without naming it again.
//!
//! A name is made so that neither the other end nor anybody else who has the key can make two chunks of one name; that is what takes the time.
//! Within one process less will do. A chunk that was found to have its name also gets a [`Mark`], under a key that the process drew at
//! random and tells nobody; no mark leaves the process either. When the chunk's bytes come again, over the wire where the chunk was
//! awaited or out of the store, they are held against the mark, several times faster than against the name. Bytes without a mark,
//! and bytes that do not fit it, are named as ever.
//!
//! A mark is a universal hash in two steps. Units of [`UNIT_BYTES`] are hashed by NH over words of 32 bits, in two passes, the second under the
//! same key some words further on (Black, Halevi, Krawczyk, Krovetz, Rogaway, "UMAC: fast and secure message authentication", CRYPTO
//! 1999, theorem 4.3: whatever they are, two units of one length have the same sums with a probability of 2^-32 a pass, 2^-64
//! together). There the second pass begins two words further on, here eight; that is as good, since the last pair in which two units differ meets words of the
//! key in the second pass that none of their differences met in the first. The sums of all units, and the chunk's length, are multiplied by one
//! secret number of 128 bits each and added up, and the upper half of that is the mark (Lemire, Kaser, "Strongly universal string hashing
//! is fast", The Computer Journal 57, 2014, the family MULTILINEAR: two rows of numbers have the same with a probability of 2^-64).
//!
//! So two chunks that were chosen without knowing the key have one mark with a probability of 2^-63, and who chose them learns nothing of the key but
//! whether they had. Names of 128 bits promise that two of one name take 2^64 tries to make; here each try is a chunk sent over the link, held
//! against the one that is awaited in its place, and a body that is spoilt by it still has to pass its digest.
//!
//! NH is code for vectors (`simd`), and plain code elsewhere, with the same result.

#[cfg(target_arch = "x86_64")]
mod simd;

use std::fmt;
use std::num::NonZeroU64;

use crate::digest::{BLOCK_BYTES, Block, Sums};
use crate::wire::PIECE_BYTES_MAX;

/// What a chunk is known by within this process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mark(NonZeroU64);

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mark")
    }
}

/// The key of marks: of one process, and never told.
pub struct MarkKey {
    first: UnitKey,
    second: Box<[u128; SECOND_NUMBERS]>,
    #[cfg(target_arch = "x86_64")]
    avx2: Option<simd::Avx2>,
}

/// The key of one unit: its words, and those that later passes have beyond them. Vectors of it lie within lines of a cache.
#[repr(align(64))]
struct UnitKey([u32; KEY_WORDS]);
const KEY_WORDS: usize = UNIT_BYTES / 4 + PASS_WORDS * (PASSES - 1);

impl MarkKey {
    /// The key that follows from `random` bytes.
    pub fn new(random: &[u8; 32]) -> Self {
        let mut stream = blake3::Hasher::new_keyed(random).finalize_xof();
        let first = std::array::from_fn(|_| {
            let mut word = [0; 4];
            stream.fill(&mut word);
            u32::from_le_bytes(word)
        });
        let second = std::array::from_fn(|_| {
            let mut number = [0; 16];
            stream.fill(&mut number);
            u128::from_le_bytes(number)
        });
        Self {
            first: UnitKey(first),
            second: Box::new(second),
            #[cfg(target_arch = "x86_64")]
            avx2: simd::Avx2::detect(),
        }
    }

    /// The mark of these bytes; none of more than [`MARKED_BYTES_MAX`], which no chunk has.
    pub fn mark(&self, bytes: &[u8]) -> Option<Mark> {
        self.mark_of(bytes, |unit| self.sums(unit))
    }

    /// As [`mark`](Self::mark), and `blocks`, which are a body's up to about the same bytes, are added to its sums.
    pub(crate) fn mark_along(
        &self,
        bytes: &[u8],
        sums: &mut Sums,
        mut blocks: &[Block],
    ) -> Option<Mark> {
        let mark = self.mark_of(bytes, |unit| {
            let (along, later) = blocks.split_at(blocks.len().min(unit.len() / BLOCK_BYTES));
            blocks = later;
            self.sums_along(unit, sums, along)
        });
        sums.add(blocks);
        mark
    }

    fn mark_of(&self, bytes: &[u8], mut sums: impl FnMut(&[u8]) -> [u64; PASSES]) -> Option<Mark> {
        if bytes.len() > MARKED_BYTES_MAX {
            return None;
        }
        let [start, of_length, of_sums @ ..] = &*self.second;
        let (units, _) = of_sums.as_chunks::<PASSES>();
        let mut total = start.wrapping_add(of_length.wrapping_mul(bytes.len() as u128));
        for (unit, numbers) in bytes.chunks(UNIT_BYTES).zip(units) {
            for (sum, number) in sums(unit).into_iter().zip(numbers) {
                total = total.wrapping_add(number.wrapping_mul(u128::from(sum)));
            }
        }
        // Of two of 2^64 one mark is made.
        let upper = (total >> 64) as u64;
        Some(Mark(NonZeroU64::new(upper).unwrap_or(NonZeroU64::MIN)))
    }

    /// NH of a unit, or of what is left at the end.
    fn sums(&self, unit: &[u8]) -> [u64; PASSES] {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = self.avx2 {
            return self.sums_by(unit, |steps| avx2.nh(&self.first, steps));
        }
        nh(&self.first.0, unit)
    }

    /// As [`sums`](Self::sums), and so many blocks, not more than the unit has, are added to a body's sums.
    fn sums_along(&self, unit: &[u8], sums: &mut Sums, blocks: &[Block]) -> [u64; PASSES] {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = self.avx2 {
            return self.sums_by(unit, |steps| {
                avx2.nh_along(&self.first, steps, sums, blocks)
            });
        }
        sums.add(blocks);
        nh(&self.first.0, unit)
    }

    /// NH of a unit, whole steps of which somebody else sees to.
    #[cfg(target_arch = "x86_64")]
    fn sums_by(&self, unit: &[u8], of_steps: impl FnOnce(&[u8]) -> [u64; PASSES]) -> [u64; PASSES] {
        let (steps, rest) = unit.split_at(unit.len() / simd::STEP_BYTES * simd::STEP_BYTES);
        let sums = of_steps(steps);
        if rest.is_empty() {
            return sums;
        }
        let of_rest = nh(&self.first.0[steps.len() / 4..], rest);
        std::array::from_fn(|pass| sums[pass].wrapping_add(of_rest[pass]))
    }
}

impl fmt::Debug for MarkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MarkKey(secret)")
    }
}

/// NH of a unit at most, in plain code. Zeroes make its last pair whole: that there were none, the length says, which counts besides.
fn nh(key: &[u32], unit: &[u8]) -> [u64; PASSES] {
    let mut sums = [0_u64; PASSES];
    for (nth, pair) in unit.chunks(PAIR_BYTES).enumerate() {
        let mut whole = [0; PAIR_BYTES];
        whole[..pair.len()].copy_from_slice(pair);
        let whole = u64::from_le_bytes(whole);
        let (one, other) = (whole as u32, (whole >> 32) as u32);
        for (pass, sum) in sums.iter_mut().enumerate() {
            let key = &key[2 * nth + PASS_WORDS * pass..][..2];
            let keyed = [one.wrapping_add(key[0]), other.wrapping_add(key[1])];
            *sum = sum.wrapping_add(u64::from(keyed[0]) * u64::from(keyed[1]));
        }
    }
    sums
}

/// What is hashed under the key once: the key stays in a first-level cache.
pub const UNIT_BYTES: usize = 4 << 10;

/// The longest chunk that the protocol has.
pub const MARKED_BYTES_MAX: usize = PIECE_BYTES_MAX;

/// Sums of 64 bits that are made of a unit.
const PASSES: usize = 2;

/// How much further on in the key each pass begins: at the next vector, so that each is loaded once.
const PASS_WORDS: usize = 8;

/// NH multiplies words of 32 bits two by two.
const PAIR_BYTES: usize = 8;

/// One to begin with, one for the length, and one for each sum.
const SECOND_NUMBERS: usize = 2 + PASSES * MARKED_BYTES_MAX.div_ceil(UNIT_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    use crate::id::BodyDigest;

    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, prop_assert_ne, proptest};

    /// As the module's doc says it, word by word.
    fn defined(key: &MarkKey, bytes: &[u8]) -> Mark {
        let mut row = vec![bytes.len() as u64];
        for unit in bytes.chunks(UNIT_BYTES) {
            for pass in 0..2 {
                let mut sum = 0_u64;
                for (nth, pair) in unit.chunks(8).enumerate() {
                    let factor = |word: usize| {
                        let byte = |n: usize| u32::from(*pair.get(4 * word + n).unwrap_or(&0));
                        let word_is = (0..4).fold(0, |sum, n| sum | byte(n) << (8 * n));
                        u64::from(word_is.wrapping_add(key.first.0[2 * nth + 8 * pass + word]))
                    };
                    sum = sum.wrapping_add(factor(0) * factor(1));
                }
                row.push(sum);
            }
        }
        let products = row
            .iter()
            .zip(&key.second[1..])
            .map(|(number, key)| key.wrapping_mul(u128::from(*number)));
        let total = products.fold(key.second[0], u128::wrapping_add);
        Mark(NonZeroU64::new((total >> 64) as u64).expect("this time"))
    }

    proptest! {
        /// A mark is what the doc says, for every length around the units' borders; a turned bit or a byte more changes it.
        #[test]
        fn marks_are_as_they_are_defined(
            random in any::<[u8; 32]>(),
            seed in vec(any::<u8>(), 1..50),
            (units, more) in (0_usize..20, 0_usize..40),
            (at, bit) in (any::<usize>(), 0_u32..8),
        ) {
            let key = MarkKey::new(&random);
            let length = (units * UNIT_BYTES / 2 + more).saturating_sub(20);
            let mut bytes: Vec<u8> = (0..length).map(|n| seed[n % seed.len()] ^ (n >> 3) as u8).collect();
            let mark = key.mark(&bytes);
            prop_assert_eq!(mark, Some(defined(&key, &bytes)));
            bytes.push(0);
            prop_assert_ne!(key.mark(&bytes), mark);
            bytes.pop();
            if !bytes.is_empty() {
                let at = at % bytes.len();
                bytes[at] ^= 1 << bit;
                prop_assert_ne!(key.mark(&bytes), mark);
            }
        }
    }

    proptest! {
        /// A mark that is made along with a body's digest is the mark, and the digest is the digest, wherever the chunk lies in the body.
        #[test]
        fn marks_are_made_along_with_digests(
            seed in vec(any::<u8>(), 1..50),
            before in 0_usize..3000,
            length in 0_usize..20_000,
            more in 0_usize..2000,
        ) {
            let key = MarkKey::new(&[3; 32]);
            let whole = before + length + more;
            let body: Vec<u8> = (0..whole).map(|n| seed[n % seed.len()] ^ (n >> 3) as u8).collect();
            let (chunk_end, mut digest) = (before + length, BodyDigest::default());
            let mut taken = digest.update_whole(&body[..before]);
            let (mut sums, blocks) = digest.offer(&body[taken..chunk_end]).expect("no block waits");
            let mark = key.mark_along(&body[before..chunk_end], &mut sums, blocks);
            prop_assert_eq!(mark, key.mark(&body[before..chunk_end]));
            taken += digest.accept(sums, blocks.len());
            digest.update(&body[taken..]);
            prop_assert_eq!(digest.value(), edgeward_types::xxh3::xxh3_128(&body));
        }
    }

    /// Two keys make two marks: what one process knows is of no use to another.
    #[test]
    fn keys_share_no_marks() {
        let [one, other] = [[1; 32], [2; 32]].map(|random| MarkKey::new(&random));
        assert_ne!(one.mark(b"chunk"), other.mark(b"chunk"));
        assert_ne!(one.mark(b""), other.mark(b""));
    }

    /// The longest chunk of the protocol has a mark, and what is longer has none.
    #[test]
    fn the_longest_chunk_has_a_mark() {
        let key = MarkKey::new(&[3; 32]);
        let mut bytes = vec![5; MARKED_BYTES_MAX];
        assert_eq!(key.mark(&bytes), Some(defined(&key, &bytes)));
        bytes.push(5);
        assert_eq!(key.mark(&bytes), None);
    }

    /// Units that change places change the mark, though all have the same key: the second step has an order.
    #[test]
    fn units_have_an_order() {
        let key = MarkKey::new(&[3; 32]);
        let [one, other] = [[1; UNIT_BYTES], [2; UNIT_BYTES]];
        assert_ne!(
            key.mark(&[one, other].concat()),
            key.mark(&[other, one].concat())
        );
    }

    #[test]
    fn neither_keys_nor_marks_are_printed() {
        let key = MarkKey::new(&[3; 32]);
        assert_eq!(
            format!("{key:?} {:?}", key.mark(b"")),
            "MarkKey(secret) Some(Mark)"
        );
    }
}
