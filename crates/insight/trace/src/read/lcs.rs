//! Parses LCS, the format that libCacheSim writes: a header of 8192 bytes, then one packed little-endian record per
//! request.
//!
//! The header has a magic number at its start and the version at byte 8. libCacheSim also writes the magic number at
//! the end of the header, but not all other writers do. All versions begin a record with
//! a `u32` time in seconds and a `u64` object id. The size follows, a `u32` in the versions 1 and 2 and an `i64` later.
//! Later versions add an operation, a lifetime and features, which are ignored.

use edgeward_types::Timestamp;

use crate::Record;

pub(super) const HEADER_BYTES: usize = 8192;

/// Returns true if the input begins with the magic number.
pub(super) fn is_lcs(sample: &[u8]) -> bool {
    sample.starts_with(&MAGIC)
}

/// The layout of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LcsRecords {
    pub(super) record_bytes: usize,
    /// True if a size has 64 bits, as in version 3 and later.
    wide_sizes: bool,
}

impl LcsRecords {
    /// Reads the header. Returns the reason if it is invalid.
    pub(super) fn from_header(header: &[u8]) -> Result<Self, String> {
        let Some(header) = header.get(..HEADER_BYTES) else {
            return Err(format!(
                "its header has {} of its {HEADER_BYTES} bytes",
                header.len()
            ));
        };
        if !is_lcs(header) {
            return Err("it does not begin with the magic number".to_owned());
        }
        let (version, _) = header[8..]
            .split_first_chunk()
            .expect("the header has 8192 bytes");
        // A record of version 3 has 36 bytes; the versions 4 to 8 add 1, 2, 4, 8 and 16 features of 4 bytes.
        let (record_bytes, wide_sizes) = match u64::from_le_bytes(*version) {
            1 => (24, false),
            2 => (28, false),
            3 => (36, true),
            version @ 4..=8 => (36 + (4 << (version - 4)), true),
            version => return Err(format!("its version is {version}; 1 to 8 are supported")),
        };
        Ok(Self {
            record_bytes,
            wide_sizes,
        })
    }

    /// Decodes a record of `record_bytes` bytes.
    #[inline]
    pub(super) fn decode(self, bytes: &[u8]) -> Record {
        let (time, rest) = bytes
            .split_first_chunk()
            .expect("a record has 24 bytes or more");
        let (key, rest) = rest
            .split_first_chunk()
            .expect("a record has 24 bytes or more");
        let size = if self.wide_sizes {
            let (size, _) = rest
                .split_first_chunk()
                .expect("a record has 24 bytes or more");
            // A negative size is unknown.
            u64::try_from(i64::from_le_bytes(*size)).unwrap_or(0)
        } else {
            let (size, _) = rest
                .split_first_chunk()
                .expect("a record has 24 bytes or more");
            u64::from(u32::from_le_bytes(*size))
        };
        Record {
            time: Timestamp::from_secs(u64::from(u32::from_le_bytes(*time))),
            key: u64::from_le_bytes(*key),
            size,
        }
    }
}

const MAGIC: [u8; 8] = 0x1234_5678_9abc_def0_u64.to_le_bytes();

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version: u64) -> Vec<u8> {
        let mut header = vec![0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..16].copy_from_slice(&version.to_le_bytes());
        header
    }

    #[test]
    fn every_version_has_its_length_of_records() {
        for (version, record_bytes) in [
            (1, 24),
            (2, 28),
            (3, 36),
            (4, 40),
            (5, 44),
            (6, 52),
            (7, 68),
            (8, 100),
        ] {
            let records = LcsRecords::from_header(&header(version)).expect("the header is valid");
            assert_eq!(records.record_bytes, record_bytes, "{version}");
            let mut bytes = vec![0xff; record_bytes];
            bytes[..4].copy_from_slice(&7u32.to_le_bytes());
            bytes[4..12].copy_from_slice(&8u64.to_le_bytes());
            let size_bytes = if version < 3 { 4 } else { 8 };
            bytes[12..12 + size_bytes].copy_from_slice(&9u64.to_le_bytes()[..size_bytes]);
            let expected = Record {
                time: Timestamp::from_secs(7),
                key: 8,
                size: 9,
            };
            assert_eq!(records.decode(&bytes), expected, "{version}");
        }
    }

    #[test]
    fn an_invalid_header_is_rejected() {
        for version in [0, 9, u64::MAX] {
            assert!(
                LcsRecords::from_header(&header(version)).is_err(),
                "{version}"
            );
        }
        assert!(LcsRecords::from_header(&header(1)[..HEADER_BYTES - 1]).is_err());
        let mut damaged = header(1);
        damaged[0] ^= 1;
        assert!(LcsRecords::from_header(&damaged).is_err());
    }
}
