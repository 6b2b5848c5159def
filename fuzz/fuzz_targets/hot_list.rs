//! The list of hot objects: any bytes are rejected or parsed without a panic. A parsed list has the same bytes again.
//!
//! Run: `cargo +nightly fuzz run hot_list`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_store::hot_list::HotList;
use edgeward_types::xxh3::xxh3_64_with_seed;

fuzz_target!(|input: &[u8]| {
    if let Ok(list) = HotList::parse(input) {
        assert_eq!(list.bytes(), input);
    }
    // With a valid checksum, the fuzzer reaches the code behind the comparison of checksums.
    let mut signed = input.to_vec();
    signed.extend_from_slice(&xxh3_64_with_seed(input, 0).to_le_bytes());
    if let Ok(list) = HotList::parse(&signed) {
        assert_eq!(list.bytes(), signed);
    }
});
