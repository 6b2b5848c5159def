//! Invalid files: truncated, corrupt, contradictory or hostile.

use proptest::prelude::*;

use edgeward_filter::{
    Filter, FilterParams, IdHash, IdHasher, OpenError, Rate, StaticBuilder, UpdatableFilter,
};

fn params() -> FilterParams {
    FilterParams::with_rate(Rate::new(0.01).expect("a rate"))
}

fn static_filter() -> Vec<u8> {
    let mut builder = StaticBuilder::new(params());
    for n in 0..300 {
        builder
            .insert(IdHasher::default().hash_integer(n))
            .expect("the number of ids is below the limit");
    }
    builder
        .finish()
        .expect("the construction succeeds for random ids")
        .into_bytes()
}

fn updatable_filter() -> Vec<u8> {
    let mut filter = UpdatableFilter::new(params(), 300).expect("the number of blocks fits");
    for n in 0..300 {
        _ = filter
            .insert(IdHasher::default().hash_integer(n))
            .expect("the filter has space");
    }
    // The argument is the epoch in the header.
    filter.to_filter(1).into_bytes()
}

/// Changes a field and corrects the header's checksum, as an attacker would.
fn forge(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
    let checksum = edgeward_types::xxh3::xxh3_64(&bytes[..120]);
    bytes[120..128].copy_from_slice(&checksum.to_le_bytes());
}

/// Method: truncate a filter at every length.
#[test]
fn a_truncated_file_is_refused_at_every_length() {
    for whole in [static_filter(), updatable_filter()] {
        for cut in 0..whole.len() {
            let error = Filter::open(&whole[..cut]).expect_err("the file is truncated");
            let expected = if cut < 8 {
                matches!(error, OpenError::NotAFilter)
            } else {
                matches!(
                    error,
                    OpenError::Truncated { .. }
                        | OpenError::Version { .. }
                        | OpenError::Checksum { .. }
                )
            };
            assert!(expected, "{cut}: {error}");
            assert!(Filter::open_trusted(&whole[..cut]).is_err());
        }
        let mut longer = whole.clone();
        longer.push(0);
        assert!(matches!(
            Filter::open(&longer),
            Err(OpenError::TrailingBytes { .. })
        ));
    }
}

/// Method: flip each bit of a filter.
#[test]
fn any_flipped_bit_is_detected() {
    for whole in [static_filter(), updatable_filter()] {
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Filter::open(&flipped).is_err(), "bit {bit}");
        }
    }
}

/// Every wrong field is refused. Numbers that would allocate terabytes, overflow, or point outside the file are
/// refused, because the parser compares them with the size of the file.
#[test]
fn a_forged_header_is_refused_without_allocating() {
    for whole in [static_filter(), updatable_filter()] {
        // Offsets: 10 construction, 11 form of the ids, 12 number of parts, 56 false-positive rate, 64 length of the
        // payload, 80 zeroes.
        for (at, field) in [
            (12, &u32::MAX.to_le_bytes()[..]),
            (12, &0u32.to_le_bytes()),
            (64, &u64::MAX.to_le_bytes()),
            (64, &(u64::MAX - 127).to_le_bytes()),
            (64, &0u64.to_le_bytes()),
            (56, &f64::NAN.to_le_bytes()),
            (56, &2f64.to_le_bytes()),
            (10, &[9]),
            (11, &[9]),
            (80, &[1]),
        ] {
            let mut forged = whole.clone();
            forge(&mut forged, at, field);
            let error = Filter::open_trusted(&forged).expect_err("the header is forged");
            assert!(!error.to_string().is_empty());
        }
    }
}

/// `open_trusted` does not verify the checksum of the payload, but it checks the fields of the shard directory.
#[test]
fn a_forged_shard_is_refused() {
    // Offsets, with the names of docs/reference/filter-format.md: 128 offset of the shard's slots, 144 `starts`,
    // 148 `wide_from`, 152 `log2`, 153 `bits`, 154 zeroes.
    for (at, field) in [
        (128, &u64::MAX.to_le_bytes()[..]),
        (128, &0u64.to_le_bytes()),
        (144, &u32::MAX.to_le_bytes()),
        (144, &0u32.to_le_bytes()),
        (148, &u32::MAX.to_le_bytes()),
        (152, &[200]),
        (152, &[16]),
        (153, &[0]),
        (153, &[64]),
        (154, &[1]),
    ] {
        let mut forged = static_filter();
        forged[at..at + field.len()].copy_from_slice(field);
        assert!(Filter::open_trusted(&forged).is_err(), "{at}");
    }
}

#[test]
fn a_file_of_another_kind_is_reported_as_such() {
    for other in [&b""[..], b"PK\x03\x04", &[0; 500], b"{\"json\": true}"] {
        assert_eq!(Filter::open(other).err(), Some(OpenError::NotAFilter));
    }
    let mut later = static_filter();
    later[8] = 2;
    let error = Filter::open(&later)
        .expect_err("the version is later")
        .to_string();
    assert!(error.contains("format version 2"), "{error}");
}

proptest! {
    /// Every file that opens without verification of its payload's checksum can be used without a panic.
    #[test]
    fn forged_payloads_cause_no_panic(
        forgeries in prop::collection::vec((128usize..400, any::<u8>()), 0..12), id: u64,
    ) {
        for mut bytes in [static_filter(), updatable_filter()] {
            for &(at, byte) in &forgeries {
                if at < bytes.len() {
                    bytes[at] = byte;
                }
            }
            if let Ok(filter) = Filter::open_trusted(&bytes) {
                _ = filter.contains(IdHash(id));
                _ = filter.info();
                _ = filter.exact_rate();
            }
        }
    }
}
