//! A record: a header, key and head, a table, and perhaps a body.
//!
//! Header, key, head and table are the record's *metadata* (`meta` in the code), with one checksum. The content
//! of the table depends on the kind: a checksum for each block of the body, or the extents of an object's
//! pieces, or the hashes of purged keys. One read of the metadata is therefore enough to identify a record and
//! to verify any part of the record's body later.

use std::fmt;
use std::ops::Range;

use super::fields::{ChecksumSeed, Fields};

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// An object with its whole body.
    Object = 1,
    /// A part of an object's body. The part is invisible until the commit record of the object is written.
    Piece = 2,
    /// The commit record of an object in pieces: key and head, and the extents of the pieces.
    Commit = 3,
    /// Tombstones: hashes of purged keys. Earlier records of these keys are no longer valid.
    Tombstones = 4,
}

impl RecordKind {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Object, Self::Piece, Self::Commit, Self::Tombstones]
            .into_iter()
            .find(|&kind| kind as u8 == byte)
    }

    /// The size in bytes of one item of the table.
    const fn item_bytes(self) -> usize {
        match self {
            Self::Object | Self::Piece | Self::Tombstones => 8,
            Self::Commit => EXTENT_BYTES,
        }
    }
}

/// The header of a record: its first 72 bytes without the magic number and the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: RecordKind,
    pub(crate) key_bytes: u16,
    pub(crate) head_bytes: u32,
    /// The number of items in the table.
    pub(crate) item_count: u32,
    /// The hash of the key. 0 for tombstones, because their table has the hashes.
    pub(crate) hash: u64,
    /// The number of the object, unique among all objects ever written to the device.
    pub(crate) object_id: u64,
    /// The epoch of the segment.
    pub(crate) epoch: u64,
    /// The length of this record's body. In a commit record: the length of the whole object's body.
    pub(crate) body_bytes: u64,
    /// The offset of a piece in the object's body.
    pub(crate) body_offset: u64,
    /// The Unix time at which the record was written.
    pub(crate) written_unix_secs: u64,
}

/// The size of a header in bytes, including the checksum of the metadata.
pub(crate) const RECORD_HEADER_BYTES: usize = 72;

/// The size of a block in bytes. Each block of a body has a checksum. A read of a range verifies only the
/// blocks that overlap the range.
pub(crate) const BLOCK_BYTES: u64 = 64 << 10;

const MAGIC: [u8; 4] = *b"EWrc";
const CHECKSUM_AT: usize = RECORD_HEADER_BYTES - 8;

/// Returns the number of blocks of a body. Each block has a checksum.
pub(crate) const fn block_count_of(body_bytes: u64) -> u64 {
    body_bytes.div_ceil(BLOCK_BYTES)
}

impl RecordHeader {
    pub(crate) fn table_bytes(&self) -> usize {
        self.item_count as usize * self.kind.item_bytes()
    }

    /// The number of bytes before the body.
    pub(crate) fn meta_bytes(&self) -> usize {
        RECORD_HEADER_BYTES
            + usize::from(self.key_bytes)
            + self.head_bytes as usize
            + self.table_bytes()
    }

    /// The number of bytes of the whole record.
    pub(crate) fn record_bytes(&self) -> u64 {
        let body = match self.kind {
            RecordKind::Object | RecordKind::Piece => self.body_bytes,
            RecordKind::Commit | RecordKind::Tombstones => 0,
        };
        self.meta_bytes() as u64 + body
    }

    pub(crate) fn key_range(&self) -> Range<usize> {
        RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + usize::from(self.key_bytes)
    }

    pub(crate) fn head_range(&self) -> Range<usize> {
        let start = self.key_range().end;
        start..start + self.head_bytes as usize
    }

    pub(crate) fn table_range(&self) -> Range<usize> {
        self.head_range().end..self.meta_bytes()
    }

