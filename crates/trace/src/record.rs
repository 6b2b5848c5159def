//! One request, as every format tells it.

use edgeward_types::xxh3::xxh3_64;

use edgeward_types::Timestamp;

/// One request of a trace.
///
/// What a format may hold beyond these three (LRB's extra features, oracleGeneral's next
/// access) is not kept: it is either of no use to a cache or, like the next access, wrong as
/// soon as a record before it is skipped, so whoever needs it computes it from the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// When the request was made, on the trace's own clock.
    pub time: Timestamp,
    /// Which object: the format's numeric id as it stands, or [`hash_key`] of a textual key.
    pub key: u64,
    /// The object's size in bytes.
    pub size: u64,
}

/// The 64-bit key of an object that is known by text: XXH3 with seed 0, on every platform.
///
/// Among `n` objects two share a key with probability about `n² / 2^65`: for fifteen million
/// URLs that is 6e-6.
pub fn hash_key(text: &[u8]) -> u64 {
    xxh3_64(text)
}
