//! The metadata that the edge stores with a body on disk: any bytes are rejected or parsed without a panic. A
//! parsed marker can be written and parsed again without a change.
//!
//! Run: `cargo +nightly fuzz run disk_head`.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

use edgeward_proxy::disk_head::{self, DiskHead};

fuzz_target!(|input: &[u8]| {
    let bytes = Bytes::copy_from_slice(input);
    let Ok(read) = disk_head::parse(&bytes) else {
        return;
    };
    let written = match &read {
        DiskHead::Varies { fields, generation } => disk_head::write_varies(fields, *generation),
        DiskHead::PathRule { rule, generation } => disk_head::write_path_rule(rule, *generation),
        DiskHead::Response { .. } => return,
    };
    assert_eq!(disk_head::parse(&written).as_ref(), Ok(&read));
});
