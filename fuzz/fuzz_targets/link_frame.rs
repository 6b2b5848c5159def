//! Every frame of the link that can be decoded is encoded to the same bytes, except HELLO.
//!
//! Both kinds of [`Checksum`] are tested: one covers the whole payload, the other leaves out the bytes of a body.
//!
//! The first byte of the input selects whether the length, the type, the checksum of the header and that of the
//! whole payload are made valid first. Otherwise the decoder would reject nearly every random frame at its header.
//!
//! Run: `cargo +nightly fuzz run link_frame`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use edgeward_types::xxh3::{xxh3_64, xxh3_64_with_seed};

use edgeward_dedup::wire::{Checksum, HEADER_BYTES, decode, decode_with, frame_length};

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, input)) = bytes.split_first() else {
        return;
    };
    let mut frame = input.to_vec();
    if choice & 1 == 1 && frame.len() >= HEADER_BYTES {
        let payload = (frame.len() - HEADER_BYTES) as u32;
        frame[..4].copy_from_slice(&payload.to_le_bytes());
        // The types of frames are 1 to 14.
        frame[4] = 1 + frame[4] % 14;
        let check = xxh3_64(&frame[..5]).to_le_bytes();
        frame[5..8].copy_from_slice(&check[..3]);
        let first_half = u64::from_le_bytes(frame[..8].try_into().expect("eight bytes"));
        let checksum = xxh3_64_with_seed(&frame[HEADER_BYTES..], first_half);
        frame[8..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }
    if let Ok(decoded) = decode(&frame) {
        assert_eq!(frame_length(&frame), Ok(Some(frame.len())));
        let mut written = Vec::new();
        decoded.encode(&mut written);
        // A decoded HELLO (type 1) lacks the compression methods that this version does not know. Its encoding may
        // therefore differ.
        if frame[4] != 1 {
            assert_eq!(written, frame);
        }
        let mut fields_only = Vec::new();
        decoded.encode_with(Checksum::Fields, &mut fields_only);
        assert_eq!(decode_with(Checksum::Fields, &fields_only), Ok(decoded));
    }
    // With `Checksum::Fields`, the decoder parses the fields before it verifies the checksum. It therefore also
    // parses fields that are corrupt.
    _ = decode_with(Checksum::Fields, &frame);
});
