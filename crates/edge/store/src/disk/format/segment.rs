//! The header and the footer of a segment.
//!
//! The header at the start of the segment contains the epoch in which the segment was opened. The header is
//! durable before any record of this epoch is written. The footer at the end lists the records: an entry for each
//! record, then a trailer. The footer is written when the segment is full, after the records are durable.
//! Recovery need not search a segment that has a footer.

use super::fields::{ChecksumSeed, Fields};
use super::record::RecordKind;

/// The first block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// The number of the segment on the device.
    pub(crate) segment: u32,
    /// The epoch: the number of times that any segment of this device was opened, including this opening.
    pub(crate) epoch: u64,
    /// The epoch of the oldest segment in use when this segment was opened. Segments with a lower epoch were free,
    /// regardless of their content.
    pub(crate) oldest_used_epoch: u64,
    /// The Unix time of the opening.
    pub(crate) opened_unix_secs: u64,
    /// The number of segments of the device at that time. If the device has fewer segments now, segments in use
    /// are missing.
    pub(crate) segments: u32,
}

/// The size of a header in bytes, including checksum and padding.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 4096;

const HEADER_MAGIC: [u8; 4] = *b"EWsg";
const HEADER_CHECKSUM_AT: usize = SEGMENT_HEADER_BYTES - 8;

impl SegmentHeader {
    pub(crate) fn to_bytes(self, seed: ChecksumSeed) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..4].copy_from_slice(&HEADER_MAGIC);
        bytes[4..8].copy_from_slice(&self.segment.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.oldest_used_epoch.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.opened_unix_secs.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.segments.to_le_bytes());
        let checksum = seed.checksum(&bytes[..HEADER_CHECKSUM_AT]);
        bytes[HEADER_CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Parses the header of the segment with this number. Returns `None` if the block is not a valid header of that
    /// segment.
    pub(crate) fn parse(
        bytes: &[u8; SEGMENT_HEADER_BYTES],
        seed: ChecksumSeed,
        segment: u32,
    ) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.bytes() != HEADER_MAGIC {
            return None;
        }
        let header = Self {
            segment: fields.u32(),
            epoch: fields.u64(),
            oldest_used_epoch: fields.u64(),
            opened_unix_secs: fields.u64(),
            segments: fields.u32(),
        };
        let stored = Fields(&bytes[HEADER_CHECKSUM_AT..]).u64();
        let is_valid = stored == seed.checksum(&bytes[..HEADER_CHECKSUM_AT])
            && header.segment == segment
            && header.epoch > 0
            && header.oldest_used_epoch <= header.epoch;
        is_valid.then_some(header)
    }
}

/// Returns true if a block looks like a segment header. The checksum is not verified, because this function is
/// used when the superblock, which contains the seed of the checksum, is lost.
pub(crate) fn looks_like_segment_header(bytes: &[u8; SEGMENT_HEADER_BYTES]) -> bool {
    let mut fields = Fields(bytes);
    if fields.bytes() != HEADER_MAGIC {
        return false;
    }
    let segment = fields.u32();
    let epoch = fields.u64();
    let oldest_used_epoch = fields.u64();
    _ = fields.u64();
    let segments = fields.u32();
    epoch > 0
        && oldest_used_epoch <= epoch
        && segment < segments
        && bytes[36..HEADER_CHECKSUM_AT].iter().all(|&byte| byte == 0)
}

/// An entry of the footer. It describes one record. A record of tombstones (hashes of purged keys) has one entry for
/// each tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The hash of the key.
    pub(crate) hash: u64,
    /// The number of the object, unique on the device; 0 for a tombstone.
    pub(crate) object_id: u64,
    /// The offset of the record from the segment's start in bytes, a multiple of
    /// [`Location::UNIT_BYTES`](crate::disk::Location::UNIT_BYTES).
    pub(crate) offset: u32,
    /// The length of the record.
    pub(crate) record_bytes: u32,
    pub(crate) kind: RecordKind,
}

/// The size of an entry in bytes.
pub(crate) const ENTRY_BYTES: usize = 32;

impl Entry {
    pub(crate) fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.hash.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.object_id.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.offset.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.record_bytes.to_le_bytes());
        bytes[24] = self.kind as u8;
        bytes
    }

    /// Parses an entry of a footer whose checksum matched. Returns `None` if the kind is unknown.
    pub(crate) fn parse(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let mut fields = Fields(bytes);
        Some(Self {
            hash: fields.u64(),
            object_id: fields.u64(),
            offset: fields.u32(),
            record_bytes: fields.u32(),
            kind: RecordKind::from_byte(fields.u8())?,
        })
    }
}

/// The last part of a footer, at the end of the segment. The entries are right before the trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    /// The number of entries.
    pub(crate) entries: u32,
    /// The epoch in the header of the segment.
    pub(crate) epoch: u64,
    /// The end of the last record, in bytes from the segment's start.
    pub(crate) records_end: u64,
    /// The checksum of all entries.
    pub(crate) entries_checksum: u64,
}

/// The size of a trailer in bytes.
pub(crate) const TRAILER_BYTES: usize = 64;

const TRAILER_MAGIC: [u8; 4] = *b"EWft";
const TRAILER_CHECKSUM_AT: usize = TRAILER_BYTES - 8;

impl Trailer {
    pub(crate) fn to_bytes(self, seed: ChecksumSeed) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        bytes[..4].copy_from_slice(&TRAILER_MAGIC);
        bytes[4..8].copy_from_slice(&self.entries.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.records_end.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.entries_checksum.to_le_bytes());
        let checksum = seed.checksum(&bytes[..TRAILER_CHECKSUM_AT]);
        bytes[TRAILER_CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Parses the trailer of a segment of `segment_bytes` that has this epoch. Returns `None` if the bytes are not
    /// a valid trailer of that epoch.
    pub(crate) fn parse(
        bytes: &[u8; TRAILER_BYTES],
        seed: ChecksumSeed,
        epoch: u64,
        segment_bytes: u64,
    ) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.bytes() != TRAILER_MAGIC {
            return None;
        }
        let trailer = Self {
            entries: fields.u32(),
            epoch: fields.u64(),
            records_end: fields.u64(),
            entries_checksum: fields.u64(),
        };
        let stored = Fields(&bytes[TRAILER_CHECKSUM_AT..]).u64();
        let footer = TRAILER_BYTES as u64 + u64::from(trailer.entries) * ENTRY_BYTES as u64;
        let is_valid = stored == seed.checksum(&bytes[..TRAILER_CHECKSUM_AT])
            && trailer.epoch == epoch
            && trailer
                .records_end
                .checked_add(footer)
                .is_some_and(|end| end <= segment_bytes);
        is_valid.then_some(trailer)
    }
}
