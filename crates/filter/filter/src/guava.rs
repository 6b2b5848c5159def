//! Writes and reads the file format of Guava's `BloomFilter`, so that a client on the JVM can call
//! `BloomFilter.readFrom`.
//!
//! The format: one byte for the strategy (1 for `MURMUR128_MITZ_64`, the only one that Guava has written since
//! 2014), one byte for the number of hash functions, four bytes for the number of 64-bit words, then the words.
//! Numbers are big-endian. A *funnel* turns an id into bytes, which MurmurHash3 hashes to 128 bits. In a filter of
//! `bits` bits, hash function `n`, counted from 0, selects the bit at index
//! `(first half + n · second half) mod 2⁶³ mod bits` (Kirsch and Mitzenmacher, "Less Hashing, Same Performance",
//! ESA 2006). Sizes follow Guava's formulas. The number of hash functions is computed as in Guava 33.4 and later.
//! Older versions can read the filter too, because the file states the number.
//!
//! A Guava filter has 1.44 times the size of the information-theoretic lower bound. Its size must be known before
//! the first id is added, so the builder gathers ids as 128-bit hashes, 16 bytes each, and sizes the filter for the
//! distinct ids. The filter therefore has the requested false-positive rate.

mod murmur;

use edgeward_types::Seed;

use crate::fuse::mix;
use crate::rate::Rate;
use murmur::murmur3_128;

/// How Guava converts an id to the bytes that it hashes. The reader must use the same funnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Funnel {
    /// `Funnels.stringFunnel(StandardCharsets.UTF_8)` or `Funnels.byteArrayFunnel()`: the bytes.
    #[default]
    Utf8,
    /// `Funnels.unencodedCharsFunnel()`: UTF-16 code units, low byte first.
    UnencodedChars,
    /// `Funnels.longFunnel()`: eight bytes, lowest first.
    Long,
}

impl Funnel {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "utf8",
            Self::UnencodedChars => "unencoded-chars",
            Self::Long => "long",
        }
    }

    /// Returns the hash of an id in its canonical form.
    pub fn hash(self, canonical: &[u8]) -> Result<GuavaHash, FunnelError> {
        let text = || {
            std::str::from_utf8(canonical).map_err(|_| FunnelError {
                funnel: self,
                id: String::from_utf8_lossy(canonical).into_owned(),
            })
        };
        Ok(GuavaHash(match self {
            Self::Utf8 => murmur3_128(canonical),
            Self::UnencodedChars => {
                let units: Vec<u8> = text()?.encode_utf16().flat_map(u16::to_le_bytes).collect();
                murmur3_128(&units)
            }
            Self::Long => {
                let number: i64 = text()?.parse().map_err(|_| FunnelError {
                    funnel: self,
                    id: String::from_utf8_lossy(canonical).into_owned(),
                })?;
                murmur3_128(&number.to_le_bytes())
            }
        }))
    }
}

/// Parses `utf8`, `unencoded-chars` or `long`.
impl std::str::FromStr for Funnel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Utf8, Self::UnencodedChars, Self::Long]
            .into_iter()
            .find(|funnel| funnel.name() == text)
            .ok_or_else(|| format!("`{text}` is not a funnel; use utf8, unencoded-chars or long"))
    }
}

/// An id that a funnel cannot convert.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the funnel {} cannot convert the id `{id}`", funnel.name())]
pub struct FunnelError {
    /// The funnel.
    pub funnel: Funnel,
    /// The id.
    pub id: String,
}

/// The 128-bit hash of an id for Guava filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuavaHash([u64; 2]);

impl GuavaHash {
    /// Restores a hash from its words.
    pub fn from_words(words: [u64; 2]) -> Self {
        Self(words)
    }

    /// The 128 bits of the hash, for a build that continues later.
    pub fn words(self) -> [u64; 2] {
        self.0
    }

    /// Returns the indexes of the id's bits in a filter of `bits` bits with `functions` hash functions.
    fn bits(self, bits: u64, functions: u8) -> impl Iterator<Item = u64> {
        let [first, second] = self.0;
        (0..u64::from(functions)).map(move |n| {
            let combined = first.wrapping_add(n.wrapping_mul(second));
            // Guava clears the sign bit, because Java has no unsigned remainder.
            (combined & i64::MAX as u64) % bits
        })
    }
}

