//! Every input that opens as a filter, delta, manifest or Guava filter can be used without a panic.
//!
//! The first byte selects the kind of file. If its highest bit is set, the header of a filter gets valid magic bytes,
//! version, payload length and checksum, so that the fuzzer gets past these checks.
//!
//! Run: `cargo +nightly fuzz run filter_open`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_filter::delta::Delta;
use edgeward_filter::guava::{Funnel, GuavaFilter};
use edgeward_filter::manifest::{Manifest, Proof};
use edgeward_filter::{Filter, IdHash, Trust, UpdatableFilter};

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, input)) = bytes.split_first() else {
        return;
    };
    match choice % 4 {
        0 => filter(input, choice & 0x80 != 0),
        1 => {
            if let Ok(delta) = Delta::from_bytes(input) {
                assert_eq!(delta.to_bytes(), input);
            }
        }
        2 => {
            if let Ok(manifest) = Manifest::from_line(input, &Trust::Transport) {
                let line = manifest.to_line(None);
                assert_eq!(Manifest::from_line(line.as_bytes(), &Trust::Transport), Ok(manifest));
            }
            _ = Proof::from_line(input, &Trust::Transport);
        }
        _ => {
            if let Ok(filter) = GuavaFilter::from_bytes(input) {
                assert_eq!(filter.to_bytes(), input);
                _ = filter.might_contain(Funnel::Utf8.hash(input).expect("any bytes"));
            }
        }
    }
});

fn filter(input: &[u8], repair_checksum: bool) {
    let mut bytes = input.to_vec();
    if repair_checksum && bytes.len() >= 128 {
        bytes[..8].copy_from_slice(b"\x89EWF\r\n\x1a\n");
        bytes[8..10].copy_from_slice(&1u16.to_le_bytes());
        let payload = bytes.len() as u64 - 128;
        bytes[64..72].copy_from_slice(&payload.to_le_bytes());
        // The format requires zeroes here.
        bytes[80..120].fill(0);
        let checksum = edgeward_types::xxh3::xxh3_64(&bytes[..120]);
        bytes[120..128].copy_from_slice(&checksum.to_le_bytes());
    }
    let Ok(filter) = Filter::open_trusted(&bytes) else {
        return;
    };
    for hash in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
        _ = filter.contains(IdHash(hash));
    }
    _ = filter.contains_spelling(input);
    _ = (filter.info(), filter.exact_rate(), filter.fingerprint());
    if let Some(mut updatable) = UpdatableFilter::resume(&filter) {
        _ = updatable.insert(IdHash(7));
        _ = updatable.to_filter(1);
    }
}
