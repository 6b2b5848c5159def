//! Tests that the current code opens a store of format version 1. Later code that cannot open this store must reject
//! it with an error that states the version number.
//!
//! The fixture contains the blocks of a store file that are not zero. For each block it has the block number in
//! eight bytes and the 4096 bytes of the block.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::*;

const BLOCK_BYTES: usize = 4096;

/// The size of the store file, 2 MiB: superblocks, checkpoint areas, and as many segments of 256 KiB as fit.
const CAPACITY: u64 = 256 * 1024 * 8;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/disk-store-v1.blocks")
}

fn settings_of(folder: &Path) -> DiskSettings {
    DiskSettings {
        segment_bytes: Some(ByteSize::kib(256)),
        key_seed: Some(0xfeed),
        ..DiskSettings::new(folder, ByteSize(CAPACITY))
    }
}

/// Writes the store's file from a packed fixture into `folder`.
fn unpack(packed: &Path, folder: &Path) {
    let packed = std::fs::read(packed).expect("the read succeeds");
    let file = File::create(folder.join(FILE_NAME)).expect("the file can be created");
    file.set_len(CAPACITY).expect("the length can be set");
    for entry in packed.chunks_exact(8 + BLOCK_BYTES) {
        let (number, block) = entry.split_at(8);
        let number = u64::from_le_bytes(number.try_into().expect("the slice has eight bytes"));
        file.write_all_at(block, number * BLOCK_BYTES as u64)
            .expect("the write succeeds");
    }
}

/// The fixture contains small objects, a purged object (key 3), an object in pieces (5), a replaced object (7) and an
/// object with a new head (20). It has a sealed segment that the checkpoint covers. Later records are in a segment
/// without a footer; the store searches it for records when it opens.
#[test]
fn a_store_of_version_1_opens() {
    let folder = tempfile::tempdir().expect("the folder is created");
    unpack(&fixture(), folder.path());
    let found = verify(folder.path(), |_| {}).expect("the fixture has version 1");
    assert_eq!((found.format_version, found.problems), (1, 0), "{found:?}");
    let (cache, report) =
        DiskCache::open(settings_of(folder.path())).expect("the fixture has version 1");
    assert!(report.devices[0].checkpoint, "{report:?}");
    assert_eq!(report.devices[0].searched, 1, "{report:?}");
    check_stored_objects(&cache);
}

fn check_stored_objects(cache: &DiskCache) {
    assert_eq!(cache.key_seed(), 0xfeed);
    for key in 0..12 {
        let length = match key {
            3 => None,
            5 => Some(150_000),
            7 => Some(77),
            _ => Some(1000),
        };
        let expected = length.map(|length| pattern(key, length));
        assert!(get(cache, key) == expected, "{key}");
    }
    let candidate = cache.lookup(KeyHash(20)).expect("the key is indexed");
    let object = cache
        .read_head(&candidate, &20_u64.to_le_bytes())
        .expect("the head is read");
    assert_eq!(
        (object.head().as_ref(), object.length()),
        (&b"newer"[..], 500)
    );
}

/// The environment variable `EDGEWARD_WRITE_FIXTURE=PATH` makes this test write the fixture of a new version.
#[test]
fn a_store_of_this_version_opens_after_a_crash() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let (cache, _) = DiskCache::open(settings_of(folder.path())).expect("the cache opens");
    // The last argument of `put` is true if the write states the length of the body at its start.
    (0..10).for_each(|key| put(&cache, key, &pattern(key, 1000), true));
    put(&cache, 5, &pattern(5, 150_000), true);
    cache.close().expect("the cache closes");
    drop(cache);
    let (cache, _) = DiskCache::open(settings_of(folder.path())).expect("the cache opens");
    (10..12).for_each(|key| put(&cache, key, &pattern(key, 1000), true));
    put(&cache, 7, &pattern(7, 77), false);
    put(&cache, 20, &pattern(20, 500), true);
    cache.sync().expect("the sync succeeds");
    let candidate = cache.lookup(KeyHash(20)).expect("the key is indexed");
    let name = 20_u64.to_le_bytes();
    let object = cache
        .read_head(&candidate, &name)
        .expect("the head is read");
    cache
        .update_head(&object, &name, "newer".into())
        .expect("the space is sufficient");
    cache
        .purge_synced(KeyHash(3), &3_u64.to_le_bytes())
        .expect("the sync succeeds");
    let bytes = std::fs::read(folder.path().join(FILE_NAME)).expect("the read succeeds");
    let packed = std::env::var_os("EDGEWARD_WRITE_FIXTURE")
        .map_or_else(|| folder.path().join("packed"), PathBuf::from);
    let mut out = File::create(&packed).expect("the file can be created");
    for (number, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
        if block.iter().any(|&byte| byte != 0) {
            out.write_all(&(number as u64).to_le_bytes())
                .expect("the write succeeds");
            out.write_all(block).expect("the write succeeds");
        }
    }
    let crashed = tempfile::tempdir().expect("the folder is created");
    unpack(&packed, crashed.path());
    let found = verify(crashed.path(), |_| {}).expect("the store has this version");
    assert_eq!(found.problems, 0, "{found:?}");
    let (cache, _) =
        DiskCache::open(settings_of(crashed.path())).expect("the store has this version");
    check_stored_objects(&cache);
}
