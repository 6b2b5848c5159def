//! The layout of a device, byte by byte. docs/reference/disk-format.md describes it in prose.
//!
//! All functions here convert values to bytes or back. They do not read or write the device. All numbers are
//! little-endian. The bytes from a device may be arbitrary: a parser returns an error, or values whose lengths are
//! within the format's limits, and never panics.
//!
//! Checksums are XXH3-64 with a random seed, which was chosen when the device was formatted. After a crash the
//! log is searched for records at every sector, also within bodies. A client that does not know the seed cannot
//! make a body whose bytes look like a record.

mod checkpoint;
mod record;
mod segment;
mod superblock;

use edgeward_types::xxh3::xxh3_64_with_seed;

pub(crate) use checkpoint::{CHECKPOINT_HEADER_BYTES, CheckpointHeader};
pub(crate) use record::{
    BLOCK_BYTES, Extent, RECORD_HEADER_BYTES, RecordError, RecordHeader, RecordKind, block_count_of,
};
pub(crate) use segment::{
    ENTRY_BYTES, Entry, SEGMENT_HEADER_BYTES, SegmentHeader, TRAILER_BYTES, Trailer,
    looks_like_segment_header,
};
pub use superblock::{FORMAT_VERSION, SuperblockError};
pub(crate) use superblock::{NoValidSuperblock, SUPERBLOCK_BYTES, Superblock, is_segment_size};

/// The seed of a device's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChecksumSeed(pub(crate) u64);

impl ChecksumSeed {
    pub(crate) fn checksum(self, bytes: &[u8]) -> u64 {
        xxh3_64_with_seed(bytes, self.0)
    }
}

/// Reads numbers from the front of a slice. The caller has checked that the slice is long enough.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (head, rest) = self
            .0
            .split_first_chunk()
            .expect("the slice is long enough");
        self.0 = rest;
        *head
    }

    fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.bytes())
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.bytes())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}

#[cfg(test)]
mod tests;
