//! Trailers and superblocks of a chunk store: what was decoded can be encoded and decoded again without a change.
//!
//! The first byte selects a trailer or a superblock, and decides whether the checksum is corrected before the bytes are
//! decoded. Run: `cargo +nightly fuzz run chunk_trailer`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use edgeward_types::xxh3::{xxh3_64, xxh3_64_with_seed};

use edgeward_chunk_store::format::{Layout, SUPERBLOCK_BYTES, Superblock, Trailer};

const EPOCH: u64 = 7;

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, input)) = bytes.split_first() else {
        return;
    };
    let mut input = input.to_vec();
    if choice & 2 == 0 {
        trailer(&mut input, choice & 1 == 1);
    } else {
        superblock(input, choice & 1 == 1);
    }
});

fn trailer(input: &mut [u8], repair_checksum: bool) {
    // The argument is the size of a container: 16 KiB, the smallest permitted size.
    let layout = Layout::new(16 << 10).expect("a power of two");
    if repair_checksum && input.len() >= 32 {
        input[..8].copy_from_slice(b"EWchunks");
        input[16..24].fill(0);
        if let Some(whole) = Trailer::bytes(layout, input).filter(|whole| *whole <= input.len()) {
            let checksum = xxh3_64_with_seed(&input[..whole], EPOCH);
            input[16..24].copy_from_slice(&checksum.to_le_bytes());
        }
    }
    if let Some(trailer) = Trailer::decode(layout, EPOCH, input) {
        let mut written = Vec::new();
        trailer.encode(layout, EPOCH, &mut written);
        assert_eq!(Trailer::decode(layout, EPOCH, &written), Some(trailer));
    }
}

fn superblock(mut input: Vec<u8>, repair_checksum: bool) {
    input.resize(SUPERBLOCK_BYTES, 0);
    if repair_checksum {
        input[..8].copy_from_slice(b"\x89EWC\r\n\x1a\n");
        let version = 1 + u32::from(input[8]) % 3;
        input[8..12].copy_from_slice(&version.to_le_bytes());
        let checksum = xxh3_64(&input[..24]);
        input[24..32].copy_from_slice(&checksum.to_le_bytes());
    }
    let first: &[u8; SUPERBLOCK_BYTES] = input.first_chunk().expect("the input was extended to a superblock");
    if let Ok(Some(superblock)) = Superblock::decode(first) {
        assert_eq!(superblock.encode()[..32], first[..32]);
    }
}
