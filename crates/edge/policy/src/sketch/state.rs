//! Saves and restores a [`RotatingBloom`], so that a restart does not lose the memory of requests. Its two filters are
//! called generations here: keys are added to the primary, and the secondary has the keys of the previous period.
//!
//! ```text
//! offset  bytes
//!      0      8  magic "EDGEWRBF"
//!      8      4  version, 1
//!     12      4  zero
//!     16      8  tag: the number by which the caller identifies the hash function of the keys
//!     24      8  expected keys per period
//!     32      8  fill at which the primary is full, an IEEE 754 double
//!     40      8  blocks per generation
//!     48      8  epoch; generation 0 is the primary in even epochs, generation 1 in odd ones
//!     56  64·n   generation 0: blocks of eight 64-bit words
//!      …  64·n   generation 1
//!      …      8  XXH3-64 of all preceding bytes
//! ```
//!
//! All integers are little-endian. Keys that are added while the state is written may or may not be in it.

use std::fmt;
use std::hash::Hasher as _;
use std::io::{self, Read, Write};
use std::num::NonZeroU64;

use edgeward_types::xxh3::Xxh3;

use super::bloom::{BLOCK_BITS, BLOCK_WORDS};
use super::rotating_bloom::{RotatingBloom, RotatingBloomConfig};

/// The first bytes of the state.
pub const MAGIC: [u8; 8] = *b"EDGEWRBF";

/// The version of the format. Other versions are rejected.
pub const VERSION: u32 = 1;

impl RotatingBloom {
    /// Writes the state. `tag` identifies the hash function of the keys: with another hash function no
    /// key would be found.
    ///
    /// # Errors
    /// Returns the errors of `output`.
    pub fn write_to(&self, tag: u64, output: &mut impl Write) -> io::Result<()> {
        let mut output = HashedStream::new(output);
        let config = self.config();
        output.write(&MAGIC)?;
        output.write(&VERSION.to_le_bytes())?;
        output.write(&[0; 4])?;
        output.write(&tag.to_le_bytes())?;
        output.write(&config.expected_keys.get().to_le_bytes())?;
        output.write(&config.fill_max.to_bits().to_le_bytes())?;
        output.write(&(config.blocks() as u64).to_le_bytes())?;
        output.write(&self.saved_epoch().to_le_bytes())?;
        let mut piece = Vec::with_capacity(PIECE_BLOCKS * BLOCK_BYTES);
        for generation in self.generations() {
            for block in 0..generation.blocks() {
                for word in generation.block_words(block) {
                    piece.extend_from_slice(&word.to_le_bytes());
                }
                if piece.len() >= PIECE_BLOCKS * BLOCK_BYTES {
                    output.write(&piece)?;
                    piece.clear();
                }
            }
            output.write(&piece)?;
            piece.clear();
        }
        let checksum = output.hash.finish();
        output.inner.write_all(&checksum.to_le_bytes())
    }

    /// Returns the state as bytes.
    pub fn to_bytes(&self, tag: u64) -> Vec<u8> {
        let blocks = self.config().blocks();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + 2 * blocks * BLOCK_BYTES + 8);
        self.write_to(tag, &mut bytes)
            .expect("writing to a vector cannot fail");
        bytes
    }

    /// Restores a saved state, if it is complete and matches `config` and `tag`.
    ///
    /// Reads exactly the bytes of the state. Allocates memory only for the size in `config`.
    ///
    /// # Errors
    /// Returns the problem of the state. The caller then starts with an empty filter.
    pub fn read_from(
        config: RotatingBloomConfig,
        tag: u64,
        input: &mut impl Read,
    ) -> Result<Self, StateError> {
        let mut input = HashedStream::new(input);
        let magic: [u8; 8] = input.read()?;
        if magic != MAGIC {
            return Err(StateError::NotAState { magic });
        }
        let version = u32::from_le_bytes(input.read()?);
        if version != VERSION {
            return Err(StateError::Version { version });
        }
        let _zero: [u8; 4] = input.read()?;
        let mut number = || input.read().map(u64::from_le_bytes);
        let (saved_tag, keys, fill, blocks, epoch) =
            (number()?, number()?, number()?, number()?, number()?);
        if saved_tag != tag {
            return Err(StateError::OtherHash {
                saved: saved_tag,
                expected: tag,
            });
        }
        let expected = config.blocks() as u64;
        if (keys, fill, blocks)
            != (
                config.expected_keys.get(),
                config.fill_max.to_bits(),
                expected,
            )
        {
            return Err(StateError::OtherShape {
                saved_keys: NonZeroU64::new(keys),
                saved_fill_max: f64::from_bits(fill),
                expected: config,
            });
        }
        let mut filter = Self::new(config);
        let mut piece = vec![0; PIECE_BLOCKS * BLOCK_BYTES];
        for generation in filter.generations() {
            let mut block = 0;
            while block < generation.blocks() {
                let blocks = PIECE_BLOCKS.min(generation.blocks() - block);
                let piece = &mut piece[..blocks * BLOCK_BYTES];
                input.read_into(piece)?;
                for bytes in piece.chunks_exact(BLOCK_BYTES) {
                    let mut words = [0; BLOCK_WORDS];
                    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
                        *word = u64::from_le_bytes(
                            bytes.try_into().expect("the slice has eight bytes"),
                        );
                    }
                    generation.set_block_words(block, words);
                    block += 1;
                }
            }
        }
        let computed = input.hash.finish();
        let stored = u64::from_le_bytes(input.read()?);
        if stored != computed {
            return Err(StateError::Corrupt { stored, computed });
        }
        filter.resume(epoch);
        Ok(filter)
    }

    /// Like [`read_from`](Self::read_from), for a slice that must end with the state.
    ///
    /// # Errors
    /// Returns the errors of [`read_from`](Self::read_from), and an error if bytes follow the state.
    pub fn from_bytes(
        config: RotatingBloomConfig,
        tag: u64,
        mut bytes: &[u8],
    ) -> Result<Self, StateError> {
        let filter = Self::read_from(config, tag, &mut bytes)?;
        if bytes.is_empty() {
            Ok(filter)
        } else {
            Err(StateError::TooLong { bytes: bytes.len() })
        }
    }
}

