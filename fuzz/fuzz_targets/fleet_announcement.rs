//! A record of a fleet's node: any bytes are rejected or parsed without a panic. A parsed record can be encoded and
//! parsed again. The input is a key, a line feed, and the value.
//!
//! Run: `cargo +nightly fuzz run fleet_announcement`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_fleet::Announcement;

fuzz_target!(|input: &[u8]| {
    let Some(at) = input.iter().position(|byte| *byte == b'\n') else {
        return;
    };
    let Ok(key) = std::str::from_utf8(&input[..at]) else {
        return;
    };
    let Ok(record) = Announcement::parse(key, &input[at + 1..]) else {
        return;
    };
    let encoded = record.encode();
    assert_eq!(Announcement::parse(key, &encoded), Ok(record));
});
