//! The data of a record before it is appended, and the result of appending it.

use std::io;

use edgeward_types::KeyHash;

use crate::disk::format::{Extent, RecordKind, block_count_of};
use crate::disk::location::Location;

/// A reinserted object and its old and new location.
#[derive(Clone, Copy, Debug)]
pub(in crate::disk) struct Relocation {
    pub(in crate::disk) hash: KeyHash,
    pub(in crate::disk) from: Location,
    pub(in crate::disk) to: Location,
}

/// The fields of a record, except for its body and the fields that the writer fills in.
#[derive(Clone, Copy, Debug)]
pub(in crate::disk) struct RecordDraft<'a> {
    pub(in crate::disk) kind: RecordKind,
    pub(in crate::disk) hash: KeyHash,
    pub(in crate::disk) object_id: u64,
    pub(in crate::disk) key: &'a [u8],
    pub(in crate::disk) head: &'a [u8],
    /// The table of the record: extents or tombstones. Empty for an object or a piece; the writer computes their
    /// table, the checksums of the body's blocks.
    pub(in crate::disk) table: &'a [u8],
    /// The number of items in the table.
    pub(in crate::disk) item_count: u32,
    pub(in crate::disk) body_bytes: u64,
    /// For a piece, its offset in the body of the object. Otherwise 0.
    pub(in crate::disk) body_offset: u64,
}

/// The reason why a record was not appended.
#[derive(Debug)]
pub(in crate::disk) enum AppendError {
    Device(io::Error),
    /// The log has no space for a reinserted record unless another segment is reclaimed.
    NoRoom,
}

impl From<io::Error> for AppendError {
    fn from(error: io::Error) -> Self {
        Self::Device(error)
    }
}

pub(in crate::disk) fn table_of(extents: &[Extent]) -> Vec<u8> {
    extents
        .iter()
        .flat_map(|extent| extent.to_bytes())
        .collect()
}

pub(super) fn block_count(body_bytes: u64) -> u32 {
    u32::try_from(block_count_of(body_bytes)).expect("a body in a record is less than a segment")
}
