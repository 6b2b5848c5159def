//! The sizes of records and segments, from which the space of a log is computed.

/// The sizes of a log's record format.
///
/// The defaults are those of disk format version 1. A test in `store` checks that they agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogShape {
    /// Bytes of a segment. Usually a power of two.
    pub segment_bytes: u64,
    /// Bytes at the start of every segment.
    pub segment_header_bytes: u64,
    /// Bytes at the end of every segment, independent of its content.
    pub footer_bytes: u64,
    /// Bytes at the end of a segment per record.
    pub footer_entry_bytes: u64,
    /// The size of the footer is rounded up to a multiple of this.
    pub footer_align_bytes: u64,
    /// Records start at multiples of this.
    pub record_align_bytes: u64,
    /// Bytes of a record's header, without key and head.
    pub record_header_bytes: u64,
    /// Bytes of body per checksum.
    pub block_bytes: u64,
    /// Bytes of a checksum.
    pub checksum_bytes: u64,
    /// Longer bodies are split into pieces of this length.
    pub piece_bytes: u64,
    /// Bytes per piece in the last record of an object.
    pub extent_bytes: u64,
}

impl LogShape {
    /// Returns the sizes of the disk format, with segments of `segment_bytes`.
    pub const fn new(segment_bytes: u64) -> Self {
        let block_bytes = 64 << 10;
        // A piece has 1 MiB, or less in a small segment: at most a quarter of the segment, in whole blocks.
        let quarter = segment_bytes / 4 / block_bytes;
        let blocks = if quarter == 0 {
            1
        } else if quarter > 16 {
            16
        } else {
            quarter
        };
        Self {
            segment_bytes,
            segment_header_bytes: 4096,
            footer_bytes: 64,
            footer_entry_bytes: 32,
            footer_align_bytes: 4096,
            record_align_bytes: 512,
            record_header_bytes: 72,
            block_bytes,
            checksum_bytes: 8,
            piece_bytes: blocks * block_bytes,
            extent_bytes: 24,
        }
    }

    /// Returns the default segment size on a device of `device_bytes`: 64 MiB, or less (at least 4 MiB) if the device
    /// would have fewer than [`SEGMENTS_FEW`] segments of this size. With few segments, one reclaim would evict a
    /// large share of the objects.
    pub const fn segment_bytes_for(device_bytes: u64) -> u64 {
        let mut segment_bytes = 64 << 20;
        while device_bytes / segment_bytes < SEGMENTS_FEW && segment_bytes > 4 << 20 {
            segment_bytes /= 2;
        }
        segment_bytes
    }

    /// Returns the size of a record with `body_bytes` of body and `key_and_head_bytes` of key and head.
    pub const fn record_bytes(&self, key_and_head_bytes: u64, body_bytes: u64) -> u64 {
        let blocks = body_bytes.div_ceil(self.block_bytes);
        self.record_header_bytes + key_and_head_bytes + blocks * self.checksum_bytes + body_bytes
    }

    /// Returns the size of the last record of an object with this number of pieces.
    pub const fn commit_bytes(&self, key_and_head_bytes: u64, pieces: u64) -> u64 {
        self.record_header_bytes + key_and_head_bytes + pieces * self.extent_bytes
    }

    /// Returns true if a body of this length is split into pieces.
    pub const fn is_cut(&self, body_bytes: u64) -> bool {
        body_bytes > self.piece_bytes
    }

    /// Returns the size of the largest record that a segment can hold.
    pub const fn record_bytes_max(&self) -> u64 {
        let footer = self.footer_bytes_for(1);
        let rest = self
            .segment_bytes
            .saturating_sub(self.segment_header_bytes + footer);
        rest - rest % self.record_align_bytes
    }

    pub(super) const fn footer_bytes_for(&self, entries: u64) -> u64 {
        (self.footer_bytes + entries * self.footer_entry_bytes)
            .next_multiple_of(self.footer_align_bytes)
    }
}

/// A device of at least 64 MiB has at least this many segments of the default size. A reserve of two segments is then
/// at most an eighth of the space.
pub const SEGMENTS_FEW: u64 = 16;
