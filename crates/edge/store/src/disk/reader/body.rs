//! The body of a record: its blocks and their checksums.

use bytes::Bytes;

use super::record::Record;
use crate::disk::format::{BLOCK_BYTES, ChecksumSeed};

/// The body of a record: its location and the checksums of its blocks.
#[derive(Clone, Debug)]
pub(super) struct Body {
    /// The offset of the body on the device.
    pub(super) offset: u64,
    /// The epoch of the segment when the record was written.
    pub(super) epoch: u64,
    /// The length of the body in this record.
    pub(super) bytes: u64,
    /// The checksums of the blocks, 8 bytes each.
    pub(super) checksums: Bytes,
    /// The first bytes of the body, which were read together with the metadata. They are not verified yet.
    pub(super) front: Bytes,
}

impl Body {
    /// Returns the body of a record whose metadata was verified.
    pub(super) fn from_record(record: &Record) -> Self {
        Self {
            offset: record.offset + record.header.meta_bytes() as u64,
            epoch: record.header.epoch,
            bytes: record.header.body_bytes,
            checksums: record.table(),
            front: record.body(),
        }
    }

    /// Returns the number of bytes in `front` that belong to whole blocks.
    pub(super) fn front_end(&self) -> u64 {
        whole_blocks(self.front.len() as u64, self.bytes)
    }
}

/// Returns how many of the first `bytes` bytes of a body belong to whole blocks. The last block of the body
/// counts as whole even if it is short.
pub(super) fn whole_blocks(bytes: u64, body_bytes: u64) -> u64 {
    if bytes >= body_bytes {
        body_bytes
    } else {
        bytes / BLOCK_BYTES * BLOCK_BYTES
    }
}

/// Compares blocks with their checksums. The first block has the number `first`. Fails with the number of the
/// first block that does not match.
pub(super) fn check_blocks(
    checksums: &[u8],
    first: u64,
    bytes: &[u8],
    seed: ChecksumSeed,
) -> Result<(), u64> {
    for (block, number) in bytes.chunks(BLOCK_BYTES as usize).zip(first..) {
        let item = checksums.chunks_exact(8).nth(to_usize(number));
        if item != Some(&seed.checksum(block).to_le_bytes()[..]) {
            return Err(number);
        }
    }
    Ok(())
}

pub(super) fn to_usize(number: u64) -> usize {
    usize::try_from(number).expect("the number is within a record")
}
