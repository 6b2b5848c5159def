//! Tests of the structures on the device: their sizes, their encoding, and the detection of corruption.

use edgeward_policy::log::LogShape;
use proptest::prelude::*;

use super::*;

const SEED: ChecksumSeed = ChecksumSeed(0x5eed);
const SEGMENT_BYTES: u64 = 1 << 20;

#[test]
fn the_simulator_and_the_format_have_the_same_sizes() {
    let shape = LogShape::new(64 << 20);
    assert_eq!(shape.segment_header_bytes, SEGMENT_HEADER_BYTES as u64);
    // `footer_bytes` is the fixed part of a footer, which is the trailer.
    assert_eq!(shape.footer_bytes, TRAILER_BYTES as u64);
    assert_eq!(shape.footer_entry_bytes, ENTRY_BYTES as u64);
    assert_eq!(shape.footer_align_bytes, crate::disk::WRITE_ALIGN);
    assert_eq!(shape.record_align_bytes, crate::disk::Location::UNIT_BYTES);
    assert_eq!(shape.record_header_bytes, RECORD_HEADER_BYTES as u64);
    assert_eq!(shape.block_bytes, BLOCK_BYTES);
    // An extent is the location of one piece of a body; a commit record has one for each piece.
    assert_eq!(shape.extent_bytes, size_of::<u64>() as u64 * 3);
    for body_bytes in [0, 1, 65_536, 65_537, 1 << 20] {
        let header = header(RecordKind::Object, 9, 20, body_bytes);
        assert_eq!(shape.record_bytes(29, body_bytes), header.record_bytes());
    }
}

fn header(kind: RecordKind, key_bytes: u16, head_bytes: u32, body_bytes: u64) -> RecordHeader {
    RecordHeader {
        kind,
        key_bytes,
        head_bytes,
        // The items of an object's table are the checksums of the body's blocks.
        item_count: u32::try_from(block_count_of(body_bytes)).expect("the number is small"),
        hash: 1,
        object_id: 2,
        epoch: 3,
        body_bytes,
        body_offset: 4,
        written_unix_secs: 5,
    }
}

fn superblock() -> Superblock {
    Superblock {
        device_id: 1,
        key_seed: 2,
        checksum_seed: SEED,
        segment_bytes: SEGMENT_BYTES,
        segments_offset: 1 << 16,
        checkpoint_offset: 8192,
        checkpoint_bytes: 8192,
        created_unix_secs: 3,
    }
}

#[test]
fn every_structure_reads_back_as_written() {
    assert_eq!(
        Superblock::parse(&superblock().to_bytes()),
        Ok(superblock())
    );
    let header = SegmentHeader {
        segment: 7,
        epoch: 9,
        oldest_used_epoch: 4,
        opened_unix_secs: 1,
        segments: 12,
    };
    let bytes = header.to_bytes(SEED);
    assert_eq!(SegmentHeader::parse(&bytes, SEED, 7), Some(header));
    assert_eq!(
        SegmentHeader::parse(&bytes, SEED, 8),
        None,
        "another segment"
    );
    let other = ChecksumSeed(1);
    assert_eq!(
        SegmentHeader::parse(&bytes, other, 7),
        None,
        "another device"
    );
    let trailer = Trailer {
        entries: 3,
        epoch: 9,
        records_end: 5000,
        entries_checksum: 1,
    };
    let bytes = trailer.to_bytes(SEED);
    assert_eq!(
        Trailer::parse(&bytes, SEED, 9, SEGMENT_BYTES),
        Some(trailer)
    );
    assert_eq!(
        Trailer::parse(&bytes, SEED, 8, SEGMENT_BYTES),
        None,
        "an older epoch"
    );
    let checkpoint = CheckpointHeader {
        sequence: 1,
        epoch: 2,
        bytes: 3,
    };
    assert_eq!(
        CheckpointHeader::parse(&checkpoint.to_bytes(SEED), SEED),
        Some(checkpoint)
    );
    let extent = Extent {
        offset: 1,
        epoch: 2,
        body_bytes: 3,
        meta_bytes: 4,
    };
    assert_eq!(Extent::parse_all(&extent.to_bytes()).next(), Some(extent));
}

/// A flipped bit is detected in a record's metadata and in a superblock.
///
/// Method: flip each bit of a record's metadata. In the superblock, flip each bit of the fields, one bit of the
/// unused bytes and one bit of the checksum.
#[test]
fn a_flipped_bit_is_detected() {
    let bytes = superblock().to_bytes();
    for bit in (0..80 * 8).chain([300 * 8, 511 * 8]) {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::parse(&flipped).is_err(), "bit {bit}");
    }
    let header = header(RecordKind::Object, 3, 4, 10);
    let mut meta = vec![7; header.meta_bytes()];
    header.seal(&mut meta, SEED);
    for bit in 0..meta.len() * 8 {
        let mut flipped = meta.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let detected = match RecordHeader::parse(&flipped, SEGMENT_BYTES) {
            Err(_) => true,
            Ok(header) => {
                header.meta_bytes() != meta.len() || header.check(&flipped, SEED).is_err()
            }
        };
        assert!(detected, "bit {bit}");
    }
}

#[test]
fn an_invalid_superblock_is_rejected_with_its_cause() {
    let blank = [0; SUPERBLOCK_BYTES];
    assert_eq!(Superblock::parse(&blank), Err(NoValidSuperblock::Blank));
    let mut foreign = blank;
    foreign[0] = 1;
    let invalid = |error| Err(NoValidSuperblock::Invalid(error));
    assert_eq!(
        Superblock::parse(&foreign),
        invalid(SuperblockError::Foreign)
    );
    let mut later = superblock().to_bytes();
    later[8] = 2;
    let version = SuperblockError::Version { found: 2 };
    assert_eq!(Superblock::parse(&later), invalid(version));
    let mut torn = superblock().to_bytes();
    torn[40..512].fill(0);
    assert_eq!(Superblock::parse(&torn), invalid(SuperblockError::Corrupt));
    for impossible in [
        Superblock {
            segment_bytes: 0,
            ..superblock()
        },
        Superblock {
            segment_bytes: u64::MAX,
            ..superblock()
        },
        Superblock {
            segments_offset: 8192,
            ..superblock()
        },
        Superblock {
            checkpoint_bytes: !4095,
            ..superblock()
        },
        Superblock {
            checkpoint_offset: 0,
            ..superblock()
        },
    ] {
        let parsed = Superblock::parse(&impossible.to_bytes());
        assert_eq!(parsed, invalid(SuperblockError::Corrupt), "{impossible:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// A header that parses has lengths that fit in a segment, for any input bytes.
    #[test]
    fn a_parsed_header_fits_its_segment(mut bytes in prop::collection::vec(any::<u8>(), 72..200), kind in 0_u8..6) {
        bytes[..4].copy_from_slice(b"EWrc");
        bytes[4] = kind;
        bytes[5] = 0;
        if let Ok(header) = RecordHeader::parse(&bytes, SEGMENT_BYTES) {
            prop_assert!(header.record_bytes() <= SEGMENT_BYTES);
            prop_assert!(header.meta_bytes() as u64 <= header.record_bytes());
        }
    }
}
