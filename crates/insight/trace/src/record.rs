//! One request of a trace, in the form common to all formats.

use edgeward_types::xxh3::xxh3_64;

use edgeward_types::Timestamp;

/// One request of a trace.
///
/// Further fields of a trace format are dropped. A cache cannot use the features in traces of LRB's simulator. The
/// next access in oracleGeneral traces is the number of a record, which is wrong as soon as a record is skipped. A
/// program that needs the next access computes it from the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The time of the request. The trace determines which moment is time 0: the Unix epoch or, for example, its
    /// own start.
    pub time: Timestamp,
    /// The key of the object: the numeric id of the format, or [`hash_key`] of a textual key.
    pub key: u64,
    /// The object's size in bytes.
    pub size: u64,
}

/// Stands for the lifetime of an object that does not expire, among lifetimes in seconds.
pub const NO_TTL: u32 = u32::MAX;

/// Returns the 64-bit key of a textual id: XXH3 with seed 0, on every platform.
///
/// The probability that two of `n` objects have the same key is about `n² / 2^65`, which is 6e-6 for fifteen
/// million URLs.
pub fn hash_key(text: &[u8]) -> u64 {
    xxh3_64(text)
}