/// Why a saved state cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum StateError {
    /// The magic is wrong.
    NotAState {
        /// The first bytes.
        magic: [u8; 8],
    },
    /// The state has another version.
    Version {
        /// The version.
        version: u32,
    },
    /// The keys were hashed with another function, so no key would be found.
    OtherHash {
        /// The tag of the saved state.
        saved: u64,
        /// The current tag.
        expected: u64,
    },
    /// The configuration differs from that of the saved state.
    OtherShape {
        /// The expected keys per period of the saved state. `None` if the number is zero.
        saved_keys: Option<NonZeroU64>,
        /// The share of set bits at which a filter of the saved state is full.
        saved_fill_max: f64,
        /// The current configuration.
        expected: RotatingBloomConfig,
    },
    /// The checksum does not match the bytes.
    Corrupt {
        /// The stored checksum.
        stored: u64,
        /// The checksum of the bytes read.
        computed: u64,
    },
    /// The state is truncated.
    TooShort,
    /// Bytes follow the state.
    TooLong {
        /// The number of bytes.
        bytes: usize,
    },
    /// The state cannot be read.
    Read(io::Error),
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAState { magic } => write!(
                f,
                "this is not a saved filter: it begins with {}",
                magic.escape_ascii()
            ),
            Self::Version { version } => {
                write!(
                    f,
                    "the saved filter has version {version}; this program reads version {VERSION}"
                )
            }
            Self::OtherHash { saved, expected } => write!(
                f,
                "the saved filter's keys were hashed with {saved:#018x}, keys are hashed with {expected:#018x} now"
            ),
            Self::OtherShape {
                saved_keys,
                saved_fill_max,
                expected,
            } => write!(
                f,
                "the saved filter was made for {} keys up to a fill of {saved_fill_max:.3}, the configuration requires \
                 {} up to {:.3}",
                saved_keys.map_or(0, NonZeroU64::get),
                expected.expected_keys,
                expected.fill_max
            ),
            Self::Corrupt { stored, computed } => write!(
                f,
                "the saved filter is corrupt: checksum {stored:#018x} stored, {computed:#018x} computed"
            ),
            Self::TooShort => f.write_str("the saved filter ends too early"),
            Self::TooLong { bytes } => write!(f, "{bytes} bytes follow the saved filter"),
            Self::Read(_) => f.write_str("the saved filter cannot be read"),
        }
    }
}

impl std::error::Error for StateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(error) => Some(error),
            _ => None,
        }
    }
}

/// Hashes all bytes that are read or written.
struct HashedStream<'a, T> {
    inner: &'a mut T,
    hash: Box<Xxh3>,
}

impl<'a, T> HashedStream<'a, T> {
    fn new(inner: &'a mut T) -> Self {
        Self {
            inner,
            hash: Box::new(Xxh3::new()),
        }
    }
}

impl<T: Write> HashedStream<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.write(bytes);
        self.inner.write_all(bytes)
    }
}

