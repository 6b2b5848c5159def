//! Checkpoints of a chunk store's index: any bytes are rejected or loaded without a panic, and a header that was
//! decoded is encoded to the same bytes. A loaded index has only valid positions, and is loaded again unchanged after a
//! save.
//!
//! The first byte decides whether the checksums are corrected before the bytes are decoded.
//! Run: `cargo +nightly fuzz run chunk_checkpoint`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use edgeward_types::xxh3::xxh3_64_with_seed;

use edgeward_chunk_store::checkpoint::{CHECKPOINT_HEADER_BYTES, CheckpointHeader};
use edgeward_chunk_store::{BLOCK_BUCKETS, Index};

/// The size of a bucket of the table in bytes.
const BUCKET_BYTES: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, input)) = bytes.split_first() else {
        return;
    };
    let mut input = input.to_vec();
    if choice & 1 == 1 && input.len() >= CHECKPOINT_HEADER_BYTES {
        repair(&mut input);
    }
    let Some((head, mut blocks)) = input.split_first_chunk() else {
        return;
    };
    let Ok(header) = CheckpointHeader::decode(head) else {
        return;
    };
    assert_eq!(header.encode(), *head);
    if header.buckets > 4 * BLOCK_BUCKETS {
        return;
    }
    let mut index = Index::with_buckets(header.buckets).expect("the memory is available");
    let loaded = header.read_blocks(&mut blocks, |start, block| {
        index.load_block(start, block, |position| position < header.containers);
        true
    });
    assert!(index.used() <= 10 * index.buckets());
    if loaded.is_err() {
        return;
    }
    let mut again = Index::with_buckets(index.buckets()).expect("the memory is available");
    let (mut start, mut block) = (0, Vec::new());
    while index.save_block(start, &mut block) {
        again.load_block(start, &block, |position| {
            assert!(position < header.containers);
            true
        });
        block.clear();
        start += BLOCK_BUCKETS;
    }
    assert_eq!((again.used(), again.dropped()), (index.used(), 0));
});

/// Corrects the magic number, the version, the container size and the checksums.
fn repair(input: &mut [u8]) {
    let (head, mut blocks) = input.split_at_mut(CHECKPOINT_HEADER_BYTES);
    head[..8].copy_from_slice(b"\x89EWI\r\n\x1a\n");
    head[8..12].copy_from_slice(&1_u32.to_le_bytes());
    head[12..16].copy_from_slice(&(16_u32 << 10).to_le_bytes());
    // The number of buckets is at most 256, so that the table has one block.
    head[41..48].fill(0);
    let seed = u64::from_le_bytes(*head[72..].first_chunk().expect("the header has a seed"));
    let checksum = xxh3_64_with_seed(&head[..80], seed);
    head[80..].copy_from_slice(&checksum.to_le_bytes());
    let block_bytes = usize::from(head[40]) * BUCKET_BYTES;
    if blocks.len() >= block_bytes + 8 {
        blocks = &mut blocks[..block_bytes + 8];
        let (block, stored) = blocks.split_at_mut(block_bytes);
        stored.copy_from_slice(&xxh3_64_with_seed(block, seed).to_le_bytes());
    }
}
