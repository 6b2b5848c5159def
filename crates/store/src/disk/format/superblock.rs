//! The first block of a device: what it is and how it is divided.
//!
//! Written twice when the device is formatted and never again, so nothing that happens later can
//! tear it.

use super::{ChecksumSeed, Fields};

/// A device's constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// Tells devices apart; decides which keys are whose.
    pub(crate) device_id: u64,
    /// What full keys are hashed with. All devices of a cache have the same.
    pub(crate) key_seed: u64,
    /// What everything else on the device is checked with.
    pub(crate) checksum_seed: ChecksumSeed,
    pub(crate) segment_bytes: u64,
    /// Where the first segment begins; the others follow without a gap.
    pub(crate) segments_at: u64,
    /// Where the first of two checkpoint areas begins; the second follows.
    pub(crate) checkpoint_at: u64,
    /// Bytes of each.
    pub(crate) checkpoint_bytes: u64,
    /// Unix time of the formatting.
    pub(crate) created_secs: u64,
}

/// Bytes of one copy. The copies lie at 0 and at this.
pub(crate) const SUPERBLOCK_BYTES: usize = 4096;

/// The only version so far.
pub const FORMAT_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"edgeward";
/// All that counts lies in one sector, which is written whole or not at all: a crash while formatting leaves nothing
/// or a superblock, never something that has to be refused.
const CHECKSUM_AT: usize = 512 - 8;

/// Segments are no smaller: header, footer, a longest key, and a head and a piece of a quarter each.
const SEGMENT_BYTES_MIN: u64 = 256 << 10;

/// Segments are no larger: places within one are counted in 32 bits.
const SEGMENT_BYTES_MAX: u64 = 2 << 30;

/// Whether segments may have this size.
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
            self.segments_at,
            self.checkpoint_at,
            self.checkpoint_bytes,
            self.created_secs,
        ];
        for (n, field) in fields.into_iter().enumerate() {
            bytes[16 + n * 8..][..8].copy_from_slice(&field.to_le_bytes());
        }
        let checksum = UNSEEDED.of(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..][..8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads one copy.
    pub(crate) fn parse(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<Self, Unformatted> {
        if bytes.iter().all(|&byte| byte == 0) {
            return Err(Unformatted::Blank);
        }
        let mut fields = Fields(bytes);
        if fields.bytes() != MAGIC {
            return Err(Unformatted::Broken(SuperblockError::Foreign));
        }
        let version = fields.u32();
        // The version comes before the checksum: a later format may well check itself otherwise.
        if version != FORMAT_VERSION {
            let error = SuperblockError::Version { found: version };
            return Err(Unformatted::Broken(error));
        }
        let stored = Fields(&bytes[CHECKSUM_AT..]).u64();
        if stored != UNSEEDED.of(&bytes[..CHECKSUM_AT]) {
            return Err(Unformatted::Broken(SuperblockError::Corrupt));
        }
        fields.u32();
        let superblock = Self {
            device_id: fields.u64(),
            key_seed: fields.u64(),
            checksum_seed: ChecksumSeed(fields.u64()),
            segment_bytes: fields.u64(),
            segments_at: fields.u64(),
            checkpoint_at: fields.u64(),
            checkpoint_bytes: fields.u64(),
            created_secs: fields.u64(),
        };
        superblock
            .is_sound()
            .then_some(superblock)
            .ok_or(Unformatted::Broken(SuperblockError::Corrupt))
    }

    fn is_sound(&self) -> bool {
        let block = SUPERBLOCK_BYTES as u64;
        let checkpoints_end = self
            .checkpoint_bytes
            .checked_mul(2)
            .and_then(|bytes| bytes.checked_add(self.checkpoint_at));
        is_segment_size(self.segment_bytes)
            && self.segments_at.is_multiple_of(block)
            && self.checkpoint_at.is_multiple_of(block)
            && self.checkpoint_bytes.is_multiple_of(block)
            && self.checkpoint_at >= 2 * block
            && checkpoints_end.is_some_and(|end| end <= self.segments_at)
    }
}

/// Why a device cannot be used as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unformatted {
    /// There is nothing on it.
    Blank,
    /// There is something on it.
    Broken(SuperblockError),
}

/// What is wrong with a device's first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuperblockError {
    /// It begins with something else.
    #[error("it holds something that is not an edgeward store")]
    Foreign,
    /// Where a store would begin it is blank, but not elsewhere.
    #[error(
        "it holds something that is not an edgeward store, at byte {at}{}",
        .what.map_or_else(String::new, |what| format!(": {what}"))
    )]
    Occupied {
        /// The first byte that is not zero.
        at: u64,
        /// What it is, if that is known.
        what: Option<&'static str>,
    },
    /// Written by another version of this program.
    #[error("it has format version {found}, and this program reads version {FORMAT_VERSION} alone")]
    Version {
        /// The version that is there.
        found: u32,
    },
    /// Both copies are damaged.
    #[error("it was an edgeward store, and both copies of its superblock are damaged")]
    Corrupt,
}

/// The seed is in the superblock, so the superblock itself is checked without.
const UNSEEDED: ChecksumSeed = ChecksumSeed(0);
