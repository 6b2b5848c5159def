//! Fingerprints, by which a process recognises a chunk without hashing it again.
//!
//! A chunk hash must resist every peer that has the key: no peer may find two chunks with the same hash. Such a
//! hash is slow. Within one process, a weaker guarantee is enough. After a chunk's hash was computed or
//! verified, the chunk also gets a [`ChunkFingerprint`] under a random key of this process. Neither the key nor
//! a fingerprint ever leaves the process. Later the process may expect this chunk in a body, or load it from
//! the store. It then compares the fingerprint, which is several times faster than a hash. If there is no
//! fingerprint, or if it differs, the bytes are hashed.
//!
//! A fingerprint is a universal hash in two steps. First, units of [`UNIT_BYTES`] are hashed by NH over words
//! of 32 bits, in two passes; the second pass uses the same key, shifted (Black, Halevi, Krawczyk, Krovetz,
//! Rogaway, "UMAC: fast and secure message authentication", CRYPTO 1999, theorem 4.3: two different units of
//! one length have the same sums with a probability of 2^-32 per pass, 2^-64 in total). UMAC shifts the key by
//! two words, this code by eight. The bound still holds: consider the last pair in which two units differ. In
//! the second pass, this pair is combined with key words that were combined with no differing pair in the first
//! pass. Second, the sums of all units and the length of the chunk are each multiplied by a secret number of
//! 128 bits and added. The upper half of the total is the fingerprint (Lemire, Kaser, "Strongly universal
//! string hashing is fast", The Computer Journal 57, 2014, the family MULTILINEAR: two different sequences
//! collide with a probability of 2^-64).
//!
//! Two chunks that were chosen without the key therefore have the same fingerprint with a probability of 2^-63.
//! An attacker that chose the chunks does not see their fingerprints, but may observe that two chunks collided. A
//! collision of chunk hashes takes 2^64 attempts, which the attacker can make offline. For a collision of
//! fingerprints, each attempt is a chunk that is sent over the link and compared with the expected chunk. Even
//! then, the receiver rejects the body because its digest is wrong.
//!
//! NH is computed with AVX2 (`simd`) if the processor has it, and otherwise by portable code with the same result.

#[cfg(target_arch = "x86_64")]
mod simd;

use std::fmt;
use std::num::NonZeroU64;

use crate::wire::PIECE_BYTES_MAX;

/// The fingerprint of a chunk within this process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ChunkFingerprint(NonZeroU64);

impl fmt::Debug for ChunkFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChunkFingerprint")
    }
}

/// The key of fingerprints. It belongs to one process and is never stored or sent.
pub struct FingerprintKey {
    first: UnitKey,
    second: Box<[u128; SECOND_NUMBERS]>,
    #[cfg(target_arch = "x86_64")]
    avx2: Option<simd::Avx2>,
}

/// The key of one unit: a word for each word of the unit, and the further words that the second pass uses
/// because its key is shifted. Aligned, so that vectors do not cross cache lines.
#[repr(align(64))]
struct UnitKey([u32; KEY_WORDS]);
const KEY_WORDS: usize = UNIT_BYTES / 4 + PASS_WORDS * (PASSES - 1);

impl FingerprintKey {
    /// Derives a key from random bytes.
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

    /// Returns the fingerprint of these bytes, or `None` if they are longer than [`FINGERPRINTED_BYTES_MAX`].
    /// No chunk of the protocol is longer.
    pub fn fingerprint(&self, bytes: &[u8]) -> Option<ChunkFingerprint> {
        if bytes.len() > FINGERPRINTED_BYTES_MAX {
            return None;
        }
        let [start, of_length, of_sums @ ..] = &*self.second;
        let (units, _) = of_sums.as_chunks::<PASSES>();
        let mut total = start.wrapping_add(of_length.wrapping_mul(bytes.len() as u128));
        for (unit, numbers) in bytes.chunks(UNIT_BYTES).zip(units) {
            for (sum, number) in self.sums(unit).into_iter().zip(numbers) {
                total = total.wrapping_add(number.wrapping_mul(u128::from(sum)));
            }
        }
        // A fingerprint must not be 0, so the totals with the upper halves 0 and 1 have the same fingerprint.
        let upper = (total >> 64) as u64;
        Some(ChunkFingerprint(
            NonZeroU64::new(upper).unwrap_or(NonZeroU64::MIN),
        ))
    }

