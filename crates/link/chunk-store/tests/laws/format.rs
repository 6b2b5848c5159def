//! Tests that the current code opens stores of all format versions, and writes the format of the golden file.

use std::fs;
use std::sync::Arc;

use edgeward_chunk_store::format::{Layout, Superblock, VERSION, VERSION_BLOCKS, VERSION_RAW};
use edgeward_chunk_store::{ChunkSettings, Chunks};
use edgeward_dedup::codec::Method;
use edgeward_dedup::store::Entry;
use edgeward_store::disk::Device;
use edgeward_testkit::disk::SimulatedDisk;

use crate::{has_bytes, is_stored, key, noise};

/// The bytes of a container without its trailer. A container and its trailer of 4 KiB follow each other on the disk.
const CONTAINER: usize = 16 << 10;

fn open(disk: &Arc<SimulatedDisk>, compression: Method) -> Chunks {
    // Chunks have a mean length of 256 bytes. A new store gets the epoch 77.
    let settings = ChunkSettings {
        layout: Layout::new(CONTAINER as u32).expect("the size is supported"),
        compression,
        ..ChunkSettings::new(256, 77)
    };
    Chunks::open(Arc::clone(disk) as Arc<dyn Device>, settings).expect("the store opens")
}

/// Returns a blank disk with space for the superblock and three containers.
fn disk() -> Arc<SimulatedDisk> {
    SimulatedDisk::new(4096 + 3 * (CONTAINER + 4096))
}

fn version(disk: &SimulatedDisk) -> u32 {
    let content = disk.content();
    let superblock = Superblock::decode(content.first_chunk().expect("the disk has a superblock"));
    superblock
        .expect("the superblock is valid")
        .expect("the superblock is not blank")
        .version
}

/// Returns a compressible chunk. The fixtures contain these chunks, from number 0 on.
pub(crate) fn line(number: usize) -> Vec<u8> {
    let words = (0..200).map(|word| format!("{number} and {} ", word % 17 * number));
    let mut line: Vec<u8> = words.flat_map(String::into_bytes).collect();
    line.truncate(800 + number * 37 % 400);
    line
}

fn store_chunk(store: &mut Chunks, bytes: &[u8]) {
    store
        .insert(key().id(bytes), bytes)
        .expect("the chunk fits in a container");
}

/// Adds the id and the length of a chunk to the store, without its bytes.
fn list(store: &mut Chunks, bytes: &[u8]) {
    let id = key().id(bytes);
    let length = bytes.len() as u32;
    let (location, found) = store.find_or_list(Entry { id, length });
    assert!(location.is_some() && !found);
}

fn fixture(name: &str) -> Arc<SimulatedDisk> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures");
    SimulatedDisk::with_content(
        fs::read(format!("{folder}/{name}")).expect("the fixture can be read"),
    )
}

/// A store of version 1 opens, its chunks are found, and it keeps its version until it is opened with
/// compression.
#[test]
fn a_store_of_the_first_version_opens() {
    let disk = fixture("chunk-store-v1.bin");
    let has_all_lines = |store: &mut Chunks| (0..30).all(|number| has_bytes(store, &line(number)));
    let mut store = open(&disk, Method::None);
    assert!(has_all_lines(&mut store));
    assert_eq!(version(&disk), VERSION_RAW);

    let mut store = open(&disk, Method::Zstd);
    assert!(has_all_lines(&mut store));
    assert_eq!(version(&disk), VERSION_BLOCKS);
    (100..105).for_each(|number| store_chunk(&mut store, &line(number)));
    store.flush().expect("the disk has no faults");
    // The new chunks were written to the third container. The first container was removed to be overwritten next.
    let mut store = open(&disk, Method::None);
    assert!((20..30).all(|number| has_bytes(&mut store, &line(number))));
    assert!((100..105).all(|number| has_bytes(&mut store, &line(number))));
    assert_eq!(version(&disk), VERSION_BLOCKS);
}

