//! Tests of the disk store through its public interface, each in a temporary folder.
//!
//! `fixture` opens a store of format version 1. `foreign_data` opens devices with data of other programs. `laws` tests
//! single properties. `oracle` compares random operations with a map. `spans` tests sending from the page cache.

use edgeward_types::{ByteSize, KeyHash};

use super::*;

mod fixture;
mod foreign_data;
mod laws;
mod oracle;
mod spans;

/// Returns a body of `length` bytes, which differs from the bodies of other keys.
fn pattern(key: u64, length: usize) -> Vec<u8> {
    (0..length)
        .map(|n| (n as u64).wrapping_mul(key * 2 + 7).to_le_bytes()[n % 3] ^ (n >> 12) as u8)
        .collect()
}

/// Returns the settings of a device with space for `segments` segments of 2 MiB, and 1 MiB for everything else, such as
/// superblocks and checkpoints.
fn settings(folder: &std::path::Path, segments: u64) -> DiskSettings {
    DiskSettings {
        segment_bytes: Some(ByteSize::mib(2)),
        ..DiskSettings::new(folder, ByteSize::mib(2 * segments + 1))
    }
}

/// Stores an object. If `announced` is true, the write states the length of the body at its start.
fn put(cache: &DiskCache, key: u64, body: &[u8], announced: bool) {
    let length = announced.then_some(body.len() as u64);
    let name = key.to_le_bytes();
    let head = format!("head of {key}").into();
    let mut write = cache
        .begin(KeyHash(key), &name, head, length)
        .expect("the write begins");
    for chunk in body.chunks(50_000) {
        write
            .push(chunk.to_vec().into())
            .expect("the push succeeds");
    }
    write.finish().expect("the body is complete");
}

/// Returns the body of an object, or `None` for a miss.
fn get(cache: &DiskCache, key: u64) -> Option<Vec<u8>> {
    let candidate = cache.lookup(KeyHash(key))?;
    let object = cache.read_head(&candidate, &key.to_le_bytes()).ok()?;
    assert_eq!(object.head(), format!("head of {key}").as_bytes());
    let mut body = Vec::new();
    while (body.len() as u64) < object.length() {
        let piece = object.read(body.len() as u64..object.length()).ok()?;
        assert!(!piece.is_empty());
        body.extend_from_slice(&piece);
    }
    Some(body)
}

#[test]
fn objects_of_every_size_are_read_byte_for_byte() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let (cache, report) = DiskCache::open(settings(folder.path(), 16)).expect("the cache opens");
    assert!(report.devices[0].formatted);
    let sizes = [
        0,
        1,
        511,
        65_535,
        65_536,
        65_537,
        1 << 20,
        (1 << 20) + 1,
        5_000_000,
    ];
    for (key, &size) in sizes.iter().enumerate() {
        for announced in [true, false] {
            let key = key as u64 * 2 + u64::from(announced);
            let body = pattern(key, size);
            put(&cache, key, &body, announced);
            cache.sync().expect("the sync succeeds");
            assert!(get(&cache, key) == Some(body), "{size} bytes, {announced}");
        }
    }
    cache.close().expect("the cache closes");
}

#[test]
fn objects_are_found_after_a_restart() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let (cache, _) = DiskCache::open(settings(folder.path(), 16)).expect("the cache opens");
    let seed = cache.key_seed();
    for key in 0..20 {
        put(&cache, key, &pattern(key, 150_000), true);
    }
    put(&cache, 99, &pattern(99, 3_000_000), true);
    cache.purge(KeyHash(3), &3_u64.to_le_bytes());
    cache.close().expect("the cache closes");
    drop(cache);
    let (cache, report) = DiskCache::open(settings(folder.path(), 16)).expect("the cache opens");
    assert_eq!(cache.key_seed(), seed);
    // 21 objects were stored and one was purged. No segment had to be searched record by record, because the
    // cache was closed.
    assert_eq!(report.devices[0].objects, 20, "{report:?}");
    assert_eq!(report.devices[0].searched, 0, "{report:?}");
    for key in (0..20).chain([99]) {
        let length = if key == 99 { 3_000_000 } else { 150_000 };
        let expected = (key != 3).then(|| pattern(key, length));
        assert!(get(&cache, key) == expected, "{key}");
    }
}

#[test]
fn a_full_log_evicts_the_oldest_objects() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let (cache, _) = DiskCache::open(settings(folder.path(), 6)).expect("the cache opens");
    for key in 0..200 {
        put(&cache, key, &pattern(key, 150_000), true);
        cache.sync().expect("the sync succeeds");
    }
    let present: Vec<_> = (0..200).filter(|&key| get(&cache, key).is_some()).collect();
    assert_eq!(
        present,
        (200 - present.len() as u64..200).collect::<Vec<_>>()
    );
    assert!(present.len() > 20, "{}", present.len());
    let counters = &cache.counters().devices[0];
    assert_eq!(counters.evicted_objects, 200 - present.len() as u64);
    assert_eq!(counters.checksum_failures, 0);
}