    /// Returns the NH sums of a unit. The last unit of a chunk may be shorter than [`UNIT_BYTES`]. Portable code adds
    /// the bytes after the unit's complete steps, of [`simd::STEP_BYTES`] bytes each.
    fn sums(&self, unit: &[u8]) -> [u64; PASSES] {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = self.avx2 {
            let (steps, rest) = unit.split_at(unit.len() / simd::STEP_BYTES * simd::STEP_BYTES);
            let sums = avx2.nh(&self.first, steps);
            if rest.is_empty() {
                return sums;
            }
            let of_rest = nh(&self.first.0[steps.len() / 4..], rest);
            return std::array::from_fn(|pass| sums[pass].wrapping_add(of_rest[pass]));
        }
        nh(&self.first.0, unit)
    }
}

impl fmt::Debug for FingerprintKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FingerprintKey(secret)")
    }
}

/// Returns the NH sums of at most one unit, in portable code. The last pair is padded with zeroes. The
/// fingerprint also depends on the length of the chunk, which distinguishes padding from zeroes of the chunk.
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

/// The number of bytes of a unit. All units use the same key, which is about as long as a unit and stays in a
/// first-level cache.
pub const UNIT_BYTES: usize = 4 << 10;

/// The maximum length of a chunk in the protocol.
pub const FINGERPRINTED_BYTES_MAX: usize = PIECE_BYTES_MAX;

/// The number of 64-bit sums per unit.
const PASSES: usize = 2;

/// The shift of the key between the passes, in words: one vector. Each vector of the key is then loaded only once.
const PASS_WORDS: usize = 8;

/// The length of a pair of 32-bit words, which NH multiplies.
const PAIR_BYTES: usize = 8;

/// The number of secret numbers of the second step: an initial number, one for the length, and one for each sum.
const SECOND_NUMBERS: usize = 2 + PASSES * FINGERPRINTED_BYTES_MAX.div_ceil(UNIT_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, prop_assert_ne, proptest};

    /// Computes the fingerprint as the module documentation defines it, word by word.
    fn defined(key: &FingerprintKey, bytes: &[u8]) -> ChunkFingerprint {
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
        ChunkFingerprint(NonZeroU64::new((total >> 64) as u64).expect("the fingerprint is not 0"))
    }

    proptest! {
        /// Fingerprints equal their definition for lengths around the boundaries of units. A flipped bit or an
        /// added zero changes the fingerprint.
        #[test]
        fn fingerprints_match_their_definition(
            random in any::<[u8; 32]>(),
            seed in vec(any::<u8>(), 1..50),
            (units, more) in (0_usize..20, 0_usize..40),
            (at, bit) in (any::<usize>(), 0_u32..8),
        ) {
            let key = FingerprintKey::new(&random);
            let length = (units * UNIT_BYTES / 2 + more).saturating_sub(20);
            let mut bytes: Vec<u8> = (0..length).map(|n| seed[n % seed.len()] ^ (n >> 3) as u8).collect();
            let fingerprint = key.fingerprint(&bytes);
            prop_assert_eq!(fingerprint, Some(defined(&key, &bytes)));
            bytes.push(0);
            prop_assert_ne!(key.fingerprint(&bytes), fingerprint);
            bytes.pop();
            if !bytes.is_empty() {
                let at = at % bytes.len();
                bytes[at] ^= 1 << bit;
                prop_assert_ne!(key.fingerprint(&bytes), fingerprint);
            }
        }
    }

    /// Two keys give different fingerprints.
    #[test]
    fn another_key_gives_other_fingerprints() {
        let [one, other] = [[1; 32], [2; 32]].map(|random| FingerprintKey::new(&random));
        assert_ne!(one.fingerprint(b"chunk"), other.fingerprint(b"chunk"));
        assert_ne!(one.fingerprint(b""), other.fingerprint(b""));
    }

    /// The longest chunk of the protocol has a fingerprint. Longer bytes have no fingerprint.
    #[test]
    fn the_longest_chunk_has_a_fingerprint() {
        let key = FingerprintKey::new(&[3; 32]);
        let mut bytes = vec![5; FINGERPRINTED_BYTES_MAX];
        assert_eq!(key.fingerprint(&bytes), Some(defined(&key, &bytes)));
        bytes.push(5);
        assert_eq!(key.fingerprint(&bytes), None);
    }

    /// Swapping two units changes the fingerprint, although all units have the same key.
    #[test]
    fn swapped_units_change_the_fingerprint() {
        let key = FingerprintKey::new(&[3; 32]);
        let [one, other] = [[1; UNIT_BYTES], [2; UNIT_BYTES]];
        assert_ne!(
            key.fingerprint(&[one, other].concat()),
            key.fingerprint(&[other, one].concat())
        );
    }

    #[test]
    fn keys_and_fingerprints_are_not_printed() {
        let key = FingerprintKey::new(&[3; 32]);
        assert_eq!(
            format!("{key:?} {:?}", key.fingerprint(b"")),
            "FingerprintKey(secret) Some(ChunkFingerprint)"
        );
    }
}
