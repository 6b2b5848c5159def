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
mod fields;
mod record;
mod segment;
mod superblock;

pub(crate) use checkpoint::{CHECKPOINT_HEADER_BYTES, CheckpointHeader};
pub(crate) use fields::ChecksumSeed;
pub(crate) use record::{
    BLOCK_BYTES, Extent, RECORD_HEADER_BYTES, RecordError, RecordHeader, RecordKind, block_count_of,
};
pub(crate) use segment::{
    ENTRY_BYTES, Entry, SEGMENT_HEADER_BYTES, SegmentHeader, TRAILER_BYTES, Trailer,
    looks_like_segment_header,
};
pub use superblock::{FORMAT_VERSION, SuperblockError};
pub(crate) use superblock::{NoValidSuperblock, SUPERBLOCK_BYTES, Superblock, is_segment_size};

#[cfg(test)]
mod tests;