/// Gathers ids for a Guava filter.
#[derive(Clone, Debug, Default)]
pub struct GuavaBuilder {
    ids: Vec<GuavaHash>,
}

impl GuavaBuilder {
    /// Creates an empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an id. Duplicates are allowed.
    pub fn insert(&mut self, id: GuavaHash) {
        self.ids.push(id);
    }

    /// Builds the filter of the distinct ids with the false-positive rate `rate`. Returns the filter and the number of
    /// distinct ids.
    pub fn finish(mut self, rate: Rate) -> Result<(GuavaFilter, u64), GuavaError> {
        self.ids.sort_unstable();
        self.ids.dedup();
        let ids = self.ids.len() as u64;
        let mut filter = GuavaFilter::with_capacity(ids, rate)?;
        for id in &self.ids {
            filter.put(*id);
        }
        Ok((filter, ids))
    }
}

/// A Guava filter in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuavaFilter {
    functions: u8,
    words: Vec<u64>,
}

impl GuavaFilter {
    /// Returns the empty filter that `BloomFilter.create(funnel, ids, rate)` creates for the expected number of ids.
    pub fn with_capacity(ids: u64, rate: Rate) -> Result<Self, GuavaError> {
        // Guava replaces 0 by 1.
        let ids = ids.max(1) as f64;
        let ln_rate = rate.share().ln();
        let bits = (-ids * ln_rate / (LN_2 * LN_2)) as u64;
        let functions = (-ln_rate / LN_2).round().max(1.0) as u8;
        let words = bits.div_ceil(64).max(1);
        if words > WORDS_MAX {
            return Err(GuavaError::TooLarge { words });
        }
        Ok(Self {
            functions,
            words: vec![0; words as usize],
        })
    }

    /// Guava's `put`: adds an id. Returns true if a bit changed.
    pub fn put(&mut self, id: GuavaHash) -> bool {
        let bits = self.words.len() as u64 * 64;
        let mut changed = false;
        for bit in id.bits(bits, self.functions) {
            let word = &mut self.words[(bit / 64) as usize];
            changed |= *word & 1 << (bit % 64) == 0;
            *word |= 1 << (bit % 64);
        }
        changed
    }

    /// Guava's `mightContain`: returns false if the id is certainly absent.
    pub fn might_contain(&self, id: GuavaHash) -> bool {
        let bits = self.words.len() as u64 * 64;
        id.bits(bits, self.functions)
            .all(|bit| self.words[(bit / 64) as usize] & 1 << (bit % 64) != 0)
    }

    /// Guava's `expectedFpp`: the share of set bits to the power of the number of hash functions.
    pub fn expected_rate(&self) -> f64 {
        let set: u64 = self
            .words
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum();
        (set as f64 / (self.words.len() as f64 * 64.0)).powi(i32::from(self.functions))
    }

    /// Measures the false-positive rate with `probes` random hashes.
    pub fn measured_rate(&self, probes: u64, seed: Seed) -> f64 {
        let random = |n: u64| GuavaHash([mix(n, seed.0), mix(!n, seed.0)]);
        let passed = (0..probes).filter(|n| self.might_contain(random(*n)));
        passed.count() as f64 / probes.max(1) as f64
    }

    /// The number of hash functions. Each one sets one bit per id.
    pub fn functions(&self) -> u8 {
        self.functions
    }

