//! The first block of a device. It identifies the device and describes its layout.
//!
//! Two copies are written when the device is formatted. They are never written again, so no later write can
//! damage them.

use super::fields::{ChecksumSeed, Fields};

/// The constants of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// The id of the device. It determines which keys are stored on the device.
    pub(crate) device_id: u64,
    /// The seed with which full keys are hashed. All devices of a cache have the same seed.
    pub(crate) key_seed: u64,
    /// The seed of all checksums on the device except those of the superblock and the serialised index.
    pub(crate) checksum_seed: ChecksumSeed,
    /// The size of each segment in bytes.
    pub(crate) segment_bytes: u64,
    /// The offset of the first segment in bytes. The other segments follow without gaps.
    pub(crate) segments_offset: u64,
    /// The offset in bytes of the first checkpoint area. The second area follows.
    pub(crate) checkpoint_offset: u64,
    /// The size of each checkpoint area in bytes.
    pub(crate) checkpoint_bytes: u64,
    /// The Unix time at which the device was formatted.
    pub(crate) created_unix_secs: u64,
}

/// The size of one copy. The first copy is at offset 0, the second copy at this offset.
pub(crate) const SUPERBLOCK_BYTES: usize = 4096;

/// The version of the format. No other version exists so far.
pub const FORMAT_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"edgeward";
/// The offset of the checksum. All fields are in one sector, which is written completely or not at all. A crash
/// during formatting therefore leaves either no superblock or a valid one.
const CHECKSUM_AT: usize = 512 - 8;

/// The size of the smallest segment. It has space for the header, the footer, the longest key, a head, and a part of
/// a body. The head may take a quarter of the segment, and the part another quarter.
const SEGMENT_BYTES_MIN: u64 = 256 << 10;

/// The size of the largest segment. Offsets within a segment have 32 bits, which allow less than 4 GiB; the
/// limit is the next lower power of two, 2 GiB.
const SEGMENT_BYTES_MAX: u64 = 2 << 30;

/// Returns true if segments may have this size.
pub(crate) const fn is_segment_size(bytes: u64) -> bool {
    bytes >= SEGMENT_BYTES_MIN
        && bytes <= SEGMENT_BYTES_MAX
        && bytes.is_multiple_of(SUPERBLOCK_BYTES as u64)
}

impl Superblock {
    pub(crate) fn to_bytes(self) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        let fields = [
            self.device_id,
            self.key_seed,
            self.checksum_seed.0,
            self.segment_bytes,
            self.segments_offset,
            self.checkpoint_offset,
            self.checkpoint_bytes,
            self.created_unix_secs,
        ];
        for (n, field) in fields.into_iter().enumerate() {
            bytes[16 + n * 8..][..8].copy_from_slice(&field.to_le_bytes());
        }
        let checksum = UNSEEDED.checksum(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..][..8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Parses one copy of the superblock.
    pub(crate) fn parse(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<Self, NoValidSuperblock> {
        if bytes.iter().all(|&byte| byte == 0) {
            return Err(NoValidSuperblock::Blank);
        }
        let mut fields = Fields(bytes);
        if fields.bytes() != MAGIC {
            return Err(NoValidSuperblock::Invalid(SuperblockError::Foreign));
        }
        let version = fields.u32();
        // The version is checked before the checksum, because a later format may have another checksum.
        if version != FORMAT_VERSION {
            let error = SuperblockError::Version { found: version };
            return Err(NoValidSuperblock::Invalid(error));
        }
        let stored = Fields(&bytes[CHECKSUM_AT..]).u64();
        if stored != UNSEEDED.checksum(&bytes[..CHECKSUM_AT]) {
            return Err(NoValidSuperblock::Invalid(SuperblockError::Corrupt));
        }
        // The four bytes after the version are unused.
        fields.u32();
        let superblock = Self {
            device_id: fields.u64(),
            key_seed: fields.u64(),
            checksum_seed: ChecksumSeed(fields.u64()),
            segment_bytes: fields.u64(),
            segments_offset: fields.u64(),
            checkpoint_offset: fields.u64(),
            checkpoint_bytes: fields.u64(),
            created_unix_secs: fields.u64(),
        };
        superblock
            .is_valid()
            .then_some(superblock)
            .ok_or(NoValidSuperblock::Invalid(SuperblockError::Corrupt))
    }

    fn is_valid(&self) -> bool {
        let block = SUPERBLOCK_BYTES as u64;
        let checkpoints_end = self
            .checkpoint_bytes
            .checked_mul(2)
            .and_then(|bytes| bytes.checked_add(self.checkpoint_offset));
        is_segment_size(self.segment_bytes)
            && self.segments_offset.is_multiple_of(block)
            && self.checkpoint_offset.is_multiple_of(block)
            && self.checkpoint_bytes.is_multiple_of(block)
            && self.checkpoint_offset >= 2 * block
            && checkpoints_end.is_some_and(|end| end <= self.segments_offset)
    }
}

/// The reason why a block is not a valid superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoValidSuperblock {
    /// All bytes of the block are zero. The device may have data elsewhere.
    Blank,
    /// The block has other data than a valid superblock.
    Invalid(SuperblockError),
}

/// The problem with the superblock of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuperblockError {
    /// The device begins with data that is not a superblock.
    #[error("its data is not an edgeward store")]
    Foreign,
    /// The blocks of the superblock are zeros, but the device has data elsewhere.
    #[error(
        "its data is not an edgeward store, at byte {at}{}",
        .kind.map_or_else(String::new, |kind| format!(": {kind}"))
    )]
    ForeignData {
        /// The offset of the first byte that is not zero.
        at: u64,
        /// The kind of the data, if it is recognised.
        kind: Option<&'static str>,
    },
    /// The store has another format version.
    #[error("it has format version {found}; this program reads only version {FORMAT_VERSION}")]
    Version {
        /// The version of the store.
        found: u32,
    },
    /// A copy has a wrong checksum or an impossible value. The parser returns this for one copy; a device has this
    /// problem only if the other copy is not valid either.
    #[error("it was an edgeward store, and both copies of its superblock are damaged")]
    Corrupt,
}

/// The seed of the superblock's own checksum. It is 0, because the random seed is known only after the
/// superblock is read.
const UNSEEDED: ChecksumSeed = ChecksumSeed(0);
