//! The header block of a checkpoint, which is a saved index of the disk store. If this block is invalid, the index that
//! follows it is ignored.

use super::fields::{ChecksumSeed, Fields};

/// The header of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointHeader {
    /// The number of the checkpoint. A newer checkpoint has a greater number.
    pub(crate) sequence: u64,
    /// The epoch of the first segment whose records the checkpoint may lack.
    pub(crate) epoch: u64,
    /// The length in bytes of the saved index after this block.
    pub(crate) bytes: u64,
}

/// The size of the header block in bytes.
pub(crate) const CHECKPOINT_HEADER_BYTES: usize = 4096;

const MAGIC: [u8; 8] = *b"EWchkpnt";
const CHECKSUM_AT: usize = CHECKPOINT_HEADER_BYTES - 8;

impl CheckpointHeader {
    pub(crate) fn to_bytes(self, seed: ChecksumSeed) -> [u8; CHECKPOINT_HEADER_BYTES] {
        let mut bytes = [0; CHECKPOINT_HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        let checksum = seed.checksum(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Returns `None` if the block is not a valid header.
    pub(crate) fn parse(bytes: &[u8; CHECKPOINT_HEADER_BYTES], seed: ChecksumSeed) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.bytes() != MAGIC {
            return None;
        }
        let header = Self {
            sequence: fields.u64(),
            epoch: fields.u64(),
            bytes: fields.u64(),
        };
        let stored = Fields(&bytes[CHECKSUM_AT..]).u64();
        (stored == seed.checksum(&bytes[..CHECKSUM_AT])).then_some(header)
    }
}
