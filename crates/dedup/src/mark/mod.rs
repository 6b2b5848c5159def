//! Knowing a chunk again without naming it again.
//!
//! A name is made so that neither the other end nor anybody else who has the key can make two chunks of one name; that is what takes the time.
//! Within one process less will do. A chunk that was found to have its name also gets a [`Mark`], under a key that the process drew at
//! random and tells nobody; no mark leaves the process either. When the chunk's bytes come again, over the wire where the chunk was
//! awaited or out of the store, they are held against the mark, several times faster than against the name. Bytes without a mark,
//! and bytes that do not fit it, are named as ever.
//!
//! A mark is a universal hash in two steps. Units of [`UNIT_BYTES`] are hashed by NH over words of 32 bits, in two passes, the second under the
//! same key two words further on (Black, Halevi, Krawczyk, Krovetz, Rogaway, "UMAC: fast and secure message authentication", CRYPTO
//! 1999, theorem 4.3: whatever they are, two units of one length have the same sums with a probability of 2^-32 a pass, 2^-64
//! together). The sums of all units are hashed by BLAKE3 under a key for chunks of that length. So two chunks that were chosen without
//! knowing the key have one mark with a probability of 2^-63, and who chose them learns nothing of the key but whether they had. Names of 128 bits promise
//! that two of one name take 2^64 tries to make; here each try is a chunk sent over the link, held against the one that is awaited in its place, and a body that is spoilt
//! by it still has to pass its digest.
//!
//! NH is code for vectors (`simd`), and plain code elsewhere, with the same result.

#[cfg(target_arch = "x86_64")]
mod simd;

use std::fmt;
use std::num::NonZeroU64;

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
    second: [u8; 32],
    #[cfg(target_arch = "x86_64")]
    avx2: Option<simd::Avx2>,
}

/// The key of one unit: its words, and those that later passes have beyond them.
type UnitKey = [u32; KEY_WORDS];
const KEY_WORDS: usize = UNIT_BYTES / 4 + 2 * (PASSES - 1);

impl MarkKey {
    /// The key that follows from `random` bytes.
    pub fn new(random: &[u8; 32]) -> Self {
        let mut stream = blake3::Hasher::new_keyed(random).finalize_xof();
        let first = std::array::from_fn(|_| {
            let mut word = [0; 4];
            stream.fill(&mut word);
            u32::from_le_bytes(word)
        });
        let mut second = [0; 32];
        stream.fill(&mut second);
        Self {
            first,
            second,
            #[cfg(target_arch = "x86_64")]
            avx2: simd::Avx2::detect(),
        }
    }

    /// The mark of these bytes.
    pub fn mark(&self, bytes: &[u8]) -> Mark {
        let mut second = Second::new(self.second, bytes.len());
        for unit in bytes.chunks(UNIT_BYTES) {
            second.unit(self.sums(unit));
        }
        second.mark()
    }

    /// NH of a unit, or of what is left at the end.
    fn sums(&self, unit: &[u8]) -> [u64; PASSES] {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = self.avx2 {
            let (steps, rest) = unit.split_at(unit.len() / simd::STEP_BYTES * simd::STEP_BYTES);
            let sums = avx2.nh(&self.first, steps);
            if rest.is_empty() {
                return sums;
            }
            let of_rest = nh(&self.first[steps.len() / 4..], rest);
            return std::array::from_fn(|pass| sums[pass].wrapping_add(of_rest[pass]));
        }
        nh(&self.first, unit)
    }
}

impl fmt::Debug for MarkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MarkKey(secret)")
    }
}

/// NH of a unit at most, in plain code. Zeroes make its last pair whole: that there were none, the length says, which is in the key of what follows.
fn nh(key: &[u32], unit: &[u8]) -> [u64; PASSES] {
    let mut sums = [0_u64; PASSES];
    for (nth, pair) in unit.chunks(PAIR_BYTES).enumerate() {
        let mut whole = [0; PAIR_BYTES];
        whole[..pair.len()].copy_from_slice(pair);
        let whole = u64::from_le_bytes(whole);
        let (one, other) = (whole as u32, (whole >> 32) as u32);
        for (pass, sum) in sums.iter_mut().enumerate() {
            let key = &key[2 * (nth + pass)..][..2];
            let keyed = [one.wrapping_add(key[0]), other.wrapping_add(key[1])];
            *sum = sum.wrapping_add(u64::from(keyed[0]) * u64::from(keyed[1]));
        }
    }
    sums
}

