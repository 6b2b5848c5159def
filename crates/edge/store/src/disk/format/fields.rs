//! The checksum of bytes, and the numbers in bytes.

use edgeward_types::xxh3::xxh3_64_with_seed;

/// The seed of a device's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChecksumSeed(pub(crate) u64);

impl ChecksumSeed {
    pub(crate) fn checksum(self, bytes: &[u8]) -> u64 {
        xxh3_64_with_seed(bytes, self.0)
    }
}

/// Reads numbers from the front of a slice. The caller has checked that the slice is long enough.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (head, rest) = self
            .0
            .split_first_chunk()
            .expect("the slice is long enough");
        self.0 = rest;
        *head
    }

    pub(super) fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.bytes())
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.bytes())
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}
