//! The log of purges: any bytes are rejected or parsed without a panic. A parsed log can be written again, and
//! restores a table within its bounds.
//!
//! Run: `cargo +nightly fuzz run purge_log`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_purge::log;
use edgeward_purge::{Limits, PurgeTable};

fuzz_target!(|input: &[u8]| {
    let Ok(parsed) = log::parse(input) else {
        return;
    };
    let mut written = parsed.header.bytes().to_vec();
    for record in &parsed.records {
        record.write(&parsed.header, &mut written);
    }
    assert_eq!(written, input[..parsed.valid_bytes]);
    let limits = Limits {
        entries_max: 4,
        patterns_max: 2,
    };
    let mut table = PurgeTable::new(limits, parsed.header.start, parsed.header.hash_seed);
    for record in parsed.records {
        table.apply(record);
    }
    assert!(table.size().entries <= 4 && table.size().patterns <= 2);
});
