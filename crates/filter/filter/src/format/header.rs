//! The header of a filter file and the entries of its shard directory: fields and offsets.

use edgeward_types::xxh3::xxh3_64;

use crate::fuse::Shape;
use crate::id::{IdForm, IdHasher};

/// The fields of the header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) hasher: IdHasher,
    /// The sequence number of the snapshot.
    pub(crate) epoch: u64,
    /// The build time in milliseconds since the Unix epoch; 0 if unknown.
    pub(crate) built_ms: u64,
    /// The number of ids in the filter.
    pub(crate) ids: u64,
    /// The number of ids for which the filter was sized.
    pub(crate) capacity_ids: u64,
    /// The false-positive rate that the builder was configured with.
    pub(crate) rate: f64,
    /// The number of shards of a fuse filter, or of blocks of a Bloom filter.
    pub(crate) parts: u32,
    pub(crate) payload_bytes: u64,
    pub(crate) payload_checksum: u64,
}

/// The construction of the filter: a binary fuse filter or a Bloom filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Fuse = 1,
    Bloom = 2,
}

impl Header {
    /// Encodes the header.
    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(10, &[self.kind as u8, self.hasher.form as u8]);
        put(12, &self.parts.to_le_bytes());
        put(16, &self.epoch.to_le_bytes());
        put(24, &self.built_ms.to_le_bytes());
        put(32, &self.ids.to_le_bytes());
        put(40, &self.capacity_ids.to_le_bytes());
        put(48, &self.hasher.seed.to_le_bytes());
        put(56, &self.rate.to_le_bytes());
        put(64, &self.payload_bytes.to_le_bytes());
        put(72, &self.payload_checksum.to_le_bytes());
        let checksum = xxh3_64(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes and checks a header.
    pub(crate) fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<Self, HeaderError> {
        if bytes[..8] != MAGIC {
            return Err(HeaderError::NotAFilter);
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return Err(HeaderError::Version { found: version });
        }
        let (stored, computed) = (u64_at(bytes, CHECKSUM_AT), xxh3_64(&bytes[..CHECKSUM_AT]));
        if stored != computed {
            return Err(HeaderError::Checksum { stored, computed });
        }
        let kind = match bytes[10] {
            1 => Kind::Fuse,
            2 => Kind::Bloom,
            _ => return Err(HeaderError::Field("construction")),
        };
        let form = IdForm::ALL
            .into_iter()
            .find(|form| *form as u8 == bytes[11]);
        if bytes[80..CHECKSUM_AT].iter().any(|&byte| byte != 0) {
            return Err(HeaderError::Field("reserved"));
        }
        Ok(Self {
            kind,
            hasher: IdHasher {
                form: form.ok_or(HeaderError::Field("form of the ids"))?,
                seed: u64_at(bytes, 48),
            },
            parts: u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]),
            epoch: u64_at(bytes, 16),
            built_ms: u64_at(bytes, 24),
            ids: u64_at(bytes, 32),
            capacity_ids: u64_at(bytes, 40),
            rate: f64::from_bits(u64_at(bytes, 56)),
            payload_bytes: u64_at(bytes, 64),
            payload_checksum: u64_at(bytes, 72),
        })
    }
}

/// The reason why the bytes of a header are invalid. The caller compares the header with the file's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    NotAFilter,
    Version {
        found: u16,
    },
    Checksum {
        stored: u64,
        computed: u64,
    },
    /// The field with this name has an undefined value.
    Field(&'static str),
}

/// An entry of a shard in the directory of a fuse filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardEntry {
    pub(crate) shape: Shape,
    /// The seed with which the build of this shard succeeded; different from the seed of the hasher.
    pub(crate) seed: u64,
    /// The offset of the shard's bytes from the start of the payload.
    pub(crate) at: u64,
}

impl ShardEntry {
    pub(crate) fn to_bytes(self) -> [u8; SHARD_BYTES] {
        let mut bytes = [0; SHARD_BYTES];
        bytes[0..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.seed.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.shape.start_segments.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.shape.first_wide_slot.to_le_bytes());
        bytes[24] = self.shape.segment_log2;
        bytes[25] = self.shape.bits;
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; SHARD_BYTES]) -> Self {
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self {
            at: u64_at(bytes, 0),
            seed: u64_at(bytes, 8),
            shape: Shape {
                start_segments: u32_at(16),
                first_wide_slot: u32_at(20),
                segment_log2: bytes[24],
                bits: bytes[25],
            },
        }
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

/// The size of the header in bytes.
pub(crate) const HEADER_BYTES: usize = 128;

/// The size of a directory entry in bytes.
pub(crate) const SHARD_BYTES: usize = 32;

/// The magic bytes: a byte with which no text begins, the letters EWF, and line ends that a transfer in text mode
/// would change.
const MAGIC: [u8; 8] = *b"\x89EWF\r\n\x1a\n";

/// The version of the format.
pub(crate) const VERSION: u16 = 1;

const CHECKSUM_AT: usize = HEADER_BYTES - 8;