    /// Encodes the filter as Guava's `writeTo`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.words.len() * 8);
        bytes.push(MURMUR128_MITZ_64);
        bytes.push(self.functions);
        let words = u32::try_from(self.words.len())
            .expect("`with_capacity` and `from_bytes` limit the number of words");
        bytes.extend_from_slice(&words.to_be_bytes());
        for word in &self.words {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// Decodes a filter as Guava's `readFrom`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, GuavaError> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(GuavaError::Length {
                found: bytes.len() as u64,
                whole: HEADER_BYTES as u64,
            });
        };
        if head[0] != MURMUR128_MITZ_64 {
            return Err(GuavaError::Strategy { found: head[0] });
        }
        let words = u32::from_be_bytes([head[2], head[3], head[4], head[5]]);
        let whole = HEADER_BYTES as u64 + u64::from(words) * 8;
        if bytes.len() as u64 != whole || words == 0 || u64::from(words) > WORDS_MAX {
            return Err(GuavaError::Length {
                found: bytes.len() as u64,
                whole,
            });
        }
        if head[1] == 0 {
            return Err(GuavaError::NoFunctions);
        }
        Ok(Self {
            functions: head[1],
            words: rest
                .as_chunks()
                .0
                .iter()
                .map(|word| u64::from_be_bytes(*word))
                .collect(),
        })
    }
}

const LN_2: f64 = std::f64::consts::LN_2;

/// The number of the strategy in Guava's enum.
const MURMUR128_MITZ_64: u8 = 1;

const HEADER_BYTES: usize = 6;

/// Guava counts words in a Java `int`.
const WORDS_MAX: u64 = i32::MAX as u64;

/// Why a Guava filter cannot be made or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GuavaError {
    /// Guava cannot address so many bits.
    #[error(
        "the filter needs {words} words, but Guava supports at most 2^31 - 1; choose a higher rate"
    )]
    TooLarge {
        /// The number of words needed.
        words: u64,
    },
    /// The first byte is another strategy, or the file is not a Guava filter.
    #[error("not a Guava Bloom filter of strategy 1 (MURMUR128_MITZ_64): the strategy is {found}")]
    Strategy {
        /// The first byte.
        found: u8,
    },
    /// The number of hash functions is 0.
    #[error("the Guava Bloom filter has no hash functions")]
    NoFunctions,
    /// The file is truncated, too long or not a Guava filter.
    #[error("the Guava Bloom filter has {found} bytes, but its header states {whole}")]
    Length {
        /// The number of bytes given.
        found: u64,
        /// The number of bytes that the header states.
        whole: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(share: f64) -> Rate {
        Rate::new(share).expect("a rate")
    }

    /// The number of hash functions and the size in KiB that `BloomFilter.create` chooses for 620,000 ids.
    #[test]
    fn sizes_equal_guavas() {
        let one = GuavaFilter::with_capacity(620_000, rate(0.01)).expect("it fits");
        assert_eq!((one.functions, one.words.len() * 8 / 1024), (7, 725));
        let three = GuavaFilter::with_capacity(620_000, rate(0.03)).expect("it fits");
        assert_eq!((three.functions, three.words.len() * 8 / 1024), (5, 552));
    }

    #[test]
    fn a_filter_survives_encoding_and_invalid_bytes_are_refused() {
        let mut builder = GuavaBuilder::new();
        let ids: Vec<_> = (0..100)
            .map(|n: i32| Funnel::Utf8.hash(n.to_string().as_bytes()).expect("bytes"))
            .collect();
        ids.iter().for_each(|id| builder.insert(*id));
        let (filter, count) = builder.finish(rate(0.01)).expect("it fits");
        assert_eq!(count, 100);
        let bytes = filter.to_bytes();
        assert_eq!(GuavaFilter::from_bytes(&bytes).as_ref(), Ok(&filter));
        assert!(ids.iter().all(|id| filter.might_contain(*id)));
        assert!(filter.expected_rate() < 0.012);
        for cut in 0..bytes.len() {
            assert!(GuavaFilter::from_bytes(&bytes[..cut]).is_err());
        }
        let mut huge = bytes.clone();
        huge[2..6].fill(0xff);
        assert!(GuavaFilter::from_bytes(&huge).is_err());
        let mut other = bytes;
        other[0] = 0;
        assert!(GuavaFilter::from_bytes(&other).is_err());
    }

    #[test]
    fn a_funnel_refuses_ids_that_java_cannot_represent() {
        assert!(Funnel::Long.hash(b"12x").is_err());
        assert!(Funnel::Long.hash(b"9223372036854775808").is_err());
        assert!(Funnel::UnencodedChars.hash(b"\xff").is_err());
    }
}