/// The second step: the sums of all units, gathered for one call, since most chunks have few.
struct Second {
    /// Another for each length.
    key: [u8; 32],
    waiting: [u8; WAITING_BYTES],
    bytes: usize,
    /// Of chunks that have more.
    hasher: Option<Box<blake3::Hasher>>,
}

impl Second {
    fn new(mut key: [u8; 32], length: usize) -> Self {
        for (byte, of_length) in key.iter_mut().zip((length as u64).to_le_bytes()) {
            *byte ^= of_length;
        }
        Self {
            key,
            waiting: [0; WAITING_BYTES],
            bytes: 0,
            hasher: None,
        }
    }

    fn unit(&mut self, sums: [u64; PASSES]) {
        if self.bytes == WAITING_BYTES {
            self.pass_on();
        }
        for sum in sums {
            self.waiting[self.bytes..][..8].copy_from_slice(&sum.to_le_bytes());
            self.bytes += 8;
        }
    }

    fn pass_on(&mut self) {
        let key = &self.key;
        let new = || Box::new(blake3::Hasher::new_keyed(key));
        let hasher = self.hasher.get_or_insert_with(new);
        hasher.update(&self.waiting[..self.bytes]);
        self.bytes = 0;
    }

    fn mark(mut self) -> Mark {
        let hash = if self.hasher.is_some() {
            self.pass_on();
            self.hasher.map(|hasher| hasher.finalize())
        } else {
            None
        };
        let hash =
            hash.unwrap_or_else(|| blake3::keyed_hash(&self.key, &self.waiting[..self.bytes]));
        let first: &[u8; 8] = hash.as_bytes().first_chunk().expect("32 bytes");
        // Of two of 2^64 one mark is made.
        Mark(NonZeroU64::new(u64::from_le_bytes(*first)).unwrap_or(NonZeroU64::MIN))
    }
}

/// What is hashed under the key once: the key stays in a first-level cache, and the sums of four fit a block of BLAKE3.
pub const UNIT_BYTES: usize = 4 << 10;

/// Sums of 64 bits that are made of a unit.
const PASSES: usize = 2;

/// NH multiplies words of 32 bits two by two.
const PAIR_BYTES: usize = 8;

/// Of 64 KiB, the longest chunk for an average of 8 KiB.
const WAITING_BYTES: usize = 16 * 8 * PASSES;

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, prop_assert_ne, proptest};

    /// As the module's doc says it, word by word.
    fn defined(key: &MarkKey, bytes: &[u8]) -> Mark {
        let mut summed = Vec::new();
        for unit in bytes.chunks(UNIT_BYTES) {
            for pass in 0..2 {
                let mut sum = 0_u64;
                for (nth, pair) in unit.chunks(8).enumerate() {
                    let factor = |word: usize| {
                        let byte = |n: usize| u32::from(*pair.get(4 * word + n).unwrap_or(&0));
                        let word_is = (0..4).fold(0, |sum, n| sum | byte(n) << (8 * n));
                        u64::from(word_is.wrapping_add(key.first[2 * (nth + pass) + word]))
                    };
                    sum = sum.wrapping_add(factor(0) * factor(1));
                }
                summed.extend(sum.to_le_bytes());
            }
        }
        let mut second = key.second;
        for (nth, byte) in (bytes.len() as u64).to_le_bytes().into_iter().enumerate() {
            second[nth] ^= byte;
        }
        let hash = blake3::keyed_hash(&second, &summed);
        let first = u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("32 bytes"));
        Mark(NonZeroU64::new(first).expect("this time"))
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
            prop_assert_eq!(mark, defined(&key, &bytes));
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

    /// Two keys make two marks: what one process knows is of no use to another.
    #[test]
    fn keys_share_no_marks() {
        let [one, other] = [[1; 32], [2; 32]].map(|random| MarkKey::new(&random));
        assert_ne!(one.mark(b"chunk"), other.mark(b"chunk"));
        assert_ne!(one.mark(b""), other.mark(b""));
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
            "MarkKey(secret) Mark"
        );
    }
}
