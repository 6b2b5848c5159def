//! Reads a publisher's journal up to the first invalid record, and decodes or rejects the stored position of its feed.
//!
//! The first byte of the input selects one of three inputs: any bytes as a journal, a journal of records with valid
//! checksums, or a position. With valid checksums, the fuzzer reaches the code after the checksum check. Run:
//! `cargo +nightly fuzz run publish_state`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_filter::IdHash;
use edgeward_filter::delta::Delta;
use edgeward_publish::{StoredPosition, read_log};

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, input)) = bytes.split_first() else {
        return;
    };
    match choice % 3 {
        0 => check_log(input),
        1 => check_log(&records(input)),
        _ => {
            if let Some(position) = StoredPosition::from_bytes(input) {
                assert_eq!(StoredPosition::from_bytes(&position.to_bytes()), Some(position));
            }
        }
    }
});

fn check_log(bytes: &[u8]) {
    let (deltas, end, has_lost_records) = read_log(bytes);
    let end = usize::try_from(end).expect("within the bytes");
    let written: Vec<u8> = deltas.iter().flat_map(Delta::to_bytes).collect();
    assert_eq!(written, bytes[..end]);
    // A record has at least 64 bytes, the length of its header.
    assert!(!has_lost_records || end + 64 < bytes.len(), "a valid record follows the end");
    // The valid part of the log contains no damage.
    let (again, same_end, has_lost_records) = read_log(&bytes[..end]);
    assert_eq!((again, same_end, has_lost_records), (deltas, end as u64, false));
}

/// Builds a journal from the first 64 bytes of `input`. A byte below 0xf0 is the number of ids of a record. Other
/// bytes are inserted between records unchanged.
fn records(input: &[u8]) -> Vec<u8> {
    let mut log = Vec::new();
    for (n, &byte) in input.iter().take(64).enumerate() {
        let n = n as u64;
        match byte {
            0xf0.. => log.push(byte),
            ids => {
                let ids = (0..u64::from(ids)).map(|id| IdHash(id << 16 | n)).collect();
                log.extend(Delta::new(7, n, n + 1, 0, ids).to_bytes());
            }
        }
    }
    log
}
