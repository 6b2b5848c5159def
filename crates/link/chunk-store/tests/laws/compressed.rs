//! Tests of stores with compression. More chunks fit on a device, and a series of neighbouring chunks is still loaded
//! with one read.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use edgeward_chunk_store::Chunks;
use edgeward_chunk_store::format::Trailer;
use edgeward_dedup::codec::Method;
use edgeward_dedup::store::{ChunkLocation, bytes_of};
use edgeward_store::disk::Device;
use edgeward_testkit::disk::ObservedDisk;

use crate::{CONTAINER, ReadCounter, disk, has_bytes, key, layout, noise, open, settings, text};

const COMPRESSION_METHODS: [Method; 2] = [Method::Lz4, Method::Zstd];

fn store_chunk(store: &mut Chunks, bytes: &[u8]) -> ChunkLocation {
    store
        .insert(key().id(bytes), bytes)
        .expect("the chunk fits in a container")
}

/// With compression, a device has space for at least one and a half times as many texts. The counters are the same
/// after the store is opened again.
#[test]
fn compressed_text_takes_a_fraction() {
    let stored_texts = |method: Method| {
        let disk = disk();
        let mut store = open(&disk, method);
        let texts = || (0..192).map(|number| text(number, 4000));
        texts().for_each(|text| _ = store_chunk(&mut store, &text));
        store.flush().expect("the disk has no faults");
        let before = store.counters();
        let mut store = open(&disk, method);
        let after = store.counters();
        assert_eq!(before.raw_bytes, after.raw_bytes);
        assert_eq!(before.stored_bytes, after.stored_bytes);
        assert!(after.stored_bytes <= 3 * CONTAINER as u64, "{after:?}");
        let found = texts().filter(|text| has_bytes(&mut store, text)).count();
        assert_eq!(found as u64 * 4000, after.raw_bytes);
        found
    };
    let raw = stored_texts(Method::None);
    for method in COMPRESSION_METHODS {
        let compressed = stored_texts(method);
        // The factor is at most 2. The format allows one block for each 4 KiB of a container: 16 blocks in 64 KiB. A
        // block has at most 8 KiB before compression, so a container holds at most 128 KiB of chunks.
        assert!(
            compressed * 2 >= raw * 3,
            "{method:?}: {compressed} texts, {raw} without compression"
        );
    }
}

/// A store with compression writes incompressible chunks in the same way as a store without compression.
#[test]
fn noise_is_stored_uncompressed() {
    let written = |method: Method| {
        let disk = disk();
        let mut store = open(&disk, method);
        (0..50).for_each(|number| _ = store_chunk(&mut store, &noise(number, 3000)));
        store.flush().expect("the disk has no faults");
        // The containers begin after the superblock of 4096 bytes.
        disk.content()[4096..].to_vec()
    };
    let raw = written(Method::None);
    assert!(
        COMPRESSION_METHODS
            .map(written)
            .iter()
            .all(|packed| *packed == raw)
    );
}

/// Neighbouring chunks in several blocks are loaded with one read. If the chunks are loaded one by one, each block is
/// read at most once.
#[test]
fn a_run_is_one_read() {
    for method in COMPRESSION_METHODS {
        let disk = disk();
        let mut store = open(&disk, method);
        let chunk = |number: usize| match number % 7 {
            0 => noise(number, 5000),
            _ => text(number, 2000),
        };
        let locations: Vec<_> = (0..21)
            .map(|number| store_chunk(&mut store, &chunk(number)))
            .collect();
        assert!(locations.iter().all(|location| location.container == 0));
        store.flush().expect("the disk has no faults");
        let observed = ObservedDisk::new(Arc::clone(&disk) as _, ReadCounter::default());
        let reads = &observed.observer().0;
        let device = Arc::clone(&observed) as Arc<dyn Device>;
        let store = Chunks::open(device, settings(method)).expect("the store opens");
        let load = |first: usize, chunks_max: usize| {
            let entries = store.entries(locations[first], chunks_max);
            let before = reads.load(Ordering::Relaxed);
            let mut bytes = vec![0; bytes_of(&entries)];
            assert!(store.load(&key(), locations[first], &entries, &mut bytes));
            let expected: Vec<u8> = (first..first + entries.len()).flat_map(chunk).collect();
            assert!(
                bytes == expected,
                "{method:?} {chunks_max} chunks from {first}"
            );
            reads.load(Ordering::Relaxed) - before
        };
        for (first, chunks_max) in [(0, 21), (2, 13), (5, 1), (7, 1), (20, 1)] {
            assert_eq!(
                load(first, chunks_max),
                1,
                "{method:?} {chunks_max} chunks from {first}"
            );
        }
        let content = disk.content();
        // 77 is the epoch that `settings` gives to the store.
        let trailer = Trailer::decode(layout(), 77, &content[4096 + CONTAINER..]);
        let blocks = trailer.expect("the trailer was written").blocks.len() as u64;
        assert!((4..12).contains(&blocks), "{method:?}: {blocks} blocks");
        let one_by_one: u64 = (0..21).map(|first| load(first, 1)).sum();
        assert!(
            one_by_one <= blocks,
            "{method:?}: {one_by_one} reads, {blocks} blocks"
        );
    }
}

/// If a block cannot be decompressed, all its chunks are removed from the index, so that they are stored again
/// when they are received again.
#[test]
fn all_chunks_of_a_corrupt_block_are_forgotten() {
    for method in COMPRESSION_METHODS {
        let disk = disk();
        let mut store = open(&disk, method);
        let texts: Vec<_> = (0..4).map(|number| text(number, 2000)).collect();
        texts
            .iter()
            .for_each(|text| _ = store_chunk(&mut store, text));
        store.flush().expect("the disk has no faults");
        // Overwrites the beginning of the block. Without its beginning, the block cannot be decompressed.
        disk.write_at(&[0xff; 4096], 4096)
            .expect("the disk has no faults");
        let location = store
            .locate(&key().id(&texts[1]))
            .expect("the chunk is found");
        let entries = store.entries(location, 1);
        let mut bytes = vec![0; bytes_of(&entries)];
        assert!(!store.load(&key(), location, &entries, &mut bytes));
        assert!(
            texts
                .iter()
                .all(|text| store.locate(&key().id(text)).is_none())
        );
        assert_eq!(store.counters().forgotten, 4);
        texts
            .iter()
            .for_each(|text| _ = store_chunk(&mut store, text));
        assert!(texts.iter().all(|text| has_bytes(&mut store, text)));
    }
}

/// With compression, a new store gets an index for twice as many chunks as without. When a store is opened again,
/// its index is sized by the measured compression ratio of its chunks, also if new chunks are not compressed.
#[test]
fn the_index_is_sized_by_the_compression_ratio() {
    let disk = disk();
    let bytes = |method: Method| open(&disk, method).counters().index_bytes;
    let without = bytes(Method::None);
    let with = bytes(Method::Zstd);
    assert!(
        (with * 10 / without).abs_diff(20) <= 2,
        "{without} and {with} bytes"
    );
    let mut store = open(&disk, Method::Zstd);
    (0..60).for_each(|number| _ = store_chunk(&mut store, &text(number, 60_000)));
    store.flush().expect("the disk has no faults");
    let reopened = bytes(Method::None);
    assert!(reopened > 3 * without, "{without} and {reopened} bytes");
}