    /// Writes the header and the checksum to the front of `meta`, which already contains key, head and table. `seed` is
    /// the seed of all checksums of the device.
    pub(crate) fn seal(&self, meta: &mut [u8], seed: ChecksumSeed) {
        debug_assert_eq!(meta.len(), self.meta_bytes());
        meta[..4].copy_from_slice(&MAGIC);
        meta[4] = self.kind as u8;
        meta[5] = 0;
        meta[6..8].copy_from_slice(&self.key_bytes.to_le_bytes());
        meta[8..12].copy_from_slice(&self.head_bytes.to_le_bytes());
        meta[12..16].copy_from_slice(&self.item_count.to_le_bytes());
        let fields = [
            self.hash,
            self.object_id,
            self.epoch,
            self.body_bytes,
            self.body_offset,
            self.written_unix_secs,
        ];
        for (n, field) in fields.into_iter().enumerate() {
            meta[16 + n * 8..][..8].copy_from_slice(&field.to_le_bytes());
        }
        let checksum = meta_checksum(meta, seed);
        meta[CHECKSUM_AT..RECORD_HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Parses a header. Returns an error if its lengths are impossible in a segment of `segment_bytes`. The
    /// checksum is not verified; [`check`](Self::check) does this.
    pub(crate) fn parse(bytes: &[u8], segment_bytes: u64) -> Result<Self, RecordError> {
        if bytes.len() < RECORD_HEADER_BYTES || bytes[..4] != MAGIC {
            return Err(RecordError::NoRecord);
        }
        let mut fields = Fields(&bytes[4..RECORD_HEADER_BYTES]);
        let kind = RecordKind::from_byte(fields.u8());
        let reserved = fields.u8();
        let header = Self {
            kind: kind.ok_or(RecordError::NoRecord)?,
            key_bytes: fields.u16(),
            head_bytes: fields.u32(),
            item_count: fields.u32(),
            hash: fields.u64(),
            object_id: fields.u64(),
            epoch: fields.u64(),
            body_bytes: fields.u64(),
            body_offset: fields.u64(),
            written_unix_secs: fields.u64(),
        };
        let items_fit = match header.kind {
            RecordKind::Object | RecordKind::Piece => {
                header.body_bytes <= segment_bytes
                    && u64::from(header.item_count) == block_count_of(header.body_bytes)
            }
            RecordKind::Commit | RecordKind::Tombstones => {
                u64::from(header.item_count) <= segment_bytes / header.kind.item_bytes() as u64
            }
        };
        let fits = reserved == 0
            && items_fit
            && u64::from(header.head_bytes) <= segment_bytes
            && header.record_bytes() <= segment_bytes;
        fits.then_some(header).ok_or(RecordError::NoRecord)
    }

    /// Verifies the checksum of the metadata.
    pub(crate) fn check(&self, meta: &[u8], seed: ChecksumSeed) -> Result<(), RecordError> {
        let stored = Fields(&meta[CHECKSUM_AT..]).u64();
        let computed = meta_checksum(meta, seed);
        if stored == computed {
            Ok(())
        } else {
            Err(RecordError::Meta { stored, computed })
        }
    }
}

/// Returns the checksum of the header (without the checksum field), key, head and table. The checksum field divides
/// these bytes into two parts. One pass over both parts would need a copy without the field, so the checksums of the
/// parts are combined. The combination is as strong as one checksum.
fn meta_checksum(meta: &[u8], seed: ChecksumSeed) -> u64 {
    let front = seed.checksum(&meta[..CHECKSUM_AT]);
    let rest = ChecksumSeed(front).checksum(&meta[RECORD_HEADER_BYTES..]);
    front.rotate_left(32) ^ rest
}

/// The location of a piece: an item of a commit record's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The offset of the piece's record on the device.
    pub(crate) offset: u64,
    /// The epoch of the piece's segment when the piece was written.
    pub(crate) epoch: u64,
    /// The length of the piece's body.
    pub(crate) body_bytes: u32,
    /// The length of the metadata before the body.
    pub(crate) meta_bytes: u32,
}

/// The size of an extent in bytes.
pub(crate) const EXTENT_BYTES: usize = 24;

impl Extent {
    pub(crate) fn to_bytes(self) -> [u8; EXTENT_BYTES] {
        let mut bytes = [0; EXTENT_BYTES];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.meta_bytes.to_le_bytes());
        bytes
    }

    /// Parses the extents of a commit record's table, in the order of the body.
    pub(crate) fn parse_all(table: &[u8]) -> impl ExactSizeIterator<Item = Self> + '_ {
        table.chunks_exact(EXTENT_BYTES).map(|bytes| {
            let mut fields = Fields(bytes);
            Self {
                offset: fields.u64(),
                epoch: fields.u64(),
                body_bytes: fields.u32(),
                meta_bytes: fields.u32(),
            }
        })
    }
}

/// Why bytes are not the expected record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordError {
    /// No record begins here.
    NoRecord,
    /// A record seems to begin here, but its metadata does not match the checksum.
    Meta { stored: u64, computed: u64 },
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRecord => f.write_str("no record begins here"),
            Self::Meta { stored, computed } => write!(
                f,
                "checksum {stored:#018x} stored, {computed:#018x} computed"
            ),
        }
    }
}
