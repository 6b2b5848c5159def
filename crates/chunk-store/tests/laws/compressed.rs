//! Tests of compressed stores: more chunks fit on a device, and loading them needs no more reads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use edgeward_chunk_store::Chunks;
use edgeward_chunk_store::format::Trailer;
use edgeward_dedup::codec::Method;
use edgeward_dedup::store::{ChunkLocation, ChunkStore, Entry, bytes_of, load_verified};
use edgeward_store::disk::Device;
use edgeward_testkit::disk::SimulatedDisk;

use crate::{CONTAINER, disk, has_bytes, key, layout, noise, open, settings, text};

const COMPRESSING: [Method; 2] = [Method::Lz4, Method::Zstd];

/// Counts reads of chunks.
#[derive(Debug)]
struct Counting {
    disk: Arc<SimulatedDisk>,
    reads: AtomicU64,
}

impl Device for Counting {
    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.disk.read_at(buffer, offset)
    }

    fn read_now_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.read_now_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn name(&self) -> String {
        self.disk.name()
    }
}

fn store_chunk(store: &mut Chunks, bytes: &[u8]) -> ChunkLocation {
    store
        .insert(key().id(bytes), bytes)
        .expect("the chunk fits in a container")
}

/// With compression, a device has space for at least one and a half times as many texts. The counters are the same
/// after the store is opened again.
#[test]
fn compressed_text_takes_a_fraction() {
    let kept = |method: Method| {
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
    let raw = kept(Method::None);
    for method in COMPRESSING {
        let packed = kept(method);
        // The factor is low because a container of 64 KiB has at most 16 blocks, each of at most 8 KiB before
        // compression.
        assert!(packed * 2 >= raw * 3, "{method:?}: {packed}, without {raw}");
    }
}

/// A store with compression writes chunks that do not compress exactly like a store without compression.
#[test]
fn noise_is_stored_uncompressed() {
    let written = |method: Method| {
        let disk = disk();
        let mut store = open(&disk, method);
        (0..50).for_each(|number| _ = store_chunk(&mut store, &noise(number, 3000)));
        store.flush().expect("the disk has no faults");
        disk.content()[4096..].to_vec()
    };
    let raw = written(Method::None);
    assert!(COMPRESSING.map(written).iter().all(|packed| *packed == raw));
}

/// Neighbouring chunks in several blocks are loaded with one read. If they are loaded one by one, each block is read
/// once.
#[test]
fn a_run_is_one_read() {
    for method in COMPRESSING {
        let disk = disk();
        let mut store = open(&disk, method);
        let chunk = |number: usize| match number % 7 {
            0 => noise(number, 5000),
            _ => text(number, 2000),
        };
        let places: Vec<_> = (0..21)
            .map(|number| store_chunk(&mut store, &chunk(number)))
            .collect();
        assert!(places.iter().all(|place| place.container == 0));
        store.flush().expect("the disk has no faults");
        let counting = Arc::new(Counting {
            disk: Arc::clone(&disk),
            reads: AtomicU64::new(0),
        });
        let device = Arc::clone(&counting) as Arc<dyn Device>;
        let mut store = Chunks::open(device, settings(method)).expect("the store opens");
        let mut load = |from: usize, most: usize| {
            let mut entries: Vec<Entry> = Vec::new();
            store.entries(places[from], most, &mut entries);
            let before = counting.reads.load(Ordering::Relaxed);
            let mut bytes = vec![0; bytes_of(&entries)];
            assert!(load_verified(
                &mut store,
                &key(),
                places[from],
                &entries,
                &mut bytes
            ));
            let expected: Vec<u8> = (from..from + entries.len()).flat_map(chunk).collect();
            assert!(bytes == expected, "{method:?} from {from}, {most}");
            counting.reads.load(Ordering::Relaxed) - before
        };
        for (from, most) in [(0, 21), (2, 13), (5, 1), (7, 1), (20, 1)] {
            assert_eq!(load(from, most), 1, "{method:?} from {from}, {most}");
        }
        let content = disk.content();
        let trailer = Trailer::decode(layout(), 77, &content[4096 + CONTAINER..]);
        let blocks = trailer.expect("it was written").blocks.len() as u64;
        assert!((4..12).contains(&blocks), "{method:?}: {blocks} blocks");
        let one_by_one: u64 = (0..21).map(|from| load(from, 1)).sum();
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
    for method in COMPRESSING {
        let disk = disk();
        let mut store = open(&disk, method);
        let texts: Vec<_> = (0..4).map(|number| text(number, 2000)).collect();
        texts
            .iter()
            .for_each(|text| _ = store_chunk(&mut store, text));
        store.flush().expect("the disk has no faults");
        // Overwrites the beginning of the block, which is necessary to decompress it.
        disk.write_at(&[0xff; 4096], 4096)
            .expect("the disk has no faults");
        let place = store
            .locate(&key().id(&texts[1]))
            .expect("its id is listed");
        let mut entries = Vec::new();
        store.entries(place, 1, &mut entries);
        let mut bytes = vec![0; bytes_of(&entries)];
        assert!(!load_verified(
            &mut store,
            &key(),
            place,
            &entries,
            &mut bytes
        ));
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

/// With compression, a new store gets an index for twice as many chunks as without. If the existing chunks compress
/// better, a store that is opened again gets a larger index.
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
    let again = bytes(Method::None);
    assert!(again > 3 * without, "{without} and {again} bytes");
}
