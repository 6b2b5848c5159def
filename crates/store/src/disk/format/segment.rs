//! The two ends of a segment.
//!
//! The header at the front says which opening of the segment this is: its epoch. It is durable
//! before anything else of that epoch is written. The footer at the end lists the records; it is
//! written when the segment is full, after they are durable. A segment with a footer need not be
//! searched.

use super::record::Kind;
use super::{ChecksumSeed, Fields};

/// The block at a segment's front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Which segment of the device it is.
    pub(crate) segment: u32,
    /// Counts openings of segments on this device.
    pub(crate) epoch: u64,
    /// Segments with a lower epoch were free when this one was opened, whatever they hold.
    pub(crate) tail_epoch: u64,
    /// Unix time of the opening.
    pub(crate) opened_secs: u64,
    /// Segments the device had then. With fewer now, some that count are missing.
    pub(crate) segments: u32,
}

/// Bytes of a header, checksum and padding included.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 4096;

const HEADER_MAGIC: [u8; 4] = *b"EWsg";
const HEADER_CHECKSUM_AT: usize = SEGMENT_HEADER_BYTES - 8;

impl SegmentHeader {
    pub(crate) fn to_bytes(self, seed: ChecksumSeed) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..4].copy_from_slice(&HEADER_MAGIC);
        bytes[4..8].copy_from_slice(&self.segment.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.tail_epoch.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.opened_secs.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.segments.to_le_bytes());
        let checksum = seed.of(&bytes[..HEADER_CHECKSUM_AT]);
        bytes[HEADER_CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The header of segment number `segment`; none if the block holds no such thing.
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
            tail_epoch: fields.u64(),
            opened_secs: fields.u64(),
            segments: fields.u32(),
        };
        let stored = Fields(&bytes[HEADER_CHECKSUM_AT..]).u64();
        let sound = stored == seed.of(&bytes[..HEADER_CHECKSUM_AT])
            && header.segment == segment
            && header.epoch > 0
            && header.tail_epoch <= header.epoch;
        sound.then_some(header)
    }
}

/// Whether a block looks like a segment's header, where the seed of its checksum is lost.
pub(crate) fn looks_like_segment_header(bytes: &[u8; SEGMENT_HEADER_BYTES]) -> bool {
    let mut fields = Fields(bytes);
    if fields.bytes() != HEADER_MAGIC {
        return false;
    }
    let segment = fields.u32();
    let epoch = fields.u64();
    let tail_epoch = fields.u64();
    _ = fields.u64();
    let segments = fields.u32();
    epoch > 0
        && tail_epoch <= epoch
        && segment < segments
        && bytes[36..HEADER_CHECKSUM_AT].iter().all(|&byte| byte == 0)
}

/// A line of the footer: one record, or one purge of those in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) hash: u64,
    pub(crate) object: u64,
    /// Bytes from the segment's start, a multiple of the location's unit.
    pub(crate) offset: u32,
    pub(crate) record_bytes: u32,
    pub(crate) kind: Kind,
}

/// Bytes of a line.
pub(crate) const ENTRY_BYTES: usize = 32;

impl Entry {
    pub(crate) fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.hash.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.object.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.offset.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.record_bytes.to_le_bytes());
        bytes[24] = self.kind as u8;
        bytes
    }

    /// Reads a line of a footer whose checksum was right; none if it names a kind that is unknown.
    pub(crate) fn parse(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let mut fields = Fields(bytes);
        Some(Self {
            hash: fields.u64(),
            object: fields.u64(),
            offset: fields.u32(),
            record_bytes: fields.u32(),
            kind: Kind::from_byte(fields.u8())?,
        })
    }
}

/// The last bytes of a segment. The lines lie right before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) entries: u32,
    pub(crate) epoch: u64,
    /// Where the last record ends, from the segment's start.
    pub(crate) records_end: u64,
    /// Over all lines.
    pub(crate) entries_checksum: u64,
}

/// Bytes of a trailer.
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
        let checksum = seed.of(&bytes[..TRAILER_CHECKSUM_AT]);
        bytes[TRAILER_CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The trailer of a segment of `segment_bytes` in its `epoch`; none if there is no such thing.
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
        let sound = stored == seed.of(&bytes[..TRAILER_CHECKSUM_AT])
            && trailer.epoch == epoch
            && trailer
                .records_end
                .checked_add(footer)
                .is_some_and(|end| end <= segment_bytes);
        sound.then_some(trailer)
    }
}