/// A store of version 2 opens and its compressed chunks are found. The fixture was written by the first program
/// with this version.
#[test]
fn a_store_of_the_second_version_opens() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../fixtures/chunk-store-v2.bin"
    );
    if std::env::var_os("EDGEWARD_RENEW_FIXTURES").is_some() {
        let disk = disk();
        for (method, numbers) in [(Method::Zstd, 0..4), (Method::Lz4, 4..8)] {
            let mut store = open(&disk, method);
            for number in numbers {
                store_chunk(&mut store, &line(number));
                store_chunk(&mut store, &noise(number, 100));
            }
            store.flush().expect("the disk has no faults");
        }
        fs::write(path, disk.content()).expect("the fixture can be written");
    }
    let mut store = open(&fixture("chunk-store-v2.bin"), Method::None);
    for number in 0..8 {
        assert!(has_bytes(&mut store, &line(number)), "line {number}");
        assert!(has_bytes(&mut store, &noise(number, 100)), "noise {number}");
    }
    let counters = store.counters();
    assert!(
        counters.raw_bytes > 2 * counters.stored_bytes,
        "{counters:?}"
    );
}

/// A store of version 3 opens. Its stored chunks can be loaded, and its listed chunks are found without bytes.
#[test]
fn a_store_of_the_third_version_opens() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../fixtures/chunk-store-v3.bin"
    );
    if std::env::var_os("EDGEWARD_RENEW_FIXTURES").is_some() {
        let disk = disk();
        for method in [Method::Zstd, Method::None] {
            let mut store = open(&disk, method);
            let first = 3 * usize::from(method == Method::None);
            (first..first + 3).for_each(|number| store_chunk(&mut store, &line(number)));
            (first..first + 3).for_each(|number| list(&mut store, &noise(number, 1500)));
            store.flush().expect("the disk has no faults");
        }
        fs::write(path, disk.content()).expect("the fixture can be written");
    }
    let disk = fixture("chunk-store-v3.bin");
    let mut store = open(&disk, Method::None);
    assert_eq!(version(&disk), VERSION);
    for number in 0..6 {
        assert!(has_bytes(&mut store, &line(number)), "line {number}");
        let id = key().id(&noise(number, 1500));
        let location = store.locate(&id).expect("the chunk is listed");
        assert!(!is_stored(&store, location), "noise {number}");
    }
    assert_eq!(store.counters().listed_bytes, 6 * 1500);
}

/// The bytes of superblocks and trailers equal the golden file, for stores without compression, with compression, and
/// with listed chunks.
#[test]
fn the_format_equals_the_golden_file() {
    let hex = |bytes: &[u8]| {
        let bytes = bytes.iter().map(|byte| format!("{byte:02x}"));
        bytes.collect::<String>()
    };
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../vectors/link/store.txt"
    );
    let golden = fs::read_to_string(path).expect("the golden file can be read");
    let mut written = golden
        .lines()
        .next()
        .expect("the golden file has a first line")
        .to_owned()
        + "\n";
    for (name, method, listed) in [
        ("", Method::None, false),
        ("compressed ", Method::Lz4, false),
        ("listed ", Method::None, true),
    ] {
        let disk = disk();
        let mut store = open(&disk, method);
        for number in 0..3 {
            let bytes = 700 + number * 37 % 900;
            if listed && number > 0 {
                list(&mut store, &noise(number, bytes));
            } else {
                store_chunk(&mut store, &noise(number, bytes));
            }
        }
        // Neighbouring chunks that are stored in the same way form a block. The trailer lists blocks only if it has
        // compressed or listed chunks.
        let mut blocks = if listed { 2 } else { 0 };
        if method != Method::None {
            (0..3).for_each(|number| store_chunk(&mut store, &line(number)));
            // The trailer has two blocks. The golden file also has the 8 bytes of padding after them.
            blocks = 3;
        }
        store.flush().expect("the disk has no faults");
        let content = disk.content();
        let trailer = 4096 + CONTAINER;
        let entries = if blocks == 3 { 6 } else { 3 };
        // A trailer has a head of 32 bytes, 20 bytes per chunk and 8 bytes per block.
        let trailer = &content[trailer..trailer + 32 + entries * 20 + blocks * 8];
        written += &format!("{name}superblock {}\n", hex(&content[..32]));
        written += &format!("{name}trailer {}\n", hex(trailer));
    }
    if std::env::var_os("EDGEWARD_RENEW_VECTORS").is_some() {
        fs::write(path, &written).expect("the golden file can be written");
    } else {
        assert_eq!(written, golden);
    }
}
