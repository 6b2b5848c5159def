//! The checkpoint of a scan is read up to the first invalid record, for any input.
//!
//! If the first byte is even, the other bytes are the checkpoint. If it is odd, they are converted to a checkpoint of
//! records with valid checksums: for each record one byte for its kind, one byte for its length, and then the bytes of
//! its payload. Run: `cargo +nightly fuzz run idsync_checkpoint`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use edgeward_types::xxh3::{xxh3_64_with_seed, xxh3_128};

use edgeward_idsync::{Checkpoint, Identity};

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, input)) = bytes.split_first() else {
        return;
    };
    let file = if choice & 1 == 1 {
        forged(input)
    } else {
        input.to_vec()
    };
    let scan = Identity::new(&[SCAN]);
    let mut hashes = Vec::new();
    let Ok(read) = Checkpoint::read(&file, scan, &mut |more| hashes.extend_from_slice(more)) else {
        assert!(choice & 1 == 0, "the header is valid");
        return;
    };
    assert!(hashes.len() * 8 <= file.len());
    _ = (read.ledger.rows(), read.ledger.malformed());
    assert_eq!(
        read.ledger.completed() + read.ledger.open_spans().count(),
        read.ledger.spans().len()
    );
    // Without the invalid bytes at its end, the checkpoint has the same contents.
    let whole = &file[..file.len() - usize::try_from(read.invalid_bytes).expect("within the file")];
    let mut same = Vec::new();
    let again = Checkpoint::read(whole, scan, &mut |more| same.extend_from_slice(more));
    let again = again.expect("the header is valid");
    assert_eq!((again.invalid_bytes, again.ledger, same), (0, read.ledger, hashes));
});

fn forged(mut input: &[u8]) -> Vec<u8> {
    let identity = [&(SCAN.len() as u64).to_le_bytes()[..], SCAN.as_bytes()].concat();
    let mut file = b"edgscan1".to_vec();
    file.extend_from_slice(&xxh3_128(&identity).to_le_bytes());
    // The start of the scan, in milliseconds since 1970.
    file.extend_from_slice(&7u64.to_le_bytes());
    let mut chain = xxh3_64_with_seed(&file, 0);
    file.extend_from_slice(&chain.to_le_bytes());
    while let [kind, length, rest @ ..] = input {
        let (payload, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        // Kinds 1 and 2 exist; 3 is invalid.
        let mut record = vec![1 + kind % 3];
        record.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        record.extend_from_slice(payload);
        chain = xxh3_64_with_seed(&record, chain);
        file.extend_from_slice(&record);
        file.extend_from_slice(&chain.to_le_bytes());
        input = rest;
    }
    file
}

const SCAN: &str = "fuzz";