impl<T: Read> HashedStream<'_, T> {
    fn read<const N: usize>(&mut self) -> Result<[u8; N], StateError> {
        let mut bytes = [0; N];
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }

    fn read_into(&mut self, bytes: &mut [u8]) -> Result<(), StateError> {
        self.inner
            .read_exact(bytes)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => StateError::TooShort,
                _ => StateError::Read(error),
            })?;
        self.hash.write(bytes);
        Ok(())
    }
}

const BLOCK_BYTES: usize = (BLOCK_BITS / 8) as usize;

const HEADER_BYTES: usize = 56;

/// Blocks written or read at a time: 64 KiB.
const PIECE_BLOCKS: usize = 1024;

#[cfg(test)]
mod tests {
    use edgeward_types::KeyHash;
    use proptest::prelude::*;

    use super::super::rotating_bloom::KeyStatus;
    use super::*;

    const TAG: u64 = 0x7a6;

    fn config(keys: u64) -> RotatingBloomConfig {
        RotatingBloomConfig::new(NonZeroU64::new(keys).expect("the number is not zero"), 0.01)
    }

    fn filter_after(keys: u64, requests: u64) -> RotatingBloom {
        let filter = RotatingBloom::new(config(keys));
        (0..requests).for_each(|n| _ = filter.check_and_add(KeyHash(n * n)));
        filter
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// A restored filter gives the same answers as the saved one, also after later rotations.
        #[test]
        fn a_restored_filter_answers_like_the_saved_one(
            keys in 1u64..3000, requests in 0u64..4000, more in 0u64..4000,
        ) {
            let filter = filter_after(keys, requests);
            let restored =
                RotatingBloom::from_bytes(config(keys), TAG, &filter.to_bytes(TAG)).expect("the state is complete");
            prop_assert_eq!(restored.stats().rotations, filter.stats().rotations);
            for n in 0..requests {
                let key = KeyHash(n * n);
                prop_assert_eq!(restored.contains(key), filter.contains(key));
            }
            for n in 0..more {
                let key = KeyHash(1 << 60 | n);
                restored.check_and_add(key);
                prop_assert_eq!(restored.check_and_add(key), KeyStatus::Seen);
            }
        }

        /// Any corruption is detected, without a panic.
        #[test]
        fn a_corrupt_state_is_rejected(at in any::<prop::sample::Index>(), flip in 1u8..) {
            let mut bytes = filter_after(500, 700).to_bytes(TAG);
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert!(RotatingBloom::from_bytes(config(500), TAG, &bytes).is_err());
        }

        #[test]
        fn a_truncated_state_is_too_short(at in any::<prop::sample::Index>()) {
            let bytes = filter_after(500, 700).to_bytes(TAG);
            let cut = &bytes[..at.index(bytes.len())];
            let error = RotatingBloom::from_bytes(config(500), TAG, cut).expect_err("cut");
            prop_assert!(matches!(error, StateError::TooShort), "{}", error);
        }
    }

    /// Each error message states why the state cannot be used.
    #[test]
    fn a_state_that_does_not_match_gives_the_reason() {
        let bytes = filter_after(500, 700).to_bytes(TAG);
        let refused = |config, tag, bytes: &[u8]| {
            RotatingBloom::from_bytes(config, tag, bytes)
                .expect_err("it does not fit")
                .to_string()
        };
        let with = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            bytes
        };
        let longer = [&bytes[..], &[0]].concat();
        for (message, expected) in [
            (
                refused(config(500), 1, &bytes),
                "hashed with 0x00000000000007a6",
            ),
            (refused(config(501), TAG, &bytes), "made for 500 keys"),
            (
                refused(config(500), TAG, &with(0, b'X')),
                "begins with XDGEWRBF",
            ),
            (
                refused(config(500), TAG, &with(8, 2)),
                "has version 2; this program reads version 1",
            ),
            (
                refused(config(500), TAG, &with(100, 0x55)),
                "is corrupt: checksum",
            ),
            (refused(config(500), TAG, &longer), "1 bytes follow"),
        ] {
            assert!(message.contains(expected), "{message}");
        }
    }

    /// If this test fails because the format changed, [`VERSION`] must change.
    #[test]
    fn the_first_bytes_are_those_of_version_1() {
        let bytes = RotatingBloom::new(config(1)).to_bytes(TAG);
        assert_eq!(bytes.len(), 56 + 2 * 64 + 8);
        assert_eq!(
            &bytes[..24],
            b"EDGEWRBF\x01\0\0\0\0\0\0\0\xa6\x07\0\0\0\0\0\0"
        );
    }
}
