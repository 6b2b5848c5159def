//! Deltas: the ids that were added between two points of a publisher's journal.
//!
//! A delta covers the journal numbers after `from` up to `to`. Applying one twice, or two that
//! overlap, changes nothing, for adding an id is idempotent; so a publisher may replace many small
//! deltas by one that covers them all, and a client that has some of it already just takes it. Byte
//! by byte in `docs/reference/filter-format.md`.

use xxhash_rust::xxh3::Xxh3Default;

use crate::id::IdHash;

/// The ids added after one number of the journal and up to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The journal it is of.
    pub lineage: u64,
    /// The last number it does not cover.
    pub from: u64,
    /// The last number it covers.
    pub to: u64,
    /// What ids were hashed with.
    pub hash_seed: u64,
    /// The ids' hashes, ascending, each once.
    ids: Vec<IdHash>,
}

impl Delta {
    /// A delta of these ids, in any order.
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

    /// The ids' hashes, ascending, each once.
    pub fn ids(&self) -> &[IdHash] {
        &self.ids
    }

    /// As it is published.
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

    /// The length a delta says it has, of which `bytes` may be the beginning: for whoever keeps several
    /// in one file. `None` if no delta begins like this.
    pub fn whole_bytes(bytes: &[u8]) -> Option<u64> {
        let ids = bytes.starts_with(&MAGIC).then(|| bytes.get(48..56))??;
        let ids = u64::from_le_bytes(ids.try_into().expect("eight bytes"));
        (HEADER_BYTES as u64).checked_add(ids.checked_mul(8)?)
    }

    /// Reads one.
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

/// Of everything but itself.
fn checksum(bytes: &[u8]) -> u64 {
    let mut checksum = Xxh3Default::new();
    checksum.update(&bytes[..CHECKSUM_AT]);
    checksum.update(&bytes[HEADER_BYTES..]);
    checksum.digest()
}

const MAGIC: [u8; 8] = *b"\x89EWD\r\n\x1a\n";
const VERSION: u64 = 1;
const HEADER_BYTES: usize = 64;
const CHECKSUM_AT: usize = 56;

/// Why bytes are no delta to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaError {
    /// Something else altogether.
    #[error("this is no delta of an edgeward id filter")]
    NotADelta,
    /// Written by a later edgeward.
    #[error("the delta has format version {found}, and this edgeward reads version {VERSION}")]
    Version {
        /// The version it has.
        found: u64,
    },
    /// Cut off, or followed by something.
    #[error("the delta has {found} bytes where its header says {whole}")]
    Length {
        /// Bytes that are here.
        found: u64,
        /// Bytes it says.
        whole: u64,
    },
    /// Bits changed on the way.
    #[error("the delta is corrupt: its checksum is another")]
    Corrupt,
    /// No delta of ours is like that.
    #[error("the delta's numbers or ids are not in order")]
    Order,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_delta_comes_back_from_its_bytes(
            ids in prop::collection::vec(any::<u64>(), 0..50), from in 0u64..1000, more in 1u64..1000,
        ) {
            let ids = ids.into_iter().map(IdHash).collect();
            let delta = Delta::new(9, from, from + more, 7, ids);
            prop_assert_eq!(Delta::from_bytes(&delta.to_bytes()), Ok(delta));
        }
    }

    /// All cuts and all bits.
    #[test]
    fn a_cut_or_flipped_delta_is_refused() {
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
