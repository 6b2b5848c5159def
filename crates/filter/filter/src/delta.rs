//! Deltas: the ids that were added between two numbers of a publisher's journal.
//!
//! A delta covers the journal numbers after `from` up to `to`. Adding an id twice has no effect, so deltas may
//! be applied twice and may overlap. A publisher may therefore replace many small deltas by one that covers all
//! of them, and a client that already has some of the ids can apply it. `docs/reference/filter-format.md` lists every
//! byte.

use std::hash::Hasher as _;

use edgeward_types::xxh3::Xxh3;

use crate::id::IdHash;

/// The ids added after one number of the journal, up to another number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The lineage of the journal.
    pub lineage: u64,
    /// The journal number before the first one that the delta covers.
    pub from: u64,
    /// The last journal number that the delta covers.
    pub to: u64,
    /// The seed of the ids' hashes.
    pub hash_seed: u64,
    /// The hashes of the ids in ascending order, without duplicates.
    ids: Vec<IdHash>,
}

impl Delta {
    /// Returns a delta of these ids, given in any order.
    pub fn new(lineage: u64, from: u64, to: u64, hash_seed: u64, mut ids: Vec<IdHash>) -> Self {
        ids.sort_unstable();
        ids.dedup();
        Self {
            lineage,
            from,
            to,
            hash_seed,
            ids,
        }
    }

    /// The hashes of the ids in ascending order, without duplicates.
    pub fn ids(&self) -> &[IdHash] {
        &self.ids
    }

    /// Encodes the delta as a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.ids.len() * 8);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        for field in [
            self.lineage,
            self.from,
            self.to,
            self.hash_seed,
            self.ids.len() as u64,
            // The checksum, which is inserted below.
            0,
        ] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        for id in &self.ids {
            bytes.extend_from_slice(&id.0.to_le_bytes());
        }
        let checksum = checksum(&bytes);
        bytes[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Returns the length of a whole delta in bytes, computed from the number of ids in its header. Returns `None` if
    /// `bytes` does not begin with such a header. Readers of a file with several deltas use this.
    pub fn stated_bytes(bytes: &[u8]) -> Option<u64> {
        let ids = bytes.starts_with(&MAGIC).then(|| bytes.get(48..56))??;
        let ids = u64::from_le_bytes(ids.try_into().expect("eight bytes"));
        (HEADER_BYTES as u64).checked_add(ids.checked_mul(8)?)
    }

    /// Decodes a delta.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DeltaError> {
        let found = bytes.len() as u64;
        if !bytes.starts_with(&MAGIC) {
            return Err(DeltaError::NotADelta);
        }
        let fields = bytes.as_chunks::<8>().0;
        let whole = HEADER_BYTES as u64;
        if bytes.len() < HEADER_BYTES {
            return Err(DeltaError::Length { found, whole });
        }
        let field = |n: usize| u64::from_le_bytes(fields[n]);
        if field(1) != VERSION {
            return Err(DeltaError::Version { found: field(1) });
        }
        let whole = whole.saturating_add(field(6).saturating_mul(8));
        if found != whole {
            return Err(DeltaError::Length { found, whole });
        }
        if checksum(bytes) != field(7) {
            return Err(DeltaError::Corrupt);
        }
        let (from, to) = (field(3), field(4));
        let ids: Vec<_> = fields[HEADER_BYTES / 8..]
            .iter()
            .map(|id| IdHash(u64::from_le_bytes(*id)))
            .collect();
        if from >= to || !ids.is_sorted_by(|a, b| a < b) {
            return Err(DeltaError::Order);
        }
        Ok(Self {
            lineage: field(2),
            from,
            to,
            hash_seed: field(5),
            ids,
        })
    }
}

/// Returns the checksum of all bytes except the checksum field.
fn checksum(bytes: &[u8]) -> u64 {
    let mut checksum = Xxh3::new();
    checksum.write(&bytes[..CHECKSUM_AT]);
    checksum.write(&bytes[HEADER_BYTES..]);
    checksum.finish()
}

const MAGIC: [u8; 8] = *b"\x89EWD\r\n\x1a\n";
const VERSION: u64 = 1;
const HEADER_BYTES: usize = 64;
const CHECKSUM_AT: usize = 56;

/// Why bytes are not a valid delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaError {
    /// The magic bytes are missing.
    #[error("not a delta of an edgeward id filter")]
    NotADelta,
    /// The delta has a format version that this edgeward cannot read.
    #[error("the delta has format version {found}, and this edgeward reads version {VERSION}")]
    Version {
        /// The version of the delta.
        found: u64,
    },
    /// The delta is truncated, or bytes follow it.
    #[error("the delta has {found} bytes and its header states {whole}")]
    Length {
        /// The number of bytes given.
        found: u64,
        /// The number of bytes that the header states, or the length of a header if the header is truncated.
        whole: u64,
    },
    /// Bytes changed since the delta was written.
    #[error("the delta is corrupt: checksum mismatch")]
    Corrupt,
    /// The journal numbers `from` and `to`, or the ids, are not in ascending order.
    #[error("the delta's journal numbers or ids are not in ascending order")]
    Order,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_delta_survives_encoding_and_decoding(
            ids in prop::collection::vec(any::<u64>(), 0..50), from in 0u64..1000, more in 1u64..1000,
        ) {
            let ids = ids.into_iter().map(IdHash).collect();
            let delta = Delta::new(9, from, from + more, 7, ids);
            prop_assert_eq!(Delta::from_bytes(&delta.to_bytes()), Ok(delta));
        }
    }

    /// Method: truncate the delta at every length, and flip each of its bits.
    #[test]
    fn a_truncated_or_corrupt_delta_is_refused() {
        let whole = Delta::new(9, 3, 5, 0, (0..20).map(IdHash).collect()).to_bytes();
        for cut in 0..whole.len() {
            assert!(Delta::from_bytes(&whole[..cut]).is_err());
        }
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Delta::from_bytes(&flipped).is_err(), "bit {bit}");
        }
    }
}
